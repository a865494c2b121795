//! An address has one holder. If two nodes are listed with one address, one of the entries is of
//! the past: the node has died, and its address was given to the pod of another.
//!
//! The node that is ready holds the address, then the newest entry. The others are displaced: they
//! stay on the list, and nothing that the address answers is theirs.

use std::cmp::Reverse;

use crate::discovery::update::PeerSpec;

/// Marks the entries whose address another node of the list holds. Marks that a source has set,
/// which may know more of the mesh, stay.
pub fn mark_displaced(peers: &mut [PeerSpec]) {
    let mut order: Vec<usize> = (0..peers.len()).collect();
    order.sort_unstable_by_key(|&index| {
        let spec = &peers[index];
        (spec.address, spec.is_displaced, spec.readiness, Reverse(index))
    });
    let mut displaced: Vec<usize> = Vec::new();
    for same in order.chunk_by(|&a, &b| peers[a].address == peers[b].address) {
        let others = same.iter().copied().filter(|&index| peers[index].node != peers[same[0]].node);
        displaced.extend(others);
    }
    for index in displaced {
        peers[index].is_displaced = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::update::{Network, Readiness};

    fn displaced(entries: &[(&str, &str, Readiness, Network)]) -> Vec<bool> {
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
                assert_eq!(displaced(&entries), expected, "{first:?} {second:?}");
            }
        }
        let three = ["a", "b", "c"].map(|node| (node, "10.0.0.2", Ready, Network::Pod));
        assert_eq!(displaced(&three), [true, true, false]);
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
        assert_eq!(displaced(&entries), [false; 5]);
        let reused = [("a", "192.168.0.1", Unready, Network::Node), ("b", "192.168.0.1", Ready, Network::Node)];
        assert_eq!(displaced(&reused), [true, false]);
    }
}
