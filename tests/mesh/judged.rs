//! What a judge collects: the reports of all members, compact from agents that write them.

use std::net::IpAddr;
use std::time::Duration;

use kube_canary::discovery::MeshFacts;
use kube_canary::mesh::{JudgeTimes, Times};
use kube_canary::peers::name_in_reports;
use kube_canary::report::compact::Writer;
use kube_canary::report::{Peer, RecentPeer, Source};
use kube_canary::sys::clock;
use serde_json::Value;

use crate::agents::{Answer, Discovered, Mesh, address_of, peer, row, source, spec_of, unhurried};
use crate::http_support::{eventually, get};

const NODES: u8 = 6;

/// An agent that judges at once, and once in 20 ms.
fn times() -> JudgeTimes {
    JudgeTimes {
        lacking: Duration::ZERO,
        step: Duration::ZERO,
        check: Duration::from_millis(20),
        round: Duration::from_millis(20),
        reuse: Duration::ZERO,
        ..JudgeTimes::default()
    }
}

fn name(node: u8) -> String {
    format!("n{node}")
}

/// A compact report of `node` about these peers, of which each has lost so many of 60 probes.
fn compact(node: &str, peers: &[(&str, u32)]) -> Vec<u8> {
    let source = Source { node: node.into(), zone: "z".into(), ..Source::default() };
    let mut writer = Writer::new(&source, name_in_reports(node), clock::realtime().as_secs());
    for (peer, lost) in peers {
        let recent = RecentPeer { seconds: 60.0, sent: 60, received: 60 - lost, lost: *lost, ..RecentPeer::default() };
        writer.peer(name_in_reports(peer), &Peer { recent, ..Peer::default() });
    }
    writer.end(0)
}

/// A mesh of a judge and other agents with these answers. Its own list has two of them.
fn judged(net: u8, answer: impl Fn(u8) -> Answer) -> Mesh {
    judged_within(net, NODES, answer, unhurried())
}

fn judged_within(net: u8, nodes: u8, answer: impl Fn(u8) -> Answer, limits: Times) -> Mesh {
    let roster: Vec<(String, IpAddr)> = (0..nodes).map(|node| (name(node), address_of(net, node))).collect();
    let discovered = |port| Discovered {
        peers: (0..2).map(|node| spec_of(net, node, port)).collect(),
        roster: roster.clone(),
        facts: MeshFacts { members: u32::from(nodes) + 1, ..MeshFacts::default() },
        judge: Some(times()),
        ..Discovered::default()
    };
    Mesh::answering(net, nodes, answer, discovered, limits)
}

/// What the agent holds as a judge, once it has judged.
fn held(mesh: &Mesh) -> Value {
    let document = || get(mesh.address(), "/api/v1/judge/verdicts").expect("an answer");
    eventually("a judgement", || document().status == 200);
    serde_json::from_str(&document().body).expect("a document")
}

fn missing(held: &Value) -> Vec<(&str, &str)> {
    let all = held["overview"]["missing"].as_array().expect("a list").iter();
    all.map(|it| (it["node"].as_str().expect("a name"), it["error"].as_str().expect("a reason"))).collect()
}

#[test]
fn a_judge_reads_the_compact_reports_of_all_members_and_those_of_older_agents() {
    let lossy = |node: u8| {
        let others: Vec<String> = (0..NODES).filter(|other| *other != node).map(name).collect();
        others.into_iter().map(|other| (other.clone(), if node == 4 || other == "n4" { 30 } else { 0 })).collect()
    };
    let mesh = judged(60, |node| {
        let peers: Vec<(String, u32)> = lossy(node);
        let named: Vec<(&str, u32)> = peers.iter().map(|(peer, lost)| (&**peer, *lost)).collect();
        if node == 2 {
            let objects: Vec<String> = named.iter().map(|(name, lost)| peer(name, *lost)).collect();
            return Answer::Text(row(&name(node), &objects));
        }
        Answer::Compact(compact(&name(node), &named), "not JSON".into())
    });
    let held = held(&mesh);
    assert_eq!((&held["nodes"], missing(&held)), (&(NODES + 1).into(), vec![]), "{held}");
    assert_eq!(held["overview"]["not_gathered"], 0);
    let subjects: Vec<&str> =
        held["verdicts"].as_array().unwrap().iter().filter_map(|it| it["subject"].as_str()).collect();
    assert_eq!(subjects, ["n4"], "{held}");
}

#[test]
fn a_report_that_is_none_or_of_another_node_is_missing_and_changes_no_other() {
    let answer = |node: u8| {
        let well = |node: &str| compact(node, &[("n3", 0), ("unknown", 60)]);
        let report = match node {
            0 => well("n5"),
            1 => [well("n1"), vec![0]].concat(),
            2 => vec![7; 30_000],
            _ => well(&name(node)),
        };
        Answer::Compact(report, "not JSON".into())
    };
    let mesh = judged(61, answer);
    let held = held(&mesh);
    let mut missing = missing(&held);
    missing.sort_unstable();
    let expected = [("n0", "answers as n5"), ("n1", "not a compact report"), ("n2", "more than 24576 bytes")];
    assert_eq!(missing, expected);
    assert_eq!(held["nodes"], NODES + 1, "a report adds no node: {held}");
}

/// Each takes as long as it may: half of them with a report in JSON, and half with a compact one.
#[test]
fn a_judge_reads_all_other_reports_while_22_of_24_members_trickle_theirs() {
    const ALL: u8 = 24;
    let is_honest = |node: u8| [0, ALL - 1].contains(&node);
    let answer = |node: u8| match node {
        _ if is_honest(node) => Answer::Compact(compact(&name(node), &[("n1", 0)]), "not JSON".into()),
        _ if node.is_multiple_of(2) => Answer::Trickles(format!("{{{},\"peers\":[", source(&name(node)))),
        _ => Answer::TricklesCompact(compact(&name(node), &[])),
    };
    let mesh = judged_within(62, ALL, answer, Times::default());
    let held = held(&mesh);
    let mut missing: Vec<&str> = missing(&held).into_iter().map(|(node, _)| node).collect();
    missing.sort_unstable();
    let mut slow: Vec<String> = (0..ALL).filter(|node| !is_honest(*node)).map(name).collect();
    slow.sort_unstable();
    assert_eq!((missing, &held["overview"]["not_gathered"]), (slow.iter().map(|it| &**it).collect(), &0.into()));
}
