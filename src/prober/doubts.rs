//! Losses that are not booked yet, because the list may be out of date: a ring of open questions.
//!
//! A probe that nobody answered is a loss only if its peer is still there, and a list that is told of changes late may not
//! know that yet. So the loss is withheld, the address is asked about, and what comes of it decides: the answer, a list that
//! says otherwise, a later reply of the peer itself, or the end of [`DOUBT_TIME`]. This is the book of it, in the order of
//! asking, which is the order of that end; [`super::Engine`] keeps the peers and the probes.
//!
//! At short intervals a withheld probe falls out of the ring of flights before it is decided: what counts is kept here, and the
//! ring only tells a late reply. To make the ring longer for it would cost every peer.
//!
//! A doubt keeps its place for [`DOUBT_TIME`] however it ends, so that no address is asked about more often than that, less
//! the [`QUESTION_PAUSE`] for which its question was held back.

use std::net::IpAddr;

use crate::limits::{DOUBT_TIME, DOUBTS_MAX, QUESTION_PAUSE, WITHHELD_MAX};
use crate::peers::SlotId;
use crate::units::Nanos;

/// What is in doubt about a peer; part of every [`super::aim::Aim`], hence two bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoubtId(u16);

impl DoubtId {
    /// Nothing: the next loss will be asked about.
    pub const NONE: Self = Self(u16::MAX);
    /// Nothing, for it was asked about, is there by the list, and has not answered since: further losses are losses.
    pub const SILENT: Self = Self(u16::MAX - 1);
}

/// Where a doubt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Losses are withheld.
    Open,
    /// The peer is on the list: losses are losses.
    Sure,
    /// Nobody will say, or the peer itself has answered: as [`Standing::Sure`], but asked about again after this one's time.
    Settled,
    /// The peer has gone: the losses are none. Its aim knows nothing of this doubt any more.
    Withdrawn,
}

/// A peer in doubt.
#[derive(Clone, Copy, Debug)]
pub struct Doubt {
    /// Whose.
    pub slot: SlotId,
    /// How it stands.
    pub standing: Standing,
    /// The address that was asked about, for this slot or another one there.
    asked: Option<IpAddr>,
    /// Losses that are neither booked nor withdrawn.
    pub withheld: u8,
    /// Since when.
    since: Nanos,
    /// The numbers of the first and of the last probe that was withheld.
    pub probes: (u64, u64),
}

const _: () = assert!(size_of::<Doubt>() <= 48);
const _: () = assert!(DOUBTS_MAX < DoubtId::SILENT.0);

impl Doubt {
    /// Whether the question was passed on.
    pub const fn is_asked(&self) -> bool {
        self.asked.is_some()
    }
}

/// All of them.
#[derive(Debug)]
pub struct Doubts {
    /// Allocated once; nothing where nobody answers questions.
    ring: Vec<Doubt>,
    places: u16,
    first: u16,
    len: u16,
    /// Those from the first on that need not be asked about any more.
    passed_on: u16,
    /// Losses of decided doubts that are still to be told.
    decided: usize,
}

impl Doubts {
    /// None yet. Where nobody answers there will be none: every loss is booked at once.
    pub fn new(answered: bool) -> Self {
        let places = if answered { DOUBTS_MAX } else { 0 };
        Self { ring: Vec::with_capacity(places.into()), places, first: 0, len: 0, passed_on: 0, decided: 0 }
    }

    /// Whether there is nothing to look after.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether losses are withheld, or decided and not told.
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

    /// Every doubt's place, the oldest first.
    pub fn ids(&self) -> impl Iterator<Item = DoubtId> + use<> {
        let (first, places) = (self.first, self.places);
        (0..self.len).map(move |nth| DoubtId((first + nth) % places))
    }

    /// The doubt in a place; none for [`DoubtId::NONE`] and [`DoubtId::SILENT`].
    pub fn get(&mut self, id: DoubtId) -> Option<&mut Doubt> {
        self.ring.get_mut(usize::from(id.0))
    }

    /// Withholds the loss of a probe of `slot`, whose doubt is `id`. Gives the doubt it is part of; none where it must be
    /// booked at once.
    pub fn withhold(&mut self, id: DoubtId, slot: SlotId, number: u64, now: Nanos) -> Option<DoubtId> {
        if let Some(doubt) = self.get(id) {
            if doubt.standing != Standing::Open || doubt.withheld == WITHHELD_MAX {
                return None;
            }
            doubt.withheld += 1;
            doubt.probes.1 = number;
            return Some(id);
        }
        if id == DoubtId::SILENT || self.len == self.places {
            return None;
        }
        let (standing, probes) = (Standing::Open, (number, number));
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

    /// How an open doubt ends. Gives it as it was.
    pub fn decide(&mut self, id: DoubtId, standing: Standing) -> Option<Doubt> {
        let doubt = self.get(id)?;
        let before = *doubt;
        doubt.standing = standing;
        if before.standing == Standing::Open {
            self.decided += usize::from(before.withheld);
        }
        Some(before)
    }

    /// The slot has another holder: nothing of what was withheld is told to anyone.
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
        if doubt.standing != Standing::Open {
            self.decided -= usize::from(doubt.withheld);
        }
        (doubt.standing, doubt.withheld) = (Standing::Withdrawn, 0);
    }

    /// The slots have other numbers; none where nobody is in one.
    pub fn relabel(&mut self, now: impl Fn(SlotId) -> Option<SlotId>) {
        for nth in 0..self.len {
            let place = self.place(nth);
            match now(self.ring[place].slot) {
                Some(slot) => self.ring[place].slot = slot,
                None => self.forget_at(place),
            }
        }
    }

    /// A loss that is decided and not told yet, and whether it is one.
    pub fn take_decided(&mut self) -> Option<(SlotId, bool)> {
        if self.decided == 0 {
            return None;
        }
        let is_told = |doubt: &Doubt| doubt.withheld > 0 && doubt.standing != Standing::Open;
        let id = self.ids().zip(self.iter()).find(|(_, doubt)| is_told(doubt))?.0;
        let doubt = self.get(id)?;
        doubt.withheld -= 1;
        let told = (doubt.slot, doubt.standing != Standing::Withdrawn);
        self.decided -= 1;
        Some(told)
    }

    /// The oldest doubt, if its time is over; at once, where nobody was asked and nobody knows of it any more.
    pub fn over(&self, now: Nanos) -> Option<DoubtId> {
        let (id, doubt) = (self.ids().next()?, self.iter().next()?);
        let unasked = doubt.asked.is_none() && matches!(doubt.standing, Standing::Settled | Standing::Withdrawn);
        (unasked || now.since(doubt.since) >= DOUBT_TIME.into()).then_some(id)
    }

    /// Forgets the oldest one, of which nothing is left to tell.
    pub fn pop(&mut self) {
        debug_assert!(self.iter().next().is_some_and(|doubt| doubt.withheld == 0), "all is told");
        self.first = self.id(1).0;
        self.len -= 1;
        self.passed_on = self.passed_on.saturating_sub(1);
        if self.len == 0 {
            // From the front again: a calm mesh touches no more memory than it needs.
            self.first = 0;
        }
    }

    /// The next doubt to ask about, as long as it is open; those that are not, or whose address was asked about
    /// within [`DOUBT_TIME`], are passed by.
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
            let Some(address) = address(doubt.slot).filter(|_| doubt.standing == Standing::Open) else { continue };
            let was_asked = self.iter().any(|other| other.asked == Some(address));
            self.ring[place].asked = Some(address);
            if !was_asked {
                return Some((id, address));
            }
        }
        None
    }

    /// When something falls due.
    pub fn next_due(&self) -> Option<Nanos> {
        if self.decided > 0 {
            return Some(Nanos(0));
        }
        let over = self.iter().next()?.since.plus(DOUBT_TIME.into());
        let question = self.iter().nth(self.passed_on.into()).map(|doubt| doubt.since.plus(QUESTION_PAUSE.into()));
        Some(question.map_or(over, |at| at.min(over)))
    }
}
