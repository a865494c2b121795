//! Six and six nodes with 4 or 16 parallel paths between them, of which one is bad in one
//! direction. The agents' own statistics decide which flows lose, and the verdicts follow from
//! their reports.

use kube_canary::mesh::matrix::Matrix;
use kube_canary::mesh::verdicts::{Kind, RankedVerdicts, Verdict, judge_whole};
use kube_canary::peers::{Methods, SlotId};
use kube_canary::prober::Observation;
use kube_canary::report::{Flows, LosingFlow, Method, Suspect, Way};
use kube_canary::statistics::{Scale, Statistics};
use kube_canary::units::Nanos;

use super::mesh::{Plan, Random};
use super::rows::{EPOCH, Made, put};
use super::shapes::{seed, some};

const NODES: usize = 12;
const LEFT: usize = 6;
const FLOWS: u8 = 16;
/// Seconds without a fault, before it begins.
const BEFORE: u32 = 70;
/// A loss is known after the timeout and a second.
const LOST_AFTER: u32 = 2;
/// Seconds of the recent window.
const WINDOW: u32 = 60;

struct Link {
    from: usize,
    to: usize,
    slot: SlotId,
    phase: u32,
    /// The flows that take the bad path.
    bad: u16,
    is_icmp_bad: bool,
    /// The probes in turn, extra ones and flows whose losses are not known yet.
    pending: Vec<(u32, u8, bool)>,
    lost: Vec<u32>,
}

/// Returns what is judged this many seconds after one of this many paths has begun to lose at
/// `rate` what the left side sends over it.
fn judged(random: &mut Random, paths: usize, rate: f64, seconds: u32) -> Vec<Verdict> {
    judged_if(random, paths, seconds, |_| rate)
}

/// Does the same for a loss rate that depends on the seconds since the fault began.
fn judged_if(random: &mut Random, paths: usize, seconds: u32, rate_at: impl Fn(u32) -> f64) -> Vec<Verdict> {
    judged_whole(random, paths, seconds, rate_at).verdicts
}

/// Does the same, and returns also what is over.
fn judged_whole(random: &mut Random, paths: usize, seconds: u32, rate_at: impl Fn(u32) -> f64) -> RankedVerdicts {
    let statistics = Statistics::for_methods(Scale::default(), Nanos(1_000_000_000), Methods::ALL, Methods::ALL);
    let mut links = Vec::new();
    for from in 0..NODES {
        for to in (0..NODES).filter(|to| *to != from) {
            let is_across = paths == 1 || (from < LEFT) != (to < LEFT);
            let mut is_bad = || is_across && random.below(paths) == 0;
            let bad = (0..FLOWS).fold(0, |bad, flow| bad | u16::from(is_bad()) << flow);
            let is_icmp_bad = is_bad();
            let slot = SlotId(u32::try_from(links.len()).expect("few"));
            let phase = u32::try_from(random.below(16)).expect("few");
            links.push(Link { from, to, slot, phase, bad, is_icmp_bad, pending: Vec::new(), lost: Vec::new() });
        }
    }
    let end = BEFORE + seconds;
    for second in 0..end {
        statistics.tick(Nanos(u64::from(second) * 1_000_000_000));
        for link in &mut links {
            let udp = statistics.udp(link.slot).expect("UDP is probed");
            let observe = |observation| statistics.record(Method::Udp, observation);
            let slot = link.slot;
            link.pending.retain(|(at, flow, extra)| {
                let waits = at + LOST_AFTER > second;
                if !waits {
                    observe(Observation::Flow { slot, flow: *flow, answered: false, extra: *extra });
                    observe(Observation::FlowDirection { slot, flow: *flow, there: link.from < LEFT });
                }
                waits
            });
            let in_turn = u8::try_from((second + link.phase) % u32::from(FLOWS)).expect("a flow");
            for (flow, extra) in [(Some(in_turn), false), (udp.take_suspect(), true)] {
                let Some(flow) = flow else { continue };
                if second >= BEFORE && link.bad >> flow & 1 == 1 && random.chance(rate_at(second - BEFORE)) {
                    link.pending.push((second, flow, extra));
                    link.lost.extend((!extra).then_some(second));
                } else {
                    observe(Observation::Flow { slot, flow, answered: true, extra });
                }
            }
        }
    }
    let mut plan = Plan::new(NODES);
    (plan.protocols, plan.dual) = (true, false);
    let mut matrix = Matrix::new(EPOCH);
    for node in 0..NODES {
        let row: Vec<Made> = links
            .iter()
            .filter(|link| link.from == node)
            .flat_map(|link| {
                let lost = link.lost.iter().filter(|at| **at + WINDOW >= end).count();
                let lost = u32::try_from(lost).expect("few");
                // Of probes at even times in the recent window.
                let mut losses = |probes: u32, one_of: usize| {
                    let rate = |at: u32| (seconds + at).checked_sub(WINDOW).map_or(0.0, &rate_at);
                    let mut is_lost = |at: u32| random.below(one_of) == 0 && random.chance(rate(at));
                    u32::try_from((0..probes).filter(|probe| is_lost(probe * WINDOW / probes)).count()).expect("few")
                };
                let is_across = paths == 1 || (link.from < LEFT) != (link.to < LEFT);
                let lost_echoes = if link.is_icmp_bad { losses(WINDOW, 1) } else { 0 };
                let lost_handshakes = if is_across { losses(6, paths) } else { 0 };
                [(Method::Icmp, WINDOW, lost_echoes), (Method::Udp, WINDOW, lost), (Method::Tcp, 6, lost_handshakes)]
                    .map(|(method, sent, lost)| Made {
                        ways: (method == Method::Udp).then_some(if link.from < LEFT { (lost, 0) } else { (0, lost) }),
                        flows: (method == Method::Udp).then(|| flows(&statistics, link)),
                        ..Made::plain(link.to, method, sent, lost)
                    })
            })
            .collect();
        put(&plan, &mut matrix, node, &row, (f64::from(WINDOW), 0));
    }
    matrix.finish();
    judge_whole(&matrix).found
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is positive, and the cast saturates")]
fn tenths(nats: f64) -> u8 {
    ((nats * 10.0) as u8).min(49)
}

/// What a report says of the flows of a link.
fn flows(statistics: &Statistics, link: &Link) -> Flows {
    let udp = statistics.udp(link.slot).expect("UDP is probed");
    let losing = udp.losing();
    let of_flow = |(flow, reading): (u8, kube_canary::statistics::FlowReading)| {
        assert!(!losing[usize::from(flow)] || link.bad >> flow & 1 == 1, "flow {flow} takes a good path");
        losing[usize::from(flow)].then(|| LosingFlow {
            source_port: 40_000 + u16::from(flow),
            lost: u8::try_from(reading.lost).unwrap_or(u8::MAX),
            probes: u8::try_from(reading.probes).unwrap_or(u8::MAX),
            direction: if link.from < LEFT { Way::Out } else { Way::In },
        })
    };
    let all: Vec<LosingFlow> = (0..FLOWS).zip(udp.flows().readings()).filter_map(of_flow).collect();
    let losing_count = u8::try_from(all.len()).expect("at most 16");
    let suspect = udp.flows().evidence().filter(|(_, nats)| losing_count == 0 && *nats >= 0.1).map(|(flow, nats)| {
        let reading = udp.flows().readings()[usize::from(flow)];
        Suspect {
            source_port: 40_000 + u16::from(flow),
            lost: u8::try_from(reading.lost).unwrap_or(u8::MAX),
            probes: u8::try_from(reading.probes).unwrap_or(u8::MAX),
            direction: if link.from < LEFT { Way::Out } else { Way::In },
            decinats: tenths(nats),
        }
    });
    let (answered, answered_seconds) = udp.answered();
    let losing = all.into_iter().take(4).collect();
    Flows { probed: FLOWS, losing_count, losing, suspect, answered, answered_seconds }
}

/// Of this many fabrics, returns how many have a verdict over paths, over paths or flows, and over
/// nodes, zones or other groups, which are innocent.
fn named(fabrics: u64, paths: usize, rate: f64, seconds: u32) -> [u32; 3] {
    let mut named = [0; 3];
    for seed in (seed(4_000_000)..).take(usize::try_from(fabrics).expect("few")) {
        let verdicts = judged(&mut Random(seed), paths, rate, seconds);
        let has = |kind: Kind| verdicts.iter().any(|it| it.kind == kind);
        named[0] += u32::from(has(Kind::Paths));
        named[1] += u32::from(has(Kind::Paths) || has(Kind::Flow));
        let blames = |it: &Verdict| !matches!(it.kind, Kind::Paths | Kind::Flow | Kind::Link | Kind::Mesh);
        named[2] += u32::from(verdicts.iter().any(blames));
    }
    say!(
        "one of {paths} paths loses {rate}: after {seconds} s, {named:?} of {fabrics} fabrics have paths, paths or \
         flows, and innocent nodes or zones"
    );
    named
}

/// The evidence of flows of many links is added. What all links lose alike is never one of
/// several paths, whether they lose all the time or now and then.
#[test]
fn what_all_paths_lose_alike_is_no_path() {
    type Fault = (&'static str, fn(u32) -> f64);
    let faults: [Fault; 8] = [
        ("1 % lost", |_| 0.01),
        ("5 % lost", |_| 0.05),
        ("10 % lost", |_| 0.1),
        ("20 % lost", |_| 0.2),
        ("half lost", |_| 0.5),
        ("1 of 17 s lost", |at| f64::from(u8::from(at % 17 < 1))),
        ("2 of 37 s lost", |at| f64::from(u8::from(at % 37 < 2))),
        ("5 of 40 s lost", |at| f64::from(u8::from(at % 40 < 5))),
    ];
    for (name, rate) in faults {
        let mut wrong = 0;
        for seed in (seed(9_000_000)..).take(6) {
            for seconds in [30, 60, 90, 150, 240] {
                let verdicts = judged_if(&mut Random(seed), 1, seconds, rate);
                wrong += u32::from(verdicts.iter().any(|it| it.kind == Kind::Paths));
            }
        }
        say!("{name} by all paths: {wrong} of 30 have paths");
        assert_eq!(wrong, 0, "{name}");
    }
}

#[test]
fn a_dead_path_is_named_within_a_minute() {
    for paths in [4, 16] {
        assert_eq!(named(20, paths, 1.0, 60), [20, 20, 0]);
    }
}

/// A link's evidence for one flow that loses a fifth takes two minutes, but there are 72 links.
#[test]
fn a_path_that_loses_a_fifth_is_named_within_a_minute() {
    for paths in [4, 16] {
        let [of_paths, any, innocent] = named(40, paths, 0.2, 60);
        assert!(of_paths >= 38 && any >= 39 && innocent <= 1, "{of_paths}, {any} and {innocent} of 40");
        assert_eq!(named(20, paths, 0.2, 90), [20, 20, 0]);
    }
}

/// Agents name the flows of a path for a minute and more after its end.
#[test]
fn a_path_that_has_ended_is_over_within_ten_seconds() {
    const LASTING: u32 = 90;
    for (paths, rate) in [(4, 1.0), (16, 1.0), (4, 0.5), (16, 0.5), (4, 0.2), (16, 0.2)] {
        let (mut over, mut looks) = (0, 0);
        for after in [10, 15, 20, 30, 45, 60, 90] {
            for seed in (seed(4_500_000)..).take(3) {
                let rate_at = |at| if at < LASTING { rate } else { 0.0 };
                let found = judged_whole(&mut Random(seed), paths, LASTING + after, rate_at);
                let is_of_flows = |it: &Verdict| matches!(it.kind, Kind::Paths | Kind::Flow);
                assert!(!found.verdicts.iter().any(is_of_flows), "{after} s after the end: {:?}", found.verdicts);
                over += u32::from(found.ended.iter().any(|it| it.kind == Kind::Paths));
                looks += 1;
            }
        }
        say!(
            "one of {paths} paths lost {rate}: {over} of {looks} judgements say that it is over, and none that it holds"
        );
        assert!(over * 3 >= looks * 2, "{over} of {looks}");
    }
}

#[test]
fn a_path_that_goes_on_losing_is_not_over() {
    let mut random = Random(seed(4_600_000));
    let (mut looks, mut over) = (0, 0);
    for _ in 0..60 {
        let (paths, rate) = (some(&mut random, &[4, 16]), some(&mut random, &[0.1, 0.2, 0.5, 1.0]));
        let seconds = 40 + u32::try_from(random.below(200)).expect("few");
        let found = judged_whole(&mut random, paths, seconds, |_| rate);
        looks += usize::from(!found.verdicts.is_empty());
        over += usize::from(!found.ended.is_empty());
    }
    say!("{looks} of 60 judgements name a path that goes on losing, and {over} say that it is over");
    assert!(looks > 40 && over == 0, "{looks} name it, {over} say that it is over");
}
