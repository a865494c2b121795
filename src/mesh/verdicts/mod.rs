//! What a mesh says: which node, link, zones or domain are bad, and which agents only seem so.
//!
//! A pure function over the [`Matrix`]: the same mesh has the same verdicts. What is lost is explained by what all links
//! share and the fewest causes beyond it ([`loss`]), what is slow is compared with its like ([`slow`]), and the echo
//! counters tell which way is lost ([`direction`]). What both networks lose for one reason is one verdict ([`networks`]).
//! Losses that have no cause are told as such ([`headline`]). Two kinds of evidence are none: what a starved agent
//! measured ([`agents`]), and what was measured of a node that is being removed. What was not measured is never held to
//! be well. `docs/verdicts.md` has the method.

mod agents;
mod causes;
mod details;
mod direction;
mod domains;
mod groups;
mod headline;
mod loss;
mod networks;
mod pairs;
mod score;
mod search;
mod sentence;
mod shared;
mod slow;
mod subject;

pub use direction::Direction;
pub use headline::{Headline, State, headline};

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::limits::{MESH_LEAVING_MAX, MESH_VERDICTS_MAX};
use crate::mesh::matrix::{Matrix, Presence};
use crate::mesh::row::Network;
use agents::Standing;
use causes::{Culprit, Finding, Findings};
use details::Detail;
use networks::Found;
use pairs::{Index, Scope, Tally};

/// What a verdict is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// All links lose alike.
    Mesh,
    /// Groups of nodes that are healthy inside do not reach each other.
    Partition,
    /// Some of all links lose, spread over nodes: those on one of several parallel paths.
    Paths,
    /// A node loses, or is slow, whoever is at the other end.
    Node,
    /// A zone is cut off from all others, or bad inside.
    Zone,
    /// A failure domain of the operator's is cut off from all other nodes, or bad inside.
    Domain,
    /// The links between two zones.
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

/// The protocol of a verdict's probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OfProtocol {
    /// ICMP: IPv4 and IPv6 of one network are judged together.
    #[default]
    Icmp,
}

/// How certain a verdict is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Both ends agree, and chance does the like in less than one of 3,000 meshes beyond what a
    /// verdict needs.
    Certain,
    /// The evidence is weaker, or one end alone gives it.
    #[default]
    Likely,
}

/// How much a verdict costs those who use the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// An agent's own trouble.
    #[default]
    Info,
    /// Something is slow, or loses less than a tenth, or is a single link.
    Warning,
    /// More than a single link loses a tenth or more.
    Critical,
}

/// A verdict, as `/api/v1/verdicts` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// 16 hexadecimal digits: a hash of kind, subject, network and protocol, the same wherever it
    /// is computed.
    #[serde(default)]
    pub id: String,
    /// What it is about.
    pub kind: Kind,
    /// The name of the node, zone or domain; `a->b` for a link or two zones, a link's in the order of the way that loses if that
    /// is known; `a|b` for a partition, with the smallest name of each group; `*` for `mesh` and `paths`. At most
    /// 128 bytes: longer names are cut, and end in a hash.
    pub subject: String,
    /// The names of the nodes of each group of a partition, or of a domain as one group. At most 64
    /// of a group are named; `evidence` has the number of the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Vec<String>>,
    /// How certain it is.
    #[serde(default)]
    pub confidence: Confidence,
    /// How much it costs those who use the network.
    #[serde(default)]
    pub severity: Severity,
    /// Which way loses; of a link `out` is the way from the first to the second.
    pub direction: Direction,
    /// In which network.
    pub network: OfNetwork,
    /// By which probes.
    #[serde(default)]
    pub protocol: OfProtocol,
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
/// Takes 72 bytes per node, 320 per zone pair and 72 per domain at a time, and some walks over all cells.
///
/// [`MESH_VERDICTS_MAX`]: crate::limits::MESH_VERDICTS_MAX
pub fn judge(matrix: &Matrix) -> Vec<Verdict> {
    judge_by(matrix, &agents::standings(matrix))
}

/// All that is said of a mesh.
#[derive(Debug)]
pub struct Judgement<'a> {
    /// What [`judge`] returns.
    pub verdicts: Vec<Verdict>,
    /// What [`headline`] returns.
    pub headline: Headline,
    /// The nodes whose agents are starved: what they measured does not count.
    pub starved: Vec<&'a str>,
    /// The first [`MESH_LEAVING_MAX`] nodes that are being removed: neither what they measured nor
    /// what was measured of them counts.
    pub leaving: Vec<&'a str>,
    /// How many further nodes are being removed.
    pub leaving_not_listed: usize,
}

/// Returns what [`judge`] and [`headline`] do, and the nodes whose evidence they left out, from one
/// look at each node.
pub fn judge_whole(matrix: &Matrix) -> Judgement<'_> {
    let standings = agents::standings(matrix);
    let verdicts = judge_by(matrix, &standings);
    let headline = headline::headline_by(&verdicts, matrix, &standings);
    let names = |standing: Standing| {
        let are = matrix.numbers().zip(&standings).filter(move |(_, of)| **of == standing);
        are.map(|(node, _)| matrix.name(node))
    };
    let starved = names(Standing::Starved).collect();
    let leaving: Vec<&str> = names(Standing::Leaving).take(MESH_LEAVING_MAX).collect();
    let leaving_not_listed = names(Standing::Leaving).count() - leaving.len();
    Judgement { verdicts, headline, starved, leaving, leaving_not_listed }
}

fn judge_by(matrix: &Matrix, standings: &[Standing]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let index = &Index::of(matrix, standings);
    let scopes = [Network::Pod, Network::Node].map(|network| Scope { matrix, network, standings, index });
    let [pods, nodes] = &scopes;
    let [of_pods, of_nodes] = scopes.each_ref().map(|scope| {
        let findings = if matrix.is_measured(scope.network) { loss::search(scope) } else { Findings::default() };
        Found::of(scope, findings)
    });
    let (of_pods, of_nodes, shared) = networks::join((pods, of_pods), (nodes, of_nodes));
    of_losses(nodes, &of_nodes, &mut verdicts, |place| {
        let shared = shared.iter().find(|shared| shared.node == place)?;
        Some((pods, &of_pods, shared.pod))
    });
    of_losses(pods, &of_pods, &mut verdicts, |_| None);
    domains::join_extents(&mut verdicts);
    let [slow_pods, slow_nodes] =
        scopes.each_ref().map(|scope| if matrix.is_measured(scope.network) { slow::search(scope) } else { Vec::new() });
    let slow_pods = slow_pods.iter().filter(|slow| !networks::is_slow_below(slow, &slow_nodes));
    verdicts.extend(slow_pods.map(|slow| sentence::slow(pods, slow)));
    verdicts.extend(slow_nodes.iter().map(|slow| sentence::slow(nodes, slow)));
    let starved = matrix.numbers().filter(|node| standings[usize::from(*node)] == Standing::Starved);
    verdicts.extend(starved.map(|node| sentence::starved(matrix, node)));
    of_missing_rows(pods, &of_pods.findings, &mut verdicts);
    // Losses first, then what is slow, then agents; of equals the first.
    let grave = |verdict: &Verdict| (verdict.kind >= Kind::AgentStarved, Reverse(verdict.is_loss), verdict.kind);
    verdicts.sort_by(|a, b| grave(a).cmp(&grave(b)).then(b.weight.total_cmp(&a.weight)));
    verdicts.truncate(MESH_VERDICTS_MAX);
    for verdict in &mut verdicts {
        verdict.id = subject::id(verdict);
    }
    verdicts
}

/// The verdicts over what a network loses. `shared` gives the pods' network, and the place of the culprit in it, where it loses
/// for the same reason.
fn of_losses<'a>(
    scope: &Scope<'_>,
    found: &Found,
    verdicts: &mut Vec<Verdict>,
    shared: impl Fn(usize) -> Option<(&'a Scope<'a>, &'a Found, usize)>,
) {
    let complete = direction::is_evidence_complete(scope.matrix);
    for (place, finding) in found.findings.found.iter().enumerate() {
        let detail = &found.details[place];
        let shared = shared(place);
        if scope.network == Network::Pod && found.is_shared[place] {
            continue;
        }
        // Requests are counted where the pods are.
        let pods = if scope.network == Network::Pod { Some((scope, found, place)) } else { shared };
        let pods = pods.filter(|_| complete);
        let likewise = shared.map(|(_, pods, place)| pods.details[place].both);
        let verdict = match finding.culprit {
            Culprit::Node(node) => {
                let ways = pods.and_then(|(scope, found, _)| direction::of_node(scope, node, &found.findings));
                sentence::node(scope, node, detail, ways, likewise)
            }
            Culprit::Zones(a, b) => sentence::zones(scope, (a, b), detail, found.findings.background, likewise),
            Culprit::Zone(zone, inside) => {
                sentence::zone(scope, zone, inside, detail, found.findings.background, likewise)
            }
            Culprit::Domain(domain, extent) => {
                sentence::domain(scope, (domain, extent), detail, found.findings.background, likewise)
            }
            Culprit::Partition => sentence::partition(scope, &found.findings, detail, likewise),
            Culprit::Mesh => sentence::mesh(scope, finding.rate, detail, likewise),
            Culprit::Paths => sentence::paths(scope, finding.rate, detail, likewise),
            Culprit::Link(..) => {
                let Some(pair) = detail.pair else { continue };
                let ways = pods.and_then(|(scope, found, place)| {
                    direction::of_link(scope, found.details[place].pair.as_ref()?, &found.findings)
                });
                let verdict = sentence::link(scope, &pair, detail, ways, likewise);
                sentence::with_lone_ends(verdict, scope, &pair)
            }
        };
        let (confidence, severity) = (confidence(scope, finding, detail), severity(finding));
        verdicts.push(Verdict { weight: finding.score, confidence, severity, ..verdict });
    }
}

/// From this many nats beyond its cost on, a cause is certain: chance does the like in one of e^8
/// = 3,000 of the meshes in which it makes a verdict at all.
const CERTAIN_NATS: f64 = 8.0;
/// From this loss on, a cause that is wider than a link is critical.
const CRITICAL_RATE: f64 = 0.1;

fn confidence(scope: &Scope<'_>, finding: &Finding, detail: &Detail) -> Confidence {
    let is_one_sided = match finding.culprit {
        Culprit::Link(..) => {
            detail.pair.is_some_and(|pair| !pair.is_measured_twice() || sentence::reporter(&pair).is_some())
        }
        Culprit::Node(node) => scope.matrix.row(node).is_some() && is_contradicted(detail),
        _ => false,
    };
    if finding.score >= CERTAIN_NATS && !is_one_sided { Confidence::Certain } else { Confidence::Likely }
}

/// Whether what a node reports and what the others report of it are far apart.
fn is_contradicted(detail: &Detail) -> bool {
    let (by, to) = (detail.by, detail.to);
    search::is_excluded(by, to, search::ONE_SIDED) || search::is_excluded(to, by, search::ONE_SIDED)
}

fn severity(finding: &Finding) -> Severity {
    let is_wide = !matches!(finding.culprit, Culprit::Link(..));
    if is_wide && finding.rate >= CRITICAL_RATE { Severity::Critical } else { Severity::Warning }
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
            let pair = (source.min(cell.peer()), source.max(cell.peer()));
            *unexplained += u32::from(findings.touching(scope, pair).next().is_none());
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
