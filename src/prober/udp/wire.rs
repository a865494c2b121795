//! The seam to the UDP sockets: everything that the UDP prober, the reflector, traces and the
//! search for the path MTU need of them.

use std::net::{IpAddr, SocketAddr};

use socket2::SockFilter;

use crate::prober::{Clock, Moment, SendError};

/// Index of a source port, below [`crate::limits::FLOWS_MAX`]. Both families have the same flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow(pub u8);

/// A datagram to send from a flow's source port.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Destination: the peer's address and the port of its reflector.
    pub to: SocketAddr,
    /// Source port, by its index.
    pub flow: Flow,
    /// Time to live, if it is not the default of the system.
    pub ttl: Option<u8>,
    /// The complete UDP payload.
    pub bytes: &'a [u8],
}

/// An answer that the reflector sends, from its own port.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Source of the request.
    pub to: SocketAddr,
    /// The address that the request was sent to. The answer comes from there.
    pub from: Option<IpAddr>,
    /// The complete UDP payload.
    pub bytes: &'a [u8],
    /// Whether its departure must be delivered.
    pub stamped: bool,
}

/// A UDP datagram that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Source of the datagram.
    pub from: SocketAddr,
    /// The address of this host that it was sent to. Only requests have it.
    pub to: Option<IpAddr>,
    /// Time to live or hop limit on arrival, if the kernel gives it.
    pub ttl: Option<u8>,
    /// UDP payload, cut at the size of the buffer.
    pub bytes: &'a [u8],
    /// Bytes of the complete payload.
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

/// What the wire has read.
#[derive(Clone, Copy, Debug)]
pub enum Delivery<'a> {
    /// A datagram of this flow has left: its bytes, perhaps after headers and cut at the end.
    Departure(Flow, &'a [u8], Moment),
    /// A datagram for this flow has arrived.
    Arrival(Flow, Datagram<'a>),
    /// A request to our reflector has arrived.
    Request(Datagram<'a>),
    /// An answer of our reflector has left (its UDP payload, perhaps after headers).
    Answered(&'a [u8], Moment),
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

/// Sends and receives the datagrams: the seam to the sockets.
pub trait UdpWire {
    /// Returns the source port of a flow; `None` without a socket of the family.
    fn source_port(&self, flow: Flow, over_ipv6: bool) -> Option<u16>;
    /// Makes room for the answers and requests of this many peers, which may arrive at once.
    fn make_room(&mut self, _peers: usize) {}
    /// Makes the kernel drop all requests that do not pass a filter, except a few that go to a
    /// socket for strangers. There is a program of either kind for each family and number of ranges
    /// ([`crate::prober::stamp::filter`]).
    fn admit(
        &mut self,
        _program: &dyn Fn(bool, usize) -> Vec<SockFilter>,
        _choosing: &dyn Fn(bool, usize) -> Vec<SockFilter>,
    ) {
    }
    /// Makes the kernel drop all answers to our flows that do not pass a filter, in the same way.
    fn admit_answers(&mut self, _program: &dyn Fn(bool, usize) -> Vec<SockFilter>) {}
    /// Sets whether turns are so frequent that packets between them need not wake the thread.
    fn attend(&mut self, _turns_are_frequent: bool) {}
    /// Sends the datagrams in order and reports the result of each by its index. Never blocks.
    fn send(&mut self, packets: &[Outgoing<'_>], sent: &mut dyn FnMut(usize, Result<(), SendError>));
    /// Sends answers from the reflector's port. Never blocks. An answer that cannot be sent is
    /// dropped.
    fn answer(&mut self, answers: &[Answer<'_>]);
    /// Delivers what has left and arrived for the flows, up to a bound. A reply is never delivered
    /// before the departure of its request. Returns whether everything was read.
    fn receive(&mut self, clock: &dyn Clock, deliver: &mut dyn FnMut(Delivery<'_>)) -> bool;
    /// Delivers what has left and arrived for the reflector: at most as many requests as can be
    /// answered by one call. It is called after [`UdpWire::receive`], which looks what there is.
    /// Returns whether everything was read.
    fn requests(&mut self, _clock: &dyn Clock, _deliver: &mut dyn FnMut(Delivery<'_>)) -> bool {
        true
    }
}
