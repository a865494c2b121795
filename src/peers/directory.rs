//! The table of slots: names, zones, addresses and who is present.

use std::collections::HashMap;
use std::net::IpAddr;

use super::{Change, Protocol, SlotId, ZoneId, select};
use crate::discovery::{PeerList, PeerSpec, Readiness};
use crate::limits::{PEER_SLOTS_MAX, ZONES_MAX};
use crate::units::Nanos;

/// Whether a peer is listed, and as what. The first three are the `state` label of `peers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Listed and serving.
    Ready,
    /// Listed, not serving; probed all the same.
    Unready,
    /// Listed, on its way out.
    Terminating,
    /// Off the list since this moment; forgotten after `--forget-after`.
    Left(Nanos),
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
    /// The label value, and the `state` of a row.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Unready => "unready",
            Self::Terminating => "terminating",
            Self::Left(_) => "left",
        }
    }
}

/// A peer in its slot: 56 bytes and its name (a test prints it).
#[derive(Clone, Debug)]
pub struct Peer {
    /// The node's name.
    pub node: Box<str>,
    /// Where it is, or was last.
    pub address: IpAddr,
    /// Its zone.
    pub zone: ZoneId,
    /// Whether it is listed.
    pub presence: Presence,
    /// The port of its HTTP server, where known.
    pub http_port: Option<u16>,
}

impl Peer {
    /// The protocol it is probed with.
    pub const fn protocol(&self) -> Protocol {
        Protocol::of(self.address)
    }
}

/// Who we are: what must never be probed.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// Our node's name.
    pub node: String,
    /// Our zone, where it is configured; else our own entry in the list tells it.
    pub zone: Option<String>,
    /// Our addresses.
    pub addresses: Vec<IpAddr>,
    /// Probe at most so many other nodes; 0: all.
    pub max_peers: usize,
}

/// What a list brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// For the prober and the statistics.
    pub changes: Vec<Change>,
    /// Entries left out because every slot is taken.
    pub without_slot: usize,
}

/// All slots and zones. The probe loop writes it when the list changes; HTTP workers read it a frame at a time.
#[derive(Debug)]
pub struct Directory {
    slots: Vec<Option<Peer>>,
    zones: Vec<Box<str>>,
    own_zone: Option<Box<str>>,
    slots_max: usize,
}

impl Default for Directory {
    fn default() -> Self {
        Self::with_slots_max(PEER_SLOTS_MAX)
    }
}

impl Directory {
    /// An empty directory that will hold at most `slots_max` peers.
    pub fn with_slots_max(slots_max: usize) -> Self {
        Self { slots: Vec::new(), zones: vec!["unknown".into()], own_zone: None, slots_max }
    }

    /// One more than the highest slot ever used: the bound for a walk over all slots.
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// The peer in a slot, if anyone is.
    pub fn peer(&self, slot: SlotId) -> Option<&Peer> {
        self.slots.get(slot.index())?.as_ref()
    }

    /// Every peer, in slot order.
    pub fn peers(&self) -> impl Iterator<Item = (SlotId, &Peer)> {
        (0u32..).zip(&self.slots).filter_map(|(i, peer)| Some((SlotId(i), peer.as_ref()?)))
    }

    /// The name of a zone.
    pub fn zone_name(&self, zone: ZoneId) -> &str {
        self.zones.get(usize::from(zone.0)).map_or("unknown", |name| name)
    }

    /// Our own zone.
    pub fn own_zone(&self) -> &str {
        self.own_zone.as_deref().unwrap_or("unknown")
    }

    /// Takes a complete list: who is new, who moved, who left. `now` stamps those who leave.
    pub fn apply(&mut self, list: PeerList, own: &Own, now: Nanos) -> Applied {
        let mut applied = Applied::default();
        let told = || list.peers.iter().filter(|p| p.node == own.node).find_map(|p| p.zone.clone());
        if let Some(zone) = own.zone.clone().or_else(told) {
            self.own_zone = Some(zone.into());
        }
        let listed = select::probed(list, own);
        let by_name: HashMap<(&str, Protocol), SlotId> =
            self.peers().map(|(slot, peer)| ((&*peer.node, peer.protocol()), slot)).collect();
        let mut known: Vec<Option<SlotId>> = Vec::with_capacity(listed.len());
        let mut stays = vec![false; self.slots.len()];
        for spec in &listed {
            let slot = by_name.get(&(spec.node.as_str(), Protocol::of(spec.address))).copied();
            if let Some(slot) = slot {
                stays[slot.index()] = true;
            }
            known.push(slot);
        }
        drop(by_name);
        for (index, stays) in (0u32..).zip(stays) {
            if !stays {
                self.leave(SlotId(index), now, &mut applied.changes);
            }
        }
        for (spec, slot) in listed.into_iter().zip(known) {
            if let Some(slot) = slot {
                self.renew(slot, &spec, &mut applied.changes);
            } else if !self.join(spec, &mut applied.changes) {
                applied.without_slot += 1;
            }
        }
        applied
    }

    /// Frees the slots of peers that left `after` ago or longer. Returns whether any was freed.
    pub fn forget(&mut self, now: Nanos, after: Nanos) -> bool {
        let mut freed = false;
        for slot in &mut self.slots {
            if matches!(slot, Some(Peer { presence: Presence::Left(since), .. }) if now.since(*since) >= after) {
                *slot = None;
                freed = true;
            }
        }
        freed
    }

    /// Whether [`Directory::forget`] would free anything: readers' lock is enough to ask.
    pub fn has_forgettable(&self, now: Nanos, after: Nanos) -> bool {
        self.peers().any(|(_, peer)| matches!(peer.presence, Presence::Left(since) if now.since(since) >= after))
    }

    fn leave(&mut self, slot: SlotId, now: Nanos, changes: &mut Vec<Change>) {
        if let Some(peer) = &mut self.slots[slot.index()]
            && !matches!(peer.presence, Presence::Left(_))
        {
            peer.presence = Presence::Left(now);
            changes.push(Change::Stop { slot });
        }
    }

    fn renew(&mut self, slot: SlotId, spec: &PeerSpec, changes: &mut Vec<Change>) {
        // A list without zones (static, or a slice still being filled in) does not take away what is known.
        let zone = spec.zone.as_deref().map(|name| self.zone_id(name));
        let Some(peer) = &mut self.slots[slot.index()] else { return };
        let before = (peer.address, peer.zone, probing(peer.presence));
        peer.address = spec.address;
        peer.zone = zone.unwrap_or(peer.zone);
        peer.presence = spec.readiness.into();
        peer.http_port = spec.http_port;
        if before != (peer.address, peer.zone, probing(peer.presence)) {
            changes.push(probe(slot, peer));
        }
    }

    fn join(&mut self, spec: PeerSpec, changes: &mut Vec<Change>) -> bool {
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        let (true, Ok(index)) = (free < self.slots_max, u32::try_from(free)) else { return false };
        let zone = spec.zone.as_deref().map_or(ZoneId::UNKNOWN, |name| self.zone_id(name));
        let peer = Peer {
            node: spec.node.into_boxed_str(),
            address: spec.address,
            zone,
            presence: spec.readiness.into(),
            http_port: spec.http_port,
        };
        let slot = SlotId(index);
        changes.extend([Change::Join { slot }, probe(slot, &peer)]);
        if free == self.slots.len() {
            self.slots.push(Some(peer));
        } else {
            self.slots[free] = Some(peer);
        }
        true
    }

    fn zone_id(&mut self, name: &str) -> ZoneId {
        let found = self.zones.iter().position(|zone| &**zone == name).or_else(|| {
            (self.zones.len() < ZONES_MAX).then(|| {
                self.zones.push(name.into());
                self.zones.len() - 1
            })
        });
        found.and_then(|index| u8::try_from(index).ok()).map_or(ZoneId::UNKNOWN, ZoneId)
    }
}

/// What of a presence the prober must know: `None` when not probed, else whether it is on its way out.
const fn probing(presence: Presence) -> Option<bool> {
    match presence {
        Presence::Ready | Presence::Unready => Some(false),
        Presence::Terminating => Some(true),
        Presence::Left(_) => None,
    }
}

fn probe(slot: SlotId, peer: &Peer) -> Change {
    let terminating = peer.presence == Presence::Terminating;
    Change::Probe { slot, address: peer.address, zone: peer.zone, terminating }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> PeerSpec {
        let (node, rest) = text.split_once('=').unwrap();
        let (address, zone) = rest.split_once('@').map_or((rest, None), |(a, z)| (a, Some(z.to_owned())));
        PeerSpec {
            node: node.into(),
            address: address.parse().unwrap(),
            zone,
            readiness: Readiness::Ready,
            http_port: None,
        }
    }

    fn list(entries: &[&str]) -> PeerList {
        PeerList { peers: entries.iter().map(|e| spec(e)).collect() }
    }

    fn own() -> Own {
        Own { node: "self".into(), zone: None, addresses: vec!["10.0.0.1".parse().unwrap()], max_peers: 0 }
    }

    fn names(directory: &Directory) -> Vec<String> {
        directory.peers().map(|(s, p)| format!("{}:{}={} {}", s.0, p.node, p.address, p.presence.label())).collect()
    }

    #[test]
    fn a_peer_that_returns_elsewhere_keeps_its_slot_and_one_that_stays_away_loses_it() {
        let mut d = Directory::default();
        d.apply(list(&["a=10.0.0.2", "b=10.0.0.3"]), &own(), Nanos(0));
        let left = d.apply(list(&["b=10.0.0.3"]), &own(), Nanos(10));
        assert_eq!(left.changes, [Change::Stop { slot: SlotId(0) }]);
        assert!(!d.has_forgettable(Nanos(14), Nanos(5)));
        let back = d.apply(list(&["b=10.0.0.3", "a=10.0.0.9"]), &own(), Nanos(14));
        let address = "10.0.0.9".parse().unwrap();
        let slot = SlotId(0);
        assert_eq!(back.changes, [Change::Probe { slot, address, zone: ZoneId::UNKNOWN, terminating: false }]);
        d.apply(list(&["a=10.0.0.9"]), &own(), Nanos(20));
        assert!(d.has_forgettable(Nanos(25), Nanos(5)) && d.forget(Nanos(25), Nanos(5)));
        assert_eq!(names(&d), ["0:a=10.0.0.9 ready"]);
        let joined = d.apply(list(&["a=10.0.0.9", "c=10.0.0.4"]), &own(), Nanos(30));
        assert_eq!(joined.changes[0], Change::Join { slot: SlotId(1) }, "the freed slot is used again");
    }

    #[test]
    fn an_unchanged_list_changes_nothing() {
        let mut d = Directory::default();
        d.apply(list(&["a=10.0.0.2@z1", "b=fd00::3"]), &own(), Nanos(0));
        assert_eq!(d.apply(list(&["b=fd00::3", "a=10.0.0.2@z1"]), &own(), Nanos(1)), Applied::default());
        assert_eq!(d.apply(list(&["b=fd00::3", "a=10.0.0.2"]), &own(), Nanos(1)), Applied::default(), "zone kept");
    }

    #[test]
    fn oneself_is_skipped_by_name_and_by_address_and_tells_the_own_zone() {
        let mut d = Directory::default();
        assert_eq!(d.own_zone(), "unknown");
        d.apply(list(&["self=10.9.9.9@z7", "other=10.0.0.1", "a=10.0.0.2"]), &own(), Nanos(0));
        assert_eq!(d.own_zone(), "z7");
        let configured = Own { zone: Some("z1".into()), ..own() };
        d.apply(list(&["self=10.9.9.9@z7", "a=10.0.0.2"]), &configured, Nanos(0));
        assert_eq!(d.own_zone(), "z1", "what is configured is in force");
        assert_eq!(names(&d), ["0:a=10.0.0.2 ready"]);
    }

    #[test]
    fn a_slot_stays_small() {
        println!("directory per slot: {} bytes and the name", size_of::<Option<Peer>>());
        assert!(size_of::<Option<Peer>>() <= 56);
    }

    #[test]
    fn families_of_one_node_are_two_peers() {
        let mut d = Directory::default();
        d.apply(list(&["a=10.0.0.2", "a=fd00::2"]), &own(), Nanos(0));
        assert_eq!(names(&d), ["0:a=10.0.0.2 ready", "1:a=fd00::2 ready"]);
    }

    #[test]
    fn a_full_table_leaves_out_and_says_how_many() {
        let mut d = Directory::with_slots_max(1);
        let applied = d.apply(list(&["a=10.0.0.2", "b=10.0.0.3"]), &own(), Nanos(0));
        assert_eq!((applied.without_slot, d.slot_count()), (1, 1));
    }

    #[test]
    fn zones_beyond_the_limit_are_unknown() {
        let mut d = Directory::default();
        let many: Vec<String> = (2..90).map(|i| format!("n{i}=10.0.0.{i}@zone-{i}")).collect();
        d.apply(list(&many.iter().map(String::as_str).collect::<Vec<_>>()), &own(), Nanos(0));
        let named = d.peers().filter(|(_, p)| d.zone_name(p.zone) != "unknown").count();
        assert_eq!(named, ZONES_MAX - 1);
    }
}
