//! The families of links, zone pairs and the agent's own lags: names, help texts and values, in one
//! table.
//!
//! Within a group `sent` comes last and is read last, so that a scrape never shows more answers
//! than probes.

use super::protobuf::Kind;
use crate::peers::Method;
use crate::statistics::{MtuReading, PeerReading, UdpLinks, ZoneReading};

/// The kind of subject that a family describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A link: one peer, by one protocol, on one network.
    Link,
    /// What UDP probes alone find out about a link.
    Udp,
    /// A zone pair: from our zone to another.
    Zone,
    /// The agent itself, as one subject.
    Agent,
}

/// The value that a family shows of its subject.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// A counter of a link, read by this function.
    OfLink(fn(&PeerReading) -> u64),
    /// A counter of a zone pair, read by this function.
    OfZone(fn(&ZoneReading) -> u64),
    /// A gauge of a link that UDP probes find out, read by this function.
    OfUdp(fn(&UdpLinks<'_>) -> u64),
    /// The round-trip times of a link or a zone pair.
    Rtt,
    /// The delay between a probe's planned and actual send time.
    SendLag,
    /// The delay between a reply's arrival and its reading.
    ReadDelay,
}

/// The description of one metric family.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The complete metric name.
    pub name: &'static str,
    /// The help text; no character in it needs escaping.
    pub help: &'static str,
    /// The kind of subject.
    pub scope: Scope,
    /// The value that is shown of the subject.
    pub content: Content,
    /// The methods of the links and zone pairs that have this family.
    pub methods: &'static [Method],
    /// A label of the family, after those of its subject.
    pub label: Option<(&'static str, &'static str)>,
}

/// The families of every method.
const ANY: &[Method] = &Method::ALL;
/// The families of methods whose probes are packets, with a round-trip time for each.
const PACKETS: &[Method] = &[Method::Icmp, Method::Udp];
/// The families of ICMP alone, so that a scrape stays within its budget. The reports have these
/// numbers of the other methods, too.
const ECHO: &[Method] = &[Method::Icmp];

impl Family {
    /// Returns the metric type of the family.
    pub const fn kind(&self) -> Kind {
        match self.content {
            Content::OfLink(_) | Content::OfZone(_) => Kind::Counter,
            Content::OfUdp(_) => Kind::Gauge,
            Content::Rtt | Content::SendLag | Content::ReadDelay => Kind::Histogram,
        }
    }
}

const fn link(
    name: &'static str,
    methods: &'static [Method],
    value: fn(&PeerReading) -> u64,
    help: &'static str,
) -> Family {
    Family { name, help, scope: Scope::Link, content: Content::OfLink(value), methods, label: None }
}

const fn zone(name: &'static str, value: fn(&ZoneReading) -> u64, help: &'static str) -> Family {
    Family { name, help, scope: Scope::Zone, content: Content::OfZone(value), methods: ANY, label: None }
}

const fn times(
    name: &'static str,
    scope: Scope,
    content: Content,
    methods: &'static [Method],
    help: &'static str,
) -> Family {
    Family { name, help, scope, content, methods, label: None }
}

const fn udp(
    name: &'static str,
    label: Option<(&'static str, &'static str)>,
    value: fn(&UdpLinks<'_>) -> u64,
    help: &'static str,
) -> Family {
    Family { name, help, scope: Scope::Udp, content: Content::OfUdp(value), methods: &[Method::Udp], label }
}

fn path_mtu(link: &UdpLinks<'_>) -> u64 {
    match link.mtu() {
        MtuReading::Unknown => 0,
        MtuReading::Full { bytes } | MtuReading::Hole { passes: bytes, .. } => bytes.into(),
    }
}

fn sum(counts: &[u32]) -> u64 {
    counts.iter().map(|count| u64::from(*count)).sum()
}

/// Every family, in the order of exposition.
#[rustfmt::skip]
pub const FAMILIES: &[Family] = &[
    link("kube_canary_probes_received_total", ANY, |it| it.received,
        "Probes answered within the timeout."),
    link("kube_canary_probes_lost_total", ANY, |it| it.lost,
        "Probes not answered within the timeout."),
    times("kube_canary_probe_rtt_seconds", Scope::Link, Content::Rtt, PACKETS,
        "Round-trip times of answered probes; for UDP without the time that the far agent took."),
    link("kube_canary_probes_late_total", ECHO, |it| it.late.into(),
        "Probes answered after they were counted as lost."),
    link("kube_canary_probes_duplicate_total", ECHO, |it| it.duplicate.into(),
        "Further replies to a probe already answered."),
    link("kube_canary_probes_reordered_total", ECHO, |it| it.reordered.into(),
        "Probes answered in time, but after a later probe."),
    link("kube_canary_probes_corrupt_total", ECHO, |it| it.corrupt.into(),
        "Replies whose bytes differ from those sent."),
    link("kube_canary_probe_send_errors_total", ECHO, |it| sum(&it.send_errors),
        "Probes that the kernel refused to send; not losses."),
    link("kube_canary_probes_terminating_total", ECHO, |it| sum(&it.terminating),
        "Probes to a peer that was terminating or had just left the list; in neither sent nor lost."),
    link("kube_canary_probes_sent_total", ANY, |it| it.sent,
        "Probes sent."),
    udp("kube_canary_flows", Some(("state", "losing")),
        |it| it.losing().into_iter().filter(|is_losing| *is_losing).count() as u64,
        "Source ports of the link's UDP probes, by state: those that lose while the others do not."),
    udp("kube_canary_path_mtu_bytes", None, path_mtu,
        "Largest IP packet that reaches the peer; 0 until it is known."),
    udp("kube_canary_path_hops", None, |it| it.hops().map_or(0, u64::from),
        "Hops from the peer to this node, by the TTL of its answers: 1 without a router between; 0 until it is known."),
    zone("kube_canary_zone_probes_received_total", |it| it.received,
        "Probes to all peers of a zone answered within the timeout."),
    zone("kube_canary_zone_probes_lost_total", |it| it.lost,
        "Probes to all peers of a zone not answered within the timeout."),
    times("kube_canary_zone_probe_rtt_seconds", Scope::Zone, Content::Rtt, ECHO,
        "Round-trip times of answered probes to all peers of a zone."),
    zone("kube_canary_zone_probes_sent_total", |it| it.sent,
        "Probes sent to all peers of a zone, counted when they are answered or lost."),
    times("kube_canary_probe_send_lag_seconds", Scope::Agent, Content::SendLag, ANY,
        "How much later than scheduled the agent sent its probes."),
    times("kube_canary_reply_read_delay_seconds", Scope::Agent, Content::ReadDelay, ANY,
        "How late the agent read replies, from the kernel's timestamp or from the turn that was due to read them."),
];

#[cfg(test)]
mod tests {
    use super::super::series::{ZONE_COUNTERS, link_counters, udp_gauges};
    use super::*;

    #[test]
    fn there_are_as_many_series_as_the_formula_says() {
        for method in Method::ALL {
            let of = |scope, kind| {
                FAMILIES
                    .iter()
                    .filter(|it| (it.scope, it.kind()) == (scope, kind) && it.methods.contains(&method))
                    .count()
            };
            assert_eq!(of(Scope::Link, Kind::Counter), link_counters(method), "{method:?}");
            assert_eq!(of(Scope::Udp, Kind::Gauge), udp_gauges(method), "{method:?}");
            assert_eq!(of(Scope::Zone, Kind::Counter), ZONE_COUNTERS, "{method:?}");
        }
    }
}
