//! Reads the kernel's text files line by line, through one buffer on the stack or one that the
//! caller lends ([`Lines`]).
//!
//! `fs::read_to_string` was rejected because it allocates. The probe thread must not allocate. At
//! every scrape, each worker would keep as much memory as the longest file took. A line longer than
//! the buffer is cut, and bytes that are not UTF-8 are left out. No line that is needed here has
//! either property.

use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::ops::ControlFlow;
use std::path::Path;

/// Bytes of a line of /proc or of a cgroup file that are used. The longest one that matters
/// (`Icmp:` of /proc/net/snmp) has 400. The buffer is on the stack, once per reading thread.
pub const LINE_BYTES_MAX: usize = 1_024;
/// Bytes of a file of /proc or of a cgroup. Mountinfo of a node with a thousand pods has 2 MB.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Calls `line` with each line of the file at `path`, without its newline, until it breaks.
///
/// # Errors
/// The system's error from opening or reading the file.
pub fn each_line(path: impl AsRef<Path>, mut line: impl FnMut(&str) -> ControlFlow<()>) -> io::Result<()> {
    for_each_line(&mut File::open(path)?.take(FILE_BYTES_MAX), &mut line)
}

/// Returns the first result of `find` over the lines of the file.
pub fn find<T>(path: impl AsRef<Path>, mut find: impl FnMut(&str) -> Option<T>) -> Option<T> {
    let mut found = None;
    let look = |line: &str| {
        found = find(line);
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    // A file that does not exist gives no result.
    each_line(path, look).ok().and(found)
}

/// Returns the number after `name` in a line of `name value`, the form of most of these files.
pub fn number<T: std::str::FromStr>(line: &str, name: &str) -> Option<T> {
    line.strip_prefix(name)?.split_ascii_whitespace().next()?.parse().ok()
}

pub(crate) fn for_each_line(file: &mut dyn Read, line: &mut dyn FnMut(&str) -> ControlFlow<()>) -> io::Result<()> {
    let mut buffer = [0; LINE_BYTES_MAX];
    let mut lines = Lines::new(file, &mut buffer, end_of_line);
    while let Some(bytes) = lines.next_line()? {
        if line(text(bytes)).is_break() {
            break;
        }
    }
    Ok(())
}

/// Returns a line as text. If it was cut within a character, it ends before that character.
fn text(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}

/// The lines of a file, read through a buffer that the caller lends. A line longer than
/// the buffer is cut.
pub struct Lines<'a, E> {
    file: &'a mut dyn Read,
    buffer: &'a mut [u8],
    /// Finds the end of the first line, if it is there.
    end: E,
    /// The start of the bytes that are read but not returned yet.
    begin: usize,
    /// The end of the bytes that are read but not returned yet.
    filled: usize,
    /// Whether the rest of a cut line is being skipped.
    cutting: bool,
}

impl<'a, E: Fn(&[u8]) -> Option<usize>> Lines<'a, E> {
    /// Starts at the beginning of `file`. `end` is [`end_of_line`], or a faster
    /// function for this file.
    pub const fn new(file: &'a mut dyn Read, buffer: &'a mut [u8], end: E) -> Self {
        Self { file, buffer, end, begin: 0, filled: 0, cutting: false }
    }

    /// Returns the next line without its newline. The last line may lack a newline. Returns none at
    /// the end of the file.
    ///
    /// # Errors
    /// The error of reading.
    pub fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        loop {
            while let Some(length) = (self.end)(&self.buffer[self.begin..self.filled]) {
                let line = self.begin..self.begin + length;
                self.begin = line.end + 1;
                if !mem::take(&mut self.cutting) {
                    return Ok(Some(&self.buffer[line]));
                }
            }
            self.buffer.copy_within(self.begin..self.filled, 0);
            (self.begin, self.filled) = (0, self.filled - self.begin);
            if self.filled == self.buffer.len() {
                self.filled = 0;
                if !mem::replace(&mut self.cutting, true) {
                    return Ok(Some(self.buffer));
                }
            }
            match self.file.read(&mut self.buffer[self.filled..]) {
                Ok(0) => {
                    let last = mem::take(&mut self.filled);
                    return Ok((last > 0 && !self.cutting).then(|| &self.buffer[..last]));
                }
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns the length of the first line, if its end is there.
pub fn end_of_line(text: &[u8]) -> Option<usize> {
    text.iter().position(|&byte| byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns `step` bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(into.len());
            self.0.read(&mut into[..count])
        }
    }

    fn lines(text: &[u8], step: usize) -> Vec<String> {
        let mut found = Vec::new();
        for_each_line(&mut Slow(text, step), &mut |line| {
            found.push(line.to_owned());
            ControlFlow::Continue(())
        })
        .unwrap();
        found
    }

    #[test]
    fn lines_are_complete_for_every_size_of_reads() {
        for step in [1, 2, 3, 7, 100_000] {
            assert_eq!(lines(b"a\n\nbc\nd", step), ["a", "", "bc", "d"], "{step}");
            assert_eq!(lines(b"a\n", step), ["a"]);
            assert!(lines(b"", step).is_empty());
        }
    }

    #[test]
    fn a_line_longer_than_the_buffer_is_cut_and_the_next_is_complete() {
        let long = "x".repeat(LINE_BYTES_MAX * 5 / 2);
        for step in [1, 1_000, 100_000] {
            let found = lines(format!("first\n{long}\nlast\n").as_bytes(), step);
            assert_eq!(found.len(), 3, "{step}");
            assert_eq!((found[0].as_str(), found[2].as_str()), ("first", "last"));
            assert!(long.starts_with(&found[1]) && found[1].len() > LINE_BYTES_MAX / 2);
        }
    }

    #[test]
    fn the_first_result_over_the_lines_is_returned() {
        assert_eq!(find("/proc/self/status", |line| number::<u32>(line, "Threads:")).map(|n| n >= 1), Some(true));
        assert_eq!(find("/proc/self/status", |line| number::<u32>(line, "None:")), None);
        assert_eq!(find("/nowhere", |line| number::<u32>(line, "Threads:")), None);
    }
}
