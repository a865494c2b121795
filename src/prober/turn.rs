//! One turn of the prober: read what has come, send what is due, give up what has timed out.

use super::packet::{Codec, Decoded, Label};
use super::{Clock, Datagram, Engine, Event, Outgoing, Schedule, SendError, Sink, SocketKind, Wire};
use crate::peers::{Change, Protocol, SlotId};
use crate::units::Nanos;

/// Requests sent by one system call. All of a batch bear the time just before it, so a longer one would blur it.
const BATCH: usize = 8;

/// How the prober probes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// One probe per peer and interval.
    pub interval: Nanos,
    /// Unanswered for longer is lost.
    pub timeout: Nanos,
    /// Payload of a request.
    pub payload_bytes: usize,
    /// Our node's name: decides the phase.
    pub node: String,
}

/// The prober over a wire and a clock.
#[derive(Debug)]
pub struct Prober<W, C> {
    wire: W,
    clock: C,
    codec: Codec,
    engine: Engine,
    schedule: Schedule,
    batch: Batch,
}

#[derive(Debug)]
struct Batch {
    messages: Vec<u8>,
    labels: Vec<(Label, std::net::IpAddr)>,
}

impl<W: Wire, C: Clock> Prober<W, C> {
    /// A prober without peers.
    pub fn new(wire: W, clock: C, settings: &Settings) -> Self {
        let codec = Codec::new(settings.payload_bytes);
        let batch = Batch { messages: vec![0; codec.message_bytes() * BATCH], labels: Vec::with_capacity(BATCH) };
        let schedule = Schedule::new(settings.interval, &settings.node, clock.now());
        let engine = Engine::new(settings.timeout, settings.interval);
        Self { wire, clock, codec, engine, schedule, batch }
    }

    /// The clock.
    pub const fn clock(&self) -> &C {
        &self.clock
    }

    /// The wire.
    pub const fn wire(&mut self) -> &mut W {
        &mut self.wire
    }

    /// Takes over a change of the peer list.
    pub fn apply(&mut self, change: Change) {
        self.engine.apply(change);
        match change {
            Change::Join { slot } | Change::Stop { slot } => self.schedule.remove(slot),
            Change::Probe { slot, .. } => self.schedule.add(slot),
        }
    }

    /// Reads, sends, gives up; all without waiting. Call it when a socket is readable and at [`Prober::next_turn`].
    /// Returns whether everything that has arrived is read; if not, call it again at once.
    pub fn turn(&mut self, sink: &mut impl Sink) -> bool {
        let start = self.clock.now();
        // Read before the packets are: whatever had arrived by then has been read once the sockets are empty, however
        // long we are held up between that and deciding losses.
        let mut as_of = start;
        let mut drained = self.receive(sink);
        // What falls due meanwhile is for the next turn: a host too slow for its interval must get out of here.
        while let Some((due, cell)) = self.schedule.advance(start) {
            let peers = self.schedule.cell(cell).len();
            for from in (0..peers).step_by(BATCH) {
                self.send(cell, from..(from + BATCH).min(peers), due, sink);
            }
            // Replies of what was just sent are already there on a short path: read them before sending more.
            as_of = self.clock.now();
            drained = self.receive(sink);
        }
        if drained {
            while let Some((slot, event)) = self.engine.expire(as_of) {
                sink.event(slot, event);
            }
        }
        drained
    }

    /// When the next turn is due, if nothing arrives before.
    pub fn next_turn(&self) -> Option<Nanos> {
        match (self.schedule.next_due(), self.engine.next_expiry()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn receive(&mut self, sink: &mut impl Sink) -> bool {
        let Self { wire, clock, codec, engine, .. } = self;
        let kinds = [wire.kind([0, 0, 0, 0].into()), wire.kind([0u16; 8].into())];
        wire.receive(clock, &mut |datagram| read(codec, engine, &datagram, kinds, sink))
    }

    fn send(&mut self, cell: usize, peers: std::ops::Range<usize>, due: Nanos, sink: &mut impl Sink) {
        let Self { wire, clock, codec, engine, schedule, batch } = self;
        let bytes = codec.message_bytes();
        let now = clock.now();
        batch.labels.clear();
        for &slot in &schedule.cell(cell)[peers] {
            let Some(address) = engine.address(slot) else { continue };
            match engine.begin(slot, now) {
                Ok(label) => {
                    let message = &mut batch.messages[batch.labels.len() * bytes..][..bytes];
                    codec.encode(label, Protocol::of(address), wire.kind(address), message);
                    batch.labels.push((label, address));
                }
                Err(reason) => sink.event(slot, Event::NotSent(reason)),
            }
        }
        let mut packets = [Outgoing { to: std::net::Ipv4Addr::UNSPECIFIED.into(), bytes: &[] }; BATCH];
        for ((packet, (_, to)), bytes) in packets.iter_mut().zip(&batch.labels).zip(batch.messages.chunks(bytes)) {
            *packet = Outgoing { to: *to, bytes };
        }
        let now = clock.now();
        batch.labels.iter().for_each(|(label, _)| engine.stamp(*label, now));
        let lag = now.since(due);
        wire.send(&packets[..batch.labels.len()], &mut |index, result: Result<(), SendError>| {
            let (label, _) = batch.labels[index];
            if result.is_ok() {
                sink.send_lag(lag);
            }
            if let Some(event) = engine.sent(label, result) {
                sink.event(label.slot, event);
            }
        });
    }
}

fn read(codec: &Codec, engine: &mut Engine, datagram: &Datagram<'_>, kinds: [SocketKind; 2], sink: &mut impl Sink) {
    let kind = kinds[usize::from(datagram.from.is_ipv6())];
    let mut tell = |slot: SlotId, event: Event| sink.event(slot, event);
    match codec.decode(datagram, kind) {
        Decoded::NotAReply => {}
        Decoded::Unrelated => sink.unrelated(),
        Decoded::Corrupt { .. } => match engine.corrupt(datagram.from) {
            Some(slot) => tell(slot, Event::Corrupt),
            None => sink.unrelated(),
        },
        Decoded::Reply(label) => match engine.reply(label, datagram.from, datagram.at, datagram.stamp) {
            Some(events) => events.into_iter().flatten().for_each(|event| tell(label.slot, event)),
            None => sink.unrelated(),
        },
    }
}
