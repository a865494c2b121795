//! Faults that end while the recent windows of the agents still show their losses. Each probe of
//! the last minutes is drawn, and reports have the counts that agents would have. The constants of
//! `crates/verdicts/src/quiet.rs` were chosen before these meshes were drawn.

use kube_canary::mesh::matrix::Matrix;
use kube_canary::mesh::verdicts::{Kind, RankedVerdicts, Verdict, judge_whole};
use kube_canary::report::Method;

use super::mesh::{Plan, Random};
use super::rows::{EPOCH, Made, put_at};
use super::shapes::{seed, some};

/// Number of peers of each node.
const PEERS: usize = 24;
/// Time until a loss is known, in seconds.
const LOSS_KNOWN_AFTER: i64 = 2;
/// Time between two handshakes of a link that loses none.
const HANDSHAKE_SECONDS: i64 = 10;
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
    /// The protocol that is lost. `None` if all are.
    by: Option<Method>,
    rate: f64,
    begins: i64,
    ends: i64,
}

impl Fault {
    /// The loss rate of a probe that is sent at this second.
    fn rate_of(&self, (a, b): (usize, usize), method: Method, second: i64) -> f64 {
        let is_of_it = match self.of {
            Lossy::Node => a == 3 || b == 3,
            Lossy::Link => (a.min(b), a.max(b)) == (3, 4),
            Lossy::All => true,
        };
        let is_of_it = is_of_it && self.by.is_none_or(|by| by == method);
        if is_of_it && (self.begins..self.ends).contains(&second) { self.rate } else { BACKGROUND }
    }
}

/// A mesh of this many nodes, whose reports are read within a collection of this many seconds.
#[derive(Clone, Copy, Debug)]
struct Shape {
    nodes: usize,
    collection: i64,
}

/// Whether a handshake is sent at this second. They are 10 s apart, and a lost one is followed by
/// another.
fn is_due(method: Method, since_phase: i64, last_lost: Option<i64>) -> bool {
    method != Method::Tcp
        || since_phase % HANDSHAKE_SECONDS == 0
        || last_lost.is_some_and(|lost| since_phase - lost == LOSS_KNOWN_AFTER)
}

fn made(random: &mut Random, fault: &Fault, ends: (usize, usize), (read, window): (i64, i64), method: Method) -> Made {
    let [mut sent, mut lost, mut lost_in_row, mut answered_since, mut answered_before] = [0; 5];
    let phase = i64::try_from(random.below(10)).expect("few");
    let (mut last_lost, mut last_known_lost) = (None, None);
    // Handshakes before the window decide when its first ones are sent.
    for second in read - window - 2 * HANDSHAKE_SECONDS..read {
        if !is_due(method, second - phase, last_lost.map(|lost: i64| lost - phase)) {
            continue;
        }
        let is_lost = random.chance(fault.rate_of(ends, method, second));
        if is_lost {
            last_lost = Some(second);
        }
        // A loss is not known at once, and probes are counted in their order.
        let is_known = second < read - LOSS_KNOWN_AFTER || method == Method::Tcp && !is_lost;
        if second < read - window || !is_known {
            continue;
        }
        sent += 1;
        if is_lost {
            if answered_since > 0 {
                (answered_before, lost_in_row) = (answered_since, 0);
            }
            (lost, lost_in_row, answered_since) = (lost + 1, lost_in_row + 1, 0);
            last_known_lost = Some(second);
        } else {
            answered_since += 1;
        }
    }
    let answered_since = if lost > 0 { answered_since } else { 0 };
    let answered_seconds = match (method, last_known_lost) {
        (Method::Tcp, Some(lost)) if answered_since > 0 => read - lost - LOSS_KNOWN_AFTER,
        _ => 0,
    };
    let answered_seconds = u32::try_from(answered_seconds.clamp(0, 255)).expect("a time");
    Made { lost_in_row, answered_since, answered_before, answered_seconds, ..Made::plain(ends.1, method, sent, lost) }
}

/// Judges the mesh. Moments in the result are seconds after the end of the collection.
fn judged(random: &mut Random, shape: Shape, fault: &Fault) -> (RankedVerdicts, Vec<i64>) {
    let Shape { nodes, collection } = shape;
    let mut plan = Plan::new(nodes);
    (plan.protocols, plan.dual) = (true, false);
    let mut matrix = Matrix::new(EPOCH);
    let epoch = EPOCH.cast_signed();
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

const SMALL: Shape = Shape { nodes: 13, collection: 1 };
const LARGE: Shape = Shape { nodes: 60, collection: 12 };

/// Each fault lasts 40 s. From this many seconds after its end on, nothing holds any more, neither
/// it nor what the recent windows still show of it. Of handshakes they show too little at last to
/// say that it is over, and a judge remembers its end (`src/mesh/judge/table.rs`).
#[test]
fn a_fault_that_has_ended_is_over_within_seconds() {
    let mut random = Random(seed(8_000_000));
    let tcp = Some(Method::Tcp);
    for (shape, of, by, rate, times) in [
        (SMALL, Lossy::Node, None, 1.0, 7..70),
        (SMALL, Lossy::Node, None, 0.3, 7..70),
        (SMALL, Lossy::Node, None, 0.1, 8..70),
        (SMALL, Lossy::All, None, 0.3, 7..70),
        (SMALL, Lossy::All, None, 0.02, 8..70),
        (SMALL, Lossy::Link, None, 0.9, 8..70),
        (SMALL, Lossy::Link, None, 0.5, 12..70),
        (SMALL, Lossy::Node, tcp, 1.0, 8..38),
        (SMALL, Lossy::Node, tcp, 0.5, 9..38),
        (SMALL, Lossy::All, tcp, 1.0, 8..38),
        (SMALL, Lossy::All, tcp, 0.3, 8..38),
        (LARGE, Lossy::Node, None, 0.3, 7..70),
        (LARGE, Lossy::All, None, 0.3, 7..70),
        (LARGE, Lossy::Link, None, 0.5, 12..70),
        (LARGE, Lossy::Node, tcp, 0.5, 8..38),
        (LARGE, Lossy::All, tcp, 0.1, 8..38),
    ] {
        let [mut looks, mut holding, mut known, mut far] = [0; 4];
        let mut worst = 0;
        let within = times.start;
        for ended in times.step_by(if shape.nodes == SMALL.nodes { 3 } else { 11 }) {
            // The reports that were read first show a time before.
            let ends = -ended - shape.collection;
            let (found, ends_found) = judged(&mut random, shape, &Fault { of, by, rate, begins: ends - 40, ends });
            looks += 1;
            holding += usize::from(found.verdicts.iter().any(is_of_the_network));
            known += usize::from(!ends_found.is_empty());
            far += usize::from(ends_found.iter().any(|end| (end - ends).abs() > 4));
            worst = ends_found.iter().map(|end| (end - ends).abs()).max().unwrap_or(0).max(worst);
        }
        let by = by.map_or("all", Method::label);
        say!(
            "{shape:?}, {of:?} {rate} by {by}, from {within} s on: {holding} of {looks} hold, {known} know the end, to \
             {worst} s"
        );
        // Chance may leave the loss of one link for a while.
        let is_right = holding * 10 <= looks && far * 10 <= looks;
        assert!(is_right, "{of:?} {rate} by {by}: {holding} hold, {far} are off by more than 4 s, to {worst} s");
        assert!(known > 0 || rate >= 1.0, "{of:?} {rate} by {by}: nothing says that it is over");
    }
}

/// A fault goes on: hardly a judgement says that it is over.
#[test]
fn a_fault_that_goes_on_is_not_over() {
    let mut random = Random(seed(9_000_000));
    for (by, least) in [(None, 200), (Some(Method::Tcp), 150)] {
        let (mut looks, mut over) = (0, 0);
        for _ in 0..300 {
            let of = some(&mut random, &[Lossy::Node, Lossy::Link, Lossy::All]);
            let rate = some(&mut random, &[0.02, 0.05, 0.1, 0.2, 0.5, 0.9]);
            let age = 10 + i64::try_from(random.below(100)).expect("few");
            let (found, ends) = judged(&mut random, SMALL, &Fault { of, by, rate, begins: -age, ends: 1 });
            looks += usize::from(found.verdicts.iter().any(is_of_the_network));
            over += usize::from(!ends.is_empty());
        }
        say!("{looks} of 300 judgements name a fault that goes on by {by:?}, and {over} say that it is over");
        assert!(looks > least && over <= 2, "{by:?}: {looks} name it, {over} say that it is over");
    }
}

/// A fault of all protocols is not one of some of them while handshakes, which are rare, have
/// hardly begun to be lost.
#[test]
fn a_fault_that_begins_is_of_all_protocols() {
    let mut random = Random(seed(11_000_000));
    let (mut named, mut partial) = (0, 0);
    for (of, rate) in
        [Lossy::Node, Lossy::All, Lossy::Link].into_iter().flat_map(|of| [0.1, 0.3, 1.0].map(|it| (of, it)))
    {
        for age in (3..30).step_by(2) {
            for _ in 0..6 {
                let fault = Fault { of, by: None, rate, begins: -age, ends: 1 };
                let (found, _) = judged(&mut random, SMALL, &fault);
                let mut of_the_network = found.verdicts.iter().filter(|it| is_of_the_network(it)).peekable();
                named += usize::from(of_the_network.peek().is_some());
                partial += usize::from(of_the_network.any(|it| it.protocol.is_some()));
            }
        }
    }
    say!("{named} judgements name a fault that has begun within 30 s, and {partial} of some protocols");
    assert!(named > 400 && partial * 50 <= named, "{named} name it, {partial} by some protocols");
}

fn is_of_the_network(verdict: &Verdict) -> bool {
    verdict.kind < Kind::AgentStarved
}
