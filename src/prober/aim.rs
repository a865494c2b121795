//! Whom the probes of a slot are for, and how far their sequence numbers are.

use std::net::{IpAddr, Ipv4Addr};

use super::doubts::DoubtId;
use super::flights::Stay;

/// What the engine knows of the peer in a slot: 28 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Aim {
    address: IpAddr,
    /// Whether it is probed at all.
    listed: bool,
    /// Whether the peer is on its way out.
    pub terminating: bool,
    /// In which of its stays the peer is.
    pub stay: Stay,
    /// Of the next probe.
    sequence: u16,
    /// One more than the highest sequence number answered, kept within reach of `sequence`.
    answered: u16,
    /// Withdrawn probes that `sent` has counted: so many later ones are not counted again.
    owed: u16,
    /// Which of its losses are withheld, if any.
    pub doubt: DoubtId,
}

/// How far `answered` may lie behind: beyond half of its range, behind would look like ahead.
const REACH: u16 = 1 << 14;

impl Aim {
    /// Of a slot that nobody has had.
    pub const NOBODY: Self = Self {
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        listed: false,
        terminating: false,
        stay: Stay::first(),
        sequence: 0,
        answered: 0,
        owed: 0,
        doubt: DoubtId::NONE,
    };

    /// Somebody else has the slot from now on, who is not listed yet.
    pub const fn replace(&mut self) {
        *self = Self { stay: self.stay.replaced(), ..Self::NOBODY };
    }

    /// The list has the peer, there. Gives what was in doubt where that is another stay.
    pub fn list(&mut self, address: IpAddr, terminating: bool) -> DoubtId {
        let moves = self.address() != Some(address) || (terminating && !self.terminating);
        (self.address, self.listed, self.terminating) = (address, true, terminating);
        if moves { self.begin_stay() } else { DoubtId::NONE }
    }

    /// The peer is probed no more. Gives what was in doubt.
    pub const fn stop(&mut self) -> DoubtId {
        self.listed = false;
        self.begin_stay()
    }

    const fn begin_stay(&mut self) -> DoubtId {
        self.stay = self.stay.moved();
        std::mem::replace(&mut self.doubt, DoubtId::NONE)
    }

    /// Where it is probed; none while it is off the list.
    pub fn address(&self) -> Option<IpAddr> {
        self.listed.then_some(self.address)
    }

    /// The sequence number of the next probe.
    pub const fn next_sequence(&mut self) -> u16 {
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        if sequence.wrapping_sub(self.answered) == REACH {
            self.answered = self.answered.wrapping_add(1);
        }
        sequence
    }

    /// A probe was answered. Returns whether a later one was answered before.
    pub const fn answer(&mut self, sequence: u16) -> bool {
        let overtaken = self.answered.wrapping_sub(sequence).cast_signed() > 0;
        if !overtaken {
            self.answered = sequence.wrapping_add(1);
        }
        overtaken
    }

    /// Whether the newest probe was answered: then the peer was still there after every other.
    pub const fn is_vouched(&self) -> bool {
        self.answered == self.sequence
    }

    /// A probe that `sent` has counted was withdrawn.
    pub const fn owe(&mut self) {
        self.owed = self.owed.saturating_add(1);
    }

    /// A probe was sent. Returns whether it stands in for one that was withdrawn.
    pub const fn repay(&mut self) -> bool {
        let owed = self.owed > 0;
        self.owed = self.owed.saturating_sub(1);
        owed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_stays_small() {
        assert_eq!(size_of::<Aim>(), 28);
    }
}
