//! Faults of one protocol, or of UDP and TCP at once, while ICMP passes: each is one verdict about
//! what is lost. Between two nodes, at one node, and everywhere.
//!
//! The agents run at the default interval. A verdict must be there once every affected link has
//! sent 20 UDP probes into the fault, which takes 20 s, or has lost two handshakes, of which there
//! is one every 10 s. So a machine that delays the agents or the test delays the judgement and
//! changes nothing else.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::checksums::{broken, compute_in_software, refused_datagrams};
use crate::common::scrape::is_zero;
use crate::common::until::until;
use crate::faults::Faults;
use crate::mesh::{Agent, INTERVAL, Mesh, Node, SETTLED, Socket, pairs};
use crate::probing::{
    LONG, LinkName, Named, PORT, TCP_PORT, Total, Totals, agents, all_clean, evident, in_short, links, losses, named,
    peers_file, picture, reports, watch,
};
use crate::rows;
use crate::verdicts::list;

const NAMES: [&str; 6] = ["n1", "n2", "n3", "n4", "n5", "n6"];
/// UDP probes of each affected link within which the fault is named: 20 s.
const PROBES: u64 = 20;
/// Of those, the last are not decided yet: the timeout is 1 s, and an agent may take 1 s to answer.
const OPEN: u64 = 4;
/// Lost handshakes of each affected link within which the fault is named.
const HANDSHAKES: u64 = 2;

/// Where packets are dropped.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// Between n2 and n5.
    Pair,
    /// From and to n4.
    Node,
    Everywhere,
}

impl Place {
    fn has(self, from: &str, to: &str) -> bool {
        match self {
            Self::Pair => matches!((from, to), ("n2", "n5") | ("n5", "n2")),
            Self::Node => from == "n4" || to == "n4",
            Self::Everywhere => true,
        }
    }

    /// The kind of the verdict, and the subjects that it may have.
    fn verdict(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Pair => ("link", &["n2->n5", "n5->n2"]),
            Self::Node => ("node", &["n4"]),
            Self::Everywhere => ("mesh", &["*"]),
        }
    }
}

/// What is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// All datagrams.
    Udp,
    /// Handshakes with the probe port. The reports pass.
    Tcp,
    /// Both of these.
    Both,
    /// All of TCP, the reports included.
    AllTcp,
    /// All of UDP and TCP, the reports included, by their checksums.
    Checksums,
}

impl Fault {
    fn protocols(self) -> &'static [&'static str] {
        match self {
            Self::Udp => &["udp"],
            Self::Tcp | Self::AllTcp => &["tcp"],
            Self::Both | Self::Checksums => &["udp", "tcp"],
        }
    }

    /// The rules for packets that match `packets`, at the ingress of their destination.
    fn rules(self, packets: &str) -> Vec<String> {
        let drop = |what: String| format!("{packets} {what} counter name hit drop");
        let (udp, tcp) = (drop("meta l4proto udp".into()), drop(format!("tcp dport {TCP_PORT}")));
        match self {
            Self::Udp => vec![udp],
            Self::Tcp => vec![tcp],
            Self::Both => vec![udp, tcp],
            Self::AllTcp => vec![drop("meta l4proto tcp".into())],
            Self::Checksums => broken(packets, "hit").into(),
        }
    }

    /// Number of reports that the agent of n1 reads during the fault.
    fn reports(self, place: Place) -> usize {
        match (self, place) {
            (Self::Udp | Self::Tcp | Self::Both, _) | (_, Place::Pair) => NAMES.len(),
            (_, Place::Node) => NAMES.len() - 1,
            (_, Place::Everywhere) => 1,
        }
    }

    /// Begins at `node`, for the packets of the nodes that `place` has.
    fn begin<'a>(self, mesh: &Mesh, node: &'a Node, place: Place) -> Option<Faults<'a>> {
        let from = mesh.nodes.iter().filter(|other| other.name != node.name && place.has(other.name, node.name));
        let addresses: Vec<String> = from.map(Node::ipv4).collect();
        let packets = format!("ip saddr {{ {} }}", addresses.join(", "));
        (!addresses.is_empty()).then(|| Faults::new(&node.namespace, "eth0", &["hit"], &self.rules(&packets)))
    }
}

/// Whether a link has sent and lost enough for the verdict.
fn is_long_enough(protocol: &str, total: Total) -> bool {
    match protocol {
        "udp" => total.sent >= PROBES && total.lost + OPEN >= PROBES,
        _ => total.lost >= HANDSHAKES,
    }
}

/// Returns the reports of the agents as soon as every affected link has lost enough. Asserts that
/// no other link has lost anything, and that the fault is not taken for that of a path meanwhile.
fn into_the_fault(agents: &[Agent<'_>], fault: Fault, place: Place, before: &Totals) -> Vec<Value> {
    watch(agents, &format!("{fault:?} is lost: {place:?}"), LONG, |reports| {
        let (mut enough, mut affected) = (0, 0);
        let totals = Totals::of(&reports);
        for ((source, peer, protocol), total) in totals.since(before) {
            if place.has(source, peer) && fault.protocols().contains(&protocol.as_str()) {
                affected += 1;
                enough += usize::from(is_long_enough(protocol, total));
            } else {
                assert_eq!(total.lost, 0, "{source} to {peer} by {protocol}: {total:?}");
            }
        }
        let found = losses(&reports);
        assert!(!found.iter().any(|(kind, ..)| kind == "flow" || kind == "paths"), "{fault:?}, {place:?}: {found:?}");
        if enough == affected { Ok(reports) } else { Err(format!("{enough} of {affected} links have lost enough")) }
    })
}

/// Asserts that there is one verdict, about the protocols that are dropped, and no other about
/// losses.
fn is_named(found: &BTreeSet<Named>, fault: Fault, place: Place, reports: &[Value]) {
    let (kind, subjects) = place.verdict();
    let protocols = fault.protocols().join("+");
    let is_one = |subject: &&&str| *found == BTreeSet::from([named(kind, subject, &protocols)]);
    let pictures: String = fault.protocols().iter().map(|protocol| picture(reports, protocol)).collect();
    assert!(subjects.iter().any(|subject| is_one(&subject)), "{fault:?}, {place:?}: {found:?}{pictures}");
}

/// Returns the verdicts that follow from the reports that an agent passes on, whatever the agents
/// record of their own lag.
fn of_document(document: &Value) -> BTreeSet<Named> {
    let reports: Vec<Value> = list(document, "rows").iter().map(rows::without_lag).collect();
    let verdicts = rows::judge(&reports, list(document, "missing"));
    in_short(verdicts.as_array().expect("a list"))
}

fn is_one_verdict(fault: Fault, place: Place) {
    let mesh = Mesh::of(&NAMES);
    if fault == Fault::Checksums {
        for node in &mesh.nodes {
            compute_in_software(&node.namespace, "eth0");
        }
    }
    let agents = agents(&mesh, &peers_file(&mesh), &[]);
    all_clean(&agents, &[("icmp", 5), ("udp", 5), ("tcp", 1)]);
    let clean = evident(&agents);
    assert_eq!(losses(&clean), BTreeSet::new(), "before the fault");

    let faults: Vec<_> = mesh.nodes.iter().filter_map(|node| fault.begin(&mesh, node, place)).collect();
    let reports = into_the_fault(&agents, fault, place, &Totals::of(&clean));
    assert!(faults.iter().all(|fault| fault.packets("hit") >= 1.0), "every node concerned loses packets");
    if fault == Fault::Checksums {
        let refused = mesh.nodes.iter().map(|node| refused_datagrams(&node.namespace)).sum::<u64>();
        assert!(refused >= PROBES, "the kernels refuse the checksums of {refused} datagrams");
    }
    is_named(&losses(&reports), fault, place, &reports);
    // Missing reports are no further cause.
    let collected = until("an agent has the reports that pass", || {
        let document = agents[0].passes_on(&NAMES);
        let is_all = list(&document, "rows").len() == fault.reports(place);
        if is_all { Ok(document) } else { Err(document["missing"].to_string()) }
    });
    let found = of_document(&collected);
    is_named(&found, fault, place, list(&collected, "rows"));
    println!("{fault:?}, {place:?}: {found:?}");
}

#[test]
fn datagrams_dropped_between_two_nodes_are_a_link_verdict_about_udp() {
    is_one_verdict(Fault::Udp, Place::Pair);
}

#[test]
fn datagrams_dropped_at_a_node_are_a_node_verdict_about_udp() {
    is_one_verdict(Fault::Udp, Place::Node);
}

#[test]
fn datagrams_dropped_everywhere_are_a_mesh_verdict_about_udp() {
    is_one_verdict(Fault::Udp, Place::Everywhere);
}

#[test]
fn handshakes_dropped_between_two_nodes_are_a_link_verdict_about_tcp() {
    is_one_verdict(Fault::Tcp, Place::Pair);
}

#[test]
fn handshakes_dropped_at_a_node_are_a_node_verdict_about_tcp() {
    is_one_verdict(Fault::Tcp, Place::Node);
}

#[test]
fn handshakes_dropped_everywhere_are_a_mesh_verdict_about_tcp() {
    is_one_verdict(Fault::Tcp, Place::Everywhere);
}

#[test]
fn both_dropped_between_two_nodes_are_one_link_verdict() {
    is_one_verdict(Fault::Both, Place::Pair);
}

#[test]
fn both_dropped_at_a_node_are_one_node_verdict() {
    is_one_verdict(Fault::Both, Place::Node);
}

#[test]
fn both_dropped_everywhere_are_one_mesh_verdict() {
    is_one_verdict(Fault::Both, Place::Everywhere);
}

#[test]
fn broken_checksums_between_two_nodes_are_one_link_verdict() {
    is_one_verdict(Fault::Checksums, Place::Pair);
}

#[test]
fn broken_checksums_at_a_node_are_one_node_verdict() {
    is_one_verdict(Fault::Checksums, Place::Node);
}

#[test]
fn broken_checksums_everywhere_are_one_mesh_verdict() {
    is_one_verdict(Fault::Checksums, Place::Everywhere);
}

#[test]
fn all_tcp_dropped_at_a_node_is_a_node_verdict_about_tcp_though_its_report_is_missing() {
    is_one_verdict(Fault::AllTcp, Place::Node);
}

#[test]
fn all_tcp_dropped_everywhere_is_a_mesh_verdict_about_tcp_though_one_report_is_left() {
    is_one_verdict(Fault::AllTcp, Place::Everywhere);
}

/// The node answers echo requests. Its kernel completes the handshakes with a frozen agent, and
/// refuses those with one that does not run.
fn is_about_the_agent_alone(signal: i32) {
    let mesh = Mesh::of(&NAMES);
    let agents = agents(&mesh, &peers_file(&mesh), &[]);
    all_clean(&agents, &[("icmp", 5), ("udp", 5), ("tcp", 1)]);
    evident(&agents);
    let (others, stopped) = agents.split_at(NAMES.len() - 1);
    stopped[0].process.signal(signal);
    let before = Totals::of(&reports(others));
    watch(others, "the agent's probes are lost", LONG, |reports| {
        let totals = Totals::of(&reports);
        let is_lost = |(source, peer, protocol): &LinkName| peer == "n6" && source != "n6" && protocol == "udp";
        let lost = totals.since(&before).filter(|(name, total)| is_lost(name) && total.lost >= PROBES).count();
        if lost == others.len() { Ok(()) } else { Err(format!("{lost} links have lost enough")) }
    });
    let document = others[0].passes_on(&NAMES);
    let expected = BTreeSet::from([named("agent_unreachable", "n6", "")]);
    assert_eq!(of_document(&document), expected, "{document}");
    stopped[0].process.signal(libc::SIGKILL);
}

#[test]
fn a_frozen_agent_is_no_fault_of_udp_or_tcp() {
    is_about_the_agent_alone(libc::SIGSTOP);
}

#[test]
fn a_killed_agent_is_no_fault_of_udp_or_tcp() {
    is_about_the_agent_alone(libc::SIGKILL);
}

/// The labels of both families.
const FAMILIES: [[&str; 3]; 2] = [["icmp", "udp", "tcp"], ["icmpv6", "udpv6", "tcpv6"]];

#[test]
fn a_dual_stack_peer_is_measured_by_every_protocol_of_both_families() {
    let mesh = Mesh::new();
    // Every node has a second address of each family. The kernel would send from that of IPv6, and
    // would get no answer.
    let peers = mesh.peers_file(|node| vec![node.ipv4(), node.ipv6()]);
    let agents = agents(&mesh, &peers, &["--interval", INTERVAL]);
    let answers: Vec<(&str, u64)> = FAMILIES
        .concat()
        .into_iter()
        .map(|protocol| (protocol, if protocol.starts_with("tcp") { 1 } else { 75 }))
        .collect();
    all_clean(&agents, &answers);

    let rule = format!("ip6 nexthdr udp udp dport {PORT} counter name hit drop");
    let faults = Faults::new(&mesh.node("c").namespace, "eth0", &["hit"], &[rule]);
    for agent in &agents[..2] {
        agent.wait_for("c", "udpv6", "losses", |link| link.lost >= SETTLED);
    }
    assert!(faults.packets("hit") >= SETTLED, "{}", faults.packets("hit"));
    for (agent, peer) in pairs(&agents) {
        let metrics = agent.metrics();
        for protocol in FAMILIES.concat().into_iter().filter(|protocol| peer != "c" || *protocol != "udpv6") {
            let link = metrics.link(peer, protocol);
            assert!(
                is_zero(link.lost) && link.received >= 1.0,
                "{} to {peer} by {protocol}: {link:?}",
                agent.node.name
            );
        }
    }
}

#[test]
fn an_agent_has_links_of_its_own_protocols_alone() {
    let mesh = Mesh::of(&NAMES[..2]);
    let peers = peers_file(&mesh);
    let port = |flags: &[&'static str]| [&["--listen", "[::]:9877"], flags].concat();
    let start = |node, flags: &[&'static str]| Agent::start(node, Socket::Ping, &peers, PORT, &port(flags));
    let all = start(mesh.node("n1"), &["--probes", "icmp,udp,tcp"]);
    let few = start(mesh.node("n2"), &["--probes", "udp", "--flows", "1"]);
    few.wait_for("n1", "udp", "answers", |link| link.received >= SETTLED);
    all.wait_for("n2", "icmp", "answers", |link| link.received >= SETTLED);
    let reports: Vec<Value> = [&all, &few].map(|agent| agent.json("/api/v1/peers")).into();
    let names: BTreeSet<LinkName> = links(&reports).map(|(name, _)| name).collect();
    let expected = [("n1", "n2", "icmp"), ("n1", "n2", "udp"), ("n1", "n2", "tcp"), ("n2", "n1", "udp")];
    let expected = expected.map(|(source, peer, protocol)| (source.into(), peer.into(), protocol.into()));
    assert_eq!(names, expected.into());
}
