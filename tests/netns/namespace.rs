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
/// The program under test, where every user can start it.
pub const PROGRAM: &str = "/run/kube-canary";
/// User and group of the manifest's pod.
const POD: libc::uid_t = 65_532;

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
    done(unsafe { libc::setns(namespace, libc::CLONE_NEWNET) })
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the group of a process with the rights of the manifest's pod: that of the manifest, or 0
/// if these tests run in a user namespace that has no other.
pub fn pod_group() -> libc::gid_t {
    let map = std::fs::read_to_string("/proc/self/gid_map").unwrap_or_default();
    let count = map.split_whitespace().nth(2).and_then(|count| count.parse::<u64>().ok());
    if count.is_some_and(|count| count > u64::from(POD)) { POD } else { 0 }
}

/// Makes the kernel start the command with the rights of the manifest's pod: its user and group, no
/// capability, and no way to gain one.
pub fn as_pod(command: &mut Command) {
    let pod = pod_group();
    let become_pod = move || {
        // What is not in the bounding set is not gained by exec (capabilities(7)). The kernel has
        // no capability at and after the first that it does not know. SAFETY: this and all below
        // are system calls with numbers, which are async-signal-safe.
        let has = |capability: &libc::c_ulong| unsafe { libc::prctl(libc::PR_CAPBSET_READ, *capability, 0, 0, 0) } >= 0;
        for capability in (0..).take_while(has) {
            // SAFETY: as above.
            done(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) })?;
        }
        if pod != 0 {
            // SAFETY: as above; no group is read.
            done(unsafe { libc::setgroups(0, std::ptr::null()) })?;
            // SAFETY: as above.
            done(unsafe { libc::setgid(pod) })?;
            // SAFETY: as above.
            done(unsafe { libc::setuid(pod) })?;
        }
        // SAFETY: as above.
        done(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })
    };
    // SAFETY: the closure is async-signal-safe, and touches no memory of the parent.
    unsafe { command.pre_exec(become_pod) };
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
