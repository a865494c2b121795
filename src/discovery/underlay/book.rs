//! Which peers to ask for their node's addresses, and the known addresses. No I/O, no clock.
//!
//! The traps:
//! * An address moves to another pod. That pod reports the addresses of another node.
//! * A silent peer may be the very one whose node is worth measuring. So silence removes nothing.
//! * A peer's answer makes us send packets. So unusual addresses are refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::time::Instant;

use crate::discovery::address::of_a_host;
use crate::discovery::identity::Answer;
use crate::discovery::random::spread;
use crate::discovery::{Network, Ourselves, PeerList, PeerSpec, Readiness};
use crate::limits::{IDENTITY_REFRESH, IDENTITY_RETRY, NODE_ADDRESSES_KEPT, PEER_SLOTS_MAX};

/// At most one address of each family: 22 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pair {
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
}

impl Pair {
    fn of(self, ipv6: bool) -> Option<IpAddr> {
        if ipv6 { self.v6.map(IpAddr::V6) } else { self.v4.map(IpAddr::V4) }
    }

    fn put(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.v4 = Some(address),
            IpAddr::V6(address) => self.v6 = Some(address),
        }
    }

    fn has(self, address: IpAddr) -> bool {
        self.of(address.is_ipv6()) == Some(address)
    }

    fn iter(self) -> impl Iterator<Item = IpAddr> {
        [false, true].into_iter().filter_map(move |ipv6| self.of(ipv6))
    }
}

/// A peer: 120 bytes and its name.
struct Known {
    node: Box<str>,
    /// The present or last listed address of each family that is probed.
    pods: Pair,
    /// The port of its HTTP server.
    port: u16,
    /// The best readiness of its pods. A terminating pod does not make the node terminating while
    /// another pod is there.
    readiness: Readiness,
    /// The usable addresses that it has reported.
    nodes: Pair,
    /// When to ask it next.
    ask_at: Instant,
    /// A question is in progress.
    asked: bool,
    /// A question was answered or has failed since the peer was listed at its present address.
    tried: bool,
    /// Ask at its address of the other family next, if it has two. The network of one
    /// family may be broken.
    other_family: bool,
    /// Since when it is in no list.
    absent_since: Option<Instant>,
}

const _: () = assert!(size_of::<Known>() <= 120, "as its documentation says");

/// A question that a peer must be asked: its name and its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The node name. An answer with another name is not believed.
    pub node: Box<str>,
    /// The address of its HTTP server.
    pub server: SocketAddr,
}

/// The result of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learnt {
    /// Nothing new: the same addresses, no answer, or the peer has left.
    Nothing,
    /// New addresses, so the list changes.
    Addresses,
    /// The peer has reported no address that we can use.
    NoneUsable,
    /// Another node answers at the address.
    Another,
}

/// The peers of the last list, and the addresses of their nodes.
pub struct Book {
    /// Our own node's name. It is never asked.
    own_node: String,
    own_addresses: Vec<IpAddr>,
    http_port: u16,
    last: PeerList,
    /// Sorted by the node's name.
    known: Vec<Known>,
}

impl Book {
    /// Makes an empty table.
    pub fn new(ourselves: &Ourselves) -> Self {
        Self {
            own_node: ourselves.node.clone(),
            own_addresses: ourselves.addresses.clone(),
            http_port: ourselves.http_port,
            last: PeerList::default(),
            known: Vec::new(),
        }
    }

    /// Takes a new list from the source.
    pub fn listed(&mut self, list: PeerList, now: Instant) {
        self.last = list;
        self.known.retain(|known| known.absent_since.is_none_or(|since| now - since < NODE_ADDRESSES_KEPT));
        self.known.iter_mut().for_each(|known| _ = known.absent_since.get_or_insert(now));
        let before = self.known.len();
        for same in by_node(&self.last.peers).chunk_by(|a, b| a.node == b.node) {
            let node = &*same[0].node;
            // In DNS discovery, the address stands in for a name until the peer has reported it. No
            // answer would match that name.
            if node == self.own_node || same.iter().any(|spec| spec.is_nameless()) {
                continue;
            }
            let listed = Known::listed(node, same, self.http_port, now);
            match self.known[..before].binary_search_by(|known| (*known.node).cmp(node)) {
                Ok(at) => self.known[at].renew(&listed),
                Err(_) if self.known.len() < PEER_SLOTS_MAX => self.known.push(listed),
                Err(_) => {}
            }
        }
        self.known.sort_unstable_by(|a, b| a.node.cmp(&b.node));
    }

    fn find(&self, node: &str) -> Option<usize> {
        self.known.binary_search_by(|known| (*known.node).cmp(node)).ok()
    }

    /// Returns a question to ask now, and marks it as in progress. Peers that were
    /// never asked come first.
    pub fn next_to_ask(&mut self, now: Instant) -> Option<Question> {
        let due = self.known.iter_mut().filter(|known| known.is_to_be_asked() && known.ask_at <= now);
        let known = due.min_by_key(|known| (known.tried, known.ask_at))?;
        known.asked = true;
        let mut families = known.pods.iter();
        let (first, second) = (families.next()?, families.next());
        let address = second.filter(|_| known.other_family).unwrap_or(first);
        Some(Question { node: known.node.clone(), server: SocketAddr::new(address, known.port) })
    }

    /// Returns when the next question is due.
    pub fn ask_at(&self) -> Option<Instant> {
        self.known.iter().filter(|known| known.is_to_be_asked()).map(|known| known.ask_at).min()
    }

    /// Returns whether every listed peer has been asked once.
    pub fn all_tried(&self) -> bool {
        self.known.iter().all(|known| known.tried || known.absent_since.is_some())
    }

    /// Takes an answer, or None for a failure.
    pub fn answered(&mut self, question: &Question, answer: Option<&Answer>, now: Instant, random: f64) -> Learnt {
        let Some(at) = self.find(&question.node) else { return Learnt::Nothing };
        let believed = answer.filter(|answer| *answer.identity.node == *question.node);
        let pods = self.known[at].pods;
        let nodes = believed.map(|answer| self.usable(&question.node, pods, &answer.node_addresses));
        let known = &mut self.known[at];
        known.asked = false;
        // If the peer is listed at another address by now, it must be asked there.
        if pods.has(question.server.ip()) {
            known.tried = true;
            let again = if believed.is_some() { IDENTITY_REFRESH } else { IDENTITY_RETRY };
            known.ask_at = now + spread(again, 0.5, random);
            known.other_family ^= believed.is_none();
        }
        let Some((nodes, shares_its_node)) = nodes else {
            return if answer.is_some() { Learnt::Another } else { Learnt::Nothing };
        };
        if nodes != std::mem::replace(&mut known.nodes, nodes) {
            return Learnt::Addresses;
        }
        if nodes == Pair::default() && !shares_its_node { Learnt::NoneUsable } else { Learnt::Nothing }
    }

    /// Returns the first address of each family that may be probed. If the pod's own address is
    /// among them, the pod is on its node's network (hostNetwork). A probe of the pod then already
    /// measures the node, so that family gets none. The second value says whether that is so.
    fn usable(&self, node: &str, pods: Pair, addresses: &[IpAddr]) -> (Pair, bool) {
        let on_loopback = pods.iter().any(|pod| pod.is_loopback());
        let mut found = Pair::default();
        let mut shares = false;
        for ipv6 in [false, true] {
            let mut family = addresses.iter().copied().filter(|address| address.is_ipv6() == ipv6);
            if pods.of(ipv6).is_some_and(|pod| addresses.contains(&pod)) {
                shares = true;
            } else if let Some(address) = family.find(|address| {
                is_a_nodes(*address)
                    // Loopback is ourselves, unless the mesh consists of loopback addresses.
                    && (on_loopback || !address.is_loopback())
                    && !self.own_addresses.contains(address)
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
        let learnt: usize = self.known.iter().map(|known| known.nodes.iter().count()).sum();
        let mut peers = Vec::with_capacity(self.last.peers.len() + learnt);
        peers.extend_from_slice(&self.last.peers);
        // A node's address may have become a pod's address since it was reported.
        let mut pods: Vec<IpAddr> = self.last.peers.iter().map(|spec| spec.address).collect();
        pods.sort_unstable();
        for spec in &self.last.peers {
            let Some(known) = self.find(&spec.node).map(|at| &self.known[at]) else { continue };
            let address = known.nodes.of(spec.address.is_ipv6());
            let address = address.filter(|address| pods.binary_search(address).is_err());
            if let Some(address) = address.filter(|_| known.pods.has(spec.address)) {
                peers.push(PeerSpec {
                    address,
                    network: Network::Node,
                    readiness: known.readiness,
                    // The HTTP server at a node's address is not the agent.
                    http_port: None,
                    ..spec.clone()
                });
            }
        }
        PeerList { peers }
    }

    /// Returns the pod of a node's address, of the same family if it has one. A source can be asked
    /// about it. None if no peer has reported that node address.
    pub fn pod_of(&self, address: IpAddr) -> Option<IpAddr> {
        let mut listed = self.known.iter().filter(|known| known.absent_since.is_none());
        let known = listed.find(|known| known.nodes.has(address))?;
        known.pods.of(address.is_ipv6())
    }
}

impl Known {
    /// Makes a peer from its entries. Those that are not terminating come last, and the newest of
    /// them at the end.
    fn listed(node: &str, entries: &[&PeerSpec], http_port: u16, now: Instant) -> Self {
        let mut pods = Pair::default();
        for spec in entries {
            pods.put(spec.address);
        }
        Self {
            node: node.into(),
            pods,
            port: entries.iter().rev().find_map(|spec| spec.http_port).unwrap_or(http_port),
            readiness: entries.iter().map(|spec| spec.readiness).min().unwrap_or(Readiness::Ready),
            nodes: Pair::default(),
            ask_at: now,
            asked: false,
            tried: false,
            other_family: false,
            absent_since: None,
        }
    }

    /// Takes a new entry of a known peer. A pod at another address is another pod, which may have
    /// other settings. It is asked soon. The addresses from the pod before it stay until then.
    fn renew(&mut self, listed: &Self) {
        self.absent_since = None;
        self.readiness = listed.readiness;
        if (self.pods, self.port) != (listed.pods, listed.port) {
            (self.pods, self.port) = (listed.pods, listed.port);
            (self.ask_at, self.tried, self.other_family) = (listed.ask_at, false, false);
        }
    }

    const fn is_to_be_asked(&self) -> bool {
        !self.asked && self.absent_since.is_none()
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
fn is_a_nodes(address: IpAddr) -> bool {
    let is_link_local = matches!(address, IpAddr::V4(v4) if v4.is_link_local());
    of_a_host(address) == Ok(address) && !is_link_local
}

#[cfg(test)]
mod tests;
