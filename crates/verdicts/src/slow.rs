//! Finds nodes, zones and links that are far slower than comparable ones.
//!
//! Pairs of the same two zones are comparable: the reference is their median. Distance between
//! zones is no fault. So two zones are slow only if the detour through a third zone would be far
//! quicker, which no distance explains. If all links are slow alike, there is no other reference:
//! each link is compared with its own quickest minute of the last hour.

use super::causes::{CAUSES_MAX, Cause};
use super::pairs::{NetworkScope, Pair, zone_place};
use crate::matrix::{SLOW_EXTRA_US, SLOW_TIMES, is_slow};

/// Two zones are slow from this multiple of the detour's time on.
const DETOUR_TIMES: f32 = 2.5;
/// The share of links that must be slow if all are slow, as a fraction: nine of ten. It applies
/// within zones and between zones. Half of the nodes are in three quarters of the links.
const ALIKE: (u32, u32) = (9, 10);
/// Number of cells for a class's median: 1 µs to 10 s.
const CELLS: usize = 140;
/// Number of cells per factor of e.
const CELLS_PER_E: f32 = 8.6;
/// The share of its pairs that must be slow for a slow node, as a fraction: three of four.
const SHARE: (u32, u32) = (3, 4);
/// If more pairs of a class than one in this many are slow, none of them is an exception.
const EXCEPTIONS_ONE_OF: u32 = 10;

/// Largest number of slow links that are considered before the worst are taken.
const SLOW_LINKS_MAX: usize = 4 * CAUSES_MAX;

/// A node, zone or link that is slow, or a slow mesh.
#[derive(Clone, Copy, Debug)]
pub struct Slow {
    /// The node, zone pair, link or mesh that is slow.
    pub cause: Cause,
    /// Its median round-trip time in microseconds.
    pub rtt_us: f32,
    /// The round-trip time it is compared with, in microseconds.
    pub usual_us: f32,
    /// Number of pairs that are slow.
    pub pairs: u32,
    /// Number of pairs that were compared.
    pub of: u32,
    /// The third zone of the detour, for zones.
    pub by: Option<u8>,
}

impl Slow {
    /// Whether the nodes' network is slow there, too.
    pub fn is_below(&self, nodes: &[Self]) -> bool {
        nodes.iter().any(|node| match (node.cause, self.cause) {
            (Cause::Node(slow), Cause::Link(a, b)) => slow == a || slow == b,
            (wide, narrow) => wide == narrow,
        })
    }
}

/// The round-trip times of one zone pair.
struct ZonePairTimes {
    counts: [u16; CELLS],
    pairs: u32,
    /// Number of pairs whose own usual time is known, and number of those that are slow by it.
    known: u32,
    slow: u32,
    /// Their median, after all pairs were added.
    usual_us: Option<f32>,
}

impl ZonePairTimes {
    const fn new() -> Self {
        Self { counts: [0; CELLS], pairs: 0, known: 0, slow: 0, usual_us: None }
    }

    fn add(&mut self, rtt_us: f32, is_slow: Option<bool>) {
        self.pairs += 1;
        self.known += u32::from(is_slow.is_some());
        self.slow += u32::from(is_slow == Some(true));
        let count = &mut self.counts[cell(rtt_us)];
        *count = count.saturating_add(1);
    }

    fn add_all(&mut self, other: &Self) {
        (self.pairs, self.known, self.slow) =
            (self.pairs + other.pairs, self.known + other.known, self.slow + other.slow);
        for (sum, of_other) in self.counts.iter_mut().zip(other.counts) {
            *sum = sum.saturating_add(of_other);
        }
    }

    /// Whether all its pairs are slow by their own usual time. Nearly all pairs with a known usual
    /// time must be slow, and at least half of the pairs must have one.
    const fn is_slow_alike(&self) -> bool {
        self.known * 2 >= self.pairs && self.slow * ALIKE.1 >= self.known * ALIKE.0
    }

    /// Returns the lower median. Of three values it is the smallest, because a bad node of three is
    /// in two pairs of three.
    fn median_us(&self) -> Option<f32> {
        // Saturated counts add up to less than the number of pairs.
        let counted: u32 = self.counts.iter().map(|count| u32::from(*count)).sum();
        let rank = if counted == 3 { 0 } else { counted.checked_sub(1)? / 2 };
        let mut below = 0_u32;
        let place = self.counts.iter().position(|count| {
            below += u32::from(*count);
            below > rank
        });
        #[expect(clippy::cast_precision_loss, reason = "at most the number of cells")]
        place.map(|place| ((place as f32 + 0.5) / CELLS_PER_E).exp())
    }
}

fn cell(rtt_us: f32) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by the clamp")]
    let cell = (rtt_us.max(1.0).ln() * CELLS_PER_E).clamp(0.0, (CELLS - 1) as f32) as usize;
    cell
}

/// Finds what is slow, the worst first. Takes 300 bytes per zone pair and 12 per node.
pub async fn search(scope: &NetworkScope<'_>) -> Vec<Slow> {
    let mut classes: Vec<ZonePairTimes> = (0..scope.zone_places()).map(|_| ZonePairTimes::new()).collect();
    scope
        .each_pair(|pair| {
            if let Some(rtt) = pair.rtt_us() {
                classes[scope.zone_place(pair)].add(rtt, pair.is_slow());
            }
        })
        .await;
    for class in &mut classes {
        class.usual_us = class.median_us();
    }
    let mut found = zones(scope, &classes);
    name_single_links(scope, &mut found).await;
    let (nodes, are_others) = nodes(scope, &classes).await;
    drop_explained(scope, &mut found, &nodes).await;
    let links = if are_others { links(scope, &classes, &nodes).await } else { Vec::new() };
    found.extend(nodes);
    found.extend(links);
    found.extend(mesh(scope, &classes).await);
    found.sort_by(|a, b| (b.rtt_us / b.usual_us).total_cmp(&(a.rtt_us / a.usual_us)));
    found.truncate(CAUSES_MAX);
    found
}

/// Returns the mesh if all links are slow alike, within zones and between zones.
async fn mesh(scope: &NetworkScope<'_>, classes: &[ZonePairTimes]) -> Option<Slow> {
    let count = u8::try_from(scope.matrix.zone_count()).unwrap_or(u8::MAX);
    let [mut within, mut between] = [ZonePairTimes::new(), ZonePairTimes::new()];
    for (a, b) in (0..count).flat_map(|high| (0..=high).map(move |low| (low, high))) {
        if a == b { &mut within } else { &mut between }.add_all(&classes[zone_place(a, b)]);
    }
    if !within.is_slow_alike() || !between.is_slow_alike() {
        return None;
    }
    within.add_all(&between);
    let mut of_node = vec![0_u32; scope.matrix.node_count()];
    scope
        .each_pair(|pair| {
            if pair.is_slow() == Some(true) {
                of_node[usize::from(pair.a)] += 1;
                of_node[usize::from(pair.b)] += 1;
            }
        })
        .await;
    // If all links have a node in common, that node and the mesh cannot be distinguished.
    let most = of_node.into_iter().max().unwrap_or_default();
    let rtt_us = within.median_us().filter(|_| most < within.slow)?;
    let (usual_us, pairs, of) = (rtt_us / SLOW_TIMES, within.slow, within.pairs);
    Some(Slow { cause: Cause::Mesh, rtt_us, usual_us, pairs, of, by: None })
}

/// Returns zone pairs that are slower than the detour through a third zone, and zones that are
/// slower inside than to another zone and back.
fn zones(scope: &NetworkScope<'_>, classes: &[ZonePairTimes]) -> Vec<Slow> {
    let count = u8::try_from(scope.matrix.zone_count()).unwrap_or(u8::MAX);
    // Number 0 is the unknown zone.
    let usual = |a: u8, b: u8| classes[zone_place(a, b)].usual_us;
    let pairs = (1..count).flat_map(|high| (1..=high).map(move |low| (low, high)));
    let slow = pairs.filter_map(|(low, high)| {
        let rtt_us = usual(low, high)?;
        let thirds = (1..count).filter(|by| *by != low && *by != high);
        let detours = thirds.filter_map(|by| Some((usual(low, by)? + usual(by, high)?, by)));
        let (usual_us, by) = detours.min_by(|a, b| a.0.total_cmp(&b.0))?;
        let pairs = classes[zone_place(low, high)].pairs;
        let slow = Slow { cause: Cause::Zones(low, high), rtt_us, usual_us, pairs, of: pairs, by: Some(by) };
        (rtt_us >= usual_us * DETOUR_TIMES && rtt_us >= usual_us + SLOW_EXTRA_US).then_some(slow)
    });
    slow.collect()
}

/// Returns nodes that are slow to most others, each compared with the median of its zone pair. Also
/// returns whether there may be other slow pairs.
async fn nodes(scope: &NetworkScope<'_>, classes: &[ZonePairTimes]) -> (Vec<Slow>, bool) {
    let mut found: Vec<Slow> = Vec::new();
    let mut are_others = true;
    while found.len() < CAUSES_MAX {
        // Per node, over pairs that no slow node explains: slow pairs, all pairs, and the sum of
        // the logarithms of how much slower the slow ones are.
        let mut sums = vec![(0_u32, 0_u32, 0.0_f32); scope.matrix.node_count()];
        scope
            .each_pair(|pair| {
                let Some((rtt, usual)) = compared(scope, classes, pair) else { return };
                if found.iter().any(|slow| touches(slow, pair)) {
                    return;
                }
                for node in [pair.a, pair.b] {
                    let sum = &mut sums[usize::from(node)];
                    sum.1 += 1;
                    if is_slow(rtt, usual) {
                        (sum.0, sum.2) = (sum.0 + 1, sum.2 + (rtt / usual).ln());
                    }
                }
            })
            .await;
        let most = |sum: &(u32, u32, f32)| sum.0 >= 2 && sum.0 * SHARE.1 >= sum.1 * SHARE.0;
        let candidates = sums.iter().zip(scope.matrix.numbers()).filter(|(sum, _)| most(sum));
        // The first wins a tie.
        let worst = candidates.reduce(|worst, next| if next.0.2 > worst.0.2 { next } else { worst });
        are_others = sums.iter().any(|sum| sum.0 > 0);
        let Some((sum, node)) = worst else { break };
        let times = (sum.2 / sum.0 as f32).exp();
        let usual_us = usual_of(scope, classes, node);
        let (pairs, of) = (sum.0, sum.1);
        let rtt_us = usual_us * times;
        found.push(Slow { cause: Cause::Node(node), rtt_us, usual_us, pairs, of, by: None });
    }
    (found, are_others)
}

/// Returns the geometric mean of the times that a node's pairs are compared with.
fn usual_of(scope: &NetworkScope<'_>, classes: &[ZonePairTimes], node: u16) -> f32 {
    let (mut sum, mut pairs) = (0.0_f32, 0_u32);
    scope.each_pair_of(node, |pair| {
        if let Some((_, usual)) = compared(scope, classes, pair) {
            (sum, pairs) = (sum + usual.ln(), pairs + 1);
        }
    });
    (sum / pairs.max(1) as f32).exp()
}

/// Drops zones in which every pair has a slow node: they are not slow for a reason of their own.
async fn drop_explained(scope: &NetworkScope<'_>, zones: &mut Vec<Slow>, nodes: &[Slow]) {
    if zones.is_empty() || nodes.is_empty() {
        return;
    }
    let mut unexplained = vec![false; zones.len()];
    scope
        .each_pair(|pair| {
            if pair.rtt_us().is_none() || nodes.iter().any(|slow| touches(slow, pair)) {
                return;
            }
            let (a, b) = (scope.matrix.get(pair.a).zone, scope.matrix.get(pair.b).zone);
            for (slow, unexplained) in zones.iter().zip(&mut unexplained) {
                *unexplained |= match slow.cause {
                    Cause::Zones(low, high) => (low, high) == (a.min(b), a.max(b)),
                    Cause::Link(low, high) => (low, high) == (pair.a, pair.b),
                    _ => false,
                };
            }
        })
        .await;
    let mut unexplained = unexplained.into_iter();
    zones.retain(|_| unexplained.next().unwrap_or(false));
}

/// Names the link if only one node of each zone was measured.
async fn name_single_links(scope: &NetworkScope<'_>, zones: &mut [Slow]) {
    if zones.iter().all(|slow| slow.of > 1) {
        return;
    }
    scope
        .each_pair(|pair| {
            let (a, b) = (scope.matrix.get(pair.a).zone, scope.matrix.get(pair.b).zone);
            let of_them = |slow: &&mut Slow| slow.of == 1 && slow.cause == Cause::Zones(a.min(b), a.max(b));
            if let Some(slow) = zones.iter_mut().find(of_them)
                && pair.rtt_us().is_some()
            {
                slow.cause = Cause::Link(pair.a, pair.b);
            }
        })
        .await;
}

/// Returns slow pairs that no slow node explains, if they are exceptions in their class.
async fn links(scope: &NetworkScope<'_>, classes: &[ZonePairTimes], nodes: &[Slow]) -> Vec<Slow> {
    let mut slow_ones: Vec<(usize, Slow)> = Vec::new();
    let mut slow_of_class = vec![0_u32; classes.len()];
    scope
        .each_pair(|pair| {
            let Some((rtt_us, usual_us)) = compared(scope, classes, pair) else { return };
            if !is_slow(rtt_us, usual_us) || nodes.iter().any(|slow| touches(slow, pair)) {
                return;
            }
            let class = scope.zone_place(pair);
            slow_of_class[class] += 1;
            if slow_ones.len() < SLOW_LINKS_MAX {
                let cause = Cause::Link(pair.a, pair.b);
                slow_ones.push((class, Slow { cause, rtt_us, usual_us, pairs: 1, of: 1, by: None }));
            }
        })
        .await;
    let exceptional = |class: usize| slow_of_class[class] <= (classes[class].pairs / EXCEPTIONS_ONE_OF).max(1);
    slow_ones.into_iter().filter(|(class, _)| exceptional(*class)).map(|(_, slow)| slow).collect()
}

/// Returns a pair's round-trip time and the usual one between its zones.
fn compared(scope: &NetworkScope<'_>, classes: &[ZonePairTimes], pair: &Pair) -> Option<(f32, f32)> {
    Some((pair.rtt_us()?, classes[scope.zone_place(pair)].usual_us?))
}

fn touches(slow: &Slow, pair: &Pair) -> bool {
    matches!(slow.cause, Cause::Node(node) if node == pair.a || node == pair.b)
}
