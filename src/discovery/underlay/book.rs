//! Whom to ask for its node's addresses, and what is known of them. No I/O, no clock.
//!
//! The traps: an address goes to another pod, whose word on its node is about another node; a peer that is silent may be the
//! very one whose node is worth measuring, so silence takes nothing away; and what a peer says makes us send packets, so
//! that it may name no address that is odd.

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
    /// Where it is listed, or was last: of each family the address that is probed.
    pods: Pair,
    /// Of its HTTP server.
    port: u16,
    /// Of its pods the best: what is said of a pod that goes is not said of the node while another is there.
    readiness: Readiness,
    /// What it has said, as far as that can be used.
    nodes: Pair,
    /// When to ask (again).
    ask_at: Instant,
    /// A question is under way.
    asked: bool,
    /// One was answered, or has failed, since it was listed where it is.
    tried: bool,
    /// Ask at its address of the other family next, where it has two: a network of one family may be what is broken.
    other_family: bool,
    /// Since when no list has it.
    absent_since: Option<Instant>,
}

const _: () = assert!(size_of::<Known>() <= 120, "as its documentation says");

/// Whom to ask, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Whose answer alone is believed.
    pub node: Box<str>,
    /// Its HTTP server.
    pub server: SocketAddr,
}

/// What an answer has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learnt {
    /// Nothing: as known, no answer, or its peer has gone.
    Nothing,
    /// Addresses; the list changes by them.
    Addresses,
    /// That the peer has no address to tell that we could use.
    NoneUsable,
    /// That somebody else is there.
    Another,
}

/// The peers of the last list.
pub struct Book {
    /// Our node's name: nobody asks himself.
    own_node: String,
    own_addresses: Vec<IpAddr>,
    http_port: u16,
    last: PeerList,
    /// In order of name.
    known: Vec<Known>,
}

impl Book {
    /// An empty book.
    pub fn new(ourselves: &Ourselves) -> Self {
        Self {
            own_node: ourselves.node.clone(),
            own_addresses: ourselves.addresses.clone(),
            http_port: ourselves.http_port,
            last: PeerList::default(),
            known: Vec::new(),
        }
    }

    /// Takes a new list of the source.
    pub fn listed(&mut self, list: PeerList, now: Instant) {
        self.last = list;
        self.known.retain(|known| known.absent_since.is_none_or(|since| now - since < NODE_ADDRESSES_KEPT));
        self.known.iter_mut().for_each(|known| _ = known.absent_since.get_or_insert(now));
        let before = self.known.len();
        for same in by_node(&self.last.peers).chunk_by(|a, b| a.node == b.node) {
            let node = &*same[0].node;
            // The address stands in for a name until the peer has told it to DNS discovery: nobody would answer to it.
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

    /// A question to ask now; it counts as under way from here on. Who was never asked comes first.
    pub fn next_to_ask(&mut self, now: Instant) -> Option<Question> {
        let due = self.known.iter_mut().filter(|known| known.is_to_be_asked() && known.ask_at <= now);
        let known = due.min_by_key(|known| (known.tried, known.ask_at))?;
        known.asked = true;
        let mut families = known.pods.iter();
        let (first, second) = (families.next()?, families.next());
        let address = second.filter(|_| known.other_family).unwrap_or(first);
        Some(Question { node: known.node.clone(), server: SocketAddr::new(address, known.port) })
    }

    /// When the next question is due.
    pub fn ask_at(&self) -> Option<Instant> {
        self.known.iter().filter(|known| known.is_to_be_asked()).map(|known| known.ask_at).min()
    }

    /// Whether everybody who is listed has been asked once.
    pub fn all_tried(&self) -> bool {
        self.known.iter().all(|known| known.tried || known.absent_since.is_some())
    }

    /// Takes an answer, or none for a failure.
    pub fn answered(&mut self, question: &Question, answer: Option<&Answer>, now: Instant, random: f64) -> Learnt {
        let Some(at) = self.find(&question.node) else { return Learnt::Nothing };
        let believed = answer.filter(|answer| *answer.identity.node == *question.node);
        let pods = self.known[at].pods;
        let nodes = believed.map(|answer| self.usable(&question.node, pods, &answer.node_addresses));
        let known = &mut self.known[at];
        known.asked = false;
        // Where it is listed elsewhere meanwhile, it is to be asked there.
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

    /// Of each family the first address that may be probed; none where the pod's own is among them, for then it is on its node's
    /// network (hostNetwork), and what is probed there is the node. Also gives whether that is so.
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
                    // Loopback is ourselves, unless the mesh is made of loopback addresses.
                    && (on_loopback || !address.is_loopback())
                    && !self.own_addresses.contains(address)
                    && !self.last.peers.iter().any(|other| other.node != node && other.address == *address)
            }) {
                found.put(address);
            }
        }
        (found, shares)
    }

    /// The last list, and behind it the node addresses that are known: where slots run short it is not the pods who go without.
    pub fn list(&self) -> PeerList {
        let learnt: usize = self.known.iter().map(|known| known.nodes.iter().count()).sum();
        let mut peers = Vec::with_capacity(self.last.peers.len() + learnt);
        peers.extend_from_slice(&self.last.peers);
        // A node's address that has become a pod's since it was learnt.
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
                    // Whoever answers HTTP there is not the canary.
                    http_port: None,
                    ..spec.clone()
                });
            }
        }
        PeerList { peers }
    }

    /// The pod of a node's address, of the same family where it has one: what a source can be asked about. None where the
    /// address is no peer's node's.
    pub fn pod_of(&self, address: IpAddr) -> Option<IpAddr> {
        let mut listed = self.known.iter().filter(|known| known.absent_since.is_none());
        let known = listed.find(|known| known.nodes.has(address))?;
        known.pods.of(address.is_ipv6())
    }
}

impl Known {
    /// A peer whose entries these are, those that stay and the newest last.
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

    /// Listed again. A pod elsewhere is another, which may be configured otherwise: it is asked soon, and what the one before
    /// has said of the node stands until then.
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

/// The entries of pods in order of node; of a node those that stay and the newest last, as [`crate::peers`] chooses them.
fn by_node(peers: &[PeerSpec]) -> Vec<&PeerSpec> {
    let mut entries: Vec<&PeerSpec> = peers.iter().filter(|spec| spec.network == Network::Pod).collect();
    let stays = |spec: &PeerSpec| spec.readiness != Readiness::Terminating;
    // Stable: what is newer comes later.
    entries.sort_by(|a, b| a.node.cmp(&b.node).then_with(|| stays(a).cmp(&stays(b))));
    entries
}

/// Whether it may be a node's own, on a peer's word alone: clouds answer for themselves at 169.254.169.254.
fn is_a_nodes(address: IpAddr) -> bool {
    let is_link_local = matches!(address, IpAddr::V4(v4) if v4.is_link_local());
    of_a_host(address) == Ok(address) && !is_link_local
}

#[cfg(test)]
mod tests;
