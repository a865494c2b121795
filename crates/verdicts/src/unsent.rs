//! Probes that could not be sent, by the node that could not send them and the reason.
//!
//! They are neither sent nor lost. But what they were to measure is not known, so a mesh that has
//! some is not called well: what cannot be sent where is a verdict ([`causes`]). A report says it
//! of its own node alone: a false one makes only its source look bad.

pub mod causes;

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::agents::Standing;
use crate::matrix::{Layer, Matrix, UnsentLink};
use kube_canary_model::limits::NAME_BYTES_MAX;
use kube_canary_model::report::{Method, Network, Protocol, SendError, at_most};

/// Entries that are listed, those with the most peers first. The nodes of the others are counted.
pub const UNSENT_MAX: usize = 16;
/// Number of protocols: three methods of two families.
const PROTOCOLS_MAX: usize = 6;

/// Probes of one node that could not be sent for one reason, as `/api/v1/verdicts` shows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsentEntry {
    /// The node that could not send them.
    pub node: String,
    /// The network of the addresses that they were to be sent to.
    pub network: Network,
    /// The protocols by which they were to be sent.
    #[serde(deserialize_with = "at_most::<_, PROTOCOLS_MAX, _>")]
    pub protocols: Vec<Protocol>,
    /// Why they could not be sent.
    pub reason: SendError,
    /// Number of peers that they were to be sent to.
    pub peers: usize,
    /// Number of peers that the node probes by these protocols.
    pub peers_probed: usize,
    /// The peer, if it is one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
}

/// The entries of a mesh, as its judges list them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsentProbes {
    /// At most [`UNSENT_MAX`].
    #[serde(default, deserialize_with = "at_most::<_, UNSENT_MAX, _>")]
    pub unsent: Vec<UnsentEntry>,
    /// Number of further entries.
    #[serde(default)]
    pub unsent_not_listed: usize,
}

impl UnsentEntry {
    /// Whether its names are no longer than those of nodes.
    pub fn is_bounded(&self) -> bool {
        self.node.len().max(self.peer.as_ref().map_or(0, String::len)) <= NAME_BYTES_MAX
    }

    /// Whether another entry is about the same node, network and reason. The numbers of two judges
    /// differ, because they collect at different times.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.node, self.network, self.reason) == (&other.node, other.network, other.reason)
    }

    /// Returns what cannot be sent where, and why: `ICMP over IPv6 to 2 of 2 peers: no route`.
    pub fn words(&self) -> String {
        let network = if self.network == Network::Node { " on the node network" } else { "" };
        let peers = match &self.peer {
            Some(peer) if self.peers_probed > 1 => peer.clone(),
            _ => {
                format!("{} of {} peer{}", self.peers, self.peers_probed, if self.peers_probed == 1 { "" } else { "s" })
            }
        };
        format!("{} to {peers}{network}: {}", names(&self.protocols), self.reason.words())
    }
}

/// Returns the names of protocols: `ICMP, UDP and TCP over IPv6`. Without a family, it is both.
fn names(protocols: &[Protocol]) -> String {
    let of = |over_ipv6: bool| {
        let of_family = |method: &Method| {
            protocols.iter().any(|protocol| protocol.method() == Some(*method) && protocol.is_over_ipv6() == over_ipv6)
        };
        let names: Vec<&str> = Method::ALL.into_iter().filter(of_family).map(Method::name).collect();
        match names[..] {
            [] => String::new(),
            [only] => only.to_owned(),
            [ref first @ .., last] => format!("{} or {last}", first.join(", ")),
        }
    };
    match [of(false), of(true)] {
        [v4, v6] if v4 == v6 => v4,
        [v4, v6] if v6.is_empty() => format!("{v4} over IPv4"),
        [v4, v6] if v4.is_empty() => format!("{v6} over IPv6"),
        [v4, v6] => format!("{v4} over IPv4 or {v6} over IPv6"),
    }
}

/// An entry before it has names: the part of a node's links with one network and one reason.
struct UnsentGroup {
    source: u16,
    network: Network,
    reason: SendError,
    /// Layers by IPv4 and by IPv6, as sets of [`Layer::bit`].
    layers: [u8; 2],
    /// In order, each once.
    peers: Vec<u16>,
}

/// Returns what could not be sent in a mesh. What a node that is leaving, or may be invented, could
/// not send or be sent does not count.
pub fn search(matrix: &Matrix, standings: &[Standing]) -> UnsentProbes {
    let standing = |node: u16| standings[usize::from(node)];
    let counts = |entry: &&UnsentLink| {
        standing(entry.source).is_evidence_of_others() && standing(entry.peer).is_evidence_of_others()
    };
    let (mut kept, mut not_listed): (Vec<UnsentGroup>, usize) = (Vec::new(), 0);
    for links in matrix.unsent().chunk_by(|a, b| a.source == b.source) {
        let mut groups: Vec<UnsentGroup> = Vec::new();
        for entry in links.iter().filter(counts) {
            for network in [Network::Pod, Network::Node] {
                let layers = entry.layers & Layer::all_of(network);
                if layers != 0 {
                    add(&mut groups, *entry, network, layers);
                }
            }
        }
        for group in groups {
            let key =
                |entry: &UnsentGroup| (Reverse(entry.peers.len()), matrix.name(entry.source).to_owned(), entry.reason);
            let place = kept.partition_point(|entry| key(entry) <= key(&group));
            kept.insert(place, group);
        }
        not_listed += kept.len().saturating_sub(UNSENT_MAX);
        kept.truncate(UNSENT_MAX);
    }
    let unsent = kept.iter().map(|group| named(matrix, standings, group)).collect();
    UnsentProbes { unsent, unsent_not_listed: not_listed }
}

fn add(groups: &mut Vec<UnsentGroup>, link: UnsentLink, network: Network, layers: u8) {
    let (source, reason, family) = (link.source, link.reason, usize::from(link.over_ipv6));
    let found = groups.iter().position(|entry| (entry.network, entry.reason) == (network, reason));
    let place = found.unwrap_or_else(|| {
        groups.push(UnsentGroup { source, network, reason, layers: [0; 2], peers: Vec::new() });
        groups.len() - 1
    });
    let group = &mut groups[place];
    group.layers[family] |= layers;
    // One report may name a peer again behind others.
    if let Err(place) = group.peers.binary_search(&link.peer) {
        group.peers.insert(place, link.peer);
    }
}

fn named(matrix: &Matrix, standings: &[Standing], group: &UnsentGroup) -> UnsentEntry {
    let has = |layer: Layer, over_ipv6: bool| group.layers[usize::from(over_ipv6)] & layer.bit() != 0;
    let is_probed = |peer: u16| standings[usize::from(peer)].is_evidence_of_others();
    let cells = matrix.cells(group.source).iter().filter(|cell| is_probed(cell.peer()));
    let alike = cells.filter(|cell| cell.parts().any(|part| has(part.layer(), part.is_over_ipv6())));
    let mut probed: Vec<u16> = alike.map(|cell| cell.peer()).chain(group.peers.iter().copied()).collect();
    probed.sort_unstable();
    probed.dedup();
    let protocols = [
        (Protocol::Icmp, [Layer::Icmp, Layer::Nodes], false),
        (Protocol::Icmpv6, [Layer::Icmp, Layer::Nodes], true),
        (Protocol::Udp, [Layer::Udp; 2], false),
        (Protocol::Udpv6, [Layer::Udp; 2], true),
        (Protocol::Tcp, [Layer::Tcp; 2], false),
        (Protocol::Tcpv6, [Layer::Tcp; 2], true),
    ];
    let of_group = protocols.into_iter().filter(|(_, layers, v6)| layers.iter().any(|layer| has(*layer, *v6)));
    let name = |node: u16| {
        let name = matrix.name(node);
        name[..name.floor_char_boundary(NAME_BYTES_MAX)].to_owned()
    };
    UnsentEntry {
        node: name(group.source),
        network: group.network,
        protocols: of_group.map(|(protocol, ..)| protocol).collect(),
        reason: group.reason,
        peers: group.peers.len(),
        peers_probed: probed.len(),
        peer: match group.peers[..] {
            [only] => Some(name(only)),
            _ => None,
        },
    }
}
