//! Probes by ICMP echo.

use std::net::IpAddr;

use super::datagrams::{self, BATCH_UNSTAMPED, Datagrams};
use super::mmsg::BATCH;
use super::packet::{Codec, Decoded, Label};
use super::probing::{Common, Prober, Protocol, Settings};
use super::reading::Reading;
use super::udp::Guest;
use super::{Clock, Datagram, Delivery, Engine, Event, Outgoing, SendError, Sink, SocketKind, Wire};
use crate::peers::SlotId;
use crate::units::Nanos;

/// Sends echo requests over a wire, and reads the replies.
#[derive(Debug)]
pub struct Icmp<W> {
    wire: W,
    codec: Codec,
    batch: Batch,
    /// Whether the kernel reports departures.
    departures: bool,
    reading: Reading,
}

/// Buffers of the requests in preparation, owned by the prober and allocated with it. A
/// turn writes them, and [`Wire::send`] borrows them for one call (the kernel copies). The
/// next batch overwrites them.
#[derive(Debug)]
struct Batch {
    messages: Vec<u8>,
    labels: Vec<(Label, IpAddr)>,
}

impl<W: Wire> Icmp<W> {
    /// Makes a prober without peers. A request has this many bytes of payload.
    pub fn prober<C: Clock>(mut wire: W, clock: C, settings: &Settings, payload_bytes: usize) -> Prober<Self, C> {
        let codec = Codec::new(payload_bytes);
        wire.identify(codec.identifier());
        let batch = Batch { messages: vec![0; codec.message_bytes() * BATCH], labels: Vec::with_capacity(BATCH) };
        let engine = Engine::new(settings.timeout, settings.interval, settings.doubts);
        let common = Common::new(clock, engine, settings.interval, &settings.node);
        let reading = Reading::new(settings.replies_wait);
        Prober { protocol: Self { wire, codec, batch, departures: false, reading }, common }
    }
}

impl<W: Wire, C: Clock> Prober<Icmp<W>, C> {
    /// Returns the wire of the prober.
    pub const fn wire(&mut self) -> &mut W {
        &mut self.protocol.wire
    }
}

impl<W: Wire> Protocol for Icmp<W> {
    const PROBES_NODES: bool = true;

    fn reserve(&mut self, slots: usize) {
        self.wire.make_room(slots);
    }

    fn attend(&mut self, gap: Option<Nanos>) {
        let replies_wait = self.reading.pace(gap);
        self.wire.attend(replies_wait);
    }

    fn turn<C: Clock>(&mut self, common: &mut Common<C>, sink: &mut impl Sink) -> bool {
        let (_, drained) = datagrams::turn(self, common, sink, &mut ());
        self.reading.turned(drained);
        drained
    }

    fn before_wait(&mut self, next: Option<Nanos>) {
        self.reading.next_turn(next);
    }
}

impl<W: Wire> Datagrams for Icmp<W> {
    fn receive<C: Clock>(&mut self, common: &mut Common<C>, sink: &mut impl Sink, _: &mut impl Guest) -> bool {
        let Self { wire, codec, departures, reading, .. } = self;
        let Common { clock, engine, .. } = common;
        let kinds = [wire.kind([0, 0, 0, 0].into()), wire.kind([0u16; 8].into())];
        wire.receive(clock, &mut |delivery| match delivery {
            Delivery::Departure(bytes, moment) => {
                if let Some(label) = codec.departed(bytes) {
                    *departures = true;
                    engine.departed(label, moment);
                }
            }
            Delivery::Arrival(datagram) => {
                if let Some(delay) = datagram.moment.read_delay(reading.due()) {
                    sink.read_delay(delay);
                }
                read(codec, engine, &datagram, kinds, sink);
            }
        })
    }

    fn send<C: Clock>(
        &mut self,
        common: &mut Common<C>,
        first: SlotId,
        due: Nanos,
        sink: &mut impl Sink,
    ) -> Option<SlotId> {
        let Self { wire, codec, batch, departures, .. } = self;
        let Common { clock, engine, schedule, .. } = common;
        let most = if *departures { BATCH } else { BATCH_UNSTAMPED };
        let bytes = codec.message_bytes();
        let now = clock.now();
        batch.labels.clear();
        let mut next = Some(first);
        for _ in 0..most {
            let Some(slot) = next else { break };
            next = schedule.after(slot);
            let Some(address) = engine.address(slot) else { continue };
            match engine.begin(slot, now) {
                Ok(label) => {
                    let message = &mut batch.messages[batch.labels.len() * bytes..][..bytes];
                    codec.encode(label, address, wire.kind(address), message);
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
        next
    }
}

fn read(codec: &Codec, engine: &mut Engine, datagram: &Datagram<'_>, kinds: [SocketKind; 2], sink: &mut impl Sink) {
    let kind = kinds[usize::from(datagram.from.is_ipv6())];
    match codec.decode(datagram, kind) {
        Decoded::NotAReply => {}
        Decoded::Unrelated => sink.unrelated(),
        Decoded::Corrupt { .. } => match engine.corrupt(datagram.from) {
            Some(slot) => sink.event(slot, Event::Corrupt),
            None => sink.unrelated(),
        },
        Decoded::Reply(label) => match engine.reply(label, datagram.from, datagram.moment) {
            Some((slot, events)) => {
                events.into_iter().flatten().for_each(|event| sink.event_of_reply(slot, label.sequence, event));
            }
            None => sink.unrelated(),
        },
    }
}
