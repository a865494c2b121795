//! Standard output, whose reader may leave once it has seen enough.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

/// Writes all of `text`, and gives whether somebody still reads: a reader that has gone is no failure. Not `print!`, which
/// panics then.
///
/// # Errors
/// Anything else that the system says, a full disk for one.
pub fn print(text: impl AsRef<[u8]>) -> io::Result<bool> {
    write(&mut io::stdout().lock(), text.as_ref())
}

/// What the reader of standard output does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// It takes at least as many bytes as a pipe takes at once (`PIPE_BUF`, pipe(7)).
    Ready,
    /// It takes nothing now: to write would wait for it.
    Busy,
    /// It has gone: what is written would be lost.
    Gone,
}

/// Returns what the reader of standard output does now.
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

/// A text as the whole of a terminal's screen, over what stood there, as far as it fits; where there is no terminal, as it
/// is, with a blank line behind it.
pub fn screen(text: &str) -> String {
    if !io::stdout().is_terminal() {
        return format!("{text}\n");
    }
    // The last line stays free for the cursor, and one says what is left out.
    let (all, room) = (text.lines().count(), lines_of_terminal().saturating_sub(2).max(1));
    let mut shown: String = text.split_inclusive('\n').take(room).collect();
    if all > room {
        // Into memory: it cannot fail.
        let _ = write!(shown, "… {} more", all - room);
    }
    // Home, and from there all cleared.
    format!("\x1b[H\x1b[J{shown}")
}

/// Lines of the terminal that standard output is; as many as there may be where it does not say.
#[expect(unsafe_code, reason = "ioctl(2) has no safe wrapper in std")]
fn lines_of_terminal() -> usize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one winsize (ioctl_tty(2)), which outlives the call.
    let done = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    if done == 0 && size.ws_row > 0 { size.ws_row.into() } else { usize::from(u16::MAX) }
}

/// A text of somebody else's as part of a line: a node, or a program, may be called anything.
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
        // A child that another test has just forked holds the reader until it runs its program.
        while reader_of(writer.as_raw_fd()) != Reader::Gone {
            std::thread::yield_now();
        }
        assert!(!write(&mut writer, b"text").unwrap());
        let mut full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert_eq!(write(&mut full, b"text").unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    }
}
