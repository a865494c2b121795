//! What requests the end of the process: SIGTERM and SIGINT, and for some commands the end of
//! standard input.

use std::io::{self, Stdin};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

/// How soon the end of standard input is noticed.
const INPUT_TIME: Duration = Duration::from_secs(1);

/// Both signals. They no longer end the process by themselves.
#[derive(Debug)]
pub struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// Starts to handle the signals. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for either of the signals. Cancel-safe.
    pub async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The signals, and the end of standard input if the user has asked for it (`--until-eof`). What is
/// read from it is discarded.
///
/// A command in a pod gets no signal when the kubectl that called it is gone, and the container
/// runtime continues to read its output. Only its standard input ends. The agent itself has only
/// [`Stop`], whose code stays resident.
#[derive(Debug)]
pub struct StopOrEof {
    stop: Stop,
    input: Option<Stdin>,
}

impl StopOrEof {
    /// Starts to handle the signals. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new(until_eof: bool) -> io::Result<Self> {
        Ok(Self { stop: Stop::new()?, input: until_eof.then(io::stdin) })
    }

    /// Waits for a signal or the end of standard input. Cancel-safe: each call looks at once.
    pub async fn asked(&mut self) {
        let input = self.input.as_ref();
        let ended = async {
            while !input.is_some_and(has_ended) {
                sleep(INPUT_TIME).await;
            }
        };
        tokio::select! {
            () = self.stop.asked() => {}
            () = ended => {}
        }
    }
}

/// Discards what an input has, up to a page, and returns whether it has ended. Never waits. Other
/// processes may share the input, so it is not made non-blocking.
fn has_ended(input: impl AsFd) -> bool {
    match poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(0) | Err(Errno::INTR) => false,
        // An error is that of a terminal that has hung up, or of a descriptor that is closed.
        _ => !matches!(read(&input, &mut [0; 4_096]), Ok(1..) | Err(Errno::AGAIN | Errno::INTR)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use super::*;

    #[test]
    fn an_input_ends_when_its_last_writer_is_gone() {
        let (reader, mut writer) = io::pipe().unwrap();
        assert!(!has_ended(&reader), "nothing is there yet");
        writer.write_all(&[b'x'; 5_000]).unwrap();
        assert!(!has_ended(&reader) && !has_ended(&reader) && !has_ended(&reader), "what is written is discarded");
        drop(writer);
        // A child process that another test has just forked holds the writer until it runs its
        // program.
        while !has_ended(&reader) {
            std::thread::yield_now();
        }
        assert!(has_ended(File::open("/dev/null").unwrap()));
    }
}
