//! `kube-canary doctor`: what the judges agree on, as the servers of the test answer for them.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};

use kube_canary::http::{Reply, Routes, Server};
use serde_json::{Value, json};

use crate::common::until::until;
use crate::doctor::{MESH, NODES, into_n4, mesh, none, serve, serve_at, through_one};
use crate::fleet::{Run, closed_url};

/// What an agent answers for this many judges.
fn answer(judges: usize, verdicts: &Value) -> Value {
    let judge = |n: &usize| json!({"node": format!("j{n}"), "age_seconds": *n as f64 + 0.5});
    let judges: Vec<Value> = [1, 2, 3][..judges].iter().map(judge).collect();
    let is_well = *verdicts == json!([]);
    json!({"age_seconds": 3.5, "nodes": 40, "judges": judges, "missing": [], "missing_not_listed": 0, "not_gathered": 0, "overall": {},
        "headline": if is_well { "all well" } else { "n1 loses 40 % of what is sent to it" },
        "state": if is_well { "well" } else { "cause" }, "starved": [], "leaving": [], "leaving_not_listed": 0,
        "verdicts": verdicts})
}

fn node_n1(confidence: &str) -> Value {
    json!({"id": "1", "kind": "node", "subject": "n1", "direction": "in", "network": "pod", "confidence": confidence,
        "severity": "critical", "figures": {"probes_to": 100, "lost_to": 40, "sources": 3, "sources_hit": 2,
            "counted_there": 100, "missed_there": 40, "counted_back": 99, "missed_back": 0},
        "since_unix_seconds": 1_700_000_000, "judges": 2})
}

/// A server of this answer, which has no reports.
fn serve_answer(answer: &Value) -> (Server, String) {
    serve_at([("/api/v1/verdicts", answer.to_string())])
}

#[test]
fn what_the_judges_agree_on_is_printed_from_one_answer() {
    let (_server, url) = serve_answer(&answer(3, &json!([node_n1("certain")])));
    let (code, text, log) = Run::of(&["doctor", "--url", &url]);
    let expected = "n1 loses 40 % of what is sent to it\n\nnode n1, what is sent to it, pod network, since 2023-11-14 22:13 UTC\n    \
        loses 40.0 % of the probes from 2 of 3 sources; 40 of 100 requests to it were lost, and 0 of 99 requests from it\n    \
        next: kubectl describe node n1\n    \
        runbook: REPOSITORY/blob/main/docs/alerts.md#a-node\n\nJudged: 40 nodes, 3 s ago at most, by 3 judges: j1, j2, j3. \
        Asked for traces: 0 agents; --collect asks all.\n";
    let expected = expected.replace("REPOSITORY", env!("CARGO_PKG_REPOSITORY"));
    assert_eq!((code, text.as_str(), log.as_str()), (Some(1), &*expected, ""));
    let (code, json, _) = Run::of(&["doctor", "--json", "--url", &url]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((code, &report["judges"][2]["node"], &report["nodes"]), (Some(1), &json!("j3"), &json!(40)));
    assert_eq!((&report["age_seconds"], &report["verdicts"][0]["judges"]), (&json!(3.5), &json!(2)));

    let (_server, url) = serve_answer(&answer(2, &json!([])));
    let (code, text, log) = Run::of(&["doctor", "--url", &url]);
    let expected = "all well\n\nJudged: 40 nodes, 2 s ago at most, by 2 judges: j1, j2.\n";
    assert_eq!((code, text.as_str(), log.as_str()), (Some(0), expected, ""));
}

#[test]
fn a_verdict_of_judges_is_followed_by_the_traces_of_the_agents_that_are_asked() {
    let report = |source: &str, peer: &str, says: &str| {
        let hops = ["10.0.3.1"];
        let at = 1_700_000_010;
        let trace = json!({"source_port": 40_312, "at_unix_seconds": at, "reached": false, "says": says, "hops": hops});
        let source = json!({"node": source, "zone": "z"});
        let peers = json!([{"node": peer, "zone": "z", "network": "pod", "protocol": "udp", "trace": trace}]);
        format!("{{\"source\":{source},\"peers\":{peers}}}")
    };
    let mut judged = answer(3, &json!([node_n1("certain")]));
    judged["nodes"] = json!(2);
    let answers =
        [("/api/v1/verdicts", judged.to_string()), ("/api/v1/peers", report("n2", "n1", "dies after 10.0.3.1"))];
    let (_first, first) = serve_at(answers);
    let (_second, second) = serve_at([("/api/v1/peers", report("n4", "n3", "dies after 10.9.9.9"))]);
    let (code, text, log) = Run::of(&["doctor", "--url", &first, "--url", &second]);
    assert_eq!((code, log.as_str()), (Some(1), ""), "{text}");
    let trace = "\n    loses 40.0 % of the probes from 2 of 3 sources; 40 of 100 requests to it were lost, and 0 of 99 requests from it\n    dies after 10.0.3.1 (trace from n2 to n1, UDP source port 40312, 2023-11-14 22:13 UTC)\n";
    assert!(text.contains(trace) && !text.contains("10.9.9.9"), "{text}");
    let (_, json, _) = Run::of(&["doctor", "--json", "--url", &first]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&report["traces"][0]["id"], &report["traces"][0]["traces"][0]["peer"]), (&json!("1"), &json!("n1")));
}

#[test]
fn the_first_agent_that_knows_of_judges_answers_for_all() {
    let own = answer(0, &json!([node_n1("certain")]));
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let silent = (format!("http://{}", silent.local_addr().expect("an address")), silent);
    let (closed, (_own, own), (_old, old)) =
        (closed_url(), serve_answer(&own), serve(&mesh(&NODES, into_n4, &json!([]))));
    let (_server, url) = serve_answer(&answer(3, &json!([])));
    let before = [closed.as_str(), &silent.0, &own, &old];
    let line: Vec<&str> = before.iter().chain([&url.as_str()]).flat_map(|url| ["--url", *url]).collect();
    let (code, text, log) = Run::of(&[&["doctor"][..], &line].concat());
    // An agent that cannot be asked is named. The judges say whether its node is well.
    assert_eq!(code, Some(0), "{text}{log}");
    assert!(text.starts_with("all well\n") && text.ends_with("by 3 judges: j1, j2, j3.\n"), "{text}");
    assert!(log.starts_with(&format!("kube-canary: {closed}: connecting: ")) && log.lines().count() == 1, "{log}");
}

#[test]
fn without_judges_the_reports_are_judged_here_and_a_line_says_so() {
    let bad = mesh(&NODES, into_n4, &json!([]));
    let mut none_answers = answer(0, &json!([]));
    none_answers["state"] = json!("unknown");
    let [own, others] = through_one(&bad);
    for (_server, url) in [serve_at([("/api/v1/verdicts", none_answers.to_string()), own, others]), serve(&bad)] {
        let (code, text, log) = Run::of(&["doctor", "--url", &url]);
        assert_eq!((code, log.as_str()), (Some(1), ""), "{text}");
        assert!(text.contains("\nnode n4, "), "{text}");
        let last = "\nJudged: 5 of 5 nodes, 20 links. No judge has answered, so doctor has judged itself.\n";
        assert!(text.ends_with(last), "{text}");
        let (_, json, _) = Run::of(&["doctor", "--json", "--url", &url]);
        let report: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!((&report["judges"], &report["rows"]), (&json!([]), &json!(5)));
    }
}

#[test]
fn the_judges_are_not_asked_if_reports_are_to_be_collected() {
    let judged = answer(3, &json!([node_n1("certain")])).to_string();
    let [own, others] = through_one(&mesh(&NODES, none, &json!([])));
    let (_server, url) = serve_at([("/api/v1/verdicts", judged), own, others]);
    assert_eq!(Run::of(&["doctor", "--url", &url]).0, Some(1));
    let (code, text, _) = Run::of(&["doctor", "--collect", "--url", &url]);
    assert_eq!((code, text.as_str()), (Some(0), "all well\n\nJudged: 5 of 5 nodes, 20 links.\n"));
}

#[test]
fn a_mesh_that_the_judges_have_not_judged_as_a_whole_is_not_well() {
    let with = |field: &str, value: Value| {
        let mut answer = answer(3, &json!([]));
        answer[field] = value;
        answer
    };
    let missing = json!([{"node": "n7", "error": "connecting: refused"}]);
    for (answer, headline, line) in [
        (with("missing", missing), "1 node without a whole report", "\nMissing:\n    n7: connecting: refused\n"),
        (
            with("missing_not_listed", json!(2)),
            "2 nodes without a whole report",
            " Missing and not listed: 2 reports.\n",
        ),
        (with("not_gathered", json!(9)), "9 nodes not asked", " Not asked for: 9 reports.\n"),
    ] {
        let (_server, url) = serve_answer(&answer);
        let (code, text, _) = Run::of(&["doctor", "--url", &url]);
        assert_eq!(code, Some(3), "{text}");
        assert!(text.starts_with(&format!("nothing found, but not all was judged: {headline}\n")), "{text}");
        assert!(text.contains(line), "{text}");
    }
    let (_server, url) = serve_answer(&with("nodes", json!(1)));
    assert_eq!(Run::of(&["doctor", "--url", &url]).0, Some(3));
}

#[test]
fn what_one_judge_says_alone_is_likely_at_most() {
    let (_server, url) = serve_answer(&answer(1, &json!([node_n1("likely")])));
    let (code, text, _) = Run::of(&["doctor", "--color", "always", "--url", &url]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.starts_with("\x1b[33mn1 loses 40 % of what is sent to it") && !text.contains("\x1b[31m"), "{text:?}");
    let last = "by 1 judge: j1. No other judge has answered, so no verdict is more than likely.";
    assert!(text.contains(last), "{text:?}");
}

#[test]
fn an_answer_for_judges_is_printed_without_control_characters_and_is_bounded() {
    let strange = "\x1b[2J\u{9b}\r";
    let mut hostile = node_n1("certain");
    hostile["subject"] = json!(strange);
    hostile["figures"]["agent_is_silent"] = json!(1);
    hostile["mentions"] = json!([["error", strange], ["only_report", strange]]);
    let mut answer = answer(3, &json!([hostile]));
    answer["headline"] = json!(strange);
    answer["judges"][0] = json!({"node": strange, "age_seconds": 1e300});
    answer["missing"] = json!([{"node": strange, "error": strange}]);
    let (_server, url) = serve_answer(&answer);
    let (code, text, log) = Run::of(&["doctor", "--url", &url]);
    assert_eq!(code, Some(1), "{log}");
    let strange: BTreeSet<char> = text.chars().chain(log.chars()).filter(|c| c.is_control()).collect();
    assert_eq!(strange, BTreeSet::from(['\n']), "{text:?}");
    assert!(text.lines().all(|line| line.len() < 300), "{text}");

    let many = |field: &str, item: Value, count: usize| {
        let mut answer = answer.clone();
        answer[field] = vec![item; count].into();
        answer
    };
    let judge = json!({"node": "j", "age_seconds": 1.0});
    for refused in [
        many("judges", judge, 4),
        many("verdicts", node_n1("certain"), 641),
        many("missing", json!({"node": "n", "error": ""}), 601),
        many("starved", json!("n".repeat(1_000)), 400),
    ] {
        let (_server, url) = serve_answer(&refused);
        let (code, text, log) = Run::of(&["doctor", "--url", &url]);
        assert_eq!((code, text.as_str()), (Some(3), ""));
        assert!(log.ends_with("none of 1 agents answers\n"), "{log}");
    }
}

/// A server whose documents change.
#[derive(Default)]
struct Changing(Mutex<Vec<(&'static str, String)>>);

impl Routes for Changing {
    fn route(&self, path: &str, _: &str) -> Reply {
        let path = if path.starts_with(MESH) { MESH } else { path };
        match self.0.lock().expect("the lock").iter().find(|(is, _)| *is == path) {
            Some((_, document)) => {
                Reply::Full { status: 200, content_type: "application/json", body: document.clone().into_bytes() }
            }
            None => Reply::text(404, "not here\n"),
        }
    }
}

#[test]
fn a_watch_prints_what_the_judges_find_and_the_extent_when_they_no_longer_answer() {
    let now = Arc::new(Changing::default());
    let bound = Server::bind("127.0.0.1:0".parse().expect("an address")).expect("a socket");
    let server = bound.start(1, now.clone()).expect("a server");
    let change = |documents: Vec<(&'static str, String)>| *now.0.lock().expect("the lock") = documents;
    change(vec![("/api/v1/verdicts", answer(3, &json!([])).to_string())]);
    let url = format!("http://{}", server.local_addr());
    let mut watch = Run::start(&["doctor", "--watch", "--interval", "1s", "--url", &url]);
    let mut prints = |expected: &[&str]| {
        until("the watch prints it", || {
            assert!(!watch.process.has_ended(), "{}", watch.process.log());
            let text = watch.text();
            if expected.iter().all(|line| text.contains(line)) { Ok(()) } else { Err(text) }
        });
    };
    prints(&[" UTC: all well\n  Judged: 40 nodes, 3 s ago at most, by 3 judges: j1, j2, j3.\n"]);
    change(vec![("/api/v1/verdicts", answer(3, &json!([node_n1("certain")])).to_string())]);
    prints(&[
        "UTC: n1 loses 40 % of what is sent to it\n  + node n1, what is sent to it, pod network, since 2023-11-14 22:13 UTC\n      loses 40.0 % of the probes from 2 of 3 sources; 40 of 100 requests to it were lost, and 0 of 99 requests from it\n",
    ]);
    change(through_one(&mesh(&NODES, into_n4, &json!([]))).into());
    prints(&["  + node n4, ", "  - node n1, ", "20 links. No judge has answered, so doctor has judged itself.\n"]);
}
