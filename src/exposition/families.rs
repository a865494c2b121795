//! The families of links, zone pairs and the agent's own lags: names, help texts and values, in one
//! table.
//!
//! Within a group `sent` comes last and is read last, so that a scrape never shows more answers
//! than probes.

use super::protobuf::Kind;
use crate::statistics::{PeerReading, ZoneReading};

/// The kind of subject that a family describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A link: one peer, by one protocol, on one network.
    Link,
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
}

impl Family {
    /// Returns the metric type of the family.
    pub const fn kind(&self) -> Kind {
        match self.content {
            Content::OfLink(_) | Content::OfZone(_) => Kind::Counter,
            Content::Rtt | Content::SendLag | Content::ReadDelay => Kind::Histogram,
        }
    }
}

const fn link(name: &'static str, value: fn(&PeerReading) -> u64, help: &'static str) -> Family {
    Family { name, help, scope: Scope::Link, content: Content::OfLink(value) }
}

const fn zone(name: &'static str, value: fn(&ZoneReading) -> u64, help: &'static str) -> Family {
    Family { name, help, scope: Scope::Zone, content: Content::OfZone(value) }
}

fn sum(counts: &[u32]) -> u64 {
    counts.iter().map(|count| u64::from(*count)).sum()
}

/// Every family, in the order of exposition.
#[rustfmt::skip]
pub const FAMILIES: &[Family] = &[
    link("kube_canary_probes_received_total", |it| it.received,
        "Probes answered within the timeout."),
    link("kube_canary_probes_lost_total", |it| it.lost,
        "Probes not answered within the timeout."),
    Family { name: "kube_canary_probe_rtt_seconds", scope: Scope::Link, content: Content::Rtt,
        help: "Round-trip times of answered probes." },
    link("kube_canary_probes_late_total", |it| it.late.into(),
        "Probes answered after they were counted as lost."),
    link("kube_canary_probes_duplicate_total", |it| it.duplicate.into(),
        "Further replies to a probe already answered."),
    link("kube_canary_probes_reordered_total", |it| it.reordered.into(),
        "Probes answered in time, but after a later probe."),
    link("kube_canary_probes_corrupt_total", |it| it.corrupt.into(),
        "Replies whose bytes differ from those sent."),
    link("kube_canary_probe_send_errors_total", |it| sum(&it.send_errors),
        "Probes that the kernel refused to send; not losses."),
    link("kube_canary_probes_terminating_total", |it| sum(&it.terminating),
        "Probes to a peer that was terminating or had just left the list; in neither sent nor lost."),
    link("kube_canary_probes_sent_total", |it| it.sent,
        "Probes sent."),
    zone("kube_canary_zone_probes_received_total", |it| it.received,
        "Probes to all peers of a zone answered within the timeout."),
    zone("kube_canary_zone_probes_lost_total", |it| it.lost,
        "Probes to all peers of a zone not answered within the timeout."),
    Family { name: "kube_canary_zone_probe_rtt_seconds", scope: Scope::Zone, content: Content::Rtt,
        help: "Round-trip times of answered probes to all peers of a zone." },
    zone("kube_canary_zone_probes_sent_total", |it| it.sent,
        "Probes sent to all peers of a zone, counted when they are answered or lost."),
    Family { name: "kube_canary_probe_send_lag_seconds", scope: Scope::Agent, content: Content::SendLag,
        help: "How much later than scheduled the agent sent its probes." },
    Family { name: "kube_canary_reply_read_delay_seconds", scope: Scope::Agent, content: Content::ReadDelay,
        help: "How late the agent read replies, from the kernel's timestamp or from the turn that was due to read them." },
];

#[cfg(test)]
mod tests {
    use super::super::series::{LINK_COUNTERS, ZONE_COUNTERS};
    use super::*;

    #[test]
    fn there_are_as_many_counters_as_the_formula_says() {
        let counters = |scope| FAMILIES.iter().filter(|it| it.scope == scope && it.kind() == Kind::Counter).count();
        assert_eq!((counters(Scope::Link), counters(Scope::Zone)), (LINK_COUNTERS, ZONE_COUNTERS));
    }
}
