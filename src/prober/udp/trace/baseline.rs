//! The last complete path of each slot, with which later traces are compared.

use std::net::{IpAddr, Ipv6Addr};

use super::path::{HOPS_MAX, Trace};
use crate::limits::BASELINES_MAX;
use crate::peers::{Compaction, SlotId};
use crate::prober::udp::Flow;
use crate::sys::region::List;
use crate::units::Nanos;

/// Age at which a baseline is traced again.
pub const REFRESH: Nanos = Nanos::from_millis(3_600_000);
/// Pause after a trace that did not reach its destination, which gives no baseline.
const RETRY: Nanos = Nanos::from_millis(600_000);

/// A complete path. 504 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Baseline {
    /// When it may be traced next. The default is at once.
    due: Nanos,
    flow: Flow,
    /// Number of hops with the destination. 0 if no path is known.
    len: u8,
    /// Whether the slot is probed.
    active: bool,
    /// One more than the number of hops that probes took last. 0 is not known.
    seen: u8,
    /// IPv4 addresses are mapped. [`Ipv6Addr::UNSPECIFIED`] is a silent hop.
    hops: [Ipv6Addr; HOPS_MAX],
}

const _: () = assert!(size_of::<Baseline>() <= 504);

const EMPTY: Baseline =
    Baseline { due: Nanos(0), flow: Flow(0), len: 0, active: false, seen: 0, hops: [Ipv6Addr::UNSPECIFIED; HOPS_MAX] };

impl Baseline {
    /// Returns the source port with which the path was traced.
    pub const fn flow(&self) -> Flow {
        self.flow
    }

    /// Returns the addresses of the hops, of which the last is the destination. `None` is a
    /// silent hop.
    pub fn hops(&self) -> impl ExactSizeIterator<Item = Option<IpAddr>> + use<'_> {
        let hops = self.hops.get(..self.len.into()).unwrap_or_default();
        hops.iter().map(|hop| (!hop.is_unspecified()).then(|| hop.to_canonical()))
    }

    /// Keeps a complete path. A hop that is silent now keeps its address if all others are as
    /// before, because routers limit their errors.
    fn replace(&mut self, trace: &Trace) {
        let hops = trace.hops();
        let unchanged = hops.len() == self.hops().len()
            && self.flow == trace.flow
            && hops
                .iter()
                .zip(self.hops())
                .all(|(now, then)| now.address.is_none() || then.is_none() || now.address == then);
        for (hop, now) in self.hops.iter_mut().zip(hops) {
            match now.address {
                Some(IpAddr::V4(v4)) => *hop = v4.to_ipv6_mapped(),
                Some(IpAddr::V6(v6)) => *hop = v6,
                None if unchanged => {}
                None => *hop = Ipv6Addr::UNSPECIFIED,
            }
        }
        self.len = u8::try_from(hops.len()).unwrap_or(0);
        self.flow = trace.flow;
    }
}

/// Keeps the baselines of the first [`BASELINES_MAX`] slots.
#[derive(Debug)]
pub struct Baselines {
    rows: List<Baseline>,
    /// The slot that is looked at next.
    cursor: usize,
}

impl Baselines {
    pub fn new() -> Self {
        Self { rows: List::new(BASELINES_MAX), cursor: 0 }
    }

    /// Makes room for `slots` slots.
    pub fn reserve(&mut self, slots: usize) {
        let slots = slots.min(BASELINES_MAX);
        if slots > self.rows.len() {
            self.rows.resize(slots, EMPTY);
        }
    }

    /// Returns the complete path of a slot; `None` if none is known.
    pub fn get(&self, slot: SlotId) -> Option<&Baseline> {
        self.rows.get(slot.index()).filter(|row| row.len > 0)
    }

    /// Sets whether a slot is probed.
    pub fn set_active(&mut self, slot: SlotId, active: bool) {
        if let Some(row) = self.rows.get_mut(slot.index()) {
            row.active = active;
        }
    }

    /// Forgets the path of a slot, whose peer is another or has another address.
    pub fn forget(&mut self, slot: SlotId) {
        if let Some(row) = self.rows.get_mut(slot.index()) {
            *row = Baseline { active: row.active, ..EMPTY };
        }
    }

    /// Notes how many hops the probes of a slot take. If the number has changed, the path is traced
    /// again, but not sooner than after [`RETRY`]: parallel paths may differ in length.
    pub fn saw_hops(&mut self, slot: SlotId, hops: u8, now: Nanos) {
        let Some(row) = self.rows.get_mut(slot.index()) else { return };
        let before = std::mem::replace(&mut row.seen, hops.saturating_add(1));
        if before != 0 && before != row.seen && row.due.since(now) > RETRY {
            row.due = Nanos(row.due.0.saturating_sub(REFRESH.0 - RETRY.0));
        }
    }

    /// Returns the next slot that needs a new baseline, and delays the one after that.
    pub fn take_due(&mut self, now: Nanos) -> Option<SlotId> {
        let rows = self.rows.len();
        for _ in 0..rows {
            let index = self.cursor % rows;
            self.cursor = index + 1;
            let row = self.rows.get_mut(index)?;
            if row.active && row.due <= now {
                row.due = now.plus(RETRY);
                return Some(SlotId::at(index));
            }
        }
        None
    }

    /// Keeps the path of a trace that has reached its destination.
    pub fn keep(&mut self, trace: &Trace, now: Nanos) {
        if let Some(row) = self.rows.get_mut(trace.slot.index())
            && trace.reached()
        {
            row.replace(trace);
            row.due = now.plus(REFRESH);
        }
    }

    /// Returns the resident bytes, in whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.rows.resident_bytes()
    }

    /// Moves the rows as `compaction` says.
    pub fn compact(&mut self, compaction: &Compaction) {
        for (from, to) in compaction.moves() {
            let row = self.rows.get(from.index()).copied().unwrap_or(EMPTY);
            // A slot that comes from behind the last row has no path yet, but it is probed.
            let row = if from.index() < self.rows.len() { row } else { Baseline { active: true, ..row } };
            if let Some(place) = self.rows.get_mut(to.index()) {
                *place = row;
            }
        }
        self.rows.resize(compaction.slots().min(self.rows.len()), EMPTY);
    }
}
