//! `kube-canary fleet` and `doctor` as in a pod: they find every agent of a Service by the servers
//! of resolv.conf.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::common::process::unique;
use crate::common::until::{PATIENCE, until, until_within};
use crate::faults::Faults;
use crate::mesh::{Agent, Mesh, Node, SETTLED, Socket, all_clean, pairs};
use crate::namespace::{DIRECTORY, run};
use crate::rows::{self, Finding, finding, is_the_only_subject};

const SERVICE: &str = "kube-canary.agents.svc.cluster.local";
/// Probes in which the recent window and the timeout pass. At 20 ms the window is 7.1 s at most,
/// and the timeout is 1 s.
const WINDOW: f64 = 450.0;

/// Answers DNS questions at port 53 until `stop` is set: A records of [`SERVICE`],
/// and no other records.
fn serve_names(socket: &UdpSocket, addresses: &[Ipv4Addr], stop: &AtomicBool) {
    let mut query = [0; 512];
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, client)) = socket.recv_from(&mut query) else { continue };
        let (mut labels, mut at) = (Vec::new(), 12);
        while query[at] > 0 {
            let end = at + 1 + usize::from(query[at]);
            labels.push(String::from_utf8_lossy(&query[at + 1..end]).into_owned());
            at = end;
        }
        let (known, of_ipv4) = (labels.join(".") == SERVICE, query[at + 1..at + 3] == [0, 1]);
        let found = if known && of_ipv4 { addresses } else { &[] };
        let code = if known { 0x80 } else { 0x83 };
        let count = u8::try_from(found.len()).expect("a few");
        let mut answer = vec![query[0], query[1], 0x81, code, 0, 1, 0, count, 0, 0, 0, 0];
        answer.extend_from_slice(&query[12..(at + 5).min(length)]);
        for address in found {
            answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4]);
            answer.extend_from_slice(&address.octets());
        }
        socket.send_to(&answer, client).expect("it is sent");
    }
}

/// Runs a command line of ours on `node`, whose resolv.conf names a server there that knows the
/// Service. Returns its exit code and its JSON.
fn ask(mesh: &Mesh, node: &Node, line: &[&str]) -> (Option<i32>, Value) {
    let addresses: Vec<Ipv4Addr> = mesh.nodes.iter().map(|node| node.ipv4().parse().expect("an address")).collect();
    let stop = AtomicBool::new(false);
    // Between its fork and its exec, a process that another test starts has the socket of the last
    // call as well.
    let socket = until("nobody else serves names", || {
        node.namespace.within(|| UdpSocket::bind((Ipv4Addr::LOCALHOST, 53))).map_err(|error| error.to_string())
    });
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    let output = thread::scope(|scope| {
        scope.spawn(|| serve_names(&socket, &addresses, &stop));
        let mut asking = node.namespace.command(env!("CARGO_BIN_EXE_kube-canary"));
        asking.args(line).arg("--json").env("POD_NAMESPACE", "agents").stderr(Stdio::inherit());
        let output = asking.output();
        stop.store(true, Ordering::Relaxed);
        output.expect("it runs")
    });
    let text = String::from_utf8(output.stdout).expect("text");
    (output.status.code(), serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

/// The losses that the reports of all agents show, by the library and by `doctor`.
fn losses(agents: &[Agent<'_>], node: &Node) -> BTreeSet<Finding> {
    let rows: Vec<Value> = agents.iter().map(|agent| agent.json("/api/v1/peers")).collect();
    let mut doctor = node.namespace.command(env!("CARGO_BIN_EXE_kube-canary"));
    let found = rows::losses(&rows);
    assert_eq!(rows::losses_by_doctor(&rows, &mut doctor), found, "by doctor, and by the library");
    found
}

/// The losses that `doctor` names on `node`, where it asks all agents of the Service itself. Its
/// exit code must agree with its verdicts.
fn losses_by_doctor(mesh: &Mesh, node: &Node) -> BTreeSet<Finding> {
    let (code, report) = ask(mesh, node, &["doctor", "--collect"]);
    // On a busy machine it reports that agents are starved, which is no loss.
    let is_well = report["state"] == "well";
    assert_eq!((code, report["rows"].as_u64()), (Some(i32::from(!is_well)), Some(3)), "{report:#}");
    rows::losses_in(&report["verdicts"])
}

/// Sets the name servers of this process and its children alone: its mounts are its own.
fn name_servers_are_local() {
    let file = unique(Path::new(DIRECTORY), "resolv");
    fs::write(
        &file,
        "nameserver 127.0.0.1\nsearch default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n",
    )
    .expect("our own directory is writable");
    run(Command::new("mount").arg("--bind").arg(&file).arg("/etc/resolv.conf"), "");
}

#[test]
fn inbound_loss_at_a_node_is_visible_at_that_node_by_default() {
    name_servers_are_local();
    let mesh = Mesh::new();
    let peers = mesh.peers_file(|node| vec![node.ipv4()]);
    let agents = mesh.agents(Socket::Ping, &peers, 9_877, &["--listen", "0.0.0.0:9877"]);
    all_clean(&agents, "icmp", SETTLED);

    let (code, rows) = ask(&mesh, mesh.node("b"), &["fleet"]);
    let rows = rows.as_array().expect("rows");
    let mut nodes: Vec<&str> = rows.iter().filter_map(|row| row["node"].as_str()).collect();
    nodes.sort_unstable();
    assert_eq!((code, nodes), (Some(0), vec!["a", "b", "c"]), "{rows:?}");
    assert!(rows.iter().all(|row| row["loss"].as_f64() == Some(0.0) && row["links"].as_u64() == Some(2)), "{rows:?}");
    assert_eq!(losses_by_doctor(&mesh, mesh.node("b")), BTreeSet::new());
    assert_eq!(losses(&agents, mesh.node("b")), BTreeSet::new());

    // Packets are counted, not random: each stream loses exactly every fifth packet.
    let stream = |(node, kind): (&str, &str)| {
        let address = mesh.node(node).ipv4();
        format!("ip saddr {address} icmp type {kind} numgen inc mod 5 < 1 counter name dropped drop")
    };
    let streams = [("a", "echo-request"), ("a", "echo-reply"), ("b", "echo-request"), ("b", "echo-reply")];
    let _faults = Faults::new(&mesh.node("c").namespace, "eth0", &["dropped"], &streams.map(stream));
    let before: Vec<_> = pairs(&agents).map(|(agent, peer)| agent.link(peer)).collect();
    for ((agent, peer), before) in pairs(&agents).zip(before) {
        agent.wait_for(peer, "icmp", "a full window", |link| link.since(before).sent >= WINDOW);
    }
    let (code, rows) = ask(&mesh, mesh.node("b"), &["fleet"]);
    for row in rows.as_array().expect("rows").iter().filter(|row| row["node"] != "c") {
        assert_eq!(row["worst_peer"], "c", "{rows}");
        assert!(row["worst_peer_loss"].as_f64() > Some(0.0), "{rows}");
    }
    assert_eq!(code, Some(0));
    let found = losses_by_doctor(&mesh, mesh.node("b"));
    assert!(is_the_only_subject("c", &found), "{found:?}");
    // The node is certain at any time. The direction is certain if no agent was blocked within the
    // window.
    let (named, either) = (finding("node", "c", "in"), finding("node", "c", "both"));
    until_within(PATIENCE * 10, "the node and the way", || {
        let found = losses(&agents, mesh.node("b"));
        assert!(found.len() == 1 && (found.contains(&named) || found.contains(&either)), "{found:?}");
        if found.contains(&named) { Ok(()) } else { Err(format!("{found:?}")) }
    });
}
