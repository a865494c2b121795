//! How a candidate is weighed: for all layers, and for some of them.

use std::rc::Rc;

use super::causes::{Cause, Finding};
use super::pairs::NetworkScope;
use super::score::{LayerSums, Sum, apart, gain, is_far, is_far_more};
use super::shared::SharedLosses;
use super::tally::Tally;
use crate::matrix::{Layer, RowPresence};

/// Nats added if a node that all others lose entirely does not send its report either.
pub const SILENT_AGENT_BONUS: f64 = 3.0;
/// Pairs that must be hit for separate loss rates: three of four, and at least three.
pub const OWN_RATE_PAIRS_MIN: u32 = 3;
/// Nodes and zones that lose less than this beyond the shared rate are not reported.
const RATE_MIN: f64 = 0.005;
/// Nats that each further protocol of a cause of some protocols must explain, so that it is named
/// with the first. One lost handshake explains less.
const FURTHER: f64 = 4.0;

/// Returns the layers that have probes.
pub fn measured(probes: impl Fn(Layer) -> u32) -> u8 {
    Layer::set(Layer::ALL.into_iter().filter(|layer| probes(*layer) > 0))
}

/// A cause is about some layers alone if that explains this many nats more than all layers do.
const APART: f64 = 4.5;

/// Costs of candidates, in nats.
#[derive(Debug)]
pub struct Costs {
    /// Cost of a node.
    pub node: f64,
    /// Cost of a pair of zones.
    pub zones: f64,
    /// Cost of a zone.
    pub zone: f64,
    /// Cost of a domain.
    pub domain: f64,
    /// Cost of a partition into groups.
    pub partition: f64,
    /// Cost of a link.
    pub link: f64,
    /// Cost of the choice of some layers: the logarithm of the number of layers, and of all of them
    /// as one more choice. Of several layers, each must explain more ([`FURTHER`]).
    pub layers: f64,
}

impl Costs {
    /// Returns the same cost for all.
    pub const fn all(nats: f64) -> Self {
        let [node, zones, zone, domain, partition, link] = [nats; 6];
        Self { node, zones, zone, domain, partition, link, layers: 0.0 }
    }

    /// Returns the cost of a cause and of its choice of layers, in nats.
    pub const fn cost_of(&self, finding: &Finding, searched: u8) -> f64 {
        self.cost(finding.cause) + if finding.layers == searched { 0.0 } else { self.layers }
    }

    /// Returns the cost of a cause, in nats.
    pub const fn cost(&self, cause: Cause) -> f64 {
        match cause {
            Cause::Node(_) => self.node,
            Cause::Zones(..) => self.zones,
            Cause::Zone(..) => self.zone,
            Cause::Domain(..) => self.domain,
            Cause::Partition => self.partition,
            Cause::Link(..) => self.link,
            Cause::Mesh | Cause::Paths => 0.0,
        }
    }
}

/// What the search reads.
pub struct Search<'s, 'm> {
    /// The cells that count.
    pub scope: &'s NetworkScope<'m>,
    /// The costs of candidates.
    pub costs: &'s Costs,
    /// The group of each node; empty if the mesh does not fall into groups.
    pub groups: &'s Rc<[u8]>,
    /// Number of pairs that were measured, by layer.
    pub pairs: [u32; Layer::ALL.len()],
    /// Number of probes, by layer.
    pub probes: [u32; Layer::ALL.len()],
}

/// What candidates are weighed with.
pub struct Candidates<'a> {
    /// What the search reads.
    pub search: &'a Search<'a, 'a>,
    /// What all links share.
    pub shared: &'a SharedLosses,
    /// Layers of which causes were found that touch some layers alone. They may lack in sums for
    /// this reason.
    pub taken: u8,
}

/// Returns the number of pairs of the layer with most.
pub fn most_pairs(sums: &LayerSums) -> u32 {
    sums.iter().map(|sum| sum.pairs).max().unwrap_or_default()
}

/// What a candidate is worth in some layers, in nats.
#[derive(Clone, Copy, Debug)]
pub struct Weight {
    /// The sums of these layers.
    pub sum: Sum,
    /// The loss beyond what the layers share.
    pub excess: f64,
    /// The share of these probes that would be lost without the candidate.
    pub expected: f64,
    /// Number of its pairs, and of those that are hit, in the layer with most.
    pub pairs: [u32; 2],
    nats: f64,
}

impl Candidates<'_> {
    /// Returns the layers that a cause touches that was chosen for some of those that are measured,
    /// and what the choice costs. What was not measured of its links tells nothing, such as probes
    /// that no agent could answer.
    pub fn touched(&self, layers: u8, measured: u8) -> (u8, f64) {
        let all = self.search.scope.layers;
        let untold = all & !measured & !self.taken;
        if layers == measured && layers | untold == all { (all, 0.0) } else { (layers, self.search.costs.layers) }
    }

    /// Returns the best choice of layers for one cause that loses this: all of them, unless some
    /// explain far more, and each of these some more. `most` returns what a choice is worth at
    /// most, and `make` the cause of a choice with its cost, if it is one.
    pub fn choose(
        &self,
        tallies: &[Tally; Layer::ALL.len()],
        cost: f64,
        most: impl Fn(u8) -> f64,
        make: impl Fn(u8, u8, f64) -> Option<Finding>,
    ) -> Option<Finding> {
        let (all, price) = (self.search.scope.layers, self.search.costs.layers);
        let pods = all & !Layer::Nodes.bit();
        let further =
            |layers: u8| if layers & pods == pods { 0 } else { (layers & pods).count_ones().saturating_sub(1) };
        let rank = |layers: u8, nats: f64| match layers {
            layers if layers == all => nats,
            layers => nats - APART + price - FURTHER * f64::from(further(layers)),
        };
        let measured = measured(|layer| tallies[layer as usize].probes);
        let mut best: Option<(f64, Finding)> = None;
        for layers in (1..=measured).rev().filter(|layers| layers & !measured == 0) {
            let (touched, choice) = self.touched(layers, measured);
            let may_be_best = best.is_none_or(|(nats, _)| rank(touched, most(layers) - choice) > nats);
            if may_be_best
                && may_touch(layers, measured, self.shared, tallies, cost + price)
                && let Some(finding) = make(layers, touched, choice)
            {
                let nats = rank(touched, finding.score);
                if best.is_none_or(|(before, _)| nats > before) {
                    best = Some((nats, finding));
                }
            }
        }
        best.map(|(_, finding)| finding)
    }

    /// Whether these are some pairs, and not all. A cause that touches all pairs is the mesh.
    pub fn are_some(&self, sums: &LayerSums, finding: &Finding) -> bool {
        let are_fewer = |layer: Layer| sums[layer as usize].pairs < self.search.pairs[layer as usize];
        most_pairs(sums) >= 2 && Layer::in_set(finding.layers).any(are_fewer)
    }

    /// Returns what a part of a cause would be worth as one of its own, in nats.
    pub fn worth(&self, sums: &LayerSums, finding: &Finding, cost: f64) -> f64 {
        (self.shared.weigh(sums, finding.layers).worth().0 - cost).max(0.0)
    }

    /// Returns a zone, domain or partition as a cause, if it is worth its cost.
    pub fn wide(&self, cause: Cause, sums: &LayerSums) -> Option<Finding> {
        self.best(cause, sums, 0.0, &|_| None)
    }

    /// Returns a node or a wider cause of what it explains best: all layers, or some. `None` if
    /// none of them is worth its cost. What is certainly worth less than `least` is not looked at.
    pub fn best(
        &self,
        cause: Cause,
        sums: &LayerSums,
        least: f64,
        by_reports: &dyn Fn(u8) -> Option<bool>,
    ) -> Option<Finding> {
        let (matrix, shared, cost) = (self.search.scope.matrix, self.shared, self.search.costs.cost(cause));
        let of = |sum: &Sum, rate: f64| gain(sum.lost, sum.probes, rate).max(sum.apart.into());
        let nats = Layer::ALL.map(|layer| of(&sums[layer as usize], shared[layer].rate));
        let most = |layers| Layer::in_set(layers).map(|layer| nats[layer as usize]).sum::<f64>() - cost;
        if most(self.search.scope.layers) + SILENT_AGENT_BONUS < least {
            return None;
        }
        let is_missing = match cause {
            Cause::Node(node) => matrix.get(node).presence == RowPresence::Missing,
            _ => false,
        };
        let tallies = sums.map(|sum| sum.tally());
        let most = |layers| most(layers) + SILENT_AGENT_BONUS;
        self.choose(&tallies, cost, most, |layers, touched, choice| {
            let weight = shared.weigh(sums, layers);
            let (worth, is_uneven) = weight.worth();
            let sum = &weight.sum;
            let silent = is_missing && sum.lost == sum.probes;
            let nats = worth - cost - choice + if silent { SILENT_AGENT_BONUS } else { 0.0 };
            // A node that only one of several agents reports may be an invention of that agent.
            let may_be_invented = matches!(cause, Cause::Node(_)) && !(silent && matrix.node_count() <= 2);
            let pairs_min = if may_be_invented { 2 } else { 1 };
            let is_worth = nats > 0.0 && sum.rate() >= weight.expected + RATE_MIN && weight.pairs[0] >= pairs_min;
            let by_reports = if is_worth { by_reports(layers) } else { None };
            let is_wide = || sum.is_spread() && (silent || nats > sum.as_links.into());
            (is_worth && by_reports.unwrap_or_else(is_wide)).then(|| Finding {
                cause,
                layers: touched,
                score: nats,
                rate: sum.rate(),
                rates: shared.rates(weight.excess),
                is_uneven,
                is_by_reports: by_reports == Some(true),
            })
        })
    }
}

/// Whether a cause may be about these layers of the measured ones: they may lose for one reason,
/// and the others lose far less than it takes, and far less than these do. `cost` is that of
/// another cause.
pub fn may_touch(
    layers: u8,
    measured: u8,
    shared: &SharedLosses,
    tallies: &[Tally; Layer::ALL.len()],
    cost: f64,
) -> bool {
    let are_apart = || {
        let (_, excess) = shared.gain(layers, |layer| tallies[layer as usize]);
        let rates = shared.rates(excess);
        let mut others = Layer::in_set(measured & !layers & shared.telling());
        others.all(|other| {
            let less = tallies[other as usize];
            // What a layer loses everywhere is no loss of these links in particular.
            let is_more = |layer: Layer| {
                let everywhere = shared[layer].rate - shared[other].rate;
                is_far(tallies[layer as usize].rate(), less.lifted(everywhere).rate())
            };
            is_far(rates[other as usize], less.rate()) && Layer::in_set(layers).any(is_more)
        })
    };
    is_one_cause(layers, shared, tallies, cost) && (layers == measured || are_apart())
}

/// Whether these layers may lose for one reason. Two reasons are worth the cost of another cause:
/// ICMP or UDP loses far more than the other, or far more than the nodes' network below. A lost
/// handshake is repeated at once, so the share that TCP loses is no second reason. It goes with the
/// nearer one.
fn is_one_cause(layers: u8, shared: &SharedLosses, tallies: &[Tally; Layer::ALL.len()], cost: f64) -> bool {
    const PAIRS: [(Layer, Layer); 4] =
        [(Layer::Icmp, Layer::Udp), (Layer::Udp, Layer::Icmp), (Layer::Icmp, Layer::Nodes), (Layer::Udp, Layer::Nodes)];
    let (has, of) = (|layer: Layer| layers & layer.bit() != 0, |layer: Layer| tallies[layer as usize]);
    let are_alike = PAIRS.into_iter().all(|(more, less)| {
        // What a layer loses everywhere is no loss of these links in particular.
        let everywhere = shared[more].rate - shared[less].rate;
        !has(more) || !has(less) || !is_far_more(of(more), of(less).lifted(everywhere), cost)
    });
    let is_nearer = |other: Layer, own: Layer| {
        let has_own_alone = has(own) && !has(other) && of(other).probes > 0;
        has_own_alone && apart(of(Layer::Tcp), of(other)) < apart(of(Layer::Tcp), of(own))
    };
    let is_elsewhere = has(Layer::Tcp) && PAIRS[..2].iter().any(|(other, own)| is_nearer(*other, *own));
    are_alike && !is_elsewhere
}

/// Adds sums by layer.
pub fn add(sums: &mut LayerSums, other: &LayerSums) {
    sums.iter_mut().zip(other).for_each(|(sum, part)| sum.add(part));
}

impl SharedLosses {
    /// Returns the weight of a candidate with these sums in some layers.
    pub fn weigh(&self, sums: &LayerSums, layers: u8) -> Weight {
        let (nats, excess) = self.gain(layers, |layer| sums[layer as usize].tally());
        let (mut sum, mut pairs, mut expected) = (Sum::default(), [0; 2], 0.0);
        for layer in Layer::in_set(layers) {
            let part = &sums[layer as usize];
            expected += f64::from(part.probes) * self[layer].rate;
            pairs = [pairs[0].max(part.pairs), pairs[1].max(part.hit)];
            sum.add(part);
        }
        Weight { expected: expected / f64::from(sum.probes.max(1)), sum, excess, pairs, nats }
    }
}

impl Weight {
    /// Returns the worth in nats of a wide cause, and whether each of its pairs loses at its own
    /// rate. A bad port of four, for example, drops all of some flows and nothing of others.
    pub fn worth(&self) -> (f64, bool) {
        let alike = self.nats - f64::from(self.sum.explained);
        let most = self.pairs[1] >= OWN_RATE_PAIRS_MIN && self.sum.hit * 4 >= self.sum.pairs * 3;
        if most && self.sum.apart() > alike { (self.sum.apart(), true) } else { (alike, false) }
    }
}
