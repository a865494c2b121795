//! The explanation of losses: a rate that all links share, and the fewest causes beyond it.
//!
//! A link passes a probe if each cause that touches the link passes it. Three hypotheses about what
//! all links share compete ([`Hypothesis`]): next to nothing, one rate, or one rate and a bad path.
//! For each hypothesis, the search finds the causes of the remaining losses ([`search::explain`]).
//! The explanation with the highest likelihood minus its cost is kept. So a node is never
//! named for a rate that all links share, only for what it loses beyond that rate.

use std::collections::BTreeSet;
use std::iter;

use super::candidates::{Candidates, Search};
use super::causes::{Cause, Finding, Findings, is_zone_or_domain};
use super::groups;
use super::pairs::{NetworkScope, Pair, sum_of_layers};
use super::score::{NodeSum, is_far, is_spread, likelihood};
use super::search;
use super::shared::{CALM, Hypothesis, OWN_RATE, Rates, SharedLoss, SharedLosses, UntouchedSums};
use super::tally::Tally;
use crate::matrix::{JUDGED_BYTES_PER_NODE, JUDGED_BYTES_PER_NODE_AND_LAYER, Layer, ZONE_UNKNOWN};

/// Cost in nats of a shared rate above the calm one. It is less than the cost of a node, by the
/// nats that a node must explain beyond a shared rate. With three nodes these are 3.5 nats. Chance
/// causes that in one of 70 meshes, because each node is a candidate.
const MESH_COST: f64 = 6.6;
/// Nats by which a shared rate must explain more than causes do before it is named. The first
/// losses of a bad node of three are on most links, too.
const MESH_LEAD: f64 = 3.0;
/// From this number of pairs on, there is only one search. It starts from the rate of what is left
/// without the worst candidate. This rate is not below the one that all links share: the chance
/// losses of one candidate are a small part of this many pairs.
const MANY_PAIRS: u32 = 4_000;
/// Cost in nats of a bad path, beyond the cost of its cells.
const PATHS_COST: f64 = 12.0;
/// Smallest number of links on a bad path, and their smallest share. One of eight paths has a
/// quarter of all links, if requests and replies take different paths.
const PATH_LINKS_MIN: u32 = 5;
const PATH_SHARE_MIN: f64 = 0.04;
/// The largest share of these links that one node may have. With more, the node is the cause.
const PATH_LINKS_OF_NODE: f64 = 0.5;
/// Largest number of causes that are zones or domains for which an explanation
/// without them is tried.
const ZONE_TRIALS_MAX: usize = 4;

// The 24 further bytes are: what is left of a row in a walk, whether it is evidence, its zone,
// group and domain, and which of its peers probe it.
const _: () = assert!(size_of::<NodeSum>() <= JUDGED_BYTES_PER_NODE_AND_LAYER && 24 <= JUDGED_BYTES_PER_NODE);

/// An explanation, and its credit in nats.
struct Explanation {
    findings: Findings,
    shared: SharedLosses,
    credit: f64,
}

/// Finds the causes of what the layers of a scope lose. Takes 40 bytes per node and layer, and 40
/// per zone pair and 72 per domain. Walks over all cells for each cause of each hypothesis.
pub async fn search(scope: &NetworkScope<'_>) -> Findings {
    let first = search::first(scope).await;
    let whole = first.all();
    if whole.iter().all(|sum| sum.lost == 0) {
        return Findings::default();
    }
    let costs = search::costs(scope, &first);
    let all = whole.map(|sum| sum.tally());
    let [pairs, probes] = [whole.map(|sum| sum.pairs), whole.map(|sum| sum.probes)];
    let least = search::without_the_worst(scope, &first);
    // If all links have a node in common, that node and the mesh cannot be distinguished.
    let is_star = first.nodes().any(|node| node.sums().map(|sum| sum.pairs) == pairs);
    drop(first);
    let groups = groups::find(scope).await;
    let search = Search { scope, costs: &costs, groups: &groups, pairs, probes };
    let with = async |of: Hypothesis, lost: &[Tally; Layer::ALL.len()]| {
        explanation(&search, SharedLosses::new(of, lost)).await
    };
    let (mut best, calm_credit) = if is_star || all.iter().all(|all| all.rate() <= CALM.1) {
        let calm = with(Hypothesis::Calm, &least).await;
        let credit = calm.credit;
        (calm, credit)
    } else {
        // The search runs from two rates. The rate without the worst candidate finds the causes; it
        // may be too low if there are none. The rate of all links shows that there are no causes;
        // it is too high if there are some.
        let alike = with(Hypothesis::Alike, &least).await;
        if pairs.into_iter().max().unwrap_or_default() >= MANY_PAIRS {
            (alike, f64::NEG_INFINITY)
        } else {
            let calm = with(Hypothesis::Calm, &least).await;
            let credit = calm.credit;
            (better(calm, better(with(Hypothesis::Alike, &all).await, alike)), credit)
        }
    };
    let mut rest_of_paths = None;
    let mut layers = if is_star { 0 } else { layers_of_paths(&search, &best).await };
    while layers != 0 {
        let shared = SharedLosses::new(Hypothesis::Alike, &least).with_paths(layers, &least);
        let paths = explanation(&search, shared).await;
        let (rest, links) = rest(scope, &paths.findings, &paths.shared).await;
        let is_path = |layer: &Layer| is_path(&rest[*layer as usize], &links[*layer as usize]);
        let left = Layer::set(Layer::in_set(layers).filter(is_path));
        if left == layers {
            best = better(best, paths);
            rest_of_paths = Some(rest);
            break;
        }
        layers = left;
    }
    let Explanation { mut findings, shared, credit } = best;
    if !shared.is_lossy() && shared.paths() == 0 {
        return findings;
    }
    let known = rest_of_paths.filter(|_| shared.paths() != 0);
    let rest = match known {
        Some(rest) => rest,
        None => rest(scope, &findings, &shared).await.0,
    };
    let is_clear = shared.paths() != 0 || credit > calm_credit + MESH_LEAD;
    let mut left = if is_clear { scope.layers } else { 0 };
    while let Some(mesh) = mesh(&search, &shared, &rest, left) {
        left &= !mesh.layers;
        findings.found.push(mesh);
    }
    let layers = shared.paths();
    if layers != 0 {
        let on_path = rest.map(|rest| rest.on_path());
        let (nats, excess) = shared.gain(layers, |layer| on_path[layer as usize]);
        let both: Tally = Layer::in_set(layers).map(|layer| on_path[layer as usize]).sum();
        findings.found.push(Finding {
            cause: Cause::Paths,
            // A link has too few handshakes to tell.
            layers: if layers | Layer::Tcp.bit() == scope.layers { scope.layers } else { layers },
            score: nats - PATHS_COST,
            rate: both.rate(),
            rates: shared.rates(excess),
            is_uneven: true,
            is_by_reports: false,
        });
    }
    findings
}

/// Returns the whole mesh as a cause of what these layers share, or some of them, if that is worth
/// its cost.
fn mesh(
    search: &Search<'_, '_>,
    shared: &SharedLosses,
    rest: &[UntouchedSums; Layer::ALL.len()],
    left: u8,
) -> Option<Finding> {
    let calm = SharedLosses(shared.0.map(|shared| SharedLoss { rate: CALM.1, ..shared }));
    let is_left = |layer: Layer| left & layer.bit() != 0;
    let even = Layer::ALL.map(|layer| if is_left(layer) { rest[layer as usize].even } else { Tally::default() });
    let of = Candidates { search, shared: &calm, taken: search.scope.layers & !left };
    let nats = |layers| calm.gain(layers, |layer| even[layer as usize]).0 - MESH_COST;
    let most = |layers| Layer::in_set(layers).map(|layer| nats(layer.bit()) + MESH_COST).sum();
    of.choose(&even, MESH_COST, most, |layers, touched, choice| {
        let both: Tally = Layer::in_set(layers).map(|layer| even[layer as usize]).sum();
        let pairs = Layer::in_set(layers).map(|layer| rest[layer as usize].pairs);
        let pairs = pairs.fold([0; 2], |sum, pairs| [sum[0] + pairs[0], sum[1] + pairs[1]]);
        let lost = Layer::in_set(layers).map(|layer| f64::from(even[layer as usize].probes) * shared[layer].rate);
        let rate = lost.sum::<f64>() / f64::from(both.probes.max(1));
        let score = nats(layers) - choice;
        (rate > CALM.1 && score > 0.0 && is_spread(both, pairs)).then(|| Finding {
            cause: Cause::Mesh,
            layers: touched,
            score,
            rate,
            rates: shared.rates(0.0),
            is_uneven: false,
            is_by_reports: false,
        })
    })
}

fn better(one: Explanation, other: Explanation) -> Explanation {
    if other.credit > one.credit { other } else { one }
}

/// Returns the best explanation under a hypothesis.
///
/// Two bad nodes of six, or of a zone or domain, are in most pairs. One wide cause explains them
/// passably and is found first, though the two nodes explain more. So an explanation with zones or
/// domains is compared with those without one of them, and the best of these with one without any.
async fn explanation(search: &Search<'_, '_>, shared: SharedLosses) -> Explanation {
    let mut banned: Vec<Cause> = Vec::new();
    let explain = async |shared: SharedLosses, is_banned: &dyn Fn(Cause) -> bool| {
        let (findings, shared) = search::explain(search, shared, is_banned).await;
        let credit = credit(search, &findings, &shared).await;
        Explanation { findings, shared, credit }
    };
    let mut best = explain(shared, &|_| false).await;
    // Each trial begins with the shared rate found so far. A domain that is taken early and dropped
    // later can mislead the search. Domains that stay are tried below.
    let is_domain = |cause: Cause| matches!(cause, Cause::Domain(..));
    let found = &best.findings.found;
    let may_be_astray = !found.is_empty() && !found.iter().any(|finding| is_domain(finding.cause));
    if may_be_astray && !search.scope.matrix.domains().is_empty() {
        let other = explain(best.shared, &is_domain).await;
        best = better(best, other);
    }
    let mut tried = 0;
    while tried < ZONE_TRIALS_MAX
        && let Some(zones) =
            best.findings.found.iter().map(|finding| finding.cause).filter(|cause| is_zone_or_domain(*cause)).nth(tried)
    {
        tried += 1;
        banned.push(zones);
        let other = explain(best.shared, &|cause| banned.contains(&cause)).await;
        if other.credit > best.credit {
            (best, tried) = (other, tried - 1);
        } else {
            banned.pop();
        }
    }
    if best.findings.found.iter().any(|finding| is_zone_or_domain(finding.cause)) {
        let other = explain(best.shared, &is_zone_or_domain).await;
        best = better(best, other);
    }
    name_pairs_of_zones(search.scope, &mut best.findings.found).await;
    best
}

/// Largest number of pairs of zones that are named each by itself: those of four zones.
const ZONE_PAIRS_MAX: usize = 6;

/// Names the pairs of zones, and no zone, if all of them lose alike. A zone costs less than its
/// pairs, but which of the zones is named would be left to chance, and each judge would name
/// another.
async fn name_pairs_of_zones(scope: &NetworkScope<'_>, found: &mut Vec<Finding>) {
    let is_apart = |cause: Cause| matches!(cause, Cause::Zones(a, b) if a != b);
    let is_of_zone = |finding: &Finding| matches!(finding.cause, Cause::Zone(_, false));
    let of: Vec<Finding> = found.iter().filter(|of| is_of_zone(of) || is_apart(of.cause)).copied().collect();
    let Some(zone) = of.iter().copied().find(is_of_zone).filter(|_| of.len() > 1) else { return };
    let is_alike = |other: &Finding| {
        other.layers == zone.layers && !is_far(other.rate, zone.rate) && !is_far(zone.rate, other.rate)
    };
    if !of.iter().all(is_alike) {
        return;
    }
    let mut pairs = BTreeSet::new();
    scope
        .each_pair(|pair| {
            let [a, b] = [pair.a, pair.b].map(|node| scope.matrix.get(node).zone);
            if a != b {
                pairs.insert((a.min(b), a.max(b)));
            }
        })
        .await;
    let is_named = |(low, high): &(u8, u8)| {
        of.iter().any(|finding| match finding.cause {
            Cause::Zone(zone, _) => zone == *low || zone == *high,
            cause => cause == Cause::Zones(*low, *high),
        })
    };
    // Nodes without a zone are in no pair.
    let has_unknown = pairs.iter().any(|(low, _)| *low == ZONE_UNKNOWN);
    if pairs.len() > ZONE_PAIRS_MAX || has_unknown || !pairs.iter().all(is_named) {
        return;
    }
    found.retain(|finding| !is_of_zone(finding));
    for (low, high) in pairs {
        let mut pair = zone;
        pair.cause = Cause::Zones(low, high);
        if !found.iter().any(|finding| finding.cause == pair.cause) {
            found.push(pair);
        }
    }
}

/// Returns how well an explanation explains all losses, minus the cost of its causes.
async fn credit(search: &Search<'_, '_>, findings: &Findings, shared: &SharedLosses) -> f64 {
    let layers = search.scope.layers;
    let mut credit: f64 = findings.found.iter().map(|finding| -search.costs.cost_of(finding, layers)).sum();
    credit -= if shared.is_lossy() { MESH_COST } else { 0.0 };
    credit -= if shared.paths() == 0 { 0.0 } else { PATHS_COST };
    let found = beside_paths(search, findings, shared).await;
    search
        .scope
        .each_pair_by_layer(|pairs| {
            for pair in pairs {
                let shared = &shared[pair.layer()];
                let mut touching =
                    findings.touching_pair(search.scope, pair).map(|(place, _)| &found[place]).peekable();
                credit += if touching.peek().is_some() {
                    likelihood_below(touching, shared, pair)
                } else {
                    shared.likelihood(pair)
                };
            }
        })
        .await;
    credit
}

/// Returns the causes with what they lose where no path is bad: the median loss of their cells, as
/// most of these are on none. The mean over all would fit neither the ones nor the others.
async fn beside_paths(search: &Search<'_, '_>, findings: &Findings, shared: &SharedLosses) -> Vec<Finding> {
    let mut found = findings.found.clone();
    for layer in Layer::in_set(shared.paths()) {
        let shared = &shared[layer];
        let mut rates = vec![Rates::default(); found.len()];
        each_cell_of_one(search.scope, findings, layer, |place, cell| rates[place].add(cell)).await;
        for (finding, rates) in found.iter_mut().zip(rates) {
            let rate = &mut finding.rates[layer as usize];
            *rate = rates.median().unwrap_or(*rate);
        }
        let mut even = vec![Tally::default(); found.len()];
        each_cell_of_one(search.scope, findings, layer, |place, cell| {
            let at = |rate: f64| likelihood(cell.lost, cell.probes, rate);
            if at(found[place].rates[layer as usize]) >= if_on_path(shared, cell) {
                even[place] = even[place].plus(cell);
            }
        })
        .await;
        for (finding, even) in found.iter_mut().zip(even).filter(|(_, even)| even.probes > 0) {
            finding.rates[layer as usize] = even.rate();
        }
    }
    found
}

/// Returns the log-likelihood of a cell's or a pair's losses at a rate of its own, that of a path.
fn if_on_path(shared: &SharedLoss, tally: Tally) -> f64 {
    if shared.may_be_on_path(tally) {
        likelihood(tally.lost, tally.probes, tally.rate()) - shared.path_cost()
    } else {
        f64::NEG_INFINITY
    }
}

/// Calls `visit` with each cell of a layer that one cause alone touches, and the place of that
/// cause.
async fn each_cell_of_one(
    scope: &NetworkScope<'_>,
    findings: &Findings,
    layer: Layer,
    mut visit: impl FnMut(usize, Tally),
) {
    scope
        .each_pair_by_layer(|pairs| {
            let Some(pair) = sum_of_layers(pairs, layer.bit()) else { return };
            let mut touching = findings.touching_pair(scope, &pair);
            if let (Some((place, _)), None) = (touching.next(), touching.next()) {
                [pair.there, pair.back].into_iter().filter(|cell| cell.probes > 0).for_each(|cell| visit(place, cell));
            }
        })
        .await;
}

/// Returns the log-likelihood of a pair's losses if these causes touch the pair.
fn likelihood_below<'f>(causes: impl Iterator<Item = &'f Finding>, shared: &SharedLoss, pair: &Pair) -> f64 {
    let both = pair.both();
    let (mut passes, mut may_be_own) = (1.0 - shared.rate, false);
    for finding in causes {
        may_be_own |= finding.is_uneven || matches!(finding.cause, Cause::Link(..));
        // The measured rates include the shared loss.
        passes *= (1.0 - finding.rates[pair.layer() as usize]).max(0.0) / (1.0 - shared.rate).max(1e-3);
    }
    let rate = (1.0 - passes).max(shared.rate);
    let alike = |tally: Tally| likelihood(tally.lost, tally.probes, rate).max(if_on_path(shared, tally));
    let own = || likelihood(both.lost, both.probes, both.rate()) - OWN_RATE;
    let (whole, each) = (alike(both), alike(pair.there) + alike(pair.back));
    whole.max(each).max(if may_be_own { own() } else { whole }) + shared.off_path(pair)
}

/// Returns the sums of pairs that no cause touches, and the number of links on a bad path per node,
/// both by layer.
async fn rest(
    scope: &NetworkScope<'_>,
    findings: &Findings,
    shared: &SharedLosses,
) -> ([UntouchedSums; Layer::ALL.len()], [Vec<u32>; Layer::ALL.len()]) {
    let mut rest = [UntouchedSums::default(); Layer::ALL.len()];
    let mut links = Layer::ALL.map(|layer| {
        let has_path = shared.paths() & layer.bit() != 0;
        vec![0; if has_path { scope.matrix.node_count() } else { 0 }]
    });
    scope
        .each_pair_by_layer(|pairs| {
            for pair in pairs.iter().filter(|pair| !findings.explain(scope, pair)) {
                let layer = pair.layer();
                if shared[layer].add(&mut rest[layer as usize], pair) {
                    links[layer as usize][usize::from(pair.a)] += 1;
                    links[layer as usize][usize::from(pair.b)] += 1;
                }
            }
        })
        .await;
    (rest, links)
}

/// Returns the layers of which enough links may be on a bad path. Links of a cause are left out if
/// the cause explains them better than a path does, each at its cost.
async fn layers_of_paths(search: &Search<'_, '_>, best: &Explanation) -> u8 {
    let found = &best.findings.found;
    let if_paths = best.shared.0.map(SharedLoss::with_most_paths);
    let mut links = [0_u32; Layer::ALL.len()];
    let mut of_causes = vec![[(0.0, 0_u32); Layer::ALL.len()]; found.len()];
    search
        .scope
        .each_pair_by_layer(|pairs| {
            for pair in pairs {
                let layer = pair.layer();
                let mut touching = best.findings.touching_pair(search.scope, pair);
                let if_paths = &if_paths[layer as usize];
                let by_path = if_paths.explains(pair);
                let is_on_path = u32::from(by_path > 0.0);
                match (touching.next(), touching.next()) {
                    (Some((place, finding)), None) => {
                        let (nats, of_cause) = &mut of_causes[place][layer as usize];
                        let both = pair.both();
                        let on_path = likelihood(both.lost, both.probes, if_paths.rate) + by_path;
                        *nats += on_path - likelihood_below(iter::once(finding), &best.shared[layer], pair);
                        *of_cause += is_on_path;
                    }
                    _ => links[layer as usize] += is_on_path,
                }
            }
        })
        .await;
    let enough = |layer: &Layer| {
        let of_layer = found.iter().zip(&of_causes).map(|(finding, of)| (finding, of[*layer as usize]));
        let better = of_layer.filter(|(finding, (nats, _))| nats + search.costs.cost(finding.cause) > 0.0);
        links[*layer as usize] + better.map(|(_, (_, links))| links).sum::<u32>() >= PATH_LINKS_MIN
    };
    Layer::set(Layer::in_set(search.scope.layers).filter(enough))
}

/// Whether links on bad paths are many, and are spread over nodes.
fn is_path(rest: &UntouchedSums, of_nodes: &[u32]) -> bool {
    let links = of_nodes.iter().sum::<u32>() / 2;
    let most = of_nodes.iter().copied().max().unwrap_or_default();
    links >= PATH_LINKS_MIN
        && f64::from(most) <= f64::from(links) * PATH_LINKS_OF_NODE
        && f64::from(rest.cells[1]) >= f64::from(rest.cells[0]) * PATH_SHARE_MIN
}
