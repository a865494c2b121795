//! Reports of named nodes: which agents are asked, and what the document contains.

use std::net::{IpAddr, Ipv6Addr};
use std::thread;

use kube_canary::discovery::PeerSpec;
use kube_canary::limits::MESH_REPORTS_MAX;
use kube_canary::report::Network;

use crate::agents::{Answer, Mesh, errors, nodes, peer, row, spec};
use crate::http_support::{self, Closed, get};

#[test]
fn every_row_comes_as_it_is_on_a_line_of_its_own() {
    let rows: Vec<(String, String)> = (0..20)
        .map(|n| {
            let peers: Vec<String> = (0..20).filter(|p| *p != n).map(|p| peer(&format!("n{p}"), 0)).collect();
            (format!("n{n}"), row(&format!("n{n}"), &peers))
        })
        .collect();
    let others: Vec<(&str, Answer)> =
        rows.iter().map(|(node, row)| (node.as_str(), Answer::Text(row.clone()))).collect();
    let mesh = Mesh::of(&others);
    let (text, document) = mesh.document();
    let mut found = nodes(&document);
    assert_eq!(found[0], "me", "what needs no network comes first");
    found.sort_unstable();
    assert_eq!(found.len(), 21);
    assert_eq!(errors(&document), []);
    let lines: Vec<&str> = text.lines().collect();
    for (_, row) in &rows {
        assert!(lines.iter().any(|line| line.trim_start_matches(',') == row.trim_end()), "{row}");
    }
    assert!(lines[0] == "{\"rows\":[" && lines.last() == Some(&"],\"missing\":[]}"), "{text}");
}

#[test]
fn checks_are_passed_on_unless_their_names_cannot_be() {
    let with = |node: &str, checks: &[String]| {
        let checks = checks.join(",");
        format!(r#"{{"source":{{"node":"{node}"}},"checks":[{checks}],"peers":[{}]}}"#, peer("me", 0)) + "\n"
    };
    let check = |name: &str| format!(r#"{{"name":"{name}","kind":"dns","tried":12,"servers":1,"new":[{{}}]}}"#);
    let many: Vec<String> = (0..33).map(|name| check(&name.to_string())).collect();
    let whole = with("a", &[check("dns"), check("api-server")]);
    let answers = [
        ("a", Answer::Text(whole.clone())),
        ("b", Answer::Text(with("b", &[check("x y"), check("<b>")]))),
        ("c", Answer::Text(with("c", &many))),
        ("d", Answer::Text(with("d", &[r#"{"name":7}"#.to_owned()]))),
    ];
    let mesh = Mesh::of(&answers);
    let (text, document) = mesh.document();
    assert!(text.lines().any(|line| line.trim_start_matches(',') == whole.trim_end()), "{text}");
    let of = |node: &str| {
        let rows = document["rows"].as_array().expect("rows");
        rows.iter().find(|row| row["source"]["node"] == node).expect("a row").clone()
    };
    assert_eq!((of("b").get("checks"), of("b")["peers"].as_array().map(Vec::len)), (None, Some(1)));
    assert_eq!((of("c")["checks"].as_array().map(Vec::len), of("d").get("checks")), (Some(32), None));
    let mut errors = errors(&document);
    errors.sort_unstable();
    assert_eq!(errors.iter().map(|(node, _)| *node).collect::<Vec<_>>(), ["c", "d"]);
    assert!(errors[0].1.contains("more than 32 checks"), "{}", errors[0].1);
}

#[test]
fn an_agent_of_several_addresses_is_asked_once_and_never_at_its_node_s_own() {
    let node_entry = |node: &str, address: IpAddr, port: Option<u16>| PeerSpec {
        address,
        http_port: port,
        network: Network::Node,
        ..spec(node, 1)
    };
    let loopback = |last: u8| IpAddr::from([127, 0, 0, last]);
    // Listed before the entries of their pods, so these are the first entries of their nodes.
    let further = vec![
        node_entry("a", loopback(9), None),
        node_entry("b", loopback(9), Some(9)),
        node_entry("a", IpAddr::V6(Ipv6Addr::LOCALHOST), None),
        // No agent has reported its pod's address.
        node_entry("only-a-node", loopback(10), None),
    ];
    let answers = [("a", Answer::Text(row("a", &[peer("b", 0)]))), ("b", Answer::Text(row("b", &[peer("a", 0)])))];
    let mesh = Mesh::with_further(&answers, further);
    let (_, document) = mesh.document();
    let mut found = nodes(&document);
    found.sort_unstable();
    let unknown = [("only-a-node", "no such node in this agent's list")];
    assert_eq!((found, &errors(&document)[..]), (vec!["a", "b", "me"], &unknown[..]));
    assert_eq!(mesh.asked(), 2);
    let hour = get(mesh.address(), "/api/v1/hour/b/c").expect("an answer");
    assert_eq!((hour.status, hour.body.as_str()), (200, "{\"peer\":\"c\"}\n"));
    assert_eq!(get(mesh.address(), "/api/v1/hour/only-a-node/c").expect("an answer").status, 404);
}

#[test]
fn collections_run_one_after_the_other_and_end_if_their_reader_leaves() {
    let mesh = Mesh::of(&[("a", Answer::Text(row("a", &[peer("b", 0)])))]);
    let address = mesh.address();
    // Some clients leave before they have read anything.
    for _ in 0..3 {
        let mut stream = http_support::connect(address);
        std::io::Write::write_all(&mut stream, b"GET /api/v1/mesh/a,me HTTP/1.1\r\nHost: agent\r\n\r\n")
            .expect("a request");
    }
    let asking: Vec<_> =
        (0..4).map(|_| thread::spawn(move || get(address, "/api/v1/mesh/a,me").expect("an answer"))).collect();
    for one in asking {
        let answer = one.join().expect("an answer");
        assert_eq!((answer.status, answer.body.matches("\"source\"").count()), (200, 2), "{}", answer.body);
    }
}

#[test]
fn without_names_the_answer_says_where_the_verdicts_are() {
    let mesh = Mesh::of(&[("a", Answer::Text(row("a", &[])))]);
    for path in ["/api/v1/mesh", "/api/v1/mesh/"] {
        let answer = get(mesh.address(), path).expect("an answer");
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.body.contains("/api/v1/mesh/NODE,NODE") && answer.body.contains("/api/v1/verdicts"), "{path}");
    }
    assert_eq!(mesh.asked(), 0);
}

#[test]
fn a_judge_lists_as_many_missing_nodes_as_it_may_and_counts_the_others() {
    let closed = Closed::new();
    let peers = (0..MESH_REPORTS_MAX + 24).map(|n| spec(&format!("n{n:03}"), closed.port)).collect();
    let mesh = Mesh::judge_of(&[], peers);
    let held = mesh.held();
    assert_eq!((errors(&held).len(), &held["overview"]["missing_not_listed"]), (MESH_REPORTS_MAX, &24.into()));
    assert_eq!((&held["nodes"], &held["overview"]["not_gathered"]), (&(MESH_REPORTS_MAX + 25).into(), &0.into()));
}
