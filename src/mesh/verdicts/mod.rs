//! What a mesh says: which node, link or zones are bad, and which agents only seem so.
//!
//! A pure function over the [`Matrix`]: the same mesh has the same verdicts. What is lost is explained by the fewest
//! culprits ([`loss`]), what is slow is compared with its like ([`slow`]), and the echo counters tell which way is lost
//! ([`direction`]). Two kinds of evidence are none: what a starved agent measured ([`agents`]), and what was measured of a
//! node that is being removed. What was not measured is never held to be well. `docs/verdicts.md` has the method.

mod agents;
mod details;
mod direction;
mod loss;
mod pairs;
mod score;
mod sentence;
mod slow;

pub use direction::Direction;

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::limits::MESH_VERDICTS_MAX;
use crate::mesh::matrix::{Matrix, Presence};
use crate::mesh::row::Network;
use agents::Standing;
use details::Detail;
use loss::{Culprit, Findings};
use pairs::{Scope, Tally};

/// What a verdict is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A node loses, or is slow, whoever is at the other end.
    Node,
    /// The ways between two zones, or within one.
    ZonePair,
    /// The way between two nodes.
    Link,
    /// An agent was late itself: its figures are its own.
    AgentStarved,
    /// An agent's row is missing.
    AgentUnreachable,
}

/// The network of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OfNetwork {
    /// Between pods.
    Pod,
    /// Between the nodes' own addresses.
    Node,
}

/// A verdict, as `/api/v1/verdicts` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What it is about.
    pub kind: Kind,
    /// The node's name; `a->b` for a link or two zones. A link's is in the order of the way that loses where that is told.
    pub subject: String,
    /// Which way loses; of a link `out` is the way from the first to the second.
    pub direction: Direction,
    /// In which network.
    pub network: OfNetwork,
    /// One sentence with the figures.
    pub evidence: String,
    /// Since when, in Unix seconds; `None` where that is not known.
    pub since_unix_seconds: Option<u64>,
    /// Whether packets are lost, rather than slow or an agent late.
    #[serde(skip)]
    pub is_loss: bool,
    /// What [`headline`] says of it: the finding in a few words, with its subject.
    #[serde(default)]
    pub summary: String,
    /// By which verdicts of a kind are ordered, the larger first.
    #[serde(skip)]
    weight: f64,
}

/// All verdicts over a mesh, the gravest first, at most [`MESH_VERDICTS_MAX`].
///
/// Takes 56 bytes per node and 320 per zone pair at a time, and some walks over all cells.
///
/// [`MESH_VERDICTS_MAX`]: crate::limits::MESH_VERDICTS_MAX
pub fn judge(matrix: &Matrix) -> Vec<Verdict> {
    let standings = agents::standings(matrix);
    let mut verdicts = Vec::new();
    let mut of_pods = Findings::default();
    let networks = [Network::Pod, Network::Node];
    for network in networks.into_iter().filter(|network| matrix.is_measured(*network)) {
        let scope = Scope { matrix, network, standings: &standings };
        let findings = loss::search(&scope);
        of_losses(&scope, &findings, &mut verdicts);
        verdicts.extend(slow::search(&scope).iter().map(|slow| sentence::slow(&scope, slow)));
        if network == Network::Pod {
            of_pods = findings;
        }
    }
    let scope = Scope { matrix, network: Network::Pod, standings: &standings };
    let starved = matrix.numbers().filter(|node| standings[usize::from(*node)] == Standing::Starved);
    verdicts.extend(starved.map(|node| sentence::starved(matrix, node)));
    of_missing_rows(&scope, &of_pods, &mut verdicts);
    // Losses first, then what is slow, then agents; of equals the first.
    let grave = |verdict: &Verdict| (verdict.kind >= Kind::AgentStarved, Reverse(verdict.is_loss), verdict.kind);
    verdicts.sort_by(|a, b| grave(a).cmp(&grave(b)).then(b.weight.total_cmp(&a.weight)));
    verdicts.truncate(MESH_VERDICTS_MAX);
    verdicts
}

/// One line over a mesh: the gravest verdict, and how many more there are.
pub fn headline(verdicts: &[Verdict], matrix: &Matrix) -> String {
    match verdicts {
        [] => sentence::nothing_wrong(matrix),
        [only] => only.summary.clone(),
        [first, rest @ ..] => format!("{}, and {} more", first.summary, rest.len()),
    }
}

fn of_losses(scope: &Scope<'_>, findings: &Findings, verdicts: &mut Vec<Verdict>) {
    if findings.found.is_empty() {
        return;
    }
    let complete = direction::is_evidence_complete(scope.matrix, scope.network);
    for (finding, mut detail) in findings.found.iter().zip(details::gather(scope, findings)) {
        let verdict = match finding.culprit {
            Culprit::Node(node) => {
                let ways = if complete { direction::of_node(scope, node, findings) } else { None };
                sentence::node(scope, node, &mut detail, ways)
            }
            Culprit::Zones(a, b) => sentence::zones(scope, (a, b), &mut detail, findings.background),
            Culprit::Link(..) => {
                let Some(pair) = detail.pair else { continue };
                let ways = if complete { direction::of_link(scope, &pair, findings) } else { None };
                sentence::link(scope, &pair, &mut detail, ways)
            }
        };
        verdicts.push(Verdict { weight: finding.score, ..verdict });
    }
}

/// Agents whose rows are missing, where not the network is the reason.
fn of_missing_rows(scope: &Scope<'_>, findings: &Findings, verdicts: &mut Vec<Verdict>) {
    let matrix = scope.matrix;
    let is_missing = |node: u16| {
        let it = matrix.get(node);
        it.presence == Presence::Missing && !it.is_leaving() && !findings.blames_node(node)
    };
    if !matrix.numbers().any(is_missing) {
        return;
    }
    // What is known of each: all probes to it, and how many of the pairs nobody else is to blame for.
    let mut known: Vec<(Detail, u32)> = Vec::new();
    let missing: Vec<u16> = matrix.numbers().filter(|node| is_missing(*node)).collect();
    known.resize_with(missing.len(), Default::default);
    for source in matrix.numbers() {
        for cell in scope.cells(source) {
            let Ok(place) = missing.binary_search(&cell.peer()) else { continue };
            let (detail, unexplained) = &mut known[place];
            detail.to = detail.to.plus(Tally { probes: cell.probes(), lost: cell.lost() });
            detail.sources[0] += 1;
            let zones = (matrix.get(source).zone, matrix.get(cell.peer()).zone);
            let pair = (source.min(cell.peer()), source.max(cell.peer()));
            *unexplained += u32::from(findings.touching(pair, zones).next().is_none());
        }
    }
    for (node, (detail, unexplained)) in missing.iter().zip(&known) {
        let cut_off = detail.to.probes > 0 && detail.to.lost == detail.to.probes && *unexplained == 0;
        if !cut_off {
            verdicts.push(sentence::unreachable(matrix, *node, detail));
        }
    }
}

#[cfg(test)]
mod tests;
