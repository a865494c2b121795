//! The sums that candidates are weighed by: what the pairs lose that no cause touches yet, by
//! layer.
//!
//! A pair has a share for each layer that was measured of it. The sums of some layers are added up
//! when a candidate is weighed, so that each may compete for all layers and for some of them.

use super::candidates::{Candidates, Search, add};
use super::causes::{CAUSES_MAX, Cause, Finding, Findings, is_across};
use super::domain_causes::{self, DomainSums};
use super::pairs::{Pair, sum_of_layers};
use super::score::{LayerSums, NodeSum, Sum, apart, gain};
use super::shared::{OWN_RATE, SharedLoss, SharedLosses};
use super::tally::Tally;
use crate::matrix::Layer;

/// Reporters that must agree against a node that denies the loss. Also the number of one-sided
/// reports from which on the reporter itself is the cause.
const REPORTERS_MIN: u32 = 3;
/// The ends of a pair contradict each other under two conditions: one loses less than this share of
/// the other's loss, and two rates explain them better than one by the cost of a link.
const SIDES_SHARE: f64 = 0.25;

/// Sums of all pairs that no cause touches yet.
pub struct Weighed {
    layers: u8,
    /// See [`Candidates::taken`].
    taken: u8,
    /// Sums of the pairs of each node, one for each of the layers.
    nodes: Vec<NodeSum>,
    /// Sums by pair of zones.
    pub zones: Vec<LayerSums>,
    /// Sums by failure domain; empty if there are none.
    pub domains: Vec<DomainSums>,
    /// Sums of the pairs between groups.
    pub partition: LayerSums,
    /// The best links, in descending order.
    pub links: Vec<Finding>,
    /// Whether there were more links than are kept.
    are_more_links: bool,
}

/// Returns the sums of all layers of the search.
pub async fn weigh(search: &Search<'_, '_>, findings: &Findings, shared: &SharedLosses) -> Weighed {
    let scope = search.scope;
    let partial = findings.found.iter().map(|finding| finding.layers).filter(|layers| *layers != scope.layers);
    let mut weighed = Weighed {
        layers: scope.layers,
        taken: partial.fold(0, |taken, layers| taken | layers),
        nodes: vec![NodeSum::default(); scope.matrix.node_count() * scope.layers.count_ones() as usize],
        zones: vec![LayerSums::default(); scope.zone_places()],
        domains: vec![DomainSums::default(); scope.matrix.domain_count()],
        partition: LayerSums::default(),
        links: Vec::new(),
        are_more_links: false,
    };
    scope
        .each_pair_by_layer(|pairs| {
            let nats = weighed.change(search, findings, pairs, shared, Sum::add, NodeSum::add);
            weighed.keep_link(search, findings, pairs, shared, nats);
        })
        .await;
    weighed
}

impl Weighed {
    /// Returns the sums of all pairs: each pair belongs to one zone pair.
    pub fn all(&self) -> LayerSums {
        let mut all = LayerSums::default();
        self.zones.iter().for_each(|zones| add(&mut all, zones));
        all
    }

    /// Returns what its candidates are weighed with.
    pub const fn candidates<'a>(&self, search: &'a Search<'a, 'a>, shared: &'a SharedLosses) -> Candidates<'a> {
        Candidates { search, shared, taken: self.taken }
    }

    /// Returns the sums of each node, which are by layer.
    pub fn nodes(&self) -> impl Iterator<Item = LayerNodeSums<'_>> {
        let layers = self.layers;
        self.nodes.chunks(layers.count_ones().max(1) as usize).map(move |sums| LayerNodeSums { layers, sums })
    }

    /// Adds a pair to its sums, or subtracts it, as far as no cause touches it. Returns the nats of
    /// its losses.
    fn change(
        &mut self,
        search: &Search<'_, '_>,
        findings: &Findings,
        pairs: &[Pair],
        shared: &SharedLosses,
        of_all: impl Fn(&mut Sum, &Sum),
        of_node: impl Fn(&mut NodeSum, &NodeSum),
    ) -> f64 {
        let scope = search.scope;
        let mut left = [const { None }; Layer::ALL.len()];
        let (mut all, mut layers) = (0.0, 0);
        for (place, pair) in left.iter_mut().zip(pairs).filter(|(_, pair)| !findings.explain(scope, pair)) {
            let share = PairShare::new(&shared[pair.layer()], pair);
            (all, layers) = (all + share.nats.max(0.0), layers | pair.layers);
            *place = Some((pair, share));
        }
        // A link is bad, and an end lies, by all its layers together.
        let as_link = (all - search.costs.link).max(0.0);
        let reporter = if all > OWN_RATE { sum_of_layers(pairs, layers) } else { None };
        let reporter = reporter.and_then(|pair| one_sided(&pair, search.costs.link));
        for (pair, share) in left.iter().flatten() {
            let part = if as_link > 0.0 { as_link * share.nats.max(0.0) / all } else { 0.0 };
            let (layer, sum) = (pair.layer() as usize, Sum::from_share(share, part));
            of_all(&mut self.zones[scope.zone_place(pair)][layer], &sum);
            domain_causes::change_pair_sums(&mut self.domains, scope, pair, |of| of_all(&mut of[layer], &sum));
            if is_across(search.groups, pair.a, pair.b) {
                of_all(&mut self.partition[layer], &sum);
            }
            let rank = rank(self.layers, pair.layer());
            for node in [pair.a, pair.b] {
                let place = usize::from(node) * self.layers.count_ones() as usize + rank;
                of_node(&mut self.nodes[place], &NodeSum::new(sum, pair, reporter, node));
            }
        }
        all
    }

    /// Keeps the best links, at most as many as the search has causes. `nats` is the most that the
    /// link can be worth.
    fn keep_link(
        &mut self,
        search: &Search<'_, '_>,
        findings: &Findings,
        pairs: &[Pair],
        shared: &SharedLosses,
        nats: f64,
    ) {
        let is_full = self.links.len() == CAUSES_MAX;
        if nats <= 0.0 || is_full && self.links.last().is_some_and(|worst| nats <= worst.score) {
            self.are_more_links |= nats > 0.0;
            return;
        }
        let Some(link) = best_link(&self.candidates(search, shared), findings, pairs) else { return };
        if is_full {
            self.are_more_links = true;
            if self.links.last().is_some_and(|worst| link.score <= worst.score) {
                return;
            }
            self.links.pop();
        }
        let place = self.links.partition_point(|better| better.score >= link.score);
        self.links.insert(place, link);
    }

    /// Returns whether the pairs were subtracted that a new cause touches and no earlier cause
    /// does. If that needs a walk over all pairs, the caller must compute all sums again.
    pub fn take_out(
        &mut self,
        search: &Search<'_, '_>,
        before: &Findings,
        new: &Finding,
        shared: &SharedLosses,
    ) -> bool {
        // What is left of a pair by other layers is another share of it.
        if new.layers != self.layers {
            return false;
        }
        let mut take = |pairs: &[Pair]| {
            self.change(search, before, pairs, shared, Sum::take, NodeSum::take);
        };
        match new.cause {
            Cause::Node(node) => search.scope.each_pair_of_by_layer(node, take),
            Cause::Link(a, b) => take(&search.scope.layer_pairs_of(a, b)),
            _ => return false,
        }
        let is_left = |link: &Finding| match link.cause {
            Cause::Link(a, b) => !before.touches(search.scope, new.cause, (a, b)),
            _ => false,
        };
        self.links.retain(is_left);
        !self.links.is_empty() || !self.are_more_links
    }
}

/// Returns a link as a cause of what no other cause touches, by the layers that it explains best.
/// Its score lacks the cost of a link.
fn best_link(of: &Candidates<'_>, findings: &Findings, pairs: &[Pair]) -> Option<Finding> {
    let (shared, first) = (of.shared, pairs.first()?);
    let mut left = [Tally::default(); Layer::ALL.len()];
    let mut explained = [0.0; Layer::ALL.len()];
    for pair in pairs.iter().filter(|pair| !findings.explain(of.search.scope, pair)) {
        let layer = pair.layer();
        (left[layer as usize], explained[layer as usize]) = (pair.both(), shared[layer].explains(pair));
    }
    let nats = Layer::ALL.map(|layer| shared.gain(layer.bit(), |layer| left[layer as usize]).0);
    let most = |layers| Layer::in_set(layers).map(|layer| nats[layer as usize]).sum();
    let link = of.choose(&left, of.search.costs.link, most, |layers, touched, choice| {
        let (nats, excess) = shared.gain(layers, |layer| left[layer as usize]);
        let by_path: f64 = Layer::in_set(layers).map(|layer| explained[layer as usize]).sum();
        let both: Tally = Layer::in_set(layers).map(|layer| left[layer as usize]).sum();
        Some(Finding {
            cause: Cause::Link(first.a, first.b),
            layers: touched,
            score: nats - by_path - choice,
            rate: both.rate(),
            rates: shared.rates(excess),
            is_uneven: false,
            is_by_reports: false,
        })
    });
    link.filter(|link| link.score > 0.0)
}

/// Returns the place of a layer among those of a set.
fn rank(layers: u8, layer: Layer) -> usize {
    (layers & (layer.bit() - 1)).count_ones() as usize
}

/// The sums of a node by layer.
#[derive(Clone, Copy)]
pub struct LayerNodeSums<'w> {
    layers: u8,
    sums: &'w [NodeSum],
}

impl LayerNodeSums<'_> {
    /// Returns the sums of both ends' measurements.
    pub fn sums(&self) -> LayerSums {
        let mut sums = LayerSums::default();
        for (layer, sum) in Layer::in_set(self.layers).zip(self.sums) {
            sums[layer as usize] = sum.sum;
        }
        sums
    }

    /// Returns whether contradicting reports make the node a cause of what some layers lose. `None`
    /// if such reports do not decide.
    ///
    /// A node that denies a loss is named if three of four of all its pairs, and at least three,
    /// report it. A node is also named if it alone reports what several others deny. The same holds
    /// if it reports losses of nearly all others that no other node reports.
    pub fn by_reports(&self, layers: u8, cost: f64) -> Option<bool> {
        let of = || Layer::in_set(self.layers).zip(self.sums).filter(|(layer, _)| layers & layer.bit() != 0);
        let most = |count: fn(&NodeSum) -> u32| of().map(|(_, sum)| count(sum)).max().unwrap_or_default();
        let (pairs, hit) = (most(|node| node.sum.pairs), most(|node| node.sum.hit));
        let (denied, alone) = (most(|node| node.denied.into()), most(|node| node.alone.into()));
        if denied > 0 && denied * 2 > hit && denied >= alone {
            let is_agreed = denied >= REPORTERS_MIN && denied * 4 >= pairs * 3;
            return if is_agreed { None } else { Some(false) };
        }
        let is_alone = alone >= REPORTERS_MIN && alone * 2 > hit;
        // Whether it reports losses to three of four of all others, while their reports exclude
        // that.
        let (targets, losing) = (most(|node| node.targets.into()), most(|node| node.losing_targets.into()));
        let sum = |of_node: fn(&NodeSum) -> Tally| of().map(|(_, node)| of_node(node)).sum::<Tally>();
        let (own, both) = (sum(|node| node.own), sum(|node| node.sum.tally()));
        let is_only_reporter =
            losing >= REPORTERS_MIN && losing * 4 >= targets * 3 && is_excluded(own, both.without(own), cost);
        (is_alone || is_only_reporter).then_some(true)
    }
}

/// Contribution of a pair of one layer to its sums.
pub struct PairShare {
    both: Tally,
    /// Nats that its own loss rate explains beyond what all links share.
    nats: f64,
    /// Nats that the shared explanation gives the pair.
    explained: f64,
}

impl PairShare {
    /// Returns the share of a pair.
    pub fn new(shared: &SharedLoss, pair: &Pair) -> Self {
        let (both, explained) = (pair.both(), shared.explains(pair));
        Self { both, nats: gain(both.lost, both.probes, shared.rate) - explained, explained }
    }
}

/// Returns the end whose report of loss is excluded by the other end's report.
pub fn one_sided(pair: &Pair, cost: f64) -> Option<u16> {
    let is_excluded = |more, less| is_excluded(more, less, cost);
    if is_excluded(pair.there, pair.back) { Some(pair.a) } else { is_excluded(pair.back, pair.there).then_some(pair.b) }
}

/// Whether a report of loss is excluded by a report of less loss. A round trip covers both
/// directions, whichever end starts it, so two true reports of one link are about the same.
pub fn is_excluded(more: Tally, less: Tally, cost: f64) -> bool {
    if more.probes == 0 || less.probes == 0 || less.rate() >= more.rate() * SIDES_SHARE {
        return false;
    }
    apart(more, less) > cost
}

impl NodeSum {
    fn new(sum: Sum, pair: &Pair, reporter: Option<u16>, node: u16) -> Self {
        let own = pair.measured_by(node);
        Self {
            sum,
            own,
            targets: u16::from(own.probes > 0),
            losing_targets: u16::from(own.lost > 0),
            denied: u16::from(reporter.is_some_and(|reporter| reporter != node)),
            alone: u16::from(reporter == Some(node)),
        }
    }

    // No overflow: a node has fewer pairs than there are nodes, and node numbers have 16 bits.
    #[inline]
    fn add(&mut self, other: &Self) {
        self.sum.add(&other.sum);
        self.own = self.own.plus(other.own);
        self.each(other, |sum, part| *sum += part);
    }

    fn take(&mut self, other: &Self) {
        self.sum.take(&other.sum);
        self.own = self.own.without(other.own);
        self.each(other, |sum, part| *sum -= part);
    }

    #[inline]
    fn each(&mut self, other: &Self, change: impl Fn(&mut u16, u16)) {
        change(&mut self.targets, other.targets);
        change(&mut self.losing_targets, other.losing_targets);
        change(&mut self.denied, other.denied);
        change(&mut self.alone, other.alone);
    }
}

impl Sum {
    /// Returns the contribution of one pair, and of its part of a bad link.
    pub fn from_share(share: &PairShare, as_link: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "some thousands of nats")]
        let (apart, as_links, explained) = ((share.nats - OWN_RATE) as f32, as_link as f32, share.explained as f32);
        let is_hit = apart > 0.0;
        Self {
            probes: share.both.probes,
            lost: share.both.lost,
            pairs: 1,
            losing: u32::from(share.both.lost > 0),
            hit: u32::from(is_hit),
            apart: if is_hit { apart } else { 0.0 },
            as_links: if is_hit { as_links } else { 0.0 },
            explained,
        }
    }

    /// Adds another sum to this one. Counts are bounded as those of [`Tally::plus`].
    #[inline]
    pub fn add(&mut self, other: &Self) {
        self.each(other, |sum, part| *sum = sum.saturating_add(part), |sum, part| *sum += part);
    }

    fn take(&mut self, other: &Self) {
        self.each(other, |sum, part| *sum = sum.saturating_sub(part), |sum, part| *sum -= part);
    }

    #[inline]
    fn each(&mut self, other: &Self, count: impl Fn(&mut u32, u32), nats: impl Fn(&mut f32, f32)) {
        count(&mut self.probes, other.probes);
        count(&mut self.lost, other.lost);
        count(&mut self.pairs, other.pairs);
        count(&mut self.losing, other.losing);
        count(&mut self.hit, other.hit);
        nats(&mut self.apart, other.apart);
        nats(&mut self.as_links, other.as_links);
        nats(&mut self.explained, other.explained);
    }

    /// Returns the worth in nats if each pair loses at its own rate. Those that lose nothing have
    /// their cost, too: otherwise the links that chance puts on a bad path would suffice.
    pub fn apart(&self) -> f64 {
        f64::from(self.apart) - OWN_RATE * f64::from(self.pairs - self.hit)
    }
}

#[cfg(test)]
mod tests {
    use super::super::shared::Hypothesis;
    use super::*;

    #[test]
    fn links_that_lose_nothing_count_against_a_cause_whose_links_differ() {
        let shared = SharedLoss { of: Hypothesis::Paths, rate: 0.001, path_share: 0.4, path_rate: None };
        let shared = SharedLosses([shared; 4]);
        let sum = |hit| Sum { pairs: 20, hit, apart: 30.0, explained: 1.0, ..Sum::default() };
        let worth = |hit| shared.weigh(&[sum(hit), Sum::default(), Sum::default(), Sum::default()], 1).worth();
        assert_eq!([worth(20), worth(16), worth(14)], [(30.0, true), (22.0, true), (-1.0, false)]);
    }
}
