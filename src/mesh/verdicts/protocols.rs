//! Separates what all protocols lose from what one of them loses.
//!
//! The probes of all protocols between the pods are added up, and one search explains their losses.
//! A cause that all protocols share stays: its verdict has no protocol. Besides, the losses of each
//! protocol are explained alone. Of these causes, one stays if the protocol loses far more over its
//! links than the others together do. So a fault that all share is never named once for each
//! protocol, though the search over one of them may find it in another shape.

use super::OfProtocol;
use super::agents::Standing;
use super::answering::Answering;
use super::causes::Finding;
use super::details;
use super::loss;
use super::networks::{Found, differs};
use super::pairs::{Index, Scope, Tally};
use crate::mesh::matrix::{Layer, Matrix};
use crate::report::{Method, Network};

/// The probes of one cause's links, by method.
pub type ByMethod = [Tally; Method::ALL.len()];

/// The causes of the pods' network that all protocols share, or those of one protocol.
pub struct Part<'a> {
    /// The cells that count.
    pub scope: Scope<'a>,
    /// The causes. Those that are marked as shared belong to another part.
    pub found: Found,
    /// The protocol; `None` if all share the causes.
    pub protocol: Option<OfProtocol>,
    /// What each method lost over the links of each cause. Empty if only one was measured.
    pub by_method: Vec<ByMethod>,
}

/// What all scopes of a mesh have in common.
#[derive(Clone, Copy)]
pub struct Mesh<'a> {
    /// The mesh as collected.
    pub matrix: &'a Matrix,
    /// Which nodes' figures are evidence.
    pub standings: &'a [Standing],
    /// Data that every walk looks up.
    pub index: &'a Index,
    /// Which cells of UDP and TCP count.
    pub answering: &'a Answering,
}

impl<'a> Mesh<'a> {
    /// Returns the scope of these layers.
    pub const fn scope(&self, network: Network, layers: u8, extra_cost: f64) -> Scope<'a> {
        let Self { matrix, standings, index, answering } = *self;
        Scope { matrix, network, layers, answering, extra_cost, standings, index }
    }

    /// Returns the scope of a method on the pods' network.
    pub const fn of_method(&self, method: Method, extra_cost: f64) -> Scope<'a> {
        self.scope(Network::Pod, layer(method).bit(), extra_cost)
    }

    /// Returns the methods with evidence on the pods' network.
    pub fn methods(&self) -> impl Iterator<Item = Method> + use<> {
        let layers = self.answering.layers();
        Method::ALL.into_iter().filter(move |method| layers & layer(*method).bit() != 0)
    }

    /// Returns the protocol of a verdict that is about none in particular: the only one that is
    /// measured, if there is only one.
    pub fn protocol(&self) -> Option<OfProtocol> {
        let mut methods = self.methods();
        match (methods.next(), methods.next()) {
            (None, _) => Some(OfProtocol::Icmp),
            (Some(only), None) => Some(only.into()),
            _ => None,
        }
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
pub fn search<'a>(mesh: &Mesh<'a>) -> Vec<Part<'a>> {
    let methods: Vec<Method> = mesh.methods().collect();
    if methods.len() <= 1 {
        let scope = mesh.of_method(methods.first().copied().unwrap_or_default(), 0.0);
        let found = Found::of(&scope, if scope.is_measured() { loss::search(&scope) } else { Default::default() });
        return vec![Part { scope, found, protocol: mesh.protocol(), by_method: Vec::new() }];
    }
    // Each search may blame chance.
    let extra_cost = ((methods.len() + 1) as f64).ln();
    let layers = methods.iter().fold(0, |layers, method| layers | layer(*method).bit());
    let all = mesh.scope(Network::Pod, layers, extra_cost);
    let mut common = Part::of(mesh, all, None);
    let mut parts: Vec<Part<'_>> =
        methods.iter().map(|method| Part::of(mesh, mesh.of_method(*method, extra_cost), Some(*method))).collect();
    for (part, method) in parts.iter_mut().zip(&methods) {
        for place in 0..part.by_method.len() {
            part.found.is_shared[place] = !is_own(&part.by_method[place], *method);
        }
    }
    let mut further: Vec<(Method, Finding)> = Vec::new();
    for place in 0..common.by_method.len() {
        let by_method = &common.by_method[place];
        let odd = methods.iter().copied().filter(|method| is_odd(by_method, *method));
        let most = odd.max_by(|a, b| rate(by_method, *a).total_cmp(&rate(by_method, *b)));
        let Some(most) = most else { continue };
        common.found.is_shared[place] = true;
        further.push((most, common.found.findings.found[place]));
    }
    for (part, method) in parts.iter_mut().zip(&methods) {
        // A cause that the sum of all shows and that no search over one protocol finds.
        if part.found.is_shared.iter().all(|is_shared| *is_shared) {
            let own = further.iter().filter(|(of, _)| of == method).map(|(_, finding)| *finding);
            part.add(mesh, own.collect(), &common.found);
        }
    }
    parts.insert(0, common);
    parts
}

impl<'a> Part<'a> {
    fn of(mesh: &Mesh<'a>, scope: Scope<'a>, method: Option<Method>) -> Self {
        let found = Found::of(&scope, loss::search(&scope));
        let mut part = Self { scope, found, protocol: method.map(OfProtocol::from), by_method: Vec::new() };
        part.compare(mesh);
        part
    }

    /// Sums up what each method lost over the links of each cause.
    fn compare(&mut self, mesh: &Mesh<'a>) {
        self.by_method = vec![ByMethod::default(); self.found.findings.found.len()];
        if self.by_method.is_empty() {
            return;
        }
        for method in mesh.methods() {
            let details = details::collect(&mesh.of_method(method, 0.0), &self.found.findings);
            for (by_method, detail) in self.by_method.iter_mut().zip(&details) {
                by_method[method as usize] = detail.both;
            }
        }
    }

    /// Adds causes that the search over all protocols has found.
    fn add(&mut self, mesh: &Mesh<'a>, further: Vec<Finding>, all: &Found) {
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
        self.found = Found::of(&self.scope, findings);
        for place in 0..before {
            self.found.is_shared[place] = true;
        }
        for (finding, detail) in self.found.findings.found.iter_mut().zip(&self.found.details) {
            finding.rate = detail.both.rate();
        }
        self.compare(mesh);
    }
}

fn rate(by_method: &ByMethod, method: Method) -> f64 {
    by_method[method as usize].rate()
}

fn others(by_method: &ByMethod, method: Method) -> Tally {
    let all = by_method.iter().fold(Tally::default(), |sum, tally| sum.plus(*tally));
    all.without(by_method[method as usize])
}

/// Whether one method and the others together lose at different rates.
fn is_odd(by_method: &ByMethod, method: Method) -> bool {
    let (own, others) = (by_method[method as usize], others(by_method, method));
    differs(own, others) || differs(others, own)
}

/// Whether a method loses far more than the others together.
fn is_own(by_method: &ByMethod, method: Method) -> bool {
    differs(by_method[method as usize], others(by_method, method))
}
