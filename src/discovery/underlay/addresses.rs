//! Which peers to ask for their node's addresses, and the known addresses. No I/O, no clock.
//!
//! The traps:
//! * An address moves to another pod. That pod reports the addresses of another node.
//! * A silent peer may be the very one whose node is worth measuring. So silence removes nothing.
//! * A peer's answer makes us send packets. So unusual addresses are refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::time::Instant;

use crate::discovery::address::valid_host_address;
use crate::discovery::holder::mark_displaced;
use crate::discovery::identity::{AskSchedule, IdentityAnswer, IdentityQuestion, next_due};
use crate::discovery::update::{Ourselves, PeerList, PeerSpec, Readiness};
use crate::limits::PEER_SLOTS_MAX;
use crate::method::Network;

/// How long the node addresses of a peer that has left the list are kept. A replaced pod is absent
/// for less time, image pull included. A machine that is recreated under its old name, perhaps at
/// another address, is absent for longer.
const KEPT_TIME: Duration = Duration::from_mins(1);

/// At most one address of each family: 22 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PerFamily {
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
}

impl PerFamily {
    fn address(self, ipv6: bool) -> Option<IpAddr> {
        if ipv6 { self.v6.map(IpAddr::V6) } else { self.v4.map(IpAddr::V4) }
    }

    fn put(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.v4 = Some(address),
            IpAddr::V6(address) => self.v6 = Some(address),
        }
    }

    fn has(self, address: IpAddr) -> bool {
        self.address(address.is_ipv6()) == Some(address)
    }

    fn iter(self) -> impl Iterator<Item = IpAddr> {
        [false, true].into_iter().filter_map(move |ipv6| self.address(ipv6))
    }
}

/// A peer: 120 bytes and its name.
struct KnownPeer {
    node: Box<str>,
    /// The present or last listed address of each family that is probed.
    pods: PerFamily,
    /// The port of its HTTP server.
    port: u16,
    /// The best readiness of its pods. A terminating pod does not make the node terminating while
    /// another pod is there.
    readiness: Readiness,
    /// The usable addresses that it has reported.
    nodes: PerFamily,
    schedule: AskSchedule,
    /// Ask at its address of the other family next, if it has two. The network of one
    /// family may be broken.
    other_family: bool,
    /// Since when it is in no list.
    absent_since: Option<Instant>,
}

const _: () = assert!(size_of::<KnownPeer>() <= 120, "as its documentation says");

/// The result of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerOutcome {
    /// Nothing new: the same addresses, no answer, or the peer has left.
    Unchanged,
    /// New addresses, so the list changes.
    NewAddresses,
    /// The peer has reported no address that we can use.
    NoneUsable,
    /// Another node answers at the address.
    OtherNode,
}

/// The peers of the last list, and the addresses of their nodes.
pub struct NodeAddresses {
    /// Our own node's name. It is never asked.
    own_node: String,
    /// The addresses of our pod and our node. No peer has them.
    excluded: Vec<IpAddr>,
    http_port: u16,
    last: PeerList,
    /// Sorted by the node's name.
    known: Vec<KnownPeer>,
}

impl NodeAddresses {
    /// Makes an empty table.
    pub fn new(ourselves: &Ourselves) -> Self {
        Self {
            own_node: ourselves.node.clone(),
            excluded: ourselves.addresses.clone(),
            http_port: ourselves.http_port,
            last: PeerList::default(),
            known: Vec::new(),
        }
    }

    /// Takes a new list from the source.
    pub fn listed(&mut self, list: PeerList, now: Instant) {
        self.last = list;
        self.known.retain(|known| known.absent_since.is_none_or(|since| now - since < KEPT_TIME));
        self.known.iter_mut().for_each(|known| _ = known.absent_since.get_or_insert(now));
        let before = self.known.len();
        for same in by_node(&self.last.peers).chunk_by(|a, b| a.node == b.node) {
            let node = &*same[0].node;
            // In DNS discovery, the address stands in for a name until the peer has reported it. No
            // answer would match that name.
            if node == self.own_node || same.iter().any(|spec| spec.is_nameless()) {
                continue;
            }
            let listed = KnownPeer::listed(node, same, self.http_port, now);
            match self.known[..before].binary_search_by(|known| (*known.node).cmp(node)) {
                Ok(at) => self.known[at].renew(&listed, now),
                Err(_) if self.known.len() < PEER_SLOTS_MAX => self.known.push(listed),
                Err(_) => {}
            }
        }
        self.known.sort_unstable_by(|a, b| a.node.cmp(&b.node));
    }

    fn find(&self, node: &str) -> Option<usize> {
        self.known.binary_search_by(|known| (*known.node).cmp(node)).ok()
    }

    /// The listed peers with their indexes.
    fn listed_peers(&self) -> impl Iterator<Item = (usize, &KnownPeer)> {
        self.known.iter().enumerate().filter(|(_, known)| known.absent_since.is_none())
    }

    /// Returns a question to ask now, and marks it as in progress.
    pub fn next_to_ask(&mut self, now: Instant) -> Option<IdentityQuestion> {
        let at = next_due(self.listed_peers().map(|(at, known)| (at, &known.schedule)), now)?;
        let known = &mut self.known[at];
        let mut families = known.pods.iter();
        let (first, second) = (families.next()?, families.next());
        let address = second.filter(|_| known.other_family).unwrap_or(first);
        known.schedule.begin();
        Some(IdentityQuestion { node: known.node.clone(), server: SocketAddr::new(address, known.port) })
    }

    /// Returns when the next question is due.
    pub fn ask_at(&self) -> Option<Instant> {
        self.listed_peers().filter_map(|(_, known)| known.schedule.due()).min()
    }

    /// Returns whether every listed peer has been asked once.
    pub fn all_tried(&self) -> bool {
        self.listed_peers().all(|(_, known)| known.schedule.is_tried())
    }

    /// Takes an answer, or None for a failure.
    pub fn answered(
        &mut self,
        question: &IdentityQuestion,
        answer: Option<&IdentityAnswer>,
        now: Instant,
        random: f64,
    ) -> AnswerOutcome {
        let Some(at) = self.find(&question.node) else { return AnswerOutcome::Unchanged };
        let believed = answer.filter(|answer| *answer.identity.node == *question.node);
        let pods = self.known[at].pods;
        let nodes = believed.map(|answer| self.usable(&question.node, pods, &answer.node_addresses));
        let known = &mut self.known[at];
        // If the peer is listed at another address by now, it must be asked there.
        if pods.has(question.server.ip()) {
            known.schedule.ended(believed.is_some(), now, random);
            known.other_family ^= believed.is_none();
        } else {
            known.schedule.outdated();
        }
        let Some((nodes, shares_its_node)) = nodes else {
            return if answer.is_some() { AnswerOutcome::OtherNode } else { AnswerOutcome::Unchanged };
        };
        if nodes != std::mem::replace(&mut known.nodes, nodes) {
            return AnswerOutcome::NewAddresses;
        }
        if nodes == PerFamily::default() && !shares_its_node {
            AnswerOutcome::NoneUsable
        } else {
            AnswerOutcome::Unchanged
        }
    }

    /// Returns the first address of each family that may be probed. If the pod's own address is
    /// among them, the pod is on its node's network (hostNetwork). A probe of the pod then already
    /// measures the node, so that family gets none. The second value says whether that is so.
    fn usable(&self, node: &str, pods: PerFamily, addresses: &[IpAddr]) -> (PerFamily, bool) {
        let on_loopback = pods.iter().any(|pod| pod.is_loopback());
        let mut found = PerFamily::default();
        let mut shares = false;
        for ipv6 in [false, true] {
            let mut family = addresses.iter().copied().filter(|address| address.is_ipv6() == ipv6);
            if pods.address(ipv6).is_some_and(|pod| addresses.contains(&pod)) {
                shares = true;
            } else if let Some(address) = family.find(|address| {
                is_node_address(*address)
                    // Loopback is ourselves, unless the mesh consists of loopback addresses.
                    && (on_loopback || !address.is_loopback())
                    && !self.excluded.contains(address)
                    && !self.last.peers.iter().any(|other| other.node != node && other.address == *address)
            }) {
                found.put(address);
            }
        }
        (found, shares)
    }

    /// Returns the last list followed by the known node addresses. If slots run short, node
    /// addresses are left out before pods.
    pub fn list(&self) -> PeerList {
        let known: usize = self.known.iter().map(|known| known.nodes.iter().count()).sum();
        let mut peers = Vec::with_capacity(self.last.peers.len() + known);
        peers.extend_from_slice(&self.last.peers);
        // A node's address may have become a pod's address since it was reported.
        let mut pods: Vec<IpAddr> = self.last.peers.iter().map(|spec| spec.address).collect();
        pods.sort_unstable();
        for spec in &self.last.peers {
            let Some(known) = self.find(&spec.node).map(|at| &self.known[at]) else { continue };
            let address = known.nodes.address(spec.address.is_ipv6());
            let address = address.filter(|address| pods.binary_search(address).is_err());
            if let Some(address) = address.filter(|_| known.pods.has(spec.address)) {
                peers.push(PeerSpec {
                    address,
                    network: Network::Node,
                    readiness: known.readiness,
                    // The HTTP server at a node's address is not the agent.
                    http_port: None,
                    is_displaced: false,
                    ..spec.clone()
                });
            }
        }
        // A node that has died may be known by an address that another node has now.
        mark_displaced(&mut peers);
        PeerList { peers }
    }

    /// Returns the pod of a node's address, of the same family if it has one. A source can be asked
    /// about it. None if no peer has reported that node address.
    pub fn pod_of(&self, address: IpAddr) -> Option<IpAddr> {
        let (_, known) = self.listed_peers().find(|(_, known)| known.nodes.has(address))?;
        known.pods.address(address.is_ipv6())
    }
}

impl KnownPeer {
    /// Makes a peer from its entries. Those that are not terminating come last, and the newest of
    /// them at the end.
    fn listed(node: &str, entries: &[&PeerSpec], http_port: u16, now: Instant) -> Self {
        let mut pods = PerFamily::default();
        for spec in entries {
            pods.put(spec.address);
        }
        Self {
            node: node.into(),
            pods,
            port: entries.iter().rev().find_map(|spec| spec.http_port).unwrap_or(http_port),
            readiness: entries.iter().map(|spec| spec.readiness).min().unwrap_or(Readiness::Ready),
            nodes: PerFamily::default(),
            schedule: AskSchedule::new(now),
            other_family: false,
            absent_since: None,
        }
    }

    /// Takes a new entry of a known peer. A pod at another address is another pod, which may have
    /// other settings. It is asked soon. The addresses from the pod before it stay until then.
    fn renew(&mut self, listed: &Self, now: Instant) {
        self.absent_since = None;
        self.readiness = listed.readiness;
        if (self.pods, self.port) != (listed.pods, listed.port) {
            (self.pods, self.port) = (listed.pods, listed.port);
            self.schedule.restart(now);
            self.other_family = false;
        }
    }
}

/// Returns the pods' entries sorted by node. Within a node, those that are not terminating come
/// last, and the newest at the end, as [`crate::peers`] chooses them.
fn by_node(peers: &[PeerSpec]) -> Vec<&PeerSpec> {
    let mut entries: Vec<&PeerSpec> = peers.iter().filter(|spec| spec.network == Network::Pod).collect();
    let stays = |spec: &PeerSpec| spec.readiness != Readiness::Terminating;
    // The sort is stable, so newer entries come later.
    entries.sort_by(|a, b| a.node.cmp(&b.node).then_with(|| stays(a).cmp(&stays(b))));
    entries
}

/// Returns whether a peer may report this address as its node's. Cloud providers serve metadata at
/// 169.254.169.254, so link-local addresses are refused.
fn is_node_address(address: IpAddr) -> bool {
    let is_link_local = matches!(address, IpAddr::V4(v4) if v4.is_link_local());
    valid_host_address(address) == Ok(address) && !is_link_local
}

#[cfg(test)]
mod tests;
