//! The agents that a collection asks next. First come those of the agent's own list, then other
//! members that reports name. The search is breadth first, so the nearest are asked before the
//! limit is reached.
//!
//! A report comes from another pod and is not trusted. It may only name members that discovery
//! knows. Their addresses come from discovery too ([`Roster`]), and each agent is asked once.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use super::matrix::Matrix;
use super::row::{Network, PeerRow};
use super::targets::{Target, Targets};
use crate::limits::MESH_ROWS_MAX;
use crate::peers::Roster;

/// The queue of agents that are still to be asked.
pub struct Queue {
    waiting: VecDeque<Target>,
    /// Number of agents ever put in the queue.
    count: usize,
    port: u16,
    roster: Arc<Roster>,
}

impl Queue {
    /// Starts with the agent's own list.
    pub fn new(targets: Targets) -> Self {
        let Targets { nodes, port, roster } = targets;
        Self { count: nodes.len(), waiting: nodes.into(), port, roster }
    }

    /// Returns the agents that are still to be asked, the next one first.
    pub fn waiting(&self) -> impl Iterator<Item = &Target> {
        self.waiting.iter()
    }

    /// Removes and returns the agent to ask next.
    pub fn next(&mut self) -> Option<Target> {
        self.waiting.pop_front()
    }

    /// Whether discovery knows a node of this name beyond the agent's own list.
    pub fn has_member(&self, node: &str) -> bool {
        self.roster.address(node).is_some()
    }

    /// Handles a peer that a report names and that is in `matrix`. If it is a member and was not
    /// asked yet, it is put in the queue.
    pub fn learn(&mut self, peer: &PeerRow<'_>, matrix: &mut Matrix) {
        // The agent's own report counts too.
        if self.count + 1 >= MESH_ROWS_MAX || peer.network != Network::Pod || !peer.state.is_evidence() {
            return;
        }
        let Some(address) = self.roster.address(&peer.node) else { return };
        if matrix.seek(&peer.node) {
            let address = SocketAddr::new(address, self.port);
            self.waiting.push_back(Target { node: peer.node.clone().into_owned(), address });
            self.count += 1;
        }
    }

    /// Returns the number of agents ever put in the queue.
    pub const fn count(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(members: &[(&str, [u8; 4])]) -> (Queue, Matrix) {
        let roster = Arc::new(Roster::new(members.iter().map(|(node, address)| (*node, (*address).into()))));
        let mut matrix = Matrix::new();
        matrix.begin_row(&serde_json::from_str(r#"{"node":"a","zone":"z"}"#).expect("a source"));
        (Queue::new(Targets { nodes: Vec::new(), port: 9, roster }), matrix)
    }

    fn learnt(queue: &mut Queue, matrix: &mut Matrix, peers: &[&str]) -> Vec<String> {
        for text in peers {
            let peer = serde_json::from_str(text).expect("a peer");
            matrix.peer(&peer);
            queue.learn(&peer, matrix);
        }
        std::iter::from_fn(|| queue.next()).map(|target| format!("{} {}", target.node, target.address)).collect()
    }

    #[test]
    fn members_are_asked_once_at_the_addresses_of_discovery_and_others_never() {
        let (mut queue, mut matrix) = queue(&[("b", [10, 0, 0, 2]), ("c", [10, 0, 0, 3]), ("a", [10, 0, 0, 1])]);
        let peers = [
            r#"{"node":"b","address":"192.0.2.1"}"#,
            r#"{"node":"b","address":"192.0.2.2","protocol":"icmpv6"}"#,
            r#"{"node":"invented","address":"192.0.2.3"}"#,
            r#"{"node":"c"}"#,
            // The source itself, whose report is being read.
            r#"{"node":"a"}"#,
        ];
        assert_eq!(learnt(&mut queue, &mut matrix, &peers), ["b 10.0.0.2:9", "c 10.0.0.3:9"]);
        assert_eq!(queue.count(), 2);
    }

    #[test]
    fn a_node_that_leaves_and_an_entry_of_another_network_are_not_asked() {
        let members = [("b", [10, 0, 0, 2]), ("c", [10, 0, 0, 3]), ("d", [10, 0, 0, 4])];
        let (mut queue, mut matrix) = queue(&members);
        let peers = [
            r#"{"node":"b","state":"left"}"#,
            r#"{"node":"c","state":"terminating"}"#,
            r#"{"node":"d","network":"node"}"#,
        ];
        assert!(learnt(&mut queue, &mut matrix, &peers).is_empty());
        // If another report gives another state for the same node, the node is still asked.
        let unready = [r#"{"node":"c","state":"unready"}"#];
        assert_eq!(learnt(&mut queue, &mut matrix, &unready), ["c 10.0.0.3:9"]);
    }
}
