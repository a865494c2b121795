//! The agents that a collection asks. They are asked at the pod's address, because no agent listens
//! at a node's own address.
//!
//! A collection for a reader begins with the agent's own list, and goes on with other members that
//! reports name. The search is breadth first, so the nearest are asked before the limit is reached.
//! A judge asks all members. Those that did not answer in its last collection come last, so that
//! they take no time from the others.
//!
//! A report comes from another pod and is not trusted. It may only name members that discovery
//! knows. Their addresses come from discovery too ([`Roster`]), and each agent is asked once.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError};

use super::matrix::Matrix;
use crate::exposition::View;
use crate::limits::{JUDGED_NODES_MAX, MESH_REPORTS_MAX};
use crate::peers::{self, Directory, Family, Peer, Presence, Roster, name_in_reports};
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

/// The agents that did not answer in a judge's last collection: hashes of their names, sorted. None
/// before its first.
#[derive(Debug, Default)]
pub struct Silent(Option<Vec<u64>>);

impl Silent {
    /// Whether the judge has collected before.
    pub const fn is_known(&self) -> bool {
        self.0.is_some()
    }

    /// Whether this agent did not answer.
    pub fn has(&self, node: &str) -> bool {
        let silent = self.0.as_deref().unwrap_or_default();
        !silent.is_empty() && silent.binary_search(&name_in_reports(node)).is_ok()
    }

    /// Replaces them by the agents of these names.
    pub fn replace<'a>(&mut self, nodes: impl Iterator<Item = &'a str>) {
        let mut silent: Vec<u64> = nodes.map(name_in_reports).collect();
        silent.sort_unstable();
        self.0 = Some(silent);
    }
}

/// The queue of agents that are still to be asked.
pub struct Queue {
    waiting: VecDeque<Target>,
    /// Places in the roster of those that follow.
    places: std::vec::IntoIter<u16>,
    /// Number of agents ever put in the queue.
    count: usize,
    /// Reports add members while there are fewer than this.
    most: usize,
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
        Self::of_list(&directory, port, MESH_REPORTS_MAX)
    }

    /// Starts with the agents of these nodes, as far as discovery knows them. Reports add none.
    pub fn of_named(view: &View, port: u16, nodes: &[String]) -> Self {
        let others = nodes.iter().filter(|node| **node != view.node);
        let waiting: VecDeque<Target> = others.filter_map(|node| Target::find(view, port, node)).collect();
        Self { count: waiting.len(), waiting, most: 0, ..Self::new(view, port) }
    }

    /// Starts with all members, those that were silent last.
    pub fn of_all(view: &View, port: u16, silent: &Silent) -> Self {
        let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
        Self::of_members(&directory, &view.node, port, silent)
    }

    pub(super) fn of_members(directory: &Directory, own: &str, port: u16, silent: &Silent) -> Self {
        let mut queue = Self::of_list(directory, port, JUDGED_NODES_MAX);
        queue.waiting.make_contiguous().sort_by_key(|target| silent.has(&target.node));
        let mut listed: Vec<&str> = queue.waiting.iter().map(|target| &*target.node).collect();
        listed.sort_unstable();
        let roster = &queue.roster;
        let is_beyond = |node: &str| node != own && listed.binary_search(&node).is_err();
        let beyond = (0..roster.named()).filter_map(|place| Some((place, roster.name(place)?.0)));
        let mut beyond: Vec<(bool, u16)> = beyond
            .filter(|(_, node)| is_beyond(node))
            .filter_map(|(place, node)| Some((silent.has(node), u16::try_from(place).ok()?)))
            .collect();
        beyond.sort_unstable();
        beyond.truncate(queue.most.saturating_sub(queue.count + 1));
        let count = queue.count + beyond.len();
        let places: Vec<u16> = beyond.into_iter().map(|(_, place)| place).collect();
        // Reports add none: all are in the queue.
        Self { count, places: places.into_iter(), most: 0, ..queue }
    }

    fn of_list(directory: &Directory, port: u16, most: usize) -> Self {
        let listed = |family| agents(directory).filter(move |peer| peer.family() == family);
        // A node with both address families is asked at its IPv4 address.
        let mut names: Vec<&str> = listed(Family::V4).map(Peer::node).collect();
        names.sort_unstable();
        let six = listed(Family::V6).filter(|peer| names.binary_search(&peer.node()).is_err());
        // This agent's own report counts too.
        let all = listed(Family::V4).chain(six).take(most - 1);
        let waiting: VecDeque<Target> = all.map(|peer| Target::of(peer, port)).collect();
        let (port, roster) = (port_of_all(directory, port), Arc::clone(directory.roster()));
        Self { count: waiting.len(), waiting, places: Vec::new().into_iter(), most, port, roster }
    }

    /// Returns the agents that are still to be asked, the next one first.
    pub fn waiting(&self) -> impl Iterator<Item = &Target> {
        self.waiting.iter()
    }

    /// Removes and returns the agent to ask next.
    pub fn next(&mut self) -> Option<Target> {
        if let Some(target) = self.waiting.pop_front() {
            return Some(target);
        }
        let (roster, port) = (&self.roster, self.port);
        self.places.find_map(|place| {
            let (node, _) = roster.name(place.into())?;
            Some(Target { node: node.to_owned(), address: SocketAddr::new(roster.address(node)?, port) })
        })
    }

    /// Whether discovery knows a node of this name beyond the agent's own list.
    pub fn has_member(&self, node: &str) -> bool {
        self.roster.address(node).is_some()
    }

    /// Handles a peer that a report names and that is in `matrix`. If it is a member and was not
    /// asked yet, it is put in the queue.
    pub fn learn(&mut self, peer: &report::Peer<'_>, matrix: &mut Matrix) {
        // The agent's own report counts too.
        if self.count + 1 >= self.most || peer.network != Network::Pod || !peer.state.is_evidence() {
            return;
        }
        let Some(address) = self.roster.address(&peer.node) else { return };
        if matrix.seek(&peer.node) {
            let address = SocketAddr::new(address, self.port);
            self.waiting.push_back(Target { node: peer.node.clone().into_owned(), address });
            self.count += 1;
        }
    }

    /// Whether there is none to ask.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.places.as_slice().is_empty()
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
    use crate::peers::Listed;

    fn queue(members: &[(&str, [u8; 4])]) -> (Queue, Matrix) {
        let all = members.iter().map(|(node, address)| Listed {
            node,
            address: (*address).into(),
            http_port: None,
            zone: None,
        });
        let roster = Arc::new(Roster::new(all, false));
        let mut matrix = Matrix::new();
        matrix.begin_row(&serde_json::from_str(r#"{"node":"a","zone":"z"}"#).expect("a source"));
        let places = Vec::new().into_iter();
        (Queue { waiting: VecDeque::new(), places, count: 0, most: MESH_REPORTS_MAX, port: 9, roster }, matrix)
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
    fn a_judge_asks_all_members_once_and_those_that_were_silent_last() {
        let names: Vec<String> = (0..9).map(|n| format!("n{n}")).collect();
        let all = (0..).zip(&names).map(|(n, node)| Listed {
            node,
            address: [10, 0, 0, n].into(),
            http_port: None,
            zone: None,
        });
        let mut directory = Directory::default();
        directory.set_roster(Arc::new(Roster::new(all, true)));
        let asked = |silent: &Silent| {
            let mut queue = Queue::of_members(&directory, "n4", 9, silent);
            let peer: report::Peer<'_> = serde_json::from_str(r#"{"node":"n7"}"#).expect("a peer");
            queue.learn(&peer, &mut Matrix::new());
            let count = queue.count();
            let targets: Vec<Target> = std::iter::from_fn(|| queue.next()).collect();
            assert!(queue.is_empty() && targets.len() == count);
            assert!(targets.iter().all(|it| it.address.to_string() == format!("10.0.0.{}:9", &it.node[1..])));
            targets.into_iter().map(|it| it.node).collect::<Vec<_>>().join(" ")
        };
        let mut silent = Silent::default();
        assert_eq!((asked(&silent).as_str(), silent.is_known()), ("n0 n1 n2 n3 n5 n6 n7 n8", false));
        silent.replace(["n6", "n0"].into_iter());
        assert_eq!((asked(&silent).as_str(), silent.is_known()), ("n1 n2 n3 n5 n7 n8 n0 n6", true));
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
