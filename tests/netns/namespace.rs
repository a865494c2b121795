//! One network namespace, made by `ip netns` and removed when it is dropped.
#![expect(unsafe_code, reason = "setns(2) and prctl(2) have no safe wrapper in std")]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;

/// The directory of the tests' own files: the private `/run`.
pub const DIRECTORY: &str = "/run";

/// A namespace, which stays open as long as this lives.
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    pub fn new(name: String) -> Self {
        run(tool("ip").args(["netns", "add", &name]), "");
        let path = format!("{DIRECTORY}/netns/{name}");
        let file = File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        Self { name, file }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a command that runs inside the namespace.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = tool(program);
        let file = self.file.as_raw_fd();
        // SAFETY: setns is async-signal-safe, and the descriptor is open in the child, which has a
        // copy of it until exec.
        unsafe { command.pre_exec(move || enter(file)) };
        command
    }

    /// Runs `work` on a thread inside the namespace.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let file = self.file.as_raw_fd();
        thread::scope(|scope| {
            let inside = scope.spawn(move || {
                enter(file).expect("a namespace of ours can be entered");
                work()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs lines of `ip` inside the namespace.
    pub fn ip(&self, lines: &str) {
        run(self.command("ip").args(["-batch", "-"]), lines);
    }

    /// Sets one or more numbers below /proc/sys.
    pub fn sysctl(&self, path: &str, value: &str) {
        let path = format!("/proc/sys/{path}");
        self.within(|| std::fs::write(&path, value)).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let removed = tool("ip").args(["netns", "delete", &self.name]).status();
        if !removed.is_ok_and(|status| status.success()) {
            eprintln!("the network namespace {} could not be removed", self.name);
        }
    }
}

fn enter(namespace: RawFd) -> io::Result<()> {
    // SAFETY: takes two numbers; it concerns the calling thread alone.
    if unsafe { libc::setns(namespace, libc::CLONE_NEWNET) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the kernel start the command without `CAP_NET_RAW`, whatever user runs it.
pub fn without_raw_sockets(command: &mut Command) {
    const CAP_NET_RAW: libc::c_ulong = 13;
    // SAFETY: prctl is async-signal-safe, and the closure touches no memory of the parent. What is
    // not in the bounding set is not gained by exec (capabilities(7)).
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_CAPBSET_DROP, CAP_NET_RAW, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
}

/// A system program. Those that the tests need are in /usr/sbin, which is not in every PATH.
pub fn tool(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()));
    command
}

/// Runs `command` with `input` and returns its output. Any failure ends the test.
pub fn run(command: &mut Command, input: &str) -> String {
    let package = match command.get_program().to_str() {
        Some("nft") => "nftables",
        Some("promtool") => "prometheus",
        _ => "iproute2",
    };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => panic!("{} is missing: install {package}", command.get_program().display()),
        _ => panic!("{command:?}: {error}"),
    });
    // If it ends before it has read everything, its exit status shows the reason.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} of {package}, given\n{input}\nsays: {said}");
    String::from_utf8(output.stdout).expect("tools print text")
}
