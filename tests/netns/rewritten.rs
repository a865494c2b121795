//! Nodes whose source address the network rewrites. Their UDP probes get no answer, because agents
//! answer members alone, and no packet is lost.

use serde_json::Value;

use crate::common::until::until;
use crate::mesh::Mesh;
use crate::namespace::run;
use crate::probing::reports;
use crate::unsent::{agents, examined};

#[test]
fn a_node_whose_address_is_rewritten_is_named_with_both_addresses() {
    for over_ipv6 in [false, true] {
        let mesh = Mesh::new();
        let node = mesh.node("a");
        let (family, own, other) =
            if over_ipv6 { ("ip6", node.ipv6(), node.other_ipv6()) } else { ("ip", node.ipv4(), node.other_ipv4()) };
        let table = format!(
            "table {family} nat {{\nchain out {{\ntype nat hook postrouting priority 100;\n\
             {family} saddr {own} oifname \"eth0\" snat to {other}\n}}\n}}\n"
        );
        run(node.namespace.command("nft").args(["-f", "-"]), &table);
        let agents = agents(&mesh, |node| vec![if over_ipv6 { node.ipv6() } else { node.ipv4() }]);
        until("the node is named with both addresses, and with no loss", || {
            let (_, found) = examined(&reports(&agents));
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
