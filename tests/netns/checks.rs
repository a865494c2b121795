//! What is checked, over both families, and beside the probes of peers.

use std::thread;
use std::time::Duration;

use kube_canary::check::CHECKS_MAX;

use crate::common::scrape::same;
use crate::common::until::until;
use crate::mesh::{Agent, Mesh};
use crate::namespace::Namespace;
use crate::probing::{PORT, TCP_PORT, Total, agents, link, peers_file, reports};

/// Addresses of nobody. What is sent to them leaves the node, and no error comes back.
const SILENT: [&str; 2] = ["198.18.0.250", "[fd00:198:18::250]"];

fn silence(namespace: &Namespace) {
    for address in SILENT {
        let address = address.trim_matches(['[', ']']);
        namespace.ip(&format!("neighbour replace {address} lladdr 02:00:00:00:00:fa dev eth0 nud permanent\n"));
    }
}

fn attempts(agent: &Agent<'_>, check: &str) -> (f64, f64) {
    let metrics = agent.metrics();
    let of = |name: &str| metrics.value(name, &[("check", check)]).unwrap_or(0.0);
    (of("check_attempts_total"), of("check_failures_total"))
}

#[test]
fn every_kind_reaches_its_target_over_ipv4_and_over_ipv6() {
    let mesh = Mesh::of(&["a", "b"]);
    // Agents answer requests by UDP from the addresses of members alone, and a pod has one of each
    // family.
    for node in &mesh.nodes {
        node.namespace.ip(&format!("address delete {}/64 dev eth0\n", node.other_ipv6()));
    }
    let peers = mesh.peers_file(|node| vec![node.ipv4(), node.ipv6()]);
    let (v4, v6) = (mesh.node("b").ipv4(), mesh.node("b").ipv6());
    let of_family = |family: &str, host: &str| {
        [
            format!("tcp-{family}=tcp:{host}:{TCP_PORT}"),
            format!("http-{family}=http://{host}:{PORT}/api/v1/identity"),
            format!("icmp-{family}=icmp:{host}"),
            format!("udp-{family}=udp:{host}:{PORT}"),
        ]
    };
    let checks = [of_family("ipv4", &v4), of_family("ipv6", &format!("[{v6}]"))].concat();
    let flags: Vec<&str> = checks.iter().flat_map(|check| ["--check", check.as_str()]).collect();
    let agents = agents(&mesh, &peers, &flags);
    for check in &checks {
        let name = check.split('=').next().expect("a name");
        let (kind, family) = name.split_once('-').expect("kind and family");
        let phase = if kind == "tcp" { "connect" } else { "first_byte" };
        let answers = |least: f64| {
            until(&format!("{check} has {least} answers"), || {
                let labels = [("check", name), ("family", family), ("phase", phase)];
                let answered = agents[0].metrics().value("check_duration_seconds_count", &labels);
                let (tried, failed) = attempts(&agents[0], name);
                if answered >= Some(least) { Ok(failed) } else { Err(format!("{answered:?} of {tried}")) }
            })
        };
        // The first attempts may be made before the other agent answers.
        assert!(same(answers(1.0), answers(3.0)), "failures of {check}");
    }
}

/// The mean time by which probes were sent too late.
fn lag_seconds(agent: &Agent<'_>) -> f64 {
    let metrics = agent.metrics();
    let [sum, count] = ["sum", "count"].map(|of| metrics.value(&format!("probe_send_lag_seconds_{of}"), &[]));
    sum.expect("a sum") / count.expect("a count")
}

#[test]
fn checks_that_all_time_out_disturb_no_probe() {
    let mesh = Mesh::of(&["a", "b", "c"]);
    let peers = peers_file(&mesh);
    let kinds = ["dns", "tcp", "tls", "http", "icmp", "udp"];
    let checks: Vec<String> = (0..CHECKS_MAX)
        .map(|number| {
            let host = SILENT[number % 2];
            let target = match kinds[number / 2 % kinds.len()] {
                "dns" => format!("dns:silent.example@{host}"),
                "http" => format!("http://{host}:8080/"),
                "icmp" => format!("icmp:{host}"),
                kind => format!("{kind}:{host}:8080"),
            };
            format!("check-{number}={target}")
        })
        .collect();
    silence(&mesh.node("a").namespace);
    let flags: Vec<&str> = checks.iter().flat_map(|check| ["--check", check.as_str()]).collect();
    // All agents have the list. To the others the kernel says soon that there is no such neighbour.
    let agents = agents(&mesh, &peers, &flags);
    until("every check has timed out twice", || {
        let metrics = agents[0].metrics();
        let timeouts = |check: &String| {
            let labels = [("check", check.split('=').next().expect("a name")), ("reason", "timeout")];
            metrics.value("check_failures_total", &labels)
        };
        let first = checks.iter().find(|check| timeouts(check) < Some(2.0));
        first.map_or(Ok(()), |check| Err(format!("{check}: {:?}", timeouts(check))))
    });
    let before = reports(&agents);
    thread::sleep(Duration::from_secs(10));
    let after = reports(&agents);
    for protocol in ["icmp", "udp"] {
        let sent = [("a", "b"), ("b", "a"), ("a", "c"), ("c", "b")].map(|(from, to)| {
            let [before, after] = [&before, &after].map(|reports| Total::of(link(reports, from, to, protocol)));
            assert_eq!(after.lost, 0, "{from} -> {to} by {protocol}: {after:?}");
            after.sent - before.sent
        });
        let [least, most] = [sent.iter().min(), sent.iter().max()];
        assert!(
            least > Some(&0) && least.zip(most).is_some_and(|(least, most)| most - least <= 2),
            "{protocol}: {sent:?}"
        );
    }
    eprintln!("probes are late by {:?} s on average", agents.iter().map(lag_seconds).collect::<Vec<_>>());
}
