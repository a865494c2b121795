//! Faults that end while the recent windows of the agents still show their losses. Each probe of
//! the last minutes is drawn, and reports have the counts that agents would have. The constants of
//! `src/mesh/verdicts/quiet.rs` were chosen before these meshes were drawn.

use kube_canary::mesh::matrix::Matrix;
use kube_canary::mesh::verdicts::{Judged, Kind, judge_whole};
use kube_canary::report::{Method, Network};
use kube_canary::sys::clock;

use super::mesh::{Plan, Random, name};
use super::rows::{Made, put_at};
use super::shapes::{seed, some};

/// Number of peers of each node.
const PEERS: usize = 24;
/// Time until a loss is known, in seconds.
const LOSS_KNOWN_AFTER: i64 = 2;
/// What loses a probe in a healthy mesh.
const BACKGROUND: f64 = 0.000_1;

/// What is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lossy {
    Node,
    Link,
    All,
}

/// A fault that loses this share of the round trips. Times are in seconds after the end of the
/// collection.
#[derive(Clone, Copy, Debug)]
struct Fault {
    of: Lossy,
    rate: f64,
    begins: i64,
    ends: i64,
}

impl Fault {
    /// The loss rate of a probe that is sent at this second.
    fn rate_of(&self, a: usize, b: usize, second: i64) -> f64 {
        let is_of_it = match self.of {
            Lossy::Node => a == 3 || b == 3,
            Lossy::Link => (a.min(b), a.max(b)) == (3, 4),
            Lossy::All => true,
        };
        if is_of_it && (self.begins..self.ends).contains(&second) { self.rate } else { BACKGROUND }
    }
}

/// A mesh of so many nodes, whose reports are read within a collection of so many seconds.
#[derive(Clone, Copy, Debug)]
struct Shape {
    nodes: usize,
    collection: i64,
}

fn made(random: &mut Random, fault: &Fault, ends: (usize, usize), (read, window): (i64, i64), method: Method) -> Made {
    let interval = if method == Method::Tcp { 10 } else { 1 };
    let [mut sent, mut lost, mut lost_in_row, mut answered_since] = [0; 4];
    let phase = i64::try_from(random.below(10)).expect("few") % interval;
    for second in (read - window..read - LOSS_KNOWN_AFTER).filter(|second| (second - phase) % interval == 0) {
        sent += 1;
        if random.chance(fault.rate_of(ends.0, ends.1, second)) {
            (lost, lost_in_row) = (lost + 1, if answered_since > 0 { 1 } else { lost_in_row + 1 });
            answered_since = 0;
        } else if lost > 0 {
            answered_since += 1;
        }
    }
    Made {
        to: ends.1,
        network: Network::Pod,
        over_ipv6: false,
        method,
        sent,
        lost,
        refused: false,
        lost_in_row,
        answered_since,
        ways: None,
        arrived: 0,
        heard: None,
        rtt_seconds: 0.000_1,
        usual_rtt_seconds: None,
        flows: None,
    }
}

/// Judges the mesh. Moments in the result are seconds after the end of the collection.
fn judged(random: &mut Random, shape: Shape, fault: &Fault) -> (Judged, Vec<i64>) {
    let Shape { nodes, collection } = shape;
    let mut plan = Plan::new(nodes);
    (plan.protocols, plan.dual) = (true, false);
    let mut matrix = Matrix::new();
    let epoch = clock::realtime().as_secs().cast_signed();
    for node in 0..nodes {
        let read = i64::try_from(node).expect("few") * collection / i64::try_from(nodes).expect("few") - collection;
        let window = 30 + i64::try_from(random.below(30)).expect("few");
        let mut row = Vec::new();
        for step in 1..=PEERS.min(nodes - 1) / 2 {
            for to in [(node + step) % nodes, (node + nodes - step) % nodes] {
                for method in [Method::Icmp, Method::Udp, Method::Tcp] {
                    row.push(made(random, fault, (node, to), (read, window), method));
                }
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "a minute")]
        put_at(&plan, &mut matrix, (node, read + collection), &row, (window as f64, 0));
    }
    matrix.finish();
    let found = judge_whole(&matrix).found;
    let end = |it: &u64| it.cast_signed() - epoch - collection;
    let ends = found.ended.iter().filter_map(|it| it.ended_unix_seconds.as_ref().map(end)).collect();
    (found, ends)
}

const SHAPES: [Shape; 2] = [Shape { nodes: 13, collection: 1 }, Shape { nodes: 60, collection: 12 }];

/// A fault ends: what is still named so many seconds later?
#[test]
fn a_fault_that_has_ended_is_over_within_seconds() {
    for shape in SHAPES {
        for (of, rate) in [
            (Lossy::Node, 1.0),
            (Lossy::Node, 0.3),
            (Lossy::Node, 0.1),
            (Lossy::All, 0.3),
            (Lossy::All, 0.02),
            (Lossy::Link, 0.9),
            (Lossy::Link, 0.5),
            (Lossy::Link, 0.2),
        ] {
            let mut random = Random(seed(8_000_000));
            let mut line = String::new();
            let mut others = std::collections::BTreeMap::new();
            for ended in 0..70 {
                // The reports that were read first show a time before.
                let ended = ended + shape.collection;
                let fault = Fault { of, rate, begins: -ended - 40, ends: -ended };
                let mut holding = 0;
                for _ in 0..5 {
                    let (found, _) = judged(&mut random, shape, &fault);
                    holding += usize::from(found.verdicts.iter().any(|it| it.kind < Kind::AgentStarved));
                    for it in found.verdicts.iter().chain(&found.ended) {
                        *others.entry(format!("{:?} {}", it.kind, it.holds())).or_insert(0) += 1;
                    }
                }
                line += &holding.to_string();
            }
            say!("{} {of:?} {rate}: {line} {others:?}", shape.nodes);
        }
    }
}

/// A fault goes on: no judgement may say that it is over.
#[test]
fn a_fault_that_goes_on_is_never_over() {
    let mut random = Random(seed(9_000_000));
    let (mut looks, mut over) = (0, 0);
    for look in 0..200 {
        let of = some(&mut random, &[Lossy::Node, Lossy::Link, Lossy::All]);
        let rate = some(&mut random, &[0.02, 0.05, 0.1, 0.2, 0.5, 0.9]);
        let age = 10 + i64::try_from(random.below(100)).expect("few");
        let fault = Fault { of, rate, begins: -age, ends: 1 };
        let (found, ends) = judged(&mut random, SHAPES[look % 2], &fault);
        looks += usize::from(found.verdicts.iter().any(|it| it.kind < Kind::AgentStarved));
        if !ends.is_empty() {
            say!("{fault:?}: {:?}", found.ended);
        }
        over += ends.len();
    }
    say!("{looks} judgements name a fault that goes on, and {over} say that it is over");
}
