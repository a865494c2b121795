//! `kube-canary doctor`: its verdicts over meshes of servers that know of no judges.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use kube_canary::http::{Render, Reply, Routes, Server};
use kube_canary::sys::clock;
use serde_json::{Value, json};

use crate::fleet::{Run, closed_url};

/// The path at which an agent passes on the reports of the nodes that follow.
pub const MESH: &str = "/api/v1/mesh/";

/// A server of these documents, by path.
struct Documents(BTreeMap<&'static str, String>);

impl Routes for Documents {
    fn route(&self, path: &str, _: &str) -> Reply {
        let path = if path.starts_with(MESH) { MESH } else { path };
        let found = self.0.get(path).map(|text| (200, text.clone().into_bytes()));
        let (status, body) = found.unwrap_or((404, b"not here\n".to_vec()));
        Reply::Full { status, content_type: "application/json", body }
    }
}

/// Starts a server of this mesh, and returns it with its URL.
pub fn serve(mesh: &str) -> (Server, String) {
    serve_at(through_one(mesh))
}

/// The documents of an agent whose report is the first of this mesh. It passes on the others.
pub fn through_one(mesh: &str) -> [(&'static str, String); 2] {
    let own = mesh.lines().nth(1).filter(|line| line.starts_with("{\"source\""));
    let others = own.map(|own| mesh.replacen(&format!("{own}\n"), "", 1).replacen("[\n,", "[\n", 1));
    let own = own.map_or_else(|| row("n1", none), str::to_owned);
    [("/api/v1/peers", own), (MESH, others.unwrap_or_else(|| mesh.to_owned()))]
}

/// The same with these very bytes for what it passes on.
fn serve_as_is(passed_on: String) -> (Server, String) {
    serve_at([("/api/v1/peers", row("n1", none)), (MESH, passed_on)])
}

/// Starts a server of these documents, and returns it with its URL. It has no others.
pub fn serve_at<const N: usize>(documents: [(&'static str, String); N]) -> (Server, String) {
    let bound = Server::bind("127.0.0.1:0".parse().expect("an address")).expect("a socket");
    let server = bound.start(1, Arc::new(Documents(BTreeMap::from(documents)))).expect("a server");
    let url = format!("http://{}", server.local_addr());
    (server, url)
}

/// The time at which the losses began, in Unix seconds: 90 s ago.
static BEGUN: LazyLock<u64> = LazyLock::new(|| clock::realtime().as_secs() - 90);

pub const NODES: [&str; 5] = ["n1", "n2", "n3", "n4", "n5"];

/// The report of `source`. Of 60 probes to each other node, `lost` of them were lost.
pub fn row(source: &str, lost: impl Fn(&str, &str) -> u64) -> String {
    let peer = |peer: &&str| {
        let lost = lost(source, peer);
        json!({
            "node": peer, "zone": "z", "network": "pod", "protocol": "icmp", "state": "ready",
            "address": format!("10.0.0.{}", &peer[1..]), "sent": 60, "received": 60 - lost, "lost": lost, "late": 0,
            "rtt_p50_seconds": 0.000_1, "rtt_p99_seconds": 0.000_2,
            "since_unix_seconds": (lost > 0).then_some(*BEGUN),
            "recent": {"seconds": 60.0, "sent": 60, "received": 60 - lost, "lost": lost, "rtt_p50_seconds": 0.000_1,
                "rtt_p99_seconds": 0.000_2},
        })
    };
    let peers: Vec<Value> = NODES.iter().filter(|node| **node != source).map(peer).collect();
    let source = json!({"node": source, "zone": "z", "interval_seconds": 1.0, "echo_requests_received": 240,
        "echo_replies_sent": 240, "recent": {"seconds": 60.0}});
    format!("{{\"source\":{source},\"peers\":{}}}", Value::from(peers))
}

/// The mesh document with the reports of these sources.
pub fn mesh(sources: &[&str], lost: impl Fn(&str, &str) -> u64 + Copy, missing: &Value) -> String {
    let rows: Vec<String> = sources.iter().map(|source| row(source, lost) + "\n").collect();
    format!("{{\"rows\":[\n{}],\"missing\":{missing}}}\n", rows.join(","))
}

pub fn none(_: &str, _: &str) -> u64 {
    0
}

/// Loses all that is sent to n4, and nothing else.
pub fn into_n4(_: &str, peer: &str) -> u64 {
    if peer == "n4" { 20 } else { 0 }
}

#[test]
fn a_mesh_without_faults_is_well_and_0() {
    let (_server, url) = serve(&mesh(&NODES, none, &json!([])));
    let (code, text, log) = Run::of(&["doctor", "--collect", "--url", &url]);
    assert_eq!((code, log.as_str()), (Some(0), ""), "{text}");
    assert!(text.ends_with("\nJudged: 5 of 5 nodes, 20 links.\n"), "{text}");
    // The same report twice: it counts once.
    let (_second, other) = serve(&mesh(&NODES, none, &json!([])));
    let (code, json, _) = Run::of(&["doctor", "--json", "--url", &url, "--url", &other]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (code, &report["rows"], &report["links"], &report["not_kept"]),
        (Some(0), &json!(5), &json!(20), &json!(0))
    );
    assert_eq!((&report["verdicts"], &report["missing"], &report["unanswered"]), (&json!([]), &json!([]), &json!([])));
}

#[test]
fn a_bad_node_is_named_with_its_evidence_and_1() {
    // Two agents, each of which has half of the reports.
    let (_a, first) = serve(&mesh(&NODES[..3], into_n4, &json!([])));
    let (_b, second) = serve(&mesh(&NODES[2..], into_n4, &json!([])));
    let (code, text, log) = Run::of(&["doctor", "--url", &first, "--url", &second]);
    assert_eq!((code, log.as_str()), (Some(1), ""), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("n4"), "{text}");
    assert!(lines[2].starts_with("node n4") && lines[2].contains("pod network"), "{text}");
    let (hour, minute) = (*BEGUN % 86_400 / 3_600, *BEGUN % 3_600 / 60);
    assert!(lines[2].contains(", since 20") && lines[2].ends_with(&format!(" {hour:02}:{minute:02} UTC")), "{text}");
    assert!(lines[3].starts_with("    "), "{text}");
    let (_, json, _) = Run::of(&["doctor", "--json", "--url", &first, "--url", &second]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let [verdict] = &report["verdicts"].as_array().expect("verdicts")[..] else { panic!("{report}") };
    assert_eq!(
        (&verdict["kind"], &verdict["subject"], &verdict["network"]),
        (&json!("node"), &json!("n4"), &json!("pod"))
    );
    assert_eq!((&verdict["since_unix_seconds"], &report["rows"]), (&json!(*BEGUN), &json!(5)));
}

#[test]
fn a_mesh_with_a_missing_report_is_not_well() {
    // If other nodes know the missing node, that is a verdict. If none knows it, it is missing
    // nevertheless.
    let missing = json!([{"node": "n5", "error": "connecting: refused"}, {"node": "n6", "error": "not asked"}]);
    let (_server, url) = serve(&mesh(&NODES[..4], none, &missing));
    let (code, text, _) = Run::of(&["doctor", "--url", &url]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("\nagent on n5: does not answer\n"), "{text}");
    assert_eq!(text.matches("connecting: refused").count(), 1, "{text}");
    assert!(text.contains("n6") && text.contains("not asked"), "{text}");
}

#[test]
fn an_agent_with_an_invalid_answer_is_named_and_the_exit_code_is_3() {
    let (_well, well) = serve(&mesh(&NODES, none, &json!([])));
    let whole = mesh(&NODES[1..], none, &json!([]));
    let cut = whole.rfind("],\"missing\"").expect("fields");
    let strange = "/api/v1/mesh/NODES is not what an agent says: ";
    let (_a, page) = serve_as_is("<html>\n".into());
    let (_b, half) = serve_as_is(whole[..cut].into());
    let (_c, wrong) = serve_as_is(whole.replacen("\"peers\":[{", "\"peers\":[[{", 1));
    for (bad, reason) in
        [(&closed_url(), "connecting: "), (&page, strange), (&half, "it breaks off"), (&wrong, strange)]
    {
        // It is asked first. The other one then has nothing left to ask it for.
        let (code, text, log) = Run::of(&["doctor", "--url", bad, "--url", &well]);
        assert_eq!(code, Some(3), "{text}{log}");
        assert!(log.starts_with(&format!("kube-canary: {bad}: ")) && log.contains(reason), "{log}");
        assert!(text.starts_with("nothing found, but not all was judged: "), "{text}");
        assert!(text.contains("1 agent asked in vain"), "{text}");
        assert!(text.contains("Judged: 5 of 5 nodes, "), "{text}");
    }
    let (code, text, log) = Run::of(&["doctor", "--url", &closed_url()]);
    assert_eq!((code, text.as_str()), (Some(3), ""));
    assert!(log.ends_with("kube-canary: none of 1 agents answers\n"), "{log}");
}

/// The same mesh, but one report has n5 as its last peer twice, the second time without the losses.
fn names_twice(mesh: &str) -> String {
    let end = mesh.find("]}\n,").expect("the end of a row");
    let begin = mesh[..end].rfind("},{").expect("a last peer") + 2;
    format!("{},{}{}", &mesh[..end], &mesh[begin..end], &mesh[end..])
}

#[test]
fn a_mesh_that_has_lost_a_part_is_never_well() {
    let whole = mesh(&NODES[1..], none, &json!([]));
    let end = whole.rfind("],\"missing\"").expect("fields");
    let line = whole.find(",{\"source\":{").expect("a second row");
    let broke_off = mesh(&NODES[1..4], none, &json!([{"node": "n4", "error": "broke off"}]));
    for (what, document) in [
        ("no last line", whole[..end].to_owned()),
        ("half a last line", whole[..end + 8].to_owned()),
        ("a last line without its end", whole.trim_end().trim_end_matches('}').to_owned()),
        ("half a line behind the last", format!("{whole}],\"missing\":[{{\"node\"")),
        ("a further line", format!("{whole}{}\n", row("n5", none))),
        ("half a row", format!("{}\n{}", &whole[..line + 500], &whole[end..])),
        ("no word on what is missing", whole.replace("\"missing\":[]", "")),
        ("a row with something between its objects", whole.replacen("},{\"address\"", "} {\"address\"", 1)),
        ("a row that names a node twice", names_twice(&whole)),
        ("a row that broke off", broke_off.clone()),
    ] {
        assert_ne!(document, whole, "{what}");
        let (_server, url) = serve_as_is(document);
        let (code, text, log) = Run::of(&["doctor", "--url", &url]);
        assert_eq!(code, Some(3), "{what}: {text}{log}");
        assert!(!text.starts_with("all well"), "{what}: {text}");
        assert!(
            text.contains("n4: broke off") || log.contains(&url) || log.contains("none of 1"),
            "{what}: {text}{log}"
        );
    }
    // Another agent has the whole report, which has a loss. That report was not judged.
    let lossy = mesh(&NODES, |source, _| if source == "n4" { 20 } else { 0 }, &json!([]));
    let (_half, first) = serve_as_is(broke_off);
    let (_whole, second) = serve(&lossy);
    let (code, text, _) = Run::of(&["doctor", "--url", &first, "--url", &second]);
    assert_eq!(code, Some(3), "{text}");
    // The output says how many members no report names.
    let own = row("n1", none).replacen("\"node\":\"n1\"", "\"members\":12,\"node\":\"n1\"", 1);
    let (_part, url) = serve_at([("/api/v1/peers", own), (MESH, whole)]);
    let (_, text, _) = Run::of(&["doctor", "--url", &url]);
    assert!(text.contains("Not asked for: 7 reports."), "{text}");
}

/// An agent that passes on the reports of the nodes that it is asked for, each of which names the
/// next two of this many.
struct Ring(usize);

impl Ring {
    fn report(&self, node: usize) -> String {
        let peer = |ahead: usize| {
            json!({"node": format!("r{}", (node + ahead) % self.0), "zone": "z", "network": "pod", "protocol": "icmp",
            "state": "ready", "recent": {"seconds": 60.0, "sent": 60, "received": 60, "lost": 0}})
        };
        let source = json!({"node": format!("r{node}"), "zone": "z", "members": self.0, "recent": {"seconds": 60.0}});
        format!("{{\"source\":{source},\"peers\":{}}}\n", json!([peer(1), peer(2)]))
    }
}

impl Routes for Ring {
    fn route(&self, path: &str, _: &str) -> Reply {
        let body = match path.strip_prefix(MESH) {
            Some(names) => {
                let nodes = names.split(',').map(|name| name[1..].parse().expect("a number"));
                let rows: Vec<String> = nodes.map(|node| self.report(node)).collect();
                assert!(rows.len() <= 100, "an agent refuses more");
                format!("{{\"rows\":[\n{}],\"missing\":[]}}\n", rows.join(","))
            }
            None if path == "/api/v1/peers" => self.report(0),
            None => return Reply::text(404, "not here\n"),
        };
        Reply::Full { status: 200, content_type: "application/json", body: body.into_bytes() }
    }
}

#[test]
fn nodes_that_only_others_reports_name_are_read_each_once_and_300_at_most() {
    for (nodes, read) in [(40, 40), (700, 300)] {
        let bound = Server::bind("127.0.0.1:0".parse().expect("an address")).expect("a socket");
        let server = bound.start(1, Arc::new(Ring(nodes))).expect("a server");
        let url = format!("http://{}", server.local_addr());
        let (code, json, log) = Run::of(&["doctor", "--json", "--collect", "--url", &url]);
        let report: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!((&report["rows"], log.as_str()), (&json!(read), ""), "{report}");
        assert_eq!(report["not_gathered"], nodes - read, "{report}");
        assert_eq!(code, Some(0), "an agent passes on a part of a large mesh: {report}");
    }
}

/// A mesh whose document has no end.
struct Endless {
    begun: bool,
    again: &'static [u8],
}

impl Render for Endless {
    fn render(&mut self, out: &mut Vec<u8>) -> bool {
        if !self.begun {
            out.extend_from_slice(b"{\"rows\":[\n");
            self.begun = true;
        }
        while out.len() + self.again.len() <= out.capacity() {
            out.extend_from_slice(self.again);
        }
        true
    }
}

struct EndlessMesh(&'static [u8]);

impl Routes for EndlessMesh {
    fn route(&self, path: &str, _: &str) -> Reply {
        if path == "/api/v1/peers" {
            return Reply::Full { status: 200, content_type: "application/json", body: row("n1", none).into_bytes() };
        }
        Reply::Stream { content_type: "application/json", body: Box::new(Endless { begun: false, again: self.0 }) }
    }
}

#[test]
fn a_mesh_without_an_end_is_given_up_by_its_size() {
    let row = b",{\"source\":{\"node\":\"a\"},\"peers\":[]}\n";
    for (again, size) in [(&b"x"[..], "more than 20971520 bytes"), (row, "more than 5000 reports")] {
        let bound = Server::bind("127.0.0.1:0".parse().expect("an address")).expect("a socket");
        let server = bound.start(1, Arc::new(EndlessMesh(again))).expect("a server");
        let (code, _, log) = Run::of(&["doctor", "--url", &format!("http://{}", server.local_addr())]);
        assert_eq!(code, Some(3), "{log}");
        assert!(log.contains(size), "{log}");
    }
}

#[test]
fn the_past_is_that_of_the_first_agent_that_answers() {
    let begun = *BEGUN;
    let past = json!({"judges": [{"node": "n1", "age_seconds": 3.0}, {"node": "n2", "age_seconds": 4.0}],
        "verdicts": [{"id": "1", "kind": "link", "subject": "a->b", "direction": "out", "network": "pod",
            "confidence": "certain", "figures": {"probes_there": 100, "lost_there": 9,
                "counted_there": 100, "missed_there": 9, "counted_back": 100}, "since_unix_seconds": begun, "ended_unix_seconds": begun + 60}]});
    let (_server, url) = serve_at([("/api/v1/history", past.to_string())]);
    let (_without, other) = serve(&mesh(&NODES, |_, _| 0, &json!([])));
    let (code, text, log) = Run::of(&["doctor", "--history", "--url", &closed_url(), "--url", &other, "--url", &url]);
    assert_eq!(code, Some(0), "{log}");
    assert!(text.starts_with("1 verdict of the last 24 hours, by 2 judges: n1, n2\n"), "{text}");
    let line = " UTC for 60 s: link a->b, that way, pod network\n    loses 9.0 % of the round trips: 9 of 100 from a to b, b to a \
                is not measured; 9 of 100 requests from a were lost, and 0 of 100 requests from b\n";
    assert!(text.contains(line), "{text}");
    assert_eq!(log.lines().count(), 2, "{log}");
    let (_, printed, _) = Run::of(&["doctor", "--history", "--json", "--url", &url]);
    let printed: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(printed["verdicts"][0]["ended_unix_seconds"], begun + 60, "{printed}");
    let (code, text, log) = Run::of(&["doctor", "--history", "--url", &other]);
    assert_eq!((code, text.as_str()), (Some(3), ""), "{log}");
}
