//! `kube-canary fleet`: its output for real agents, and for an address that is no agent.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::thread;

use serde_json::Value;

use crate::agent::{Agent, PEERS, directory};
use crate::common::process::{Process, unique};
use crate::common::until::{until, until_so};
use crate::http_support::Closed;
use crate::shim::PLAIN;

/// A command and its standard output.
pub struct Run {
    pub process: Process,
    output: PathBuf,
}

impl Run {
    pub fn start(arguments: &[&str]) -> Self {
        let output = unique(directory(), "out");
        let mut command = Command::new(PLAIN);
        command.args(arguments).stdout(File::create(&output).expect("our directory is writable"));
        Self { process: Process::start(&mut command, directory()), output }
    }

    /// Waits for the end of the command. Returns its exit code, standard output and standard error.
    pub fn of(arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut run = Self::start(arguments);
        let code = run.process.end().code();
        (code, run.text(), run.process.log())
    }

    pub fn text(&self) -> String {
        fs::read_to_string(&self.output).expect("our file")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.output);
    }
}

pub fn agent(node: &str) -> Agent {
    let flags = ["--interval", "50ms", "--timeout", "3s", "--judge", "never", "--node-name", node, "--zone", "z1"];
    let agent = Agent::start(&[&PEERS[..], &flags].concat());
    agent.wait_for_answers(&["a", "b"]);
    agent
}

pub fn url(agent: &Agent) -> String {
    format!("http://{}", agent.http)
}

/// A URL that refuses connections as long as the tests run.
pub fn closed_url() -> String {
    static CLOSED: LazyLock<Closed> = LazyLock::new(Closed::new);
    format!("http://127.0.0.1:{}", CLOSED.port)
}

/// The row of `node`.
fn row<'a>(rows: &'a Value, node: &str) -> &'a Value {
    let rows = rows.as_array().expect("an array");
    rows.iter().find(|row| row["node"] == node).unwrap_or_else(|| panic!("{node}: {rows:?}"))
}

/// Runs a command as in a pod of this agent, whose Service has no name.
pub fn in_pod(agent: &Agent, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = unique(directory(), "out");
    let mut command = Command::new(PLAIN);
    command.args(arguments).stdout(File::create(&output).expect("our directory is writable"));
    command.env("KUBERNETES_SERVICE_HOST", "10.96.0.1").env("POD_NAMESPACE", "nowhere");
    command.env("KUBE_CANARY_LISTEN", agent.http.to_string());
    let mut run = Run { process: Process::start(&mut command, directory()), output };
    let code = run.process.end().code();
    (code, run.text(), run.process.log())
}

#[test]
fn in_a_pod_the_agents_are_those_that_the_one_beside_lists() {
    let one = agent("one");
    let (_, text, log) = in_pod(&one, &["fleet", "--json", "--sort", "node"]);
    let rows: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{log}"));
    assert_eq!(rows.as_array().map(Vec::len), Some(3), "{text}");
    assert_eq!(row(&rows, "one")["url"].as_str(), Some(url(&one).as_str()), "{text}");
    for command in [&["doctor", "--collect", "--json"][..], &["doctor", "--json"]] {
        let (_, text, log) = in_pod(&one, command);
        let judged: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{log}"));
        assert!(judged["rows"].as_u64() >= Some(1), "{text}");
    }
}

#[test]
fn each_agent_is_an_object_with_the_values_of_its_metrics() {
    let (one, two) = (agent("one"), agent("two"));
    let (code, text, log) = Run::of(&["fleet", "--json", "--url", &url(&one), "--url", &url(&two)]);
    assert_eq!((code, log.as_str()), (Some(0), ""), "{text}");
    let rows: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(rows.as_array().map(Vec::len), Some(2), "{text}");
    let (row, metrics) = (row(&rows, "one"), one.metrics());
    assert_eq!((row["zone"].as_str(), row["url"].as_str()), (Some("z1"), Some(url(&one).as_str())));
    assert_eq!((row["cpus"].as_f64(), row["threads"].as_u64()), (metrics.value("cpus", &[]), Some(5)));
    let build = metrics.0.iter().find(|sample| sample.name == "kube_canary_build_info").expect("a build");
    for label in ["allocator", "linkage", "libc", "version"] {
        assert_eq!(row[label].as_str(), Some(build.label(label)), "{label}");
    }
    assert_eq!(row["narenas"].as_u64(), build.label("narenas").parse().ok());
    let bytes = |name: &str| row[name].as_u64().expect(name);
    assert!((500_000..1 << 30).contains(&bytes("rss_bytes")), "{row}");
    // Both are of one reading.
    assert!((100_000..bytes("rss_bytes")).contains(&bytes("private_dirty_bytes")), "{row}");
    assert_eq!((row["links"].as_u64(), row["loss"].as_f64()), (Some(2), Some(0.0)));
    assert!(["a", "b"].contains(&row["worst_peer"].as_str().expect("a peer")), "{row}");
    assert_eq!((row["worst_peer_network"].as_str(), row["worst_peer_protocol"].as_str()), (Some("pod"), Some("icmp")));
    let p99 = row["worst_peer_rtt_p99_seconds"].as_f64().expect("a time");
    assert!(p99 > 0.0 && row["cpu_seconds_per_probe"].as_f64().expect("a time") > 0.0, "{row}");
    // Both are compared as far as the row shows the value.
    let said = one.json("/api/v1/peers")["source"]["recent"]["send_lag_p99_seconds"].is_f64();
    assert_eq!((row["send_lag_p99_seconds"].is_f64(), row.get("error")), (said, None), "{row}");
}

#[test]
fn the_table_has_a_line_per_node_and_one_per_agent_without_an_answer() {
    let (one, two, closed) = (agent("one"), agent("two"), closed_url());
    let asked = ["fleet", "--sort", "node", "--url", &closed, "--url", &url(&two), "--url", &url(&one)];
    let (code, text, log) = Run::of(&asked);
    assert_eq!((code, log.as_str()), (Some(0), ""), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("NODE ") && lines[0].ends_with("  WORST PEER  ITS LOSS  ITS P99"), "{text}");
    assert!(lines[1].starts_with("one ") && lines[2].starts_with("two ") && lines[1].contains("  0.0%  "), "{text}");
    assert!(lines[4].starts_with("Every agent: version ") && lines[6] == "No answer:", "{text}");
    assert!(lines[7].starts_with(&format!("    {closed}: connecting: Connection refused")), "{text}");
    assert_eq!(lines.len(), 8, "{text}");
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{text}");
    // The wide table has a line for it, too.
    let (code, text, log) = Run::of(&[&asked[..], &["-o", "wide"]].concat());
    assert_eq!((code, log.as_str()), (Some(0), ""), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].starts_with("NODE ") && lines[0].ends_with(" WORST PEER"), "{text}");
    assert!(lines[1].starts_with("one ") && lines[1].contains(": loss 0.0%, p99 "), "{text}");
    assert!(lines[2].starts_with("two "), "{text}");
    assert!(
        lines[3].starts_with(&format!("{closed} ")) && lines[3].contains("connecting: Connection refused"),
        "{text}"
    );
}

#[test]
fn the_exit_code_is_1_if_no_agent_answers_even_if_another_program_does() {
    let strangers = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let stranger = format!("http://{}", strangers.local_addr().expect("an address"));
    let serving = thread::spawn(move || {
        let (mut stream, _) = strangers.accept().expect("a client");
        let mut head = [0; 1_024];
        let _ = stream.read(&mut head).expect("a request");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>").expect("it reads");
    });
    let closed = closed_url();
    let (code, text, log) = Run::of(&["fleet", "--json", "--url", &stranger, "--url", &closed]);
    serving.join().expect("it was asked");
    assert_eq!((code, log.as_str()), (Some(1), "kube-canary: none of 2 agents answers\n"));
    let rows: Value = serde_json::from_str(&text).expect("JSON");
    let error = |url: &str| {
        let row = rows.as_array().expect("an array").iter().find(|row| row["url"] == url).expect("a row");
        assert!(row["node"].is_null() && row["rss_bytes"].is_null(), "{row}");
        row["error"].as_str().expect("an error").to_owned()
    };
    assert!(error(&stranger).starts_with("/api/v1/peers is not what an agent says: "), "{text}");
    assert!(error(&closed).starts_with("connecting: "), "{text}");
}

#[test]
fn builds_are_compared_in_a_table_with_a_verdict() {
    let (one, two) = (agent("one"), agent("two"));
    let (code, text, log) = Run::of(&["fleet", "--group-by", "allocator", "--url", &url(&one), "--url", &url(&two)]);
    assert_eq!((code, log.as_str()), (Some(0), ""), "{text}");
    let groups: Vec<&str> = text.lines().skip(1).take_while(|line| !line.is_empty()).collect();
    assert_eq!(groups.len(), 1, "{text}");
    let linkage = if cfg!(feature = "c-shim") { "  c-shim " } else { "  rust " };
    assert!(groups[0].contains(linkage) && groups[0].contains(".."), "{text}");
    assert!(text.contains("with nothing to compare it to."), "{text}");
    let json = ["fleet", "--group-by", "allocator", "--json", "--url", &url(&one), "--url", &url(&two)];
    let groups: Value = serde_json::from_str(&Run::of(&json).1).expect("JSON");
    assert_eq!((groups[0]["nodes"].as_u64(), groups[0]["smallest"].as_bool()), (Some(2), Some(false)), "{groups}");
    assert!(groups[0]["rss_bytes"]["median"].is_u64() && groups[0]["cpus"].is_u64(), "{groups}");
}

#[test]
fn a_watch_repeats_until_a_signal_arrives() {
    let one = agent("one");
    let mut watched = Run::start(&["fleet", "--watch", "--interval", "1s", "--url", &url(&one)]);
    until_so("a third table", || watched.text().matches("WORST PEER").count() >= 3);
    watched.process.signal(libc::SIGINT);
    assert_eq!(watched.process.end().code(), Some(0), "{}", watched.process.log());
    assert!(!watched.text().contains('\x1b'), "no terminal is there to draw on");
    // Without any agent the watch goes on, and with JSON every poll is a line.
    let mut watched = Run::start(&["fleet", "--watch", "--interval", "1s", "--json", "--url", &closed_url()]);
    let looks: Vec<Value> = until("two looks", || {
        let text = watched.text();
        let looks = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect::<Vec<_>>();
        if looks.len() >= 2 { Ok(looks) } else { Err(text) }
    });
    assert!(looks.iter().all(|look| look[0]["error"].is_string()), "{looks:?}");
    watched.process.signal(libc::SIGTERM);
    assert_eq!(watched.process.end().code(), Some(0), "{}", watched.process.log());
}
