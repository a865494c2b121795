//! The check of a server of the DNS: one question, from a port of its own. And what checks ask the
//! DNS for themselves.
//!
//! The trap: an answer without records is an answer (NODATA). A name with addresses of one family
//! has none of the other.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use kube_canary_model::check::{CheckFailure, CheckPhase};
use tokio::time::timeout;

use super::attempt::{Attempt, attempt_time};
use super::failure::failure_of_io;
use super::{CheckTarget, Host};
use crate::discovery::dns::{self, Settings};
use crate::sys::clock;
use crate::units::Nanos;

/// Bytes of an answer by TCP of which all is read. Of a longer one only the head is.
const ANSWER_BYTES_MAX: usize = 1_232;
/// Servers of resolv.conf(5).
const SERVERS_MAX: usize = 3;
/// REFUSED (RFC 1035, section 4.1.1).
const REFUSED: u8 = 5;
/// The Service of the API server, relative to the domain of the cluster.
const API_SERVICE: &str = "kubernetes.default.svc";

/// The records that are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DnsRecord {
    /// The IPv4 addresses of a name.
    #[default]
    A,
    /// The IPv6 addresses of a name.
    Aaaa,
}

/// Asks `server` for the addresses of an absolute name.
pub async fn ask(name: &str, server: SocketAddr, record: DnsRecord, found: &mut Attempt) -> Result<(), CheckFailure> {
    let name = dns::encode_name(name).map_err(|_| CheckFailure::Other)?;
    let kind = match record {
        DnsRecord::A => dns::A,
        DnsRecord::Aaaa => dns::AAAA,
    };
    let time = attempt_time(&CheckTarget::ClusterDns);
    let exchange = async {
        let reply = dns::exchange(server, &name, kind, time, ANSWER_BYTES_MAX).await;
        reply.map_err(|error| failure_of_io(&error))
    };
    match found.timed(CheckPhase::FirstByte, exchange).await?.code {
        0 => Ok(()),
        dns::NXDOMAIN => Err(CheckFailure::NoSuchName),
        REFUSED => Err(CheckFailure::QueryRefused),
        _ => Err(CheckFailure::ServerFailure),
    }
}

/// The questions to the DNS for one check: for IPv4 and for IPv6 addresses in turn.
#[derive(Clone, Debug, Default)]
pub struct AddressQuestions {
    asks_aaaa: bool,
    /// By server: whether its last answer for IPv4 addresses, and for IPv6, said that the name is
    /// there.
    is_known: [[bool; 2]; SERVERS_MAX],
}

impl AddressQuestions {
    /// Returns what is asked next. Each server is asked for both.
    pub const fn next(&mut self, is_last_server: bool) -> DnsRecord {
        let record = if self.asks_aaaa { DnsRecord::Aaaa } else { DnsRecord::A };
        self.asks_aaaa ^= is_last_server;
        record
    }

    /// Takes an answer of a server. A name that has addresses of the other family exists: some
    /// servers deny it (NXDOMAIN) where it has none of the family that is asked for. What another
    /// server says excuses nothing: a resolver believes the one that it asks first.
    pub fn settle(&mut self, server: usize, record: DnsRecord, attempt: &mut Attempt) {
        let of = record as usize;
        let is_denied = attempt.end == Err(CheckFailure::NoSuchName);
        let known = &mut self.is_known[server.min(SERVERS_MAX - 1)];
        known[of] = attempt.end.is_ok();
        if is_denied && known[1 - of] {
            attempt.end = Ok(());
        }
    }
}

/// What resolv.conf says of the DNS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemDns {
    /// The servers, 1 to 3. None before the first reading.
    pub servers: Vec<SocketAddr>,
    /// The full name of the API server's Service. `None` if the search list is not that of a pod.
    pub cluster_name: Option<Box<str>>,
}

/// Reads resolv.conf.
///
/// The full name follows from the search list alone. Rejected: to ask for each name of the list
/// until one is there. An agent that starts while the DNS is down would not know what to check.
///
/// # Errors
/// The file cannot be read.
pub fn system_dns() -> io::Result<SystemDns> {
    dns::system().map(SystemDns::from)
}

impl From<Settings> for SystemDns {
    fn from(settings: Settings) -> Self {
        let cluster_name = settings.cluster_domain().map(|domain| format!("{API_SERVICE}.{domain}.").into());
        Self { servers: settings.servers, cluster_name }
    }
}

/// Returns the host of a Service by its full name, in the domain of `cluster_name`. It is found by
/// a question for each family; by the search list, each domain before it takes two more.
pub fn in_domain_of(host: &Host, cluster_name: Option<&str>) -> Host {
    match (host, cluster_name.and_then(|name| name.strip_prefix(API_SERVICE))) {
        (Host::Name(service), Some(domain)) => Host::Name(format!("{service}{domain}").into()),
        _ => host.clone(),
    }
}

/// What the resolution of a host has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// At most one address of each family, IPv4 first.
    pub addresses: Result<Vec<IpAddr>, CheckFailure>,
    /// The time of the phase [`CheckPhase::Resolve`]. `None` if the host is an address.
    pub time: Option<Nanos>,
}

/// The time within which a name must be resolved. The resolver asks each server for a second.
const RESOLVE_TIME: Duration = Duration::from_secs(5);

/// Returns an address of each family that the host has, within [`RESOLVE_TIME`]. A family that this
/// machine has no route to is left out, unless it is the only one.
pub async fn addresses(host: &Host) -> Resolution {
    let name = match host {
        Host::Address(address) => return Resolution { addresses: Ok(vec![*address]), time: None },
        Host::Name(name) => name,
    };
    let begun = clock::monotonic();
    let found = timeout(RESOLVE_TIME, dns::checked_addresses(name)).await;
    let time = Some(clock::monotonic().since(begun));
    let addresses = match found {
        Ok(Ok(found)) => first_of_each_family(&found, has_route),
        Ok(Err(error)) => {
            log::debug!("checks: {error}");
            Vec::new()
        }
        Err(_) => Vec::new(),
    };
    let addresses = if addresses.is_empty() { Err(CheckFailure::Unresolved) } else { Ok(addresses) };
    Resolution { addresses, time }
}

fn first_of_each_family(found: &[IpAddr], has_route: impl Fn(IpAddr) -> bool) -> Vec<IpAddr> {
    let first = |is_ipv6: bool| found.iter().copied().find(|address| address.is_ipv6() == is_ipv6);
    let all: Vec<IpAddr> = [first(false), first(true)].into_iter().flatten().collect();
    let reached: Vec<IpAddr> = all.iter().copied().filter(|address| has_route(*address)).collect();
    if reached.is_empty() { all } else { reached }
}

/// Whether the kernel has a route to an address. Nothing is sent.
fn has_route(address: IpAddr) -> bool {
    let any = if address.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    // The port is not used.
    UdpSocket::bind(any).and_then(|socket| socket.connect((address, 9))).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_are_asked_of_each_server_in_turn() {
        let mut questions = AddressQuestions::default();
        let asked: Vec<DnsRecord> = (0..8).map(|n| questions.next(n % 2 == 1)).collect();
        assert_eq!(asked, [[DnsRecord::A; 2], [DnsRecord::Aaaa; 2], [DnsRecord::A; 2], [DnsRecord::Aaaa; 2]].concat());
    }

    #[test]
    fn a_name_that_has_one_family_is_there_whatever_is_answered_for_the_other() {
        type Answer = (usize, DnsRecord, Result<(), CheckFailure>);
        let of_servers = |answers: &[Answer]| {
            let mut questions = AddressQuestions::default();
            let mut settle = |(server, record, end): &Answer| {
                let mut attempt = Attempt { end: *end, ..Attempt::default() };
                questions.settle(*server, *record, &mut attempt);
                attempt.end.is_ok()
            };
            answers.iter().map(&mut settle).collect::<Vec<bool>>()
        };
        let ends = |answers: &[(DnsRecord, Result<(), CheckFailure>)]| {
            of_servers(&answers.iter().map(|(record, end)| (0, *record, *end)).collect::<Vec<_>>())
        };
        let (found, denied) = (Ok(()), Err(CheckFailure::NoSuchName));
        let [a, aaaa] = [DnsRecord::A, DnsRecord::Aaaa];
        assert_eq!(ends(&[(a, found), (aaaa, denied), (a, found), (aaaa, denied)]), [true; 4]);
        assert_eq!(ends(&[(aaaa, denied), (a, found), (aaaa, denied)]), [false, true, true]);
        // The name is deleted: both are denied from the second answer on.
        let deleted = [(a, found), (aaaa, found), (a, denied), (aaaa, denied), (a, denied)];
        assert_eq!(ends(&deleted), [true, true, true, false, false]);
        assert_eq!(ends(&[(a, found), (aaaa, Err(CheckFailure::Timeout))]), [true, false], "no answer is none");
        // A server that knows no name is not excused by another one that does.
        let both = [(0, a, denied), (1, a, found), (0, aaaa, denied), (1, aaaa, found), (0, a, denied)];
        assert_eq!(of_servers(&both), [false, true, false, true, false]);
    }

    #[test]
    fn a_service_is_resolved_by_its_full_name() {
        let service = Host::Name("canary-check.ns.svc".into());
        let full = Host::Name("canary-check.ns.svc.cluster.local.".into());
        assert_eq!(in_domain_of(&service, Some("kubernetes.default.svc.cluster.local.")), full);
        assert_eq!(in_domain_of(&service, None), service, "without a domain of a cluster");
        let address = Host::Address([10, 0, 0, 1].into());
        assert_eq!(in_domain_of(&address, Some("kubernetes.default.svc.cluster.local.")), address);
    }

    #[test]
    fn one_address_of_each_family_with_a_route_is_tried() {
        let addresses = ["fd00::1", "10.0.0.1", "10.0.0.2", "fd00::2"].map(|text| text.parse::<IpAddr>().unwrap());
        let first = |has_route: fn(IpAddr) -> bool| {
            let found = first_of_each_family(&addresses, has_route);
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(first(|_| true), "10.0.0.1 fd00::1");
        assert_eq!(first(|address| address.is_ipv4()), "10.0.0.1");
        assert_eq!(first(|address| address.is_ipv6()), "fd00::1");
        assert_eq!(first(|_| false), "10.0.0.1 fd00::1", "no route is a failure of both");
        assert!(has_route([127, 0, 0, 1].into()));
        assert!(first_of_each_family(&[], |_| true).is_empty());
    }

    #[tokio::test]
    async fn a_host_without_a_name_needs_no_resolution() {
        let address = IpAddr::from([10, 0, 0, 1]);
        let resolution = addresses(&Host::Address(address)).await;
        assert_eq!(resolution, Resolution { addresses: Ok(vec![address]), time: None });
        let localhost = addresses(&Host::Name("localhost".into())).await;
        assert!(localhost.time.is_some() && localhost.addresses.unwrap().iter().all(IpAddr::is_loopback));
        let invalid = addresses(&Host::Name("no name".into())).await;
        assert_eq!(invalid.addresses, Err(CheckFailure::Unresolved));
    }
}
