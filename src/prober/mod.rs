//! Sends one probe per peer and interval, and decides the outcome of each.
//!
//! Decisions are separate from I/O. [`Engine`] records probes and replies and does no I/O.
//! [`Schedule`] says which peer is due. [`Prober`] joins them with a [`ProbeProtocol`], which sends
//! probes and reads what comes back: [`Icmp`], [`udp::Udp`] or [`tcp::Tcp`]. Each has a wire and a
//! [`Clock`]; tests replace these by a lossy wire and a scripted clock. What happens is an
//! [`Observation`].
//!
//! # The payload
//! Every request carries 24 bytes of our own ([`ProbeKey`] has their layout): a random number of
//! this process, the probe's number and slot, and a keyed hash. The hash covers these, the sequence
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
mod datagrams;
mod descriptor;
mod destination;
mod doubts;
mod engine;
mod event;
pub mod filter;
mod flights;
pub mod icmp;
mod options;
mod pacer;
mod probe_key;
mod probers;
mod probing;
mod reading;
mod schedule;
mod sources;
pub mod tcp;
mod timer;
pub mod udp;
mod wire;

pub use clock::{Clock, Moment, MonotonicClock, RealTime};
pub use datagrams::Guest;
pub use doubts::{QUESTION_PAUSE, WITHHELD_MAX};
pub use engine::Engine;
pub use event::{Event, Events, Observation, SendError, Stamp};
pub use icmp::{EchoWire, Icmp, SocketKind};
pub use options::listen_only_to;
pub use pacer::Pacer;
pub use probe_key::{Label, ProbeKey};
pub use probers::{IcmpProber, Probers, TcpProber, UdpProber};
pub use probing::{ProbeProtocol, Prober, Settings};
pub use schedule::Schedule;
pub use sources::Sources;
pub use wire::{Datagram, Delivery, Flow, Outgoing, Refusal, Unreachable, Wire};
