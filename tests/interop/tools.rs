//! The programs that `tests/interop/tools/build` makes.

use std::path::PathBuf;
use std::process::{Command, Output};

/// Returns a command that runs one of them.
///
/// # Panics
/// They are not built.
pub fn command(name: &str) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/tools/build");
    let output = Command::new(script).arg("paths").output().unwrap_or_else(|error| panic!("{script}: {error}"));
    let paths = text(&output);
    let path = paths.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).expect("a program");
    Command::new(PathBuf::from(path))
}

/// Returns what a program has printed.
///
/// # Panics
/// It has failed.
pub fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
}
