//! ICMP echo in an IP packet, of both families: its fields, and the reply to it. It is written by
//! hand, and so independent of the code under test. The kernel checks the checksums.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of the IPv6 header: the sender of these echoes adds no extension.
const IPV6_HEADER: usize = 40;
const ICMP_PROTOCOL: u8 = 1;
const ICMPV6_PROTOCOL: u8 = 58;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Request,
    Reply,
}

/// An echo request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    pub kind: Kind,
    pub from: IpAddr,
    pub to: IpAddr,
    pub sequence: u16,
    /// The offset of the ICMP message.
    at: usize,
}

impl Echo {
    /// Returns `None` if `packet` is no echo.
    pub fn read(packet: &[u8]) -> Option<Self> {
        let (from, to, protocol, at): (IpAddr, IpAddr, u8, usize) = match packet.first()? >> 4 {
            4 => {
                let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
                let header = usize::from(packet[0] & 15) * 4;
                (address(12)?.into(), address(16)?.into(), packet[9], header)
            }
            6 => {
                let address = |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?));
                (address(8)?.into(), address(24)?.into(), packet[6], IPV6_HEADER)
            }
            _ => return None,
        };
        let message = packet.get(at..)?;
        let kind = match (protocol, message.first()?) {
            (ICMP_PROTOCOL, 8) | (ICMPV6_PROTOCOL, 128) => Kind::Request,
            (ICMP_PROTOCOL, 0) | (ICMPV6_PROTOCOL, 129) => Kind::Reply,
            _ => return None,
        };
        let sequence = u16::from_be_bytes(message.get(6..8)?.try_into().ok()?);
        Some(Self { kind, from, to, sequence, at })
    }

    /// The reply to this request, whose packet is `packet`. The addresses are exchanged, which
    /// changes no checksum, and the message type is changed.
    pub fn reply(&self, packet: &[u8]) -> Vec<u8> {
        assert_eq!(self.kind, Kind::Request);
        let mut reply = packet.to_vec();
        let (addresses, length, kind) = if self.from.is_ipv4() { (12, 4, 0) } else { (8, 16, 129) };
        let (left, right) = reply[addresses..addresses + 2 * length].split_at_mut(length);
        left.swap_with_slice(right);
        let message = &mut reply[self.at..];
        let word = |bytes: &[u8]| u16::from_be_bytes([bytes[0], bytes[1]]);
        let before = word(message);
        message[0] = kind;
        // RFC 1624: HC' = ~(~HC + ~m + m').
        let sum = u32::from(!word(&message[2..])) + u32::from(!before) + u32::from(word(message));
        let folded = (sum & 0xffff) + (sum >> 16);
        let folded = (folded & 0xffff) + (folded >> 16);
        message[2..4].copy_from_slice(&(!u16::try_from(folded).expect("folded")).to_be_bytes());
        reply
    }
}
