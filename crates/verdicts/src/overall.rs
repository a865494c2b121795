//! What a judgement says of a mesh as a whole, beside its verdicts: losses that they do not
//! explain, and what was not measured.

use serde::{Deserialize, Serialize};

use super::agents::Standing;
use super::answering::Answering;
use super::rewritten::StrangersSeen;
use super::subject::covers;
use crate::matrix::{Cell, Matrix, RowPresence};
use crate::slices::Slice;
use kube_canary_model::limits::NAME_BYTES_MAX;
use kube_canary_model::method::Method;
use kube_canary_model::report::Network;
use kube_canary_model::verdict::{Kind, Verdict};

/// A link that loses this share and this number of its probes is reported, even without a cause. A
/// calm mesh, which loses 0.1 %, never loses this many of 60 probes.
const LOSING_RATE: f64 = 0.05;
const LOSING_LOST: u32 = 5;
/// What a judgement says of a mesh as a whole, beside its verdicts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overall {
    /// Losses that no verdict explains.
    pub losses: Option<UnexplainedLosses>,
    /// Number of nodes of which nothing is known, and one of them.
    pub unknown: usize,
    /// The first of them by name, if all have names.
    pub first_unknown: Option<String>,
    /// Number of nodes whose agents are of another version. Their reports cannot be read.
    pub other_version: usize,
    /// Number of reports that did not fit.
    pub rows_not_kept: usize,
    /// Number of links that did not fit.
    pub links_not_kept: usize,
    /// Whether no link at all was measured.
    pub is_unmeasured: bool,
    /// Links that carry smaller packets than their route says, where the network tells the senders.
    pub narrow: Option<NarrowLinks>,
    /// Requests from addresses that are no member's, which explain no loss.
    pub strangers: Option<StrangersSeen>,
}

/// Links whose path MTU is below that of their route, and known to the kernels that send: packets
/// of the right size pass, so it is no fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NarrowLinks {
    /// Number of pairs of nodes.
    pub pairs: u32,
    /// The first of them by the names of its nodes: the node that sends.
    pub source: String,
    /// The node at its other end.
    pub peer: String,
    /// Bytes of the largest packet that passes there.
    pub passes_bytes: u16,
}

/// Links that lose without a known cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnexplainedLosses {
    /// Whether they have lost over ten minutes, and not in the last one.
    pub over_ten_minutes: bool,
    /// Number of links that lose.
    pub losing: u32,
    /// Number of links that were measured.
    pub links: u32,
    /// The link that loses most.
    pub worst: Option<WorstLink>,
}

/// The link of a mesh that loses most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorstLink {
    /// The node that measured it.
    pub source: String,
    /// The node at its other end.
    pub peer: String,
    /// The network of the probes.
    pub network: Network,
    /// How it was probed.
    pub method: Method,
    /// The share of its probes that it loses, 0 to 1.
    pub loss_ratio: f64,
    /// When it began to lose, in Unix seconds.
    pub since_unix_seconds: Option<u64>,
}

impl Overall {
    /// Whether its names are no longer than those of nodes, and its numbers are numbers.
    pub fn is_bounded(&self) -> bool {
        let worst = self.losses.iter().filter_map(|losses| losses.worst.as_ref());
        let narrow = self.narrow.iter().flat_map(|narrow| [&narrow.source, &narrow.peer]);
        let strangers = self.strangers.iter().flat_map(|seen| [&seen.address, &seen.node]);
        let of_links = worst.clone().flat_map(|link| [&link.source, &link.peer]).chain(narrow);
        let names = of_links.chain(&self.first_unknown).chain(strangers);
        names.map(String::len).all(|bytes| bytes <= NAME_BYTES_MAX)
            && worst.map(|link| link.loss_ratio).all(|ratio| (0.0..=1.0).contains(&ratio))
    }
}

/// Returns what the headline of a mesh follows from, beside the verdicts. What
/// `explaining` explains, verdicts of the last ten minutes, is not reported.
pub async fn overall(
    (verdicts, explaining): (&[Verdict], &[&Verdict]),
    matrix: &Matrix,
    standings: &[Standing],
    answering: &Answering,
) -> Overall {
    let is_explained = verdicts.iter().any(|verdict| verdict.kind.is_network_fault());
    let losses = if is_explained { None } else { losses(explaining, matrix, standings, answering).await };
    Overall { losses, ..unknown(matrix) }
}

/// Returns how many links lose, and the worst: in the recent window, or else over ten minutes.
/// `None` if no link loses, or if what has ended explains it.
async fn losses(
    explaining: &[&Verdict],
    matrix: &Matrix,
    standings: &[Standing],
    answering: &Answering,
) -> Option<UnexplainedLosses> {
    let is_evidence = |node: u16| standings[usize::from(node)].is_evidence_of_others();
    let sources = || matrix.numbers().filter(|node| standings[usize::from(*node)] == Standing::Sound);
    let (mut links, mut losing) = (0, 0);
    let mut worst: Option<(u16, Cell)> = None;
    let rate = |cell: Cell| f64::from(cell.lost()) / f64::from(cell.probes().max(1));
    let mut slice = Slice::default();
    for source in sources() {
        slice.add(matrix.cells(source).len()).await;
        let counts = |cell: &Cell| is_evidence(cell.peer()) && answering.counts(source, *cell);
        for cell in matrix.cells(source).iter().flat_map(|cell| cell.parts()).filter(counts) {
            links += 1;
            let is_losing = cell.lost() >= LOSING_LOST && rate(cell) >= LOSING_RATE;
            if is_losing && !is_explained(explaining, matrix, source, cell.peer()) {
                losing += 1;
                if worst.is_none_or(|(_, other)| rate(cell) > rate(other)) {
                    worst = Some((source, cell));
                }
            }
        }
    }
    let Some((source, cell)) = worst else {
        return over_ten_minutes(explaining, matrix, links, sources(), is_evidence);
    };
    let worst = WorstLink {
        source: matrix.name(source).to_owned(),
        peer: matrix.name(cell.peer()).to_owned(),
        network: cell.network(),
        method: cell.layer().method(),
        loss_ratio: rate(cell),
        since_unix_seconds: cell.since().map(|since| matrix.moment(since)),
    };
    Some(UnexplainedLosses { over_ten_minutes: false, losing, links, worst: Some(worst) })
}

/// Whether a verdict of before explains what a link has lost. The members of its
/// groups or its domain are not kept beyond its end.
fn is_explained(explaining: &[&Verdict], matrix: &Matrix, a: u16, b: u16) -> bool {
    let end = |node: u16| (matrix.name(node), matrix.zone_name(matrix.get(node).zone));
    let has_had_members =
        |verdict: &Verdict| matches!(verdict.kind, Kind::Domain | Kind::Partition) && verdict.members.is_empty();
    explaining.iter().any(|verdict| has_had_members(verdict) || covers(verdict, end(a), end(b)))
}

/// Returns how many of this many links have lost too much over ten minutes, and the worst that is
/// evidence. A link to a node that is leaving does not count if it is the worst of its source. Some
/// such links still count, but only if several nodes leave in the same minute. The links of a
/// source do not count if a verdict that has ended explains its worst.
fn over_ten_minutes(
    explaining: &[&Verdict],
    matrix: &Matrix,
    links: u32,
    sources: impl Iterator<Item = u16>,
    is_evidence: impl Fn(u16) -> bool,
) -> Option<UnexplainedLosses> {
    let (mut losing, mut worst) = (0, None);
    for source in sources {
        let Some(lasting) = matrix.row(source).map(|row| row.lasting) else { continue };
        let Some((peer, network, rate)) = lasting.worst() else { continue };
        if is_explained(explaining, matrix, source, peer) {
            continue;
        }
        losing += u32::from(lasting.links()).saturating_sub(u32::from(!is_evidence(peer)));
        let is_worse = worst.is_none_or(|(_, _, _, other)| rate > other);
        if is_worse && is_evidence(peer) {
            worst = Some((source, peer, network, rate));
        }
    }
    let worst = worst.map(|(source, peer, network, loss_ratio)| WorstLink {
        source: matrix.name(source).to_owned(),
        peer: matrix.name(peer).to_owned(),
        network,
        method: Method::Icmp,
        loss_ratio,
        since_unix_seconds: None,
    });
    (losing > 0).then_some(UnexplainedLosses { over_ten_minutes: true, losing, links, worst })
}

/// Returns what is not known of a mesh. What was not measured is not called well.
fn unknown(matrix: &Matrix) -> Overall {
    let mut measured = vec![false; matrix.node_count()];
    let is_evidence = |node: u16| !matrix.get(node).is_leaving() && !matrix.get(node).is_displaced;
    for node in matrix.numbers().filter(|node| is_evidence(*node)) {
        for cell in matrix.cells(node).iter().filter(|cell| is_evidence(cell.peer())) {
            measured[usize::from(node)] = true;
            measured[usize::from(cell.peer())] = true;
        }
    }
    let unknown = || matrix.numbers().filter(|node| !measured[usize::from(*node)] && !matrix.get(*node).is_leaving());
    let unnamed = matrix.members() - matrix.node_count();
    // Judges number nodes each in its own order, and must name the same one.
    let first = unknown().map(|node| matrix.name(node)).min().filter(|_| unnamed == 0);
    Overall {
        losses: None,
        unknown: unknown().count() + unnamed,
        first_unknown: first.map(str::to_owned),
        other_version: matrix.numbers().filter(|node| matrix.get(*node).presence == RowPresence::OtherVersion).count(),
        rows_not_kept: matrix.not_kept().rows,
        links_not_kept: matrix.not_kept().all_cells(),
        is_unmeasured: !measured.contains(&true),
        narrow: None,
        strangers: None,
    }
}
