//! Probes by ICMP echo.

use std::net::SocketAddr;

use super::datagrams::{Datagrams, Exchange, Request};
use super::packet::{Codec, Decoded};
use super::probing::{Common, Prober, Settings};
use super::{Clock, Datagram, Engine, Event, Flow, Observation, SendError, SocketKind, Wire};
use crate::peers::{Family, SlotId};
use crate::units::Nanos;

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
    message_bytes: usize,
}

impl<W: EchoWire> Icmp<W> {
    /// Makes a prober without peers. A request has this many bytes of payload.
    pub fn prober<C: Clock>(mut wire: W, clock: C, settings: &Settings, payload_bytes: usize) -> Prober<Self, C> {
        let codec = Codec::new(payload_bytes);
        wire.identify(codec.identifier());
        let engine = Engine::new(settings.timeout, settings.interval, settings.doubts);
        let common = Common::new(clock, engine, settings.interval, &settings.node);
        let message_bytes = codec.message_bytes();
        let echo = Echo { kinds: Family::ALL.map(|family| wire.kind(family)), message_bytes };
        let protocol = Self::new(wire, echo, codec, message_bytes, settings.replies_wait);
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
    ) -> Result<Request, SendError> {
        let label = engine.begin(slot, now)?;
        Ok(Request { label, sequence: label.sequence.into(), flow, to, bytes: self.message_bytes })
    }

    fn write(&self, codec: &Codec, request: &Request, _: Nanos, out: &mut [u8]) {
        codec.encode(request.label, request.to.ip(), self.kinds[usize::from(request.to.is_ipv6())], out);
    }

    fn read(
        &mut self,
        codec: &Codec,
        engine: &mut Engine,
        (_, datagram): (Flow, &Datagram<'_>),
        observe: &mut impl FnMut(Observation),
    ) -> bool {
        let from = datagram.from.ip();
        match codec.decode(from, datagram.bytes, self.kinds[usize::from(from.is_ipv6())]) {
            Decoded::NotAReply => true,
            Decoded::Unrelated => false,
            Decoded::Corrupt { .. } => {
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
