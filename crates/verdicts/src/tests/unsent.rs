//! Probes that could not be sent.

use super::*;
use kube_canary_model::report::{Protocol, SendError};

/// The object of a peer to which no probe of the last minute could be sent.
fn unsent(node: &str, protocol: &str, reason: &str) -> Value {
    let recent = json!({"seconds": 60.0, "send_errors": 60, "send_error_reason": reason});
    with(with(peer(node, 0), "protocol", json!(protocol)), "recent", recent)
}

/// A full mesh, in which each report has these further objects.
fn mesh(nodes: &[&str], objects: impl Fn(&str, &str) -> Vec<Value>) -> Mesh {
    nodes.iter().fold(Mesh::new(), |mesh, from| {
        let peers: Vec<Value> = nodes.iter().filter(|to| *to != from).flat_map(|to| objects(from, to)).collect();
        mesh.row(&source(from, 60 * u32::try_from(nodes.len() - 1).expect("few")), &peers)
    })
}

fn judged(mesh: &Mesh) -> (State, String) {
    let Headline { state, text } = judge_whole(&mesh.matrix).headline();
    (state, text)
}

#[test]
fn a_mesh_without_a_route_for_ipv6_is_not_well() {
    let dual = mesh(&["a", "b", "c"], |_, to| {
        let over_ipv6 = ["icmpv6", "udpv6", "tcpv6"].map(|protocol| unsent(to, protocol, "no_route"));
        std::iter::once(peer(to, 0)).chain(over_ipv6).collect()
    });
    assert_eq!(dual.verdicts(), []);
    let text = "a and 2 more nodes cannot send ICMP, UDP or TCP over IPv6 to 2 of 2 peers: no route";
    assert_eq!(judged(&dual), (State::Losses, text.to_owned()));
    assert_eq!(dual.matrix.cell_count(), 6, "what was not sent is no link that was measured");
    let listed = judge_whole(&dual.matrix).unsent;
    assert_eq!((listed.unsent.len(), listed.unsent_not_listed), (3, 0));
    assert_eq!(listed.unsent[2].protocols, [Protocol::Icmpv6, Protocol::Udpv6, Protocol::Tcpv6]);
}

#[test]
fn a_firewall_of_one_node_names_that_node_alone() {
    let firewall = mesh(&["a", "b", "c", "d"], |from, to| match from {
        "c" => vec![unsent(to, "icmp", "not_permitted")],
        _ => vec![peer(to, 0)],
    });
    let text = "c cannot send ICMP over IPv4 to 3 of 3 peers: not permitted, as by a firewall of its own";
    assert_eq!(judged(&firewall), (State::Losses, text.to_owned()));
}

#[test]
fn routes_to_one_node_name_the_senders_and_that_node() {
    for (reason, words) in [
        ("no_route", "no route"),
        ("prohibited", "prohibited, as by a route"),
        ("invalid", "invalid, as behind a blackhole route"),
        ("a reason of a later version", "another error"),
    ] {
        let routes = mesh(&["a", "b", "c", "d"], |from, to| {
            if to == "d" { vec![unsent(to, "icmp", reason)] } else { vec![peer(to, u32::from(from == "d"))] }
        });
        let text = format!("a and 2 more nodes cannot send ICMP over IPv4 to d: {words}");
        assert_eq!(judged(&routes), (State::Losses, text));
    }
}

#[test]
fn an_agent_that_does_not_answer_comes_after_the_reason() {
    let names = ["a", "b", "c"];
    let without_d = names.iter().fold(Mesh::new(), |mesh, from| {
        let others = names.iter().filter(|to| *to != from).map(|to| peer(to, 0));
        mesh.row(&source(from, 120), &others.chain([unsent("d", "icmp", "no_route")]).collect::<Vec<_>>())
    });
    let (state, text) = judged(&without_d.missing("d"));
    assert_eq!(state, State::Cause);
    assert!(text.starts_with("a and 2 more nodes cannot send ICMP over IPv4 to d: no route; "), "{text}");
}

#[test]
fn a_fault_of_the_network_comes_first() {
    let names: Vec<String> = (0..8).map(|node| format!("n{node}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let both = mesh(&names, |from, to| {
        let lost = if from == "n3" || to == "n3" { 30 } else { 0 };
        let v6 = (from == "n5").then(|| unsent(to, "icmpv6", "no_route"));
        std::iter::once(peer(to, lost)).chain(v6).collect()
    });
    let (state, text) = judged(&both);
    assert_eq!((state, both.subjects()), (State::Cause, vec![(Kind::Node, "n3".into())]));
    assert!(text.ends_with("; n5 cannot send ICMP over IPv6 to 7 of 7 peers: no route"), "{text}");
}

#[test]
fn a_single_probe_of_a_minute_is_no_finding_and_one_of_twenty_is() {
    let some = |errors: u32| {
        mesh(&["a", "b"], |from, to| {
            let mut peer = peer(to, 0);
            if from == "a" {
                peer["recent"]["send_errors"] = json!(errors);
                peer["recent"]["send_error_reason"] = json!("no_buffer");
            }
            vec![peer]
        })
    };
    assert_eq!(judged(&some(1)), (State::Well, "all well".to_owned()));
    let text = "a cannot send ICMP over IPv4 to 1 of 1 peer: no buffer space";
    assert_eq!(judged(&some(4)), (State::Losses, text.to_owned()));
}

#[test]
fn a_report_says_it_of_its_own_node_and_takes_bounded_room() {
    let names: Vec<String> = (0..40).map(|node| format!("n{node:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let reasons = SendError::ALL.map(SendError::label);
    let lies = mesh(&names, |from, to| match from {
        "n07" => {
            let number: usize = to[1..].parse().expect("a number");
            let mut lie = unsent(to, "icmp", reasons[number % 10]);
            lie["recent"]["send_errors"] = json!(u32::MAX);
            vec![lie]
        }
        _ => vec![peer(to, 0)],
    });
    let found = judge_whole(&lies.matrix);
    assert_eq!((found.unsent.unsent.len(), found.unsent.unsent_not_listed), (10, 0));
    assert!(found.unsent.unsent.iter().all(|it| it.node == "n07" && it.peers <= 4), "{:?}", found.unsent);
    assert!(found.headline().text.starts_with("n07 cannot send "), "{}", found.headline().text);
    let all = mesh(&names, |_, to| vec![unsent(to, "icmp", "no_route")]);
    let found = judge_whole(&all.matrix);
    assert_eq!((found.unsent.unsent.len(), found.unsent.unsent_not_listed), (UNSENT_MAX, 24));
    let text = "n00 and 15 more nodes cannot send ICMP over IPv4 to 39 of 39 peers: no route; \
                24 more nodes cannot send all probes";
    assert_eq!(found.headline().text, text);
}

#[test]
fn nodes_that_are_leaving_are_no_finding() {
    let leaving = mesh(&["a", "b", "c"], |from, to| {
        let it = if to == "c" || from == "c" { unsent(to, "icmp", "no_route") } else { peer(to, 0) };
        vec![if to == "c" { with(it, "state", json!("terminating")) } else { it }]
    });
    assert_eq!(judged(&leaving).0, State::Well);
}

#[test]
fn each_network_has_an_entry_of_its_own() {
    let nodes = mesh(&["a", "b", "c"], |_, to| {
        vec![peer(to, 0), with(unsent(to, "icmp", "prohibited"), "network", json!("node"))]
    });
    let text = "a and 2 more nodes cannot send ICMP over IPv4 to 2 of 2 peers on the node network: \
                prohibited, as by a route";
    assert_eq!(judged(&nodes), (State::Losses, text.to_owned()));
}
