//! Peer slots: a slot stands for a node name, an IP family and a network.
//!
//! A peer that returns under the same name within `--forget-after` gets its old slot back. Its
//! counters then continue, at whatever address. A slot is an index. The prober and the statistics
//! keep their own state per slot, so the probe path needs no lock and no name. If many peers leave,
//! the remaining ones move together ([`Compaction`]), and the rest of the memory is released.
//!
//! The traps:
//! * A rolled pod leaves the list before it returns.
//! * A node can have two endpoints for a while.
//! * Our own entry is in every list.

mod compaction;
mod directory;
mod names;
mod peer;
mod select;

pub use compaction::Compaction;
pub use directory::{Applied, Directory, OwnNode};
pub use peer::{ListedPeer, Presence};

use std::net::IpAddr;

pub use crate::discovery::{ListedMember, Ranked, Roster, name_in_reports};
pub use crate::method::{Family, Method, Methods, Network};

/// How a peer is reached: by a family on one of its node's networks. A node has a slot for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Via {
    /// The family of the address.
    pub family: Family,
    /// The network that the address is on.
    pub network: Network,
}

impl Via {
    /// All combinations of family and network.
    pub const ALL: [Self; 4] = [
        Self { family: Family::V4, network: Network::Pod },
        Self { family: Family::V4, network: Network::Node },
        Self { family: Family::V6, network: Network::Pod },
        Self { family: Family::V6, network: Network::Node },
    ];

    /// Returns the combination that reaches `address` on `network`.
    pub const fn to(address: IpAddr, network: Network) -> Self {
        Self { family: Family::from_address(address), network }
    }

    /// Returns its index in [`Via::ALL`].
    pub const fn index(self) -> u8 {
        self.family as u8 * 2 + self.network as u8
    }

    /// Whether this method can reach the peer. Our agent listens at the address that discovery
    /// gives. The added address of a node ([`Network::Node`]) has only the kernel, which answers
    /// ICMP.
    pub const fn allows(self, method: Method) -> bool {
        matches!(method, Method::Icmp) || matches!(self.network, Network::Pod)
    }
}

/// Index of a peer slot, below [`crate::limits::PEER_SLOTS_MAX`]. A peer keeps its slot until a
/// [`Compaction`]. The slot is reused once its peer is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u32);

impl SlotId {
    /// Returns it as an index into a table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the slot at that index. Beyond 32 bits it returns a slot that is never used.
    pub fn at(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

/// Index of a zone, below [`crate::limits::ZONES_MAX`]. [`ZoneId::UNKNOWN`] always exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ZoneId(pub u8);

impl ZoneId {
    /// The zone of peers whose zone is not known.
    pub const UNKNOWN: Self = Self(0);
}

/// A change that a new list causes. Later stages apply the changes in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A peer starts in this slot, which was empty. Reset all data of the slot.
    Join {
        /// The slot of the new peer.
        slot: SlotId,
    },
    /// Probe this slot at this address from now on. The peer may be back, at another address,
    /// or in another state.
    Probe {
        /// The slot to probe.
        slot: SlotId,
        /// The address to send to.
        address: IpAddr,
        /// The peer's zone at present.
        zone: ZoneId,
        /// The network that the address is on.
        network: Network,
        /// The peer is terminating or has just left the list. Its losses must not count as losses.
        terminating: bool,
    },
    /// This zone number had no peers any more and now stands for another zone. Reset all
    /// data of the zone.
    Zone {
        /// The zone number to reset.
        zone: ZoneId,
    },
    /// The peer left the list some time ago. It is not probed any more. The
    /// slot keeps its counters.
    Stop {
        /// The slot to stop.
        slot: SlotId,
    },
}
