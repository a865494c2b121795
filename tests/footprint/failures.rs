//! Requests that cannot be fulfilled: one line of output, and the right exit code.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use crate::common::process::Process;
use crate::common::until::until;
use crate::{BINARY, Taker, copy, directory, footprint};

fn refused(output: &Output, code: i32, parts: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0), "{said}");
    assert!(said.lines().count() == 1 && said.starts_with("kube-canary: "), "{said}");
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
}

#[test]
fn a_bad_flag_is_2_and_what_is_not_there_1() {
    refused(&footprint(&["--pid", "0"]), 2, &["--pid", "\"0\"", "1 to"]);
    refused(&footprint(&["--pid", "1", "--filter", "x"]), 2, &["--filter", "--pid"]);
    refused(&footprint(&["--filter", "no program is called so"]), 1, &["--filter", "no program is called so"]);
}

#[test]
fn a_process_that_has_ended_is_absent_and_a_zombie_has_no_memory() {
    let mut child = Command::new("true").stdin(Stdio::null()).spawn().expect("true");
    let id = child.id();
    until("it has ended", || {
        let state = fs::read_to_string(format!("/proc/{id}/stat")).map_err(|error| error.to_string())?;
        if state.contains(") Z ") { Ok(()) } else { Err(state) }
    });
    let id = id.to_string();
    refused(&footprint(&["--pid", &id]), 1, &[&id, "no memory"]);
    child.wait().expect("it has ended");
    // Ids are assigned in ascending order, so this one is not in use again yet.
    refused(&footprint(&["--pid", &id]), 1, &[&id, "not there"]);
}

#[test]
fn a_protected_process_is_a_line_that_names_the_needed_right() {
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let root = status.lines().any(|line| line.starts_with("Uid:\t0\t"));
    if root {
        let taker = Taker::start(false);
        // It is run by its descriptor, because another user may have no access to its directory.
        let file = File::open(BINARY).expect("the binary");
        let mut command = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let id = taker.process.id().to_string();
        let output =
            command.uid(65_534).gid(65_534).args(["footprint", "--pid", &id]).output().expect("the binary runs");
        refused(&output, 1, &[&id, "permission denied", "root"]);
        return;
    }
    // The kernel protects a process if its user may not read its program.
    let copy = copy("unreadable");
    fs::set_permissions(&copy, Permissions::from_mode(0o111)).expect("it is ours");
    let mut unreadable = Command::new(&copy);
    unreadable.arg("/dev/null").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = Process::start(&mut unreadable, directory());
    let (_input, mut output) = process.pipes();
    output.read_exact(&mut [0]).expect("it runs");
    let said = footprint(&["--pid", &process.id().to_string()]);
    refused(&said, 1, &[&process.id().to_string(), "permission denied", "root"]);
    fs::remove_file(&copy).expect("it is ours");
}
