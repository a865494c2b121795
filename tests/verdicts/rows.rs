//! The reports of a generated mesh, put into a matrix, and the random numbers that it is drawn
//! from.

use std::borrow::Cow;

use kube_canary::mesh::matrix::Matrix;
use kube_canary::report::{Age, Flows, Method, Network, Peer, PeerState, Protocol, RecentPeer, RecentSource, Source};

use super::mesh::{PROBES, Plan, Random, name, whole, zone_name};

/// When the collections begin, in Unix seconds.
pub const EPOCH: u64 = 1_800_000_000;

impl Random {
    /// Returns a number from 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a usize")
    }

    pub fn chance(&mut self, rate: f64) -> bool {
        self.unit() < rate
    }

    /// Draws 60 bits, each with this probability, by the gaps between them.
    pub fn bits(&mut self, rate: f64) -> u64 {
        let all = (1 << PROBES) - 1;
        if rate >= 1.0 {
            return all;
        }
        let (mut bits, mut at, scale) = (0_u64, 0, (1.0 - rate).ln());
        if rate > 0.0 {
            loop {
                at += whole(((1.0 - self.unit()).ln() / scale).min(1e3));
                if at >= PROBES {
                    break;
                }
                bits |= 1 << at;
                at += 1;
            }
        }
        bits
    }
}

/// What a node measures of a peer.
pub struct Made {
    pub to: usize,
    pub network: Network,
    pub over_ipv6: bool,
    pub method: Method,
    pub sent: u32,
    pub lost: u32,
    /// Of TCP: whether the host has refused some of them.
    pub refused: bool,
    /// The last probes that were lost, without an answer since.
    pub lost_in_row: u32,
    pub answered_since: u32,
    pub answered_before: u32,
    pub answered_seconds: u32,
    /// Of UDP: the losses whose way is known, and the requests that arrived, newest first.
    pub ways: Option<(u32, u32)>,
    pub arrived: u64,
    pub heard: Option<u32>,
    /// The middle of its bucket, which is the interpolated median of equal round trips.
    pub rtt_seconds: f64,
    /// The upper bound of its bucket in the quickest minute of the hour.
    pub usual_rtt_seconds: Option<f64>,
    /// The flows that lose while the others do not, of UDP.
    pub flows: Option<Flows>,
}

impl Made {
    /// Returns a link of the pods' network over IPv4, with quick answers. Of its losses only the
    /// number is known.
    pub const fn plain(to: usize, method: Method, sent: u32, lost: u32) -> Self {
        Self {
            to,
            network: Network::Pod,
            over_ipv6: false,
            method,
            sent,
            lost,
            refused: false,
            lost_in_row: 0,
            answered_since: 0,
            answered_before: 0,
            answered_seconds: 0,
            ways: None,
            arrived: 0,
            heard: None,
            rtt_seconds: 0.000_1,
            usual_rtt_seconds: None,
            flows: None,
        }
    }
}

/// Puts the report of a node into the matrix.
pub fn put(plan: &Plan, matrix: &mut Matrix, node: usize, row: &[Made], counts: (f64, u64)) {
    put_at(plan, matrix, (node, 0), row, counts);
}

/// Does the same for a report that is read this many seconds after the collection has begun.
pub fn put_at(
    plan: &Plan,
    matrix: &mut Matrix,
    (node, read): (usize, i64),
    row: &[Made],
    (seconds, counted): (f64, u64),
) {
    let starved = plan.own_loss(node) > 0.0;
    let sent: u32 = row.iter().map(|cell| cell.sent).sum();
    let (node_name, zone) = (name(node), zone_name(plan.zone_of(node)));
    let source = Source {
        node: Cow::Borrowed(&node_name),
        zone: Cow::Borrowed(&zone),
        version: Cow::Borrowed("0.1.0"),
        allocator: Cow::Borrowed("musl"),
        linkage: Cow::Borrowed("rust"),
        rss_bytes: Some(1 << 20),
        cpus: Some(4),
        interval_seconds: Some(1.0),
        hour_kept: Some(true),
        echo_requests_received: Some(counted),
        echo_replies_sent: Some(counted),
        members: Some(plan.nodes as u64),
        peer_list_age_seconds: Age::Seconds(1.0),
        listening_seconds: plan.listening_seconds(node),
        recent: RecentSource {
            seconds: Some(seconds),
            echo_requests_received: Some(counted),
            echo_replies_sent: Some(counted),
            send_lag_p99_seconds: Some(if starved { 0.4 } else { 0.000_3 }),
            read_delay_p99_seconds: Some(if starved { 0.3 } else { 0.000_3 }),
            probes_skipped: Some(0),
            receive_queue_drops: Some(if starved { u64::from(sent) / 10 } else { 0 }),
            run_delay_seconds: Some(if starved { seconds / 2.0 } else { 0.01 }),
            rtt_p99_seconds: None,
        },
        ..Source::default()
    };
    matrix.begin_row(&source, read);
    for cell in row {
        let (peer, zone) = (name(cell.to), zone_name(plan.zone_of(cell.to)));
        let answered = cell.lost < cell.sent;
        matrix.peer(&Peer {
            node: Cow::Borrowed(&peer),
            zone: Cow::Borrowed(&zone),
            network: cell.network,
            protocol: match (cell.method, cell.over_ipv6) {
                (Method::Icmp, false) => Protocol::Icmp,
                (Method::Icmp, true) => Protocol::Icmpv6,
                (Method::Udp, false) => Protocol::Udp,
                (Method::Udp, true) => Protocol::Udpv6,
                (Method::Tcp, false) => Protocol::Tcp,
                (Method::Tcp, true) => Protocol::Tcpv6,
            },
            heard: cell.heard,
            state: PeerState::Ready,
            address: Some([10, 0, 0, 1].into()),
            since_unix_seconds: (cell.lost > 0).then_some(EPOCH - 60),
            recent: RecentPeer {
                lost_in_row: cell.lost_in_row,
                answered_since: cell.answered_since,
                answered_before: cell.answered_before,
                answered_seconds: cell.answered_seconds,
                seconds,
                sent: cell.sent,
                received: cell.sent - cell.lost,
                lost: cell.lost,
                lost_there: cell.ways.map(|(there, _)| there),
                lost_back: cell.ways.map(|(_, back)| back),
                refused: cell.refused,
                send_errors: 0,
                send_error_reason: None,
                rtt_p50_seconds: answered.then_some(cell.rtt_seconds),
                rtt_p99_seconds: answered.then_some(cell.rtt_seconds),
            },
            usual_rtt_p50_seconds: cell.usual_rtt_seconds,
            flows: cell.flows.clone(),
            ..Peer::default()
        });
    }
    matrix.end_row();
}
