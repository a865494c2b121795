//! Standard output and standard error that are closed, full, or without a reader. No command
//! panics, and a lost result is an error.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use kube_canary::http::Server;
use kube_canary::sys::console::{self, OutputReader};
use serde_json::json;

use crate::agent::{Agent, PEERS, command, directory};
use crate::common::process::Process;
use crate::common::scrape::fetch;
use crate::common::until::until_so;
use crate::doctor::{NODES, mesh, none, serve};
use crate::fleet::closed_url;
use crate::shim::PLAIN;

/// An agent, a mesh without a fault, and the command lines whose results the tests lose.
struct Lines {
    agent: Agent,
    mesh: (Server, String),
}

impl Lines {
    fn new() -> Self {
        Self { agent: Agent::measured(), mesh: serve(&mesh(&NODES, none, &json!([]))) }
    }

    /// Each command line, and its exit code if standard output fails. It is 0 otherwise.
    fn all(&self) -> Vec<(Vec<String>, i32)> {
        let (http, id, url) = (self.agent.http, self.agent.process.id(), &self.mesh.1);
        let ping = "ping 127.0.0.1 -c2 -i 0.05 -W3";
        let lines = [
            ("--help".to_owned(), 1),
            ("--version".into(), 1),
            ("help doctor".into(), 1),
            ("run --help".into(), 1),
            ("version".into(), 1),
            ("version --json".into(), 1),
            (format!("footprint --pid {id}"), 1),
            (format!("footprint --pid {id} --json"), 1),
            (ping.into(), 1),
            (format!("{ping} -q"), 1),
            (format!("{ping} --json"), 1),
            (format!("fleet --url {http}"), 1),
            (format!("fleet --url {http} --json"), 1),
            (format!("fleet --url {http} --group-by allocator"), 1),
            // 1 is a fault of the mesh.
            (format!("doctor --url {url}"), 3),
            (format!("doctor --url {url} --json"), 3),
        ];
        let words = |line: String| line.split(' ').map(str::to_owned).collect();
        lines.into_iter().map(|(line, failure)| (words(line), failure)).collect()
    }
}

/// Runs the command in a shell with this redirection. Returns its exit code and standard error.
fn redirected(arguments: &[impl AsRef<OsStr>], redirection: &str) -> (Option<i32>, String) {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec \"$0\" \"$@\" {redirection}"), PLAIN]).args(arguments).stdout(Stdio::null());
    let mut process = Process::start(&mut command, directory());
    (process.end().code(), process.log())
}

/// A pipe whose reader is gone.
fn broken_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    // A child that another test has just forked holds the reader until it executes its program.
    until_so("the reader is gone", || console::reader_state(&writer, Duration::ZERO) == OutputReader::Gone);
    writer.into()
}

#[test]
fn an_output_without_a_reader_ends_every_command_quietly() {
    let lines = Lines::new();
    for (arguments, _) in lines.all() {
        let mut process = Process::start(Command::new(PLAIN).args(&arguments).stdout(broken_pipe()), directory());
        let (code, log) = (process.end().code(), process.log());
        // ping says by 1 that no target has answered before its output broke.
        let unanswered = arguments[0] == "ping" && code == Some(1);
        assert!((code == Some(0) || unanswered) && log.is_empty(), "{arguments:?}: {code:?} {log}");
    }
}

#[test]
fn a_watch_without_a_reader_ends() {
    let Lines { agent, mesh: (_server, mesh) } = Lines::new();
    let url = agent.http.to_string();
    for arguments in [&["fleet", "-w", "--interval", "1s", "--url", &url][..], &["doctor", "-w", "--url", &mesh]] {
        let mut command = Command::new(PLAIN);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(&mut command, directory());
        let (_input, stdout) = process.pipes();
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        assert!(!line.is_empty(), "{arguments:?}");
        assert_eq!((process.end().code(), process.log()), (Some(0), String::new()), "{arguments:?}");
    }
}

#[test]
fn a_full_output_is_a_failure_in_one_line() {
    let lines = Lines::new();
    for (arguments, failure) in lines.all() {
        let (code, log) = redirected(&arguments, ">/dev/full");
        assert_eq!((code, log.lines().count()), (Some(failure), 1), "{arguments:?}: {log}");
        assert!(log.contains("standard output") && log.contains("No space left"), "{arguments:?}: {log}");
    }
}

#[test]
fn a_closed_output_is_no_panic() {
    let lines = Lines::new();
    for (arguments, _) in lines.all() {
        // Rust's runtime and c-shim/main.c open /dev/null in its place.
        assert_eq!(redirected(&arguments, ">&-"), (Some(0), String::new()), "{arguments:?}");
    }
}

#[test]
fn a_complaint_that_cannot_be_written_changes_no_exit_code() {
    let closed = closed_url();
    for (arguments, code) in [
        (vec!["fly"], 2),
        (vec!["ping"], 2),
        (vec!["run", "--wings"], 2),
        (vec!["run", "--discovery", "static", "--peer", "a=127.0.0.2", "--listen", "192.0.2.1:1"], 1),
        (vec!["footprint", "--pid", "4194304"], 1),
        (vec!["fleet", "--url", &closed], 1),
        (vec!["fleet", "--url", &closed, "--group-by", "allocator"], 1),
        (vec!["doctor", "--url", &closed], 3),
        (vec!["doctor", "--rows", "/dev/null"], 3),
        (vec!["version"], 0),
    ] {
        for redirection in ["2>&-", "2>/dev/full", ">&- 2>&-"] {
            assert_eq!(redirected(&arguments, redirection).0, Some(code), "{arguments:?} {redirection}");
        }
        let mut command = Command::new(PLAIN);
        command.args(&arguments).env_clear().stdout(Stdio::null()).stderr(broken_pipe());
        assert_eq!(command.status().expect("it starts").code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn an_agent_whose_log_cannot_be_written_serves_on() {
    // An address of its own, because the log that would name the port is lost.
    let process = std::process::id();
    let address = &format!("127.9.{}.{}:19877", process / 250 % 250 + 1, process % 250 + 1);
    let mut command = command(PLAIN, &PEERS);
    let mut process = Process::start(command.args(["--listen", address, "--log-level", "debug"]), directory());
    process.wait_for_log("HTTP on");
    drop(process);
    for redirection in ["2>&-", "2>/dev/full"] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec \"$0\" \"$@\" {redirection}"), PLAIN, "run", "--discovery", "static"]);
        command.args(PEERS).args(["--probes", "icmp", "--listen", address, "--log-level", "debug"]);
        let mut process = Process::start(&mut command, directory());
        let address = address.parse().expect("an address");
        until_so("it is ready", || fetch(address, "/readyz", "").is_ok_and(|response| response.status == 200));
        assert!(!process.has_ended(), "{redirection}");
        process.signal(libc::SIGTERM);
        assert_eq!(process.end().code(), Some(0), "{redirection}");
    }
}

#[test]
fn every_line_of_a_log_has_its_time_in_text_or_json() {
    for format in ["text", "json"] {
        let mut command = command(PLAIN, &PEERS);
        let mut process = Process::start(command.args(["--log-format", format, "--log-level", "debug"]), directory());
        process.wait_for_log("HTTP on");
        process.signal(libc::SIGTERM);
        assert_eq!(process.end().code(), Some(0));
        let log = process.log();
        for line in log.lines() {
            let (time, level, target, message) = if format == "json" { object(line) } else { fields(line) };
            let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
            assert_eq!(shape, "0000-00-00T00:00:00.000Z", "{line}");
            assert!(["ERROR", "WARN", "INFO", "DEBUG"].contains(&level.to_uppercase().as_str()), "{line}");
            assert!(!message.is_empty() && !target.is_empty(), "{line}");
        }
        assert!(log.contains("kube_canary::agent"), "{log}");
    }
}

type Fields = (String, String, String, String);

fn object(line: &str) -> Fields {
    let object: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let field = |name: &str| object[name].as_str().unwrap_or_else(|| panic!("{name}: {line}")).to_owned();
    (field("time"), field("level"), field("target"), field("message"))
}

fn fields(line: &str) -> Fields {
    let (head, message) = line.strip_prefix('[').and_then(|line| line.split_once("] ")).expect("a head in brackets");
    let [time, level, target] = head.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
    (time.to_owned(), level.to_owned(), target.to_owned(), message.to_owned())
}
