//! The outcomes of a link's last UDP probes, and which of its flows lose while the others do not.
//!
//! A flow is a source port. A fabric chooses one of its parallel paths by it. So a path that loses
//! shows in some flows of a link, and not in the others.
//!
//! The trap: each flow is probed every 16 seconds, so a link that has just begun to lose everything
//! shows losses of one flow after the other, beside older answers of the rest. Therefore a flow is
//! compared only with what the others did since its own first loss.

use crate::limits::FLOWS_MAX;

/// Number of flows that a link can have.
pub(super) const FLOWS: usize = FLOWS_MAX as usize;
/// Number of a link's probes whose outcomes are remembered: a minute, of which half may be extra
/// probes of one flow.
pub(super) const OUTCOMES: usize = 64;
/// A flow is losing if chance makes as many losses in less than this share of all cases, at the
/// loss rate of the link's other flows.
const CHANCE_MAX: f64 = 1e-7;
/// A flow is looked at more closely if chance makes as many losses in less than this share of
/// cases.
const SUSPECT_MAX: f64 = 0.2;
/// Fewer probes of the other flows are no comparison.
const OTHERS_MIN: u32 = 8;
/// The loss rate of the other flows is taken as if one of so many further probes had been lost.
const PRIOR_PROBES: f64 = 10.0;

/// The last probes of a link of which [`TRACED_PERCENT`] lost are worth a trace.
const TRACED_PROBES: usize = 32;
const TRACED_PERCENT: u8 = 20;

/// Direction of a flow's last loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum FlowWay {
    /// Not known.
    #[default]
    Unknown,
    /// On the way to the peer.
    Out,
    /// On the way back.
    Back,
}

/// Returns how the outcome of a flow's probe is stored: the flow in the low bits, and two flags.
/// Zero means no probe.
pub(super) const fn pack(flow: u8, is_lost: bool) -> u8 {
    0x80 | (is_lost as u8) << 4 | flow & 0xf
}

/// The outcomes of a link's last probes, from the oldest.
#[derive(Clone, Copy, Debug)]
pub struct Flows([u8; OUTCOMES]);

/// How many probes of a flow were sent since its first loss that is remembered, and lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowReading {
    /// Number of probes, with the first that was lost.
    pub probes: u32,
    /// Number of them that were not answered.
    pub lost: u32,
}

/// A flow beside the others of its link.
#[derive(Clone, Copy, Debug, Default)]
struct Compared {
    own: FlowReading,
    /// The probability that chance makes as many losses.
    chance: f64,
}

impl Flows {
    /// Makes it from outcomes in the order of the probes, as they are stored.
    pub(super) const fn new(outcomes: [u8; OUTCOMES]) -> Self {
        Self(outcomes)
    }

    fn has_losses(&self) -> bool {
        self.0.iter().any(|outcome| outcome & 0x10 != 0)
    }

    /// Returns the outcomes of each flow since its first loss.
    pub fn readings(&self) -> [FlowReading; FLOWS] {
        self.compared(&[false; FLOWS]).map(|compared| compared.own)
    }

    /// Whether a flow loses while the others do not, for each flow. If all lose alike, none does.
    pub fn losing(&self) -> [bool; FLOWS] {
        let mut losing = [false; FLOWS];
        if !self.has_losses() {
            return losing;
        }
        // Each pass takes the flows that were found out of the comparison for the others.
        for _ in 0..3 {
            let next = self.compared(&losing).map(|compared| compared.chance < CHANCE_MAX);
            if std::mem::replace(&mut losing, next) == next {
                break;
            }
        }
        losing
    }

    /// Returns the flow that an extra probe would tell most about: of those whose losses are
    /// unlikely to be chance, one of which the fewest probes are known.
    pub fn suspect(&self) -> Option<u8> {
        // Nearly all links lose nothing.
        if !self.has_losses() {
            return None;
        }
        let compared = self.compared(&self.losing());
        let unsure = (0_u8..).zip(compared).filter(|(_, it)| it.own.lost > 0 && it.chance < SUSPECT_MAX);
        unsure.min_by_key(|(_, it)| it.own.probes).map(|(flow, _)| flow)
    }

    /// Returns a flow whose path is worth a trace, and the share of its probes that were lost, in
    /// percent: the worst of those that lose while the others do not. If there is none and the link
    /// has lost a fifth of its last [`TRACED_PROBES`] probes, the flow of its last loss.
    pub fn worth_a_trace(&self) -> Option<(u8, u8)> {
        let newest = self.0.iter().rev().filter(|outcome| **outcome != 0).take(TRACED_PROBES);
        let lost_flow = newest.clone().find(|outcome| **outcome & 0x10 != 0)? & 0xf;
        let percent = |lost: usize, probes: usize| u8::try_from(100 * lost / probes.max(1)).unwrap_or(100);
        let readings = self.readings();
        let worst = (0_u8..).zip(self.losing()).zip(readings).filter(|((_, losing), _)| *losing);
        let worst = worst.map(|((flow, _), it)| (flow, percent(it.lost as usize, it.probes as usize)));
        let (probes, lost) = (newest.clone().count(), newest.filter(|outcome| **outcome & 0x10 != 0).count());
        worst.max_by_key(|(_, percent)| *percent).or_else(|| {
            let is_worth = probes >= TRACED_PROBES / 2 && percent(lost, probes) >= TRACED_PERCENT;
            is_worth.then(|| (lost_flow, percent(lost, probes)))
        })
    }

    fn compared(&self, losing: &[bool; FLOWS]) -> [Compared; FLOWS] {
        let mut all = [Compared { own: FlowReading::default(), chance: 1.0 }; FLOWS];
        for (flow, compared) in (0_u8..).zip(&mut all) {
            let first = self.0.iter().position(|outcome| *outcome == pack(flow, true));
            let Some(since) = first.and_then(|first| self.0.get(first..)) else { continue };
            let (mut own, mut others) = (FlowReading::default(), [FlowReading::default(); FLOWS]);
            for outcome in since.iter().filter(|outcome| **outcome != 0) {
                let of = usize::from(outcome & 0xf);
                let sum = if of == usize::from(flow) { &mut own } else { &mut others[of] };
                sum.probes += 1;
                sum.lost += u32::from(outcome & 0x10 != 0);
            }
            compared.own = own;
            // A flow that has extra probes counts as much as any other.
            let known = others.iter().zip(losing).filter(|(it, losing)| it.probes > 0 && !**losing);
            let (mut rates, mut flows, mut probes) = (0.0, 0.0, 0);
            for (it, _) in known {
                rates += f64::from(it.lost) / f64::from(it.probes);
                flows += 1.0;
                probes += it.probes;
            }
            if probes >= OTHERS_MIN {
                let rate = (rates / flows * f64::from(probes) + 1.0) / (f64::from(probes) + PRIOR_PROBES);
                // The first loss is the reason to look, and no evidence.
                compared.chance = at_least(own.lost - 1, own.probes - 1, rate);
            } else if own.probes > 0 {
                // Too early to say: a closer look is worth it.
                compared.chance = SUSPECT_MAX / 2.0;
            }
        }
        all
    }
}

/// Returns the probability of at least `lost` losses of `probes` at this rate.
fn at_least(lost: u32, probes: u32, rate: f64) -> f64 {
    if rate >= 1.0 || lost == 0 {
        return 1.0;
    }
    // The terms of the binomial distribution, from none lost on. What is above is summed up
    // directly: one minus nearly one would lose all digits.
    let (mut term, mut above) = ((1.0 - rate).powi(probes.cast_signed()), 0.0);
    for k in 0..=probes {
        if k >= lost {
            above += term;
        }
        term *= f64::from(probes - k) / f64::from(k + 1) * rate / (1.0 - rate);
    }
    above.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator of random numbers, from a seed.
    struct Random(u64);

    impl Random {
        fn chance(&mut self, rate: f64) -> bool {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((self.0 >> 33) as f64) / f64::from(1_u32 << 31) < rate
        }
    }

    /// Probes a flow each second in turn, and the suspect besides. `rate` is the loss rate of a
    /// flow at a second. Returns the flows that were ever losing, and those that are at the end.
    fn after(seconds: u32, seed: u64, rate: impl Fn(u32, u8) -> f64) -> ([bool; FLOWS], [bool; FLOWS]) {
        let (mut outcomes, mut random, mut ever) = ([0; OUTCOMES], Random(seed), [false; FLOWS]);
        for second in 0..seconds {
            let turn = u8::try_from(second % 16).unwrap();
            let suspect = Flows::new(outcomes).suspect();
            for flow in [Some(turn), suspect].into_iter().flatten() {
                outcomes.rotate_left(1);
                outcomes[OUTCOMES - 1] = pack(flow, random.chance(rate(second, flow)));
            }
            let now = Flows::new(outcomes).losing();
            ever.iter_mut().zip(now).for_each(|(ever, now)| *ever |= now);
        }
        (ever, Flows::new(outcomes).losing())
    }

    const LINKS: u64 = 100;

    #[test]
    fn dead_flows_are_found_within_a_minute_and_no_others() {
        for dead in [1, 2] {
            for seed in 0..LINKS {
                let (ever, now) = after(124, seed, |second, flow| f64::from(u8::from(second >= 64 && flow < dead)));
                let expected: Vec<bool> = (0..16).map(|flow| flow < dead).collect();
                assert_eq!((&ever[..], &now[..]), (&expected[..], &expected[..]), "{dead}");
            }
        }
        // Four of sixteen take longer, and no other is blamed.
        let mut found = 0;
        for seed in 0..LINKS {
            let (ever, _) = after(124, seed, |second, flow| f64::from(u8::from(second >= 64 && flow % 4 == 1)));
            assert!((0..16).all(|flow| !ever[flow] || flow % 4 == 1), "{ever:?}");
            found += ever.iter().filter(|losing| **losing).count();
        }
        println!("{found} of {} flows, four of each link", 4 * LINKS);
        assert!(found > 4, "{found}");
    }

    #[test]
    fn a_link_that_begins_to_lose_has_no_losing_flow() {
        for percent in [1, 5, 10, 20, 50, 80, 100] {
            let mut wrong = 0;
            for seed in 0..LINKS {
                let rate = |second, _| if second < 70 { 0.0 } else { f64::from(percent) / 100.0 };
                wrong += usize::from(after(190, seed, rate).0.contains(&true));
            }
            assert!(wrong <= 4, "{wrong} of {LINKS} links at {percent} %");
        }
    }

    #[test]
    fn some_flows_that_lose_a_fifth_are_found() {
        let mut found = 0;
        for seed in 0..LINKS {
            let rate = |second, flow| if second >= 64 && flow == 7 { 0.2 } else { 0.0 };
            let (ever, _) = after(184, seed, rate);
            assert!((0..16).all(|flow| !ever[flow] || flow == 7));
            found += usize::from(ever[7]);
        }
        println!("{found} of {LINKS} flows that lose a fifth are found within two minutes");
        assert!(found > 10, "{found}");
    }

    #[test]
    fn a_link_that_loses_a_fifth_and_a_flow_that_loses_alone_are_worth_a_trace() {
        let of = |count: usize, outcome: fn(usize) -> u8| {
            let mut outcomes = [0; OUTCOMES];
            (0..count).for_each(|at| outcomes[OUTCOMES - count + at] = outcome(at));
            Flows::new(outcomes).worth_a_trace()
        };
        let flow = |at: usize| u8::try_from(at % 16).unwrap();
        assert_eq!(of(64, |at| pack(u8::try_from(at % 16).unwrap(), false)), None);
        assert_eq!(of(64, |at| pack(u8::try_from(at % 16).unwrap(), true)), Some((flow(63), 100)));
        assert_eq!(of(64, |at| pack(u8::try_from(at % 16).unwrap(), at == 40)), None, "one loss");
        assert_eq!(of(64, |at| if at % 2 == 0 { pack(9, true) } else { pack(3, false) }), Some((9, 100)));
        assert_eq!(of(15, |_| pack(0, true)), None, "little is known");
        assert_eq!(of(16, |_| pack(0, true)), Some((0, 100)));
        assert_eq!(of(0, |_| 0), None);
    }

    #[test]
    fn a_healthy_link_has_no_suspect_and_a_lost_probe_makes_one() {
        let mut outcomes = [pack(3, false); OUTCOMES];
        assert_eq!(Flows::new(outcomes).suspect(), None);
        outcomes[OUTCOMES - 1] = pack(9, true);
        assert_eq!(Flows::new(outcomes).suspect(), Some(9));
        assert_eq!(Flows::new(outcomes).readings()[9], FlowReading { probes: 1, lost: 1 });
        assert_eq!(Flows::new([0; OUTCOMES]).losing(), [false; FLOWS]);
    }

    #[test]
    fn the_probability_is_that_of_the_binomial_distribution() {
        for (lost, probes, rate, expected) in
            [(0, 0, 0.5, 1.0), (0, 24, 0.1, 1.0), (1, 1, 0.25, 0.25), (2, 2, 0.5, 0.25), (4, 4, 0.01, 1e-8)]
        {
            let found = at_least(lost, probes, rate);
            assert!((found / expected - 1.0).abs() < 1e-9, "{lost} of {probes} at {rate}: {found}");
        }
    }
}
