//! Whom our own list names: every listed node once, up to a limit. At its pod's address: the node's own is nobody's HTTP server.

use std::net::{IpAddr, SocketAddr};
use std::sync::PoisonError;

use crate::exposition::View;
use crate::limits::MESH_ROWS_MAX;
use crate::peers::{Directory, Network, Peer, Presence, Protocol};

/// A canary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its node, as our list has it.
    pub node: String,
    /// Its HTTP server.
    pub address: SocketAddr,
}

impl Target {
    fn of(peer: Peer<'_>, port: u16) -> Self {
        let address = SocketAddr::new(peer.address(), peer.http_port().unwrap_or(port));
        Self { node: peer.node().to_owned(), address }
    }

    /// Whether a canary that calls itself `node` is the one that was asked. Until a peer that DNS has found has told its
    /// name, its address stands in for it.
    pub fn may_be(&self, node: &str) -> bool {
        self.node == node || self.node.parse::<IpAddr>().is_ok()
    }
}

/// The canaries of our own list.
#[derive(Debug, Default)]
pub struct Targets {
    /// In the order of the list.
    pub nodes: Vec<Target>,
    /// Where others are asked that only their peers' rows name: the port of all of the list where it tells one for all, else
    /// our own.
    pub port: u16,
}

impl Targets {
    /// All of the list; `port` is ours, and a peer's where the list does not tell.
    pub fn of(view: &View, port: u16) -> Self {
        let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
        let listed = |protocol| canaries(&directory).filter(move |peer| peer.protocol() == protocol);
        // A node of two families is asked at its IPv4 address.
        let mut names: Vec<&str> = listed(Protocol::Icmp).map(Peer::node).collect();
        names.sort_unstable();
        let six = listed(Protocol::Icmpv6).filter(|peer| names.binary_search(&peer.node()).is_err());
        // Our own row is one, too.
        let all = listed(Protocol::Icmp).chain(six).take(MESH_ROWS_MAX - 1);
        let nodes: Vec<Target> = all.map(|peer| Target::of(peer, port)).collect();
        let mut ports = nodes.iter().map(|target| target.address.port());
        let first = ports.next().unwrap_or(port);
        let port = if ports.all(|other| other == first) { first } else { port };
        Self { nodes, port }
    }

    /// The canary of `node`, where it is listed.
    pub fn find(view: &View, port: u16, node: &str) -> Option<Target> {
        let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
        let peer = canaries(&directory).find(|peer| peer.node() == node)?;
        Some(Target::of(peer, port))
    }
}

/// Those who are listed, as pods: once for each family.
fn canaries(directory: &Directory) -> impl Iterator<Item = Peer<'_>> {
    let peers = directory.peers().map(|(_, peer)| peer);
    peers.filter(|peer| peer.presence() != Presence::Left && peer.network() == Network::Pod)
}
