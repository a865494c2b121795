//! The families that are rendered by hand: their names, help texts and samples, in one table.
//!
//! Within a group `sent` comes last and is read last, so that a scrape never shows more answers than probes.

use super::text::{Extra, Value};
use crate::prober::SendError;
use crate::statistics::{Bounds, HistogramReading, PeerReading, ZoneReading};

/// What one series set is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One peer.
    Peer,
    /// Our zone to another.
    Zone,
    /// The agent itself.
    Agent,
}

/// What a family's samples are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One sample.
    Counter(Counter),
    /// A sample per reason that has occurred: most never do, and eight series per peer would be the larger evil.
    SendErrors,
    /// A sample per result that has occurred.
    Terminating,
    /// Buckets, sum, count of round-trip times.
    Rtt,
    /// Of how late probes went out.
    SendLag,
    /// Of how late replies were read.
    ReadDelay,
}

/// Which number of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Probes sent.
    Sent,
    /// Probes received.
    Received,
    /// Probes lost.
    Lost,
    /// Late replies.
    Late,
    /// Duplicate replies.
    Duplicate,
    /// Reordered replies.
    Reordered,
    /// Corrupt replies.
    Corrupt,
}

/// How round-trip times are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A histogram: buckets, sum and count.
    Histogram,
    /// A summary without quantiles: sum and count.
    Sums,
}

/// A family.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The whole metric name.
    pub name: &'static str,
    /// The help text; no character in it needs escaping.
    pub help: &'static str,
    /// About what.
    pub scope: Scope,
    /// Of which samples.
    pub kind: Kind,
}

const fn family(name: &'static str, scope: Scope, kind: Kind, help: &'static str) -> Family {
    Family { name, help, scope, kind }
}

/// Every family, in the order of exposition.
#[rustfmt::skip]
pub const FAMILIES: &[Family] = &[
    family("kube_canary_probes_received_total", Scope::Peer, Kind::Counter(Counter::Received),
        "Probes answered within the timeout."),
    family("kube_canary_probes_lost_total", Scope::Peer, Kind::Counter(Counter::Lost),
        "Probes not answered within the timeout."),
    family("kube_canary_probe_rtt_seconds", Scope::Peer, Kind::Rtt,
        "Round-trip times of answered probes."),
    family("kube_canary_probes_late_total", Scope::Peer, Kind::Counter(Counter::Late),
        "Probes answered after they were counted lost."),
    family("kube_canary_probes_duplicate_total", Scope::Peer, Kind::Counter(Counter::Duplicate),
        "Further replies to a probe already answered."),
    family("kube_canary_probes_reordered_total", Scope::Peer, Kind::Counter(Counter::Reordered),
        "Probes answered in time, but after a later probe."),
    family("kube_canary_probes_corrupt_total", Scope::Peer, Kind::Counter(Counter::Corrupt),
        "Replies whose bytes were not those sent."),
    family("kube_canary_probe_send_errors_total", Scope::Peer, Kind::SendErrors,
        "Probes that the kernel refused to send, by reason; not losses."),
    family("kube_canary_probes_terminating_total", Scope::Peer, Kind::Terminating,
        "Probes to a peer that was terminating or had just left the list; in neither sent nor lost."),
    family("kube_canary_probes_sent_total", Scope::Peer, Kind::Counter(Counter::Sent),
        "Probes sent."),
    family("kube_canary_zone_probes_received_total", Scope::Zone, Kind::Counter(Counter::Received),
        "Probes to all peers of a zone answered within the timeout."),
    family("kube_canary_zone_probes_lost_total", Scope::Zone, Kind::Counter(Counter::Lost),
        "Probes to all peers of a zone not answered within the timeout."),
    family("kube_canary_zone_probe_rtt_seconds", Scope::Zone, Kind::Rtt,
        "Round-trip times of answered probes to all peers of a zone."),
    family("kube_canary_zone_probes_sent_total", Scope::Zone, Kind::Counter(Counter::Sent),
        "Probes sent to all peers of a zone, counted when they are answered or lost."),
    family("kube_canary_probe_send_lag_seconds", Scope::Agent, Kind::SendLag,
        "How much later than scheduled the agent sent its probes."),
    family("kube_canary_reply_read_delay_seconds", Scope::Agent, Kind::ReadDelay,
        "How long replies waited between the kernel's stamp and the agent's reading them."),
];

/// What a reading is of.
#[derive(Clone, Copy, Debug)]
pub enum Reading {
    /// A peer.
    Peer(PeerReading),
    /// A zone pair.
    Zone(ZoneReading),
    /// A lag of the agent's own.
    Lag(HistogramReading),
}

impl Family {
    /// The TYPE of the family. A histogram without its +Inf bucket would be none to OpenMetrics, a summary needs no quantiles
    /// in either format.
    pub const fn type_name(&self, shape: Shape) -> &'static str {
        match (self.kind, shape) {
            (Kind::Rtt | Kind::SendLag | Kind::ReadDelay, Shape::Histogram) => "histogram",
            (Kind::Rtt | Kind::SendLag | Kind::ReadDelay, Shape::Sums) => "summary",
            _ => "counter",
        }
    }

    /// The first sample of a reading at or behind `index`, and its index; none behind the last.
    pub fn sample(
        &self,
        reading: &Reading,
        bounds: &Bounds,
        shape: Shape,
        index: usize,
    ) -> Option<(usize, Extra<'static>, Value)> {
        match (self.kind, reading) {
            (Kind::Counter(counter), _) => {
                (index == 0).then(|| (0, Extra::None, Value::Count(number(reading, counter))))
            }
            (Kind::Rtt | Kind::SendLag | Kind::ReadDelay, _) => {
                histogram(&rtt(reading), bounds, shape, index).map(|(extra, value)| (index, extra, value))
            }
            (Kind::SendErrors, Reading::Peer(peer)) => {
                let at = first_above_zero(&peer.send_errors, index)?;
                let extra = Extra::Label("reason", SendError::ALL[at].label());
                Some((at, extra, Value::Count(peer.send_errors[at].into())))
            }
            (Kind::Terminating, Reading::Peer(peer)) => {
                let at = first_above_zero(&peer.terminating, index)?;
                let extra = Extra::Label("result", ["received", "lost"][at]);
                Some((at, extra, Value::Count(peer.terminating[at].into())))
            }
            (Kind::SendErrors | Kind::Terminating, _) => None,
        }
    }
}

fn first_above_zero(counts: &[u32], from: usize) -> Option<usize> {
    (from..counts.len()).find(|&index| counts[index] > 0)
}

fn number(reading: &Reading, counter: Counter) -> u64 {
    match (reading, counter) {
        (Reading::Peer(r), Counter::Sent) => r.sent,
        (Reading::Peer(r), Counter::Received) => r.received,
        (Reading::Peer(r), Counter::Lost) => r.lost,
        (Reading::Peer(r), Counter::Late) => r.late.into(),
        (Reading::Peer(r), Counter::Duplicate) => r.duplicate.into(),
        (Reading::Peer(r), Counter::Reordered) => r.reordered.into(),
        (Reading::Peer(r), Counter::Corrupt) => r.corrupt.into(),
        (Reading::Zone(r), Counter::Sent) => r.sent,
        (Reading::Zone(r), Counter::Received) => r.received,
        (Reading::Zone(r), Counter::Lost) => r.lost,
        (Reading::Zone(_) | Reading::Lag(_), _) => 0,
    }
}

fn rtt(reading: &Reading) -> HistogramReading {
    match reading {
        Reading::Peer(r) => r.rtt,
        Reading::Zone(r) => r.rtt,
        Reading::Lag(r) => *r,
    }
}

fn histogram(
    reading: &HistogramReading,
    bounds: &Bounds,
    shape: Shape,
    index: usize,
) -> Option<(Extra<'static>, Value)> {
    let bounds = bounds.as_slice();
    let up_to = |bucket: usize| reading.buckets[..=bucket].iter().sum();
    let buckets = if shape == Shape::Histogram { bounds.len() + 1 } else { 0 };
    match index.checked_sub(buckets) {
        None if index == bounds.len() => Some((Extra::Bucket(None), Value::Count(reading.count()))),
        None => Some((Extra::Bucket(Some(bounds[index])), Value::Count(up_to(index)))),
        Some(0) => Some((Extra::Sum, Value::Seconds(reading.sum))),
        Some(1) => Some((Extra::Count, Value::Count(reading.count()))),
        Some(_) => None,
    }
}

/// Series of a whole histogram with these bounds.
pub const fn histogram_series(bounds: &Bounds) -> usize {
    bounds.as_slice().len() + 3
}
