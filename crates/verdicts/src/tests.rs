mod protocols;
mod rewritten;
mod shapes;
mod unsent;
mod words;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::domains::Domains;
use crate::wording::{evidence, summary};
use kube_canary_model::report::{Peer, Source};
use kube_canary_model::verdict::Figure;
use serde_json::{Value, json};

/// A mesh whose agents report what the test says, in the text format that real agents write.
struct Mesh {
    matrix: Matrix,
}

/// When the collections begin, in Unix seconds, and one minute before.
const EPOCH: u64 = 1_800_000_000;
const BEGUN: u64 = EPOCH - 60;

fn peer(node: &str, lost: u32) -> Value {
    json!({"node": node, "zone": "z", "network": "pod", "protocol": "icmp", "state": "ready", "address": "10.0.0.1",
        "sent": 0, "received": 0, "lost": 0, "late": 0, "rtt_p50_seconds": 0.0001, "rtt_p99_seconds": 0.0002,
        "since_unix_seconds": if lost > 0 { json!(BEGUN) } else { Value::Null },
        "recent": {"seconds": 60.0, "sent": 60, "received": 60 - lost, "lost": lost, "rtt_p50_seconds": 0.0001,
            "rtt_p99_seconds": 0.0002}})
}

fn source(node: &str, echo_requests_received: u32) -> Value {
    json!({"node": node, "zone": "z", "version": "0.1.0", "interval_seconds": 1.0, "echo_requests_received": 0,
        "echo_replies_sent": 0, "recent": {"seconds": 60.0, "echo_requests_received": echo_requests_received,
            "echo_replies_sent": echo_requests_received, "probes_skipped": 0, "receive_queue_drops": 0}})
}

fn with(mut object: Value, key: &str, value: Value) -> Value {
    object[key] = value;
    object
}

impl Mesh {
    fn new() -> Self {
        Self { matrix: Matrix::new(EPOCH) }
    }

    fn row(mut self, source: &Value, peers: &[Value]) -> Self {
        let text = source.to_string();
        self.matrix.begin_row(&serde_json::from_str::<Source>(&text).expect("a source"), 0);
        for peer in peers {
            let text = peer.to_string();
            self.matrix.peer(&serde_json::from_str::<Peer>(&text).expect("a peer"));
        }
        self.matrix.end_row();
        self
    }

    fn missing(mut self, node: &str) -> Self {
        self.matrix.missing(node, "timed out");
        self
    }

    fn verdicts(&self) -> Vec<Verdict> {
        judge(&self.matrix)
    }

    fn subjects(&self) -> Vec<(Kind, String)> {
        self.verdicts().into_iter().map(|verdict| (verdict.kind, verdict.subject)).collect()
    }

    fn headline(&self) -> String {
        judge_whole(&self.matrix).headline().text
    }
}

/// The headline of a mesh if no cause is found.
fn headline_without_cause(matrix: &Matrix) -> Headline {
    let standings = agents::standings(matrix);
    let answering = Answering::new(matrix, &standings);
    let overall = at_once(overall::overall((&[], &[]), matrix, &standings, &answering));
    headline(&[], &[], &overall)
}

/// A full mesh in which each of `nodes` loses to each other what `lost` says.
fn full(nodes: &[&str], lost: impl Fn(&str, &str) -> u32) -> Mesh {
    nodes.iter().fold(Mesh::new(), |mesh, from| {
        let peers: Vec<Value> = nodes.iter().filter(|to| *to != from).map(|to| peer(to, lost(from, to))).collect();
        mesh.row(&source(from, 60 * u32::try_from(peers.len()).expect("few")), &peers)
    })
}

#[test]
fn a_judgement_of_many_links_pauses_in_each_walk_over_them() {
    let names: Vec<String> = (0..80).map(|node| format!("node-{node}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mesh = full(&names, |_, to| if to == "node-7" { 20 } else { 0 });
    let (mut judging, mut context) = (pin!(judge_in_slices(&mesh.matrix, &[])), Context::from_waker(Waker::noop()));
    let mut pauses = 0;
    let judgement = loop {
        match judging.as_mut().poll(&mut context) {
            Poll::Ready(judgement) => break judgement,
            Poll::Pending => pauses += 1,
        }
    };
    // 6,320 links are more than one slice. The search for one cause walks over them six times and
    // more.
    assert!(pauses >= 6, "{pauses}");
    assert_eq!(judgement.found.verdicts, mesh.verdicts());
    assert_eq!(judgement.found.verdicts[0].subject, "node-7");
}

#[test]
fn a_judgement_without_half_of_the_reports_is_partial() {
    let is_partial = |missing: &[&str]| {
        let mesh = missing.iter().fold(full(&["a", "b", "c"], |_, _| 0), |mesh, node| mesh.missing(node));
        judge_whole(&mesh.matrix).found.is_partial
    };
    assert!(!is_partial(&[]) && !is_partial(&["d"]) && !is_partial(&["d", "e"]));
    assert!(is_partial(&["d", "e", "f"]));
    let lossy = full(&["a", "b", "c"], |_, to| if to == "c" { 20 } else { 0 });
    let lossy = ["d", "e", "f"].iter().fold(lossy, |mesh, node| mesh.missing(node));
    let found = judge_whole(&lossy.matrix).found;
    assert!(!found.is_partial && found.verdicts[0].kind < Kind::AgentStarved, "{:?}", found.verdicts);
    assert!(!judge_whole(&Mesh::new().matrix).found.is_partial);
}

#[test]
fn nodes_that_were_not_measured_are_not_well() {
    assert_eq!(Mesh::new().headline(), "nothing measured yet");
    assert_eq!(Mesh::new().row(&source("a", 0), &[]).headline(), "nothing measured yet");
    let unsent = with(peer("b", 0), "recent", json!({"seconds": 1.0, "sent": 1, "received": 0, "lost": 0}));
    assert_eq!(Mesh::new().row(&source("a", 0), &[unsent]).headline(), "nothing measured yet");
    let partial = full(&["a", "b", "c"], |_, _| 0).row(&source("d", 0), &[]);
    assert_eq!(partial.headline(), "all well as far as measured: nothing is known of d");
    assert_eq!(full(&["a", "b", "c"], |_, _| 0).headline(), "all well");
}

#[test]
fn one_or_two_lost_probes_give_no_verdict() {
    for lost in [1, 2] {
        let mesh = full(&["a", "b", "c", "d"], |from, to| if (from, to) == ("a", "b") { lost } else { 0 });
        assert_eq!(mesh.headline(), "all well");
    }
}

#[test]
fn a_bad_node_is_named_with_its_figures_and_its_victims_are_not() {
    let mesh = full(&["a", "b", "c", "d"], |from, to| if from == "c" || to == "c" { 6 } else { 0 });
    let verdicts = mesh.verdicts();
    assert_eq!(verdicts.len(), 1, "{verdicts:?}");
    let mut expected = json!({"id": "c57018f674a362c5f332306335191f17", "confidence": "certain", "severity": "critical",
        "kind": "node", "subject": "c", "direction": "both", "network": "pod", "family": null, "protocol": null,
        "figures": {"probes_to": 180, "lost_to": 18, "sources": 3, "sources_hit": 3,
            "probes_by": 180, "lost_by": 18, "targets": 3, "targets_hit": 3}, "since_unix_seconds": BEGUN});
    assert_eq!(serde_json::to_value(&verdicts[0]).expect("JSON"), expected);
    let evidence = "loses 10.0 % of the probes from 3 of 3 sources, and 10.0 % of its own to 3 of 3 nodes";
    let words = json!({"title": "node c, pod network", "summary": "c loses 10 % of its packets", "evidence": evidence});
    expected.as_object_mut().expect("an object").extend(words.as_object().expect("an object").clone());
    let worded = wording::worded(&verdicts, serde_json::value::Serializer).expect("JSON");
    assert_eq!(worded, json!([expected]), "as readers get it");
    assert_eq!(mesh.headline(), "c loses 10 % of its packets");
}

#[test]
fn a_bad_link_is_named_and_its_nodes_are_not() {
    let between = |from: &str, to: &str| matches!((from, to), ("c", "b") | ("b", "c"));
    let mesh = full(&["a", "c", "b", "d"], |from, to| if between(from, to) { 12 } else { 0 });
    assert_eq!(mesh.subjects(), [(Kind::Link, "b->c".into())]);
    assert_eq!(
        evidence(&mesh.verdicts()[0]),
        "loses 20.0 % of the round trips: 12 of 60 from b to c, 12 of 60 from c to b"
    );
    // Only one of them loses: a filter does that, not a wire.
    let mesh = full(&["a", "b", "c", "d"], |from, to| if (from, to) == ("c", "b") { 60 } else { 0 });
    assert_eq!(mesh.subjects(), [(Kind::Link, "c->b".into())]);
}

#[test]
fn a_link_has_one_id_whichever_direction_the_evidence_of_a_collection_shows() {
    let lost_by = |loser: &'static str| {
        let mesh = full(&["a", "b", "c", "d"], move |from, to| {
            let is_between = matches!((from, to), ("b", "c") | ("c", "b"));
            if is_between && from == loser { 12 } else { 0 }
        });
        mesh.verdicts().remove(0)
    };
    let (of_b, of_c) = (lost_by("b"), lost_by("c"));
    assert_eq!(
        [&of_b, &of_c].map(|verdict| (verdict.kind, verdict.subject.as_str())),
        [(Kind::Link, "b->c"), (Kind::Link, "c->b")]
    );
    assert_eq!(of_b.id, of_c.id);
    let other = full(&["a", "b", "c", "d"], |from, to| if (from, to) == ("b", "d") { 12 } else { 0 });
    assert_ne!(other.verdicts()[0].id, of_b.id);
}

#[test]
fn the_direction_turns_with_the_ends_of_its_link() {
    let of = |subject: &str, direction| {
        let mut verdict = full(&["a", "b"], |_, _| 30).verdicts().remove(0);
        (verdict.subject, verdict.direction) = (subject.to_owned(), direction);
        let Verdict { subject, direction, .. } = verdict.clone().in_order();
        (subject, direction)
    };
    assert_eq!(of("a->b", Direction::Out), ("a->b".to_owned(), Direction::Out));
    assert_eq!(of("b->a", Direction::Out), ("a->b".to_owned(), Direction::In));
    assert_eq!(of("b->a", Direction::Both), ("a->b".to_owned(), Direction::Both));
}

#[test]
fn of_two_nodes_the_link_is_bad_unless_one_is_silent_too() {
    let mesh = full(&["a", "b"], |_, _| 30);
    assert_eq!(mesh.subjects(), [(Kind::Link, "a->b".into())]);
    let silent = Mesh::new().row(&source("a", 0), &[peer("b", 60)]).missing("b");
    assert_eq!(silent.subjects(), [(Kind::Node, "b".into())]);
    assert!(evidence(&silent.verdicts()[0]).ends_with("its agent does not answer either (timed out)"));
}

#[test]
fn an_address_where_another_node_answers_says_nothing_of_the_node_in_the_list() {
    for lost in [0, 60] {
        let row = |from: &str, to: &str| (source(from, 0), [peer(to, 0), peer("dead", lost)]);
        let [(a, of_a), (b, of_b)] = [row("a", "b"), row("b", "a")];
        let mut mesh = Mesh::new().row(&a, &of_a).row(&b, &of_b).missing("dead");
        assert_eq!(mesh.subjects().len(), 1, "without knowing which node answers");
        mesh.matrix.displaced("dead");
        assert_eq!(mesh.subjects(), []);
        let headline = headline_without_cause(&mesh.matrix).text;
        assert_eq!(headline, "all well as far as measured: nothing is known of dead");
    }
}

#[test]
fn an_agent_that_does_not_answer_is_no_bad_node_while_its_node_answers() {
    let row = |from: &str, lost| Mesh::new().row(&source(from, 0), &[peer("c", lost), peer("d", 0)]);
    let reachable = row("a", 0).row(&source("d", 0), &[peer("c", 1)]).missing("c");
    assert_eq!(reachable.subjects(), [(Kind::AgentUnreachable, "c".into())]);
    let said = evidence(&reachable.verdicts()[0]);
    assert_eq!(said, "its report is missing (timed out); its node answers 99.2 % of the probes of 2 sources");
    let over_ipv6 = |object: Value| with(object, "protocol", json!("icmpv6"));
    let dual = |from: &str| [peer("c", 0), over_ipv6(peer("c", 0)), peer(from, 0), over_ipv6(peer(from, 0))];
    let dual = Mesh::new().row(&source("a", 0), &dual("d")).row(&source("d", 0), &dual("a")).missing("c");
    assert!(evidence(&dual.verdicts()[0]).ends_with(" of the probes of 2 sources"), "{:?}", dual.verdicts());
    let dead = row("a", 60).row(&source("d", 0), &[peer("c", 60), peer("a", 0)]).missing("c");
    assert_eq!(dead.subjects(), [(Kind::Node, "c".into())]);
    let unknown = full(&["a", "b"], |_, _| 0).missing("x");
    assert_eq!(unknown.subjects(), [(Kind::AgentUnreachable, "x".into())]);
    assert!(evidence(&unknown.verdicts()[0]).ends_with("nothing is measured of its node"));
}

#[test]
fn an_agent_on_a_node_that_is_cut_off_names_its_own_node() {
    let names = ["b", "c", "d", "e"];
    let alone = Mesh::new().row(&source("a", 0), &names.map(|name| peer(name, 60)));
    let mesh = names.iter().fold(alone, |mesh, name| mesh.missing(name));
    assert_eq!(mesh.subjects(), [(Kind::Node, "a".into())]);
    assert_eq!(mesh.headline(), "a is cut off: it loses all packets");
}

#[test]
fn a_node_that_is_being_removed_is_no_evidence() {
    let leaving = |from: &str, state: &str| {
        let others: Vec<Value> = ["a", "b", "c", "d"].iter().filter(|to| **to != from).map(|to| peer(to, 0)).collect();
        let gone = with(peer("x", 60), "state", json!(state));
        (source(from, 0), others.into_iter().chain([gone]).collect::<Vec<_>>())
    };
    let rows = [("a", "terminating"), ("b", "left"), ("c", "ready"), ("d", "ready")];
    let mesh = rows.iter().fold(Mesh::new(), |mesh, (from, state)| {
        let (source, peers) = leaving(from, state);
        mesh.row(&source, &peers)
    });
    assert_eq!(mesh.missing("x").headline(), "all well", "half of them know it");
}

#[test]
fn the_nodes_whose_evidence_does_not_count_are_listed() {
    let symptoms = json!({"seconds": 60.0, "receive_queue_drops": 40});
    let gone = (0..LEAVING_MAX + 2).map(|n| with(peer(&format!("gone{n}"), 60), "state", json!("terminating")));
    let peers = [peer("a", 0), peer("b", 0), peer("c", 0)].into_iter().chain(gone).collect::<Vec<_>>();
    let mesh = ["a", "b", "c"].iter().fold(Mesh::new(), |mesh, from| {
        let is_starved = *from != "a";
        mesh.row(&if is_starved { with(source(from, 0), "recent", symptoms.clone()) } else { source(from, 0) }, &peers)
    });
    let judgement = judge_whole(&mesh.matrix);
    assert_eq!(judgement.starved, ["b", "c"]);
    assert_eq!((judgement.leaving.len(), judgement.leaving_not_listed), (LEAVING_MAX, 2));
    assert_eq!(judgement.leaving[..2], ["gone0", "gone1"]);
    assert_eq!((&judgement.found.verdicts, judgement.headline().text), (&mesh.verdicts(), mesh.headline()));
    // A starved agent of a node that is being removed is on one list only.
    let mesh = mesh.row(&with(source("gone0", 0), "recent", symptoms), &[]);
    assert_eq!((judge_whole(&mesh.matrix).starved, judge_whole(&mesh.matrix).leaving[0]), (vec!["b", "c"], "gone0"));
    let well = full(&["a", "b"], |_, _| 0);
    let judgement = judge_whole(&well.matrix);
    assert!(judgement.starved.is_empty() && judgement.leaving.is_empty() && judgement.leaving_not_listed == 0);
}

/// In a growing mesh, most agents that probed the first nodes later probe others, and list the
/// first nodes as left.
#[test]
fn a_node_that_few_still_probe_is_judged_by_their_reports() {
    let names: Vec<String> = (0..25).map(|n| format!("n{n}")).collect();
    let mesh = names.iter().enumerate().fold(Mesh::new(), |mesh, (at, from)| {
        let others = names.iter().filter(|to| *to != from).map(|to| peer(to, 0));
        let recent = json!({"seconds": 60.0, "sent": 0, "received": 0, "lost": 0});
        let left = with(with(peer("x", 0), "state", json!("left")), "recent", recent);
        let of_x = if at < 12 { peer("x", 60) } else { left };
        mesh.row(&source(from, 0), &others.chain([of_x]).collect::<Vec<_>>())
    });
    assert_eq!(mesh.missing("x").subjects(), [(Kind::Node, "x".into())]);
}

#[test]
fn measurements_of_a_starved_agent_are_discounted() {
    let symptoms =
        json!({"seconds": 60.0, "receive_queue_drops": 40, "echo_requests_received": 180, "echo_replies_sent": 180});
    let starved = with(source("b", 0), "recent", symptoms);
    let nodes = ["a", "c", "d"];
    let mesh = Mesh::new().row(&starved, &nodes.map(|to| peer(to, 13)));
    let mesh = nodes.iter().fold(mesh, |mesh, from| {
        let peers: Vec<Value> = ["a", "b", "c", "d"].iter().filter(|to| *to != from).map(|to| peer(to, 0)).collect();
        mesh.row(&source(from, 180), &peers)
    });
    assert_eq!(mesh.subjects(), [(Kind::AgentStarved, "b".into())]);
    assert_eq!(mesh.headline(), "the agent on b is starved: its socket dropped 40 packets unread");
}

/// Both networks of four nodes. `d` loses this many of 60 probes on each network,
/// all of them inbound.
fn both_networks(pods: u32, nodes: u32) -> Mesh {
    let names = ["a", "b", "c", "d"];
    names.iter().fold(Mesh::new(), |mesh, from| {
        let others = names.iter().filter(|to| *to != from);
        let both = others.flat_map(|to| {
            let lost = |of| if *from == "d" || *to == "d" { of } else { 0 };
            [peer(to, lost(pods)), with(peer(to, lost(nodes)), "network", json!("node"))]
        });
        let counted = if *from == "d" { 3 * (60 - pods) } else { 180 };
        mesh.row(&source(from, counted), &both.collect::<Vec<_>>())
    })
}

#[test]
fn a_network_that_loses_alone_is_named() {
    let below = both_networks(0, 20);
    assert_eq!(below.headline(), "d loses 33 % of its packets (node network)");
    let overlay = both_networks(20, 0);
    assert_eq!(overlay.headline(), "d loses 33 % of what is sent to it");
    for (mesh, network) in [(below, Network::Node), (overlay, Network::Pod)] {
        let verdicts = mesh.verdicts();
        assert_eq!(mesh.subjects(), [(Kind::Node, "d".into())]);
        assert_eq!(verdicts[0].network, network);
        assert!(!evidence(&verdicts[0]).contains("so does"), "{}", evidence(&verdicts[0]));
    }
}

#[test]
fn losses_of_both_networks_are_one_verdict_of_the_node_network_with_the_pods_direction() {
    // The losses need not be exactly equal.
    for (pods, nodes) in [(20, 20), (18, 23), (15, 40), (4, 3)] {
        let mesh = both_networks(pods, nodes);
        let verdicts = mesh.verdicts();
        assert_eq!(mesh.subjects(), [(Kind::Node, "d".into())], "{verdicts:?}");
        assert_eq!(verdicts[0].network, Network::Node);
        assert!(evidence(&verdicts[0]).contains("; so does the pod network, "), "{}", evidence(&verdicts[0]));
    }
    assert_eq!(both_networks(20, 20).headline(), "d loses 33 % of what is sent to it (node network)");
}

#[test]
fn an_overlay_that_loses_far_more_has_a_cause_of_its_own() {
    let of = |verdict: Verdict| (verdict.subject, verdict.network);
    let found: Vec<_> = both_networks(40, 5).verdicts().into_iter().map(of).collect();
    assert_eq!(found, [("d".to_owned(), Network::Pod), ("d".to_owned(), Network::Node)]);
}

/// Inbound losses of a node, as its own counter and those of the others show them.
fn losing_inbound(change: impl Fn(&str, Value) -> Value, address: &str) -> Mesh {
    let names = ["a", "b", "c", "d"];
    names.iter().fold(Mesh::new(), |mesh, from| {
        let others = names.iter().filter(|to| *to != from);
        let peers =
            others.map(|to| with(peer(to, if *from == "d" || *to == "d" { 15 } else { 0 }), "address", json!(address)));
        let counted = if *from == "d" { 3 * 45 } else { 180 };
        mesh.row(&change(from, source(from, counted)), &peers.collect::<Vec<_>>())
    })
}

#[test]
fn the_counters_show_inbound_loss_if_all_of_them_can_be_compared() {
    let mesh = losing_inbound(|_, source| source, "10.0.0.1");
    assert_eq!(mesh.verdicts()[0].direction, Direction::In);
    let figures = "; 45 of 180 requests to it were lost, and 0 of 180 requests from it";
    assert!(evidence(&mesh.verdicts()[0]).ends_with(figures), "{}", evidence(&mesh.verdicts()[0]));
    assert_eq!(mesh.headline(), "d loses 25 % of what is sent to it");
}

#[test]
fn losses_of_a_starved_agent_to_a_node_are_not_counted_as_outbound_losses_of_another() {
    // Only d loses requests, and its own probes are not the reason. Only b's losses are evidence.
    let lost = |from: &str, to: &str| if to == "d" && ["b", "c"].contains(&from) { 15 } else { 0 };
    let names = ["a", "b", "c", "d"];
    let mesh = names.iter().fold(Mesh::new(), |mesh, from| {
        let others = names.iter().filter(|to| *to != from);
        let mut source = source(from, if *from == "d" { 60 + 2 * 45 } else { 180 });
        if *from == "c" {
            source["recent"]["probes_skipped"] = json!(20);
        }
        mesh.row(&source, &others.map(|to| peer(to, lost(from, to))).collect::<Vec<_>>())
    });
    let verdicts = mesh.verdicts();
    let link = &verdicts[0];
    assert_eq!(
        (link.kind, link.subject.as_str(), link.direction),
        (Kind::Link, "b->d", Direction::Both),
        "{verdicts:?}"
    );
    assert_eq!(
        evidence(link),
        "loses 12.5 % of the round trips: 15 of 60 from b to d, 0 of 60 from d to b; only b reports the loss, and what d reports excludes it"
    );
}

#[test]
fn a_count_a_little_above_what_was_sent_is_none_lost() {
    let names = ["a", "b", "c"];
    let mesh = names.iter().fold(Mesh::new(), |mesh, from| {
        let others = names.iter().filter(|to| *to != from);
        let lost = |to: &&str| if (*from, *to) == ("a", "b") { 30 } else { 0 };
        // Windows differ by a fraction of a probe.
        let counted = if *from == "b" { 90 } else { 120 };
        let mut source = source(from, counted);
        source["recent"]["seconds"] = json!(59.9);
        mesh.row(&source, &others.map(|to| peer(to, lost(to))).collect::<Vec<_>>())
    });
    let evidence = &evidence(&mesh.verdicts()[0]);
    assert!(evidence.ends_with("30 of 60 requests from a were lost, and 0 of 60 requests from b"), "{evidence}");
}

#[test]
fn no_direction_is_reported_if_the_evidence_does_not_hold() {
    let direction = |mesh: &Mesh| {
        let verdicts = mesh.verdicts();
        let node = verdicts.iter().find(|verdict| verdict.kind == Kind::Node).expect("a bad node");
        (node.subject.clone(), node.direction)
    };
    let both = ("d".to_owned(), Direction::Both);
    let same = |_: &str, source: Value| source;
    let pinged = |node: &str, source: Value| {
        let recent = json!({"seconds": 60.0, "echo_requests_received": 300, "echo_replies_sent": 300});
        if node == "d" { with(source, "recent", recent) } else { source }
    };
    let older = |_: &str, source: Value| with(source, "recent", json!({}));
    assert_eq!(direction(&losing_inbound(pinged, "10.0.0.1")), both, "somebody else pings it");
    assert_eq!(direction(&losing_inbound(same, "127.0.0.4")), both, "one namespace for all");
    assert_eq!(direction(&losing_inbound(same, "10.0.0.1").missing("e")), both, "a row is missing");
    assert_eq!(direction(&losing_inbound(same, "10.0.0.1").missing("a")), both, "a row broke off");
    assert_eq!(direction(&losing_inbound(older, "10.0.0.1")), both, "agents that do not say what they counted");
    let none = json!({"seconds": 60.0, "echo_requests_received": 0, "echo_replies_sent": 0});
    let denied = |node: &str, source: Value| if node == "a" { with(source, "recent", none.clone()) } else { source };
    let direction_of = direction(&losing_inbound(denied, "10.0.0.1")).1;
    assert_ne!(direction_of, Direction::Out, "one report that counts nothing turns no direction");
}

#[test]
fn the_order_of_the_rows_does_not_matter() {
    let lost = |from: &str, to: &str| match (from, to) {
        ("c", _) | (_, "c") => 9,
        ("e", "f") | ("f", "e") => 30,
        _ => 0,
    };
    let mut all = BTreeMap::new();
    for names in [["a", "b", "c", "d", "e", "f", "g"], ["f", "g", "e", "c", "b", "d", "a"]] {
        let mut verdicts = full(&names, lost).verdicts();
        for verdict in &mut verdicts {
            verdict.weight = 0.0;
        }
        all.insert(names, verdicts);
    }
    let all: Vec<_> = all.into_values().collect();
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0].len(), 2);
}

#[test]
fn members_that_no_report_names_are_not_well() {
    let names = ["a", "b", "c"];
    let mesh = names.iter().fold(Mesh::new(), |mesh, from| {
        let peers: Vec<Value> = names.iter().filter(|to| *to != from).map(|to| peer(to, 0)).collect();
        mesh.row(&with(source(from, 120), "members", json!(10)), &peers)
    });
    assert_eq!(mesh.headline(), "all well as far as measured: nothing is known of 7 nodes");
}

#[test]
fn a_link_to_a_node_that_no_other_row_knows_may_be_the_node() {
    let mesh = full(&["a", "b", "c", "d"], |_, _| 0);
    let lossy = mesh.row(&source("e", 0), &[peer("a", 0), peer("far", 20), peer("d", 0)]);
    let verdicts = lossy.verdicts();
    assert_eq!(lossy.subjects(), [(Kind::Link, "e->far".into())]);
    let evidence = &evidence(&verdicts[0]);
    assert!(evidence.ends_with("; no other collected report names far: the cause may be far"), "{evidence}");
}

#[test]
fn two_verdicts_are_counted_in_the_headline() {
    let lost = |from: &str, to: &str| match (from, to) {
        ("c", _) | (_, "c") => 9,
        _ => 0,
    };
    let mesh = full(&["a", "b", "c", "d", "e"], lost).missing("x");
    assert_eq!(mesh.headline(), "c loses 15 % of its packets, and 1 more");
}

fn far(node: &str, zone: &str, rtt_ms: f64) -> Value {
    let recent = json!({"seconds": 60.0, "sent": 60, "received": 60, "lost": 0, "rtt_p50_seconds": rtt_ms / 1e3});
    with(with(peer(node, 0), "zone", json!(zone)), "recent", recent)
}

/// Two nodes in each of three zones, one millisecond apart, plus what `rtt_ms` adds.
fn three_zones(rtt_ms: impl Fn(&str, &str) -> f64) -> Mesh {
    let nodes = [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("c1", "c"), ("c2", "c")];
    nodes.iter().fold(Mesh::new(), |mesh, (from, zone)| {
        let others = nodes.iter().filter(|(to, _)| to != from);
        let peers = others.map(|(to, zone)| far(to, zone, rtt_ms(from, to)));
        mesh.row(&with(source(from, 300), "zone", json!(zone)), &peers.collect::<Vec<_>>())
    })
}

#[test]
fn slowness_is_of_a_zone_pair_a_node_or_a_link() {
    let between = |from: &str, to: &str| if from[..1] == to[..1] { 0.1 } else { 1.0 };
    let is = |from: &str, to: &str, a: &str, b: &str| {
        from.starts_with(a) && to.starts_with(b) || from.starts_with(b) && to.starts_with(a)
    };
    assert_eq!(three_zones(between).headline(), "all well");
    let zones = three_zones(|from, to| between(from, to) + if is(from, to, "a", "b") { 9.0 } else { 0.0 });
    assert_eq!(zones.subjects(), [(Kind::ZonePair, "a->b".into())]);
    assert_eq!(zones.headline(), "zone a <-> zone b is slow");
    let link = three_zones(|from, to| between(from, to) + if is(from, to, "a1", "b2") { 9.0 } else { 0.0 });
    assert_eq!(link.subjects(), [(Kind::Link, "a1->b2".into())]);
    let node = three_zones(|from, to| between(from, to) + if from == "c2" || to == "c2" { 9.0 } else { 0.0 });
    // Within its zone there is no other pair to compare with.
    assert_eq!(node.headline(), "c2 is slow to 4 of 5 nodes");
}

/// Three zones in which each agent, by its name, reports the usual time in milliseconds.
fn with_an_hour(rtt_ms: f64, usual_ms: impl Fn(&str, &str) -> Option<f64>) -> Mesh {
    let nodes = [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("c1", "c"), ("c2", "c")];
    nodes.iter().fold(Mesh::new(), |mesh, (from, zone)| {
        let peers = nodes.iter().filter(|(to, _)| to != from).map(|(to, zone)| {
            let usual = usual_ms(from, to).map(|usual_ms| usual_ms / 1e3);
            with(far(to, zone, rtt_ms), "usual_rtt_p50_seconds", json!(usual))
        });
        mesh.row(&with(source(from, 300), "zone", json!(zone)), &peers.collect::<Vec<_>>())
    })
}

#[test]
fn links_slow_by_their_own_last_hour_are_the_mesh_if_all_are() {
    let mesh = with_an_hour(9.0, |_, _| Some(1.0));
    assert_eq!(mesh.subjects(), [(Kind::Mesh, "*".into())]);
    assert_eq!(mesh.headline(), "all links are slow");
    let verdicts = mesh.verdicts();
    let evidence = &evidence(&verdicts[0]);
    assert!(evidence.contains("on 15 of 15 pairs of nodes they take at least 4 times as long"), "{evidence}");
    let calm = |usual: &dyn Fn(&str, &str) -> Option<f64>| with_an_hour(9.0, usual).headline();
    assert_eq!(calm(&|_, _| Some(3.0)), "all well", "three times is not far slower");
    assert_eq!(calm(&|_, _| None), "all well", "no report says what was usual");
    let within = |from: &str, to: &str| from[..1] == to[..1];
    assert_eq!(
        calm(&|from, to| Some(if within(from, to) { 9.0 } else { 1.0 })),
        "all well",
        "within zones all is as usual"
    );
    assert_eq!(calm(&|from, to| Some(if within(from, to) { 1.0 } else { 9.0 })), "all well", "between zones it is");
    assert_eq!(
        calm(&|from, to| Some(if from == "a1" || to == "a1" { 1.0 } else { 9.0 })),
        "all well",
        "one node's are slow"
    );
}

#[test]
fn one_of_two_reports_alone_does_not_make_all_links_slow() {
    let of = |one: Option<f64>, others: f64| with_an_hour(9.0, |from, _| if from == "b2" { one } else { Some(others) });
    assert_eq!(of(Some(1.0), 9.0).headline(), "all well");
    assert_eq!(of(Some(9.0), 1.0).headline(), "all links are slow");
    assert_eq!(of(None, 1.0).headline(), "all links are slow", "an agent that has just started");
}
