//! Mistakes on the command line: exit code 2, and one line that names the mistake and what would be
//! accepted.

use std::fs;
use std::process::Command;

use crate::agent::directory;
use crate::common::process::{Process, unique};
use crate::fleet::Run;
use crate::shim::PLAIN;

/// Runs the command and returns its only line.
fn refused(arguments: &[&str]) -> String {
    let mut process = Process::start(Command::new(PLAIN).args(arguments), directory());
    let status = process.end();
    let log = process.log();
    assert_eq!((status.code(), log.lines().count()), (Some(2), 1), "{arguments:?}: {log}");
    assert!(log.starts_with("kube-canary: ") && log.trim_end().ends_with(" --help)"), "{arguments:?}: {log}");
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
        (run(&["--peer", "a=127.0.0.2", "--check", "sctp:a:1"]), ["--check", "sctp:a:1", "udp:HOST:PORT"]),
        (run(&[]), ["--peer", "--peers-file", "--discovery"]),
        #[cfg(not(feature = "jemalloc-profiling"))]
        (
            run(&["--peer", "a=127.0.0.2", "--heap-profile", "/tmp/heap"]),
            ["--heap-profile", "build", "jemalloc-profiling"],
        ),
        (run(&["--peer", "a=127.0.0.2", "--log-format", "yaml"]), ["--log-format", "\"yaml\"", "text or json"]),
        (run(&["--intervall", "1s"]), ["--intervall", "did you mean --interval?", "kube-canary run --help"]),
        (vec!["fly"], ["fly", "run", "demo"]),
        (vec!["pign", "127.0.0.1"], ["pign", "did you mean ping?", "kube-canary --help"]),
        (vec!["help", "verison"], ["verison", "did you mean version?", "kube-canary help --help"]),
        (vec!["ping", "127.0.0.1", "-c0"], ["-c", "\"0\"", "1 to"]),
        (vec!["ping", "127.0.0.1", "-x"], ["-x", "--count", "kube-canary ping --help"]),
        (vec!["ping", "-6", "127.0.0.1"], ["TARGET", "127.0.0.1", "IPv6"]),
        (vec!["ping", "--count", "3"], ["TARGET", "at least one", "address"]),
        (vec!["ping", "127.0.0.300"], ["TARGET", "127.0.0.300", "DNS name"]),
        (vec!["ping", "127.0.0.1", "--count", "0"], ["--count", "\"0\"", "1 to"]),
        (vec!["ping", "https://user:key@h/?key=1"], ["TARGET", "\"https:…\"", "accepted: https://HOST"]),
        (vec!["ping", "tcp:h:1", "--timeout", "2s"], ["--timeout", "hosts", "TARGET"]),
        (vec!["demo", "--nodes", "1"], ["--nodes", "\"1\"", "2 to 50"]),
        (vec!["fleet", "--url", "10.0.0.1:9877/metrics"], ["--url", "\"10.0.0.1:9877/metrics\"", "without a path"]),
        (vec!["fleet", "--sort", "size"], ["--sort", "\"size\"", "rss"]),
        (vec!["doctor", "--url", "https://a"], ["--url", "\"https://a\"", "do not serve TLS"]),
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

/// Runs the command and returns its standard output. It succeeds and complains of nothing.
fn printed(arguments: &[&str]) -> String {
    let (code, text, log) = Run::of(arguments);
    assert_eq!((code, log.as_str()), (Some(0), ""), "{arguments:?}");
    text
}

#[test]
fn help_and_version_are_0_and_on_standard_output() {
    let version = format!("kube-canary {}\n", env!("CARGO_PKG_VERSION"));
    for arguments in [&["--version"][..], &["-V"], &["run", "-V"], &["ping", "--version"]] {
        assert_eq!(printed(arguments), version, "{arguments:?}");
    }
    assert_eq!(printed(&["help"]), printed(&["--help"]));
    assert_eq!(printed(&["help", "ping"]), printed(&["ping", "-h"]));
    assert!(printed(&["help", "ping"]).contains("  -c, --count <N>\n"));
}

#[test]
fn a_mistake_in_the_environment_names_the_variable() {
    let mut command = Command::new(PLAIN);
    command.args(["run", "--peer", "a=127.0.0.2"]).env("KUBE_CANARY_TIMEOUT", "soon");
    let mut process = Process::start(&mut command, directory());
    assert_eq!(process.end().code(), Some(2), "{}", process.log());
    assert!(process.log().contains("KUBE_CANARY_TIMEOUT \"soon\""), "{}", process.log());
}
