//! The agents that a collection asks: first those of the agent's own list, then other members that
//! reports name. The search is breadth first, so the nearest are asked before the limit is reached.
//! They are asked at the pod's address, because no agent listens at a node's own address.
//!
//! A report comes from another pod and is not trusted. It may only name members that discovery
//! knows. Their addresses come from discovery too ([`Roster`]), and each agent is asked once.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError};

use super::matrix::Matrix;
use crate::exposition::View;
use crate::limits::MESH_REPORTS_MAX;
use crate::peers::{self, Directory, Family, Peer, Presence, Roster};
use crate::report::{self, Network};

/// An agent that can be asked for its report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name of the node, as in this agent's list.
    pub node: String,
    /// Address of the agent's HTTP server.
    pub address: SocketAddr,
}

impl Target {
    fn of(peer: Peer<'_>, port: u16) -> Self {
        let address = SocketAddr::new(peer.address(), peer.http_port().unwrap_or(port));
        Self { node: peer.node().to_owned(), address }
    }

    /// Whether discovery knows only the address of the agent. DNS gives no names, and the agent has
    /// not answered an identity request yet.
    pub fn is_nameless(&self) -> bool {
        self.node.parse::<IpAddr>().is_ok()
    }

    /// Returns the agent of `node`, if discovery knows it. Its address comes from this agent's
    /// list, or else from the roster.
    pub fn find(view: &View, port: u16, node: &str) -> Option<Self> {
        let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = agents(&directory).find(|peer| peer.node() == node) {
            return Some(Self::of(peer, port));
        }
        let address = SocketAddr::new(directory.roster().address(node)?, port_of_all(&directory, port));
        Some(Self { node: node.to_owned(), address })
    }
}

/// The queue of agents that are still to be asked.
pub struct Queue {
    waiting: VecDeque<Target>,
    /// Number of agents ever put in the queue.
    count: usize,
    /// The port of members beyond the list. If all of the list have the same port, it is that port;
    /// otherwise it is this agent's own.
    port: u16,
    /// The addresses of all members; empty if the list holds all of them.
    roster: Arc<Roster>,
}

impl Queue {
    /// Starts with the agent's own list: every listed node once, up to a limit. `port` is this
    /// agent's own, and is used for peers whose port the list does not give.
    pub fn new(view: &View, port: u16) -> Self {
        let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
        let listed = |family| agents(&directory).filter(move |peer| peer.family() == family);
        // A node with both address families is asked at its IPv4 address.
        let mut names: Vec<&str> = listed(Family::V4).map(Peer::node).collect();
        names.sort_unstable();
        let six = listed(Family::V6).filter(|peer| names.binary_search(&peer.node()).is_err());
        // This agent's own report counts too.
        let all = listed(Family::V4).chain(six).take(MESH_REPORTS_MAX - 1);
        let waiting: VecDeque<Target> = all.map(|peer| Target::of(peer, port)).collect();
        let (port, roster) = (port_of_all(&directory, port), Arc::clone(directory.roster()));
        Self { count: waiting.len(), waiting, port, roster }
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
    pub fn learn(&mut self, peer: &report::Peer<'_>, matrix: &mut Matrix) {
        // The agent's own report counts too.
        if self.count + 1 >= MESH_REPORTS_MAX || peer.network != Network::Pod || !peer.state.is_evidence() {
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

/// Returns the port that all agents of the list have, or else `port`.
fn port_of_all(directory: &Directory, port: u16) -> u16 {
    let mut ports = agents(directory).map(|peer| peer.http_port().unwrap_or(port));
    let first = ports.next().unwrap_or(port);
    if ports.all(|other| other == first) { first } else { port }
}

/// Returns the listed agents at their pods' addresses: once for each address family.
fn agents(directory: &Directory) -> impl Iterator<Item = Peer<'_>> {
    let peers = directory.peers().map(|(_, peer)| peer);
    peers.filter(|peer| peer.presence() != Presence::Left && peer.network() == peers::Network::Pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(members: &[(&str, [u8; 4])]) -> (Queue, Matrix) {
        let roster = Arc::new(Roster::new(members.iter().map(|(node, address)| (*node, (*address).into()))));
        let mut matrix = Matrix::new();
        matrix.begin_row(&serde_json::from_str(r#"{"node":"a","zone":"z"}"#).expect("a source"));
        (Queue { waiting: VecDeque::new(), count: 0, port: 9, roster }, matrix)
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
