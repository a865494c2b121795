//! Direction of a loss by echo requests: compares those that were sent with those that the network
//! namespaces counted. Where UDP is probed, its reflectors know better (`ways.rs`).
//!
//! A round trip can be lost in either direction, but a node's namespace counts the requests that
//! reach it. Requests that others sent to a node and it did not count were lost inbound. Requests
//! that it sent and the others did not count were lost outbound. Windows are not aligned, so rates
//! are compared, with an error of one probe per source.
//!
//! This is evidence only if all senders of echo requests are known. Every row must be there and
//! complete, no node may join or leave, and no namespace may count more than it was sent. Loopback
//! addresses mean one namespace for all nodes. If any condition fails, or the figures are too
//! small, the answer is [`Direction::Both`].

use super::agents::Standing;
use super::causes::{Cause, Findings};
use super::pairs::{NetworkScope, Pair};
use crate::matrix::{Cell, Matrix, RowPresence};
use kube_canary_model::verdict::Direction;

/// Error of a count, per source. The windows of source and destination each cut off a part of a
/// probe. Each adds 1/6 of a probe squared, and as much again if one window is twice as long.
const ERROR_PER_SOURCE: f64 = 0.6;
/// The two directions must differ by this many errors of the difference they would have
/// if both lost alike.
const APART: f64 = 2.0;
/// They must also differ by this share of the round-trip loss. The difference is the whole loss if
/// only one direction loses, and zero if both lose alike.
const APART_SHARE: f64 = 0.6;
/// The other direction must not lose so certainly (in errors) and this much (as a share of the
/// reported direction).
const OTHER_THERE: f64 = 3.0;
const OTHER_SHARE: f64 = 0.25;
/// A count is caused by foreign pings if it exceeds what was sent by this many errors
/// and by this share.
const ABOVE: f64 = 4.0;
const ABOVE_SHARE: f64 = 0.02;
/// The losses that the node measures and those that others measure of it must not differ by more
/// than this factor: both cover both directions.
const OWN_SHARE: f64 = 0.35;

/// Requests in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requests {
    /// Number of requests that should have been counted.
    pub sent: f64,
    /// Number of requests that were not counted.
    pub missed: f64,
    /// Error of `missed`.
    error: f64,
}

impl Requests {
    /// Returns counts that have no error.
    pub const fn exact(sent: f64, missed: f64) -> Self {
        Self { sent, missed, error: 0.0 }
    }

    /// Returns the share of requests that was lost, 0 to 1.
    pub fn rate(self) -> f64 {
        if self.sent > 0.0 { (self.missed / self.sent).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Returns the variance of the rate if both directions lose alike. Each lost round trip is then
    /// equally likely to be lost in either direction.
    fn variance(self, round_trips: f64) -> f64 {
        (self.error / self.sent).powi(2) + round_trips / 4.0 / self.sent
    }

    /// Whether this direction loses and the other does not.
    fn alone(self, other: Self, [round_trips, most]: [f64; 2]) -> bool {
        if self.sent <= 0.0 || other.sent <= 0.0 {
            return false;
        }
        let apart = (self.missed / self.sent) - (other.missed / other.sent);
        // One way cannot lose more than both. A count that says so is not true.
        let most = most + ABOVE * self.variance(round_trips).sqrt() + ABOVE_SHARE;
        let other_too = other.missed > OTHER_THERE * other.error && other.rate() > OTHER_SHARE * self.rate();
        apart > APART * (self.variance(round_trips) + other.variance(round_trips)).sqrt()
            && apart >= APART_SHARE * round_trips
            && self.missed / self.sent <= most
            && !other_too
    }
}

/// What is known of both directions.
#[derive(Clone, Copy, Debug)]
pub struct Directions {
    /// The direction of the loss.
    pub direction: Direction,
    /// Requests to the node, or from `b` to `a`.
    pub inbound: Requests,
    /// Requests from the node, or from `a` to `b`.
    pub outbound: Requests,
    /// Whether UDP packets were counted, and not echo requests.
    pub is_by_udp: bool,
}

/// A node's count, and what it was sent in the same time.
#[derive(Clone, Copy)]
struct RequestCount {
    sent: f64,
    received: f64,
    error: f64,
    /// Time covered, in seconds.
    seconds: f64,
}

impl RequestCount {
    /// Returns the counts of a node; `None` if they cannot be compared.
    fn new(matrix: &Matrix, node: u16) -> Option<Self> {
        let (member, row) = (matrix.get(node), matrix.row(node)?);
        let seconds = f64::from(row.facts.covered_seconds());
        let received = f64::from(row.facts.echo_requests_received.get()?);
        let sent = f64::from(member.probes_per_second) * seconds;
        let error = ERROR_PER_SOURCE * f64::from(member.aimed).sqrt();
        let count = Self { sent, received, error, seconds };
        let foreign = received > sent + ABOVE * error + ABOVE_SHARE * sent;
        (member.aimed > 0 && seconds > 0.0 && !foreign && !member.is_leaving_for_some()).then_some(count)
    }

    fn missed(&self) -> f64 {
        self.sent - self.received
    }
}

/// Whether all senders of echo requests are known, also in a partial mesh, and every count is of
/// one agent's namespace.
pub fn is_evidence_complete(matrix: &Matrix) -> bool {
    let whole = |node: u16| matrix.get(node).presence == RowPresence::Whole || matrix.get(node).is_gone();
    let kept = matrix.not_kept();
    !matrix.is_on_loopback()
        && kept.rows == 0
        && kept.cells == 0
        && matrix.members() == matrix.node_count()
        && matrix.numbers().all(whole)
}

/// Returns the cells that starved agents measured. Their losses to a node are no evidence, so no
/// cause accounts for them. But if they are true, the node's count lacks those requests.
fn cells_of_starved(scope: &NetworkScope<'_>) -> impl Iterator<Item = Cell> {
    let starved = scope.matrix.numbers().filter(|node| scope.standings[usize::from(*node)] == Standing::Starved);
    let cells = starved.flat_map(|node| scope.matrix.cells(node)).flat_map(|cell| cell.parts());
    cells.filter(|cell| scope.layers & cell.layer().bit() != 0)
}

/// Returns the direction in which a bad node loses. Takes 32 bytes per node.
pub fn node_directions(scope: &NetworkScope<'_>, node: u16, findings: &Findings) -> Option<Directions> {
    let own = RequestCount::new(scope.matrix, node)?;
    let row = scope.matrix.row(node)?;
    // Losses from other causes are not separated by direction: they widen the errors.
    let others = |other: u16| -> f64 {
        let pair = (node.min(other), node.max(other));
        let touching = findings.touching(scope, pair).map(|(_, finding)| finding);
        touching.filter(|finding| finding.cause != Cause::Node(node)).map(|finding| finding.rate).sum()
    };
    let mut discounted = vec![0.0; scope.matrix.node_count()];
    for cell in cells_of_starved(scope) {
        discounted[usize::from(cell.peer())] += f64::from(cell.lost());
    }
    let mut inbound = Requests { sent: own.sent, missed: own.missed(), error: own.error };
    let mut outbound = Requests::default();
    let (mut to_it, mut by_it) = (super::tally::Tally::default(), super::tally::Tally::default());
    let (mut variance, mut error_in, mut error_out) = (0.0_f64, 0.0_f64, 0.0_f64);
    let has_other_causes = findings.in_scope(scope).any(|finding| finding.cause != Cause::Node(node));
    scope.each_pair_of(node, |pair| {
        let other = pair.other(node);
        (to_it, by_it) = (to_it.plus(pair.measured_by(other)), by_it.plus(pair.measured_by(node)));
        let other_loss = others(other);
        error_in += other_loss * own.sent / f64::from(scope.matrix.get(node).aimed.max(1));
        let Some(count) = RequestCount::new(scope.matrix, other) else { return };
        if other_loss > 0.0 || row.facts.cells_seconds <= 0.0 {
            return;
        }
        let sent = f64::from(pair.measured_by(node).probes) / f64::from(row.facts.cells_seconds) * count.seconds;
        outbound.sent += sent;
        outbound.missed += count.missed();
        variance += count.error * count.error;
        error_out += discounted[usize::from(other)];
        if has_other_causes {
            // Third nodes lose requests to the other node, too.
            error_out += lost_to_third_nodes(scope, findings, node, other, &count);
        }
    });
    inbound.error += error_in;
    outbound.error = variance.sqrt() + error_out;
    let round_trips = to_it.rate();
    let alike = by_it.probes == 0
        || (by_it.rate() >= OWN_SHARE * round_trips && by_it.rate() <= (round_trips / OWN_SHARE).max(0.05));
    let round_trips = [to_it.plus(by_it).rate(), round_trips.max(by_it.rate())];
    let direction = if alike { lossy_direction(inbound, outbound, round_trips) } else { Direction::Both };
    Some(Directions { direction, inbound, outbound, is_by_udp: false })
}

/// Returns how many requests to `other` are lost because of causes other than these two nodes.
fn lost_to_third_nodes(
    scope: &NetworkScope<'_>,
    findings: &Findings,
    node: u16,
    other: u16,
    count: &RequestCount,
) -> f64 {
    let each = count.sent / f64::from(scope.matrix.get(other).aimed.max(1));
    let zone = scope.matrix.get(other).zone;
    let rates = findings.in_scope(scope).map(|finding| match finding.cause {
        Cause::Node(third) if third != node && third != other => finding.rate * each,
        Cause::Link(a, b) if (a == other || b == other) && a != node && b != node => finding.rate * each,
        Cause::Zones(a, b) if a == zone || b == zone => finding.rate * count.sent,
        Cause::Zone(..) | Cause::Domain(..) | Cause::Partition | Cause::Mesh | Cause::Paths => {
            finding.rate * count.sent
        }
        _ => 0.0,
    });
    rates.sum()
}

/// Returns the direction in which a bad link loses, if no other cause distorts the counts
/// of its two nodes.
pub fn link_directions(scope: &NetworkScope<'_>, pair: &Pair, findings: &Findings) -> Option<Directions> {
    let others = findings.in_scope(scope).filter(|finding| finding.cause != Cause::Link(pair.a, pair.b));
    let is_distorted = others.map(|finding| finding.cause).any(|cause| match cause {
        Cause::Link(a, b) => [pair.a, pair.b].iter().any(|node| *node == a || *node == b),
        _ => true,
    });
    let lacking = |cell: Cell| cell.lost() > 0 && [pair.a, pair.b].contains(&cell.peer());
    if is_distorted || cells_of_starved(scope).any(lacking) {
        return None;
    }
    let requests = |from: u16, to: u16| {
        let (count, row) = (RequestCount::new(scope.matrix, to)?, scope.matrix.row(from)?);
        let seconds = f64::from(row.facts.cells_seconds);
        let sent = f64::from(pair.measured_by(from).probes) / seconds * count.seconds;
        (seconds > 0.0).then_some(Requests { sent, missed: count.missed(), error: count.error })
    };
    let (outbound, inbound) = (requests(pair.a, pair.b)?, requests(pair.b, pair.a)?);
    let most = pair.there.rate().max(pair.back.rate());
    let direction = lossy_direction(inbound, outbound, [pair.both().rate(), most]);
    Some(Directions { direction, inbound, outbound, is_by_udp: false })
}

/// `round_trips` are the rate of all round trips, and the higher of those that either end measures.
fn lossy_direction(inbound: Requests, outbound: Requests, round_trips: [f64; 2]) -> Direction {
    if inbound.alone(outbound, round_trips) {
        Direction::In
    } else if outbound.alone(inbound, round_trips) {
        Direction::Out
    } else {
        Direction::Both
    }
}
