//! Rows of a source, and what is left of their cells. How verdicts follow is in
//! `tests/verdicts/silence.rs`.

use std::borrow::Cow;

use super::*;
use crate::matrix::Matrix;
use kube_canary_model::report::{Peer, Protocol, Source};

/// When the collections begin, in Unix seconds.
const EPOCH: u64 = 1_800_000_000;

/// The last losses of a link, by ICMP and UDP: in a row, and answered since.
type Last = [u32; 2];

fn begin(matrix: &mut Matrix, node: &str, read: i64) {
    let any: Source<'static> = serde_json::from_str(r#"{"node":"any","zone":"z"}"#).expect("a source");
    matrix.begin_row(&Source { node: Cow::Borrowed(node), ..any }, read);
}

/// Adds what a source measured of a peer. All its losses are the last ones.
fn add(matrix: &mut Matrix, node: &str, protocol: Protocol, [lost_in_row, answered_since]: Last) {
    let sent = 60;
    let lost = lost_in_row.min(sent);
    let recent = RecentPeer {
        seconds: 60.0,
        sent,
        received: sent - lost,
        lost,
        lost_in_row,
        answered_since,
        ..RecentPeer::default()
    };
    matrix.peer(&Peer { node: Cow::Borrowed(node), zone: Cow::Borrowed("z"), protocol, recent, ..Peer::default() });
}

/// Returns the probes and losses of all ICMP cells of source `a` whose row was read at the
/// beginning of the collection.
fn settled(links: &[(&str, Last)]) -> Vec<(u32, u32)> {
    let mut matrix = Matrix::new(EPOCH);
    begin(&mut matrix, "a", 0);
    for (peer, last) in links {
        add(&mut matrix, peer, Protocol::Icmp, *last);
        add(&mut matrix, peer, Protocol::Udp, *last);
    }
    matrix.finish();
    let of_icmp = matrix.cells(0).iter().filter(|cell| cell.layer() == Layer::Icmp);
    of_icmp.map(|cell| (cell.probes(), cell.lost())).collect()
}

#[test]
fn silence_begins_the_window_of_several_links_and_an_answer_ends_it() {
    let usual = |lost| (60, lost);
    assert_eq!(settled(&[("b", [20, 0]), ("c", [12, 0])]), [(20, 20), (12, 12)], "silent before");
    assert_eq!(settled(&[("b", [3, 0]), ("c", [4, 0])]), [(57, 0), (56, 0)], "just begun, so not yet");
    assert_eq!(settled(&[("b", [14, 0]), ("c", [4, 0])]), [usual(14), usual(4)], "one has just begun");
    assert_eq!(settled(&[("b", [14, 0])]), [usual(14)], "one link alone");
    assert_eq!(settled(&[("b", [15, 0])]), [(15, 15)], "for long");
    assert_eq!(settled(&[("b", [20, 10])]), [(40, 0)], "it has come back");
    assert_eq!(settled(&[("b", [20, 3])]), [(20, 20)], "too late for all reports");
    assert_eq!(settled(&[("b", [3, 10])]), [usual(3)], "few losses are usual ones");
}

#[test]
fn a_link_that_answers_by_one_of_both_protocols_is_not_silent() {
    let mut matrix = Matrix::new(EPOCH);
    begin(&mut matrix, "a", 0);
    for peer in ["b", "c"] {
        add(&mut matrix, peer, Protocol::Icmp, [20, 0]);
        add(&mut matrix, peer, Protocol::Udp, [0, 0]);
    }
    matrix.finish();
    assert_eq!(matrix.cells(0).iter().map(|cell| cell.lost()).collect::<Vec<_>>(), [20, 0, 20, 0]);
}

#[test]
fn what_contradicts_an_older_report_of_the_peer_does_not_count_yet() {
    for (read, lost) in [(0, 0), (12, 0), (14, 5)] {
        let mut matrix = Matrix::new(EPOCH);
        begin(&mut matrix, "b", read);
        begin(&mut matrix, "a", 12);
        add(&mut matrix, "b", Protocol::Icmp, [5, 0]);
        matrix.finish();
        assert_eq!(matrix.cells(1)[0].lost(), lost, "the peer's row was read at {read} s");
    }
}

#[test]
fn a_peer_has_the_number_of_sources_that_have_just_begun_to_lose() {
    let mut matrix = Matrix::new(EPOCH);
    for source in ["a", "b"] {
        begin(&mut matrix, source, 0);
        for peer in ["x", "y"] {
            for protocol in [Protocol::Icmp, Protocol::Icmpv6] {
                add(&mut matrix, peer, protocol, [2, 0]);
            }
        }
    }
    matrix.finish();
    let of =
        |name: &str| matrix.numbers().find(|node| matrix.name(*node) == name).map(|node| matrix.fresh_sources(node));
    assert_eq!(["x", "y", "a"].map(of), [Some(2), Some(2), Some(0)]);
}

/// A report with more losses than an honest one has is left as it is, and the others are not.
#[test]
fn one_report_cannot_prevent_it_for_all() {
    let mut matrix = Matrix::new(EPOCH);
    begin(&mut matrix, "false", 0);
    let peers: Vec<String> = (0..2_000).map(|peer| format!("n{peer}")).collect();
    for peer in &peers {
        add(&mut matrix, peer, Protocol::Icmp, [20, 0]);
    }
    begin(&mut matrix, "a", 0);
    for peer in &peers[..2] {
        add(&mut matrix, peer, Protocol::Icmp, [20, 0]);
    }
    matrix.finish();
    let probes = |node: u16| matrix.cells(node).iter().map(|cell| cell.probes()).max();
    let source = matrix.numbers().find(|node| matrix.name(*node) == "a").expect("a node");
    assert_eq!((probes(0), probes(source)), (Some(60), Some(20)));
}
