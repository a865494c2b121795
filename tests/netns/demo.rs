//! `kube-canary demo --fault`, without privilege: its verdict, how it is reached, and how it ends.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::common::children::{Seen, children};
use crate::common::process::{Process, unique};
use crate::common::scrape::fetch;
use crate::common::until::{until, until_so, until_within};
use crate::mesh::Node;
use crate::namespace::{DIRECTORY, Namespace};

const PROGRAM: &str = env!("CARGO_BIN_EXE_kube-canary");
/// What a user without privilege may do. The test runs as root, which needs this one capability to
/// become the root of a user namespace of its own (user_namespaces(7)).
const UNPRIVILEGED: [&str; 3] = ["setpriv", "--bounding-set", "-all,+setfcap"];
/// Losses are found at random, so a verdict may need several windows of a minute.
const VERDICT: Duration = Duration::from_mins(5);

struct Demo {
    process: Process,
    node: Node,
    output: PathBuf,
}

impl Demo {
    /// Starts a demo in a network namespace that permits no ICMP socket.
    fn start(launcher: &[&str], arguments: &[&str]) -> Self {
        let node = Node::alone("outside");
        node.namespace.ip("link set lo up\n");
        let output = unique(Path::new(DIRECTORY), "out");
        let mut command = node.namespace.command(launcher[0]);
        command.args(&launcher[1..]).arg(PROGRAM).args(["demo", "--interval", "100ms"]).args(arguments);
        command.stdout(File::create(&output).expect("our own directory is writable"));
        let process = Process::start(&mut command, Path::new(DIRECTORY));
        Self { process, node, output }
    }

    /// Returns what `doctor` finds from outside of the demo's namespaces.
    fn doctor(&mut self) -> Result<Value, String> {
        assert!(!self.process.has_ended(), "{}", self.process.log());
        doctor(&self.node.namespace)
    }

    /// Waits until as many agents have reported.
    fn wait_for_reports(&mut self, nodes: u64) {
        until("all agents have reported", || {
            let found = self.doctor()?;
            if found["rows"] == nodes { Ok(()) } else { Err(found.to_string()) }
        });
    }
}

fn doctor(namespace: &Namespace) -> Result<Value, String> {
    let mut command: Command = namespace.command(PROGRAM);
    let output = command.args(["doctor", "--collect", "--json", "--url", "http://127.0.0.2:9877"]).output();
    let output = output.expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {said}"))
}

/// Asserts that a demo with this fault comes to name the node and the direction.
fn is_named(nodes: &str, fault: &str, node: &str, direction: &str) {
    let mut demo = Demo::start(&UNPRIVILEGED, &["--nodes", nodes, "--fault", fault]);
    until_within(VERDICT, &format!("{fault} of {nodes} nodes is named"), || {
        let found = demo.doctor()?;
        let first = &found["verdicts"][0];
        let named = [("kind", "node"), ("subject", node), ("direction", direction)];
        if named.iter().all(|(field, value)| first[field] == *value) { Ok(()) } else { Err(found.to_string()) }
    });
    // The demo judges the same reports a little later.
    let line = format!("Verdict: {node} loses ");
    until_within(VERDICT, "the demo prints the verdict", || {
        let text = fs::read_to_string(&demo.output).unwrap_or_default();
        if text.contains(&line) { Ok(()) } else { Err(text) }
    });
}

#[test]
fn an_inbound_fault_of_one_of_four_nodes_is_named_with_its_direction() {
    is_named("4", "node3:in:30%", "node3", "in");
}

#[test]
fn an_outbound_fault_of_one_of_four_nodes_is_named_with_its_direction() {
    is_named("4", "node3:out:30%", "node3", "out");
}

#[test]
fn a_fault_of_one_of_three_nodes_is_named_with_its_direction() {
    is_named("3", "node3:in:30%", "node3", "in");
    is_named("3", "node2:out:30%", "node2", "out");
}

#[test]
fn a_delay_is_measured() {
    let mut demo = Demo::start(&UNPRIVILEGED, &["--fault", "node3:in:20ms"]);
    until("the delay is measured", || {
        let response = demo.node.namespace.within(|| fetch(outside(4), "/api/v1/peers", ""));
        let body = response.map_err(|error| error.to_string())?.body;
        let report: Value = serde_json::from_str(&body).map_err(|error| error.to_string())?;
        let peers = report["peers"].as_array().ok_or("no peers")?;
        let is_slow = |peer: &Value| peer["recent"]["rtt_p50_seconds"].as_f64().is_some_and(|p50| p50 >= 0.02);
        // Two peers, each by three protocols.
        if peers.len() == 6 && peers.iter().all(is_slow) { Ok(()) } else { Err(body) }
    });
    assert!(!demo.process.has_ended(), "{}", demo.process.log());
}

/// Returns the address at which an agent of a demo is reached.
fn outside(last: u8) -> SocketAddr {
    (Ipv4Addr::new(127, 0, 0, last), 9_877).into()
}

#[test]
fn the_page_of_every_agent_is_reached_from_outside() {
    for arguments in [&["--fault", "node1:both:1%"][..], &[]] {
        let mut demo = Demo::start(&UNPRIVILEGED, arguments);
        demo.wait_for_reports(3);
        for last in 2..5 {
            let response = demo.node.namespace.within(|| fetch(outside(last), "/", "")).expect("it answers");
            assert!(response.status == 200 && response.body.contains("<html"), "{}", response.body);
        }
    }
}

/// The network namespaces of all processes that can be seen.
fn networks() -> BTreeSet<PathBuf> {
    let processes = fs::read_dir("/proc").expect("procfs").flatten();
    processes.filter_map(|entry| fs::read_link(entry.path().join("ns/net")).ok()).collect()
}

#[test]
fn a_signal_or_its_own_death_ends_the_demo_its_agents_and_their_networks() {
    for (signal, code) in [(libc::SIGINT, Some(0)), (libc::SIGTERM, Some(0)), (libc::SIGKILL, None)] {
        let mut demo = Demo::start(&UNPRIVILEGED, &["--fault", "node3:in:10%"]);
        demo.wait_for_reports(3);
        let agents = children(&demo.process);
        let network = |agent: &Seen| fs::read_link(format!("/proc/{}/ns/net", agent.id)).expect("it runs");
        let own: BTreeSet<PathBuf> = agents.iter().map(network).collect();
        assert_eq!((agents.len(), own.len()), (3, 3), "{agents:?} in {own:?}");
        demo.process.signal(signal);
        assert_eq!(demo.process.end().code(), code, "{}", demo.process.log());
        until_so("its agents are gone", || agents.iter().all(Seen::is_gone));
        until_so("no process is in their networks", || networks().is_disjoint(&own));
    }
}

/// Asserts that the demo refuses to start, in one line with these words.
fn is_refused(launcher: &[&str], words: &[&str]) {
    let mut demo = Demo::start(launcher, &["--fault", "node3:in:10%"]);
    assert_eq!(demo.process.end().code(), Some(1), "{}", demo.process.log());
    let log = demo.process.log();
    assert!(log.lines().count() == 1 && words.iter().all(|word| log.contains(word)), "{log}");
}

#[test]
fn without_user_namespaces_one_line_says_what_is_missing() {
    is_refused(&["setpriv", "--bounding-set", "-all"], &["--fault", "user namespaces", "run as root"]);
}

#[test]
fn without_tun_one_line_says_what_is_missing() {
    let hide = "mount --bind /dev/null /dev/net/tun && exec setpriv --bounding-set -all,+setfcap \"$@\"";
    is_refused(&["unshare", "--mount", "sh", "-c", hide, "sh"], &["--fault", "/dev/net/tun", "modprobe tun"]);
}

#[test]
fn an_address_in_use_is_named_with_the_way_out() {
    let node = Node::alone("taken");
    node.namespace.ip("link set lo up\n");
    let _taken = node.namespace.within(|| std::net::TcpListener::bind(outside(3)).expect("it is free"));
    let mut command = node.namespace.command(PROGRAM);
    let mut demo = Process::start(command.args(["demo", "--fault", "node3:in:10%"]), Path::new(DIRECTORY));
    assert_eq!(demo.end().code(), Some(1), "{}", demo.log());
    assert!(demo.log().contains("127.0.0.3:9877") && demo.log().contains("--port"), "{}", demo.log());
}
