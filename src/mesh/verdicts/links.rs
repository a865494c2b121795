//! Verdicts over what UDP probes tell of single links: flows that lose while the others of their
//! link do not, and packets that are too large.
//!
//! What many links have in common is one verdict: a node, one of several parallel paths, or all
//! links.

use super::OfProtocol;
use super::agents::Standing;
use super::causes::Cause;
use super::protocols::{Mesh, Part};
use super::sentence;
use super::{Confidence, Severity, Verdict};
use crate::mesh::matrix::{Hole, LosingFlows};
use crate::report::{Method, Network, Way};

/// From this number of pairs on, what they have in common is the cause.
const PAIRS_MIN: usize = 3;
/// A loss of a TCP connection's ports that is at most so many times the share of losing flows, and
/// so much more, is of these flows.
const TIMES: f64 = 2.0;
const EXTRA: f64 = 0.05;

/// Numbers of two nodes, the lower first.
type Nodes = (u16, u16);

/// Adds the verdicts over flows. Takes out the causes that the flows explain, and are therefore no
/// verdicts of their own.
pub fn of_flows<'a>(mesh: &Mesh<'_>, parts: &mut [Part<'a>], nodes: &mut Part<'a>, verdicts: &mut Vec<Verdict>) {
    let is_evidence = |it: &&LosingFlows| is_evidence(mesh, it.source, it.peer);
    let mut flows: Vec<&LosingFlows> = mesh.matrix.losing_flows().iter().filter(is_evidence).collect();
    if flows.is_empty() {
        return;
    }
    // The worst flow of each pair comes first.
    flows.sort_by_key(|it| (pair(it.source, it.peer), u8::MAX - it.lost));
    let pairs = pairs_of(flows.iter().map(|it| (it.source, it.peer)));
    let is_of_flows = |a: u16, b: u16| pairs.binary_search(&pair(a, b)).is_ok();
    let is_many = pairs.len() >= PAIRS_MIN;
    let common = if is_many { common_node(&pairs) } else { None };
    let are_paths = is_many && common.is_none();
    let share = {
        let sum = |of: fn(&LosingFlows) -> u8| flows.iter().map(|it| f64::from(of(it))).sum::<f64>();
        sum(|it| it.losing) / sum(|it| it.probed).max(1.0)
    };
    let mut has_paths_below = false;
    for part in parts.iter_mut().chain([nodes]) {
        let is_tcp = part.protocol == Some(OfProtocol::Tcp);
        let is_below = part.scope.network == Network::Node;
        for (finding, is_shared) in part.found.findings.found.iter().zip(&mut part.found.is_shared) {
            let is_explained = match finding.cause {
                Cause::Paths => are_paths,
                Cause::Link(a, b) => is_of_flows(a, b),
                Cause::Node(node) if common == Some(node) => is_tcp && finding.rate <= share * TIMES + EXTRA,
                _ => is_tcp && are_paths && finding.rate <= share * TIMES + EXTRA,
            };
            has_paths_below |= is_explained && is_below && finding.cause == Cause::Paths;
            *is_shared |= is_explained;
        }
    }
    let network = if has_paths_below { Network::Node } else { Network::Pod };
    if are_paths || common.is_some() {
        let worst = flows.iter().max_by_key(|it| it.lost);
        let severity = if share >= super::CRITICAL_RATE { Severity::Critical } else { Severity::Warning };
        verdicts.extend(worst.map(|worst| Verdict {
            confidence: Confidence::Certain,
            severity,
            protocol: if are_paths { mesh.protocol() } else { Some(OfProtocol::Udp) },
            ..sentence::flows(mesh.matrix, network, common, pairs.len(), share, worst)
        }));
        return;
    }
    for of_pair in flows.chunk_by(|a, b| pair(a.source, a.peer) == pair(b.source, b.peer)) {
        let Some(worst) = of_pair.first() else { continue };
        let is_told_twice = of_pair.iter().any(|it| it.source != worst.source);
        verdicts.push(Verdict {
            confidence: if is_told_twice { Confidence::Certain } else { Confidence::Likely },
            severity: Severity::Warning,
            protocol: Some(OfProtocol::Udp),
            ..sentence::flow(mesh.matrix, worst)
        });
    }
}

/// Adds the verdicts over packets that are too large.
pub fn of_holes(mesh: &Mesh<'_>, verdicts: &mut Vec<Verdict>) {
    let is_evidence = |it: &Hole| is_evidence(mesh, it.source, it.peer);
    let mut holes: Vec<Hole> = mesh.matrix.holes().iter().copied().filter(is_evidence).collect();
    if holes.is_empty() {
        return;
    }
    // The smallest packet of each pair comes first.
    holes.sort_by_key(|it| (pair(it.source, it.peer), it.passes_bytes));
    let (mut all, mut of_nodes) = (0, vec![0_usize; mesh.matrix.node_count()]);
    mesh.of_method(Method::Udp, 0.0).each_pair(|pair| {
        all += 1;
        of_nodes[usize::from(pair.a)] += 1;
        of_nodes[usize::from(pair.b)] += 1;
    });
    let (confidence, severity) = (Confidence::Certain, Severity::Warning);
    let wide = |node: Option<u16>, pairs: usize, of: usize, example: Hole| Verdict {
        confidence,
        severity: Severity::Critical,
        protocol: mesh.protocol(),
        ..sentence::holes(mesh.matrix, node, (pairs, of), example)
    };
    let of_rest = |holes: &[Hole]| pairs_of(holes.iter().map(|it| (it.source, it.peer)));
    let pairs = of_rest(&holes).len();
    if pairs >= PAIRS_MIN && pairs * 2 >= all && common_node(&of_rest(&holes)).is_none() {
        verdicts.extend(holes.first().map(|first| wide(None, pairs, all, *first)));
        return;
    }
    while let Some((node, count)) = worst_node(&of_rest(&holes)) {
        if count < PAIRS_MIN || count * 2 < of_nodes[usize::from(node)] {
            break;
        }
        let (own, rest): (Vec<Hole>, Vec<Hole>) = holes.iter().partition(|it| it.source == node || it.peer == node);
        verdicts.extend(own.first().map(|first| wide(Some(node), count, of_nodes[usize::from(node)], *first)));
        holes = rest;
    }
    for of_pair in holes.chunk_by(|a, b| pair(a.source, a.peer) == pair(b.source, b.peer)) {
        let Some(first) = of_pair.first() else { continue };
        let is_told_twice = of_pair.iter().any(|it| it.source != first.source);
        let confidence = if is_told_twice { Confidence::Certain } else { Confidence::Likely };
        verdicts.push(Verdict {
            confidence,
            severity,
            protocol: mesh.protocol(),
            ..sentence::hole(mesh.matrix, *first)
        });
    }
}

fn is_evidence(mesh: &Mesh<'_>, source: u16, peer: u16) -> bool {
    let of = |node: u16| mesh.standings[usize::from(node)];
    of(source) == Standing::Sound && of(peer).is_evidence_of_others() && mesh.answering.counts_udp(source, peer)
}

fn pair(a: u16, b: u16) -> Nodes {
    (a.min(b), a.max(b))
}

/// Returns the pairs, each once, in their order.
fn pairs_of(links: impl Iterator<Item = Nodes>) -> Vec<Nodes> {
    let mut pairs: Vec<Nodes> = links.map(|(source, peer)| pair(source, peer)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// Returns the node that is in all pairs.
fn common_node(pairs: &[Nodes]) -> Option<u16> {
    let (a, b) = *pairs.first()?;
    [a, b].into_iter().find(|node| pairs.iter().all(|(a, b)| a == node || b == node))
}

/// Returns the node that is in most pairs, and their number.
fn worst_node(pairs: &[Nodes]) -> Option<(u16, usize)> {
    let mut ends: Vec<u16> = pairs.iter().flat_map(|(a, b)| [*a, *b]).collect();
    ends.sort_unstable();
    let groups = ends.chunk_by(|a, b| a == b).filter_map(|group| Some((*group.first()?, group.len())));
    // The first wins a tie.
    groups.reduce(|most, next| if next.1 > most.1 { next } else { most })
}

/// Returns the ends of a link in the direction of its loss.
pub const fn in_direction(source: u16, peer: u16, way: Way) -> Nodes {
    if matches!(way, Way::In) { (peer, source) } else { (source, peer) }
}
