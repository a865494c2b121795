//! Loss in one direction, and duplicates.

use crate::common::scrape::{is_zero, same};
use crate::faults::Faults;
use crate::mesh::{Canary, Mesh, SETTLED, Socket, all_clean, pairs};

/// The part of echo requests that is dropped.
const DROPPED: f64 = 0.2;
/// Probes per link under loss: the standard deviation of the loss is then 2.3 percentage points.
const PROBES: f64 = 300.0;
/// A fair die is farther than this off its mean once in 1.7 million throws of `PROBES`.
const SIGMAS: f64 = 5.0;

#[test]
fn loss_of_echo_requests_at_one_node_shows_on_the_others_series_for_it_and_nowhere_else() {
    let mesh = Mesh::new();
    let canaries = mesh.ipv4_canaries(Socket::Ping);
    all_clean(&canaries, "icmp", 25.0);
    let rules: Vec<String> = [&mesh.nodes[0], &mesh.nodes[1]]
        .into_iter()
        .flat_map(|node| {
            let requests = format!("ip saddr {} icmp type echo-request", node.ipv4());
            let name = node.name;
            [
                format!("{requests} counter name seen_{name}"),
                format!("{requests} numgen random mod 100 < 20 counter name dropped_{name} drop"),
            ]
        })
        .collect();
    let counters = ["seen_a", "dropped_a", "seen_b", "dropped_b"];
    let faults = Faults::new(&mesh.node("c").namespace, "eth0", &counters, &rules);
    for canary in &canaries[..2] {
        canary.watch("c", "icmp", PROBES);
    }
    faults.stop();
    for canary in &canaries[..2] {
        let name = canary.node.name;
        let [seen, dropped] = ["seen", "dropped"].map(|counter| faults.packets(&format!("{counter}_{name}")));
        assert!(seen >= PROBES - 1.0, "{name}: nft saw {seen} of its requests");
        let bound = SIGMAS * (seen * DROPPED * (1.0 - DROPPED)).sqrt();
        assert!((dropped - seen * DROPPED).abs() <= bound, "{name}: {dropped} of {seen} dropped, bound ±{bound}");
        // Every packet that nft dropped is a loss, and nothing else is.
        canary.wait_for("c", "icmp", &format!("{dropped} lost"), |link| same(link.lost, dropped));
        let after = canary.watch("c", "icmp", SETTLED);
        assert!(after.is_clean(), "{name} after the fault: {after:?}");
        let link = canary.link("c");
        assert!(same(link.lost, dropped), "{name}: {dropped} dropped: {link:?}");
        assert!([link.late, link.duplicate, link.send_errors].into_iter().all(is_zero), "{name}: {link:?}");
    }
    for (canary, peer) in pairs(&canaries).filter(|(_, peer)| *peer != "c") {
        let link = canary.link(peer);
        assert!(link.is_clean() && link.received >= PROBES, "{} to {peer}: {link:?}", canary.node.name);
    }
}

#[test]
fn replies_that_the_network_doubles_are_counted_and_are_no_more_received_than_before() {
    let mesh = Mesh::new();
    let canaries = mesh.ipv4_canaries(Socket::Ping);
    all_clean(&canaries, "icmp", 25.0);
    let replies =
        format!("ip daddr {} icmp type echo-reply counter name doubled dup to \"to-a\"", mesh.node("a").ipv4());
    let faults = Faults::new(&mesh.hub, "to-c", &["doubled"], &[replies]);
    canaries[0].watch("c", "icmp", 100.0);
    faults.stop();
    let doubled = faults.packets("doubled");
    assert!(doubled >= 99.0, "{doubled}");
    let enough = |canary: &Canary<'_>| {
        canary.wait_for("c", "icmp", &format!("{doubled} duplicates"), |link| same(link.duplicate, doubled))
    };
    let link = enough(&canaries[0]);
    assert!(link.received <= link.sent && is_zero(link.lost), "{link:?}");
    for (canary, peer) in pairs(&canaries).filter(|(canary, peer)| canary.node.name != "a" || *peer != "c") {
        assert!(canary.link(peer).is_clean(), "{} to {peer}: {:?}", canary.node.name, canary.link(peer));
    }
}
