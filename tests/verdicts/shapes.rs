//! The shapes of faults: the same loss everywhere, partitions, zones, parallel paths, and liars.
//!
//! The value of `KUBE_CANARY_TEST_SEED` is added to the seeds. The constants were tuned with the
//! seeds without it, and final figures come from others.

use super::judged::{self, Score};
use super::mesh::{Fault, Plan, Random};
use super::{rate, run, two};

/// The rate of each direction that gives this rate of the round trip.
pub fn each_way(rate: f64) -> f64 {
    1.0 - (1.0 - rate).sqrt()
}

/// A mesh of this size with zones, full or with 24 peers each.
pub fn sized(random: &mut Random, nodes: usize, zones: &[usize]) -> Plan {
    let mut plan = Plan::new(nodes);
    let zones: Vec<usize> = zones.iter().copied().filter(|zones| *zones <= nodes).collect();
    plan.zones = zones[random.below(zones.len())];
    (plan.window, plan.background) = ((30.0, 60.0), random.between(0.0, 0.000_25));
    plan.selected = (nodes > 25 && random.chance(0.5)).then_some(24);
    plan
}

pub fn seed(first: u64) -> u64 {
    first + std::env::var("KUBE_CANARY_TEST_SEED").map_or(0, |seed| seed.parse::<u64>().expect("a number"))
}

pub fn some<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len())]
}

/// The number of false verdicts per mesh.
pub fn wrong(score: &Score) -> f64 {
    f64::from(score.verdicts - score.true_verdicts) / f64::from(score.meshes)
}

#[test]
fn a_loss_that_all_links_share_names_no_node() {
    let draw = |random: &mut Random| {
        // The largest meshes are slow to make.
        let nodes = if random.chance(0.01) { 300 } else { some(random, &[3, 3, 5, 5, 12, 12, 30]) };
        let mut plan = sized(random, nodes, &[1, 2, 3, 6]);
        let loss = some(random, &[0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.3]);
        plan.background = 0.0;
        plan.faults.push(Fault::Mesh { rate: each_way(loss) });
        (format!("{:3} nodes, {:4.1} %", nodes, loss * 100.0), plan)
    };
    let scores = run(400, seed(2_000_000), draw);
    let all = judged::print("the same loss everywhere", &scores);
    assert!(wrong(&all) <= 0.01 && all.recall() >= 0.99, "{all:?}");
}

#[test]
fn the_kind_and_the_subject_are_those_of_the_fault() {
    let draw = |random: &mut Random| {
        let nodes = if random.chance(0.03) { 100 } else { some(random, &[12, 12, 30]) };
        let mut plan = sized(random, nodes, &[3, 4]);
        let label = shape(random, &mut plan);
        (format!("{nodes:3} nodes, {label}"), plan)
    };
    let scores = run(200, seed(2_100_000), draw);
    let all = judged::print("shapes", &scores);
    assert!(wrong(&all) <= 0.02 && all.recall() >= 0.98, "{all:?}");
}

fn shape(random: &mut Random, plan: &mut Plan) -> &'static str {
    let nodes = plan.nodes;
    let zone = random.below(plan.zones);
    let (fault, label) = match random.below(8) {
        0 => (Fault::Split { bounds: (nodes / 2, nodes), rate: 1.0 }, "halves"),
        1 => (Fault::Split { bounds: (2 + random.below(nodes / 3), nodes), rate: 0.8 }, "uneven groups"),
        2 => (Fault::Split { bounds: (nodes / 3, nodes * 2 / 3), rate: 1.0 }, "three groups"),
        3 => (Fault::CutOff { zone, rate: 1.0 }, "a zone cut off"),
        4 => (Fault::CutOff { zone, rate: each_way(0.2) }, "a zone loses 20 %"),
        5 => (Fault::Inside { zone, rate: each_way(rate(random, 0.1)) }, "a zone bad inside"),
        6 => (Fault::Mesh { rate: 1.0 }, "everything dead"),
        _ => {
            let of = some(random, &[4, 8]);
            (Fault::Path { of, rate: random.between(0.5, 1.0) }, "a path")
        }
    };
    plan.faults.push(fault);
    label
}

#[test]
fn two_causes_are_two_verdicts() {
    let draw = |random: &mut Random| {
        let mut plan = sized(random, 30, &[3]);
        let label = loop {
            match shape(random, &mut plan) {
                "everything dead" => plan.faults.clear(),
                label => break label,
            }
        };
        let (node, other) = two(random, 30);
        let second = match random.below(3) {
            0 => {
                plan.faults.push(Fault::Mesh { rate: each_way(some(random, &[0.02, 0.05])) });
                "a lossy mesh"
            }
            1 => {
                plan.faults.push(Fault::Node { node, inwards: random.between(0.2, 1.0), outwards: 0.0 });
                "a node"
            }
            _ => {
                plan.faults.push(Fault::Node { node, inwards: 0.3, outwards: 0.0 });
                plan.faults.push(Fault::Node { node: other, inwards: 0.0, outwards: 0.6 });
                "two nodes"
            }
        };
        (format!("{label} and {second}"), plan)
    };
    let scores = run(150, seed(2_200_000), draw);
    let all = judged::print("two causes", &scores);
    assert!(wrong(&all) <= 0.03 && all.recall() >= 0.96, "{all:?}");
}

#[test]
fn a_report_that_the_other_end_excludes_names_the_link_or_the_reporter() {
    let draw = |random: &mut Random| {
        let nodes = some(random, &[4, 5, 6, 12, 30]);
        let mut plan = sized(random, nodes, &[1, 2]);
        plan.selected = None;
        let (a, b) = two(random, nodes);
        let label = match random.below(4) {
            0 => {
                plan.faults.push(Fault::Liar { node: a, about: nodes, rate: random.between(0.3, 1.0) });
                "a liar about all"
            }
            1 => {
                plan.faults.push(Fault::Liar { node: a, about: 1 + random.below(nodes - 1), rate: 1.0 });
                "a liar about some"
            }
            2 => {
                plan.faults.push(Fault::Liar { node: a, about: nodes, rate: 1.0 });
                plan.faults.push(Fault::Liar { node: b, about: nodes, rate: random.between(0.3, 1.0) });
                "two liars about all"
            }
            _ => {
                plan.faults.push(Fault::Filter { from: a, to: b });
                "a filter"
            }
        };
        (label.to_owned(), plan)
    };
    let scores = run(200, seed(2_300_000), draw);
    let all = judged::print("contradictions", &scores);
    assert!(wrong(&all) <= 0.02 && all.recall() >= 0.99, "{all:?}");
}
