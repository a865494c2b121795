//! Standard output that does not delay the prober. Text is collected during a turn and written
//! after it, as far as the reader accepts it without blocking.
//!
//! Rejected: O_NONBLOCK, because it would also apply to every other process at the terminal.
//! Rejected: a thread for writing, because it needs a bounded queue too.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

use crate::sys::console::{self, OutputReader, WRITE_BYTES};

/// Bytes of output that wait for a slow reader. Beyond that, no further probe is sent.
const BYTES_MAX: usize = 1 << 20;
/// How long the end of a ping waits for a reader that accepts nothing.
const FINISH_TIME: Duration = Duration::from_millis(800);

/// Text to be written. There is one buffer, owned here and reused in every turn. Callers borrow
/// `text` and only append. What is written is dropped.
#[derive(Debug)]
pub struct PingOutbox {
    to: File,
    /// The text that callers append to.
    pub text: String,
    /// Number of bytes of `text` that are written.
    written: usize,
}

impl PingOutbox {
    /// Makes an outbox for standard output.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn stdout() -> io::Result<Self> {
        Ok(Self::to(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
    }

    const fn to(to: File) -> Self {
        Self { to, text: String::new(), written: 0 }
    }

    /// Whether this much text waits that none may be added.
    pub const fn is_full(&self) -> bool {
        self.text.len() - self.written > BYTES_MAX
    }

    /// Writes as much as is accepted at once. Returns whether that is everything.
    ///
    /// # Errors
    /// The kernel's error. It is `BrokenPipe` if the reader is gone.
    pub fn pass_on(&mut self) -> io::Result<bool> {
        self.pass_on_within(Duration::ZERO)
    }

    /// Writes everything. Stops if nothing is accepted for [`FINISH_TIME`].
    ///
    /// # Errors
    /// The errors of [`PingOutbox::pass_on`], and `TimedOut`.
    pub fn finish(&mut self) -> io::Result<()> {
        let done = self.pass_on_within(FINISH_TIME)?;
        if done { Ok(()) } else { Err(io::Error::new(io::ErrorKind::TimedOut, "its reader takes nothing")) }
    }

    fn pass_on_within(&mut self, time: Duration) -> io::Result<bool> {
        if self.written > BYTES_MAX {
            // A reader that never catches up does not let the text grow.
            let written = self.text.floor_char_boundary(self.written);
            self.text.drain(..written);
            self.written -= written;
        }
        while self.written < self.text.len() {
            // If the reader is gone, the write returns the error.
            if console::reader_state(&self.to, time) == OutputReader::Busy {
                return Ok(false);
            }
            let rest = &self.text.as_bytes()[self.written..];
            match self.to.write(&rest[..rest.len().min(WRITE_BYTES)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Another process has set O_NONBLOCK.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.text.clear();
        self.written = 0;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn a_slow_reader_delays_nothing_and_gets_everything() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut outbox = PingOutbox::to(File::from(OwnedFd::from(writer)));
        assert!(outbox.pass_on().unwrap(), "nothing to write");
        let line = "0123456789abcde\n";
        while !outbox.is_full() {
            outbox.text.push_str(line);
        }
        let bytes = outbox.text.len();
        assert!(!outbox.pass_on().unwrap() && outbox.written > 0);
        let reading = std::thread::spawn(move || {
            let mut all = String::new();
            reader.read_to_string(&mut all).map(|_| all)
        });
        while !outbox.pass_on().unwrap() {
            std::thread::yield_now();
        }
        drop(outbox);
        assert_eq!(reading.join().unwrap().unwrap(), line.repeat(bytes / line.len()));
    }

    #[test]
    fn what_a_reader_has_taken_is_dropped_even_if_it_never_catches_up() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut outbox = PingOutbox::to(File::from(OwnedFd::from(writer)));
        let (mut read, mut taken) = (vec![0; 64 << 10], 0);
        while taken < 4 * BYTES_MAX {
            while !outbox.is_full() {
                outbox.text.push_str("64 bytes from 10.0.0.2: time=93 µs\n");
            }
            assert!(!outbox.pass_on().unwrap());
            taken += reader.read(&mut read).unwrap();
        }
        assert!(outbox.text.len() <= 3 * BYTES_MAX, "{}", outbox.text.len());
    }

    #[test]
    fn a_reader_that_is_gone_is_a_broken_pipe() {
        let (reader, writer) = io::pipe().unwrap();
        let mut outbox = PingOutbox::to(File::from(OwnedFd::from(writer)));
        drop(reader);
        // A child process that another test has just forked holds the reader until
        // it runs its program.
        let error = loop {
            outbox.text.push('x');
            match outbox.pass_on() {
                Ok(_) => std::thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
