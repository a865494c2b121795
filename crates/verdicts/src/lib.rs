//! Judges a mesh: which nodes, links, zones or domains are bad, and which agents only seem so.
//!
//! The judgement is a pure function of the [`Matrix`]: the same mesh has the same verdicts.
//! - Losses are explained by a rate that all links share and the fewest causes beyond it
//!   ([`loss`]).
//! - What only some flows or sizes of packets lose has verdicts of its own ([`links`]).
//! - Slow links are compared with similar links ([`slow`]).
//! - The counts of UDP reflectors ([`ways`]), and then those of echo requests ([`direction`]), give
//!   the direction of a loss.
//! - A cause has the layers that it hits: protocols and networks are searched together, and what
//!   they lose for one reason is one verdict ([`loss_causes`]).
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
mod candidates;
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
mod loss_causes;
pub mod matrix;
mod missing;
mod overall;
mod pairs;
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
mod weigh;
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
use causes::{Cause, DomainExtent, Finding};
use details::Detail;
use kube_canary_model::limits::{MESH_REPORTS_MAX, MESH_VERDICTS_MAX};
use kube_canary_model::method::{Family, Methods};
use kube_canary_model::report::Network;
use kube_canary_model::verdict::Mention;
use loss_causes::LossCauses;
use pairs::{Index, MeshContext, NetworkScope};
use score::is_far_more;
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
    let mut causes = LossCauses::find(&mesh).await;
    links::add_flow_verdicts(&mesh, &mut causes, &mut verdicts).await;
    links::add_hole_verdicts(&mesh, &mut verdicts).await;
    add_loss_verdicts(&mesh, &causes, &mut verdicts);
    domain_causes::join_extents(&mut verdicts);
    let first = Layer::in_set(causes.pods.layers).next().unwrap_or(Layer::Icmp);
    let (pods, nodes) = (&mesh.scope(first.bit()), &causes.nodes);
    let slow_pods = if pods.is_measured() { slow::search(pods).await } else { Vec::new() };
    let slow_nodes = if nodes.is_measured() { slow::search(nodes).await } else { Vec::new() };
    let slow_pods = slow_pods.iter().filter(|slow| !slow.is_below(&slow_nodes));
    verdicts.extend(slow_pods.map(|slow| describe::slow(pods, slow)));
    verdicts.extend(slow_nodes.iter().map(|slow| describe::slow(nodes, slow)));
    let starved = matrix.numbers().filter(|node| standings[usize::from(*node)] == Standing::Starved);
    verdicts.extend(starved.map(|node| describe::starved(matrix, node)));
    missing::add_missing_agents(pods, &causes, &mut verdicts);
    unsent::causes::add(pods, &mut verdicts).await;
    answering.rewritten.add(matrix, &mut verdicts);
    checks::add(matrix, standings, &mut verdicts).await;
    // Judges number nodes each in its own order, and must leave out the same ones of many.
    let by_name = |a: &Verdict, b: &Verdict| identity(a).cmp(&identity(b));
    let by_weight = |a: &Verdict, b: &Verdict| b.weight.total_cmp(&a.weight);
    verdicts.sort_by(|a, b| gravity(a).cmp(&gravity(b)).then_with(|| by_weight(a, b)).then_with(|| by_name(a, b)));
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

/// Adds the verdicts over losses.
fn add_loss_verdicts(mesh: &MeshContext<'_>, causes: &LossCauses<'_>, verdicts: &mut Vec<Verdict>) {
    let findings = &causes.findings;
    let is_complete = direction::is_evidence_complete(mesh.matrix);
    let (icmp, udp) = (&mesh.scope(Layer::Icmp.bit()), &mesh.scope(Layer::Udp.bit()));
    for (place, finding) in findings.found.iter().enumerate() {
        if causes.are_flows[place] || missing::may_be_agent_fault(causes, finding) {
            continue;
        }
        let (protocol, pods) = (causes.protocol(place), &causes.of_pods[place]);
        let (scope, detail, shared) = match causes.network(place) {
            Network::Pod => (&causes.pods, pods, None),
            Network::Node => {
                let is_shared = finding.layers & causes.pods.layers != 0 && pods.both.lost > 0;
                (&causes.nodes, &causes.of_nodes[place], is_shared.then_some(pods))
            }
        };
        // The namespaces of the pods count the requests.
        let has_echoes = is_complete && finding.has(Layer::Icmp);
        let mut verdict = match finding.cause {
            Cause::Node(node) => {
                let by_udp = finding.has(Layer::Udp).then(|| ways::node_directions(udp, node, findings)).flatten();
                let by_echo = || has_echoes.then(|| direction::node_directions(icmp, node, findings)).flatten();
                describe::node(scope, node, detail, by_udp.or_else(by_echo))
            }
            Cause::Zones(a, b) => describe::zones(scope, (a, b), detail),
            Cause::Zone(zone, inside) => {
                let extent = if inside { DomainExtent::Both } else { DomainExtent::Outside };
                describe::part(scope, (Kind::Zone, mesh.matrix.zone_name(zone)), extent, detail)
            }
            Cause::Domain(domain, extent) => describe::domain(scope, domain, extent, detail),
            Cause::Partition => describe::partition(scope, findings, detail),
            Cause::Mesh => describe::everywhere(scope, Kind::Mesh, finding.rate, detail),
            Cause::Paths => describe::everywhere(scope, Kind::Paths, finding.rate, detail),
            Cause::Link(a, b) => {
                let Some(pair) = detail.pair else { continue };
                let by_udp = finding.has(Layer::Udp).then(|| ways::link_directions(udp, (a, b), findings)).flatten();
                let by_echo = || {
                    let pair = icmp.pair_of(a, b).filter(|_| has_echoes)?;
                    direction::link_directions(icmp, &pair, findings)
                };
                describe::link(scope, &pair, detail, by_udp.or_else(by_echo))
            }
        };
        let background = findings.background(finding.layers & scope.layers);
        describe::beside(&mut verdict, background, shared.map(|pods| pods.both));
        if scope.network == Network::Pod && causes.pods.layers.count_ones() > 1 {
            describe::by_protocol(&mut verdict, &detail.by_layer);
        }
        describe::by_family(&mut verdict, family_alone(detail.by_family), detail.by_family);
        let is_likely = missing::is_likely_at_most(mesh.matrix, finding);
        if let Some(only) = loss_causes::only_report(mesh.matrix).filter(|_| is_likely && finding.cause == Cause::Mesh)
        {
            verdict = verdict.mentioning(Mention::OnlyReport, mesh.matrix.name(only));
        }
        // A cause of both networks is over if neither loses any more.
        let ended = match shared {
            Some(pods) => detail.ended().zip(pods.ended()).map(|(a, b)| a.max(b)),
            None => detail.ended(),
        };
        let ended_unix_seconds = ended.map(|moment| mesh.matrix.moment(moment));
        let certain = confidence(scope, finding, detail);
        let confidence = if is_likely { Confidence::Likely } else { certain };
        let (severity, weight) = (severity(finding.cause, protocol), finding.score);
        verdicts.push(Verdict { confidence, severity, protocol, ended_unix_seconds, weight, ..verdict });
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
    weigh::is_excluded(by, to, search::ONE_SIDED) || weigh::is_excluded(to, by, search::ONE_SIDED)
}

/// Echo requests are for probing alone. If other protocols pass, no user of the network is
/// affected. The severity is that of the alert, which must not change while a verdict holds, so it
/// does not depend on how much is lost.
fn severity(cause: Cause, protocol: Option<Methods>) -> Severity {
    let is_wide = !matches!(cause, Cause::Link(..) | Cause::Paths);
    let is_of_users = protocol != Some(Methods::ICMP);
    if is_wide && is_of_users { Severity::Critical } else { Severity::Warning }
}

/// The family that a cause is about, if it loses at least this many times what the other loses.
const FAMILY_TIMES: f64 = 5.0;
/// Nats by which two rates must explain both families better than one rate.
const FAMILY_NATS: f64 = 4.5;

/// Returns the address family that alone loses over the links of a cause, if both are measured.
fn family_alone([v4, v6]: [Tally; 2]) -> Option<Family> {
    let is_alone = |more: Tally, less: Tally| {
        less.probes > 0 && more.rate() >= less.rate() * FAMILY_TIMES && is_far_more(more, less, FAMILY_NATS)
    };
    match () {
        () if is_alone(v6, v4) => Some(Family::V6),
        () if is_alone(v4, v6) => Some(Family::V4),
        () => None,
    }
}

#[cfg(test)]
mod tests;
