//! ICMP echo (RFC 792, RFC 4443). Requests are written with pnet_packet into reused buffers.
//! Replies are read with surge-ping's decoders, and the payload proves that they are ours: its
//! first 24 bytes are the identity of the probe ([`ProbeKey`]), and the rest is a fixed pattern.

use std::net::{IpAddr, Ipv4Addr};

use pnet_packet::Packet;
use pnet_packet::icmp::{self, IcmpTypes, echo_request::MutableEchoRequestPacket};
use pnet_packet::icmpv6::Icmpv6Types;
use pnet_packet::ipv4::Ipv4Packet;
use surge_ping::{Icmpv4Packet, Icmpv6Packet, PingIdentifier, PingSequence};

use super::SocketKind;
use crate::limits::PAYLOAD_BYTES_MIN;
use crate::peers::Family;
use crate::prober::probe_key::{Label, ProbeKey};

/// Bytes of the ICMP echo header.
pub const ECHO_HEADER_BYTES: usize = 8;

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

/// Writes echo requests, and reads the replies.
#[derive(Debug)]
pub struct EchoFormat {
    identifier: PingIdentifier,
    /// The payload as sent, except for its first 24 bytes.
    payload: Box<[u8]>,
}

impl EchoFormat {
    /// Makes a format with this identifier, for payloads of `payload_bytes` (at least
    /// [`PAYLOAD_BYTES_MIN`]).
    pub fn new(identifier: u16, payload_bytes: usize) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "a pattern of the low bytes of the index")]
        let payload = (0..payload_bytes.max(PAYLOAD_BYTES_MIN)).map(|i| i as u8).collect();
        Self { identifier: PingIdentifier(identifier), payload }
    }

    /// Returns the bytes of a whole ICMP message.
    pub fn message_bytes(&self) -> usize {
        ECHO_HEADER_BYTES + self.payload.len()
    }

    /// Writes the echo request for `label` to `destination` into `out`. `out` must have
    /// [`EchoFormat::message_bytes`] bytes.
    pub fn encode(&self, key: &ProbeKey, label: Label, destination: IpAddr, kind: SocketKind, out: &mut [u8]) {
        let family = Family::from_address(destination);
        let payload = &mut out[ECHO_HEADER_BYTES..];
        payload.copy_from_slice(&self.payload);
        if let Some(identity) = payload.first_chunk_mut() {
            *identity = key.identity(label, destination);
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

    /// Decodes what has arrived from `source` at a socket of this kind.
    pub fn decode(&self, key: &ProbeKey, source: IpAddr, bytes: &[u8], kind: SocketKind) -> Decoded {
        let Some(EchoReply { identifier, sequence, message }) = echo_reply(source, bytes, kind) else {
            return Decoded::NotAReply;
        };
        // The kernel gives a ping socket only packets with its identifier. A raw socket receives
        // those of all processes.
        if kind == SocketKind::Raw && identifier != self.identifier {
            return Decoded::Unrelated;
        }
        let payload = &message[ECHO_HEADER_BYTES..];
        self.recognize(key, payload, sequence, source).map_or(Decoded::Corrupt { sequence }, Decoded::Reply)
    }

    /// Returns the label of a payload that came from `source`, if exactly these
    /// bytes were sent there.
    fn recognize(&self, key: &ProbeKey, payload: &[u8], sequence: u16, source: IpAddr) -> Option<Label> {
        let label = key.identify(payload.first_chunk()?, sequence, source)?;
        (payload[PAYLOAD_BYTES_MIN..] == self.payload[PAYLOAD_BYTES_MIN..]).then_some(label)
    }
}

struct EchoReply<'a> {
    identifier: PingIdentifier,
    sequence: u16,
    message: &'a [u8],
}

fn echo_reply(source: IpAddr, bytes: &[u8], kind: SocketKind) -> Option<EchoReply<'_>> {
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
    (is_reply && message.len() >= ECHO_HEADER_BYTES).then_some(EchoReply {
        identifier,
        sequence: sequence.into_u16(),
        message,
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;
    use crate::peers::SlotId;

    const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
    const LABEL: Label = Label { number: 70_000, slot: SlotId(3), sequence: 9 };

    const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));

    /// The format and the key of a prober.
    struct Codec {
        key: ProbeKey,
        format: EchoFormat,
    }

    impl Codec {
        fn new(payload_bytes: usize) -> Self {
            let key = ProbeKey::random();
            Self { format: EchoFormat::new(key.session(), payload_bytes), key }
        }

        fn encode(&self, label: Label, destination: IpAddr, kind: SocketKind) -> Vec<u8> {
            let mut bytes = vec![0; self.format.message_bytes()];
            self.format.encode(&self.key, label, destination, kind, &mut bytes);
            bytes
        }
    }

    fn request(codec: &Codec, destination: IpAddr, kind: SocketKind) -> Vec<u8> {
        codec.encode(LABEL, destination, kind)
    }

    fn reply(codec: &Codec) -> Vec<u8> {
        let mut bytes = request(codec, V4, SocketKind::Datagram);
        bytes[0] = 0;
        bytes
    }

    fn decode(codec: &Codec, bytes: &[u8], from: IpAddr, kind: SocketKind) -> Decoded {
        codec.format.decode(&codec.key, from, bytes, kind)
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
            let mut bytes = codec.encode(label, V4, SocketKind::Datagram);
            let departed = [&[0; 34], &bytes[..ECHO_HEADER_BYTES + PAYLOAD_BYTES_MIN]].concat();
            assert_eq!(codec.key.departed(&departed), Some(label));
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
