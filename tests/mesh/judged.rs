//! What a judge collects: the reports of all members, compact from agents that write them.

use std::net::IpAddr;

use kube_canary::discovery::MeshFacts;
use kube_canary::mesh::Times;
use kube_canary::peers::name_in_reports;
use kube_canary::report::compact::CompactWriter;
use kube_canary::report::{Peer, RecentPeer, Source};
use kube_canary::sys::clock;
use serde_json::Value;

use crate::agents::{Answer, Discovered, Mesh, address_of, at_once, errors, spec_of, unhurried};
use crate::http_support::get;

const NODES: u8 = 6;

fn name(node: u8) -> String {
    format!("n{node}")
}

/// A compact report of `node` about these peers, of which each has lost this many of 60 probes.
fn compact(node: &str, peers: &[(&str, u32)]) -> Vec<u8> {
    let source = Source { node: node.into(), zone: "z".into(), ..Source::default() };
    let mut writer = CompactWriter::new(&source, name_in_reports(node), clock::realtime().as_secs());
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
        judge: Some(at_once()),
        ..Discovered::default()
    };
    Mesh::answering(net, nodes, answer, discovered, limits)
}

#[test]
fn a_judge_reads_the_reports_of_all_members_and_counts_agents_of_another_version() {
    let lossy = |node: u8| {
        let others: Vec<String> = (0..NODES).filter(|other| *other != node).map(name).collect();
        others.into_iter().map(|other| (other.clone(), if node == 4 || other == "n4" { 30 } else { 0 })).collect()
    };
    let mesh = judged(60, |node| {
        let peers: Vec<(String, u32)> = lossy(node);
        let named: Vec<(&str, u32)> = peers.iter().map(|(peer, lost)| (&**peer, *lost)).collect();
        // It knows no form that this judge reads.
        if node == 2 { Answer::OtherVersion } else { Answer::Compact(compact(&name(node), &named), "not JSON".into()) }
    });
    let held = mesh.held();
    assert_eq!((&held["nodes"], errors(&held)), (&(NODES + 1).into(), vec![]), "{held}");
    assert_eq!(
        (&held["overview"]["not_gathered"], &held["overview"]["overall"]["other_version"]),
        (&0.into(), &1.into())
    );
    let said: Value =
        serde_json::from_str(&get(mesh.address(), "/api/v1/verdicts").expect("an answer").body).expect("JSON");
    let headline = said["headline"].as_str().expect("text");
    assert!(headline.starts_with("n4 ") && headline.ends_with("; 1 node runs another version"), "{headline}");
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
            2 => vec![7; 32_000],
            _ => well(&name(node)),
        };
        Answer::Compact(report, "not JSON".into())
    };
    let mesh = judged(61, answer);
    let held = mesh.held();
    let mut missing = errors(&held);
    missing.sort_unstable();
    let expected = [("n0", "answers as n5"), ("n1", "not a compact report"), ("n2", "more than 31744 bytes")];
    assert_eq!(missing, expected);
    assert_eq!(held["nodes"], NODES + 1, "a report adds no node: {held}");
}

/// Each takes as long as it may.
#[test]
fn a_judge_reads_all_other_reports_while_22_of_24_members_trickle_theirs() {
    const ALL: u8 = 24;
    let is_honest = |node: u8| [0, ALL - 1].contains(&node);
    let answer = |node: u8| {
        if is_honest(node) {
            return Answer::Compact(compact(&name(node), &[("n1", 0)]), "not JSON".into());
        }
        Answer::TricklesCompact(compact(&name(node), &[]))
    };
    let mesh = judged_within(62, ALL, answer, Times::default());
    let held = mesh.held();
    let mut missing: Vec<&str> = errors(&held).into_iter().map(|(node, _)| node).collect();
    missing.sort_unstable();
    let mut slow: Vec<String> = (0..ALL).filter(|node| !is_honest(*node)).map(name).collect();
    slow.sort_unstable();
    assert_eq!((missing, &held["overview"]["not_gathered"]), (slow.iter().map(|it| &**it).collect(), &0.into()));
}
