use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::http::Render;
use crate::limits::{FRAME_BYTES, MESH_ZONES_MAX, NODES_DOCUMENT_BYTES_MAX};
use crate::mesh::matrix::MatrixBounds;

/// When the collections begin, in Unix seconds.
const EPOCH: u64 = 1_800_000_000;

/// A peer of a report, and its losses of 60 probes by ICMP and of 6 by TCP.
struct Told<'a> {
    node: &'a str,
    state: &'a str,
    icmp: u32,
    tcp: u32,
    rtt_us: u32,
}

const WELL: Told<'static> = Told { node: "", state: "ready", icmp: 0, tcp: 0, rtt_us: 100 };

fn add(matrix: &mut Matrix, node: &str, lag: f64, told: &[Told<'_>]) {
    let source = json!({"node": node, "zone": "z", "listening_seconds": 900.0, "interval_seconds": 1.0,
        "recent": {"seconds": 60.0, "send_lag_p99_seconds": lag, "rtt_p99_seconds": 0.004}});
    matrix.begin_row(&serde_json::from_str(&source.to_string()).expect("a source"), 0);
    for peer in told {
        for (protocol, sent, lost) in [("icmp", 60, peer.icmp), ("tcp", 6, peer.tcp)] {
            let object = json!({"node": peer.node, "zone": "z", "network": "pod", "protocol": protocol,
                "state": peer.state, "recent": {"seconds": 60.0, "sent": sent, "received": sent - lost, "lost": lost,
                "rtt_p50_seconds": f64::from(peer.rtt_us) / 1e6}});
            assert!(matrix.peer(&serde_json::from_str(&object.to_string()).expect("a peer")));
        }
    }
    matrix.end_row();
}

async fn document(matrix: &Matrix) -> Value {
    let nodes = KeptNodes::collect(matrix).await;
    let (text, frames) = text(Arc::new(nodes));
    assert!(frames > 0);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn text(nodes: Arc<KeptNodes>) -> (String, usize) {
    let mut body = NodesBody::new(nodes, "me".into(), 3.21);
    let (mut frame, mut whole, mut frames) = (Vec::with_capacity(FRAME_BYTES), Vec::new(), 0);
    loop {
        frame.clear();
        let more = body.render(&mut frame);
        assert_eq!(frame.capacity(), FRAME_BYTES);
        assert!(!more || !frame.is_empty(), "each frame has a piece");
        whole.extend_from_slice(&frame);
        frames += 1;
        if !more {
            return (String::from_utf8(whole).expect("UTF-8"), frames);
        }
    }
}

fn row<'a>(document: &'a Value, node: &str) -> &'a Value {
    let rows = document["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["node"] == node).unwrap_or_else(|| panic!("{node}: {document}"))
}

#[tokio::test]
async fn a_node_has_what_it_lost_what_others_lost_to_it_and_the_protocol_that_lost_most() {
    let mut matrix = Matrix::new(EPOCH);
    add(
        &mut matrix,
        "b",
        0.0,
        &[Told { node: "a", icmp: 6, rtt_us: 200, ..WELL }, Told { node: "c", tcp: 6, rtt_us: 300, ..WELL }],
    );
    add(&mut matrix, "a", 0.0, &[Told { node: "b", rtt_us: 400, ..WELL }]);
    // An agent that probes by TCP answers it too.
    add(&mut matrix, "c", 0.0, &[Told { node: "a", ..WELL }]);
    matrix.missing("d", "timed out");
    matrix.finish();
    let document = document(&matrix).await;
    let names: Vec<&str> =
        document["rows"].as_array().expect("rows").iter().filter_map(|row| row["node"].as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "d"], "in the order of their names");
    let tcp = |lost: u32| json!({"network": "pod", "protocol": "tcp", "probes": 12, "lost": lost});
    let b = row(&document, "b");
    assert_eq!((&b["out"], &b["watchers"], &b["report"]), (&tcp(6), &json!(1), &json!("whole")), "{b}");
    assert_eq!(b["in"], json!({"network": "pod", "protocol": "icmp", "probes": 60, "lost": 0}));
    let rtt = b["rtt_p50_seconds"].as_f64().expect("a median");
    assert!((rtt / 300e-6 - 1.0).abs() < 0.02, "the median of 200, 300 and 400 µs: {rtt}");
    let p99 = b["rtt_p99_seconds"].as_f64().expect("its agent reports it");
    assert!((p99 / 0.004 - 1.0).abs() < 0.02, "{p99}");
    let a = row(&document, "a");
    assert_eq!(a["in"], json!({"network": "pod", "protocol": "icmp", "probes": 120, "lost": 6}));
    let rtt = a["rtt_p50_seconds"].as_f64().expect("a median");
    assert!((rtt / 200e-6 - 1.0).abs() < 0.02, "the median of 100, 200 and 400 µs: {rtt}");
    let d = row(&document, "d");
    assert_eq!(
        (&d["report"], &d["out"], &d["in"], &d["rtt_p50_seconds"], &d["rtt_p99_seconds"]),
        (&json!("missing"), &Value::Null, &Value::Null, &Value::Null, &Value::Null)
    );
    let worst: Vec<_> = document["worst"]
        .as_array()
        .expect("links")
        .iter()
        .map(|link| (link["source"].as_str(), link["peer"].as_str(), link["protocol"].as_str(), link["lost"].as_u64()))
        .collect();
    let expected = [(Some("b"), Some("c"), Some("tcp"), Some(6)), (Some("b"), Some("a"), Some("icmp"), Some(6))];
    assert_eq!(worst, expected);
    assert_eq!(
        (&document["judge"], &document["age_seconds"], &document["nodes"]),
        (&json!("me"), &json!(3.2), &json!(4))
    );
}

#[tokio::test]
async fn what_is_no_evidence_for_verdicts_is_marked_and_counts_for_no_other_node() {
    let mut matrix = Matrix::new(EPOCH);
    // The first is starved. Two of three call `gone` terminating.
    add(&mut matrix, "late", 0.5, &[Told { node: "a", icmp: 60, ..WELL }, Told { node: "gone", ..WELL }]);
    let leaving = || Told { node: "gone", state: "terminating", icmp: 60, ..WELL };
    add(&mut matrix, "a", 0.0, &[Told { node: "b", icmp: 1, ..WELL }, leaving()]);
    add(&mut matrix, "b", 0.0, &[Told { node: "a", ..WELL }, leaving(), Told { node: "late", ..WELL }]);
    matrix.finish();
    let document = document(&matrix).await;
    let standings = ["late", "a", "gone"].map(|node| row(&document, node)["standing"].as_str().expect("text"));
    assert_eq!(standings, ["starved", "sound", "leaving"]);
    assert_eq!(row(&document, "late")["out"]["lost"], 60, "its own figures are marked");
    assert_eq!(row(&document, "a")["in"]["lost"], 0, "those of `b` alone");
    assert_eq!(row(&document, "a")["watchers"], 2);
    assert_eq!((&row(&document, "gone")["in"], &row(&document, "late")["in"]["lost"]), (&Value::Null, &json!(0)));
    let worst = document["worst"].as_array().expect("links");
    assert!(worst.len() == 1 && worst[0]["source"] == "a" && worst[0]["peer"] == "b", "{document}");
}

#[tokio::test]
async fn the_ten_worst_links_are_kept_and_few_probes_weigh_less() {
    let mut matrix = Matrix::new(EPOCH);
    let names: Vec<String> = (0..20).map(|n| format!("n{n:02}")).collect();
    let losing: Vec<Told<'_>> =
        (1..20).zip(&names[1..]).map(|(lost, node)| Told { node, icmp: lost, ..WELL }).collect();
    add(&mut matrix, "n00", 0.0, &losing);
    for name in &names[1..] {
        add(&mut matrix, name, 0.0, &[]);
    }
    matrix.finish();
    let document = document(&matrix).await;
    let worst: Vec<u64> =
        document["worst"].as_array().expect("links").iter().filter_map(|link| link["lost"].as_u64()).collect();
    assert_eq!(worst, (10..20).rev().collect::<Vec<_>>());
    let [one_of_six, ten_of_sixty] =
        [LossCount { probes: 6, lost: 1 }, LossCount { probes: 60, lost: 10 }].map(LossCount::badness);
    assert!(one_of_six < ten_of_sixty);
}

#[tokio::test]
async fn an_empty_mesh_and_the_longest_names_are_written_too() {
    let nothing = document(&Matrix::new(EPOCH)).await;
    let lists = ["rows", "worst", "zone_pairs"].map(|list| &nothing[list]);
    assert_eq!(lists, [&json!([]); 3]);
    let mut matrix = Matrix::new(EPOCH);
    let long = ["\u{1}", "\u{2}"].map(|letter| letter.repeat(NAME_BYTES_MAX));
    let too_long = "x".repeat(NAME_BYTES_MAX + 1);
    add(&mut matrix, &long[0], 0.0, &[Told { node: &long[1], icmp: 9, ..WELL }]);
    add(&mut matrix, &long[1], 0.0, &[Told { node: &too_long, icmp: 60, ..WELL }]);
    add(&mut matrix, &too_long, 0.0, &[]);
    matrix.finish();
    let document = document(&matrix).await;
    assert_eq!((&document["nodes"], &document["not_listed"]), (&json!(2), &json!(1)));
    assert!(document["worst"][0]["peer"] == json!(long[1]) && document["rows"][1]["node"] == json!(long[1]));
}

#[tokio::test]
async fn five_thousand_nodes_with_long_names_fit_their_memory_and_their_document() {
    const NODES: usize = 5_000;
    let names: Vec<String> = (0..NODES)
        .map(|n| format!("ip-10-{}-{}-{}.eu-central-1.compute.internal", n / 900, n * 7 % 256, n % 251))
        .collect();
    let bounds = MatrixBounds { rows: NODES, nodes: NODES, bytes: 64 << 20 };
    let mut matrix = Matrix::within(bounds, EPOCH);
    for (at, name) in names.iter().enumerate() {
        let peers: Vec<Told<'_>> =
            (1..=4).map(|step| Told { node: &names[(at + step * step) % NODES], icmp: 1, ..WELL }).collect();
        add(&mut matrix, name, 0.0, &peers);
    }
    matrix.finish();
    let nodes = Arc::new(KeptNodes::collect(&matrix).await);
    assert!(nodes.not_listed == 0 && nodes.bytes() <= JUDGE_NODES_BYTES_MAX, "{} bytes", nodes.bytes());
    let (text, frames) = text(nodes);
    assert!(text.len() < NODES_DOCUMENT_BYTES_MAX / 2, "{}", text.len());
    // A frame with one line would take as many system calls as there are nodes.
    assert!(frames < NODES / 8, "{frames}");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let sum: u64 = document["rows"].as_array().expect("rows").iter().filter_map(|row| row["watchers"].as_u64()).sum();
    assert_eq!(sum, 4 * 5_000);
}

#[tokio::test]
async fn a_pair_of_zones_has_the_protocol_that_lost_most_its_links_and_their_median() {
    let mut matrix = Matrix::new(EPOCH);
    for (node, zone) in [("a", "east"), ("b", "east"), ("c", "west"), ("d", "west"), ("late", "east"), ("e", "")] {
        matrix.member(node, zone);
    }
    let to = |node: &'static str, rtt_us: u32| Told { node, rtt_us, ..WELL };
    add(&mut matrix, "a", 0.0, &[to("b", 100), Told { tcp: 3, ..to("c", 700) }, to("d", 900)]);
    add(&mut matrix, "b", 0.0, &[Told { icmp: 1, ..to("c", 800) }, to("e", 50)]);
    add(&mut matrix, "c", 0.0, &[to("a", 600)]);
    add(&mut matrix, "d", 0.0, &[]);
    // What a starved agent measured is no evidence.
    add(&mut matrix, "late", 0.5, &[Told { icmp: 60, ..to("d", 9_000) }]);
    matrix.finish();
    let document = document(&matrix).await;
    let pairs = document["zone_pairs"].as_array().expect("pairs");
    let of = |zones: [&str; 2]| pairs.iter().find(|pair| [&pair["source_zone"], &pair["peer_zone"]] == zones);
    let found: Vec<_> =
        pairs.iter().map(|pair| [&pair["source_zone"], &pair["peer_zone"]].map(Value::as_str)).collect();
    let expected = [["east", "z"], ["east", "east"], ["east", "west"], ["west", "east"]];
    assert!(found.len() == 4 && expected.iter().all(|zones| found.contains(&zones.map(Some))), "{found:?}");
    // An agent that has probed nothing by TCP, like `d`, does not answer it either.
    let mut worst = of(["east", "west"]).expect("a pair").clone();
    let rtt = worst["rtt_p50_seconds"].take().as_f64().expect("a median");
    assert!((rtt / 800e-6 - 1.0).abs() < 0.02, "the median of 700, 800 and 900 µs: {rtt}");
    assert_eq!(
        worst,
        json!({"source_zone": "east", "peer_zone": "west", "network": "pod", "protocol": "tcp", "probes": 12, "lost": 3,
            "links": 2, "losing_links": 1, "rtt_p50_seconds": null})
    );
    let well = of(["west", "east"]).expect("a pair");
    assert_eq!((&well["protocol"], &well["lost"], &well["losing_links"]), (&json!("icmp"), &json!(0), &json!(0)));
}

#[tokio::test]
async fn the_pairs_of_the_most_zones_fit_their_memory_and_a_frame_whatever_their_names() {
    let mut matrix = Matrix::new(EPOCH);
    let zones: Vec<String> = (0..MESH_ZONES_MAX + 3).map(|n| format!("{n:02}{}", "\u{1}".repeat(251))).collect();
    for (node, zone) in zones.iter().enumerate() {
        matrix.member(&format!("n{node}"), zone);
    }
    let names: Vec<String> = (0..zones.len()).map(|n| format!("n{n}")).collect();
    for name in &names {
        let others: Vec<Told<'_>> =
            names.iter().filter(|other| *other != name).map(|node| Told { node, ..WELL }).collect();
        add(&mut matrix, name, 0.0, &others);
    }
    matrix.finish();
    let nodes = Arc::new(KeptNodes::collect(&matrix).await);
    assert_eq!((nodes.pairs.len(), nodes.pairs.bytes()), (17 * 17, 17 * 17 * 20));
    let document: Value = serde_json::from_str(&text(nodes).0).expect("JSON");
    let pairs = document["zone_pairs"].as_array().expect("pairs");
    // Each of the 16 zones has one node, which does not probe itself. Four are beyond the limit.
    assert_eq!(pairs.len(), 17 * 17 - 16);
    assert_eq!(pairs.iter().filter_map(|pair| pair["links"].as_u64()).sum::<u64>(), 20 * 19);
}

#[tokio::test]
async fn a_link_that_could_not_be_sent_to_is_neither_lossless_nor_lost() {
    let mut matrix = Matrix::new(EPOCH);
    add(&mut matrix, "a", 0.0, &[Told { node: "b", ..WELL }]);
    let source = json!({"node": "b", "zone": "z", "recent": {"seconds": 60.0}});
    matrix.begin_row(&serde_json::from_str(&source.to_string()).expect("a source"), 0);
    let object = json!({"node": "a", "zone": "z", "recent": {"seconds": 60.0, "send_errors": 60,
        "send_error_reason": "not_permitted"}});
    assert!(matrix.peer(&serde_json::from_str(&object.to_string()).expect("a peer")));
    matrix.end_row();
    matrix.finish();
    let document = document(&matrix).await;
    let (a, b) = (row(&document, "a"), row(&document, "b"));
    assert_eq!((&b["out"], &a["in"], &b["send_error_reason"]), (&Value::Null, &Value::Null, &json!("not_permitted")));
    assert_eq!((&a["out"]["lost"], a.get("send_error_reason")), (&json!(0), None));
}
