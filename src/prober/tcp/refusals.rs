//! The refused handshakes of each slot whose loss is not decided yet.
//!
//! A loss is decided later than its refusal is known, after a timeout and perhaps a doubt, and may
//! also be withdrawn. So the refusal waits for the decision: of every peer, no more handshakes
//! count as refused than as lost. A doubt ends before the next handshake, so usually one of a
//! peer is open at a time.

use kube_canary_kernel::region::Table;

use crate::limits::PEER_SLOTS_MAX;
use crate::peers::{Compaction, SlotId};

/// The open refusals: a byte for each slot, on pages that are resident once a slot on them had one.
#[derive(Debug)]
pub struct OpenRefusals {
    counts: Table<u8>,
    /// Number of refusals of all slots together.
    open: usize,
}

impl OpenRefusals {
    /// Makes a table without refusals.
    pub fn new() -> Self {
        Self { counts: Table::new(PEER_SLOTS_MAX), open: 0 }
    }

    /// Notes that a handshake of this slot was refused.
    pub fn note(&mut self, slot: SlotId) {
        if let Some(count) = self.counts.get_mut(slot.index())
            && *count < u8::MAX
        {
            *count += 1;
            self.open += 1;
        }
    }

    /// Removes a refusal of this slot. Returns whether there was one.
    pub fn take(&mut self, slot: SlotId) -> bool {
        let taken = self.count(slot) > 0;
        self.remove(slot, u8::from(taken));
        taken
    }

    /// Removes all refusals of this slot.
    pub fn clear(&mut self, slot: SlotId) {
        self.remove(slot, self.count(slot));
    }

    /// Moves the refusals as their peers move.
    pub fn compact(&mut self, compaction: &Compaction) {
        if self.open == 0 {
            return;
        }
        for (from, to) in compaction.moves() {
            // A hole's former holder may have left some.
            self.clear(to);
            self.counts.swap(from.index(), to.index());
        }
        (compaction.slots()..self.counts.len()).for_each(|index| self.clear(SlotId::at(index)));
    }

    /// Returns the resident memory, in bytes of whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.counts.resident_bytes()
    }

    fn count(&self, slot: SlotId) -> u8 {
        // No page is touched as long as nothing was refused.
        if self.open == 0 { 0 } else { self.counts.get(slot.index()).copied().unwrap_or(0) }
    }

    fn remove(&mut self, slot: SlotId, some: u8) {
        if some > 0
            && let Some(count) = self.counts.get_mut(slot.index())
        {
            *count -= some;
            self.open -= usize::from(some);
        }
    }
}
