//! One turn of the prober: reads what has arrived, sends what is due, and decides what has timed
//! out.

use std::net::IpAddr;

use super::mmsg::BATCH;
use super::packet::{Codec, Decoded, Label};
use super::reading::Reading;
use super::{Clock, Datagram, Delivery, Engine, Event, Outgoing, Schedule, SendError, Sink, SocketKind, Wire};
use crate::limits::PEER_SLOTS_MAX;
use crate::peers::{Change, Compaction, SlotId};
use crate::units::Nanos;

/// Requests per system call until the kernel has reported a departure. All of a batch have the time
/// just before the call, so a longer batch would make that time less precise.
pub(super) const BATCH_UNSTAMPED: usize = 8;
/// Longest delay of a loss decision after the timeout. Probes that time out soon after each other
/// are decided by the same turn. If turns are frequent, there is one within that time anyway.
pub(super) const LOSS_SLACK: Nanos = Nanos::from_millis(125);
/// If the prober has not run for longer than this, it reads replies before it sends. Its
/// send times wrap around after some minutes. Recording the next probe would move the
/// earlier ones into the future.
pub(super) const STANDSTILL: Nanos = Nanos::from_millis(5_000);
/// How often the prober reads after a standstill, as long as packets are left. Each read takes
/// 4,096 packets. Together they exceed what the queues of all peers can hold.
pub(super) const STANDSTILL_READS_MAX: usize = 16;
/// Room for slots is added in steps of this many: a join must not copy all tables.
const ROOM: usize = 32;

/// The settings that a prober runs with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time between two probes to one peer.
    pub interval: Nanos,
    /// A probe that is unanswered for longer is lost.
    pub timeout: Nanos,
    /// Bytes of a request's payload.
    pub payload_bytes: usize,
    /// Name of our node, which decides the phase. If it is empty, there is no mesh to stay apart
    /// from, and the first turn is at once.
    pub node: String,
    /// Whether questions ([`Prober::ask`]) are answered. If so, one is asked before
    /// a loss is counted.
    pub doubts: bool,
    /// Longest time that replies may wait to be read. If probes are sent at least as often,
    /// averaged over the interval, replies do not wake the thread. The next sending turn reads
    /// them, and their round-trip times use the kernel's timestamps.
    pub replies_wait: Nanos,
}

/// Sends probes over a wire, and decides their outcomes by a clock.
#[derive(Debug)]
pub struct Prober<W, C> {
    wire: W,
    clock: C,
    codec: Codec,
    engine: Engine,
    schedule: Schedule,
    batch: Batch,
    /// Number of slots that have room.
    room: usize,
    /// Whether the kernel reports departures.
    departures: bool,
    /// Whether no further probes are sent.
    finishing: bool,
    /// When the prober was made.
    started: Nanos,
    /// When the last turn began.
    turned: Nanos,
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

/// Returns for how many slots there is room if there are so many.
pub(super) fn room(slots: usize) -> usize {
    slots.next_multiple_of(ROOM).min(PEER_SLOTS_MAX)
}

impl<W: Wire, C: Clock> Prober<W, C> {
    /// Makes a prober without peers.
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
            started: turned,
            turned,
            reading: Reading::new(settings.replies_wait),
        }
    }

    /// Returns when the prober was made. Its turns, and those of another prober with the same
    /// start, interval and node, fall together.
    pub const fn started(&self) -> Nanos {
        self.started
    }

    /// Returns the clock of the prober.
    pub const fn clock(&self) -> &C {
        &self.clock
    }

    /// Returns the wire of the prober.
    pub const fn wire(&mut self) -> &mut W {
        &mut self.wire
    }

    /// Makes room for `slots` peers. Otherwise only a change that joins a slot beyond them, and a
    /// compaction, allocate.
    pub fn reserve(&mut self, slots: usize) {
        if slots > self.room {
            self.room = room(slots);
            self.engine.reserve(self.room);
            self.schedule.reserve(self.room);
            self.wire.make_room(self.room);
        }
    }

    /// Returns the resident memory of the data per slot, in bytes of whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.engine.resident_bytes() + self.schedule.resident_bytes()
    }

    /// Moves peers as `compaction` says, and frees the memory of unused slots.
    pub fn compact(&mut self, compaction: &Compaction) {
        self.room = room(compaction.slots());
        self.engine.compact(compaction, self.room);
        self.schedule.compact(compaction, self.room);
    }

    /// Applies a change of the peer list.
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

    /// Stops sending to a slot until its next [`Change::Probe`]. Unlike after [`Change::Stop`],
    /// probes in flight still count.
    pub fn pause(&mut self, slot: SlotId) {
        self.schedule.remove(slot);
        self.attend();
    }

    /// Stops sending to all peers. Probes in flight still count.
    pub fn finish(&mut self) {
        self.finishing = true;
        self.attend();
    }

    /// Whether the outcome of a probe is still open.
    pub fn awaits_any(&mut self) -> bool {
        self.engine.awaits_any()
    }

    /// Passes on the new questions: is the peer at this address still on the list? `ask` returns
    /// whether it accepted the question; if not, the loss is counted. Called after each turn.
    pub fn ask(&mut self, ask: impl FnMut(IpAddr) -> bool) {
        self.engine.ask(|| self.clock.now(), ask);
    }

    /// Receives the answer to the question about this address, after the list that it is about.
    /// What was withheld is lost, and a later doubt leads to a new question.
    pub fn answered(&mut self, address: IpAddr) {
        self.engine.answered(address);
    }

    fn attend(&mut self) {
        let gap = self.schedule.mean_gap().filter(|_| !self.finishing);
        let replies_wait = self.reading.pace(gap);
        self.wire.attend(replies_wait);
    }

    /// Sends, reads and decides, without waiting. It is called when a socket is readable and at
    /// [`Prober::next_turn`]. Returns whether everything that has arrived was read; if not, it must
    /// be called again at once.
    pub fn turn(&mut self, sink: &mut impl Sink) -> bool {
        // The time is read before the packets are. Everything that had arrived by then was read
        // once the sockets are empty, however long the thread is delayed before losses are decided.
        let start = self.clock.now();
        let mut read = None;
        if start.since(std::mem::replace(&mut self.turned, start)) > STANDSTILL
            && (0..STANDSTILL_READS_MAX).any(|_| self.receive(sink))
        {
            self.expire(start, sink);
        }
        // Cells that become due during this loop are left to the next turn. A host that is too slow
        // for its interval must be able to leave the loop.
        while !self.finishing
            && let Some((due, first)) = self.schedule.advance(start)
        {
            let mut next = Some(first);
            while let Some(slot) = next {
                next = self.send(slot, due, sink);
                // Departures and, on a short path, replies are already there: they are read
                // before more is sent.
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

    /// Decides losses as of a time until which all arrivals were read.
    fn expire(&mut self, as_of: Nanos, sink: &mut impl Sink) {
        while let Some((slot, event)) = self.engine.expire(as_of) {
            sink.event(slot, event);
        }
    }

    /// Returns when the next turn is due, if nothing arrives before. It must be called before each
    /// wait. Packets that arrive during the wait may wait until then and do not count as read late.
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

    /// Sends to `first` and the peers after it in its cell, at most one batch.
    /// Returns the next peer.
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
