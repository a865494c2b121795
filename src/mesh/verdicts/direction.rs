//! Which way is lost: requests that were sent, beside those that the network namespaces counted.
//!
//! An echo's round trip loses on either way. But a node's namespace counts the requests that reach it, so what the others
//! sent to it and it did not count was lost on the way in; and what it sent and the others did not count was lost on
//! the way out. Windows are not aligned, so rates are compared, with an error of a probe per source.
//!
//! The evidence is worth something only where all who ping are known: every row is there and whole, nobody comes or goes,
//! and no namespace counts more than it was sent. Loopback addresses mean one namespace for all. Where any of this
//! fails, or the figures are too small to tell, the answer is [`Direction::Both`].

use serde::{Deserialize, Serialize};

use super::agents::Standing;
use super::causes::{Culprit, Findings};
use super::pairs::{Pair, Scope};
use crate::mesh::matrix::{Cell, Matrix, Presence};

/// Which way loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Towards the node.
    In,
    /// From the node; for a link `a->b`, from `a` to `b`.
    Out,
    /// Both, or it cannot be told.
    Both,
}

/// The error of a count, per source: the window of the one and that of the other each cut a probe off somewhere (1/6 of a
/// probe squared each, and as much again where one is twice as long).
const ERROR_PER_SOURCE: f64 = 0.6;
/// Both ways must differ by so many errors of what they would differ by if they lost alike,
const APART: f64 = 2.0;
/// and by this share of what the round trips lose: all of it where only one way loses, nothing where both do alike.
const APART_SHARE: f64 = 0.6;
/// The other way must not lose so surely, in errors, and so much, as a share of the one that is told.
const OTHER_THERE: f64 = 3.0;
const OTHER_SHARE: f64 = 0.25;
/// A count above what was sent by so many errors, and this share, is somebody else's pings.
const ABOVE: f64 = 4.0;
const ABOVE_SHARE: f64 = 0.02;
/// The node's own probes and those of the others go both ways: their losses may differ by so much.
const OWN_SHARE: f64 = 0.35;

/// Requests on one way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Way {
    /// Requests that should have been counted.
    pub sent: f64,
    /// Requests that were not.
    pub missed: f64,
    /// The error of either.
    error: f64,
}

impl Way {
    /// The share that was lost.
    pub fn rate(self) -> f64 {
        if self.sent > 0.0 { (self.missed / self.sent).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// How far off its rate may be where both ways lose alike: of the round trips that are known to be lost, each is as
    /// likely lost on the one way as on the other.
    fn variance(self, round_trips: f64) -> f64 {
        (self.error / self.sent).powi(2) + round_trips / 4.0 / self.sent
    }

    /// Whether this way loses, and the other does not.
    fn alone(self, other: Self, round_trips: f64) -> bool {
        if self.sent <= 0.0 || other.sent <= 0.0 {
            return false;
        }
        let apart = (self.missed / self.sent) - (other.missed / other.sent);
        let other_too = other.missed > OTHER_THERE * other.error && other.rate() > OTHER_SHARE * self.rate();
        apart > APART * (self.variance(round_trips) + other.variance(round_trips)).sqrt()
            && apart >= APART_SHARE * round_trips
            && !other_too
    }
}

/// What is known of both ways.
#[derive(Clone, Copy, Debug)]
pub struct Ways {
    /// The answer.
    pub direction: Direction,
    /// To the node, or from `b` to `a`.
    pub inwards: Way,
    /// From the node, or from `a` to `b`.
    pub outwards: Way,
}

/// A node's count beside what it was sent in the same time.
#[derive(Clone, Copy)]
struct Count {
    sent: f64,
    received: f64,
    error: f64,
    /// Of each source.
    seconds: f64,
}

impl Count {
    /// `None` where it cannot be compared.
    fn of(matrix: &Matrix, node: u16) -> Option<Self> {
        let (it, row) = (matrix.get(node), matrix.row(node)?);
        let seconds = f64::from(row.facts.covered_seconds());
        let received = f64::from(row.facts.echo_requests_received?);
        let sent = f64::from(it.probes_per_second) * seconds;
        let error = ERROR_PER_SOURCE * f64::from(it.aimed).sqrt();
        let count = Self { sent, received, error, seconds };
        let foreign = received > sent + ABOVE * error + ABOVE_SHARE * sent;
        (it.aimed > 0 && seconds > 0.0 && !foreign && !it.is_leaving_for_some()).then_some(count)
    }

    fn missed(&self) -> f64 {
        self.sent - self.received
    }
}

/// Whether everybody who may ping is known, also in a mesh of which each node probes a part, and every count is of one canary's namespace.
pub fn is_evidence_complete(matrix: &Matrix) -> bool {
    let whole = |node: u16| matrix.get(node).presence == Presence::Whole || matrix.get(node).is_gone();
    let kept = matrix.not_kept();
    !matrix.is_on_loopback()
        && kept.rows == 0
        && kept.cells == 0
        && matrix.members() == matrix.node_count()
        && matrix.numbers().all(whole)
}

/// What starved agents measured. What they lost to a node is no evidence, so no finding accounts for it; but where it was truly lost,
/// the node's count lacks it.
fn cells_of_starved<'a>(scope: &Scope<'a>) -> impl Iterator<Item = &'a Cell> {
    let starved = scope.matrix.numbers().filter(|node| scope.standings[usize::from(*node)] == Standing::Starved);
    starved.flat_map(|node| scope.matrix.cells(node)).filter(|cell| cell.network() == scope.network)
}

/// Which way a bad node loses. Takes 32 bytes per node.
pub fn of_node(scope: &Scope<'_>, node: u16, findings: &Findings) -> Option<Ways> {
    let own = Count::of(scope.matrix, node)?;
    let row = scope.matrix.row(node)?;
    // What the others are to blame for is not told apart: it widens the errors.
    let others = |other: u16| -> f64 {
        let pair = (node.min(other), node.max(other));
        let touching = findings.touching(scope, pair);
        let rates = touching.filter(|(_, finding)| finding.culprit != Culprit::Node(node));
        let rates = rates.map(|(_, finding)| finding);
        rates.map(|finding| finding.rate).sum()
    };
    let mut discounted = vec![0.0; scope.matrix.node_count()];
    for cell in cells_of_starved(scope) {
        discounted[usize::from(cell.peer())] += f64::from(cell.lost());
    }
    let mut inwards = Way { sent: own.sent, missed: own.missed(), error: own.error };
    let mut outwards = Way::default();
    let (mut to_it, mut by_it) = (super::pairs::Tally::default(), super::pairs::Tally::default());
    let (mut variance, mut spoilt_in, mut spoilt_out) = (0.0_f64, 0.0_f64, 0.0_f64);
    let blamed_elsewhere = findings.found.iter().any(|finding| finding.culprit != Culprit::Node(node));
    scope.each_pair_of(node, |pair| {
        let other = pair.other(node);
        (to_it, by_it) = (to_it.plus(pair.of(other)), by_it.plus(pair.of(node)));
        let spoilt = others(other);
        spoilt_in += spoilt * own.sent / f64::from(scope.matrix.get(node).aimed.max(1));
        let Some(count) = Count::of(scope.matrix, other) else { return };
        if spoilt > 0.0 || row.facts.cells_seconds <= 0.0 {
            return;
        }
        let sent = f64::from(pair.of(node).probes) / f64::from(row.facts.cells_seconds) * count.seconds;
        outwards.sent += sent;
        outwards.missed += count.missed();
        variance += count.error * count.error;
        spoilt_out += discounted[usize::from(other)];
        if blamed_elsewhere {
            // Third nodes lose requests to this one, too.
            spoilt_out += spoilt_by_third(scope, findings, node, other, &count);
        }
    });
    inwards.error += spoilt_in;
    outwards.error = variance.sqrt() + spoilt_out;
    let round_trips = to_it.rate();
    let alike = by_it.probes == 0
        || (by_it.rate() >= OWN_SHARE * round_trips && by_it.rate() <= (round_trips / OWN_SHARE).max(0.05));
    let direction = if alike { tell(inwards, outwards, to_it.plus(by_it).rate()) } else { Direction::Both };
    Some(Ways { direction, inwards, outwards })
}

/// What nodes other than these two are to blame for at `other`.
fn spoilt_by_third(scope: &Scope<'_>, findings: &Findings, node: u16, other: u16, count: &Count) -> f64 {
    let each = count.sent / f64::from(scope.matrix.get(other).aimed.max(1));
    let zone = scope.matrix.get(other).zone;
    let rates = findings.found.iter().map(|finding| match finding.culprit {
        Culprit::Node(blamed) if blamed != node && blamed != other => finding.rate * each,
        Culprit::Link(a, b) if (a == other || b == other) && a != node && b != node => finding.rate * each,
        Culprit::Zones(a, b) if a == zone || b == zone => finding.rate * count.sent,
        Culprit::Zone(..) | Culprit::Domain(..) | Culprit::Partition | Culprit::Mesh | Culprit::Paths => {
            finding.rate * count.sent
        }
        _ => 0.0,
    });
    rates.sum()
}

/// Which way a bad link loses, where nobody else spoils the counts of its two nodes.
pub fn of_link(scope: &Scope<'_>, pair: &Pair, findings: &Findings) -> Option<Ways> {
    let others = findings.found.iter().filter(|finding| finding.culprit != Culprit::Link(pair.a, pair.b));
    let spoilt = others.map(|finding| finding.culprit).any(|culprit| match culprit {
        Culprit::Link(a, b) => [pair.a, pair.b].iter().any(|node| *node == a || *node == b),
        _ => true,
    });
    let lacking = |cell: &Cell| cell.lost() > 0 && [pair.a, pair.b].contains(&cell.peer());
    if spoilt || cells_of_starved(scope).any(lacking) {
        return None;
    }
    let way = |from: u16, to: u16| {
        let (count, row) = (Count::of(scope.matrix, to)?, scope.matrix.row(from)?);
        let seconds = f64::from(row.facts.cells_seconds);
        let sent = f64::from(pair.of(from).probes) / seconds * count.seconds;
        (seconds > 0.0).then_some(Way { sent, missed: count.missed(), error: count.error })
    };
    let (outwards, inwards) = (way(pair.a, pair.b)?, way(pair.b, pair.a)?);
    Some(Ways { direction: tell(inwards, outwards, pair.both().rate()), inwards, outwards })
}

fn tell(inwards: Way, outwards: Way, round_trips: f64) -> Direction {
    if inwards.alone(outwards, round_trips) {
        Direction::In
    } else if outwards.alone(inwards, round_trips) {
        Direction::Out
    } else {
        Direction::Both
    }
}
