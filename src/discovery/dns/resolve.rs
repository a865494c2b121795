//! Resolves a name to addresses of both families, on the current runtime. getaddrinfo would block
//! the probe thread or need a thread of its own.
//!
//! This is our own stub resolver, together with `exchange`, `wire` and `settings`. We started with
//! hickory-resolver, but it cost 648 KB of RSS, even if the source was Kubernetes (docs/adr/0006).
//!
//! The search list is tried for both families together, because they must agree on which candidate
//! name is meant. The candidate that answered is worth remembering: with `ndots:5` in a pod, a
//! look-up of a Service otherwise costs up to ten questions.
//!
//! A look-up keeps no state. An edited resolv.conf takes effect, nothing is cached, and sockets and
//! buffers are released.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::timeout;

use super::exchange::{ANSWER_BYTES_MAX, exchange};
use super::settings::{self, Settings};
use super::{AddressFamily, wire};
use crate::discovery::address::valid_host_address;
use crate::limits::PEER_SLOTS_MAX;

/// Timeout of one look-up of all candidate names and both families.
const LOOKUP_TIME: Duration = Duration::from_secs(15);

/// Which servers are asked.
#[derive(Clone, Debug, Default)]
pub enum Servers {
    /// The servers of `/etc/resolv.conf` at the time of the look-up.
    #[default]
    System,
    /// Fixed servers, for tests.
    Fixed(Settings),
}

/// Why a look-up gave no trustworthy result.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The text is not a valid DNS name.
    #[error("'{0}' is not a DNS name: {1}")]
    Name(String, &'static str),
    /// There is no resolv.conf, or it names no server.
    #[error("/etc/resolv.conf: {0}")]
    System(String),
    /// `/etc/hosts` cannot be read.
    #[error("/etc/hosts: {0}")]
    Hosts(io::Error),
    /// The name exists, and has no address of the family.
    #[error("{0}: it has no {1} address")]
    NoAddress(String, AddressFamily),
    /// NXDOMAIN for every candidate.
    #[error("{0}: no such name (NXDOMAIN)")]
    NoSuchName(String),
    /// A server answered SERVFAIL or REFUSED, or is not reachable.
    #[error("{0}: {1}")]
    Server(String, String),
    /// The look-up did not finish in time.
    #[error("{0}: no answer within {1:?}")]
    Time(String, Duration),
}

impl ResolveError {
    /// Returns the kind, for the log.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Name(..) => "name",
            Self::System(_) => "system",
            Self::Hosts(_) => "hosts",
            Self::NoAddress(..) => "address",
            Self::NoSuchName(_) => "nxdomain",
            Self::Server(..) => "server",
            Self::Time(..) => "time",
        }
    }
}

/// The records of one family. A successful answer may be empty. None if only that family failed.
pub type FamilyRecords = Option<Vec<IpAddr>>;

/// A look-up that succeeded for at least one family.
#[derive(Debug)]
pub struct Resolved {
    /// The addresses of the A records.
    pub ipv4: FamilyRecords,
    /// The addresses of the AAAA records.
    pub ipv6: FamilyRecords,
    /// The shortest time to live of the records. None if there are no records.
    pub ttl: Option<Duration>,
    /// The candidate that answered, fully qualified.
    pub name: String,
    /// Why one family failed, if it did.
    pub partial: Option<ResolveError>,
}

/// Checks a name without sending a question.
///
/// # Errors
/// [`ResolveError::Name`]
pub fn check_name(name: &str) -> Result<(), ResolveError> {
    wire::encode_name(name).map(drop).map_err(|reason| ResolveError::Name(name.to_owned(), reason))
}

/// Looks `name` up in both families, within [`LOOKUP_TIME`].
///
/// # Errors
/// [`ResolveError`]; NXDOMAIN is one, an empty answer is not.
pub async fn resolve(servers: &Servers, name: &str) -> Result<Resolved, ResolveError> {
    let found = timeout(LOOKUP_TIME, walk(servers, name)).await;
    found.unwrap_or_else(|_| Err(ResolveError::Time(name.to_owned(), LOOKUP_TIME)))
}

async fn walk(servers: &Servers, name: &str) -> Result<Resolved, ResolveError> {
    check_name(name)?;
    let settings = match servers {
        Servers::System => settings::system().map_err(|e| ResolveError::System(e.to_string()))?,
        Servers::Fixed(settings) => settings.clone(),
    };
    let (mut empty, mut failed) = (None, None);
    let first = AtomicUsize::new(0);
    for candidate in candidates(name, &settings) {
        // A search domain that makes the name too long is not a candidate.
        let Ok(wire_name) = wire::encode_name(&candidate) else { continue };
        let of_family = |kind| ask(&settings, &first, &wire_name, kind);
        let (ipv4, ipv6) = tokio::join!(of_family(wire::A), of_family(wire::AAAA));
        match merge(ipv4, ipv6, candidate) {
            Ok(Some(found)) if found.ttl.is_some() => return Ok(found),
            Ok(Some(none)) => empty = empty.or(Some(none)),
            Ok(None) => {}
            // As libc does: servers that fail or refuse in one domain may know the name in another.
            Err(LookupFailure { reason, is_answer: true }) => failed = failed.or(Some(reason)),
            // The next candidate is not tried. If the right name times out, a wrong one must not
            // answer instead.
            Err(LookupFailure { reason, .. }) => return Err(ResolveError::Server(name.to_owned(), reason)),
        }
    }
    match (failed, empty) {
        // The candidate that failed may have addresses. So neither an empty answer nor NXDOMAIN of
        // another one is believed: they would empty a list of peers.
        (Some(reason), _) => Err(ResolveError::Server(name.to_owned(), reason)),
        (None, Some(empty)) => Ok(empty),
        (None, None) => Err(ResolveError::NoSuchName(name.to_owned())),
    }
}

/// Returns the names to try, as in resolv.conf(5). A name with fewer dots than `ndots` is tried
/// with the search list first, then as it is. A name with more dots is tried the other way round. A
/// name that ends in a dot is tried only as it is.
fn candidates(name: &str, settings: &Settings) -> Vec<String> {
    if name.ends_with('.') {
        return vec![name.to_owned()];
    }
    let absolute = format!("{name}.");
    let mut names: Vec<String> =
        settings.search.iter().map(|domain| format!("{name}.{}.", domain.trim_end_matches('.'))).collect();
    let dots = name.bytes().filter(|b| *b == b'.').count();
    let at = if dots >= settings.ndots { 0 } else { names.len() };
    names.insert(at, absolute);
    names
}

/// The answer for one family.
enum FamilyAnswer {
    Records(Vec<IpAddr>, Option<Duration>),
    NoSuchName,
    Failed(LookupFailure),
}

/// Why no server knows the records of a family.
#[derive(Debug)]
struct LookupFailure {
    reason: String,
    /// Whether a server has answered, so that the failure may be of this name alone.
    is_answer: bool,
}

/// Asks each server in turn, `attempts` times, until one answers. The one that has answered last is
/// the `first` of the next question: a silent one would otherwise take its whole time for each
/// domain of the search list, and leave none for the right one.
async fn ask(settings: &Settings, first: &AtomicUsize, name: &[u8], kind: u16) -> FamilyAnswer {
    let (mut reason, mut is_answer) = (String::new(), false);
    let begin = first.load(Ordering::Relaxed);
    for _ in 0..settings.attempts {
        for place in begin..begin + settings.servers.len() {
            let place = place % settings.servers.len();
            let server = settings.servers[place];
            let reply = match exchange(server, name, kind, settings.timeout, ANSWER_BYTES_MAX).await {
                Ok(reply) => reply,
                Err(error) => {
                    reason = format!("{server}: {error}");
                    continue;
                }
            };
            is_answer = true;
            first.store(place, Ordering::Relaxed);
            match reply.code {
                0 => {
                    let mut addresses = reply.addresses;
                    // IPv4-mapped addresses are left to the A records. As AAAA records they would
                    // come and go with those.
                    addresses.retain(|a| valid_host_address(*a) == Ok(*a));
                    if addresses.len() > PEER_SLOTS_MAX {
                        log::warn!("{} addresses, of which {} have slots", addresses.len(), PEER_SLOTS_MAX);
                        addresses.truncate(PEER_SLOTS_MAX);
                    }
                    return FamilyAnswer::Records(addresses, reply.ttl.map(|ttl| Duration::from_secs(ttl.into())));
                }
                wire::NXDOMAIN => return FamilyAnswer::NoSuchName,
                2 => reason = format!("{server}: server failure (SERVFAIL)"),
                code => reason = format!("{server}: response code {code}"),
            }
        }
    }
    FamilyAnswer::Failed(LookupFailure { reason, is_answer })
}

/// Merges both families of one candidate. None means that there is no such name.
fn merge(ipv4: FamilyAnswer, ipv6: FamilyAnswer, name: String) -> Result<Option<Resolved>, LookupFailure> {
    let (ipv4, ipv6, ttl, failed) = match (ipv4, ipv6) {
        (FamilyAnswer::NoSuchName, FamilyAnswer::NoSuchName) => return Ok(None),
        (FamilyAnswer::Failed(one), FamilyAnswer::Failed(other)) => {
            return Err(LookupFailure { is_answer: one.is_answer || other.is_answer, ..one });
        }
        // NXDOMAIN is an answer of a server, too.
        (FamilyAnswer::Failed(failed), FamilyAnswer::NoSuchName)
        | (FamilyAnswer::NoSuchName, FamilyAnswer::Failed(failed)) => {
            return Err(LookupFailure { is_answer: true, ..failed });
        }
        // A name that has one family exists. Some servers answer NXDOMAIN for the other family if
        // it is empty.
        (FamilyAnswer::Records(v4, ttl), FamilyAnswer::NoSuchName) => (Some(v4), Some(Vec::new()), ttl, None),
        (FamilyAnswer::NoSuchName, FamilyAnswer::Records(v6, ttl)) => (Some(Vec::new()), Some(v6), ttl, None),
        (FamilyAnswer::Records(v4, a), FamilyAnswer::Records(v6, b)) => {
            (Some(v4), Some(v6), a.into_iter().chain(b).min(), None)
        }
        (FamilyAnswer::Records(v4, ttl), FamilyAnswer::Failed(failed)) => (Some(v4), None, ttl, Some(failed.reason)),
        (FamilyAnswer::Failed(failed), FamilyAnswer::Records(v6, ttl)) => (None, Some(v6), ttl, Some(failed.reason)),
    };
    if ttl.is_none()
        && let Some(reason) = failed
    {
        // One family is empty and the other is unknown, so the result is unknown.
        return Err(LookupFailure { reason, is_answer: true });
    }
    let partial = failed.map(|reason| ResolveError::Server(name.clone(), reason));
    Ok(Some(Resolved { ipv4, ipv6, ttl, name, partial }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(name: &str, ndots: usize) -> Vec<String> {
        let search = ["ns.svc.cluster.local", "svc.cluster.local."].map(str::to_owned).to_vec();
        let (timeout, attempts) = (Duration::from_secs(1), 1);
        candidates(name, &Settings { servers: vec![], search, ndots, timeout, attempts })
    }

    #[test]
    fn the_search_list_comes_first_for_names_with_few_dots() {
        assert_eq!(names("canary", 5), ["canary.ns.svc.cluster.local.", "canary.svc.cluster.local.", "canary."]);
        assert_eq!(names("a.b.c", 2), ["a.b.c.", "a.b.c.ns.svc.cluster.local.", "a.b.c.svc.cluster.local."]);
        assert_eq!(names("canary.ns.", 5), ["canary.ns."]);
    }

    #[test]
    fn a_family_that_fails_keeps_the_other_and_is_never_empty() {
        let v4 = || FamilyAnswer::Records(vec!["10.0.0.1".parse().unwrap()], Some(Duration::from_secs(5)));
        let none = || FamilyAnswer::Records(vec![], None);
        let failed = || FamilyAnswer::Failed(LookupFailure { reason: "SERVFAIL".into(), is_answer: true });
        let both = |a, b| merge(a, b, "n.".into());
        let half = both(v4(), failed()).unwrap().unwrap();
        assert!(half.ipv6.is_none() && half.ipv4.unwrap().len() == 1 && half.partial.is_some());
        assert!(both(none(), failed()).is_err());
        assert!(both(FamilyAnswer::NoSuchName, failed()).is_err());
        assert!(both(FamilyAnswer::NoSuchName, FamilyAnswer::NoSuchName).unwrap().is_none());
        assert_eq!(both(v4(), FamilyAnswer::NoSuchName).unwrap().unwrap().ipv6, Some(vec![]));
        assert!(both(none(), none()).unwrap().unwrap().ttl.is_none());
    }

    #[test]
    fn an_invalid_dns_name_is_refused() {
        assert!(check_name("canary.ns.svc").is_ok());
        for bad in ["", ".", "a..b", &"x".repeat(64)] {
            assert!(matches!(check_name(bad), Err(ResolveError::Name(..))), "{bad:?}");
        }
    }
}
