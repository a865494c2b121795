//! Faults of many links that begin or end while a judge collects the reports of twelve nodes, or
//! before. The judge is on one side. At no time is another node or link blamed.

use kube_canary::mesh::matrix::Matrix;
use kube_canary::mesh::verdicts::wording::evidence;
use kube_canary::mesh::verdicts::{Kind, Verdict, judge};
use kube_canary::report::Method;

use super::mesh::{Plan, Random, name};
use super::rows::{EPOCH, Made, put_at};
use super::shapes::seed;

const NODES: usize = 12;
/// Seconds in which a judge collects, and those in which doctor does.
const ROUND: i64 = 15;
const QUICK: i64 = 2;
/// Collections of each kind, in different orders.
const LOOKS: usize = 10;

/// A fault that cuts some links.
struct Fault {
    /// When it begins and ends, in seconds after the collection has begun.
    begins: i64,
    ends: i64,
    is_cut: fn(usize, usize) -> bool,
}

impl Fault {
    fn lasts_at(&self, second: i64) -> bool {
        (self.begins..self.ends).contains(&second)
    }

    /// Returns how many probes were lost in the last minute, how many in a row, and how many were
    /// answered since. They are sent each second, at another moment on each link. A loss is known
    /// after the timeout and a second.
    fn losses(&self, read: i64, phase: i64) -> [u32; 3] {
        let known = self.ends.min(read - 2 + phase);
        let count = |from: i64, to: i64| u32::try_from((to - from).clamp(0, 200)).expect("few");
        let in_row = count(self.begins, known);
        let answered = if in_row > 0 { count(self.ends, read) } else { 0 };
        [count(self.begins.max(read - 60), known), in_row, answered]
    }

    /// Returns the same of handshakes: one is due each 10 s, and one each 2 s after a lost one.
    fn lost_handshakes(&self, read: i64, due: i64) -> [u32; 3] {
        let (mut lost, mut in_row, mut answered, mut at) = (0, 0, 0, self.begins.min(read) - 60 + due);
        while at < read {
            let is_lost = self.lasts_at(at);
            if is_lost && at + 1 < read {
                (lost, in_row, answered) = (lost + u32::from(at >= read - 60), in_row + 1, 0);
            } else if !is_lost {
                answered += u32::from(in_row > 0);
            }
            at += if is_lost { 2 } else { 10 };
        }
        [lost, if lost > 0 { in_row } else { 0 }, if lost > 0 { answered } else { 0 }]
    }
}

fn made(to: usize, method: Method, sent: u32, [lost, lost_in_row, answered_since]: [u32; 3]) -> Made {
    Made { lost_in_row, answered_since, ..Made::plain(to, method, sent, lost) }
}

fn judged(random: &mut Random, fault: &Fault, round: i64) -> Vec<Verdict> {
    let mut plan = Plan::new(NODES);
    (plan.protocols, plan.dual) = (true, false);
    let mut order: Vec<usize> = (1..NODES).collect();
    (1..order.len()).for_each(|place| order.swap(place, random.below(place + 1)));
    let mut matrix = Matrix::new(EPOCH);
    for (place, node) in std::iter::once(0).chain(order).enumerate() {
        let read = i64::try_from(place).expect("few") * round / i64::try_from(NODES).expect("few");
        if fault.lasts_at(read) && node != 0 && (fault.is_cut)(0, node) {
            matrix.missing(&name(node), "connect: timed out");
            continue;
        }
        let mut row = Vec::new();
        for to in (0..NODES).filter(|to| *to != node) {
            let mut draw = |bound| i64::try_from(random.below(bound)).expect("few");
            for method in [Method::Icmp, Method::Udp, Method::Tcp] {
                let [lost, lost_in_row, answered_since] = match method {
                    _ if !(fault.is_cut)(node, to) => [0; 3],
                    Method::Tcp => fault.lost_handshakes(read, draw(10)),
                    _ => fault.losses(read, draw(2)),
                };
                let sent = if method == Method::Tcp { 6 + lost } else { 60 };
                row.push(made(to, method, sent, [lost, lost_in_row, answered_since]));
            }
        }
        put_at(&plan, &mut matrix, (node, read), &row, (60.0, 0));
    }
    matrix.finish();
    judge(&matrix)
}

/// The number of collections with a verdict of this kind, an agent that does not answer, and
/// anything else.
fn found(fault: &Fault, round: i64, kind: Kind) -> [u32; 3] {
    let mut found = [0; 3];
    for seed in (seed(7_000_000)..).take(LOOKS) {
        let verdicts = judged(&mut Random(seed), fault, round);
        let count = |of: &dyn Fn(Kind) -> bool| u32::from(verdicts.iter().any(|it| of(it.kind)));
        let is_other = |it: Kind| it != kind && it != Kind::AgentUnreachable;
        found[0] += count(&|it| it == kind);
        found[1] += count(&|it| it == Kind::AgentUnreachable);
        found[2] += count(&is_other);
        if let Some(other) = verdicts.iter().find(|it| is_other(it.kind)) {
            say!("{:?} {}: {}", other.kind, other.subject, evidence(other));
        }
    }
    let Fault { begins, ends, .. } = fault;
    say!("{begins} to {ends} s, in a collection of {round} s: {found:?} of {LOOKS} have {kind:?}, agents, others");
    found
}

/// What links are cut between, the verdict that names it, and a name.
type Cut = (&'static str, fn(usize, usize) -> bool, Kind);
const HALVES: Cut = ("halves", |a, b| (a < 6) != (b < 6), Kind::Partition);
const QUARTER: Cut = ("a quarter", |a, b| (a < 9) != (b < 9), Kind::Partition);
const NODE: Cut = ("a node", |a, b| (a == 7) != (b == 7), Kind::Node);
const TWO_NODES: Cut = ("two nodes", |a, b| a == 7 || b == 7 || a == 4 || b == 4, Kind::Node);

/// Seconds before a collection from which on a fault that has begun is named, and one that has
/// ended is not.
const NAMED: i64 = 10;
const ENDED: i64 = 6;

#[test]
fn nothing_else_is_named_while_a_fault_of_many_links_begins_and_ends() {
    let all = u32::try_from(LOOKS).expect("few");
    for (name, is_cut, kind) in [HALVES, QUARTER, NODE, TWO_NODES] {
        let mut blamed = 0;
        for round in [ROUND, QUICK] {
            say!("{name}:");
            for begins in -60..round {
                let [named, agents, others] = found(&Fault { begins, ends: 100, is_cut }, round, kind);
                if begins <= -NAMED {
                    assert_eq!((named, agents), (all, 0), "{name}, begun {begins}");
                }
                blamed += others;
            }
            for ends in -60..round {
                let of_kind = found(&Fault { begins: -100, ends, is_cut }, round, kind);
                let expected = if ends <= -ENDED { 0 } else { of_kind[0] };
                assert_eq!((of_kind[0], of_kind[2]), (expected, 0), "{name}, ended {ends}");
            }
        }
        // Some collections have one report alone that is later than the fault of a node. It tells
        // of one link.
        assert!(blamed <= if kind == Kind::Node && name == NODE.0 { 30 } else { 0 }, "{name}: {blamed}");
    }
}

/// A report may say that its source has just begun to lose to all. That hides the source's losses,
/// and no other.
#[test]
fn a_false_report_of_silence_hides_no_fault_of_others() {
    let (liar, lossy) = (3, 7);
    for said in [1, 3, 5, 60] {
        let mut plan = Plan::new(NODES);
        plan.dual = false;
        let mut matrix = Matrix::new(EPOCH);
        for node in 0..NODES {
            let row: Vec<Made> = (0..NODES)
                .filter(|to| *to != node)
                .map(|to| {
                    let lost = if node == liar { said } else { 12 * u32::from(node == lossy || to == lossy) };
                    let [in_row, since] = if node == liar { [said, 0] } else { [u32::from(lost > 0), 4] };
                    made(to, Method::Icmp, 60, [lost, in_row, since])
                })
                .collect();
            put_at(&plan, &mut matrix, (node, 0), &row, (60.0, 0));
        }
        matrix.finish();
        let verdicts = judge(&matrix);
        let is_named = |it: &Verdict| (it.kind, it.subject.as_str()) == (Kind::Node, &name(lossy));
        assert!(verdicts.iter().any(is_named), "{said}: {verdicts:#?}");
        let blames = |it: &&Verdict| !is_named(it) && !it.subject.contains(&name(liar));
        assert_eq!(verdicts.iter().find(blames), None, "{said}");
    }
}
