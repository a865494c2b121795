//! Standard output, whose reader may close it at any time.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

/// Writes all of `text`. Returns whether the output still has a reader. A closed output is no
/// error. `print!` is not used because it panics in that case.
///
/// # Errors
/// Any other error of the system, such as a full disk.
pub fn print(text: impl AsRef<[u8]>) -> io::Result<bool> {
    write(&mut io::stdout().lock(), text.as_ref())
}

/// The state of the reader of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The reader accepts at least as many bytes as a pipe accepts at once (`PIPE_BUF`, pipe(7)).
    Ready,
    /// The reader accepts nothing now. A write would block.
    Busy,
    /// The reader has closed the output. Written bytes would be lost.
    Gone,
}

/// Returns the state of the reader of standard output.
pub fn reader() -> Reader {
    reader_of(libc::STDOUT_FILENO)
}

#[expect(unsafe_code, reason = "poll(2) has no safe wrapper in std")]
fn reader_of(descriptor: i32) -> Reader {
    let mut asked = libc::pollfd { fd: descriptor, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one valid pollfd, which outlives the call. It does not wait.
    match unsafe { libc::poll(&raw mut asked, 1, 0) } {
        0 => Reader::Busy,
        1 if asked.revents & libc::POLLERR != 0 => Reader::Gone,
        // If the descriptor is broken, the write fails and says why.
        _ => Reader::Ready,
    }
}

/// Formats a text that replaces the whole screen of a terminal, cut to its size. If standard output
/// is no terminal, the text is unchanged, with a blank line after it.
pub fn screen(text: &str) -> String {
    if !io::stdout().is_terminal() {
        return format!("{text}\n");
    }
    // The last line stays free for the cursor. One more line says how much is left out.
    let (all, room) = (text.lines().count(), lines_of_terminal().saturating_sub(2).max(1));
    let mut shown: String = text.split_inclusive('\n').take(room).collect();
    if all > room {
        // Writing to memory cannot fail.
        let _ = write!(shown, "… {} more", all - room);
    }
    // Moves the cursor to the first position and clears the screen from there.
    format!("\x1b[H\x1b[J{shown}")
}

/// The number of lines of the terminal that is standard output. If it is
/// unknown, the largest number.
#[expect(unsafe_code, reason = "ioctl(2) has no safe wrapper in std")]
fn lines_of_terminal() -> usize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one winsize (ioctl_tty(2)), which outlives the call.
    let done = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    if done == 0 && size.ws_row > 0 { size.ws_row.into() } else { usize::from(u16::MAX) }
}

/// Makes an untrusted text safe for a line of output: control characters become `?`. The names of
/// nodes and programs may contain any characters.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn write(to: &mut impl Write, text: &[u8]) -> io::Result<bool> {
    match to.write_all(text).and_then(|()| to.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_reader_that_has_gone_is_no_failure_and_a_full_disk_is() {
        let (reader, mut writer) = io::pipe().unwrap();
        assert_eq!(reader_of(writer.as_raw_fd()), Reader::Ready);
        assert!(write(&mut writer, b"text").unwrap());
        while reader_of(writer.as_raw_fd()) == Reader::Ready {
            assert!(write(&mut writer, &[b' '; 4_096]).unwrap());
        }
        assert_eq!(reader_of(writer.as_raw_fd()), Reader::Busy);
        drop(reader);
        // A child that another test has just forked holds the reader open until it executes its
        // program.
        while reader_of(writer.as_raw_fd()) != Reader::Gone {
            std::thread::yield_now();
        }
        assert!(!write(&mut writer, b"text").unwrap());
        let mut full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert_eq!(write(&mut full, b"text").unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    }
}
