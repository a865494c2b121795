//! A client or another agent that misbehaves during a collection harms only itself.

use std::io::{BufReader, Write};
use std::time::Duration;

use kube_canary::discovery::MeshFacts;
use kube_canary::limits::{REPORT_BYTES_MAX, REPORT_PEERS_MAX};
use kube_canary::mesh::Times;
use serde_json::Value;

use crate::agents::{
    Answer, Discovered, Mesh, address_of, errors, nodes, peer, ring, row, source, spec, spec_of, unhurried,
};
use crate::http_support::{Closed, connect, eventually, get, receive};

#[test]
fn a_path_of_more_than_one_segment_is_forwarded_to_no_agent() {
    let mesh = Mesh::of(&[("b", Answer::Text(row("b", &[])))]);
    let hour = |path: &str| get(mesh.address(), path).expect("an answer").status;
    assert_eq!(hour("/api/v1/hour/b/me/b/me/b/c"), 404);
    assert_eq!(hour("/api/v1/hour/me/b/c"), 404);
    assert_eq!(hour("/api/v1/hour/b/c/"), 404);
    assert_eq!(mesh.hours(), 0);
    assert_eq!(hour("/api/v1/hour/b/c"), 200);
    assert_eq!(mesh.hours(), 1);
}

/// Three nodes that lose packets to a fourth, and a liar whose reports are `lies`. `check` tests
/// what a judge holds, and the reports as an agent passes them on.
fn with_a_liar(lies: &[String], check: impl FnOnce(&Value, &Value)) {
    let honest = |node: &str| {
        let others = ["a", "b", "c", "d"].into_iter().filter(|other| *other != node);
        let peers: Vec<String> = others.map(|other| peer(other, if other == "d" { 20 } else { 0 })).collect();
        (node.to_owned(), Answer::Text(row(node, &peers)))
    };
    let mut others: Vec<(String, Answer)> = ["a", "b", "c"].map(honest).into();
    others.push(("liar".to_owned(), Answer::Text(row("liar", lies))));
    let others: Vec<(&str, Answer)> = others.iter().map(|(node, answer)| (node.as_str(), answer.clone())).collect();
    // A member that gives no report, as may happen to a node that loses packets.
    let closed = Closed::new();
    let mesh = Mesh::judge_of(&others, vec![spec("d", closed.port)]);
    check(&mesh.held(), &mesh.document().1);
}

fn named_causes(held: &Value) -> Vec<(&str, &str)> {
    let verdicts = held["verdicts"].as_array().expect("verdicts");
    let all = verdicts.iter().map(|v| (v["kind"].as_str().expect("a kind"), v["subject"].as_str().expect("a subject")));
    all.collect()
}

#[test]
fn a_row_that_names_nodes_as_leaving_hides_no_verdict() {
    let leaving = |node: &str| peer(node, 0).replace("\"ready\"", "\"terminating\"");
    with_a_liar(&["a", "b", "c", "d"].map(leaving), |held, _| {
        assert!(named_causes(held).contains(&("node", "d")), "{held}");
        assert!(errors(held).iter().all(|(node, _)| *node == "d"), "{held}");
    });
}

#[test]
fn nodes_that_discovery_does_not_know_are_not_asked_and_do_not_count() {
    // Twelve agents run, and their reports name each other. Discovery knows the first four.
    let mesh = Mesh::partial_by(16, 12, ring(16), |port| Discovered {
        peers: vec![spec_of(16, 0, port)],
        roster: (0..4).map(|node| (format!("n{node}"), address_of(16, node))).collect(),
        facts: MeshFacts { members: 5, ..MeshFacts::default() },
        ..Discovered::default()
    });
    let (_, document) = mesh.document();
    let mut found = nodes(&document);
    found.sort_unstable();
    assert_eq!((found, mesh.asked()), (vec!["me", "n0", "n1", "n2", "n3"], 4));
    drop((document, mesh));
    let lies: Vec<String> = (0..400).map(|n| peer(&format!("ghost-{n}"), 0)).collect();
    with_a_liar(&lies, |held, document| {
        assert_eq!(named_causes(held)[0], ("node", "d"));
        assert_eq!((&held["nodes"], &held["overview"]["not_gathered"]), (&6.into(), &0.into()));
        let text = format!("{held}{document}");
        assert!(!text.contains("ghost-"), "what is not known is not passed on: {text}");
    });
}

/// People read what a report says of a path.
#[test]
fn a_trace_that_no_agent_would_write_is_not_passed_on_and_its_report_is_missing() {
    let with = |trace: &str| peer("a", 0).replacen("\"zone\"", &format!("\"trace\":{trace},\"zone\""), 1);
    let hops = |hops: usize| format!("{{\"hops\":[{}]}}", vec!["\"10.0.0.1\""; hops].join(","));
    for (trace, is_passed_on) in [
        ("{\"source_port\":40312,\"says\":\"dies after 10.0.3.1\",\"hops\":[\"10.0.3.1\",\"*\"]}".to_owned(), true),
        (hops(30), true),
        (hops(31), false),
        ("{\"hops\":[\"<b>\"]}".to_owned(), false),
        ("{\"says\":\"<script>\"}".to_owned(), false),
        ("{\"says\":\"\\u001b[31m\"}".to_owned(), false),
        (format!("{{\"says\":\"{}\"}}", "x".repeat(161)), false),
    ] {
        with_a_liar(&[with(&trace)], |held, document| {
            let is_named =
                errors(document).iter().any(|(node, error)| *node == "liar" && error.contains("not a report"));
            assert_eq!(is_named, !is_passed_on, "{trace}: {:?}", errors(document));
            assert_eq!(document.to_string().contains("\"trace\""), is_passed_on, "{trace}");
            assert!(named_causes(held).contains(&("node", "d")), "{trace}: {held}");
        });
    }
}

#[test]
fn the_mesh_s_size_and_zones_in_a_report_do_not_count_for_others() {
    let lies = row("liar", &[peer("a", 0)])
        .replace("\"node\":\"liar\",\"zone\":\"z\"", "\"node\":\"liar\",\"zone\":\"x\",\"members\":9000")
        .replace("\"node\":\"a\",\"zone\":\"z\"", "\"node\":\"a\",\"zone\":\"y\"");
    let a = row("a", &[peer("liar", 0)]);
    let mesh = Mesh::judge_of(&[("liar", Answer::Text(lies)), ("a", Answer::Text(a))], Vec::new());
    assert_eq!(mesh.held()["overview"]["not_gathered"], 0);
    let said = get(mesh.address(), "/api/v1/verdicts").expect("an answer").body;
    let said: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(said["headline"], "all well as far as measured: nothing is known of me");
}

#[test]
fn a_row_that_is_longer_than_any_or_no_text_is_named() {
    let long = |n: usize| format!("{{\"endless\":\"{}\",{},\"peers\":[]}}", "x".repeat(n), source("long"));
    let many: Vec<String> = (0..=REPORT_PEERS_MAX).map(|n| peer(&format!("p{n}"), 0)).collect();
    let mesh = Mesh::of(&[("long", Answer::Text(long(REPORT_BYTES_MAX))), ("many", Answer::Text(row("many", &many)))]);
    let (_, document) = mesh.document();
    let mut errors = errors(&document);
    errors.sort_unstable();
    assert_eq!(
        errors,
        [("long", "a report of more than 20971520 bytes"), ("many", "a report of more than 49152 peers")]
    );
}

#[test]
fn a_reader_that_does_not_read_loses_its_turn_and_the_next_is_answered() {
    let short = Duration::from_millis(200);
    // The agent's own report of 3 MB is larger than both sockets' buffers: the server fixes its
    // send buffer, and the kernel does not grow the receive buffer of a client that does not read.
    let closed = Closed::new();
    let peers = (0..8_000).map(|n| spec(&format!("p{n}"), closed.port)).collect();
    let mesh = Mesh::with_times(&[], peers, Times { reader: short, ..unhurried() });
    let mut stuck = connect(mesh.address());
    stuck.write_all(b"GET /api/v1/mesh/me HTTP/1.1\r\nHost: agent\r\n\r\n").expect("a request");
    // The server can close the connection only after it has accepted it.
    assert_eq!(stuck.peek(&mut [0]).expect("the document begins"), 1);
    eventually("the reader is cut off", || mesh.stats.connections() == 0);
    // The permit is free again. Without this, the time limit of a waiting client would be ten
    // minutes here.
    assert_eq!(get(mesh.address(), "/api/v1/mesh/unknown").expect("an answer").status, 200);
    assert!(receive(&mut BufReader::new(&stuck), false).is_err(), "the document has no end");
}

#[test]
fn a_large_mesh_is_collected_for_readers_once_in_a_while_however_many_ask() {
    let times = Times { wait: Duration::from_mins(1), large: Duration::from_mins(10), ..unhurried() };
    for (others, again) in [(23, 200), (24, 503)] {
        let closed = Closed::new();
        let peers = (0..others).map(|n| spec(&format!("p{n}"), closed.port)).collect();
        let mesh = Mesh::with_times(&[], peers, times);
        assert_eq!(get(mesh.address(), "/api/v1/mesh/p1,p2").expect("an answer").status, 200);
        for _ in 0..3 {
            let answer = get(mesh.address(), "/api/v1/mesh/p1,p2").expect("an answer");
            assert_eq!(
                (answer.status, answer.header("retry-after").is_some()),
                (again, again == 503),
                "{others} others"
            );
        }
    }
}
