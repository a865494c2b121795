//! The outcomes of a flow's last probes, and which flows of a link lose while the others do not.
//!
//! A flow is a source port. A fabric chooses one of its parallel paths by it. So a path that loses
//! shows in some flows of a link, and not in the others.

use crate::limits::FLOWS_MAX;

/// Number of flows that a link can have.
pub(super) const FLOWS: usize = FLOWS_MAX as usize;
/// Number of probes of a flow whose outcomes are remembered. At 20 % loss, five of them are lost.
const OUTCOMES: u32 = 24;
/// A flow is losing if chance makes as many losses in less than this share of all cases, at the
/// loss rate of the link's other flows.
const CHANCE_MAX: f64 = 1e-6;
/// A flow is looked at more closely if chance makes as many losses in less than this share of
/// cases.
const SUSPECT_MAX: f64 = 0.1;
/// The loss rate of the other flows is taken as if one of so many further probes had been lost. A
/// few lost probes of one flow are then no proof while little is known of the others.
const PRIOR_PROBES: f64 = 100.0;

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

/// The outcomes of the last probes of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowReading {
    /// A bit for each of the last 24 probes, the newest lowest: whether it was not answered.
    pub outcomes: u32,
    /// Number of probes that are known, at most 24.
    pub probes: u32,
    /// Direction of the last loss.
    pub way: FlowWay,
}

impl FlowReading {
    /// Unpacks it: from the lowest, 24 bits of outcomes, 5 of their number, 2 of the direction.
    pub(super) const fn unpack(bits: u32) -> Self {
        let way = match bits >> 29 {
            1 => FlowWay::Out,
            2 => FlowWay::Back,
            _ => FlowWay::Unknown,
        };
        Self { outcomes: bits & 0xff_ffff, probes: bits >> 24 & 0x1f, way }
    }

    pub(super) const fn pack(self) -> u32 {
        self.outcomes | self.probes << 24 | (self.way as u32) << 29
    }

    /// Returns the reading after one more probe.
    pub(super) fn with(self, is_lost: bool) -> Self {
        let outcomes = (self.outcomes << 1 | u32::from(is_lost)) & ((1 << OUTCOMES) - 1);
        Self { outcomes, probes: (self.probes + 1).min(OUTCOMES), ..self }
    }

    /// Returns the number of probes that were not answered.
    pub const fn lost(self) -> u32 {
        self.outcomes.count_ones()
    }
}

/// Whether a flow loses while the others do not, for each flow. If all lose alike, none does.
pub fn losing(flows: &[FlowReading; FLOWS]) -> [bool; FLOWS] {
    let mut losing = [false; FLOWS];
    if flows.iter().all(|flow| flow.outcomes == 0) {
        return losing;
    }
    // Each pass takes the flows that were found out of the comparison for the others.
    for _ in 0..3 {
        let before = losing;
        let chances = chances(flows, &before);
        for ((losing, chance), flow) in losing.iter_mut().zip(chances).zip(flows) {
            *losing = chance < CHANCE_MAX && flow.lost() > 0;
        }
        if losing == before {
            break;
        }
    }
    losing
}

/// Returns the flow that an extra probe would tell most about: the one whose losses are the least
/// likely to be chance, if any are unlikely. One that has lost all its probes is known well enough
/// once [`OUTCOMES`] are known.
pub fn suspect(flows: &[FlowReading; FLOWS]) -> Option<u8> {
    // Nearly all links lose nothing.
    if flows.iter().all(|flow| flow.outcomes == 0) {
        return None;
    }
    let chances = chances(flows, &losing(flows));
    let unsure = (0_u8..).zip(chances).zip(flows).filter(|((_, chance), flow)| {
        flow.lost() > 0 && *chance < SUSPECT_MAX && !(flow.probes == OUTCOMES && flow.lost() == OUTCOMES)
    });
    unsure.min_by(|((_, a), _), ((_, b), _)| a.total_cmp(b)).map(|((flow, _), _)| flow)
}

/// Returns the probability that chance makes as many losses of each flow as there are, at the loss
/// rate of those other flows that are not known to be losing.
fn chances(flows: &[FlowReading; FLOWS], losing: &[bool; FLOWS]) -> [f64; FLOWS] {
    let good = || flows.iter().zip(losing).filter(|(_, losing)| !**losing).map(|(flow, _)| flow);
    let (lost, probes) = good().fold((0, 0), |sum, flow| (sum.0 + flow.lost(), sum.1 + flow.probes));
    let mut chances = [1.0; FLOWS];
    for ((chance, flow), is_losing) in chances.iter_mut().zip(flows).zip(losing) {
        let own = if *is_losing { (0, 0) } else { (flow.lost(), flow.probes) };
        let rate = (f64::from(lost - own.0) + 1.0) / (f64::from(probes - own.1) + PRIOR_PROBES);
        *chance = at_least(flow.lost(), flow.probes, rate.min(1.0));
    }
    chances
}

/// Returns the probability of at least `lost` losses of `probes` at this rate.
fn at_least(lost: u32, probes: u32, rate: f64) -> f64 {
    // The terms of the binomial distribution, from none lost on.
    let mut term = (1.0 - rate).powi(probes.cast_signed());
    let mut below = 0.0;
    if rate >= 1.0 {
        return 1.0;
    }
    // What is above is summed up directly: one minus nearly one would lose all digits.
    let mut above = 0.0;
    for k in 0..=probes {
        if k < lost {
            below += term;
        } else {
            above += term;
        }
        term *= f64::from(probes - k) / f64::from(k + 1) * rate / (1.0 - rate);
    }
    debug_assert!((below + above - 1.0_f64).abs() < 1e-6, "{lost} of {probes} at {rate}");
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

    /// Returns the flows after `seconds` of a probe per second in turn, and an extra probe of the
    /// suspect. `rate` is the loss rate of a flow.
    fn after(seconds: u32, seed: u64, rate: impl Fn(u8) -> f64) -> [FlowReading; FLOWS] {
        let (mut flows, mut random) = ([FlowReading::default(); FLOWS], Random(seed));
        for second in 0..seconds {
            let turn = u8::try_from(second % 16).unwrap();
            for flow in [Some(turn), suspect(&flows)].into_iter().flatten() {
                let place = &mut flows[usize::from(flow)];
                *place = place.with(random.chance(rate(flow)));
            }
        }
        flows
    }

    fn found(seconds: u32, rate: impl Fn(u8) -> f64 + Copy, is_right: impl Fn(&[bool; FLOWS]) -> bool) -> usize {
        (0..200).filter(|seed| is_right(&losing(&after(seconds, *seed, rate)))).count()
    }

    #[test]
    fn dead_flows_are_found_within_a_minute_and_no_others() {
        let dead = |count: usize| {
            found(
                45,
                |flow| f64::from(u8::from(usize::from(flow) < count)),
                |it| it.iter().enumerate().all(|(flow, losing)| *losing == (flow < count)),
            )
        };
        assert_eq!([1, 2].map(dead), [200, 200]);
    }

    #[test]
    fn some_flows_that_lose_a_fifth_are_found() {
        let part = |seconds, bad: u8| {
            let some = |it: &[bool; FLOWS]| it[..bad.into()].iter().any(|losing| *losing);
            found(seconds, move |flow| if flow < bad { 0.2 } else { 0.0 }, some)
        };
        let figures = [(60, 1), (120, 1), (60, 4), (120, 4)].map(|(seconds, bad)| part(seconds, bad));
        println!("of 200 links, within one and two minutes: {figures:?} with one bad flow and with four");
        assert!(figures.iter().all(|found| *found > 20), "{figures:?}");
    }

    #[test]
    fn none_of_flows_that_lose_alike_is_losing() {
        for percent in [0, 1, 5, 10, 20, 50, 90, 100] {
            let wrong = found(200, |_| f64::from(percent) / 100.0, |it| it.iter().any(|losing| *losing));
            assert!(wrong <= 1, "{wrong} of 200 links at {percent} %");
        }
    }

    #[test]
    fn a_healthy_link_has_no_suspect_and_a_lost_probe_makes_one() {
        let mut flows = after(100, 1, |_| 0.0);
        assert_eq!(suspect(&flows), None);
        flows[9] = flows[9].with(true);
        assert_eq!(suspect(&flows), Some(9));
    }

    #[test]
    fn the_probability_is_that_of_the_binomial_distribution() {
        for (lost, probes, rate, expected) in [
            (0, 0, 0.5, 1.0),
            (0, 24, 0.1, 1.0),
            (1, 1, 0.25, 0.25),
            (2, 2, 0.5, 0.25),
            (4, 4, 0.01, 1e-8),
            (3, 4, 1.0, 1.0),
        ] {
            let found = at_least(lost, probes, rate);
            assert!((found / expected - 1.0).abs() < 1e-9, "{lost} of {probes} at {rate}: {found}");
        }
    }
}
