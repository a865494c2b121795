//! The settings of `kube-canary run`, resolved and validated.

use std::fmt::Display;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::typed::Typed;
use super::{Env, UsageError, checks};
use crate::allocator::HeapProfile;
use crate::checks::ChecksConfig;
use crate::discovery::address::valid_host_address;
use crate::discovery::{DiscoverySource, DnsConfig, KubernetesConfig, SERVICE_ACCOUNT_DIRECTORY, StaticConfig, dns};
use crate::exposition::{LinkSeries, SeriesSettings};
use crate::limits::{
    ALLOWED_HOSTS_MAX, FLOWS_MAX, HTTP_WORKERS_DEFAULT, HTTP_WORKERS_MAX, IN_FLIGHT_PER_PEER_MAX, INTERVAL_MAX,
    INTERVAL_MIN, MAX_PEERS_DEFAULT, MAX_PEERS_MAX, MAX_SERIES_DEFAULT, MAX_SERIES_MAX, MAX_SERIES_MIN, NAME_BYTES_MAX,
    OUTSIDE_MAX, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MIN, SLOT_KEPT_SLACK,
};
use crate::logging::LogFormat;
use crate::mesh::domains;
use crate::peers::{Family, Method, Methods};
use crate::statistics::{BucketBounds, Scale};
use crate::units::parse_duration;

/// What `--membership` takes of an agent that is no member.
const OUTSIDE: &str = "outside";
pub(super) const LISTEN_DEFAULT: &str = "[::]:9877";

/// Everything that `run` needs to know.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// This node's name.
    pub node_name: String,
    /// This node's zone, if configured.
    pub zone: Option<String>,
    /// The address and port of the HTTP server.
    pub listen: SocketAddr,
    /// Further DNS names under which the page and `/api` may be requested.
    pub allow_hosts: Vec<String>,
    /// The source of the peer list.
    pub discovery: DiscoverySource,
    /// The operator's failure domains.
    pub domains_file: Option<PathBuf>,
    /// What pods depend on, and is checked.
    pub checks: ChecksConfig,
    /// How peers are probed.
    pub probes: Methods,
    /// Number of source ports of UDP probes.
    pub flows: u8,
    /// Port at which agents answer UDP probes.
    pub udp_port: u16,
    /// Port at which agents accept TCP handshakes.
    pub tcp_port: u16,
    /// Time between two probes of a peer.
    pub interval: Duration,
    /// A probe without a reply after this time is lost.
    pub timeout: Duration,
    /// Bytes after the ICMP header.
    pub payload_bytes: usize,
    /// Bounds of the RTT histogram.
    pub rtt_buckets: BucketBounds,
    /// Largest number of nodes to probe; 0 means all.
    pub max_peers: usize,
    /// Whether peers are also probed at their nodes' addresses.
    pub node_network: bool,
    /// The series that are exported per link.
    pub link_series: LinkSeries,
    /// Largest number of exported series.
    pub max_series: usize,
    /// How long an absent peer keeps its slot; see [`RunSettings::slots_kept_for`].
    pub forget_after: Duration,
    /// Number of HTTP worker threads.
    pub http_workers: usize,
    /// Whether the agent is a member of the mesh, and does not probe it from outside.
    pub is_member: bool,
    /// Addresses of agents outside of the mesh whose probes by UDP and TCP are answered.
    pub outside: Vec<IpAddr>,
    /// Whether the agent judges the mesh if its rank requires it.
    pub may_judge: bool,
    /// The node's addresses, reported to peers.
    pub node_addresses: Vec<IpAddr>,
    /// Our own addresses, as configured. If empty, the interfaces are asked.
    pub pod_addresses: Vec<IpAddr>,
    /// The directory for heap profiles. Only in a build that records them.
    pub heap_profile: Option<PathBuf>,
    /// The most detailed level that is logged.
    pub log_level: log::LevelFilter,
    /// The form of a line of the log.
    pub log_format: LogFormat,
}

impl RunSettings {
    /// Returns how long a slot is really kept: at least as long as a probe can be in flight. Probes
    /// of the slot's previous peer can be distinguished from those of its present peer. Probes of
    /// the peer before that cannot.
    pub fn slots_kept_for(&self) -> Duration {
        self.forget_after.max(self.timeout + SLOT_KEPT_SLACK)
    }

    /// Returns the largest number of links: a peer has one for each family on each network. None
    /// if all nodes are probed.
    pub fn links_max(&self) -> Option<usize> {
        let networks = if self.node_network { 2 } else { 1 };
        (self.max_peers > 0).then_some(self.max_peers * Family::ALL.len() * networks)
    }

    /// Returns what an agent with these addresses exports. On the host network, they are its node's
    /// addresses. With `--network pod,node`, the two networks are distinguished in any case.
    pub fn series(&self, own: &[IpAddr]) -> SeriesSettings {
        let on_host_network = !self.node_network && own.iter().any(|address| self.node_addresses.contains(address));
        SeriesSettings { links: self.link_series, max: self.max_series, on_host_network }
    }

    /// Returns how round-trip times of links are divided into buckets. The more links are
    /// possible, the coarser.
    pub fn scale(&self) -> Scale {
        Scale::new(self.rtt_buckets.clone(), Scale::schema_of(self.links_max()), self.timeout)
    }

    pub(super) fn resolve(typed: &Typed, env: Env<'_>) -> Result<Self, UsageError> {
        let Probing { interval, timeout, payload_bytes } = Probing::resolve(typed, parse_duration)?;
        let listen = typed.value("listen", socket_address)?;
        let listen = listen.map_or_else(|| socket_address(LISTEN_DEFAULT), Ok).map_err(UsageError)?;
        let discovery = discovery(typed, env, listen.port())?;
        let probes = typed.value("probes", methods)?.unwrap_or(Methods::ALL);
        Ok(Self {
            node_name: node_name(typed)?,
            zone: typed.value("zone", name)?,
            listen,
            allow_hosts: listed(typed, "allow-host", ALLOWED_HOSTS_MAX, (host_name, "DNS names without a port"))?,
            checks: checks::resolve(typed, &discovery, probes)?,
            discovery,
            domains_file: domains_file(typed)?,
            probes,
            flows: typed.value("flows", number_between(1, FLOWS_MAX))?.unwrap_or(FLOWS_MAX),
            udp_port: typed.value("udp-port", number_between(1, u16::MAX))?.unwrap_or(listen.port()),
            // Port 0 is any free port. Its peers are not probed by name.
            tcp_port: typed.value("tcp-port", number_between(1, u16::MAX))?.unwrap_or_else(|| match listen.port() {
                0 => 0,
                port => port.checked_add(1).unwrap_or(port - 1),
            }),
            interval,
            timeout,
            payload_bytes,
            rtt_buckets: typed.value("rtt-buckets", bounds)?.unwrap_or_default(),
            max_peers: typed.value("max-peers", number_between(0, MAX_PEERS_MAX))?.unwrap_or(MAX_PEERS_DEFAULT),
            node_network: typed.text("network") == Some("pod,node"),
            link_series: typed.choice("link-series", &LinkSeries::ALL).unwrap_or_default(),
            max_series: typed
                .value("max-series", number_between(MAX_SERIES_MIN, MAX_SERIES_MAX))?
                .unwrap_or(MAX_SERIES_DEFAULT),
            forget_after: typed
                .value("forget-after", duration_between(Duration::ZERO, Duration::from_hours(24)))?
                .unwrap_or(Duration::from_mins(5)),
            http_workers: typed
                .value("http-workers", number_between(1, HTTP_WORKERS_MAX))?
                .unwrap_or(HTTP_WORKERS_DEFAULT),
            is_member: typed.text("membership") != Some(OUTSIDE),
            outside: listed(
                typed,
                "outside",
                OUTSIDE_MAX,
                (host_address, "IP addresses of hosts, separated by commas"),
            )?,
            may_judge: typed.text("judge") != Some("never") && typed.text("membership") != Some(OUTSIDE),
            node_addresses: typed.value("node-addresses", addresses)?.unwrap_or_default(),
            pod_addresses: typed.value("pod-addresses", addresses)?.unwrap_or_default(),
            heap_profile: typed.value("heap-profile", heap_profile)?,
            log_level: typed.text("log-level").and_then(|level| level.parse().ok()).unwrap_or(log::LevelFilter::Info),
            log_format: typed.choice("log-format", &[("json", LogFormat::Json)]).unwrap_or_default(),
        })
    }
}

/// The settings of probes: the flags that `run` and `ping` have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Probing {
    pub interval: Duration,
    pub timeout: Duration,
    pub payload_bytes: usize,
}

impl Probing {
    /// `parse` reads the durations.
    pub(super) fn resolve(typed: &Typed, parse: ParseDuration) -> Result<Self, UsageError> {
        let second = Duration::from_secs(1);
        let interval = typed.value("interval", within(parse, INTERVAL_MIN, INTERVAL_MAX))?.unwrap_or(second);
        let longest = INTERVAL_MAX.min(interval * u32::try_from(IN_FLIGHT_PER_PEER_MAX - 1).unwrap_or(1));
        let timeout =
            typed.value("timeout", within(parse, Duration::from_millis(1), longest))?.unwrap_or(second.min(longest));
        let payload_bytes = typed.value("payload-bytes", number_between(PAYLOAD_BYTES_MIN, PAYLOAD_BYTES_MAX))?;
        Ok(Self { interval, timeout, payload_bytes: payload_bytes.unwrap_or(56) })
    }
}

/// Returns a parser that accepts whole numbers from `min` to `max`.
pub(super) fn number_between<N>(min: N, max: N) -> impl Fn(&str) -> Result<N, String>
where
    N: FromStr + PartialOrd + Display,
{
    move |text| {
        let number = text.parse().ok().filter(|n| (&min..=&max).contains(&n));
        number.ok_or_else(|| format!("a whole number from {min} to {max}"))
    }
}

/// Returns a parser that accepts durations from `min` to `max`.
pub(super) fn duration_between(min: Duration, max: Duration) -> impl Fn(&str) -> Result<Duration, String> {
    within(parse_duration, min, max)
}

type ParseDuration = fn(&str) -> Result<Duration, String>;

fn within(parse: ParseDuration, min: Duration, max: Duration) -> impl Fn(&str) -> Result<Duration, String> {
    move |text| {
        let duration = parse(text)?;
        let within = (min..=max).contains(&duration);
        within.then_some(duration).ok_or_else(|| format!("a duration from {min:?} to {max:?}"))
    }
}

pub(super) fn name(text: &str) -> Result<String, String> {
    let good = !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control);
    good.then(|| text.to_owned()).ok_or_else(|| format!("a name of 1 to {NAME_BYTES_MAX} bytes"))
}

pub(super) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "ADDR:PORT, such as 0.0.0.0:9877 or [::1]:9877".to_owned())
}

fn bounds(text: &str) -> Result<BucketBounds, String> {
    let durations: Result<Vec<Duration>, String> = text.split(',').map(|part| parse_duration(part.trim())).collect();
    BucketBounds::new(&durations?)
}

fn addresses(text: &str) -> Result<Vec<IpAddr>, String> {
    let all: Option<Vec<IpAddr>> = text.split(',').map(|part| host_address(part.trim())).collect();
    all.ok_or_else(|| "IP addresses of one host each, separated by commas".to_owned())
}

/// Returns what a flag lists that may be given again, or separated by commas. `expected` says what
/// `parse` accepts.
fn listed<T>(
    typed: &Typed,
    name: &str,
    most: usize,
    (parse, expected): (impl Fn(&str) -> Option<T>, &str),
) -> Result<Vec<T>, UsageError> {
    let mut all = Vec::new();
    for (flag, value) in typed.texts(name) {
        for text in value.split(',').map(str::trim) {
            all.push(parse(text).ok_or_else(|| UsageError::expected(flag, value, expected))?);
        }
    }
    if all.len() > most {
        return Err(UsageError(format!("--{name}: {} are given: expected at most {most}", all.len())));
    }
    Ok(all)
}

fn host_name(text: &str) -> Option<String> {
    dns::check_name(text).ok().map(|()| text.to_owned())
}

fn host_address(text: &str) -> Option<IpAddr> {
    text.parse().ok().and_then(|address| valid_host_address(address).ok())
}

fn methods(text: &str) -> Result<Methods, String> {
    let method = |name: &str| Method::ALL.into_iter().find(|method| method.label() == name.trim());
    let methods: Option<Vec<Method>> = text.split(',').map(method).collect();
    methods.map(Methods::new).ok_or_else(|| "icmp, udp and tcp, separated by commas".to_owned())
}

fn heap_profile(text: &str) -> Result<PathBuf, String> {
    if HeapProfile::AVAILABLE {
        Ok(text.into())
    } else {
        Err("a build that takes heap profiles, with --features jemalloc-profiling".to_owned())
    }
}

/// Reads the domains file once, so that a bad one stops the start.
pub(super) fn domains_file(typed: &Typed) -> Result<Option<PathBuf>, UsageError> {
    let Some(path) = typed.text("domains-file").map(PathBuf::from) else { return Ok(None) };
    domains::read(&path).map_err(|error| UsageError(error.to_string()))?;
    Ok(Some(path))
}

fn node_name(typed: &Typed) -> Result<String, UsageError> {
    if let Some(name) = typed.value("node-name", name)? {
        return Ok(name);
    }
    hostname("node-name")
}

/// Returns the hostname, which is the default of a flag.
pub(super) fn hostname(flag: &str) -> Result<String, UsageError> {
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name(hostname.trim()).map_err(|_| UsageError(format!("--{flag}: the hostname is empty; give a name")))
}

/// The sources of the peers, and the flags that belong to each.
pub(super) const SOURCES: [(&str, &[&str]); 3] =
    [("kubernetes", &["namespace", "service"]), ("dns", &["dns"]), ("static", &["peer", "peers-file"])];

fn discovery(typed: &Typed, env: Env<'_>, port: u16) -> Result<DiscoverySource, UsageError> {
    let chosen = match typed.text("discovery") {
        Some(source) => source,
        // A flag of a source selects that source, like its name.
        None if typed.switch("dns") => "dns",
        None if typed.switch("peer") || typed.switch("peers-file") => "static",
        None if env("KUBERNETES_SERVICE_HOST").is_some() => "kubernetes",
        None => "static",
    };
    for (source, flags) in SOURCES.iter().filter(|(source, _)| *source != chosen) {
        if let Some(flag) = typed.first_typed(flags) {
            return Err(UsageError(format!(
                "--{flag} goes with --discovery {source}, and this is --discovery {chosen}"
            )));
        }
    }
    let source = match chosen {
        "kubernetes" => kubernetes(typed, env)?,
        "dns" => match typed.value("dns", name)? {
            Some(name) => DiscoverySource::Dns(DnsConfig::new(name, port)),
            None => return Err(UsageError("--discovery dns: expected --dns NAME, a headless Service's name".into())),
        },
        _ => static_peers(typed)?,
    };
    source.validate().map_err(|error| UsageError(error.to_string()))?;
    Ok(source)
}

fn kubernetes(typed: &Typed, env: Env<'_>) -> Result<DiscoverySource, UsageError> {
    let namespace = typed.value("namespace", name)?;
    let service = typed.value("service", name)?.unwrap_or_else(|| "kube-canary".into());
    let config = KubernetesConfig::in_cluster(env, SERVICE_ACCOUNT_DIRECTORY.into(), namespace, service);
    Ok(DiscoverySource::Kubernetes(Box::new(config.map_err(|error| UsageError(error.to_string()))?)))
}

fn static_peers(typed: &Typed) -> Result<DiscoverySource, UsageError> {
    let peers =
        typed.texts("peer").flat_map(|(_, value)| value.split(',')).map(|text| text.trim().to_owned()).collect();
    let config = StaticConfig { peers, file: typed.text("peers-file").map(PathBuf::from) };
    if config.peers.is_empty() && config.file.is_none() {
        return Err(UsageError(
            "no peers: expected --peer NAME=ADDR[@ZONE], --peers-file FILE, or --discovery dns or kubernetes".into(),
        ));
    }
    Ok(DiscoverySource::Static(config))
}

#[cfg(test)]
mod tests {
    use super::super::{Command, parse};
    use super::*;

    fn settings(line: &str, env: Env<'_>) -> Result<RunSettings, UsageError> {
        match parse(&line.split_whitespace().map(Into::into).collect::<Vec<_>>(), env)? {
            Command::Run(settings) => Ok(*settings),
            other => panic!("{other:?}"),
        }
    }

    const PEER: &str = "--peer a=127.0.0.2";

    #[test]
    fn defaults_are_those_of_the_design() {
        let s = settings(PEER, &|_| None).unwrap();
        assert_eq!((s.interval, s.timeout, s.payload_bytes), (Duration::from_secs(1), Duration::from_secs(1), 56));
        assert_eq!((s.listen.to_string(), s.http_workers, s.max_peers), ("[::]:9877".into(), 4, 24));
        assert_eq!((s.probes, s.flows, s.udp_port, s.tcp_port), (Methods::ALL, 16, 9_877, 9_878));
        assert_eq!((s.forget_after, s.rtt_buckets), (Duration::from_mins(5), BucketBounds::default()));
        assert!(!s.node_name.is_empty());
    }

    #[test]
    fn a_slot_is_kept_while_probes_to_its_last_holder_may_be_in_flight() {
        for (line, seconds) in [
            ("", 300),
            ("--forget-after 0s", 2),
            ("--forget-after 3s --timeout 3s", 4),
            ("--forget-after 3s --timeout 2s", 3),
            ("--forget-after 5m --interval 5m --timeout 5m", 301),
        ] {
            let kept = settings(&format!("{PEER} {line}"), &|_| None).unwrap().slots_kept_for();
            assert_eq!(kept, Duration::from_secs(seconds), "{line}");
        }
    }

    #[test]
    fn a_flag_goes_before_its_variable() {
        let env = |name: &str| match name {
            "NODE_NAME" => Some("from-env".to_owned()),
            "KUBE_CANARY_PEER" => Some("x=127.0.0.2,y=127.0.0.3@z".to_owned()),
            _ => None,
        };
        assert_eq!(settings("", &env).unwrap().node_name, "from-env");
        assert_eq!(settings("--node-name typed", &env).unwrap().node_name, "typed");
        let DiscoverySource::Static(config) = settings("", &env).unwrap().discovery else { panic!() };
        assert_eq!(config.peers.len(), 2);
    }

    #[test]
    fn hosts_are_allowed_one_by_one_or_in_a_list() {
        let line = format!("{PEER} --allow-host a.example --allow-host b.example,c");
        assert_eq!(settings(&line, &|_| None).unwrap().allow_hosts, ["a.example", "b.example", "c"]);
        let env = |name: &str| (name == "KUBE_CANARY_ALLOW_HOST").then(|| "a, b.".to_owned());
        assert_eq!(settings(PEER, &env).unwrap().allow_hosts, ["a", "b."]);
    }

    #[test]
    fn an_agent_outside_is_named_by_its_addresses_and_never_judges() {
        let line = format!("{PEER} --outside ::ffff:10.0.0.7 --outside fd00::7,10.0.0.8");
        let member = settings(&line, &|_| None).unwrap();
        assert_eq!(
            member.outside.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.0.0.7", "fd00::7", "10.0.0.8"]
        );
        let outside = settings(&format!("{PEER} --membership outside --judge auto"), &|_| None).unwrap();
        assert_eq!([&member, &outside].map(|of| (of.is_member, of.may_judge)), [(true, true), (false, false)]);
        let many = (0..=OUTSIDE_MAX).map(|n| format!("10.0.0.{n}")).collect::<Vec<_>>().join(",");
        let error = settings(&format!("{PEER} --outside {many}"), &|_| None).unwrap_err().0;
        assert_eq!(error, "--outside: 65 are given: expected at most 64 (see kube-canary run --help)");
    }

    #[test]
    fn every_bad_value_is_one_line_that_names_flag_value_and_what_is_accepted() {
        for (line, parts) in [
            ("--interval 1", ["--interval", "\"1\"", "500ms"]),
            ("--interval 1ms", ["--interval", "1ms", "10ms to 300s"]),
            ("--timeout 2h", ["--timeout", "2h", "63s"]),
            ("--payload-bytes 8", ["--payload-bytes", "\"8\"", "24 to 8952"]),
            ("--rtt-buckets 2ms,1ms", ["--rtt-buckets", "2ms,1ms", "larger than the one before"]),
            ("--http-workers 0", ["--http-workers", "\"0\"", "1 to 64"]),
            ("--listen 9877", ["--listen", "9877", "ADDR:PORT"]),
            ("--discovery magic", ["--discovery", "magic", "kubernetes, dns or static"]),
            ("--probes icmp,sctp", ["--probes", "icmp,sctp", "udp and tcp"]),
            ("--flows 17", ["--flows", "\"17\"", "1 to 16"]),
            ("--udp-port 0", ["--udp-port", "\"0\"", "1 to 65535"]),
            ("--tcp-port x", ["--tcp-port", "\"x\"", "1 to 65535"]),
            ("--max-peers -1", ["--max-peers", "-1", "whole number"]),
            ("--max-peers 257", ["--max-peers", "257", "from 0 to 256"]),
            ("--log-level loud", ["--log-level", "loud", "debug"]),
            ("--node-addresses 1.2.3", ["--node-addresses", "1.2.3", "IP addresses"]),
            ("--node-addresses 0.0.0.0", ["--node-addresses", "0.0.0.0", "IP addresses"]),
            ("--pod-addresses 10.0.0.7,ff02::1", ["--pod-addresses", "10.0.0.7,ff02::1", "IP addresses"]),
            ("--peer b=127.0.0.300", ["--peer", "127.0.0.300", "address"]),
            ("--peer a=127.0.0.9", ["--peer", "'a'", "one IPv4"]),
            ("--peer b=0.0.0.0", ["--peer", "0.0.0.0", ""]),
            ("--domains-file /nonexistent/domains", ["--domains-file", "/nonexistent/domains", "NODE-NAME-PATTERN"]),
            ("--peers-file /nonexistent/peers", ["--peers-file", "/nonexistent/peers", ""]),
            ("--dns x.local", ["--dns", "dns", "static"]),
            ("--allow-host canary.example:9877", ["--allow-host", "canary.example:9877", "DNS names"]),
            ("--allow-host a,,b", ["--allow-host", "a,,b", "DNS names"]),
            ("--outside 10.0.0.7,office", ["--outside", "10.0.0.7,office", "IP addresses"]),
            ("--outside 224.0.0.1", ["--outside", "224.0.0.1", "IP addresses of hosts"]),
            ("--membership guest", ["--membership", "guest", "outside"]),
        ] {
            // `--dns` alone selects dns. Together with a peer, the source must be named.
            let line = format!("--discovery static {PEER} {line}");
            let error = settings(&line, &|_| None).unwrap_err().0;
            assert!(parts.iter().all(|part| error.contains(part)), "{line}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn the_source_follows_its_flags_and_the_place() {
        let cluster = |name: &str| match name {
            "KUBERNETES_SERVICE_HOST" => Some("10.96.0.1".to_owned()),
            "KUBERNETES_SERVICE_PORT" => Some("443".to_owned()),
            "POD_NAMESPACE" => Some("ns".to_owned()),
            _ => None,
        };
        // Inside a cluster the service account's files are needed too, which do not exist here.
        let error = settings("", &cluster).unwrap_err().0;
        assert!(error.contains("serviceaccount"), "{error}");
        assert!(matches!(settings(PEER, &cluster).unwrap().discovery, DiscoverySource::Static(_)));
        let DiscoverySource::Dns(dns) = settings("--dns canary.ns.svc", &|_| None).unwrap().discovery else { panic!() };
        assert_eq!((dns.name.as_str(), dns.port), ("canary.ns.svc", 9_877));
        for (line, named) in [("", "--peer"), ("--discovery dns", "--dns"), ("--discovery kubernetes", "KUBERNETES")] {
            assert!(settings(line, &|_| None).unwrap_err().0.contains(named), "{line}");
        }
    }
}
