//! ICMP echo (RFC 792, RFC 4443). Requests are written with pnet_packet into reused buffers.
//! Replies are read with surge-ping's decoders, and the payload proves that they are ours.
//!
//! The first 24 bytes of a payload are three big-endian numbers of 64 bits:
//!
//! | bytes | |
//! |---|---|
//! | 0–7 | the cookie: a random number of this process, by which its requests are found |
//! | 8–15 | the number of the probe (50 bits) and its slot (14 bits) |
//! | 16–23 | the check: a keyed hash of the number, the slot, the ICMP sequence number and the destination |
//!
//! Every peer reads the cookie and can guess the number, slot and sequence number of a probe to
//! another peer. It cannot compute the check, whose key never leaves the process. All 64 bits of
//! the hash are sent. At a million forged packets per second, the check of one probe is hit after
//! 290,000 years on average. With 32 bits it would be 36 minutes, and an attacker can aim at as
//! many probes at once as there are peers.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};

use pnet_packet::Packet;
use pnet_packet::icmp::{self, IcmpTypes, echo_request::MutableEchoRequestPacket};
use pnet_packet::icmpv6::Icmpv6Types;
use pnet_packet::ipv4::Ipv4Packet;
use surge_ping::{Icmpv4Packet, Icmpv6Packet, PingIdentifier, PingSequence};

use super::SocketKind;
use crate::limits::{INTERVAL_MIN, PAYLOAD_BYTES_MIN, PEER_SLOTS_MAX};
use crate::peers::{Family, SlotId};

/// Bytes of the ICMP echo header.
pub const ECHO_HEADER_BYTES: usize = 8;
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
    /// ICMP sequence number. It counts per peer, and wraps.
    pub sequence: u16,
}

/// What a datagram is after decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// An intact reply to a probe that this process wrote.
    Reply(Label),
    /// A reply with our identifier whose bytes differ from those that were sent. The sequence
    /// number is that of its header.
    Corrupt {
        /// Sequence number as read; it may itself be damaged.
        sequence: u16,
    },
    /// An echo reply for another process.
    Unrelated,
    /// Not an echo reply. Raw sockets also receive requests, errors and neighbour discovery.
    NotAReply,
}

/// Writes and recognizes the probes of this process.
#[derive(Debug)]
pub struct Codec {
    identifier: PingIdentifier,
    /// Random number of this process, sent in clear.
    cookie: u64,
    /// Key of the check: 128 random bits from the operating system. It is never sent.
    /// The hash is SipHash-1-3, a pseudo-random function for short inputs that the
    /// standard library contains anyway.
    key: RandomState,
    /// The payload as sent, except for its first 24 bytes.
    payload: Box<[u8]>,
}

impl Codec {
    /// Makes a codec with a random identity, for payloads of `payload_bytes` (at least
    /// [`PAYLOAD_BYTES_MIN`]).
    pub fn new(payload_bytes: usize) -> Self {
        let key = RandomState::new();
        // The hashed input differs from that of every check, so no check can be derived from the
        // cookie. Rejected: a second `RandomState`. It is no independent key, because the keys of
        // one thread differ by one.
        let cookie = key.hash_one(0_u8);
        #[expect(clippy::cast_possible_truncation, reason = "16 of its bits are wanted")]
        let identifier = PingIdentifier(cookie as u16);
        #[expect(clippy::cast_possible_truncation, reason = "a pattern of the low bytes of the index")]
        let payload = (0..payload_bytes.max(PAYLOAD_BYTES_MIN)).map(|i| i as u8).collect();
        Self { identifier, cookie, key, payload }
    }

    /// Returns the bytes of a whole ICMP message.
    pub fn message_bytes(&self) -> usize {
        ECHO_HEADER_BYTES + self.payload.len()
    }

    /// Writes the echo request for `label` to `destination` into `out`. `out` must have
    /// [`Codec::message_bytes`] bytes.
    pub fn encode(&self, label: Label, destination: IpAddr, kind: SocketKind, out: &mut [u8]) {
        let family = Family::of(destination);
        let payload = &mut out[ECHO_HEADER_BYTES..];
        payload.copy_from_slice(&self.payload);
        if let Some(identity) = payload.first_chunk_mut() {
            *identity = self.identity(label, destination);
        }
        // The echo header has the same layout in both families; only the type differs.
        let Some(mut echo) = MutableEchoRequestPacket::new(out) else { return };
        echo.set_icmp_type(match family {
            Family::V4 => IcmpTypes::EchoRequest,
            Family::V6 => icmp::IcmpType(Icmpv6Types::EchoRequest.0),
        });
        echo.set_icmp_code(icmp::IcmpCode(0));
        echo.set_checksum(0);
        echo.set_identifier(self.identifier.into_u16());
        echo.set_sequence_number(PingSequence(label.sequence).into_u16());
        // For a ping socket and every ICMPv6 socket, the kernel fills in the checksum.
        if kind == SocketKind::Raw
            && family == Family::V4
            && let Some(sum) = icmp::IcmpPacket::new(echo.packet()).map(|whole| icmp::checksum(&whole))
        {
            echo.set_checksum(sum);
        }
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

    /// Decodes what has arrived from `source` at a socket of this kind.
    pub fn decode(&self, source: IpAddr, bytes: &[u8], kind: SocketKind) -> Decoded {
        let Some(Echo { identifier, sequence, message }) = echo_reply(source, bytes, kind) else {
            return Decoded::NotAReply;
        };
        // The kernel gives a ping socket only packets with its identifier. A raw socket receives
        // those of all processes.
        if kind == SocketKind::Raw && identifier != self.identifier {
            return Decoded::Unrelated;
        }
        let payload = &message[ECHO_HEADER_BYTES..];
        self.recognize(payload, sequence, source).map_or(Decoded::Corrupt { sequence }, Decoded::Reply)
    }

    /// Returns the identifier of our requests. A ping socket replaces it by its own.
    pub const fn identifier(&self) -> u16 {
        self.identifier.0
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

    /// Returns the label of a payload that came from `source`, if exactly these
    /// bytes were sent there.
    fn recognize(&self, payload: &[u8], sequence: u16, source: IpAddr) -> Option<Label> {
        let label = self.identify(payload.first_chunk()?, sequence, source)?;
        (payload[PAYLOAD_BYTES_MIN..] == self.payload[PAYLOAD_BYTES_MIN..]).then_some(label)
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

struct Echo<'a> {
    identifier: PingIdentifier,
    sequence: u16,
    message: &'a [u8],
}

fn echo_reply(source: IpAddr, bytes: &[u8], kind: SocketKind) -> Option<Echo<'_>> {
    let (is_reply, identifier, sequence, message) = match source {
        IpAddr::V4(from) => {
            let socket = if kind == SocketKind::Raw { socket2::Type::RAW } else { socket2::Type::DGRAM };
            let header = if kind == SocketKind::Raw { Ipv4Packet::new(bytes)?.get_header_length() * 4 } else { 0 };
            let read = Icmpv4Packet::decode(bytes, socket, from, Ipv4Addr::UNSPECIFIED).ok()?;
            let message = bytes.get(usize::from(header)..)?;
            (read.get_icmp_type() == IcmpTypes::EchoReply, read.get_identifier(), read.get_sequence(), message)
        }
        IpAddr::V6(from) => {
            let read = Icmpv6Packet::decode(bytes, from).ok()?;
            (read.get_icmpv6_type() == Icmpv6Types::EchoReply, read.get_identifier(), read.get_sequence(), bytes)
        }
    };
    (is_reply && message.len() >= ECHO_HEADER_BYTES).then_some(Echo {
        identifier,
        sequence: sequence.into_u16(),
        message,
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
    const LABEL: Label = Label { number: 70_000, slot: SlotId(3), sequence: 9 };

    const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));

    fn request(codec: &Codec, destination: IpAddr, kind: SocketKind) -> Vec<u8> {
        let mut bytes = vec![0; codec.message_bytes()];
        codec.encode(LABEL, destination, kind, &mut bytes);
        bytes
    }

    fn reply(codec: &Codec) -> Vec<u8> {
        let mut bytes = request(codec, V4, SocketKind::Datagram);
        bytes[0] = 0;
        bytes
    }

    fn decode(codec: &Codec, bytes: &[u8], from: IpAddr, kind: SocketKind) -> Decoded {
        codec.decode(from, bytes, kind)
    }

    #[test]
    fn a_reply_is_recognized_in_both_families() {
        let codec = Codec::new(56);
        assert_eq!(decode(&codec, &reply(&codec), V4, SocketKind::Datagram), Decoded::Reply(LABEL));
        let mut six = request(&codec, V6, SocketKind::Datagram);
        six[0] = 129;
        assert_eq!(decode(&codec, &six, V6, SocketKind::Raw), Decoded::Reply(LABEL));
    }

    #[test]
    fn a_raw_request_has_a_right_checksum_and_its_reply_is_read_behind_the_ip_header() {
        let codec = Codec::new(56);
        let icmp = request(&codec, V4, SocketKind::Raw);
        let sum: u32 = icmp.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "RFC 1071");
        let mut packet = vec![0x45, 0, 0, 84, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1];
        packet.extend(reply(&codec));
        assert_eq!(decode(&codec, &packet, V4, SocketKind::Raw), Decoded::Reply(LABEL));
    }

    #[test]
    fn every_single_flipped_bit_of_the_payload_is_noticed() {
        let codec = Codec::new(56);
        let good = reply(&codec);
        for bit in ECHO_HEADER_BYTES * 8..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&codec, &bad, V4, SocketKind::Datagram), Decoded::Corrupt { sequence: 9 }, "bit {bit}");
        }
        let cut = decode(&codec, &good[..good.len() - 1], V4, SocketKind::Datagram);
        assert_eq!(cut, Decoded::Corrupt { sequence: 9 }, "a reply that was cut short");
    }

    #[test]
    fn a_wrong_sequence_number_is_noticed() {
        let codec = Codec::new(24);
        let mut bytes = reply(&codec);
        bytes[7] ^= 1;
        assert_eq!(decode(&codec, &bytes, V4, SocketKind::Datagram), Decoded::Corrupt { sequence: 8 });
    }

    #[test]
    fn a_label_loses_nothing_on_its_way() {
        let codec = Codec::new(24);
        let slots = [0, 1, 16_383].map(SlotId);
        for (slot, number) in slots.into_iter().flat_map(|slot| [0, 70_000, (1 << 50) - 1].map(|number| (slot, number)))
        {
            let label = Label { number, slot, sequence: u16::MAX };
            let mut bytes = vec![0; codec.message_bytes()];
            codec.encode(label, V4, SocketKind::Datagram, &mut bytes);
            let departed = [&[0; 34], &bytes[..ECHO_HEADER_BYTES + PAYLOAD_BYTES_MIN]].concat();
            assert_eq!(codec.departed(&departed), Some(label));
            bytes[0] = 0;
            assert_eq!(decode(&codec, &bytes, V4, SocketKind::Datagram), Decoded::Reply(label));
        }
    }

    #[test]
    fn only_the_destination_can_answer() {
        let codec = Codec::new(56);
        for destination in [V4, V6] {
            let mut bytes = request(&codec, destination, SocketKind::Datagram);
            for source in [V4, V6, IpAddr::from([10, 0, 0, 3]), "::ffff:10.0.0.2".parse().unwrap()] {
                bytes[0] = if source.is_ipv4() { 0 } else { 129 };
                let expected =
                    if source == destination { Decoded::Reply(LABEL) } else { Decoded::Corrupt { sequence: 9 } };
                assert_eq!(decode(&codec, &bytes, source, SocketKind::Datagram), expected, "{source} {destination}");
            }
        }
    }

    #[test]
    fn the_bytes_of_a_probe_do_not_reveal_the_check_of_another() {
        // A change of one bit in any part of the input changes about half of the check.
        // Two processes never agree.
        let (codec, other) = (Codec::new(56), Codec::new(56));
        let check = codec.check(LABEL, V4);
        let slot = SlotId(LABEL.slot.0 ^ 1);
        let neighbours = [
            (Label { number: LABEL.number + 1, ..LABEL }, V4),
            (Label { slot, ..LABEL }, V4),
            (Label { sequence: LABEL.sequence + 1, ..LABEL }, V4),
            (LABEL, IpAddr::from([10, 0, 0, 3])),
        ];
        for (label, address) in neighbours {
            let moved = (check ^ codec.check(label, address)).count_ones();
            assert!((8..=56).contains(&moved), "{label:?} {address}: {moved} bits");
        }
        assert!(check != other.check(LABEL, V4) && codec.cookie != other.cookie);
    }

    #[test]
    fn foreign_replies_requests_errors_and_garbage_are_distinguished() {
        let (ours, other) = (Codec::new(56), Codec::new(56));
        let mut foreign = vec![0x45, 0, 0, 84, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1];
        let mut echo = reply(&ours);
        echo[4] ^= 0xff;
        foreign.extend(echo);
        assert_eq!(decode(&ours, &foreign, V4, SocketKind::Raw), Decoded::Unrelated);
        let strange = decode(&ours, &reply(&other), V4, SocketKind::Datagram);
        assert_eq!(strange, Decoded::Corrupt { sequence: 9 }, "our identifier, not our cookie");
        let request = request(&ours, V4, SocketKind::Datagram);
        assert_eq!(decode(&ours, &request, V4, SocketKind::Datagram), Decoded::NotAReply);
        for len in 0..8 {
            assert_eq!(decode(&ours, &request[..len], V4, SocketKind::Datagram), Decoded::NotAReply);
            assert_eq!(decode(&ours, &request[..len], V4, SocketKind::Raw), Decoded::NotAReply);
        }
        let mut unreachable = vec![3, 1, 0, 0, 0, 0, 0, 0];
        unreachable.extend([0; 40]);
        assert_eq!(decode(&ours, &unreachable, V4, SocketKind::Datagram), Decoded::NotAReply);
    }
}
