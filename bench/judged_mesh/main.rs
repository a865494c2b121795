//! What it costs to judge a mesh: CPU time, and memory in addition to the cells of the matrix.
//!
//! `judged_mesh NODES PEERS FAULT` makes the reports of NODES agents, each of which probes the next
//! PEERS nodes. It adds a FAULT: `none`, `nodes`, `mesh`, `paths`, `zone`, `partition` or `domain`.
//! The fault `domain` is one of 200 failure domains, which no other fault has. The program judges
//! the reports 9 times and prints a CSV line: nodes, peers, fault, verdicts, median CPU time in
//! microseconds, that of the longest slice, the most bytes allocated while judging, allocations,
//! and bytes per cell.

#[path = "../counted_allocations/counting.rs"]
mod counting;

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use kube_canary::mesh::domains::Domains;
use kube_canary::mesh::matrix::{Cell, Matrix, MatrixBounds};
use kube_canary::mesh::verdicts;
use kube_canary::report::{Age, Peer, RecentPeer, RecentSource, Source};
use kube_canary::sys::clock;

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

const PROBES: u32 = 60;
const ZONES: usize = 6;
const DOMAINS: usize = 200;
const ROUNDS: usize = 9;
/// Slices for which there is room before a judgement, so that the program allocates nothing in it.
const SLICES_MAX: usize = 65_536;
const BYTES_MAX: usize = 64 << 20;

/// The loss of every pair of nodes.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    Nodes,
    Mesh,
    Paths,
    Zone,
    Partition,
    Domain,
}

impl Fault {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "none" => Self::None,
            "nodes" => Self::Nodes,
            "mesh" => Self::Mesh,
            "paths" => Self::Paths,
            "zone" => Self::Zone,
            "partition" => Self::Partition,
            "domain" => Self::Domain,
            _ => return None,
        })
    }

    /// Returns the share of the probes between two nodes that is lost, 0 to 1.
    fn rate(self, a: usize, b: usize) -> f64 {
        let is_either = |of: &dyn Fn(usize) -> bool| of(a) || of(b);
        let is_across = |of: &dyn Fn(usize) -> bool| of(a) != of(b);
        let (low, high) = (a.min(b), a.max(b));
        match self {
            Self::Nodes if is_either(&|node| node % 1_000 == 17) => 0.3,
            Self::Mesh => 0.02,
            Self::Paths if mixed(low as u64 * 65_536 + high as u64) % 8 < 2 => 0.6,
            Self::Zone if is_across(&|node| node % ZONES == 1) => 0.2,
            Self::Partition if is_across(&|node| mixed(node as u64).is_multiple_of(3)) => 1.0,
            Self::Domain if is_across(&|node| domain(node) == 7) => 0.2,
            _ => 0.000_2,
        }
    }
}

/// Returns the number of a node's failure domain.
const fn domain(node: usize) -> usize {
    node / ZONES % DOMAINS
}

/// Mixes the bits of a number (the finalizer of SplitMix64).
const fn mixed(number: u64) -> u64 {
    let one = (number.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let two = (one ^ (one >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    two ^ (two >> 31)
}

/// Draws how many probes of a pair are lost.
fn drawn(rate: f64, state: &mut u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is 0 to 1")]
    let below = (rate * f64::from(u32::MAX)) as u64;
    let mut lost = 0;
    for _ in 0..PROBES {
        *state = mixed(*state);
        lost += u32::from(*state >> 32 < below);
    }
    lost
}

fn begin(matrix: &mut Matrix, node: &str, zone: &str, nodes: usize) {
    matrix.begin_row(
        &Source {
            node: Cow::Borrowed(node),
            zone: Cow::Borrowed(zone),
            interval_seconds: Some(1.0),
            hour_kept: Some(true),
            members: Some(nodes as u64),
            peer_list_age_seconds: Age::Seconds(1.0),
            recent: RecentSource { seconds: Some(60.0), ..RecentSource::default() },
            ..Source::default()
        },
        0,
    );
}

fn made(nodes: usize, peers: usize, fault: Fault) -> Matrix {
    let mut matrix = Matrix::within(MatrixBounds { rows: nodes, nodes, bytes: BYTES_MAX }, 1_800_000_000);
    let mut state = 20_261_122;
    let zone = |node: usize| format!("zone-{}", node % ZONES);
    for node in 0..nodes {
        begin(&mut matrix, &format!("node-{node}"), &zone(node), nodes);
        for step in 1..=peers {
            // Peers are spread over the whole mesh, and each node is probed as often as any other.
            let peer = (node + step * step * 7 + step) % nodes;
            if peer == node {
                continue;
            }
            let lost = drawn(fault.rate(node, peer), &mut state);
            let seconds = (lost < PROBES).then_some(0.000_3);
            matrix.peer(&Peer {
                node: Cow::Owned(format!("node-{peer}")),
                zone: Cow::Owned(zone(peer)),
                usual_rtt_p50_seconds: Some(0.000_25),
                recent: RecentPeer {
                    lost_in_row: 0,
                    answered_since: 0,
                    answered_before: 0,
                    seconds: 60.0,
                    sent: PROBES,
                    received: PROBES - lost,
                    lost,
                    rtt_p50_seconds: seconds,
                    rtt_p99_seconds: seconds,
                    ..RecentPeer::default()
                },
                ..Peer::default()
            });
        }
        matrix.end_row();
    }
    matrix.finish();
    matrix
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [nodes, peers, fault] = &arguments[..] else { usage() };
    let (Ok(nodes @ 2..=20_000), Ok(peers @ 1..=300), Some(fault)) =
        (nodes.parse(), peers.parse(), Fault::named(fault))
    else {
        usage()
    };
    let mut matrix = made(nodes, peers, fault);
    if matches!(fault, Fault::Domain) {
        let lines: Vec<String> = (0..nodes).map(|node| format!("node-{node} rack-{}", domain(node))).collect();
        let domains = Domains::parse(lines.join("\n").as_bytes()).expect("lines of a node and a domain");
        matrix.set_domains(&Arc::new(domains));
    }
    let mut rounds = Vec::new();
    let mut verdicts = 0;
    for _ in 0..ROUNDS {
        let slices = Vec::with_capacity(SLICES_MAX);
        counting::begin();
        let (judgement, slices) = in_slices(verdicts::judge_in_slices(&matrix, &[]), slices);
        verdicts = judgement.found.verdicts.len();
        let longest = slices.iter().copied().max().unwrap_or_default();
        rounds.push((slices.iter().sum::<u64>(), longest, counting::asked()));
    }
    rounds.sort_by_key(|(microseconds, ..)| *microseconds);
    let (microseconds, _, asked) = rounds[ROUNDS / 2];
    rounds.sort_by_key(|(_, longest, _)| *longest);
    let (_, longest, _) = rounds[ROUNDS / 2];
    println!(
        "{nodes},{peers},{},{verdicts},{microseconds},{longest},{},{},{}",
        arguments[2],
        asked.peak,
        asked.allocations,
        size_of::<Cell>()
    );
}

/// Returns the result of a judgement, and the CPU time of each of its slices in microseconds.
fn in_slices<T>(judging: impl Future<Output = T>, mut slices: Vec<u64>) -> (T, Vec<u64>) {
    let (mut judging, mut context) = (pin!(judging), Context::from_waker(Waker::noop()));
    loop {
        let start = clock::process_cpu();
        let done = judging.as_mut().poll(&mut context);
        slices.push(clock::process_cpu().since(start).0 / 1_000);
        if let Poll::Ready(done) = done {
            return (done, slices);
        }
    }
}

fn usage() -> ! {
    eprintln!("usage: judged_mesh NODES PEERS none|nodes|mesh|paths|zone|partition|domain");
    std::process::exit(2)
}
