//! `kube-canary ping`: its output for each target, and its exit code.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::agent::directory;
use crate::common::process::{Process, unique};
use crate::common::until::{until, until_so};
use crate::fleet::{agent, in_pod};
use crate::shim::PLAIN;

/// The broadcast address of loopback. The kernel refuses to send there (EACCES),
/// and no packet leaves.
const REFUSED: &str = "127.255.255.255";

struct Ping {
    process: Process,
    output: PathBuf,
}

impl Ping {
    fn start(arguments: &[&str]) -> Self {
        let output = unique(directory(), "out");
        let mut command = Command::new(PLAIN);
        command.arg("ping").args(arguments).stdout(File::create(&output).expect("our directory is writable"));
        Self { process: Process::start(&mut command, directory()), output }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.output).expect("our file")
    }

    fn objects(&self) -> Vec<Value> {
        let object = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.text().lines().map(object).collect()
    }

    /// Waits for the end of the command and returns its exit code. Its output has
    /// nothing but its results.
    fn end(&mut self) -> Option<i32> {
        let code = self.process.end().code();
        assert_eq!(self.process.log(), "");
        code
    }
}

impl Drop for Ping {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.output);
    }
}

/// The objects of `target`: its probes and its summary.
fn of<'a>(objects: &'a [Value], target: &str) -> (Vec<&'a Value>, &'a Value) {
    let mut lines: Vec<&Value> = objects.iter().filter(|object| object["target"] == target).collect();
    let summary = lines.pop().expect("a summary");
    assert!(lines.iter().all(|line| line["sent"].is_null()) && summary["sent"].is_u64(), "{summary}");
    (lines, summary)
}

fn number(object: &Value, field: &str) -> u64 {
    object[field].as_u64().unwrap_or_else(|| panic!("{field}: {object}"))
}

fn seconds(object: &Value, field: &str) -> f64 {
    object[field].as_f64().unwrap_or_else(|| panic!("{field}: {object}"))
}

#[test]
fn a_node_has_the_address_that_the_agent_beside_the_command_lists() {
    let agent = agent("one");
    // The command waits for its agent's list no longer than a second.
    let probes: &[&str] = &["ping", "--json", "--count", "1", "b", "one"];
    let attempts: &[&str] = &["ping", "--json", "--count", "1", "b", "one", "--tcp", "1"];
    let found = |arguments: &[&str]| {
        let (_, text, log) = in_pod(&agent, arguments);
        let lines =
            text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {text}{log}")));
        let addresses: Vec<String> =
            lines.filter_map(|object: Value| Some(object["address"].as_str()?.to_owned())).collect();
        if addresses == ["127.0.0.3", &agent.http.ip().to_string()] { Ok(()) } else { Err(format!("{text}{log}")) }
    };
    for arguments in [probes, attempts] {
        until("the addresses of the agent's list", || found(arguments));
    }
}

#[test]
fn every_probe_has_its_line_and_the_summary_adds_them_up() {
    let mut ping =
        Ping::start(&["127.0.0.1", "127.0.0.2", "--count", "20", "--interval", "50ms", "--timeout", "3s", "--json"]);
    assert_eq!(ping.end(), Some(0));
    let objects = ping.objects();
    for target in ["127.0.0.1", "127.0.0.2"] {
        let (replies, summary) = of(&objects, target);
        let sequences: Vec<u64> = replies.iter().map(|reply| number(reply, "sequence")).collect();
        assert_eq!(sequences, (0..20).collect::<Vec<_>>());
        let mut rtts: Vec<f64> = replies.iter().map(|reply| seconds(reply, "rtt_seconds")).collect();
        rtts.sort_unstable_by(f64::total_cmp);
        let kernel = replies.iter().filter(|reply| reply["stamp"] == "kernel").count() as u64;
        assert!(replies.iter().all(|reply| reply["stamp"] == "kernel" || reply["stamp"] == "user"), "{replies:?}");
        assert_eq!(number(summary, "received_with_kernel_stamps"), kernel);
        for (field, expected) in [("sent", 20), ("received", 20), ("lost", 0), ("in_flight", 0), ("late", 0)] {
            assert_eq!(number(summary, field), expected, "{field}: {summary}");
        }
        assert!(["duplicate", "reordered", "corrupt", "send_errors"].iter().all(|field| number(summary, field) == 0));
        let shown = ["min", "p50", "p99", "max"].map(|name| seconds(summary, &format!("rtt_{name}_seconds")));
        let expected = [rtts[0], rtts[9], rtts[19], rtts[19]];
        assert!(shown.iter().zip(expected).all(|(shown, expected)| shown.total_cmp(&expected).is_eq()), "{summary}");
        assert!(shown[0] > 0.0);
    }
}

#[test]
fn a_probe_that_the_kernel_refuses_is_an_error_with_a_reason_and_no_loss() {
    let mut ping =
        Ping::start(&["127.0.0.1", REFUSED, "--count", "3", "--interval", "50ms", "--timeout", "3s", "--json"]);
    assert_eq!(ping.end(), Some(1), "one did not answer");
    let objects = ping.objects();
    let (errors, summary) = of(&objects, REFUSED);
    for (sequence, error) in errors.iter().enumerate() {
        assert_eq!((&error["event"], &error["reason"]), (&"send_error".into(), &"prohibited".into()));
        assert_eq!(number(error, "sequence"), sequence as u64);
    }
    assert_eq!(errors.len(), 3);
    assert_eq!(["sent", "lost", "send_errors"].map(|field| number(summary, field)), [0, 0, 3]);
    assert_eq!(summary["rtt_p50_seconds"], Value::Null);
    assert_eq!(number(of(&objects, "127.0.0.1").1, "received"), 3);
}

#[test]
fn without_a_count_a_signal_ends_it_with_its_summary() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let mut ping = Ping::start(&["127.0.0.1", "--interval", "10ms", "--json"]);
        until_so("some replies", || ping.text().lines().count() > 5);
        ping.process.signal(signal);
        assert_eq!(ping.end(), Some(0));
        let objects = ping.objects();
        let (replies, summary) = of(&objects, "127.0.0.1");
        assert_eq!(number(summary, "received"), replies.len() as u64);
        let sum = ["received", "lost", "in_flight"].map(|field| number(summary, field)).iter().sum::<u64>();
        assert_eq!(number(summary, "sent"), sum);
    }
}

#[test]
fn the_end_of_standard_input_ends_it_with_its_summary_if_that_is_asked_for() {
    let output = unique(directory(), "out");
    let mut command = Command::new(PLAIN);
    command.args(["ping", "127.0.0.1", "--interval", "10ms", "--json", "--until-eof"]);
    command.stdin(Stdio::piped()).stdout(File::create(&output).expect("our directory is writable"));
    let mut process = Process::start(&mut command, directory());
    let mut input = process.input();
    let mut ping = Ping { process, output };
    input.write_all(b"this is discarded\n").expect("a reader");
    until_so("some replies", || ping.text().lines().count() > 5);
    assert!(!ping.process.has_ended());
    drop(input);
    assert_eq!(ping.end(), Some(0));
    let objects = ping.objects();
    let (replies, summary) = of(&objects, "127.0.0.1");
    assert_eq!(number(summary, "received"), replies.len() as u64);
}

#[test]
fn people_get_a_line_per_probe_and_a_table() {
    let mut ping = Ping::start(&["127.0.0.1", REFUSED, "--count", "2", "--interval", "10ms"]);
    assert_eq!(ping.end(), Some(1));
    let text = ping.text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("2 targets, 56 bytes of payload, a probe every 10ms"), "{text}");
    for sequence in 0..2 {
        let reply = format!("127.0.0.1  seq {sequence}  ");
        assert!(lines.iter().any(|line| line.starts_with(&reply) && line.ends_with(" stamps)")), "{text}");
        assert!(
            lines.contains(&format!("{REFUSED}  seq {sequence}  not sent: prohibited, as by a route").as_str()),
            "{text}"
        );
    }
    let [.., heads, answered, refused] = &lines[..] else { panic!("{text}") };
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(heads)[..6], ["TARGET", "SENT", "RECEIVED", "LOST", "LOSS", "ERRORS"]);
    assert_eq!(words(answered)[..6], ["127.0.0.1", "2", "2", "0", "0.0%", "0"]);
    assert_eq!(words(refused), [REFUSED, "0", "0", "0", "-", "2", "-", "-", "-", "-", "-"]);
}

#[test]
fn the_letters_of_ping_are_known_and_localhost_is_loopback() {
    let mut ping = Ping::start(&["-q", "-4", "-c2", "-i", "0.05", "-W3", "-s", "100", "localhost", "A.Localhost."]);
    assert_eq!(ping.end(), Some(0));
    let text = ping.text();
    let lines: Vec<&str> = text.lines().collect();
    // Quiet leaves the heading and the table.
    assert_eq!(lines[0], "2 targets, 100 bytes of payload, a probe every 50ms, lost after 3s", "{text}");
    assert_eq!(lines[1..4], ["localhost is 127.0.0.1", "A.Localhost. is 127.0.0.1", ""], "{text}");
    assert!(lines.len() == 7 && lines[4].starts_with("TARGET") && lines[5].starts_with("localhost"), "{text}");
    let mut ping = Ping::start(&["--json", "--quiet", "-c1", "localhost"]);
    assert_eq!(ping.end(), Some(0));
    let objects = ping.objects();
    assert_eq!((objects.len(), &objects[0]["address"], number(&objects[0], "received")), (1, &"127.0.0.1".into(), 1));
}

#[test]
fn checks_have_a_line_per_attempt_and_a_summary() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let address = listener.local_addr().expect("its address");
    // No connection to a broadcast address is possible (ENETUNREACH).
    let [good, bad] = [format!("tcp:{address}"), format!("bad=tcp:{REFUSED}:1")];
    let mut ping = Ping::start(&[&good, &bad, "--count", "3", "--interval", "10ms", "--json"]);
    assert_eq!(ping.end(), Some(1), "one did not answer");
    let objects = ping.objects();
    for (target, failure) in [(&good, Value::Null), (&bad, "no_route".into())] {
        let mut lines: Vec<&Value> = objects.iter().filter(|object| object["target"] == **target).collect();
        let summary = lines.pop().expect("a summary");
        let (tried, good) = (number(summary, "tried"), number(summary, "good"));
        let expected = if failure.is_null() { 3 } else { 0 };
        assert_eq!((tried, good, number(summary, "failed")), (3, expected, 3 - expected), "{summary}");
        assert_eq!(summary["p50_seconds"].is_f64(), failure.is_null(), "{summary}");
        assert_eq!(lines.iter().map(|line| number(line, "attempt")).collect::<Vec<_>>(), [0, 1, 2]);
        for line in lines {
            assert_eq!(line["failure"], failure, "{line}");
            assert_eq!(
                (&line["seconds"], &line["certificate_not_after_unix_seconds"]),
                (&line["phases"]["connect"], &Value::Null)
            );
            assert_eq!(line["seconds"].is_f64(), failure.is_null(), "{line}");
        }
    }
    let mut ping = Ping::start(&[&good, "-c2", "-i", "0.01"]);
    assert_eq!(ping.end(), Some(0));
    let text = ping.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines.len()), ("1 target, an attempt every 10ms", 6), "{text}");
    let attempt = format!("tcp {address}: ");
    assert!(lines[1..3].iter().all(|line| line.starts_with(&attempt) && line.ends_with('s')), "{text}");
    assert!(lines[4].starts_with("TARGET ") && lines[5].starts_with(&attempt[..attempt.len() - 2]), "{text}");
}

#[test]
fn a_reader_that_leaves_ends_it_quietly() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = Command::new(PLAIN);
    command.args(["ping", "127.0.0.1", "--interval", "10ms", "--json"]).stdout(Stdio::from(writer));
    let mut process = Process::start(&mut command, directory());
    drop(command);
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).expect("a line");
    assert!(line.contains("rtt_seconds"), "{line}");
    assert_eq!((process.end().code(), process.log()), (Some(0), String::new()));
}

#[test]
fn an_unknown_name_is_reported_and_the_exit_code_is_1() {
    // RFC 6761: no server knows this name. Where there is no server, the output says that.
    let mut ping = Ping::start(&["canary.invalid."]);
    assert_eq!(ping.process.end().code(), Some(1));
    let log = ping.process.log();
    assert!(log.starts_with("kube-canary: cannot resolve the target \"canary.invalid.\"") && log.lines().count() == 1);
}
