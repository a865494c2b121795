//! The names of all peers, one behind the other.
//!
//! A `Box<str>` each would cost 16 bytes of pointer and length, 4 of the allocator's and what it rounds up; worse, they
//! would stand where the list's own strings stood among others that are freed, and hold their pages. A place is a
//! number, and space is won back when the next newcomer comes.

use super::peer::{Entry, NameId};

/// Bytes and nothing else: every name is known by its place. The directory's own, behind its lock: a name is borrowed from it only
/// as long as that is held, for the next list may move them all.
#[derive(Debug, Default)]
pub(super) struct Names(String);

impl Names {
    /// None but an empty one for a place that was not given here.
    pub(super) fn get(&self, id: NameId) -> &str {
        let begin = id.begin as usize;
        self.0.get(begin..begin + usize::from(id.length)).unwrap_or_default()
    }

    /// Keeps the names of `held` alone, and makes room for so many more bytes, exactly.
    pub(super) fn make_room<'a>(&mut self, held: impl Iterator<Item = &'a mut Entry>, more: usize) {
        let mut fresh = Self(String::with_capacity(self.0.len() + more));
        for entry in held {
            if let Some(id) = fresh.put(self.get(entry.name())) {
                entry.name_is_at(id);
            }
        }
        // Less what was dropped.
        fresh.0.shrink_to(fresh.0.len() + more);
        *self = fresh;
    }

    /// Keeps `name`. None where it is longer than a place can say: no source gives one of more than 253 bytes.
    pub(super) fn put(&mut self, name: &str) -> Option<NameId> {
        let id = NameId { begin: u32::try_from(self.0.len()).ok()?, length: u16::try_from(name.len()).ok()? };
        self.0.push_str(name);
        Some(id)
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
        let mut entries: Vec<Entry> = ["a", "bé", "", "dd"].iter().map(entry).collect();
        entries.remove(0);
        names.make_room(entries.iter_mut(), 3);
        assert_eq!(entries.iter().map(|e| names.get(e.name())).collect::<Vec<_>>(), ["bé", "", "dd"]);
        assert_eq!((names.0.len(), names.0.capacity()), (5, 8));
        assert!(names.put(&"x".repeat(70_000)).is_none());
        assert_eq!(names.get(NameId { begin: 4, length: 9 }), "");
    }
}
