//! The causes that losses can have, and which links each of them touches.

use std::rc::Rc;
use std::sync::Arc;

use super::pairs::{NetworkScope, Pair};
use crate::domains::DOMAIN_NONE;
use crate::matrix::Layer;

/// Causes that are searched for, strongest first, among losses and among round-trip times
/// separately. Each takes a walk over all cells.
pub const CAUSES_MAX: usize = 24;
/// The group of a node that belongs to no group.
pub const NO_GROUP: u8 = u8::MAX;

/// A cause of losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A node, by its number.
    Node(u16),
    /// The links between two zones, or within one; the lower number first.
    Zones(u8, u8),
    /// The links of a zone to all other zones and, if the flag is set, those within it.
    Zone(u8, bool),
    /// Links of a failure domain, by its number.
    Domain(u8, DomainExtent),
    /// The links between groups of nodes that do not reach each other.
    Partition,
    /// The link between two nodes; the lower number first.
    Link(u16, u16),
    /// All links of the mesh.
    Mesh,
    /// Some of all links: those that take one of several parallel paths.
    Paths,
}

/// The part of a failure domain's links that a cause touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainExtent {
    /// The links to all nodes outside.
    Outside,
    /// The links inside the domain.
    Inside,
    /// All links of the domain.
    Both,
}

/// A cause, and how certain it is.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// The node, link or other part of the mesh that is the cause.
    pub cause: Cause,
    /// The layers that it touches: all that are searched, or some.
    pub layers: u8,
    /// Nats of likelihood beyond the cost of the cause.
    pub score: f64,
    /// Loss rate of the pairs that this cause alone explains.
    pub rate: f64,
    /// The same by layer: what the layer's links share, and this loss beyond it.
    pub rates: [f64; Layer::ALL.len()],
    /// Whether each of its pairs loses at its own rate, rather than all at the same rate.
    pub is_uneven: bool,
    /// Whether a node is named for losses that only the node itself reports.
    pub is_by_reports: bool,
}

impl Finding {
    /// Whether it is about the pods' network by this method.
    pub const fn has(&self, layer: Layer) -> bool {
        self.layers & layer.bit() != 0
    }
}

/// An explanation of all losses of a network.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The causes, in the order in which they were found.
    pub found: Vec<Finding>,
    /// The loss rate that all links share, and the number of probes, by layer.
    pub shared: [(f64, u32); Layer::ALL.len()],
    /// The group of each node, if the mesh falls into groups; otherwise empty.
    pub groups: Rc<[u8]>,
    /// The failure domain of each node; empty if there are none.
    pub domains: Arc<[u8]>,
}

impl Findings {
    /// Returns the loss rate that all links share, over these layers.
    pub fn background(&self, layers: u8) -> f64 {
        let shared = || Layer::in_set(layers).map(|layer| self.shared[layer as usize]);
        let probes: f64 = shared().map(|(_, probes)| f64::from(probes)).sum();
        shared().map(|(rate, probes)| rate * f64::from(probes)).sum::<f64>() / probes.max(1.0)
    }

    /// Returns the causes of what is lost in the layers of the scope.
    pub fn in_scope(&self, scope: &NetworkScope<'_>) -> impl Iterator<Item = &Finding> {
        let layers = scope.layers;
        self.found.iter().filter(move |finding| finding.layers & layers != 0)
    }

    /// Returns the causes of losses between these nodes in the layers of the scope, the lower
    /// number first.
    pub fn touching<'a>(
        &'a self,
        scope: &'a NetworkScope<'_>,
        nodes: (u16, u16),
    ) -> impl Iterator<Item = (usize, &'a Finding)> {
        let layers = scope.layers;
        self.found
            .iter()
            .enumerate()
            .filter(move |(_, finding)| finding.layers & layers != 0 && self.touches(scope, finding.cause, nodes))
    }

    /// Returns the causes of losses of this pair in its layers.
    #[inline]
    pub fn touching_pair<'a>(
        &'a self,
        scope: &'a NetworkScope<'_>,
        pair: &Pair,
    ) -> impl Iterator<Item = (usize, &'a Finding)> {
        let (layers, nodes) = (pair.layers, (pair.a, pair.b));
        self.found
            .iter()
            .enumerate()
            .filter(move |(_, finding)| finding.layers & layers != 0 && self.touches(scope, finding.cause, nodes))
    }

    /// Whether any cause touches this pair in its layers.
    #[inline]
    pub fn explain(&self, scope: &NetworkScope<'_>, pair: &Pair) -> bool {
        self.touching_pair(scope, pair).next().is_some()
    }

    /// Whether a cause touches the link between these nodes, the lower number first.
    #[inline]
    pub fn touches(&self, scope: &NetworkScope<'_>, cause: Cause, (a, b): (u16, u16)) -> bool {
        let zones = || (scope.zone(a), scope.zone(b));
        match cause {
            Cause::Node(node) => node == a || node == b,
            Cause::Zones(low, high) => {
                let (one, other) = zones();
                (low, high) == (one.min(other), one.max(other))
            }
            Cause::Zone(zone, inside) => match zones() {
                (one, other) if one == other => inside && zone == one,
                (one, other) => zone == one || zone == other,
            },
            Cause::Domain(domain, extent) => match self.domains_of(a, b) {
                (one, other) if one == other => domain == one && extent != DomainExtent::Outside,
                (one, other) => (domain == one || domain == other) && extent != DomainExtent::Inside,
            },
            Cause::Partition => is_across(&self.groups, a, b),
            Cause::Link(low, high) => (low, high) == (a, b),
            Cause::Mesh | Cause::Paths => true,
        }
    }

    fn domains_of(&self, a: u16, b: u16) -> (u8, u8) {
        let of = |node: u16| self.domains.get(usize::from(node)).copied().unwrap_or(DOMAIN_NONE);
        (of(a), of(b))
    }
}

/// Whether two nodes are in different groups.
pub fn is_across(groups: &[u8], a: u16, b: u16) -> bool {
    let of = |node: u16| groups.get(usize::from(node)).copied().unwrap_or(NO_GROUP);
    let (a, b) = (of(a), of(b));
    a != NO_GROUP && b != NO_GROUP && a != b
}

/// Whether this cause is a zone, a pair of zones or a failure domain.
pub const fn is_zone_or_domain(cause: Cause) -> bool {
    matches!(cause, Cause::Zones(..) | Cause::Zone(..) | Cause::Domain(..))
}
