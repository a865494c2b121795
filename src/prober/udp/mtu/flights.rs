//! The packets of all searches, in the order of sending, which is the order of their expiry.

use kube_canary_kernel::region::List;

use crate::peers::{Compaction, SlotId};
use crate::prober::Flow;
use crate::units::Nanos;

/// Packets that are remembered. Twice [`crate::limits::MTU_PROBES_PER_SECOND`] leave in a second,
/// large and small, and each waits for 5 s at most. The rest recognizes late answers.
const FLIGHTS: usize = 512;
const _: () = assert!(2 * crate::limits::MTU_PROBES_PER_SECOND * 8 <= FLIGHTS as u64);

/// How a packet has ended, or that it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is in flight.
    Waiting,
    /// It is lost. A late answer counts all the same.
    Lost,
    /// It was answered, or not sent, or its slot has gone.
    Closed,
}

/// A packet that was sent for a slot.
#[derive(Clone, Copy, Debug)]
pub struct MtuFlight {
    pub slot: SlotId,
    pub flow: Flow,
    pub fate: Fate,
    /// Whether it is a packet of a check. Its loss begins a search.
    pub checks: bool,
    pub size: u16,
    pub at: Nanos,
}

/// Keeps the packets in a ring.
#[derive(Debug)]
pub struct MtuFlights {
    ring: List<MtuFlight>,
    /// Number of packets sent so far.
    next: u64,
    /// Number of packets decided so far, which are the first.
    decided: u64,
}

impl MtuFlights {
    pub fn new() -> Self {
        Self { ring: List::reserved(FLIGHTS), next: 0, decided: 0 }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the remainder of a small number")]
    const fn place(number: u64) -> usize {
        (number % FLIGHTS as u64) as usize
    }

    /// Records a packet and returns its number on the wire. `None` if the ring is full.
    pub fn record(&mut self, flight: MtuFlight) -> Option<u32> {
        if self.next - self.decided >= FLIGHTS as u64 {
            return None;
        }
        let number = self.next;
        if let Some(place) = self.ring.get_mut(Self::place(number)) {
            *place = flight;
        } else if !self.ring.push(flight) {
            return None;
        }
        self.next += 1;
        u32::try_from(number & 0xffff_ffff).ok()
    }

    /// Returns the packet with this number on the wire, if it is remembered and not closed.
    pub fn get(&mut self, sequence: u32) -> Option<&mut MtuFlight> {
        let last = self.next.checked_sub(1)?;
        let back = last.wrapping_sub(sequence.into()) & 0xffff_ffff;
        let number = last.checked_sub(back)?;
        let flight = self.ring.get_mut(Self::place(number)).filter(|_| back < FLIGHTS as u64)?;
        (flight.fate != Fate::Closed).then_some(flight)
    }

    /// Returns the next packet that was sent before `before` and has no answer, which is lost.
    pub fn expire(&mut self, before: Nanos) -> Option<MtuFlight> {
        while self.decided < self.next {
            let flight = self.ring.get_mut(Self::place(self.decided))?;
            if flight.fate == Fate::Waiting && flight.at > before {
                return None;
            }
            self.decided += 1;
            if flight.fate == Fate::Waiting {
                flight.fate = Fate::Lost;
                return Some(*flight);
            }
        }
        None
    }

    /// Returns when the oldest packet in flight was sent, or one that is decided.
    pub fn oldest(&self) -> Option<Nanos> {
        (self.decided < self.next).then(|| self.ring.get(Self::place(self.decided)).map(|flight| flight.at))?
    }

    /// Gives packets the new slots of their peers, and closes those for which `now` has none.
    fn relabel(&mut self, now: impl Fn(SlotId) -> Option<SlotId>) {
        for flight in &mut *self.ring {
            match now(flight.slot) {
                Some(slot) if slot == flight.slot => {}
                // A packet carries the slot that it was sent for. Its answer would not be matched.
                _ => flight.fate = Fate::Closed,
            }
        }
    }

    /// Closes the packets of a slot.
    pub fn forget(&mut self, slot: SlotId) {
        self.relabel(|held| (held != slot).then_some(held));
    }

    /// Closes the packets of slots that move.
    pub fn compact(&mut self, compaction: &Compaction) {
        self.relabel(|slot| compaction.now(slot));
    }

    pub fn resident_bytes(&self) -> usize {
        self.ring.resident_bytes()
    }
}
