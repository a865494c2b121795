//! The members of the mesh: the name and the zone of every node. Each agent computes the same
//! selection from them.
//!
//! 5,000 members must cost next to nothing. All names are in one long string, an entry is 12 bytes,
//! and the sorted order takes two bytes per member. A map of strings would be three times as large,
//! in many pieces on the heap.
//!
//! The trap is a rollout: every pod leaves the list and comes back, one after the other. A member
//! that is absent for less than `forget_after` stays a member, so that no node's peers change in
//! the meantime.

use std::cmp::Ordering;
use std::time::Duration;

use kube_canary_kernel::region::List;
use tokio::time::Instant;

use crate::discovery::hash;
use crate::limits::{NAME_BYTES_MAX, PEER_SLOTS_MAX, ZONES_MAX};

/// Zones that the selection distinguishes, the unknown zone included. All values of a byte but one
/// are used. The limit is above [`ZONES_MAX`] because all agents must compute the same selection,
/// and agents may disagree on which zones are the further ones. If a zone is a rack, 5,000 nodes
/// are in more than 100.
pub const MEMBER_ZONES_MAX: usize = 255;
const _: () = assert!(MEMBER_ZONES_MAX > ZONES_MAX && MEMBER_ZONES_MAX <= ZoneNumber::MAX as usize);

/// The number of a member. It is reused once the member is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId(pub u16);

impl MemberId {
    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Index of a zone. [`Members::UNKNOWN_ZONE`] is that of members whose zone is not known.
pub(super) type ZoneNumber = u8;

/// `absent_since` of a member that is in the list. It is later than any moment.
const PRESENT: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct MemberEntry {
    /// Offset of the name.
    begin: u32,
    /// In tenths of a second since the first list. 13 years fit.
    absent_since: u32,
    /// Length of the name in bytes. 0 means that the number is free.
    length: u8,
    zone: ZoneNumber,
}

const FREE: MemberEntry = MemberEntry { begin: 0, absent_since: PRESENT, length: 0, zone: 0 };

const _: () = assert!(PEER_SLOTS_MAX < u16::MAX as usize && NAME_BYTES_MAX <= u8::MAX as usize);

/// All members of the mesh.
#[derive(Debug)]
pub struct Members {
    entries: List<MemberEntry>,
    /// All names, one after the other. The space of removed names is reclaimed when it
    /// is more than half.
    names: List<u8>,
    /// The members in ring order: by the hash of their names, then by name.
    ring: List<u16>,
    zones: Vec<Box<str>>,
    /// No number below this is free.
    first_free: usize,
    forget_after: Duration,
    began: Option<Instant>,
    version: u64,
}

impl Members {
    pub(super) const UNKNOWN_ZONE: ZoneNumber = 0;

    /// Returns an empty table. A member that is in no list for `forget_after` is removed.
    pub fn new(forget_after: Duration) -> Self {
        Self {
            entries: List::new(PEER_SLOTS_MAX),
            // Twice the maximum of all names: space is reclaimed at half.
            names: List::new(2 * PEER_SLOTS_MAX * NAME_BYTES_MAX),
            ring: List::new(PEER_SLOTS_MAX),
            zones: vec!["unknown".into()],
            first_free: 0,
            forget_after,
            began: None,
            version: 0,
        }
    }

    /// Finds or adds a node. A given zone replaces the known one. Returns None if the table is full
    /// ([`PEER_SLOTS_MAX`]) or no node can have that name.
    pub fn put(&mut self, node: &str, zone: Option<&str>) -> Option<MemberId> {
        let id = match self.place(node) {
            Ok(at) => MemberId(self.ring[at]),
            Err(at) => self.add(node, at)?,
        };
        if let Some(zone) = zone {
            let zone = self.assign_zone(zone, id);
            if std::mem::replace(&mut self.entries[id.index()].zone, zone) != zone {
                self.version += 1;
            }
        }
        Some(id)
    }

    /// Returns the member of that name.
    pub fn find(&self, node: &str) -> Option<MemberId> {
        self.place(node).ok().map(|at| MemberId(self.ring[at]))
    }

    /// Returns the name; empty if the number is free.
    pub fn name(&self, id: MemberId) -> &str {
        let Some(entry) = self.entries.get(id.index()) else { return "" };
        let begin = entry.begin as usize;
        let bytes = self.names.get(begin..begin + usize::from(entry.length)).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Returns the zone, if it is known.
    pub fn zone(&self, id: MemberId) -> Option<&str> {
        let number = self.zone_number(id);
        if number == Self::UNKNOWN_ZONE { None } else { self.zones.get(usize::from(number)).map(|zone| &**zone) }
    }

    /// Sets which members are listed now. All others become or stay absent. Those that have been
    /// absent for `forget_after` or longer are removed.
    pub fn listed(&mut self, ids: impl Iterator<Item = MemberId>, now: Instant) {
        let tenths = self.tenths(now);
        self.entries.iter_mut().for_each(|entry| entry.absent_since = entry.absent_since.min(tenths));
        for id in ids {
            if let Some(entry) = self.entries.get_mut(id.index()) {
                entry.absent_since = PRESENT;
            }
        }
        self.expire(now);
    }

    /// Removes members that have been absent for `forget_after` or longer. Returns
    /// whether there were any.
    pub fn expire(&mut self, now: Instant) -> bool {
        let now = self.tenths(now);
        let after = u32::try_from(self.forget_after.as_millis().div_ceil(100)).unwrap_or(PRESENT);
        self.retain(|_, entry| entry.absent_since == PRESENT || now.saturating_sub(entry.absent_since) < after)
    }

    /// Removes members at once, in one walk over all. `gone` is sorted.
    pub fn remove(&mut self, gone: &[MemberId]) {
        if !gone.is_empty() {
            self.retain(|id, _| gone.binary_search(&id).is_err());
        }
    }

    /// Removes all other members. Returns whether there were any.
    fn retain(&mut self, keep: impl Fn(MemberId, &MemberEntry) -> bool) -> bool {
        let mut kept = 0;
        for at in 0..self.ring.len() {
            let id = MemberId(self.ring[at]);
            if keep(id, &self.entries[id.index()]) {
                self.ring[kept] = id.0;
                kept += 1;
            } else {
                self.entries[id.index()] = FREE;
                self.first_free = self.first_free.min(id.index());
            }
        }
        if kept == self.ring.len() {
            return false;
        }
        self.ring.resize(kept, 0);
        let used = self.entries.iter().rposition(|entry| entry.length > 0).map_or(0, |last| last + 1);
        self.entries.resize(used, FREE);
        self.first_free = self.first_free.min(used);
        self.compact_names();
        self.version += 1;
        true
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Returns whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Returns whether any member is absent, and so may be removed without a new list.
    pub fn any_absent(&self) -> bool {
        self.entries.iter().any(|entry| entry.length > 0 && entry.absent_since != PRESENT)
    }

    /// Returns a number that changes whenever a selection may change: a member is added, is
    /// removed, or changes its zone.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Returns the resident bytes of the table, in whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.entries.resident_bytes() + self.names.resident_bytes() + self.ring.resident_bytes()
    }

    /// Returns all members, in ring order.
    pub(super) fn ring(&self) -> impl ExactSizeIterator<Item = MemberId> {
        self.ring.iter().map(|id| MemberId(*id))
    }

    /// Returns the index of that name on the ring, or the index where it would be inserted.
    pub(super) fn place(&self, node: &str) -> Result<usize, usize> {
        let wanted = hash::on_ring(node);
        self.ring.binary_search_by(|id| {
            let name = self.name(MemberId(*id));
            match hash::on_ring(name).cmp(&wanted) {
                Ordering::Equal => name.cmp(node),
                other => other,
            }
        })
    }

    pub(super) fn zone_number(&self, id: MemberId) -> ZoneNumber {
        self.entries.get(id.index()).map_or(Self::UNKNOWN_ZONE, |entry| entry.zone)
    }

    /// Returns the number of a zone, if it has one.
    pub(super) fn find_zone(&self, zone: &str) -> Option<ZoneNumber> {
        let known = self.zones.iter().position(|known| **known == *zone)?;
        ZoneNumber::try_from(known).ok()
    }

    fn add(&mut self, node: &str, at: usize) -> Option<MemberId> {
        let length = u8::try_from(node.len()).ok().filter(|length| *length > 0)?;
        let begin = u32::try_from(self.names.len()).ok()?;
        while self.entries.get(self.first_free).is_some_and(|entry| entry.length > 0) {
            self.first_free += 1;
        }
        let number = u16::try_from(self.first_free).ok()?;
        if (self.first_free == self.entries.len() && !self.entries.push(FREE)) || !self.names.extend(node.as_bytes()) {
            return None;
        }
        self.entries[self.first_free] = MemberEntry { begin, length, ..FREE };
        // The ring has as many places as there are entries, so there is room.
        if !self.ring.push(number) {
            return None;
        }
        self.ring[at..].rotate_right(1);
        self.version += 1;
        Some(MemberId(number))
    }

    /// Returns the number of a zone for a member: a known one, a new one, or one that no other
    /// member uses any more.
    fn assign_zone(&mut self, zone: &str, id: MemberId) -> ZoneNumber {
        if zone.is_empty() {
            return Self::UNKNOWN_ZONE;
        }
        if let Some(known) = self.find_zone(zone) {
            return known;
        }
        let held = |number: usize| {
            let others = self.entries.iter().enumerate().filter(|(index, _)| *index != id.index());
            others.into_iter().any(|(_, entry)| usize::from(entry.zone) == number)
        };
        if let Some(free) = (1..self.zones.len()).find(|number| !held(*number)) {
            self.zones[free] = zone.into();
            // It may be the member's own old zone under another name. For a selection, that is a
            // zone without other members.
            self.version += 1;
            return ZoneNumber::try_from(free).unwrap_or(Self::UNKNOWN_ZONE);
        }
        if self.zones.len() == MEMBER_ZONES_MAX {
            return Self::UNKNOWN_ZONE;
        }
        self.zones.push(zone.into());
        ZoneNumber::try_from(self.zones.len() - 1).unwrap_or(Self::UNKNOWN_ZONE)
    }

    fn tenths(&mut self, now: Instant) -> u32 {
        let began = *self.began.get_or_insert(now);
        u32::try_from(now.saturating_duration_since(began).as_millis() / 100).unwrap_or(PRESENT - 1)
    }

    /// Moves all names to a fresh region if more than half of this one is unused.
    fn compact_names(&mut self) {
        let held: usize = self.entries.iter().map(|entry| usize::from(entry.length)).sum();
        if 2 * held >= self.names.len() {
            return;
        }
        let mut fresh = List::new(2 * PEER_SLOTS_MAX * NAME_BYTES_MAX);
        for entry in &mut *self.entries {
            let begin = entry.begin as usize;
            let name = &self.names[begin..begin + usize::from(entry.length)];
            entry.begin = u32::try_from(fresh.len()).unwrap_or(0);
            // The old region held these names and more, so they fit.
            let _ = fresh.extend(name);
        }
        self.names = fresh;
    }
}

#[cfg(test)]
mod tests;
