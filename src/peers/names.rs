//! The names of all peers, stored one after the other.
//!
//! A `Box<str>` per name would cost 16 bytes of pointer and length, 4 bytes of the allocator, and
//! rounding. It would also keep pages alive: such strings lie between the list's own strings, which
//! are freed.
//!
//! A place is a number. The space of removed names is reclaimed when it equals that of all others,
//! and when slots are compacted. All names then move to a fresh region, and the old one goes back
//! to the system.

use super::peer::{Entry, NameId};
use crate::limits::{NAME_BYTES_MAX, PEER_SLOTS_MAX};
use crate::sys::region::List;

/// Bytes only. A name is found by its place. The directory owns this, behind its lock. A borrowed
/// name is valid only while the lock is held, because the next list may move all names.
#[derive(Debug)]
pub(super) struct Names {
    bytes: List<u8>,
}

impl Default for Names {
    fn default() -> Self {
        // Twice the maximum of all names: free bytes are reclaimed at half.
        Self { bytes: List::new(2 * PEER_SLOTS_MAX * NAME_BYTES_MAX) }
    }
}

impl Names {
    /// Returns the name at `id`; an empty one for a place that is out of range.
    pub(super) fn get(&self, id: NameId) -> &str {
        let begin = id.begin as usize;
        let bytes = self.bytes.get(begin..begin + usize::from(id.length)).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    pub(super) fn resident_bytes(&self) -> usize {
        self.bytes.resident_bytes()
    }

    /// Returns whether more than half of the bytes are unused, if `held` are all entries
    /// with a name here.
    pub(super) fn is_half_free<'a>(&self, held: impl Iterator<Item = &'a Entry>) -> bool {
        let held: usize = held.map(|entry| usize::from(entry.name().length)).sum();
        2 * held < self.bytes.len()
    }

    /// Keeps only the names of `held`.
    pub(super) fn rebuild<'a>(&mut self, held: impl Iterator<Item = &'a mut Entry>) {
        let mut fresh = Self::default();
        for entry in held {
            if let Some(id) = fresh.put(self.get(entry.name())) {
                entry.name_is_at(id);
            }
        }
        *self = fresh;
    }

    /// Stores `name`. None if there is no room, or if the name is longer than a place can express.
    /// No source gives a name of more than 253 bytes.
    pub(super) fn put(&mut self, name: &str) -> Option<NameId> {
        let id = NameId { begin: u32::try_from(self.bytes.len()).ok()?, length: u16::try_from(name.len()).ok()? };
        self.bytes.extend(name.as_bytes()).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::ZoneId;

    #[test]
    fn names_move_together_and_the_space_of_others_is_won_back() {
        let mut names = Names::default();
        let entry = |name: &&str| Entry::new(names.put(name).unwrap(), ZoneId::UNKNOWN);
        let mut entries: Vec<Entry> = ["aaaa", "bé", "", "d"].iter().map(entry).collect();
        assert!(!names.is_half_free(entries.iter()));
        entries.remove(0);
        assert!(!names.is_half_free(entries.iter()), "four of eight");
        entries.remove(2);
        assert!(names.is_half_free(entries.iter()));
        names.rebuild(entries.iter_mut());
        assert_eq!(entries.iter().map(|e| names.get(e.name())).collect::<Vec<_>>(), ["bé", ""]);
        assert_eq!(names.bytes.len(), 3);
        assert!(names.put(&"x".repeat(70_000)).is_none());
        assert_eq!(names.get(NameId { begin: 2, length: 9 }), "");
    }
}
