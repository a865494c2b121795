//! The names of all peers, one behind the other.
//!
//! A `Box<str>` each would cost 16 bytes of pointer and length, 4 of the allocator's and what it rounds up; worse, they
//! would stand where the list's own strings stood among others that are freed, and hold their pages. A place is a
//! number. The space of who has gone is won back when it is as much as that of all others, and when slots are closed up: all
//! names move to a fresh region, and the old one goes back to the system.

use super::peer::{Entry, NameId};
use crate::limits::{NAME_BYTES_MAX, PEER_SLOTS_MAX};
use crate::region::List;

/// Bytes and nothing else: every name is known by its place. The directory's own, behind its lock: a name is borrowed from it
/// only as long as that is held, for the next list may move them all.
#[derive(Debug)]
pub(super) struct Names {
    bytes: List<u8>,
}

impl Default for Names {
    fn default() -> Self {
        // Twice what all can be, for that is when free bytes are won back.
        Self { bytes: List::new(2 * PEER_SLOTS_MAX * NAME_BYTES_MAX) }
    }
}

impl Names {
    /// None but an empty one for a place that was not given here.
    pub(super) fn get(&self, id: NameId) -> &str {
        let begin = id.begin as usize;
        let bytes = self.bytes.get(begin..begin + usize::from(id.length)).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    pub(super) fn resident_bytes(&self) -> usize {
        self.bytes.resident_bytes()
    }

    /// Whether more than half of it is nobody's, where `held` are all that have a name here.
    pub(super) fn is_half_free<'a>(&self, held: impl Iterator<Item = &'a Entry>) -> bool {
        let held: usize = held.map(|entry| usize::from(entry.name().length)).sum();
        2 * held < self.bytes.len()
    }

    /// Keeps the names of `held` alone.
    pub(super) fn rebuild<'a>(&mut self, held: impl Iterator<Item = &'a mut Entry>) {
        let mut fresh = Self::default();
        for entry in held {
            if let Some(id) = fresh.put(self.get(entry.name())) {
                entry.name_is_at(id);
            }
        }
        *self = fresh;
    }

    /// Keeps `name`. None where there is no room, or it is longer than a place can say: no source gives one of more than
    /// 253 bytes.
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
