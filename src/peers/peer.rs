//! What a slot stores of its peer: 32 bytes, plus the bytes of its name in [`super::names::Names`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kube_canary_kernel::text::Span;

use super::{Family, Network, Via, ZoneId};
use crate::discovery::{PeerSpec, Readiness};
use crate::units::Nanos;

/// Whether a peer is listed, and in which state. The first four are the `state` label of `peers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Presence {
    /// The peer is listed and serving.
    Ready,
    /// Listed but not serving. It is probed like any other.
    Unready,
    /// Listed, but shutting down.
    Terminating,
    /// Listed at an address that another node holds. Nothing of the peer is measured there.
    Displaced,
    /// Not listed any more. It is probed for a short grace period and forgotten after
    /// `--forget-after`.
    Left,
}

impl From<Readiness> for Presence {
    fn from(readiness: Readiness) -> Self {
        match readiness {
            Readiness::Ready => Self::Ready,
            Readiness::Unready => Self::Unready,
            Readiness::Terminating => Self::Terminating,
        }
    }
}

impl Presence {
    /// Returns the label value, which is also the `state` in a report.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Unready => "unready",
            Self::Terminating => "terminating",
            Self::Displaced => "displaced",
            Self::Left => "left",
        }
    }
}

/// How the slot stores presence. It also distinguishes peers that have left but are still probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoredPresence {
    Listed(Readiness),
    /// Listed, at an address where another node answers. It is probed as if it were terminating,
    /// until its own node answers.
    OfOther(Readiness),
    /// Listed, at an address that another node of the list holds. It is not probed.
    Displaced,
    /// Not listed, but probed as if it were terminating. It may only have moved, so its
    /// loss is no alarm.
    Leaving,
    /// Not listed and not probed.
    Left,
}

/// A peer as its slot stores it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerEntry {
    /// An IPv4 address is in the first four bytes.
    address: [u8; 16],
    /// The place of its name. Two fields, because a [`Span`] would be padded.
    name_begin: u32,
    name_length: u16,
    /// In whole seconds, which last 136 years. A peer may be forgotten up to one second early.
    left_at: u32,
    /// 0 if it is not known.
    http_port: u16,
    /// Index in [`Via::ALL`].
    via: u8,
    pub(super) zone: ZoneId,
    standing: StoredPresence,
}

impl PeerEntry {
    pub(super) fn new(name: Span, zone: ZoneId) -> Self {
        let (via, standing) = (0, StoredPresence::Listed(Readiness::Ready));
        let Span { begin: name_begin, len: name_length } = name;
        Self { address: [0; 16], name_begin, name_length, left_at: 0, http_port: 0, via, zone, standing }
    }

    pub(super) const fn name(&self) -> Span {
        Span { begin: self.name_begin, len: self.name_length }
    }

    pub(super) const fn name_is_at(&mut self, name: Span) {
        (self.name_begin, self.name_length) = (name.begin, name.len);
    }

    /// Takes what the list says of the peer.
    pub(super) fn list(&mut self, spec: &PeerSpec) {
        let (way, is_same) = (Via::to(spec.address, spec.network), self.address() == spec.address);
        self.via = way.index();
        self.address = match spec.address {
            IpAddr::V4(v4) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&v4.octets());
                bytes
            }
            IpAddr::V6(v6) => v6.octets(),
        };
        self.standing = match self.standing {
            _ if spec.is_displaced => StoredPresence::Displaced,
            // The list does not know which node answers.
            StoredPresence::OfOther(_) if is_same => StoredPresence::OfOther(spec.readiness),
            _ => StoredPresence::Listed(spec.readiness),
        };
        // Port 0 cannot be listened on.
        self.http_port = spec.http_port.unwrap_or(0);
    }

    /// Notes whether another node answers at the address. Returns whether that is new.
    pub(super) const fn answers_as_other(&mut self, is_other: bool) -> bool {
        self.standing = match self.standing {
            StoredPresence::Listed(readiness) if is_other => StoredPresence::OfOther(readiness),
            StoredPresence::OfOther(readiness) if !is_other => StoredPresence::Listed(readiness),
            _ => return false,
        };
        true
    }

    /// Marks the peer as not listed any more. Returns whether it was listed before.
    pub(super) fn leave(&mut self, now: Nanos) -> bool {
        let listed =
            matches!(self.standing, StoredPresence::Listed(_) | StoredPresence::OfOther(_) | StoredPresence::Displaced);
        if listed {
            self.standing =
                if self.standing == StoredPresence::Displaced { StoredPresence::Left } else { StoredPresence::Leaving };
            self.left_at = u32::try_from(now.0 / SECOND).unwrap_or(u32::MAX);
        }
        listed
    }

    pub(super) const fn stop(&mut self) {
        self.standing = StoredPresence::Left;
    }

    /// Returns `None` if it is not probed, else whether it is terminating. This is what
    /// the prober must know.
    pub(super) const fn probing(&self) -> Option<bool> {
        match self.standing {
            StoredPresence::Listed(readiness) => Some(matches!(readiness, Readiness::Terminating)),
            StoredPresence::Leaving | StoredPresence::OfOther(_) => Some(true),
            StoredPresence::Displaced | StoredPresence::Left => None,
        }
    }

    pub(super) const fn address(&self) -> IpAddr {
        match self.via().family {
            Family::V4 => {
                let [a, b, c, d, ..] = self.address;
                IpAddr::V4(Ipv4Addr::new(a, b, c, d))
            }
            Family::V6 => IpAddr::V6(Ipv6Addr::from_octets(self.address)),
        }
    }

    pub(super) const fn via(&self) -> Via {
        Via::ALL[self.via as usize]
    }

    pub(super) const fn network(&self) -> Network {
        self.via().network
    }

    pub(super) fn presence(&self) -> Presence {
        match self.standing {
            StoredPresence::Listed(readiness) => readiness.into(),
            StoredPresence::OfOther(_) | StoredPresence::Displaced => Presence::Displaced,
            StoredPresence::Leaving | StoredPresence::Left => Presence::Left,
        }
    }

    /// Returns whether it left at least `grace` ago and is still probed.
    pub(super) fn is_stoppable(&self, now: Nanos, grace: Nanos) -> bool {
        self.standing == StoredPresence::Leaving && self.left_for(now) >= grace
    }

    /// Returns whether it left at least `after` ago and is not probed any more.
    pub(super) fn is_forgettable(&self, now: Nanos, after: Nanos) -> bool {
        self.standing == StoredPresence::Left && self.left_for(now) >= after
    }

    fn left_for(&self, now: Nanos) -> Nanos {
        now.since(Nanos(u64::from(self.left_at) * SECOND))
    }
}

const SECOND: u64 = 1_000_000_000;

/// Read access to the peer in a slot.
#[derive(Clone, Copy, Debug)]
pub struct ListedPeer<'a> {
    pub(super) entry: &'a PeerEntry,
    pub(super) node: &'a str,
}

impl<'a> ListedPeer<'a> {
    /// Returns the node's name.
    pub const fn node(self) -> &'a str {
        self.node
    }

    /// Returns its present or last address.
    pub const fn address(self) -> IpAddr {
        self.entry.address()
    }

    /// Returns the family of its address.
    pub const fn family(self) -> Family {
        self.entry.via().family
    }

    /// Returns the network that its address is on.
    pub const fn network(self) -> Network {
        self.entry.via().network
    }

    /// Returns family and network.
    pub const fn via(self) -> Via {
        self.entry.via()
    }

    /// Returns the number of its zone.
    pub const fn zone(self) -> ZoneId {
        self.entry.zone
    }

    /// Returns whether it is listed, and in which state.
    pub fn presence(self) -> Presence {
        self.entry.presence()
    }

    /// Returns the port of its HTTP server, if it is known.
    pub const fn http_port(self) -> Option<u16> {
        match self.entry.http_port {
            0 => None,
            port => Some(port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_stays_small() {
        let bytes = size_of::<Option<PeerEntry>>();
        println!("directory per slot: {bytes} bytes and the name's own");
        assert!(bytes <= 32);
    }

    #[test]
    fn a_listed_entry_is_read_back_unchanged() {
        let mut entry = PeerEntry::new(Span::default(), ZoneId(3));
        for (address, port) in [("10.0.0.7", Some(9_877)), ("fd00::7", None)] {
            let address: IpAddr = address.parse().unwrap();
            let (network, readiness) = (Network::Node, Readiness::Unready);
            entry.list(&PeerSpec { network, readiness, http_port: port, ..PeerSpec::pod("a", address) });
            let peer = ListedPeer { entry: &entry, node: "a" };
            assert_eq!((peer.address(), peer.via()), (address, Via::to(address, Network::Node)));
            assert_eq!((peer.http_port(), peer.presence(), peer.zone()), (port, Presence::Unready, ZoneId(3)));
        }
    }

    #[test]
    fn only_a_stopped_peer_is_forgotten_and_at_most_a_second_early() {
        let mut entry = PeerEntry::new(Span::default(), ZoneId(0));
        let (grace, after, ms) = (Nanos::from_millis(3_000), Nanos::from_millis(5_000), Nanos::from_millis);
        let ever = Nanos(u64::MAX);
        assert!(!entry.is_stoppable(ever, grace) && !entry.is_forgettable(ever, after));
        assert!(entry.leave(ms(1_200)) && !entry.leave(ms(1_900)));
        assert_eq!((entry.presence(), entry.probing()), (Presence::Left, Some(true)));
        assert!(!entry.is_stoppable(ms(3_999), grace) && entry.is_stoppable(ms(4_200), grace));
        assert!(!entry.is_forgettable(ever, after), "it is probed");
        entry.stop();
        assert_eq!((entry.presence(), entry.probing()), (Presence::Left, None));
        assert!(!entry.is_stoppable(ever, grace));
        assert!(!entry.is_forgettable(ms(5_999), after));
        assert!(entry.is_forgettable(ms(6_200), after));
    }
}
