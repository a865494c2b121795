//! Peers from DNS: the A and AAAA records of a headless Service, and the identity that each address
//! reports.
//!
//! `resolve` asks DNS, `identity` asks a peer, `names` decides. `hosts` is for what an operator has
//! named. Checks ask one server by `exchange`.
//!
//! The traps:
//! * NXDOMAIN, SERVFAIL and silence are errors, and never an empty list.
//! * DNS gives addresses and no names, but a node name identifies a peer. If a list were sent
//!   before the peers were asked, every peer would appear under two names.

mod exchange;
mod hosts;
mod names;
mod resolve;
mod settings;
mod wire;
pub use exchange::exchange;
#[cfg(feature = "fuzzing")]
pub use wire::fuzz_answer;
pub use wire::{A, AAAA, DnsReply, NXDOMAIN, encode_name};

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::discovery::identity::{self, IdentityAnswer, IdentityQuestion, IdentityRequests};
use crate::discovery::random;
use crate::discovery::report::Reporter;
use crate::discovery::timer::until;
use crate::discovery::update::{Update, Updates};
use names::{LookupChange, NamedAddresses};
pub use resolve::{ResolveError, Servers, check_name};
use resolve::{Resolved, resolve};
pub use settings::{Settings, system};

/// Shortest time between two look-ups, whatever the TTL. CoreDNS answers with 5 s,
/// and every node asks.
const REFRESH_MIN: Duration = Duration::from_secs(5);
/// Longest time between two look-ups. A deleted pod is probed for up to this time,
/// and its losses count.
const REFRESH_MAX: Duration = Duration::from_secs(30);

/// Timeout of one question of a check to one server. With the default of resolv.conf a dead first
/// server would end the attempt before the second is asked.
const CHECKED_SERVER_TIME: Duration = Duration::from_secs(1);

/// Timeout of a connection to one of several addresses of a host. A host that is not there is
/// silent.
const ADDRESS_TIME: Duration = Duration::from_secs(2);

/// Which name is resolved, and how.
#[derive(Clone, Debug)]
pub struct DnsConfig {
    /// The name of the headless Service, relative to resolv.conf's search list, or absolute with a
    /// dot at its end.
    pub name: String,
    /// The agent's own HTTP port. The peers use the same port.
    pub port: u16,
    /// [`Servers::System`], except in tests.
    pub servers: Servers,
    /// Bounds of the time between two look-ups. Within them, the records' time to live decides.
    pub refresh: (Duration, Duration),
    /// Timeout of a peer's identity, and how long a new list waits for identities. 2
    /// s, except in tests.
    pub identity_time: Duration,
}

impl DnsConfig {
    /// Makes a configuration with the system's servers and the default timings.
    pub const fn new(name: String, port: u16) -> Self {
        let refresh = (REFRESH_MIN, REFRESH_MAX);
        Self { name, port, servers: Servers::System, refresh, identity_time: identity::TIMEOUT }
    }
}

/// Connects to a host, an address or a name: to the first of its addresses that accepts. The caller
/// bounds the time. Of several addresses, each but the last has [`ADDRESS_TIME`].
///
/// # Errors
/// The name cannot be resolved, or why the last address does not accept.
pub async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    let addresses = match host.parse() {
        Ok(address) => vec![address],
        Err(_) => host_addresses(host, AddressFamily::Any).await.map_err(|error| error.to_string())?,
    };
    let (last, others) = addresses.split_last().ok_or("no address")?;
    for address in others {
        if let Ok(Ok(stream)) = timeout(ADDRESS_TIME, TcpStream::connect((*address, port))).await {
            return Ok(stream);
        }
    }
    TcpStream::connect((*last, port)).await.map_err(|error| error.to_string())
}

/// The families of the addresses that a command accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressFamily {
    /// Both families are accepted.
    #[default]
    Any,
    /// Only IPv4 is accepted.
    Ipv4,
    /// Only IPv6 is accepted.
    Ipv6,
}

impl AddressFamily {
    /// Whether an address is of this family.
    pub const fn accepts(self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Ipv4 => address.is_ipv4(),
            Self::Ipv6 => address.is_ipv6(),
        }
    }
}

impl fmt::Display for AddressFamily {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Any => "IPv4 or IPv6",
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

/// Returns the addresses of a host that a person has named, IPv4 first: those of `/etc/hosts`, or
/// if it has none, those that DNS knows. There is at least one.
///
/// # Errors
/// [`ResolveError`]; a name without an address of the family is one.
pub async fn host_addresses(host: &str, family: AddressFamily) -> Result<Vec<IpAddr>, ResolveError> {
    named_addresses(host, family, async { Vec::new() }).await
}

/// Does the same for a check: one of both families, at most one second for each server, and one
/// round over all servers.
///
/// # Errors
/// As [`host_addresses`].
pub async fn checked_addresses(host: &str) -> Result<Vec<IpAddr>, ResolveError> {
    let found = hosts::addresses(host, AddressFamily::Any).map_err(ResolveError::Hosts)?;
    if !found.is_empty() {
        return Ok(found);
    }
    let mut settings = system().map_err(|error| ResolveError::System(error.to_string()))?;
    settings.timeout = settings.timeout.min(CHECKED_SERVER_TIME);
    // A lost packet is no failure. With several servers, the next one is asked.
    settings.attempts = if settings.servers.len() > 1 { 1 } else { 2 };
    let found = resolve(&Servers::Fixed(settings), host).await?;
    Ok(found.ipv4.into_iter().chain(found.ipv6).flatten().collect())
}

/// Does the same. Addresses that `other` finds take precedence over those of DNS.
///
/// # Errors
/// As [`host_addresses`].
pub async fn named_addresses(
    host: &str,
    family: AddressFamily,
    other: impl Future<Output = Vec<IpAddr>>,
) -> Result<Vec<IpAddr>, ResolveError> {
    let mut addresses = hosts::addresses(host, family).map_err(ResolveError::Hosts)?;
    if addresses.is_empty() {
        addresses = other.await;
    }
    if addresses.is_empty() {
        let found = resolve(&Servers::System, host).await?;
        addresses.extend(found.ipv4.into_iter().chain(found.ipv6).flatten());
        addresses.retain(|address| family.accepts(*address));
    }
    addresses.sort_by_key(IpAddr::is_ipv6);
    if addresses.is_empty() { Err(ResolveError::NoAddress(host.to_owned(), family)) } else { Ok(addresses) }
}

/// Returns the addresses of a headless Service, one per pod: of the family that has
/// more, or of IPv4. A dual-stack Service has two addresses per pod, and DNS does not
/// show which belong together.
///
/// # Errors
/// [`ResolveError`]; a name without an address is one.
pub async fn service_addresses(servers: &Servers, service: &str) -> Result<Vec<IpAddr>, ResolveError> {
    let found = resolve(servers, service).await?;
    let (ipv4, ipv6) = (found.ipv4.unwrap_or_default(), found.ipv6.unwrap_or_default());
    let mut addresses = if ipv6.len() > ipv4.len() { ipv6 } else { ipv4 };
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.is_empty() { Err(ResolveError::NoSuchName(found.name)) } else { Ok(addresses) }
}

/// Resolves and asks until the receiver is closed.
pub async fn run(config: DnsConfig, updates: Updates) {
    let mut source = DnsSource {
        config: &config,
        updates: &updates,
        names: NamedAddresses::default(),
        reporter: Reporter::new("dns"),
        requests: IdentityRequests::new("dns discovery", config.identity_time),
        lookup: JoinSet::new(),
        answered_by: None,
        resolve_at: Some(Instant::now()),
        publish_at: None,
        confirmed: false,
    };
    loop {
        source.start_tasks();
        let ask_at = source.names.ask_at().filter(|_| source.requests.has_room());
        tokio::select! {
            () = updates.closed() => return,
            Some(result) = source.lookup.join_next() => match result {
                Ok(result) => source.resolved(result).await,
                // Only a panic ends a task without a result, and the release build aborts on a
                // panic.
                Err(error) => log::error!("dns discovery: {error}"),
            },
            (question, answer) = source.requests.ended() => source.answered(&question, answer),
            () = until(source.resolve_at) => {}
            () = until(source.publish_at) => source.publish().await,
            () = until(ask_at) => {}
        }
    }
}

struct DnsSource<'a> {
    config: &'a DnsConfig,
    updates: &'a Updates,
    names: NamedAddresses,
    reporter: Reporter,
    requests: IdentityRequests,
    /// The look-up in progress, on the same current-thread runtime.
    lookup: JoinSet<Result<Resolved, ResolveError>>,
    /// The candidate of the search list that has records.
    answered_by: Option<String>,
    /// When to look up next. None while a look-up is in progress.
    resolve_at: Option<Instant>,
    /// When to publish what has changed. None if nothing has changed.
    publish_at: Option<Instant>,
    /// Whether a complete look-up confirms the list to be published. A newly reported name, or half
    /// a look-up, confirms nothing.
    confirmed: bool,
}

impl DnsSource<'_> {
    fn start_tasks(&mut self) {
        let now = Instant::now();
        let server = |address| SocketAddr::new(address, self.config.port);
        let question = |address| IdentityQuestion { node: Box::default(), server: server(address) };
        self.requests.start(|| self.names.next_to_ask(now).map(question));
        if self.resolve_at.is_some_and(|due| due <= now) {
            self.resolve_at = None;
            let name = self.answered_by.clone().unwrap_or_else(|| self.config.name.clone());
            let servers = self.config.servers.clone();
            self.lookup.spawn(async move { resolve(&servers, &name).await });
        }
    }

    async fn resolved(&mut self, result: Result<Resolved, ResolveError>) {
        let now = Instant::now();
        let (shortest, longest) = self.config.refresh;
        let mut ttl = None;
        match result {
            Ok(found) => {
                ttl = found.ttl;
                match &found.partial {
                    None => self.reporter.recovered(),
                    Some(error) => _ = self.reporter.failed("partial", error),
                }
                match self.names.resolved(&found, now) {
                    // New peers are first asked for their names, but the list does not wait for
                    // ever.
                    change @ (LookupChange::Changed | LookupChange::ChangedInPart) => {
                        self.publish_at.get_or_insert(now + self.config.identity_time);
                        self.confirmed |= change == LookupChange::Changed;
                    }
                    LookupChange::Same if self.publish_at.is_none() => _ = self.updates.send(Update::Confirmed).await,
                    LookupChange::Same => self.confirmed = true,
                    LookupChange::Unsure => {}
                }
                // Without records, the name that is meant may be of another domain.
                self.answered_by = found.ttl.is_some().then_some(found.name);
                self.publish_early();
            }
            Err(error) => {
                // The next look-up tries the whole search list again only if the name is gone.
                // While it fails, no other domain may answer for it.
                if matches!(error, ResolveError::NoSuchName(_)) {
                    self.answered_by = None;
                }
                self.reporter.failed(error.kind(), &error);
            }
        }
        // ± 10 %. Otherwise agents that started together would ask together for ever.
        let wait = random::spread(ttl.unwrap_or(shortest).clamp(shortest, longest), 0.1, random::unit());
        self.resolve_at = Some(now + wait);
    }

    fn answered(&mut self, question: &IdentityQuestion, answer: Option<IdentityAnswer>) {
        let (now, identity) = (Instant::now(), answer.map(|answer| answer.identity));
        if self.names.answered(question.server.ip(), identity, now, random::unit()) {
            self.publish_at.get_or_insert(now + self.config.identity_time);
        }
        self.publish_early();
    }

    /// Publishes at once if no identity is left to wait for.
    fn publish_early(&mut self) {
        if self.names.all_tried() && self.publish_at.is_some() {
            self.publish_at = Some(Instant::now());
        }
    }

    async fn publish(&mut self) {
        self.publish_at = None;
        let peers = self.names.peers();
        let confirmed = std::mem::take(&mut self.confirmed);
        // If the channel is closed, `run` ends.
        _ = self.updates.send(if confirmed { Update::List(peers) } else { Update::Amended(peers) }).await;
    }
}
