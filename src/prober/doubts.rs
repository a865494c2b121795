//! Losses that are not counted yet, because the peer list may be out of date: a ring of open
//! questions.
//!
//! An unanswered probe is a loss only if its peer is still there. A list that learns of changes
//! late may not know that yet. So the loss is withheld and the source of the list is asked about
//! the address. One of these events decides:
//! - the answer to the question
//! - a list that says otherwise
//! - a later reply from the peer itself
//! - the end of [`DOUBT_TIME`]
//!
//! This module keeps the doubts in the order of asking, which is the order of their ends.
//! [`super::Engine`] keeps the peers and the probes.
//!
//! At short intervals, a withheld probe leaves the ring of flights before its doubt is decided. So
//! the counts are kept here, and the flights only identify a late reply. Rejected: a longer ring of
//! flights, because it costs memory for every peer.
//!
//! A doubt keeps its place for [`DOUBT_TIME`], however it ends. So an address is asked about at
//! most once in that time, less the [`QUESTION_PAUSE`] by which its question was delayed.

use std::net::IpAddr;
use std::time::Duration;

use crate::limits::{DOUBT_TIME, DOUBTS_MAX};
use crate::peers::SlotId;
use crate::units::Nanos;

/// How long a question is delayed. If a packet was lost but the peer is still there, the reply
/// to a later probe arrives in this time and makes the question unnecessary. Longer than round
/// trips in a cluster.
pub const QUESTION_PAUSE: Duration = Duration::from_millis(50);
/// Losses of one peer that are withheld. They cover a doubt at intervals of 15 ms and more.
/// At shorter intervals, further losses are counted at once. Below 100 ms, that many losses
/// counted at once may exceed what is left of the 255 that a recent half can count. That
/// half then stops counting.
pub const WITHHELD_MAX: u8 = 200;
const _: () = assert!(QUESTION_PAUSE.as_millis() < DOUBT_TIME.as_millis());
const _: () = assert!(DOUBT_TIME.as_millis() / 15 <= WITHHELD_MAX as u128);

/// The doubt about a peer. It is a part of every [`super::destination::Destination`], so it
/// has only two bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoubtId(u16);

impl DoubtId {
    /// No doubt: the next loss leads to a question.
    pub const NONE: Self = Self(u16::MAX);
    /// No doubt at present, after one that the peer has not answered. The next loss leads to a
    /// question if the ring has places to spare.
    pub const SILENT: Self = Self(u16::MAX - 1);
}

/// State of a doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoubtState {
    /// Losses are withheld until the doubt ends.
    Open,
    /// The question is answered, or cannot be, or the peer itself has answered. Losses count. After
    /// the time of this doubt the next loss leads to a new question.
    Settled,
    /// The peer has gone: its losses do not count. Its destination no longer refers to this doubt.
    Withdrawn,
}

/// A doubt whether a peer is still there.
#[derive(Clone, Copy, Debug)]
pub struct Doubt {
    /// The slot of the peer.
    pub slot: SlotId,
    /// State of the doubt.
    pub standing: DoubtState,
    /// The address that was asked about, for this slot or another one with that address. `None`
    /// if the question was not passed on.
    pub asked: Option<IpAddr>,
    /// Number of losses that are neither counted nor withdrawn.
    pub withheld: u8,
    /// When the doubt began.
    since: Nanos,
    /// The numbers of the first and of the last withheld probe.
    pub probes: (u64, u64),
}

const _: () = assert!(size_of::<Doubt>() <= 48);
const _: () = assert!(DOUBTS_MAX < DoubtId::SILENT.0);

/// All doubts, in the order of their beginning.
#[derive(Debug)]
pub struct Doubts {
    /// Allocated once. Empty if questions are not answered.
    ring: Vec<Doubt>,
    places: u16,
    first: u16,
    len: u16,
    /// Number of doubts at the front that need no further question.
    passed_on: u16,
    /// Number of losses of decided doubts that are not reported yet.
    decided: usize,
}

impl Doubts {
    /// Makes an empty ring. If questions are not `answered`, it stays empty: every loss
    /// is counted at once.
    pub fn new(answered: bool) -> Self {
        let places = if answered { DOUBTS_MAX } else { 0 };
        Self { ring: Vec::with_capacity(places.into()), places, first: 0, len: 0, passed_on: 0, decided: 0 }
    }

    /// Whether there is no doubt.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether losses are withheld, or decided and not reported.
    pub fn holds_any(&self) -> bool {
        self.iter().any(|doubt| doubt.withheld > 0)
    }

    const fn id(&self, nth: u16) -> DoubtId {
        let place = self.first + nth;
        DoubtId(if place < self.places { place } else { place - self.places })
    }

    fn place(&self, nth: u16) -> usize {
        self.id(nth).0.into()
    }

    fn iter(&self) -> impl Iterator<Item = &Doubt> {
        (0..self.len).map(|nth| &self.ring[self.place(nth)])
    }

    /// Returns the place of every doubt, from the oldest.
    pub fn ids(&self) -> impl Iterator<Item = DoubtId> + use<> {
        let (first, places) = (self.first, self.places);
        (0..self.len).map(move |nth| DoubtId((first + nth) % places))
    }

    /// Returns the doubt in a place; `None` for [`DoubtId::NONE`] and
    /// [`DoubtId::SILENT`].
    pub fn get(&mut self, id: DoubtId) -> Option<&mut Doubt> {
        self.ring.get_mut(usize::from(id.0))
    }

    /// Withholds the loss of a probe of `slot`, whose doubt is `id`. Returns the doubt that it is
    /// part of; `None` if the loss must be counted at once.
    pub fn withhold(&mut self, id: DoubtId, slot: SlotId, number: u64, now: Nanos) -> Option<DoubtId> {
        if let Some(doubt) = self.get(id) {
            if doubt.standing != DoubtState::Open || doubt.withheld == WITHHELD_MAX {
                return None;
            }
            doubt.withheld += 1;
            doubt.probes.1 = number;
            return Some(id);
        }
        // Dead peers fill half of the ring at most, so that a pod that is replaced finds a place.
        let places = if id == DoubtId::SILENT { self.places / 2 } else { self.places };
        if self.len >= places {
            return None;
        }
        let (standing, probes) = (DoubtState::Open, (number, number));
        let doubt = Doubt { slot, standing, asked: None, withheld: 1, since: now, probes };
        let (id, place) = (self.id(self.len), self.place(self.len));
        if place == self.ring.len() {
            self.ring.push(doubt);
        } else {
            self.ring[place] = doubt;
        }
        self.len += 1;
        Some(id)
    }

    /// Ends an open doubt. Returns its previous state.
    pub fn decide(&mut self, id: DoubtId, standing: DoubtState) -> Option<Doubt> {
        let doubt = self.get(id)?;
        let before = *doubt;
        doubt.standing = standing;
        if before.standing == DoubtState::Open {
            self.decided += usize::from(before.withheld);
        }
        Some(before)
    }

    /// Drops the doubts of a slot that has another peer now: their losses are never reported.
    pub fn forget(&mut self, slot: SlotId) {
        for nth in 0..self.len {
            let place = self.place(nth);
            if self.ring[place].slot == slot {
                self.forget_at(place);
            }
        }
    }

    fn forget_at(&mut self, place: usize) {
        let doubt = &mut self.ring[place];
        if doubt.standing != DoubtState::Open {
            self.decided -= usize::from(doubt.withheld);
        }
        (doubt.standing, doubt.withheld) = (DoubtState::Withdrawn, 0);
    }

    /// Gives every doubt the new number of its slot. Drops the doubt if the slot has none.
    pub fn relabel(&mut self, now: impl Fn(SlotId) -> Option<SlotId>) {
        for nth in 0..self.len {
            let place = self.place(nth);
            match now(self.ring[place].slot) {
                Some(slot) => self.ring[place].slot = slot,
                None => self.forget_at(place),
            }
        }
    }

    /// Returns a decided loss that is not reported yet, and whether it counts as a loss.
    pub fn take_decided(&mut self) -> Option<(SlotId, bool)> {
        if self.decided == 0 {
            return None;
        }
        let is_decided = |doubt: &Doubt| doubt.withheld > 0 && doubt.standing != DoubtState::Open;
        let id = self.ids().zip(self.iter()).find(|(_, doubt)| is_decided(doubt))?.0;
        self.decided -= 1;
        let doubt = self.get(id)?;
        doubt.withheld -= 1;
        Some((doubt.slot, doubt.standing != DoubtState::Withdrawn))
    }

    /// Returns the oldest doubt if its time is over. If no question was asked and no destination
    /// refers to it, its time is over at once.
    pub fn over(&self, now: Nanos) -> Option<DoubtId> {
        let (id, doubt) = (self.ids().next()?, self.iter().next()?);
        let unasked = doubt.asked.is_none() && doubt.standing != DoubtState::Open;
        (unasked || now.since(doubt.since) >= DOUBT_TIME.into()).then_some(id)
    }

    /// Removes the oldest doubt, which has nothing left to report.
    pub fn pop(&mut self) {
        debug_assert!(self.iter().next().is_some_and(|doubt| doubt.withheld == 0), "all is reported");
        self.first = self.id(1).0;
        self.len -= 1;
        self.passed_on = self.passed_on.saturating_sub(1);
        if self.len == 0 {
            // The ring starts at the front again, so a calm mesh touches no more
            // memory than it needs.
            self.first = 0;
        }
    }

    /// Returns the next open doubt to ask about. Skips doubts that are not open, and addresses that
    /// were asked about within [`DOUBT_TIME`].
    pub fn next_question(
        &mut self,
        now: Nanos,
        address: impl Fn(SlotId) -> Option<IpAddr>,
    ) -> Option<(DoubtId, IpAddr)> {
        while self.passed_on < self.len {
            let (id, place) = (self.id(self.passed_on), self.place(self.passed_on));
            let doubt = self.ring[place];
            if now.since(doubt.since) < QUESTION_PAUSE.into() {
                return None;
            }
            self.passed_on += 1;
            let Some(address) = address(doubt.slot).filter(|_| doubt.standing == DoubtState::Open) else { continue };
            let was_asked = self.iter().any(|other| other.asked == Some(address));
            self.ring[place].asked = Some(address);
            if !was_asked {
                return Some((id, address));
            }
        }
        None
    }

    /// Returns when the next doubt needs attention.
    pub fn next_due(&self) -> Option<Nanos> {
        if self.decided > 0 {
            return Some(Nanos(0));
        }
        let over = self.iter().next()?.since.plus(DOUBT_TIME.into());
        let question = self.iter().nth(self.passed_on.into()).map(|doubt| doubt.since.plus(QUESTION_PAUSE.into()));
        Some(question.map_or(over, |at| at.min(over)))
    }
}
