//! Probes that the kernel of the source does not send: without a route, or by its own firewall.
//! They are neither sent nor lost, and `doctor` names them with their reason.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::process::unique;
use crate::common::until::until;
use crate::mesh::{Agent, Mesh, Node, Socket};
use crate::namespace::{DIRECTORY, run};
use crate::probing::{PORT, TCP_PORT, count, links, reports};
use crate::rows;

/// Probes of each link that must have failed, by which the finding is certain.
const FAILED: u64 = 3;

pub fn agents<'a>(mesh: &'a Mesh, addresses: impl Fn(&Node) -> Vec<String>) -> Vec<Agent<'a>> {
    let peers = mesh.peers_file(addresses);
    let start = |node: &'a Node| {
        let own = format!("{},{}", node.ipv4(), node.ipv6());
        let flags = ["--probes", "icmp,udp,tcp", "--interval", "1s", "--listen", &format!("[::]:{PORT}")];
        Agent::start(node, Socket::Ping, &peers, PORT, &[&flags[..], &["--pod-addresses", &own]].concat())
    };
    mesh.nodes.iter().map(start).collect()
}

/// Returns the reports, once these links have as many probes that were not sent, and the others
/// have answers.
fn settled(agents: &[Agent<'_>], is_unsent: impl Fn(&str, &str, &str) -> bool) -> Vec<Value> {
    until("every link has its outcome", || {
        let reports = reports(agents);
        let open = links(&reports).find(|((source, destination, protocol), link)| {
            let field = if is_unsent(source, destination, protocol) { "send_errors" } else { "received" };
            link["recent"][field].as_u64().unwrap_or(0) < FAILED
        });
        let open = open.map(|(name, link)| format!("{name:?}: {}", link["recent"]));
        open.map_or(Ok(reports), Err)
    })
}

/// The exit code of `doctor`, and what it finds in these reports.
pub fn examined(reports: &[Value]) -> (Option<i32>, Value) {
    let rows: Vec<String> = reports.iter().map(|row| rows::line(&rows::without_lag(row))).collect();
    let path = unique(Path::new(DIRECTORY), "rows");
    fs::write(&path, rows.join("\n") + "\n").expect("our own directory is writable");
    let mut doctor = std::process::Command::new(env!("CARGO_BIN_EXE_kube-canary"));
    let output = doctor.args(["doctor", "--json", "--rows"]).arg(&path).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    (output.status.code(), serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

/// Asserts that no probe of these links is sent or lost, and that `doctor` says this line, and no
/// verdict blames another node.
fn assert_named(reports: &[Value], is_unsent: impl Fn(&str, &str, &str) -> bool, reason: &str, line: &str) {
    for ((source, destination, protocol), link) in links(reports) {
        let recent = &link["recent"];
        if is_unsent(&source, &destination, &protocol) {
            let what = format!("{source} to {destination} by {protocol}: {recent}");
            assert_eq!((count(recent, "lost"), count(recent, "received")), (0, 0), "{what}");
            assert_eq!(recent["send_error_reason"], reason, "{what}");
        } else {
            assert!(recent["send_error_reason"].is_null(), "{source} to {destination} by {protocol}: {recent}");
        }
    }
    let (code, found) = examined(reports);
    let text = found.to_string();
    assert_eq!(code, Some(1), "{text}");
    assert!(found["headline"].as_str().is_some_and(|headline| headline.starts_with(line)), "{text}");
    let verdicts = found["verdicts"].as_array().expect("verdicts");
    assert_eq!(verdicts.iter().filter(|verdict| verdict["reason"] == reason).count(), 1, "{text}");
    assert!(verdicts.iter().all(|verdict| verdict["figures"]["lost"].is_null()), "{text}");
    assert!(found["unsent"].as_array().is_some_and(|unsent| unsent.iter().all(|it| it["reason"] == reason)), "{text}");
}

/// Asserts that the log of an agent names this cause once.
fn assert_logged_once(agent: &mut Agent<'_>, cause: &str) {
    agent.process.wait_for_log(cause);
    assert_eq!(agent.process.log().matches("cannot be sent").count(), 1, "{}", agent.process.log());
}

#[test]
fn without_a_route_for_ipv6_each_node_says_so() {
    let mesh = Mesh::new();
    for node in &mesh.nodes {
        node.namespace.ip("route del fd00:198:18::/64 dev eth0\n");
    }
    let mut agents = agents(&mesh, |node| vec![node.ipv4(), node.ipv6()]);
    let is_unsent = |_: &str, _: &str, protocol: &str| protocol.ends_with("v6");
    let reports = settled(&agents, is_unsent);
    let line = "no node can send over IPv6: no route";
    assert_named(&reports, is_unsent, "no_route", line);
    for agent in &mut agents {
        assert_logged_once(agent, "cannot be sent by ICMP, UDP, TCP over IPv6: no route");
    }
}

#[test]
fn routes_to_one_node_have_the_reason_of_their_kind() {
    for (kind, reason, line) in [
        ("unreachable", "no_route", "nobody has a route to c"),
        ("prohibit", "prohibited", "nobody can send to c: prohibited, as by a route"),
        ("blackhole", "invalid", "nobody can send to c: invalid, as behind a blackhole route"),
    ] {
        let mesh = Mesh::new();
        for name in ["a", "b"] {
            mesh.node(name).namespace.ip(&format!("route add {kind} {}/32\n", mesh.node("c").ipv4()));
        }
        // The node has no route back, or its own probes would be answered in vain.
        mesh.node("c").namespace.ip("link set eth0 down\n");
        let agents = agents(&mesh, |node| vec![node.ipv4()]);
        let is_unsent = |_: &str, destination: &str, _: &str| destination == "c";
        let reports = settled(&agents[..2], is_unsent);
        assert_named(&reports, is_unsent, reason, line);
    }
}

#[test]
fn a_firewall_of_the_node_itself_is_named_for_each_protocol() {
    for (protocol, name, packets) in [
        ("icmp", "ICMP", "icmp type echo-request".to_owned()),
        ("udp", "UDP", format!("udp dport {PORT}")),
        ("tcp", "TCP", format!("tcp dport {TCP_PORT}")),
    ] {
        let mesh = Mesh::new();
        let table = format!(
            "table inet own {{\nchain out {{\ntype filter hook output priority 0;\n\
             oifname \"eth0\" {packets} drop\n}}\n}}\n"
        );
        run(mesh.node("a").namespace.command("nft").args(["-f", "-"]), &table);
        let mut agents = agents(&mesh, |node| vec![node.ipv4()]);
        let is_unsent = |source: &str, _: &str, of: &str| source == "a" && of == protocol;
        let reports = settled(&agents, is_unsent);
        let line = format!("a cannot send {name}: not permitted");
        assert_named(&reports, is_unsent, "not_permitted", &line);
        assert_logged_once(&mut agents[0], &format!("cannot be sent by {name} over IPv4: not permitted"));
    }
}
