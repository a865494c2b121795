//! The seam to the sockets of datagrams: everything that the prober, traces and the search for the
//! path MTU need of them. A test replaces it by a lossy wire.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use kube_canary_kernel::batch::{Packet, Received};
use kube_canary_kernel::control::{Facts, TTL_BYTES, Writer, words};

use super::{Clock, Moment, SendError};

/// Index of a source port, below [`crate::limits::FLOWS_MAX`]. Both families have the same flows. A
/// protocol without ports has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow(pub u8);

/// A datagram to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Destination, with port 0 if the protocol has no ports.
    pub to: SocketAddr,
    /// Source port, by its index.
    pub flow: Flow,
    /// Time to live, if it is not the default of the system.
    pub ttl: Option<u8>,
    /// All bytes behind the headers that the kernel writes.
    pub bytes: &'a [u8],
}

/// A datagram that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Source of the datagram, with port 0 if the protocol has no ports.
    pub from: SocketAddr,
    /// The address of this host that it was sent to. Only requests have it.
    pub to: Option<IpAddr>,
    /// Time to live or hop limit on arrival, if the kernel gives it.
    pub ttl: Option<u8>,
    /// Bytes as the socket returned them, cut at the size of the buffer. A raw IPv4 socket returns
    /// the IP header, too.
    pub bytes: &'a [u8],
    /// Number of these bytes before they were cut.
    pub length: usize,
    /// Time of the arrival.
    pub moment: Moment,
}

/// What an ICMP error about a datagram of ours says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The time to live has run out at the offender.
    TimeExceeded,
    /// The datagram is too big for the next hop, whose MTU this is (of the IP packet).
    TooBig {
        /// Bytes of the largest packet.
        mtu: u32,
    },
    /// The datagram is not passed on, or not accepted.
    Unreachable(Unreachable),
}

/// Why a host or a router refuses a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// It has no route to the destination.
    Network,
    /// The destination does not answer on its link.
    Host,
    /// Nothing listens at the port.
    Port,
    /// A rule does not let it pass.
    Prohibited,
}

impl Unreachable {
    /// Returns the reason as people read it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Network => "no route",
            Self::Host => "host unreachable",
            Self::Port => "port unreachable",
            Self::Prohibited => "prohibited",
        }
    }
}

/// What a wire has read.
#[derive(Clone, Copy, Debug)]
pub enum Delivery<'a> {
    /// A datagram of this flow has left: its bytes, perhaps after headers and cut at the end.
    Departure(Flow, &'a [u8], Moment),
    /// A datagram for this flow has arrived.
    Arrival(Flow, Datagram<'a>),
    /// An error about a datagram of this flow.
    Refused {
        /// Source port of the datagram.
        flow: Flow,
        /// Destination of the datagram.
        to: SocketAddr,
        /// The host that says so; `None` if the kernel itself does.
        offender: Option<IpAddr>,
        /// Reason for which it was refused.
        refusal: Refusal,
        /// Payload of the datagram, as far as the error quotes it.
        bytes: &'a [u8],
        /// Time of the error's arrival.
        moment: Moment,
    },
}

/// Sends and receives datagrams.
pub trait Wire {
    /// Makes room for what this many peers may send at once.
    fn make_room(&mut self, _peers: usize) {}
    /// Sets whether turns are so frequent that packets between them need not wake the thread.
    fn attend(&mut self, _turns_are_frequent: bool) {}
    /// Sends the datagrams in order and reports the result of each by its index. Never blocks.
    fn send(&mut self, packets: &[Outgoing<'_>], sent: &mut dyn FnMut(usize, Result<(), SendError>));
    /// Delivers what has left and what has arrived, up to a bound. A reply is never delivered
    /// before the departure of its request, if the kernel reports departures. Returns whether
    /// everything was read.
    fn receive(&mut self, clock: &dyn Clock, deliver: &mut dyn FnMut(Delivery<'_>)) -> bool;
}

impl Packet for Outgoing<'_> {
    type Control = [u64; words([TTL_BYTES])];

    fn to(&self) -> SocketAddr {
        self.to
    }

    fn bytes(&self) -> &[u8] {
        self.bytes
    }

    fn control(&self, room: &mut Self::Control) -> usize {
        let mut writer = Writer::new(room);
        if let Some(ttl) = self.ttl {
            writer.ttl(self.to.is_ipv6(), ttl);
        }
        writer.bytes()
    }
}

/// The address that stands where none is known.
pub const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Returns a datagram that has arrived.
pub fn datagram<'a>(packet: &Received<'a>, moment: Moment) -> Datagram<'a> {
    let Facts { ttl, local, .. } = Facts::read(packet.control);
    let from = packet.from.unwrap_or(NOWHERE);
    Datagram { from, to: local, ttl, bytes: packet.bytes, length: packet.length, moment }
}
