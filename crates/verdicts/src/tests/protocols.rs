//! Meshes of three protocols: the words of their verdicts, flows, and packets that are too large.

use super::*;
use crate::wording::title;
use kube_canary_model::method::Method;

/// Both protocols that agents answer.
const UDP_AND_TCP: Methods = Methods::UDP.with(Method::Tcp);
const ICMP_AND_UDP: Methods = Methods::ICMP.with(Method::Udp);
const NODES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn listening(node: &str) -> Value {
    with(source(node, 60 * 4), "listening_seconds", json!(600.0))
}

fn by(protocol: &str, to: &str, sent: u32, lost: u32) -> Value {
    let recent = json!({"seconds": 60.0, "sent": sent, "received": sent - lost, "lost": lost});
    with(with(peer(to, lost), "protocol", json!(protocol)), "recent", recent)
}

/// A mesh in which each link loses what `lost` says, as a share of its probes in percent, by
/// protocol. `change` changes the object of UDP.
fn three(lost: impl Fn(&str, &str, &str) -> u32, change: impl Fn(&str, &str, Value) -> Value) -> Mesh {
    NODES.iter().fold(Mesh::new(), |mesh, from| {
        let of = |to: &str| {
            let object = |protocol: &str, sent: u32| by(protocol, to, sent, sent * lost(from, to, protocol) / 100);
            [object("icmp", 60), change(from, to, object("udp", 60)), object("tcp", 6)]
        };
        let peers: Vec<Value> = NODES.iter().filter(|to| *to != from).flat_map(|to| of(to)).collect();
        mesh.row(&listening(from), &peers)
    })
}

fn plain(_: &str, _: &str, object: Value) -> Value {
    object
}

fn named(verdicts: &[Verdict]) -> Vec<(Kind, &str, Option<Methods>)> {
    verdicts.iter().map(|verdict| (verdict.kind, verdict.subject.as_str(), verdict.protocol)).collect()
}

#[test]
fn what_all_protocols_lose_has_none_and_what_one_loses_has_it() {
    let touches = |from: &str, to: &str| from == "c" || to == "c";
    let all = three(|from, to, _| if touches(from, to) { 50 } else { 0 }, plain).verdicts();
    assert_eq!(named(&all), [(Kind::Node, "c", None)]);
    assert!(evidence(&all[0]).ends_with("; by protocol: ICMP 50.0 %, UDP 50.0 %, TCP 50.0 %"), "{}", evidence(&all[0]));
    assert_eq!(serde_json::to_value(&all[0]).expect("JSON")["protocol"], Value::Null);
    let one = |method: &'static str| {
        three(|from, to, protocol| if touches(from, to) && protocol == method { 100 } else { 0 }, plain).verdicts()
    };
    for (method, protocol) in [("icmp", Methods::ICMP), ("udp", Methods::UDP), ("tcp", Methods::TCP)] {
        let verdicts = one(method);
        assert_eq!(named(&verdicts), [(Kind::Node, "c", Some(protocol))], "{verdicts:?}");
        assert_eq!(summary(&verdicts[0]), format!("c: {} alone is lost", protocol.name()));
        assert_eq!(title(&verdicts[0]), format!("node c, pod network, {} only", protocol.name()));
        // Nothing but probes is sent by ICMP, so no user is affected while the others pass.
        let severity = if protocol == Methods::ICMP { Severity::Warning } else { Severity::Critical };
        assert_eq!(verdicts[0].severity, severity, "{method}");
    }
    let ids: Vec<String> =
        [all, one("icmp"), one("udp"), one("tcp")].iter().map(|verdicts| verdicts[0].id.clone()).collect();
    assert!((0..4).all(|place| !ids[..place].contains(&ids[place])), "{ids:?}");
}

#[test]
fn one_protocol_lost_everywhere_may_be_a_rule_of_the_cluster() {
    for (method, protocol) in [("udp", Methods::UDP), ("tcp", Methods::TCP)] {
        let verdicts = three(|_, _, protocol| if protocol == method { 100 } else { 0 }, plain).verdicts();
        assert_eq!(named(&verdicts), [(Kind::Mesh, "*", Some(protocol))], "{verdicts:?}");
        let hint = format!("; a NetworkPolicy or a firewall may not let {} through", protocol.name());
        assert!(evidence(&verdicts[0]).ends_with(&hint), "{}", evidence(&verdicts[0]));
    }
}

#[test]
fn two_protocols_that_lose_for_one_reason_are_one_verdict() {
    let verdicts = three(|_, _, protocol| if protocol == "icmp" { 0 } else { 100 }, plain).verdicts();
    assert_eq!(named(&verdicts), [(Kind::Mesh, "*", Some(UDP_AND_TCP))]);
    assert_eq!(summary(&verdicts[0]), "all links: UDP and TCP alone are lost");
    let hint = "; a NetworkPolicy or a firewall may not let UDP and TCP through";
    assert!(evidence(&verdicts[0]).ends_with(hint), "{}", evidence(&verdicts[0]));
}

/// ICMP and UDP lose 30 %. Of TCP nothing is lost, or three of the first handshakes, as they are
/// repeated at once.
#[test]
fn one_cause_is_one_verdict_whatever_tcp_loses() {
    for lost_handshakes in [0, 1, 3, 5] {
        let mesh = |is_lost: &dyn Fn(&str, &str) -> bool| {
            NODES.iter().fold(Mesh::new(), |mesh, from| {
                let of = |to: &str| {
                    let lost = |lost| if is_lost(from, to) { lost } else { 0 };
                    let handshakes = if is_lost(from, to) { 6 + lost_handshakes } else { 6 };
                    let with_zone = |object: Value| with(object, "zone", json!(if to < "d" { "x" } else { "y" }));
                    [
                        by("icmp", to, 60, lost(18)),
                        by("udp", to, 60, lost(18)),
                        by("tcp", to, handshakes, lost(lost_handshakes)),
                    ]
                    .map(with_zone)
                };
                let peers: Vec<Value> = NODES.iter().filter(|to| *to != from).flat_map(|to| of(to)).collect();
                let row = with(listening(from), "zone", json!(if *from < "d" { "x" } else { "y" }));
                mesh.row(&row, &peers)
            })
        };
        let node = mesh(&|from, to| from == "c" || to == "c").verdicts();
        let link = mesh(&|from, to| matches!((from, to), ("a", "c") | ("c", "a"))).verdicts();
        let zone = mesh(&|from, to| (from < "d") != (to < "d")).verdicts();
        let of_node = if lost_handshakes == 0 { Some(ICMP_AND_UDP) } else { None };
        let subject = zone.first().map(|verdict| verdict.subject.clone()).unwrap_or_default();
        assert_eq!(named(&node), [(Kind::Node, "c", of_node)], "{node:?}");
        // A single link has too few handshakes to tell.
        assert_eq!(named(&link), [(Kind::Link, "a->c", None)], "{link:?}");
        assert_eq!(named(&zone), [(Kind::ZonePair, &*subject, of_node)], "{zone:?}");
    }
}

#[test]
fn a_node_that_loses_by_one_protocol_and_another_that_loses_by_all_are_two_verdicts() {
    for (protocol, own) in [("icmp", Methods::ICMP), ("udp", Methods::UDP), ("tcp", Methods::TCP)] {
        let lost = |from: &str, to: &str, by: &str| match (from, to) {
            ("c", _) | (_, "c") => 100,
            ("e", _) | (_, "e") if by == protocol => 100,
            _ => 0,
        };
        let mut verdicts = three(lost, plain).verdicts();
        verdicts.sort_by_key(|verdict| verdict.subject.clone());
        assert_eq!(named(&verdicts), [(Kind::Node, "c", None), (Kind::Node, "e", Some(own))], "{verdicts:?}");
    }
}

/// A node that loses a little by all protocols, and all by one of them, has two faults.
#[test]
fn a_node_that_loses_far_more_by_one_protocol_has_a_verdict_for_it() {
    let touches = |from: &str, to: &str| from == "c" || to == "c";
    let lost = |from: &str, to: &str, by: &str| match (touches(from, to), by) {
        (true, "udp") => 100,
        (true, _) => 34,
        _ => 0,
    };
    let mut verdicts = three(lost, plain).verdicts();
    verdicts.sort_by_key(|verdict| verdict.protocol.map(Methods::label));
    assert_eq!(named(&verdicts), [(Kind::Node, "c", None), (Kind::Node, "c", UDP)], "{verdicts:?}");
}

#[test]
fn a_mesh_that_measures_one_protocol_alone_names_none_and_is_as_grave() {
    let mesh = full(&["a", "b", "c", "d"], |from, to| if from == "c" || to == "c" { 6 } else { 0 });
    let verdicts = mesh.verdicts();
    assert_eq!(named(&verdicts), [(Kind::Node, "c", None)]);
    assert_eq!(verdicts[0].severity, Severity::Critical);
    // So the cause has the same id once the others are measured, too.
    let all = three(|from, to, _| if from == "c" || to == "c" { 50 } else { 0 }, plain).verdicts();
    assert_eq!((named(&all), &all[0].id), (named(&verdicts), &verdicts[0].id));
    assert!(!evidence(&verdicts[0]).contains("by protocol"), "{}", evidence(&verdicts[0]));
}

/// Nothing tells a fault of UDP from an agent that does not run.
#[test]
fn udp_and_tcp_count_only_if_the_agent_says_that_it_listens() {
    let lost = |_: &str, to: &str, protocol: &str| if to == "c" && protocol != "icmp" { 100 } else { 0 };
    let rows = |of_c: Value, has_own: bool| {
        NODES.iter().fold(Mesh::new(), |mesh, from| {
            let of = |to: &str| {
                let object = |protocol: &str, sent: u32| by(protocol, to, sent, sent * lost(from, to, protocol) / 100);
                let objects = [object("icmp", 60), object("udp", 60), object("tcp", 6)];
                let count = if *from == "c" && !has_own { 1 } else { 3 };
                objects.into_iter().take(count).collect::<Vec<Value>>()
            };
            let peers: Vec<Value> = NODES.iter().filter(|to| *to != from).flat_map(|to| of(to)).collect();
            match *from {
                "c" => mesh.row(&with(source("c", 240), "listening_seconds", of_c.clone()), &peers),
                _ => mesh.row(&listening(from), &peers),
            }
        })
    };
    let c_alone = [(Kind::Node, "c", Some(UDP_AND_TCP))];
    let judged = |of_c: Value, has_own: bool| rows(of_c, has_own).verdicts();
    let listens = judged(json!(600), true);
    assert_eq!(named(&listens), c_alone, "{listens:?}");
    assert_eq!(judged(json!(70), true), [], "it has just started");
    assert_eq!(judged(Value::Null, true), [], "an older one does not listen");
    assert_eq!(judged(json!(600), false), [], "it probes by ICMP alone");
    let starved = with(listening("c"), "recent", json!({"seconds": 60.0, "run_delay_seconds": 30.0}));
    assert!(starved["listening_seconds"].is_number());
}

/// Returns the verdicts over a mesh in which only the nodes of `rows` have a report. `lost` says
/// what is lost by a protocol, in percent. Handshakes with the node `refused` are refused.
fn verdicts_of_rows(rows: &[&str], lost: impl Fn(&str, &str, &str) -> u32, refused: &str) -> Vec<Verdict> {
    let mut mesh = Mesh::new();
    for from in rows {
        let of = |to: &str| {
            let object = |protocol: &str, sent: u32| by(protocol, to, sent, sent * lost(from, to, protocol) / 100);
            let mut tcp = object("tcp", 6);
            tcp["recent"]["refused"] = json!(to == refused);
            [object("icmp", 60), object("udp", 60), tcp]
        };
        let peers: Vec<Value> = NODES.iter().filter(|to| *to != from).flat_map(|to| of(to)).collect();
        mesh = mesh.row(&listening(from), &peers);
    }
    let missing = NODES.iter().filter(|node| !rows.contains(*node));
    let mut verdicts = missing.fold(mesh, |mesh, node| mesh.missing(node)).verdicts();
    verdicts.sort_by_key(|verdict| (verdict.kind, verdict.protocol.map(Methods::label)));
    verdicts
}

const TCP: Option<Methods> = Some(Methods::TCP);
const UDP: Option<Methods> = Some(Methods::UDP);

/// Reports come by TCP, so a fault of TCP takes them away.
#[test]
fn a_node_that_no_handshake_reaches_is_named_though_its_report_is_missing() {
    let touches = |from: &str, to: &str| from == "c" || to == "c";
    let both = |from: &str, to: &str, protocol: &str| if touches(from, to) && protocol != "icmp" { 100 } else { 0 };
    let verdicts = verdicts_of_rows(&["a", "b", "d", "e"], both, "");
    assert_eq!(named(&verdicts), [(Kind::Node, "c", Some(UDP_AND_TCP))], "{verdicts:?}");
    assert!(verdicts.iter().all(|verdict| verdict.confidence == Confidence::Likely), "{verdicts:?}");
    assert!(evidence(&verdicts[0]).contains("its agent does not answer either"), "{}", evidence(&verdicts[0]));
    // A rule that drops all TCP: the agent still answers UDP.
    let tcp = |from: &str, to: &str, protocol: &str| if protocol == "tcp" { both(from, to, protocol) } else { 0 };
    let verdicts = verdicts_of_rows(&["a", "b", "d", "e"], tcp, "");
    assert_eq!(named(&verdicts), [(Kind::Node, "c", TCP)], "{verdicts:?}");
    // A third of a window is lost.
    let part = |from: &str, to: &str, protocol: &str| both(from, to, protocol) * 34 / 100;
    let verdicts = verdicts_of_rows(&["a", "b", "d", "e"], part, "");
    assert_eq!(named(&verdicts), [(Kind::Node, "c", Some(UDP_AND_TCP))], "{verdicts:?}");
}

#[test]
fn an_agent_that_does_not_run_is_no_fault_of_udp_or_tcp() {
    let unreachable = [(Kind::AgentUnreachable, "c", None)];
    let rows = ["a", "b", "d", "e"];
    let killed = |_: &str, to: &str, protocol: &str| if to == "c" && protocol != "icmp" { 100 } else { 0 };
    assert_eq!(named(&verdicts_of_rows(&rows, killed, "c")), unreachable, "its host refuses handshakes");
    let frozen = |_: &str, to: &str, protocol: &str| if to == "c" && protocol == "udp" { 100 } else { 0 };
    assert_eq!(named(&verdicts_of_rows(&rows, frozen, "")), unreachable, "its kernel completes them");
    // All links lose a third of all handshakes, which makes no frozen agent a fault of UDP.
    let lossy = |from: &str, to: &str, protocol: &str| if protocol == "tcp" { 34 } else { frozen(from, to, protocol) };
    let verdicts = verdicts_of_rows(&rows, lossy, "");
    assert_eq!(named(&verdicts), [(Kind::Mesh, "*", TCP), unreachable[0]], "{verdicts:?}");
    // One source claims that the handshakes with a frozen agent get no answer.
    let liar = |from: &str, to: &str, protocol: &str| {
        if (from, to, protocol) == ("d", "c", "tcp") { 100 } else { frozen(from, to, protocol) }
    };
    let verdicts = verdicts_of_rows(&rows, liar, "");
    assert_eq!(named(&verdicts), [(Kind::Link, "c->d", TCP), unreachable[0]], "{verdicts:?}");
}

#[test]
fn one_report_alone_says_that_all_links_seem_to_lose() {
    let cases = [(&["udp", "tcp"][..], UDP_AND_TCP, "UDP and TCP alone are"), (&["tcp"], Methods::TCP, "TCP alone is")];
    for (of, protocol, words) in cases {
        let verdicts = verdicts_of_rows(&["b"], |_, _, protocol| if of.contains(&protocol) { 100 } else { 0 }, "");
        assert_eq!(named(&verdicts), [(Kind::Mesh, "*", Some(protocol))], "{verdicts:?}");
        assert!(verdicts.iter().all(|verdict| verdict.confidence == Confidence::Likely), "{verdicts:?}");
        let (summary, evidence) = (&summary(&verdicts[0]), &evidence(&verdicts[0]));
        assert_eq!(*summary, format!("all links: {words} lost, as far as b sees"));
        let end = "; only the report of b could be read, so it may also be b alone; for this reason 4 reports could not be read";
        assert!(evidence.ends_with(end), "{evidence}");
    }
}

#[test]
fn a_link_without_tcp_is_named_by_the_end_that_lacks_the_report_of_the_other() {
    let lost = |from: &str, to: &str, protocol: &str| {
        let is_pair = matches!((from, to), ("a", "c") | ("c", "a"));
        if is_pair && protocol != "icmp" { 100 } else { 0 }
    };
    let verdicts = verdicts_of_rows(&["a", "b", "d", "e"], lost, "");
    assert_eq!(named(&verdicts), [(Kind::Link, "a->c", Some(UDP_AND_TCP))], "{verdicts:?}");
    // Another agent that collects has no reason to miss the report.
    let verdicts = verdicts_of_rows(&["b", "a", "d", "e"], lost, "");
    let unreachable = (Kind::AgentUnreachable, "c", None);
    assert_eq!(named(&verdicts), [(Kind::Link, "a->c", Some(UDP_AND_TCP)), unreachable], "{verdicts:?}");
}

fn losing(object: Value, losing_count: u32, way: &str) -> Value {
    let flow = json!({"source_port": 40_312, "lost": 5, "probes": 8, "direction": way});
    with(object, "flows", json!({"probed": 16, "losing_count": losing_count, "losing": [flow]}))
}

#[test]
fn a_flow_that_loses_is_named_with_its_port_and_its_direction() {
    // The flow is probed more often, so half of all probes are lost.
    let lost = |from: &str, to: &str, protocol: &str| if (from, to, protocol) == ("a", "b", "udp") { 50 } else { 0 };
    for (way, subject, direction, words) in [
        ("out", "a->b", Direction::Out, ", on the way out"),
        ("in", "b->a", Direction::Out, ", on the way back"),
        ("unknown", "a->b", Direction::Both, ""),
    ] {
        let of_flow = |from: &str, to: &str, object: Value| {
            if (from, to) == ("a", "b") { losing(object, 1, way) } else { object }
        };
        let verdicts = three(lost, of_flow).verdicts();
        assert_eq!(named(&verdicts), [(Kind::Flow, subject, Some(Methods::UDP))], "{verdicts:?}");
        assert_eq!((verdicts[0].direction, verdicts[0].confidence), (direction, Confidence::Likely));
        let expected = format!(
            "1 of 16 flows from a to b, source port 40312{words}; it lost 5 of its last 8 probes, and the other flows of \
             this link do not lose"
        );
        assert_eq!(evidence(&verdicts[0]), expected);
    }
}

#[test]
fn flows_of_many_pairs_are_one_path_and_those_of_one_node_are_the_node() {
    // ICMP of one pair takes the dead path, and each handshake takes another one.
    let lost = |from: &str, to: &str, protocol: &str| match (protocol, from, to) {
        ("icmp", "a", "b") | ("icmp", "b", "a") => 100,
        ("udp", ..) => 30,
        ("tcp", ..) => 34,
        _ => 0,
    };
    let verdicts = three(lost, |_, _, object| losing(object, 4, "out")).verdicts();
    assert_eq!(named(&verdicts), [(Kind::Paths, "*", None)], "{verdicts:?}");
    assert!(
        evidence(&verdicts[0]).starts_with("25.0 % of the flows of 10 pairs of nodes lose, "),
        "{}",
        evidence(&verdicts[0])
    );
    let of_node = |from: &str, to: &str, object: Value| {
        if from == "a" || to == "a" { losing(object, 4, "out") } else { object }
    };
    let verdicts = three(|_, _, _| 0, of_node).verdicts();
    assert_eq!(named(&verdicts), [(Kind::Node, "a", Some(Methods::UDP))], "{verdicts:?}");
}

/// A flow that may lose says nothing of one link. Of many links it does, unless all are of one
/// node, whose report may not be true.
#[test]
fn flows_that_may_lose_are_a_path_if_many_links_have_them() {
    let suspected = |object: Value, decinats: u32| {
        let suspect = json!({"source_port": 40_312, "lost": 3, "probes": 9, "direction": "out", "decinats": decinats});
        with(object, "flows", json!({"probed": 16, "losing_count": 0, "losing": [], "suspect": suspect}))
    };
    let of_all = |decinats| three(|_, _, _| 0, move |_, _, object| suspected(object, decinats)).verdicts();
    let verdicts = of_all(15);
    assert_eq!(named(&verdicts), [(Kind::Paths, "*", None)], "{verdicts:?}");
    assert!(evidence(&verdicts[0]).contains("6.2 % of the flows of 10 pairs of nodes"), "{}", evidence(&verdicts[0]));
    // Six pairs are left without the worst node, and ten tenths of a nat are not enough for them.
    assert_eq!(named(&of_all(9)), []);
    let of_one = |from: &str, _: &str, object: Value| if from == "a" { suspected(object, 255) } else { object };
    assert_eq!(named(&three(|_, _, _| 0, of_one).verdicts()), []);
}

/// `a` claims that half of the flows of all its links lose, and one true report names one flow. TCP
/// loses everywhere, at a node, or at a link, where `a` has no part in it.
#[test]
fn one_report_of_losing_flows_hides_no_fault_of_tcp() {
    type IsLost = fn(&str, &str) -> bool;
    let claims = |from: &str, to: &str, object: Value| match (from, to) {
        ("a", _) => losing(object, 8, "out"),
        ("c", "d") => losing(object, 1, "out"),
        _ => object,
    };
    let of_flows = [(Kind::Node, "a", Some(Methods::UDP)), (Kind::Flow, "c->d", Some(Methods::UDP))];
    let cases: [(IsLost, Kind, &str); 3] = [
        (|_, _| true, Kind::Mesh, "*"),
        (|from, to| from == "e" || to == "e", Kind::Node, "e"),
        (|from, to| (from, to) == ("b", "d") || (from, to) == ("d", "b"), Kind::Link, "b->d"),
    ];
    for (is_lost, kind, subject) in cases {
        let lost = |from: &str, to: &str, protocol: &str| 100 * u32::from(protocol == "tcp" && is_lost(from, to));
        let verdicts = three(lost, claims).verdicts();
        let named = named(&verdicts);
        assert!(named.contains(&(kind, subject, Some(Methods::TCP))), "{verdicts:#?}");
        assert!(of_flows.iter().all(|flow| named.contains(flow)) && named.len() == 3, "{verdicts:#?}");
    }
}

/// What TCP loses on other links than those of the flows has another cause.
#[test]
fn paths_of_some_links_explain_no_loss_of_tcp_on_others() {
    let is_path = |from: &str, to: &str| ["ab", "bc", "ca", "ba", "cb", "ac"].contains(&&*format!("{from}{to}"));
    let claims =
        |from: &str, to: &str, object: Value| if is_path(from, to) { losing(object, 8, "out") } else { object };
    let lost = |from: &str, to: &str, protocol: &str| 100 * u32::from(protocol == "tcp" && (from == "e" || to == "e"));
    let named_ones = three(lost, claims).verdicts();
    assert!(named(&named_ones).contains(&(Kind::Node, "e", Some(Methods::TCP))), "{named_ones:#?}");
}

fn hole(object: Value, passes_bytes: u32, way: &str, said: &str) -> Value {
    with(object, "mtu_hole", json!({"passes_bytes": passes_bytes, "direction": way, "said": said}))
}

#[test]
fn a_mesh_that_one_protocol_alone_splits_is_a_partition() {
    let is_cut = |from: &str, to: &str| (from < "c") != (to < "c");
    let lost = |from: &str, to: &str, protocol: &str| if is_cut(from, to) && protocol == "udp" { 100 } else { 0 };
    let verdicts = three(lost, |_, _, object| object).verdicts();
    assert_eq!(named(&verdicts), [(Kind::Partition, "a|c", Some(Methods::UDP))]);
}

#[test]
fn large_packets_that_do_not_pass_are_named_with_their_size() {
    let of_link = |from: &str, to: &str, object: Value| match (from, to) {
        ("a", "b") => hole(object, 1_300, "out", "silent"),
        ("b", "a") => hole(object, 1_300, "in", "silent"),
        ("c", "d") => hole(object, 1_400, "in", "too_big"),
        _ => object,
    };
    let mesh = three(|_, _, _| 0, of_link);
    let verdicts = mesh.verdicts();
    assert_eq!(named(&verdicts), [(Kind::Mtu, "a->b", None)]);
    assert_eq!(verdicts[0].confidence, Confidence::Certain);
    let said = "packets over 1300 bytes do not pass from a to b; nothing says so: they are dropped in silence";
    assert_eq!(evidence(&verdicts[0]), said);
    // Where the network tells the senders, they send smaller ones.
    let note =
        "packets over 1400 bytes do not pass from d to c; the network says so, and the kernels send smaller ones";
    assert_eq!(wording::notes(&judge_whole(&mesh.matrix).overall), [note]);
    let told = three(|_, _, _| 0, |_, _, object| hole(object, 1_300, "out", "too_big"));
    assert_eq!((told.verdicts(), told.headline().as_str()), (Vec::new(), "all well"));
    let note = wording::notes(&judge_whole(&told.matrix).overall).remove(0);
    assert!(note.contains(" from a to b, nor between 9 more pairs of nodes; "), "{note}");
    let mut lie = judge_whole(&told.matrix).overall;
    lie.narrow.as_mut().unwrap().pairs = 0;
    assert!(wording::notes(&lie)[0].contains(" from a to b; "), "{:?}", wording::notes(&lie));
    let all = three(|_, _, _| 0, |_, _, object| hole(object, 1_300, "out", "silent")).verdicts();
    assert_eq!(named(&all), [(Kind::Mtu, "*", None)]);
    assert!(evidence(&all[0]).contains("on 10 of 10 pairs"), "{}", evidence(&all[0]));
    let of_node =
        |from: &str, _: &str, object: Value| if from == "d" { hole(object, 1_300, "out", "silent") } else { object };
    assert_eq!(named(&three(|_, _, _| 0, of_node).verdicts()), [(Kind::Mtu, "d", None)]);
}

/// A mesh of `a` to `e` in which all of 60 probes are lost from `a` to `b`, and from `b` to `a` if
/// `is_back`. No answer has told the way of any. `a` and `b` say that they heard this many requests
/// of each other in this many seconds.
fn without_answers(is_back: bool, heard: [Option<u32>; 2], seconds: [u32; 2]) -> Mesh {
    let lost = |from: &str, to: &str, protocol: &str| match (from, to, protocol) {
        ("a", "b", "udp") => 100,
        ("b", "a", "udp") if is_back => 100,
        _ => 0,
    };
    three(lost, |from, to, object| {
        let (place, is_it) = (usize::from(from == "b"), matches!((from, to), ("a", "b") | ("b", "a")));
        if !is_it {
            return with(object, "heard", json!(60));
        }
        let (sent, lost) = (seconds[place], if lost(from, to, "udp") > 0 { seconds[place] } else { 0 });
        let recent = json!({"seconds": sent, "sent": sent, "received": sent - lost, "lost": lost, "lost_there": 0, "lost_back": 0});
        with(with(object, "recent", recent), "heard", json!(heard[place]))
    })
}

fn directed(mesh: &Mesh) -> (String, Direction, String) {
    let verdicts = mesh.verdicts();
    let [verdict] = &verdicts[..] else { panic!("{verdicts:?}") };
    assert_eq!((verdict.kind, verdict.protocol), (Kind::Link, Some(Methods::UDP)));
    (verdict.subject.clone(), verdict.direction, evidence(verdict))
}

#[test]
fn the_direction_of_a_link_that_loses_all_of_one_way_is_what_both_ends_have_heard() {
    // Packets from a to b are lost: requests of a, and answers to b.
    for (of_a, of_b) in [(60, 60), (31, 60), (60, 31)] {
        let mesh = without_answers(true, [Some(of_a), Some(0)], [of_a, of_b]);
        let (subject, direction, evidence) = directed(&mesh);
        assert_eq!((&*subject, direction), ("a->b", Direction::Out), "{evidence}");
        let all = of_a + of_b;
        let says = format!("; {all} of {all} UDP packets from a were lost, and 0 of {all} UDP packets from b");
        assert!(evidence.contains(&says), "{evidence}");
    }
    let (subject, direction, _) = directed(&without_answers(true, [Some(0), Some(60)], [60, 60]));
    assert_eq!((&*subject, direction), ("b->a", Direction::Out));
}

#[test]
fn what_one_end_loses_alone_has_the_direction_that_the_other_end_says() {
    // Only requests of a are lost, or only the answers to them.
    let (subject, direction, _) = directed(&without_answers(false, [Some(60), Some(0)], [60, 60]));
    assert_eq!((&*subject, direction), ("a->b", Direction::Out));
    let (subject, direction, _) = directed(&without_answers(false, [Some(60), Some(60)], [60, 60]));
    assert_eq!((&*subject, direction), ("b->a", Direction::Out));
}

/// Of two families, IPv6 loses all of one way. IPv4 has lost one probe.
#[test]
fn a_direction_is_that_of_the_family_that_loses() {
    let silent = |from: &str, to: &str, heard: u32| {
        let (lost, ways) = if matches!((from, to), ("a", "b") | ("b", "a")) { (60, 0) } else { (0, 0) };
        let object = with(by("udpv6", to, 60, lost), "heard", json!(heard));
        let recent = with(with(object["recent"].clone(), "lost_there", json!(ways)), "lost_back", json!(ways));
        with(object, "recent", recent)
    };
    let of_ipv4 = |to: &str, lost: u32| {
        let object = with(by("udp", to, 60, lost), "heard", json!(60));
        let recent = with(with(object["recent"].clone(), "lost_there", json!(0)), "lost_back", json!(lost));
        with(object, "recent", recent)
    };
    let mesh = NODES.iter().fold(Mesh::new(), |mesh, from| {
        let of = |to: &&str| {
            // Requests from a do not reach b. Those of b reach a, and the answers are lost.
            let heard = if (*from, *to) == ("b", "a") { 0 } else { 60 };
            let lost = u32::from((*from, *to) == ("b", "a"));
            [by("icmp", to, 60, 0), of_ipv4(to, lost), silent(from, to, heard)]
        };
        let peers: Vec<Value> = NODES.iter().filter(|to| *to != from).flat_map(of).collect();
        mesh.row(&listening(from), &peers)
    });
    let verdicts = mesh.verdicts();
    assert_eq!(named(&verdicts), [(Kind::Link, "a->b", Some(Methods::UDP))], "{verdicts:?}");
    assert_eq!(verdicts[0].direction, Direction::Out, "{verdicts:?}");
}

#[test]
fn without_the_word_of_the_other_end_a_direction_is_not_known() {
    for is_back in [false, true] {
        let (subject, direction, evidence) = directed(&without_answers(is_back, [None, None], [60, 60]));
        assert_eq!((&*subject, direction), ("a->b", Direction::Both), "{evidence}");
    }
    // Both ways lose.
    let (_, direction, _) = directed(&without_answers(true, [Some(0), Some(0)], [60, 60]));
    assert_eq!(direction, Direction::Both);
}

/// `c` loses all that it is sent. One of the others, a liar, says that it heard all or nothing.
#[test]
fn an_end_that_lies_about_what_it_hears_changes_the_figures_of_its_own_links_only() {
    let lost =
        |from: &str, to: &str, protocol: &str| if protocol == "udp" && (from == "c" || to == "c") { 100 } else { 0 };
    let verdict = |lie: Option<u32>| {
        let mesh = three(lost, |from, to, object| {
            let recent = with(object["recent"].clone(), "lost_there", json!(0));
            // The requests of c arrive, and its answers too.
            let heard = if to == "c" && from == "a" {
                lie.unwrap_or(60)
            } else if from == "c" {
                0
            } else {
                60
            };
            with(with(object, "recent", recent), "heard", json!(heard))
        });
        let verdicts = mesh.verdicts();
        let [verdict] = &verdicts[..] else { panic!("{verdicts:?}") };
        assert_eq!((verdict.kind, &*verdict.subject), (Kind::Node, "c"));
        (verdict.direction, evidence(verdict))
    };
    let (direction, evidence) = verdict(None);
    assert_eq!(direction, Direction::In);
    assert!(
        evidence.contains("; 480 of 480 UDP packets to it were lost, and 0 of 480 UDP packets from it"),
        "{evidence}"
    );
    for lie in [0, 30, 4_000_000] {
        let (direction, evidence) = verdict(Some(lie));
        // A quarter of one way is the most that it can say.
        assert!(matches!(direction, Direction::In | Direction::Both), "{lie}: {evidence}");
    }
}

#[test]
fn a_report_from_before_the_fault_does_not_tell_where_it_loses() {
    // The last 15 probes of a are lost, and the report of b is 15 s older.
    let lost = |from: &str, to: &str, protocol: &str| if (from, to, protocol) == ("a", "b", "udp") { 25 } else { 0 };
    let judged = |heard: u32| {
        let mesh = three(lost, |from, to, object| {
            let recent = with(object["recent"].clone(), "lost_there", json!(0));
            with(with(object, "recent", recent), "heard", json!(if (from, to) == ("b", "a") { heard } else { 60 }))
        });
        directed(&mesh)
    };
    assert_eq!(judged(60).1, Direction::Both);
    let (subject, direction, _) = judged(45);
    assert_eq!((&*subject, direction), ("a->b", Direction::Out), "it is as new");
}
