//! Reads the kernel's text files a line at a time, through one buffer on the stack.
//!
//! `fs::read_to_string` would do, but it allocates: on the probe thread, where nothing may, and at every scrape, where
//! each worker would keep what the longest file took. A line longer than the buffer is cut, and what is not UTF-8 is
//! left out: no line that anybody here looks for is either.

use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;

use crate::limits::{PROC_FILE_BYTES_MAX, PROC_LINE_BYTES_MAX};

/// Calls `line` with each line of the file at `path`, without its end, until it breaks.
///
/// # Errors
/// What the system says of opening or reading it.
pub fn each_line(path: impl AsRef<Path>, line: impl FnMut(&str) -> ControlFlow<()>) -> io::Result<()> {
    lines_of(File::open(path)?.take(PROC_FILE_BYTES_MAX), line)
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

fn lines_of(mut file: impl Read, mut line: impl FnMut(&str) -> ControlFlow<()>) -> io::Result<()> {
    let mut buffer = [0; PROC_LINE_BYTES_MAX];
    let mut held = 0;
    // Behind a line that was cut: what follows up to its end is left out.
    let mut cutting = false;
    loop {
        let read = match file.read(&mut buffer[held..]) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let filled = held + read;
        let mut begin = 0;
        while let Some(length) = buffer[begin..filled].iter().position(|&byte| byte == b'\n') {
            let whole = &buffer[begin..begin + length];
            begin += length + 1;
            if !std::mem::take(&mut cutting) && say(whole, &mut line).is_break() {
                return Ok(());
            }
        }
        held = filled - begin;
        // The end of the file ends its last line; a full buffer without an end of line is cut.
        if held > 0 && (read == 0 || held == buffer.len()) {
            if !std::mem::replace(&mut cutting, true) && say(&buffer[begin..filled], &mut line).is_break() {
                return Ok(());
            }
            held = 0;
        } else {
            buffer.copy_within(begin..filled, 0);
        }
        if read == 0 {
            return Ok(());
        }
    }
}

fn say(bytes: &[u8], line: &mut impl FnMut(&str) -> ControlFlow<()>) -> ControlFlow<()> {
    // A line cut within a character is told up to it.
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    line(text)
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
        lines_of(Slow(text, step), |line| {
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
