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

fn judged(mesh: &Mesh) -> (MeshState, String) {
    let Headline { state, text } = judge_whole(&mesh.matrix).headline();
    (state, text)
}

/// The verdicts as `KIND SUBJECT DIRECTION PROTOCOL FAMILY SEVERITY`.
fn found(mesh: &Mesh) -> Vec<String> {
    let label = |verdict: Verdict| {
        let protocol = verdict.protocol.map_or("all", Methods::label);
        let family = verdict.family.map_or("both", Family::label);
        let (kind, direction) = (verdict.kind.label(), verdict.direction.label());
        format!("{kind} {} {direction} {protocol} {family} {:?}", verdict.subject, verdict.severity)
    };
    mesh.verdicts().into_iter().map(label).collect()
}

#[test]
fn a_mesh_without_a_route_for_ipv6_is_not_well() {
    let dual = mesh(&["a", "b", "c"], |_, to| {
        let over_ipv6 = ["icmpv6", "udpv6", "tcpv6"].map(|protocol| unsent(to, protocol, "no_route"));
        ["icmp", "udp", "tcp"]
            .map(|protocol| with(peer(to, 0), "protocol", json!(protocol)))
            .into_iter()
            .chain(over_ipv6)
            .collect()
    });
    assert_eq!(found(&dual), ["mesh * both all ipv6 Critical"]);
    assert_eq!(judged(&dual), (MeshState::Cause, "no node can send over IPv6: no route".to_owned()));
    assert!(dual.verdicts()[0].loss_ratio().is_none(), "nothing is lost");
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
    assert_eq!(found(&firewall), ["node c out all both Critical"]);
    let text = "c cannot send: not permitted, as by a firewall of its own";
    assert_eq!(judged(&firewall), (MeshState::Cause, text.to_owned()));
    assert_eq!(
        evidence(&firewall.verdicts()[0]),
        "probes over 3 of 3 links could not be sent: not permitted, as by a firewall of its own; they count as neither \
         sent nor lost"
    );
}

/// A limit of a firewall, or an interface whose queue is full, refuses some probes alone.
#[test]
fn what_is_refused_in_part_is_said_with_its_share() {
    let refused_in_part = |errors: u32| {
        let recent = json!({"seconds": 60.0, "sent": 60 - errors, "received": 60 - errors, "send_errors": errors,
            "send_error_reason": "not_permitted"});
        let mesh = mesh(&["a", "b", "c", "d"], |from, to| match from {
            "c" => vec![with(peer(to, 0), "recent", recent.clone())],
            _ => vec![peer(to, 0)],
        });
        (judged(&mesh).1, mesh.verdicts().first().map(evidence).unwrap_or_default())
    };
    for (errors, share, exact) in [(6, "10 %", "10.0 %"), (45, "75 %", "75.0 %")] {
        let (headline, evidence) = refused_in_part(errors);
        assert_eq!(
            headline,
            format!(
                "c cannot send, for {share} of the probes of the last minute: not permitted, as by a firewall of its own"
            )
        );
        assert!(
            evidence.contains(&format!("{exact} of the last minute's probes over 3 of 3 links could not")),
            "{evidence}"
        );
    }
    assert_eq!(refused_in_part(60).0, "c cannot send: not permitted, as by a firewall of its own");
    assert_eq!(refused_in_part(2).1, "", "one probe of thirty is no fault");
}

#[test]
fn one_protocol_that_cannot_be_sent_is_named_and_echoes_alone_are_no_page() {
    for (label, name, severity) in [("udp", "UDP", "Critical"), ("tcp", "TCP", "Critical"), ("icmp", "ICMP", "Warning")]
    {
        let of = |to: &str, from: &str| {
            ["icmp", "udp", "tcp"].map(|protocol| match (from, protocol == label) {
                ("c", true) => unsent(to, protocol, "not_permitted"),
                _ => with(peer(to, 0), "protocol", json!(protocol)),
            })
        };
        let firewall = mesh(&["a", "b", "c", "d"], |from, to| of(to, from).to_vec());
        assert_eq!(found(&firewall), [format!("node c out {label} both {severity}")]);
        assert!(
            judged(&firewall).1.starts_with(&format!("c cannot send {name}: not permitted")),
            "{:?}",
            judged(&firewall)
        );
    }
}

#[test]
fn routes_to_one_node_name_that_node() {
    for (reason, text) in [
        ("no_route", "nobody has a route to d"),
        ("prohibited", "nobody can send to d: prohibited, as by a route"),
        ("invalid", "nobody can send to d: invalid, as behind a blackhole route"),
        ("a reason of a later version", "nobody can send to d: another error"),
    ] {
        let routes = mesh(&["a", "b", "c", "d"], |from, to| {
            if to == "d" { vec![unsent(to, "icmp", reason)] } else { vec![peer(to, u32::from(from == "d"))] }
        });
        assert_eq!(found(&routes), ["node d in all both Critical"]);
        assert_eq!(judged(&routes), (MeshState::Cause, text.to_owned()));
    }
}

#[test]
fn links_zones_and_their_pairs_are_named() {
    let names = ["a1", "a2", "b1", "b2", "c1", "c2"];
    let zoned = |refused: fn(&str, &str) -> bool| {
        names.iter().fold(Mesh::new(), |mesh, from| {
            let of = |to: &&str| {
                let link = if refused(from, to) { unsent(to, "icmp", "prohibited") } else { peer(to, 0) };
                with(link, "zone", json!(to[..1]))
            };
            let peers: Vec<Value> = names.iter().filter(|to| *to != from).map(of).collect();
            mesh.row(&with(source(from, 300), "zone", json!(from[..1])), &peers)
        })
    };
    for (refused, verdict, text) in [
        (
            (|from, to| (from, to) == ("b1", "a2")) as fn(&str, &str) -> bool,
            "link b1->a2 out all both Warning",
            "b1 cannot send to a2",
        ),
        (
            |from, to| [("b1", "a2"), ("a2", "b1")].contains(&(from, to)),
            "link a2->b1 both all both Warning",
            "a2 and b1 cannot send to each other",
        ),
        (
            |from, to| from.starts_with('b') && to.starts_with('a'),
            "zone_pair b->a out all both Critical",
            "zone b cannot send to zone a",
        ),
        (
            |from, to| from.starts_with('b') && to.starts_with('a') || from.starts_with('a') && to.starts_with('b'),
            "zone_pair a->b both all both Critical",
            "zone a and zone b cannot send to each other",
        ),
        (
            |from, to| from.starts_with('b') && !to.starts_with('b'),
            "zone b out all both Critical",
            "zone b cannot send to all other zones",
        ),
        (
            |from, to| !from.starts_with('b') && to.starts_with('b'),
            "zone b in all both Critical",
            "no other zone can send to zone b",
        ),
        (
            |from, to| from.starts_with('b') != to.starts_with('b'),
            "zone b both all both Critical",
            "zone b and all other zones cannot send to each other",
        ),
    ] {
        let mesh = zoned(refused);
        assert_eq!(found(&mesh), [verdict]);
        assert_eq!(judged(&mesh).1, format!("{text}: prohibited, as by a route"));
    }
}

#[test]
fn judges_in_other_zones_name_the_same_zones() {
    let found = |zones: [&str; 3]| {
        let names: Vec<String> =
            zones.iter().flat_map(|zone| (1..=3).map(move |node| format!("{zone}{node}"))).collect();
        let mesh = names.iter().fold(Mesh::new(), |mesh, from| {
            let of = |to: &String| {
                let is_refused = from[..1] != to[..1];
                let v6 = if is_refused {
                    unsent(to, "icmpv6", "no_route")
                } else {
                    with(peer(to, 0), "protocol", json!("icmpv6"))
                };
                [peer(to, 0), v6].map(|object| with(object, "zone", json!(to[..1])))
            };
            let peers: Vec<Value> = names.iter().filter(|to| *to != from).flat_map(of).collect();
            mesh.row(&with(source(from, 480), "zone", json!(from[..1])), &peers)
        });
        let mut found = found(&mesh);
        found.sort();
        found
    };
    let by_first = found(["a", "b", "c"]);
    assert_eq!([found(["b", "c", "a"]), found(["c", "b", "a"])], [by_first.clone(), by_first]);
}

#[test]
fn nodes_without_a_zone_are_no_zone_that_cannot_send() {
    let names = ["a1", "a2", "a3", "a4", "a5", "a6", "x1", "x2", "x3"];
    let mesh = names.iter().fold(Mesh::new(), |mesh, from| {
        let zone = |name: &str| if name.starts_with('a') { "a" } else { "unknown" };
        let of = |to: &&str| {
            let is_refused = zone(from) == "unknown" && zone(to) == "a";
            let link = if is_refused { unsent(to, "icmp", "no_route") } else { peer(to, 0) };
            with(link, "zone", json!(zone(to)))
        };
        let peers: Vec<Value> = names.iter().filter(|to| *to != from).map(of).collect();
        mesh.row(&with(source(from, 480), "zone", json!(zone(from))), &peers)
    });
    assert!(found(&mesh).iter().all(|verdict| !verdict.contains("unknown")), "{:?}", found(&mesh));
    assert!(!found(&mesh).is_empty());
}

#[test]
fn the_directions_of_a_link_are_one_verdict_only_for_one_reason() {
    let found = |reasons: [&str; 2]| {
        let mesh = mesh(&["a", "b", "c", "d"], |from, to| match (from, to) {
            ("a", "b") => vec![unsent(to, "icmp", reasons[0])],
            ("b", "a") => vec![unsent(to, "icmp", reasons[1])],
            _ => vec![peer(to, 0)],
        });
        let mut found = found(&mesh);
        found.sort();
        found
    };
    assert_eq!(found(["prohibited"; 2]), ["link a->b both all both Warning"]);
    let apart = ["link a->b out all both Warning", "link b->a out all both Warning"];
    assert_eq!(found(["prohibited", "not_permitted"]), apart);
}

#[test]
fn two_causes_that_share_a_link_are_both_found() {
    let mesh = mesh(&["a", "b", "c", "d", "e"], |from, to| match (from, to) {
        ("a", _) => vec![unsent(to, "icmp", "not_permitted")],
        (_, "e") => vec![unsent(to, "icmp", "no_route")],
        _ => vec![peer(to, 0)],
    });
    let mut found = found(&mesh);
    found.sort();
    assert_eq!(found, ["node a out all both Critical", "node e in all both Critical"]);
}

#[test]
fn an_agent_to_which_nothing_can_be_sent_is_not_said_to_be_silent() {
    let names = ["a", "b", "c"];
    let without_d = |refused: &[&str]| {
        let mesh = names.iter().fold(Mesh::new(), |mesh, from| {
            let others = names.iter().filter(|to| *to != from).map(|to| peer(to, 0));
            let to_d = if refused.contains(from) { unsent("d", "icmp", "no_route") } else { peer("d", 0) };
            mesh.row(&source(from, 120), &others.chain([to_d]).collect::<Vec<_>>())
        });
        mesh.missing("d")
    };
    assert_eq!(found(&without_d(&names)), ["node d in all both Critical"]);
    // The first row is of the agent that has asked for the report.
    assert_eq!(found(&without_d(&["a"])), ["link a->d out all both Warning"]);
    let others = found(&without_d(&["b"]));
    assert_eq!(others, ["link b->d out all both Warning", "agent_unreachable d both all both Warning"]);
}

#[test]
fn what_a_part_loses_for_the_same_reason_is_one_verdict() {
    let names: Vec<String> = (0..8).map(|node| format!("n{node}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let both = mesh(&names, |from, to| match (from, to) {
        ("n3", _) => vec![unsent(to, "icmp", "not_permitted")],
        (_, "n3") => vec![peer(to, 60)],
        _ => vec![peer(to, 0)],
    });
    assert_eq!(found(&both), ["node n3 both all both Critical"]);
    let verdict = &both.verdicts()[0];
    assert_eq!((verdict.reason, verdict.loss_ratio()), (Some(SendError::NotPermitted), Some(1.0)));
    let text = evidence(verdict);
    assert!(text.contains("; probes over 7 of 7 links could not be sent: not permitted"), "{text}");
}

#[test]
fn a_loss_of_another_node_is_a_verdict_of_its_own() {
    let names: Vec<String> = (0..8).map(|node| format!("n{node}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let both = mesh(&names, |from, to| {
        let lost = if from == "n3" || to == "n3" { 30 } else { 0 };
        let v6 = unsent(to, "icmpv6", "no_route");
        let v6 = if from == "n5" { v6 } else { with(peer(to, 0), "protocol", json!("icmpv6")) };
        vec![peer(to, lost), v6]
    });
    assert_eq!(found(&both), ["node n3 both all ipv4 Critical", "node n5 out all ipv6 Critical"]);
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
    assert_eq!(judged(&some(1)), (MeshState::Well, "all well".to_owned()));
    let share = "a cannot send to b, for 6 % of the probes of the last minute: no buffer space";
    assert_eq!(judged(&some(4)), (MeshState::Cause, share.to_owned()));
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
    let judged = judge_whole(&lies.matrix);
    assert_eq!((judged.unsent.unsent.len(), judged.unsent.unsent_not_listed), (10, 0));
    assert!(judged.unsent.unsent.iter().all(|unsent| unsent.node == "n07" && unsent.peers <= 4), "{:?}", judged.unsent);
    assert_eq!(found(&lies), ["node n07 out all both Critical"]);
    let all = mesh(&names, |_, to| vec![unsent(to, "icmp", "no_route")]);
    let judged = judge_whole(&all.matrix);
    assert_eq!((judged.unsent.unsent.len(), judged.unsent.unsent_not_listed), (UNSENT_MAX, 24));
    assert_eq!(judged.headline().text, "no node can send: no route");
    // Each refuses another one.
    let apart = mesh(&names, |from, to| {
        let next = format!("n{:02}", (from[1..].parse::<u32>().expect("a number") + 1) % 40);
        if to == next { vec![unsent(to, "icmp", "no_route")] } else { vec![peer(to, 0)] }
    });
    assert_eq!(found(&apart).len(), causes::CAUSES_MAX, "bounded");
}

#[test]
fn nodes_that_are_leaving_are_no_finding() {
    let leaving = mesh(&["a", "b", "c"], |from, to| {
        let link = if to == "c" || from == "c" { unsent(to, "icmp", "no_route") } else { peer(to, 0) };
        vec![if to == "c" { with(link, "state", json!("terminating")) } else { link }]
    });
    assert_eq!(judged(&leaving).0, MeshState::Well);
}

#[test]
fn each_network_has_a_verdict_of_its_own() {
    let nodes = mesh(&["a", "b", "c"], |_, to| {
        vec![peer(to, 0), with(unsent(to, "icmp", "prohibited"), "network", json!("node"))]
    });
    assert_eq!(
        judged(&nodes),
        (MeshState::Cause, "no node can send: prohibited, as by a route (node network)".to_owned())
    );
}
