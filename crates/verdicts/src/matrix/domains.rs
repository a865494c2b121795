//! The failure domain of each node of a matrix, from the operator's file.
//!
//! A domain counts only if it adds information. A domain of one node is that node, and a domain of
//! all nodes is the mesh. A domain with the same nodes as a zone is that zone.

use std::sync::Arc;

use super::{Matrix, ZONE_UNKNOWN};
use crate::domains::{DOMAIN_NONE, Domains};
use kube_canary_model::limits::MESH_ZONES_MAX;

/// Domain number of each node, one byte per node. Empty if there are no domains.
#[derive(Debug, Default)]
pub(super) struct OfNodes {
    numbers: Arc<[u8]>,
    file: Option<Arc<Domains>>,
}

/// Facts about a domain.
#[derive(Clone, Copy, Default)]
struct DomainFacts {
    /// Number of its nodes that are not being removed.
    nodes: usize,
    /// The zone of all its nodes, or the unknown zone if they are in several.
    zone: u8,
}

impl Matrix {
    /// Sets the domain of each node. All rows must have arrived.
    pub fn set_domains(&mut self, domains: &Arc<Domains>) {
        let mut numbers: Vec<u8> = self.numbers().map(|node| domains.domain_of(self.name(node))).collect();
        let mut known = [DomainFacts::default(); 1 + u8::MAX as usize];
        let (mut all, mut of_zones) = (0, [0_usize; MESH_ZONES_MAX]);
        for node in self.numbers().filter(|node| !self.get(*node).is_leaving()) {
            let zone = self.get(node).zone;
            let known = &mut known[usize::from(numbers[usize::from(node)])];
            known.zone = if known.nodes == 0 || known.zone == zone { zone } else { ZONE_UNKNOWN };
            known.nodes += 1;
            all += 1;
            of_zones[usize::from(zone)] += 1;
        }
        let is_own = |domain: u8| {
            let domain = known[usize::from(domain)];
            let is_zone = domain.zone != ZONE_UNKNOWN && of_zones[usize::from(domain.zone)] == domain.nodes;
            domain.nodes >= 2 && domain.nodes < all && !is_zone
        };
        for number in &mut numbers {
            if !is_own(*number) {
                *number = DOMAIN_NONE;
            }
        }
        let is_any = numbers.iter().any(|number| *number != DOMAIN_NONE);
        self.domains = if is_any {
            OfNodes { numbers: numbers.into(), file: Some(Arc::clone(domains)) }
        } else {
            OfNodes::default()
        };
    }

    /// Returns the domain number of each node. Empty if there are no domains.
    pub const fn domains(&self) -> &Arc<[u8]> {
        &self.domains.numbers
    }

    /// Returns the number of a node's domain, or [`DOMAIN_NONE`].
    pub fn domain(&self, node: u16) -> u8 {
        self.domains.numbers.get(usize::from(node)).copied().unwrap_or(DOMAIN_NONE)
    }

    /// Returns how many domain numbers there are, including [`DOMAIN_NONE`]; 0 if
    /// there are no domains.
    pub fn domain_count(&self) -> usize {
        self.domains.file.as_ref().map_or(0, |domains| domains.count() + 1)
    }

    /// Returns the name of a domain. It is empty if there is no such domain.
    pub fn domain_name(&self, domain: u8) -> &str {
        self.domains.file.as_ref().map_or("", |domains| domains.name(domain))
    }
}
