//! Probes by datagrams: they are sent and read in batches. A turn sends what is due, reads what has
//! arrived, and decides what has timed out.

use std::net::SocketAddr;

use kube_canary_kernel::batch::BATCH;

use super::flights::Tag;
use super::probe_key::{Label, ProbeKey};
use super::probing::{Common, ProbeProtocol, Prober, SlotHolder};
use super::reading::ReplyReading;
use super::wire::NOWHERE;
use super::{Clock, Datagram, Delivery, Engine, Event, Flow, Observation, Outgoing, SendError, Wire};
use crate::peers::{Change, Compaction, SlotId};
use crate::units::Nanos;

/// Requests per system call until the kernel has reported a departure. All of a batch have the time
/// just before the call, so a longer batch would make that time less precise.
const BATCH_UNSTAMPED: usize = 8;
/// If the prober has not run for longer than this, it reads replies before it sends. Its
/// send times wrap around after some minutes. Recording the next probe would move the
/// earlier ones into the future.
pub const STANDSTILL: Nanos = Nanos::from_millis(5_000);
/// How often the prober reads after a standstill, as long as packets are left. Each read takes
/// 4,096 packets. Together they exceed what the queues of all peers can hold.
const STANDSTILL_READS_MAX: usize = 16;

/// Receives what the wire delivers and is not about a probe of the prober: traces, and the search
/// for the path MTU. Returns whether it was its own.
pub type Guest<'a> = dyn FnMut(&Delivery<'_>) -> bool + 'a;

/// A request that waits for its batch to be sent.
#[derive(Clone, Copy, Debug)]
pub struct ProbeRequest {
    /// Identity of the probe.
    pub label: Label,
    /// Sequence number, of which the label has the low 16 bits.
    pub sequence: u32,
    /// Source port, by its index.
    pub flow: Flow,
    /// Address of the peer and its port; 0 if the protocol has no ports.
    pub to: SocketAddr,
    /// Length of the message.
    pub bytes: usize,
}

/// A request and its reply: what a protocol writes into datagrams and reads from them.
pub trait Exchange<W> {
    /// Whether the addresses on the nodes' own network are probed. No agent listens there.
    const PROBES_NODES: bool;

    /// Makes room for this many slots.
    fn reserve(&mut self, _slots: usize) {}
    /// Moves what is kept of peers, with room for this many slots.
    fn compact(&mut self, _compaction: &Compaction, _slots: usize) {}
    /// Returns the resident memory of what is kept of peers, in bytes of whole pages.
    fn resident_bytes(&self) -> usize {
        0
    }
    /// Called after a change of the list, with the holder of its slot before and now.
    fn changed(&mut self, _change: Change, _before: SlotHolder, _now: SlotHolder) {}

    /// Returns the port of all peers; 0 if the protocol has no ports.
    fn port(&self) -> u16 {
        0
    }
    /// Returns the flow of the probes of this revolution of the schedule.
    fn flow(&self, _revolution: u64) -> Flow {
        Flow(0)
    }
    /// Returns a probe that is to be sent beside those of the schedule, once.
    fn next_extra(&mut self) -> Option<(SlotId, Flow)> {
        None
    }
    /// Records a probe, which may be an extra one.
    ///
    /// # Errors
    /// The reason for which it must not be sent.
    fn begin(
        &mut self,
        engine: &mut Engine,
        to: SocketAddr,
        probe: (SlotId, Flow, bool),
        now: Nanos,
    ) -> Result<ProbeRequest, SendError>;
    /// Writes a request that leaves at this real time. `out` has the bytes of the request.
    fn write(&self, key: &ProbeKey, request: &ProbeRequest, at: Nanos, out: &mut [u8]);
    /// Called for a probe that was recorded, and could not be sent.
    fn not_sent(&mut self, _engine: &mut Engine, _label: Label) {}
    /// Called before datagrams are read.
    fn begin_reading(&mut self, _clock: &impl Clock) {}
    /// Reads a datagram that has arrived over a flow. Returns whether it is known what it is.
    fn read(
        &mut self,
        key: &ProbeKey,
        engine: &mut Engine,
        from: (Flow, &Datagram<'_>),
        observe: &mut impl FnMut(Observation),
    ) -> bool;
    /// Called once for a probe that was not answered in time: it is lost, in doubt, or extra.
    fn unanswered(&mut self, _slot: SlotId, _tag: Tag, _extra: bool, _observe: &mut impl FnMut(Observation)) {}
    /// Called at the end of a turn that began at `start`. Returns whether nothing is left to do.
    fn end_turn(&mut self, _wire: &mut W, _clock: &impl Clock, _start: Nanos) -> bool {
        true
    }
}

/// Sends the requests of an exchange over a wire, and reads the replies.
///
/// The buffers of the requests are allocated with it. A turn writes them, and [`Wire::send`]
/// borrows them for one call (the kernel copies). The next batch overwrites them.
#[derive(Debug)]
pub struct Datagrams<W, E> {
    pub(super) wire: W,
    pub(super) exchange: E,
    key: ProbeKey,
    requests: Vec<ProbeRequest>,
    messages: Box<[u8]>,
    /// Bytes of the longest message.
    message_bytes: usize,
    /// Whether the kernel reports departures.
    departures: bool,
    pub(super) reading: ReplyReading,
}

impl<W: Wire, E: Exchange<W>> Datagrams<W, E> {
    /// Joins them. Replies may wait for `replies_wait` to be read.
    pub fn new(wire: W, exchange: E, key: ProbeKey, message_bytes: usize, replies_wait: Nanos) -> Self {
        Self {
            wire,
            exchange,
            key,
            requests: Vec::with_capacity(BATCH),
            messages: vec![0; message_bytes * BATCH].into_boxed_slice(),
            message_bytes,
            departures: false,
            reading: ReplyReading::new(replies_wait),
        }
    }

    fn turn_with<C: Clock>(
        &mut self,
        common: &mut Common<C>,
        observe: &mut impl FnMut(Observation),
        guest: &mut Guest<'_>,
    ) -> bool {
        let (start, since_last) = common.begin_turn();
        let mut read = None;
        if since_last > STANDSTILL && (0..STANDSTILL_READS_MAX).any(|_| self.receive(common, observe, guest)) {
            self.expire(common, start, observe);
        }
        // Cells that become due during this loop are left to the next turn. A host that is too slow
        // for its interval must be able to leave the loop.
        while !common.finishing
            && let Some((due, first)) = common.schedule.advance(start)
        {
            let mut next = Some(first);
            while let Some(slot) = next {
                next = self.send(common, slot, due, observe);
                // Departures and, on a short path, replies are already there: they are read
                // before more is sent.
                let as_of = common.clock.now();
                read = Some((as_of, self.receive(common, observe, guest)));
            }
        }
        if !common.finishing && self.send_extras(common, observe) {
            let as_of = common.clock.now();
            read = Some((as_of, self.receive(common, observe, guest)));
        }
        common.report_skipped(observe);
        let (as_of, drained) = read.unwrap_or_else(|| (start, self.receive(common, observe, guest)));
        if drained {
            self.expire(common, as_of, observe);
        }
        self.reading.drained = drained;
        let has_ended = self.exchange.end_turn(&mut self.wire, &common.clock, start);
        drained && has_ended
    }

    /// Sends to `first` and the peers after it in its cell, at most one batch. They were due at
    /// this time. Returns the next peer.
    fn send<C: Clock>(
        &mut self,
        common: &mut Common<C>,
        first: SlotId,
        due: Nanos,
        observe: &mut impl FnMut(Observation),
    ) -> Option<SlotId> {
        let flow = self.exchange.flow(common.schedule.revolution());
        let most = if self.departures { BATCH } else { BATCH_UNSTAMPED };
        let now = common.clock.now();
        let mut next = Some(first);
        for _ in 0..most {
            let Some(slot) = next else { break };
            next = common.schedule.after(slot);
            self.prepare(&mut common.engine, (slot, flow, false), now, observe);
        }
        self.flush(common, Some(due), observe);
        next
    }

    /// Sends what is not in the schedule. Returns whether there was anything.
    fn send_extras<C: Clock>(&mut self, common: &mut Common<C>, observe: &mut impl FnMut(Observation)) -> bool {
        let mut any = false;
        while self.requests.len() < BATCH
            && let Some((slot, flow)) = self.exchange.next_extra()
        {
            any = true;
            self.prepare(&mut common.engine, (slot, flow, true), common.clock.now(), observe);
        }
        if any {
            self.flush(common, None, observe);
        }
        any
    }

    /// Records a probe, and adds its request to the batch.
    fn prepare(
        &mut self,
        engine: &mut Engine,
        probe: (SlotId, Flow, bool),
        now: Nanos,
        observe: &mut impl FnMut(Observation),
    ) {
        let (slot, ..) = probe;
        let Some(address) = engine.address(slot) else { return };
        let to = SocketAddr::new(address, self.exchange.port());
        match self.exchange.begin(engine, to, probe, now) {
            Ok(request) => self.requests.push(request),
            Err(reason) => observe(Observation::probe(slot, Event::NotSent(reason))),
        }
    }

    /// Sends the batch. `due`: when its probes were to be sent, if they were scheduled.
    fn flush<C: Clock>(&mut self, common: &mut Common<C>, due: Option<Nanos>, observe: &mut impl FnMut(Observation)) {
        let Self { wire, exchange, key, requests, messages, message_bytes, .. } = self;
        let Common { clock, engine, .. } = common;
        // Those of one socket follow each other, so that one call sends them.
        requests.sort_unstable_by_key(|request| (request.to.is_ipv6(), request.flow, request.label.number));
        let at = clock.realtime();
        let mut packets = [Outgoing { to: NOWHERE, flow: Flow(0), ttl: None, bytes: &[] }; BATCH];
        let messages = messages.chunks_exact_mut(*message_bytes);
        for ((request, message), packet) in requests.iter().zip(messages).zip(&mut packets) {
            let message = &mut message[..request.bytes];
            exchange.write(key, request, at, message);
            *packet = Outgoing { to: request.to, flow: request.flow, ttl: None, bytes: message };
        }
        let now = clock.now();
        for request in &*requests {
            engine.stamp(request.label, now);
        }
        wire.send(&packets[..requests.len()], &mut |index, result| {
            let label = requests[index].label;
            if result.is_err() {
                exchange.not_sent(engine, label);
            } else if let Some(due) = due {
                observe(Observation::SendLag(now.since(due)));
            }
            if let Some(event) = engine.sent(label, result) {
                observe(Observation::probe(label.slot, event));
            }
        });
        requests.clear();
    }

    /// Reads what has arrived, up to a bound. Returns whether that was everything.
    fn receive<C: Clock>(
        &mut self,
        common: &mut Common<C>,
        observe: &mut impl FnMut(Observation),
        guest: &mut Guest<'_>,
    ) -> bool {
        let Self { wire, exchange, key, departures, reading, .. } = self;
        let Common { clock, engine, .. } = common;
        exchange.begin_reading(clock);
        wire.receive(clock, &mut |delivery| match delivery {
            Delivery::Departure(_, bytes, moment) => match key.departed(bytes) {
                Some(label) => {
                    *departures = true;
                    engine.departed(label, moment);
                }
                None => _ = guest(&delivery),
            },
            Delivery::Arrival(flow, datagram) => {
                if let Some(delay) = datagram.moment.read_delay(reading.due) {
                    observe(Observation::ReadDelay(delay));
                }
                if !exchange.read(key, engine, (flow, &datagram), observe) && !guest(&delivery) {
                    observe(Observation::Unrelated);
                }
            }
            // Whatever an error says of a probe, the probe is not answered and will be lost.
            Delivery::Refused { .. } => _ = guest(&delivery),
        })
    }

    /// Decides losses as of a time until which all arrivals were read.
    fn expire<C: Clock>(&mut self, common: &mut Common<C>, as_of: Nanos, observe: &mut impl FnMut(Observation)) {
        let (exchange, engine) = (&mut self.exchange, &mut common.engine);
        loop {
            let unanswered = &mut |slot, tag, extra| exchange.unanswered(slot, tag, extra, observe);
            let Some((slot, event)) = engine.expire_and(as_of, unanswered) else { return };
            observe(Observation::probe(slot, event));
        }
    }
}

impl<W: Wire, E: Exchange<W>> ProbeProtocol for Datagrams<W, E> {
    const PROBES_NODES: bool = E::PROBES_NODES;

    fn reserve(&mut self, slots: usize) {
        self.exchange.reserve(slots);
        self.wire.make_room(slots);
    }

    fn compact(&mut self, compaction: &Compaction, slots: usize) {
        self.exchange.compact(compaction, slots);
    }

    fn resident_bytes(&self) -> usize {
        self.exchange.resident_bytes()
    }

    fn changed(&mut self, change: Change, before: SlotHolder, now: SlotHolder) {
        self.exchange.changed(change, before, now);
    }

    fn attend(&mut self, gap: Option<Nanos>) {
        let replies_wait = self.reading.pace(gap);
        self.wire.attend(replies_wait);
    }

    fn turn<C: Clock>(&mut self, common: &mut Common<C>, observe: &mut impl FnMut(Observation)) -> bool {
        self.turn_with(common, observe, &mut |_: &Delivery<'_>| false)
    }

    fn before_wait(&mut self, next: Option<Nanos>) {
        self.reading.next_turn(next);
    }
}

impl<W: Wire, E: Exchange<W>, C: Clock> Prober<Datagrams<W, E>, C> {
    /// Returns the wire of the prober.
    pub const fn wire(&mut self) -> &mut W {
        &mut self.protocol.wire
    }

    /// Returns the wire of the prober, to wait for it.
    pub const fn wire_ref(&self) -> &W {
        &self.protocol.wire
    }

    /// Does a turn, and passes on what is not about probes to a guest.
    pub fn turn_with(&mut self, observe: &mut impl FnMut(Observation), guest: &mut Guest<'_>) -> bool {
        self.protocol.turn_with(&mut self.common, observe, guest)
    }

    /// Returns whether turns are so frequent that nothing else need wake the thread.
    pub const fn is_frequent(&self) -> bool {
        self.protocol.reading.waits
    }
}
