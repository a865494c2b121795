//! Strings stored one after the other, in memory that is planned once.
//!
//! A `Box<str>` per string would cost 16 bytes of pointer and length, 4 bytes of the allocator, and
//! rounding. It would also keep pages alive that other, freed strings share with it.

use super::region::List;

/// Position of a string in a [`Text`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Index of its first byte.
    pub begin: u32,
    /// Its length in bytes.
    pub len: u16,
}

/// Strings that are never removed.
#[derive(Debug)]
pub struct Text(List<u8>);

impl Text {
    /// Reserves room for this many bytes. A page takes memory when it is written.
    pub fn new(bytes: usize) -> Self {
        Self(List::new(bytes))
    }

    /// Adds a string. A string that is too long for a span is cut. `None` if there is no room.
    pub fn add(&mut self, text: &str) -> Option<Span> {
        let text = &text[..text.floor_char_boundary(u16::MAX.into())];
        let span = Span { begin: u32::try_from(self.0.len()).ok()?, len: u16::try_from(text.len()).ok()? };
        self.0.extend(text.as_bytes()).then_some(span)
    }

    /// Returns the string at `span`.
    pub fn get(&self, span: Span) -> &str {
        let begin = span.begin as usize;
        let bytes = self.0.get(begin..begin + usize::from(span.len)).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Returns the resident bytes, in whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.0.resident_bytes()
    }

    /// Returns the number of bytes of all strings.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_beyond_its_room_is_refused_and_beyond_a_span_is_cut_at_a_character() {
        let mut text = Text::new(100_000);
        let long = "é".repeat(40_000);
        let span = text.add(&long).expect("room");
        assert_eq!(text.get(span).chars().count(), 32_767);
        assert_eq!(text.add(&long), None);
        let short = text.add("a").expect("room");
        assert_eq!(text.get(short), "a");
    }
}
