//! Separates what all protocols lose from what one of them loses.
//!
//! The probes of all protocols between the pods are added up, and one search explains their losses.
//! A cause that all protocols share stays: its verdict has no protocol. Besides, the losses of each
//! protocol are explained alone. Of these causes, one stays if the protocol loses far more over its
//! links than the others together do. So a fault that all share is never named once for each
//! protocol, though the search over one of them may find it in another shape.

use super::agents::Standing;
use super::answering::Answering;
use super::causes::{Cause, Finding, Findings};
use super::details;
use super::loss;
use super::networks::{NetworkCauses, differs};
use super::pairs::{Index, NetworkScope};
use super::tally::Tally;
use crate::matrix::{Layer, Matrix};
use kube_canary_model::report::{Method, Network};

/// A lost handshake is followed by another some two seconds after it began, and not ten. While all
/// is lost, these come beside the usual ones.
const HANDSHAKES_IF_LOST: f64 = 1.0 + 10.0 / 2.0;

/// The probes of one cause's links, by method.
pub type ByMethod = [Tally; Method::ALL.len()];

/// The causes of the pods' network that all protocols share, or those of one protocol.
pub struct ProtocolCauses<'a> {
    /// The cells that count.
    pub scope: NetworkScope<'a>,
    /// The causes. Those that are marked as shared belong to another part.
    pub found: NetworkCauses,
    /// The protocol; `None` if all share the causes.
    pub protocol: Option<Method>,
    /// Whether a cause is of all protocols, although the part is of one. Empty if none is.
    pub is_of_all: Vec<bool>,
    /// What each method lost over the links of each cause. Empty if only one was measured.
    pub by_method: Vec<ByMethod>,
}

/// What all scopes of a mesh have in common.
#[derive(Clone, Copy)]
pub struct MeshContext<'a> {
    /// The mesh as collected.
    pub matrix: &'a Matrix,
    /// Which nodes' figures are evidence.
    pub standings: &'a [Standing],
    /// Data that every walk looks up.
    pub index: &'a Index,
    /// Which cells of UDP and TCP count.
    pub answering: &'a Answering,
}

impl<'a> MeshContext<'a> {
    /// Returns the scope of these layers.
    pub const fn scope(&self, network: Network, layers: u8, extra_cost: f64) -> NetworkScope<'a> {
        let Self { matrix, standings, index, answering } = *self;
        NetworkScope { matrix, network, layers, answering, extra_cost, standings, index }
    }

    /// Returns the scope of a method on the pods' network.
    pub const fn method_scope(&self, method: Method, extra_cost: f64) -> NetworkScope<'a> {
        self.scope(Network::Pod, layer(method).bit(), extra_cost)
    }

    /// Returns the methods with evidence on the pods' network.
    pub fn methods(&self) -> impl Iterator<Item = Method> + use<> {
        let layers = self.answering.layers();
        Method::ALL.into_iter().filter(move |method| layers & layer(*method).bit() != 0)
    }
}

const fn layer(method: Method) -> Layer {
    match method {
        Method::Icmp => Layer::Icmp,
        Method::Udp => Layer::Udp,
        Method::Tcp => Layer::Tcp,
    }
}

/// Finds the causes of the losses of the pods' network: first those that all protocols share, then
/// those of each protocol.
///
/// A protocol is odd if it loses far more than another over the links of a cause. The causes that
/// all share are then those of the other protocols: the losses of the odd one would hide them.
pub async fn search<'a>(mesh: &MeshContext<'a>) -> Vec<ProtocolCauses<'a>> {
    let methods: Vec<Method> = mesh.methods().collect();
    if methods.len() <= 1 {
        let scope = mesh.method_scope(methods.first().copied().unwrap_or_default(), 0.0);
        let found = NetworkCauses::new(
            &scope,
            if scope.is_measured() { loss::search(&scope).await } else { Findings::default() },
        )
        .await;
        // Its verdicts are about no protocol in particular: which one is measured first, or alone,
        // is no property of the fault.
        let (protocol, is_of_all) = (methods.first().copied(), vec![true; found.findings.found.len()]);
        return vec![ProtocolCauses { scope, found, protocol, is_of_all, by_method: Vec::new() }];
    }
    // Each search may blame chance.
    let extra_cost = ((methods.len() + 1) as f64).ln();
    let of = async |methods: &[Method]| {
        let layers = methods.iter().fold(0, |layers, method| layers | layer(*method).bit());
        ProtocolCauses::search(mesh, mesh.scope(Network::Pod, layers, extra_cost), None).await
    };
    let mut common = of(&methods).await;
    let mut parts: Vec<ProtocolCauses<'_>> = Vec::with_capacity(methods.len() + 1);
    for method in &methods {
        parts.push(ProtocolCauses::search(mesh, mesh.method_scope(*method, extra_cost), Some(*method)).await);
    }
    let backgrounds: Vec<f64> = parts.iter().map(|part| part.found.findings.background).collect();
    let mut are_odd = vec![false; methods.len()];
    for (place, method) in methods.iter().enumerate() {
        for (cause, by_method) in parts[place].by_method.clone().iter().enumerate() {
            let is_of_links = !matches!(parts[place].found.findings.found[cause].cause, Cause::Mesh | Cause::Paths);
            let is_own = methods.iter().enumerate().any(|(other, rival)| {
                // What the protocol loses everywhere is no loss of these links in particular.
                let everywhere = if is_of_links { backgrounds[place] - backgrounds[other] } else { 0.0 };
                far_more((*method, by_method[*method as usize]), lifted(by_method[*rival as usize], everywhere))
            });
            parts[place].found.is_shared[cause] = !is_own;
            are_odd[place] |= is_own;
        }
    }
    let mut further: Vec<(Method, Finding)> = Vec::new();
    for (by_method, finding) in common.by_method.iter().zip(&common.found.findings.found) {
        let odd = methods.iter().copied().filter(|method| is_odd(by_method, *method));
        further.extend(
            odd.max_by(|a, b| rate(by_method, *a).total_cmp(&rate(by_method, *b))).map(|method| (method, *finding)),
        );
    }
    for ((part, method), is_odd) in parts.iter_mut().zip(&methods).zip(&mut are_odd) {
        // A cause that the sum of all shows and that no search over one protocol finds.
        if part.found.is_shared.iter().all(|is_shared| *is_shared) {
            let own: Vec<Finding> =
                further.iter().filter(|(of, _)| of == method).map(|(_, finding)| *finding).collect();
            *is_odd |= !own.is_empty();
            part.add(mesh, own, &common.found).await;
        }
    }
    let even: Vec<Method> = methods.iter().zip(&are_odd).filter(|(_, odd)| !**odd).map(|(method, _)| *method).collect();
    if !even.is_empty() && even.len() < methods.len() {
        common = of(&even).await;
        for (part, _) in parts.iter_mut().zip(&are_odd).filter(|(_, odd)| **odd) {
            part.keep_what_no_other_measures();
        }
    }
    for (is_shared, by_method) in common.found.is_shared.iter_mut().zip(&common.by_method) {
        // All protocols must lose it, however much more one of them loses.
        let less = |other: &Method| {
            even.iter().any(|method| far_more((*method, by_method[*method as usize]), by_method[*other as usize]))
        };
        let is_odd = |method: &Method| is_odd(by_method, *method);
        *is_shared = if even.is_empty() { methods.iter().any(is_odd) } else { methods.iter().any(less) };
    }
    parts.insert(0, common);
    parts
}

impl<'a> ProtocolCauses<'a> {
    async fn search(mesh: &MeshContext<'a>, scope: NetworkScope<'a>, method: Option<Method>) -> Self {
        let found = NetworkCauses::new(&scope, loss::search(&scope).await).await;
        let mut part = Self { scope, found, protocol: method, is_of_all: Vec::new(), by_method: Vec::new() };
        part.compare(mesh).await;
        part
    }

    /// Sums up what each method lost over the links that a cause alone touches. Other causes would
    /// distort the comparison, because a pair may be measured by some methods only.
    async fn compare(&mut self, mesh: &MeshContext<'a>) {
        self.by_method = vec![ByMethod::default(); self.found.findings.found.len()];
        if self.by_method.is_empty() {
            return;
        }
        for method in mesh.methods() {
            let (scope, findings) = (mesh.method_scope(method, 0.0), &self.found.findings);
            scope
                .each_pair(|pair| {
                    let mut touching = details::counted(findings, &scope, (pair.a, pair.b));
                    if let (Some((place, _)), None) = (touching.next(), touching.next()) {
                        let sum = &mut self.by_method[place][method as usize];
                        *sum = sum.plus(pair.both());
                    }
                })
                .await;
        }
    }

    /// Returns the protocol of the verdict over a cause.
    pub fn protocol_of(&self, place: usize) -> Option<Method> {
        self.protocol.filter(|_| !self.is_of_all.get(place).copied().unwrap_or_default())
    }

    /// Keeps the causes over whose links no other protocol is measured. A dead node answers no
    /// probe, but those of UDP and TCP are no evidence if its report is missing.
    fn keep_what_no_other_measures(&mut self) {
        let is_only = |by_method: &ByMethod| by_method.iter().filter(|tally| tally.probes > 0).count() == 1;
        self.is_of_all = self
            .by_method
            .iter()
            .zip(&self.found.is_shared)
            .map(|(tallies, shared)| *shared && is_only(tallies))
            .collect();
        for (is_shared, is_of_all) in self.found.is_shared.iter_mut().zip(&self.is_of_all) {
            *is_shared &= !is_of_all;
        }
    }

    /// Adds causes that the search over all protocols has found.
    async fn add(&mut self, mesh: &MeshContext<'a>, further: Vec<Finding>, all: &NetworkCauses) {
        if further.is_empty() {
            return;
        }
        let before = self.found.findings.found.len();
        let mut findings = std::mem::take(&mut self.found.findings);
        findings.found.extend(further);
        if findings.groups.is_empty() {
            findings.groups = std::rc::Rc::clone(&all.findings.groups);
        }
        findings.domains = std::sync::Arc::clone(&all.findings.domains);
        self.found = NetworkCauses::new(&self.scope, findings).await;
        for place in 0..before {
            self.found.is_shared[place] = true;
        }
        for (finding, detail) in self.found.findings.found.iter_mut().zip(&self.found.details) {
            finding.rate = detail.both.rate();
        }
        self.compare(mesh).await;
    }
}

fn rate(by_method: &ByMethod, method: Method) -> f64 {
    by_method[method as usize].rate()
}

/// Whether one method loses far more than another.
fn is_odd(by_method: &ByMethod, method: Method) -> bool {
    by_method.iter().any(|other| far_more((method, by_method[method as usize]), *other))
}

/// Whether a method loses far more than another did, even if the loss has begun or ended within the
/// window.
fn far_more((method, more): (Method, Tally), less: Tally) -> bool {
    differs(more, if method == Method::Tcp { repeated(less) } else { less })
}

/// Returns what TCP may lose of what another method has lost. In the part of a window in which all
/// is lost, it has [`HANDSHAKES_IF_LOST`] times as many handshakes as in the rest.
fn repeated(tally: Tally) -> Tally {
    let passed = tally.probes.saturating_sub(tally.lost);
    if passed == 0 {
        return tally;
    }
    let lost = f64::from(tally.lost) * HANDSHAKES_IF_LOST;
    with_rate(tally, lost / (lost + f64::from(passed)))
}

/// Returns what a method would lose if it also lost at this rate.
fn lifted(tally: Tally, rate: f64) -> Tally {
    if rate <= 0.0 || tally.probes == 0 {
        return tally;
    }
    with_rate(tally, 1.0 - (1.0 - tally.rate()) * (1.0 - rate.min(1.0)))
}

/// Returns as many probes, of which this share is lost.
fn with_rate(tally: Tally, rate: f64) -> Tally {
    let lost = f64::from(tally.probes) * rate;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the probes")]
    let lost = (lost.round() as u32).min(tally.probes);
    Tally { lost, ..tally }
}
