//! Who is to blame for what is lost: the fewest culprits that explain it.
//!
//! A pair of nodes loses probes at a background rate, and more where one of its two nodes, its two zones, or the link
//! itself is bad. The search begins with nobody to blame and takes, again and again, the culprit that explains most of
//! what is left beyond background: so many nats of likelihood, less what a culprit of its kind costs. The cost pays for
//! having so many candidates, and keeps chance from being blamed. A node or a zone pair must explain more than the links
//! below it could, each for its own cost: two bad links of twelve do not make a bad node. In the end each culprit must
//! still be worth its cost beside all others. `docs/verdicts.md` has the formulas, thresholds and traps.

use super::pairs::{Pair, Scope, Tally, zone_place};
use super::score::{Sum, gain, likelihood};
use crate::limits::{MESH_CULPRITS_MAX, MESH_JUDGED_BYTES_PER_NODE};
use crate::mesh::matrix::{Presence, ZONE_UNKNOWN};

/// Nats that a culprit must explain beyond the logarithm of the number of candidates: chance alone is blamed in at most
/// one of e^9 = 8,100 meshes, for each kind of culprit.
const CERTAINTY: f64 = 9.0;
/// What a zone pair costs more than a node: where both explain the same losses, one node is the simpler reason.
const ZONE_PAIR_EXTRA: f64 = 3.0;
/// What it is worth that a node, which everybody loses entirely, does not answer for its row either.
const SILENT_AGENT_BONUS: f64 = 3.0;
/// What it costs to give a pair a loss rate of its own below a node.
const OWN_RATE: f64 = 2.0;
/// Pairs that must be hit for that: three of four, and three.
const OWN_RATE_PAIRS_MIN: u32 = 3;
/// Nodes and zone pairs that lose less are not reported.
const RATE_MIN: f64 = 0.005;
/// Background loss is taken to be between these: a mesh of three nodes says little of it.
const BACKGROUND: (f64, f64) = (0.000_5, 0.005);
/// What is thought of the background before anything is measured: one loss in so many probes.
const BACKGROUND_PRIOR_PROBES: f64 = 1_000.0;
/// How many zone pairs are explained once more without.
const ZONE_TRIALS_MAX: usize = 4;
/// How often the search starts again with what it has learnt of the background.
const ROUNDS: usize = 3;

/// Who is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// A node, by its number.
    Node(u16),
    /// The ways between two zones, or within one; the lower number first.
    Zones(u8, u8),
    /// The way between two nodes; the lower number first.
    Link(u16, u16),
}

/// Somebody to blame, and how sure that is.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// Who.
    pub culprit: Culprit,
    /// Nats beyond its cost.
    pub score: f64,
    /// The loss on pairs that it alone explains.
    pub rate: f64,
}

/// What a search found.
#[derive(Debug, Default)]
pub struct Findings {
    /// Culprits, as they were found.
    pub found: Vec<Finding>,
    /// The loss rate of what nobody is to blame for.
    pub background: f64,
}

impl Findings {
    /// The culprits that explain losses between these nodes, the lower number first, in these zones.
    pub fn touching(&self, (a, b): (u16, u16), zones: (u8, u8)) -> impl Iterator<Item = (usize, &Finding)> {
        let zones = (zones.0.min(zones.1), zones.0.max(zones.1));
        self.found.iter().enumerate().filter(move |(_, finding)| match finding.culprit {
            Culprit::Node(node) => node == a || node == b,
            Culprit::Zones(low, high) => (low, high) == zones,
            Culprit::Link(low, high) => (low, high) == (a, b),
        })
    }

    /// Whether this node itself is to blame.
    pub fn blames_node(&self, node: u16) -> bool {
        self.found.iter().any(|finding| finding.culprit == Culprit::Node(node))
    }
}

// And 17 bytes: what is left of a row in a walk, and whether it is evidence.
const _: () = assert!(size_of::<Sum>() + 17 <= MESH_JUDGED_BYTES_PER_NODE);

/// What candidates cost.
#[derive(Clone, Copy)]
struct Costs {
    node: f64,
    zones: f64,
    link: f64,
}

impl Costs {
    fn of(&self, culprit: Culprit) -> f64 {
        match culprit {
            Culprit::Node(_) => self.node,
            Culprit::Zones(..) => self.zones,
            Culprit::Link(..) => self.link,
        }
    }
}

/// One walk over all pairs that nobody is to blame for yet.
struct Weighed {
    all: Sum,
    nodes: Vec<Sum>,
    zones: Vec<Sum>,
    /// The best link.
    link: Option<(f64, Pair)>,
}

/// Finds who is to blame. Takes 32 bytes per node and zone pair, and a walk over all cells for each culprit.
pub fn search(scope: &Scope<'_>) -> Findings {
    let mut findings = Findings::default();
    let costs = Costs { node: CERTAINTY, zones: CERTAINTY, link: CERTAINTY };
    let first = weigh(scope, &findings, &costs, BACKGROUND.1);
    if first.all.lost == 0 {
        return findings;
    }
    let logarithm = |candidates: usize| (candidates.max(1) as f64).ln();
    let measured = |sums: &[Sum]| sums.iter().filter(|sum| sum.pairs > 0).count();
    let costs = Costs {
        node: CERTAINTY + logarithm(measured(&first.nodes)),
        zones: CERTAINTY + logarithm(measured(&first.zones)) + ZONE_PAIR_EXTRA,
        link: CERTAINTY + logarithm(first.all.pairs as usize),
    };
    findings.background = background_without_the_worst(&first);
    drop(first);
    let mut banned: Vec<Culprit> = Vec::new();
    explain(scope, &mut findings, &costs, &banned);
    // Two bad nodes of six, or of a zone, are in most pairs: one culprit would do, and is taken first though the two explain
    // more. So whatever was explained by zones is explained once more without.
    let mut tried = 0;
    while tried < ZONE_TRIALS_MAX
        && let Some(zones) = findings.found.iter().map(|finding| finding.culprit).filter(|it| is_zones(*it)).nth(tried)
    {
        tried += 1;
        banned.push(zones);
        let mut other = Findings { found: Vec::new(), background: findings.background };
        explain(scope, &mut other, &costs, &banned);
        if credit(scope, &other, &costs) > credit(scope, &findings, &costs) {
            (findings, tried) = (other, tried - 1);
        } else {
            banned.pop();
        }
    }
    exceptions(scope, &mut findings, &costs);
    findings
}

/// Who is to blame, the banned left aside.
fn explain(scope: &Scope<'_>, findings: &mut Findings, costs: &Costs, banned: &[Culprit]) {
    for _ in 0..ROUNDS {
        findings.found.clear();
        while findings.found.len() < MESH_CULPRITS_MAX
            && let Some(next) = next(scope, findings, costs, banned)
        {
            findings.found.push(next);
        }
        let rest = prune(scope, findings, costs);
        let learnt = background(rest);
        let steady = (learnt / findings.background - 1.0).abs() < 0.1;
        // With less background nobody was to blame: with more nobody is.
        let nobody = findings.found.is_empty() && learnt >= findings.background;
        findings.background = learnt;
        if steady || nobody {
            break;
        }
    }
}

/// How well an explanation explains all losses, less what its culprits cost.
fn credit(scope: &Scope<'_>, findings: &Findings, costs: &Costs) -> f64 {
    let cost: f64 = findings.found.iter().map(|finding| costs.of(finding.culprit)).sum();
    let mut credit = -cost;
    scope.each_pair(|pair| {
        let (mut passes, mut own_rate) = (1.0 - findings.background, f64::NEG_INFINITY);
        let Tally { probes, lost } = pair.both();
        for (_, finding) in touching(scope, findings, pair) {
            passes *= 1.0 - finding.rate;
            own_rate = likelihood(lost, probes, pair.both().rate()) - OWN_RATE;
        }
        credit += likelihood(lost, probes, 1.0 - passes).max(own_rate);
    });
    credit
}

fn is_zones(culprit: Culprit) -> bool {
    matches!(culprit, Culprit::Zones(..))
}

/// The background rate, from what nobody is to blame for.
fn background(rest: Tally) -> f64 {
    let rate = (f64::from(rest.lost) + 1.0) / (f64::from(rest.probes) + BACKGROUND_PRIOR_PROBES);
    rate.clamp(BACKGROUND.0, BACKGROUND.1)
}

/// A first guess: the lowest background that is left once one node's pairs, one zone pair's or one link is taken out. In a
/// mesh of three nodes a bad one is in two pairs of three, and the plain mean would hide it.
fn background_without_the_worst(first: &Weighed) -> f64 {
    let all = Tally { probes: first.all.probes, lost: first.all.lost };
    let without = |probes: u32, lost: u32| background(Tally { probes: all.probes - probes, lost: all.lost - lost });
    let sums = first.nodes.iter().chain(&first.zones).map(|sum| without(sum.probes, sum.lost));
    let link = first.link.iter().map(|(_, pair)| without(pair.both().probes, pair.both().lost));
    sums.chain(link).fold(background(all), f64::min)
}

fn weigh(scope: &Scope<'_>, findings: &Findings, costs: &Costs, expected: f64) -> Weighed {
    let nodes = vec![Sum::default(); scope.matrix.node_count()];
    let zones = vec![Sum::default(); scope.zone_places()];
    let mut weighed = Weighed { all: Sum::default(), nodes, zones, link: None };
    scope.each_pair(|pair| {
        if touching(scope, findings, pair).next().is_some() {
            return;
        }
        let both = pair.both();
        let gain = gain(both.lost, both.probes, expected);
        let add = |sum: &mut Sum| add(sum, both, gain, costs);
        add(&mut weighed.all);
        add(&mut weighed.nodes[usize::from(pair.a)]);
        add(&mut weighed.nodes[usize::from(pair.b)]);
        add(&mut weighed.zones[scope.zone_place(pair)]);
        if gain > weighed.link.map_or(0.0, |(best, _)| best) {
            weighed.link = Some((gain, *pair));
        }
    });
    weighed
}

fn add(sum: &mut Sum, both: Tally, gain: f64, costs: &Costs) {
    sum.probes += both.probes;
    sum.lost += both.lost;
    sum.pairs += 1;
    sum.losing += u32::from(both.lost > 0);
    if gain > OWN_RATE {
        sum.hit += 1;
        #[expect(clippy::cast_possible_truncation, reason = "some thousands of nats")]
        let (apart, as_link) = ((gain - OWN_RATE) as f32, (gain - costs.link).max(0.0) as f32);
        sum.apart += apart;
        sum.as_links += as_link;
    }
}

/// What a node or zone pair with these sums is worth: its pairs lose alike, or most of them lose, each at its own rate (a
/// bad port of four takes all of some flows and nothing of others).
fn worth(sum: &Sum, expected: f64) -> f64 {
    let alike = gain(sum.lost, sum.probes, expected);
    let most = sum.hit >= OWN_RATE_PAIRS_MIN && sum.hit * 4 >= sum.pairs * 3;
    if most { alike.max(sum.apart.into()) } else { alike }
}

/// The best culprit for what is left, if any is worth its cost.
fn next(scope: &Scope<'_>, findings: &Findings, costs: &Costs, banned: &[Culprit]) -> Option<Finding> {
    let expected = findings.background;
    let weighed = weigh(scope, findings, costs, expected);
    let wide = |culprit: Culprit, sum: &Sum, silent: bool| {
        let bonus = if silent { SILENT_AGENT_BONUS } else { 0.0 };
        let nats = worth(sum, expected) - costs.of(culprit) + bonus;
        let counts = nats > 0.0 && sum.rate() >= RATE_MIN && sum.is_spread();
        let counts = counts && (silent || nats > sum.as_links.into());
        counts.then(|| Finding { culprit, score: nats, rate: sum.rate() })
    };
    let nodes = weighed.nodes.iter().zip(scope.matrix.numbers()).filter_map(|(sum, node)| {
        let silent = scope.matrix.get(node).presence == Presence::Missing && sum.lost == sum.probes;
        (sum.pairs >= if silent { 1 } else { 2 }).then(|| wide(Culprit::Node(node), sum, silent)).flatten()
    });
    let (zone_count, weighed_zones) = (u8::try_from(scope.matrix.zone_count()).unwrap_or(u8::MAX), &weighed.zones);
    let zone_pairs = (0..zone_count).flat_map(|high| (0..=high).map(move |low| (low, high)));
    let zones = zone_pairs.filter_map(|(low, high)| {
        let sum = &weighed_zones[zone_place(low, high)];
        // Nodes without a zone have nothing in common, but where nobody has one they are the whole mesh.
        let known = low != ZONE_UNKNOWN || sum.pairs == weighed.all.pairs;
        let counts = sum.pairs >= 2 && known && !banned.contains(&Culprit::Zones(low, high));
        counts.then(|| wide(Culprit::Zones(low, high), sum, false)).flatten()
    });
    let link = weighed.link.and_then(|(gain, pair)| {
        let nats = gain - costs.link;
        (nats > 0.0).then(|| Finding { culprit: Culprit::Link(pair.a, pair.b), score: nats, rate: pair.both().rate() })
    });
    // Of equals the first: nodes before zones before links.
    nodes.chain(zones).chain(link).reduce(|best, next| if next.score > best.score { next } else { best })
}

/// Takes out, the least worthy first, who is not worth the cost beside all others. Returns what nobody is to blame for.
fn prune(scope: &Scope<'_>, findings: &mut Findings, costs: &Costs) -> Tally {
    loop {
        let mut sums = vec![Sum::default(); findings.found.len()];
        let mut rest = Tally::default();
        scope.each_pair(|pair| {
            let mut touching = touching(scope, findings, pair).map(|(index, _)| index);
            match (touching.next(), touching.next()) {
                (None, _) => rest = rest.plus(pair.both()),
                (Some(only), None) => {
                    let gain = gain(pair.both().lost, pair.both().probes, findings.background);
                    add(&mut sums[only], pair.both(), gain, costs);
                }
                // More than one: no evidence for either.
                _ => {}
            }
        });
        for (finding, sum) in findings.found.iter_mut().zip(&sums) {
            finding.score = worth(sum, findings.background) - costs.of(finding.culprit);
            finding.rate = sum.rate();
            if let Culprit::Node(node) = finding.culprit
                && scope.matrix.get(node).presence == Presence::Missing
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

/// Single links that lose far more than the node or the zone pair explains that they are below. Where there are many, the
/// culprit itself is uneven, and they are none.
fn exceptions(scope: &Scope<'_>, findings: &mut Findings, costs: &Costs) {
    let mut exceptions: Vec<(usize, Finding)> = Vec::new();
    let mut pairs = vec![(0_u32, 0_u32); findings.found.len()];
    scope.each_pair(|pair| {
        let mut touching = touching(scope, findings, pair);
        let (Some((index, of)), None) = (touching.next(), touching.next()) else { return };
        if matches!(of.culprit, Culprit::Link(..)) {
            return;
        }
        pairs[index].0 += 1;
        let nats = gain(pair.both().lost, pair.both().probes, of.rate.max(findings.background)) - costs.link;
        if nats > 0.0 {
            pairs[index].1 += 1;
            if exceptions.len() < MESH_CULPRITS_MAX {
                let culprit = Culprit::Link(pair.a, pair.b);
                exceptions.push((index, Finding { culprit, score: nats, rate: pair.both().rate() }));
            }
        }
    });
    let few = |index: usize| pairs[index].1 <= (pairs[index].0 / 6).max(1) && pairs[index].0 > 2;
    findings.found.extend(exceptions.into_iter().filter(|(index, _)| few(*index)).map(|(_, finding)| finding));
}

fn touching<'a>(scope: &Scope<'_>, findings: &'a Findings, pair: &Pair) -> impl Iterator<Item = (usize, &'a Finding)> {
    let zones = (scope.matrix.get(pair.a).zone, scope.matrix.get(pair.b).zone);
    findings.touching((pair.a, pair.b), zones)
}
