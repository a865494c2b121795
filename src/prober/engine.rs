//! What became of each probe. No I/O, no clock of its own: time and packets are arguments.

use std::net::{IpAddr, Ipv4Addr};

use super::clock::Moment;
use super::flights::{Flight, Flights, State, Stay};
use super::packet::Label;
use super::{SendError, Stamp};
use crate::limits::PEER_SLOTS_MAX;
use crate::peers::{Change, Compaction, SlotId};
use crate::region::List;
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

/// What an intact reply of ours brings, in order; nothing where it answers a probe that counts no more.
pub type Events = [Option<Event>; 2];

/// What the engine knows of the peer in a slot: 26 bytes.
#[derive(Clone, Copy, Debug)]
struct Aim {
    address: IpAddr,
    /// Whether it is probed at all.
    listed: bool,
    terminating: bool,
    stay: Stay,
    /// Of the next probe.
    sequence: u16,
    /// One more than the highest sequence number answered, kept within reach of `sequence`.
    answered: u16,
    /// Withdrawn probes that `sent` has counted: so many later ones are not counted again.
    owed: u16,
}

const NOBODY: Aim = Aim {
    address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    listed: false,
    terminating: false,
    stay: Stay::first(),
    sequence: 0,
    answered: 0,
    owed: 0,
};

/// How far `answered` may lie behind: beyond half of its range, behind would look like ahead.
const REACH: u16 = 1 << 14;

impl Aim {
    fn address(&self) -> Option<IpAddr> {
        self.listed.then_some(self.address)
    }

    const fn is_overtaken(&self, sequence: u16) -> bool {
        self.answered.wrapping_sub(sequence).cast_signed() > 0
    }

    fn next_sequence(&mut self) -> u16 {
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        if sequence.wrapping_sub(self.answered) == REACH {
            self.answered = self.answered.wrapping_add(1);
        }
        sequence
    }
}

/// The state machine of all probes.
#[derive(Debug)]
pub struct Engine {
    timeout: Nanos,
    per_peer: usize,
    aims: List<Aim>,
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
        Self { timeout, per_peer, aims: List::new(PEER_SLOTS_MAX), flights: Flights::new(64) }
    }

    /// Makes room for `slots` peers. Nothing else but [`Engine::compact`] allocates.
    pub fn reserve(&mut self, slots: usize) {
        if slots > self.aims.len() {
            self.aims.resize(slots, NOBODY);
            self.flights.resize(slots * self.per_peer + 64);
        }
    }

    /// Takes over who sits where now, with room for `slots` peers: probes under way follow their peers.
    pub fn compact(&mut self, compaction: &Compaction, slots: usize) {
        let aims = &self.aims;
        self.flights.relabel(|flight| {
            let stays = aims.get(flight.slot.index()).is_some_and(|aim| flight.stay.same_holder(aim.stay));
            // Of one who held the slot before, or holds it no more: nobody waits for it.
            compaction.now(flight.slot).filter(|_| stays)
        });
        for (from, to) in compaction.moves() {
            self.aims.swap(from.index(), to.index());
        }
        self.aims.resize(slots, NOBODY);
        self.flights.resize(slots * self.per_peer + 64);
    }

    /// Takes over what a new list brought, for slots that there is room for.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Join { slot } => {
                let Some(aim) = self.aims.get_mut(slot.index()) else { return };
                *aim = Aim { stay: aim.stay.replaced(), ..NOBODY };
            }
            Change::Probe { slot, address, terminating, .. } => {
                let Some(aim) = self.aims.get_mut(slot.index()) else { return };
                if aim.address() != Some(address) || (terminating && !aim.terminating) {
                    aim.stay = aim.stay.moved();
                }
                (aim.address, aim.listed, aim.terminating) = (address, true, terminating);
            }
            Change::Stop { slot } => {
                let Some(aim) = self.aims.get_mut(slot.index()) else { return };
                (aim.listed, aim.stay) = (false, aim.stay.moved());
            }
        }
    }

    /// Where the peer of a slot is probed; none while it is off the list.
    pub fn address(&self, slot: SlotId) -> Option<IpAddr> {
        self.aims.get(slot.index())?.address()
    }

    /// Books a probe to `slot` that is about to be sent at `now`, before it is: its reply may be quicker than the
    /// send call.
    ///
    /// # Errors
    /// [`SendError::TableFull`] where the oldest probe of the table is still under way; nothing may be sent then.
    pub fn begin(&mut self, slot: SlotId, now: Nanos) -> Result<Label, SendError> {
        let aim = self.aims.get_mut(slot.index()).ok_or(SendError::Address)?;
        let flight = Flight {
            slot,
            stay: aim.stay,
            state: State::Waiting,
            terminating: aim.terminating,
            stamped: false,
            doubtful: false,
        };
        let number = self.flights.book(flight, now).ok_or(SendError::TableFull)?;
        Ok(Label { number, slot, sequence: aim.next_sequence() })
    }

    /// The packet is written and goes out now.
    pub fn stamp(&mut self, label: Label, now: Nanos) {
        self.flights.stamp(label.number, now);
    }

    /// The kernel took the probe, or did not.
    pub fn sent(&mut self, label: Label, result: Result<(), SendError>) -> Option<Event> {
        match result {
            Err(reason) => {
                self.flights.set(label.number, State::Void);
                Some(Event::NotSent(reason))
            }
            Ok(()) if self.flights.get(label.number).terminating => None,
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

    /// The kernel says when the probe left. Without that, the time just before the call stands.
    pub fn departed(&mut self, label: Label, moment: Moment) {
        if self.flight(label).is_none_or(|f| f.state != State::Waiting || f.stamped) {
            return;
        }
        if let Some((at, stamped)) = moment.departure(self.flights.sent_at(label.number)) {
            self.flights.departed(label.number, at, !stamped);
        }
    }

    /// The flight of a label, if the ring still holds it. Its slot is its peer's now, the label's that at the time of
    /// sending.
    fn flight(&self, label: Label) -> Option<Flight> {
        let held = self.flights.oldest()..self.flights.next();
        held.contains(&label.number).then(|| self.flights.get(label.number))
    }

    /// An intact reply came from `from`, at that `moment`: for whom that is what. `None`: it answers no probe of ours.
    pub fn reply(&mut self, label: Label, from: IpAddr, moment: Moment) -> Option<(SlotId, Events)> {
        let slot = self.flight(label).map_or(label.slot, |flight| flight.slot);
        Some((slot, self.reply_to(slot, label, from, moment)?))
    }

    fn reply_to(&mut self, slot: SlotId, label: Label, from: IpAddr, moment: Moment) -> Option<Events> {
        let aim = *self.aims.get(slot.index())?;
        // From another address than the peer's: a probe from before a move is left to expire; else it is not ours.
        if label.number >= self.flights.next() || aim.address().is_some_and(|address| address != from) {
            return None;
        }
        if label.number < self.flights.oldest() {
            return Some([Some(Event::Late), None]);
        }
        let flight = self.flight(label).filter(|flight| flight.stay.same_holder(aim.stay))?;
        let sent_at = self.flights.sent_at(label.number);
        let (at, stamped) = moment.arrival(sent_at, flight.doubtful);
        let rtt = at.since(sent_at);
        match flight.state {
            State::Void => None,
            State::GivenUp => Some([None, None]),
            State::Answered => Some([Some(Event::Duplicate), None]),
            State::Lost => {
                self.flights.set(label.number, State::Answered);
                Some([Some(Event::Late), None])
            }
            // Arrived after the timeout, though its loss has not been booked yet: book both.
            State::Waiting if rtt > self.timeout => {
                let loss = self.unanswered(label.number, flight);
                let late = (loss == Event::Lost).then_some(Event::Late);
                self.flights.set(label.number, State::Answered);
                Some([Some(loss), late])
            }
            State::Waiting => {
                self.flights.set(label.number, State::Answered);
                let reordered = aim.is_overtaken(label.sequence);
                if !reordered {
                    self.aims[slot.index()].answered = label.sequence.wrapping_add(1);
                }
                if flight.terminating {
                    return Some([Some(Event::Terminating { answered: true }), None]);
                }
                let stamp = if stamped && flight.stamped { Stamp::Kernel } else { Stamp::User };
                Some([Some(Event::Received { rtt, reordered, sequence: label.sequence, stamp }), None])
            }
        }
    }

    /// The slot of a damaged reply from `from`: the first peer at that address. A walk over all peers: damage is rare.
    pub fn corrupt(&self, from: IpAddr) -> Option<SlotId> {
        self.aims.iter().position(|aim| aim.address() == Some(from)).map(SlotId::at)
    }

    /// The next probe whose timeout has passed at `now`, if any. Call until it gives none, and only when every packet
    /// that has arrived has been read.
    pub fn expire(&mut self, now: Nanos) -> Option<(SlotId, Event)> {
        while let Some(number) = self.flights.oldest_waiting() {
            // Strictly later: a reply that took exactly the timeout is in time.
            if now.since(self.flights.sent_at(number)) <= self.timeout {
                return None;
            }
            let flight = self.flights.get(number);
            if flight.stay.same_holder(self.aims[flight.slot.index()].stay) {
                return Some((flight.slot, self.unanswered(number, flight)));
            }
            self.flights.set(number, State::GivenUp);
        }
        None
    }

    /// When the oldest probe under way will have timed out.
    pub fn next_expiry(&mut self) -> Option<Nanos> {
        let waiting = self.flights.oldest_waiting()?;
        Some(self.flights.sent_at(waiting).plus(self.timeout).plus(Nanos(1)))
    }

    /// Books a probe that nobody answered in time.
    fn unanswered(&mut self, number: u64, flight: Flight) -> Event {
        let aim = &mut self.aims[flight.slot.index()];
        if !flight.terminating && flight.stay == aim.stay {
            self.flights.set(number, State::Lost);
            return Event::Lost;
        }
        self.flights.set(number, State::GivenUp);
        // `sent` has counted it; the next probe stands in for it.
        aim.owed = aim.owed.saturating_add(u16::from(!flight.terminating));
        Event::Terminating { answered: false }
    }

    /// What addresses and probes take in memory, in whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.aims.resident_bytes() + self.flights.resident_bytes()
    }

    /// Probes that can be under way or remembered: `slots × (⌈timeout ÷ interval⌉ + 3) + 64`, 8 bytes each.
    pub fn flight_capacity(&self) -> usize {
        self.flights.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::ZoneId;
    use crate::prober::Clock;
    use crate::prober::clock::RealTime;

    /// Both clocks at one time: a stamp means what it says.
    struct Standing;

    impl Clock for Standing {
        fn now(&self) -> Nanos {
            Nanos(0)
        }

        fn realtime(&self) -> Nanos {
            Nanos(0)
        }
    }

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
    const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
    const SLOT: SlotId = SlotId(0);
    const SECOND: Nanos = Nanos::from_millis(1_000);

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    /// A reply that is read at once.
    fn read(ms: u64) -> Moment {
        Moment::read(at(ms))
    }

    fn aim_at(engine: &mut Engine, address: IpAddr, terminating: bool) {
        engine.apply(Change::Probe { slot: SLOT, address, zone: ZoneId::UNKNOWN, terminating });
    }

    fn engine() -> Engine {
        let mut engine = Engine::new(SECOND, SECOND);
        engine.reserve(1);
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
    fn one(event: Event) -> Option<(SlotId, Events)> {
        Some((SLOT, [Some(event), None]))
    }

    fn received(rtt: Nanos, reordered: bool, label: Label) -> Event {
        Event::Received { rtt, reordered, sequence: label.sequence, stamp: Stamp::User }
    }

    #[test]
    fn a_reply_in_time_is_received_and_a_second_one_is_a_duplicate() {
        let mut e = engine();
        let label = send(&mut e, 0);
        assert_eq!(e.reply(label, PEER, read(3)), one(received(at(3), false, label)));
        assert_eq!(e.reply(label, PEER, read(4)), one(Event::Duplicate));
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
        assert_eq!(e.reply(label, PEER, read(1_500)), one(Event::Late));
        assert_eq!(e.reply(label, PEER, read(1_600)), one(Event::Duplicate));
    }

    #[test]
    fn a_reply_that_took_too_long_is_lost_and_late_even_if_its_loss_was_not_booked_yet() {
        let mut e = engine();
        let label = send(&mut e, 0);
        assert_eq!(e.reply(label, PEER, read(1_200)), Some((SLOT, [Some(Event::Lost), Some(Event::Late)])));
        assert_eq!(e.expire(at(2_000)), None);
    }

    #[test]
    fn a_reply_that_arrived_in_time_but_was_read_late_is_received() {
        let mut e = engine();
        let label = send(&mut e, 0);
        assert_eq!(e.reply(label, PEER, read(2)), one(received(at(2), false, label)));
        assert_eq!(e.expire(at(60_000)), None);
    }

    #[test]
    fn an_overtaken_reply_is_reordered() {
        let mut e = Engine::new(at(5_000), SECOND);
        e.reserve(1);
        e.apply(Change::Join { slot: SLOT });
        aim_at(&mut e, PEER, false);
        let (first, second) = (send(&mut e, 0), send(&mut e, 1_000));
        assert_eq!(e.reply(second, PEER, read(1_010)), one(received(at(10), false, second)));
        assert_eq!(e.reply(first, PEER, read(1_020)), one(received(at(1_020), true, first)));
    }

    #[test]
    fn replies_from_elsewhere_of_the_future_or_of_another_sequence_are_not_ours() {
        let mut e = engine();
        let label = send(&mut e, 0);
        assert_eq!(e.reply(label, ELSEWHERE, read(1)), None);
        assert_eq!(e.reply(Label { number: 7, ..label }, PEER, read(1)), None);
    }

    #[test]
    fn a_failed_send_is_never_lost() {
        let mut e = engine();
        let label = e.begin(SLOT, at(0)).unwrap();
        assert_eq!(e.sent(label, Err(SendError::NoRoute)), Some(Event::NotSent(SendError::NoRoute)));
        assert_eq!(e.expire(at(5_000)), None);
        assert_eq!(e.reply(label, PEER, read(1)), None);
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
            let got = e.reply(next, ELSEWHERE, read(2_001));
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
        assert_eq!(e.reply(answered, PEER, read(2)), one(Event::Terminating { answered: true }));
        assert_eq!(e.expire(at(2_000)), Some((SLOT, Event::Terminating { answered: false })));
        assert_eq!(e.reply(silent, PEER, read(2_001)), Some((SLOT, [None, None])), "late for nothing that was lost");
    }

    #[test]
    fn a_new_holder_of_a_slot_inherits_no_probe() {
        let mut e = engine();
        let old = send(&mut e, 0);
        e.apply(Change::Stop { slot: SLOT });
        e.apply(Change::Join { slot: SLOT });
        aim_at(&mut e, PEER, false);
        assert_eq!(e.reply(old, PEER, read(1)), None);
        assert_eq!(e.expire(at(2_000)), None);
    }

    #[test]
    fn the_sequence_number_wraps_and_probes_go_on() {
        let mut e = engine();
        let mut last = 0;
        for i in 0..70_000u64 {
            let label = send(&mut e, i * 1_000);
            let reply = e.reply(label, PEER, read(i * 1_000 + 1));
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
        e.reserve(500);
        assert!(e.flight_capacity() >= 500 * 3);
        assert_eq!(e.reply(label, PEER, read(3)), one(received(at(3), false, label)));
    }

    #[test]
    fn a_probe_is_as_late_as_the_kernel_sent_it() {
        let mut e = engine();
        let real_time = RealTime::new(&Standing);
        let label = send(&mut e, 0);
        e.departed(label, real_time.moment(Some(at(400)), at(600)));
        assert_eq!(e.expire(at(1_100)), None, "it left 400 ms after it was booked");
        let reply = e.reply(label, PEER, real_time.moment(Some(at(403)), at(1_200)));
        let event = Event::Received { rtt: at(3), reordered: false, sequence: label.sequence, stamp: Stamp::Kernel };
        assert_eq!(reply, one(event));
    }

    #[test]
    fn a_departure_before_its_booking_is_not_believed() {
        let mut e = engine();
        let real_time = RealTime::new(&Standing);
        let label = send(&mut e, 100);
        e.departed(label, real_time.moment(Some(at(50)), at(110)));
        let reply = e.reply(label, PEER, real_time.moment(Some(at(103)), at(110)));
        assert_eq!(reply, one(received(at(3), false, label)), "the time of booking stands, and it is ours");
    }

    #[test]
    fn a_peer_that_was_silent_for_half_of_all_sequence_numbers_is_not_reordered() {
        let mut e = engine();
        let first = send(&mut e, 0);
        assert_eq!(e.reply(first, PEER, read(1)), one(received(at(1), false, first)));
        for i in 1..40_000u64 {
            send(&mut e, i * 1_000);
            while e.expire(at(i * 1_000)).is_some() {}
        }
        let back = send(&mut e, 40_000_000);
        assert_eq!(e.reply(back, PEER, read(40_000_001)), one(received(at(1), false, back)));
    }

    #[test]
    fn an_aim_stays_small() {
        assert_eq!(size_of::<Aim>(), 26);
    }
}
