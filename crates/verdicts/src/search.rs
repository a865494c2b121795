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

use super::causes::{CAUSES_MAX, Cause, Finding, Findings, is_across};
use super::domain_causes;
use super::pairs::{NetworkScope, Pair, zone_place};
use super::score::{NodeSum, Sum, apart, gain};
use super::shared::{CALM, Hypothesis, OWN_RATE, SharedLoss, UntouchedSums, calm};
use super::tally::Tally;
use crate::matrix::{RowPresence, ZONE_UNKNOWN};

/// Nats that a cause must explain beyond the logarithm of the number of candidates. For each kind
/// of cause, chance alone is then named in at most one of e^9 = 8,100 meshes.
const CERTAINTY: f64 = 9.0;
/// Additional cost of zones and groups: if a zone and a node explain the same losses, the node
/// is the simpler cause.
const ZONE_EXTRA: f64 = 3.0;
/// Nats added if a node that all others lose entirely does not send its report either.
const SILENT_AGENT_BONUS: f64 = 3.0;
/// Pairs that must be hit for separate loss rates: three of four, and at least three.
const OWN_RATE_PAIRS_MIN: u32 = 3;
/// Nodes and zones that lose less than this beyond the shared rate are not reported.
const RATE_MIN: f64 = 0.005;
/// How often the search restarts with the shared rate it has learnt.
const ROUNDS: usize = 4;
/// A partition loses at least this share of the probes between its groups.
const PARTITION_LOSS: f64 = 0.9;
/// The ends of a pair contradict each other under two conditions: one loses less than this share of
/// the other's loss, and two rates explain them better than one by the cost of a link.
const SIDES_SHARE: f64 = 0.25;
/// Nats by which two rates must explain the ends of a single link better than one, once the link is
/// known to be bad.
pub const ONE_SIDED: f64 = CERTAINTY;
/// Reporters that must agree against a node that denies the loss. Also the number of one-sided
/// reports from which on the reporter itself is the cause.
const REPORTERS_MIN: u16 = 3;

/// Costs of candidates, in nats.
#[derive(Debug)]
pub struct Costs {
    node: f64,
    zones: f64,
    zone: f64,
    domain: f64,
    partition: f64,
    link: f64,
}

impl Costs {
    /// Returns the costs for this mesh.
    pub fn new(scope: &NetworkScope<'_>, first: &Weighed) -> Self {
        let logarithm = |candidates: usize| (candidates.max(1) as f64).ln() + scope.extra_cost;
        let nodes = first.nodes.iter().filter(|node| node.sum.pairs > 0).count();
        let zones = first.zones.iter().filter(|sum| sum.pairs > 0).count();
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
            partition: CERTAINTY + nodes as f64 * std::f64::consts::LN_2 + ZONE_EXTRA + scope.extra_cost,
            link: CERTAINTY + logarithm(first.all().pairs as usize),
        }
    }

    const fn none() -> Self {
        let [node, zones, zone, domain, partition, link] = [CERTAINTY; 6];
        Self { node, zones, zone, domain, partition, link }
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
    /// Number of pairs that were measured.
    pub pairs: u32,
}

/// Sums of all pairs that no cause touches yet.
pub struct Weighed {
    /// Sums of the pairs of each node.
    pub nodes: Vec<NodeSum>,
    zones: Vec<Sum>,
    /// Sums by failure domain; empty if there are none.
    pub domains: Vec<domain_causes::DomainSums>,
    partition: Sum,
    /// The best links, in descending order.
    links: Vec<(f64, Pair)>,
    /// Whether there were more links than are kept.
    are_more_links: bool,
}

/// Returns the sums without any cause.
pub async fn first(scope: &NetworkScope<'_>) -> Weighed {
    let shared = SharedLoss { of: Hypothesis::Calm, rate: CALM.1, path_share: 0.0, path_rate: None };
    let search = Search { scope, costs: &Costs::none(), groups: &Rc::default(), pairs: 0 };
    weigh(&search, &Findings::default(), shared).await
}

/// Returns the causes, and what all links share. Causes for which `is_banned` is true are skipped.
pub async fn explain(
    search: &Search<'_, '_>,
    shared: SharedLoss,
    is_banned: &dyn Fn(Cause) -> bool,
) -> (Findings, SharedLoss) {
    let mut shared = shared;
    let domains = Arc::clone(search.scope.matrix.domains());
    let mut findings = Findings { groups: Rc::clone(search.groups), domains, ..Findings::default() };
    for _ in 0..ROUNDS {
        findings.found.clear();
        let mut weighed = weigh(search, &findings, shared).await;
        while findings.found.len() < CAUSES_MAX
            && let Some(next) = next(search, &weighed, shared, is_banned)
        {
            let is_taken_out = weighed.take_out(search, &findings, next.cause, shared);
            findings.found.push(next);
            // The pairs of a node are found by searches in all rows.
            yield_now().await;
            if !is_taken_out {
                drop(weighed);
                weighed = weigh(search, &findings, shared).await;
            }
        }
        drop(weighed);
        let learnt = shared.learnt(&prune(search, &mut findings, shared).await);
        let is_steady = shared.is_near(&learnt);
        // No cause was found, and a higher shared rate leaves less to explain.
        let is_none = findings.found.is_empty() && learnt.rate >= shared.rate;
        shared = learnt;
        if is_steady || is_none {
            break;
        }
    }
    findings.background = shared.rate;
    if findings.found.iter().any(|finding| !matches!(finding.cause, Cause::Link(..))) {
        exceptions(search, &mut findings, shared).await;
    }
    (findings, shared)
}

/// Returns the input for a first guess of the shared rate. It is the smallest loss that is left
/// without the pairs of one node, one zone pair or one domain, or without one link. In a mesh of
/// three nodes, a bad node is in two pairs of three, and the sum of all pairs would hide it.
pub fn without_the_worst(first: &Weighed) -> Tally {
    let all = first.all().tally();
    // The first sums are of nodes without a domain.
    let of_domains = first.domains.iter().skip(1).flat_map(|sums| [&sums.outside, &sums.inside]);
    let sums = first.nodes.iter().map(|node| &node.sum).chain(&first.zones).chain(of_domains);
    let link = first.links.first().map(|(_, pair)| pair.both());
    let measured = sums.map(Sum::tally).chain(link).map(|part| all.without(part)).filter(|rest| rest.probes > 0);
    measured.fold(all, |least, rest| if calm(rest) < calm(least) { rest } else { least })
}

async fn weigh(search: &Search<'_, '_>, findings: &Findings, shared: SharedLoss) -> Weighed {
    let scope = search.scope;
    let nodes = vec![NodeSum::default(); scope.matrix.node_count()];
    let zones = vec![Sum::default(); scope.zone_places()];
    let partition = Sum::default();
    let domains = vec![domain_causes::DomainSums::default(); scope.matrix.domain_count()];
    let links = Vec::new();
    let mut weighed = Weighed { nodes, zones, domains, partition, links, are_more_links: false };
    scope
        .each_pair(|pair| {
            if !findings.explain(scope, pair) {
                let piece = PairShare::new(search, shared, pair);
                weighed.change(search, pair, &piece, Sum::add, NodeSum::add);
                weighed.keep_link(piece.nats, pair);
            }
        })
        .await;
    weighed
}

impl Weighed {
    /// Returns the sum of all pairs: each pair belongs to one zone pair.
    pub fn all(&self) -> Sum {
        let mut all = Sum::default();
        self.zones.iter().for_each(|zones| all.add(zones));
        all
    }

    /// Adds a pair to its sums, or subtracts it.
    fn change(
        &mut self,
        search: &Search<'_, '_>,
        pair: &Pair,
        piece: &PairShare,
        of_all: impl Fn(&mut Sum, &Sum),
        of_node: impl Fn(&mut NodeSum, &NodeSum),
    ) {
        let sum = Sum::from_piece(piece);
        of_all(&mut self.zones[search.scope.zone_place(pair)], &sum);
        domain_causes::change_pair_sums(&mut self.domains, search.scope, pair, |of_domain| of_all(of_domain, &sum));
        if is_across(search.groups, pair.a, pair.b) {
            of_all(&mut self.partition, &sum);
        }
        for node in [pair.a, pair.b] {
            of_node(&mut self.nodes[usize::from(node)], &NodeSum::new(sum, pair, piece.reporter, node));
        }
    }

    /// Keeps the best links, at most as many as the search has causes.
    fn keep_link(&mut self, nats: f64, pair: &Pair) {
        let is_full = self.links.len() == CAUSES_MAX;
        if nats <= 0.0 || is_full && self.links.last().is_some_and(|(worst, _)| nats <= *worst) {
            self.are_more_links |= nats > 0.0;
            return;
        }
        if is_full {
            self.links.pop();
            self.are_more_links = true;
        }
        let place = self.links.partition_point(|(better, _)| *better >= nats);
        self.links.insert(place, (nats, *pair));
    }

    /// Subtracts the pairs that a new cause touches and no earlier cause touches. Returns false if
    /// that needs a walk over all pairs; the caller must then compute all sums again.
    fn take_out(&mut self, search: &Search<'_, '_>, before: &Findings, new: Cause, shared: SharedLoss) -> bool {
        let take = |pair: &Pair| {
            if !before.explain(search.scope, pair) {
                self.change(search, pair, &PairShare::new(search, shared, pair), Sum::take, NodeSum::take);
            }
        };
        match new {
            Cause::Node(node) => search.scope.each_pair_of(node, take),
            Cause::Link(a, b) => search.scope.pair_of(a, b).iter().for_each(take),
            _ => return false,
        }
        self.links.retain(|(_, pair)| !before.touches(search.scope, new, (pair.a, pair.b)));
        !self.links.is_empty() || !self.are_more_links
    }
}

/// Contribution of a pair to its sums.
struct PairShare {
    both: Tally,
    /// Nats that its own loss rate explains beyond what all links share.
    nats: f64,
    /// Nats that the shared explanation gives the pair.
    explained: f64,
    /// Nats of the pair as a bad link.
    as_link: f64,
    /// The end whose report of loss is excluded by the other end's report.
    reporter: Option<u16>,
}

impl PairShare {
    fn new(search: &Search<'_, '_>, shared: SharedLoss, pair: &Pair) -> Self {
        let (both, explained) = (pair.both(), shared.explains(pair));
        let nats = gain(both.lost, both.probes, shared.rate) - explained;
        let reporter = if nats > OWN_RATE { one_sided(pair, search.costs.link) } else { None };
        Self { both, nats, explained, as_link: (nats - search.costs.link).max(0.0), reporter }
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

    /// Returns whether contradicting reports make the node a cause. `None` if such
    /// reports do not decide.
    ///
    /// A node that denies a loss is named if three of four of all its pairs, and at least three,
    /// report it. A node is also named if it alone reports what several others deny. The same holds
    /// if it reports losses of nearly all others that no other node reports.
    fn by_reports(&self, cost: f64) -> Option<bool> {
        let (denied, alone) = (u32::from(self.denied), u32::from(self.alone));
        if denied > 0 && denied * 2 > self.sum.hit && denied >= alone {
            let is_agreed = self.denied >= REPORTERS_MIN && denied * 4 >= self.sum.pairs * 3;
            return if is_agreed { None } else { Some(false) };
        }
        let is_alone = self.alone >= REPORTERS_MIN && alone * 2 > self.sum.hit;
        (is_alone || self.is_only_reporter(cost)).then_some(true)
    }

    /// Whether a node reports losses to three of four of all others, while the others' reports
    /// of it exclude that.
    fn is_only_reporter(&self, cost: f64) -> bool {
        let both = self.sum.tally();
        let is_of_most = u32::from(self.losing_targets) * 4 >= u32::from(self.targets) * 3;
        self.losing_targets >= REPORTERS_MIN && is_of_most && is_excluded(self.own, both.without(self.own), cost)
    }
}

impl Sum {
    /// Returns the contribution of one pair.
    fn from_piece(piece: &PairShare) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "some thousands of nats")]
        let (apart, as_links, explained) =
            ((piece.nats - OWN_RATE) as f32, piece.as_link as f32, piece.explained as f32);
        let is_hit = apart > 0.0;
        Self {
            probes: piece.both.probes,
            lost: piece.both.lost,
            pairs: 1,
            losing: u32::from(piece.both.lost > 0),
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

    /// Returns the worth in nats of a wide cause with these sums, and whether each of its
    /// pairs loses at its own rate. A bad port of four, for example, drops all of some flows
    /// and nothing of others.
    pub fn worth(&self, shared: SharedLoss) -> (f64, bool) {
        let alike = gain(self.lost, self.probes, shared.rate) - f64::from(self.explained);
        let most = self.hit >= OWN_RATE_PAIRS_MIN && self.hit * 4 >= self.pairs * 3;
        if most && self.apart() > alike { (self.apart(), true) } else { (alike, false) }
    }

    /// Returns the worth in nats if each pair loses at its own rate. Those that lose nothing have
    /// their cost, too: otherwise the links that chance puts on a bad path would suffice.
    fn apart(&self) -> f64 {
        f64::from(self.apart) - OWN_RATE * f64::from(self.pairs - self.hit)
    }
}

/// Returns the best cause of what is left, if any is worth its cost.
fn next(
    search: &Search<'_, '_>,
    weighed: &Weighed,
    shared: SharedLoss,
    is_banned: &dyn Fn(Cause) -> bool,
) -> Option<Finding> {
    let (scope, costs) = (search.scope, search.costs);
    let nodes = weighed.nodes.iter().zip(scope.matrix.numbers()).filter_map(|(weighed, node)| {
        let sum = &weighed.sum;
        let silent = scope.matrix.get(node).presence == RowPresence::Missing && sum.lost == sum.probes;
        // A node that only one of several agents reports may be an invention of that agent.
        let pairs_min = if silent && scope.matrix.node_count() <= 2 { 1 } else { 2 };
        let by_reports = weighed.by_reports(costs.link);
        let finding = node_or_wide(search, shared, Cause::Node(node), sum, silent, by_reports);
        finding.filter(|_| sum.pairs >= pairs_min)
    });
    let (cost, is_wide) = (|cause| costs.cost(cause), |cause, sum: &Sum| wide(search, shared, cause, sum));
    let of_domains = domain_causes::candidates(&weighed.domains, shared, search.pairs, cost, is_wide);
    let of_zones = zone_candidates(search, weighed, shared).chain(of_domains);
    let of_zones = of_zones.filter(|finding| !is_banned(finding.cause));
    let partition =
        wide(search, shared, Cause::Partition, &weighed.partition).filter(|finding| finding.rate >= PARTITION_LOSS);
    let link = weighed.links.first().and_then(|(gain, pair)| {
        let (cause, nats) = (Cause::Link(pair.a, pair.b), gain - costs.link);
        (nats > 0.0).then(|| Finding::alike(cause, nats, pair.both().rate()))
    });
    // The first wins a tie: nodes before zones before domains before groups before links.
    let all = nodes.chain(of_zones).chain(partition).chain(link);
    all.reduce(|best, next| if next.score > best.score { next } else { best })
}

/// Returns a zone, domain or partition as a cause, if it is worth its cost.
fn wide(search: &Search<'_, '_>, shared: SharedLoss, cause: Cause, sum: &Sum) -> Option<Finding> {
    node_or_wide(search, shared, cause, sum, false, None)
}

/// Returns a node or a wider cause, if it is worth its cost.
fn node_or_wide(
    search: &Search<'_, '_>,
    shared: SharedLoss,
    cause: Cause,
    sum: &Sum,
    silent: bool,
    by_reports: Option<bool>,
) -> Option<Finding> {
    let (worth, is_uneven) = sum.worth(shared);
    let nats = worth - search.costs.cost(cause) + if silent { SILENT_AGENT_BONUS } else { 0.0 };
    let is_worth = nats > 0.0 && sum.rate() >= shared.rate + RATE_MIN;
    let is_wide = || sum.is_spread() && (silent || nats > sum.as_links.into());
    (is_worth && by_reports.unwrap_or_else(is_wide)).then(|| Finding {
        cause,
        score: nats,
        rate: sum.rate(),
        is_uneven,
        is_by_reports: by_reports == Some(true),
    })
}

/// Returns zones and zone pairs that are worth their cost. Nodes without a zone have nothing in
/// common, and a cause that touches all pairs is the mesh.
fn zone_candidates<'a>(
    search: &'a Search<'_, '_>,
    weighed: &'a Weighed,
    shared: SharedLoss,
) -> impl Iterator<Item = Finding> + 'a {
    let count = u8::try_from(search.scope.matrix.zone_count()).unwrap_or(u8::MAX);
    let counts =
        move |finding: Option<Finding>, sum: &Sum| finding.filter(|_| sum.pairs >= 2 && sum.pairs < search.pairs);
    let known = ZONE_UNKNOWN + 1..count;
    let pairs = known.clone().flat_map(|high| (ZONE_UNKNOWN + 1..=high).map(move |low| (low, high)));
    let pairs = pairs.filter_map(move |(low, high)| {
        let sum = &weighed.zones[zone_place(low, high)];
        counts(wide(search, shared, Cause::Zones(low, high), sum), sum)
    });
    let zones = known.flat_map(|zone| [(zone, false), (zone, true)]).filter_map(move |(zone, inside)| {
        let mut sum = Sum::default();
        let (mut below, mut parts) = (0.0, 0);
        for other in (0..count).filter(|other| inside || *other != zone) {
            let part = &weighed.zones[zone_place(zone, other)];
            if part.pairs > 0 {
                sum.add(part);
                parts += 1;
                below += (part.worth(shared).0 - search.costs.zones).max(0.0);
            }
        }
        let finding = counts(wide(search, shared, Cause::Zone(zone, inside), &sum), &sum);
        // If only one zone pair is involved, the cause is that pair. Zone pairs that lose at
        // different rates are separate causes.
        finding.filter(|finding| parts >= 2 && finding.score > below)
    });
    pairs.chain(zones)
}

/// Removes each cause that is not worth its cost beside all others, the weakest first. Returns the
/// sums of pairs that no cause touches.
async fn prune(search: &Search<'_, '_>, findings: &mut Findings, shared: SharedLoss) -> UntouchedSums {
    let scope = search.scope;
    loop {
        let mut sums = vec![Sum::default(); findings.found.len()];
        let mut rest = UntouchedSums::default();
        scope
            .each_pair(|pair| {
                let mut touching = findings.touching_pair(scope, pair).map(|(index, _)| index);
                match (touching.next(), touching.next()) {
                    (None, _) => {
                        shared.add(&mut rest, pair);
                    }
                    (Some(only), None) => sums[only].add(&Sum::from_piece(&PairShare::new(search, shared, pair))),
                    // Touched by more than one cause: no evidence for any of them.
                    _ => {}
                }
            })
            .await;
        for (finding, sum) in findings.found.iter_mut().zip(&sums) {
            let (worth, is_uneven) = sum.worth(shared);
            finding.score = worth - search.costs.cost(finding.cause);
            (finding.rate, finding.is_uneven) = (sum.rate(), is_uneven);
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
async fn exceptions(search: &Search<'_, '_>, findings: &mut Findings, shared: SharedLoss) {
    let (scope, costs) = (search.scope, search.costs);
    let mut exceptions: Vec<(usize, Finding)> = Vec::new();
    let mut pairs = vec![(0_u32, 0_u32); findings.found.len()];
    scope
        .each_pair(|pair| {
            let mut touching = findings.touching_pair(scope, pair);
            let (Some((index, of)), None) = (touching.next(), touching.next()) else { return };
            let by_reporter = one_sided(pair, costs.link).is_some_and(|reporter| of.cause == Cause::Node(reporter));
            if matches!(of.cause, Cause::Link(..)) || by_reporter || of.is_by_reports {
                return;
            }
            pairs[index].0 += 1;
            let both = pair.both();
            let nats = gain(both.lost, both.probes, of.rate.max(shared.rate)) - shared.explains(pair) - costs.link;
            if nats > 0.0 {
                pairs[index].1 += 1;
                if exceptions.len() < CAUSES_MAX {
                    let cause = Cause::Link(pair.a, pair.b);
                    exceptions.push((index, Finding::alike(cause, nats, both.rate())));
                }
            }
        })
        .await;
    let few = |index: usize| pairs[index].1 <= (pairs[index].0 / 6).max(1) && pairs[index].0 > 2;
    findings.found.extend(exceptions.into_iter().filter(|(index, _)| few(*index)).map(|(_, finding)| finding));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lose_nothing_count_against_a_cause_whose_links_differ() {
        let shared = SharedLoss { of: Hypothesis::Paths, rate: 0.001, path_share: 0.4, path_rate: None };
        let sum = |hit| Sum { pairs: 20, hit, apart: 30.0, explained: 1.0, ..Sum::default() };
        let worth = |hit| sum(hit).worth(shared);
        assert_eq!([worth(20), worth(16), worth(14)], [(30.0, true), (22.0, true), (-1.0, false)]);
    }
}
