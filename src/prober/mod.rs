//! Sends one echo request per peer and interval, and decides what became of each.
//!
//! Deciding is apart from doing: [`Engine`] books probes and replies and does no I/O; [`Schedule`] says who is due;
//! [`packet`] writes and reads ICMP; [`Prober`] joins them over a [`Wire`] and a [`Clock`], which tests replace by a
//! lossy wire and a scripted clock. [`socket`] is the real wire.
//!
//! # The payload
//! Every request carries 24 bytes of ours ([`packet`] has their layout): a random number of this
//! process, the probe's number and slot, and a keyed hash over these, the sequence number and the
//! destination; the rest is a fixed pattern. A reply is believed only if all of it comes back from
//! the destination. Neither a foreign packet nor a damaged one can become a round-trip time, and a
//! peer cannot answer a probe that it was not sent: the key of the hash never leaves the process.
//! The time of sending stays here and never travels.
//!
//! # Traps
//! - A reply can be read before the send call returns (loopback, veth): the probe is booked before it is sent.
//! - Losses must not be decided before everything that has arrived is read, or a starved agent reports loss.
//! - A peer that moves or leaves has probes under way; their loss says nothing about the network.
//! - The list that we have may not say so yet: where its source can be asked, a loss is booked once that has looked again
//!   ([`doubts`]), unless the peer itself has answered a later probe.

mod aim;
mod clock;
mod doubts;
mod engine;
mod event;
mod flights;
mod mmsg;
mod options;
mod pacer;
pub mod packet;
mod reading;
mod schedule;
pub mod socket;
mod timer;
mod turn;

pub use clock::{Clock, Moment, MonotonicClock, RealTime};
pub use engine::Engine;
pub use event::{Event, Events, SendError, Stamp};
pub use pacer::Pacer;
pub use schedule::Schedule;
pub use turn::{Prober, Settings};

use std::net::IpAddr;

use crate::peers::SlotId;
use crate::units::Nanos;

/// What a wire needs to know of a socket to read its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// A ping socket: the kernel sets and checks identifier and checksum.
    Datagram,
    /// A raw socket: we do, and IPv4 packets come with their header.
    Raw,
}

/// A packet to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// To whom.
    pub to: IpAddr,
    /// The ICMP message.
    pub bytes: &'a [u8],
}

/// A packet that came in.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// From whom.
    pub from: IpAddr,
    /// As the socket gave it: with the IPv4 header on a raw IPv4 socket.
    pub bytes: &'a [u8],
    /// When it arrived.
    pub moment: Moment,
}

/// What a wire hands over.
#[derive(Clone, Copy, Debug)]
pub enum Heard<'a> {
    /// A packet of ours has left: its bytes, perhaps behind headers and cut at the end, and when.
    Departure(&'a [u8], Moment),
    /// A packet has come in.
    Arrival(Datagram<'a>),
}

/// The seam to the network: everything the prober needs of sockets.
pub trait Wire {
    /// Our requests bear this identifier; a raw socket need not listen to any other.
    fn identify(&mut self, identifier: u16);
    /// So many peers are probed: room for what may come in at once.
    fn make_room(&mut self, peers: usize);
    /// Whether turns are so frequent that nobody need be woken for what comes in between.
    fn attend(&mut self, turns_are_frequent: bool);
    /// The kind of socket that serves the family of `address`.
    fn kind(&self, address: IpAddr) -> SocketKind;
    /// Sends the packets in order, telling `sent` of each by its index; never blocks.
    fn send(&mut self, packets: &[Outgoing<'_>], sent: &mut dyn FnMut(usize, Result<(), SendError>));
    /// Hands over what has left and what has arrived, up to a bound; no reply before the departure that it answers, where
    /// the kernel tells that. Returns whether everything was read.
    fn receive(&mut self, clock: &dyn Clock, deliver: &mut dyn FnMut(Heard<'_>)) -> bool;
}

/// Where the prober's results go.
pub trait Sink {
    /// Something happened to a probe of this slot.
    fn event(&mut self, slot: SlotId, event: Event);
    /// An intact reply to the probe with this ICMP sequence number has brought this about. Who does not care for the
    /// number has it as any other event.
    fn event_of_reply(&mut self, slot: SlotId, _sequence: u16, event: Event) {
        self.event(slot, event);
    }
    /// A probe went out this much after its time.
    fn send_lag(&mut self, lag: Nanos);
    /// So many probes were left out, because the agent stood still for longer than an interval.
    fn skipped(&mut self, probes: u64);
    /// A reply waited so long between the kernel's stamp and our reading it.
    fn read_delay(&mut self, delay: Nanos);
    /// A reply arrived that answers no probe of ours.
    fn unrelated(&mut self);
}
