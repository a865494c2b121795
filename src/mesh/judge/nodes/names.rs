//! Many names in little memory: each is kept without what it shares with the one before.
//!
//! Names of nodes often have the same begin and the same end, as in
//! `ip-10-0-3-17.eu-central-1.compute.internal`. In their order, 5,000 of these take 25 KB instead
//! of 220.

use crate::limits::NAME_BYTES_MAX;

const _: () = assert!(NAME_BYTES_MAX <= u8::MAX as usize, "a length fits a byte");
/// Lengths that stand before each name: of its begin, its end, and what is between.
const LENGTHS: usize = 3;

/// Names that are read one after the other.
#[derive(Debug, Default)]
pub struct NodeNames {
    bytes: Vec<u8>,
    last: Vec<u8>,
}

/// Reads the names, one after the other.
#[derive(Debug, Default)]
pub struct NamePosition {
    at: usize,
    name: Vec<u8>,
}

impl NodeNames {
    /// Adds a name of at most [`NAME_BYTES_MAX`] bytes, if the names then have at most `room`
    /// bytes. Returns whether it was added.
    pub fn push(&mut self, name: &str, room: usize) -> bool {
        let (name, last) = (name.as_bytes(), self.last.as_slice());
        let alike = |(a, b): &(&u8, &u8)| a == b;
        let front = name.iter().zip(last).take_while(alike).count();
        let back = name[front..].iter().rev().zip(last[front..].iter().rev()).take_while(alike).count();
        let middle = &name[front..name.len() - back];
        if name.len() > NAME_BYTES_MAX || self.bytes.len() + LENGTHS + middle.len() > room {
            return false;
        }
        // All three are lengths of a part of the name.
        self.bytes.extend([front, back, middle.len()].map(|length| u8::try_from(length).unwrap_or_default()));
        self.bytes.extend_from_slice(middle);
        self.last = name.to_owned();
        true
    }

    /// Releases the memory that is reserved for further names.
    pub fn end(&mut self) {
        self.last = Vec::new();
        self.bytes.shrink_to_fit();
    }

    /// Returns the bytes of all names.
    #[cfg(test)]
    pub const fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl NamePosition {
    /// Moves to the next name. Returns false at the end.
    pub fn next(&mut self, names: &NodeNames) -> bool {
        let Some(([front, back, middle], rest)) = names.bytes.get(self.at..).and_then(<[u8]>::split_first_chunk) else {
            return false;
        };
        let middle = rest.get(..usize::from(*middle)).unwrap_or_default();
        let end = self.name.split_off(self.name.len() - usize::from(*back));
        self.name.truncate(usize::from(*front));
        self.name.extend_from_slice(middle);
        self.name.extend_from_slice(&end);
        self.at += LENGTHS + middle.len();
        true
    }

    /// Returns the name of this place.
    pub fn name(&self) -> &str {
        std::str::from_utf8(&self.name).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_were_added_whatever_they_share() {
        let all = ["", "", "a", "aa", "aaa", "ab", "node-10.x", "node-100.x", "node-2.x", "é", "è", "x"];
        let mut names = NodeNames::default();
        assert!(all.iter().all(|name| names.push(name, 1_000)));
        names.end();
        let mut place = NamePosition::default();
        for name in all {
            assert!(place.next(&names));
            assert_eq!(place.name(), name);
        }
        assert!(!place.next(&names) && !place.next(&names));
    }

    #[test]
    fn a_name_that_does_not_fit_or_is_none_of_a_node_is_left_out() {
        let mut names = NodeNames::default();
        assert!(names.push("aaaa", 10) && !names.push("bbbb", 10) && !names.push(&"a".repeat(254), 1_000));
        assert!(names.push("aaab", 11), "one byte is new");
        let mut place = NamePosition::default();
        assert!(place.next(&names) && place.next(&names) && !place.next(&names));
        assert_eq!((place.name(), names.bytes()), ("aaab", 11));
    }
}
