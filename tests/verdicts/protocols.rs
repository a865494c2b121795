//! Verdicts by protocol: what all of ICMP, UDP and TCP lose, and what one of them loses alone. UDP
//! has 60 probes a minute, and TCP six.

use std::collections::BTreeMap;

use kube_canary::mesh::verdicts::{Direction, Verdict, judge};
use kube_canary::report::{Method, Methods};

use super::judged::{self, Score};
use super::mesh::{self, Fault, Plan, Random};
use super::shapes::{each_way, seed, some, wrong};
use super::{bad_link, bad_node, base, draw, run, two};

fn by_protocols(mut plan: Plan) -> Plan {
    (plan.protocols, plan.dual) = (true, false);
    plan
}

#[test]
fn what_all_protocols_lose_is_one_verdict_without_a_protocol() {
    let draw = |random: &mut Random| {
        let (label, plan) = draw(random, (30.0, 60.0));
        (label, by_protocols(plan))
    };
    let all = judged::print("all protocols", &run(600, seed(3_000_000), draw));
    assert!(all.precision() >= 0.98 && all.recall() >= 0.98, "{all:?}");
}

/// Draws a fault of one protocol alone.
fn own(random: &mut Random, plan: &mut Plan, method: Method) -> &'static str {
    let (a, b) = two(random, plan.nodes);
    let (fault, label) = match random.below(3) {
        0 => (bad_node(random, a), "a node"),
        1 => (bad_link(random, a, b), "a link"),
        _ => (Fault::Mesh { rate: each_way(some(random, &[0.05, 0.3, 1.0])) }, "everywhere"),
    };
    plan.own.push((method, fault));
    label
}

#[test]
fn what_one_protocol_loses_is_named_with_it() {
    let draw = |random: &mut Random| {
        let mut plan = by_protocols(base(random, 3, (30.0, 60.0)));
        plan.degree = None;
        let method = some(random, &Method::ALL);
        let label = own(random, &mut plan, method);
        (format!("{method:?}, {label}"), plan)
    };
    let all = judged::print("one protocol", &run(600, seed(3_100_000), draw));
    assert!(wrong(&all) <= 0.02 && all.recall() >= 0.98, "{all:?}");
}

#[test]
fn what_one_protocol_loses_beside_what_all_lose_is_two_verdicts() {
    let draw = |random: &mut Random| {
        let mut plan = by_protocols(base(random, 10, (30.0, 60.0)));
        plan.degree = None;
        let method = some(random, &Method::ALL);
        let label = own(random, &mut plan, method);
        let (a, b) = two(random, plan.nodes);
        let second = match random.below(3) {
            0 => {
                plan.faults.push(Fault::Mesh { rate: each_way(0.03) });
                "a lossy mesh"
            }
            1 => {
                plan.faults.push(Fault::Node { node: a, inwards: 0.3, outwards: 0.0 });
                "a node"
            }
            _ => {
                plan.faults.push(Fault::Link { a, b, there: 0.5, back: 0.5 });
                "a link"
            }
        };
        (format!("{method:?}, {label}, and {second}"), plan)
    };
    let all = judged::print("one protocol, and all", &run(400, seed(3_200_000), draw));
    assert!(wrong(&all) <= 0.05 && all.recall() >= 0.95, "{all:?}");
}

#[test]
fn a_healthy_mesh_of_three_protocols_has_no_verdict() {
    let healthy = |random: &mut Random| {
        let mut plan = by_protocols(base(random, 3, (30.0, 60.0)));
        plan.background = random.between(0.000_25, 0.000_5);
        ("healthy".to_owned(), plan)
    };
    let all = judged::print("0.05 to 0.1 % lost everywhere", &run(1_000, seed(3_300_000), healthy));
    assert!(f64::from(all.verdicts) <= 0.002 * f64::from(all.meshes), "{all:?}");
}

/// Agents that start, are starved, or know neither UDP nor TCP lose the probes of all others.
#[test]
fn an_agent_that_does_not_answer_is_no_fault_of_a_protocol() {
    let draw = |random: &mut Random| {
        let mut plan = by_protocols(base(random, 3, (30.0, 60.0)));
        let (node, _) = two(random, plan.nodes);
        let label = match random.below(5) {
            0 => {
                let ago = u32::try_from(random.below(60)).expect("few");
                plan.faults.push(Fault::Restarted { node, ago, away: 10 });
                "restarted"
            }
            1 => {
                plan.faults.push(Fault::Restarted { node, ago: 0, away: 60 });
                plan.faults.push(Fault::NoRow { node });
                "stopped"
            }
            3 => {
                plan.faults.extend([Fault::Frozen { node }, Fault::NoRow { node }]);
                "frozen"
            }
            2 => {
                plan.faults.push(Fault::Starved { node, rate: 0.3 });
                "starved"
            }
            _ => {
                let older = 1 + random.below(plan.nodes);
                plan.faults.extend((0..older).map(|node| Fault::Older { node }));
                "older agents"
            }
        };
        (label.to_owned(), plan)
    };
    let scores = run(400, seed(3_400_000), draw);
    let all = judged::print("agents", &scores);
    assert!(wrong(&all) <= 0.002 && all.recall() >= 0.99, "{all:?}");
}

/// A fault of TCP takes the reports away, too: that of the node, or all but one.
#[test]
fn what_takes_the_reports_away_is_named_with_its_protocol() {
    let draw = |random: &mut Random| {
        let mut plan = by_protocols(Plan::new(some(random, &[4, 6, 12, 30])));
        let since = u32::try_from(18 + random.below(40)).expect("a minute");
        (plan.window, plan.since, plan.background) = ((30.0, 60.0), Some(since), 0.000_1);
        let methods = some(random, &[&[Method::Tcp][..], &[Method::Udp, Method::Tcp]]);
        let (node, _) = two(random, plan.nodes);
        let (fault, place) = if random.chance(0.5) {
            plan.faults.push(Fault::NoRow { node });
            (Fault::Node { node, inwards: 1.0, outwards: 1.0 }, "a node")
        } else {
            plan.faults.extend((0..plan.nodes).filter(|it| *it != node).map(|node| Fault::NoRow { node }));
            (Fault::Mesh { rate: 1.0 }, "everywhere")
        };
        plan.own.extend(methods.iter().map(|method| (*method, fault)));
        (format!("{methods:?}, {place}"), plan)
    };
    let all = judged::print("no reports", &run(400, seed(3_800_000), draw));
    assert!(wrong(&all) <= 0.02 && all.recall() >= 0.98, "{all:?}");
}

/// Counts how often a fault that began 18 s ago is named, with its protocol and nothing else.
#[test]
fn what_one_protocol_has_lost_for_18_s_is_named() {
    let (mut scores, mut failures) = (BTreeMap::<String, Score>::new(), Vec::new());
    for nodes in [3, 12, 40] {
        for method in [Method::Udp, Method::Tcp] {
            for place in ["link", "requests", "node", "everywhere"] {
                let draw = |random: &mut Random| {
                    let mut plan = by_protocols(Plan::new(nodes));
                    (plan.window, plan.since, plan.background) = ((30.0, 60.0), Some(18), 0.000_1);
                    let (a, b) = two(random, nodes);
                    plan.own.push((
                        method,
                        match place {
                            "link" => Fault::Link { a, b, there: 1.0, back: 1.0 },
                            "requests" => Fault::Filter { from: a, to: b },
                            "node" => Fault::Node { node: a, inwards: 1.0, outwards: 1.0 },
                            _ => Fault::Mesh { rate: 1.0 },
                        },
                    ));
                    (format!("{method:?}, {nodes:2} nodes, {place}"), plan)
                };
                let meshes = if nodes == 40 { 60 } else { 200 };
                let of_place = run_all(meshes, seed(3_500_000), draw);
                let found = of_place.recall();
                scores.insert(format!("{method:?}, {nodes:2} nodes, {place}"), of_place);
                // Of three nodes, all pairs but one have an end of it, and one end alone loses.
                let least = if method == Method::Tcp && place == "requests" && nodes == 3 { 0.7 } else { 0.97 };
                if found < least || wrong(&of_place) > 0.05 {
                    failures.push(format!("{method:?} {nodes} {place}: {of_place:?}"));
                }
            }
        }
    }
    judged::print("18 s of a minute", &scores);
    assert!(failures.is_empty(), "{failures:#?}");
}

/// A fault that all protocols have is never named as that of one, however long ago it began. A lost
/// handshake is repeated sooner than others, so TCP loses a larger share until a window has passed.
#[test]
fn what_all_protocols_have_lost_for_a_while_has_no_protocol() {
    let (mut verdicts, mut wrong) = (0, Vec::new());
    for seed in (seed(3_700_000)..).take(1_500) {
        let random = &mut Random(seed);
        let mut plan = by_protocols(base(random, 3, (30.0, 60.0)));
        plan.degree = None;
        plan.since = Some(u32::try_from(4 + random.below(56)).expect("a minute"));
        let (a, b) = two(random, plan.nodes);
        let rate = some(random, &[0.1, 0.5, 1.0]);
        plan.faults.push(match random.below(3) {
            0 => Fault::Node { node: a, inwards: rate, outwards: 0.0 },
            1 => Fault::Link { a, b, there: rate, back: 0.0 },
            _ => Fault::Mesh { rate: each_way(rate) },
        });
        let all = judge(&mesh::make(&plan, random.next()).0);
        verdicts += all.len();
        wrong.extend(all.into_iter().filter(|it| it.protocol.is_some()).map(|it| (it, plan.clone())));
    }
    say!("{} of {verdicts} verdicts about what all protocols have lost for a while have one", wrong.len());
    // Of 9,962 verdicts from six other seeds, 11 have one: chance, where TCP has few handshakes.
    assert!(wrong.len() * 200 <= verdicts, "{wrong:#?}");
}

fn run_all(meshes: u64, first: u64, draw: impl FnMut(&mut Random) -> (String, Plan)) -> Score {
    let mut all = Score::default();
    for score in run(meshes, first, draw).values() {
        all.add(score);
    }
    all
}

/// Loss on one way, or on both, of a link or a node. From 5 % on, and after 60 probes, the
/// direction is right in all of 500 cases.
#[test]
fn directions_by_udp_are_right() {
    let (mut cases, mut named, mut seed) = (0, 0, seed(3_600_000));
    while cases < 500 {
        seed += 1;
        let random = &mut Random(seed);
        let mut plan = by_protocols(Plan::new(some(random, &[3, 5, 12, 30])));
        plan.background = random.between(0.0, 0.000_5);
        plan.dual = random.chance(0.3);
        let (a, b) = two(random, plan.nodes);
        // Of a link that loses all of one way, no answer tells which.
        let rate = if random.chance(0.2) { 1.0 } else { random.between(0.05, 1.0) };
        let (there, back) = some(random, &[(rate, 0.0), (0.0, rate), (rate, rate)]);
        let is_link = random.chance(0.5);
        let fault = if is_link {
            Fault::Link { a, b, there, back }
        } else {
            Fault::Node { node: a, inwards: back, outwards: there }
        };
        match random.below(2) {
            0 => plan.faults.push(fault),
            _ => plan.own.push((Method::Udp, fault)),
        }
        let verdicts = judge(&mesh::make(&plan, random.next()).0);
        let ends = [mesh::name(a), mesh::name(b)];
        let link = |from: usize, to: usize| format!("{}->{}", ends[from], ends[to]);
        let is_about =
            |subject: &str| if is_link { subject == link(0, 1) || subject == link(1, 0) } else { subject == ends[0] };
        // A link that loses 5 % of 120 round trips is not always named. Echo requests do not say
        // where UDP is lost.
        let is_it = |it: &&Verdict| is_about(&it.subject) && it.protocol != Some(Methods::ICMP);
        let Some(verdict) = verdicts.iter().find(is_it) else { continue };
        cases += 1;
        let way = match (there > 0.0, back > 0.0) {
            (true, true) => Direction::Both,
            (true, false) => Direction::Out,
            (false, _) if is_link => Direction::Out,
            (false, _) => Direction::In,
        };
        let is_right_way_round =
            !is_link || way == Direction::Both || verdict.subject == if there > 0.0 { link(0, 1) } else { link(1, 0) };
        let is_right = verdict.direction == way && is_right_way_round;
        named += u32::from(is_right);
        if !is_right {
            say!("WRONG {way:?} {verdict:?} in {plan:?}");
        }
    }
    assert_eq!(named, cases);
}
