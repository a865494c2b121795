//! Cut links, and a link with a small MTU.

use crate::common::scrape::{Link, is_zero, same};
use crate::mesh::{Mesh, SETTLED, Socket, all_clean, pairs};

#[test]
fn a_cut_link_loses_exactly_the_probes_to_that_peer() {
    let mesh = Mesh::new();
    let agents = mesh.ipv4_agents(Socket::Ping);
    all_clean(&agents, "icmp", 25.0);
    let to_c = &agents[..2];

    mesh.hub.ip("link set to-c down\n");
    for agent in to_c {
        // This counts from the first loss on: answers from before the cut have been decided before
        // it.
        agent.wait_for("c", "icmp", "a loss", |link| link.lost >= 1.0);
        let before = agent.link("c");
        let lost = |link: Link| link.since(before).lost >= SETTLED;
        let cut = agent.wait_for("c", "icmp", "as many losses", lost).since(before);
        assert!(is_zero(cut.received), "{}: {cut:?}", agent.node.name);
        assert!(is_zero(cut.send_errors), "silence is no error: {}: {cut:?}", agent.node.name);
    }

    mesh.hub.ip("link set to-c up\n");
    for agent in to_c {
        let before = agent.link("c");
        agent.wait_for("c", "icmp", "answers", |link| link.since(before).received >= SETTLED);
        let back = agent.watch("c", "icmp", SETTLED);
        assert!(back.is_clean() && back.received >= SETTLED - 2.0, "{}: {back:?}", agent.node.name);
    }
    for (agent, peer) in [(&agents[0], "b"), (&agents[1], "a")] {
        let link = agent.link(peer);
        assert!(link.is_clean(), "{} to {peer}: {link:?}", agent.node.name);
    }
}

#[test]
fn a_link_that_is_down_at_the_source_is_a_send_error_and_no_loss() {
    let mesh = Mesh::new();
    let agents = mesh.ipv4_agents(Socket::Ping);
    all_clean(&agents, "icmp", 25.0);

    mesh.node("a").namespace.ip("link set eth0 down\n");
    for peer in ["b", "c"] {
        // A probe in flight at the cut may be lost. It is decided once this many further probes
        // are.
        let before = agents[0].wait_for(peer, "icmp", "errors", |link| link.send_errors >= SETTLED);
        let after = agents[0]
            .wait_for(peer, "icmp", "further errors", |link| link.since(before).send_errors >= SETTLED)
            .since(before);
        assert!([after.sent, after.lost, after.received].into_iter().all(is_zero), "a to {peer}: {after:?}");
    }
    // The reasons are counted over all links.
    let metrics = agents[0].metrics();
    let errors = |labels: &[(&str, &str)]| metrics.value("send_errors_by_reason_total", labels).expect("it is there");
    assert!(same(errors(&[]), errors(&[("reason", "no_route")])) && !is_zero(errors(&[])));
    let errors = |name| agents[1].link(name).send_errors;
    assert!(is_zero(errors("a")) && is_zero(errors("c")), "only a has a link that is down");
    for (agent, peer) in [(&agents[1], "c"), (&agents[2], "b")] {
        assert!(agent.link(peer).is_clean(), "{} to {peer}: {:?}", agent.node.name, agent.link(peer));
    }

    mesh.node("a").namespace.ip("link set eth0 up\n");
    for peer in ["b", "c"] {
        let before = agents[0].link(peer);
        agents[0].wait_for(peer, "icmp", "answers", |link| link.since(before).received >= SETTLED);
        let back = agents[0].watch(peer, "icmp", SETTLED);
        assert!(back.is_clean(), "a to {peer}: {back:?}");
    }
}

#[test]
fn an_mtu_black_hole_loses_large_probes_and_no_small_ones() {
    let mesh = Mesh::new();
    // A longer packet than the far end's MTU is dropped there, without notice to the sender.
    mesh.node("c").namespace.ip("link set eth0 mtu 600\n");
    let peers = mesh.peers_file(|node| vec![node.ipv4()]);
    let small = mesh.agents(Socket::Ping, &peers, 9_877, &[]);
    let large = mesh.agents(Socket::Ping, &peers, 9_878, &["--payload-bytes", "1400"]);
    all_clean(&small, "icmp", SETTLED);
    for (agent, peer) in pairs(&large) {
        let link = agent.wait_for(peer, "icmp", "decided probes", |link| link.received + link.lost >= SETTLED);
        let name = agent.node.name;
        assert!(is_zero(link.send_errors), "{name} to {peer}: {link:?}");
        if name == "c" || peer == "c" {
            assert!(is_zero(link.received), "{name} to {peer}: {link:?}");
        } else {
            assert!(link.is_clean(), "{name} to {peer}: {link:?}");
        }
    }
    all_clean(&small, "icmp", SETTLED);
}
