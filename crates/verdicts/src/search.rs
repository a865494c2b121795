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

use super::candidates::{Candidates, Costs, SILENT_AGENT_BONUS, Search, add, most_pairs};
use super::causes::{CAUSES_MAX, Cause, Finding, Findings};
use super::domain_causes;
use super::pairs::{NetworkScope, Pair, sum_of_layers, zone_place};
use super::score::{LayerSums, Sum, gain, is_far};
use super::shared::{CALM, Hypothesis, SharedLoss, SharedLosses, UntouchedSums, calm};
use super::tally::Tally;
use super::weigh::{PairShare, Weighed, one_sided, weigh};
use crate::matrix::{Layer, RowPresence, ZONE_UNKNOWN};

/// Nats that a cause must explain beyond the logarithm of the number of candidates. For each kind
/// of cause, chance alone is then named in at most one of e^9 = 8,100 meshes.
const CERTAINTY: f64 = 9.0;
/// Additional cost of zones and groups: if a zone and a node explain the same losses, the node
/// is the simpler cause.
const ZONE_EXTRA: f64 = 3.0;
/// How often the search restarts with the shared rate it has learnt.
const ROUNDS: usize = 4;
/// A partition loses at least this share of the probes between its groups.
const PARTITION_LOSS: f64 = 0.9;
/// Nats by which two rates must explain the ends of a single link better than one, once the link is
/// known to be bad.
pub const ONE_SIDED: f64 = CERTAINTY;

/// Returns the costs for this mesh.
pub fn costs(scope: &NetworkScope<'_>, first: &Weighed) -> Costs {
    let logarithm = |candidates: usize| (candidates.max(1) as f64).ln();
    let is_measured = |sums: &LayerSums| sums.iter().any(|sum| sum.pairs > 0);
    let nodes = first.nodes().filter(|node| is_measured(&node.sums())).count();
    let zones = first.zones.iter().filter(|sums| is_measured(sums)).count();
    // A zone is a candidate with and without its inner links.
    let zone = CERTAINTY + logarithm(2 * scope.matrix.zone_count()) + ZONE_EXTRA;
    let domains = domain_causes::candidate_count(&first.domains);
    Costs {
        node: CERTAINTY + logarithm(nodes),
        zones: CERTAINTY + logarithm(zones) + ZONE_EXTRA,
        zone,
        // If a zone and a domain explain the same, the zone is named.
        domain: (CERTAINTY + logarithm(domains) + ZONE_EXTRA).max(zone),
        // Each node is in one of two groups.
        partition: CERTAINTY + nodes as f64 * std::f64::consts::LN_2 + ZONE_EXTRA,
        link: CERTAINTY + logarithm(most_pairs(&first.all()) as usize),
        layers: logarithm(1 + scope.layers.count_ones() as usize),
    }
}

/// Returns the sums without any cause.
pub async fn first(scope: &NetworkScope<'_>) -> Weighed {
    let shared = SharedLoss { of: Hypothesis::Calm, rate: CALM.1, path_share: 0.0, path_rate: None };
    let search = Search { scope, costs: &Costs::all(CERTAINTY), groups: &Rc::default(), pairs: [0; 4], probes: [0; 4] };
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
/// left without the pairs of one node, one zone pair or one domain, or without one link. In a mesh
/// of three nodes, a bad node is in two pairs of three, and the sum of all pairs would hide it.
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
                if matches!(of.cause, Cause::Link(..)) || of.is_by_reports {
                    continue;
                }
                let its = || pairs.iter().zip(&causes).filter(|(_, of)| **of == Some(index)).map(|(pair, _)| pair);
                // It may lose more than the others by some layers alone. The share that TCP loses
                // tells nothing, because a lost handshake is repeated.
                let tells = |pair: &&Pair| pair.layer() != Layer::Tcp;
                let is_worse = |pair: &&Pair| is_far(pair.both().rate(), of.rates[pair.layer() as usize]);
                let all = Layer::set(its().map(Pair::layer));
                let worse = Layer::set(its().filter(tells).filter(is_worse).map(Pair::layer));
                let layers = if worse == 0 || worse == all & !Layer::Tcp.bit() { all } else { worse };
                let its = || its().filter(|pair| pair.layers & layers != 0);
                let Some(pair) = sum_of_layers(pairs, layers) else { continue };
                let by_reporter =
                    one_sided(&pair, costs.link).is_some_and(|reporter| of.cause == Cause::Node(reporter));
                if by_reporter {
                    continue;
                }
                pairs_of[index].0 += 1;
                let both = pair.both();
                let expected = its().map(|pair| f64::from(pair.both().probes) * shared[pair.layer()].rate).sum::<f64>()
                    / f64::from(both.probes.max(1));
                let explained: f64 = its().map(|pair| shared[pair.layer()].explains(pair)).sum();
                let link = Cause::Link(pair.a, pair.b);
                let cost = costs.cost_of(&Finding { cause: link, layers, ..*of }, scope.layers);
                let nats = gain(both.lost, both.probes, of.rate.max(expected)) - explained - cost;
                if nats > 0.0 {
                    pairs_of[index].1 += 1;
                    if exceptions.len() < CAUSES_MAX {
                        let (_, excess) = shared.gain(layers, |layer| {
                            sum_of_layers(pairs, layer.bit()).map(|pair| pair.both()).unwrap_or_default()
                        });
                        let link = Finding {
                            cause: link,
                            layers,
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
    for (_, link) in exceptions.into_iter().filter(|(index, _)| few(*index)) {
        // What the link loses by other layers may be a cause already.
        match findings.found.iter_mut().find(|finding| finding.cause == link.cause) {
            Some(known) => known.layers |= link.layers,
            None => findings.found.push(link),
        }
    }
}
