//! The agents of the agent's own list: every listed node once, up to a limit, at its pod's address,
//! because no agent listens at a node's own.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError};

use crate::exposition::View;
use crate::limits::MESH_ROWS_MAX;
use crate::peers::{Directory, Network, Peer, Presence, Protocol, Roster};

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

    /// Returns whether discovery knows only the address of the agent: DNS gives no names, and the
    /// agent has not answered an identity request yet.
    pub fn is_nameless(&self) -> bool {
        self.node.parse::<IpAddr>().is_ok()
    }
}

/// The canaries of our own list.
#[derive(Debug, Default)]
pub struct Targets {
    /// In the order of the list.
    pub nodes: Vec<Target>,
    /// The port of members beyond the list: the one that all of the list have, or else the agent's
    /// own.
    pub port: u16,
    /// The addresses of all members; empty if the list holds all of them.
    pub roster: Arc<Roster>,
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
        Self { nodes, port: port_of_all(&directory, port), roster: Arc::clone(directory.roster()) }
    }

    /// Returns the agent of `node`, if discovery knows it: at the address of the agent's own list,
    /// or of the roster.
    pub fn find(view: &View, port: u16, node: &str) -> Option<Target> {
        let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = canaries(&directory).find(|peer| peer.node() == node) {
            return Some(Target::of(peer, port));
        }
        let address = SocketAddr::new(directory.roster().address(node)?, port_of_all(&directory, port));
        Some(Target { node: node.to_owned(), address })
    }
}

/// Returns the port that all agents of the list have, or else `port`.
fn port_of_all(directory: &Directory, port: u16) -> u16 {
    let mut ports = canaries(directory).map(|peer| peer.http_port().unwrap_or(port));
    let first = ports.next().unwrap_or(port);
    if ports.all(|other| other == first) { first } else { port }
}

/// Those who are listed, as pods: once for each family.
fn canaries(directory: &Directory) -> impl Iterator<Item = Peer<'_>> {
    let peers = directory.peers().map(|(_, peer)| peer);
    peers.filter(|peer| peer.presence() != Presence::Left && peer.network() == Network::Pod)
}
