//! Selects the list entries that are probed: never our own, and one per node, family and network.

use super::{OwnNode, Via};
use crate::discovery::{PeerList, PeerSpec, Readiness};

/// Returns the entries to probe, in the list's order. No name is copied: copies of 5,000 names
/// would fragment the heap.
pub fn probed(list: PeerList, own: &OwnNode) -> Vec<PeerSpec> {
    let mut peers = list.peers;
    // An unspecified address would reach ourselves, and a mesh that pings itself looks healthy.
    // A displaced entry is never probed, so the address that our own pod has now does not hide it.
    let is_own = |p: &PeerSpec| p.node == own.node || own.addresses.contains(&p.address) && !p.is_displaced;
    peers.retain(|p| !is_own(p) && !p.address.is_unspecified());
    keep_one_per_node(&mut peers);
    peers
}

/// If a node has two entries of one family and network (a rollout), keeps the one that holds its
/// address, then the one that is not terminating, then the newest.
fn keep_one_per_node(peers: &mut Vec<PeerSpec>) {
    let key = |index: usize| (peers[index].node.as_str(), Via::to(peers[index].address, peers[index].network));
    let is_active = |index: usize| peers[index].readiness != Readiness::Terminating;
    let mut order: Vec<usize> = (0..peers.len()).collect();
    order.sort_unstable_by_key(|&index| (key(index), !peers[index].is_displaced, is_active(index), index));
    let mut kept = vec![false; peers.len()];
    for same in order.chunk_by(|&a, &b| key(a) == key(b)) {
        same.last().into_iter().for_each(|&index| kept[index] = true);
    }
    let mut kept = kept.into_iter();
    peers.retain(|_| kept.next().unwrap_or(false));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(node: &str, last: u8, readiness: Readiness) -> PeerSpec {
        PeerSpec { readiness, ..PeerSpec::pod(node, [10, 0, 0, last].into()) }
    }

    fn own() -> OwnNode {
        OwnNode { node: "self".into(), ..OwnNode::default() }
    }

    #[test]
    fn two_entries_of_a_node_probe_not_terminating_then_newest() {
        use Readiness::{Ready, Terminating, Unready};
        for (first, second, expected) in [
            (Ready, Ready, 2),
            (Terminating, Ready, 2),
            (Ready, Terminating, 1),
            (Terminating, Terminating, 2),
            (Unready, Terminating, 1),
        ] {
            let list = PeerList { peers: vec![spec("a", 1, first), spec("a", 2, second)] };
            let chosen = probed(list, &own());
            assert_eq!(chosen.len(), 1);
            assert_eq!(chosen[0].address, std::net::IpAddr::from([10, 0, 0, expected]), "{first:?} then {second:?}");
        }
    }

    #[test]
    fn an_entry_that_holds_its_address_comes_before_a_newer_one_that_does_not() {
        let displaced = PeerSpec { is_displaced: true, ..spec("a", 2, Readiness::Ready) };
        let list = PeerList { peers: vec![spec("a", 1, Readiness::Unready), displaced.clone()] };
        assert_eq!(probed(list, &own()), [spec("a", 1, Readiness::Unready)]);
        // The address of a dead node's pod is our own now. The node is still listed.
        let ours = OwnNode { addresses: vec![displaced.address], ..own() };
        let list = PeerList { peers: vec![displaced, spec("b", 2, Readiness::Ready)] };
        assert_eq!(probed(list, &ours).len(), 1);
    }

    #[test]
    fn an_unspecified_address_is_refused() {
        let list = PeerList {
            peers: vec![
                spec("a", 1, Readiness::Ready),
                PeerSpec { address: [0, 0, 0, 0].into(), ..spec("b", 2, Readiness::Ready) },
            ],
        };
        assert_eq!(probed(list, &own()).len(), 1);
    }
}
