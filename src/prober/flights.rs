//! Probes in flight and recently finished: 8 bytes each, in one ring over all peers.
//!
//! Probes are numbered over all peers, and the timeout is the same for all. So they expire in the
//! order of sending, and one ring with one cursor decides every loss in O(1). What the ring
//! remembers after that separates a late reply from a duplicate.

use kube_canary_kernel::region::Table;
use zerocopy::FromZeros;

use super::datagrams::STANDSTILL;
use crate::limits::{DWELL_MAX, INTERVAL_MAX, PEER_SLOTS_MAX};
use crate::peers::SlotId;
use crate::units::Nanos;

/// State of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// No packet was sent under this number.
    Void,
    /// The probe was neither answered nor timed out.
    Waiting,
    /// The probe was answered.
    Answered,
    /// The probe was not answered in time.
    Lost,
    /// The probe was not answered, but does not count as lost. A late answer is ignored.
    GivenUp,
    /// The probe was not answered in time, but its loss is in doubt and not counted yet.
    Withheld,
    /// The probe is an extra one of a flow, and was neither answered nor timed out. It counts
    /// neither as sent nor as received nor as lost.
    Extra,
    /// The probe was neither answered nor timed out, and counts only if it is answered. Its peer
    /// had not answered at its address when it was sent.
    Excused,
}

impl State {
    /// Whether the probe is in flight.
    pub const fn is_waiting(self) -> bool {
        matches!(self, Self::Waiting | Self::Extra | Self::Excused)
    }
}

/// Which peer held a slot when a probe was sent, and how often that peer had moved. One bit
/// identifies the slot's holder; the other bits count moves.
///
/// The number repeats after 16 moves or two holders. No probe is in flight for this long. Lists
/// arrive at least 100 ms apart. A slot gets another peer only after its holder is forgotten, which
/// is at the earliest a timeout and some slack after it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u8);

impl Generation {
    const HOLDER: u8 = 1 << 4;

    /// Returns the first generation of a slot.
    pub const fn first() -> Self {
        Self(0)
    }

    /// Returns the next generation: the peer moved, left, or began to terminate.
    #[must_use]
    pub const fn moved(self) -> Self {
        Self(self.0 & Self::HOLDER | (self.0 + 1) & (Self::HOLDER - 1))
    }

    /// Returns the generation after another peer got the slot.
    #[must_use]
    pub const fn replaced(self) -> Self {
        Self(self.0 ^ Self::HOLDER)
    }

    /// Whether both generations are of the same holder of the slot.
    pub const fn same_holder(self, other: Self) -> bool {
        (self.0 ^ other.0) & Self::HOLDER == 0
    }
}

/// One probe, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// Slot of the probe's peer.
    pub slot: SlotId,
    /// Generation of the peer when the probe was sent.
    pub generation: Generation,
    /// State of the probe.
    pub state: State,
    /// Whether the peer was terminating when the probe was sent. Such a probe is never in `sent`.
    pub terminating: bool,
    /// Whether the kernel reported when the probe left.
    pub stamped: bool,
    /// Whether the kernel reported it, but a step of the clock leaves two possible times.
    pub doubtful: bool,
}

impl Flight {
    /// Whether the probe is not in `sent` when it leaves.
    pub const fn is_uncounted(self) -> bool {
        self.terminating || matches!(self.state, State::Extra | State::Excused)
    }
}

/// A flight in 64 bits, from the lowest: 39 bits time of sending, 14 slot, 5 generation, 3 state,
/// and one each for terminating, stamped and doubtful.
#[derive(Clone, Copy, Debug, Default, FromZeros)]
struct Packed(u64);

/// What a prober adds to a probe: 4 bytes. The engine only keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
pub struct Tag(pub u32);

const TIME_BITS: u32 = 39;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
const SLOT_MASK: u64 = (1 << 14) - 1;
const _: () = assert!(PEER_SLOTS_MAX as u64 <= SLOT_MASK + 1);
/// How far a time of sending can be ahead of the last probe's recorded time: the kernel's timestamp
/// is later than ours.
const AHEAD: u64 = 1 << 37;
const _: () = assert!(
    INTERVAL_MAX.as_nanos() + DWELL_MAX.as_nanos() + (STANDSTILL.0 as u128) < (TIME_MASK - AHEAD) as u128,
    "a probe is remembered for its timeout, for a wait at its peer, and until it is looked at"
);

impl Packed {
    fn new(flight: Flight, sent_at: Nanos) -> Self {
        let Flight { slot, generation, state, terminating, stamped, doubtful } = flight;
        let fields = u64::from(slot.0) & SLOT_MASK
            | u64::from(generation.0) << 14
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
            6 => State::Extra,
            7 => State::Excused,
            _ => State::Void,
        };
        let (slot, generation) = (SlotId((fields & SLOT_MASK) as u32), Generation((fields >> 14 & 0x1f) as u8));
        let flag = |bit: u32| fields >> bit & 1 == 1;
        Flight { slot, generation, state, terminating: flag(22), stamped: flag(23), doubtful: flag(24) }
    }
}

/// The ring of flights, owned by the engine. A place belongs to the probe with its number until
/// `capacity` later probes are recorded.
#[derive(Debug)]
pub struct Flights {
    ring: Table<Packed>,
    /// By the same places; `None` if probes have no tags.
    tags: Option<Table<Tag>>,
    /// Number of the next probe.
    next: u64,
    /// All probes before this number were answered or counted as lost.
    expired: u64,
    /// When the last probe was recorded.
    latest: Nanos,
}

impl Flights {
    /// Makes a ring for `capacity` probes, which may have tags.
    pub fn new(capacity: usize, tagged: bool) -> Self {
        let tags = tagged.then(|| Table::new(capacity));
        Self { ring: Table::new(capacity), tags, next: 0, expired: 0, latest: Nanos(0) }
    }

    /// Returns the number of probes that can be in flight or remembered.
    pub fn capacity(&self) -> usize {
        self.ring.len()
    }

    /// Returns the resident memory, in bytes of whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.ring.resident_bytes() + self.tags.as_ref().map_or(0, Table::resident_bytes)
    }

    /// Returns the number of the next probe.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Returns the oldest number that is remembered.
    pub fn oldest(&self) -> u64 {
        self.next.saturating_sub(self.ring.len() as u64)
    }

    /// Resizes the ring to `capacity` probes, or to more if more are in flight: none
    /// of these is dropped.
    pub fn resize(&mut self, capacity: usize) {
        let in_flight = self.oldest_waiting().map_or(0, |oldest| self.next - oldest);
        let capacity = capacity.max(usize::try_from(in_flight).unwrap_or(usize::MAX));
        if capacity == self.ring.len() {
            return;
        }
        let empty = Self::new(capacity, self.tags.is_some());
        let mut other = Self { next: self.next, expired: self.expired, latest: self.latest, ..empty };
        for number in self.oldest().max(other.oldest())..self.next {
            let (from, to) = (self.index(number), other.index(number));
            other.ring[to] = self.ring[from];
            other.set_tag(number, self.tag(number));
        }
        other.expired = other.expired.max(other.oldest());
        *self = other;
    }

    /// Gives every flight its peer's new slot. A flight without a new slot becomes
    /// [`State::GivenUp`]. Returns how many of these the ring must remember, because they lie
    /// behind the oldest probe in flight: this much more room it needs until that one has ended.
    pub fn relabel(&mut self, now: impl Fn(Flight) -> Option<SlotId>) -> usize {
        let waiting = self.oldest_waiting();
        let mut given_up = 0;
        for number in self.oldest()..self.next {
            let (index, flight) = (self.index(number), self.get(number));
            let flight = if let Some(slot) = now(flight) {
                Flight { slot, ..flight }
            } else {
                given_up += usize::from(waiting.is_some_and(|oldest| number >= oldest));
                Flight { slot: SlotId(0), state: State::GivenUp, ..flight }
            };
            self.ring[index] = Packed::new(flight, Nanos(self.ring[index].0));
        }
        given_up
    }

    fn index(&self, number: u64) -> usize {
        usize::try_from(number % self.ring.len() as u64).unwrap_or_default()
    }

    /// Returns the probe with this number, which the ring must remember.
    pub fn get(&self, number: u64) -> Flight {
        self.ring[self.index(number)].flight()
    }

    /// Returns the tag of the probe with this number, which the ring must remember.
    pub fn tag(&self, number: u64) -> Tag {
        self.tags.as_ref().map_or(Tag(0), |tags| tags[self.index(number)])
    }

    /// Sets the tag of the probe, if probes have tags.
    pub fn set_tag(&mut self, number: u64, tag: Tag) {
        let index = self.index(number);
        if let Some(tags) = &mut self.tags {
            tags[index] = tag;
        }
    }

    /// Returns when the probe was sent, as far as known.
    pub fn sent_at(&self, number: u64) -> Nanos {
        // The ring keeps the low bits of the time. No probe in it was sent much later than the
        // last one was recorded.
        let end = self.latest.0.wrapping_add(AHEAD);
        Nanos(end.wrapping_sub(end.wrapping_sub(self.ring[self.index(number)].0) & TIME_MASK))
    }

    /// Records the next probe. `None` if its place is taken by a probe in flight.
    pub fn record(&mut self, flight: Flight, now: Nanos) -> Option<u64> {
        let number = self.next;
        let index = self.index(number);
        if self.ring[index].flight().state.is_waiting() {
            return None;
        }
        self.latest = self.latest.max(now);
        self.ring[index] = Packed::new(flight, now);
        self.next += 1;
        // After a wrap-around, nothing before the oldest entry is left to expire.
        self.expired = self.expired.max(self.oldest());
        Some(number)
    }

    /// Sets the time of sending, if it differs from the recorded time.
    pub fn stamp(&mut self, number: u64, at: Nanos) {
        let index = self.index(number);
        self.ring[index] = Packed::new(self.ring[index].flight(), at);
    }

    /// Sets the time at which the probe left according to the kernel, or one of two possible times.
    pub fn departed(&mut self, number: u64, at: Nanos, doubtful: bool) {
        let index = self.index(number);
        let flight = Flight { stamped: !doubtful, doubtful, ..self.ring[index].flight() };
        self.ring[index] = Packed::new(flight, at);
    }

    /// Sets the state of the probe.
    pub fn set(&mut self, number: u64, state: State) {
        let (index, sent_at) = (self.index(number), self.sent_at(number));
        self.ring[index] = Packed::new(Flight { state, ..self.ring[index].flight() }, sent_at);
    }

    /// Sets the state of the withheld probes of `slot` after a doubt is decided. The first and the
    /// last of them are given. There is usually only one, and then this is no walk.
    pub fn settle(&mut self, slot: SlotId, (first, last): (u64, u64), state: State) {
        for number in first.max(self.oldest())..=last {
            let flight = self.get(number);
            if flight.state == State::Withheld && flight.slot == slot {
                self.set(number, state);
            }
        }
    }

    /// Returns the oldest probe in flight. Finished probes before it are skipped for good.
    pub fn oldest_waiting(&mut self) -> Option<u64> {
        while self.expired < self.next {
            if self.get(self.expired).state.is_waiting() {
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
        generation: Generation(0x1f),
        state: State::Waiting,
        terminating: true,
        stamped: false,
        doubtful: false,
    };

    #[test]
    fn a_flight_is_eight_bytes_and_loses_nothing() {
        assert_eq!(size_of::<Packed>(), 8);
        let ended = [State::Answered, State::Lost, State::GivenUp, State::Withheld, State::Extra, State::Excused];
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
        let mut flights = Flights::new(4, false);
        for start in [0, TIME_MASK - 5, TIME_MASK, 3 * TIME_MASK + 17, 1 << 60] {
            let sent = Nanos(start + 1_000);
            let number = flights.record(FLIGHT, sent).unwrap();
            assert_eq!(flights.sent_at(number), sent);
            flights.departed(number, sent.plus(Nanos(123_456_789)), false);
            assert!(flights.get(number).stamped && flights.get(number).slot == FLIGHT.slot);
            // As long after as a probe can be in flight.
            let later = sent.plus(INTERVAL_MAX.into());
            flights.record(Flight { state: State::Void, ..FLIGHT }, later).unwrap();
            assert_eq!(flights.sent_at(number), sent.plus(Nanos(123_456_789)));
            flights.set(number, State::Answered);
        }
    }

    #[test]
    fn tags_stay_with_their_probes() {
        let mut flights = Flights::new(2, true);
        let numbers: Vec<u64> = (0..2).map(|i| flights.record(FLIGHT, Nanos(i)).unwrap()).collect();
        for (number, tag) in numbers.iter().zip(7..) {
            flights.set_tag(*number, Tag(tag));
        }
        flights.resize(5);
        flights.record(FLIGHT, Nanos(9)).unwrap();
        assert_eq!(numbers.iter().map(|number| flights.tag(*number)).collect::<Vec<_>>(), [Tag(7), Tag(8)]);
        let mut untagged = Flights::new(2, false);
        untagged.set_tag(0, Tag(1));
        assert_eq!(untagged.tag(0), Tag(0));
    }

    #[test]
    fn a_generation_differs_from_the_ones_before() {
        let first = Generation::first();
        let mut generation = first;
        for _ in 0..15 {
            generation = generation.moved();
            assert!(generation != first && generation.same_holder(first));
        }
        assert!(!generation.replaced().same_holder(first) && generation.replaced().replaced() == generation);
    }
}
