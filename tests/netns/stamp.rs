//! STAMP (RFC 8762, unauthenticated) in an IP packet, of both families. It is read by hand, and so
//! independent of the code under test.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of the IPv6 header: the sender of these packets adds no extension.
const IPV6_HEADER: usize = 40;
const UDP_PROTOCOL: u8 = 17;
const UDP_HEADER: usize = 8;

/// A request to a reflector, or the answer to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub is_request: bool,
    /// The node that probes: its address and the source port of the probe.
    pub sender: (IpAddr, u16),
    pub reflector: IpAddr,
    /// The sender's number of the probe.
    pub sequence: u32,
}

impl Stamp {
    /// Returns `None` if `packet` is neither sent to nor sent from a reflector at `port`.
    pub fn read(packet: &[u8], port: u16) -> Option<Self> {
        let (from, to, protocol, at): (IpAddr, IpAddr, u8, usize) = match packet.first()? >> 4 {
            4 => {
                let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
                (address(12)?.into(), address(16)?.into(), *packet.get(9)?, usize::from(packet[0] & 15) * 4)
            }
            6 => {
                let address = |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?));
                (address(8)?.into(), address(24)?.into(), *packet.get(6)?, IPV6_HEADER)
            }
            _ => return None,
        };
        if protocol != UDP_PROTOCOL {
            return None;
        }
        let word = |at: usize| Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?));
        let number = |at: usize| Some(u32::from_be_bytes(packet.get(at..at + 4)?.try_into().ok()?));
        let ((from_port, to_port), payload) = ((word(at)?, word(at + 2)?), at + UDP_HEADER);
        // RFC 8762: the Sequence Number comes first, and an answer has that of its request behind
        // 24 bytes.
        if to_port == port {
            let sequence = number(payload)?;
            Some(Self { is_request: true, sender: (from, from_port), reflector: to, sequence })
        } else if from_port == port {
            let sequence = number(payload + 24)?;
            Some(Self { is_request: false, sender: (to, to_port), reflector: from, sequence })
        } else {
            None
        }
    }
}
