//! Mistakes on the command line: exit code 2, and one line that names the mistake and what would be
//! accepted.

use std::fs;
use std::process::Command;

use crate::agent::directory;
use crate::common::process::{Process, unique};
use crate::shim::PLAIN;

/// Runs the command and returns its only line.
fn refused(arguments: &[&str]) -> String {
    let mut process = Process::start(Command::new(PLAIN).args(arguments), directory());
    let status = process.end();
    let log = process.log();
    assert_eq!((status.code(), log.lines().count()), (Some(2), 1), "{arguments:?}: {log}");
    assert!(log.starts_with("kube-canary: "), "{arguments:?}: {log}");
    log
}

#[test]
fn a_mistake_is_2_and_one_line_that_names_it_and_what_is_accepted() {
    let bad = unique(directory(), "peers");
    fs::write(&bad, "# two peers\na=127.0.0.2\n\nb=nowhere # not an address\n").expect("our directory is writable");
    let file = bad.to_str().expect("a path in UTF-8");
    let line = format!("{file}:4");
    let run = |rest: &[&'static str]| [&["run", "--discovery", "static"][..], rest].concat();
    for (arguments, parts) in [
        (run(&["--wings", "2"]), ["--wings", "--peer", "--interval"]),
        (run(&["--peer", "a=127.0.0.2", "--interval", "1"]), ["--interval", "\"1\"", "500ms"]),
        (run(&["--peer", "a=127.0.0.2", "--http-workers", "none"]), ["--http-workers", "none", "1 to 64"]),
        (run(&["--peer", "a=127.0.0.256"]), ["--peer", "a=127.0.0.256", "NAME=ADDRESS"]),
        (run(&["--peer", "a="]), ["--peer", "empty", "NAME=ADDRESS"]),
        (run(&["--peer", "a=127.0.0.2", "--peer", "a=127.0.0.3"]), ["--peer", "duplicate", "'a'"]),
        (run(&["--peers-file", "/nonexistent/peers"]), ["--peers-file", "/nonexistent/peers", "readable"]),
        (run(&[]), ["--peer", "--peers-file", "--discovery"]),
        #[cfg(not(feature = "jemalloc-profiling"))]
        (
            run(&["--peer", "a=127.0.0.2", "--heap-profile", "/tmp/heap"]),
            ["--heap-profile", "build", "jemalloc-profiling"],
        ),
        (vec!["fly"], ["fly", "run", "demo"]),
        (vec!["ping", "--count", "3"], ["TARGET", "at least one", "address"]),
        (vec!["ping", "127.0.0.300"], ["TARGET", "127.0.0.300", "DNS name"]),
        (vec!["ping", "127.0.0.1", "--count", "0"], ["--count", "\"0\"", "1 to"]),
        (vec!["demo", "--nodes", "1"], ["--nodes", "\"1\"", "2 to 50"]),
        (vec!["fleet", "--url", "10.0.0.1:9877"], ["--url", "\"10.0.0.1:9877\"", "http://HOST:PORT"]),
        (vec!["fleet", "--sort", "size"], ["--sort", "\"size\"", "rss"]),
        (vec!["doctor", "--url", "https://a"], ["--url", "\"https://a\"", "http://HOST:PORT"]),
        (vec!["doctor", "--rows", "a", "--url", "http://a"], ["--url", "--rows", "asks none"]),
        (vec!["doctor", "--rows", "-", "--watch"], ["--rows -", "--watch", "expected a file"]),
        (vec!["version", "--yaml"], ["--yaml", "--json", ""]),
    ] {
        let said = refused(&arguments);
        assert!(parts.iter().all(|part| said.contains(part)), "{arguments:?}: {said}");
    }
    let said = refused(&[&run(&["--peers-file"])[..], &[file]].concat());
    assert!([&line, "b=nowhere", "NAME=ADDRESS"].iter().all(|part| said.contains(*part)), "{said}");
}

#[test]
fn a_mistake_in_the_environment_names_the_variable() {
    let mut command = Command::new(PLAIN);
    command.args(["run", "--peer", "a=127.0.0.2"]).env("KUBE_CANARY_TIMEOUT", "soon");
    let mut process = Process::start(&mut command, directory());
    assert_eq!(process.end().code(), Some(2), "{}", process.log());
    assert!(process.log().contains("KUBE_CANARY_TIMEOUT \"soon\""), "{}", process.log());
}
