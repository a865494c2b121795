//! Runs other programs. It returns their output, or an error with the command line and stderr.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};

/// Runs the command to its end and returns stdout.
///
/// # Errors
/// If the command cannot be started or does not exit with 0: its command line and stderr.
pub fn stdout(command: &mut Command) -> Result<String, String> {
    let output = output(command, "")?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
}

/// Runs the command to its end with `input` as its stdin. The caller judges the exit code.
///
/// # Errors
/// If the command cannot be started, fed or waited for.
pub fn output(command: &mut Command, input: &str) -> Result<Output, String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{command:?}: cannot start: {error}"))?;
    // All input is written before any output is read: our input is one manifest, well under a
    // pipe's 64 KiB.
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    stdin.write_all(input.as_bytes()).map_err(|error| format!("{command:?}: its stdin: {error}"))?;
    drop(stdin);
    child.wait_with_output().map_err(|error| format!("{command:?}: {error}"))
}

/// A program and all its children, as one process group. They are killed when this is dropped.
pub struct Background(Child);

impl Background {
    /// Starts the program and discards its output.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self, String> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        command.spawn().map(Self).map_err(|error| format!("{command:?}: cannot start: {error}"))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        if let Err(error) = stdout(Command::new("kill").args(["--", &group])) {
            eprintln!("{error}");
        }
        let _ = self.0.wait();
    }
}
