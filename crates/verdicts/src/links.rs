//! Verdicts over what UDP probes tell of single links: flows that lose while the others of their
//! link do not, and packets that are too large.
//!
//! What many links have in common is one verdict: a node, one of several parallel paths, or all
//! links.

use super::agents::Standing;
use super::causes::{CAUSES_MAX, Cause, Finding};
use super::describe;
use super::loss_causes::LossCauses;
use super::overall::NarrowLinks;
use super::pairs::MeshContext;
use super::quiet::Quiet;
use super::{Confidence, Severity, Verdict};
use crate::matrix::{Hole, Layer, LosingFlows, Matrix, MatrixRow};
use crate::slices::yield_now;
use kube_canary_model::limits::MESH_VERDICTS_MAX;
use kube_canary_model::report::{HoleNotice, Methods, Network};

/// From this number of pairs on, what they have in common is the cause.
const PAIRS_MIN: usize = 3;
/// A loss of TCP that is at most this many times the share of losing flows, and this much more, is
/// of these flows. So is an echo loss of one pair, compared with what such a flow loses.
const TIMES: f64 = 2.0;
const EXTRA: f64 = 0.05;
/// A flow that loses as much is found on each link that has it, so no other link is the path's.
const FOUND_AT_ONCE: f64 = 0.5;
/// A bad path carries the echoes of some pairs, but a bad node or zone loses those of nearly all
/// its pairs. Up to this share of losing pairs, the path explains such a cause.
const LOSING_PAIRS: f64 = 0.75;

/// Evidence of the flows of many links together, in nats, from which on it counts as that of one
/// link. Of each pair that loses by UDP, chance gives this much.
const TOGETHER_NATS: f64 = 6.0;
const CHANCE_NATS: f64 = 0.05;

/// Links that large packets do not pass, and that have a verdict each before the gravest are
/// chosen.
const HOLES_MAX: usize = 4 * MESH_VERDICTS_MAX;

/// Numbers of two nodes, the lower first.
type NodePair = (u16, u16);

/// Links whose flows lose, and what they have in common.
struct FlowGroup<'a> {
    /// The node in all of them; `None` if they are on parallel paths.
    node: Option<u16>,
    flows: Vec<&'a LosingFlows>,
    pairs: Vec<NodePair>,
    /// The median share of the flows that lose.
    share: f64,
    /// The median loss of the worst flow of each link.
    rate: f64,
}

impl<'a> FlowGroup<'a> {
    fn new(node: Option<u16>, flows: Vec<&'a LosingFlows>) -> Self {
        let pairs = pairs_of(flows.iter().map(|flow| (flow.source, flow.peer)));
        // Reports that are not true are fewer than half.
        let median = |of: fn(&LosingFlows) -> [u8; 2]| {
            let ratio = |[part, whole]: [u8; 2]| f64::from(part) / f64::from(whole.max(1));
            let mut all: Vec<f64> = flows.iter().map(|flow| ratio(of(flow))).collect();
            all.sort_unstable_by(f64::total_cmp);
            all.get(all.len() / 2).copied().unwrap_or_default()
        };
        let (share, rate) = (median(|flow| [flow.losing, flow.probed]), median(|flow| [flow.lost, flow.probes]));
        Self { node, flows, pairs, share, rate }
    }

    fn has(&self, a: u16, b: u16) -> bool {
        self.pairs.binary_search(&pair(a, b)).is_ok()
    }

    /// Whether these flows may explain what a cause of TCP losses explains: most of the pairs that
    /// lose by it are theirs, and it loses as they do.
    async fn explains_tcp(&self, mesh: &MeshContext<'_>, causes: &LossCauses<'_>, finding: &Finding) -> bool {
        let (mut own, mut all) = (0_usize, 0_usize);
        each_pair_of(mesh, causes, finding, |pair, loses| {
            all += usize::from(loses);
            own += usize::from(loses && self.has(pair.0, pair.1));
        })
        .await;
        own * 2 > all && finding.rate <= self.share * TIMES + EXTRA
    }

    /// Whether the path of these flows may explain what a link loses by UDP, TCP or all protocols.
    /// A path that loses little is found on some of its links first. It has at most half of the
    /// flows of a link, so the link loses at most half as much.
    fn explains_link(&self, finding: &Finding) -> bool {
        self.rate < FOUND_AT_ONCE && finding.rate <= self.rate / 2.0 + EXTRA
    }

    /// Whether the path of these flows may explain what a cause explains that is not of UDP or TCP
    /// alone. The echoes of a pair are one flow each way, so they lose as much as such a flow, or
    /// nothing.
    async fn explains_echoes(&self, mesh: &MeshContext<'_>, causes: &LossCauses<'_>, finding: &Finding) -> bool {
        let (mut losing, mut all) = (0_u32, 0_u32);
        each_pair_of(mesh, causes, finding, |_, loses| {
            all += 1;
            losing += u32::from(loses);
        })
        .await;
        match finding.cause {
            Cause::Link(..) => finding.rate <= self.rate * TIMES + EXTRA,
            Cause::Node(_) | Cause::Zones(..) | Cause::Zone(..) | Cause::Domain(..) | Cause::Mesh => {
                f64::from(losing) <= f64::from(all) * LOSING_PAIRS
            }
            Cause::Partition | Cause::Paths => false,
        }
    }
}

/// Calls `each` for all pairs that a cause touches, with whether they lose.
async fn each_pair_of(
    mesh: &MeshContext<'_>,
    causes: &LossCauses<'_>,
    finding: &Finding,
    mut each: impl FnMut(NodePair, bool),
) {
    let scope = mesh.scope(finding.layers);
    scope
        .each_pair(|pair| {
            let nodes = (pair.a, pair.b);
            if causes.findings.touches(&scope, finding.cause, nodes) {
                each(nodes, pair.both().lost > 0);
            }
        })
        .await;
}

/// Returns the links with losing flows by what they have in common, and those that have nothing.
/// `pairs_of_nodes` is how many pairs each node is in.
///
/// One report can name losing flows of all links of its node. So the pairs of the node with most of
/// them count for a path only if the others are spread without it. That node is the cause if half
/// of its pairs have such flows.
fn grouped<'a>(
    mut flows: Vec<&'a LosingFlows>,
    pairs_of_nodes: &[usize],
) -> (Vec<FlowGroup<'a>>, Vec<&'a LosingFlows>) {
    let mut groups = Vec::new();
    loop {
        let pairs = pairs_of(flows.iter().map(|flow| (flow.source, flow.peer)));
        let worst = worst_node(&pairs).filter(|(_, count)| *count >= PAIRS_MIN);
        let is_of = |ends: NodePair| worst.is_some_and(|(node, _)| ends.0 == node || ends.1 == node);
        let others: Vec<NodePair> = pairs.iter().copied().filter(|ends| !is_of(*ends)).collect();
        if others.len() >= PAIRS_MIN && common_node(&others).is_none() {
            groups.push(FlowGroup::new(None, flows));
            return (groups, Vec::new());
        }
        let is_half = |(node, count): &(u16, usize)| count * 2 >= pairs_of_nodes[usize::from(*node)];
        let Some((node, _)) = worst.filter(is_half) else { return (groups, flows) };
        let (own, rest) = flows.into_iter().partition(|flow| is_of((flow.source, flow.peer)));
        groups.push(FlowGroup::new(Some(node), own));
        flows = rest;
    }
}

/// Whether chance does not explain what may be losing flows of all these links. They are sorted by
/// pairs, and those of the node with most of them do not count: one report can name them all.
async fn are_sure_together(mesh: &MeshContext<'_>, flows: &[&LosingFlows]) -> bool {
    if flows.iter().all(|flow| flow.is_sure()) {
        return false;
    }
    let of_pairs = || flows.chunk_by(|a, b| pair(a.source, a.peer) == pair(b.source, b.peer));
    let mut of_nodes = vec![0_u32; mesh.matrix.node_count()];
    let mut sum = 0;
    for worst in of_pairs().filter_map(|of_pair| of_pair.first()) {
        sum += u32::from(worst.decinats);
        for node in [worst.source, worst.peer] {
            of_nodes[usize::from(node)] += u32::from(worst.decinats);
        }
    }
    let mut losing_pairs = 0_u32;
    mesh.scope(Layer::Udp.bit()).each_pair(|pair| losing_pairs += u32::from(pair.both().lost > 0)).await;
    let without_the_worst = sum - of_nodes.into_iter().max().unwrap_or_default();
    f64::from(without_the_worst) / 10.0 >= TOGETHER_NATS + CHANCE_NATS * f64::from(losing_pairs)
}

/// Returns the number of pairs that are probed by UDP, in all and of each node.
async fn udp_pairs(mesh: &MeshContext<'_>) -> (usize, Vec<usize>) {
    let (mut all, mut of_nodes) = (0, vec![0_usize; mesh.matrix.node_count()]);
    mesh.scope(Layer::Udp.bit())
        .each_pair(|pair| {
            all += 1;
            of_nodes[usize::from(pair.a)] += 1;
            of_nodes[usize::from(pair.b)] += 1;
        })
        .await;
    (all, of_nodes)
}

/// Adds the verdicts over flows. Takes out the causes that the flows explain, and are therefore no
/// verdicts of their own.
pub async fn add_flow_verdicts(mesh: &MeshContext<'_>, causes: &mut LossCauses<'_>, verdicts: &mut Vec<Verdict>) {
    let is_evidence = |flow: &&LosingFlows| is_evidence(mesh, flow.source, flow.peer);
    let mut flows: Vec<&LosingFlows> = mesh.matrix.losing_flows().iter().filter(is_evidence).collect();
    // The worst flow of each pair comes first.
    flows.sort_by_key(|flow| (pair(flow.source, flow.peer), u8::MAX - flow.decinats, u8::MAX - flow.lost));
    if !are_sure_together(mesh, &flows).await {
        flows.retain(|flow| flow.is_sure());
    }
    if flows.is_empty() {
        return;
    }
    let all_pairs = pairs_of(flows.iter().map(|flow| (flow.source, flow.peer)));
    let (groups, single) = grouped(flows, &udp_pairs(mesh).await.1);
    let mut has_paths_below = false;
    for place in 0..causes.findings.found.len() {
        let finding = &causes.findings.found[place];
        let [is_tcp, is_icmp] = [Layer::Tcp, Layer::Icmp].map(|layer| finding.layers == layer.bit());
        let mut paths = groups.iter().filter(|group| group.node.is_none());
        let is_explained = match finding.cause {
            Cause::Paths => paths.next().is_some(),
            Cause::Link(a, b) if all_pairs.binary_search(&pair(a, b)).is_ok() => true,
            Cause::Link(..) if !is_icmp => paths.any(|group| group.explains_link(finding)),
            cause if is_icmp || cause == Cause::Mesh && !is_tcp => {
                any(paths, async |group| group.explains_echoes(mesh, causes, finding).await).await
            }
            cause => {
                let is_its = |group: &&FlowGroup<'_>| group.node.is_none_or(|node| cause == Cause::Node(node));
                let its = groups.iter().filter(is_its);
                is_tcp && any(its, async |group| group.explains_tcp(mesh, causes, finding).await).await
            }
        };
        let is_below = causes.network(place) == Network::Node;
        has_paths_below |= is_explained && is_below && finding.cause == Cause::Paths;
        causes.are_flows[place] |= is_explained;
    }
    let network = if has_paths_below { Network::Node } else { Network::Pod };
    for FlowGroup { node, flows, pairs, share, .. } in &groups {
        let worst = flows.iter().max_by_key(|flow| flow.lost);
        verdicts.extend(worst.map(|worst| Verdict {
            confidence: Confidence::Certain,
            severity: Severity::Warning,
            protocol: node.map(|_| Methods::UDP),
            ..with_end(mesh, flows, describe::flows(mesh.matrix, network, *node, pairs.len(), *share, worst))
        }));
    }
    for of_pair in single.chunk_by(|a, b| pair(a.source, a.peer) == pair(b.source, b.peer)) {
        let Some(worst) = of_pair.first() else { continue };
        let is_told_twice = of_pair.iter().any(|flow| flow.source != worst.source);
        verdicts.push(Verdict {
            confidence: if is_told_twice { Confidence::Certain } else { Confidence::Likely },
            severity: Severity::Warning,
            protocol: Some(Methods::UDP),
            ..with_end(mesh, of_pair, describe::flow(mesh.matrix, worst))
        });
    }
}

/// Whether any of the groups explains something.
async fn any<'g, 'f: 'g>(
    groups: impl Iterator<Item = &'g FlowGroup<'f>>,
    explains: impl AsyncFn(&FlowGroup<'_>) -> bool,
) -> bool {
    for group in groups {
        if explains(group).await {
            return true;
        }
    }
    false
}

/// Returns the verdict over these flows with the end of their losses, if they have ended. Reports
/// keep flows for one to two minutes after that, longer than the recent windows show their losses.
fn with_end(mesh: &MeshContext<'_>, flows: &[&LosingFlows], verdict: Verdict) -> Verdict {
    let (first_read, last_read) = mesh.matrix.reads();
    let mut quiet = Quiet::new(first_read, last_read);
    for flows in flows {
        quiet.add_flows(flows, mesh.matrix.row(flows.source).map(MatrixRow::read).unwrap_or_default());
    }
    let [ended_unix_seconds, calm_since_unix_seconds] =
        [quiet.begin(), quiet.calm_since()].map(|moment| moment.map(|moment| mesh.matrix.moment(moment)));
    Verdict { ended_unix_seconds, calm_since_unix_seconds, ..verdict }
}

/// Returns the links where the network tells the senders which packets are too large. Their kernels
/// send smaller ones, so no user loses any.
pub fn narrow(matrix: &Matrix, standings: &[Standing]) -> Option<NarrowLinks> {
    let of = |node: u16| standings[usize::from(node)];
    let counts = |hole: &&Hole| {
        hole.said == HoleNotice::TooBig && of(hole.source) == Standing::Sound && of(hole.peer).is_evidence_of_others()
    };
    let mut holes: Vec<&Hole> = matrix.holes().iter().filter(counts).collect();
    holes.sort_by_key(|hole| (pair(hole.source, hole.peer), hole.passes_bytes));
    holes.dedup_by_key(|hole| pair(hole.source, hole.peer));
    // Judges number nodes each in its own order, and must name the same link.
    let names = |hole: &Hole| {
        let (source, peer) = describe::in_direction(hole.source, hole.peer, hole.way);
        [source, peer].map(|node| matrix.name(node))
    };
    let first = holes.iter().min_by_key(|hole| names(hole))?;
    let [source, peer] = names(first).map(str::to_owned);
    let pairs = u32::try_from(holes.len()).unwrap_or(u32::MAX);
    Some(NarrowLinks { pairs, source, peer, passes_bytes: first.passes_bytes })
}

/// Adds the verdicts over packets that are too large, and of which the network says nothing.
pub async fn add_hole_verdicts(mesh: &MeshContext<'_>, verdicts: &mut Vec<Verdict>) {
    let is_evidence = |hole: &Hole| hole.said != HoleNotice::TooBig && is_evidence(mesh, hole.source, hole.peer);
    let mut holes: Vec<Hole> = mesh.matrix.holes().iter().copied().filter(is_evidence).collect();
    if holes.is_empty() {
        return;
    }
    // The smallest packet of each pair comes first.
    holes.sort_by_key(|hole| (pair(hole.source, hole.peer), hole.passes_bytes));
    let (all, of_nodes) = udp_pairs(mesh).await;
    let (confidence, severity) = (Confidence::Certain, Severity::Warning);
    let wide = |node: Option<u16>, pairs: usize, of: usize, example: Hole| Verdict {
        confidence,
        severity: Severity::Critical,
        ..describe::holes(mesh.matrix, node, (pairs, of), example)
    };
    // Judges number nodes each in its own order, and must name the same example.
    let example = |holes: &[Hole]| {
        holes.iter().copied().min_by_key(|hole| [hole.source, hole.peer].map(|node| mesh.matrix.name(node)))
    };
    let of_rest = |holes: &[Hole]| pairs_of(holes.iter().map(|hole| (hole.source, hole.peer)));
    let pairs = of_rest(&holes).len();
    if pairs >= PAIRS_MIN && pairs * 2 >= all && common_node(&of_rest(&holes)).is_none() {
        verdicts.extend(example(&holes).map(|example| wide(None, pairs, all, example)));
        return;
    }
    for _ in 0..CAUSES_MAX {
        yield_now().await;
        let Some((node, count)) = worst_node(&of_rest(&holes)) else { break };
        if count < PAIRS_MIN || count * 2 < of_nodes[usize::from(node)] {
            break;
        }
        let (own, rest): (Vec<Hole>, Vec<Hole>) =
            holes.iter().partition(|hole| hole.source == node || hole.peer == node);
        verdicts.extend(example(&own).map(|example| wide(Some(node), count, of_nodes[usize::from(node)], example)));
        holes = rest;
    }
    let of_pairs = holes.chunk_by(|a, b| pair(a.source, a.peer) == pair(b.source, b.peer));
    for of_pair in of_pairs.take(HOLES_MAX) {
        let Some(first) = of_pair.first() else { continue };
        let is_told_twice = of_pair.iter().any(|hole| hole.source != first.source);
        let confidence = if is_told_twice { Confidence::Certain } else { Confidence::Likely };
        verdicts.push(Verdict { confidence, severity, ..describe::hole(mesh.matrix, *first) });
    }
}

fn is_evidence(mesh: &MeshContext<'_>, source: u16, peer: u16) -> bool {
    let of = |node: u16| mesh.standings[usize::from(node)];
    of(source) == Standing::Sound && of(peer).is_evidence_of_others() && mesh.answering.counts_udp(source, peer)
}

fn pair(a: u16, b: u16) -> NodePair {
    (a.min(b), a.max(b))
}

/// Returns the pairs, each once, in their order.
fn pairs_of(links: impl Iterator<Item = NodePair>) -> Vec<NodePair> {
    let mut pairs: Vec<NodePair> = links.map(|(source, peer)| pair(source, peer)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// Returns the node that is in all pairs.
fn common_node(pairs: &[NodePair]) -> Option<u16> {
    let (a, b) = *pairs.first()?;
    [a, b].into_iter().find(|node| pairs.iter().all(|(a, b)| a == node || b == node))
}

/// Returns the node that is in most pairs, and their number.
fn worst_node(pairs: &[NodePair]) -> Option<(u16, usize)> {
    let mut ends: Vec<u16> = pairs.iter().flat_map(|(a, b)| [*a, *b]).collect();
    ends.sort_unstable();
    let groups = ends.chunk_by(|a, b| a == b).filter_map(|group| Some((*group.first()?, group.len())));
    // The first wins a tie.
    groups.reduce(|most, next| if next.1 > most.1 { next } else { most })
}
