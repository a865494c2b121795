//! The fewest causes of the bad attempts of one check.
//!
//! Two explanations are compared, each of which costs what its causes cost: single nodes and zones
//! beyond a small rate that all nodes share, and the target, which is bad for all nodes at one
//! rate, with those nodes and zones that stand out from that. So one of two backends that is dead
//! is the target, although no node loses all, and a node that is cut off is that node.

use kube_canary_model::limits::MESH_ZONES_MAX;

use super::evidence::{BadOutcome, NodeAttempts, Scope};
use super::over::Over;
use crate::causes::CAUSES_MAX;
use crate::matrix::{Matrix, ZONE_UNKNOWN};
use crate::score::{gain, is_spread};
use crate::tally::Tally;

/// The share of attempts that may be bad without a cause. Of failed attempts, and of slow ones.
const BACKGROUND: [f64; 2] = [0.01, 0.02];
/// The least background of a mesh: two failures in a row of one node may be the start of its pod.
const CALM_MIN: f64 = 0.002;
/// A target or zone that is bad at a lower rate is no cause.
const RATE_MIN: [f64; 2] = [0.02, 0.1];
/// A cause costs this many nats, and the logarithm of the number of candidates of its kind.
const COST: f64 = 9.0;
/// Evidence in nats beyond the background that a target needs.
const NATS: f64 = 8.0;
/// Bad attempts that a target or a zone needs.
const BAD_MIN: u32 = 3;
/// What stands out is bad this many times as often as what surrounds it.
const TIMES: f64 = 2.0;
/// The background of a mesh is known as if this many attempts had been added, one of them bad.
const PRIOR_ATTEMPTS: f64 = 100.0;
/// Attempts that failed in a row, from which on a node fails.
const IN_ROW: u32 = 3;
/// Attempts that failed in a row, up to which a node waits for the others of its zone if most of
/// these fail at present: it may be the zone.
const WAITS_IN_ROW: u32 = 5;
/// Attempts that failed in a row, from which on a node may fail again after a target is over.
const AGAIN_IN_ROW: u32 = 2;
/// One of this many nodes may fail elsewhere if a zone fails, and one of this many must answer now
/// if a node stands out from a target that fails.
const FEW_ONE_OF: u32 = 8;
const ANSWERING_ONE_OF: u32 = 4;
/// Rounds in which the rate of a target is found without those that stand out.
const ROUNDS: usize = 3;

/// What a cause is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckPart {
    /// The target, for all nodes.
    Target,
    /// The attempts of a zone, by its number.
    Zone(u8),
    /// The attempts of a node, by its number.
    Node(u16),
}

impl CheckPart {
    /// Whether the attempts of a node in this zone belong to it.
    pub fn covers(self, node: u16, zone: u8) -> bool {
        match self {
            Self::Target => true,
            Self::Zone(of) => of == zone,
            Self::Node(of) => of == node,
        }
    }
}

/// A cause of bad attempts, and the evidence that it has.
#[derive(Clone, Copy, Debug)]
pub struct CheckFinding {
    /// What the cause is about.
    pub part: CheckPart,
    /// Nats of likelihood beyond the cost of the cause.
    pub score: f64,
}

/// Sums over the nodes of a part.
#[derive(Clone, Copy, Debug, Default)]
struct NodeSums {
    nodes: u32,
    /// Nodes with a bad attempt.
    hit: u32,
    /// Nodes that fail: most attempts, or far more than the background.
    failing: u32,
    /// Nodes of which the last attempt failed.
    unanswered: u32,
    /// Attempts of all nodes that failed in a row at last.
    in_row: u32,
    tally: Tally,
    /// Nats of the nodes that stand out, each beyond its cost.
    apart: f64,
}

impl NodeSums {
    fn add(&mut self, node: &NodeAttempts, background: f64) {
        self.nodes += 1;
        self.hit += u32::from(node.hit > 0);
        let is_failing = node.hit > 0 && node.hit * 2 >= node.tried
            || node.in_row() >= IN_ROW
            || gain(node.hit, node.tried, background) >= NATS;
        self.failing += u32::from(is_failing);
        self.unanswered += u32::from(node.in_row() > 0);
        self.in_row += node.in_row();
        self.tally = self.tally.plus(Tally { probes: node.tried, lost: node.hit });
    }

    fn plus(mut self, other: &Self) -> Self {
        self.nodes += other.nodes;
        self.hit += other.hit;
        self.failing += other.failing;
        self.unanswered += other.unanswered;
        self.in_row += other.in_row;
        self.tally = self.tally.plus(other.tally);
        self
    }
}

/// The zones and nodes that stand out from a rate, and what is left.
#[derive(Debug, Default)]
struct Apart {
    found: Vec<CheckFinding>,
    /// Nats of all of them beyond the rate that all nodes share, less their costs.
    score: f64,
    rest: NodeSums,
}

/// The whole of a check.
struct CheckSearch<'a> {
    scope: &'a Scope<'a>,
    all: NodeSums,
    zones: [NodeSums; MESH_ZONES_MAX],
    /// The rate that all nodes share without a cause.
    calm: f64,
    /// The highest rate that needs no cause.
    background: f64,
    rate_min: f64,
    /// Whether some nodes get answers now.
    are_some_answered: bool,
}

/// Returns the causes of a check's bad attempts: the target first, if it is one, then at most
/// [`CAUSES_MAX`] zones and nodes.
pub fn search(scope: &Scope<'_>) -> Vec<CheckFinding> {
    let search = CheckSearch::new(scope);
    if search.all.tally.lost == 0 || search.background >= 1.0 {
        return Vec::new();
    }
    let without = search.apart(search.calm);
    let mut found = match search.with_target() {
        Some((with, target)) if search.is_target_sure() || with.score + target > without.score => {
            let mut found = with.found;
            found.insert(0, CheckFinding { part: CheckPart::Target, score: target });
            found
        }
        _ => without.found,
    };
    if found.first().is_some_and(|finding| finding.part == CheckPart::Target) {
        let known = found.clone();
        found.extend(later(scope).into_iter().filter(|later| known.iter().all(|known| known.part != later.part)));
    }
    keep_strongest(&mut found, CAUSES_MAX + 1, scope.matrix);
    found
}

/// Returns what fails since a target is over: its recent windows would hide that for a minute. It
/// is over if all but the nodes that fail now have enough good attempts.
fn later(scope: &Scope<'_>) -> Vec<CheckFinding> {
    let is_failing = |node: &NodeAttempts| node.in_row() >= AGAIN_IN_ROW;
    if scope.since.is_some() || !scope.nodes().any(|node| is_failing(&node)) {
        return Vec::new();
    }
    let mut over = Over::default();
    scope.nodes().filter(|node| !is_failing(node)).for_each(|node| over.add(&node, scope.seconds(node.node)));
    let Some(since) = over.ages().over else { return Vec::new() };
    let found = search(&Scope { since: Some(since), ..*scope });
    // If it is the target again, it is not over.
    if found.iter().any(|finding| finding.part == CheckPart::Target) { Vec::new() } else { found }
}

/// Keeps this many causes: the target, then zones, then nodes, each the strongest first.
fn keep_strongest(found: &mut Vec<CheckFinding>, most: usize, matrix: &Matrix) {
    let rank = |part: CheckPart| match part {
        CheckPart::Target => (0, ""),
        CheckPart::Zone(zone) => (1, matrix.zone_name(zone)),
        CheckPart::Node(node) => (2, matrix.name(node)),
    };
    // Judges number nodes each in its own order, and must name the same ones.
    found.sort_by(|a, b| {
        let ([(rank_a, name_a), (rank_b, name_b)], score) =
            ([a, b].map(|finding| rank(finding.part)), b.score.total_cmp(&a.score));
        rank_a.cmp(&rank_b).then(score).then_with(|| name_a.cmp(name_b))
    });
    found.truncate(most);
}

/// Returns the place of a zone among the sums.
fn zone_place(zone: u8) -> usize {
    usize::from(zone).min(MESH_ZONES_MAX - 1)
}

/// Returns the nats of bad attempts beyond a rate. The last ones that failed in a row tell it
/// before most of the recent window does.
fn evidence(tally: Tally, in_row: u32, rate: f64) -> f64 {
    gain(tally.lost, tally.probes, rate).max(f64::from(in_row) * -rate.min(1.0).ln())
}

impl<'a> CheckSearch<'a> {
    fn new(scope: &'a Scope<'a>) -> Self {
        let place = usize::from(scope.outcome == BadOutcome::Slow);
        let background = BACKGROUND[place].max(scope.expected());
        let (mut zones, mut calm) = ([NodeSums::default(); MESH_ZONES_MAX], Tally::default());
        let mut answered = 0;
        for node in scope.nodes() {
            zones[zone_place(node.zone)].add(&node, background);
            answered += u32::from(node.bad.is_none_or(|bad| bad.good_in_row > 0));
            // Nodes with more are those that a cause may explain.
            if node.hit <= 1 || node.hit * 20 <= node.tried {
                calm = calm.plus(Tally { probes: node.tried, lost: node.hit });
            }
        }
        let all = zones.iter().fold(NodeSums::default(), NodeSums::plus);
        let shared = (f64::from(calm.lost) + 1.0) / (f64::from(calm.probes) + PRIOR_ATTEMPTS);
        Self {
            scope,
            calm: shared.clamp(CALM_MIN, BACKGROUND[place]).max(scope.expected()).min(0.999),
            background,
            rate_min: RATE_MIN[place],
            are_some_answered: answered * ANSWERING_ONE_OF >= all.nodes,
            all,
            zones,
        }
    }

    /// Returns what stands out from a rate.
    fn apart(&self, rate: f64) -> Apart {
        let mut zones = self.zones;
        for node in self.scope.nodes() {
            zones[zone_place(node.zone)].apart += self.node(&node, rate).unwrap_or(0.0);
        }
        let mut apart = Apart::default();
        for (zone, sums) in (0_u8..).zip(&zones) {
            let Some(score) = self.zone(zone, sums, rate).filter(|score| *score >= sums.apart) else { continue };
            apart.found.push(CheckFinding { part: CheckPart::Zone(zone), score });
            apart.score += evidence(sums.tally, sums.in_row, self.calm) - self.zone_cost();
        }
        let in_zones = apart.found.clone();
        for node in self.scope.nodes() {
            if in_zones.iter().any(|finding| finding.part.covers(node.node, node.zone)) {
                continue;
            }
            let Some(score) = self.node(&node, rate) else {
                apart.rest.add(&node, self.background);
                continue;
            };
            apart.found.push(CheckFinding { part: CheckPart::Node(node.node), score });
            // Half of all nodes may stand out.
            if apart.found.len() > 4 * CAUSES_MAX {
                keep_strongest(&mut apart.found, CAUSES_MAX + 1, self.scope.matrix);
            }
            apart.score += self.node(&node, self.calm).unwrap_or(score);
        }
        apart
    }

    fn zone_cost(&self) -> f64 {
        COST + f64::from(self.zones.iter().fold(0, |zones, sums| zones + u16::from(sums.nodes > 0))).ln()
    }

    /// Returns the nats of a zone that stands out, beyond its cost. A zone needs two nodes, most of
    /// which fail, and others beside it.
    fn zone(&self, zone: u8, sums: &NodeSums, rate: f64) -> Option<f64> {
        let is_one = zone != ZONE_UNKNOWN && sums.nodes >= 2 && sums.nodes < self.all.nodes;
        let stands_out = sums.failing * 2 > sums.nodes
            && sums.tally.lost >= BAD_MIN
            && sums.tally.rate() >= self.rate_min.max(rate * TIMES);
        let score = evidence(sums.tally, sums.in_row, rate) - self.zone_cost();
        (is_one && stands_out && score > 0.0).then_some(score)
    }

    /// Returns the nats of a node that stands out, beyond its cost.
    fn node(&self, node: &NodeAttempts, rate: f64) -> Option<f64> {
        let is_bad = node.hit >= 2;
        let share = f64::from(node.hit) / f64::from(node.tried);
        // From a target that fails, only the whole window can stand out.
        let is_sudden = node.failed_in_row >= 2 && rate <= self.background;
        if !is_bad || share < self.rate_min.max(rate * TIMES) && !is_sudden || self.waits(node) {
            return None;
        }
        let cost = COST + f64::from(self.all.nodes.max(1)).ln();
        let tally = Tally { probes: node.tried, lost: node.hit };
        Some(evidence(tally, node.in_row(), rate) - cost).filter(|score| *score > 0.0)
    }

    /// Whether a node that has begun to fail may be a part of its zone, of which most nodes fail at
    /// present: two nodes are not asked in the same second.
    fn waits(&self, node: &NodeAttempts) -> bool {
        let sums = &self.zones[zone_place(node.zone)];
        let may_be_zone = node.zone != ZONE_UNKNOWN && sums.nodes >= 2 && sums.unanswered * 2 > sums.nodes;
        may_be_zone && sums.failing < sums.unanswered && (1..=WAITS_IN_ROW).contains(&node.in_row())
    }

    /// Returns what stands out from the rate of the target, and the nats of the target. `None` if
    /// it is no cause.
    fn with_target(&self) -> Option<(Apart, f64)> {
        if self.all.nodes < 2 {
            return None;
        }
        let mut rate = self.all.tally.rate();
        let mut apart = Apart { rest: self.all, ..Apart::default() };
        // If it fails for all at present, no node stands out: only the windows differ.
        if self.are_some_answered {
            for _ in 0..ROUNDS {
                apart = self.apart(rate.clamp(self.calm, 0.999));
                rate = apart.rest.tally.rate();
            }
        }
        let NodeSums { nodes, hit, tally, .. } = apart.rest;
        let is_cause = tally.lost >= BAD_MIN
            && hit >= 2
            // It may be the zone, as soon as more is known.
            && !self.is_one_zone(|sums| sums.hit)
            && tally.rate() >= self.rate_min
            && gain(tally.lost, tally.probes, self.background) >= NATS
            && (is_spread(tally, [nodes, hit]) || self.is_target_sure());
        is_cause.then(|| (apart, gain(tally.lost, tally.probes, self.calm) - COST))
    }

    /// Whether a zone has this in most of its nodes, and few nodes elsewhere have it.
    fn is_one_zone(&self, has: fn(&NodeSums) -> u32) -> bool {
        self.zones[1..].iter().any(|sums| {
            let [nodes, elsewhere] = [self.all.nodes - sums.nodes, has(&self.all) - has(sums)];
            sums.nodes >= 2 && has(sums) * 2 > sums.nodes && nodes >= 2 && elsewhere * FEW_ONE_OF <= nodes
        })
    }

    /// Whether it fails for most nodes, and no zone has nearly all of these.
    fn is_target_sure(&self) -> bool {
        self.all.failing * 2 > self.all.nodes && !self.is_one_zone(|sums| sums.failing)
    }
}
