//! The shipped alerts over real agents in network namespaces, three of which judge, in a real
//! [`prometheus`].
//!
//! Nothing here is random: each stream of echoes loses exactly its every tenth packet, or so. A
//! slow machine makes a test longer, and changes no result ([`judged`]).
//!
//! `cargo test --test alerts -- --nocapture`; needs Debian's prometheus, iproute2, nftables, and
//! root or user namespaces.
#![allow(dead_code, reason = "the mesh is that of tests/netns, which uses more of it")]

#[path = "../common/mod.rs"]
mod common;
mod cut_off;
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

use std::path::Path;
use std::time::Duration;

use common::process::Process;
use faults::Faults;
use mesh::{Mesh, Node, Socket};
use namespace::{DIRECTORY, PROGRAM};
use prometheus::{HASTE, PORT};

/// The time limit for events that come at some time. It only ends a test that would never end.
const PATIENCE: Duration = Duration::from_mins(5);

/// An agent at the default interval divided by [`HASTE`](prometheus::HASTE), where
/// Prometheus can scrape it.
fn agent(node: &Node, peers: &Path) -> Process {
    let mut command = node.namespace.command(PROGRAM);
    command.args(["run", "--discovery", "static", "--node-name", node.name, "--listen", &format!("0.0.0.0:{PORT}")]);
    command.arg("--peers-file").arg(peers).args(["--interval", &format!("{}ms", 1_000 / HASTE)]);
    // The faults are losses of echoes, and the kernel of a stopped agent answers these alone.
    command.args(["--probes", "icmp"]);
    Socket::Ping.permit(&node.namespace, &mut command);
    Process::start(&mut command, Path::new(DIRECTORY))
}

/// Drops every tenth request from each other node to this one, and every tenth reply.
fn every_tenth<'a>(mesh: &'a Mesh, node: &str) -> Faults<'a> {
    let others = mesh.nodes.iter().filter(|other| other.name != node);
    let rule = |from: &str, kind: &str| format!("ip saddr {from} icmp type {kind} numgen inc mod 10 == 0 drop");
    let rules: Vec<String> =
        others.flat_map(|node| ["echo-request", "echo-reply"].map(|kind| rule(&node.ipv4(), kind))).collect();
    Faults::new(&mesh.node(node).namespace, "eth0", &[], &rules)
}
