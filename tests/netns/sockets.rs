//! Both kinds of socket and both families without faults, and a start without any permission.

use std::path::Path;

use crate::common::process::Process;
use crate::common::scrape::{Link, is_zero};
use crate::faults::Faults;
use crate::mesh::{Agent, Mesh, SETTLED, Socket, all_clean, command, pairs};
use crate::namespace::DIRECTORY;

/// Asserts that every agent has a series for each of `expected`, with the labels of the mesh.
fn series_are(agents: &[Agent<'_>], protocols: &[&str]) {
    for agent in agents {
        let metrics = agent.metrics();
        let mut expected: Vec<_> = pairs(std::slice::from_ref(agent))
            .flat_map(|(_, peer)| protocols.iter().map(move |protocol| (peer, *protocol)))
            .collect();
        expected.sort_unstable();
        assert_eq!(metrics.peers(), expected, "of {}", agent.node.name);
        for (peer, protocol) in expected {
            let (source_zone, peer_zone) = (agent.node.zone(), format!("zone-{peer}"));
            let labels = [
                ("source_node", agent.node.name),
                ("source_zone", &source_zone),
                ("peer_node", peer),
                ("peer_zone", &peer_zone),
                ("protocol", protocol),
                ("network", "pod"),
            ];
            assert!(metrics.value("probes_sent_total", &labels).is_some(), "{labels:?}: {metrics:?}");
        }
    }
}

#[test]
fn ping_sockets_measure_a_healthy_mesh_without_capabilities() {
    let mesh = Mesh::new();
    let agents = mesh.ipv4_agents(Socket::Ping);
    all_clean(&agents, "icmp", SETTLED * 2.0);
    series_are(&agents, &["icmp"]);
}

#[test]
fn raw_sockets_measure_a_healthy_mesh_if_the_sysctl_permits_no_group() {
    let mesh = Mesh::new();
    let peers = mesh.peers_file(|node| vec![node.ipv4(), node.ipv6()]);
    let agents = mesh.agents(Socket::Raw, &peers, 9_877, &[]);
    for protocol in ["icmp", "icmpv6"] {
        all_clean(&agents, protocol, SETTLED * 2.0);
    }
    series_are(&agents, &["icmp", "icmpv6"]);
}

#[test]
fn two_agents_with_raw_sockets_on_one_host_ignore_each_others_replies() {
    let mesh = Mesh::new();
    let peers = mesh.peers_file(|node| vec![node.ipv4(), node.ipv6()]);
    let node = mesh.node("a");
    let [one, other] = [9_877, 9_878].map(|port| Agent::start(node, Socket::Raw, &peers, port, &[]));
    for agent in [&one, &other] {
        for protocol in ["icmp", "icmpv6"] {
            let link = agent.wait_for("c", protocol, "a few answers", |link| link.received >= SETTLED);
            assert!(link.is_clean(), "{protocol}: {link:?}");
        }
    }
    // A raw socket gets every reply of its host. The kernel drops the replies to other sockets
    // before they cost us anything.
    for agent in [&one, &other] {
        assert!(agent.metrics().value("replies_unrelated_total", &[]).is_some_and(is_zero));
    }
}

#[test]
fn a_dual_stack_peer_has_series_of_both_families_and_only_the_broken_one_shows_loss() {
    let mesh = Mesh::new();
    let peers = mesh.peers_file(|node| vec![node.ipv4(), node.ipv6()]);
    let agents = mesh.agents(Socket::Ping, &peers, 9_877, &[]);
    for protocol in ["icmp", "icmpv6"] {
        all_clean(&agents, protocol, 25.0);
    }
    series_are(&agents, &["icmp", "icmpv6"]);
    let rule = "icmpv6 type echo-request counter name dropped drop".to_owned();
    let _faults = Faults::new(&mesh.node("c").namespace, "eth0", &["dropped"], &[rule]);
    for agent in &agents[..2] {
        agent.wait_for("c", "icmpv6", "a loss", |link| link.lost >= 1.0);
        let before = agent.metrics().link("c", "icmpv6");
        let enough = |link: Link| link.since(before).lost >= SETTLED - 2.0;
        let broken = agent.wait_for("c", "icmpv6", "as many losses", enough).since(before);
        assert!(is_zero(broken.received), "{}: {broken:?}", agent.node.name);
    }
    for (agent, peer) in pairs(&agents) {
        let metrics = agent.metrics();
        for protocol in ["icmp", "icmpv6"].into_iter().filter(|protocol| peer != "c" || *protocol == "icmp") {
            let link = metrics.link(peer, protocol);
            assert!(link.is_clean(), "{} to {peer} by {protocol}: {link:?}", agent.node.name);
        }
    }
}

#[test]
fn without_permission_for_either_socket_the_exit_code_is_1_and_both_remedies_are_named() {
    let mesh = Mesh::new();
    let peers = mesh.peers_file(|node| vec![node.ipv4()]);
    let mut command = command(mesh.node("a"), Socket::None, &peers, 9_877, &[]);
    let mut process = Process::start(&mut command, Path::new(DIRECTORY));
    assert_eq!(process.end().code(), Some(1), "{}", process.log());
    let log = process.log();
    assert_eq!(log.lines().count(), 1, "{log}");
    for part in ["kube-canary: ", "ICMP socket", "net.ipv4.ping_group_range", "NET_RAW"] {
        assert!(log.contains(part), "{part}: {log}");
    }
}
