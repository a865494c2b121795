//! Loss in one direction, and duplicates.

use crate::common::scrape::{is_zero, same};
use crate::common::until::until_so;
use crate::faults::Faults;
use crate::mesh::{Agent, Mesh, SETTLED, Socket, all_clean, pairs};

/// One echo request of this many of a source is dropped. Requests are counted, not random, so that
/// all runs are equal.
const DROPPED_EVERY: f64 = 5.0;
/// Probes per link under loss.
const PROBES: f64 = 300.0;

#[test]
fn loss_of_requests_at_a_node_appears_only_in_the_series_towards_it() {
    let mesh = Mesh::new();
    let agents = mesh.ipv4_agents(Socket::Ping);
    all_clean(&agents, "icmp", 25.0);
    let rules: Vec<String> = [&mesh.nodes[0], &mesh.nodes[1]]
        .into_iter()
        .flat_map(|node| {
            let requests = format!("ip saddr {} icmp type echo-request", node.ipv4());
            let name = node.name;
            [
                format!("{requests} counter name seen_{name}"),
                format!("{requests} numgen inc mod {DROPPED_EVERY} == 2 counter name dropped_{name} drop"),
            ]
        })
        .collect();
    let counters = ["seen_a", "dropped_a", "seen_b", "dropped_b"];
    let faults = Faults::new(&mesh.node("c").namespace, "eth0", &counters, &rules);
    until_so("nft has seen enough requests of both", || {
        ["seen_a", "seen_b"].iter().all(|counter| faults.packets(counter) >= PROBES)
    });
    faults.stop();
    for agent in &agents[..2] {
        let name = agent.node.name;
        let [seen, dropped] = ["seen", "dropped"].map(|counter| faults.packets(&format!("{counter}_{name}")));
        assert!(seen >= PROBES, "{name}: nft saw {seen} of its requests");
        assert!((dropped - seen / DROPPED_EVERY).abs() <= 1.0, "{name}: {dropped} of {seen} dropped");
        // Every packet that nft dropped is a loss, and no other is.
        agent.wait_for("c", "icmp", &format!("{dropped} lost"), |link| same(link.lost, dropped));
        let after = agent.watch("c", "icmp", SETTLED);
        assert!(after.is_clean(), "{name} after the fault: {after:?}");
        let link = agent.link("c");
        assert!(same(link.lost, dropped), "{name}: {dropped} dropped: {link:?}");
        assert!([link.late, link.duplicate, link.send_errors].into_iter().all(is_zero), "{name}: {link:?}");
    }
    for (agent, peer) in pairs(&agents).filter(|(_, peer)| *peer != "c") {
        let link = agent.link(peer);
        assert!(link.is_clean() && link.received >= PROBES, "{} to {peer}: {link:?}", agent.node.name);
    }
}

#[test]
fn doubled_replies_are_counted_as_duplicates_and_not_as_received() {
    let mesh = Mesh::new();
    let agents = mesh.ipv4_agents(Socket::Ping);
    all_clean(&agents, "icmp", 25.0);
    let replies =
        format!("ip daddr {} icmp type echo-reply counter name doubled dup to \"to-a\"", mesh.node("a").ipv4());
    let faults = Faults::new(&mesh.hub, "to-c", &["doubled"], &[replies]);
    agents[0].watch("c", "icmp", 100.0);
    faults.stop();
    let doubled = faults.packets("doubled");
    assert!(doubled >= 99.0, "{doubled}");
    let enough = |agent: &Agent<'_>| {
        agent.wait_for("c", "icmp", &format!("{doubled} duplicates"), |link| same(link.duplicate, doubled))
    };
    let link = enough(&agents[0]);
    assert!(link.received <= link.sent && is_zero(link.lost), "{link:?}");
    for (agent, peer) in pairs(&agents).filter(|(agent, peer)| agent.node.name != "a" || *peer != "c") {
        assert!(agent.link(peer).is_clean(), "{} to {peer}: {:?}", agent.node.name, agent.link(peer));
    }
}
