//! The agents whose reports are asked for. They are asked at the pod's address, because no agent
//! listens at a node's own address. Their addresses come from discovery alone.
//!
//! A judge asks all members. Late ones come last, so that they take no time from the others: those
//! that did not answer in its last collection, and those that it has put off in this one. Their
//! order is another in each collection, so that each has its turn if there is no time for all.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use crate::exposition::View;
use crate::limits::JUDGED_NODES_MAX;
use crate::peers::{Directory, Family, ListedPeer, Network, Presence, Roster, name_in_reports};

/// Agents that are put off in one collection: 100 bytes each.
const PUT_OFF_MAX: usize = 1_024;

/// An agent that can be asked for its report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name of the node, as in this agent's list.
    pub node: String,
    /// Address of the agent's HTTP server.
    pub address: SocketAddr,
    /// Whether it comes last.
    pub is_late: bool,
}

impl Target {
    const fn new(node: String, address: SocketAddr) -> Self {
        Self { node, address, is_late: false }
    }

    fn from_peer(peer: ListedPeer<'_>, port: u16) -> Self {
        Self::new(peer.node().to_owned(), SocketAddr::new(peer.address(), peer.http_port().unwrap_or(port)))
    }

    /// Returns the agent of `node`, if discovery knows it. Its address comes from this agent's
    /// list, or else from the roster.
    pub fn find(view: &View, port: u16, node: &str) -> Option<Self> {
        let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = agents(&directory).find(|peer| peer.node() == node) {
            return Some(Self::from_peer(peer, port));
        }
        let address = SocketAddr::new(directory.roster().address(node)?, port_of_all(&directory, port));
        Some(Self::new(node.to_owned(), address))
    }
}

/// The agents that did not answer in a judge's last collection.
#[derive(Debug, Default)]
pub struct Silent {
    /// Hashes of their names, sorted.
    hashes: Vec<u64>,
    /// Number of collections so far.
    collections: u64,
}

impl Silent {
    /// Whether the judge has collected before.
    pub const fn is_known(&self) -> bool {
        self.collections > 0
    }

    /// Whether this agent did not answer.
    pub fn has(&self, node: &str) -> bool {
        !self.hashes.is_empty() && self.hashes.binary_search(&name_in_reports(node)).is_ok()
    }

    /// Replaces them by the agents of these names.
    pub fn replace<'a>(&mut self, nodes: impl Iterator<Item = &'a str>) {
        self.hashes = nodes.map(name_in_reports).collect();
        self.hashes.sort_unstable();
        self.collections += 1;
    }

    /// Returns the place of a silent agent among the others in this collection.
    fn place(&self, node: &str) -> u64 {
        // An odd factor keeps hashes apart.
        name_in_reports(node).wrapping_mul(self.collections * 2 + 1)
    }
}

/// The queue of agents that are still to be asked.
pub struct AgentQueue {
    waiting: VecDeque<Target>,
    /// Places in the roster of those that follow.
    places: std::vec::IntoIter<u16>,
    /// Those that come after all of these.
    late: VecDeque<Target>,
    /// Places in the roster of the last.
    late_places: std::vec::IntoIter<u16>,
    /// Number of agents ever put in the queue.
    count: usize,
    /// The port of members beyond the list. If all of the list have the same port, it is that port;
    /// otherwise it is this agent's own.
    port: u16,
    /// The addresses of all members; empty if the list holds all of them.
    roster: Arc<Roster>,
}

impl AgentQueue {
    /// Starts with the agents of these nodes, as far as discovery knows them. Returns the others
    /// too. `port` is this agent's own, and is used for peers whose port the list does not give.
    pub fn with_nodes(view: &View, port: u16, nodes: &[String]) -> (Self, Vec<String>) {
        let (mut waiting, mut unknown) = (VecDeque::new(), Vec::new());
        for node in nodes.iter().filter(|node| **node != view.node) {
            match Target::find(view, port, node) {
                Some(target) => waiting.push_back(target),
                None => unknown.push(node.clone()),
            }
        }
        (Self::new(waiting, port, Arc::default()), unknown)
    }

    /// Starts with all members, those that were silent last.
    pub fn with_all_members(view: &View, port: u16, silent: &Silent) -> Self {
        let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
        Self::with_members(&directory, &view.node, port, silent)
    }

    /// Makes a queue of these agents, and of members of this roster that are added to it.
    pub fn new(waiting: VecDeque<Target>, port: u16, roster: Arc<Roster>) -> Self {
        let [places, late_places] = [(); 2].map(|()| Vec::new().into_iter());
        Self { count: waiting.len(), waiting, places, late: VecDeque::new(), late_places, port, roster }
    }

    fn with_members(directory: &Directory, own: &str, port: u16, silent: &Silent) -> Self {
        // This agent's own report counts too.
        let mut room = JUDGED_NODES_MAX - 1;
        let listed = listed(directory, port, room);
        room -= listed.len();
        let (mut late, waiting): (Vec<Target>, _) = listed.into_iter().partition(|target| silent.has(&target.node));
        late.sort_by_key(|target| silent.place(&target.node));
        for target in &mut late {
            target.is_late = true;
        }
        let roster = directory.roster();
        let mut listed: Vec<&str> = late.iter().chain(&waiting).map(|target| &*target.node).collect();
        listed.sort_unstable();
        let is_beyond = |node: &str| node != own && listed.binary_search(&node).is_err();
        let beyond = (0..roster.named()).filter_map(|place| Some((u16::try_from(place).ok()?, roster.name(place)?.0)));
        let (mut late_places, mut places): (Vec<u16>, Vec<u16>) = (Vec::new(), Vec::new());
        for (place, node) in beyond.filter(|(_, node)| is_beyond(node)).take(room) {
            if silent.has(node) { &mut late_places } else { &mut places }.push(place);
        }
        late_places.sort_by_cached_key(|place| roster.name((*place).into()).map(|(node, _)| silent.place(node)));
        let count = late.len() + waiting.len() + places.len() + late_places.len();
        let (places, late_places) = (places.into_iter(), late_places.into_iter());
        let queue = Self::new(waiting.into(), port_of_all(directory, port), Arc::clone(roster));
        Self { places, late: late.into(), late_places, count, ..queue }
    }

    /// Returns how many agents are still to be asked before the late ones, or else how many late
    /// ones.
    pub fn waiting_count(&self) -> usize {
        let first = self.waiting.len() + self.places.len();
        if first > 0 { first } else { self.late.len() + self.late_places.len() }
    }

    /// Removes and returns the agent to ask next.
    pub fn next(&mut self) -> Option<Target> {
        if let Some(target) = self.waiting.pop_front() {
            return Some(target);
        }
        let (roster, port) = (&self.roster, self.port);
        let mut at = |place: u16| {
            let (node, _) = roster.name(place.into())?;
            Some(Target::new(node.to_owned(), SocketAddr::new(roster.address(node)?, port)))
        };
        if let Some(target) = self.places.find_map(&mut at) {
            return Some(target);
        }
        let late = self.late.pop_front().or_else(|| self.late_places.find_map(at));
        late.map(|target| Target { is_late: true, ..target })
    }

    /// Returns whether an agent that was asked has been put behind all others. It has not if it was
    /// there before, or if there is no room.
    pub fn put_off(&mut self, target: &Target) -> bool {
        let has_room = !target.is_late && self.late.len() < PUT_OFF_MAX;
        if has_room {
            self.late.push_back(target.clone());
        }
        has_room
    }

    /// Whether there is none to ask.
    pub fn is_empty(&self) -> bool {
        let has_places = self.places.len() + self.late_places.len() > 0;
        self.waiting.is_empty() && self.late.is_empty() && !has_places
    }

    /// Returns the number of agents ever put in the queue.
    pub const fn count(&self) -> usize {
        self.count
    }
}

/// Returns the agents of the list: every node once, at most this many.
fn listed(directory: &Directory, port: u16, most: usize) -> Vec<Target> {
    let listed = |family| agents(directory).filter(move |peer| peer.family() == family);
    // A node with both address families is asked at its IPv4 address.
    let mut names: Vec<&str> = listed(Family::V4).map(ListedPeer::node).collect();
    names.sort_unstable();
    let six = listed(Family::V6).filter(|peer| names.binary_search(&peer.node()).is_err());
    listed(Family::V4).chain(six).take(most).map(|peer| Target::from_peer(peer, port)).collect()
}

/// Returns the port that all agents of the list have, or else `port`.
fn port_of_all(directory: &Directory, port: u16) -> u16 {
    let mut ports = agents(directory).map(|peer| peer.http_port().unwrap_or(port));
    let first = ports.next().unwrap_or(port);
    if ports.all(|other| other == first) { first } else { port }
}

/// Returns the listed agents at their pods' addresses: once for each address family.
fn agents(directory: &Directory) -> impl Iterator<Item = ListedPeer<'_>> {
    let peers = directory.peers().map(|(_, peer)| peer);
    peers.filter(|peer| peer.presence() != Presence::Left && peer.network() == Network::Pod)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::ListedMember;

    #[test]
    fn a_judge_asks_all_members_once_and_those_that_were_silent_last() {
        let names: Vec<String> = (0..9).map(|n| format!("n{n}")).collect();
        let all = (0..).zip(&names).map(|(n, node)| ListedMember {
            node,
            address: [10, 0, 0, n].into(),
            http_port: None,
            zone: None,
        });
        let mut directory = Directory::default();
        directory.set_roster(Arc::new(Roster::new(all, true)));
        let asked = |silent: &Silent| {
            let mut queue = AgentQueue::with_members(&directory, "n4", 9, silent);
            let count = queue.count();
            let targets: Vec<Target> = std::iter::from_fn(|| queue.next()).collect();
            assert!(queue.is_empty() && targets.len() == count);
            assert!(
                targets.iter().all(|target| target.address.to_string() == format!("10.0.0.{}:9", &target.node[1..]))
            );
            targets.into_iter().map(|target| target.node).collect::<Vec<_>>().join(" ")
        };
        let mut silent = Silent::default();
        assert_eq!((asked(&silent).as_str(), silent.is_known()), ("n0 n1 n2 n3 n5 n6 n7 n8", false));
        let mut orders = std::collections::BTreeSet::new();
        for _ in 0..9 {
            silent.replace(["n6", "n0"].into_iter());
            let order = asked(&silent);
            assert!(
                order.starts_with("n1 n2 n3 n5 n7 n8 n") && order.contains("n0") && order.contains("n6"),
                "{order}"
            );
            orders.insert(order);
        }
        assert!(silent.is_known() && orders.len() == 2, "each of them is the first at times");
    }

    #[test]
    fn an_agent_that_is_put_off_comes_last_and_once() {
        let all = ["b", "c"].map(|node| Target::new(node.to_owned(), SocketAddr::from(([10, 0, 0, 2], 9))));
        let mut queue = AgentQueue::new(all.into(), 9, Arc::default());
        let first = queue.next().expect("b");
        assert!(queue.put_off(&first) && queue.waiting_count() == 1);
        let order: Vec<Target> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(
            order.iter().map(|target| (&*target.node, target.is_late)).collect::<Vec<_>>(),
            [("c", false), ("b", true)]
        );
        assert!(!queue.put_off(&order[1]) && queue.is_empty(), "it has had its second time");
    }
}
