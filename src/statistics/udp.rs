//! What only UDP probes find out about a peer: which source ports (flows) lose, in which direction
//! packets are lost, how many hops the peer is away, and how large a packet may be.
//!
//! The probe thread writes. The numbers are small and independent of each other, so a reader may
//! see a newer one beside an older one. Only the direction of losses has windows, as the counts of
//! lost probes beside it ([`super::recent`]).

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

use kube_canary_kernel::atomic;
use kube_canary_kernel::region::{Atomic as _, Table};
use zerocopy::FromZeros;

use super::flows::{FLOWS, FlowReading, FlowWay, HALF_PROBES, RecentFlows};
use super::halves::Halves;
use super::modulo;
use super::turns::Turns;
use super::variation::{Delay, Variation};
use crate::limits::{FLOWS_MAX, PEER_SLOTS_MAX};
use crate::peers::{Compaction, SlotId};
use crate::units::Nanos;

/// One peer's numbers.
#[derive(Debug, Default, FromZeros)]
pub(super) struct UdpNumbers {
    windows: Turns<AtomicU16>,
    /// Losses on the way there and on the way back, of the even and of the odd half.
    ways: [[AtomicU8; 2]; 2],
    /// Number of hops; 0 if it is not known.
    hops: AtomicU8,
    /// [`MtuReading`] in its stored form.
    mtu_state: AtomicU8,
    path_mtu: AtomicU16,
    /// One more than the number of requests of this peer that were answered in its last minute; 0
    /// if it is not known.
    heard: AtomicU16,
    /// Number of probes in turn that the newer half of `flows` counts.
    in_turn: AtomicU8,
    /// Which half of `flows` is the newer one, and whether an extra probe is allowed.
    newer: AtomicU8,
    may_probe: AtomicU8,
    /// Number of probes of suspected flows that were answered since their last loss, and when that
    /// was known, in seconds after the first tick, modulo 2^8.
    answered: AtomicU8,
    last_lost: AtomicU8,
    /// Probes and losses of each flow, in two halves.
    flows: [[FlowCounts; FLOWS]; 2],
    /// Two bits for each flow: the direction of its last loss.
    flow_ways: AtomicU32,
    /// Of the delays there and back.
    variations: [Variation; 2],
    /// The delays there and back.
    delays: [Delay; 2],
}
atomic!(UdpNumbers {
    windows,
    ways,
    hops,
    mtu_state,
    path_mtu,
    heard,
    in_turn,
    newer,
    may_probe,
    answered,
    last_lost,
    flows,
    flow_ways,
    variations,
    delays,
});

/// The probes of a flow whose outcome is known, and how many of them were lost.
#[derive(Debug, Default, FromZeros)]
struct FlowCounts {
    probes: AtomicU8,
    lost: AtomicU8,
}
atomic!(FlowCounts { probes, lost });

/// The numbers of all slots.
#[derive(Debug)]
pub(super) struct UdpSlots(Table<UdpNumbers>);

/// The numbers of one slot.
#[derive(Clone, Copy, Debug)]
pub struct UdpLinks<'a> {
    link: &'a UdpNumbers,
    half: u32,
    /// Seconds after the first tick, modulo 2^8.
    second: u8,
}

/// The losses of the recent window whose direction the far agent's count has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaysReading {
    /// Number of requests that did not reach the peer.
    pub lost_there: u32,
    /// Number of answers that did not come back.
    pub lost_back: u32,
}

/// The largest packets that pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MtuReading {
    /// Nothing is known yet.
    #[default]
    Unknown,
    /// Packets of the route's full size pass.
    Full {
        /// Size of the IP packet in bytes.
        bytes: u16,
    },
    /// Larger packets than this are lost.
    Hole {
        /// Size in bytes of the largest IP packet that passes.
        passes: u16,
        /// Whether a router says so ("fragmentation needed", "packet too big").
        is_said: bool,
    },
}

impl UdpSlots {
    pub(super) fn new() -> Self {
        Self(Table::new(PEER_SLOTS_MAX))
    }

    pub(super) fn get(&self, slot: SlotId, halves: &Halves) -> Option<UdpLinks<'_>> {
        let second = halves.moment().second.to_le_bytes()[0];
        Some(UdpLinks { link: self.0.get(slot.index())?, half: halves.current(), second })
    }

    /// Starts from zero for another peer.
    pub(super) fn reset(&self, slot: SlotId) {
        if let Some(link) = self.0.get(slot.index()) {
            link.copy_from(&UdpNumbers::default());
        }
    }

    pub(super) fn compact(&self, compaction: &Compaction) {
        for (from, to) in compaction.moves() {
            if let (Some(from), Some(to)) = (self.0.get(from.index()), self.0.get(to.index())) {
                to.copy_from(from);
            }
        }
        self.0.give_back(compaction.slots());
    }
}

impl UdpNumbers {
    fn half(&self, window: u16) -> &[AtomicU8; 2] {
        &self.ways[usize::from(window % 2)]
    }

    /// Returns the counts of the flows in the newer half, and in the older one.
    fn flow_halves(&self) -> [&[FlowCounts; FLOWS]; 2] {
        let [even, odd] = &self.flows;
        if self.newer.load(Ordering::Relaxed) == 0 { [even, odd] } else { [odd, even] }
    }

    fn clear(&self, window: u16) {
        self.half(window).iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

impl UdpLinks<'_> {
    /// Counts losses whose direction is known now.
    pub(super) fn lost(&self, there: u32, back: u32) {
        self.turn();
        for (count, more) in self.link.half(modulo(self.half)).iter().zip([there, back]) {
            let sum = u32::from(count.load(Ordering::Relaxed)).saturating_add(more);
            count.store(u8::try_from(sum).unwrap_or(u8::MAX), Ordering::Relaxed);
        }
    }

    /// Forgets the losses of former halves, if that was not done in this half.
    fn turn(&self) {
        let Self { link, half, .. } = self;
        let (window, held) = (modulo(*half), link.windows.done());
        if held != window {
            link.windows.turn(window, || {
                link.clear(window);
                if window.wrapping_sub(held) > 1 {
                    link.clear(window.wrapping_add(1));
                }
            });
        }
    }

    /// Counts the outcome of a flow's probe. An extra one is not among those that use the flows in
    /// turn.
    pub(super) fn outcome(&self, flow: u8, is_lost: bool, is_extra: bool) {
        let link = self.link;
        let in_turn = link.in_turn.load(Ordering::Relaxed);
        let [newer, _] = link.flow_halves();
        if in_turn >= HALF_PROBES && !is_extra {
            link.newer.store(1 - link.newer.load(Ordering::Relaxed).min(1), Ordering::Relaxed);
            self.begin_half();
        } else if is_lost && newer.iter().all(|counts| counts.lost.load(Ordering::Relaxed) == 0) {
            // What was before the first loss is no comparison for what comes after it.
            self.begin_half();
        }
        if !is_extra {
            link.in_turn.store(link.in_turn.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            link.may_probe.store(1, Ordering::Relaxed);
        }
        let [newer, _] = link.flow_halves();
        if let Some(counts) = newer.get(usize::from(flow)) {
            let (probes, lost) = (counts.probes.load(Ordering::Relaxed), counts.lost.load(Ordering::Relaxed));
            // Both stop together, so that their ratio stays right.
            if let Some(probes) = probes.checked_add(1) {
                counts.probes.store(probes, Ordering::Relaxed);
                counts.lost.store(lost + u8::from(is_lost), Ordering::Relaxed);
            }
        }
        self.count_answers(flow, is_lost);
    }

    /// Counts the answers of the flows that lose, or may lose, since their last loss.
    fn count_answers(&self, flow: u8, is_lost: bool) {
        let suspected = self.flows().suspected();
        let is_suspected = suspected.get(usize::from(flow)) == Some(&true);
        if is_lost && (is_suspected || !suspected.contains(&true)) {
            self.link.answered.store(0, Ordering::Relaxed);
            self.link.last_lost.store(self.second, Ordering::Relaxed);
        } else if !is_lost && is_suspected {
            let answered = self.link.answered.load(Ordering::Relaxed);
            self.link.answered.store(answered.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// Returns how many probes of the flows that lose, or may lose, were answered since the last
    /// loss of any of them, and the seconds since that was known. Both are at most 255, and 0 if
    /// none was answered since.
    pub fn answered(&self) -> (u8, u8) {
        let answered = self.link.answered.load(Ordering::Relaxed);
        let seconds = self.second.wrapping_sub(self.link.last_lost.load(Ordering::Relaxed));
        if answered > 0 { (answered, seconds.max(1)) } else { (0, 0) }
    }

    /// Empties the newer half of the counts of flows, and forgets the directions of losses that are
    /// in neither half.
    fn begin_half(&self) {
        let [newer, _] = self.link.flow_halves();
        for counts in newer {
            counts.probes.store(0, Ordering::Relaxed);
            counts.lost.store(0, Ordering::Relaxed);
        }
        self.link.in_turn.store(0, Ordering::Relaxed);
        let is_gone = |(_, flow): &(u32, FlowReading)| flow.lost == 0;
        let gone = (0..).zip(self.flows().readings()).filter(is_gone).fold(0, |gone, (flow, _)| gone | 3 << (2 * flow));
        let ways = &self.link.flow_ways;
        ways.store(ways.load(Ordering::Relaxed) & !gone, Ordering::Relaxed);
    }

    /// Returns the flow to send an extra probe over, if there is one: [`RecentFlows::suspect`].
    /// Only the probe thread calls it. There is at most one for each probe that uses the flows in
    /// turn.
    pub fn take_suspect(&self) -> Option<u8> {
        if self.link.may_probe.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let suspect = self.flows().suspect()?;
        self.link.may_probe.store(0, Ordering::Relaxed);
        Some(suspect)
    }

    /// Notes in which direction the last loss of a flow was.
    pub(super) fn way(&self, flow: u8, way: FlowWay) {
        let (ways, shift) = (&self.link.flow_ways, 2 * u32::from(flow % FLOWS_MAX));
        ways.store(ways.load(Ordering::Relaxed) & !(3 << shift) | (way as u32) << shift, Ordering::Relaxed);
    }

    /// Takes the delays of a request and of its answer, in nanoseconds between two clocks, which
    /// are so far `apart` at most. `None` if that is not known.
    pub(super) fn one_way(&self, delays: [i64; 2], apart: Option<Nanos>) {
        for ((variation, mean), delay) in self.link.variations.iter().zip(&self.link.delays).zip(delays) {
            variation.observe(delay);
            mean.observe(delay, apart);
        }
    }

    /// Returns the mean delays of the last probes on the way there and on the way back. `None` for
    /// one of which the clocks of the two nodes are no measure.
    pub fn delays(&self) -> [Option<Nanos>; 2] {
        self.link.delays.each_ref().map(Delay::read)
    }

    /// Returns how much the delays of consecutive probes differ on average (RFC 3550, section
    /// 6.4.1): on the way there and on the way back. `None` before the first answer.
    pub fn delay_variation(&self) -> Option<[Nanos; 2]> {
        let [there, back] = &self.link.variations;
        there.read().zip(back.read()).map(|(there, back)| [there, back])
    }

    pub(super) fn set_hops(&self, hops: u8) {
        self.link.hops.store(hops, Ordering::Relaxed);
    }

    /// Notes how many requests of this peer were answered in the recent window. Called in each
    /// half, also while no loss is counted, so the number of the half never wraps around.
    pub fn set_heard(&self, requests: u32) {
        self.turn();
        let stored = u16::try_from(requests).unwrap_or(u16::MAX).saturating_add(1);
        self.link.heard.store(stored, Ordering::Relaxed);
    }

    /// Returns how many requests of this peer were answered in the recent window. `None` if it is
    /// not known.
    pub fn heard(&self) -> Option<u32> {
        self.link.heard.load(Ordering::Relaxed).checked_sub(1).map(u32::from)
    }

    /// Notes what is known of the largest packets.
    pub fn set_mtu(&self, mtu: MtuReading) {
        let (state, bytes) = match mtu {
            MtuReading::Unknown => (0, 0),
            MtuReading::Full { bytes } => (1, bytes),
            MtuReading::Hole { passes, is_said } => (2 + u8::from(is_said), passes),
        };
        self.link.path_mtu.store(bytes, Ordering::Relaxed);
        self.link.mtu_state.store(state, Ordering::Relaxed);
    }

    /// Returns what is known of the largest packets.
    pub fn mtu(&self) -> MtuReading {
        let passes = self.link.path_mtu.load(Ordering::Relaxed);
        match self.link.mtu_state.load(Ordering::Relaxed) {
            0 => MtuReading::Unknown,
            1 => MtuReading::Full { bytes: passes },
            state => MtuReading::Hole { passes, is_said: state == 3 },
        }
    }

    /// Returns the number of hops from the peer to us, by its last answer: 1 without a router
    /// between. `None` if it is not known.
    pub fn hops(&self) -> Option<u8> {
        Some(self.link.hops.load(Ordering::Relaxed)).filter(|hops| *hops > 0)
    }

    /// Reads the losses of the recent window whose direction is known.
    pub fn ways(&self) -> WaysReading {
        let Self { link, half, .. } = self;
        let (window, held) = (modulo(*half), link.windows.done());
        let halves: &[u16] = match window.wrapping_sub(held) {
            0 => &[held, held.wrapping_sub(1)],
            1 => &[held],
            _ => &[],
        };
        let sum = |way: usize| halves.iter().map(|of| u32::from(link.half(*of)[way].load(Ordering::Relaxed))).sum();
        WaysReading { lost_there: sum(0), lost_back: sum(1) }
    }

    /// Returns the counts of the flows.
    pub fn flows(&self) -> RecentFlows {
        let read = |counts: &FlowCounts| {
            let lost = counts.lost.load(Ordering::Relaxed).into();
            // A reader may meet the writer between its two numbers.
            FlowReading { probes: u32::from(counts.probes.load(Ordering::Relaxed)).max(lost), lost }
        };
        RecentFlows::new(self.link.flow_halves().map(|half| half.each_ref().map(read)))
    }

    /// Returns the direction of the last loss of each flow.
    pub fn flow_ways(&self) -> [FlowWay; FLOWS] {
        let ways = self.link.flow_ways.load(Ordering::Relaxed);
        std::array::from_fn(|flow| match ways >> (2 * flow) & 3 {
            1 => FlowWay::Out,
            2 => FlowWay::Back,
            _ => FlowWay::Unknown,
        })
    }

    /// Whether a flow loses while the others do not, for each flow.
    pub fn losing(&self) -> [bool; FLOWS] {
        self.flows().losing()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: SlotId = SlotId(3);

    /// Returns the numbers in the half that has begun at `at`.
    fn at(links: &UdpSlots, halves: &Halves, at: u64, does: impl FnOnce(UdpLinks<'_>)) {
        while let Some(turn) = halves.due(Nanos(at * 1_000_000_000)) {
            halves.turn(turn);
        }
        does(links.get(SLOT, halves).expect("a slot"));
    }

    #[test]
    fn directions_count_in_the_recent_window_and_then_no_more() {
        let (links, halves) = (UdpSlots::new(), Halves::new(Nanos::from_millis(1_000)));
        let ways = |there, back| WaysReading { lost_there: there, lost_back: back };
        at(&links, &halves, 1, |link| {
            assert_eq!(link.ways(), ways(0, 0));
            link.lost(2, 1);
        });
        at(&links, &halves, 32, |link| {
            assert_eq!(link.ways(), ways(2, 1), "no event in this half yet");
            link.lost(0, 4);
            assert_eq!(link.ways(), ways(2, 5));
        });
        at(&links, &halves, 62, |link| assert_eq!(link.ways(), ways(0, 4)));
        at(&links, &halves, 92, |link| {
            assert_eq!(link.ways(), ways(0, 0));
            link.lost(0, 1_000);
            assert_eq!(link.ways(), ways(0, 255), "as many as a half counts");
        });
        at(&links, &halves, 300, |link| {
            assert_eq!(link.ways(), ways(0, 0));
            link.lost(1, 0);
            assert_eq!(link.ways(), ways(1, 0), "what is older than both halves is gone");
        });
    }

    #[test]
    fn what_is_known_of_a_link_is_read_back_and_gone_with_its_peer() {
        let (links, halves) = (UdpSlots::new(), Halves::new(Nanos::from_millis(1_000)));
        at(&links, &halves, 1, |link| {
            assert_eq!((link.hops(), link.mtu(), link.heard()), (None, MtuReading::Unknown, None));
            for mtu in [
                MtuReading::Full { bytes: 1_450 },
                MtuReading::Hole { passes: 1_300, is_said: false },
                MtuReading::Hole { passes: 1_400, is_said: true },
            ] {
                link.set_mtu(mtu);
                assert_eq!(link.mtu(), mtu);
            }
            for hops in [1, 3, 255] {
                link.set_hops(hops);
                assert_eq!(link.hops(), Some(hops));
            }
            for heard in [0, 59, 65_000] {
                link.set_heard(heard);
                assert_eq!(link.heard(), Some(heard));
            }
            (0..30).for_each(|_| link.outcome(4, false, false));
            (0..30).for_each(|_| link.outcome(5, true, true));
            link.way(5, FlowWay::Back);
            link.way(15, FlowWay::Out);
            assert_eq!(link.flows().readings()[5], FlowReading { probes: 30, lost: 30 });
            assert_eq!([4, 5, 15].map(|flow| link.flow_ways()[flow]), [FlowWay::Unknown, FlowWay::Back, FlowWay::Out]);
        });
        links.reset(SLOT);
        at(&links, &halves, 2, |link| {
            assert_eq!((link.hops(), link.mtu(), link.heard()), (None, MtuReading::Unknown, None));
            assert_eq!(link.flows().readings()[5], FlowReading::default());
            assert_eq!(link.flow_ways()[5], FlowWay::Unknown);
        });
    }

    #[test]
    fn the_direction_of_a_flow_is_forgotten_with_its_losses() {
        let (links, halves) = (UdpSlots::new(), Halves::new(Nanos::from_millis(1_000)));
        at(&links, &halves, 1, |link| {
            let in_turn = |probes: u8| (0..probes).for_each(|probe| link.outcome(probe % 16, false, false));
            link.outcome(5, true, false);
            link.way(5, FlowWay::Back);
            in_turn(HALF_PROBES);
            assert_eq!((link.flow_ways()[5], link.flows().readings()[5].lost), (FlowWay::Back, 1), "in the older half");
            in_turn(HALF_PROBES);
            assert_eq!((link.flow_ways()[5], link.flows().readings()[5].lost), (FlowWay::Unknown, 0));
        });
    }

    #[test]
    fn an_extra_probe_needs_a_probe_in_turn() {
        let (links, halves) = (UdpSlots::new(), Halves::new(Nanos::from_millis(1_000)));
        at(&links, &halves, 1, |link| {
            (0..20).for_each(|flow| link.outcome(flow % 16, false, false));
            assert_eq!(link.take_suspect(), None, "nothing is lost");
            link.outcome(4, true, false);
            assert_eq!((link.take_suspect(), link.take_suspect()), (Some(4), None));
            link.outcome(4, true, true);
            assert_eq!(link.take_suspect(), None, "an extra probe allows no other one");
            link.outcome(5, false, false);
            assert_eq!(link.take_suspect(), Some(4));
        });
    }

    #[test]
    fn the_counts_of_a_flow_stop_together() {
        let (links, halves) = (UdpSlots::new(), Halves::new(Nanos::from_millis(1_000)));
        at(&links, &halves, 1, |link| {
            (0..400).for_each(|probe| link.outcome(9, probe % 2 == 0, true));
            assert_eq!(link.flows().readings()[9], FlowReading { probes: 255, lost: 128 });
        });
    }

    #[test]
    fn a_slot_takes_112_bytes() {
        assert_eq!(size_of::<UdpNumbers>(), 112);
    }
}
