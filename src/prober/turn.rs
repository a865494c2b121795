//! One turn of the prober: read what has come, send what is due, give up what has timed out.

use std::net::IpAddr;

use super::mmsg::BATCH;
use super::packet::{Codec, Decoded, Label};
use super::reading::Reading;
use super::{Clock, Datagram, Engine, Event, Heard, Outgoing, Schedule, SendError, Sink, SocketKind, Wire};
use crate::limits::{PEER_SLOTS_MAX, STANDSTILL, STANDSTILL_READS_MAX};
use crate::peers::{Change, Compaction, SlotId};
use crate::units::Nanos;

/// Requests sent by one system call as long as the kernel has told of no departure: all of a batch bear the time just
/// before it, so a longer one would blur it.
const BATCH_UNSTAMPED: usize = 8;
/// A loss may be decided so much after its timeout: others that time out soon after it are decided by the same turn, and
/// where turns are frequent there is one anyway.
const LOSS_SLACK: Nanos = Nanos::from_millis(125);
/// Slots are made room for by so many: a join must not copy all tables.
const ROOM: usize = 64;

/// How the prober probes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// One probe per peer and interval.
    pub interval: Nanos,
    /// Unanswered for longer is lost.
    pub timeout: Nanos,
    /// Payload of a request.
    pub payload_bytes: usize,
    /// Our node's name: decides the phase. Empty where there is no mesh to keep apart from: the first turn is at once.
    pub node: String,
    /// Questions ([`Prober::ask`]) are answered: a loss is asked about before it is booked.
    pub doubts: bool,
    /// How long replies may wait to be read. Where probes go out as often, on average over the interval, replies wake nobody:
    /// the turn that sends next reads them, and their round-trip times are the kernel's.
    pub replies_wait: Nanos,
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
    /// Slots that there is room for.
    room: usize,
    /// The kernel tells of departures.
    departures: bool,
    /// No probe goes out any more.
    finishing: bool,
    /// When the last turn began.
    turned: Nanos,
    reading: Reading,
}

/// Requests that are being put together. The prober's own, allocated with it: a turn writes them, [`Wire::send`] borrows them for
/// one call (the kernel copies), and the next batch overwrites them.
#[derive(Debug)]
struct Batch {
    messages: Vec<u8>,
    labels: Vec<(Label, IpAddr)>,
}

fn room(slots: usize) -> usize {
    slots.next_multiple_of(ROOM).min(PEER_SLOTS_MAX)
}

impl<W: Wire, C: Clock> Prober<W, C> {
    /// A prober without peers.
    pub fn new(mut wire: W, clock: C, settings: &Settings) -> Self {
        let codec = Codec::new(settings.payload_bytes);
        wire.identify(codec.identifier());
        let batch = Batch { messages: vec![0; codec.message_bytes() * BATCH], labels: Vec::with_capacity(BATCH) };
        let turned = clock.now();
        let schedule = Schedule::new(settings.interval, &settings.node, turned);
        let engine = Engine::new(settings.timeout, settings.interval, settings.doubts);
        Self {
            wire,
            clock,
            codec,
            engine,
            schedule,
            batch,
            room: 0,
            departures: false,
            finishing: false,
            turned,
            reading: Reading::new(settings.replies_wait),
        }
    }

    /// The clock.
    pub const fn clock(&self) -> &C {
        &self.clock
    }

    /// The wire.
    pub const fn wire(&mut self) -> &mut W {
        &mut self.wire
    }

    /// Makes room for `slots` peers. Nothing else allocates, but a change that joins a slot beyond them, and a compaction.
    pub fn reserve(&mut self, slots: usize) {
        if slots > self.room {
            self.room = room(slots);
            self.engine.reserve(self.room);
            self.schedule.reserve(self.room);
            self.wire.make_room(self.room);
        }
    }

    /// What is kept per slot, in memory, in whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.engine.resident_bytes() + self.schedule.resident_bytes()
    }

    /// Takes over who sits where now, and gives back what the others needed.
    pub fn compact(&mut self, compaction: &Compaction) {
        self.room = room(compaction.slots());
        self.engine.compact(compaction, self.room);
        self.schedule.compact(compaction, self.room);
    }

    /// Takes over a change of the peer list.
    pub fn apply(&mut self, change: Change) {
        if let Change::Join { slot } = change {
            self.reserve(slot.index() + 1);
        }
        self.engine.apply(change);
        match change {
            Change::Join { slot } | Change::Stop { slot } => self.schedule.remove(slot),
            Change::Probe { slot, .. } => self.schedule.add(slot),
            Change::Zone { .. } => {}
        }
        self.attend();
    }

    /// Sends nothing more to a slot until its next [`Change::Probe`]; what is under way stays so, unlike after
    /// [`Change::Stop`].
    pub fn pause(&mut self, slot: SlotId) {
        self.schedule.remove(slot);
        self.attend();
    }

    /// Sends nothing more to anyone; what is under way stays so.
    pub fn finish(&mut self) {
        self.finishing = true;
        self.attend();
    }

    /// Whether the fate of a probe is still open.
    pub fn awaits_any(&mut self) -> bool {
        self.engine.awaits_any()
    }

    /// Passes on the questions that have come up since: is the peer at this address still there by the list? `ask` says
    /// whether it took one; what it did not take is booked lost. Call it after each turn.
    pub fn ask(&mut self, mut ask: impl FnMut(IpAddr) -> bool) {
        // Nearly always: not even the time is needed.
        if !self.engine.is_in_doubt() {
            return;
        }
        let now = self.clock.now();
        while let Some((doubt, address)) = self.engine.question(now) {
            if !ask(address) {
                self.engine.unanswerable(doubt);
            }
        }
    }

    /// The answer: the list as applied is right about this address, so that silence there is loss.
    pub fn sure(&mut self, address: IpAddr) {
        self.engine.sure(address);
    }

    /// The answer: nobody can say now. What was withheld is lost; the next doubt is asked about again.
    pub fn unsure(&mut self, address: IpAddr) {
        self.engine.unsure(address);
    }

    fn attend(&mut self) {
        let gap = self.schedule.mean_gap().filter(|_| !self.finishing);
        let replies_wait = self.reading.pace(gap);
        self.wire.attend(replies_wait);
    }

    /// Sends, reads, gives up; all without waiting. Call it when a socket is readable and at [`Prober::next_turn`].
    /// Returns whether everything that has arrived is read; if not, call it again at once.
    pub fn turn(&mut self, sink: &mut impl Sink) -> bool {
        // Read before the packets are: whatever had arrived by then has been read once the sockets are empty, however
        // long we are held up between that and deciding losses.
        let start = self.clock.now();
        let mut read = None;
        if start.since(std::mem::replace(&mut self.turned, start)) > STANDSTILL.into()
            && (0..STANDSTILL_READS_MAX).any(|_| self.receive(sink))
        {
            self.expire(start, sink);
        }
        // What falls due meanwhile is for the next turn: a host too slow for its interval must get out of here.
        while !self.finishing
            && let Some((due, first)) = self.schedule.advance(start)
        {
            let mut next = Some(first);
            while let Some(slot) = next {
                next = self.send(slot, due, sink);
                // Departures and, on a short path, replies are there already: read them before sending more.
                let as_of = self.clock.now();
                read = Some((as_of, self.receive(sink)));
            }
        }
        let skipped = self.schedule.take_skipped();
        if skipped > 0 {
            sink.skipped(skipped);
        }
        let (as_of, drained) = read.unwrap_or_else(|| (start, self.receive(sink)));
        if drained {
            self.expire(as_of, sink);
        }
        self.reading.turned(drained);
        drained
    }

    /// Decides losses, of what had arrived by then.
    fn expire(&mut self, as_of: Nanos, sink: &mut impl Sink) {
        while let Some((slot, event)) = self.engine.expire(as_of) {
            sink.event(slot, event);
        }
    }

    /// When the next turn is due, if nothing arrives before. Call it before each wait: what arrives meanwhile may wait until
    /// then, and is not read late.
    pub fn next_turn(&mut self) -> Option<Nanos> {
        let due = if self.finishing { None } else { self.schedule.next_due() };
        let expiry = self.engine.next_expiry().map(|at| at.plus(LOSS_SLACK));
        let next = [due, expiry, self.engine.next_doubt()].into_iter().flatten().min();
        self.reading.next_turn(next);
        next
    }

    fn receive(&mut self, sink: &mut impl Sink) -> bool {
        let Self { wire, clock, codec, engine, departures, reading, .. } = self;
        let kinds = [wire.kind([0, 0, 0, 0].into()), wire.kind([0u16; 8].into())];
        wire.receive(clock, &mut |heard| match heard {
            Heard::Departure(bytes, moment) => {
                if let Some(label) = codec.departed(bytes) {
                    *departures = true;
                    engine.departed(label, moment);
                }
            }
            Heard::Arrival(datagram) => {
                if let Some(delay) = datagram.moment.read_delay(reading.due()) {
                    sink.read_delay(delay);
                }
                read(codec, engine, &datagram, kinds, sink);
            }
        })
    }

    /// Sends to `first` and those after it in its cell, as many as a batch takes. Returns who is next.
    fn send(&mut self, first: SlotId, due: Nanos, sink: &mut impl Sink) -> Option<SlotId> {
        let Self { wire, clock, codec, engine, schedule, batch, departures, .. } = self;
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
