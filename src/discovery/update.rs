//! What a source says of the mesh: a complete list at the start and whenever it changes, and facts.
//! Every module of discovery uses these types, so this file names none of them but the roster.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::discovery::roster::Roster;
use crate::method::Network;

/// The readiness of a peer, as a source reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Readiness {
    /// The peer is listed and serving.
    Ready,
    /// Listed, but not serving. A failing peer must stay visible, so it is probed as any other.
    Unready,
    /// Terminating. It is probed, but its losses are no alarm.
    Terminating,
}

/// One address of one node, as a source lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSpec {
    /// The node's name, which identifies a peer over time.
    pub node: String,
    /// The destination of probes: the canonical address of one host. Its
    /// family decides the protocol.
    pub address: IpAddr,
    /// The topology zone, if it is known.
    pub zone: Option<String>,
    /// The readiness in this list.
    pub readiness: Readiness,
    /// The port of its HTTP server, if the source knows it.
    pub http_port: Option<u16>,
    /// The network that the address is on.
    pub network: Network,
    /// Another node holds the address, so what it answers says nothing of this one.
    pub is_displaced: bool,
}

impl PeerSpec {
    /// Makes a ready pod without zone and HTTP port.
    pub fn pod(node: impl Into<String>, address: IpAddr) -> Self {
        let (zone, readiness, http_port, network) = (None, Readiness::Ready, None, Network::Pod);
        Self { node: node.into(), address, zone, readiness, http_port, network, is_displaced: false }
    }

    /// Returns whether the address stands in for an unknown name.
    pub(super) fn is_nameless(&self) -> bool {
        self.node.parse() == Ok(self.address)
    }
}

/// A complete list of the mesh as a source sees it at one moment. It may contain our own entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerList {
    /// In any order. One node may have two entries of one family; [`crate::peers`] describes which
    /// one is used. The later entry is the newer one.
    pub peers: Vec<PeerSpec>,
}

/// An update from a source: a list, or a sign that the source is still in touch.
///
/// If a list equals the one before, the source must send it too, or send [`Update::Confirmed`]
/// instead. `peer_list_age_seconds` counts from the latest of either.
#[derive(Debug)]
pub enum Update {
    /// A new complete list.
    List(PeerList),
    /// The previous list with new details of its peers, or with the result of half a look at the
    /// source. It does not confirm the list, because the source has not fully checked it. It is
    /// never the first update.
    Amended(PeerList),
    /// The source has checked that the last list is still right.
    Confirmed,
    /// Facts about the whole mesh. Sent before the list that they belong to.
    Mesh(MeshFacts),
    /// The ranks of the members that may judge. Also the addresses of all members, if the lists
    /// contain only a part of them.
    Roster(Arc<Roster>),
    /// The answer to a question: what the lists say of this address is as new as possible. After
    /// some seconds it may be asked again.
    Sure(IpAddr),
    /// The answer to a question: it cannot be checked now. After some seconds it may be asked again.
    Unsure(IpAddr),
}

/// What a source knows of the whole mesh. A list may contain only a part of the mesh.
///
/// A node's watchers are those that the selection gives it, whether they run or not: all nodes that
/// are due to probe it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeshFacts {
    /// Number of nodes, including our own and those that have just left.
    pub members: u32,
    /// Number of nodes in our zone that watch our node, by the selection that all nodes compute.
    pub watchers_in_zone: u32,
    /// Number of nodes in other zones that watch our node.
    pub watchers_elsewhere: u32,
    /// Number of watchers that our node lacks, of half the peers that a node has. 0 in a full mesh,
    /// where all nodes watch it.
    pub watchers_missing: u32,
    /// Number of watchers in other zones that our node lacks, of a quarter of the peers. Nodes lack
    /// some if one zone has most nodes and the other zones cannot watch them all. 0 in a full mesh,
    /// and 0 in a mesh of one zone.
    pub watchers_missing_elsewhere: u32,
}

/// Questions of the probe loop: is the list still right about the peer at this address?
///
/// A question is asked before a loss is counted. The answer is [`Update::Sure`], after a new list
/// if one was needed, or [`Update::Unsure`]. Only sources that [answer](Source::answers) are asked.
pub type Questions = tokio::sync::mpsc::Receiver<IpAddr>;

/// What a source must know of our own node.
#[derive(Clone, Debug, Default)]
pub struct Ourselves {
    /// Our node's name.
    pub node: String,
    /// Our zone if it is configured. Else it comes from our own entry in the list.
    pub zone: Option<String>,
    /// The largest number of other nodes to probe. 0 means all.
    pub max_peers: usize,
    /// How long a node that left the list stays a member, so that a rollout does not change the
    /// peers of other nodes.
    pub forget_after: std::time::Duration,
    /// Whether peers are also probed at their nodes' addresses.
    pub node_network: bool,
    /// Addresses of our pod and our node. No peer has them.
    pub addresses: Vec<IpAddr>,
    /// The port of a peer's HTTP server if its source does not give one.
    pub http_port: u16,
    /// Notified about once a second, in an iteration that the probe loop makes anyway. Sources use
    /// it for checks at that rate. A timer would wake the thread two more times a second (tokio's
    /// wheel takes two steps to a second).
    pub each_second: Arc<Notify>,
}

/// The sending half of the channel between a source and the probe loop. The channel is bounded, so
/// a source waits if it is full.
pub type Updates = tokio::sync::mpsc::Sender<Update>;
