//! The search for the largest size that passes, on one path.

use super::evidence::{MtuEvidence, Outcome, Question};
use crate::peers::SlotId;
use crate::prober::Flow;
use crate::units::Nanos;

/// Largest difference between the largest size that passes and the smallest that does not, from
/// which on the hole is reported. The search goes on to one byte.
pub const PRECISION: u16 = 8;
/// Large packets of the first of two rounds that confirm a hole.
const FIRST_ROUND: u8 = 7;
/// Pause between the two rounds, after the last packet of the first is decided. So no short
/// disturbance makes a hole.
const ROUND_PAUSE: Nanos = Nanos::from_millis(2_000);
/// Time between two large packets of a search: to confirm a hole, and to find its size.
const PACE_CONFIRM: Nanos = Nanos::from_millis(250);
const PACE_BISECT: Nanos = Nanos::from_millis(125);
/// Time that the packets of one turn make up for.
const BURST: Nanos = Nanos::from_millis(250);

/// A search on one path, and what it has found so far.
#[derive(Clone, Copy, Debug)]
pub struct SizeSearch {
    pub slot: SlotId,
    pub flow: Flow,
    /// When it began. Losses of packets that were sent before do not count.
    begun: Nanos,
    /// The largest size that passes.
    pub low: u16,
    /// The smallest size that is blocked, or the size that is suspected.
    high: u16,
    /// The size with which the search began.
    top: u16,
    /// The size of small packets.
    small: u16,
    /// The size that is tested.
    target: u16,
    question: Question,
    evidence: MtuEvidence,
    /// A likely result, which is tested first. 0 is none.
    guess: u16,
    /// The MTU that the network said. 0 is none.
    pub said: u16,
    /// Whether a size has passed that the network said is too big, or that was taken for blocked.
    distrusts: bool,
    next_at: Nanos,
    /// Whether the next packet is a small one.
    small_next: bool,
    /// Whether the pause between the rounds is over.
    second_round: bool,
}

/// What a search has found by an answer or a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The search goes on.
    On,
    /// There is a hole, known to [`PRECISION`]. The search goes on.
    Hole,
    /// There is a hole, and its size is exact.
    Exact,
    /// There is no hole below this size, or nothing can be said. The search is over.
    Over,
}

impl SizeSearch {
    /// Starts to confirm that packets of `size` are blocked, of which one was lost.
    pub const fn new(slot: SlotId, flow: Flow, size: u16, small: u16, guess: u16, now: Nanos) -> Self {
        Self {
            slot,
            flow,
            begun: now,
            low: small,
            high: size,
            top: size,
            small,
            target: size,
            question: Question::IsThereAHole,
            evidence: MtuEvidence { sent: 1, lost: 1, said: 0, small_passed: 0, small_lost: 0 },
            guess,
            said: 0,
            distrusts: false,
            next_at: now,
            small_next: true,
            second_round: false,
        }
    }

    /// Moves on behind a size that passes though it was taken for blocked, below one that is
    /// known to be blocked.
    pub fn resume(slot: SlotId, flow: Flow, [low, high, small]: [u16; 3], said: u16, now: Nanos) -> Self {
        let mut search = Self { said, low, distrusts: true, ..Self::new(slot, flow, high, small, 0, now) };
        search.advance();
        search
    }

    /// Returns the size of the next packet, if one is due. A large packet must be paid for.
    pub fn next(&mut self, now: Nanos, wait: Nanos, pay: impl FnOnce() -> bool) -> Option<u16> {
        if now < self.next_at {
            return None;
        }
        if self.small_next {
            self.small_next = false;
            return Some(self.small);
        }
        let evidence = &mut self.evidence;
        if evidence.sent >= evidence.needed(self.question) || !pay() {
            return None;
        }
        evidence.sent += 1;
        self.small_next = true;
        let confirms = self.question == Question::IsThereAHole;
        if confirms && evidence.sent >= FIRST_ROUND && !self.second_round {
            self.second_round = true;
            self.next_at = now.plus(wait).plus(ROUND_PAUSE);
        } else {
            let pace = if confirms { PACE_CONFIRM } else { PACE_BISECT };
            self.next_at = self.next_at.max(Nanos(now.0.saturating_sub(BURST.0))).plus(pace);
        }
        Some(self.target)
    }

    /// Returns when the next packet is due. `None` while results are awaited.
    pub const fn next_due(&self) -> Option<Nanos> {
        let waits = !self.small_next && self.evidence.sent >= self.evidence.needed(self.question);
        if waits { None } else { Some(self.next_at) }
    }

    /// Whether this is the search of a packet.
    pub fn is_for(&self, slot: SlotId, flow: Flow) -> bool {
        self.slot == slot && self.flow == flow
    }

    /// Records that a packet has passed, whenever it was sent.
    pub fn passed(&mut self, size: u16) -> Step {
        if size <= self.small {
            self.evidence.small_passed = self.evidence.small_passed.saturating_add(1);
            return self.decide();
        }
        if size >= self.top {
            return Step::Over;
        }
        if size >= self.high {
            // What was taken for blocked passes. Only silence counts from now on.
            let fresh = Self::new(self.slot, self.flow, self.top, self.small, 0, self.next_at);
            let (low, said, begun) = (size, self.said, self.begun);
            *self = Self { low, said, begun, distrusts: true, evidence: MtuEvidence::default(), ..fresh };
            return Step::On;
        }
        self.low = self.low.max(size);
        if self.question == Question::IsItBlocked && self.low >= self.target { self.advance() } else { Step::On }
    }

    /// Records that a packet was lost.
    pub fn lost(&mut self, size: u16, at: Nanos) -> Step {
        if at < self.begun {
            return Step::On;
        }
        if size == self.small {
            self.evidence.small_lost = self.evidence.small_lost.saturating_add(1);
        } else if size == self.target {
            self.evidence.lost = self.evidence.lost.saturating_add(1);
        }
        self.decide()
    }

    /// Records that the network said that a packet is too big, for which it counts as lost.
    pub fn refused(&mut self, size: u16, mtu: u16) -> Step {
        self.said = mtu;
        if size != self.target {
            return Step::On;
        }
        self.evidence.said = self.evidence.said.saturating_add(u8::from(!self.distrusts));
        self.evidence.lost = self.evidence.lost.saturating_add(1);
        self.decide()
    }

    /// Notes that an error came to the packet with which the search began.
    pub const fn begun_by_error(&mut self, mtu: u16) {
        self.said = mtu;
        self.evidence.said = 1;
    }

    fn decide(&mut self) -> Step {
        match self.evidence.outcome(self.question) {
            Outcome::Open => Step::On,
            Outcome::Unclear => Step::Over,
            Outcome::Blocked => {
                self.high = self.target;
                if self.said > 0 && !self.distrusts {
                    self.guess = self.said;
                }
                self.advance()
            }
        }
    }

    /// Selects the next size, between what passes and what is blocked.
    fn advance(&mut self) -> Step {
        let between = |size: u16| self.low < size && size < self.high;
        let middle = self.low + (self.high - self.low) / 2;
        let behind_guess = self.guess.saturating_add(1);
        self.question = Question::IsItBlocked;
        self.evidence = MtuEvidence::default();
        self.small_next = false;
        self.target = if self.guess > 0 && between(self.guess) {
            self.guess
        } else if self.guess > 0 && self.low == self.guess && between(behind_guess) {
            behind_guess
        } else {
            middle
        };
        match self.high - self.low {
            0 | 1 => Step::Exact,
            2..=PRECISION => Step::Hole,
            _ => Step::On,
        }
    }
}
