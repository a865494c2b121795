//! The settings of `kube-canary ping`.

mod checks;

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use super::agents::{AgentUrl, Host, has_numeric_end};
use super::run::{Probing, number_between};
use super::typed::Typed;
use super::{Env, UsageError, colours};
use crate::discovery::address::valid_host_address;
use crate::discovery::dns::{self, AddressFamily};
use crate::limits::{FLOWS_MAX, PING_COUNT_MAX, PING_TARGETS_MAX};
use crate::sys::terminal::Colours;
use crate::units::parse_duration;
pub use checks::{PingCheck, PingChecks};

/// The first line that `ping --help` shows.
pub const ABOUT: &str = "Probes targets with the agent's prober, and prints a line per probe and a summary.";
/// The text that `ping --help` shows below the flags.
pub const AFTER: &str = "
A TARGET is an IPv4 or IPv6 address, or a name of /etc/hosts, or a node that the agent beside the command lists, whose pod
is probed, or a name that the servers of /etc/resolv.conf resolve. Of a name, the first IPv4 address is probed, or the first
IPv6 address if it has no IPv4 address.

A TARGET may also be a check, as run --check takes it: dns:NAME[@SERVER], tcp:HOST:PORT, tls:HOST:PORT, http://…, https://…,
icmp:HOST or udp:HOST:PORT. Each interval it is tried once, at the addresses of HOST or the servers of the DNS in turn. HOST
may be a node, too.

A DURATION without a unit is in seconds, as for ping(8): -i 0.2 is --interval 200ms.

Exit codes: 0 if every target has answered within the timeout at least once; 1 if one has not, or on a failure; 2 for a bad
flag.
";
/// The default of `--udp-port`: that of `--listen`.
const UDP_PORT: u16 = 9_877;
const TARGET: &str = "an IPv4 or IPv6 address, a DNS name, or a check such as tcp:HOST:PORT";

/// How targets are probed by UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpPing {
    /// Port of the reflectors.
    pub port: u16,
    /// Number of source ports, 1 to [`FLOWS_MAX`].
    pub flows: u8,
    /// Whether paths are traced too.
    pub trace: bool,
}

impl UdpPing {
    fn resolve(typed: &Typed) -> Result<Option<Self>, UsageError> {
        typed.expect_beside("udp", &["udp-port", "flows", "trace"])?;
        if !typed.switch("udp") {
            return Ok(None);
        }
        if typed.first_typed(&["payload-bytes"]).is_some() {
            return Err(UsageError("--payload-bytes: expected no --udp, whose probes have 72 bytes".into()));
        }
        Ok(Some(Self {
            port: typed.value("udp-port", number_between(1, u16::MAX))?.unwrap_or(UDP_PORT),
            flows: typed.value("flows", number_between(1, FLOWS_MAX))?.unwrap_or(FLOWS_MAX),
            trace: typed.switch("trace"),
        }))
    }
}

/// The settings that `ping` runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PingSettings {
    /// The targets that are probed, each once. The text is its name in the output. Empty with
    /// checks.
    pub targets: Vec<(String, Host)>,
    /// The checks that are tried instead.
    pub checks: Option<PingChecks>,
    /// The agent on this machine, or in this pod. It knows the names of nodes.
    pub own: AgentUrl,
    /// Probes per target. None means until a signal.
    pub count: Option<u64>,
    /// Time between two probes of a target.
    pub interval: Duration,
    /// A probe without a reply after this time is lost.
    pub timeout: Duration,
    /// Bytes after the ICMP header.
    pub payload_bytes: usize,
    /// Probe by UDP instead of ICMP.
    pub udp: Option<UdpPing>,
    /// The family of the address that is probed of a name.
    pub family: AddressFamily,
    /// Print no line for a probe.
    pub quiet: bool,
    /// When colours are used.
    pub colours: Colours,
    /// End also when standard input ends.
    pub until_eof: bool,
    /// Print JSON objects instead of text lines.
    pub json: bool,
}

impl PingSettings {
    pub(super) fn resolve(typed: &Typed, env: Env<'_>) -> Result<Self, UsageError> {
        let Probing { interval, timeout, payload_bytes } = Probing::resolve(typed, duration)?;
        let family = family(typed)?;
        let given = typed.positional();
        if given.is_empty() {
            return Err(UsageError(format!("TARGET: expected at least one: {TARGET}")));
        }
        if given.len() > PING_TARGETS_MAX {
            return Err(UsageError(format!("TARGET: {} are given: expected at most {PING_TARGETS_MAX}", given.len())));
        }
        let checks = PingChecks::resolve(typed, given)?;
        Ok(Self {
            targets: if checks.is_some() { Vec::new() } else { hosts(given, family)? },
            checks,
            own: AgentUrl::own(env),
            count: typed.value("count", number_between(1, PING_COUNT_MAX))?,
            interval,
            timeout,
            payload_bytes,
            udp: UdpPing::resolve(typed)?,
            family,
            quiet: typed.switch("quiet"),
            colours: colours(typed),
            until_eof: typed.switch("until-eof"),
            json: typed.switch("json"),
        })
    }
}

/// Parses a duration. A number without a unit is in seconds, as users of ping(8) type it.
fn duration(text: &str) -> Result<Duration, String> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_number { parse_duration(&format!("{text}s")) } else { parse_duration(text) }
}

fn family(typed: &Typed) -> Result<AddressFamily, UsageError> {
    match (typed.switch("ipv4"), typed.switch("ipv6")) {
        (true, true) => Err(UsageError("-4 and -6: expected one of them".into())),
        (true, false) => Ok(AddressFamily::Ipv4),
        (false, true) => Ok(AddressFamily::Ipv6),
        (false, false) => Ok(AddressFamily::Any),
    }
}

fn hosts(given: &[String], family: AddressFamily) -> Result<Vec<(String, Host)>, UsageError> {
    let mut targets = Vec::with_capacity(given.len());
    for text in given {
        let host = target(text, family).map_err(|reason| UsageError::expected("TARGET", text, &reason))?;
        targets.push((text.clone(), host));
    }
    let mut sorted: Vec<&String> = given.iter().collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(twice) => Err(UsageError::expected("TARGET", twice[0], "each target once")),
        None => Ok(targets),
    }
}

fn target(text: &str, family: AddressFamily) -> Result<Host, String> {
    if let Ok(typed) = text.parse::<IpAddr>() {
        let address = valid_host_address(typed).map_err(|reason| format!("the address of one host: {reason}"))?;
        if !family.accepts(address) {
            return Err(format!("an {family} address or a name, because of the flag for {family}"));
        }
        return Ok(Host::Address(address));
    }
    if text.split_once('%').is_some_and(|(address, _)| address.parse::<Ipv6Addr>().is_ok()) {
        return Err("an address without an interface: link-local addresses are not probed".into());
    }
    match dns::check_name(text) {
        Ok(()) if !has_numeric_end(text) => Ok(Host::Name(text.into())),
        _ => Err(TARGET.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Command, parse};
    use super::*;

    fn settings(line: &str) -> Result<PingSettings, UsageError> {
        match parse(&line.split_whitespace().map(Into::into).collect::<Vec<_>>(), &|_| None)? {
            Command::Ping(settings) => Ok(settings),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn targets_are_addresses_or_names_wherever_they_stand() {
        let s = settings("ping 127.0.0.1 --count 3 ::1 --interval 10ms canary.ns.svc --json").unwrap();
        let targets: Vec<_> = s.targets.iter().map(|(_, target)| target.clone()).collect();
        assert_eq!(
            targets,
            [
                Host::Address([127, 0, 0, 1].into()),
                Host::Address([0, 0, 0, 0, 0, 0, 0, 1].into()),
                Host::Name("canary.ns.svc".into())
            ]
        );
        assert_eq!((s.count, s.interval, s.json), (Some(3), Duration::from_millis(10), true));
        assert_eq!(s.timeout, Duration::from_millis(630), "63 intervals");
        let s = settings("ping a").unwrap();
        assert_eq!((s.count, s.interval, s.timeout), (None, Duration::from_secs(1), Duration::from_secs(1)));
    }

    #[test]
    fn an_ipv4_mapped_address_is_probed_by_ipv4() {
        let target = Host::Address([10, 0, 0, 7].into());
        assert_eq!(settings("ping ::ffff:10.0.0.7").unwrap().targets, [("::ffff:10.0.0.7".to_owned(), target)]);
    }

    #[test]
    fn the_letters_of_ping_are_accepted_with_seconds_and_in_bundles() {
        let letters = settings("ping -c5 -i 0.2 -W2 -s 100 -q4 a").unwrap();
        let words =
            settings("ping a --count 5 --interval 200ms --timeout 2s --payload-bytes 100 --quiet --ipv4").unwrap();
        assert_eq!(letters, words);
        assert_eq!((letters.family, letters.quiet), (AddressFamily::Ipv4, true));
        let s = settings("ping --interval 1 --timeout=.5 -6 a ::1").unwrap();
        assert_eq!((s.interval, s.timeout), (Duration::from_secs(1), Duration::from_millis(500)));
        assert_eq!((s.family, s.quiet), (AddressFamily::Ipv6, false));
    }

    #[test]
    fn udp_has_flags_of_its_own() {
        assert_eq!(settings("ping a").unwrap().udp, None);
        let udp = settings("ping --udp a").unwrap().udp;
        assert_eq!(udp, Some(UdpPing { port: 9_877, flows: 16, trace: false }));
        let udp = settings("ping a --udp --trace --flows 4 --udp-port=862").unwrap().udp;
        assert_eq!(udp, Some(UdpPing { port: 862, flows: 4, trace: true }));
    }

    #[test]
    fn every_bad_value_is_one_line_that_names_it_and_what_is_accepted() {
        for (line, parts) in [
            ("ping", ["TARGET", "at least one", "address"]),
            ("ping 127.0.0.300", ["TARGET", "127.0.0.300", "address"]),
            ("ping 10", ["TARGET", "\"10\"", "address"]),
            ("ping 0.0.0.0", ["TARGET", "0.0.0.0", "one host"]),
            ("ping 255.255.255.255", ["TARGET", "255.255.255.255", "one host"]),
            ("ping 224.0.0.1", ["TARGET", "224.0.0.1", "one host"]),
            ("ping fe80::1%eth0", ["TARGET", "fe80::1%eth0", "without an interface: link-local"]),
            ("ping fe80::1", ["TARGET", "fe80::1", "link-local, which needs an interface"]),
            ("ping -6 ::ffff:10.0.0.7", ["TARGET", "::ffff:10.0.0.7", "IPv6 address or a name"]),
            ("ping a a", ["TARGET", "\"a\"", "once"]),
            ("ping a --count 0", ["--count", "\"0\"", "1 to"]),
            ("ping a --interval soon", ["--interval", "\"soon\"", "500ms"]),
            ("ping a -i 0.001", ["-i", "\"0.001\"", "10ms to 300s"]),
            ("ping a -i .", ["-i", "\".\"", "500ms"]),
            ("ping a -i=", ["-i", "\"\"", "500ms"]),
            ("ping a -i", ["-i", "a value", "DURATION"]),
            ("ping a -c0", ["-c", "\"0\"", "1 to"]),
            ("ping a --timeout 2h", ["--timeout", "2h", "63s"]),
            ("ping a -W 64", ["-W", "\"64\"", "63s"]),
            ("ping a -4 -6", ["-4", "-6", "one of them"]),
            ("ping -4 ::1", ["TARGET", "\"::1\"", "IPv4 address or a name"]),
            ("ping 127.0.0.1 -6", ["TARGET", "\"127.0.0.1\"", "IPv6 address or a name"]),
            ("ping a --payload-bytes 8", ["--payload-bytes", "\"8\"", "24 to 8952"]),
            ("ping a --flows 4", ["--flows", "--udp", "expected"]),
            ("ping a --color sometimes", ["--color", "\"sometimes\"", "auto, always or never"]),
            ("ping a --trace", ["--trace", "--udp", "expected"]),
            ("ping a --udp --flows 17", ["--flows", "\"17\"", "1 to 16"]),
            ("ping a --udp --flows 0", ["--flows", "\"0\"", "1 to 16"]),
            ("ping a --udp --udp-port 0", ["--udp-port", "\"0\"", "1 to 65535"]),
            ("ping a --udp -s 100", ["--payload-bytes", "--udp", "72"]),
            ("ping a --burst", ["--burst", "--count", "--json"]),
        ] {
            let error = settings(line).unwrap_err().0;
            assert!(parts.iter().all(|part| error.contains(part)), "{line}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
