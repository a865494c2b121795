//! Holes in the path MTU: packets above 1,300 bytes vanish though smaller ones pass. In silence, or
//! with a router's "fragmentation needed". Random loss is no hole.
//!
//! The agents run at the default interval and look for holes once a minute. A hole must be reported
//! once every link has sent 120 probes by ICMP, which takes two minutes.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use crate::common::scrape::same;
use crate::common::until::until;
use crate::fabric::{Fabric, is_across};
use crate::faults::Faults;
use crate::mesh::{Agent, Mesh, Node};
use crate::probing::{
    LONG, Totals, agents, all_clean, count, in_short, link, links, named, peers_file, picture, watch,
};
use crate::verdicts::{judged, list};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// Largest IP packet that passes.
const PASSES: u64 = 1_300;
/// The MTU of every device.
const FULL: u64 = 1_500;
/// A hole is first reported with a smaller size than passes, by at most this. Later it is exact.
const COARSE: u64 = 8;
/// Probes of every link by ICMP within which a hole is reported: two minutes.
const PROBES: u64 = 120;

/// Drops packets above [`PASSES`] that `from` sends, at the ingress of one node.
fn large_ones(from: &[String]) -> String {
    format!("ip saddr {{ {} }} ip length > {PASSES} counter name hit drop", from.join(", "))
}

/// The hole that a link reports: the largest size that passes, its direction, and whether a router
/// says so.
fn hole(link: &Value) -> Option<(u64, &str, &str)> {
    let hole = link.get("mtu_hole").filter(|hole| !hole.is_null())?;
    let text = |field: &str| hole[field].as_str().unwrap_or_else(|| panic!("no {field} in {hole}"));
    Some((count(hole, "passes_bytes"), text("direction"), text("said")))
}

/// Returns the reports once every link has sent this many probes by ICMP: one per second. By UDP it
/// sends more of them while flows seem to lose.
fn after(agents: &[Agent<'_>], probes: u64, mut look: impl FnMut(&[Value])) -> Vec<Value> {
    let limit = LONG + Duration::from_secs(2 * probes);
    watch(agents, "every link has sent enough", limit, |reports| {
        look(&reports);
        let totals = Totals::of(&reports);
        let by_icmp = totals.iter().filter(|((_, _, protocol), _)| protocol == "icmp").map(|(_, total)| total.sent);
        let fewest = by_icmp.min().unwrap_or(0);
        if fewest >= probes { Ok(reports) } else { Err(format!("{fewest} probes")) }
    })
}

/// Asserts which links have a hole, whether routers say so, and that all others carry full packets.
/// `slack` is by how much the reported size may be too small.
fn holes_are(reports: &[Value], has_hole: impl Fn(&str, &str) -> bool, said: &str, slack: u64) {
    for ((source, peer, _), link) in links(reports).filter(|((_, _, protocol), _)| protocol == "udp") {
        if let Some((passes, direction, who_says)) = hole(link) {
            assert!(has_hole(&source, &peer), "{source} to {peer}: {link}");
            assert!((PASSES - slack..=PASSES).contains(&passes), "{source} to {peer}: {link}");
            assert_eq!((direction, who_says), ("out", said), "{source} to {peer}: {link}");
            assert_eq!(count(link, "path_mtu_bytes"), passes, "{source} to {peer}: {link}");
        } else {
            assert!(!has_hole(&source, &peer), "{source} to {peer}: {link}");
            assert_eq!(count(link, "path_mtu_bytes"), FULL, "{source} to {peer}: {link}");
        }
    }
    // Small packets all pass.
    for ((source, peer, protocol), link) in links(reports) {
        assert_eq!(count(link, "lost"), 0, "{source} to {peer} by {protocol}: {link}");
    }
}

/// Waits until every hole has its exact size.
fn holes_become_exact(agents: &[Agent<'_>], has_hole: impl Fn(&str, &str) -> bool, said: &str) {
    let reports = watch(agents, "the size is exact", LONG, |reports| {
        let coarse = links(&reports)
            .filter(|((source, peer, protocol), _)| protocol == "udp" && has_hole(source, peer))
            .filter(|(_, link)| hole(link).is_none_or(|(passes, ..)| passes != PASSES))
            .count();
        if coarse == 0 { Ok(reports) } else { Err(format!("{coarse} links have another size")) }
    });
    holes_are(&reports, &has_hole, said, 0);
    for agent in agents {
        let metrics = agent.metrics();
        for ((_, peer, _), _) in
            links(&reports).filter(|((source, _, protocol), _)| protocol == "udp" && source == agent.node.name)
        {
            let labels = [("peer_node", peer.as_str()), ("protocol", "udp")];
            let expected = if has_hole(agent.node.name, &peer) { PASSES } else { FULL };
            let bytes = metrics.value("path_mtu_bytes", &labels).expect("a gauge");
            assert!(same(bytes, expected as f64), "{} to {peer}: {bytes}", agent.node.name);
        }
    }
}

#[test]
fn a_silent_hole_of_one_link_is_named_with_its_size_and_direction() {
    let mesh = Mesh::of(&NAMES);
    let faults = Faults::new(&mesh.node("b").namespace, "eth0", &["hit"], &[large_ones(&[mesh.node("a").ipv4()])]);
    let agents = agents(&mesh, &peers_file(&mesh), &[]);
    let reports = after(&agents, PROBES, |_| ());
    assert!(faults.packets("hit") >= 1.0, "no packet was too large");
    let has_hole = |source: &str, peer: &str| (source, peer) == ("a", "b");
    holes_are(&reports, has_hole, "silent", COARSE);
    let verdicts = judged(&reports, &[]);
    let found = in_short(&verdicts);
    assert!(
        found.iter().map(|(kind, subject, _)| (kind.as_str(), subject.as_str())).eq([("mtu", "a->b")]),
        "{found:?}"
    );
    let (passes, ..) = hole(link(&reports, "a", "b", "udp")).expect("a hole");
    let evidence = verdicts[0]["evidence"].as_str().expect("text");
    let digits: String = evidence.chars().filter(|c| *c != ',').collect();
    assert!(digits.contains(&passes.to_string()), "{evidence}");
    println!("{evidence}");
    holes_become_exact(&agents, has_hole, "silent");
    // Any agent says the exact size, by the judges.
    let verdict = until("an agent has the verdict", || {
        let document = agents[3].json("/api/v1/verdicts");
        let found = list(&document, "verdicts").iter().find(|verdict| verdict["kind"] == "mtu").cloned();
        found.ok_or_else(|| document["verdicts"].to_string())
    });
    assert_eq!((&verdict["subject"], &verdict["direction"]), (&"a->b".into(), &"out".into()), "{verdict}");
    let begin = format!("packets over {PASSES} bytes do not pass from a to b; ");
    assert!(verdict["evidence"].as_str().is_some_and(|evidence| evidence.starts_with(&begin)), "{verdict}");
    println!("{verdict}");
}

#[test]
fn a_silent_hole_in_front_of_a_node_is_found_on_every_link_to_it() {
    let mesh = Mesh::of(&NAMES);
    let others: Vec<String> = mesh.nodes.iter().filter(|node| node.name != "c").map(Node::ipv4).collect();
    let _faults = Faults::new(&mesh.node("c").namespace, "eth0", &["hit"], &[large_ones(&others)]);
    let agents = agents(&mesh, &peers_file(&mesh), &[]);
    let reports = after(&agents, PROBES, |_| ());
    let has_hole = |_: &str, peer: &str| peer == "c";
    holes_are(&reports, has_hole, "silent", COARSE);
    let found = in_short(&judged(&reports, &[]));
    let is_fair =
        |(kind, subject, _): &(String, String, String)| kind == "mtu" && (subject == "c" || subject.ends_with("->c"));
    assert!(!found.is_empty() && found.iter().all(is_fair), "{found:?}");
    holes_become_exact(&agents, has_hole, "silent");
}

#[test]
fn a_size_that_routers_tell_is_noted_and_no_fault() {
    let fabric = Fabric::new(1);
    fabric.narrow(PASSES);
    let agents = agents(&fabric.mesh, &peers_file(&fabric.mesh), &[]);
    let reports = after(&agents, PROBES, |_| ());
    holes_are(&reports, is_across, "too_big", COARSE);
    // The kernels learn the size, so it is no fault.
    let found = in_short(&judged(&reports, &[]));
    assert!(found.is_empty(), "{found:?}");
    holes_become_exact(&agents, is_across, "too_big");
    until("an agent notes it", || {
        let narrow = agents[0].json("/api/v1/verdicts")["overall"]["narrow"].clone();
        if narrow["pairs"].as_u64() > Some(1) { Ok(()) } else { Err(narrow.to_string()) }
    });
}

/// `KUBE_CANARY_TEST_MTU_PROBES=600` makes it ten minutes.
#[test]
fn random_loss_of_20_percent_is_no_hole() {
    const NODES: [&str; 8] = ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"];
    let probes = std::env::var("KUBE_CANARY_TEST_MTU_PROBES").ok().map_or(PROBES, |it| it.parse().expect("a number"));
    let mesh = Mesh::of(&NODES);
    let agents = agents(&mesh, &peers_file(&mesh), &[]);
    all_clean(&agents, &[("udp", 2)]);
    let rule = "meta l4proto udp numgen random mod 5 == 0 counter name hit drop".to_owned();
    let faults: Vec<_> = mesh
        .nodes
        .iter()
        .map(|node| Faults::new(&node.namespace, "eth0", &["hit"], std::slice::from_ref(&rule)))
        .collect();
    let mut looks = 0;
    let reports = after(&agents, probes, |reports| {
        looks += 1;
        for ((source, peer, _), link) in links(reports).filter(|((_, _, protocol), _)| protocol == "udp") {
            assert_eq!(hole(link), None, "{source} to {peer}: {link}");
            let bytes = link["path_mtu_bytes"].as_u64();
            assert!(bytes.is_none_or(|bytes| bytes == 0 || bytes == FULL), "{source} to {peer}: {link}");
        }
        let found = in_short(&judged(reports, &[]));
        assert!(found.iter().all(|(kind, ..)| kind != "mtu"), "{found:?}");
    });
    let dropped: f64 = faults.iter().map(|fault| fault.packets("hit")).sum();
    println!("{looks} looks at all reports, {dropped} datagrams dropped");
    // A third of the round trips is lost, by all links alike.
    let expected = BTreeSet::from([named("mesh", "*", "udp")]);
    assert_eq!(in_short(&judged(&reports, &[])), expected, "{}", picture(&reports, "udp"));
}
