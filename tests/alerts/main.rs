//! The shipped alerts over three real agents in network namespaces, one of which loses every tenth
//! echo on its way in.
//!
//! promtool judges which alerts fire, and when, over a [`record`] of what the agents exported. The
//! clock of the record is the agents' own count of probes. So a slow machine makes the test longer,
//! and changes no result. A real [`prometheus`] must also show the alert at some time, no more.
//!
//! Nothing here is random: each stream of echoes loses exactly its every tenth packet. An agent
//! that the machine delays, or the test on purpose, says so in the record. Its alert is judged by
//! that.
//!
//! Where agents judge, their verdicts are the alerts ([`judged`]).
//!
//! `cargo test --test alerts -- --nocapture`; needs Debian's prometheus, iproute2, nftables, and
//! root or user namespaces.
#![allow(dead_code, reason = "the mesh is that of tests/netns, which uses more of it")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../netns/faults.rs"]
mod faults;
#[path = "../http_support/mod.rs"]
mod http_support;
#[path = "../netns/isolate.rs"]
mod isolate;
mod judged;
#[path = "../netns/mesh.rs"]
mod mesh;
#[path = "../netns/namespace.rs"]
mod namespace;
mod prometheus;
#[path = "../common/prometheus.rs"]
mod prometheus_api;
mod record;

use std::path::Path;
use std::time::Duration;

use common::process::Process;
use common::until::until_within;
use faults::Faults;
use mesh::{Mesh, Node, Socket};
use namespace::DIRECTORY;
use prometheus::{Alert, HASTE, Histograms, PORT, Prometheus};
use record::{FAST, Record, SHIPPED, direction, ever, firing, starved};

/// The time limit for events that come at some time. It only ends a test that would never end.
const PATIENCE: Duration = Duration::from_mins(5);

/// Steps after which the rules judge a node: 3 minutes, and one round of the slower rules.
const KNOWN_AFTER: usize = 40;
/// Steps within which the alert must fire if scrapes and evaluations are every 5 s: a minute, as
/// docs/alerts.md promises.
const NAMED_WITHIN: usize = 12;
/// The same for scrapes every 15 s and evaluations every 30 s: 95 s.
const NAMED_AS_SHIPPED: usize = 19;
/// Steps after which the rules' window of 2 minutes has only newer samples. Each loss is counted
/// one or two steps after its probe was sent.
const WINDOW: usize = 26;
/// Probes of one link during which an agent is stopped: far above a fiftieth of
/// those in the window.
const HELD_UP: f64 = 25.0;
const LOSSY: &str = r#"{alertname="KubeCanaryNodeLossy",node="c",zone="zone-c"}"#;

/// An agent at the default interval divided by [`HASTE`](prometheus::HASTE), where
/// Prometheus can scrape it. `judge` is its `--judge`: where agents judge, their verdicts are the
/// alerts, and the rules find no cause themselves.
fn agent(node: &Node, peers: &Path, judge: &str) -> Process {
    let mut command = node.namespace.command(env!("CARGO_BIN_EXE_kube-canary"));
    command.args(["run", "--discovery", "static", "--node-name", node.name, "--listen", &format!("0.0.0.0:{PORT}")]);
    command.arg("--peers-file").arg(peers).args(["--interval", &format!("{}ms", 1_000 / HASTE)]);
    // The faults are losses of echoes, and the kernel of a stopped agent answers these alone.
    command.args(["--probes", "icmp", "--judge", judge]);
    Socket::Ping.permit(&node.namespace, &mut command);
    Process::start(&mut command, Path::new(DIRECTORY))
}

fn agents(mesh: &Mesh, judge: &str) -> Vec<Process> {
    let peers = mesh.peers_file(|node| vec![node.ipv4()]);
    mesh.nodes.iter().map(|node| agent(node, &peers, judge)).collect()
}

/// Drops every tenth request from each other node to this one, and every tenth reply.
fn every_tenth<'a>(mesh: &'a Mesh, node: &str) -> Faults<'a> {
    let others = mesh.nodes.iter().filter(|other| other.name != node);
    let rule = |from: &str, kind: &str| format!("ip saddr {from} icmp type {kind} numgen inc mod 10 == 0 drop");
    let rules: Vec<String> =
        others.flat_map(|node| ["echo-request", "echo-reply"].map(|kind| rule(&node.ipv4(), kind))).collect();
    Faults::new(&mesh.node(node).namespace, "eth0", &[], &rules)
}

#[test]
fn a_node_with_ten_percent_inbound_loss_is_the_only_alert_and_has_its_direction() {
    let mesh = Mesh::new();
    let agents = agents(&mesh, "never");
    let mut record = Record::new(&mesh);
    record.steps(KNOWN_AFTER);
    // A slow machine makes long steps. Before the fault, these would dilute the first minute's
    // losses in the rules' window. During the fault, they only bring more losses.
    record.steps_until_even(NAMED_WITHIN);
    let begin = record.now();
    let faults = every_tenth(&mesh, "c");
    // First the time until all losses are counted, and then a window of 2 minutes.
    record.steps(WINDOW - 24);
    record.steps(24);
    let end = record.now();
    faults.stop();
    // Its kernel still answers the others.
    agents[1].signal(libc::SIGSTOP);
    record.wait_for_probes("a", "b", HELD_UP);
    agents[1].signal(libc::SIGCONT);
    record.steps(WINDOW + 1);
    let last = record.now();
    let fast = [
        firing(begin, &[]),
        firing(begin + NAMED_WITHIN, &[LOSSY]),
        firing(end, &[LOSSY]),
        direction(end, &[r#"{node="c",direction="in"}"#]),
        starved(end + 20, "b", "skipped"),
        firing(last, &[]),
        ever(last, &[LOSSY]),
    ];
    record.judge(FAST, &fast);
    let shipped =
        [firing(begin, &[]), firing(begin + NAMED_AS_SHIPPED, &[LOSSY]), firing(end, &[LOSSY]), ever(last, &[LOSSY])];
    record.judge(SHIPPED, &shipped);
}

#[test]
fn a_real_prometheus_fires_the_alert_with_both_forms_of_histograms() {
    let mesh = Mesh::new();
    mesh.hub.ip("link set lo up\naddress add 198.18.0.1/24 dev bridge\n");
    let _canaries = agents(&mesh, "never");
    let targets: Vec<String> = mesh.nodes.iter().map(|node| format!("{}:{PORT}", node.ipv4())).collect();
    let both = [Histograms::Classic, Histograms::Native].map(|form| Prometheus::start(&mesh.hub, &targets, form));
    for prometheus in &both {
        until_within(PATIENCE, "all are scraped", || {
            let up = prometheus.query("sum(up)");
            if up == [3.0] { Ok(()) } else { Err(format!("{up:?}")) }
        });
    }
    // The fault lasts until the end. So does the alert, once the rules' window has nothing else.
    let _faults = every_tenth(&mesh, "c");
    let is_meant = |alert: &Alert| {
        [alert.label("alertname"), alert.label("node"), alert.label("zone"), alert.annotation("direction")]
            == ["KubeCanaryNodeLossy", "c", "zone-c", "in"]
    };
    for prometheus in &both {
        until_within(PATIENCE, "c is named", || {
            let alerts = prometheus.firing();
            if alerts.iter().any(is_meant) { Ok(()) } else { Err(format!("firing: {alerts:#?}")) }
        });
    }
}
