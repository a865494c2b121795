//! The seam to the UDP sockets: what they do besides carrying probes.

use std::net::{IpAddr, SocketAddr};

use crate::prober::{Clock, Datagram, Flow, Moment, Wire};

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

/// What the wire has read for the reflector.
#[derive(Clone, Copy, Debug)]
pub enum Reflected<'a> {
    /// A request has arrived.
    Request(Datagram<'a>),
    /// An answer has left (its UDP payload, perhaps after headers).
    Answered(&'a [u8], Moment),
}

/// Sends from the source port of each flow, and serves a reflector.
pub trait UdpWire: Wire {
    /// Returns the source port of a flow; `None` without a socket of the family.
    fn source_port(&self, flow: Flow, over_ipv6: bool) -> Option<u16>;
    /// Makes the kernel drop all requests that come from elsewhere than these addresses, except a
    /// few that go to a socket for strangers ([`crate::prober::filter`]).
    fn admit(&mut self, _members: &[IpAddr]) {}
    /// Makes the kernel drop all answers to our flows that come from elsewhere than these addresses
    /// and this port.
    fn admit_answers(&mut self, _peers: &[IpAddr], _port: u16) {}
    /// Sends answers from the reflector's port. Never blocks. An answer that cannot be sent is
    /// dropped.
    fn answer(&mut self, answers: &[Answer<'_>]);
    /// Delivers what has left and arrived for the reflector: at most as many requests as can be
    /// answered by one call. It is called after [`Wire::receive`], which looks what there is.
    /// Returns whether everything was read.
    fn requests(&mut self, _clock: &dyn Clock, _deliver: &mut dyn FnMut(Reflected<'_>)) -> bool {
        true
    }
}
