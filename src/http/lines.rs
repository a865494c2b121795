//! Splits a body's byte stream into lines, regardless of the pieces in which it arrives. The lines
//! are a watch's events or a mesh's rows.

use crate::limits;

/// The error for a line that is longer than allowed.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

/// The bytes that have arrived and are not yet read. Holds at most one unfinished line
/// and one network read.
///
/// The reader of the body owns it and drops it with the body. A line is borrowed until
/// the next [`BodyLines::push`]. The memory is kept from line to line up to
/// [`limits::EVENT_BUFFER_KEPT_BYTES`]. More than that is kept only until the line that
/// needed it is read.
pub struct BodyLines {
    buffer: Vec<u8>,
    /// All lines before this index were returned.
    taken: usize,
    /// There is no newline between `taken` and this index. Each byte is examined once, even if a
    /// long line arrives slowly.
    scanned: usize,
    limit: usize,
}

impl BodyLines {
    /// Creates an empty buffer for lines of at most `limit` bytes.
    pub const fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), taken: 0, scanned: 0, limit }
    }

    /// Adds bytes that have arrived. All lines must have been read by [`BodyLines::next_line`]
    /// before.
    ///
    /// # Errors
    /// The unfinished line is longer than the limit.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        self.buffer.drain(..self.taken);
        self.scanned -= self.taken;
        self.taken = 0;
        if self.buffer.len() + bytes.len() > self.limit
            && self.buffer.len() + bytes.iter().position(|b| *b == b'\n').unwrap_or(bytes.len()) > self.limit
        {
            return Err(TooLong);
        }
        // The memory of one long line must not be kept until the end of the body.
        if self.buffer.is_empty() && self.buffer.capacity() > limits::EVENT_BUFFER_KEPT_BYTES {
            self.buffer = Vec::new();
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the bytes after the end of the last line that was read.
    pub fn rest(&self) -> &[u8] {
        &self.buffer[self.taken..]
    }

    /// Returns the next complete line that is not blank, without its newline.
    pub fn next_line(&mut self) -> Option<&[u8]> {
        loop {
            let end = self.scanned
                + self.buffer[self.scanned..].iter().position(|b| *b == b'\n').or_else(|| {
                    self.scanned = self.buffer.len();
                    None
                })?;
            let start = self.taken;
            (self.taken, self.scanned) = (end + 1, end + 1);
            if !self.buffer[start..end].trim_ascii().is_empty() {
                return Some(&self.buffer[start..end]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(lines: &mut BodyLines) -> Vec<String> {
        std::iter::from_fn(|| lines.next_line().map(|l| String::from_utf8(l.to_vec()).unwrap())).collect()
    }

    #[test]
    fn lines_are_complete_regardless_of_the_pieces_of_the_stream() {
        let text = b"{\"a\":1}\n\n{\"b\":2}\r\n{\"c\":3}\n";
        for size in 1..=text.len() {
            let mut lines = BodyLines::new(16);
            let mut got = Vec::new();
            for piece in text.chunks(size) {
                lines.push(piece).unwrap();
                got.extend(read_all(&mut lines));
            }
            assert_eq!(got, ["{\"a\":1}", "{\"b\":2}\r", "{\"c\":3}"], "{size}");
        }
    }

    #[test]
    fn a_line_above_the_limit_is_an_error_and_many_short_lines_are_not() {
        let mut lines = BodyLines::new(4);
        assert_eq!(lines.push(b"1234\n12\n1234\n"), Ok(()));
        assert_eq!(read_all(&mut lines), ["1234", "12", "1234"]);
        assert_eq!(lines.push(b"123"), Ok(()));
        assert!(lines.next_line().is_none());
        assert_eq!(lines.push(b"45"), Err(TooLong));
        assert_eq!(lines.rest(), b"123", "the line that has not ended");
        assert_eq!(BodyLines::new(4).push(b"12345\n"), Err(TooLong));
    }

    #[test]
    fn a_large_buffer_is_freed_after_its_line() {
        let mut lines = BodyLines::new(1 << 20);
        let mut long = vec![b'x'; 1 << 18];
        long.push(b'\n');
        lines.push(&long).unwrap();
        assert_eq!(lines.next_line().unwrap().len(), 1 << 18);
        lines.push(b"y\n").unwrap();
        assert_eq!(read_all(&mut lines), ["y"]);
        assert!(lines.buffer.capacity() <= limits::EVENT_BUFFER_KEPT_BYTES);
    }
}
