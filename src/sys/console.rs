//! Standard output and standard error, whose readers may close them at any time.

use std::fmt::{Display, Write as _};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Bytes that a pipe accepts without blocking if it is ready for writing: `PIPE_BUF` (pipe(7)).
pub const WRITE_BYTES: usize = 4_096;
/// The delay until output that a busy reader did not accept is written again.
pub const WRITE_RETRY: Duration = Duration::from_millis(10);

/// Writes all of `text`. Returns whether the output still has a reader. A closed output is no
/// error. `print!` is not used because it panics in that case.
///
/// # Errors
/// Any other error of the system, such as a full disk.
pub fn print(text: impl AsRef<[u8]>) -> io::Result<bool> {
    write(&mut io::stdout().lock(), text.as_ref())
}

/// Does the same, in pieces that a pipe accepts at once, and waits in between. So a reader that
/// reads nothing does not keep a signal from ending the command.
///
/// # Errors
/// As [`print`].
pub async fn print_in_pieces(text: impl AsRef<[u8]>) -> io::Result<bool> {
    let mut rest = text.as_ref();
    while !rest.is_empty() {
        match reader() {
            OutputReader::Gone => return Ok(false),
            OutputReader::Busy => tokio::time::sleep(WRITE_RETRY).await,
            OutputReader::Ready => {
                let (piece, further) = rest.split_at(rest.len().min(WRITE_BYTES));
                if !print(piece)? {
                    return Ok(false);
                }
                rest = further;
            }
        }
    }
    Ok(true)
}

/// Writes a line to standard error, behind the name of the program, in [`printable`] form. A line
/// that cannot be written is lost: there is no other place to say so. `eprintln!` is not used
/// because it panics in that case.
pub fn print_error(line: impl Display) {
    let line = printable(&line.to_string());
    let _ = io::stderr().write_all(format!("kube-canary: {line}\n").as_bytes());
}

/// The state of the reader of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputReader {
    /// The reader accepts at least [`WRITE_BYTES`].
    Ready,
    /// The reader accepts nothing now. A write would block.
    Busy,
    /// The reader has closed the output. Written bytes would be lost.
    Gone,
}

/// Returns the state of the reader of standard output.
pub fn reader() -> OutputReader {
    reader_state(io::stdout(), Duration::ZERO)
}

/// Returns the state of the reader of an output. Waits for this time, as long as the reader is
/// busy. A signal may end the wait.
pub fn reader_state(output: impl AsFd, time: Duration) -> OutputReader {
    let time = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
    let mut asked = [PollFd::new(&output, PollFlags::OUT)];
    match poll(&mut asked, Some(&time)) {
        Ok(0) | Err(Errno::INTR) => OutputReader::Busy,
        Ok(_) if asked[0].revents().contains(PollFlags::ERR) => OutputReader::Gone,
        // If the descriptor is broken, the write fails and says why.
        _ => OutputReader::Ready,
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
fn lines_of_terminal() -> usize {
    let lines = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_row);
    if lines > 0 { lines.into() } else { usize::from(u16::MAX) }
}

/// Makes an untrusted text safe for a line of output: characters that act on the terminal, or
/// that are hidden, become `?`. The names of nodes and programs may contain any characters.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_unprintable(c) { '?' } else { c }).collect()
}

/// Whether a character controls the terminal (C0, DEL and C1), ends a line, changes the direction
/// of the text, or has no width, so that a text looks like another one (Unicode TR 36 and 39).
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Formats a value as one line of JSON, with its newline. Characters that are not [`printable`] are
/// escaped, so a terminal does not obey them and a program reads them unchanged.
pub fn json_line(value: &impl serde::Serialize) -> String {
    // The values are plain figures and texts, so this does not fail.
    escaped(serde_json::to_string(value).unwrap_or_else(|error| error.to_string())) + "\n"
}

/// Returns a JSON text in which what is not printable is escaped. It is within strings, because a
/// text without white space has such characters nowhere else.
pub fn escaped(json: String) -> String {
    if !json.contains(is_unprintable) {
        return json;
    }
    let mut text = String::with_capacity(2 * json.len());
    for c in json.chars() {
        if is_unprintable(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to memory cannot fail.
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(c);
        }
    }
    text
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
    use super::*;

    /// Characters that no line of output may have, and some that it may.
    const HIDDEN: &str = "\n\x1b\x7f\u{85}\u{9b}\u{ad}\u{200b}\u{200f}\u{202e}\u{2028}\u{2066}\u{feff}\u{e0041}";
    const SHOWN: &str = "n-1.example µé漢 \u{fffd}<\"\\";

    #[test]
    fn what_acts_on_a_terminal_or_is_hidden_is_replaced_and_the_rest_stays() {
        assert_eq!(printable(HIDDEN), "?".repeat(HIDDEN.chars().count()));
        assert_eq!(printable(SHOWN), SHOWN);
        assert_eq!(printable(&String::from_utf8_lossy(b"a\xff\x9b[31m\x1b")), "a\u{fffd}\u{fffd}[31m?");
    }

    #[test]
    fn json_escapes_what_is_not_printable_and_is_read_unchanged() {
        let text = format!("{HIDDEN}{SHOWN}");
        let line = json_line(&[&text]);
        assert_eq!(printable(line.trim_end()), line.trim_end());
        assert_eq!(serde_json::from_str::<[String; 1]>(&line).unwrap(), [text]);
    }

    #[test]
    fn a_reader_that_is_gone_is_no_error_and_a_full_disk_is_one() {
        let (reader, mut writer) = io::pipe().unwrap();
        assert_eq!(reader_state(&writer, Duration::ZERO), OutputReader::Ready);
        assert!(write(&mut writer, b"text").unwrap());
        while reader_state(&writer, Duration::ZERO) == OutputReader::Ready {
            assert!(write(&mut writer, &[b' '; 4_096]).unwrap());
        }
        assert_eq!(reader_state(&writer, Duration::ZERO), OutputReader::Busy);
        drop(reader);
        // A child that another test has just forked holds the reader open until it executes its
        // program.
        while reader_state(&writer, Duration::ZERO) != OutputReader::Gone {
            std::thread::yield_now();
        }
        assert!(!write(&mut writer, b"text").unwrap());
        let mut full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert_eq!(write(&mut full, b"text").unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    }
}
