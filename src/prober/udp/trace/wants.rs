//! Links and flows that should be traced, and which of them is first.

use crate::peers::{Compaction, SlotId};
use crate::prober::udp::Flow;
use crate::units::Nanos;

/// Requests that wait at once. If all places are taken, the least urgent one is dropped.
const WANTS_MAX: usize = 16;
/// A request that is not repeated for so long is dropped, because its reason may be gone.
const KEPT: Nanos = Nanos::from_millis(60_000);

/// Why a path is traced. The later ones are more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The baseline is an hour old.
    Hourly,
    /// A command asks for it.
    Requested,
    /// The flow or the link loses.
    Losing {
        /// Share of probes lost, in percent. The worst is traced first.
        percent: u8,
        /// Whether they are known to be lost on the way to the destination. Otherwise the direction
        /// is not known: the path of a flow that loses on the way back is not worth a trace.
        is_outbound: bool,
    },
}

/// Asks for a trace: a request that names a flow of a slot, and says when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    pub slot: SlotId,
    pub flow: Flow,
    pub reason: Reason,
    at: Nanos,
}

/// The requests, in no order.
#[derive(Debug, Default)]
pub struct Wants([Option<Want>; WANTS_MAX]);

impl Wants {
    /// Adds a request, or renews it.
    pub fn add(&mut self, slot: SlotId, flow: Flow, reason: Reason, now: Nanos) {
        let want = Want { slot, flow, reason, at: now };
        self.drop_old(now);
        let same = self.0.iter().position(|place| place.is_some_and(|it| it.slot == slot && it.flow == flow));
        let free = || self.0.iter().position(Option::is_none);
        let least = || {
            let places = self.0.iter().enumerate().filter_map(|(index, place)| Some((index, (*place)?.reason)));
            places.min_by_key(|(_, least)| *least).filter(|(_, least)| *least < reason).map(|(index, _)| index)
        };
        if let Some(place) = same.or_else(free).or_else(least).and_then(|index| self.0.get_mut(index)) {
            *place = Some(want);
        }
    }

    fn drop_old(&mut self, now: Nanos) {
        for place in &mut self.0 {
            if place.is_some_and(|want| now.since(want.at) >= KEPT) {
                *place = None;
            }
        }
    }

    /// Returns whether there is any request.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Removes and returns the most urgent request. Those for which `rank` returns none stay.
    /// A higher rank is before a lower one, whatever the reasons are.
    pub fn take(&mut self, now: Nanos, rank: impl Fn(&Want) -> Option<u8>) -> Option<Want> {
        self.drop_old(now);
        let candidates = self.0.iter_mut().filter_map(|place| {
            let want = (*place)?;
            Some(((rank(&want)?, want.reason), place))
        });
        candidates.max_by_key(|(key, _)| *key).and_then(|(_, place)| place.take())
    }

    /// Drops the requests for a slot.
    pub fn forget(&mut self, slot: SlotId) {
        self.retain(|want| (want.slot != slot).then_some(want));
    }

    /// Moves slots as `compaction` says.
    pub fn compact(&mut self, compaction: &Compaction) {
        self.retain(|want| Some(Want { slot: compaction.now(want.slot)?, ..want }));
    }

    fn retain(&mut self, keep: impl Fn(Want) -> Option<Want>) {
        for place in &mut self.0 {
            *place = place.and_then(&keep);
        }
    }
}
