//! Strangers that flood the probe ports of a node, and requests with the forged address of a
//! member: they take no probe of a member, blame no node, and hide no fault.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::common::process::unique;
use crate::common::until::until;
use crate::faults::Faults;
use crate::mesh::{Agent, Mesh, Node, SETTLED};
use crate::namespace::DIRECTORY;
use crate::probing::{
    LONG, PORT, TCP_PORT, Total, agent_on, agents_on, all_clean, count, evident, is_evidence, link, losses, named,
    picture, reports, watch,
};
use crate::random::Random;
use crate::udp::{REQUEST, reflector, request, settled};
use crate::verdicts::place;

/// Writes a peers file of these nodes. All others are strangers.
fn peers_file(nodes: &[&Node]) -> PathBuf {
    let path = unique(Path::new(DIRECTORY), "peers");
    let lines: String = nodes.iter().map(|node| node.line(&node.ipv4())).collect();
    fs::write(&path, lines).expect("our own directory is writable");
    path
}

fn address(node: &Node) -> Ipv4Addr {
    node.ipv4().parse().expect("IPv4")
}

// ---- handshakes of strangers ----

fn listener(node: &Node) -> SocketAddr {
    (address(node), TCP_PORT).into()
}

/// Connections of the flood that are open at once.
const OPEN: usize = 400;

/// Connects this often a second, until `stop` is set.
fn flood(to: SocketAddr, per_second: u128, stop: &AtomicBool) {
    let mut open = VecDeque::with_capacity(OPEN);
    let (begun, mut count) = (Instant::now(), 0);
    while !stop.load(Ordering::Relaxed) {
        while count < begun.elapsed().as_millis() * per_second / 1_000 {
            if open.len() == OPEN {
                open.pop_front();
            }
            let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None).expect("a socket");
            socket.set_linger(Some(Duration::ZERO)).expect("a socket of ours");
            // It is in progress, or this host has no port left for it.
            let _ = socket.connect(&to.into());
            open.push_back(socket);
            count += 1;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Sets the flag when the test ends, however it ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does `work` while a stranger floods the listener of a node.
fn beside_a_flood<T>(stranger: &Node, at: &Node, per_second: u128, work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = Stop(&stop);
        let flag = stop.0;
        scope.spawn(move || stranger.namespace.within(|| flood(listener(at), per_second, flag)));
        work()
    })
}

/// Returns how often this namespace has repeated a SYN, because the first was not answered.
fn repeated_syns(node: &Node) -> u64 {
    let text = node.namespace.within(|| fs::read_to_string("/proc/thread-self/net/netstat")).expect("it is there");
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:")).map(str::split_whitespace);
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let mut found = names.zip(values).filter(|(name, _)| *name == "TCPSynRetrans");
    found.next().expect("a counter of the kernel").1.parse().expect("a number")
}

/// Connects from a node until a handshake is answered, and waits until the agent closes it.
fn connect_until_closed(from: &Node, to: SocketAddr) {
    let mut stream = until("a handshake is answered", || {
        from.namespace
            .within(|| TcpStream::connect_timeout(&to, Duration::from_millis(500)))
            .map_err(|error| error.to_string())
    });
    stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a timeout");
    let closed = stream.read(&mut [0]);
    let is_reset = closed.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
    assert!(is_reset, "the agent closes a connection by a reset: {closed:?}");
}

#[test]
fn a_thousand_strangers_a_second_are_closed_and_take_no_handshake_of_a_member() {
    /// Handshakes of a member beside those of its agent.
    const HANDSHAKES: usize = 200;
    let _place = place();
    let mesh = Mesh::of(&["a", "b", "stranger"]);
    let (a, b, stranger) = (mesh.node("a"), mesh.node("b"), mesh.node("stranger"));
    let agents = agents_on(&[a, b], &peers_file(&[a, b]), &[]);
    all_clean(&agents, &[("tcp", 1)]);
    let repeated = repeated_syns(a);
    let handshakes = || Total::of(link(&reports(&agents), "a", "b", "tcp")).received;
    let before = handshakes();
    beside_a_flood(stranger, b, 1_000, || {
        for _ in 0..10 {
            connect_until_closed(stranger, listener(b));
        }
        for _ in 0..HANDSHAKES {
            connect_until_closed(a, listener(b));
        }
        until("the agent of a has two more handshakes", || {
            let after = handshakes();
            if after >= before + 2 { Ok(()) } else { Err(format!("{after} after {before}")) }
        });
    });
    assert_eq!(repeated_syns(a), repeated, "every first SYN of a is answered");
    let reports = reports(&agents);
    assert_eq!(count(link(&reports, "a", "b", "tcp"), "lost"), 0);
    for agent in &agents {
        let log = agent.process.log();
        // Until both agents ran, neither had a route, which one may say up to a minute later.
        let mut bad = log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR"));
        assert!(bad.all(|line| line.contains("no route")), "{log}");
    }
}

#[test]
fn a_loss_of_handshakes_is_found_beside_3000_strangers_a_second() {
    let _place = place();
    let mesh = Mesh::of(&["n1", "n2", "n3", "n4", "stranger"]);
    let nodes = ["n1", "n2", "n3", "n4"].map(|name| mesh.node(name));
    let (n1, stranger) = (nodes[0], mesh.node("stranger"));
    let agents = agents_on(&nodes, &peers_file(&nodes), &[]);
    all_clean(&agents, &[("icmp", 5), ("udp", 5), ("tcp", 1)]);
    evident(&agents);
    beside_a_flood(stranger, n1, 3_000, || {
        let expected = BTreeSet::from([named("link", "n2->n1", "tcp")]);
        let look = |faulty: bool, reports: Vec<Value>| {
            assert!(is_evidence(&reports), "n1 says that it had no room for members: {}", reports[0]["source"]);
            let found = losses(&reports);
            assert!(found.is_empty() || faulty && found == expected, "{found:?}{}", picture(&reports, "tcp"));
            Ok::<_, String>((found, Total::of(link(&reports, "n3", "n1", "tcp")).received))
        };
        // Before the fault, the flood alone is no loss.
        let (_, before) = look(false, reports(&agents)).expect("a count");
        watch(&agents, "three more handshakes beside the flood", LONG, |reports| {
            let (_, received) = look(false, reports)?;
            if received >= before + 3 { Ok(()) } else { Err(format!("{received} after {before}")) }
        });
        let rule = format!("ip saddr {} tcp dport {TCP_PORT} counter name hit drop", nodes[1].ipv4());
        let fault = Faults::new(&n1.namespace, "eth0", &["hit"], &[rule]);
        watch(&agents, "the link is named", LONG, |reports| {
            let (found, _) = look(true, reports)?;
            if found == expected { Ok(()) } else { Err("no verdict".into()) }
        });
        assert!(fault.packets("hit") >= 2.0);
    });
}

// ---- requests with the address of a member ----

/// A socket of the stranger with the address of a member. Answers go to the member, whose link
/// address the others know.
fn forged(stranger: &Node, member: &Node) -> UdpSocket {
    stranger.namespace.ip(&format!("address add {}/32 dev eth0\n", member.ipv4()));
    stranger.namespace.within(|| UdpSocket::bind((address(member), 0))).expect("a free port")
}

/// Sends a request of each session that holds a place of the member.
fn hold(forged: &UdpSocket, to: &Node) {
    for session in HELD {
        // A datagram that this host cannot send is not part of the flood.
        let _ = forged.send_to(&request(0, session, REQUEST), reflector(to));
    }
}

/// Forges requests of many sessions, and of those that hold the places of the member. They fit into
/// the queue of the reflector.
fn burst(forged: &UdpSocket, random: &mut Random, to: &Node) {
    const BURST: usize = 400;
    hold(forged, to);
    for _ in 0..BURST {
        let session = u16::try_from(random.below(1 << 16)).expect("16 bits");
        let _ = forged.send_to(&request(0, session, REQUEST), reflector(to));
    }
}

/// Two sessions of different pairs.
const HELD: [u16; 2] = [2, 4];
/// Bursts of a flood: 16,000 requests. One follows when the one before is read, and so once in an
/// interval of 100 ms.
const BURSTS: usize = 40;

/// Floods the reflector of b with requests of a, and asserts that a loses none of its own.
fn take_nothing(agents: &[Agent<'_>], forged: &UdpSocket) {
    let (a, b) = (&agents[0], &agents[1]);
    let lost = || count(link(&settled(agents), "a", "b", "udp"), "lost");
    let before = lost();
    let mut random = Random(18);
    for _ in 0..BURSTS {
        burst(forged, &mut random, b.node);
        // Once a later probe is answered, b has read the burst.
        let sent = a.metrics().link("b", "udp").sent;
        a.wait_for("b", "udp", "an answer after the burst", |link| link.received + link.lost > sent);
    }
    assert_eq!(lost(), before);
}

#[test]
fn a_flood_with_the_forged_address_of_a_member_takes_no_answer_of_that_member() {
    let _place = place();
    let mesh = Mesh::of(&["a", "b", "stranger"]);
    let (a, b) = (mesh.node("a"), mesh.node("b"));
    let agents = agents_on(&[a, b], &peers_file(&[a, b]), &["--interval", "100ms"]);
    all_clean(&agents, &[("udp", 20)]);
    take_nothing(&agents, &forged(mesh.node("stranger"), a));
}

#[test]
fn forged_requests_that_come_first_after_a_restart_take_no_answer_of_that_member() {
    let _place = place();
    let mesh = Mesh::of(&["a", "b", "stranger"]);
    let (a, b) = (mesh.node("a"), mesh.node("b"));
    let (peers, flags) = (peers_file(&[a, b]), ["--interval", "100ms"]);
    let mut agents = agents_on(&[a, b], &peers, &flags);
    all_clean(&agents, &[("udp", 20)]);
    let forged = forged(mesh.node("stranger"), a);
    // The requests of the real a do not arrive until those of the stranger are answered.
    let rule = format!("ether saddr {} ip saddr {} udp dport {PORT} drop", a.mac(), a.ipv4());
    let gate = Faults::new(&b.namespace, "eth0", &[], &[rule]);
    let rule = format!("ip saddr {} udp sport {PORT} counter name answered", b.ipv4());
    let answers = Faults::new(&a.namespace, "eth0", &["answered"], &[rule]);
    let mut ended = agents.remove(1);
    ended.process.signal(libc::SIGKILL);
    ended.process.end();
    let before = answers.packets("answered");
    agents.push(agent_on(b, &peers, &flags));
    until("the forged requests are answered", || {
        hold(&forged, b);
        let answered = answers.packets("answered") - before;
        if answered >= 2.0 { Ok(()) } else { Err(format!("{answered} answers")) }
    });
    gate.stop();
    // A place whose session is idle for 10 s is free again.
    let opened = agents[0].metrics().link("b", "udp");
    until("the probes before the gate opened are decided", || {
        hold(&forged, b);
        let since = agents[0].metrics().link("b", "udp").since(opened);
        if since.received + since.lost >= SETTLED { Ok(()) } else { Err(format!("{since:?}")) }
    });
    take_nothing(&agents, &forged);
}
