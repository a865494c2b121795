//! A hash table that finds the number of a name.

use std::hash::{DefaultHasher, Hasher};

/// Marks a free place of the table.
const FREE: u16 = u16::MAX;
/// Initial number of places. It is doubled before more than half are taken.
const PLACES_MIN: usize = 64;

/// Maps a name to its number: open addressing, 2 bytes per place.
#[derive(Debug)]
pub struct NameNumbers {
    places: Vec<u16>,
    taken: usize,
}

impl NameNumbers {
    /// Makes an empty table.
    pub fn new() -> Self {
        Self { places: vec![FREE; PLACES_MIN], taken: 0 }
    }

    /// Returns the number of `name`. `name_of` returns the name of a number.
    pub fn find<'a>(&self, name: &str, name_of: impl Fn(u16) -> &'a str) -> Option<u16> {
        self.walk(name).map(|place| self.places[place]).find_map(|number| match number {
            FREE => Some(None),
            number => (name_of(number) == name).then_some(Some(number)),
        })?
    }

    /// Adds a name that is not in the table.
    pub fn add<'a>(&mut self, name: &str, number: u16, name_of: impl Fn(u16) -> &'a str) {
        if (self.taken + 1) * 2 > self.places.len() {
            let doubled = vec![FREE; self.places.len() * 2];
            let held = std::mem::replace(&mut self.places, doubled);
            held.into_iter().filter(|number| *number != FREE).for_each(|number| self.put(name_of(number), number));
        }
        self.put(name, number);
        self.taken += 1;
    }

    fn put(&mut self, name: &str, number: u16) {
        let free = self.walk(name).find(|place| self.places[*place] == FREE);
        // At most half of the places are taken, so there is a free one.
        if let Some(place) = free {
            self.places[place] = number;
        }
    }

    fn walk(&self, name: &str) -> impl Iterator<Item = usize> + use<> {
        let mut hasher = DefaultHasher::new();
        hasher.write(name.as_bytes());
        let mask = self.places.len() - 1;
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
        let start = hasher.finish() as usize;
        (0..self.places.len()).map(move |step| start.wrapping_add(step) & mask)
    }

    /// Returns the bytes by which the table grows with the next name.
    pub const fn growth(&self) -> usize {
        if (self.taken + 1) * 2 > self.places.len() { self.bytes() } else { 0 }
    }

    /// Returns the bytes of the table.
    pub const fn bytes(&self) -> usize {
        self.places.len() * size_of::<u16>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again_through_many_doublings() {
        let names: Vec<String> = (0..3_000).map(|n| format!("node-{n}")).collect();
        let name_of = |number: u16| names[usize::from(number)].as_str();
        let mut numbers = NameNumbers::new();
        for (number, name) in (0_u16..).zip(&names) {
            assert_eq!(numbers.find(name, name_of), None);
            numbers.add(name, number, name_of);
        }
        for (number, name) in (0_u16..).zip(&names) {
            assert_eq!(numbers.find(name, name_of), Some(number));
        }
        assert_eq!(numbers.find("node", name_of), None);
        assert_eq!(numbers.bytes(), 2 * 8_192);
    }
}
