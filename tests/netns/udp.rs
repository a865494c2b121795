//! UDP probes: the direction of every loss, an agent that is stopped, and strangers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::common::process::unique;
use crate::common::scrape::{Metrics, is_zero};
use crate::common::until::until;
use crate::faults::Faults;
use crate::mesh::{Agent, Mesh, Node, SETTLED};
use crate::namespace::DIRECTORY;
use crate::probing::{
    LONG, PORT, Total, Totals, agents, agents_on, all_clean, count, is_evidence, link, links, peers_file, picture,
    reports, watch,
};
use crate::random::Random;
use crate::verdicts::{judged, list, place};

/// Asserts that what the report says of the recent window is all that the link has ever sent. So
/// it can be compared with the counters of the kernel.
fn is_whole(link: &Value) -> bool {
    count(&link["recent"], "sent") == count(link, "sent")
}

/// The losses of a link by their direction.
fn ways(link: &Value) -> [u64; 2] {
    ["lost_there", "lost_back"].map(|field| count(&link["recent"], field))
}

// ---- one-way loss, link by link ----

const MANY: [&str; 24] = [
    "m00", "m01", "m02", "m03", "m04", "m05", "m06", "m07", "m08", "m09", "m10", "m11", "m12", "m13", "m14", "m15",
    "m16", "m17", "m18", "m19", "m20", "m21", "m22", "m23",
];
/// 1,104 probes per second in all. The recent window reaches back to the start for a minute.
const MANY_INTERVAL: &str = "500ms";
/// The probes in turn and their answers, which alone are in the counts of a link. The extra probes
/// of a suspected flow, those of traces and those of the path MTU are longer, and pass.
const IN_TURN: &str = "udp length { 80, 92 }";
/// Probes of each link, most of them into the fault.
const MANY_PROBES: u64 = 60;
const PERCENT: [u64; 4] = [5, 20, 50, 100];

/// What is dropped of one link: its requests, or its answers.
#[derive(Clone, Copy, Debug)]
struct Loss {
    there: bool,
    percent: u64,
}

/// Draws the loss of every link, by the places of its source and its destination.
fn draw(random: &mut Random, nodes: usize) -> Vec<Vec<Loss>> {
    let mut one =
        || Loss { there: random.chance(50), percent: PERCENT[usize::try_from(random.below(4)).expect("small")] };
    (0..nodes).map(|_| (0..nodes).map(|_| one()).collect()).collect()
}

/// The counter of the losses of one link.
fn counter(source: &Node, destination: &Node) -> String {
    format!("{}_{}", source.name, destination.name)
}

/// Drops at the ingress of one node what the losses of its links say: requests that it is sent, and
/// answers to its own.
fn drops<'a>(mesh: &'a Mesh, drawn: &[Vec<Loss>], at: usize) -> Faults<'a> {
    let node = &mesh.nodes[at];
    let (mut counters, mut rules) = (Vec::new(), Vec::new());
    for (other_at, other) in mesh.nodes.iter().enumerate().filter(|(place, _)| *place != at) {
        let (inbound, own) = (drawn[other_at][at], drawn[at][other_at]);
        let mut drop = |port: &str, percent: u64, counter: String| {
            let from = other.ipv4();
            // nft refuses a comparison that always holds.
            let which = if percent == 100 { String::new() } else { format!("numgen random mod 100 < {percent}") };
            rules.push(format!("ip saddr {from} udp {port} {PORT} {IN_TURN} {which} counter name {counter} drop"));
            counters.push(counter);
        };
        if inbound.there {
            drop("dport", inbound.percent, counter(other, node));
        }
        if !own.there {
            drop("sport", own.percent, counter(node, other));
        }
    }
    let counters: Vec<&str> = counters.iter().map(String::as_str).collect();
    Faults::new(&node.namespace, "eth0", &counters, &rules)
}

/// Waits until every probe that was sent before is decided and two more are answered, and returns
/// the reports. An answer shows what became of the probes before the one before it.
pub fn settled(agents: &[Agent<'_>]) -> Vec<Value> {
    let wait = |what: &str, is_done: &dyn Fn(Total, Total) -> bool| {
        let before = Totals::of(&reports(agents));
        let before: BTreeMap<_, _> = before.iter().map(|(name, total)| (name.clone(), total)).collect();
        watch(agents, what, LONG, |reports| {
            let open = Totals::of(&reports).iter().filter(|(name, total)| !is_done(before[*name], *total)).count();
            if open == 0 { Ok(reports) } else { Err(format!("not on {open} links")) }
        })
    };
    wait("what was sent is decided", &|before, total| total.decided() >= before.sent);
    wait("two more are answered", &|before, total| total.received >= before.received + 2)
}

/// 552 links, each of which loses its requests or its answers: 5, 20, 50 or 100 % of them.
///
/// nft counts what it drops of each link. No loss may have the wrong direction, and each link that
/// loses has the right one. A loss may have none: extra probes beside it make some uncertain.
#[test]
fn the_direction_of_losses_is_right_on_552_links() {
    let _place = place();
    let seed = std::env::var("KUBE_CANARY_TEST_SEED").ok().map_or(1, |seed| seed.parse().expect("a number"));
    println!("KUBE_CANARY_TEST_SEED={seed}");
    let mesh = Mesh::of(&MANY);
    let drawn = draw(&mut Random(seed), MANY.len());
    let flags = ["--probes", "udp", "--interval", MANY_INTERVAL, "--max-peers", "0"];
    let agents = agents(&mesh, &peers_file(&mesh), &flags);
    // The silence of a peer that has never answered is no loss.
    all_clean(&agents, &[("udp", 1)]);
    let faults: Vec<Faults<'_>> = (0..MANY.len()).map(|at| drops(&mesh, &drawn, at)).collect();
    let all = MANY.len() * (MANY.len() - 1);
    watch(&agents, "every link has probes in the fault", LONG, |reports| {
        let totals = Totals::of(&reports);
        let (links, enough) = totals
            .iter()
            .fold((0, 0), |(links, enough), (_, total)| (links + 1, enough + usize::from(total.sent >= MANY_PROBES)));
        if (links, enough) == (all, all) { Ok(()) } else { Err(format!("{enough} of {links} links")) }
    });
    faults.iter().for_each(Faults::stop);
    let reports = settled(&agents);

    let (mut lossy, mut losses) = (0, [0, 0]);
    for (from, source) in mesh.nodes.iter().enumerate() {
        for (to, destination) in mesh.nodes.iter().enumerate().filter(|(to, _)| *to != from) {
            let of = link(&reports, source.name, destination.name, "udp");
            assert!(is_whole(of), "this machine is too slow: the recent window has lost its beginning: {of}");
            let Loss { there, percent } = drawn[from][to];
            let dropped = faults[if there { to } else { from }].packets(&counter(source, destination));
            let [lost_there, lost_back] = ways(of);
            let [right, wrong] = if there { [lost_there, lost_back] } else { [lost_back, lost_there] };
            let (name, lost) = (counter(source, destination), count(of, "lost"));
            // Probes of traces have the length of those in turn, and are in no count of the link.
            assert!(
                wrong == 0 && right <= lost && lost as f64 <= dropped && (right > 0 || lost == 0),
                "{name}: {percent} % {}: {dropped} dropped; {lost_there} lost there, {lost_back} back, {lost} in all: {of}",
                if there { "of requests" } else { "of answers" },
            );
            losses[0] += lost;
            losses[1] += right;
            lossy += usize::from(lost > 0);
        }
    }
    let [lost, right] = losses;
    println!("{lossy} of {all} links have lost packets, {lost} in all; {right} have their direction, none another");
    assert!(lossy >= 500, "{lossy} of {all}");
}

/// Both directions of one link lose at once, alike or not. Neither count is too high, and both
/// together are most of the losses.
#[test]
fn losses_in_both_directions_of_a_link_are_counted_apart() {
    const NAMES: [&str; 7] = ["a", "p1", "p2", "p3", "p4", "p5", "p6"];
    /// The percentage of requests and of answers that are lost, for each peer of `a`.
    const LOSSES: [[u64; 2]; 6] = [[20, 20], [5, 50], [50, 5], [50, 50], [90, 20], [20, 90]];
    let mesh = Mesh::of(&NAMES);
    let agents = agents(&mesh, &peers_file(&mesh), &["--interval", "200ms"]);
    // The silence of a peer that has never answered is no loss.
    all_clean(&agents, &[("udp", 1)]);
    let (a, peers) = mesh.nodes.split_first().expect("nodes");
    let drop = |port: &str, from: &Node, percent: u64, counter: &str| {
        let from = from.ipv4();
        format!(
            "ip saddr {from} udp {port} {PORT} {IN_TURN} numgen random mod 100 < {percent} counter name {counter} drop"
        )
    };
    let there = |(peer, [there, _]): (&'_ Node, [u64; 2])| {
        Faults::new(&mesh.node(peer.name).namespace, "eth0", &["there"], &[drop("dport", a, there, "there")])
    };
    let there: Vec<Faults<'_>> = peers.iter().zip(LOSSES).map(there).collect();
    let rules: Vec<String> =
        peers.iter().zip(LOSSES).map(|(peer, [_, back])| drop("sport", peer, back, peer.name)).collect();
    let back = Faults::new(&a.namespace, "eth0", &NAMES[1..], &rules);
    watch(&agents, "a has probes in the fault", LONG, |reports| {
        let totals = Totals::of(&reports);
        let of_a = totals.iter().filter(|((source, _, protocol), _)| source == "a" && protocol == "udp");
        let fewest = of_a.map(|(_, total)| total.sent).min().unwrap_or(0);
        if fewest >= 100 { Ok(()) } else { Err(format!("{fewest} probes")) }
    });
    there.iter().chain([&back]).for_each(Faults::stop);
    let reports = settled(&agents);
    for (peer, faults) in peers.iter().zip(&there) {
        let of = link(&reports, "a", peer.name, "udp");
        assert!(is_whole(of), "this machine is too slow: the recent window has lost its beginning: {of}");
        let dropped = [faults.packets("there"), back.packets(peer.name)];
        let [lost_there, lost_back] = ways(of);
        let is_right =
            [(lost_there, dropped[0]), (lost_back, dropped[1])].map(|(lost, dropped)| lost as f64 <= dropped);
        let known = lost_there + lost_back;
        assert!(is_right == [true; 2] && known * 10 >= 8 * count(of, "lost"), "{dropped:?} dropped: {of}");
        // The requests of the peers to a, and their answers, all pass.
        let other = link(&reports, peer.name, "a", "udp");
        assert_eq!((count(other, "lost"), ways(other)), (0, [0, 0]), "{other}");
    }
}

// ---- the direction in a verdict ----

const NAMES: [&str; 6] = ["n1", "n2", "n3", "n4", "n5", "n6"];
/// Decided probes of each link before its direction is judged: 20 s at this interval.
const JUDGED: u64 = 100;
const JUDGED_INTERVAL: &str = "200ms";

/// Every `of`th datagram of each stream is lost: of requests and of answers apart.
fn every(of: u64, from: &str) -> [String; 2] {
    let which = if of == 1 { String::new() } else { format!("numgen inc mod {of} == 0") };
    ["dport", "sport"].map(|port| format!("ip saddr {from} udp {port} {PORT} {which} counter name hit drop"))
}

/// Asserts that losing every `of`th datagram where `rules` say is this one verdict about UDP: its
/// kind, its subject and its direction.
fn has_direction(mesh: &Mesh, faults: &[Faults<'_>], of: u64, expected: [&str; 3]) {
    let agents = agents(mesh, &peers_file(mesh), &["--interval", JUDGED_INTERVAL]);
    let reports = watch(&agents, "every link has decided probes", LONG, |reports| {
        let totals = Totals::of(&reports);
        let by_udp = totals.iter().filter(|((_, _, protocol), _)| protocol != "tcp").map(|(_, total)| total.decided());
        let fewest = by_udp.min().unwrap_or(0);
        if fewest >= JUDGED && is_evidence(&reports) { Ok(reports) } else { Err(format!("{fewest} probes")) }
    });
    assert!(faults.iter().all(|fault| fault.packets("hit") >= 1.0), "packets are dropped");
    let found: Vec<[String; 4]> = judged(&reports, &[])
        .iter()
        .map(|verdict| {
            ["kind", "subject", "direction", "protocol"].map(|it| verdict[it].as_str().unwrap_or_default().into())
        })
        .collect();
    let [kind, subject, direction] = expected;
    assert_eq!(found, [[kind, subject, direction, "udp"]], "1 of {of}: {}", picture(&reports, "udp"));
}

/// Drops datagrams from all others on their way into n4.
fn inbound_loss_has_its_direction(of: u64) {
    let mesh = Mesh::of(&NAMES);
    let others = mesh.nodes.iter().filter(|node| node.name != "n4");
    let rules: Vec<String> = others.flat_map(|node| every(of, &node.ipv4())).collect();
    let faults = Faults::new(&mesh.node("n4").namespace, "eth0", &["hit"], &rules);
    has_direction(&mesh, &[faults], of, ["node", "n4", "in"]);
}

/// Drops datagrams of n4 at all others.
fn outbound_loss_has_its_direction(of: u64) {
    let mesh = Mesh::of(&NAMES);
    let from = mesh.node("n4").ipv4();
    let others = mesh.nodes.iter().filter(|node| node.name != "n4");
    let faults: Vec<_> = others.map(|node| Faults::new(&node.namespace, "eth0", &["hit"], &every(of, &from))).collect();
    has_direction(&mesh, &faults, of, ["node", "n4", "out"]);
}

/// Drops datagrams from n5 to n2.
fn loss_of_a_link_has_its_direction(of: u64) {
    let mesh = Mesh::of(&NAMES);
    let faults = Faults::new(&mesh.node("n2").namespace, "eth0", &["hit"], &every(of, &mesh.node("n5").ipv4()));
    has_direction(&mesh, &[faults], of, ["link", "n5->n2", "out"]);
}

#[test]
fn inbound_loss_of_5_percent_at_a_node_has_its_direction() {
    inbound_loss_has_its_direction(20);
}

#[test]
fn inbound_loss_of_20_percent_at_a_node_has_its_direction() {
    inbound_loss_has_its_direction(5);
}

#[test]
fn inbound_loss_of_all_at_a_node_has_its_direction() {
    inbound_loss_has_its_direction(1);
}

#[test]
fn outbound_loss_of_5_percent_at_a_node_has_its_direction() {
    outbound_loss_has_its_direction(20);
}

#[test]
fn outbound_loss_of_50_percent_at_a_node_has_its_direction() {
    outbound_loss_has_its_direction(2);
}

#[test]
fn loss_of_5_percent_on_a_link_has_its_direction() {
    loss_of_a_link_has_its_direction(20);
}

#[test]
fn loss_of_20_percent_on_a_link_has_its_direction() {
    loss_of_a_link_has_its_direction(5);
}

#[test]
fn loss_of_half_on_a_link_has_its_direction() {
    loss_of_a_link_has_its_direction(2);
}

#[test]
fn loss_of_all_on_a_link_has_its_direction() {
    loss_of_a_link_has_its_direction(1);
}

// ---- a far agent that stands still ----

/// Times that the far agent is stopped.
const STOPS: usize = 20;
const STOPPED: Duration = Duration::from_millis(500);

#[test]
fn a_far_agent_that_is_stopped_for_half_a_second_delays_and_loses_nothing() {
    let _place = place();
    let mesh = Mesh::of(&["a", "b"]);
    // A machine that keeps this test from its CPU must not make a stop as long as the timeout.
    let agents = agents(&mesh, &peers_file(&mesh), &["--interval", "100ms", "--timeout", "5s"]);
    all_clean(&agents, &[("icmp", 20), ("udp", 20)]);
    let (a, b) = (&agents[0], &agents[1]);
    let before = a.metrics();
    for _ in 0..STOPS {
        let sent = a.metrics().link("b", "udp").sent;
        b.process.signal(libc::SIGSTOP);
        thread::sleep(STOPPED);
        b.process.signal(libc::SIGCONT);
        a.wait_for("b", "udp", "answers after the stop", |link| link.received >= sent + 10.0);
    }
    let reports = settled(&agents);
    for (source, peer) in [("a", "b"), ("b", "a")] {
        let of = link(&reports, source, peer, "udp");
        assert_eq!((count(of, "lost"), count(of, "late")), (0, 0), "{of}");
    }
    let after = a.metrics();
    let counted = |name: &str, labels: &[(&str, &str)]| {
        let labels = [&[("peer_node", "b"), ("protocol", "udp")], labels].concat();
        let value = |metrics: &Metrics| metrics.value(name, &labels).expect("it is there");
        value(&after) - value(&before)
    };
    let answered = counted("probe_rtt_seconds_count", &[]);
    let slow = answered - counted("probe_rtt_seconds_bucket", &[("le", "0.05")]);
    // Four answers in five would be, if the wait at the far end counted. A stop between the far
    // agent's reading of the clock and its answer counts, which is rare.
    let stops = STOPS as f64;
    assert!(answered >= 10.0 * stops, "{answered} answers");
    println!("{slow} of {answered} answers took longer than 50 ms");
    assert!(slow <= stops / 2.0, "{slow} of {answered} answers took longer than 50 ms");
}

// ---- strangers ----

/// Bytes of a request: the base of RFC 8762, a TLV's header, and what identifies the probe.
pub const REQUEST: usize = 72;
/// Bytes of the base alone.
const BASE: usize = 44;

/// A request of RFC 8762, with this SSID.
pub fn request(sequence: u32, session: u16, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length.max(BASE)];
    bytes[..4].copy_from_slice(&sequence.to_be_bytes());
    // An NTP time of this century, and an error estimate that is not 0.
    bytes[4..8].copy_from_slice(&0xe900_0000_u32.to_be_bytes());
    bytes[12..14].copy_from_slice(&[0x3f, 0xff]);
    bytes[14..16].copy_from_slice(&session.to_be_bytes());
    if length >= BASE + 4 {
        // Extra Padding (RFC 8972, 4.1), whose length is that of the rest.
        bytes[BASE + 1] = 1;
        let rest = u16::try_from(length - BASE - 4).expect("a datagram");
        bytes[BASE + 2..BASE + 4].copy_from_slice(&rest.to_be_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A socket in the namespace of a node.
fn socket(node: &Node) -> UdpSocket {
    let socket = node.namespace.within(|| UdpSocket::bind((node.ipv4().parse::<Ipv4Addr>().expect("IPv4"), 0)));
    let socket = socket.expect("a free port");
    socket.set_nonblocking(true).expect("a socket of ours");
    socket
}

/// Returns the lengths of all datagrams that wait.
fn received(socket: &UdpSocket) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut bytes = [0; 2_048];
    loop {
        match socket.recv(&mut bytes) {
            Ok(length) => lengths.push(length),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return lengths,
            // What an ICMP error has left.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => panic!("a socket of ours: {error}"),
        }
    }
}

pub fn reflector(node: &Node) -> SocketAddr {
    SocketAddr::new(node.ipv4().parse().expect("an address"), PORT)
}

/// Starts agents on a and b. The others of the mesh are no members.
fn two_agents(mesh: &Mesh) -> Vec<Agent<'_>> {
    let path = unique(Path::new(DIRECTORY), "peers");
    let nodes = ["a", "b"].map(|name| mesh.node(name));
    let lines: String = nodes.map(|node| node.line(&node.ipv4())).concat();
    fs::write(&path, lines).expect("our own directory is writable");
    agents_on(&nodes, &path, &["--interval", "100ms"])
}

#[test]
fn a_flood_of_a_stranger_gets_no_answer_and_no_member_loses_a_probe() {
    /// Datagrams of the flood. The queue of a socket has room for a few hundred.
    const FLOOD: u32 = 200_000;
    /// Datagrams after which the flood waits until as many probes are answered.
    const BURST: u32 = 20_000;
    let _place = place();
    let mesh = Mesh::of(&["a", "b", "stranger"]);
    let agents = two_agents(&mesh);
    all_clean(&agents, &[("icmp", 20), ("udp", 20)]);
    let (a, b, stranger) = (&agents[0], &agents[1], mesh.node("stranger"));
    let rule = format!("ip saddr {} udp dport {PORT} counter name arrived", stranger.ipv4());
    let seen = Faults::new(&b.node.namespace, "eth0", &["arrived"], &[rule]);
    // Sockets of many ports, as of many sessions.
    let sockets: Vec<UdpSocket> = (0..32).map(|_| socket(stranger)).collect();
    let to = reflector(b.node);
    let mut answers = Vec::new();
    for number in 0..FLOOD {
        let socket = &sockets[number as usize % sockets.len()];
        let session = u16::try_from(number % 1_000 + 1).expect("16 bits");
        // A datagram that this host cannot send is not part of the flood.
        let _ = socket.send_to(&request(number, session, REQUEST), to);
        if number % BURST == BURST - 1 {
            let sent = a.link("b").sent;
            a.wait_for("b", "icmp", "echoes between two bursts", |link| link.sent >= sent + 5.0);
            answers.extend(sockets.iter().flat_map(received));
        }
    }
    let arrived = seen.packets("arrived");
    assert!(arrived >= f64::from(FLOOD) / 2.0, "{arrived} datagrams of the flood have arrived");
    settled(&agents);
    answers.extend(sockets.iter().flat_map(received));
    assert!(answers.is_empty(), "a stranger is answered: {answers:?}");
    let reports = settled(&agents);
    for (source, peer) in [("a", "b"), ("b", "a")] {
        let of = link(&reports, source, peer, "udp");
        assert_eq!(count(of, "lost"), 0, "{of}");
    }
    // The members' own requests are answered after the flood as before.
    let after = a.watch("b", "udp", SETTLED);
    assert!(is_zero(after.lost) && after.received >= 1.0, "{after:?}");
}

/// The UDP ports in use on a node, without that of the reflector.
fn udp_ports(node: &Node) -> Vec<u16> {
    let table = node.namespace.within(|| fs::read_to_string("/proc/thread-self/net/udp")).expect("it is there");
    let port = |line: &str| {
        let local = line.split_whitespace().nth(1).expect("a local address");
        u16::from_str_radix(local.rsplit(':').next().expect("a port"), 16).expect("hexadecimal")
    };
    table.lines().skip(1).map(port).filter(|port| *port != PORT).collect()
}

#[test]
fn a_flood_of_the_ports_of_probes_fills_no_queue() {
    /// Datagrams for each port. The queue of a socket has room for a few hundred.
    const FLOOD: usize = 5_000;
    let _place = place();
    let mesh = Mesh::of(&["a", "b", "stranger"]);
    let agents = two_agents(&mesh);
    all_clean(&agents, &[("icmp", 20), ("udp", 20)]);
    let (a, stranger) = (&agents[0], mesh.node("stranger"));
    let address: Ipv4Addr = stranger.ipv4().parse().expect("IPv4");
    // The port is that of a reflector. The address is not that of a peer.
    let flood = stranger.namespace.within(|| UdpSocket::bind((address, PORT))).expect("a free port");
    let ports = udp_ports(a.node);
    assert!(ports.len() >= 16, "{ports:?}");
    let to: Ipv4Addr = a.node.ipv4().parse().expect("IPv4");
    for port in ports {
        for _ in 0..FLOOD {
            let _ = flood.send_to(&[0; REQUEST], (to, port));
        }
    }
    a.watch("b", "udp", SETTLED);
    let reports = settled(&agents);
    let of = link(&reports, "a", "b", "udp");
    assert_eq!(count(of, "lost"), 0, "{of}");
    let drops = a.metrics().value("receive_queue_drops_total", &[]).expect("it is there");
    assert!(is_zero(drops), "{drops} packets of the flood were dropped from a queue");
}

#[test]
fn an_answer_is_never_longer_than_its_request_and_a_short_request_gets_none() {
    let mesh = Mesh::of(&["a", "b", "stranger"]);
    let agents = two_agents(&mesh);
    all_clean(&agents, &[("udp", 20)]);
    let (a, b) = (mesh.node("a"), mesh.node("b"));
    let member = socket(a);
    // Each length until it is answered, because a member's requests are limited in number.
    for length in [BASE, BASE + 4, REQUEST, 128, 500, 1_200] {
        // A request that looks for the path MTU is large, and its answer is not.
        let is_fair = |got: &[usize]| {
            let exact = |of: &usize| if length <= REQUEST { *of == length } else { (BASE..=length).contains(of) };
            assert!(got.iter().all(exact), "{length} bytes are answered by {got:?}");
        };
        let mut sequence = 0;
        let got = until(&format!("{length} bytes are answered"), || {
            member.send_to(&request(sequence, 7, length), reflector(b)).expect("it is sent");
            sequence += 1;
            thread::sleep(Duration::from_millis(300));
            let got = received(&member);
            if got.is_empty() { Err("no answer".into()) } else { Ok(got) }
        });
        is_fair(&got);
        // What is still on its way belongs to this length.
        until("nothing more comes", || {
            thread::sleep(Duration::from_millis(600));
            let got = received(&member);
            is_fair(&got);
            if got.is_empty() { Ok(()) } else { Err("answers".to_owned()) }
        });
    }
    let before = link(&settled(&agents), "a", "b", "udp").clone();
    for length in [0, 1, 14, BASE - 1] {
        let short = if length < BASE { vec![0; length] } else { request(0, 7, length) };
        for _ in 0..8 {
            member.send_to(&short, reflector(b)).expect("it is sent");
        }
    }
    // By the answers to later probes of the agent, the reflector has read these.
    agents[0].watch("b", "udp", SETTLED);
    let answers = received(&member);
    assert!(answers.is_empty(), "a short request is answered: {answers:?}");
    let reports = settled(&agents);
    let now = Total::of(link(&reports, "a", "b", "udp")).since(Total::of(&before));
    assert_eq!(now.lost, 0, "a foreign session of the same address takes nothing from the agent's own: {now:?}");
    let protocols: BTreeSet<_> = links(&reports).map(|((_, _, protocol), _)| protocol).collect();
    assert_eq!(protocols.len(), 3, "{protocols:?}");
    assert_eq!(list(&reports[0], "peers").len(), 3, "a foreign session makes no peer");
}
