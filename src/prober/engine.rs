//! Decides the outcome of each probe. It does no I/O and has no clock: time and packets are
//! arguments.

use std::net::IpAddr;

use kube_canary_kernel::region::List;

use super::clock::Moment;
use super::destination::Destination;
use super::doubts::{DoubtId, Doubts};
use super::event::{Event, Events, SendError, Stamp};
use super::flights::{Flight, Flights, Generation, State, Tag};
use super::probe_key::Label;
use crate::limits::{FLOW_PROBES_PER_SECOND, PEER_SLOTS_MAX};
use crate::peers::{Change, Compaction, SlotId};
use crate::units::Nanos;

/// Probes that can be in flight or remembered beside those of each peer, without extra ones.
const SPARE_MIN: usize = 64;

/// What is known of a probe when an answer to it arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    /// Whether it was neither answered nor timed out.
    pub waits: bool,
    /// What the prober has added to it.
    pub tag: Tag,
    /// When it was sent.
    pub sent_at: Nanos,
    /// When the answer arrived.
    pub at: Nanos,
}

/// The state machine of all probes.
#[derive(Debug)]
pub struct Engine {
    timeout: Nanos,
    /// How long after the timeout a loss is decided: a peer may have kept the probe for as long.
    dwell: Nanos,
    per_peer: usize,
    /// Probes that can be in flight or remembered beside those of each peer.
    spare: usize,
    destinations: List<Destination>,
    flights: Flights,
    doubts: Doubts,
    /// Number of excuses that a peer has when it begins at an address.
    excuses: u8,
    /// Number of probes that an excuse covers. It is more than one at short intervals, because a
    /// destination has only 8 bits for its excuses.
    per_excuse: u16,
}

impl Engine {
    /// Makes an engine without peers. A probe that is unanswered after `timeout` is lost. If
    /// `doubts` are answered, a question is asked before the loss is counted. `interval` bounds the
    /// number of probes per peer that can be in flight.
    pub fn new(timeout: Nanos, interval: Nanos, doubts: bool) -> Self {
        Self::with_dwell(timeout, Nanos(0), interval, doubts, false)
    }

    /// Makes an engine for peers that may keep a probe for `dwell` before they answer it, and say
    /// so in the answer ([`Engine::reply_after`]). Its probes may have tags.
    pub fn with_dwell(timeout: Nanos, dwell: Nanos, interval: Nanos, doubts: bool, tagged: bool) -> Self {
        // One more for the probes at both ends of the timeout. Two more to remember late replies
        // and duplicates; they also serve if a late tick sends probes closer together.
        let in_flight = timeout.plus(dwell).0.div_ceil(interval.0.max(1)) + 1;
        let per_peer = usize::try_from(in_flight + 2).unwrap_or(usize::MAX);
        // Of probes over flows, extra ones are in flight as well.
        let seconds = timeout.plus(dwell).0.div_ceil(Nanos::from_millis(1_000).0);
        let extras = if tagged { FLOW_PROBES_PER_SECOND * usize::try_from(seconds).unwrap_or(usize::MAX) } else { 0 };
        let spare = SPARE_MIN + extras;
        let (destinations, flights) = (List::new(PEER_SLOTS_MAX), Flights::new(spare, tagged));
        let doubts = Doubts::new(doubts);
        Self { timeout, dwell, per_peer, spare, destinations, flights, doubts, excuses: 0, per_excuse: 1 }
    }

    /// Makes it excuse that a peer leaves the probes of its first `silence` at an address
    /// unanswered, until it answers one. Only those that it answers count. So a probe that was
    /// sent before the first answer arrived is never lost. `interval` is the time between two
    /// probes to a peer.
    ///
    /// An agent answers only members, and its list may learn of a new one later than that one
    /// begins to probe. A new pod also has its address before its agent listens.
    #[must_use]
    pub fn excusing(mut self, silence: Nanos, interval: Nanos) -> Self {
        let probes = silence.0.div_ceil(interval.0.max(1));
        let per_excuse = probes.div_ceil(u8::MAX.into()).max(1);
        self.per_excuse = u16::try_from(per_excuse).unwrap_or(u16::MAX);
        self.excuses = u8::try_from(probes.div_ceil(per_excuse)).unwrap_or(u8::MAX);
        self
    }

    /// Makes room for `slots` peers. Apart from [`Engine::compact`], nothing else allocates.
    pub fn reserve(&mut self, slots: usize) {
        if slots > self.destinations.len() {
            self.destinations.resize(slots, Destination::UNUSED);
            self.flights.resize(slots * self.per_peer + self.spare);
        }
    }

    /// Moves peers as `compaction` says, with room for `slots` peers. Probes in
    /// flight follow their peers.
    pub fn compact(&mut self, compaction: &Compaction, slots: usize) {
        let destinations = &self.destinations;
        let given_up = self.flights.relabel(|flight| {
            let same_holder = destinations
                .get(flight.slot.index())
                .is_some_and(|peer| flight.generation.same_holder(peer.generation));
            // A flight of an earlier holder of the slot is dropped: no peer waits for it.
            compaction.now(flight.slot).filter(|_| same_holder)
        });
        self.doubts.relabel(|slot| compaction.now(slot));
        for (from, to) in compaction.moves() {
            self.destinations.swap(from.index(), to.index());
        }
        self.destinations.resize(slots, Destination::UNUSED);
        self.flights.resize(slots * self.per_peer + self.spare + given_up);
    }

    /// Applies a change of the list, for a slot that has room.
    pub fn apply(&mut self, change: Change) {
        let (Change::Join { slot } | Change::Probe { slot, .. } | Change::Stop { slot }) = change else { return };
        let Some(peer) = self.destinations.get_mut(slot.index()) else { return };
        let before = peer.generation;
        let in_doubt = match change {
            Change::Probe { address, terminating, .. } => peer.list(address, terminating),
            Change::Stop { .. } => peer.stop(),
            Change::Join { .. } | Change::Zone { .. } => {
                self.replace(slot);
                DoubtId::NONE
            }
        };
        let peer = &mut self.destinations[slot.index()];
        if peer.generation != before {
            peer.excuses = self.excuses;
        }
        self.withdraw(in_doubt);
    }

    /// Returns the address of a slot's peer; `None` while it is off the list.
    pub fn address(&self, slot: SlotId) -> Option<IpAddr> {
        self.destinations.get(slot.index())?.address()
    }

    /// Returns the generation of a slot's peer. Another one means that it moved, left, or began to
    /// terminate.
    pub(super) fn generation(&self, slot: SlotId) -> Option<Generation> {
        Some(self.destinations.get(slot.index())?.generation)
    }

    /// Records a probe to `slot` at `now`, before it is sent: its reply may arrive before
    /// the send call returns.
    ///
    /// # Errors
    /// [`SendError::TableFull`] if the oldest probe of the table is still in flight. The probe must
    /// then not be sent.
    pub fn begin(&mut self, slot: SlotId, now: Nanos) -> Result<Label, SendError> {
        let peer = self.destinations.get_mut(slot.index()).ok_or(SendError::Address)?;
        let is_excused = !peer.terminating() && peer.excuses > 0;
        self.begin_as(if is_excused { State::Excused } else { State::Waiting }, slot, now)
    }

    /// Does the same for an extra probe of a flow, which has no [`Event`] but [`Event::Extra`] and
    /// those of its duplicates. Its silence makes no doubt and uses no excuse.
    ///
    /// # Errors
    /// As [`Engine::begin`].
    pub(super) fn begin_extra(&mut self, slot: SlotId, now: Nanos) -> Result<Label, SendError> {
        self.begin_as(State::Extra, slot, now)
    }

    fn begin_as(&mut self, state: State, slot: SlotId, now: Nanos) -> Result<Label, SendError> {
        let peer = self.destinations.get_mut(slot.index()).ok_or(SendError::Address)?;
        let flight = Flight {
            slot,
            generation: peer.generation,
            state,
            terminating: peer.terminating(),
            stamped: false,
            doubtful: false,
        };
        let number = self.flights.record(flight, now).ok_or(SendError::TableFull)?;
        Ok(Label { number, slot, sequence: peer.next_sequence() })
    }

    /// Sets the tag of a probe, if probes have tags.
    pub(super) fn tag(&mut self, label: Label, tag: Tag) {
        self.flights.set_tag(label.number, tag);
    }

    /// Returns what is known of a probe before an answer to it is recorded; `None` if it is
    /// forgotten.
    pub(super) fn sight(&self, label: Label, moment: Moment) -> Option<Sight> {
        let flight = self.flight(label)?;
        let sent_at = self.flights.sent_at(label.number);
        let (at, _) = moment.arrival(sent_at, flight.doubtful);
        let tag = self.flights.tag(label.number);
        Some(Sight { waits: flight.state.is_waiting(), tag, sent_at, at })
    }

    /// Sets the time of sending, after the packet was written and before it is sent.
    pub fn stamp(&mut self, label: Label, now: Nanos) {
        self.flights.stamp(label.number, now);
    }

    /// Records whether the kernel accepted the probe. Returns the event to report, if any.
    pub fn sent(&mut self, label: Label, result: Result<(), SendError>) -> Option<Event> {
        if let Err(reason) = result {
            self.flights.set(label.number, State::Void);
            return Some(Event::NotSent(reason));
        }
        let (flight, peer) = (self.flights.get(label.number), &mut self.destinations[label.slot.index()]);
        // Only what was sent uses an excuse up: one of `per_excuse` probes.
        let uses_excuse = flight.state == State::Excused && label.sequence.is_multiple_of(self.per_excuse);
        peer.excuses = peer.excuses.saturating_sub(u8::from(uses_excuse));
        (!flight.is_uncounted() && !peer.skip_withdrawn()).then_some(Event::Sent)
    }

    /// Records that a probe in flight was not sent after all. Returns the event to report. `None`
    /// if its outcome is known, or if its peer has moved or left.
    pub(super) fn unsent(&mut self, label: Label, reason: SendError) -> Option<Event> {
        let flight = self.flight(label).filter(|flight| flight.state.is_waiting())?;
        let peer =
            self.destinations.get_mut(flight.slot.index()).filter(|peer| peer.generation == flight.generation)?;
        if !flight.is_uncounted() {
            // `sent` has counted it; the next probe takes its place.
            peer.withdraw_sent(1);
        }
        self.flights.set(label.number, State::Void);
        Some(Event::NotSent(reason))
    }

    /// Gives the sequence number of a probe that was not sent to the next one. Returns false if
    /// there is a newer one already.
    pub(super) fn take_back(&mut self, label: Label) -> bool {
        self.destinations.get_mut(label.slot.index()).is_some_and(|peer| peer.take_back(label.sequence))
    }

    /// Records when the probe left, according to the kernel. Otherwise the time just before
    /// the call is used.
    pub fn departed(&mut self, label: Label, moment: Moment) {
        if self.flight(label).is_none_or(|f| !f.state.is_waiting() || f.stamped) {
            return;
        }
        if let Some((at, stamped)) = moment.departure(self.flights.sent_at(label.number)) {
            self.flights.departed(label.number, at, !stamped);
        }
    }

    /// Returns the flight of a label, if the ring still holds it. The flight has its peer's current
    /// slot; the label has the slot at the time of sending.
    fn flight(&self, label: Label) -> Option<Flight> {
        let held = self.flights.oldest()..self.flights.next();
        held.contains(&label.number).then(|| self.flights.get(label.number))
    }

    /// Returns the slot of a probe whose peer is still at the address that it was sent to.
    pub(super) fn slot_at(&self, label: Label, from: IpAddr) -> Option<SlotId> {
        let flight = self.flight(label)?;
        let peer = self.destinations.get(flight.slot.index())?;
        let is_same = flight.generation.same_holder(peer.generation) && peer.address() == Some(from);
        is_same.then_some(flight.slot)
    }

    /// Records an intact reply from `from` at `moment`. Returns the slot and its events; `None` if
    /// the reply answers no probe of this process.
    pub fn reply(&mut self, label: Label, from: IpAddr, moment: Moment) -> Option<(SlotId, Events)> {
        self.reply_after(label, from, moment, None)
    }

    /// Does the same for a reply of a peer that says how long it has kept the probe. The round-trip
    /// time is without that, and at least a nanosecond.
    pub(super) fn reply_after(
        &mut self,
        label: Label,
        from: IpAddr,
        moment: Moment,
        dwell: Option<Nanos>,
    ) -> Option<(SlotId, Events)> {
        let slot = self.flight(label).map_or(label.slot, |flight| flight.slot);
        Some((slot, self.reply_to(slot, label, from, moment, dwell)?))
    }

    /// Records that another node than the peer has answered a probe. Until the next change of the
    /// list, what the address answers or leaves unanswered counts as if the peer was terminating.
    /// Returns the event of the probe.
    pub(super) fn answered_by_other(&mut self, label: Label, from: IpAddr) -> Option<(SlotId, Event)> {
        let flight = self.flight(label)?;
        let peer = self.destinations.get_mut(flight.slot.index()).filter(|peer| peer.address() == Some(from))?;
        if !flight.generation.same_holder(peer.generation) {
            return None;
        }
        let in_doubt = peer.list(from, true);
        self.withdraw(in_doubt);
        let flight = self.flight(label)?;
        if !flight.state.is_waiting() && flight.state != State::Excused {
            return None;
        }
        self.flights.set(label.number, State::Answered);
        if flight.state == State::Extra {
            return None;
        }
        if flight.state == State::Waiting && !flight.terminating {
            // `sent` has counted it; the next probe takes its place.
            self.destinations[flight.slot.index()].withdraw_sent(1);
        }
        Some((flight.slot, Event::Terminating { answered: true }))
    }

    fn reply_to(
        &mut self,
        slot: SlotId,
        label: Label,
        from: IpAddr,
        moment: Moment,
        dwell: Option<Nanos>,
    ) -> Option<Events> {
        let peer = *self.destinations.get(slot.index())?;
        // The reply is from another address than the peer's. If the probe is from before a move, it
        // is left to expire. Otherwise the reply answers no probe of this process.
        if label.number >= self.flights.next() || peer.address().is_some_and(|address| address != from) {
            return None;
        }
        if label.number < self.flights.oldest() {
            // The probe is no longer remembered, so it is unknown whether it was lost. If the peer
            // is leaving or has left the address, it was not.
            return (peer.address() == Some(from) && !peer.terminating()).then(|| self.late(peer.doubt, label.number));
        }
        let flight = self.flight(label).filter(|flight| flight.generation.same_holder(peer.generation))?;
        let sent_at = self.flights.sent_at(label.number);
        let (at, stamped) = moment.arrival(sent_at, flight.doubtful);
        let rtt = at.since(sent_at);
        let rtt = dwell.map_or(rtt, |dwell| rtt.since(dwell).max(Nanos(1)));
        match flight.state {
            State::Void => None,
            State::GivenUp => Some([None, None]),
            State::Answered => Some([Some(Event::Duplicate), None]),
            State::Lost => {
                self.flights.set(label.number, State::Answered);
                Some([Some(Event::Late), None])
            }
            State::Withheld => {
                self.flights.set(label.number, State::Answered);
                Some(self.late(peer.doubt, label.number))
            }
            State::Excused if rtt > self.timeout => {
                self.flights.set(label.number, State::Answered);
                Some([Some(Event::Terminating { answered: false }), None])
            }
            // The reply arrived after the timeout, but the loss is not counted yet: report both.
            State::Waiting if rtt > self.timeout => {
                // A peer that answers is there, so there is no doubt.
                let loss = self.unanswered(label.number, flight);
                let late = (loss == Event::Lost).then_some(Event::Late);
                self.flights.set(label.number, State::Answered);
                Some([Some(loss), late])
            }
            State::Extra => {
                let answered = rtt <= self.timeout;
                if answered {
                    self.answer(slot, label);
                }
                self.flights.set(label.number, State::Answered);
                Some([peer.is_probed_as(flight).then_some(Event::Extra { answered }), None])
            }
            State::Waiting | State::Excused => {
                let reordered = self.answer(slot, label);
                if flight.terminating {
                    return Some([Some(Event::Terminating { answered: true }), None]);
                }
                let stamp = if stamped && flight.stamped { Stamp::Kernel } else { Stamp::User };
                let received = Some(Event::Received { rtt, reordered, sequence: label.sequence, stamp });
                Some(if flight.state == State::Excused { [Some(Event::Sent), received] } else { [received, None] })
            }
        }
    }

    /// Records an answer in time. Returns whether a later probe was answered before.
    fn answer(&mut self, slot: SlotId, label: Label) -> bool {
        self.flights.set(label.number, State::Answered);
        let peer = &mut self.destinations[slot.index()];
        let reordered = peer.answer(label.sequence);
        peer.excuses = 0;
        if peer.doubt != DoubtId::NONE {
            self.answer_in_doubt(slot);
        }
        reordered
    }

    /// Returns the slot of a damaged reply from `from`: the first peer at that address. Walks over
    /// all peers, because damage is rare.
    pub fn corrupt(&self, from: IpAddr) -> Option<SlotId> {
        self.destinations.iter().position(|peer| peer.address() == Some(from)).map(SlotId::at)
    }

    /// Returns the next probe whose timeout has passed at `now`, if any. The caller repeats the
    /// call until it returns `None`. All packets that have arrived must have been read.
    pub fn expire(&mut self, now: Nanos) -> Option<(SlotId, Event)> {
        self.expire_and(now, &mut |_, _, _| {})
    }

    /// Does the same, and calls `unanswered` once for each probe that has timed out and is lost, in
    /// doubt or an extra one, and says whether it is. Probes of peers that have moved or left are
    /// none of these.
    pub(super) fn expire_and(
        &mut self,
        now: Nanos,
        unanswered: &mut impl FnMut(SlotId, Tag, bool),
    ) -> Option<(SlotId, Event)> {
        if !self.doubts.is_empty()
            && let Some(decided) = self.decided(now)
        {
            return Some(decided);
        }
        while let Some(number) = self.flights.oldest_waiting() {
            // Strictly later: a reply that took exactly the timeout is in time.
            if now.since(self.flights.sent_at(number)) <= self.timeout.plus(self.dwell) {
                return None;
            }
            let flight = self.flights.get(number);
            let generation = self.destinations[flight.slot.index()].generation;
            if !flight.generation.same_holder(generation) {
                self.flights.set(number, State::GivenUp);
                continue;
            }
            let peer = self.destinations[flight.slot.index()];
            if flight.state == State::Extra {
                self.flights.set(number, State::GivenUp);
                if peer.is_probed_as(flight) && peer.excuses == 0 {
                    unanswered(flight.slot, self.flights.tag(number), true);
                }
                continue;
            }
            if flight.state == State::Excused {
                self.flights.set(number, State::GivenUp);
                return Some((flight.slot, Event::Terminating { answered: false }));
            }
            if peer.is_probed_as(flight) {
                unanswered(flight.slot, self.flights.tag(number), false);
            }
            if !self.withholds(number, flight, now) {
                return Some((flight.slot, self.unanswered(number, flight)));
            }
        }
        None
    }

    /// Returns when the oldest probe in flight times out.
    pub fn next_expiry(&mut self) -> Option<Nanos> {
        let waiting = self.flights.oldest_waiting()?;
        Some(self.flights.sent_at(waiting).plus(self.timeout).plus(self.dwell).plus(Nanos(1)))
    }

    /// Returns the number of the oldest probe whose outcome is not decided. Probes in doubt are.
    pub(super) fn oldest_waiting(&mut self) -> Option<u64> {
        self.flights.oldest_waiting()
    }

    /// Records a probe that was not answered in time.
    fn unanswered(&mut self, number: u64, flight: Flight) -> Event {
        let peer = &mut self.destinations[flight.slot.index()];
        if peer.is_probed_as(flight) {
            self.flights.set(number, State::Lost);
            return Event::Lost;
        }
        self.flights.set(number, State::GivenUp);
        if !flight.terminating {
            // `sent` has counted it; the next probe takes its place.
            peer.withdraw_sent(1);
        }
        Event::Terminating { answered: false }
    }

    /// Whether a probe is in flight, or its loss is withheld.
    pub fn awaits_any(&mut self) -> bool {
        self.flights.oldest_waiting().is_some() || self.doubts.holds_any()
    }

    /// Returns the resident memory of addresses and probes, in bytes of whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.destinations.resident_bytes() + self.flights.resident_bytes()
    }

    /// Returns the number of probes that can be in flight or remembered: `slots × (⌈timeout ÷
    /// interval⌉ + 3)` and 64, with 8 bytes each. Of UDP, those of the extra probes as well.
    pub fn flight_capacity(&self) -> usize {
        self.flights.capacity()
    }
}

#[cfg(test)]
mod doubt_tests;
mod doubting;
#[cfg(test)]
mod tests;
