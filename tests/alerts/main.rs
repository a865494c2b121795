//! A real Prometheus, with the shipped rules, scrapes three real canaries in network namespaces; then one of them loses a tenth
//! of all that comes in. All times, of the rules too, are a fifth of the real ones, so that eight minutes become two: what is
//! counted stays the same.
//!
//! `cargo test --test alerts -- --nocapture`; needs Debian's prometheus, iproute2, nftables, and root or user namespaces.
#![allow(dead_code, reason = "the mesh is that of tests/netns, which uses more of it")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../netns/faults.rs"]
mod faults;
#[path = "../http_support/mod.rs"]
mod http_support;
#[path = "../netns/isolate.rs"]
mod isolate;
#[path = "../netns/mesh.rs"]
mod mesh;
#[path = "../netns/namespace.rs"]
mod namespace;
mod prometheus;

use std::path::Path;

use common::process::Process;
use common::scrape::Metrics;
use common::until::until;
use faults::Faults;
use mesh::{Mesh, Node, Socket};
use namespace::DIRECTORY;
use prometheus::{Alert, HASTE, PORT, Prometheus};

/// Probes of one pair, one a second before haste, within which the alert must be there: a minute, and half of one more for a busy machine.
const NAMED_WITHIN: f64 = 90.0;
/// And by which it must have gone again: the rules' window is two minutes.
const GONE_WITHIN: f64 = 200.0;
/// As much again, and so the time that a moment's starving of an agent stays in the rules' window.
const IN_TIME_WITHIN: f64 = GONE_WITHIN;
/// After which nodes are judged.
const KNOWN_AFTER: f64 = 200.0;

/// At the default interval, hastened, and where Prometheus can scrape it.
fn canary(node: &Node, peers: &Path) -> Process {
    let mut command = node.namespace.command(env!("CARGO_BIN_EXE_kube-canary"));
    command.args(["run", "--discovery", "static", "--node-name", node.name, "--listen", &format!("0.0.0.0:{PORT}")]);
    command.arg("--peers-file").arg(peers).args(["--interval", &format!("{}ms", 1_000 / HASTE)]);
    Socket::Ping.permit(&node.namespace, &mut command);
    Process::start(&mut command, Path::new(DIRECTORY))
}

/// Probes that a has sent to c: the clock of this test.
fn sent(mesh: &Mesh) -> f64 {
    let node = mesh.node("a");
    let scrape = || node.namespace.within(|| Metrics::of(([127, 0, 0, 1], PORT).into()));
    until("a is scraped", scrape).link("c", "icmp").sent
}

/// Looks at the alerts until they are as wanted, for so many probes at most; gives how many it took.
fn wait_for(mesh: &Mesh, prometheus: &Prometheus, what: &str, within: f64, wanted: impl Fn(&[Alert]) -> bool) -> f64 {
    let begin = sent(mesh);
    loop {
        let alerts = prometheus.firing();
        let took = sent(mesh) - begin;
        if wanted(&alerts) {
            println!("{what}: after {took} probes");
            return took;
        }
        assert!(took < within, "not within {within} probes: {what}; firing: {alerts:#?}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn a_node_that_loses_a_tenth_of_its_ingress_is_named_with_its_direction_and_nothing_else_is() {
    let mesh = Mesh::new();
    mesh.hub.ip("link set lo up\naddress add 198.18.0.1/24 dev bridge\n");
    let peers = mesh.peers_file(|node| vec![node.ipv4()]);
    let _canaries: Vec<Process> = mesh.nodes.iter().map(|node| canary(node, &peers)).collect();
    let targets: Vec<String> = mesh.nodes.iter().map(|node| format!("{}:{PORT}", node.ipv4())).collect();
    let prometheus = Prometheus::start(&mesh.hub, &targets);

    until("all are scraped", || {
        let up = prometheus.query("sum(up)");
        if up == [(String::new(), 3.0)] { Ok(()) } else { Err(format!("{up:?}")) }
    });
    let start = sent(&mesh);
    until_sent(&mesh, start + KNOWN_AFTER);
    wait_for(&mesh, &prometheus, "nothing fires before the fault", IN_TIME_WITHIN, |alerts| {
        nothing_but(&[], alerts);
        alerts.is_empty()
    });

    let all = ["numgen random mod 100 < 10 counter name dropped drop".to_owned()];
    let faults = Faults::new(&mesh.node("c").namespace, "eth0", &["dropped"], &all);
    let is_named = |alerts: &[Alert]| alerts.iter().any(|alert| alert.name == "KubeCanaryNodeLossy");
    wait_for(&mesh, &prometheus, "a node is named", NAMED_WITHIN, is_named);
    // Its evidence may still sharpen, and whatever else is going to fire has its time.
    until_sent(&mesh, sent(&mesh) + NAMED_WITHIN);
    // Where a scrape came late the two ends' counts are not of the same time, and the direction is for a moment not told.
    wait_for(&mesh, &prometheus, "it alone, and the way", IN_TIME_WITHIN, |alerts| {
        nothing_but(&["KubeCanaryNodeLossy"], alerts);
        let [alert] = alerts else { return false };
        if alert.name != "KubeCanaryNodeLossy" {
            return false;
        }
        let direction = alert.annotation("direction");
        assert!(["in", "both"].contains(&direction.as_str()), "{alert:#?}");
        [alert.label("node"), alert.label("zone"), direction] == ["c", "zone-c", "in"]
    });
    faults.stop();
    assert!(faults.packets("dropped") > 0.0);

    wait_for(&mesh, &prometheus, "the alert is gone", GONE_WITHIN, <[Alert]>::is_empty);
    let ever = "max_over_time(ALERTS{alertstate=\"firing\",alertname!=\"KubeCanaryAgentStarved\"}[15m])";
    let ever = prometheus.query(&format!("group by (alertname) ({ever})"));
    assert_eq!(ever, [("KubeCanaryNodeLossy".to_owned(), 1.0)], "and nothing else has ever fired");
    // That an agent is starved is true where the machine held it up, which its probes show that were not sent in time; but nowhere else.
    let starved = "group by (alertname, node) (max_over_time(ALERTS{alertstate=\"firing\",alertname=\"KubeCanaryAgentStarved\"}[15m]))";
    let skipped = "group by (node) (kube_canary_probes_skipped_total * on (instance) group_left (node) kube_canary:agent:info > 0)";
    println!("starved for a moment: {:?}", prometheus.query(starved));
    let wrongly = prometheus.query(&format!("{starved} unless on (node) {skipped}"));
    assert_eq!(wrongly, [], "an agent that sent all its probes");
}

/// No alert but these fires, nor one of an agent that a busy machine held up: what it measured is not to be trusted as long as it is
/// in the rules' window.
fn nothing_but(names: &[&str], alerts: &[Alert]) {
    let expected = |alert: &Alert| names.contains(&&*alert.name) || alert.name == "KubeCanaryAgentStarved";
    assert!(alerts.iter().all(expected), "only {names:?} may fire: {alerts:#?}");
}

/// Waits until a has sent that many.
fn until_sent(mesh: &Mesh, count: f64) {
    while sent(mesh) < count {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}
