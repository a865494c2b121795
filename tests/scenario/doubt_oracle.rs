//! The expected counts where losses are asked about: a second opinion, from the journal of the
//! prober's inputs and of the wire. It keeps probes in a plain list, and knows no ring, slot or
//! place.

use std::collections::HashMap;
use std::net::IpAddr;

use kube_canary::limits::DOUBT_TIME;
use kube_canary::peers::{Change, SlotId};
use kube_canary::prober::QUESTION_PAUSE;
use kube_canary::statistics::PeerReading;
use kube_canary::units::Nanos;

use super::wire::Probe;
use super::world::Entry;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Refused,
    Waiting,
    Answered,
    Lost,
    Withheld,
    Withdrawn,
}

#[derive(Debug)]
struct Flight {
    sent_at: Nanos,
    to: IpAddr,
    replies: Vec<Nanos>,
    terminating: bool,
    generation: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Open,
    Settled,
}

#[derive(Debug)]
struct Doubt {
    since: Nanos,
    asked: bool,
    standing: Standing,
    /// The last probe that was withheld.
    last: usize,
}

/// The number of withheld losses, by the way in which they ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    /// The source was sure.
    pub sure: u64,
    /// The source could not say.
    pub unsure: u64,
    /// The source had no room for the question.
    pub refused: u64,
    /// There was no answer in time.
    pub unanswered: u64,
    /// The peer answered a later probe.
    pub vouched: u64,
    /// The peer answered, but too late.
    pub late: u64,
    /// The list showed that the peer has gone.
    pub withdrawn: u64,
    /// Counted without a question: the peer had answered a later probe before, or was asked
    /// about not long before.
    pub counted: u64,
}

/// A peer's probes and counters.
#[derive(Debug, Default)]
pub struct Peer {
    flights: Vec<Flight>,
    /// Sent probes, including refused ones. Probes before these are in `flights`.
    log: Vec<(IpAddr, Probe)>,
    address: Option<IpAddr>,
    terminating: bool,
    generation: u32,
    doubt: Option<Doubt>,
    withdrawn: u64,
    newest_answered: Option<usize>,
    asked_at: HashMap<IpAddr, Nanos>,
    /// The expected values of all counters.
    pub counts: PeerReading,
    /// The ways in which withheld losses ended.
    pub ends: Ends,
}

/// Returns the peer in `slot`, which was sent these probes, after all entries of the journal.
pub fn peer(slot: SlotId, mut log: Vec<(IpAddr, Probe)>, journal: &[(Nanos, Entry)], timeout: Nanos) -> Peer {
    log.sort_by_key(|(_, probe)| probe.sent_at);
    let mut peer = Peer { log, ..Peer::default() };
    for (now, entry) in journal {
        match entry {
            Entry::Turn => peer.turn(*now, timeout),
            Entry::Change(Change::Probe { slot: of, address, terminating, .. }) if *of == slot => {
                let moves = peer.address != Some(*address) || *terminating && !peer.terminating;
                (peer.address, peer.terminating) = (Some(*address), *terminating);
                if moves {
                    peer.withdraw();
                }
            }
            Entry::Change(Change::Stop { slot: of }) if *of == slot => {
                peer.address = None;
                peer.withdraw();
            }
            Entry::Sure(address) if peer.address == Some(*address) => peer.ends.sure += peer.answered(*now),
            Entry::Unsure(address) if peer.address == Some(*address) => peer.ends.unsure += peer.answered(*now),
            Entry::Question(address, taken) if peer.address == Some(*address) => peer.asked(*now, *address, *taken),
            _ => {}
        }
    }
    peer
}

impl Peer {
    fn is_open(&self) -> bool {
        self.doubt.as_ref().is_some_and(|doubt| doubt.standing == Standing::Open)
    }

    /// Ends whatever is withheld with this result.
    fn settle(&mut self, state: State, standing: Standing) -> u64 {
        let mut settled = 0;
        for flight in self.flights.iter_mut().filter(|flight| flight.state == State::Withheld) {
            flight.state = state;
            settled += 1;
        }
        if let Some(doubt) = &mut self.doubt {
            doubt.standing = standing;
        }
        if state == State::Lost {
            self.counts.lost += settled;
        }
        settled
    }

    fn withdraw(&mut self) {
        self.generation += 1;
        let withdrawn = self.settle(State::Withdrawn, Standing::Settled);
        self.counts.terminating[1] += u32::try_from(withdrawn).unwrap();
        self.withdrawn += withdrawn;
        self.ends.withdrawn += withdrawn;
        self.doubt = None;
    }

    fn asked(&mut self, now: Nanos, address: IpAddr, taken: bool) {
        let doubt = self.doubt.as_mut().expect("a question out of nothing");
        assert!(doubt.standing == Standing::Open && !doubt.asked && now.since(doubt.since) >= QUESTION_PAUSE.into());
        doubt.asked = true;
        if let Some(before) = self.asked_at.insert(address, now) {
            assert!(
                now.since(before).plus(QUESTION_PAUSE.into()) >= DOUBT_TIME.into(),
                "{address} is asked about too often"
            );
        }
        if !taken {
            self.ends.refused += self.settle(State::Lost, Standing::Settled);
        }
    }

    /// An answer ends a doubt that was asked about. Returns how many losses it ends.
    fn answered(&mut self, now: Nanos) -> u64 {
        self.was_asked_before(now);
        if self.is_open() && self.doubt.as_ref().is_some_and(|doubt| doubt.asked) {
            return self.settle(State::Lost, Standing::Settled);
        }
        0
    }

    fn turn(&mut self, now: Nanos, timeout: Nanos) {
        self.was_asked_before(now);
        self.send(now);
        let mut replies: Vec<(Nanos, usize)> = Vec::new();
        for (index, flight) in self.flights.iter_mut().enumerate() {
            replies.extend(flight.replies.extract_if(.., |at| *at <= now).map(|at| (at, index)));
        }
        replies.sort_unstable();
        for (at, index) in replies {
            self.reply(at, index, timeout);
        }
        self.end_doubt(now);
        self.expire(now, timeout);
    }

    /// A doubt is asked about soon, unless its address was asked about not long ago.
    fn was_asked_before(&mut self, now: Nanos) {
        let Some(doubt) = self.doubt.as_mut().filter(|doubt| doubt.standing == Standing::Open && !doubt.asked) else {
            return;
        };
        if now.since(doubt.since) > QUESTION_PAUSE.into() {
            let before = self.address.and_then(|address| self.asked_at.get(&address)).expect("it was held back");
            assert!(doubt.since.since(*before) < DOUBT_TIME.into(), "it was held back");
            doubt.asked = true;
        }
    }

    fn send(&mut self, now: Nanos) {
        while let Some((to, probe)) = self.log.get(self.flights.len()).filter(|(_, probe)| probe.sent_at <= now) {
            assert_eq!((self.address, probe.sent_at), (Some(*to), now), "sent where it is, in this turn");
            let terminating = self.terminating;
            let state = match probe.refused {
                Some(reason) => {
                    self.counts.send_errors[reason as usize] += 1;
                    State::Refused
                }
                None if !terminating && self.withdrawn > 0 => {
                    self.withdrawn -= 1;
                    State::Waiting
                }
                None => {
                    self.counts.sent += u64::from(!terminating);
                    State::Waiting
                }
            };
            let replies = probe.replies.iter().map(|reply| reply.at).collect();
            self.flights.push(Flight {
                sent_at: now,
                to: *to,
                replies,
                terminating,
                generation: self.generation,
                state,
            });
        }
    }

    fn reply(&mut self, at: Nanos, index: usize, timeout: Nanos) {
        let flight = &mut self.flights[index];
        if self.address.is_some_and(|address| address != flight.to) {
            return;
        }
        let before = std::mem::replace(&mut flight.state, State::Answered);
        match before {
            State::Withdrawn => flight.state = before,
            State::Answered => self.counts.duplicate += 1,
            State::Lost => self.counts.late += 1,
            State::Withheld => {
                self.counts.lost += 1;
                self.counts.late += 1;
                self.ends.late += 1;
            }
            State::Waiting if at.since(flight.sent_at) > timeout => {
                flight.state = State::Waiting;
                if self.unanswered(index) {
                    self.counts.late += 1;
                }
                self.flights[index].state = State::Answered;
            }
            State::Waiting => {
                let overtaken = self.newest_answered.is_some_and(|newest| index < newest);
                if flight.terminating {
                    self.counts.terminating[0] += 1;
                } else {
                    self.counts.received += 1;
                    self.counts.reordered += u32::from(overtaken);
                }
                self.newest_answered = self.newest_answered.max(Some(index));
                self.vouch(index);
            }
            State::Refused => panic!("a reply to nothing"),
        }
    }

    /// A probe without an answer and without a doubt. Returns whether it is lost.
    fn unanswered(&mut self, index: usize) -> bool {
        let flight = &mut self.flights[index];
        let lost = !flight.terminating && flight.generation == self.generation;
        if lost {
            flight.state = State::Lost;
            self.counts.lost += 1;
        } else {
            flight.state = State::Withdrawn;
            self.counts.terminating[1] += 1;
            self.withdrawn += u64::from(!flight.terminating);
        }
        lost
    }

    fn vouch(&mut self, index: usize) {
        let Some(doubt) = &self.doubt else { return };
        assert!(index > doubt.last, "what was sent before has expired");
        let asked = doubt.asked;
        let settled = self.settle(State::Lost, Standing::Settled);
        self.ends.vouched += settled;
        if !asked {
            self.doubt = None;
        }
    }

    fn end_doubt(&mut self, now: Nanos) {
        if self.doubt.as_ref().is_some_and(|doubt| now.since(doubt.since) >= DOUBT_TIME.into()) {
            if self.is_open() {
                self.ends.unanswered += self.settle(State::Lost, Standing::Settled);
            }
            self.doubt = None;
        }
    }

    fn expire(&mut self, now: Nanos, timeout: Nanos) {
        let is_over = |flight: &Flight| flight.state == State::Waiting && now.since(flight.sent_at) > timeout;
        for index in 0..self.flights.len() {
            if !is_over(&self.flights[index]) {
                continue;
            }
            let flight = &self.flights[index];
            let counts = !flight.terminating && flight.generation == self.generation;
            let vouched = self.newest_answered == Some(self.flights.len() - 1);
            if counts && !vouched && self.doubt.as_ref().is_none_or(|d| d.standing == Standing::Open) {
                self.flights[index].state = State::Withheld;
                let fresh = Doubt { since: now, asked: false, standing: Standing::Open, last: index };
                self.doubt.get_or_insert(fresh).last = index;
            } else {
                self.ends.counted += u64::from(self.unanswered(index));
            }
        }
    }
}
