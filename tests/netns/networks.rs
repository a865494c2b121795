//! Both networks of each node: its first addresses belong to its pod, the others to the node
//! itself. The agents report the node addresses to each other.

use std::path::PathBuf;

use crate::common::process::replace;
use crate::common::scrape::{Link, is_zero};
use crate::common::until::{until, until_so};
use crate::faults::Faults;
use crate::mesh::{Agent, Mesh, Node, SETTLED, Socket, pairs};

const PORT: u16 = 9_877;
/// The address at which other namespaces request identities, too.
const LISTEN: &str = "[::]:9877";

/// The protocol and the network by which a peer is probed.
type Via = (&'static str, &'static str);

const IPV4: [Via; 2] = [("icmp", "node"), ("icmp", "pod")];
const DUAL_STACK: [Via; 4] = [("icmp", "node"), ("icmp", "pod"), ("icmpv6", "node"), ("icmpv6", "pod")];

/// Starts an agent on every node. Each is listed at its pod's addresses and knows its node's
/// addresses. Also returns the list of them.
fn agents(
    mesh: &Mesh,
    pods: impl Fn(&Node) -> Vec<String>,
    nodes: impl Fn(&Node) -> Vec<String>,
) -> (Vec<Agent<'_>>, PathBuf) {
    let peers = mesh.peers_file(&pods);
    let start = |node| {
        let (pods, nodes) = (pods(node).join(","), nodes(node).join(","));
        let flags = ["--network", "pod,node", "--listen", LISTEN, "--node-addresses", &nodes, "--pod-addresses", &pods];
        Agent::start(node, Socket::Ping, &peers, PORT, &flags)
    };
    (mesh.nodes.iter().map(start).collect(), peers)
}

/// Returns an agent's counters of a peer by one such path.
fn link(agent: &Agent<'_>, peer: &str, via: Via) -> Link {
    agent.metrics().link_on(peer, via.0, via.1)
}

fn wait_for(agent: &Agent<'_>, peer: &str, via: Via, what: &str, enough: impl Fn(Link) -> bool) -> Link {
    until(&format!("{} to {peer} by {via:?}: {what}", agent.node.name), || {
        let link = link(agent, peer, via);
        if enough(link) { Ok(link) } else { Err(format!("{link:?}")) }
    })
}

/// Waits for further losses, and asserts that no probe is answered in that time.
fn is_dead(agent: &Agent<'_>, peer: &str, via: Via) {
    let before = wait_for(agent, peer, via, "a loss", |link| link.lost >= 1.0);
    let dead = wait_for(agent, peer, via, "losses", |link| link.since(before).lost >= SETTLED).since(before);
    assert!(is_zero(dead.received), "{} to {peer} by {via:?}: {dead:?}", agent.node.name);
}

/// Waits for further answers, and asserts that no probe is lost in that time.
fn is_alive(agent: &Agent<'_>, peer: &str, via: Via) {
    let before = link(agent, peer, via);
    let alive = wait_for(agent, peer, via, "answers", |link| link.since(before).received >= SETTLED).since(before);
    assert!(alive.is_clean(), "{} to {peer} by {via:?}: {alive:?}", agent.node.name);
}

/// Asserts that between any two agents there are only answers on these paths, and enough of them.
fn all_clean(agents: &[Agent<'_>], ways: &[Via]) {
    for (agent, peer) in pairs(agents) {
        for &via in ways {
            let link = wait_for(agent, peer, via, "enough answers", |link| link.received >= 25.0);
            assert!(link.is_clean(), "{} to {peer} by {via:?}: {link:?}", agent.node.name);
        }
    }
}

/// Asserts the series of each agent: one set for each of these paths to each other node, and
/// the count of nodes.
fn series_are(agents: &[Agent<'_>], ways: &[Via]) {
    for agent in agents {
        let metrics = agent.metrics();
        let mut expected: Vec<_> = pairs(std::slice::from_ref(agent))
            .flat_map(|(_, peer)| ways.iter().map(move |via| (peer, via.0, via.1)))
            .collect();
        expected.sort_unstable();
        let sent = metrics.0.iter().filter(|sample| sample.name == "kube_canary_probes_sent_total");
        let mut found: Vec<_> =
            sent.map(|it| (it.label("peer_node"), it.label("protocol"), it.label("network"))).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "of {}", agent.node.name);
        let peers = |state| metrics.value("peers", &[("state", state)]);
        assert_eq!((peers("ready"), peers("unready")), (Some(2.0), Some(0.0)), "{metrics:?}");
    }
}

#[test]
fn a_dead_overlay_is_distinguished_from_a_dead_node() {
    let mesh = Mesh::new();
    let (agents, _) = agents(&mesh, |node| vec![node.ipv4()], |node| vec![node.other_ipv4()]);
    all_clean(&agents, &IPV4);
    series_are(&agents, &IPV4);
    let to_c = &agents[..2];
    let [on_node, on_pod] = IPV4;

    // Its HTTP stops with it, but the known addresses of its node stay.
    let c = mesh.node("c");
    let rules = ["icmp type echo-request drop", "tcp dport 9877 drop"];
    let rules = rules.map(|rule| format!("ip daddr {} {rule}", c.ipv4()));
    let overlay = Faults::new(&c.namespace, "eth0", &[], &rules);
    for agent in to_c {
        is_dead(agent, "c", on_pod);
        is_alive(agent, "c", on_node);
    }

    let replies = format!("ip saddr {} icmp type echo-reply drop", c.other_ipv4());
    let underlay = Faults::new(&mesh.hub, "to-c", &[], &[replies]);
    for agent in to_c {
        is_dead(agent, "c", on_node);
    }
    for (agent, peer) in pairs(&agents).filter(|(_, peer)| *peer != "c") {
        for via in IPV4 {
            let link = link(agent, peer, via);
            assert!(link.is_clean(), "{} to {peer} by {via:?}: {link:?}", agent.node.name);
        }
    }

    overlay.stop();
    underlay.stop();
    for agent in to_c {
        for via in IPV4 {
            // By then the earlier losses are decided.
            let before = link(agent, "c", via);
            wait_for(agent, "c", via, "answers", |link| link.since(before).received >= SETTLED);
            is_alive(agent, "c", via);
        }
    }
}

#[test]
fn a_replaced_pod_continues_the_series_of_its_node() {
    let mesh = Mesh::new();
    // Each node gets a third address, because the successors of the pods are at the second.
    let second_address = |node: &Node| format!("198.18.1.{}", node.ipv4().rsplit_once('.').expect("an IPv4 address").1);
    for node in &mesh.nodes {
        node.namespace.ip(&format!("address add {}/24 dev eth0\n", second_address(node)));
    }
    let (agents, list) = agents(&mesh, |node| vec![node.ipv4()], |node| vec![second_address(node)]);
    all_clean(&agents, &IPV4);
    let [on_node, on_pod] = IPV4;
    let (a, b) = (&agents[0], mesh.node("b"));
    let before = link(a, "b", on_node);

    // This is how a list shows a rollout: the old pod disappears, and some time later there is
    // another.
    let others = format!("{}{}", a.node.line(&a.node.ipv4()), mesh.node("c").line(&mesh.node("c").ipv4()));
    replace(&list, &others);
    until_so("b has left", || {
        let rows = a.json("/api/v1/peers");
        let of_b = rows["peers"].as_array().expect("peers").iter().filter(|row| row["node"] == "b");
        of_b.map(|row| &row["state"]).eq(["left", "left"])
    });
    let old_pod = format!("{}/24", b.ipv4());
    b.namespace.ip(&format!("address delete {old_pod} dev eth0\naddress replace {}/24 dev eth0\n", b.other_ipv4()));
    replace(&list, &format!("{others}{}", b.line(&b.other_ipv4())));

    for via in [on_pod, on_node] {
        is_alive(a, "b", via);
    }
    let after = link(a, "b", on_node).since(before);
    assert!(after.is_clean() && after.received >= SETTLED, "{after:?}");
}

#[test]
fn two_families_on_two_networks_are_four_sets_of_series_per_peer() {
    let mesh = Mesh::new();
    let (agents, _) =
        agents(&mesh, |node| vec![node.ipv4(), node.ipv6()], |node| vec![node.other_ipv6(), node.other_ipv4()]);
    all_clean(&agents, &DUAL_STACK);
    series_are(&agents, &DUAL_STACK);

    // Each network and family is cut by itself.
    let c = mesh.node("c");
    for (via, of_c) in DUAL_STACK.into_iter().zip([
        format!("ip daddr {} icmp type", c.other_ipv4()),
        format!("ip daddr {} icmp type", c.ipv4()),
        format!("ip6 daddr {} icmpv6 type", c.other_ipv6()),
        format!("ip6 daddr {} icmpv6 type", c.ipv6()),
    ]) {
        let faults = Faults::new(&c.namespace, "eth0", &[], &[format!("{of_c} echo-request drop")]);
        let agent = &agents[0];
        let before = DUAL_STACK.map(|via| link(agent, "c", via));
        wait_for(agent, "c", via, "losses", |link| link.lost >= 25.0);
        for (other, before) in DUAL_STACK.into_iter().zip(before).filter(|(other, _)| *other != via) {
            let link = wait_for(agent, "c", other, "answers", |link| link.since(before).received >= 25.0);
            assert!(is_zero(link.since(before).lost), "{other:?} while {via:?} is cut: {link:?}");
        }
        faults.stop();
        // The probes from before its end are decided before the next cut.
        let before = link(agent, "c", via);
        wait_for(agent, "c", via, "answers", |link| link.since(before).received >= SETTLED);
    }

    let of = |rows: &serde_json::Value| rows.as_array().expect("a list").len();
    let peers = &agents[0].json("/api/v1/peers")["peers"];
    assert_eq!(of(peers), 8, "{peers}");
    let hour = agents[0].json("/api/v1/hour/c");
    assert_eq!(of(&hour["series"]), 4, "{hour}");
    let through_b = agents[0].json("/api/v1/hour/b/c");
    assert_eq!((&through_b["source"], of(&through_b["series"])), (&"b".into(), 4), "{through_b}");
    // An agent that the machine delays for two seconds is missing. Each agent is either there or
    // missing.
    let document = agents[0].passes_on(&["a", "b", "c"]);
    let of = |list: &str| document[list].as_array().expect("a list").clone();
    let rows = of("rows").into_iter().map(|row| row["source"]["node"].clone());
    let mut nodes: Vec<_> = rows.chain(of("missing").into_iter().map(|it| it["node"].clone())).collect();
    nodes.sort_unstable_by_key(ToString::to_string);
    assert_eq!(nodes, ["a", "b", "c"], "{document}");
}
