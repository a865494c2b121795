//! Judges a mesh: which nodes, links, zones or domains are bad, and which agents only seem so.
//!
//! The judgement is a pure function of the [`Matrix`]: the same mesh has the same verdicts.
//! - Losses are explained by a rate that all links share and the fewest causes beyond it
//!   ([`loss`]).
//! - What only some flows or sizes of packets lose has verdicts of its own ([`links`]).
//! - Slow links are compared with similar links ([`slow`]).
//! - The counts of UDP reflectors ([`ways`]), and then those of echo requests ([`direction`]), give
//!   the direction of a loss.
//! - What all protocols lose for one reason is one verdict ([`protocols`]).
//! - What both networks lose for one reason is one verdict ([`networks`]).
//! - A cause whose links have answered for long enough is over ([`quiet`]).
//! - Losses without a cause are reported as such ([`headline`]).
//! - What could not be sent is neither sent nor lost, and has a verdict with its reason
//!   ([`unsent`]).
//! - Failed attempts of checks (the DNS, Services and other targets) are explained by the target,
//!   by zones or by nodes ([`checks`]).
//!
//! Three kinds of data are no evidence: what a starved agent measured ([`agents`]), what was
//! measured of a node that is being removed, and probes that an agent could not answer
//! ([`answering`]). What was not measured is never called well.
//! `docs/verdicts.md` describes the method.

mod agents;
mod answering;
mod causes;
mod checks;
mod describe;
mod details;
mod direction;
mod domain_causes;
pub mod domains;
mod evidence;
mod groups;
mod headline;
mod links;
mod loss;
pub mod matrix;
mod missing;
mod networks;
mod overall;
mod pairs;
mod protocols;
mod quiet;
mod rewritten;
mod score;
mod search;
mod shared;
pub mod slices;
mod slow;
mod subject;
mod tally;
mod unsent;
mod ways;
pub mod wording;

pub use agents::Standing;
pub use describe::suspect;
pub use evidence::Evidence;
pub use headline::{EXPLAINS_SECONDS, Headline, MeshState, gravity, headline, unconfirmed, without_judges};
pub use kube_canary_model::verdict::{Confidence, Direction, Kind, Severity, Verdict};
pub use overall::{NarrowLinks, Overall, UnexplainedLosses, WorstLink};
pub use rewritten::StrangersSeen;
pub use subject::{Identity, covers_udp_between, id, identity, is_same_finding, may_be_rest, may_share_links};
pub use unsent::{UNSENT_MAX, UnsentEntry, UnsentProbes};

use crate::slices::yield_now;

use crate::matrix::{Layer, Matrix, RowPresence};
use crate::slices::at_once;
use answering::Answering;
use causes::{Cause, Finding, Findings};
use details::Detail;
use kube_canary_model::limits::{MESH_REPORTS_MAX, MESH_VERDICTS_MAX};
use kube_canary_model::method::{Family, Method, Methods};
use kube_canary_model::report::Network;
use kube_canary_model::verdict::Mention;
use networks::{NetworkCauses, differs};
use pairs::{Index, NetworkScope};
use protocols::{MeshContext, ProtocolCauses};
use tally::Tally;

/// Nodes being removed, and nodes with starved agents, that are listed by name beside the verdicts.
/// Names of 253 bytes then take at most 76 KB each. Of the former, the rest is counted.
pub const LEAVING_MAX: usize = MESH_REPORTS_MAX;

/// Returns all verdicts over a mesh that hold, the most severe first, at most
/// [`MESH_VERDICTS_MAX`].
///
/// Takes up to 88 bytes per node, 320 per zone pair and 72 per domain, and a few
/// walks over all cells.
///
/// [`MESH_VERDICTS_MAX`]: kube_canary_model::limits::MESH_VERDICTS_MAX
pub fn judge(matrix: &Matrix) -> Vec<Verdict> {
    judge_whole(matrix).found.verdicts
}

/// What the judgement of a mesh has found.
#[derive(Debug)]
pub struct Judgement<'a> {
    /// The verdicts that hold, and those that are over.
    pub found: RankedVerdicts,
    /// Probes that could not be sent.
    pub unsent: UnsentProbes,
    /// What else the headline follows from.
    pub overall: Overall,
    /// The first [`LEAVING_MAX`] nodes whose agents are starved: what they measured does not count.
    pub starved: Vec<&'a str>,
    /// The first [`LEAVING_MAX`] nodes that are being removed. Neither what they measured nor
    /// what was measured of them counts.
    pub leaving: Vec<&'a str>,
    /// Number of further nodes that are being removed.
    pub leaving_not_listed: usize,
}

/// The verdicts that a judgement has found, the most severe first.
#[derive(Debug, Default)]
pub struct RankedVerdicts {
    /// Those that hold: at most [`MESH_VERDICTS_MAX`].
    pub verdicts: Vec<Verdict>,
    /// Number of further ones.
    pub not_listed: usize,
    /// Those that are over, though the recent windows still show the losses: at most
    /// [`MESH_VERDICTS_MAX`]. They say when they ended.
    pub ended: Vec<Verdict>,
    /// Whether links that lost all have come back. A verdict that is no longer found is over then.
    pub are_links_back: bool,
    /// Whether the reports of half of the nodes and more are missing, and no verdict over the
    /// network explains that. What this judgement does not find may hold all the same.
    pub is_partial: bool,
}

impl Judgement<'_> {
    /// Returns one line that sums up the mesh.
    pub fn headline(&self) -> Headline {
        let past: Vec<&Verdict> = self.found.ended.iter().collect();
        headline(&self.found.verdicts, &past, &self.overall)
    }
}

/// Returns the verdicts, what sums them up, and the nodes whose evidence they left out. Each node's
/// standing is computed once.
pub fn judge_whole(matrix: &Matrix) -> Judgement<'_> {
    at_once(judge_in_slices(matrix, &[]))
}

/// Does the same as [`judge_whole`] in slices of at most 10 ms, between which other tasks run.
/// `explaining` has verdicts of before that explain what was lost in the last ten minutes.
pub async fn judge_in_slices<'a>(matrix: &'a Matrix, explaining: &[Verdict]) -> Judgement<'a> {
    let standings = agents::standings(matrix);
    let answering = Answering::new(matrix, &standings);
    yield_now().await;
    let found = judge_by(matrix, &standings, &answering).await;
    yield_now().await;
    let unsent = unsent::search(matrix, &standings);
    let explaining: Vec<&Verdict> = explaining.iter().chain(&found.ended).collect();
    let overall = overall::overall((&found.verdicts, &explaining), matrix, &standings, &answering).await;
    let (narrow, strangers) = (links::narrow(matrix, &standings), answering.rewritten.others(matrix));
    let overall = Overall { narrow, strangers, ..overall };
    let names = |standing: Standing| {
        let are = matrix.numbers().zip(&standings).filter(move |(_, of)| **of == standing);
        are.map(|(node, _)| matrix.name(node))
    };
    let starved = names(Standing::Starved).take(LEAVING_MAX).collect();
    let leaving: Vec<&str> = names(Standing::Leaving).take(LEAVING_MAX).collect();
    let leaving_not_listed = names(Standing::Leaving).count() - leaving.len();
    Judgement { found, unsent, overall, starved, leaving, leaving_not_listed }
}

async fn judge_by(matrix: &Matrix, standings: &[Standing], answering: &Answering) -> RankedVerdicts {
    let mut verdicts = Vec::new();
    let index = &Index::new(matrix, standings).await;
    let mesh = MeshContext { matrix, standings, index, answering };
    let nodes = &mesh.scope(Network::Node, Layer::Nodes.bit(), 0.0);
    let mut parts = protocols::search(&mesh).await;
    missing::as_one_report_sees(&mesh, &mut parts);
    let of_nodes = if nodes.is_measured() { loss::search(nodes).await } else { Findings::default() };
    let mut of_nodes = NetworkCauses::new(nodes, of_nodes).await;
    // The nodes' own addresses are probed by ICMP alone.
    let mut shared = Vec::new();
    for (place, part) in parts.iter_mut().enumerate() {
        if matches!(part.protocol, None | Some(Method::Icmp)) {
            let (joined, found) = networks::join(&mut part.found, (nodes, of_nodes)).await;
            of_nodes = joined;
            shared.extend(found.into_iter().map(|found| (place, found)));
        }
    }
    let mut of_nodes = ProtocolCauses {
        scope: mesh.scope(Network::Node, nodes.layers, 0.0),
        found: of_nodes,
        protocol: None,
        is_of_all: Vec::new(),
        by_method: Vec::new(),
    };
    links::add_flow_verdicts(&mesh, &mut parts, &mut of_nodes, &mut verdicts).await;
    links::add_hole_verdicts(&mesh, &mut verdicts).await;
    add_loss_verdicts(&mesh, &of_nodes, &mut verdicts, |place| {
        let (part, shared) = shared.iter().find(|(_, shared)| shared.node == place)?;
        Some((&parts[*part], shared.pod))
    });
    for part in &parts {
        add_loss_verdicts(&mesh, part, &mut verdicts, |_| None);
    }
    domain_causes::join_extents(&mut verdicts);
    let pods = &mesh.method_scope(mesh.methods().next().unwrap_or_default(), 0.0);
    let slow_pods = if pods.is_measured() { slow::search(pods).await } else { Vec::new() };
    let slow_nodes = if nodes.is_measured() { slow::search(nodes).await } else { Vec::new() };
    let slow_pods = slow_pods.iter().filter(|slow| !networks::is_slow_below(slow, &slow_nodes));
    verdicts.extend(slow_pods.map(|slow| describe::slow(pods, slow)));
    verdicts.extend(slow_nodes.iter().map(|slow| describe::slow(nodes, slow)));
    let starved = matrix.numbers().filter(|node| standings[usize::from(*node)] == Standing::Starved);
    verdicts.extend(starved.map(|node| describe::starved(matrix, node)));
    missing::add_missing_agents(pods, &parts, &mut verdicts);
    unsent::causes::add(pods, &mut verdicts).await;
    answering.rewritten.add(matrix, &mut verdicts);
    checks::add(matrix, standings, &mut verdicts).await;
    verdicts.sort_by(|a, b| gravity(a).cmp(&gravity(b)).then(b.weight.total_cmp(&a.weight)));
    let (mut verdicts, mut ended): (Vec<_>, Vec<_>) = verdicts.into_iter().partition(Verdict::holds);
    let not_listed = verdicts.len().saturating_sub(MESH_VERDICTS_MAX);
    for list in [&mut verdicts, &mut ended] {
        list.truncate(MESH_VERDICTS_MAX);
        for verdict in list {
            verdict.id = id(verdict);
        }
    }
    let lacks = |node: &u16| matches!(matrix.get(*node).presence, RowPresence::Missing | RowPresence::OtherVersion);
    let missing = matrix.numbers().filter(lacks).count();
    let is_explained = verdicts.iter().any(|verdict| verdict.kind.is_network_fault());
    let is_partial = missing > 0 && missing * 2 >= matrix.node_count() && !is_explained;
    RankedVerdicts { verdicts, not_listed, ended, are_links_back: matrix.are_links_back(), is_partial }
}

/// Adds the verdicts over the losses of a network or a protocol. If the pods' network loses for the
/// same reason, `shared` returns the part of its causes, and the place of the cause in it.
fn add_loss_verdicts<'a>(
    mesh: &MeshContext<'_>,
    part: &ProtocolCauses<'_>,
    verdicts: &mut Vec<Verdict>,
    shared: impl Fn(usize) -> Option<(&'a ProtocolCauses<'a>, usize)>,
) {
    let ProtocolCauses { scope, found, .. } = part;
    let complete = direction::is_evidence_complete(scope.matrix);
    for (place, finding) in found.findings.found.iter().enumerate() {
        let detail = &found.details[place];
        let shared = shared(place);
        if found.is_shared[place] || missing::may_be_agent_fault(part, finding.cause) {
            continue;
        }
        let protocol = shared.map_or_else(|| part.protocol_of(place), |(pods, place)| pods.protocol_of(place));
        // The namespaces of the pods count the requests.
        let pods = if scope.network == Network::Pod {
            Some((&part.found, place))
        } else {
            shared.map(|(pods, place)| (&pods.found, place))
        };
        let echoes = pods.filter(|_| complete && matches!(protocol, None | Some(Method::Icmp)));
        let by_udp = pods.filter(|_| matches!(protocol, None | Some(Method::Udp)));
        let (icmp, udp) = (&mesh.method_scope(Method::Icmp, 0.0), &mesh.method_scope(Method::Udp, 0.0));
        let likewise = shared.map(|(pods, place)| pods.found.details[place].both);
        let background = found.findings.background;
        let mut verdict = match finding.cause {
            Cause::Node(node) => {
                let by_udp = by_udp.and_then(|(found, _)| ways::node_directions(udp, node, &found.findings));
                let by_echo = || echoes.and_then(|(found, _)| direction::node_directions(icmp, node, &found.findings));
                let directions = by_udp.or_else(by_echo);
                describe::node(scope, node, detail, directions, likewise)
            }
            Cause::Zones(a, b) => describe::zones(scope, (a, b), detail, background, likewise),
            Cause::Zone(zone, inside) => describe::zone(scope, (zone, inside), detail, background, likewise),
            Cause::Domain(domain, extent) => describe::domain(scope, (domain, extent), detail, background, likewise),
            Cause::Partition => describe::partition(scope, &found.findings, detail, likewise),
            Cause::Mesh => describe::everywhere(scope, Kind::Mesh, finding.rate, detail, likewise),
            Cause::Paths => describe::everywhere(scope, Kind::Paths, finding.rate, detail, likewise),
            Cause::Link(a, b) => {
                let Some(pair) = detail.pair else { continue };
                let by_udp = by_udp.and_then(|(found, _)| ways::link_directions(udp, (a, b), &found.findings));
                let by_echo = || {
                    let (found, _) = echoes?;
                    direction::link_directions(icmp, &icmp.pair_of(a, b)?, &found.findings)
                };
                let directions = by_udp.or_else(by_echo);
                describe::link(scope, &pair, detail, directions, likewise)
            }
        };
        if let Some(by_method) = part.by_method.get(place) {
            describe::by_protocol(&mut verdict, by_method);
        }
        let family = family_alone(detail.by_family);
        describe::by_family(&mut verdict, family, detail.by_family);
        let is_likely = missing::is_likely_at_most(part, finding.cause);
        if let Some(only) = missing::only_report(scope.matrix).filter(|_| is_likely && finding.cause == Cause::Mesh) {
            verdict = verdict.mentioning(Mention::OnlyReport, scope.matrix.name(only));
        }
        // A cause of both networks is over if neither loses any more.
        let ended = match shared {
            Some((pods, place)) => detail.ended().zip(pods.found.details[place].ended()).map(|(a, b)| a.max(b)),
            None => detail.ended(),
        };
        let ended_unix_seconds = ended.map(|moment| scope.matrix.moment(moment));
        let certain = confidence(scope, finding, detail);
        let confidence = if is_likely { Confidence::Likely } else { certain };
        let severity = severity(finding.cause, protocol);
        let weight = finding.score;
        verdicts.push(Verdict {
            confidence,
            severity,
            protocol: protocol.map(Methods::of),
            ended_unix_seconds,
            weight,
            ..verdict
        });
    }
}

/// A cause with this many nats beyond its cost is certain. Among meshes with a verdict, chance
/// causes this in one of e^8 = 3,000.
const CERTAIN_NATS: f64 = 8.0;

fn confidence(scope: &NetworkScope<'_>, finding: &Finding, detail: &Detail) -> Confidence {
    let is_one_sided = match finding.cause {
        Cause::Link(..) => {
            detail.pair.is_some_and(|pair| !pair.is_measured_twice() || describe::reporter(&pair).is_some())
        }
        Cause::Node(node) => scope.matrix.row(node).is_some() && is_contradicted(detail),
        _ => false,
    };
    if finding.score >= CERTAIN_NATS && !is_one_sided { Confidence::Certain } else { Confidence::Likely }
}

/// Whether the node's own measurements and those of the other nodes are far apart.
fn is_contradicted(detail: &Detail) -> bool {
    let (by, to) = (detail.by, detail.to);
    search::is_excluded(by, to, search::ONE_SIDED) || search::is_excluded(to, by, search::ONE_SIDED)
}

/// Echo requests are for probing alone. If other protocols pass, no user of the network is
/// affected. The severity is that of the alert, which must not change while a verdict holds, so it
/// does not depend on how much is lost.
const fn severity(cause: Cause, protocol: Option<Method>) -> Severity {
    let is_wide = !matches!(cause, Cause::Link(..) | Cause::Paths);
    let is_of_users = !matches!(protocol, Some(Method::Icmp));
    if is_wide && is_of_users { Severity::Critical } else { Severity::Warning }
}

/// The family that a cause is about, if it loses at least this many times what the other loses.
const FAMILY_TIMES: f64 = 5.0;

/// Returns the address family that alone loses over the links of a cause, if both are measured.
fn family_alone([v4, v6]: [Tally; 2]) -> Option<Family> {
    let is_alone =
        |more: Tally, less: Tally| less.probes > 0 && more.rate() >= less.rate() * FAMILY_TIMES && differs(more, less);
    match () {
        () if is_alone(v6, v4) => Some(Family::V6),
        () if is_alone(v4, v6) => Some(Family::V4),
        () => None,
    }
}

#[cfg(test)]
mod tests;
