//! A child process with its log in a file. It ends with the test, however the test ends. If the
//! test has passed, it ends in order, so that its leak finder checks what is left.
#![expect(unsafe_code, reason = "kill(2) and prctl(2) have no safe wrapper in std")]

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::until::{until, until_so};

const _: () = assert!(cfg!(feature = "leak-finder"), "the agent looks for leaks");

/// A child process and its standard error.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its standard error in a file of its own below `directory`. The child
    /// gets none of the variables that kube-canary reads. It is killed when the thread
    /// that starts it ends.
    pub fn start(command: &mut Command, directory: &Path) -> Self {
        let log = unique(directory, "log");
        for (variable, _) in std::env::vars_os() {
            let name = variable.to_string_lossy();
            if name.starts_with("KUBE") || name == "NODE_NAME" || name == "POD_NAMESPACE" {
                command.env_remove(variable);
            }
        }
        command.stderr(File::create(&log).unwrap_or_else(|error| panic!("{}: {error}", log.display())));
        // SAFETY: prctl is async-signal-safe, and the closure touches no memory of the parent.
        unsafe {
            command.pre_exec(|| {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0 {
                    Ok(())
                } else {
                    Err(io::Error::last_os_error())
                }
            });
        }
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child, log }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard input and output, if the command has them as pipes.
    pub fn pipes(&mut self) -> (ChildStdin, ChildStdout) {
        (self.child.stdin.take().expect("a pipe"), self.child.stdout.take().expect("a pipe"))
    }

    /// Its standard input, if the command has it as a pipe.
    pub fn input(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("a pipe")
    }

    /// Returns everything written to standard error so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub fn signal(&self, signal: i32) {
        let id = libc::pid_t::try_from(self.id()).expect("a process id");
        // SAFETY: the child has not been waited for while we hold it, or is a zombie of ours: the
        // id is its own.
        let done = unsafe { libc::kill(id, signal) };
        assert_eq!(done, 0, "kill: {}", io::Error::last_os_error());
    }

    /// Waits until the process has ended.
    pub fn end(&mut self) -> ExitStatus {
        until("the process ends", || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            Ok(None) => Err("it runs".into()),
            Err(error) => Err(error.to_string()),
        })
    }

    /// Waits until its log contains `text`.
    pub fn wait_for_log(&mut self, text: &str) {
        until_so(&format!("{text:?} in the log"), || {
            // This is read before the log, because an ended process writes no more.
            let ended = self.has_ended();
            let log = self.log();
            assert!(log.contains(text) || !ended, "it ended without {text:?} in its log: {log}");
            log.contains(text)
        });
    }

    /// Returns a number from /proc/PID/status.
    pub fn status(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.id());
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}: {}", self.log()));
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| value.split_whitespace().next()?.parse().ok()).expect("a number in the status")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        if !failed && !self.has_ended() {
            self.signal(libc::SIGTERM);
            self.end();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let log = self.log();
        let _ = fs::remove_file(&self.log);
        if failed {
            eprintln!("---- log of process {}\n{log}----", self.id());
        } else {
            assert!(!log.contains("LEAK: "), "not given back: {log}");
        }
    }
}

/// Returns a path below `directory` that no other caller gets.
pub fn unique(directory: &Path, kind: &str) -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    directory.join(format!("{}-{}.{kind}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// Replaces `path` in one step, as a ConfigMap's update does.
pub fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}
