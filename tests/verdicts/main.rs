//! The verdicts over thousands of generated meshes with known faults: how often they are true, and
//! how many faults they find. Healthy meshes must have no verdict.
//! `cargo test --test verdicts -- --nocapture` prints the figures. `KUBE_CANARY_TEST_REPORT=1` also
//! prints each false or missing verdict.

#[path = "../common/leaks.rs"]
mod leaks;

/// Prints a line. The harness keeps the output beyond the test, so this is not part of
/// the check for leaks.
macro_rules! say {
    ($($words:tt)*) => { kube_canary::allocator::finder::unfollowed(|| println!($($words)*)) };
}

mod domains;
mod ended;
mod fabric;
mod judged;
mod mesh;
mod protocols;
mod rows;
mod shapes;
mod silence;
#[path = "../common/splitmix.rs"]
mod splitmix;

use std::collections::BTreeMap;
use std::time::Duration;

use judged::Score;
use kube_canary::mesh::verdicts::{judge, judge_whole, wording};
use kube_canary::sys::clock::process_cpu;
use leaks::NoLeaks;
use mesh::{Fault, Plan, Random, Reach};

/// The environment variable with a factor for the number of meshes.
const TIMES: &str = "KUBE_CANARY_TEST_TIMES";

fn report() -> bool {
    std::env::var_os("KUBE_CANARY_TEST_REPORT").is_some()
}

/// A loss between `least` and all, with the same probability in each order of magnitude.
fn rate(random: &mut Random, least: f64) -> f64 {
    if random.chance(0.15) { 1.0 } else { least.powf(random.unit()) }
}

/// The losses of the two directions: either or both.
fn ways(random: &mut Random, rate: f64) -> (f64, f64) {
    match random.below(3) {
        0 => (rate, 0.0),
        1 => (0.0, rate),
        _ => (rate, rate),
    }
}

fn bad_node(random: &mut Random, node: usize) -> Fault {
    let rate = rate(random, 0.01);
    let (inwards, outwards) = ways(random, rate);
    Fault::Node { node, inwards, outwards }
}

fn bad_link(random: &mut Random, a: usize, b: usize) -> Fault {
    let rate = rate(random, 0.01);
    let (there, back) = ways(random, rate);
    Fault::Link { a, b, there, back }
}

fn two(random: &mut Random, nodes: usize) -> (usize, usize) {
    let a = random.below(nodes);
    (a, (a + 1 + random.below(nodes - 1)) % nodes)
}

/// Returns a size that is usual for clusters.
fn size(random: &mut Random, least: usize) -> usize {
    let sizes = [3, 4, 5, 6, 8, 10, 12, 16, 20, 30];
    let from = sizes.iter().position(|size| *size >= least).expect("one is");
    sizes[from + random.below(sizes.len() - from)]
}

fn base(random: &mut Random, least: usize, window: (f64, f64)) -> Plan {
    let mut plan = Plan::new(size(random, least));
    plan.window = window;
    plan.zones = if plan.nodes >= 6 { 1 + random.below(3) } else { 1 };
    plan.background = random.between(0.0, 0.000_5);
    plan.dual = random.chance(0.1);
    plan.degree = (plan.nodes >= 10 && random.chance(0.3)).then(|| 5 + random.below(4));
    plan
}

/// Removes some reports. Those of nodes that hardly answer are usually missing.
fn lose_rows(random: &mut Random, plan: &mut Plan, chance: f64) {
    for node in 0..plan.nodes {
        let dead = plan.faults.iter().any(|fault| {
            matches!(fault, Fault::Node { node: bad, inwards, outwards } if *bad == node && inwards.max(*outwards) > 0.6)
        });
        if random.chance(if dead { 0.7 } else { chance }) {
            plan.faults.push(Fault::NoRow { node });
        }
    }
}

/// Draws one fault, or two that can be distinguished. A second fault needs a mesh of six: with
/// fewer, every node is in most pairs.
fn draw(random: &mut Random, window: (f64, f64)) -> (String, Plan) {
    let kind = random.below(12);
    let double = kind >= 6;
    let mut plan = base(random, if double { 6 } else { 3 }, window);
    let (a, b) = two(random, plan.nodes);
    let label = match kind {
        0 | 1 => {
            plan.faults.push(bad_node(random, a));
            "a node"
        }
        2 | 3 => {
            plan.faults.push(bad_link(random, a, b));
            "a link"
        }
        4 => {
            (plan.nodes, plan.zones) = (plan.nodes.max(8), 2 + random.below(2));
            let (from, to) = two(random, plan.zones);
            plan.faults.push(Fault::Zones { a: from, b: to, rate: rate(random, 0.01) });
            "two zones"
        }
        5 => {
            plan.faults.push(Fault::Starved { node: a, rate: rate(random, 0.01).min(0.5) });
            "an agent"
        }
        6 | 7 => {
            plan.faults.extend([bad_node(random, a), bad_node(random, b)]);
            "two nodes"
        }
        8 => {
            let links = [
                bad_link(random, a, b),
                bad_link(random, a, (b + 1 + usize::from((b + 1) % plan.nodes == a)) % plan.nodes),
            ];
            plan.faults.extend(links);
            "two links of a node"
        }
        9 => {
            let c = (0..plan.nodes).find(|node| *node != a && *node != b).expect("six nodes");
            plan.faults.extend([bad_link(random, a, b), bad_node(random, c)]);
            "a link and a node"
        }
        10 => {
            plan.faults.extend([bad_node(random, a), Fault::Starved { node: b, rate: 0.2 }]);
            "a node and an agent"
        }
        _ => {
            (plan.nodes, plan.zones) = (plan.nodes.max(9), 3);
            let (from, to) = two(random, plan.zones);
            plan.faults.extend([Fault::Zones { a: from, b: to, rate: rate(random, 0.01) }, bad_node(random, a)]);
            "two zones and a node"
        }
    };
    // Links that are not probed lose nothing.
    if plan.faults.iter().any(|fault| matches!(fault, Fault::Link { .. })) {
        plan.degree = None;
    }
    let chance = if random.chance(0.5) { 0.1 } else { 0.0 };
    lose_rows(random, &mut plan, chance);
    (label.to_owned(), plan)
}

fn run(meshes: u64, first_seed: u64, mut draw: impl FnMut(&mut Random) -> (String, Plan)) -> BTreeMap<String, Score> {
    let mut scores = BTreeMap::<String, Score>::new();
    let meshes = meshes * std::env::var(TIMES).map_or(1, |times| times.parse().expect("a number"));
    for seed in first_seed..first_seed + meshes {
        let random = &mut Random(seed);
        let (label, plan) = draw(random);
        let score = scores.entry(label).or_default();
        // Only in some meshes: the harness keeps the output of a test, which would count as a leak.
        let _no_leaks = (seed % 50 == 0 && !report()).then(NoLeaks::here);
        let (matrix, probed) = mesh::make(&plan, random.next());
        let verdicts = judge(&matrix);
        score.add(&judged::score(&plan, &probed, &verdicts, report()));
    }
    scores
}

#[test]
fn after_60_probes_a_pair_verdicts_are_true_and_find_what_they_must() {
    let all = judged::print("60 probes each way", &run(1_500, 1, |random| draw(random, (60.0, 60.0))));
    assert!(all.precision() >= 0.98 && all.recall() >= 0.99, "{all:?}");
}

#[test]
fn after_30_probes_a_pair_verdicts_are_true() {
    let all = judged::print("30 probes each way", &run(600, 100_000, |random| draw(random, (30.0, 30.0))));
    assert!(all.precision() >= 0.98 && all.recall() >= 0.96, "{all:?}");
}

#[test]
fn over_windows_of_30_to_60_s_that_are_not_aligned_verdicts_are_true() {
    let all = judged::print("windows as they are", &run(600, 200_000, |random| draw(random, (30.0, 60.0))));
    assert!(all.precision() >= 0.98 && all.recall() >= 0.98, "{all:?}");
}

#[test]
fn a_healthy_mesh_has_no_verdict() {
    let healthy = |random: &mut Random| {
        let mut plan = base(random, 3, (30.0, 60.0));
        // This is the loss of each direction, so that 0.05 to 0.1 % of the round trips are lost.
        plan.background = random.between(0.000_25, 0.000_5);
        ("healthy".to_owned(), plan)
    };
    let all = judged::print("0.05 to 0.1 % lost everywhere", &run(1_000, 1_000_000, healthy));
    assert!(f64::from(all.verdicts) <= 0.002 * f64::from(all.meshes), "{all:?}");
}

#[test]
fn slow_links_are_distinguished_from_long_ones() {
    let slow = |random: &mut Random| {
        let mut plan = base(random, 3, (30.0, 60.0));
        plan.degree = None;
        let (a, b) = two(random, plan.nodes);
        let extra_us = 2_000.0 * 50_f64.powf(random.unit());
        let label = match random.below(4) {
            0 => {
                plan.zones = if plan.nodes >= 6 { plan.zones } else { 1 };
                plan.faults.push(Fault::SlowNode { node: a, extra_us: extra_us * 3.0 });
                "slow node"
            }
            1 => {
                plan.faults.push(Fault::SlowLink { a, b, extra_us: extra_us * 3.0 });
                "slow link"
            }
            2 => {
                (plan.nodes, plan.zones) = (plan.nodes.max(6), 3);
                plan.faults.push(Fault::SlowZones { a: 0, b: 1 + random.below(2), extra_us: extra_us * 5.0 });
                "slow zones"
            }
            _ => "nothing slow",
        };
        (label.to_owned(), plan)
    };
    let all = judged::print("slow", &run(300, 400_000, slow));
    assert!(all.precision() >= 0.98 && all.recall() >= 0.99, "{all:?}");
}

#[test]
fn links_slow_alike_are_the_mesh_and_one_liar_changes_nothing() {
    let slow = |random: &mut Random| {
        let mut plan = base(random, 4, (30.0, 60.0));
        let is_slow = random.below(3) > 0;
        if is_slow {
            // This is four times the longest path, and its bucket's width.
            plan.faults.push(Fault::SlowMesh { extra_us: 20_000.0 * 20_f64.powf(random.unit()) });
        }
        let (node, other) = two(random, plan.nodes);
        let label = match random.below(4) {
            0 => {
                plan.faults.push(Fault::SaysSlow { node });
                "a liar"
            }
            1 => {
                plan.faults.push(Fault::Young { node });
                "a young agent"
            }
            2 if plan.nodes >= 6 => {
                plan.faults.push(Fault::Node { node: other, inwards: 0.5, outwards: 0.5 });
                "a lossy node"
            }
            _ => "no other",
        };
        (format!("{}, {label}", if is_slow { "all slow" } else { "none slow" }), plan)
    };
    let all = judged::print("slow alike", &run(300, 420_000, slow));
    assert!(all.precision() >= 0.99 && all.recall() >= 0.99, "{all:?}");
}

#[test]
fn directions_are_reported_only_if_the_evidence_holds() {
    let draw = |random: &mut Random| {
        let mut plan = base(random, 3, (30.0, 60.0));
        (plan.degree, plan.background) = (None, 0.000_1);
        let (a, b) = two(random, plan.nodes);
        let rate = random.between(0.05, 1.0);
        let (there, back) = ways(random, rate);
        let fault = if random.chance(0.7) {
            Fault::Node { node: a, inwards: there, outwards: back }
        } else {
            Fault::Link { a, b, there, back }
        };
        plan.faults.push(fault);
        let label = match random.below(4) {
            0 => {
                plan.shared = true;
                "one namespace for all"
            }
            1 => {
                plan.foreign = Some((a, random.between(0.5, 10.0) * plan.nodes as f64));
                "others ping it"
            }
            2 => {
                let other = (a + 1) % plan.nodes;
                plan.faults.push(Fault::NoRow { node: other });
                "a row is missing"
            }
            _ => "all rows are there",
        };
        (label.to_owned(), plan)
    };
    let scores = run(600, 500_000, draw);
    judged::print("direction", &scores);
    for (label, score) in &scores {
        let wrong = score.directed - score.direction_right;
        let share = f64::from(score.directed) / f64::from(score.one_way.max(1));
        assert!(f64::from(wrong) <= 0.01 * f64::from(score.directed.max(100)), "{label}: {score:?}");
        match label.as_str() {
            "all rows are there" => assert!(share > 0.85, "{share} {score:?}"),
            "a row is missing" => assert_eq!(score.directed, 0, "{score:?}"),
            _ => {}
        }
    }
}

#[test]
fn large_meshes_are_judged_as_small_ones_are() {
    let draw = |random: &mut Random| {
        let mut plan = Plan::new([100, 300][usize::from(random.chance(0.3))]);
        (plan.zones, plan.window) = (3, (30.0, 60.0));
        let (a, b) = two(random, plan.nodes);
        let rate = random.between(0.15, 1.0);
        plan.faults.push(Fault::Node { node: a, inwards: rate, outwards: 0.0 });
        plan.faults.push(Fault::Link {
            a: (a + 1) % plan.nodes,
            b: if b == (a + 1) % plan.nodes { (b + 1) % plan.nodes } else { b },
            there: rate,
            back: rate,
        });
        (format!("{} nodes", plan.nodes), plan)
    };
    let all = judged::print("large", &run(6, 600_000, draw));
    assert!(all.precision() >= 0.98 && all.recall() >= 0.99, "{all:?}");
    let mut plan = Plan::new(300);
    plan.zones = 3;
    let healthy = mesh::make(&plan, 1).0;
    plan.faults.push(Fault::Node { node: 7, inwards: 0.1, outwards: 0.0 });
    plan.faults.push(Fault::Link { a: 1, b: 2, there: 0.5, back: 0.0 });
    for (label, matrix) in [("healthy", healthy), ("two faults", mesh::make(&plan, 1).0)] {
        let begun = process_cpu();
        let verdicts = judge(&matrix);
        say!(
            "300 nodes, {label}: {} verdicts in {:?}, {}",
            verdicts.len(),
            Duration::from(process_cpu().since(begun)),
            judge_whole(&matrix).headline().text
        );
    }
}

#[test]
fn three_nodes_of_which_one_loses_a_tenth_on_the_way_in() {
    let draw = |random: &mut Random| {
        let mut plan = Plan::new(3);
        plan.window = (30.0, 60.0);
        plan.background = 0.0;
        plan.faults.push(Fault::Node { node: random.below(3), inwards: 0.1, outwards: 0.0 });
        ("three nodes, 10 % in".to_owned(), plan)
    };
    let all = judged::print("three nodes", &run(300, 700_000, draw));
    assert!(all.precision() >= 0.98 && all.recall() >= 0.99, "{all:?}");
    let mut plan = Plan::new(13);
    plan.faults.push(Fault::Node { node: 7, inwards: 0.1, outwards: 0.0 });
    let (matrix, _) = mesh::make(&plan, 1);
    let verdicts = judge(&matrix);
    assert_eq!(judge_whole(&matrix).headline().text, "node-7 loses 10 % of what is sent to it");
    say!("{}", wording::evidence(&verdicts[0]));
}

/// Nodes, two kinds of links and zones, one or two at a time, as `draw` makes them in small meshes.
fn partial(random: &mut Random, nodes: usize) -> Plan {
    let mut plan = Plan::new(nodes);
    (plan.zones, plan.window, plan.selected) = (3, (30.0, 60.0), Some(24));
    plan.background = random.between(0.0, 0.000_5);
    let (a, b) = two(random, nodes);
    // This link is probed.
    let chosen = &plan.probed(random)[b];
    let link = (b, chosen[random.below(chosen.len())]);
    match random.below(6) {
        0 => plan.faults.push(bad_node(random, a)),
        1 => plan.faults.push(bad_link(random, link.0, link.1)),
        2 => plan.faults.extend([bad_node(random, a), bad_node(random, b)]),
        3 => {
            let (from, to) = two(random, 3);
            plan.faults.push(Fault::Zones { a: from, b: to, rate: rate(random, 0.01) });
        }
        4 => plan.faults.extend([bad_node(random, a), bad_link(random, link.0, link.1)]),
        _ => plan.faults.extend([bad_node(random, a), Fault::Starved { node: b, rate: 0.2 }]),
    }
    plan
}

#[test]
fn meshes_of_which_each_node_probes_24_are_judged_as_whole_ones_are() {
    let draw = |random: &mut Random| {
        let nodes = [100, 300][usize::from(random.chance(0.3))];
        let mut plan = partial(random, nodes);
        let chance = if random.chance(0.5) { 0.1 } else { 0.0 };
        lose_rows(random, &mut plan, chance);
        (format!("{nodes} nodes, 24 each"), plan)
    };
    let all = judged::print("partial", &run(150, 800_000, draw));
    assert!(all.precision() >= 0.98 && all.recall() >= 0.99, "{all:?}");
}

#[test]
fn a_part_of_the_reports_of_a_partial_mesh_names_no_healthy_node() {
    let draw = |random: &mut Random| {
        let nodes = [600, 1_000][random.below(2)];
        let mut plan = partial(random, nodes);
        plan.rows = Some(300);
        // The starved nodes must be among the reporting ones.
        plan.faults.retain(|fault| !matches!(fault, Fault::Starved { node, .. } if *node >= 300));
        (format!("300 of {} nodes", plan.nodes), plan)
    };
    let all = judged::print("some rows of a partial mesh", &run(60, 900_000, draw));
    assert!(all.precision() >= 0.98 && all.recall() >= 0.98, "{all:?}");
}

#[test]
fn a_cause_is_named_once_on_the_network_that_it_is_on() {
    let draw = |random: &mut Random| {
        let (mut label, mut plan) = draw(random, (30.0, 60.0));
        plan.dual = false;
        let reach = [Reach::Both, Reach::Pods, Reach::Nodes][random.below(3)];
        plan.reach = Some(reach);
        if random.chance(0.3) && plan.faults.iter().all(|fault| !matches!(fault, Fault::NoRow { .. })) {
            plan = Plan { reach: plan.reach, ..partial(random, 60) };
            label = "60 nodes, 24 each".to_owned();
        }
        (format!("{reach:?}, {label}"), plan)
    };
    let all = judged::print("both networks", &run(600, 1_100_000, draw));
    assert!(all.precision() >= 0.98 && all.recall() >= 0.98, "{all:?}");
}
