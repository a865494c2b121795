//! The names of all peers, stored one after the other ([`Text`]).
//!
//! The space of removed names is reclaimed when it equals that of all others, and when slots are
//! compacted. All names then move to a fresh region, and the old one goes back to the system.

use kube_canary_kernel::text::{Span, Text};

use super::peer::PeerEntry;
use crate::limits::{NAME_BYTES_MAX, PEER_SLOTS_MAX};

/// Bytes only. A name is found by its place. The directory owns this, behind its lock. A borrowed
/// name is valid only while the lock is held, because the next list may move all names.
#[derive(Debug)]
pub(super) struct PeerNames(Text);

impl Default for PeerNames {
    fn default() -> Self {
        // Twice the maximum of all names: free bytes are reclaimed at half.
        Self(Text::new(2 * PEER_SLOTS_MAX * NAME_BYTES_MAX))
    }
}

impl PeerNames {
    /// Returns the name at `place`; an empty one for a place that is out of range.
    pub(super) fn get(&self, place: Span) -> &str {
        self.0.get(place)
    }

    pub(super) fn resident_bytes(&self) -> usize {
        self.0.resident_bytes()
    }

    /// Returns whether more than half of the bytes are unused, if `held` are all entries
    /// with a name here.
    pub(super) fn is_half_free<'a>(&self, held: impl Iterator<Item = &'a PeerEntry>) -> bool {
        let held: usize = held.map(|entry| usize::from(entry.name().len)).sum();
        2 * held < self.0.bytes()
    }

    /// Keeps only the names of `held`.
    pub(super) fn rebuild<'a>(&mut self, held: impl Iterator<Item = &'a mut PeerEntry>) {
        let mut fresh = Self::default();
        for entry in held {
            if let Some(place) = fresh.put(self.get(entry.name())) {
                entry.name_is_at(place);
            }
        }
        *self = fresh;
    }

    /// Stores `name`, which no source gives with more than 253 bytes. None if there is no room.
    pub(super) fn put(&mut self, name: &str) -> Option<Span> {
        self.0.add(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::ZoneId;

    #[test]
    fn names_move_together_and_the_space_of_others_is_reclaimed() {
        let mut names = PeerNames::default();
        let entry = |name: &&str| PeerEntry::new(names.put(name).unwrap(), ZoneId::UNKNOWN);
        let mut entries: Vec<PeerEntry> = ["aaaa", "bé", "", "d"].iter().map(entry).collect();
        assert!(!names.is_half_free(entries.iter()));
        entries.remove(0);
        assert!(!names.is_half_free(entries.iter()), "four of eight");
        entries.remove(2);
        assert!(names.is_half_free(entries.iter()));
        names.rebuild(entries.iter_mut());
        assert_eq!(entries.iter().map(|e| names.get(e.name())).collect::<Vec<_>>(), ["bé", ""]);
        assert_eq!(names.0.bytes(), 3);
        assert_eq!(names.get(Span { begin: 2, len: 9 }), "");
    }
}
