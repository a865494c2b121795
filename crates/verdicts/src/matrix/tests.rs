use kube_canary_model::report::{PeerState, RecentPeer};
use std::borrow::Cow;
use std::sync::Arc;

use super::*;
use crate::domains::Domains;
use kube_canary_model::limits::{MESH_BYTES_MAX, MESH_REPORTS_MAX};
use kube_canary_model::report::Protocol;

/// When the collections begin, in Unix seconds.
const EPOCH: u64 = 1_800_000_000;

fn source(node: &str) -> Source<'_> {
    let any: Source<'static> = serde_json::from_str(r#"{"node":"any","zone":"z"}"#).expect("a source");
    Source { node: Cow::Borrowed(node), ..any }
}

fn peer(node: &str) -> Peer<'_> {
    Peer {
        node: Cow::Borrowed(node),
        zone: Cow::Borrowed("z"),
        address: Some([10, 0, 0, 1].into()),
        recent: RecentPeer { seconds: 60.0, sent: 60, received: 59, lost: 1, ..RecentPeer::default() },
        ..Peer::default()
    }
}

fn number(matrix: &Matrix, node: &str) -> u16 {
    matrix.numbers().find(|number| matrix.name(*number) == node).expect("a node")
}

#[test]
fn rows_in_any_order_become_cells_in_the_order_of_their_peers() {
    let mut matrix = Matrix::new(EPOCH);
    matrix.begin_row(&source("b"), 0);
    for name in ["d", "c", "a", "c"] {
        matrix.peer(&peer(name));
    }
    matrix.end_row();
    matrix.begin_row(&source("a"), 0);
    matrix.peer(&peer("b"));
    matrix.end_row();
    let (a, b) = (number(&matrix, "a"), number(&matrix, "b"));
    let peers: Vec<&str> = matrix.cells(b).iter().map(|cell| matrix.name(cell.peer())).collect();
    assert_eq!(peers, ["d", "c", "a"], "in the order they were first spoken of, each once");
    assert_eq!(matrix.cells(a).len(), 1);
    assert_eq!(matrix.get(a).presence, RowPresence::Whole);
    assert_eq!(matrix.get(number(&matrix, "c")).presence, RowPresence::Listed);
    assert!(matrix.row(number(&matrix, "c")).is_none());
    assert!((matrix.get(b).probes_per_second - 1.0).abs() < 1e-6);
}

#[test]
fn a_row_that_broke_off_keeps_its_cells() {
    let mut matrix = Matrix::new(EPOCH);
    matrix.begin_row(&source("a"), 0);
    matrix.peer(&peer("b"));
    matrix.missing("a", "timed out");
    matrix.begin_row(&source("b"), 0);
    matrix.peer(&peer("a"));
    matrix.begin_row(&source("c"), 0);
    matrix.end_row();
    matrix.missing("d", &"é".repeat(100));
    matrix.peer(&peer("a"));
    let state = |node| {
        let number = number(&matrix, node);
        (matrix.get(number).presence, matrix.cells(number).len())
    };
    assert_eq!(state("a"), (RowPresence::Broken, 1));
    assert_eq!(state("b"), (RowPresence::Broken, 1));
    assert_eq!(state("c"), (RowPresence::Whole, 0));
    assert_eq!(state("d"), (RowPresence::Missing, 0));
    assert_eq!(matrix.error(number(&matrix, "a")), "timed out");
    assert_eq!(matrix.error(number(&matrix, "d")).len(), ERROR_BYTES_MAX);
    assert_eq!(matrix.not_kept(), NotKept { cells: 1, ..NotKept::default() }, "a peer without a row");
}

#[test]
fn a_second_row_of_a_node_and_rows_beyond_the_limit_are_counted() {
    let mut matrix = Matrix::new(EPOCH);
    for row in 0..=MESH_REPORTS_MAX {
        matrix.begin_row(&source(&format!("node-{row}")), 0);
        matrix.end_row();
    }
    assert_eq!(matrix.not_kept().rows, 1);
    let mut matrix = Matrix::new(EPOCH);
    for _ in 0..2 {
        matrix.begin_row(&source("a"), 0);
        matrix.peer(&peer("b"));
        matrix.end_row();
    }
    assert_eq!((matrix.not_kept(), matrix.cell_count()), (NotKept { rows: 1, cells: 1, udp_and_tcp_cells: 0 }, 1));
}

#[test]
fn a_node_that_leaves_is_no_evidence_and_no_node_probes_itself() {
    let mut matrix = Matrix::new(EPOCH);
    matrix.begin_row(&source("a"), 0);
    matrix.peer(&peer("a"));
    for (name, state) in [("b", PeerState::Left), ("c", PeerState::Terminating), ("d", PeerState::Unready)] {
        matrix.peer(&Peer { state, ..peer(name) });
    }
    matrix.peer(&Peer { protocol: Protocol::Other, ..peer("e") });
    matrix.end_row();
    assert_eq!(matrix.cell_count(), 1);
    assert!(matrix.get(number(&matrix, "b")).is_leaving() && matrix.get(number(&matrix, "c")).is_leaving());
    assert!(!matrix.get(number(&matrix, "d")).is_leaving());
    assert_eq!(matrix.node_count(), 4);
}

/// A node that others no longer probe, because they have selected other peers, stays a member.
#[test]
fn a_node_that_left_some_lists_long_ago_is_not_leaving() {
    let leaving = |rows: &[(PeerState, u32)]| {
        let mut matrix = Matrix::new(EPOCH);
        for (at, (state, sent)) in rows.iter().enumerate() {
            matrix.begin_row(&source(&format!("source-{at}")), 0);
            let recent = RecentPeer { sent: *sent, ..peer("x").recent };
            matrix.peer(&Peer { state: *state, recent, ..peer("x") });
            matrix.end_row();
        }
        let node = *matrix.get(number(&matrix, "x"));
        [node.is_leaving(), node.is_leaving_for_some(), node.is_gone()]
    };
    let (ready, now, long_ago) = ((PeerState::Ready, 60), (PeerState::Left, 1), (PeerState::Left, 0));
    assert_eq!(leaving(&[ready, long_ago, long_ago, long_ago]), [false, false, false]);
    assert_eq!(leaving(&[now, ready, long_ago]), [true, true, false]);
    assert_eq!(leaving(&[ready, ready, now, long_ago, long_ago]), [false, true, false]);
    assert_eq!(leaving(&[ready, now, now, long_ago, long_ago]), [true, true, false]);
    assert_eq!(leaving(&[long_ago, long_ago]), [true, false, true]);
    // If the rows are divided evenly, the first one decides.
    assert_eq!(leaving(&[(PeerState::Terminating, 0), ready]), [true, true, false]);
    assert_eq!(leaving(&[ready, (PeerState::Terminating, 0)]), [false, true, false]);
}

#[test]
fn a_row_counts_once_for_a_node_and_as_the_most_present_of_what_it_says() {
    let mut matrix = Matrix::new(EPOCH);
    let [six, node] = [
        Peer { protocol: Protocol::Icmpv6, ..peer("x") },
        Peer { network: Network::Node, state: PeerState::Terminating, ..peer("x") },
    ];
    let leaving = Peer { state: PeerState::Terminating, ..peer("x") };
    for source_of_row in ["a", "b", "c"] {
        matrix.begin_row(&source(source_of_row), 0);
        assert!(matrix.peer(&leaving) && matrix.peer(&six) && matrix.peer(&node));
        assert!(!matrix.peer(&leaving) && !matrix.peer(&six) && !matrix.peer(&node), "each once");
        matrix.end_row();
    }
    for liar in ["d", "e"] {
        matrix.begin_row(&source(liar), 0);
        matrix.peer(&leaving);
        for _ in 0..70_000 {
            assert!(!matrix.peer(&leaving));
        }
        matrix.end_row();
    }
    let x = matrix.get(number(&matrix, "x"));
    assert!(!x.is_leaving() && x.is_leaving_for_some() && !x.is_gone());
    assert_eq!((x.aimed, matrix.cell_count()), (3, 3));
}

#[test]
fn the_zone_that_discovery_gives_stays_and_a_row_adds_one_zone_at_most() {
    let mut matrix = Matrix::new(EPOCH);
    matrix.member("a", "z1");
    matrix.member("b", "z2");
    matrix.member("c", "");
    let in_zone = |node: &'static str, zone: &'static str| Source { zone: Cow::Borrowed(zone), ..source(node) };
    matrix.begin_row(&in_zone("a", "lie"), 0);
    matrix.end_row();
    matrix.begin_row(&in_zone("c", "z3"), 0);
    matrix.peer(&Peer { zone: Cow::Borrowed("lie"), ..peer("b") });
    matrix.peer(&Peer { zone: Cow::Borrowed("another"), ..peer("d") });
    matrix.end_row();
    let zone = |node| matrix.zone_name(matrix.get(number(&matrix, node)).zone).to_owned();
    assert_eq!(["a", "b", "c", "d"].map(zone), ["z1", "z2", "z3", UNKNOWN]);
    assert!(matrix.knows("a") && !matrix.knows("e"));
}

#[test]
fn the_first_row_says_how_many_members_there_are() {
    let mut matrix = Matrix::new(EPOCH);
    for (node, members) in [("a", 4), ("liar", 9_000)] {
        matrix.begin_row(&Source { members: Some(members), ..source(node) }, 0);
        matrix.end_row();
    }
    assert_eq!(matrix.members(), 4);
}

#[test]
fn a_wrong_clock_among_the_first_rows_does_not_falsify_others_moments() {
    let now = EPOCH;
    let sinces = [None, Some(now - 86_400), Some(60), Some(now - 60), Some(now - 3_540)];
    let mut matrix = Matrix::new(EPOCH);
    matrix.begin_row(&source("a"), 0);
    for (name, since_unix_seconds) in ["b", "c", "d", "e", "f"].into_iter().zip(sinces) {
        matrix.peer(&Peer { since_unix_seconds, ..peer(name) });
    }
    matrix.end_row();
    let moments: Vec<Option<u64>> =
        matrix.cells(number(&matrix, "a")).iter().map(|cell| cell.since().map(|since| matrix.moment(since))).collect();
    assert_eq!(moments, [None, None, None, Some(now - 60), Some(now - 3_540)]);
}

#[test]
fn a_full_mesh_of_300_fits_and_a_larger_one_stops_at_the_limit() {
    let fill = |nodes: usize, protocols: &[Protocol]| {
        let names: Vec<String> = (0..nodes).map(|n| format!("worker-{n:04}.cluster.example")).collect();
        let mut matrix = Matrix::new(EPOCH);
        for row in names.iter().take(MESH_REPORTS_MAX) {
            matrix.begin_row(&source(row), 0);
            for name in &names {
                for protocol in protocols {
                    matrix.peer(&Peer { protocol: *protocol, ..peer(name) });
                }
            }
            matrix.end_row();
        }
        matrix
    };
    let all = fill(300, &[Protocol::Icmp]);
    assert_eq!((all.cell_count(), all.not_kept()), (300 * 299, NotKept::default()));
    let resident = all.cells.resident_bytes();
    println!("300 nodes, each probing all others: {resident} bytes of cells in memory, {} accounted", all.bytes());
    assert!(all.bytes() < MESH_BYTES_MAX && resident < 850_000, "{} {resident}", all.bytes());
    for larger in [fill(300, &[Protocol::Icmp, Protocol::Icmpv6]), fill(5_000, &[Protocol::Icmp])] {
        assert!(larger.bytes() <= MESH_BYTES_MAX, "{}", larger.bytes());
        assert!(larger.cell_count() + larger.not_kept().cells > 2 * 89_000, "each is kept or counted");
    }
}

#[test]
fn zones_beyond_the_limit_are_unknown_and_ones_own_word_counts() {
    let mut matrix = Matrix::new(EPOCH);
    matrix.begin_row(&source("a"), 0);
    matrix.peer(&Peer { zone: Cow::Borrowed("elsewhere"), ..peer("b") });
    for zone in 0..MESH_ZONES_MAX {
        matrix.peer(&Peer { zone: Cow::Owned(format!("zone-{zone}")), ..peer(&format!("node-{zone}")) });
    }
    matrix.begin_row(&source("b"), 0);
    matrix.end_row();
    assert_eq!(matrix.zone_count(), MESH_ZONES_MAX);
    let zone = |node| matrix.zone_name(matrix.get(number(&matrix, node)).zone);
    assert_eq!((zone("b"), zone("node-0")), ("z", "zone-0"));
    assert_eq!(zone(&format!("node-{}", MESH_ZONES_MAX - 1)), UNKNOWN);
}

#[test]
fn a_domain_counts_unless_it_is_a_node_a_zone_or_all_nodes() {
    let mut matrix = Matrix::new(EPOCH);
    for (node, zone) in [("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"), ("e", "")] {
        matrix.member(node, zone);
    }
    let mut numbers = |file: &str| {
        matrix.set_domains(&Arc::new(Domains::parse(file.as_bytes()).expect("a domains file")));
        (matrix.domains().to_vec(), matrix.domain_count())
    };
    assert_eq!(numbers("a r\nc r\n"), (vec![1, 0, 1, 0, 0], 2));
    assert_eq!(numbers("a q\nc r\nd r\ne r\n"), (vec![0, 0, 2, 2, 2], 3));
    for nothing in ["a r\n", "a r\nb r\n", "* r\n", "f r\ng r\n", ""] {
        assert_eq!(numbers(nothing), (vec![], 0), "{nothing}");
    }
    numbers("* all\n");
    assert_eq!((matrix.domain(0), matrix.domain_name(1)), (0, ""));
}

#[test]
fn tcp_and_then_udp_give_way_to_icmp_if_there_is_no_room() {
    let fill = |nodes: usize, peers: usize| {
        let names: Vec<String> = (0..nodes).map(|n| format!("worker-{n:04}.cluster.example")).collect();
        let mut matrix = Matrix::new(EPOCH);
        for (row, name) in names.iter().enumerate() {
            matrix.begin_row(&source(name), 0);
            for step in 1..=peers {
                for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Icmp] {
                    matrix.peer(&Peer { protocol, ..peer(&names[(row + step) % nodes]) });
                }
            }
            matrix.end_row();
        }
        matrix
    };
    let layers = |matrix: &Matrix| {
        let mut counts = [0; 4];
        for node in matrix.numbers() {
            let cells = matrix.cells(node);
            for cell in cells {
                counts[cell.layer() as usize] += 1;
            }
            assert!(cells.is_sorted_by(|a, b| a.key() < b.key()), "in order, each once");
        }
        counts
    };
    // As agents select their peers: all is kept.
    let usual = fill(300, 24);
    assert_eq!((layers(&usual), usual.not_kept()), ([7_200, 0, 7_200, 7_200], NotKept::default()));
    // Two of three layers fit, and then one.
    let more = fill(300, 150);
    assert_eq!(layers(&more), [45_000, 0, 45_000, 0]);
    assert_eq!(more.not_kept(), NotKept { udp_and_tcp_cells: 45_000, ..NotKept::default() });
    let most = fill(300, 299);
    assert_eq!(layers(&most), [89_700, 0, 0, 0]);
    assert_eq!(most.not_kept(), NotKept { udp_and_tcp_cells: 2 * 89_700, ..NotKept::default() });
    assert_eq!(most.layers(), Layer::Icmp.bit());
    assert!(most.bytes() <= MESH_BYTES_MAX, "{}", most.bytes());
}

#[test]
fn udp_and_tcp_change_nothing_that_is_of_echo_requests_alone() {
    let mut matrix = Matrix::new(EPOCH);
    matrix.begin_row(&source("a"), 0);
    let objects = [Protocol::Icmp, Protocol::Udp, Protocol::Udpv6, Protocol::Tcp].map(|protocol| Peer {
        protocol,
        ten_minutes: Some(kube_canary_model::report::TenMinutes { seconds: 600.0, sent: 600, lost: 60 }),
        ..peer("b")
    });
    assert!(objects.iter().all(|object| matrix.peer(object)) && objects.iter().all(|object| !matrix.peer(object)));
    let on_nodes = Peer { network: Network::Node, protocol: Protocol::Udp, ..peer("c") };
    assert!(matrix.peer(&on_nodes) && matrix.peer(&on_nodes), "there is no such layer");
    matrix.end_row();
    let b = matrix.get(number(&matrix, "b"));
    assert_eq!((b.aimed, matrix.cell_count()), (1, 4));
    assert!((b.probes_per_second - 1.0).abs() < 1e-6);
    let row = matrix.row(number(&matrix, "a")).expect("a row");
    assert_eq!((row.lasting.links(), row.layers, row.facts.sent), (1, 0b1101, 240));
}
