//! Direction of a loss by UDP probes. The reflector of the peer counts the requests of each source,
//! and says the count in each answer. So a source knows of nearly each lost probe on which way it
//! was lost, whatever else is in the mesh.
//!
//! The probes since the last answer are the exception, and so are all probes if no answer comes. Of
//! these, the peer's report tells the same: it has the number of requests that its reflector has
//! heard. If that is what the source has sent, the answers were lost. A peer that says another
//! number changes the direction of its own links only.

use super::answering::REPORTS_APART_SECONDS;
use super::causes::{Cause, Findings};
use super::direction::{Directions, Requests};
use super::pairs::{NetworkScope, Pair};
use crate::matrix::{Layer, LinkWays, cells_of_peer};
use kube_canary_model::verdict::Direction;

/// This many losses in one direction are not said to be by chance.
const LOST_MIN: f64 = 3.0;
/// The other direction loses by chance what the background explains, by this many errors.
const BY_CHANCE: f64 = 3.0;
/// It may also lose this share: a count is off by a probe where both ways lose at once.
const OTHER_SHARE: f64 = 0.05;
/// What the background explains may at most be this share. If both ways lose alike, chance makes
/// one of eleven losses and ten of the other way in one case of 90.
const OTHER_MAX: f64 = 0.1;
/// If the way of more than this share of the losses is not known, what the peer has heard decides.
const UNKNOWN_MAX: f64 = 0.5;
/// What the peer has heard is up to this many probes off: some are on their way, or unread.
const HEARD_ERROR: f64 = 2.0;
/// It is also up to this many seconds old. This is how often an agent publishes it.
const HEARD_AGE_SECONDS: f64 = 1.0;

/// What was lost from one node to another, and back.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    there: f64,
    back: f64,
    /// Number of probes of both ends: each goes there and back, or back and there.
    sent: f64,
}

impl Lost {
    fn add(&mut self, other: Self) {
        (self.there, self.back, self.sent) = (self.there + other.there, self.back + other.back, self.sent + other.sent);
    }

    /// Returns the same seen from the other node.
    const fn turned(self) -> Self {
        Self { there: self.back, back: self.there, ..self }
    }

    /// Returns the direction: out is there, in is back.
    fn directions(self, background: f64) -> Option<Directions> {
        if self.there + self.back < LOST_MIN {
            return None;
        }
        let expected = background * self.sent;
        let by_chance = (expected + BY_CHANCE * expected.sqrt()).max(1.0);
        let is_alone = |more: f64, less: f64| {
            let is_chance = less <= by_chance && less <= OTHER_MAX * more;
            more >= LOST_MIN && (is_chance || less <= OTHER_SHARE * more)
        };
        let direction = if is_alone(self.there, self.back) {
            Direction::Out
        } else if is_alone(self.back, self.there) {
            Direction::In
        } else {
            Direction::Both
        };
        let (inbound, outbound) = (Requests::exact(self.sent, self.back), Requests::exact(self.sent, self.there));
        Some(Directions { direction, inbound, outbound, is_by_udp: true })
    }
}

/// What the report of a peer says of the requests of a source.
#[derive(Clone, Copy, Debug)]
struct HeardRequests {
    /// Time covered, in seconds.
    seconds: f64,
    /// Number of requests that its reflector has heard in that time.
    requests: f64,
    /// For how long its own probes to the source are lost, in seconds.
    losing_seconds: f64,
}

/// Returns what the peer has heard of a source. `None` if its report does not say so, or is no
/// evidence.
fn heard(scope: &NetworkScope<'_>, ways: &LinkWays, pair: &Pair) -> Option<HeardRequests> {
    if pair.measured_by(ways.peer).probes == 0 || !is_probed_back(scope, ways) {
        return None;
    }
    let is_way_back = |back: &&LinkWays| (back.peer, back.over_ipv6) == (ways.source, ways.over_ipv6);
    let Some(opposite) = scope.matrix.ways_from(ways.peer).iter().find(is_way_back) else {
        // It has lost nothing, and heard about as much as it has sent.
        let all = HeardRequests { seconds: f64::INFINITY, requests: f64::INFINITY, losing_seconds: 0.0 };
        return scope.matrix.says_what_it_hears(ways.peer).then_some(all);
    };
    let [seconds, lost, sent] = [opposite.seconds, opposite.lost, opposite.sent].map(f64::from);
    let losing_seconds = if sent > 0.0 { seconds * lost / sent } else { 0.0 };
    Some(HeardRequests { seconds, requests: opposite.heard()?.into(), losing_seconds })
        .filter(|heard| heard.seconds > 0.0)
}

/// Whether the peer probes the source by the same family. Only then does its report say what it has
/// heard of that family.
fn is_probed_back(scope: &NetworkScope<'_>, ways: &LinkWays) -> bool {
    let mut of_source = cells_of_peer(scope.matrix.cells(ways.peer), ways.source).iter().flat_map(|cell| cell.parts());
    of_source.any(|cell| cell.layer() == Layer::Udp && cell.is_over_ipv6() == ways.over_ipv6)
}

/// Returns what one end's probes have lost, with its own count and what the other end has heard.
fn source_losses(ways: &LinkWays, heard: Option<HeardRequests>) -> Lost {
    let [there, back, lost, sent, seconds] = [ways.there, ways.back, ways.lost, ways.sent, ways.seconds].map(f64::from);
    let unknown = lost - there - back;
    let own = Lost { there, back, sent };
    let Some(heard) = heard.filter(|_| unknown > UNKNOWN_MAX * lost && seconds > 0.0) else { return own };
    // These probes are the last that were sent. So both windows have them, unless they are more
    // than the peer's window covers.
    let rate = sent / seconds;
    let expected = rate * heard.seconds;
    let (most, error) = (unknown.min(expected), HEARD_ERROR + rate * HEARD_AGE_SECONDS);
    let missed = if expected.is_finite() { (expected - heard.requests).clamp(0.0, most) } else { 0.0 };
    if most <= 2.0 * error {
        return own;
    }
    if missed <= error {
        // The peer's report may be older than the fault. It is not if its own probes are lost, too.
        let unknown_seconds = unknown / rate;
        let is_after = heard.losing_seconds * 2.0 >= unknown_seconds || unknown_seconds > REPORTS_APART_SECONDS.into();
        return if is_after { Lost { back: back + unknown, ..own } } else { own };
    }
    let share = if most - missed <= error { 1.0 } else { missed / most };
    Lost { there: there + unknown * share, back: back + unknown * (1.0 - share), sent }
}

/// Returns what a source has lost, if what it says is evidence.
fn lost_by(scope: &NetworkScope<'_>, ways: &LinkWays, pair: &Pair) -> Option<Lost> {
    (pair.measured_by(ways.source).probes > 0).then(|| source_losses(ways, heard(scope, ways, pair)))
}

/// Returns what was lost between two nodes: there from `a` to `b`, and back.
fn between(scope: &NetworkScope<'_>, pair: &Pair, (a, b): (u16, u16)) -> Lost {
    let of_link = |source: u16, peer: u16| {
        let ways = scope.matrix.ways_from(source).iter().filter(move |ways| ways.peer == peer);
        ways.filter_map(move |ways| lost_by(scope, ways, pair))
    };
    let mut sum = Lost::default();
    of_link(a, b).chain(of_link(b, a).map(Lost::turned)).for_each(|lost| sum.add(lost));
    sum
}

/// Returns the direction in which the link between two nodes loses.
pub fn link_directions(scope: &NetworkScope<'_>, (a, b): (u16, u16), findings: &Findings) -> Option<Directions> {
    let pair = scope.pair_of(a, b)?;
    let lost = between(scope, &pair, (a, b));
    Lost { sent: pair.both().probes.into(), ..lost }.directions(findings.background(scope.layers))
}

/// Returns the direction in which a bad node loses. Links that other causes touch do not count.
pub fn node_directions(scope: &NetworkScope<'_>, node: u16, findings: &Findings) -> Option<Directions> {
    let is_own = |other: u16| {
        let mut touching = findings.touching(scope, (node.min(other), node.max(other)));
        touching.all(|(_, finding)| {
            matches!(finding.cause, Cause::Mesh | Cause::Paths) || finding.cause == Cause::Node(node)
        })
    };
    let mut sum = Lost::default();
    scope.each_pair_of(node, |pair| {
        let other = pair.other(node);
        if is_own(other) {
            let sent = pair.both().probes.into();
            sum.add(Lost { sent, ..between(scope, pair, (node, other)) });
        }
    });
    sum.directions(findings.background(scope.layers))
}
