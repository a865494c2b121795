//! The table of slots: names, zones, addresses and presence of all peers.

use std::net::IpAddr;
use std::sync::Arc;

use kube_canary_kernel::region::List;

use super::names::PeerNames;
use super::peer::{ListedPeer, PeerEntry, Presence};
use super::{Change, Compaction, SlotId, Via, ZoneId, select};
use crate::discovery::{MeshFacts, PeerList, PeerSpec, Roster};
use crate::limits::{PEER_SLOTS_MAX, ZONES_MAX};
use crate::units::Nanos;

/// Our own node, which must never be probed.
#[derive(Clone, Debug, Default)]
pub struct OwnNode {
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
    slots: List<Option<PeerEntry>>,
    names: PeerNames,
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
        let (slots, names) = (List::new(slots_max), PeerNames::default());
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
    pub fn peer(&self, slot: SlotId) -> Option<ListedPeer<'_>> {
        Some(self.read(self.slots.get(slot.index())?.as_ref()?))
    }

    /// Returns every peer, in slot order.
    pub fn peers(&self) -> impl Iterator<Item = (SlotId, ListedPeer<'_>)> {
        (0u32..).zip(&*self.slots).filter_map(|(i, entry)| Some((SlotId(i), self.read(entry.as_ref()?))))
    }

    fn read<'a>(&'a self, entry: &'a PeerEntry) -> ListedPeer<'a> {
        ListedPeer { entry, node: self.names.get(entry.name()) }
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
    pub fn apply(&mut self, list: PeerList, own: &OwnNode, now: Nanos) -> Applied {
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
        let state = |peer: ListedPeer<'_>| match peer.presence() {
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
        for (_, state) in listed {
            counts[state] += 1;
        }
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

    /// Notes whether another node answers at the address of a listed peer. Returns the change that
    /// follows for all that probe it.
    pub fn answers_as_other(&mut self, slot: SlotId, is_other: bool) -> Option<Change> {
        let entry = self.slots.get_mut(slot.index())?.as_mut()?;
        let probing = entry.probing();
        if !entry.answers_as_other(is_other) {
            return None;
        }
        let change = if probing == entry.probing() { None } else { probed(slot, entry) };
        self.nodes = self.count_nodes();
        change
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
        let known = |entry: &PeerEntry| (entry.address(), entry.zone, entry.probing());
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
        let mut entry = PeerEntry::new(name, zone.unwrap_or(ZoneId::UNKNOWN));
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
fn probed(slot: SlotId, entry: &PeerEntry) -> Option<Change> {
    let terminating = entry.probing()?;
    Some(Change::Probe { slot, address: entry.address(), zone: entry.zone, network: entry.network(), terminating })
}

#[cfg(test)]
mod tests;
