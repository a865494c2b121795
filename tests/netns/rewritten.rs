//! Nodes whose source address the network rewrites. Their UDP probes get no answer, because agents
//! answer members alone, and no packet is lost.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::process::unique;
use crate::common::until::until;
use crate::mesh::{Agent, Mesh, Socket};
use crate::namespace::{DIRECTORY, run};
use crate::probing::{PORT, reports};
use crate::rows;

/// What `doctor` finds in these reports.
fn examined(reports: &[Value]) -> Value {
    let rows: Vec<String> = reports.iter().map(|row| rows::line(&rows::without_lag(row))).collect();
    let path = unique(Path::new(DIRECTORY), "rows");
    fs::write(&path, rows.join("\n") + "\n").expect("our own directory is writable");
    let mut doctor = std::process::Command::new(env!("CARGO_BIN_EXE_kube-canary"));
    let output = doctor.args(["doctor", "--json", "--rows"]).arg(&path).output().expect("it runs");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_node_whose_address_is_rewritten_is_named_with_both_addresses() {
    for (family, last) in [("ip", "4"), ("ip6", "6")] {
        let mesh = Mesh::new();
        let node = mesh.node("a");
        let address = |own: &str| if last == "4" { node.ipv4() } else { own.to_owned() };
        let own = address(&node.ipv6());
        let (network, rest) = own.rsplit_once(if last == "4" { '.' } else { ':' }).expect("an address");
        let separator = if last == "4" { "." } else { ":" };
        assert!(!rest.is_empty());
        let other = format!("{network}{separator}77");
        let (bits, nodad) = if last == "4" { ("24", "") } else { ("64", " nodad") };
        node.namespace.ip(&format!("addr add {other}/{bits} dev eth0{nodad}\n"));
        let table = format!(
            "table {family} nat {{\nchain out {{\ntype nat hook postrouting priority 100;\n\
             {family} saddr {own} oifname \"eth0\" snat to {other}\n}}\n}}\n"
        );
        run(node.namespace.command("nft").args(["-f", "-"]), &table);
        let peers = mesh.peers_file(|node| vec![if last == "4" { node.ipv4() } else { node.ipv6() }]);
        let start = |node| {
            let node: &crate::mesh::Node = node;
            let own = if last == "4" { node.ipv4() } else { node.ipv6() };
            let flags = ["--probes", "icmp,udp,tcp", "--interval", "1s", "--listen", &format!("[::]:{PORT}")];
            Agent::start(node, Socket::Ping, &peers, PORT, &[&flags[..], &["--pod-addresses", &own]].concat())
        };
        let agents: Vec<Agent<'_>> = mesh.nodes.iter().map(start).collect();
        until("the node is named with both addresses, and with no loss", || {
            let found = examined(&reports(&agents));
            let verdicts = found["verdicts"].as_array().cloned().unwrap_or_default();
            let is_right = |verdict: &Value| {
                let mentions = verdict["mentions"].to_string();
                (&verdict["kind"], &verdict["subject"], &verdict["protocol"], &verdict["severity"])
                    == (&"node".into(), &"a".into(), &"udp".into(), &"warning".into())
                    && mentions.contains(&own)
                    && mentions.contains(&other)
            };
            if verdicts.len() == 1 && is_right(&verdicts[0]) { Ok(()) } else { Err(found.to_string()) }
        });
    }
}
