//! `kube-canary fleet` and `doctor` as in a pod: every canary of a Service, found by the servers of resolv.conf.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::common::process::unique;
use crate::common::until::{PATIENCE, until_within};
use crate::faults::Faults;
use crate::mesh::{Mesh, Node, SETTLED, Socket, all_clean};
use crate::namespace::{DIRECTORY, run};

const SERVICE: &str = "kube-canary.canaries.svc.cluster.local";

/// Answers what is asked at port 53 until it is told to stop: A records of [`SERVICE`], and that nothing else is there.
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

/// Runs a command of ours on `node`, whose resolv.conf names a server there that knows the Service. Gives its exit code and
/// its JSON.
fn ask(mesh: &Mesh, node: &Node, command: &str) -> (Option<i32>, Value) {
    let addresses: Vec<Ipv4Addr> = mesh.nodes.iter().map(|node| node.ipv4().parse().expect("an address")).collect();
    let stop = AtomicBool::new(false);
    let socket =
        node.namespace.within(|| UdpSocket::bind((Ipv4Addr::LOCALHOST, 53)).expect("nobody else serves names"));
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    let output = thread::scope(|scope| {
        scope.spawn(|| serve_names(&socket, &addresses, &stop));
        let mut asking = node.namespace.command(env!("CARGO_BIN_EXE_kube-canary"));
        asking.args([command, "--json"]).env("POD_NAMESPACE", "canaries").stderr(Stdio::inherit());
        let output = asking.output();
        stop.store(true, Ordering::Relaxed);
        output.expect("it runs")
    });
    let text = String::from_utf8(output.stdout).expect("text");
    (output.status.code(), serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

/// What `doctor` says on `node` once no agent is starved. On a busy machine one is for a moment, which is a verdict of its own and takes
/// what it measured out of the evidence for as long as the moment is in the recent window, a minute.
fn ask_the_doctor(mesh: &Mesh, node: &Node) -> (Option<i32>, Value) {
    until_within(PATIENCE * 3, "no agent is starved", || {
        let (code, report) = ask(mesh, node, "doctor");
        let verdicts = report["verdicts"].as_array().unwrap_or_else(|| panic!("{report:#}"));
        if verdicts.iter().any(|verdict| verdict["kind"] == "agent_starved") {
            // Asking takes time of the processors, too.
            thread::sleep(Duration::from_secs(1));
            return Err(format!("{report:#}"));
        }
        Ok((code, report))
    })
}

/// Of this process and its children alone: its mounts are its own.
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
fn loss_at_one_node_is_seen_from_within_without_a_flag() {
    name_servers_are_local();
    let mesh = Mesh::new();
    let peers = mesh.peers_file(|node| vec![node.ipv4()]);
    let canaries = mesh.canaries(Socket::Ping, &peers, 9_877, &["--listen", "0.0.0.0:9877"]);
    all_clean(&canaries, "icmp", SETTLED);

    let (code, rows) = ask(&mesh, mesh.node("b"), "fleet");
    let rows = rows.as_array().expect("rows");
    let mut nodes: Vec<&str> = rows.iter().filter_map(|row| row["node"].as_str()).collect();
    nodes.sort_unstable();
    assert_eq!((code, nodes), (Some(0), vec!["a", "b", "c"]), "{rows:?}");
    assert!(rows.iter().all(|row| row["loss"].as_f64() == Some(0.0) && row["links"].as_u64() == Some(2)), "{rows:?}");
    let (code, report) = ask_the_doctor(&mesh, mesh.node("b"));
    assert_eq!(
        (code, &report["verdicts"], report["rows"].as_u64()),
        (Some(0), &Value::from(Vec::<Value>::new()), Some(3)),
        "{report}"
    );

    let rule = "icmp type echo-request numgen random mod 100 < 20 counter name dropped drop".to_owned();
    let _faults = Faults::new(&mesh.node("c").namespace, "eth0", &["dropped"], &[rule]);
    for canary in &canaries[..2] {
        canary.watch("c", "icmp", 300.0);
    }
    let (code, rows) = ask(&mesh, mesh.node("b"), "fleet");
    for row in rows.as_array().expect("rows").iter().filter(|row| row["node"] != "c") {
        assert_eq!(row["worst_peer"], "c", "{rows}");
        assert!(row["worst_peer_loss"].as_f64() > Some(0.0), "{rows}");
    }
    assert_eq!(code, Some(0));
    let (code, report) = ask_the_doctor(&mesh, mesh.node("b"));
    let [verdict] = &report["verdicts"].as_array().expect("verdicts")[..] else { panic!("{report:#}") };
    let told = ["kind", "subject"].map(|field| verdict[field].as_str().unwrap_or_default());
    assert_eq!((code, told), (Some(1), ["node", "c"]), "{report:#}");
    // Only requests are dropped: what can be wrong is that the counters do not tell yet.
    let direction = verdict["direction"].as_str().unwrap_or_default();
    assert!(direction == "in" || direction == "both", "{report:#}");
}
