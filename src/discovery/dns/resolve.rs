//! Name to addresses, both families, on the current runtime. getaddrinfo would block the probe thread or want one of
//! its own.
//!
//! hickory does the protocol (UDP, truncation → TCP, resolv.conf); the search list is walked here, because the two
//! families must agree on which of the candidate names is meant, and because the candidate that answered is worth
//! remembering: `ndots:5` in a pod makes a look-up of a Service cost up to ten queries otherwise.
//!
//! A resolver lives for one look-up: an edited resolv.conf is picked up, nothing is cached, and the sockets and
//! buffers are given back.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};

use crate::http::client::chain;
use crate::limits;

/// Where questions go.
#[derive(Clone, Debug, Default)]
pub enum Servers {
    /// As `/etc/resolv.conf` says at the time of the look-up.
    #[default]
    System,
    /// These, for tests.
    Fixed {
        /// Asked in any order.
        servers: Vec<SocketAddr>,
        /// As in resolv.conf.
        search: Vec<String>,
        /// As in resolv.conf.
        ndots: usize,
        /// Of one question.
        timeout: Duration,
    },
}

/// Why a look-up gave nothing to trust.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// Not a DNS name.
    #[error("'{0}' is not a DNS name: {1}")]
    Name(String, String),
    /// No resolv.conf, or none that names a server.
    #[error("/etc/resolv.conf: {0}")]
    System(String),
    /// NXDOMAIN for every candidate.
    #[error("{0}: no such name (NXDOMAIN)")]
    NoSuchName(String),
    /// SERVFAIL, REFUSED, nobody there.
    #[error("{0}: {1}")]
    Server(String, String),
    /// Not done in time.
    #[error("{0}: no answer within {1:?}")]
    Time(String, Duration),
}

impl ResolveError {
    /// The kind, for the log.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Name(..) => "name",
            Self::System(_) => "system",
            Self::NoSuchName(_) => "nxdomain",
            Self::Server(..) => "server",
            Self::Time(..) => "time",
        }
    }
}

/// The records of one family: a successful answer, which may be empty, or None where only that family failed.
pub type Family = Option<Vec<IpAddr>>;

/// A look-up that worked for one family at least.
#[derive(Debug)]
pub struct Resolved {
    /// A records.
    pub ipv4: Family,
    /// AAAA records.
    pub ipv6: Family,
    /// The shortest of the records' times to live; None where there are none.
    pub ttl: Option<Duration>,
    /// The candidate that answered, fully qualified.
    pub name: String,
    /// Why a family failed.
    pub partial: Option<ResolveError>,
}

/// Checks a name without asking anyone.
///
/// # Errors
/// [`ResolveError::Name`]
pub fn check_name(name: &str) -> Result<(), ResolveError> {
    parse_name(name).map(drop)
}

fn parse_name(name: &str) -> Result<Name, ResolveError> {
    let bad = |reason: String| ResolveError::Name(name.to_owned(), reason);
    if name.trim_end_matches('.').is_empty() {
        return Err(bad("empty".into()));
    }
    Name::from_utf8(name).map_err(|e| bad(e.to_string()))
}

/// Looks `name` up, in both families and at most [`limits::DNS_LOOKUP_TIME`].
///
/// # Errors
/// [`ResolveError`]; NXDOMAIN is one, an empty answer is not.
pub async fn resolve(servers: &Servers, name: &str) -> Result<Resolved, ResolveError> {
    let time = limits::DNS_LOOKUP_TIME;
    tokio::time::timeout(time, walk(servers, name)).await.map_err(|_| ResolveError::Time(name.to_owned(), time))?
}

async fn walk(servers: &Servers, text: &str) -> Result<Resolved, ResolveError> {
    let name = parse_name(text)?;
    let (config, mut options) = settings(servers)?;
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    // Without EDNS an answer of more than 30 pods would always come twice, the second time by TCP.
    options.edns0 = true;
    let ndots = options.ndots;
    let mut candidates = candidates(&name, config.search(), ndots);
    candidates.dedup();
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options;
    let resolver = builder.build().map_err(|e| ResolveError::System(chain(&e)))?;

    let mut empty = None;
    for candidate in candidates {
        let (ipv4, ipv6) =
            tokio::join!(ask(&resolver, &candidate, RecordType::A), ask(&resolver, &candidate, RecordType::AAAA));
        let name = candidate.to_utf8();
        match merge(ipv4, ipv6, name) {
            Ok(Some(found)) if found.ttl.is_some() => return Ok(found),
            Ok(Some(none)) => empty = empty.or(Some(none)),
            Ok(None) => {}
            // Not the next candidate: where the right name times out, a wrong one must not answer for it.
            Err(error) => return Err(error),
        }
    }
    empty.ok_or_else(|| ResolveError::NoSuchName(text.to_owned()))
}

fn settings(servers: &Servers) -> Result<(ResolverConfig, ResolverOpts), ResolveError> {
    match servers {
        Servers::System => {
            hickory_resolver::system_conf::read_system_conf().map_err(|e| ResolveError::System(chain(&e)))
        }
        Servers::Fixed { servers, search, ndots, timeout } => {
            let servers = servers.iter().map(|server| {
                let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].into_iter().map(|mut c| {
                    c.port = server.port();
                    c
                });
                NameServerConfig::new(server.ip(), true, connections.collect())
            });
            let search = search.iter().map(|s| parse_name(s)).collect::<Result<_, _>>()?;
            let config = ResolverConfig::from_parts(None, search, servers.collect());
            let mut options = ResolverOpts::default();
            (options.ndots, options.timeout) = (*ndots, *timeout);
            Ok((config, options))
        }
    }
}

/// resolv.conf(5): a name with fewer dots than `ndots` is tried with the search list first, then as it stands; one with
/// more the other way round; one that ends in a dot only as it stands.
fn candidates(name: &Name, search: &[Name], ndots: usize) -> Vec<Name> {
    let mut absolute = name.clone();
    absolute.set_fqdn(true);
    if name.is_fqdn() {
        return vec![absolute];
    }
    let mut names: Vec<Name> = search.iter().filter_map(|domain| name.clone().append_domain(domain).ok()).collect();
    let dots = usize::from(name.num_labels()).saturating_sub(1);
    if dots >= ndots {
        names.insert(0, absolute);
    } else {
        names.push(absolute);
    }
    names
}

/// One family's answer.
enum Answer {
    Records(Vec<IpAddr>, Option<Duration>),
    NoSuchName,
    Failed(String),
}

async fn ask(resolver: &TokioResolver, name: &Name, kind: RecordType) -> Answer {
    match resolver.lookup(name.clone(), kind).await {
        Ok(lookup) => {
            let mut addresses = Vec::new();
            let mut ttl: Option<u32> = None;
            for record in lookup.answers() {
                let address = match &record.data {
                    RData::A(a) => IpAddr::V4(a.0),
                    RData::AAAA(a) => IpAddr::V6(a.0),
                    _ => continue,
                };
                ttl = Some(ttl.map_or(record.ttl, |t| t.min(record.ttl)));
                if !address.is_unspecified() && !address.is_multicast() && addresses.len() < limits::PEER_SLOTS_MAX {
                    addresses.push(address);
                }
            }
            Answer::Records(addresses, ttl.map(|t| Duration::from_secs(t.into())))
        }
        Err(NetError::Dns(DnsError::NoRecordsFound(none))) => match none.response_code {
            ResponseCode::NoError => Answer::Records(Vec::new(), None),
            ResponseCode::NXDomain => Answer::NoSuchName,
            code => Answer::Failed(code.to_string()),
        },
        Err(error) => Answer::Failed(chain(&error)),
    }
}

/// Both families of one candidate. None: no such name.
fn merge(ipv4: Answer, ipv6: Answer, name: String) -> Result<Option<Resolved>, ResolveError> {
    let (ipv4, ipv6, ttl, failed) = match (ipv4, ipv6) {
        (Answer::NoSuchName, Answer::NoSuchName) => return Ok(None),
        (Answer::Failed(reason), Answer::Failed(_) | Answer::NoSuchName)
        | (Answer::NoSuchName, Answer::Failed(reason)) => return Err(ResolveError::Server(name, reason)),
        // A name that has one family exists: NXDOMAIN for the other is some server's way to say that it is empty.
        (Answer::Records(v4, ttl), Answer::NoSuchName) => (Some(v4), Some(Vec::new()), ttl, None),
        (Answer::NoSuchName, Answer::Records(v6, ttl)) => (Some(Vec::new()), Some(v6), ttl, None),
        (Answer::Records(v4, a), Answer::Records(v6, b)) => (Some(v4), Some(v6), a.into_iter().chain(b).min(), None),
        (Answer::Records(v4, ttl), Answer::Failed(reason)) => (Some(v4), None, ttl, Some(reason)),
        (Answer::Failed(reason), Answer::Records(v6, ttl)) => (None, Some(v6), ttl, Some(reason)),
    };
    if ttl.is_none()
        && let Some(reason) = failed
    {
        // Empty on one side, unknown on the other: unknown.
        return Err(ResolveError::Server(name, reason));
    }
    let partial = failed.map(|reason| ResolveError::Server(name.clone(), reason));
    Ok(Some(Resolved { ipv4, ipv6, ttl, name, partial }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(name: &str, ndots: usize) -> Vec<String> {
        let search = ["ns.svc.cluster.local.", "svc.cluster.local."].map(|s| Name::from_utf8(s).unwrap());
        candidates(&Name::from_utf8(name).unwrap(), &search, ndots).iter().map(Name::to_utf8).collect()
    }

    #[test]
    fn the_search_list_comes_first_for_names_with_few_dots() {
        assert_eq!(names("canary", 5), ["canary.ns.svc.cluster.local.", "canary.svc.cluster.local.", "canary."]);
        assert_eq!(names("a.b.c", 2), ["a.b.c.", "a.b.c.ns.svc.cluster.local.", "a.b.c.svc.cluster.local."]);
        assert_eq!(names("canary.ns.", 5), ["canary.ns."]);
    }

    #[test]
    fn one_family_that_fails_does_not_take_the_other_along_and_never_reads_as_empty() {
        let v4 = || Answer::Records(vec!["10.0.0.1".parse().unwrap()], Some(Duration::from_secs(5)));
        let none = || Answer::Records(vec![], None);
        let failed = || Answer::Failed("SERVFAIL".into());
        let both = |a, b| merge(a, b, "n.".into());
        let half = both(v4(), failed()).unwrap().unwrap();
        assert!(half.ipv6.is_none() && half.ipv4.unwrap().len() == 1 && half.partial.is_some());
        assert!(both(none(), failed()).is_err());
        assert!(both(Answer::NoSuchName, failed()).is_err());
        assert!(both(Answer::NoSuchName, Answer::NoSuchName).unwrap().is_none());
        assert_eq!(both(v4(), Answer::NoSuchName).unwrap().unwrap().ipv6, Some(vec![]));
        assert!(both(none(), none()).unwrap().unwrap().ttl.is_none());
    }

    #[test]
    fn a_name_that_dns_cannot_carry_is_refused() {
        assert!(check_name("canary.ns.svc").is_ok());
        for bad in ["", ".", "a..b", &"x".repeat(64)] {
            assert!(matches!(check_name(bad), Err(ResolveError::Name(..))), "{bad:?}");
        }
    }
}
