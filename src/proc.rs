//! Reads the kernel's text files a line at a time, through one buffer on the stack, or one that is lent ([`Lines`]).
//!
//! `fs::read_to_string` would do, but it allocates: on the probe thread, where nothing may, and at every scrape, where
//! each worker would keep what the longest file took. A line longer than the buffer is cut, and what is not UTF-8 is
//! left out: no line that anybody here looks for is either.

use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::ops::ControlFlow;
use std::path::Path;

use crate::limits::{PROC_FILE_BYTES_MAX, PROC_LINE_BYTES_MAX};

/// Calls `line` with each line of the file at `path`, without its end, until it breaks.
///
/// # Errors
/// What the system says of opening or reading it.
pub fn each_line(path: impl AsRef<Path>, mut line: impl FnMut(&str) -> ControlFlow<()>) -> io::Result<()> {
    lines_of(&mut File::open(path)?.take(PROC_FILE_BYTES_MAX), &mut line)
}

/// What `find` makes of the first line of the file that it makes anything of.
pub fn find<T>(path: impl AsRef<Path>, mut find: impl FnMut(&str) -> Option<T>) -> Option<T> {
    let mut found = None;
    let look = |line: &str| {
        found = find(line);
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    // A file that is not there tells nothing.
    each_line(path, look).ok().and(found)
}

/// The number behind `name` in a line of `name value`, as most of these files have them.
pub fn number<T: std::str::FromStr>(line: &str, name: &str) -> Option<T> {
    line.strip_prefix(name)?.split_ascii_whitespace().next()?.parse().ok()
}

pub(crate) fn lines_of(file: &mut dyn Read, line: &mut dyn FnMut(&str) -> ControlFlow<()>) -> io::Result<()> {
    let mut buffer = [0; PROC_LINE_BYTES_MAX];
    let mut lines = Lines::new(file, &mut buffer, end_of_line);
    while let Some(bytes) = lines.next_line()? {
        if line(text(bytes)).is_break() {
            break;
        }
    }
    Ok(())
}

/// A line cut within a character is told up to it.
fn text(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}

/// The lines of a file, through a buffer that is lent: one that is longer than it is cut.
pub struct Lines<'a, E> {
    file: &'a mut dyn Read,
    buffer: &'a mut [u8],
    /// Finds the end of the first line, if it is there.
    end: E,
    /// What is read but not told lies from here …
    begin: usize,
    /// … to here.
    filled: usize,
    /// Behind a line that was cut: what follows up to its end is left out.
    cutting: bool,
}

impl<'a, E: Fn(&[u8]) -> Option<usize>> Lines<'a, E> {
    /// From the front of `file`. `end` is [`end_of_line`], or knows a quicker way in this file.
    pub const fn new(file: &'a mut dyn Read, buffer: &'a mut [u8], end: E) -> Self {
        Self { file, buffer, end, begin: 0, filled: 0, cutting: false }
    }

    /// The next line without its end, or what the file has behind its last one; none at the end of the file.
    ///
    /// # Errors
    /// What reading says.
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

/// Up to the end of the first line, if it is there.
pub fn end_of_line(text: &[u8]) -> Option<usize> {
    text.iter().position(|&byte| byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives `step` bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(into.len());
            self.0.read(&mut into[..count])
        }
    }

    fn lines(text: &[u8], step: usize) -> Vec<String> {
        let mut found = Vec::new();
        lines_of(&mut Slow(text, step), &mut |line| {
            found.push(line.to_owned());
            ControlFlow::Continue(())
        })
        .unwrap();
        found
    }

    #[test]
    fn lines_are_whole_however_they_are_read() {
        for step in [1, 2, 3, 7, 100_000] {
            assert_eq!(lines(b"a\n\nbc\nd", step), ["a", "", "bc", "d"], "{step}");
            assert_eq!(lines(b"a\n", step), ["a"]);
            assert!(lines(b"", step).is_empty());
        }
    }

    #[test]
    fn a_line_beyond_the_buffer_is_cut_and_the_next_is_whole() {
        let long = "x".repeat(PROC_LINE_BYTES_MAX * 5 / 2);
        for step in [1, 1_000, 100_000] {
            let found = lines(format!("first\n{long}\nlast\n").as_bytes(), step);
            assert_eq!(found.len(), 3, "{step}");
            assert_eq!((found[0].as_str(), found[2].as_str()), ("first", "last"));
            assert!(long.starts_with(&found[1]) && found[1].len() > PROC_LINE_BYTES_MAX / 2);
        }
    }

    #[test]
    fn the_first_line_that_fits_is_found() {
        assert_eq!(find("/proc/self/status", |line| number::<u32>(line, "Threads:")).map(|n| n >= 1), Some(true));
        assert_eq!(find("/proc/self/status", |line| number::<u32>(line, "None:")), None);
        assert_eq!(find("/nowhere", |line| number::<u32>(line, "Threads:")), None);
    }
}
