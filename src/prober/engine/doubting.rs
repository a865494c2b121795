//! How the engine handles losses in doubt. None of this code runs for a probe that is answered in
//! time without a doubt.

use std::net::IpAddr;

use super::super::doubts::{Doubt, DoubtState};
use super::{DoubtId, Engine, Event, Events, Flight, SlotId, State};
use crate::units::Nanos;

impl Engine {
    /// Whether the loss of this probe, which has timed out, is withheld. It is not if the peer has
    /// answered a later probe, because the peer was then still there.
    pub(super) fn withholds(&mut self, number: u64, flight: Flight, now: Nanos) -> bool {
        let peer = &mut self.destinations[flight.slot.index()];
        if flight.terminating || flight.generation != peer.generation || peer.newest_is_answered() {
            return false;
        }
        let Some(doubt) = self.doubts.withhold(peer.doubt, flight.slot, number, now) else { return false };
        peer.doubt = doubt;
        self.flights.set(number, State::Withheld);
        true
    }

    /// Passes on the new questions: is the peer at this address still on the list? `ask` returns
    /// whether it accepted the question; if not, the loss is counted.
    pub fn ask(&mut self, now: impl FnOnce() -> Nanos, mut ask: impl FnMut(IpAddr) -> bool) {
        // This is the common case: it does not even need the time.
        if self.doubts.is_empty() {
            return;
        }
        let now = now();
        while let Some((doubt, address)) = self.question(now) {
            if !ask(address) {
                self.unanswerable(doubt);
            }
        }
    }

    /// Returns the question to pass on at `now`, if any: is the peer at this address still there?
    /// The answer is [`Engine::answered`] or a change. An address is asked about at
    /// most once in [`crate::limits::DOUBT_TIME`].
    pub fn question(&mut self, now: Nanos) -> Option<(DoubtId, IpAddr)> {
        let destinations = &self.destinations;
        self.doubts.next_question(now, |slot| destinations.get(slot.index())?.address())
    }

    /// Notes that the question could not be passed on: what was withheld is lost.
    pub fn unanswerable(&mut self, id: DoubtId) {
        self.decide(id, DoubtState::Settled);
    }

    /// Notes the answer to the question about this address: the list is as right as can be known
    /// now. What was withheld is lost, and a new question is allowed after the time of this doubt.
    pub fn answered(&mut self, address: IpAddr) {
        for id in self.doubts.ids() {
            let Some(doubt) = self.doubts.get(id) else { continue };
            // The answer is to an earlier question if this doubt was not asked about.
            let open = doubt.standing == DoubtState::Open && doubt.asked.is_some();
            if open && self.destinations.get(doubt.slot.index()).is_some_and(|peer| peer.address() == Some(address)) {
                self.decide(id, DoubtState::Settled);
            }
        }
    }

    /// Withdraws the losses in doubt of a peer that has changed: they do not count. If the doubt
    /// was decided before and only waits to be reported, nothing changes.
    pub(super) fn withdraw(&mut self, id: DoubtId) {
        if self.doubts.get(id).is_some_and(|doubt| doubt.standing != DoubtState::Open && doubt.withheld > 0) {
            return;
        }
        let Some(doubt) = self.decide(id, DoubtState::Withdrawn) else { return };
        if doubt.standing == DoubtState::Open {
            // `sent` has counted them; the next probes take their places.
            let peer = &mut self.destinations[doubt.slot.index()];
            peer.withdraw_sent(doubt.withheld.into());
        }
    }

    /// Gives the slot to another peer.
    pub(super) fn replace(&mut self, slot: SlotId) {
        let peer = &mut self.destinations[slot.index()];
        let id = peer.doubt;
        peer.replace();
        self.decide(id, DoubtState::Withdrawn);
        self.doubts.forget(slot);
    }

    /// Decides a doubt. Returns its previous state.
    fn decide(&mut self, id: DoubtId, standing: DoubtState) -> Option<Doubt> {
        let before = self.doubts.decide(id, standing)?;
        if before.standing == DoubtState::Open {
            let state = if standing == DoubtState::Withdrawn { State::GivenUp } else { State::Lost };
            self.flights.settle(before.slot, before.probes, state);
        }
        Some(before)
    }

    /// Handles a late reply to a probe that was withheld, or that is no longer remembered.
    pub(super) fn late(&mut self, id: DoubtId, number: u64) -> Events {
        let late = Some(Event::Late);
        match self.doubts.get(id) {
            Some(doubt)
                if doubt.standing == DoubtState::Open && (doubt.probes.0..=doubt.probes.1).contains(&number) =>
            {
                let withheld = doubt.withheld > 0;
                doubt.withheld -= u8::from(withheld);
                if withheld { [Some(Event::Lost), late] } else { [late, None] }
            }
            _ => [late, None],
        }
    }

    /// Handles an answer in time from a peer in doubt. That probe was sent after all that are
    /// withheld, because probes expire in the order of sending.
    #[cold]
    pub(super) fn answer_in_doubt(&mut self, slot: SlotId) {
        let peer = &mut self.destinations[slot.index()];
        let id = peer.doubt;
        let Some(doubt) = self.doubts.get(id).copied() else {
            peer.doubt = DoubtId::NONE;
            return;
        };
        if doubt.asked.is_none() {
            peer.doubt = DoubtId::NONE;
        }
        self.decide(id, DoubtState::Settled);
    }

    /// Returns the next withheld loss that is decided, or whose time is over, at `now`.
    pub(super) fn decided(&mut self, now: Nanos) -> Option<(SlotId, Event)> {
        loop {
            if let Some((slot, lost)) = self.doubts.take_decided() {
                return Some((slot, if lost { Event::Lost } else { Event::Terminating { answered: false } }));
            }
            let id = self.doubts.over(now)?;
            let doubt = *self.doubts.get(id)?;
            if doubt.standing == DoubtState::Open {
                // No answer has arrived.
                self.decide(id, DoubtState::Settled);
                continue;
            }
            if let Some(peer) = self.destinations.get_mut(doubt.slot.index()).filter(|peer| peer.doubt == id) {
                peer.doubt = DoubtId::SILENT;
            }
            self.doubts.pop();
        }
    }

    /// Returns when the next doubt needs attention.
    pub fn next_doubt(&self) -> Option<Nanos> {
        self.doubts.next_due()
    }
}
