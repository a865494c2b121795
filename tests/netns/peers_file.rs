//! The peers file is rewritten while the agent runs.

use crate::common::process::replace;
use crate::common::scrape::is_zero;
use crate::common::until::until_so;
use crate::mesh::{Agent, Mesh, SETTLED, Socket};

#[test]
fn a_peer_joins_moves_and_leaves_with_the_peers_file() {
    let mesh = Mesh::new();
    let (b, c) = (mesh.node("b"), mesh.node("c"));
    let file = mesh.peers_file(|_| Vec::new());
    let line_of_b = b.line(&b.ipv4());
    replace(&file, &line_of_b);
    let agent = Agent::start(mesh.node("a"), Socket::Ping, &file, 9_877, &["--forget-after", "1s"]);
    agent.wait_for("b", "icmp", "answers", |link| link.received >= 25.0);
    assert_eq!(agent.metrics().peers(), [("b", "icmp")]);

    replace(&file, &format!("{line_of_b}{}", c.line(&c.ipv4())));
    agent.wait_for("c", "icmp", "answers of the new peer", |link| link.received >= 25.0);

    // The old address is dead, so answers can only come from the new one.
    c.namespace.ip(&format!(
        "address delete {}/24 dev eth0\naddress replace {}/24 dev eth0\n",
        c.ipv4(),
        c.other_ipv4()
    ));
    replace(&file, &format!("{line_of_b}{}", c.line(&c.other_ipv4())));
    until_so("c is listed with its other address", || {
        let peers = agent.json("/api/v1/peers");
        let rows = peers["peers"].as_array().cloned().unwrap_or_default();
        rows.iter().any(|row| row["node"] == "c" && row["address"] == c.other_ipv4())
    });
    let moved = agent.link("c");
    assert!(moved.received >= 25.0, "the counters go on: {moved:?}");
    let later = agent.wait_for("c", "icmp", "further answers", |link| link.since(moved).received >= SETTLED);
    assert!(later.sent > moved.sent, "{later:?} after {moved:?}");
    let settled = agent.watch("c", "icmp", SETTLED);
    assert!(settled.is_clean(), "at its other address: {settled:?}");

    replace(&file, &line_of_b);
    until_so("the series of c are gone", || agent.metrics().peers() == [("b", "icmp")]);
    let metrics = agent.metrics();
    assert!(!metrics.0.iter().any(|sample| sample.label("peer_node") == "c"), "{metrics:?}");
    let link = metrics.link("b", "icmp");
    assert!(link.is_clean() && !is_zero(link.received), "{link:?}");
}
