//! `kube-canary ping` under faults: the result of every probe, one by one.

use std::time::Duration;

use serde_json::Value;

use crate::faults::Faults;
use crate::mesh::{Mesh, Node, Socket};
use crate::pinging::Ping;

const PROBES: u64 = 100;

/// Pings from `node` until it has sent [`PROBES`] per target. Returns its exit
/// code and its objects.
fn ping(node: &Node, targets: &[&str]) -> (Option<i32>, Vec<Value>) {
    let targets = targets.iter().map(ToString::to_string).collect();
    let (interval, timeout) = (Duration::from_millis(10), Duration::from_millis(300));
    Ping { node, socket: Socket::Raw, targets, count: Some(PROBES), interval, timeout }.run()
}

/// The numbers of the probes that have a matching object.
fn sequences(objects: &[Value], what: impl Fn(&Value) -> bool) -> Vec<u64> {
    objects.iter().filter(|object| what(object)).filter_map(|object| object["sequence"].as_u64()).collect()
}

fn summary(objects: &[Value], fields: [&str; 6]) -> [u64; 6] {
    let summary = objects.last().expect("a summary");
    fields.map(|field| summary[field].as_u64().unwrap_or_else(|| panic!("{field}: {summary}")))
}

const FIELDS: [&str; 6] = ["sent", "received", "lost", "late", "duplicate", "send_errors"];

#[test]
fn exactly_the_probes_that_are_dropped_are_lost() {
    let mesh = Mesh::new();
    let rule = "icmp type echo-request numgen inc mod 4 == 2 counter name dropped drop".to_owned();
    let faults = Faults::new(&mesh.node("c").namespace, "eth0", &["dropped"], &[rule]);
    let (code, objects) = ping(mesh.node("a"), &[&mesh.node("c").ipv4()]);
    assert_eq!(code, Some(0));
    let expected: Vec<u64> = (0..PROBES).filter(|number| number % 4 == 2).collect();
    assert!((faults.packets("dropped") - expected.len() as f64).abs() < 0.5);
    assert_eq!(sequences(&objects, |object| object["event"] == "lost"), expected);
    let answered = sequences(&objects, |object| object["rtt_seconds"].is_f64());
    assert_eq!(answered, (0..PROBES).filter(|number| number % 4 != 2).collect::<Vec<_>>());
    assert_eq!(summary(&objects, FIELDS), [PROBES, PROBES * 3 / 4, PROBES / 4, 0, 0, 0]);
}

#[test]
fn exactly_the_replies_that_are_doubled_are_duplicates() {
    let mesh = Mesh::new();
    let rule = "icmp type echo-reply numgen inc mod 5 == 1 dup to \"to-a\"".to_owned();
    let _faults = Faults::new(&mesh.hub, "to-c", &[], &[rule]);
    let (code, objects) = ping(mesh.node("a"), &[&mesh.node("c").ipv4()]);
    assert_eq!(code, Some(0));
    let expected: Vec<u64> = (0..PROBES).filter(|number| number % 5 == 1).collect();
    assert_eq!(sequences(&objects, |object| object["event"] == "duplicate"), expected);
    assert_eq!(summary(&objects, FIELDS), [PROBES, PROBES, 0, 0, PROBES / 5, 0]);
}

#[test]
fn silence_is_loss_and_no_route_is_an_error() {
    let mesh = Mesh::new();
    let rule = "icmp type echo-request drop".to_owned();
    let _faults = Faults::new(&mesh.node("c").namespace, "eth0", &[], &[rule]);
    let (silent, nowhere) = (mesh.node("c").ipv4(), "198.19.0.1");
    let (code, objects) = ping(mesh.node("a"), &[&silent, nowhere]);
    assert_eq!(code, Some(1));
    let all: Vec<u64> = (0..PROBES).collect();
    assert_eq!(sequences(&objects, |object| object["target"] == *silent && object["event"] == "lost"), all);
    let no_route = |object: &Value| object["target"] == nowhere && object["reason"] == "no_route";
    assert_eq!(sequences(&objects, no_route), all);
    assert_eq!(summary(&objects, FIELDS), [0, 0, 0, 0, 0, PROBES]);
}
