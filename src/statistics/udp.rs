//! What only UDP probes find out about a peer: which source ports (flows) lose, in which direction
//! packets are lost, how many hops the peer is away, and how large a packet may be.
//!
//! The probe thread writes. The numbers are small and independent of each other, so a reader may
//! see a newer one beside an older one. Only the direction of losses has windows, as the counts of
//! lost probes beside it ([`super::recent`]).

use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

use super::halves::Halves;
use super::modulo;
use super::turns::Turns;
use crate::limits::{FLOWS_MAX, PEER_SLOTS_MAX};
use crate::peers::{Compaction, SlotId};
use crate::sys::region::{Atomic, Table, Zero};

/// Number of probes of a flow whose outcomes are remembered.
const OUTCOMES: u32 = 8;
/// A flow is losing if it lost so many of its last eight probes, and its sisters lost clearly less.
const LOSING_MIN: u32 = 2;
/// A flow is losing only if its share of losses is so many times that of all its sisters together.
const LOSING_TIMES: u32 = 4;

/// One peer's numbers.
#[derive(Debug, Default)]
pub(super) struct Link {
    windows: Turns<AtomicU16>,
    /// Losses on the way there and on the way back, of the even and of the odd half.
    ways: [[AtomicU8; 2]; 2],
    /// One more than the number of hops; 0 if it is not known.
    hops: AtomicU8,
    /// [`MtuReading`] in its stored form.
    mtu_state: AtomicU8,
    path_mtu: AtomicU16,
    passes: AtomicU16,
    /// From the lowest bit: 8 bits of outcomes (1 is lost, the newest lowest), 4 bits of how many
    /// are known, 2 bits of the direction of the last loss.
    flows: [AtomicU16; FLOWS_MAX],
}

/// The numbers of all slots.
#[derive(Debug)]
pub(super) struct Links(Table<Link>);

#[expect(unsafe_code, reason = "the compiler cannot see of what a type is made")]
mod atomics {
    use super::{Atomic, Link, Zero};
    // SAFETY: atomic integers and arrays of them.
    unsafe impl Zero for Link {}
    // SAFETY: as above.
    unsafe impl Atomic for Link {}
}

/// The numbers of one slot.
#[derive(Clone, Copy, Debug)]
pub struct UdpLinks<'a> {
    link: &'a Link,
    half: u32,
}

/// The losses of the recent window whose direction the far agent's count has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaysReading {
    /// Number of requests that did not reach the peer.
    pub lost_there: u32,
    /// Number of answers that did not come back.
    pub lost_back: u32,
}

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
    /// Number of probes, at most 8.
    pub probes: u32,
    /// Number of them that were not answered.
    pub lost: u32,
    /// Direction of the last loss.
    pub way: FlowWay,
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

impl FlowReading {
    fn unpack(bits: u16) -> Self {
        let way = match bits >> 12 & 3 {
            1 => FlowWay::Out,
            2 => FlowWay::Back,
            _ => FlowWay::Unknown,
        };
        let probes = u32::from(bits >> 8 & 0xf);
        Self { probes, lost: (bits & 0xff).count_ones(), way }
    }

    fn add(bits: u16, is_lost: bool) -> u16 {
        let outcomes = bits << 1 & 0xff | u16::from(is_lost);
        let known = (bits >> 8 & 0xf).saturating_add(1).min(8);
        bits & 0x3000 | known << 8 | outcomes
    }
}

impl Links {
    pub(super) fn new() -> Self {
        Self(Table::new(PEER_SLOTS_MAX))
    }

    pub(super) fn get(&self, slot: SlotId, halves: &Halves) -> Option<UdpLinks<'_>> {
        Some(UdpLinks { link: self.0.get(slot.index())?, half: halves.current() })
    }

    /// Starts from zero for another peer.
    pub(super) fn reset(&self, slot: SlotId) {
        if let Some(link) = self.0.get(slot.index()) {
            link.copy(&Link::default());
        }
    }

    pub(super) fn compact(&self, compaction: &Compaction) {
        for (from, to) in compaction.moves() {
            if let (Some(from), Some(to)) = (self.0.get(from.index()), self.0.get(to.index())) {
                to.copy(from);
            }
        }
        self.0.give_back(compaction.slots());
    }
}

impl Link {
    fn copy(&self, other: &Self) {
        self.windows.turn(other.windows.done(), || {
            for (to, from) in self.ways.iter().flatten().zip(other.ways.iter().flatten()) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        });
        self.hops.store(other.hops.load(Ordering::Relaxed), Ordering::Relaxed);
        self.mtu_state.store(other.mtu_state.load(Ordering::Relaxed), Ordering::Relaxed);
        self.path_mtu.store(other.path_mtu.load(Ordering::Relaxed), Ordering::Relaxed);
        self.passes.store(other.passes.load(Ordering::Relaxed), Ordering::Relaxed);
        for (to, from) in self.flows.iter().zip(&other.flows) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn half(&self, window: u16) -> &[AtomicU8; 2] {
        &self.ways[usize::from(window % 2)]
    }

    fn clear(&self, window: u16) {
        self.half(window).iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

impl UdpLinks<'_> {
    /// Counts losses whose direction is known now.
    pub(super) fn lost(&self, there: u32, back: u32) {
        let Self { link, half } = self;
        let window = modulo(*half);
        let held = link.windows.done();
        if held != window {
            link.windows.turn(window, || {
                link.clear(window);
                if window.wrapping_sub(held) > 1 {
                    link.clear(window.wrapping_add(1));
                }
            });
        }
        for (count, more) in link.half(window).iter().zip([there, back]) {
            let sum = u32::from(count.load(Ordering::Relaxed)).saturating_add(more);
            count.store(u8::try_from(sum).unwrap_or(u8::MAX), Ordering::Relaxed);
        }
    }

    /// Notes the outcome of a flow's probe.
    pub(super) fn outcome(&self, flow: u8, is_lost: bool) {
        if let Some(bits) = self.link.flows.get(usize::from(flow)) {
            bits.store(FlowReading::add(bits.load(Ordering::Relaxed), is_lost), Ordering::Relaxed);
        }
    }

    /// Notes in which direction the last loss of a flow was.
    pub(super) fn way(&self, flow: u8, way: FlowWay) {
        if let Some(bits) = self.link.flows.get(usize::from(flow)) {
            bits.store(bits.load(Ordering::Relaxed) & !0x3000 | (way as u16) << 12, Ordering::Relaxed);
        }
    }

    pub(super) fn set_hops(&self, hops: u8) {
        self.link.hops.store(hops.saturating_add(1), Ordering::Relaxed);
    }

    /// Notes what is known of the largest packets.
    pub fn set_mtu(&self, mtu: MtuReading) {
        let (state, path, passes) = match mtu {
            MtuReading::Unknown => (0, 0, 0),
            MtuReading::Full { bytes } => (1, bytes, bytes),
            MtuReading::Hole { passes, is_said } => (2 + u8::from(is_said), passes, passes),
        };
        self.link.path_mtu.store(path, Ordering::Relaxed);
        self.link.passes.store(passes, Ordering::Relaxed);
        self.link.mtu_state.store(state, Ordering::Relaxed);
    }

    /// Returns what is known of the largest packets.
    pub fn mtu(&self) -> MtuReading {
        let passes = self.link.passes.load(Ordering::Relaxed);
        match self.link.mtu_state.load(Ordering::Relaxed) {
            0 => MtuReading::Unknown,
            1 => MtuReading::Full { bytes: passes },
            state => MtuReading::Hole { passes, is_said: state == 3 },
        }
    }

    /// Returns the number of routers between the peer and us, from its last answer. `None` if it is
    /// not known.
    pub fn hops(&self) -> Option<u8> {
        self.link.hops.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Reads the losses of the recent window whose direction is known.
    pub fn ways(&self) -> WaysReading {
        let Self { link, half } = self;
        let (window, held) = (modulo(*half), link.windows.done());
        let halves: &[u16] = match window.wrapping_sub(held) {
            0 => &[held, held.wrapping_sub(1)],
            1 => &[held],
            _ => &[],
        };
        let sum = |way: usize| halves.iter().map(|of| u32::from(link.half(*of)[way].load(Ordering::Relaxed))).sum();
        WaysReading { lost_there: sum(0), lost_back: sum(1) }
    }

    /// Returns the outcomes of each flow's last probes.
    pub fn flows(&self) -> [FlowReading; FLOWS_MAX] {
        self.link.flows.each_ref().map(|bits| FlowReading::unpack(bits.load(Ordering::Relaxed)))
    }

    /// Whether a flow loses while its sisters do not, for each flow.
    pub fn losing(&self) -> [bool; FLOWS_MAX] {
        losing(&self.flows())
    }
}

/// Whether a flow loses while its sisters do not, for each flow.
///
/// A link that loses alike on all flows has no losing flow. The sisters of a flow are all flows that
/// are not themselves suspect, so that four bad flows of sixteen are found as one is.
pub fn losing(flows: &[FlowReading; FLOWS_MAX]) -> [bool; FLOWS_MAX] {
    let is_suspect = |flow: &FlowReading| flow.lost >= LOSING_MIN;
    let sum = |flow: &FlowReading| (flow.lost, flow.probes);
    let good = flows.iter().filter(|flow| !is_suspect(flow)).map(sum);
    let (lost, probes) = good.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    let suspects = flows.iter().filter(|flow| is_suspect(flow)).count();
    let known = flows.iter().filter(|flow| flow.probes > 0).count();
    // With as many suspects as others, it is the link that loses.
    if suspects * 2 > known || probes < OUTCOMES {
        return [false; FLOWS_MAX];
    }
    flows.each_ref().map(|flow| is_suspect(flow) && flow.lost * probes > LOSING_TIMES * lost * flow.probes)
}
