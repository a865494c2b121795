//! The destination of a slot's probes, and the state of their sequence numbers.

use std::net::{IpAddr, Ipv4Addr};

use super::doubts::DoubtId;
use super::flights::{Flight, Generation};

/// What the engine knows about the peer in a slot: 28 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Destination {
    address: IpAddr,
    listing: Listing,
    /// Number of further excuses for the silence of the peer, because it may not listen yet.
    pub excuses: u8,
    /// The peer's current generation. It changes when the peer moves, leaves
    /// or begins to terminate.
    pub generation: Generation,
    /// Sequence number of the next probe.
    sequence: u16,
    /// One more than the highest sequence number answered, kept within reach of `sequence`.
    answered: u16,
    /// Probes already counted in `sent` and then withdrawn. The next that many
    /// probes are not counted.
    withdrawn: u16,
    /// The doubt that withholds losses of this peer, if any.
    pub doubt: DoubtId,
}

/// What the list says of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    /// It is not on the list, and not probed.
    Off,
    On,
    Terminating,
}

/// Largest distance of `answered` behind `sequence`: beyond half of the range, behind
/// would look like ahead.
const REACH: u16 = 1 << 14;

impl Destination {
    /// A slot that was never in use.
    pub const UNUSED: Self = Self {
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        listing: Listing::Off,
        excuses: 0,
        generation: Generation::first(),
        sequence: 0,
        answered: 0,
        withdrawn: 0,
        doubt: DoubtId::NONE,
    };

    /// Gives the slot to another peer, which is not listed yet.
    pub const fn replace(&mut self) {
        *self = Self { generation: self.generation.replaced(), ..Self::UNUSED };
    }

    /// Notes that the list has the peer at this address. If that begins another generation, returns
    /// the doubt of the one before.
    pub fn list(&mut self, address: IpAddr, terminating: bool) -> DoubtId {
        let moves = self.address() != Some(address) || (terminating && !self.terminating());
        (self.address, self.listing) = (address, if terminating { Listing::Terminating } else { Listing::On });
        if moves { self.begin_generation() } else { DoubtId::NONE }
    }

    /// Ends the probing of the peer. Returns its doubt.
    pub const fn stop(&mut self) -> DoubtId {
        self.listing = Listing::Off;
        self.begin_generation()
    }

    const fn begin_generation(&mut self) -> DoubtId {
        self.generation = self.generation.moved();
        std::mem::replace(&mut self.doubt, DoubtId::NONE)
    }

    /// Returns the address that is probed; `None` while the peer is off the list.
    pub fn address(&self) -> Option<IpAddr> {
        (self.listing != Listing::Off).then_some(self.address)
    }

    /// Whether the peer is terminating.
    pub fn terminating(&self) -> bool {
        self.listing == Listing::Terminating
    }

    /// Whether the peer is where it was when this probe was sent, and was not terminating then.
    pub fn is_probed_as(&self, flight: Flight) -> bool {
        !flight.terminating && flight.generation == self.generation
    }

    /// Returns the sequence number of the next probe.
    pub const fn next_sequence(&mut self) -> u16 {
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        if sequence.wrapping_sub(self.answered) == REACH {
            self.answered = self.answered.wrapping_add(1);
        }
        sequence
    }

    /// Takes back the sequence number of a probe that was not sent, if it is the newest. Returns
    /// whether it is.
    pub const fn take_back(&mut self, sequence: u16) -> bool {
        let is_newest = self.sequence.wrapping_sub(1) == sequence;
        if is_newest {
            self.sequence = sequence;
        }
        is_newest
    }

    /// Notes the answer to a probe. Returns whether a later probe was answered before.
    pub const fn answer(&mut self, sequence: u16) -> bool {
        let overtaken = self.answered.wrapping_sub(sequence).cast_signed() > 0;
        if !overtaken {
            self.answered = sequence.wrapping_add(1);
        }
        overtaken
    }

    /// Whether the newest probe was answered. The peer was then still there
    /// after every earlier probe.
    pub const fn newest_is_answered(&self) -> bool {
        self.answered == self.sequence
    }

    /// Notes that this many probes that `sent` has counted were withdrawn.
    pub const fn withdraw_sent(&mut self, probes: u16) {
        self.withdrawn = self.withdrawn.saturating_add(probes);
    }

    /// Notes that a probe was sent. Returns whether it takes the place of a withdrawn one in
    /// `sent`, and so is not counted.
    pub const fn skip_withdrawn(&mut self) -> bool {
        let skipped = self.withdrawn > 0;
        self.withdrawn = self.withdrawn.saturating_sub(1);
        skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_takes_28_bytes() {
        assert_eq!(size_of::<Destination>(), 28);
    }
}
