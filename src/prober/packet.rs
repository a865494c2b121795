//! ICMP echo (RFC 792, RFC 4443): written with pnet_packet into buffers that are reused, read with surge-ping's
//! decoders, and proved ours by the payload.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};

use pnet_packet::Packet;
use pnet_packet::icmp::{self, IcmpTypes, echo_request::MutableEchoRequestPacket};
use pnet_packet::icmpv6::Icmpv6Types;
use pnet_packet::ipv4::Ipv4Packet;
use surge_ping::{Icmpv4Packet, Icmpv6Packet, PingIdentifier, PingSequence};

use super::{Datagram, SocketKind};
use crate::limits::PAYLOAD_BYTES_MIN;
use crate::peers::{Protocol, SlotId};

/// Bytes of the ICMP echo header.
pub const ECHO_HEADER_BYTES: usize = 8;

/// The identity of one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Which of all probes of this process.
    pub number: u64,
    /// For whom.
    pub slot: SlotId,
    /// The ICMP sequence number: the peer's own count, which wraps.
    pub sequence: u16,
}

/// What a datagram turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// An intact reply to a probe that this process wrote.
    Reply(Label),
    /// A reply to our identifier whose bytes are not those that we sent. The sequence is what its header says.
    Corrupt {
        /// As read; may itself be damaged.
        sequence: u16,
    },
    /// An echo reply for somebody else.
    Unrelated,
    /// Not an echo reply (raw sockets see requests, errors and neighbour discovery too).
    NotAReply,
}

/// Writes and recognizes this process's probes.
#[derive(Debug)]
pub struct Codec {
    identifier: PingIdentifier,
    cookie: u64,
    /// The payload as sent but for its first 24 bytes.
    payload: Box<[u8]>,
}

impl Codec {
    /// A codec with a random identity for payloads of `payload_bytes` (at least [`PAYLOAD_BYTES_MIN`]).
    pub fn new(payload_bytes: usize) -> Self {
        // RandomState is keyed from the operating system's random source: good enough to be told apart by.
        let cookie = RandomState::new().hash_one(std::process::id());
        #[expect(clippy::cast_possible_truncation, reason = "16 of its bits are wanted")]
        let identifier = PingIdentifier(cookie as u16);
        #[expect(clippy::cast_possible_truncation, reason = "a pattern of the low bytes of the index")]
        let payload = (0..payload_bytes.max(PAYLOAD_BYTES_MIN)).map(|i| i as u8).collect();
        Self { identifier, cookie, payload }
    }

    /// Bytes of a whole ICMP message.
    pub fn message_bytes(&self) -> usize {
        ECHO_HEADER_BYTES + self.payload.len()
    }

    /// Writes the echo request for `label` into `out`, which has [`Codec::message_bytes`] bytes.
    pub fn encode(&self, label: Label, protocol: Protocol, kind: SocketKind, out: &mut [u8]) {
        let payload = &mut out[ECHO_HEADER_BYTES..];
        payload.copy_from_slice(&self.payload);
        payload[..8].copy_from_slice(&self.cookie.to_be_bytes());
        payload[8..16].copy_from_slice(&label.number.to_be_bytes());
        payload[16..20].copy_from_slice(&label.slot.0.to_be_bytes());
        payload[20..24].copy_from_slice(&self.check(label).to_be_bytes());
        // The echo header has the same layout in both families; only the type differs.
        let Some(mut echo) = MutableEchoRequestPacket::new(out) else { return };
        echo.set_icmp_type(match protocol {
            Protocol::Icmp => IcmpTypes::EchoRequest,
            Protocol::Icmpv6 => icmp::IcmpType(Icmpv6Types::EchoRequest.0),
        });
        echo.set_icmp_code(icmp::IcmpCode(0));
        echo.set_checksum(0);
        echo.set_identifier(self.identifier.into_u16());
        echo.set_sequence_number(PingSequence(label.sequence).into_u16());
        // A ping socket and every ICMPv6 socket have the kernel fill in the checksum.
        if kind == SocketKind::Raw
            && protocol == Protocol::Icmp
            && let Some(sum) = icmp::IcmpPacket::new(echo.packet()).map(|whole| icmp::checksum(&whole))
        {
            echo.set_checksum(sum);
        }
    }

    /// Reads a datagram.
    pub fn decode(&self, datagram: &Datagram<'_>, kind: SocketKind) -> Decoded {
        let Some(Echo { identifier, sequence, message }) = echo_reply(datagram, kind) else {
            return Decoded::NotAReply;
        };
        // The kernel gives a ping socket only what bears its identifier; on a raw socket we see everybody's.
        if kind == SocketKind::Raw && identifier != self.identifier {
            return Decoded::Unrelated;
        }
        self.recognize(&message[ECHO_HEADER_BYTES..], sequence).map_or(Decoded::Corrupt { sequence }, Decoded::Reply)
    }

    /// The identifier of our requests. A ping socket replaces it by its own.
    pub const fn identifier(&self) -> u16 {
        self.identifier.0
    }

    /// Reads a request of ours as it left, which the kernel gives back with its time: behind whatever headers its device
    /// has, and perhaps cut behind the part that names it.
    pub fn departed(&self, bytes: &[u8]) -> Option<Label> {
        let cookie = self.cookie.to_be_bytes();
        let at = bytes.windows(cookie.len()).position(|window| *window == cookie)?;
        let sequence = u16::from_be_bytes(bytes.get(at.checked_sub(2)?..at)?.try_into().ok()?);
        self.label(bytes.get(at..at + PAYLOAD_BYTES_MIN)?, sequence)
    }

    fn recognize(&self, payload: &[u8], sequence: u16) -> Option<Label> {
        let (head, pattern) = payload.split_at_checked(PAYLOAD_BYTES_MIN)?;
        let label = self.label(head, sequence)?;
        (*pattern == self.payload[PAYLOAD_BYTES_MIN..]).then_some(label)
    }

    /// What the first bytes of a payload name, if they are ours.
    fn label(&self, head: &[u8], sequence: u16) -> Option<Label> {
        let number = u64::from_be_bytes(head.get(8..16)?.try_into().ok()?);
        let slot = SlotId(u32::from_be_bytes(head.get(16..20)?.try_into().ok()?));
        let label = Label { number, slot, sequence };
        let ours = head.get(..8)? == self.cookie.to_be_bytes() && head.get(20..24)? == self.check(label).to_be_bytes();
        ours.then_some(label)
    }

    /// A check over the label, so that a flipped bit in it cannot name another probe. Splitmix64's finalizer: every
    /// bit of the input moves half of the output.
    fn check(&self, label: Label) -> u32 {
        let mut x = self.cookie ^ label.number ^ (u64::from(label.slot.0) << 32) ^ (u64::from(label.sequence) << 16);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((x ^ (x >> 31)) >> 32).unwrap_or_default()
    }
}

struct Echo<'a> {
    identifier: PingIdentifier,
    sequence: u16,
    message: &'a [u8],
}

fn echo_reply<'a>(datagram: &Datagram<'a>, kind: SocketKind) -> Option<Echo<'a>> {
    let bytes = datagram.bytes;
    let (is_reply, identifier, sequence, message) = match datagram.from {
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
    use super::*;
    use crate::prober::Moment;
    use crate::units::Nanos;

    const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
    const LABEL: Label = Label { number: 70_000, slot: SlotId(3), sequence: 9 };

    fn request(codec: &Codec, protocol: Protocol, kind: SocketKind) -> Vec<u8> {
        let mut bytes = vec![0; codec.message_bytes()];
        codec.encode(LABEL, protocol, kind, &mut bytes);
        bytes
    }

    fn reply(codec: &Codec) -> Vec<u8> {
        let mut bytes = request(codec, Protocol::Icmp, SocketKind::Datagram);
        bytes[0] = 0;
        bytes
    }

    fn decode(codec: &Codec, bytes: &[u8], from: IpAddr, kind: SocketKind) -> Decoded {
        codec.decode(&Datagram { from, bytes, moment: Moment::read(Nanos(0)) }, kind)
    }

    #[test]
    fn a_reply_is_recognized_in_both_families() {
        let codec = Codec::new(56);
        assert_eq!(decode(&codec, &reply(&codec), V4, SocketKind::Datagram), Decoded::Reply(LABEL));
        let mut six = request(&codec, Protocol::Icmpv6, SocketKind::Datagram);
        six[0] = 129;
        assert_eq!(decode(&codec, &six, "fd00::2".parse().unwrap(), SocketKind::Raw), Decoded::Reply(LABEL));
    }

    #[test]
    fn a_raw_request_has_a_right_checksum_and_its_reply_is_read_behind_the_ip_header() {
        let codec = Codec::new(56);
        let icmp = request(&codec, Protocol::Icmp, SocketKind::Raw);
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
    fn foreign_replies_requests_errors_and_rubbish_are_told_apart() {
        let (ours, other) = (Codec::new(56), Codec::new(56));
        let mut foreign = vec![0x45, 0, 0, 84, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1];
        let mut echo = reply(&ours);
        echo[4] ^= 0xff;
        foreign.extend(echo);
        assert_eq!(decode(&ours, &foreign, V4, SocketKind::Raw), Decoded::Unrelated);
        let strange = decode(&ours, &reply(&other), V4, SocketKind::Datagram);
        assert_eq!(strange, Decoded::Corrupt { sequence: 9 }, "our identifier, not our cookie");
        let request = request(&ours, Protocol::Icmp, SocketKind::Datagram);
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
