//! How a probe is recognized: by 24 bytes that it carries and its reply returns.
//!
//! They are three big-endian numbers of 64 bits:
//!
//! | bytes | |
//! |---|---|
//! | 0–7 | the cookie: a random number of this process, by which its requests are found |
//! | 8–15 | the number of the probe (50 bits) and its slot (14 bits) |
//! | 16–23 | the check: a keyed hash of the number, the slot, the sequence number and the destination |
//!
//! Every peer reads the cookie and can guess the number, slot and sequence number of a probe to
//! another peer. It cannot compute the check, whose key never leaves the process. All 64 bits of
//! the hash are sent. At a million forged packets per second, the check of one probe is hit after
//! 290,000 years on average. With 32 bits it would be 36 minutes, and an attacker can aim at as
//! many probes at once as there are peers.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;

use crate::limits::{INTERVAL_MIN, PAYLOAD_BYTES_MIN, PEER_SLOTS_MAX};
use crate::peers::SlotId;

/// Bits of a slot in a payload. The probe's number has the other 50.
const SLOT_BITS: u32 = 14;
const _: () = assert!(PEER_SLOTS_MAX <= 1 << SLOT_BITS);
const _: () = assert!(
    (1_u128 << (64 - SLOT_BITS)) * INTERVAL_MIN.as_millis() / PEER_SLOTS_MAX as u128 > 20 * 365 * 86_400_000,
    "the numbers of probes last for 20 years with the most peers at the shortest interval"
);

/// The identity of one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Number of the probe among all probes of this process.
    pub number: u64,
    /// Slot of the peer.
    pub slot: SlotId,
    /// Low 16 bits of the sequence number. It counts per peer.
    pub sequence: u16,
}

/// Makes and recognizes the identities of the probes of one prober.
#[derive(Debug)]
pub struct ProbeKey {
    /// Random number of this prober, sent in clear.
    cookie: u64,
    /// Key of the check: 128 random bits from the operating system. It is never sent.
    /// The hash is SipHash-1-3, a pseudo-random function for short inputs that the
    /// standard library contains anyway.
    key: RandomState,
}

impl ProbeKey {
    /// Makes a random key.
    pub fn random() -> Self {
        let key = RandomState::new();
        // The hashed input differs from that of every check, so no check can be derived from the
        // cookie. Rejected: a second `RandomState`. It is no independent key, because the keys of
        // one thread differ by one.
        let cookie = key.hash_one(0_u8);
        Self { cookie, key }
    }

    /// Returns 16 random bits by which a session with a peer is known.
    #[expect(clippy::cast_possible_truncation, reason = "16 of its bits are wanted")]
    pub const fn session(&self) -> u16 {
        self.cookie as u16
    }

    /// Returns the bytes by which a probe to `destination` is recognized.
    pub fn identity(&self, label: Label, destination: IpAddr) -> [u8; PAYLOAD_BYTES_MIN] {
        let mut identity = [0; PAYLOAD_BYTES_MIN];
        identity[..8].copy_from_slice(&self.cookie.to_be_bytes());
        identity[8..16].copy_from_slice(&label.packed().to_be_bytes());
        identity[16..].copy_from_slice(&self.check(label, destination).to_be_bytes());
        identity
    }

    /// Returns the label of a probe of ours with this sequence number, if exactly these bytes were
    /// sent to `source`.
    pub fn identify(&self, identity: &[u8; PAYLOAD_BYTES_MIN], sequence: u16, source: IpAddr) -> Option<Label> {
        let label = Label::unpack(number(identity, 8)?, sequence);
        let ours = number(identity, 0)? == self.cookie && number(identity, 16)? == self.check(label, source);
        ours.then_some(label)
    }

    /// Returns the label of a request of ours that has left, as the kernel returns it with
    /// its timestamp. Headers of the device may precede it, and it may be cut after the
    /// part that identifies it.
    ///
    /// The check is not compared, because the destination is in headers whose form only the device
    /// knows. That is safe: the kernel queues only copies of packets that this socket has sent.
    pub fn departed(&self, bytes: &[u8]) -> Option<Label> {
        let cookie = self.cookie.to_be_bytes();
        let at = bytes.windows(cookie.len()).position(|window| *window == cookie)?;
        let sequence = u16::from_be_bytes(bytes.get(at.checked_sub(2)?..at)?.try_into().ok()?);
        Some(Label::unpack(number(bytes, at + 8)?, sequence))
    }

    /// Returns the keyed hash over everything that identifies a probe. The inputs of the two
    /// families have different lengths, which the hash distinguishes.
    fn check(&self, label: Label, peer: IpAddr) -> u64 {
        // The input is in one piece, with a length known to the compiler: 11 and 15 ns. In separate
        // parts it would take 14 and 18 ns.
        let mut hasher = self.key.build_hasher();
        match peer {
            IpAddr::V4(v4) => hasher.write(&label.with::<4, 14>(v4.octets())),
            IpAddr::V6(v6) => hasher.write(&label.with::<16, 26>(v6.octets())),
        }
        hasher.finish()
    }
}

impl Label {
    /// Returns number and slot as they are sent.
    fn packed(self) -> u64 {
        self.number << SLOT_BITS | u64::from(self.slot.0)
    }

    fn unpack(packed: u64, sequence: u16) -> Self {
        let slot = SlotId((packed & ((1 << SLOT_BITS) - 1)) as u32);
        Self { number: packed >> SLOT_BITS, slot, sequence }
    }

    /// Returns the label in `N` bytes, the last of which are those of an address.
    fn with<const A: usize, const N: usize>(self, address: [u8; A]) -> [u8; N] {
        const { assert!(N == 8 + 2 + A) };
        let mut bytes = [0; N];
        bytes[..8].copy_from_slice(&self.packed().to_ne_bytes());
        bytes[8..10].copy_from_slice(&self.sequence.to_ne_bytes());
        bytes[10..].copy_from_slice(&address);
        bytes
    }
}

/// Returns the big-endian 64-bit number at `at`, if `bytes` has one there.
fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const LABEL: Label = Label { number: 70_000, slot: SlotId(3), sequence: 9 };

    #[test]
    fn the_bytes_of_a_probe_do_not_reveal_the_check_of_another() {
        // A change of one bit in any part of the input changes about half of the check.
        // Two processes never agree.
        let (own, other) = (ProbeKey::random(), ProbeKey::random());
        let check = own.check(LABEL, V4);
        let slot = SlotId(LABEL.slot.0 ^ 1);
        let neighbours = [
            (Label { number: LABEL.number + 1, ..LABEL }, V4),
            (Label { slot, ..LABEL }, V4),
            (Label { sequence: LABEL.sequence + 1, ..LABEL }, V4),
            (LABEL, IpAddr::from([10, 0, 0, 3])),
        ];
        for (label, address) in neighbours {
            let moved = (check ^ own.check(label, address)).count_ones();
            assert!((8..=56).contains(&moved), "{label:?} {address}: {moved} bits");
        }
        assert!(check != other.check(LABEL, V4) && own.cookie != other.cookie);
    }
}
