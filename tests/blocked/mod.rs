//! A program that is blocked while it writes, so that a test can read its /proc files.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A running `kube-canary version` that cannot write its output. It is killed when this is dropped.
pub struct Blocked {
    child: Child,
    _reader: UnixStream,
}

impl Blocked {
    /// Starts `command version` and waits until it sleeps in its write. By then, its `main` has
    /// done everything before that.
    pub fn start(command: &mut Command) -> Self {
        let (reader, mut full) = UnixStream::pair().expect("a socket pair");
        full.set_nonblocking(true).expect("a socket");
        // One byte at a time, so that there is no room for another byte. The kernel's buffer bounds
        // the loop.
        let error = loop {
            if let Err(error) = full.write(&[0]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
        full.set_nonblocking(false).expect("a socket");
        let child = command.arg("version").stdout(OwnedFd::from(full)).spawn().expect("it starts");
        let mut blocked = Self { child, _reader: reader };
        let deadline = Instant::now() + Duration::from_mins(1);
        while !blocked.sleeps_in_write() {
            let ended = blocked.child.try_wait().expect("a child");
            assert!(ended.is_none() && Instant::now() < deadline, "{command:?} never wrote: {ended:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        blocked
    }

    /// The text of a file in its /proc directory.
    pub fn proc(&self, file: &str) -> String {
        let path = format!("/proc/{}/{file}", self.child.id());
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Asserts that huge pages are disabled, and that there was none before.
    pub fn has_no_huge_pages(&self) {
        let status = self.proc("status");
        assert!(status.contains("\nTHP_enabled:\t0\n"), "{status}");
        let rollup = self.proc("smaps_rollup");
        let huge = rollup.lines().find(|line| line.starts_with("AnonHugePages:")).expect("a line for huge pages");
        assert_eq!(huge.split_whitespace().nth(1), Some("0"), "{rollup}");
    }

    /// Whether its current system call, by /proc/PID/syscall, is a write to stdout: the first
    /// argument is the descriptor, 1.
    fn sleeps_in_write(&self) -> bool {
        let call = self.proc("syscall");
        let mut words = call.split_whitespace();
        let write = libc::SYS_write.to_string();
        words.next() == Some(write.as_str()) && words.next() == Some("0x1")
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // It may have ended by itself. This handle can kill nothing else.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
