//! The probes under way and just finished: 8 bytes each, in one ring over all peers.
//!
//! Probes are numbered over all peers, and the timeout is the same for all, so the order of sending is the order of
//! expiry: one ring and one cursor decide every loss in O(1), and what the ring still remembers after that tells a late
//! reply from a duplicate.

use crate::limits::{INTERVAL_MAX, PEER_SLOTS_MAX, STANDSTILL};
use crate::peers::SlotId;
use crate::region::{Table, Zero};
use crate::units::Nanos;

/// What became of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Nothing was sent under this number.
    Void,
    /// Neither answered nor timed out.
    Waiting,
    /// Answered.
    Answered,
    /// Not answered in time.
    Lost,
    /// Unanswered, but not counted lost: a late answer counts as nothing.
    GivenUp,
    /// Not answered in time, and in doubt: not counted lost yet.
    Withheld,
}

/// Which stay of a peer at one address a probe was sent in: one bit for the slot's holder, the rest counts moves.
///
/// Comes round after 16 moves or two holders. No probe is under way for so long: lists come at least 100 ms apart, and a slot
/// is only given to somebody else when its holder is forgotten, a timeout and some slack after it left at the earliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay(u8);

impl Stay {
    const HOLDER: u8 = 1 << 4;

    /// The first one.
    pub const fn first() -> Self {
        Self(0)
    }

    /// The peer moved, left, or began to terminate.
    #[must_use]
    pub const fn moved(self) -> Self {
        Self(self.0 & Self::HOLDER | (self.0 + 1) & (Self::HOLDER - 1))
    }

    /// Somebody else holds the slot.
    #[must_use]
    pub const fn replaced(self) -> Self {
        Self(self.0 ^ Self::HOLDER)
    }

    /// Whether both are of one holder of the slot.
    pub const fn same_holder(self, other: Self) -> bool {
        (self.0 ^ other.0) & Self::HOLDER == 0
    }
}

/// One probe, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// For whom.
    pub slot: SlotId,
    /// In which of its stays.
    pub stay: Stay,
    /// What became of it.
    pub state: State,
    /// Sent to a peer that was terminating: never in `sent`.
    pub terminating: bool,
    /// The kernel told when it left.
    pub stamped: bool,
    /// The kernel told, but a step of the clock leaves two possible times.
    pub doubtful: bool,
}

/// A flight in 64 bits, from the lowest: time of sending 39, slot 14, stay 5, state 3, terminating, stamped, doubtful.
#[derive(Clone, Copy, Debug, Default)]
struct Packed(u64);

#[expect(unsafe_code, reason = "the compiler cannot see of what a type is made")]
// SAFETY: an integer.
unsafe impl Zero for Packed {}

const TIME_BITS: u32 = 39;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
const SLOT_MASK: u64 = (1 << 14) - 1;
const _: () = assert!(PEER_SLOTS_MAX as u64 <= SLOT_MASK + 1);
/// How far behind the last probe's booking a time of sending can be: the kernel's stamp comes later than ours.
const AHEAD: u64 = 1 << 37;
const _: () = assert!(
    INTERVAL_MAX.as_nanos() + STANDSTILL.as_nanos() < (TIME_MASK - AHEAD) as u128,
    "a probe is remembered for its timeout, and until it is looked at"
);

impl Packed {
    fn new(flight: Flight, sent_at: Nanos) -> Self {
        let Flight { slot, stay, state, terminating, stamped, doubtful } = flight;
        let fields = u64::from(slot.0) & SLOT_MASK
            | u64::from(stay.0) << 14
            | (state as u64) << 19
            | u64::from(terminating) << 22
            | u64::from(stamped) << 23
            | u64::from(doubtful) << 24;
        Self(sent_at.0 & TIME_MASK | fields << TIME_BITS)
    }

    fn flight(self) -> Flight {
        let fields = self.0 >> TIME_BITS;
        let state = match fields >> 19 & 7 {
            1 => State::Waiting,
            2 => State::Answered,
            3 => State::Lost,
            4 => State::GivenUp,
            5 => State::Withheld,
            _ => State::Void,
        };
        let (slot, stay) = (SlotId((fields & SLOT_MASK) as u32), Stay((fields >> 14 & 0x1f) as u8));
        let flag = |bit: u32| fields >> bit & 1 == 1;
        Flight { slot, stay, state, terminating: flag(22), stamped: flag(23), doubtful: flag(24) }
    }
}

/// The ring. The engine's own; a place belongs to the probe of its number until `capacity` later ones have been booked.
#[derive(Debug)]
pub struct Flights {
    ring: Table<Packed>,
    /// The number of the next probe.
    next: u64,
    /// Everything before has been answered or counted lost.
    expired: u64,
    /// When the last probe was booked.
    latest: Nanos,
}

impl Flights {
    /// A ring for `capacity` probes.
    pub fn new(capacity: usize) -> Self {
        Self { ring: Table::new(capacity), next: 0, expired: 0, latest: Nanos(0) }
    }

    /// Probes that can be under way or remembered.
    pub fn capacity(&self) -> usize {
        self.ring.len()
    }

    /// What they take in memory, in whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.ring.resident_bytes()
    }

    /// The number of the next probe.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// The oldest number that is remembered.
    pub fn oldest(&self) -> u64 {
        self.next.saturating_sub(self.ring.len() as u64)
    }

    /// Makes room for `capacity` probes, fewer where that is less than is under way: none of these is lost.
    pub fn resize(&mut self, capacity: usize) {
        let under_way = self.oldest_waiting().map_or(0, |oldest| self.next - oldest);
        let capacity = capacity.max(usize::try_from(under_way).unwrap_or(usize::MAX));
        if capacity == self.ring.len() {
            return;
        }
        let mut other = Self { next: self.next, expired: self.expired, latest: self.latest, ..Self::new(capacity) };
        for number in self.oldest().max(other.oldest())..self.next {
            let to = other.index(number);
            other.ring[to] = self.ring[self.index(number)];
        }
        other.expired = other.expired.max(other.oldest());
        *self = other;
    }

    /// Tells every flight its peer's new slot; given up where there is none.
    pub fn relabel(&mut self, now: impl Fn(Flight) -> Option<SlotId>) {
        for number in self.oldest()..self.next {
            let (index, flight) = (self.index(number), self.get(number));
            let flight = match now(flight) {
                Some(slot) => Flight { slot, ..flight },
                None => Flight { slot: SlotId(0), state: State::GivenUp, ..flight },
            };
            self.ring[index] = Packed::new(flight, Nanos(self.ring[index].0));
        }
    }

    fn index(&self, number: u64) -> usize {
        usize::try_from(number % self.ring.len() as u64).unwrap_or_default()
    }

    /// The probe of this number, which the ring remembers.
    pub fn get(&self, number: u64) -> Flight {
        self.ring[self.index(number)].flight()
    }

    /// When it was sent, as far as known.
    pub fn sent_at(&self, number: u64) -> Nanos {
        // The ring keeps the low bits of the time; no probe in it was sent much later than the last was booked.
        let end = self.latest.0.wrapping_add(AHEAD);
        Nanos(end.wrapping_sub(end.wrapping_sub(self.ring[self.index(number)].0) & TIME_MASK))
    }

    /// Books the next probe. None where its place is taken by one that is under way.
    pub fn book(&mut self, flight: Flight, now: Nanos) -> Option<u64> {
        let number = self.next;
        let index = self.index(number);
        if self.ring[index].flight().state == State::Waiting {
            return None;
        }
        self.latest = self.latest.max(now);
        self.ring[index] = Packed::new(flight, now);
        self.next += 1;
        // A ring that was lapped has nothing left to expire before its oldest entry.
        self.expired = self.expired.max(self.oldest());
        Some(number)
    }

    /// It was sent at another time than it was booked.
    pub fn stamp(&mut self, number: u64, at: Nanos) {
        let index = self.index(number);
        self.ring[index] = Packed::new(self.ring[index].flight(), at);
    }

    /// The kernel says when it left, or one of two times.
    pub fn departed(&mut self, number: u64, at: Nanos, doubtful: bool) {
        let index = self.index(number);
        let flight = Flight { stamped: !doubtful, doubtful, ..self.ring[index].flight() };
        self.ring[index] = Packed::new(flight, at);
    }

    /// Something became of it.
    pub fn set(&mut self, number: u64, state: State) {
        let (index, sent_at) = (self.index(number), self.sent_at(number));
        self.ring[index] = Packed::new(Flight { state, ..self.ring[index].flight() }, sent_at);
    }

    /// A doubt about `slot` is decided: what became of its withheld probes, of which these are the first and the last. Where
    /// there is but one, which is the rule, this is no walk.
    pub fn settle(&mut self, slot: SlotId, (first, last): (u64, u64), state: State) {
        for number in first.max(self.oldest())..=last {
            let flight = self.get(number);
            if flight.state == State::Withheld && flight.slot == slot {
                self.set(number, state);
            }
        }
    }

    /// The oldest probe under way; what is no longer under way before it is passed for good.
    pub fn oldest_waiting(&mut self) -> Option<u64> {
        while self.expired < self.next {
            if self.get(self.expired).state == State::Waiting {
                return Some(self.expired);
            }
            self.expired += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLIGHT: Flight = Flight {
        slot: SlotId(16_383),
        stay: Stay(0x1f),
        state: State::Waiting,
        terminating: true,
        stamped: false,
        doubtful: false,
    };

    #[test]
    fn a_flight_is_eight_bytes_and_loses_nothing() {
        assert_eq!(size_of::<Packed>(), 8);
        let ended = [State::Answered, State::Lost, State::GivenUp, State::Withheld];
        for state in [State::Void, State::Waiting].into_iter().chain(ended) {
            for flags in 0..8u8 {
                let [terminating, stamped, doubtful] = [0, 1, 2].map(|bit| flags >> bit & 1 == 1);
                let flight = Flight { state, terminating, stamped, doubtful, ..FLIGHT };
                assert_eq!(Packed::new(flight, Nanos(u64::MAX)).flight(), flight);
            }
        }
    }

    #[test]
    fn times_of_sending_are_kept_to_the_nanosecond_across_the_rounds_of_their_bits() {
        let mut flights = Flights::new(4);
        for start in [0, TIME_MASK - 5, TIME_MASK, 3 * TIME_MASK + 17, 1 << 60] {
            let sent = Nanos(start + 1_000);
            let number = flights.book(FLIGHT, sent).unwrap();
            assert_eq!(flights.sent_at(number), sent);
            flights.departed(number, sent.plus(Nanos(123_456_789)), false);
            assert!(flights.get(number).stamped && flights.get(number).slot == FLIGHT.slot);
            // As long after as a probe can be under way.
            let later = sent.plus(INTERVAL_MAX.into());
            flights.book(Flight { state: State::Void, ..FLIGHT }, later).unwrap();
            assert_eq!(flights.sent_at(number), sent.plus(Nanos(123_456_789)));
            flights.set(number, State::Answered);
        }
    }

    #[test]
    fn a_stay_is_told_from_the_ones_before() {
        let first = Stay::first();
        let mut stay = first;
        for _ in 0..15 {
            stay = stay.moved();
            assert!(stay != first && stay.same_holder(first));
        }
        assert!(!stay.replaced().same_holder(first) && stay.replaced().replaced() == stay);
    }
}
