//! The search for the causes of losses beyond what all links share.
//!
//! It starts without causes and repeatedly takes the one that explains most of what is left. The
//! measure is nats of likelihood minus the cost of that kind of cause. The cost makes up for the
//! number of candidates. A wide cause must explain more than the causes below it could, each at its
//! own cost: two bad links of twelve are not a bad node. In the end each cause must still be worth
//! its cost beside all others. `docs/verdicts.md` has the formulas, thresholds and traps.

use std::rc::Rc;
use std::sync::Arc;

use crate::slices::yield_now;

use super::causes::{CAUSES_MAX, Cause, Finding, Findings};
use super::domain_causes;
use super::pairs::{NetworkScope, sum_of_layers, zone_place};
use super::score::{LayerSums, Sum, gain};
use super::shared::{CALM, Hypothesis, SharedLoss, SharedLosses, UntouchedSums, calm};
use super::tally::Tally;
use super::weigh::{APART, PairShare, Weighed, add, may_touch, measured, one_sided, weigh};
use crate::matrix::{Layer, RowPresence, ZONE_UNKNOWN};

/// Nats that a cause must explain beyond the logarithm of the number of candidates. For each kind
/// of cause, chance alone is then named in at most one of e^9 = 8,100 meshes.
const CERTAINTY: f64 = 9.0;
/// Additional cost of zones and groups: if a zone and a node explain the same losses, the node
/// is the simpler cause.
const ZONE_EXTRA: f64 = 3.0;
/// Nats added if a node that all others lose entirely does not send its report either.
const SILENT_AGENT_BONUS: f64 = 3.0;
/// Pairs that must be hit for separate loss rates: three of four, and at least three.
pub const OWN_RATE_PAIRS_MIN: u32 = 3;
/// Nodes and zones that lose less than this beyond the shared rate are not reported.
const RATE_MIN: f64 = 0.005;
/// Nats that each layer of a cause of some layers must explain, so that it is named.
const LAYER: f64 = 1.0;
/// How often the search restarts with the shared rate it has learnt.
const ROUNDS: usize = 4;
/// A partition loses at least this share of the probes between its groups.
const PARTITION_LOSS: f64 = 0.9;
/// Nats by which two rates must explain the ends of a single link better than one, once the link is
/// known to be bad.
pub const ONE_SIDED: f64 = CERTAINTY;
/// Reporters that must agree against a node that denies the loss. Also the number of one-sided
/// reports from which on the reporter itself is the cause.
pub const REPORTERS_MIN: u32 = 3;

/// Costs of candidates, in nats.
#[derive(Debug)]
pub struct Costs {
    node: f64,
    zones: f64,
    zone: f64,
    domain: f64,
    partition: f64,
    /// Cost of a link.
    pub link: f64,
    /// Cost of the choice of some layers: the logarithm of the number of their sets.
    pub layers: f64,
}

impl Costs {
    /// Returns the costs for this mesh.
    pub fn new(scope: &NetworkScope<'_>, first: &Weighed) -> Self {
        let logarithm = |candidates: usize| (candidates.max(1) as f64).ln();
        let is_measured = |sums: &LayerSums| sums.iter().any(|sum| sum.pairs > 0);
        let nodes = first.nodes().filter(|node| is_measured(&node.sums())).count();
        let zones = first.zones.iter().filter(|sums| is_measured(sums)).count();
        // A zone is a candidate with and without its inner links.
        let zone = CERTAINTY + logarithm(2 * scope.matrix.zone_count()) + ZONE_EXTRA;
        let domains = domain_causes::candidate_count(&first.domains);
        Self {
            node: CERTAINTY + logarithm(nodes),
            zones: CERTAINTY + logarithm(zones) + ZONE_EXTRA,
            zone,
            // If a zone and a domain explain the same, the zone is named.
            domain: (CERTAINTY + logarithm(domains) + ZONE_EXTRA).max(zone),
            // Each node is in one of two groups.
            partition: CERTAINTY + nodes as f64 * std::f64::consts::LN_2 + ZONE_EXTRA,
            link: CERTAINTY + logarithm(most_pairs(&first.all()) as usize),
            layers: logarithm((1 << scope.layers.count_ones()) - 1),
        }
    }

    const fn none() -> Self {
        let [node, zones, zone, domain, partition, link] = [CERTAINTY; 6];
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
    /// Layers of which causes were found that touch some layers alone. They may lack in sums for this
    /// reason.
    pub taken: u8,
}

/// Returns the number of pairs of the layer with most.
pub fn most_pairs(sums: &LayerSums) -> u32 {
    sums.iter().map(|sum| sum.pairs).max().unwrap_or_default()
}

/// Returns the sums without any cause.
pub async fn first(scope: &NetworkScope<'_>) -> Weighed {
    let shared = SharedLoss { of: Hypothesis::Calm, rate: CALM.1, path_share: 0.0, path_rate: None };
    let search = Search { scope, costs: &Costs::none(), groups: &Rc::default(), pairs: [0; 4], probes: [0; 4] };
    weigh(&search, &Findings::default(), &SharedLosses([shared; Layer::ALL.len()])).await
}

/// Returns the causes, and what all links share. Causes for which `is_banned` is true are skipped.
pub async fn explain(
    search: &Search<'_, '_>,
    mut shared: SharedLosses,
    is_banned: &dyn Fn(Cause) -> bool,
) -> (Findings, SharedLosses) {
    let domains = Arc::clone(search.scope.matrix.domains());
    let mut findings = Findings { groups: Rc::clone(search.groups), domains, ..Findings::default() };
    for _ in 0..ROUNDS {
        findings.found.clear();
        let mut weighed = weigh(search, &findings, &shared).await;
        while findings.found.len() < CAUSES_MAX
            && let Some(next) = next(&weighed.candidates(search, &shared), &weighed, is_banned)
        {
            let is_taken_out = weighed.take_out(search, &findings, &next, &shared);
            findings.found.push(next);
            // The pairs of a node are found by searches in all rows.
            yield_now().await;
            if !is_taken_out {
                drop(weighed);
                weighed = weigh(search, &findings, &shared).await;
            }
        }
        drop(weighed);
        let learnt = shared.learnt(&prune(search, &mut findings, &shared).await);
        let is_steady = shared.is_near(&learnt);
        // No cause was found, and a higher shared rate leaves less to explain.
        let is_none =
            findings.found.is_empty() && Layer::ALL.into_iter().all(|layer| learnt[layer].rate >= shared[layer].rate);
        shared = learnt;
        if is_steady || is_none {
            break;
        }
    }
    findings.shared = Layer::ALL.map(|layer| (shared[layer].rate, search.probes[layer as usize]));
    if findings.found.iter().any(|finding| !matches!(finding.cause, Cause::Link(..))) {
        exceptions(search, &mut findings, &shared).await;
    }
    (findings, shared)
}

/// Returns the input for a first guess of what each layer shares. It is the smallest loss that is
/// left without the pairs of one node, one zone pair or one domain, or without one link. In a mesh of
/// three nodes, a bad node is in two pairs of three, and the sum of all pairs would hide it.
pub fn without_the_worst(scope: &NetworkScope<'_>, first: &Weighed) -> [Tally; Layer::ALL.len()] {
    let all = first.all();
    let link = first.links.first().and_then(|link| match link.cause {
        Cause::Link(a, b) => Some(scope.layer_pairs_of(a, b)),
        _ => None,
    });
    Layer::ALL.map(|layer| {
        let all = all[layer as usize].tally();
        let nodes = first.nodes().map(|node| node.sums()[layer as usize]);
        let zones = first.zones.iter().map(|sums| sums[layer as usize]);
        // The first sums are of nodes without a domain.
        let domains = first.domains.iter().skip(1).flat_map(|sums| [&sums.outside, &sums.inside]);
        let sums = nodes.chain(zones).chain(domains.map(|sums| sums[layer as usize]));
        let link = link.iter().filter_map(|pairs| sum_of_layers(pairs, layer.bit())).map(|pair| pair.both());
        let parts = sums.map(|sum| sum.tally()).chain(link);
        let measured = parts.map(|part| all.without(part)).filter(|rest| rest.probes > 0);
        measured.fold(all, |least, rest| if calm(rest) < calm(least) { rest } else { least })
    })
}

/// Returns the best cause of what is left, if any is worth its cost.
fn next(of: &Candidates<'_>, weighed: &Weighed, is_banned: &dyn Fn(Cause) -> bool) -> Option<Finding> {
    let (scope, costs) = (of.search.scope, of.search.costs);
    let of_zones = of.zones(weighed).chain(domain_causes::candidates(&weighed.domains, of));
    let of_zones = of_zones.filter(|finding| !is_banned(finding.cause));
    let partition = of.wide(Cause::Partition, &weighed.partition);
    let partition = partition.filter(|finding| finding.rate >= PARTITION_LOSS);
    let link = weighed.links.first().and_then(|link| {
        let nats = link.score - costs.link;
        (nats > 0.0).then_some(Finding { score: nats, ..*link })
    });
    // The first wins a tie: nodes before zones before domains before groups before links.
    let better = |best: Finding, next: Finding| if next.score > best.score { next } else { best };
    let wide = of_zones.chain(partition).chain(link).reduce(better);
    let mut least = wide.map_or(0.0, |wide| wide.score);
    let nodes = weighed.nodes().zip(scope.matrix.numbers()).filter_map(|(weighed, node)| {
        let by_reports = |layers| weighed.by_reports(layers, costs.link);
        let finding = of.best(Cause::Node(node), &weighed.sums(), least, &by_reports)?;
        least = least.max(finding.score);
        Some(finding)
    });
    nodes.chain(wide).reduce(better)
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
    /// explain far more, and each of these some more. `most` returns what a choice is worth at most,
    /// and `make` the cause of a choice with its cost, if it is one.
    pub fn choose(
        &self,
        tallies: &[Tally; Layer::ALL.len()],
        cost: f64,
        most: impl Fn(u8) -> f64,
        make: impl Fn(u8, u8, f64) -> Option<Finding>,
    ) -> Option<Finding> {
        let (all, price) = (self.search.scope.layers, self.search.costs.layers);
        let rank = |layers: u8, nats: f64| match layers {
            layers if layers == all => nats,
            layers => nats - APART + price - LAYER * f64::from(layers.count_ones()),
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
        most_pairs(sums) >= 2 && Layer::of_set(finding.layers).any(are_fewer)
    }

    /// Returns what a part of a cause would be worth as one of its own, in nats.
    pub fn worth(&self, sums: &LayerSums, finding: &Finding, cost: f64) -> f64 {
        (self.shared.weigh(sums, finding.layers).worth().0 - cost).max(0.0)
    }

    /// Returns a zone, domain or partition as a cause, if it is worth its cost.
    pub fn wide(&self, cause: Cause, sums: &LayerSums) -> Option<Finding> {
        self.best(cause, sums, 0.0, &|_| None)
    }

    /// Returns a node or a wider cause of what it explains best: all layers, or some. `None` if none
    /// of them is worth its cost. What is certainly worth less than `least` is not looked at.
    fn best(
        &self,
        cause: Cause,
        sums: &LayerSums,
        least: f64,
        by_reports: &dyn Fn(u8) -> Option<bool>,
    ) -> Option<Finding> {
        let (matrix, shared, cost) = (self.search.scope.matrix, self.shared, self.search.costs.cost(cause));
        let of = |sum: &Sum, rate: f64| gain(sum.lost, sum.probes, rate).max(sum.apart.into());
        let nats = Layer::ALL.map(|layer| of(&sums[layer as usize], shared[layer].rate));
        let most = |layers| Layer::of_set(layers).map(|layer| nats[layer as usize]).sum::<f64>() - cost;
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

    /// Returns zones and zone pairs that are worth their cost. Nodes without a zone have nothing in
    /// common.
    fn zones<'a>(&'a self, weighed: &'a Weighed) -> impl Iterator<Item = Finding> + 'a {
        let count = u8::try_from(self.search.scope.matrix.zone_count()).unwrap_or(u8::MAX);
        let known = ZONE_UNKNOWN + 1..count;
        let pairs = known.clone().flat_map(|high| (ZONE_UNKNOWN + 1..=high).map(move |low| (low, high)));
        let pairs = pairs.filter_map(move |(low, high)| {
            let sums = &weighed.zones[zone_place(low, high)];
            self.wide(Cause::Zones(low, high), sums).filter(|finding| self.are_some(sums, finding))
        });
        let zones = known.flat_map(|zone| [(zone, false), (zone, true)]).filter_map(move |(zone, inside)| {
            let parts = || {
                let others = (0..count).filter(move |other| inside || *other != zone);
                others.map(move |other| &weighed.zones[zone_place(zone, other)]).filter(|part| most_pairs(part) > 0)
            };
            let mut sums = LayerSums::default();
            parts().for_each(|part| add(&mut sums, part));
            let finding = self.wide(Cause::Zone(zone, inside), &sums)?;
            let below = parts().map(|part| self.worth(part, &finding, self.search.costs.zones)).sum();
            // If only one zone pair is involved, the cause is that pair. Zone pairs that lose at
            // different rates are separate causes.
            (parts().count() >= 2 && self.are_some(&sums, &finding) && finding.score > below).then_some(finding)
        });
        pairs.chain(zones)
    }
}

/// Removes each cause that is not worth its cost beside all others, the weakest first. Returns the
/// sums of pairs that no cause touches, by layer.
async fn prune(
    search: &Search<'_, '_>,
    findings: &mut Findings,
    shared: &SharedLosses,
) -> [UntouchedSums; Layer::ALL.len()] {
    let scope = search.scope;
    loop {
        let mut sums = vec![LayerSums::default(); findings.found.len()];
        let mut rest = [UntouchedSums::default(); Layer::ALL.len()];
        scope
            .each_pair_by_layer(|pairs| {
                for pair in pairs {
                    let layer = pair.layer();
                    let mut touching = findings.touching_pair(scope, pair).map(|(index, _)| index);
                    match (touching.next(), touching.next()) {
                        (None, _) => {
                            shared[layer].add(&mut rest[layer as usize], pair);
                        }
                        (Some(only), None) => {
                            let share = PairShare::new(&shared[layer], pair);
                            sums[only][layer as usize].add(&Sum::from_share(&share, 0.0));
                        }
                        // Touched by more than one cause: no evidence for any of them.
                        _ => {}
                    }
                }
            })
            .await;
        for (finding, sums) in findings.found.iter_mut().zip(&sums) {
            let weight = shared.weigh(sums, finding.layers);
            let (worth, is_uneven) = weight.worth();
            finding.score = worth - search.costs.cost_of(finding, scope.layers);
            (finding.rate, finding.is_uneven) = (weight.sum.rate(), is_uneven);
            finding.rates = shared.rates(weight.excess);
            if let Cause::Node(node) = finding.cause
                && scope.matrix.get(node).presence == RowPresence::Missing
            {
                finding.score += SILENT_AGENT_BONUS;
            }
        }
        let weakest = (0..findings.found.len()).min_by(|a, b| {
            let nats = |index: usize| findings.found[index].score;
            nats(*a).total_cmp(&nats(*b))
        });
        match weakest.filter(|index| findings.found[*index].score <= 0.0) {
            Some(index) => findings.found.remove(index),
            None => return rest,
        };
    }
}

/// Adds single links that lose far more than their node or zones explain. If there are many, the
/// cause itself is uneven, and none is added.
async fn exceptions(search: &Search<'_, '_>, findings: &mut Findings, shared: &SharedLosses) {
    let (scope, costs) = (search.scope, search.costs);
    let mut exceptions: Vec<(usize, Finding)> = Vec::new();
    let mut pairs_of = vec![(0_u32, 0_u32); findings.found.len()];
    scope
        .each_pair_by_layer(|pairs| {
            let mut causes = [None; Layer::ALL.len()];
            for (cause, pair) in causes.iter_mut().zip(pairs) {
                let mut touching = findings.touching_pair(scope, pair).map(|(index, _)| index);
                *cause = touching.next().filter(|_| touching.next().is_none());
            }
            for (place, cause) in causes.iter().enumerate() {
                let Some(index) = cause.filter(|_| !causes[..place].contains(cause)) else { continue };
                let of = &findings.found[index];
                let its = || pairs.iter().zip(&causes).filter(|(_, of)| **of == Some(index)).map(|(pair, _)| pair);
                let layers = its().fold(0, |layers, pair| layers | pair.layers);
                let Some(pair) = sum_of_layers(pairs, layers) else { continue };
                let by_reporter =
                    one_sided(&pair, costs.link).is_some_and(|reporter| of.cause == Cause::Node(reporter));
                if matches!(of.cause, Cause::Link(..)) || by_reporter || of.is_by_reports {
                    continue;
                }
                pairs_of[index].0 += 1;
                let both = pair.both();
                let expected = its().map(|pair| f64::from(pair.both().probes) * shared[pair.layer()].rate).sum::<f64>()
                    / f64::from(both.probes.max(1));
                let explained: f64 = its().map(|pair| shared[pair.layer()].explains(pair)).sum();
                let nats = gain(both.lost, both.probes, of.rate.max(expected)) - explained - costs.link;
                if nats > 0.0 {
                    pairs_of[index].1 += 1;
                    if exceptions.len() < CAUSES_MAX {
                        let (_, excess) = shared.gain(layers, |layer| {
                            sum_of_layers(pairs, layer.bit()).map(|pair| pair.both()).unwrap_or_default()
                        });
                        let link = Finding {
                            cause: Cause::Link(pair.a, pair.b),
                            score: nats,
                            rate: both.rate(),
                            rates: shared.rates(excess),
                            is_uneven: false,
                            ..*of
                        };
                        exceptions.push((index, link));
                    }
                }
            }
        })
        .await;
    let few = |index: usize| pairs_of[index].1 <= (pairs_of[index].0 / 6).max(1) && pairs_of[index].0 > 2;
    findings.found.extend(exceptions.into_iter().filter(|(index, _)| few(*index)).map(|(_, finding)| finding));
}
