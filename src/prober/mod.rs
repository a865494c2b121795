//! Sends one probe per peer and interval, and decides the outcome of each.
//!
//! Decisions are separate from I/O. [`Engine`] records probes and replies and does no I/O.
//! [`Schedule`] says which peer is due. [`Prober`] joins them with a [`Protocol`], which sends
//! probes and reads what comes back: [`Icmp`], [`udp::Udp`] or [`tcp::Tcp`]. Each has a wire and a
//! [`Clock`]; tests replace these by a lossy wire and a scripted clock.
//!
//! # The payload
//! Every request carries 24 bytes of our own ([`packet`] has their layout): a random number of this
//! process, the probe's number and slot, and a keyed hash. The hash covers these, the sequence
//! number and the destination. The rest is a fixed pattern. A reply is accepted only if all of it
//! comes back from the destination. So neither a foreign packet nor a damaged one can become a
//! round-trip time. A peer cannot answer a probe that was not sent to it, because the key of the
//! hash never leaves the process. The time of sending is not in the packet.
//!
//! # Traps
//! - A reply can be read before the send call returns (loopback, veth), so the probe is recorded
//!   before it is sent.
//! - Losses must not be decided before everything that has arrived is read. Otherwise a starved
//!   agent reports loss.
//! - A peer that moves or leaves has probes in flight. Their loss says nothing about the network.
//! - The agent's list may not have that change yet. If its source can be asked, a loss is counted
//!   only after the source has looked again ([`doubts`]). If the peer itself has answered a later
//!   probe, no question is needed.

mod clock;
mod control;
mod datagrams;
mod descriptor;
mod destination;
mod doubts;
mod engine;
mod event;
mod flights;
mod icmp;
mod mmsg;
mod options;
mod pacer;
pub mod packet;
mod probers;
mod probing;
mod reading;
mod schedule;
pub mod socket;
mod sources;
pub mod stamp;
pub mod tcp;
mod timer;
pub mod udp;

pub use clock::{Clock, Moment, MonotonicClock, RealTime};
pub use doubts::{QUESTION_PAUSE, WITHHELD_MAX};
pub use engine::Engine;
pub use event::{Event, Events, SendError, Stamp};
pub use icmp::Icmp;
pub use pacer::Pacer;
pub use probers::{IcmpProber, Probers, TcpProber, UdpProber};
pub use probing::{Prober, Protocol, Settings};
pub use schedule::Schedule;
pub use sources::Sources;

use std::net::IpAddr;

use crate::peers::SlotId;
use crate::units::Nanos;

/// What a wire must know about a socket to read its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// A ping socket: the kernel sets and checks identifier and checksum.
    Datagram,
    /// A raw socket: the prober sets and checks them, and IPv4 packets arrive with their header.
    Raw,
}

/// A packet to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Destination of the packet.
    pub to: IpAddr,
    /// The complete ICMP message.
    pub bytes: &'a [u8],
}

/// A packet that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Source of the packet.
    pub from: IpAddr,
    /// Bytes as the socket returned them: with the IPv4 header on a raw IPv4 socket.
    pub bytes: &'a [u8],
    /// Time of the arrival.
    pub moment: Moment,
}

/// What a wire has read.
#[derive(Clone, Copy, Debug)]
pub enum Delivery<'a> {
    /// A packet of this process has left: its bytes, perhaps after headers and cut at the
    /// end, and the time.
    Departure(&'a [u8], Moment),
    /// A packet has arrived.
    Arrival(Datagram<'a>),
}

/// The seam to the network: everything that the prober needs of sockets.
pub trait Wire {
    /// Sets the identifier of our requests; a raw socket may ignore all others.
    fn identify(&mut self, identifier: u16);
    /// Makes room for the replies of this many peers, which may arrive at once.
    fn make_room(&mut self, peers: usize);
    /// Sets whether turns are so frequent that packets between them need not wake the thread.
    fn attend(&mut self, turns_are_frequent: bool);
    /// Returns the kind of socket that serves the family of `address`.
    fn kind(&self, address: IpAddr) -> SocketKind;
    /// Sends the packets in order and reports the result of each to `sent`, by its
    /// index. Never blocks.
    fn send(&mut self, packets: &[Outgoing<'_>], sent: &mut dyn FnMut(usize, Result<(), SendError>));
    /// Delivers what has left and what has arrived, up to a bound. A reply is never
    /// delivered before the departure of its request, if the kernel reports departures.
    /// Returns whether everything was read.
    fn receive(&mut self, clock: &dyn Clock, deliver: &mut dyn FnMut(Delivery<'_>)) -> bool;
}

/// Receives the results of the prober.
pub trait Sink {
    /// Called when something happened to a probe of this slot.
    fn event(&mut self, slot: SlotId, event: Event);
    /// Called for an event that was caused by an intact reply to the probe with this ICMP sequence
    /// number. By default the number is ignored.
    fn event_of_reply(&mut self, slot: SlotId, _sequence: u16, event: Event) {
        self.event(slot, event);
    }
    /// Called when a probe was sent this much later than scheduled.
    fn send_lag(&mut self, lag: Nanos);
    /// Called when this many probes were left out, because the agent was stopped for
    /// longer than an interval.
    fn skipped(&mut self, probes: u64);
    /// Called with the time between the kernel's timestamp of a reply and our read.
    fn read_delay(&mut self, delay: Nanos);
    /// Called when a reply arrived that answers no probe of this process.
    fn unrelated(&mut self);
    /// Called with the outcome of each probe over a flow: whether it was answered in time. It may
    /// be called before the loss is counted, which may be in doubt. `extra`: the probe is not one
    /// of those that use the flows in turn, and has no event.
    fn flow(&mut self, _slot: SlotId, _flow: u8, _answered: bool, _extra: bool) {}
    /// Called when the count of the peer's reflector has shown the directions of losses that were
    /// counted before: this many requests and this many answers were lost.
    fn ways(&mut self, _slot: SlotId, _lost_there: u32, _lost_back: u32) {}
    /// Called with the direction in which a flow has lost: a request (`there`) or an answer.
    fn flow_way(&mut self, _slot: SlotId, _flow: u8, _there: bool) {}
    /// Called when the SYN of a handshake was sent this many times more.
    fn syn_retransmissions(&mut self, _slot: SlotId, _count: u32) {}
    /// Called when a handshake that counts as lost was refused.
    fn refused(&mut self, _slot: SlotId) {}
    /// Called with the number of hops that an answer has come: 1 without a router between.
    fn hops(&mut self, _slot: SlotId, _hops: u8) {}
    /// Called with the times of arrival less those of departure of a request and its answer, in
    /// nanoseconds. Each is between the clocks of two nodes, so only their variation means
    /// something, unless it is known how far the clocks are `_apart` at most.
    fn one_way(&mut self, _slot: SlotId, _delays: [i64; 2], _apart: Option<Nanos>) {}
}
