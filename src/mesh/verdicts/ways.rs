//! Direction of a loss by UDP probes. The reflector of the peer counts the requests of each source,
//! and says the count in each answer. So a source knows of nearly each lost probe on which way it
//! was lost, whatever else is in the mesh. If no answer comes at all, the number of requests that
//! the peer's report says it has heard tells the same.

use super::causes::{Cause, Findings};
use super::direction::{Direction, Directions, Requests};
use super::pairs::Scope;
use crate::mesh::matrix::Ways;

/// So many losses in one direction are not said to be by chance.
const LOST_MIN: f64 = 3.0;
/// The other direction loses by chance what the background explains, by so many errors.
const BY_CHANCE: f64 = 3.0;
/// It may also lose this share: a count is off by a probe where both ways lose at once.
const OTHER_SHARE: f64 = 0.05;
/// What the background explains may at most be this share. If both ways lose alike, chance makes
/// one of eleven losses and ten of the other way in one case of 90.
const OTHER_MAX: f64 = 0.1;
/// If the way of more than this share of the losses is not known, what the peer has heard decides.
const UNKNOWN_MAX: f64 = 0.5;
/// The windows of two reports begin and end up to so many probes apart.
const HEARD_ERROR: f64 = 2.0;
/// What is counted, in words.
const UNIT: &str = "UDP packets";

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
        Some(Directions { direction, inbound, outbound, unit: UNIT })
    }
}

/// Returns what one end's probes have lost, with its own count or what the other end has heard.
fn of_source(ways: &Ways, of_peer: Option<&Ways>) -> Lost {
    let [there, back, lost, sent] = [ways.there, ways.back, ways.lost, ways.sent].map(f64::from);
    let unknown = lost - there - back;
    let own = Lost { there, back, sent };
    if unknown <= UNKNOWN_MAX * lost {
        return own;
    }
    let heard = of_peer.filter(|it| it.seconds > 0 && ways.seconds > 0).and_then(|it| Some((it, it.heard()?)));
    let Some((it, heard)) = heard else { return own };
    let heard = f64::from(heard) * f64::from(ways.seconds) / f64::from(it.seconds);
    let missed = (sent - heard).clamp(0.0, lost);
    let missed = if missed <= HEARD_ERROR { 0.0 } else { missed };
    let missed = if lost - missed <= HEARD_ERROR { lost } else { missed };
    Lost { there: missed, back: lost - missed, sent }
}

/// Returns what was lost between two nodes: there from `a` to `b`, and back.
fn between(scope: &Scope<'_>, a: u16, b: u16) -> Lost {
    let is_of = |ways: &&Ways, source: u16, peer: u16| (ways.source, ways.peer) == (source, peer);
    let all = scope.matrix.ways();
    let mut sum = Lost::default();
    for ways in all.iter().filter(|ways| is_of(ways, a, b) || is_of(ways, b, a)) {
        let back = all.iter().find(|it| is_of(it, ways.peer, ways.source));
        let lost = of_source(ways, back);
        sum.add(if ways.source == a { lost } else { lost.turned() });
    }
    sum
}

/// Returns the direction in which the link between two nodes loses.
pub fn of_link(scope: &Scope<'_>, (a, b): (u16, u16), findings: &Findings) -> Option<Directions> {
    let both = scope.pair_of(a, b)?.both();
    let lost = between(scope, a, b);
    Lost { sent: both.probes.into(), ..lost }.directions(findings.background)
}

/// Returns the direction in which a bad node loses. Links that other causes touch do not count.
pub fn of_node(scope: &Scope<'_>, node: u16, findings: &Findings) -> Option<Directions> {
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
            sum.sent += f64::from(pair.both().probes);
        }
    });
    let touching = scope.matrix.ways().iter().filter(|ways| ways.source == node || ways.peer == node);
    for ways in touching {
        let other = if ways.source == node { ways.peer } else { ways.source };
        let Some(pair) = scope.pair_of(node, other).filter(|_| is_own(other)) else { continue };
        if pair.of(ways.source).probes == 0 {
            continue;
        }
        let back = scope.matrix.ways().iter().find(|it| (it.source, it.peer) == (ways.peer, ways.source));
        let lost = Lost { sent: 0.0, ..of_source(ways, back) };
        sum.add(if ways.source == node { lost } else { lost.turned() });
    }
    sum.directions(findings.background)
}
