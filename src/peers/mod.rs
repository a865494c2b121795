//! Peer slots: what a node name, a family and an address mean to the rest of the program.
//!
//! A peer is its node name (and family, and network): whoever comes back under the same name within `--forget-after` takes up its
//! old slot and its counters go on, at whatever address. A slot is an index; the prober and the statistics keep their
//! own state per slot, so that the probe path needs no lock and no name. Where many leave, those who stay move together
//! ([`Compaction`]) and what the others held is given back. The traps: a rolled pod leaves the list
//! before it returns; two endpoints can stand on one node for a while; one's own entry is in every list.

mod compaction;
mod directory;
mod names;
mod peer;
mod select;

pub use compaction::Compaction;
pub use directory::{Applied, Directory, Own};
pub use peer::{Peer, Presence};

use std::net::IpAddr;

pub use crate::discovery::{Network, Roster};

/// The ICMP protocol that reaches an address; the `protocol` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Protocol {
    /// IPv4.
    Icmp,
    /// IPv6.
    Icmpv6,
}

impl Protocol {
    /// Both, in label order.
    pub const ALL: [Self; 2] = [Self::Icmp, Self::Icmpv6];

    /// The protocol for `address`.
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Icmp,
            IpAddr::V6(_) => Self::Icmpv6,
        }
    }

    /// The label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Icmp => "icmp",
            Self::Icmpv6 => "icmpv6",
        }
    }
}

/// By what a peer is reached: its protocol, on one of its node's networks. A node has a slot for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Via {
    /// Which protocol.
    pub protocol: Protocol,
    /// Which network.
    pub network: Network,
}

impl Via {
    /// Each there is.
    pub const ALL: [Self; 4] = [
        Self { protocol: Protocol::Icmp, network: Network::Pod },
        Self { protocol: Protocol::Icmp, network: Network::Node },
        Self { protocol: Protocol::Icmpv6, network: Network::Pod },
        Self { protocol: Protocol::Icmpv6, network: Network::Node },
    ];

    /// The way to `address` on `network`.
    pub const fn to(address: IpAddr, network: Network) -> Self {
        Self { protocol: Protocol::of(address), network }
    }

    /// Its place in [`Via::ALL`].
    pub const fn index(self) -> u8 {
        self.protocol as u8 * 2 + self.network as u8
    }
}

/// Index of a peer slot, below [`crate::limits::PEER_SLOTS_MAX`]. Reused once its peer is forgotten; a peer keeps it until a
/// [`Compaction`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u32);

impl SlotId {
    /// As an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The slot with that index; past 32 bits one that nobody is ever in.
    pub fn at(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

/// Index of a zone, below [`crate::limits::ZONES_MAX`]; [`ZoneId::UNKNOWN`] is always there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ZoneId(pub u8);

impl ZoneId {
    /// The zone of a peer whose zone nobody has told us.
    pub const UNKNOWN: Self = Self(0);
}

/// What a new list asks of the stages to the right. Applied in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A peer starts in this slot, which held nobody: reset whatever is kept for the slot.
    Join {
        /// Where.
        slot: SlotId,
    },
    /// Probe this slot at this address from now on (again, elsewhere, or in another state).
    Probe {
        /// Where.
        slot: SlotId,
        /// The address.
        address: IpAddr,
        /// The peer's zone.
        zone: ZoneId,
        /// Which network the address is on.
        network: Network,
        /// The peer is on its way out, or has just left the list: its losses are not to be counted as losses.
        terminating: bool,
    },
    /// The number of this zone, in which there are no peers any more, stands for another zone from
    /// now on: reset all that is kept for it.
    Zone {
        /// Which.
        zone: ZoneId,
    },
    /// The peer left the list some time ago: no more probes; the slot keeps its counters.
    Stop {
        /// Where.
        slot: SlotId,
    },
}
