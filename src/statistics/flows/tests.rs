use super::*;

/// A small generator of random numbers, from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn chance(&mut self, rate: f64) -> bool {
        ((self.next() >> 11) as f64 / (1_u64 << 53) as f64) < rate
    }
}

/// When a loss is known: the timeout and a second more.
const LOST_AFTER: u32 = 2;

/// A link whose flows are probed in turn, one each second, and the suspect besides.
struct Played {
    links: crate::statistics::udp::UdpSlots,
    halves: crate::statistics::halves::Halves,
    random: Random,
    second: u32,
    phase: u32,
    /// Losses that are not known yet.
    lost: Vec<(u32, u8, bool)>,
}

impl Played {
    fn new(seed: u64) -> Self {
        let halves = crate::statistics::halves::Halves::new(crate::units::Nanos::from_millis(1_000));
        let mut random = Random(seed);
        let phase = u32::try_from(random.next() % 16).unwrap();
        let before = random.next() % 48;
        let played =
            Self { links: crate::statistics::udp::UdpSlots::new(), halves, random, second: 0, phase, lost: Vec::new() };
        (0..before).for_each(|flow| played.link().outcome(u8::try_from(flow % 16).unwrap(), false, false));
        played
    }

    fn link(&self) -> crate::statistics::udp::UdpLinks<'_> {
        self.links.get(crate::peers::SlotId(0), &self.halves).expect("a slot")
    }

    fn flows(&self) -> RecentFlows {
        self.link().flows()
    }

    /// Plays a second. `rate` is the loss rate of a flow at a second.
    fn second(&mut self, rate: impl Fn(u32, u8) -> f64) {
        let Self { links, halves, random, second, phase, lost } = self;
        halves.set_second(crate::units::Nanos(u64::from(*second) * 1_000_000_000));
        let link = links.get(crate::peers::SlotId(0), halves).expect("a slot");
        lost.retain(|(at, flow, extra)| {
            let is_due = at + LOST_AFTER == *second;
            if is_due {
                link.outcome(*flow, true, *extra);
            }
            !is_due
        });
        let in_turn = u8::try_from((*phase + *second) % 16).unwrap();
        for (flow, is_extra) in [(Some(in_turn), false), (link.take_suspect(), true)] {
            let Some(flow) = flow else { continue };
            if random.chance(rate(*second, flow)) {
                lost.push((*second, flow, is_extra));
            } else {
                link.outcome(flow, false, is_extra);
            }
        }
        *second += 1;
    }
}

/// Plays a link. Returns for each flow when it was losing first.
fn first_losing(seconds: u32, seed: u64, rate: impl Fn(u32, u8) -> f64) -> [Option<u32>; FLOWS] {
    let (mut link, mut first) = (Played::new(seed), [None; FLOWS]);
    for second in 0..seconds {
        link.second(&rate);
        for (first, _) in first.iter_mut().zip(link.flows().losing()).filter(|(_, losing)| *losing) {
            first.get_or_insert(second);
        }
    }
    first
}

const BEGIN: u32 = 70;

/// Plays links of which `bad` flows lose at this rate from [`BEGIN`] on. Returns the share of these
/// flows that are losing after this many seconds, and the share of links that have one. No other
/// flow may ever be losing.
fn found(bad: u8, rate: f64, seconds: u32, links: u64) -> [f64; 2] {
    let (mut flows, mut any) = (0_u32, 0_u32);
    for seed in 0..links {
        let is_bad = |flow: u8| (u64::from(flow) * 7 + seed) % 16 < u64::from(bad);
        let rate = |second, flow| if second >= BEGIN && is_bad(flow) { rate } else { 0.0 };
        let first = first_losing(BEGIN + seconds, seed, rate);
        assert!((0..16).zip(first).all(|(flow, first)| first.is_none() || is_bad(flow)), "{bad} bad: {first:?}");
        let count = u32::try_from(first.iter().flatten().count()).unwrap();
        (flows, any) = (flows + count, any + u32::from(count > 0));
    }
    let links = links as f64;
    [f64::from(flows) / (links * f64::from(bad)), f64::from(any) / links]
}

#[test]
fn up_to_half_of_the_flows_that_are_dead_are_all_found_within_a_minute_and_no_others() {
    for dead in 1..=8 {
        let [flows, _] = found(dead, 1.0, 60, 100);
        assert!(flows >= 1.0, "{dead} dead flows: {flows}");
    }
}

/// More than half of the flows are the link.
#[test]
fn twelve_dead_flows_of_sixteen_are_no_losing_flows() {
    for seed in 0..100 {
        let rate = |second, flow| if second >= BEGIN && flow < 12 { 1.0 } else { 0.0 };
        let first = first_losing(BEGIN + 120, seed, rate);
        assert!(first.iter().flatten().count() <= 1, "{first:?}");
    }
}

/// What it means for 72 links, as 6 and 6 nodes have them between two routers, is in
/// `tests/verdicts/fabric.rs`.
#[test]
fn flows_that_lose_a_fifth_are_found_on_some_links_in_a_minute_and_on_half_in_two() {
    for (bad, least) in [(1, [0.04, 0.2, 0.4]), (2, [0.04, 0.25, 0.5]), (4, [0.03, 0.2, 0.4])] {
        let any = [60, 90, 120].map(|seconds| found(bad, 0.2, seconds, 400)[1]);
        println!("{bad} flows that lose a fifth: one is found on these shares of links: {any:?}");
        assert!(any.iter().zip(least).all(|(any, least)| *any >= least), "{bad}: {any:?}");
    }
}

/// Returns how many of this many links ever have a losing flow in ten minutes, if all flows lose at
/// this rate.
fn wrong(links: u64, rate: impl Fn(u32) -> f64) -> usize {
    (0..links).filter(|seed| first_losing(670, *seed, |second, _| rate(second)).iter().any(Option::is_some)).count()
}

#[test]
fn a_link_that_begins_to_lose_has_no_losing_flow() {
    for (percent, most) in [(1, 0), (5, 2), (20, 2), (50, 2), (80, 1), (100, 0)] {
        let wrong = wrong(100, |second| if second < BEGIN { 0.0 } else { f64::from(percent) / 100.0 });
        println!("{wrong} of 100 links at {percent} %");
        assert!(wrong <= most, "{wrong} of 100 links at {percent} %");
    }
    let wrong = wrong(100, |second| if second < 300 { 0.02 } else { 1.0 });
    assert!(wrong <= 1, "{wrong} of 100 links that lose some before they lose all");
}

#[test]
fn outages_that_come_and_go_make_no_losing_flow() {
    for (lasting, every) in [(10, 20), (8, 60), (16, 64), (5, 40)] {
        let wrong = wrong(100, |second| f64::from(u8::from(second % every < lasting)));
        assert_eq!(wrong, 0, "{lasting} of {every} s");
    }
}

/// Returns the counts of a half, of probes in their order.
fn half(count: u8, outcome: impl Fn(u8) -> (u8, bool)) -> [FlowReading; FLOWS] {
    let mut half = [FlowReading::default(); FLOWS];
    for (flow, is_lost) in (0..count).map(outcome) {
        let flow = &mut half[usize::from(flow)];
        *flow = flow.plus(FlowReading { probes: 1, lost: is_lost.into() });
    }
    half
}

#[test]
fn a_link_that_loses_a_fifth_and_a_flow_that_loses_alone_are_trace_candidates() {
    let quiet = half(48, |at| (at % 16, false));
    let trace = |newer, older| RecentFlows::new([newer, older]).trace_candidate();
    assert_eq!(trace(quiet, quiet), None);
    assert_eq!(trace(half(48, |at| (at % 16, true)), quiet).map(|worst| worst.1), Some(100));
    assert_eq!(trace(half(48, |at| (at % 16, at == 40)), quiet), None, "one loss");
    assert_eq!(trace(half(48, |at| if at % 2 == 0 { (9, true) } else { (3, false) }), quiet), Some((9, 88)));
    assert_eq!(trace(half(4, |at| (at, true)), half(0, |_| (0, false))), None, "little is known");
    assert_eq!(trace(half(5, |at| (at, true)), quiet).map(|worst| worst.1), Some(100));
    assert_eq!(
        trace(half(1, |_| (2, true)), half(48, |at| (at % 16, at % 5 == 0))).map(|worst| worst.1),
        Some(22),
        "both"
    );
}

#[test]
fn a_healthy_link_has_no_suspect_and_a_lost_probe_makes_one() {
    let (quiet, mut newer) = (half(48, |at| (at % 16, false)), [FlowReading::default(); FLOWS]);
    assert_eq!(RecentFlows::new([quiet; 2]).suspect(), None);
    newer[9] = FlowReading { probes: 1, lost: 1 };
    let flows = RecentFlows::new([newer, quiet]);
    assert_eq!((flows.suspect(), flows.losing()), (Some(9), [false; FLOWS]));
    assert_eq!(flows.readings()[9], FlowReading { probes: 4, lost: 1 });
    assert_eq!(RecentFlows::new(Default::default()).losing(), [false; FLOWS]);
}

#[test]
fn flows_that_lose_at_different_rates_are_all_losing() {
    let mut half = [FlowReading { probes: 8, lost: 0 }; FLOWS];
    half[3] = FlowReading { probes: 40, lost: 40 };
    half[11] = FlowReading { probes: 40, lost: 9 };
    let losing = RecentFlows::new([half, Default::default()]).losing();
    assert_eq!((0..FLOWS).filter(|flow| losing[*flow]).collect::<Vec<_>>(), [3, 11]);
}

/// A path that loses all is not what is wrong with a link that loses a third besides.
#[test]
fn flows_that_lose_less_than_the_rest_together_are_not_losing() {
    let mut half = [FlowReading { probes: 12, lost: 4 }; FLOWS];
    half[3] = FlowReading { probes: 40, lost: 40 };
    assert_eq!(RecentFlows::new([half, Default::default()]).losing(), [false; FLOWS]);
}

#[test]
fn what_a_set_explains_is_the_likelihood_ratio_of_two_rates_to_one() {
    let reading = |lost, probes| FlowReading { probes, lost };
    let expected = 8.0 * 2_f64.ln();
    assert!((reading(4, 4).explains(reading(4, 8)) - expected).abs() < 1e-9);
    assert!(reading(0, 4).explains(reading(4, 8)).abs() < 1e-9, "it loses less");
    assert!(reading(4, 4).explains(reading(4, 4)).abs() < 1e-9, "there are no others");
}

/// Of 700 looks at links that lose alike on all flows, few have any evidence, and its mean is what
/// the verdict over paths takes for chance.
#[test]
fn a_link_that_loses_alike_on_all_flows_has_next_to_no_evidence() {
    for percent in [1, 5, 20, 50] {
        let (mut lossy, mut some, mut sum) = (0, 0, 0.0);
        for seed in 1_000..1_100 {
            let mut link = Played::new(seed);
            for second in 0..200 {
                link.second(|second, _| if second < BEGIN { 0.0 } else { f64::from(percent) / 100.0 });
                if second >= BEGIN && second % 20 == 19 {
                    let flows = link.flows();
                    lossy += u32::from(flows.has_losses());
                    some += u32::from(flows.evidence().is_some());
                    sum += flows.evidence().map_or(0.0, |(_, nats)| nats);
                }
            }
        }
        println!("{percent} %: of {lossy} looks, {some} have evidence, {:.4} nats on average", sum / f64::from(lossy));
        assert!(sum / f64::from(lossy) <= 0.025 && some * 25 <= lossy, "{percent} %: {some} of {lossy}, {sum}");
    }
}

#[test]
fn a_flow_that_may_lose_has_evidence_before_it_is_said_to_lose() {
    let (quiet, mut newer) = (half(48, |at| (at % 16, false)), half(16, |at| (at, false)));
    newer[9] = FlowReading { probes: 9, lost: 4 };
    let flows = RecentFlows::new([newer, quiet]);
    let (flow, nats) = flows.evidence().expect("it lost four of nine");
    assert!(flow == 9 && nats > 0.0 && nats < f64::from(FLOW_NATS_MIN), "{flow}: {nats}");
    assert_eq!((flows.losing(), flows.trace_candidate()), ([false; FLOWS], None));
    newer[9] = FlowReading { probes: 2, lost: 2 };
    assert_eq!(RecentFlows::new([newer, quiet]).evidence(), None, "no extra probe has tested it");
    assert_eq!(RecentFlows::new([quiet; 2]).evidence(), None);
}

/// A verdict ends with 12 answers if the flow lost all, and with 26 if it lost half
/// (`crates/verdicts/src/quiet.rs`).
#[test]
fn the_answers_of_a_flow_that_loses_no_more_are_counted_with_their_time() {
    const END: u32 = BEGIN + 90;
    for (rate, within, least) in [(1.0, 14, 12), (0.5, 30, 26)] {
        for seed in 0..100 {
            let mut link = Played::new(seed);
            for second in 0..END + within {
                link.second(|second, flow| if flow == 5 && (BEGIN..END).contains(&second) { rate } else { 0.0 });
                let (answered, seconds) = link.link().answered();
                assert!(
                    !(BEGIN..END).contains(&second) || answered < least,
                    "{answered} answers while it loses {rate}"
                );
                assert!(answered == 0 || second < END || u32::from(seconds) <= second - BEGIN);
            }
            let (answered, seconds) = link.link().answered();
            // Some flows that lost half are forgotten by then.
            let is_losing = link.flows().losing()[5];
            assert!(is_losing && answered >= least || !is_losing && rate < 1.0, "{answered} answers, seed {seed}");
            assert!(rate < 1.0 || u32::from(seconds).abs_diff(within) <= LOST_AFTER, "{seconds} s");
        }
    }
}
