//! Failure domains: a verdict names one if it is cut off or bad inside, and never for the loss of
//! others.

use super::judged::{self, Score};
use super::mesh::{Fault, Plan, Random};
use super::shapes::{each_way, seed, sized, some, wrong};
use super::{run, two};

/// Four domains, each with nodes of all zones.
fn with_domains(random: &mut Random, nodes: usize) -> Plan {
    let mut plan = sized(random, nodes, &[1, 3]);
    plan.domains = 4;
    plan
}

fn nodes(random: &mut Random) -> usize {
    if random.chance(0.05) { 100 } else { some(random, &[12, 30]) }
}

fn assert_exact(title: &str, scores: &std::collections::BTreeMap<String, Score>) {
    let all = judged::print(title, scores);
    assert!(wrong(&all) <= 0.02 && all.recall() >= 0.98, "{all:?}");
}

#[test]
fn a_domain_that_loses_to_the_rest_or_inside_is_named_and_nothing_else() {
    let draw = |random: &mut Random| {
        let nodes = nodes(random);
        let mut plan = with_domains(random, nodes);
        let domain = random.below(4);
        let (fault, label) = match random.below(4) {
            0 => (Fault::DomainCut { domain, rate: 1.0 }, "cut off"),
            1 => (Fault::DomainCut { domain, rate: each_way(0.2) }, "20 % to the rest"),
            _ => (Fault::DomainInside { domain, rate: each_way(0.3) }, "30 % inside"),
        };
        plan.faults.push(fault);
        (format!("{nodes:3} nodes, {} zones, {label}", plan.zones), plan)
    };
    assert_exact("a domain", &run(200, seed(2_400_000), draw));
}

#[test]
fn a_domain_and_a_second_cause_are_two_verdicts() {
    let draw = |random: &mut Random| {
        let mut plan = sized(random, 30, &[3]);
        plan.domains = 5;
        let (domain, node) = (random.below(5), random.below(30));
        plan.faults.push(Fault::DomainCut { domain, rate: each_way(0.3) });
        let (fault, label) = match random.below(3) {
            0 => (Fault::Mesh { rate: each_way(0.02) }, "a lossy mesh"),
            1 => (Fault::Inside { zone: random.below(3), rate: each_way(0.3) }, "a zone bad inside"),
            // This node is in another domain.
            _ => (Fault::Node { node: (domain * 6 + 6 + node % 24) % 30, inwards: 0.4, outwards: 0.0 }, "a node"),
        };
        plan.faults.push(fault);
        (format!("a domain and {label}"), plan)
    };
    assert_exact("a domain and more", &run(120, seed(2_500_000), draw));
}

#[test]
fn no_domain_is_named_for_what_a_mesh_a_zone_or_some_nodes_lose() {
    let draw = |random: &mut Random| {
        let nodes = nodes(random);
        let mut plan = with_domains(random, nodes);
        // These are the first and the second node of one domain.
        let first = (0..nodes).find(|node| plan.domain_of(*node) == 2).expect("four domains");
        let label = match random.below(5) {
            0 => {
                plan.faults.push(Fault::Mesh { rate: each_way(some(random, &[0.02, 0.05, 0.3])) });
                "a lossy mesh"
            }
            1 => {
                let (inwards, outwards) = some(random, &[(1.0, 0.0), (0.1, 0.0), (0.0, 0.3)]);
                plan.faults.push(Fault::Node { node: first, inwards, outwards });
                "a node"
            }
            2 => {
                let inwards = some(random, &[0.2, 0.5]);
                plan.faults.push(Fault::Node { node: first, inwards, outwards: 0.0 });
                plan.faults.push(Fault::Node { node: first + 1, inwards: 0.3, outwards: 0.0 });
                "two nodes of a domain"
            }
            3 => {
                plan.zones = 3;
                plan.faults.push(Fault::CutOff { zone: random.below(3), rate: some(random, &[0.2, 1.0]) });
                "a zone"
            }
            _ => {
                let (a, b) = two(random, nodes);
                plan.selected = None;
                plan.faults.push(Fault::Link { a, b, there: 0.5, back: 0.5 });
                "a link"
            }
        };
        (format!("{nodes:3} nodes, {label}"), plan)
    };
    assert_exact("no domain", &run(200, seed(2_600_000), draw));
}
