//! The families of links, zone pairs, checks and the agent's own lags: names, help texts and
//! values, in one table.
//!
//! Within a group `sent` comes last and is read last, so that a scrape never shows more answers
//! than probes.

use super::protobuf::FamilyKind;
use crate::peers::Method;
use crate::statistics::{MtuReading, PeerReading, UdpLinks, ZoneReading};

/// Which series of a link are exported. Each value exports what those before it do, and more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkSeries {
    /// No series. Zone pairs, reports and verdicts still include the measurements of the links.
    None,
    /// The counters of probes sent, received and lost.
    Counters,
    /// One histogram of round-trip times: by ICMP, or by UDP if ICMP does not probe.
    #[default]
    One,
    /// All histograms, rarer counters, and what UDP probes find out.
    Full,
}

impl LinkSeries {
    /// The values that `--link-series` accepts.
    pub const ALL: [(&str, Self); 4] =
        [("one", Self::One), ("full", Self::Full), ("counters", Self::Counters), ("none", Self::None)];
}

/// The kind of subject that a family describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyScope {
    /// A link: one peer, by one protocol, on one network.
    Link,
    /// A zone pair: from our zone to another.
    Zone,
    /// The agent itself, as one subject.
    Agent,
    /// A check. Each of its phases and reasons is a subject of its own.
    Check,
}

/// The value that a family shows of its subject.
#[derive(Clone, Copy, Debug)]
pub enum FamilyContent {
    /// A counter of a link, read by this function.
    LinkCounter(fn(&PeerReading) -> u64),
    /// A counter of a zone pair, read by this function.
    ZoneCounter(fn(&ZoneReading) -> u64),
    /// A gauge of a link that UDP probes find out, read by this function.
    UdpGauge(fn(&UdpLinks<'_>) -> u64),
    /// The same of all links of a zone pair, as the second function puts them together.
    ZoneGauge(fn(&UdpLinks<'_>) -> u64, fn(u64, u64) -> u64),
    /// The round-trip times of a link or a zone pair.
    Rtt,
    /// The delay between a probe's planned and actual send time.
    SendLag,
    /// The delay between a reply's arrival and its reading.
    ReadDelay,
    /// The times of a phase of a check.
    CheckTimes,
    /// The attempts of a check.
    CheckAttempts,
    /// The attempts of a check that failed for one reason, if there are any.
    CheckFailures,
    /// When the certificate of a check's target expires, if that is known.
    CheckCertificate,
}

/// A label of a family, besides those of its subject.
type FamilyLabel = Option<(&'static str, &'static str)>;

/// The description of one metric family.
#[derive(Clone, Copy, Debug)]
pub struct FamilyDescription {
    /// The complete metric name.
    pub name: &'static str,
    /// The help text; no character in it needs escaping.
    pub help: &'static str,
    /// The kind of subject.
    pub scope: FamilyScope,
    /// The value that is shown of the subject.
    pub content: FamilyContent,
    /// The methods of the links and zone pairs that have this family.
    pub methods: &'static [Method],
    /// The first value of `--link-series` that exports this family of links.
    pub links: LinkSeries,
    /// A label of the family, after those of its subject.
    pub label: FamilyLabel,
}

/// The families of every method.
const ANY: &[Method] = &Method::ALL;
/// The families of methods whose probes are packets, with a round-trip time for each.
const PACKETS: &[Method] = &[Method::Icmp, Method::Udp];
/// The families of ICMP alone, so that a scrape stays within its budget. The reports have these
/// numbers of the other methods, too.
const ECHO: &[Method] = &[Method::Icmp];
/// The families of UDP alone.
const UDP: &[Method] = &[Method::Udp];

impl FamilyDescription {
    /// Returns the metric type of the family.
    pub const fn kind(&self) -> FamilyKind {
        match self.content {
            FamilyContent::LinkCounter(_)
            | FamilyContent::ZoneCounter(_)
            | FamilyContent::CheckAttempts
            | FamilyContent::CheckFailures => FamilyKind::Counter,
            FamilyContent::UdpGauge(_) | FamilyContent::ZoneGauge(..) | FamilyContent::CheckCertificate => {
                FamilyKind::Gauge
            }
            FamilyContent::Rtt | FamilyContent::SendLag | FamilyContent::ReadDelay | FamilyContent::CheckTimes => {
                FamilyKind::Histogram
            }
        }
    }
}

const fn link(name: &'static str, value: fn(&PeerReading) -> u64, help: &'static str) -> FamilyDescription {
    let content = FamilyContent::LinkCounter(value);
    FamilyDescription {
        name,
        help,
        scope: FamilyScope::Link,
        content,
        methods: ANY,
        links: LinkSeries::Counters,
        label: None,
    }
}

const fn rare(name: &'static str, value: fn(&PeerReading) -> u64, help: &'static str) -> FamilyDescription {
    FamilyDescription { methods: ECHO, links: LinkSeries::Full, ..link(name, value, help) }
}

const fn zone(
    name: &'static str,
    methods: &'static [Method],
    value: fn(&ZoneReading) -> u64,
    help: &'static str,
) -> FamilyDescription {
    let content = FamilyContent::ZoneCounter(value);
    FamilyDescription { name, help, scope: FamilyScope::Zone, content, methods, links: LinkSeries::None, label: None }
}

const fn times(
    name: &'static str,
    scope: FamilyScope,
    content: FamilyContent,
    methods: &'static [Method],
    help: &'static str,
) -> FamilyDescription {
    FamilyDescription { name, help, scope, content, methods, links: LinkSeries::One, label: None }
}

const fn check(name: &'static str, content: FamilyContent, help: &'static str) -> FamilyDescription {
    let scope = FamilyScope::Check;
    FamilyDescription { name, help, scope, content, methods: ANY, links: LinkSeries::None, label: None }
}

const fn udp(
    name: &'static str,
    label: FamilyLabel,
    value: fn(&UdpLinks<'_>) -> u64,
    help: &'static str,
) -> FamilyDescription {
    let content = FamilyContent::UdpGauge(value);
    FamilyDescription { name, help, scope: FamilyScope::Link, content, methods: UDP, links: LinkSeries::Full, label }
}

const fn zone_udp(
    name: &'static str,
    label: FamilyLabel,
    value: fn(&UdpLinks<'_>) -> u64,
    together: fn(u64, u64) -> u64,
    help: &'static str,
) -> FamilyDescription {
    let content = FamilyContent::ZoneGauge(value, together);
    FamilyDescription { name, help, scope: FamilyScope::Zone, content, methods: UDP, links: LinkSeries::None, label }
}

fn losing(link: &UdpLinks<'_>) -> u64 {
    link.losing().into_iter().filter(|is_losing| *is_losing).count() as u64
}

fn hops(link: &UdpLinks<'_>) -> u64 {
    link.hops().map_or(0, u64::from)
}

fn path_mtu(link: &UdpLinks<'_>) -> u64 {
    match link.mtu() {
        MtuReading::Unknown => 0,
        MtuReading::Full { bytes } | MtuReading::Hole { passes: bytes, .. } => bytes.into(),
    }
}

/// Returns the smaller of two numbers that are 0 if they are not known.
fn least_known(one: u64, other: u64) -> u64 {
    if one == 0 || other == 0 { one.max(other) } else { one.min(other) }
}

fn sum(counts: &[u32]) -> u64 {
    counts.iter().map(|count| u64::from(*count)).sum()
}

/// Every family, in the order of exposition.
#[rustfmt::skip]
pub const FAMILIES: &[FamilyDescription] = &[
    link("kube_canary_probes_received_total", |link| link.received,
        "Probes answered within the timeout."),
    link("kube_canary_probes_lost_total", |link| link.lost,
        "Probes not answered within the timeout."),
    times("kube_canary_probe_rtt_seconds", FamilyScope::Link, FamilyContent::Rtt, PACKETS,
        "Round-trip times of answered probes; for UDP without the time that the far agent took."),
    rare("kube_canary_probes_late_total", |link| link.late.into(),
        "Probes answered after they were counted as lost."),
    rare("kube_canary_probes_duplicate_total", |link| link.duplicate.into(),
        "Further replies to a probe already answered."),
    rare("kube_canary_probes_reordered_total", |link| link.reordered.into(),
        "Probes answered in time, but after a later probe."),
    rare("kube_canary_probes_corrupt_total", |link| link.corrupt.into(),
        "Replies whose bytes differ from those sent."),
    rare("kube_canary_probe_send_errors_total", |link| sum(&link.send_errors),
        "Probes that the kernel refused to send; not losses."),
    rare("kube_canary_probes_terminating_total", |link| sum(&link.terminating),
        "Probes to a peer that was terminating or had just left the list; in neither sent nor lost."),
    link("kube_canary_probes_sent_total", |link| link.sent,
        "Probes sent."),
    udp("kube_canary_flows", Some(("state", "losing")), losing,
        "Source ports of the link's UDP probes, by state: those that lose while the others do not."),
    udp("kube_canary_path_mtu_bytes", None, path_mtu,
        "Largest IP packet that reaches the peer; 0 until it is known."),
    udp("kube_canary_path_hops", None, hops,
        "Hops from the peer to this node, by the TTL of its answers: 1 without a router between; 0 until it is known."),
    zone("kube_canary_zone_probes_received_total", ANY, |zone| zone.received,
        "Probes to all peers of a zone answered within the timeout."),
    zone("kube_canary_zone_probes_lost_total", ANY, |zone| zone.lost,
        "Probes to all peers of a zone not answered within the timeout."),
    times("kube_canary_zone_probe_rtt_seconds", FamilyScope::Zone, FamilyContent::Rtt, ECHO,
        "Round-trip times of answered probes to all peers of a zone."),
    zone("kube_canary_zone_probes_late_total", ECHO, |zone| zone.late,
        "Probes to all peers of a zone answered after they were counted as lost."),
    zone("kube_canary_zone_probes_duplicate_total", ECHO, |zone| zone.duplicate,
        "Further replies of all peers of a zone to a probe already answered."),
    zone("kube_canary_zone_probes_reordered_total", ECHO, |zone| zone.reordered,
        "Probes to all peers of a zone answered in time, but after a later probe of the same link."),
    zone("kube_canary_zone_probes_corrupt_total", ECHO, |zone| zone.corrupt,
        "Replies of all peers of a zone whose bytes differ from those sent."),
    zone("kube_canary_zone_probe_send_errors_total", ECHO, |zone| zone.send_errors,
        "Probes to all peers of a zone that the kernel refused to send; not losses."),
    zone("kube_canary_zone_probes_terminating_total", ECHO, |zone| zone.terminating,
        "Probes to peers of a zone that were terminating or had just left the list; in neither sent nor lost."),
    zone("kube_canary_zone_probes_sent_total", ANY, |zone| zone.sent,
        "Probes sent to all peers of a zone, counted when they are answered or lost."),
    zone_udp("kube_canary_zone_flows", Some(("state", "losing")), losing, |one, other| one + other,
        "Source ports of the UDP probes to all peers of a zone, by state: those that lose while others of their link do not."),
    zone_udp("kube_canary_zone_path_mtu_bytes", None, path_mtu, least_known,
        "Largest IP packet that reaches every peer of a zone whose path MTU is known; 0 until one is."),
    zone_udp("kube_canary_zone_path_hops", None, hops, u64::max,
        "Hops from the farthest peer of a zone to this node; 0 until one is known."),
    times("kube_canary_probe_send_lag_seconds", FamilyScope::Agent, FamilyContent::SendLag, ANY,
        "How much later than scheduled the agent sent its probes."),
    times("kube_canary_reply_read_delay_seconds", FamilyScope::Agent, FamilyContent::ReadDelay, ANY,
        "How late the agent read replies, from the kernel's timestamp or from the turn that was due to read them."),
    check("kube_canary_check_duration_seconds", FamilyContent::CheckTimes,
        "Times of the phases of attempts that passed them."),
    check("kube_canary_check_attempts_total", FamilyContent::CheckAttempts,
        "Attempts that have ended, answered or not."),
    check("kube_canary_check_failures_total", FamilyContent::CheckFailures,
        "Attempts that failed, by reason."),
    check("kube_canary_check_certificate_not_after_seconds", FamilyContent::CheckCertificate,
        "When the certificate of the target expires, in seconds since the epoch."),
];

/// Returns the number of counters and gauges that a subject of this kind has by a method.
pub fn numbers(scope: FamilyScope, method: Method, links: LinkSeries) -> usize {
    let is_of = |family: &&FamilyDescription| {
        let is_number = family.kind() != FamilyKind::Histogram;
        family.scope == scope && is_number && family.methods.contains(&method) && family.links <= links
    };
    FAMILIES.iter().filter(is_of).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_three_numbers_and_a_zone_pair_has_all() {
        for method in Method::ALL {
            let of = |scope, links| numbers(scope, method, links);
            let all = [9, 6, 3][method as usize];
            assert_eq!(of(FamilyScope::Zone, LinkSeries::Full), all, "{method:?}");
            let of_link = LinkSeries::ALL.map(|(_, links)| (links, of(FamilyScope::Link, links)));
            for (links, found) in of_link {
                let expected = match links {
                    LinkSeries::None => 0,
                    LinkSeries::One | LinkSeries::Counters => 3,
                    LinkSeries::Full => all,
                };
                assert_eq!(found, expected, "{method:?} {links:?}");
            }
        }
    }
}
