//! The causes of what all layers lose, with their figures, and which layers a verdict names.
//!
//! The nodes' network carries the pods' network. So a cause of both is named once, of the nodes'
//! network, and a cause of the pods' network alone is the overlay.

use super::causes::Cause;
use super::causes::{Finding, Findings};
use super::details::{self, Detail};
use super::loss;
use super::pairs::{MeshContext, NetworkScope};
use super::score::gain;
use crate::matrix::{Layer, Matrix, RowPresence};
use kube_canary_model::method::Methods;
use kube_canary_model::report::Network;

/// Minimum unexplained loss of the nodes' network, in nats, for which it is named with the pods'.
const SOME: f64 = 3.0;

/// The causes of all losses of a mesh.
pub struct LossCauses<'a> {
    /// The causes that were found so far.
    pub findings: Findings,
    /// The layers of the pods' network.
    pub pods: NetworkScope<'a>,
    /// The figures of each cause in the pods' network.
    pub of_pods: Vec<Detail>,
    /// The layer of the nodes' network.
    pub nodes: NetworkScope<'a>,
    /// The figures of each cause in the nodes' network.
    pub of_nodes: Vec<Detail>,
    /// Whether flows that lose explain a cause, which is then no verdict.
    pub are_flows: Vec<bool>,
}

impl<'a> LossCauses<'a> {
    /// Finds the causes: one search explains the losses of all layers.
    pub async fn find(mesh: &MeshContext<'a>) -> Self {
        let all = mesh.scope(!0);
        let mut findings = if all.is_measured() { loss::search(&all).await } else { Findings::default() };
        widen_cause_of_single_report(mesh.matrix, &mut findings);
        let (pods, nodes) = (mesh.scope(!Layer::Nodes.bit()), mesh.scope(Layer::Nodes.bit()));
        let of_pods = details::collect(&pods, &findings).await;
        let of_nodes = details::collect(&nodes, &findings).await;
        let are_flows = vec![false; findings.found.len()];
        Self { findings, pods, of_pods, nodes, of_nodes, are_flows }
    }

    /// Returns the network that the verdict over a cause names.
    pub fn network(&self, place: usize) -> Network {
        let finding = &self.findings.found[place];
        let below = self.of_nodes[place].both;
        let has_some = || gain(below.lost, below.probes, self.findings.background(Layer::Nodes.bit())) > SOME;
        let is_below = finding.has(Layer::Nodes) && (finding.layers & self.pods.layers == 0 || has_some());
        if is_below { Network::Node } else { Network::Pod }
    }

    /// Returns the protocols that the verdict over a cause names; `None` if it is about all that
    /// are measured.
    ///
    /// One part of a mesh may lose by all, and more by one. That one then has a verdict beside. So
    /// does a wider cause, which hides what the link loses by its layers.
    pub fn protocol(&self, place: usize) -> Option<Methods> {
        let finding = &self.findings.found[place];
        let covers = |other: Cause| match finding.cause {
            Cause::Link(a, b) => self.findings.touches(&self.pods, other, (a, b)),
            cause => other == cause,
        };
        let is_worse = |other: &&Finding| other.rate >= finding.rate && covers(other.cause);
        let worse = self.findings.found.iter().filter(is_worse);
        let layers = worse.fold(finding.layers, |layers, other| layers | other.layers) & self.pods.layers;
        let is_some = finding.layers & self.pods.layers != 0 && layers != self.pods.layers;
        is_some.then(|| Methods::new(Layer::in_set(layers).map(Layer::method)))
    }
}

/// Whether a cause is about what agents answer: UDP and TCP, and not what kernels do.
pub const fn is_by_agents(finding: &Finding) -> bool {
    finding.layers & (Layer::Icmp.bit() | Layer::Nodes.bit()) == 0
}

/// Returns the node of the only report, if there is one alone and others are missing.
pub fn only_report(matrix: &Matrix) -> Option<u16> {
    let mut reporters = matrix.numbers().filter(|node| matrix.row(*node).is_some());
    let only = reporters.next().filter(|_| reporters.next().is_none())?;
    matrix.numbers().any(|node| matrix.get(node).presence == RowPresence::Missing).then_some(only)
}

/// Makes the whole mesh the cause of what UDP or TCP alone loses, in place of the node of the only
/// report. If no other report can be read, all links look like that from everywhere. All agents
/// then say the same, and not each its own node.
fn widen_cause_of_single_report(matrix: &Matrix, findings: &mut Findings) {
    let Some(only) = only_report(matrix) else { return };
    for finding in findings.found.iter_mut().filter(|finding| is_by_agents(finding)) {
        if finding.cause == Cause::Node(only) {
            finding.cause = Cause::Mesh;
        }
    }
}
