//! The table of slots: names, zones, addresses and presence of all peers.

use std::net::IpAddr;
use std::sync::Arc;

use super::names::Names;
use super::peer::{Entry, Peer, Presence};
use super::{Change, Compaction, SlotId, Via, ZoneId, select};
use crate::discovery::{MeshFacts, PeerList, PeerSpec, Roster};
use crate::limits::{PEER_SLOTS_MAX, ZONES_MAX};
use crate::sys::region::List;
use crate::units::Nanos;

/// Our own node, which must never be probed.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// Our node's name.
    pub node: String,
    /// Our zone if it is configured. Else it comes from our own entry in the list.
    pub zone: Option<String>,
    /// Our own addresses, which are never probed.
    pub addresses: Vec<IpAddr>,
}

/// The result of applying a list.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Changes for the prober and the statistics, in order.
    pub changes: Vec<Change>,
    /// Entries left out because every slot is taken.
    pub without_slot: usize,
}

/// All slots and zones. The probe loop writes it when the list changes. HTTP workers read it a
/// frame at a time.
#[derive(Debug)]
pub struct Directory {
    slots: List<Option<Entry>>,
    names: Names,
    zones: Vec<Box<str>>,
    own_zone: Option<Box<str>>,
    mesh: MeshFacts,
    roster: Arc<Roster>,
    nodes: [usize; 4],
}

impl Default for Directory {
    fn default() -> Self {
        Self::with_slots_max(PEER_SLOTS_MAX)
    }
}

impl Directory {
    /// Makes an empty directory that will hold at most `slots_max` peers.
    pub fn with_slots_max(slots_max: usize) -> Self {
        let (slots, names) = (List::new(slots_max), Names::default());
        let (zones, mesh, nodes) = (vec!["unknown".into()], MeshFacts::default(), [0; 4]);
        Self { slots, names, zones, own_zone: None, mesh, roster: Arc::default(), nodes }
    }

    /// Returns one more than the highest slot used since the last [`Directory::compact`]: the bound
    /// for a walk over all slots.
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// Returns the resident bytes of slots and names, in whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.slots.resident_bytes() + self.names.resident_bytes()
    }

    /// Returns the peer in a slot, if there is one.
    pub fn peer(&self, slot: SlotId) -> Option<Peer<'_>> {
        Some(self.read(self.slots.get(slot.index())?.as_ref()?))
    }

    /// Returns every peer, in slot order.
    pub fn peers(&self) -> impl Iterator<Item = (SlotId, Peer<'_>)> {
        (0u32..).zip(&*self.slots).filter_map(|(i, entry)| Some((SlotId(i), self.read(entry.as_ref()?))))
    }

    fn read<'a>(&'a self, entry: &'a Entry) -> Peer<'a> {
        Peer { entry, node: self.names.get(entry.name()) }
    }

    /// Returns the name of a zone; `unknown` for a number that is not in use.
    pub fn zone_name(&self, zone: ZoneId) -> &str {
        self.zones.get(usize::from(zone.0)).map_or("unknown", |name| name)
    }

    /// Returns the name of our own zone, or `unknown`.
    pub fn own_zone(&self) -> &str {
        self.own_zone.as_deref().unwrap_or("unknown")
    }

    /// Returns how many other nodes of the list are ready, unready, terminating and displaced. A
    /// node counts once, however many of its addresses are probed, and by its best state.
    pub const fn nodes(&self) -> [usize; 4] {
        self.nodes
    }

    /// Returns what discovery last reported about the mesh as a whole.
    pub const fn mesh(&self) -> MeshFacts {
        self.mesh
    }

    /// Replaces the facts about the mesh.
    pub const fn set_mesh(&mut self, mesh: MeshFacts) {
        self.mesh = mesh;
    }

    /// Returns the addresses of all members of the mesh. The roster is empty if the slots
    /// hold all of them.
    pub const fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// Replaces the roster of all members.
    pub fn set_roster(&mut self, roster: Arc<Roster>) {
        self.roster = roster;
    }

    /// Returns the addresses of all members that discovery knows, listed or in the roster. They are
    /// in ascending order, each once.
    pub fn member_addresses(&self) -> Vec<IpAddr> {
        let listed = self.peers().map(|(_, peer)| peer.address());
        let mut members: Vec<IpAddr> = listed.chain(self.roster.addresses()).collect();
        members.sort_unstable();
        members.dedup();
        members
    }

    /// Applies a complete list: adds new peers, updates known ones, and marks the others as left at
    /// `now`.
    pub fn apply(&mut self, list: PeerList, own: &Own, now: Nanos) -> Applied {
        let mut applied = Applied::default();
        let listed_zone = || list.peers.iter().filter(|p| p.node == own.node).find_map(|p| p.zone.clone());
        if let Some(zone) = own.zone.clone().or_else(listed_zone) {
            self.own_zone = Some(zone.into());
        }
        let listed = select::probed(list, own);
        let known = self.find(&listed);
        let mut is_listed = vec![false; self.slots.len()];
        known.iter().flatten().for_each(|slot| is_listed[slot.index()] = true);
        for (index, is_listed) in (0u32..).zip(is_listed) {
            if !is_listed {
                self.leave(SlotId(index), now, &mut applied.changes);
            }
        }
        let joining = || listed.iter().zip(&known).filter(|(_, slot)| slot.is_none()).map(|(spec, _)| spec);
        if joining().next().is_some() {
            if self.names.is_half_free(self.slots.iter().flatten()) {
                self.names.rebuild(self.slots.iter_mut().flatten());
            }
            applied.changes.reserve_exact(2 * joining().count());
        }
        let (mut free, mut in_use) = (0, None);
        for (spec, slot) in listed.iter().zip(&known) {
            let zone = spec.zone.as_deref().map(|name| self.zone_id(name, &mut in_use, &mut applied.changes));
            if let Some(slot) = *slot {
                self.renew(slot, spec, zone, &mut applied.changes);
            } else if !self.join(spec, zone, &mut free, &mut applied.changes) {
                applied.without_slot += 1;
            }
        }
        self.nodes = self.count_nodes();
        applied
    }

    fn count_nodes(&self) -> [usize; 4] {
        let state = |peer: Peer<'_>| match peer.presence() {
            Presence::Ready => Some(0),
            Presence::Unready => Some(1),
            Presence::Terminating => Some(2),
            Presence::Displaced => Some(3),
            Presence::Left => None,
        };
        let mut listed: Vec<(&str, usize)> =
            self.peers().filter_map(|(_, peer)| Some((peer.node(), state(peer)?))).collect();
        listed.sort_unstable();
        // The best state sorts first.
        listed.dedup_by_key(|(node, _)| *node);
        let mut counts = [0; 4];
        listed.into_iter().for_each(|(_, state)| counts[state] += 1);
        counts
    }

    /// Returns the slot of each listed peer that has one. It uses an index sorted by name. A map
    /// would be 13 times as large.
    fn find(&self, listed: &[PeerSpec]) -> Vec<Option<SlotId>> {
        let key = |slot: SlotId| self.peer(slot).map(|peer| (peer.node(), peer.via()));
        let mut by_name: Vec<SlotId> = self.peers().map(|(slot, _)| slot).collect();
        by_name.sort_unstable_by_key(|slot| key(*slot));
        let find = |spec: &PeerSpec| {
            let wanted = Some((spec.node.as_str(), Via::to(spec.address, spec.network)));
            by_name.binary_search_by(|slot| key(*slot).cmp(&wanted)).ok().map(|at| by_name[at])
        };
        listed.iter().map(find).collect()
    }

    /// Returns whether [`Directory::stop`] would stop any peer. Needs only the readers' lock.
    pub fn has_stoppable(&self, now: Nanos, grace: Nanos) -> bool {
        self.slots.iter().flatten().any(|entry| entry.is_stoppable(now, grace))
    }

    /// Stops probing peers that left `grace` ago or longer. A peer must be stopped before
    /// it can be forgotten.
    pub fn stop(&mut self, now: Nanos, grace: Nanos) -> impl Iterator<Item = Change> {
        (0u32..).zip(&mut *self.slots).filter_map(move |(index, entry)| {
            let entry = entry.as_mut().filter(|entry| entry.is_stoppable(now, grace))?;
            entry.stop();
            Some(Change::Stop { slot: SlotId(index) })
        })
    }

    /// Frees the slots of peers that left `after` ago or longer and are stopped. Returns whether
    /// any slot was freed.
    pub fn forget(&mut self, now: Nanos, after: Nanos) -> bool {
        let mut freed = false;
        for slot in &mut *self.slots {
            freed |= slot.take_if(|entry| entry.is_forgettable(now, after)).is_some();
        }
        freed
    }

    /// Returns whether [`Directory::compact`] would move anything.
    pub fn is_sparse(&self) -> bool {
        Compaction::is_worth_it(self.slots.len(), self.slots.iter().flatten().count())
    }

    /// Moves peers together if many slots are free, and releases the rest. Returns None if it is
    /// not worth it. Every table with data per slot must apply the same moves before the directory
    /// is read again. A reader that has read a part of the directory and continues later would
    /// miss peers that moved.
    pub fn compact(&mut self) -> Option<Compaction> {
        let compaction = Compaction::plan(self.slots.iter().map(Option::is_some), self.slots.iter().flatten().count())?;
        for (from, to) in compaction.moves() {
            self.slots.swap(from.index(), to.index());
        }
        self.slots.resize(compaction.slots(), None);
        self.names.rebuild(self.slots.iter_mut().flatten());
        Some(compaction)
    }

    /// Returns whether [`Directory::forget`] would free anything. Needs only the readers' lock.
    pub fn has_forgettable(&self, now: Nanos, after: Nanos) -> bool {
        self.slots.iter().flatten().any(|entry| entry.is_forgettable(now, after))
    }

    fn leave(&mut self, slot: SlotId, now: Nanos, changes: &mut Vec<Change>) {
        let Some(entry) = &mut self.slots[slot.index()] else { return };
        let probing = entry.probing();
        // A peer that was terminating is probed on unchanged.
        if entry.leave(now) && probing != entry.probing() {
            changes.extend(probed(slot, entry));
        }
    }

    fn renew(&mut self, slot: SlotId, spec: &PeerSpec, zone: Option<ZoneId>, changes: &mut Vec<Change>) {
        let Some(entry) = &mut self.slots[slot.index()] else { return };
        let known = |entry: &Entry| (entry.address(), entry.zone, entry.probing());
        let before = known(entry);
        entry.list(spec);
        // A list without zones (a static one, or a slice still being filled in) does not remove
        // known zones.
        entry.zone = zone.unwrap_or(entry.zone);
        if before != known(entry) {
            let is_probed = before.2.is_some();
            changes.extend(probed(slot, entry).or(is_probed.then_some(Change::Stop { slot })));
        }
    }

    /// Takes the first free slot at or behind `free`, and sets `free` to it for the next search.
    /// Returns whether there was one.
    fn join(&mut self, spec: &PeerSpec, zone: Option<ZoneId>, free: &mut usize, changes: &mut Vec<Change>) -> bool {
        while self.slots.get(*free).is_some_and(Option::is_some) {
            *free += 1;
        }
        if *free == self.slots.len() && !self.slots.push(None) {
            return false;
        }
        let Some(name) = self.names.put(&spec.node) else { return false };
        let mut entry = Entry::new(name, zone.unwrap_or(ZoneId::UNKNOWN));
        entry.list(spec);
        let slot = SlotId::at(*free);
        changes.push(Change::Join { slot });
        changes.extend(probed(slot, &entry));
        self.slots[*free] = Some(entry);
        true
    }

    /// Returns the number of a zone: its present number, else a new one, else one that no peer uses
    /// any more (which adds a [`Change::Zone`]). If there is none, it returns the unknown zone.
    fn zone_id(&mut self, name: &str, in_use: &mut Option<ZonesInUse>, changes: &mut Vec<Change>) -> ZoneId {
        let known = self.zones.iter().position(|zone| &**zone == name);
        let index = match known {
            Some(known) => known,
            None if self.zones.len() < ZONES_MAX => {
                self.zones.push(name.into());
                self.zones.len() - 1
            }
            None => {
                let in_use = in_use.get_or_insert_with(|| self.zones_in_use());
                let Some(free) = in_use.iter().position(|in_use| !in_use) else { return ZoneId::UNKNOWN };
                self.zones[free] = name.into();
                changes.push(Change::Zone { zone: zone_at(free) });
                free
            }
        };
        if let Some(in_use) = in_use {
            in_use[index] = true;
        }
        zone_at(index)
    }

    fn zones_in_use(&self) -> ZonesInUse {
        let mut in_use = [false; ZONES_MAX];
        in_use[usize::from(ZoneId::UNKNOWN.0)] = true;
        self.slots.iter().flatten().for_each(|entry| in_use[usize::from(entry.zone.0)] = true);
        in_use
    }
}

/// For each zone number, whether any peer is in that zone. Peers that have left count until they
/// are forgotten. It is computed at most once per list, since it walks over all slots. A zone that
/// the same list leaves empty is free for the next list.
type ZonesInUse = [bool; ZONES_MAX];

fn zone_at(index: usize) -> ZoneId {
    u8::try_from(index).map_or(ZoneId::UNKNOWN, ZoneId)
}

/// Returns the change that begins or continues to probe a peer; none if it is not probed.
fn probed(slot: SlotId, entry: &Entry) -> Option<Change> {
    let terminating = entry.probing()?;
    Some(Change::Probe { slot, address: entry.address(), zone: entry.zone, network: entry.network(), terminating })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::{Network, Readiness};
    use crate::peers::Presence;

    fn spec(text: &str) -> PeerSpec {
        let (node, rest) = text.split_once('=').unwrap();
        let (address, zone) = rest.split_once('@').map_or((rest, None), |(a, z)| (a, Some(z.to_owned())));
        PeerSpec { zone, ..PeerSpec::pod(node, address.parse().unwrap()) }
    }

    fn list(entries: &[&str]) -> PeerList {
        PeerList { peers: entries.iter().map(|e| spec(e)).collect() }
    }

    fn own() -> Own {
        Own { node: "self".into(), zone: None, addresses: vec!["10.0.0.1".parse().unwrap()] }
    }

    fn names(directory: &Directory) -> Vec<String> {
        directory
            .peers()
            .map(|(s, p)| format!("{}:{}={} {}", s.0, p.node(), p.address(), p.presence().label()))
            .collect()
    }

    #[test]
    fn a_peer_that_returns_at_another_address_keeps_its_slot_and_an_absent_one_loses_it() {
        let second = |n: u64| Nanos::from_millis(n * 1_000);
        let mut d = Directory::default();
        d.apply(list(&["a=10.0.0.2", "b=10.0.0.3"]), &own(), second(0));
        let left = d.apply(list(&["b=10.0.0.3"]), &own(), second(10));
        let slot = SlotId(0);
        let probe = |address: &str, terminating| Change::Probe {
            slot,
            address: address.parse().unwrap(),
            zone: ZoneId::UNKNOWN,
            network: Network::Pod,
            terminating,
        };
        assert_eq!(left.changes, [probe("10.0.0.2", true)], "it is probed on as if it were terminating");
        assert_eq!(d.apply(list(&["b=10.0.0.3"]), &own(), second(12)), Applied::default());
        assert!(!d.has_stoppable(second(12), second(3)) && !d.has_forgettable(second(20), second(5)));
        let back = d.apply(list(&["b=10.0.0.3", "a=10.0.0.9"]), &own(), second(14));
        assert_eq!(back.changes, [probe("10.0.0.9", false)]);
        d.apply(list(&["a=10.0.0.9"]), &own(), second(20));
        assert!(!d.forget(second(25), second(5)), "it is probed");
        assert!(d.has_stoppable(second(23), second(3)));
        assert_eq!(d.stop(second(23), second(3)).collect::<Vec<_>>(), [Change::Stop { slot: SlotId(1) }]);
        assert!(!d.has_stoppable(second(23), second(3)) && d.stop(second(23), second(3)).next().is_none());
        assert_eq!(names(&d), ["0:a=10.0.0.9 ready", "1:b=10.0.0.3 left"]);
        assert!(d.has_forgettable(second(25), second(5)) && d.forget(second(25), second(5)));
        assert_eq!(names(&d), ["0:a=10.0.0.9 ready"]);
        let joined = d.apply(list(&["a=10.0.0.9", "c=10.0.0.4"]), &own(), second(30));
        assert_eq!(joined.changes[0], Change::Join { slot: SlotId(1) }, "the freed slot is used again");
    }

    fn listed_count(directory: &Directory) -> usize {
        directory.peers().filter(|(_, peer)| peer.presence() != Presence::Left).count()
    }

    #[test]
    fn a_terminating_peer_leaves_without_a_change_and_a_stopped_one_returns_with_one() {
        let mut d = Directory::default();
        let mut on_its_way_out = list(&["a=10.0.0.2"]);
        on_its_way_out.peers[0].readiness = Readiness::Terminating;
        d.apply(on_its_way_out.clone(), &own(), Nanos(0));
        assert_eq!(d.apply(list(&[]), &own(), Nanos(0)), Applied::default());
        assert_eq!(names(&d), ["0:a=10.0.0.2 left"]);
        assert_eq!(d.apply(on_its_way_out.clone(), &own(), Nanos(0)), Applied::default());
        d.apply(list(&[]), &own(), Nanos(0));
        assert_eq!(d.stop(Nanos(0), Nanos(0)).count(), 1);
        let back = d.apply(on_its_way_out, &own(), Nanos(0)).changes;
        assert!(matches!(back[..], [Change::Probe { terminating: true, .. }]), "{back:?}");
    }

    #[test]
    fn a_displaced_peer_stays_listed_and_is_not_probed_until_it_holds_its_address() {
        let displaced = |entries: &[&str]| {
            let mut list = list(entries);
            list.peers[0].is_displaced = true;
            list
        };
        let mut d = Directory::default();
        d.apply(list(&["dead=10.0.0.2", "n3=10.0.0.3"]), &own(), Nanos(0));
        let slot = SlotId(0);
        let lost = d.apply(displaced(&["dead=10.0.0.2", "n3=10.0.0.3", "n2=10.0.0.2"]), &own(), Nanos(0)).changes;
        assert_eq!(lost[0], Change::Stop { slot });
        assert_eq!(names(&d), ["0:dead=10.0.0.2 displaced", "1:n3=10.0.0.3 ready", "2:n2=10.0.0.2 ready"]);
        assert_eq!(d.nodes(), [2, 0, 0, 1]);
        let again = d.apply(displaced(&["dead=10.0.0.2", "n3=10.0.0.3", "n2=10.0.0.2"]), &own(), Nanos(0));
        assert_eq!(again, Applied::default());
        let back = d.apply(list(&["dead=10.0.0.2", "n3=10.0.0.3"]), &own(), Nanos(0)).changes;
        assert!(back.iter().any(|change| matches!(change, Change::Probe { slot: SlotId(0), terminating: false, .. })));

        // One that leaves while it is displaced is not probed for a grace period either.
        d.apply(displaced(&["dead=10.0.0.2", "n3=10.0.0.3"]), &own(), Nanos(0));
        assert_eq!(d.apply(list(&["n3=10.0.0.3"]), &own(), Nanos(0)).changes, []);
        assert_eq!(names(&d)[0], "0:dead=10.0.0.2 left");
        // A new one takes a slot alone.
        let mut d = Directory::default();
        let joined = d.apply(displaced(&["dead=10.0.0.2", "n2=10.0.0.2"]), &own(), Nanos(0)).changes;
        assert_eq!(joined.iter().filter(|change| matches!(change, Change::Probe { .. })).count(), 1);
        assert_eq!(joined[0], Change::Join { slot });
    }

    #[test]
    fn an_unchanged_list_changes_nothing() {
        let mut d = Directory::default();
        d.apply(list(&["a=10.0.0.2@z1", "b=fd00::3"]), &own(), Nanos(0));
        assert_eq!(d.apply(list(&["b=fd00::3", "a=10.0.0.2@z1"]), &own(), Nanos(1)), Applied::default());
        assert_eq!(d.apply(list(&["b=fd00::3", "a=10.0.0.2"]), &own(), Nanos(1)), Applied::default(), "zone kept");
    }

    #[test]
    fn our_own_entry_is_skipped_by_name_and_by_address_and_gives_our_zone() {
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
    fn families_of_one_node_are_two_peers() {
        let mut d = Directory::default();
        d.apply(list(&["a=10.0.0.2", "a=fd00::2"]), &own(), Nanos(0));
        assert_eq!(names(&d), ["0:a=10.0.0.2 ready", "1:a=fd00::2 ready"]);
    }

    #[test]
    fn networks_of_one_node_are_two_peers_and_one_node() {
        let mut d = Directory::default();
        let node = |text: &str, readiness| PeerSpec { network: Network::Node, readiness, ..spec(text) };
        let mut peers = list(&["self=10.0.0.1", "a=10.0.0.2", "a=fd00::2", "b=10.0.0.3"]).peers;
        peers.extend([node("a=192.168.0.2", Readiness::Ready), node("b=192.168.0.3", Readiness::Terminating)]);
        peers[3].readiness = Readiness::Terminating;
        peers.push(PeerSpec { readiness: Readiness::Unready, ..spec("c=10.0.0.4") });
        d.apply(PeerList { peers }, &own(), Nanos(0));
        assert_eq!((d.slot_count(), d.nodes()), (6, [1, 1, 1, 0]));
        let networks: Vec<_> = d.peers().filter(|(_, p)| p.node() == "a").map(|(_, p)| p.via()).collect();
        assert_eq!(networks, [Via::ALL[0], Via::ALL[2], Via::ALL[1]]);
        d.apply(list(&["a=10.0.0.2"]), &own(), Nanos(0));
        assert_eq!((d.slot_count(), d.nodes()), (6, [1, 0, 0, 0]), "who has left is not counted");
    }

    #[test]
    fn names_stay_right_as_others_come_and_go_and_no_slot_is_wasted() {
        let mut d = Directory::default();
        for turn in 0..50u8 {
            let listed: Vec<String> =
                (0..=9).map(|i| turn.wrapping_mul(i) % 17).map(|n| format!("n{n}=10.1.0.{n}")).collect();
            let mut expected: Vec<&str> = listed.iter().map(String::as_str).filter(|e| *e != "n0=10.1.0.0").collect();
            d.apply(list(&listed.iter().map(String::as_str).collect::<Vec<_>>()), &own(), Nanos(0));
            expected.push("n0=10.1.0.0");
            expected.sort_unstable();
            expected.dedup();
            let mut is: Vec<String> = d
                .peers()
                .filter(|(_, p)| p.presence() != Presence::Left)
                .map(|(_, p)| format!("{}={}", p.node(), p.address()))
                .collect();
            is.sort_unstable();
            assert_eq!(is, expected, "{turn}");
            assert_eq!(d.stop(Nanos(u64::MAX), Nanos(0)).count(), d.peers().count() - listed_count(&d));
            d.forget(Nanos(u64::MAX), Nanos(0));
        }
        assert!(d.slots.len() <= 17, "{}", d.slots.len());
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
        let named = d.peers().filter(|(_, p)| d.zone_name(p.zone()) != "unknown").count();
        assert_eq!(named, ZONES_MAX - 1);
    }

    #[test]
    fn a_zone_that_no_peer_has_any_more_makes_room_for_another() {
        let mut d = Directory::default();
        let mut reused = Vec::new();
        // One peer stays in its zone. Another has a new zone in each list, as with a label that
        // contains its creation time.
        for turn in 0..1_000 {
            let moves = format!("b=10.0.0.3@zone-{turn}");
            let changes = d.apply(list(&["a=10.0.0.2@stays", &moves]), &own(), Nanos(0)).changes;
            let zones: Vec<String> = d.peers().map(|(_, peer)| d.zone_name(peer.zone()).to_owned()).collect();
            assert_eq!(zones, ["stays".to_owned(), format!("zone-{turn}")]);
            for (at, change) in changes.iter().enumerate() {
                if let Change::Zone { zone } = *change {
                    assert!(matches!(changes[at + 1], Change::Probe { zone: of, .. } if of == zone), "{changes:?}");
                    reused.push(zone);
                }
            }
        }
        assert_eq!(reused.len(), 1_000 - (ZONES_MAX - 2), "each, once every number has been given");
        assert!(!reused.contains(&ZoneId::UNKNOWN));
    }

    #[test]
    fn a_zone_is_kept_until_the_last_of_its_peers_is_forgotten() {
        let mut d = Directory::default();
        let numbers = |from: u8| {
            let all = (from..from + 63).map(|n| format!("n{n}=10.0.0.{n}@zone-{n}"));
            all.collect::<Vec<String>>()
        };
        let apply = |d: &mut Directory, all: &[String]| {
            d.apply(list(&all.iter().map(String::as_str).collect::<Vec<_>>()), &own(), Nanos(0)).changes
        };
        apply(&mut d, &numbers(2));
        let is_new = |changes: &[Change]| changes.iter().filter(|c| matches!(c, Change::Zone { .. })).count();
        let mut further = numbers(2);
        further[0] = "n99=10.0.0.99@zone-99".into();
        assert_eq!(is_new(&apply(&mut d, &further)), 0);
        let zone_of = |d: &Directory, node: &str| {
            d.peers().find(|(_, p)| p.node() == node).map(|(_, p)| d.zone_name(p.zone()).to_owned())
        };
        assert_eq!((zone_of(&d, "n2").as_deref(), zone_of(&d, "n99").as_deref()), (Some("zone-2"), Some("unknown")));
        assert_eq!(d.stop(Nanos(1), Nanos(0)).count(), 1);
        d.forget(Nanos(1), Nanos(0));
        assert_eq!(is_new(&apply(&mut d, &further)), 1);
        assert_eq!((zone_of(&d, "n99").as_deref(), zone_of(&d, "n3").as_deref()), (Some("zone-99"), Some("zone-3")));
    }
}
