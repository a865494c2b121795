//! Probes by ICMP echo.

mod packet;
mod sockets;

pub use packet::{Decoded, EchoFormat};
pub use sockets::{IcmpSocketError, IcmpSockets};

use std::net::SocketAddr;

use super::datagrams::{Datagrams, Exchange, ProbeRequest};
use super::probe_key::ProbeKey;
use super::probing::{Common, Prober, Settings};
use super::{Clock, Datagram, Engine, Event, Flow, Observation, SendError, Wire};
use crate::peers::{Family, SlotId};
use crate::units::Nanos;

/// What a wire must know about a socket to read its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// A ping socket: the kernel sets and checks identifier and checksum.
    Datagram,
    /// A raw socket: the prober sets and checks them, and IPv4 packets arrive with their header.
    Raw,
}

/// What the sockets of echo requests do besides carrying them.
pub trait EchoWire: Wire {
    /// Sets the identifier of our requests; a raw socket may ignore all others.
    fn identify(&mut self, identifier: u16);
    /// Returns the kind of the socket that serves a family. It never changes.
    fn kind(&self, family: Family) -> SocketKind;
}

/// Sends echo requests over a wire, and reads the replies.
pub type Icmp<W> = Datagrams<W, Echo>;

/// Writes echo requests and reads their replies (RFC 792, RFC 4443).
#[derive(Debug)]
pub struct Echo {
    /// The kinds of the sockets, by family.
    kinds: [SocketKind; 2],
    format: EchoFormat,
    /// Number of damaged replies whose peers are still looked for in this reading.
    damaged_left: u32,
}

/// Damaged replies of one reading whose peers are looked for among all. Damage is rare, and any
/// neighbour can forge it.
const DAMAGED_MAX: u32 = 64;

impl<W: EchoWire> Icmp<W> {
    /// Makes a prober without peers. A request has this many bytes of payload.
    pub fn prober<C: Clock>(mut wire: W, clock: C, settings: &Settings, payload_bytes: usize) -> Prober<Self, C> {
        let key = ProbeKey::random();
        wire.identify(key.session());
        let engine = Engine::new(settings.timeout, settings.interval, settings.doubts);
        let common = Common::new(clock, engine, settings.interval, &settings.node);
        let format = EchoFormat::new(key.session(), payload_bytes);
        let message_bytes = format.message_bytes();
        let echo = Echo { kinds: Family::ALL.map(|family| wire.kind(family)), format, damaged_left: 0 };
        let protocol = Self::new(wire, echo, key, message_bytes, settings.replies_wait);
        Prober { protocol, common }
    }
}

impl<W: EchoWire> Exchange<W> for Echo {
    const PROBES_NODES: bool = true;

    fn begin(
        &mut self,
        engine: &mut Engine,
        to: SocketAddr,
        (slot, flow, _): (SlotId, Flow, bool),
        now: Nanos,
    ) -> Result<ProbeRequest, SendError> {
        let label = engine.begin(slot, now)?;
        Ok(ProbeRequest { label, sequence: label.sequence.into(), flow, to, bytes: self.format.message_bytes() })
    }

    fn write(&self, key: &ProbeKey, request: &ProbeRequest, _: Nanos, out: &mut [u8]) {
        let kind = self.kinds[usize::from(request.to.is_ipv6())];
        self.format.encode(key, request.label, request.to.ip(), kind, out);
    }

    fn begin_reading(&mut self, _: &impl Clock) {
        self.damaged_left = DAMAGED_MAX;
    }

    fn read(
        &mut self,
        key: &ProbeKey,
        engine: &mut Engine,
        (_, datagram): (Flow, &Datagram<'_>),
        observe: &mut impl FnMut(Observation),
    ) -> bool {
        let from = datagram.from.ip();
        match self.format.decode(key, from, datagram.bytes, self.kinds[usize::from(from.is_ipv6())]) {
            Decoded::NotAReply => true,
            Decoded::Unrelated => false,
            Decoded::Corrupt { .. } if self.damaged_left == 0 => false,
            Decoded::Corrupt { .. } => {
                self.damaged_left -= 1;
                let slot = engine.corrupt(from);
                if let Some(slot) = slot {
                    observe(Observation::probe(slot, Event::Corrupt));
                }
                slot.is_some()
            }
            Decoded::Reply(label) => {
                let Some((slot, events)) = engine.reply(label, from, datagram.moment) else { return false };
                Observation::from_reply(slot, label.sequence, events).for_each(observe);
                true
            }
        }
    }
}
