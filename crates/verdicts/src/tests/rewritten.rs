//! Nodes whose source address the network rewrites.

use super::*;

/// What the reports of a mesh say of the session of `a`.
struct Said {
    /// The session that `a` gives.
    session: Value,
    /// What each other node has heard: its name, and the strangers.
    heard: Vec<(&'static str, Value)>,
}

fn session(ssid: u16) -> Value {
    json!({"ssid": ssid, "addresses": ["10.0.0.1"]})
}

fn stranger(ssid: u16, requests: u32) -> Value {
    json!([{"address": "10.0.0.101", "ssid": ssid, "requests": requests}])
}

/// A full mesh by all protocols, in which `a` loses all by UDP to these nodes.
fn mesh(nodes: &[&str], lossy: &[&str], said: &Said) -> Mesh {
    nodes.iter().fold(Mesh::new(), |mesh, from| {
        let objects = |to: &&str| {
            let (from, to) = (*from, *to);
            ["icmp", "udp", "tcp"].map(|protocol| {
                let lost = if from == "a" && protocol == "udp" && lossy.contains(&to) { 60 } else { 0 };
                with(peer(to, lost), "protocol", json!(protocol))
            })
        };
        let peers: Vec<Value> = nodes.iter().filter(|to| *to != from).flat_map(objects).collect();
        let source =
            with(source(from, 60 * u32::try_from(nodes.len() - 1).expect("few")), "listening_seconds", json!(600));
        let source = match said.heard.iter().find(|(node, _)| node == from) {
            Some((_, strangers)) => with(source, "strangers", strangers.clone()),
            None => source,
        };
        mesh.row(&if *from == "a" { with(source, "session", said.session.clone()) } else { source }, &peers)
    })
}

const NODES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn all_hear(ssid: u16, requests: u32) -> Vec<(&'static str, Value)> {
    ["b", "c", "d", "e"].map(|node| (node, stranger(ssid, requests))).to_vec()
}

#[test]
fn a_node_whose_address_is_rewritten_is_named_with_both_addresses() {
    let mesh = mesh(&NODES, &NODES[1..], &Said { session: session(0x1234), heard: all_hear(0x1234, 55) });
    let verdicts = mesh.verdicts();
    let [verdict] = &verdicts[..] else { panic!("{verdicts:?}") };
    assert_eq!((verdict.kind, verdict.subject.as_str(), verdict.direction), (Kind::Node, "a", Direction::Out));
    assert_eq!((verdict.protocol, verdict.severity), (Some(Methods::UDP), Severity::Warning));
    assert!(verdict.loss_ratio().is_none(), "nothing is lost");
    assert_eq!(mesh.headline(), "a sends from 10.0.0.101 instead of 10.0.0.1, so that UDP probes get no answer");
    let text = evidence(verdict);
    assert!(text.starts_with("on 4 of 4 links its UDP probes arrive from 10.0.0.101"), "{text}");
    assert_eq!(wording::notes(&judge_whole(&mesh.matrix).overall), Vec::<String>::new());
}

/// Half a minute after its pod was replaced, the lists of some agents do not have the address yet.
#[test]
fn requests_from_the_address_that_a_node_gives_itself_are_not_rewritten() {
    let session = json!({"ssid": 0x1234, "addresses": ["10.0.0.101"]});
    let mesh = mesh(&NODES, &["b", "c"], &Said { session, heard: all_hear(0x1234, 55) });
    assert!(mesh.verdicts().is_empty(), "{:?}", mesh.verdicts());
    assert_eq!(wording::notes(&judge_whole(&mesh.matrix).overall), Vec::<String>::new());
}

#[test]
fn what_does_not_fit_leaves_the_loss_a_fault_and_is_a_note() {
    for (what, session, heard) in [
        ("another session", session(0x1234), all_hear(0x1236, 55)),
        ("too few", session(0x1234), all_hear(0x1234, 19)),
        ("too many", session(0x1234), all_hear(0x1234, 200)),
        ("no session", Value::Null, all_hear(0x1234, 55)),
        ("one witness of four", session(0x1234), vec![("c", stranger(0x1234, 55))]),
    ] {
        let mesh = mesh(&NODES, &NODES[1..], &Said { session, heard });
        let verdicts = mesh.verdicts();
        assert_eq!(verdicts.len(), 1, "{what}: {verdicts:?}");
        let of = |verdict: &Verdict| (verdict.subject.clone(), verdict.severity, verdict.loss_ratio().is_some());
        assert_eq!(of(&verdicts[0]), ("a".to_owned(), Severity::Critical, true), "{what}");
        let notes = wording::notes(&judge_whole(&mesh.matrix).overall);
        assert!(notes.len() == 1 && notes[0].contains(" from 10.0.0.101, "), "{what}: {notes:?}");
    }
}

#[test]
fn links_without_a_witness_stay_a_fault_beside_those_that_are_rewritten() {
    let heard = vec![("b", stranger(2, 60)), ("c", stranger(2, 60))];
    let mesh = mesh(&NODES, &["b", "c", "d"], &Said { session: session(2), heard });
    let found: Vec<(Kind, String)> = mesh.subjects();
    assert!(found.contains(&(Kind::Node, "a".into())) && found.contains(&(Kind::Link, "a->d".into())), "{found:?}");
}

#[test]
fn two_nodes_are_witnesses_enough_for_each_other() {
    let mesh = mesh(&["a", "b"], &["b"], &Said { session: session(2), heard: vec![("b", stranger(2, 60))] });
    let verdicts = mesh.verdicts();
    assert!(verdicts.len() == 1 && verdicts[0].mentioned(Mention::SeenAs) == Some("10.0.0.101"), "{verdicts:?}");
}
