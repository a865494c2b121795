//! `--heap-profile`, in a build that has it.

use std::fs;
use std::path::Path;

use crate::agent::{Agent, PEERS, command, directory};
use crate::common::process::{Process, unique};
use crate::shim::PLAIN;

/// The live bytes in jemalloc's format: `heap_v2/RATE`, then `t*: OBJECTS: BYTES [...]` of all
/// threads together. Call stacks (`@ ADDRESS ...`) with figures of their own follow.
fn live_bytes(path: &Path) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let bytes = |line: &str| line.trim().strip_prefix("t*: ")?.split(' ').nth(1)?.parse::<u64>().ok();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("heap_v2/1"), "every allocation is noted");
    let total = lines.next().and_then(bytes).expect("the totals");
    let stacks: Vec<usize> = text.lines().filter_map(|l| l.strip_prefix("@ ")).map(|s| s.split(' ').count()).collect();
    assert!(stacks.iter().any(|&frames| frames >= 8), "call stacks: {stacks:?}");
    assert_eq!(text.lines().skip(2).filter_map(bytes).sum::<u64>(), total, "they add up");
    assert!(text.contains("\nMAPPED_LIBRARIES:\n"));
    total
}

#[test]
fn a_heap_profile_is_written_at_each_sigusr2_and_at_the_end() {
    let file = unique(directory(), "heap");
    let mut agent = Agent::of(command(PLAIN, &PEERS).arg("--heap-profile").arg(&file));
    agent.wait_for_answers(&["a", "b"]);
    let mut files: Vec<_> = (1..=2).map(|number| file.with_extension(format!("heap.{number}"))).collect();
    for numbered in &files {
        agent.process.signal(libc::SIGUSR2);
        agent.process.wait_for_log(&format!("heap profile in {}", numbered.display()));
        assert!(live_bytes(numbered) > 50_000);
    }
    agent.process.signal(libc::SIGTERM);
    assert_eq!(agent.process.end().code(), Some(0), "{}", agent.process.log());
    assert!(live_bytes(&file) > 50_000);
    files.push(file);
    for file in files {
        fs::remove_file(file).expect("it was read");
    }
}

#[test]
fn a_profile_that_cannot_be_written_is_said_and_ends_nothing() {
    let mut agent = Agent::of(command(PLAIN, &PEERS).args(["--heap-profile", "/nonexistent/heap"]));
    agent.process.signal(libc::SIGUSR2);
    agent.process.wait_for_log("cannot write the heap profile /nonexistent/heap.1");
    assert_eq!(agent.get("/healthz").status, 200);
}

#[test]
fn switched_off_in_the_environment_it_is_a_failure_that_says_so() {
    let mut command = command(PLAIN, &PEERS);
    command.args(["--heap-profile", "/nonexistent/heap"]).env("_RJEM_MALLOC_CONF", "prof:false");
    let mut process = Process::start(&mut command, directory());
    assert_eq!(process.end().code(), Some(1));
    let log = process.log();
    assert!(log.lines().count() == 1 && log.contains("--heap-profile") && log.contains("_RJEM_MALLOC_CONF"), "{log}");
}
