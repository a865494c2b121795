//! The agents of this agent's own list: every listed node once, up to a limit. They are asked at
//! the pod's address, because no agent listens at a node's own address.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError};

use crate::exposition::View;
use crate::limits::MESH_ROWS_MAX;
use crate::peers::{Directory, Network, Peer, Presence, Protocol, Roster};

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
}

/// The agents of this agent's own list.
#[derive(Debug, Default)]
pub struct Targets {
    /// The agents, in the order of the list.
    pub nodes: Vec<Target>,
    /// The port of members beyond the list. If all of the list have the same port, it is that port;
    /// otherwise it is this agent's own.
    pub port: u16,
    /// The addresses of all members; empty if the list holds all of them.
    pub roster: Arc<Roster>,
}

impl Targets {
    /// Returns the agents of the list. `port` is this agent's own, and is used for peers whose port
    /// the list does not give.
    pub fn of(view: &View, port: u16) -> Self {
        let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
        let listed = |protocol| agents(&directory).filter(move |peer| peer.protocol() == protocol);
        // A node with both address families is asked at its IPv4 address.
        let mut names: Vec<&str> = listed(Protocol::Icmp).map(Peer::node).collect();
        names.sort_unstable();
        let six = listed(Protocol::Icmpv6).filter(|peer| names.binary_search(&peer.node()).is_err());
        // This agent's own report counts too.
        let all = listed(Protocol::Icmp).chain(six).take(MESH_ROWS_MAX - 1);
        let nodes: Vec<Target> = all.map(|peer| Target::of(peer, port)).collect();
        Self { nodes, port: port_of_all(&directory, port), roster: Arc::clone(directory.roster()) }
    }

    /// Returns the agent of `node`, if discovery knows it. Its address comes from this agent's
    /// list, or else from the roster.
    pub fn find(view: &View, port: u16, node: &str) -> Option<Target> {
        let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = agents(&directory).find(|peer| peer.node() == node) {
            return Some(Target::of(peer, port));
        }
        let address = SocketAddr::new(directory.roster().address(node)?, port_of_all(&directory, port));
        Some(Target { node: node.to_owned(), address })
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
    peers.filter(|peer| peer.presence() != Presence::Left && peer.network() == Network::Pod)
}
