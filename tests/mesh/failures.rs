//! Agents that fail are named, and the document is complete without them.

use std::net::TcpListener;
use std::time::Duration;

use kube_canary::limits::REPORT_OBJECT_BYTES_MAX;
use kube_canary::mesh::Times;

use crate::agents::{Answer, Mesh, errors, nodes, peer, row, source, spec, unhurried};
use crate::http_support::Closed;

#[test]
fn data_that_is_no_report_is_named_and_the_document_is_complete() {
    let whole = row("a", &[peer("b", 0), peer("me", 0)]);
    let half = &whole[..whole.len() - 20];
    let closed = Closed::new();
    let mesh = Mesh::with_further(
        &[
            ("a", Answer::Text(whole.clone())),
            ("cut", Answer::Text(half.replace(r#""node":"a""#, r#""node":"cut""#))),
            ("other", Answer::Text(row("b", &[]))),
            ("page", Answer::Text("<html>".into())),
            ("lines", Answer::Text(row("lines", &[peer("b", 0).replace(',', ",\n")]))),
            ("long", Answer::Text(row("long", &[peer(&"x".repeat(REPORT_OBJECT_BYTES_MAX), 0)]))),
            ("types", Answer::Text(row("types", &[r#"{"node":7}"#.into()]))),
            ("peers-first", Answer::Text(format!("{{\"peers\":[{}]}}", peer("b", 0)))),
            ("twice", Answer::Text(format!("{{{},{}}}", source("twice"), source("twice")))),
        ],
        vec![spec("silent", closed.port)],
    );
    let (_, document) = mesh.document();
    let mut found = nodes(&document);
    found.sort_unstable();
    assert_eq!(found, ["a", "cut", "lines", "long", "me", "twice", "types"], "also what broke off");
    let mut errors = errors(&document);
    errors.sort_unstable();
    let expected = [
        ("cut", "broke off"),
        ("lines", "not a report"),
        ("long", "an object of more than 5120 bytes"),
        ("other", "answers as b"),
        ("page", "not a report"),
        ("peers-first", "not a report"),
        ("silent", "connecting: "),
        ("twice", "not a report"),
        ("types", "not a report: "),
    ];
    assert_eq!(errors.len(), expected.len(), "{errors:?}");
    for ((node, error), (expected_node, begins)) in errors.iter().zip(expected) {
        assert!(*node == expected_node && error.starts_with(begins), "{node}: {error}; expected {begins}");
    }
}

/// None of the three ever answers completely, so each fails however slow this machine is. Which of
/// two limits ends the first two depends on whether their answers begin in time.
#[test]
fn agents_that_do_not_answer_or_do_not_go_on_are_named_with_the_limit() {
    // Connections wait there to be accepted.
    let deaf = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mesh = Mesh::with_times(
        &[
            ("stalls", Answer::Stalls(format!("{{{},\"peers\":[{}", source("stalls"), peer("b", 0)))),
            ("silent", Answer::Stalls(String::new())),
        ],
        vec![spec("deaf", deaf.local_addr().expect("an address").port())],
        Times { row: Duration::from_secs(1), ..unhurried() },
    );
    let (_, document) = mesh.document();
    let mut errors = errors(&document);
    errors.sort_unstable();
    let [("deaf", deaf), ("silent", silent), ("stalls", stalls)] = errors[..] else { panic!("{errors:?}") };
    let (unanswered, broken_off) = ("no complete answer within 1s", "sent nothing more for 1s");
    assert_eq!(deaf, unanswered);
    for error in [silent, stalls] {
        assert!([broken_off, unanswered].contains(&error), "{errors:?}");
    }
    let mut expected = vec!["me"];
    if stalls == broken_off {
        expected.push("stalls");
    }
    assert_eq!(nodes(&document), expected, "also what broke off");
}

#[test]
fn an_agent_whose_row_trickles_is_cut_off_and_the_next_is_asked() {
    let trickle = |node| Answer::Trickles(format!("{{{},\"peers\":[{}", source(node), peer("b", 0)));
    let mesh = Mesh::with_times(
        &[("a", trickle("a")), ("b", trickle("b")), ("c", Answer::Text(row("c", &[])))],
        Vec::new(),
        Times { whole_row: Duration::from_millis(500), ..unhurried() },
    );
    let (_, document) = mesh.document();
    let (found, errors) = (nodes(&document), errors(&document));
    let late = |node| errors.contains(&(node, "not complete after 500ms"));
    assert!(found.contains(&"me") && late("a") && late("b"), "{document}");
    // It was asked, so either its report is there, or the report was itself too late.
    assert!(found.contains(&"c") != late("c"), "{document}");
}

/// Five could take 2 s each, and all together have 8 s.
#[test]
fn reports_that_trickle_leave_time_for_the_last_one() {
    let names = ["a", "b", "c", "d", "e"];
    let mut others: Vec<(&str, Answer)> =
        names.map(|node| (node, Answer::Trickles(format!("{{{},\"peers\":[", source(node))))).into();
    others.push(("f", Answer::Text(row("f", &[]))));
    let [whole_row, collection] = [2, 8].map(Duration::from_secs);
    let mesh = Mesh::with_times(&others, Vec::new(), Times { whole_row, collection, ..unhurried() });
    let (_, document) = mesh.document();
    let errors = errors(&document);
    let is_late = |error: &str| error.starts_with("not complete after ") || error == "the collection ended after 8s";
    assert!(errors.len() == 5 && errors.iter().all(|(_, error)| is_late(error)), "{errors:?}");
    assert!(nodes(&document).contains(&"f"), "{document}");
}
