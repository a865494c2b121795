//! An address has one holder. If two nodes are listed with one address, one of the entries is of
//! the past: the node has died, and its address was given to the pod of another.
//!
//! The node that is ready holds the address, then the newest entry. The others are displaced: they
//! stay on the list, and nothing that the address answers is theirs.

use std::cmp::Reverse;
use std::net::IpAddr;

use crate::discovery::update::{PeerSpec, Readiness};

/// What an entry of a list says about its address.
#[derive(Clone, Copy, Debug)]
pub struct Claim<N> {
    /// The node that the entry is of.
    pub node: N,
    /// The address of the entry.
    pub address: IpAddr,
    /// A source that knows more of the mesh has found that another node holds the address.
    pub is_displaced: bool,
    /// The state of the entry.
    pub readiness: Readiness,
    /// A higher number is newer.
    pub number: u32,
}

/// Returns which of `count` entries are displaced, by their indices.
pub fn displaced<N: PartialEq>(count: usize, claim: impl Fn(usize) -> Claim<N>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_unstable_by_key(|&index| {
        let claim = claim(index);
        (claim.address, claim.is_displaced, claim.readiness, Reverse(claim.number))
    });
    let mut displaced: Vec<usize> = Vec::new();
    for same in order.chunk_by(|&a, &b| claim(a).address == claim(b).address) {
        let holder = claim(same[0]).node;
        displaced.extend(same.iter().filter(|&&index| claim(index).node != holder));
    }
    displaced
}

/// Marks the entries whose address another node of the list holds. The last entry is the newest.
/// Marks that a source has set stay.
pub fn mark_displaced(peers: &mut [PeerSpec]) {
    let claim = |index: usize| {
        let PeerSpec { node, address, is_displaced, readiness, .. } = &peers[index];
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        Claim { node, address: *address, is_displaced: *is_displaced, readiness: *readiness, number }
    };
    for index in displaced(peers.len(), claim) {
        peers[index].is_displaced = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::Network;

    fn marks(entries: &[(&str, &str, Readiness, Network)]) -> Vec<bool> {
        let spec = |&(node, address, readiness, network): &(&str, &str, _, _)| PeerSpec {
            readiness,
            network,
            ..PeerSpec::pod(node, address.parse().unwrap())
        };
        let mut peers: Vec<PeerSpec> = entries.iter().map(spec).collect();
        mark_displaced(&mut peers);
        peers.iter().map(|spec| spec.is_displaced).collect()
    }

    #[test]
    fn the_ready_node_then_the_newest_holds_an_address() {
        use Readiness::{Ready, Terminating, Unready};
        for (first, second, expected) in [
            (Unready, Ready, [true, false]),
            (Ready, Unready, [false, true]),
            (Ready, Ready, [true, false]),
            (Unready, Unready, [true, false]),
            (Terminating, Unready, [true, false]),
        ] {
            for address in ["10.0.0.2", "fd00::2"] {
                let entries = [("a", address, first, Network::Pod), ("b", address, second, Network::Pod)];
                assert_eq!(marks(&entries), expected, "{first:?} {second:?}");
            }
        }
        let three = ["a", "b", "c"].map(|node| (node, "10.0.0.2", Ready, Network::Pod));
        assert_eq!(marks(&three), [true, true, false]);
    }

    #[test]
    fn one_node_may_have_an_address_twice_and_other_addresses_are_apart() {
        use Readiness::{Ready, Unready};
        let entries = [
            // Two pods of one node on the host network, and the node's own address.
            ("a", "192.168.0.1", Ready, Network::Pod),
            ("a", "192.168.0.1", Unready, Network::Pod),
            ("a", "192.168.0.1", Ready, Network::Node),
            ("b", "192.168.0.2", Ready, Network::Pod),
            ("b", "fd00::1", Unready, Network::Pod),
        ];
        assert_eq!(marks(&entries), [false; 5]);
        let reused = [("a", "192.168.0.1", Unready, Network::Node), ("b", "192.168.0.1", Ready, Network::Node)];
        assert_eq!(marks(&reused), [true, false]);
    }
}
