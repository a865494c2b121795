//! What became of each probe. No I/O, no clock of its own: time and packets are arguments.
//!
//! Probes are numbered over all peers. The timeout is the same for all, so the order of sending is the order of
//! expiry: one ring of flights and one cursor decide every loss in O(1), and what the ring still remembers after that
//! tells a late reply from a duplicate.

use std::net::IpAddr;

use super::packet::Label;
use super::{SendError, Stamp};
use crate::peers::{Change, SlotId};
use crate::units::Nanos;

/// What happened to a probe. `sent = received + lost + under way`, at any moment, for every slot; probes that fly
/// while their peer moves or leaves and are not answered are `Withdrawn`, and the next probe to that peer stands in
/// for them in `sent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It went out.
    Sent,
    /// Answered within the timeout.
    Received {
        /// The round-trip time.
        rtt: Nanos,
        /// A later probe of this peer was answered before (RFC 4737).
        reordered: bool,
        /// The ICMP sequence number.
        sequence: u16,
        /// Who took the times.
        stamp: Stamp,
    },
    /// Not answered within the timeout.
    Lost,
    /// Answered after it was counted lost.
    Late,
    /// Answered once more.
    Duplicate,
    /// A reply came back damaged; the probe is still under way.
    Corrupt,
    /// The kernel did not send it; not a loss.
    NotSent(SendError),
    /// To a peer on its way out, or that moved or left meanwhile: answered or not, neither sent nor lost.
    Terminating {
        /// Whether it was answered in time.
        answered: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was sent under this number.
    Void,
    Waiting,
    Answered,
    Lost,
    /// Unanswered, but not counted lost: a late answer counts as nothing.
    GivenUp,
}

/// What an intact reply of ours brings, in order; nothing where it answers a probe that counts no more.
pub type Events = [Option<Event>; 2];

#[derive(Clone, Copy, Debug)]
struct Flight {
    sent_at: Nanos,
    slot: SlotId,
    sequence: u16,
    state: State,
    /// Sent to a peer that was terminating: never in `sent`.
    terminating: bool,
}

const VOID: Flight = Flight { sent_at: Nanos(0), slot: SlotId(0), sequence: 0, state: State::Void, terminating: false };

/// The ring of probes under way and just finished: 16 bytes each.
#[derive(Debug)]
pub struct Flights {
    ring: Box<[Flight]>,
    /// The number of the next probe.
    next: u64,
    /// Everything before has been answered or counted lost.
    expired: u64,
}

impl Flights {
    fn new(capacity: usize) -> Self {
        Self { ring: vec![VOID; capacity.max(1)].into_boxed_slice(), next: 0, expired: 0 }
    }

    fn index(&self, number: u64) -> usize {
        usize::try_from(number % self.ring.len() as u64).unwrap_or_default()
    }

    fn oldest(&self) -> u64 {
        self.next.saturating_sub(self.ring.len() as u64)
    }

    fn grow(&mut self, capacity: usize) {
        if capacity <= self.ring.len() {
            return;
        }
        let mut larger = Self::new(capacity);
        (larger.next, larger.expired) = (self.next, self.expired);
        for number in self.oldest()..self.next {
            let to = larger.index(number);
            larger.ring[to] = self.ring[self.index(number)];
        }
        *self = larger;
    }
}

/// What the engine knows of the peer in a slot: 56 bytes.
#[derive(Clone, Copy, Debug)]
struct Aim {
    address: Option<IpAddr>,
    terminating: bool,
    sequence: u16,
    /// Withdrawn probes that `sent` has counted: so many later ones are not counted again.
    owed: u32,
    /// Probes before this number belong to a former holder of the slot.
    born: u64,
    /// Probes before this number went out before the peer last moved, left or began to terminate.
    withdrawn: u64,
    /// One more than the highest number answered.
    answered: u64,
}

const NOBODY: Aim = Aim { address: None, terminating: false, sequence: 0, owed: 0, born: 0, withdrawn: 0, answered: 0 };

/// The state machine of all probes.
#[derive(Debug)]
pub struct Engine {
    timeout: Nanos,
    per_peer: usize,
    aims: Vec<Aim>,
    flights: Flights,
}

impl Engine {
    /// An engine without peers. A probe unanswered after `timeout` is lost; `interval` bounds how many of one peer
    /// can be under way.
    pub fn new(timeout: Nanos, interval: Nanos) -> Self {
        // One more for the probes at both ends of the timeout, and two as a memory for late replies and duplicates,
        // which also serve when a late tick brings probes closer together.
        let in_flight = timeout.0.div_ceil(interval.0.max(1)) + 1;
        let per_peer = usize::try_from(in_flight + 2).unwrap_or(usize::MAX);
        Self { timeout, per_peer, aims: Vec::new(), flights: Flights::new(64) }
    }

    /// Takes over what a new list brought. Grows the tables where it must: the only place that allocates.
    pub fn apply(&mut self, change: Change) {
        let now_on = self.flights.next;
        match change {
            Change::Join { slot } => {
                if slot.index() >= self.aims.len() {
                    self.aims.resize(slot.index() + 1, NOBODY);
                    self.flights.grow(self.aims.len() * self.per_peer + 64);
                }
                self.aims[slot.index()] = Aim { born: now_on, withdrawn: now_on, ..NOBODY };
            }
            Change::Probe { slot, address, terminating, .. } => {
                let Some(aim) = self.aims.get_mut(slot.index()) else { return };
                if aim.address != Some(address) || terminating {
                    aim.withdrawn = now_on;
                }
                (aim.address, aim.terminating) = (Some(address), terminating);
            }
            Change::Stop { slot } => {
                let Some(aim) = self.aims.get_mut(slot.index()) else { return };
                (aim.address, aim.withdrawn) = (None, now_on);
            }
        }
    }

    /// Where the peer of a slot is probed; none while it is off the list.
    pub fn address(&self, slot: SlotId) -> Option<IpAddr> {
        self.aims.get(slot.index())?.address
    }

    /// Books a probe to `slot` that is about to be sent at `now`, before it is: its reply may be quicker than the
    /// send call.
    ///
    /// # Errors
    /// [`SendError::TableFull`] where the oldest probe of the table is still under way; nothing may be sent then.
    pub fn begin(&mut self, slot: SlotId, now: Nanos) -> Result<Label, SendError> {
        let number = self.flights.next;
        let index = self.flights.index(number);
        if self.flights.ring[index].state == State::Waiting {
            return Err(SendError::TableFull);
        }
        let aim = self.aims.get_mut(slot.index()).ok_or(SendError::Address)?;
        let sequence = aim.sequence;
        aim.sequence = sequence.wrapping_add(1);
        self.flights.ring[index] =
            Flight { sent_at: now, slot, sequence, state: State::Waiting, terminating: aim.terminating };
        self.flights.next += 1;
        // A ring that was lapped has nothing left to expire before its oldest entry.
        self.flights.expired = self.flights.expired.max(self.flights.oldest());
        Ok(Label { number, slot, sequence })
    }

    /// The packet is written and goes out now.
    pub fn stamp(&mut self, label: Label, now: Nanos) {
        let index = self.flights.index(label.number);
        self.flights.ring[index].sent_at = now;
    }

    /// The kernel took the probe, or did not.
    pub fn sent(&mut self, label: Label, result: Result<(), SendError>) -> Option<Event> {
        let index = self.flights.index(label.number);
        let flight = &mut self.flights.ring[index];
        match result {
            Err(reason) => {
                flight.state = State::Void;
                Some(Event::NotSent(reason))
            }
            Ok(()) if flight.terminating => None,
            Ok(()) => {
                let aim = &mut self.aims[label.slot.index()];
                if aim.owed > 0 {
                    aim.owed -= 1;
                    return None;
                }
                Some(Event::Sent)
            }
        }
    }

    /// An intact reply came from `from`, `at` that moment. `None`: it answers no probe of ours.
    pub fn reply(&mut self, label: Label, from: IpAddr, at: Nanos, stamp: Stamp) -> Option<Events> {
        let aim = self.aims.get_mut(label.slot.index())?;
        if label.number >= self.flights.next || label.number < aim.born {
            return None;
        }
        // From another address than the peer's: a probe from before a move is left to expire; else it is not ours.
        if aim.address.is_some_and(|address| address != from) {
            return None;
        }
        if label.number < self.flights.oldest() {
            return Some([Some(Event::Late), None]);
        }
        let index = self.flights.index(label.number);
        let flight = &mut self.flights.ring[index];
        if flight.slot != label.slot || flight.sequence != label.sequence {
            return None;
        }
        let reordered = label.number < aim.answered;
        let rtt = at.since(flight.sent_at);
        match flight.state {
            State::Void => None,
            State::GivenUp => Some([None, None]),
            State::Answered => Some([Some(Event::Duplicate), None]),
            State::Lost => {
                flight.state = State::Answered;
                Some([Some(Event::Late), None])
            }
            // Arrived after the timeout, though its loss has not been booked yet: book both.
            State::Waiting if rtt > self.timeout => {
                let loss = unanswered(flight, label.number, aim);
                let late = (flight.state == State::Lost).then_some(Event::Late);
                flight.state = State::Answered;
                Some([Some(loss), late])
            }
            State::Waiting => {
                flight.state = State::Answered;
                aim.answered = aim.answered.max(label.number + 1);
                let event = if flight.terminating {
                    Event::Terminating { answered: true }
                } else {
                    Event::Received { rtt, reordered, sequence: label.sequence, stamp }
                };
                Some([Some(event), None])
            }
        }
    }

    /// The slot of a damaged reply from `from`: the first peer at that address. A walk over all peers: damage is rare.
    pub fn corrupt(&self, from: IpAddr) -> Option<SlotId> {
        self.aims.iter().position(|aim| aim.address == Some(from)).map(SlotId::at)
    }

    /// The next probe whose timeout has passed at `now`, if any. Call until it gives none, and only when every packet
    /// that has arrived has been read.
    pub fn expire(&mut self, now: Nanos) -> Option<(SlotId, Event)> {
        while self.flights.expired < self.flights.next {
            let number = self.flights.expired;
            let index = self.flights.index(number);
            let flight = &mut self.flights.ring[index];
            if flight.state == State::Waiting {
                // Strictly later: a reply that took exactly the timeout is in time.
                if now.since(flight.sent_at) <= self.timeout {
                    return None;
                }
                self.flights.expired += 1;
                let aim = &mut self.aims[flight.slot.index()];
                if number >= aim.born {
                    return Some((flight.slot, unanswered(flight, number, aim)));
                }
                flight.state = State::GivenUp;
                continue;
            }
            self.flights.expired += 1;
        }
        None
    }

    /// When the oldest probe under way will have timed out.
    pub fn next_expiry(&self) -> Option<Nanos> {
        let flights = &self.flights;
        let waiting = (flights.expired..flights.next)
            .map(|number| &flights.ring[flights.index(number)])
            .find(|flight| flight.state == State::Waiting)?;
        Some(waiting.sent_at.plus(self.timeout).plus(Nanos(1)))
    }

    /// Probes that can be under way or remembered: `slots × (⌈timeout ÷ interval⌉ + 3) + 64`, 16 bytes each.
    pub fn flight_capacity(&self) -> usize {
        self.flights.ring.len()
    }
}

/// Books a probe that nobody answered in time.
fn unanswered(flight: &mut Flight, number: u64, aim: &mut Aim) -> Event {
    let withdrawn = number < aim.withdrawn;
    if !flight.terminating && !withdrawn {
        flight.state = State::Lost;
        return Event::Lost;
    }
    flight.state = State::GivenUp;
    // `sent` has counted it; the next probe stands in for it.
    aim.owed += u32::from(!flight.terminating);
    Event::Terminating { answered: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::ZoneId;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));
    const SLOT: SlotId = SlotId(0);
    const SECOND: Nanos = Nanos::from_millis(1_000);

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    fn aim_at(engine: &mut Engine, address: IpAddr, terminating: bool) {
        engine.apply(Change::Probe { slot: SLOT, address, zone: ZoneId::UNKNOWN, terminating });
    }

    fn engine() -> Engine {
        let mut engine = Engine::new(SECOND, SECOND);
        engine.apply(Change::Join { slot: SLOT });
        aim_at(&mut engine, PEER, false);
        engine
    }

    fn send(engine: &mut Engine, ms: u64) -> Label {
        let label = engine.begin(SLOT, at(ms)).unwrap();
        engine.sent(label, Ok(()));
        label
    }

    #[expect(clippy::unnecessary_wraps, reason = "compared with what `reply` gives")]
    fn one(event: Event) -> Option<Events> {
        Some([Some(event), None])
    }

    fn received(rtt: Nanos, reordered: bool, label: Label) -> Event {
        Event::Received { rtt, reordered, sequence: label.sequence, stamp: Stamp::Kernel }
    }

    #[test]
    fn a_reply_in_time_is_received_and_a_second_one_is_a_duplicate() {
        let mut e = engine();
        let label = send(&mut e, 0);
        assert_eq!(e.reply(label, PEER, at(3), Stamp::Kernel), one(received(at(3), false, label)));
        assert_eq!(e.reply(label, PEER, at(4), Stamp::Kernel), one(Event::Duplicate));
        assert_eq!(e.expire(at(5_000)), None);
    }

    #[test]
    fn silence_is_lost_once_and_a_reply_after_that_is_late() {
        let mut e = engine();
        let label = send(&mut e, 0);
        assert_eq!(e.next_expiry(), Some(Nanos(1_000_000_001)));
        assert_eq!(e.expire(at(1_000)), None, "exactly the timeout is in time");
        assert_eq!(e.expire(at(1_001)), Some((SLOT, Event::Lost)));
        assert_eq!(e.expire(at(9_000)), None);
        assert_eq!(e.reply(label, PEER, at(1_500), Stamp::Kernel), one(Event::Late));
        assert_eq!(e.reply(label, PEER, at(1_600), Stamp::Kernel), one(Event::Duplicate));
    }

    #[test]
    fn a_reply_that_took_too_long_is_lost_and_late_even_if_its_loss_was_not_booked_yet() {
        let mut e = engine();
        let label = send(&mut e, 0);
        assert_eq!(e.reply(label, PEER, at(1_200), Stamp::Kernel), Some([Some(Event::Lost), Some(Event::Late)]));
        assert_eq!(e.expire(at(2_000)), None);
    }

    #[test]
    fn a_reply_that_arrived_in_time_but_was_read_late_is_received() {
        let mut e = engine();
        let label = send(&mut e, 0);
        assert_eq!(e.reply(label, PEER, at(2), Stamp::Kernel), one(received(at(2), false, label)));
        assert_eq!(e.expire(at(60_000)), None);
    }

    #[test]
    fn an_overtaken_reply_is_reordered() {
        let mut e = Engine::new(at(5_000), SECOND);
        e.apply(Change::Join { slot: SLOT });
        aim_at(&mut e, PEER, false);
        let (first, second) = (send(&mut e, 0), send(&mut e, 1_000));
        assert_eq!(e.reply(second, PEER, at(1_010), Stamp::Kernel), one(received(at(10), false, second)));
        assert_eq!(e.reply(first, PEER, at(1_020), Stamp::Kernel), one(received(at(1_020), true, first)));
    }

    #[test]
    fn replies_from_elsewhere_of_the_future_or_of_another_sequence_are_not_ours() {
        let mut e = engine();
        let label = send(&mut e, 0);
        assert_eq!(e.reply(label, ELSEWHERE, at(1), Stamp::Kernel), None);
        assert_eq!(e.reply(Label { number: 7, ..label }, PEER, at(1), Stamp::Kernel), None);
        assert_eq!(e.reply(Label { sequence: 7, ..label }, PEER, at(1), Stamp::Kernel), None);
        assert_eq!(e.reply(Label { slot: SlotId(5), ..label }, PEER, at(1), Stamp::Kernel), None);
    }

    #[test]
    fn a_failed_send_is_never_lost() {
        let mut e = engine();
        let label = e.begin(SLOT, at(0)).unwrap();
        assert_eq!(e.sent(label, Err(SendError::NoRoute)), Some(Event::NotSent(SendError::NoRoute)));
        assert_eq!(e.expire(at(5_000)), None);
        assert_eq!(e.reply(label, PEER, at(1), Stamp::Kernel), None);
    }

    #[test]
    fn a_probe_in_flight_when_its_peer_leaves_or_moves_is_withdrawn_and_the_sums_still_agree() {
        for (change, label) in [
            (Change::Stop { slot: SLOT }, "left"),
            (Change::Probe { slot: SLOT, address: ELSEWHERE, zone: ZoneId::UNKNOWN, terminating: false }, "moved"),
        ] {
            let mut e = engine();
            send(&mut e, 0);
            e.apply(change);
            assert_eq!(e.expire(at(1_001)), Some((SLOT, Event::Terminating { answered: false })), "{label}");
            aim_at(&mut e, ELSEWHERE, false);
            let next = e.begin(SLOT, at(2_000)).unwrap();
            assert_eq!(e.sent(next, Ok(())), None, "{label}: `sent` has it already");
            let got = e.reply(next, ELSEWHERE, at(2_001), Stamp::Kernel);
            assert_eq!(got, one(received(at(1), false, next)));
            let after = e.begin(SLOT, at(3_000)).unwrap();
            assert_eq!(e.sent(after, Ok(())), Some(Event::Sent));
        }
    }

    #[test]
    fn probes_to_a_terminating_peer_are_neither_sent_nor_lost() {
        let mut e = engine();
        aim_at(&mut e, PEER, true);
        let (answered, silent) = (e.begin(SLOT, at(0)).unwrap(), e.begin(SLOT, at(1)).unwrap());
        assert_eq!((e.sent(answered, Ok(())), e.sent(silent, Ok(()))), (None, None));
        assert_eq!(e.reply(answered, PEER, at(2), Stamp::Kernel), one(Event::Terminating { answered: true }));
        assert_eq!(e.expire(at(2_000)), Some((SLOT, Event::Terminating { answered: false })));
        assert_eq!(
            e.reply(silent, PEER, at(2_001), Stamp::Kernel),
            Some([None, None]),
            "late for nothing that was lost"
        );
    }

    #[test]
    fn a_new_holder_of_a_slot_inherits_no_probe() {
        let mut e = engine();
        let old = send(&mut e, 0);
        e.apply(Change::Stop { slot: SLOT });
        e.apply(Change::Join { slot: SLOT });
        aim_at(&mut e, PEER, false);
        assert_eq!(e.reply(old, PEER, at(1), Stamp::Kernel), None);
        assert_eq!(e.expire(at(2_000)), None);
    }

    #[test]
    fn the_sequence_number_wraps_and_probes_go_on() {
        let mut e = engine();
        let mut last = 0;
        for i in 0..70_000u64 {
            let label = send(&mut e, i * 1_000);
            let reply = e.reply(label, PEER, at(i * 1_000 + 1), Stamp::Kernel);
            assert_eq!(reply, one(received(at(1), false, label)), "probe {i}");
            assert_eq!(e.expire(at(i * 1_000 + 1)), None);
            last = label.sequence;
        }
        assert_eq!(usize::from(last), (70_000 - 1) % 65_536);
    }

    #[test]
    fn a_full_table_refuses_instead_of_forgetting() {
        let mut e = engine();
        let capacity = e.flight_capacity();
        for _ in 0..capacity {
            send(&mut e, 0);
        }
        assert_eq!(e.begin(SLOT, at(0)), Err(SendError::TableFull));
        let lost = std::iter::from_fn(|| e.expire(at(2_000))).count();
        assert_eq!(lost, capacity);
        assert!(e.begin(SLOT, at(2_000)).is_ok());
    }

    #[test]
    fn growing_the_table_keeps_probes_under_way() {
        let mut e = engine();
        let label = send(&mut e, 0);
        for i in 1..500 {
            e.apply(Change::Join { slot: SlotId(i) });
        }
        assert!(e.flight_capacity() >= 500 * 3);
        assert_eq!(e.reply(label, PEER, at(3), Stamp::Kernel), one(received(at(3), false, label)));
    }

    #[test]
    fn a_flight_and_an_aim_stay_small() {
        assert_eq!(size_of::<Flight>(), 16);
        assert!(size_of::<Aim>() <= 56, "{}", size_of::<Aim>());
    }
}
