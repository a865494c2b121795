//! The outcomes of a link's recent UDP probes by flow, and which flows lose while the others do
//! not.
//!
//! A flow is a source port. A fabric chooses one of its parallel paths by it. So a path that loses
//! shows in some flows of a link, and not in the others.
//!
//! The counts of all flows cover the same time, and each has about as many probes in turn. So a
//! loss that all flows share is spread over them, whenever it begins or ends. The losing flows are
//! the set that explains the losses best by two rates, one of the set and one of the rest. Chance
//! also finds some set, so the set must explain more than the number of sets of its size costs. And
//! it must hold most of what the link loses. Otherwise the link is bad, whatever its flows are.
//!
//! The trap: extra probes of a flow that is suspected. If a link begins to lose everything, the
//! flow that shows it first must not get many of them before the others show it, too. So there is
//! at most one for each probe in turn. The first loss after none begins another half, and the
//! halves are compared each by itself. So these probes meet only others that are as recent.
//!
//! Rejected: the last 64 outcomes of the link, in their order. Half of them were extra probes, so
//! of five and more dead flows of 16 there were too few to be sure of any.

use crate::limits::{FLOW_NATS_MIN, FLOWS_MAX};

/// Number of flows that a link can have.
pub(super) const FLOWS: usize = FLOWS_MAX as usize;
/// Number of probes in turn in half of the counts: three of each of 16 flows. So a flow that loses
/// no more is losing for 96 s at most, at an interval of a second.
pub(super) const HALF_PROBES: u8 = 48;
/// What a set of flows must explain in nats, besides the logarithm of the number of sets.
const NATS_MIN: f64 = FLOW_NATS_MIN as f64;
/// What each flow of the set must explain by itself. Chance puts another flow beside those that
/// lose with a probability of about e^-3.
const OWN_NATS_MIN: f64 = 3.0;
/// A flow that explains this much by itself is looked at more closely.
const SUSPECT_NATS_MIN: f64 = 1.0;
/// The loss rate of the other flows is taken as if one of this many further probes had been lost.
const PRIOR_PROBES: f64 = 10.0;
/// Flows are compared by their loss rates as if this many further probes had been answered: one
/// loss of two says less than ten of thirty.
const CALM_PROBES: f64 = 3.0;

/// Evidence of a flow needs this many probes. So it had extra ones: two short outages of all links
/// lose both probes of a flow in turn on some links, and extra ones show that it is well.
const TESTED_PROBES: u32 = 8;
/// A link that loses this many probes, and this share of them, is worth a trace. That is as much as
/// a verdict over it needs, and a trace shows a loss of 13 % and more.
const TRACED_LOST: u32 = 5;
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

/// The recent probes of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowReading {
    /// Number of probes whose outcome is known.
    pub probes: u32,
    /// Number of them that were not answered.
    pub lost: u32,
}

/// The recent probes of a link by flow: of the half that is counted now, and of the half before.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecentFlows([[FlowReading; FLOWS]; 2]);

/// The flows of a link that have lost most, as an explanation of all its losses.
#[derive(Clone, Copy, Debug)]
struct Set {
    /// Number of these flows.
    count: usize,
    /// What they explain more than one rate for all flows does, without the cost of their choice.
    nats: f64,
}

impl FlowReading {
    fn plus(self, other: Self) -> Self {
        Self { probes: self.probes + other.probes, lost: self.lost + other.lost }
    }

    fn less(self, other: Self) -> Self {
        Self { probes: self.probes - other.probes, lost: self.lost - other.lost }
    }

    fn sum(of: impl Iterator<Item = Self>) -> Self {
        of.fold(Self::default(), Self::plus)
    }

    /// Returns the log-likelihood of the losses at their own rate.
    fn likelihood(self) -> f64 {
        let (lost, probes) = (f64::from(self.lost), f64::from(self.probes));
        let term = |count: f64| if count > 0.0 { count * (count / probes).ln() } else { 0.0 };
        term(lost) + term(probes - lost)
    }

    /// Returns how many nats its own loss rate explains more than that of `others`. 0 if they lose
    /// as much.
    fn gain(self, others: Self) -> f64 {
        let rate = (f64::from(others.lost) + 1.0) / (f64::from(others.probes) + PRIOR_PROBES);
        let (lost, answered) = (f64::from(self.lost), f64::from(self.probes - self.lost));
        if lost <= rate * f64::from(self.probes) || rate >= 1.0 {
            return 0.0;
        }
        self.likelihood() - lost * rate.ln() - answered * (1.0 - rate).ln()
    }

    /// Returns how many nats two rates explain more than one: that of these flows, and that of the
    /// others of `all`. 0 if these lose less.
    fn explains(self, all: Self) -> f64 {
        let others = all.less(self);
        let is_worse =
            u64::from(self.lost) * u64::from(others.probes) > u64::from(others.lost) * u64::from(self.probes);
        if is_worse { self.likelihood() + others.likelihood() - all.likelihood() } else { 0.0 }
    }

    fn rate(self) -> f64 {
        f64::from(self.lost) / f64::from(self.probes.max(1))
    }

    fn calm_rate(self) -> f64 {
        f64::from(self.lost) / (f64::from(self.probes) + CALM_PROBES)
    }

    fn percent(self) -> u8 {
        u8::try_from(100 * self.lost / self.probes.max(1)).unwrap_or(100)
    }
}

impl RecentFlows {
    /// Makes it from the counts of both halves, the newer first.
    pub(super) const fn new(halves: [[FlowReading; FLOWS]; 2]) -> Self {
        Self(halves)
    }

    fn has_losses(&self) -> bool {
        self.0.iter().flatten().any(|flow| flow.lost > 0)
    }

    /// Returns the counts of each flow. All are of the same time.
    pub fn readings(&self) -> [FlowReading; FLOWS] {
        let [newer, older] = &self.0;
        std::array::from_fn(|flow| newer[flow].plus(older[flow]))
    }

    /// Whether a flow loses while the others do not, for each flow. If all lose alike, none does,
    /// and neither if more than half do.
    pub fn losing(&self) -> [bool; FLOWS] {
        let mut losing = [false; FLOWS];
        if !self.has_losses() {
            return losing;
        }
        let order = self.by_loss();
        // Bad paths may lose at different rates: each set is compared with what is left.
        let mut rest = order.as_slice();
        while let Some(set) = self.worst_set(rest, NATS_MIN) {
            let (flows, others) = rest.split_at(set.count);
            for flow in flows {
                losing[*flow] = self.gain(*flow, others) >= OWN_NATS_MIN;
            }
            rest = others;
        }
        if self.are_losses_of(&order, FLOWS - rest.len()) { losing } else { [false; FLOWS] }
    }

    /// Returns the flow that has lost most of those that may lose while the others do not, and the
    /// evidence for it in nats. `None` if chance explains the losses at least as well.
    ///
    /// Evidence below [`NATS_MIN`] says nothing of one link. That of many links may be added.
    pub fn evidence(&self) -> Option<(u8, f64)> {
        if !self.has_losses() {
            return None;
        }
        let order = self.by_loss();
        let is_tested = self.readings()[order[0]].probes >= TESTED_PROBES;
        let set = self.worst_set(&order, 0.0).filter(|set| is_tested && self.are_losses_of(&order, set.count))?;
        Some((u8::try_from(order[0]).ok()?, set.nats))
    }

    /// Returns the flows that lose while the others do not, or else the one that may, each as true.
    pub(super) fn suspected(&self) -> [bool; FLOWS] {
        let mut suspected = self.losing();
        if !suspected.contains(&true)
            && let Some((flow, _)) = self.evidence()
        {
            suspected[usize::from(flow)] = true;
        }
        suspected
    }

    /// Returns the flows by their loss rates, from the highest.
    fn by_loss(&self) -> [usize; FLOWS] {
        let readings = self.readings();
        let mut order: [usize; FLOWS] = std::array::from_fn(|flow| flow);
        order.sort_unstable_by(|a, b| readings[*b].calm_rate().total_cmp(&readings[*a].calm_rate()));
        order
    }

    /// Whether the first `count` of these flows are at most half, and lose at least as much as the
    /// others together.
    fn are_losses_of(&self, order: &[usize; FLOWS], count: usize) -> bool {
        let readings = self.readings();
        let probed = readings.iter().filter(|flow| flow.probes > 0).count();
        let of = |flows: &[usize]| flows.iter().map(|flow| readings[*flow].rate()).sum::<f64>();
        let (set, others) = order.split_at(count);
        count * 2 <= probed && of(set) >= of(others)
    }

    /// Returns how many nats a flow's own loss rate explains more than that of the others.
    fn gain(&self, flow: usize, others: &[usize]) -> f64 {
        let of_half = |half: &[FlowReading; FLOWS]| {
            let others = others.iter().filter(|other| **other != flow);
            half[flow].gain(FlowReading::sum(others.map(|other| half[*other])))
        };
        self.0.iter().map(of_half).sum()
    }

    /// Returns the set that explains the losses best, of the first of these flows. `None` if it
    /// explains no more than `least` nats beyond the cost of its choice.
    fn worst_set(&self, flows: &[usize], least: f64) -> Option<Set> {
        let all = self.0.each_ref().map(|half| FlowReading::sum(flows.iter().map(|flow| half[*flow])));
        let (mut sets, mut cost, mut best) = ([FlowReading::default(); 2], 0.0, None);
        for (count, flow) in (1..).zip(flows) {
            // The logarithm of the number of sets of this size, twice as many for each flow more.
            cost += (2.0 * (flows.len() + 1 - count) as f64 / count as f64).ln();
            let mut nats = -cost;
            for ((half, set), all) in self.0.iter().zip(&mut sets).zip(&all) {
                *set = set.plus(half[*flow]);
                nats += set.explains(*all);
            }
            if nats > best.map_or(least, |best: Set| best.nats) {
                best = Some(Set { count, nats });
            }
        }
        best
    }

    /// Returns the flow that an extra probe would tell most about: of those that are not known to
    /// lose, the one whose losses are the least likely to be chance. If there is none, the flow of
    /// those that lose of which the fewest probes are known: it may lose no more.
    pub fn suspect(&self) -> Option<u8> {
        // Nearly all links lose nothing.
        if !self.has_losses() {
            return None;
        }
        let (losing, readings) = (self.losing(), self.readings());
        let mut others = [0; FLOWS];
        let known = (0..FLOWS).filter(|flow| !losing[*flow]);
        let known_count = known.clone().zip(&mut others).map(|(flow, other)| *other = flow).count();
        let others = others.get(..known_count).unwrap_or_default();
        let gains = known.map(|flow| (flow, self.gain(flow, others))).filter(|(_, gain)| *gain >= SUSPECT_NATS_MIN);
        let unsure = gains.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(flow, _)| flow);
        let sure = || (0..FLOWS).filter(|flow| losing[*flow]).min_by_key(|flow| readings[*flow].probes);
        u8::try_from(unsure.or_else(sure)?).ok()
    }

    /// Whether any flow is probed.
    pub fn are_probed(&self) -> bool {
        self.0.iter().flatten().any(|flow| flow.probes > 0)
    }

    /// Returns a flow whose path is worth a trace, and the share of its probes that were lost, in
    /// percent: the worst of those that lose while the others do not. If there is none and the link
    /// loses a fifth, the flow that has lost most, and the share of the link.
    pub fn trace_candidate(&self) -> Option<(u8, u8)> {
        if !self.has_losses() {
            return None;
        }
        let readings = self.readings();
        let losing = (0_u8..).zip(readings.iter().zip(self.losing())).filter(|(_, (_, losing))| *losing);
        let worst = losing.map(|(flow, (reading, _))| (flow, reading.percent())).max_by_key(|(_, percent)| *percent);
        let [newer, _] = &self.0;
        worst.or_else(|| {
            [newer, &readings].into_iter().find_map(|flows| {
                let link = FlowReading::sum(flows.iter().copied());
                let is_worth = link.lost >= TRACED_LOST && link.percent() >= TRACED_PERCENT;
                let most = (0_u8..).zip(flows).max_by_key(|(_, flow)| flow.lost).filter(|_| is_worth);
                most.map(|(flow, _)| (flow, link.percent()))
            })
        })
    }
}

#[cfg(test)]
mod tests;
