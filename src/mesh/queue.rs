//! The agents that a collection asks. They are asked at the pod's address, because no agent listens
//! at a node's own address.
//!
//! A collection for a reader begins with the agent's own list, and goes on with other members that
//! reports name. The search is breadth first, so the nearest are asked before the limit is reached.
//! A judge asks all members. Late ones come last, so that they take no time from the others: those
//! that did not answer in its last collection, and those that it has put off in this one. Their
//! order is another in each collection, so that each has its turn if there is no time for all.
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

    fn of(peer: Peer<'_>, port: u16) -> Self {
        Self::new(peer.node().to_owned(), SocketAddr::new(peer.address(), peer.http_port().unwrap_or(port)))
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
pub struct Queue {
    waiting: VecDeque<Target>,
    /// Places in the roster of those that follow.
    places: std::vec::IntoIter<u16>,
    /// Those that come after all of these.
    late: VecDeque<Target>,
    /// Places in the roster of the last.
    late_places: std::vec::IntoIter<u16>,
    /// Number of agents ever put in the queue.
    count: usize,
    /// Reports add members while there are fewer than this.
    most: usize,
    /// Number of members of the mesh.
    members: usize,
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
        let queue = Self::of_list(directory, port, JUDGED_NODES_MAX);
        let (mut late, waiting): (Vec<Target>, _) =
            queue.waiting.into_iter().partition(|target| silent.has(&target.node));
        late.sort_by_key(|target| silent.place(&target.node));
        for target in &mut late {
            target.is_late = true;
        }
        let roster = &queue.roster;
        let mut listed: Vec<&str> = late.iter().chain(&waiting).map(|target| &*target.node).collect();
        listed.sort_unstable();
        let is_beyond = |node: &str| node != own && listed.binary_search(&node).is_err();
        let beyond = (0..roster.named()).filter_map(|place| Some((u16::try_from(place).ok()?, roster.name(place)?.0)));
        let room = queue.most.saturating_sub(queue.count + 1);
        let (mut late_places, mut places): (Vec<u16>, Vec<u16>) = (Vec::new(), Vec::new());
        for (place, node) in beyond.filter(|(_, node)| is_beyond(node)).take(room) {
            if silent.has(node) { &mut late_places } else { &mut places }.push(place);
        }
        late_places.sort_by_cached_key(|place| roster.name((*place).into()).map(|(node, _)| silent.place(node)));
        let count = queue.count + places.len() + late_places.len();
        let (places, late_places) = (places.into_iter(), late_places.into_iter());
        // Reports add none: all are in the queue.
        Self { waiting: waiting.into(), places, late: late.into(), late_places, count, most: 0, ..queue }
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
        let members = usize::try_from(directory.mesh().members).unwrap_or(usize::MAX);
        let [places, late_places] = [(); 2].map(|()| Vec::new().into_iter());
        let (count, late) = (waiting.len(), VecDeque::new());
        Self { waiting, places, late, late_places, count, most, members, port, roster }
    }

    /// Returns the agents that are still to be asked, as far as they have an entry of their own.
    pub fn waiting(&self) -> impl Iterator<Item = &Target> {
        self.waiting.iter().chain(&self.late)
    }

    /// Returns how many agents are still to be asked before the late ones, as far as it is known,
    /// or else how many late ones.
    pub fn waiting_count(&self) -> usize {
        let not_learnt = self.most.min(self.members).saturating_sub(self.count + 1);
        let first = self.waiting.len() + self.places.len() + not_learnt;
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
            self.waiting.push_back(Target::new(peer.node.clone().into_owned(), address));
            self.count += 1;
        }
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
        let mut matrix = Matrix::new(1_800_000_000);
        matrix.begin_row(&serde_json::from_str(r#"{"node":"a","zone":"z"}"#).expect("a source"), 0);
        (Queue { roster, ..Queue::of_list(&Directory::default(), 9, MESH_REPORTS_MAX) }, matrix)
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
            queue.learn(&peer, &mut Matrix::new(1_800_000_000));
            let count = queue.count();
            let targets: Vec<Target> = std::iter::from_fn(|| queue.next()).collect();
            assert!(queue.is_empty() && targets.len() == count);
            assert!(targets.iter().all(|it| it.address.to_string() == format!("10.0.0.{}:9", &it.node[1..])));
            targets.into_iter().map(|it| it.node).collect::<Vec<_>>().join(" ")
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
        let (mut queue, mut matrix) = queue(&[("b", [10, 0, 0, 2]), ("c", [10, 0, 0, 3])]);
        for text in [r#"{"node":"b"}"#, r#"{"node":"c"}"#] {
            let peer = serde_json::from_str(text).expect("a peer");
            matrix.peer(&peer);
            queue.learn(&peer, &mut matrix);
        }
        let first = queue.next().expect("b");
        assert!(queue.put_off(&first) && queue.waiting_count() == 1);
        let order: Vec<Target> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(order.iter().map(|it| (&*it.node, it.is_late)).collect::<Vec<_>>(), [("c", false), ("b", true)]);
        assert!(!queue.put_off(&order[1]) && queue.is_empty(), "it has had its second time");
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
