//! One turn of the UDP prober: reads what has arrived, answers what was asked, sends what is due,
//! and decides what has timed out.
//!
//! It does what [`crate::prober::Prober`] does, by the same engine and wheel. These differ:
//!
//! - All probes of a turn leave from one source port. The next revolution of the wheel takes the
//!   next one, so each link uses all its flows in turn.
//! - A peer may keep a probe until its own next turn, and says for how long. The round-trip time is
//!   without that wait, and a loss is decided so much later ([`DWELL_MAX`]).
//! - Between its own probes, a turn answers those of others.

use std::net::{IpAddr, SocketAddr};

use super::answers::Answers;
use super::explorer::Explorer;
use super::link::Link;
use super::outbox::{Form, Outbox};
use super::reflecting::Reflecting;
use super::wire::{Delivery, Flow, UdpWire};
use crate::limits::{DWELL_MAX, FLOWS_MAX, PAYLOAD_BYTES_MIN, PEER_SLOTS_MAX, SENDER_FILTER_RANGES_MAX};
use crate::peers::{Change, Compaction, Network, SlotId};
use crate::prober::mmsg::BATCH;
use crate::prober::packet::Codec;
use crate::prober::reading::Reading;
use crate::prober::stamp::{ErrorEstimate, filter};
use crate::prober::turn::{BATCH_UNSTAMPED, LOSS_SLACK, STANDSTILL, STANDSTILL_READS_MAX, room};
use crate::prober::{Clock, Engine, Event, Schedule, Sink};
use crate::sys::region::List;
use crate::units::Nanos;

/// Extra probes that wait for the next turn.
const EXTRAS_MAX: usize = BATCH;

/// The settings that a UDP prober runs with.
#[derive(Clone, Debug)]
pub struct UdpSettings {
    /// Time between two probes to one peer.
    pub interval: Nanos,
    /// A probe whose round-trip time is longer is lost.
    pub timeout: Nanos,
    /// Name of our node, which decides the phase.
    pub node: String,
    /// Whether questions ([`UdpProber::ask`]) are answered.
    pub doubts: bool,
    /// How long a peer that is new at its address may leave probes unanswered without losing them.
    pub new_peer_silence: Nanos,
    /// Longest time that answers and requests may wait to be read.
    pub replies_wait: Nanos,
    /// Port of the reflectors of all peers.
    pub port: u16,
    /// Number of flows, 1 to [`FLOWS_MAX`].
    pub flows: u8,
}

/// Receives what the wire delivers and is not about a probe of the prober: traces, and the search
/// for the path MTU.
pub trait Guest {
    /// Takes a delivery. Returns whether it was the guest's own.
    fn deliver(&mut self, delivery: &Delivery<'_>) -> bool;
}

/// Without a guest, no delivery is taken.
impl Guest for () {
    fn deliver(&mut self, _: &Delivery<'_>) -> bool {
        false
    }
}

/// Sends probes over a wire, decides their outcomes by a clock, and answers those of others.
#[derive(Debug)]
pub struct UdpProber<W, C> {
    wire: W,
    clock: C,
    codec: Codec,
    engine: Engine,
    schedule: Schedule,
    links: List<Link>,
    outbox: Outbox,
    reflecting: Reflecting,
    extras: Vec<(SlotId, Flow)>,
    port: u16,
    flows: u8,
    /// Number of slots that have room.
    room: usize,
    /// Whether the kernel reports departures.
    departures: bool,
    /// Whether no further probes are sent.
    finishing: bool,
    /// When the last turn began.
    turned: Nanos,
    reading: Reading,
    /// Another node has begun or ceased to answer for a peer since [`UdpProber::take_news`].
    news: bool,
}

impl<W: UdpWire, C: Clock> UdpProber<W, C> {
    /// Makes a prober without peers and without members.
    pub fn new(wire: W, clock: C, settings: &UdpSettings) -> Self {
        // Its key is not that of the ICMP prober. If it were, an ICMP probe would show a peer the
        // check of the UDP probe with the same number.
        let codec = Codec::new(PAYLOAD_BYTES_MIN);
        let now = clock.now();
        let schedule = Schedule::new(settings.interval, &settings.node, now);
        let engine = Engine::with_dwell(settings.timeout, DWELL_MAX.into(), settings.interval, settings.doubts, true)
            .excusing(settings.new_peer_silence, settings.interval);
        Self {
            wire,
            clock,
            // Neither this nor the SSID that differs in the last bit may be 0.
            outbox: Outbox::new(codec.identifier().max(2)),
            codec,
            engine,
            schedule,
            links: List::new(PEER_SLOTS_MAX),
            reflecting: Reflecting::new(&settings.node, settings.port, settings.interval, now),
            extras: Vec::with_capacity(EXTRAS_MAX),
            port: settings.port,
            flows: settings.flows.clamp(1, FLOWS_MAX),
            room: 0,
            departures: false,
            finishing: false,
            turned: now,
            reading: Reading::new(settings.replies_wait),
            news: false,
        }
    }

    /// Returns the clock of the prober.
    pub const fn clock(&self) -> &C {
        &self.clock
    }

    /// Returns the wire of the prober.
    pub const fn wire(&mut self) -> &mut W {
        &mut self.wire
    }

    /// Returns the wire of the prober, to wait for it.
    pub const fn wire_ref(&self) -> &W {
        &self.wire
    }

    /// Returns the reflector and what it has counted.
    pub const fn reflecting(&mut self) -> &mut Reflecting {
        &mut self.reflecting
    }

    /// Returns the session identifier (SSID) of our probes: random, and at least 2. Other packets
    /// that a peer's reflector answers have the SSID that differs in the last bit alone. It counts
    /// those of a session together, and those of such a pair have their own rate.
    pub const fn ssid(&self) -> u16 {
        self.outbox.ssid()
    }

    /// Sets how far our clock is to be trusted, as requests and answers say it.
    pub const fn set_clock_error(&mut self, error: ErrorEstimate) {
        self.outbox.error = error;
        self.reflecting.error = error;
    }

    /// Returns the address of a slot's peer; `None` while it is off the list.
    pub fn address(&self, slot: SlotId) -> Option<IpAddr> {
        self.engine.address(slot)
    }

    /// Sets which addresses are answered: those of the members of the mesh. The kernel drops the
    /// requests of others, and what comes to our flows from elsewhere than the reflectors of our
    /// peers. Call it after the changes of a list, which say where these are. Returns whether all
    /// had room.
    pub fn set_members(&mut self, members: impl Iterator<Item = IpAddr>) -> bool {
        let reflector = &mut self.reflecting.reflector;
        let had_room = reflector.set_members(members);
        self.wire.admit(&|over_ipv6, ranges_max| reflector.filter(over_ipv6, ranges_max), &|over_ipv6, ranges_max| {
            reflector.choosing(over_ipv6, ranges_max)
        });
        let slots = (0..self.room).map(SlotId::at);
        let mut peers: Vec<IpAddr> = slots.filter_map(|slot| self.engine.address(slot)).collect();
        peers.sort_unstable();
        let port = self.port;
        self.wire.admit_answers(&|over_ipv6, ranges_max| {
            let ranges_max = ranges_max.min(SENDER_FILTER_RANGES_MAX);
            filter::from_port(port, filter::of_family(over_ipv6, &peers, ranges_max))
        });
        had_room
    }

    /// Makes room for `slots` peers. Otherwise only a change that joins a slot beyond them, and a
    /// compaction, allocate.
    pub fn reserve(&mut self, slots: usize) {
        if slots > self.room {
            self.room = room(slots);
            self.engine.reserve(self.room);
            self.schedule.reserve(self.room);
            self.links.resize(self.room, Link::default());
            self.wire.make_room(self.room);
        }
    }

    /// Returns the resident memory of the data per slot, in bytes of whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.engine.resident_bytes() + self.schedule.resident_bytes() + self.links.resident_bytes()
    }

    /// Moves peers as `compaction` says, and frees the memory of unused slots.
    pub fn compact(&mut self, compaction: &Compaction) {
        self.room = room(compaction.slots());
        self.engine.compact(compaction, self.room);
        self.schedule.compact(compaction, self.room);
        for (from, to) in compaction.moves() {
            self.links.swap(from.index(), to.index());
        }
        self.links.resize(self.room, Link::default());
        self.extras.clear();
    }

    /// Applies a change of the peer list. Slots of the node network are left out: an agent listens
    /// at its own addresses alone.
    pub fn apply(&mut self, change: Change) {
        if let Change::Join { slot } = change {
            self.reserve(slot.index() + 1);
            self.links[slot.index()] = Link::default();
        }
        if let Change::Probe { network: Network::Node, .. } = change {
            return;
        }
        let (Change::Join { slot } | Change::Probe { slot, .. } | Change::Stop { slot }) = change else { return };
        let now = |engine: &Engine| (engine.generation(slot), engine.address(slot));
        let (generation, address) = now(&self.engine);
        self.engine.apply(change);
        if let Some(link) = self.links.get_mut(slot.index()) {
            if self.engine.address(slot) != address {
                link.moved();
            } else if self.engine.generation(slot) != generation {
                link.ways.forget();
            }
            // The list may have forgotten which node answers.
            self.news |= link.is_of_other;
        }
        if let Change::Probe { .. } = change {
            self.schedule.add(slot);
        } else {
            self.schedule.remove(slot);
        }
        self.attend();
    }

    /// Sets the hash of the name of the node in a slot; 0 if its name is not known. Its probes ask
    /// which node answers, and answers of another one do not count.
    pub fn expect(&mut self, slot: SlotId, node: u64) {
        if let Some(link) = self.links.get_mut(slot.index()) {
            link.expect(node);
        }
    }

    /// Whether the last answer of a slot's address was that of another node.
    pub fn is_of_other(&self, slot: SlotId) -> bool {
        self.links.get(slot.index()).is_some_and(|link| link.is_of_other)
    }

    /// Returns whether [`UdpProber::is_of_other`] may have changed for any slot.
    pub const fn has_news(&self) -> bool {
        self.news
    }

    /// Notes that the news were passed on.
    pub const fn take_news(&mut self) {
        self.news = false;
    }

    /// Stops sending to a slot until its next [`Change::Probe`]. Unlike after [`Change::Stop`],
    /// probes in flight still count.
    pub fn pause(&mut self, slot: SlotId) {
        self.schedule.remove(slot);
        self.attend();
    }

    /// Stops sending to all peers. Probes in flight still count, and those of others are answered.
    pub fn finish(&mut self) {
        self.finishing = true;
        self.extras.clear();
        self.attend();
    }

    /// Sends an extra probe to a slot over a flow at the next turn. It has no event, so it changes
    /// no figure of the link: only its flow's outcomes, and the direction of the flow's loss.
    /// Returns false if too many wait.
    pub fn probe_flow(&mut self, slot: SlotId, flow: Flow) -> bool {
        let has_room = self.extras.len() < EXTRAS_MAX && flow.0 < self.flows && !self.finishing;
        if has_room {
            self.extras.push((slot, flow));
        }
        has_room
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

    /// Sends, reads, answers and decides, without waiting. It is called when a socket is readable
    /// and at [`UdpProber::next_turn`]. Returns whether everything that has arrived was read; if
    /// not, it must be called again at once.
    pub fn turn(&mut self, sink: &mut impl Sink) -> bool {
        self.turn_with(sink, &mut ())
    }

    /// Does the same, and passes on what is not about probes to a guest.
    pub fn turn_with(&mut self, sink: &mut impl Sink, guest: &mut impl Guest) -> bool {
        // The time is read before the packets are. Everything that had arrived by then was read
        // once the sockets are empty, however long the thread is delayed before losses are decided.
        let start = self.clock.now();
        let mut read = None;
        if start.since(std::mem::replace(&mut self.turned, start)) > STANDSTILL
            && (0..STANDSTILL_READS_MAX).any(|_| self.receive(sink, guest))
        {
            self.expire(start, sink);
        }
        // Cells that become due during this loop are left to the next turn. A host that is too slow
        // for its interval must be able to leave the loop.
        while !self.finishing
            && let Some((due, first)) = self.schedule.advance(start)
        {
            #[expect(clippy::cast_possible_truncation, reason = "the remainder of a number of 8 bits")]
            let flow = Flow((self.schedule.revolution() % u64::from(self.flows)) as u8);
            let mut next = Some(first);
            while let Some(slot) = next {
                next = self.send(slot, flow, due, sink);
                // Departures and, on a short path, replies are already there: they are read
                // before more is sent.
                let as_of = self.clock.now();
                read = Some((as_of, self.receive(sink, guest)));
            }
        }
        if !self.extras.is_empty() {
            self.send_extras(sink);
            read = None;
        }
        let skipped = self.schedule.take_skipped();
        if skipped > 0 {
            sink.skipped(skipped);
        }
        let (as_of, drained) = match read {
            Some(read) => read,
            None => (self.clock.now(), self.receive(sink, guest)),
        };
        if drained {
            self.expire(as_of, sink);
        }
        // A flood of requests must not keep losses from being decided.
        let answered = self.reflecting.turn(&mut self.wire, &self.clock, start);
        self.reading.turned(drained);
        drained && answered
    }

    /// Does a turn of an explorer, after a turn of ours that has read everything. `as_of` is a time
    /// before that turn. `mtu` returns the MTU of the route to an address.
    pub fn explore(&mut self, explorer: &mut Explorer, as_of: Nanos, mtu: impl Fn(IpAddr) -> u32) {
        let Self { wire, clock, engine, outbox, .. } = self;
        explorer.ssid = outbox.ssid() ^ 1;
        if !self.finishing {
            explorer.turn(wire, clock, as_of, |slot| engine.address(slot), mtu);
        }
    }

    /// Returns whether turns are so frequent that nothing else need wake the thread.
    pub const fn is_frequent(&self) -> bool {
        self.reading.waits()
    }

    /// Decides losses as of a time until which all arrivals were read.
    fn expire(&mut self, as_of: Nanos, sink: &mut impl Sink) {
        let Self { engine, links, .. } = self;
        loop {
            let decided = engine.expire_and(as_of, &mut |slot, tag, extra| {
                if let Some(link) = links.get_mut(slot.index()) {
                    let flow = link.lost(tag, extra);
                    sink.flow(slot, flow.0, false, extra);
                }
            });
            match decided {
                Some((slot, event)) => sink.event(slot, event),
                None => return,
            }
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

    fn receive(&mut self, sink: &mut impl Sink, guest: &mut impl Guest) -> bool {
        let Self { wire, clock, codec, engine, links, departures, reading, port, outbox, news, .. } = self;
        let mut answers = Answers::new(codec, engine, links, (*port, outbox.error), news, clock);
        wire.receive(clock, &mut |delivery| match delivery {
            Delivery::Departure(_, bytes, moment) => match answers.codec.departed(bytes) {
                Some(label) => {
                    *departures = true;
                    answers.engine.departed(label, moment);
                }
                None => {
                    guest.deliver(&delivery);
                }
            },
            Delivery::Arrival(flow, datagram) => {
                if let Some(delay) = datagram.moment.read_delay(reading.due()) {
                    sink.read_delay(delay);
                }
                if !answers.read(flow, &datagram, sink) && !guest.deliver(&delivery) {
                    sink.unrelated();
                }
            }
            // Whatever an error says of a probe, the probe is not answered and will be lost.
            Delivery::Refused { .. } => {
                guest.deliver(&delivery);
            }
            Delivery::Request(_) | Delivery::Answered(..) => {}
        })
    }

    /// Sends to `first` and the peers after it in its cell, at most one batch. Returns the next
    /// peer.
    fn send(&mut self, first: SlotId, flow: Flow, due: Nanos, sink: &mut impl Sink) -> Option<SlotId> {
        let most = if self.departures { BATCH } else { BATCH_UNSTAMPED };
        let now = self.clock.now();
        let mut next = Some(first);
        for _ in 0..most {
            let Some(slot) = next else { break };
            next = self.schedule.after(slot);
            self.prepare(slot, flow, now, false, sink);
        }
        self.flush(Some(due), sink);
        next
    }

    fn send_extras(&mut self, sink: &mut impl Sink) {
        let now = self.clock.now();
        for index in 0..self.extras.len() {
            let (slot, flow) = self.extras[index];
            self.prepare(slot, flow, now, true, sink);
        }
        self.extras.clear();
        self.flush(None, sink);
    }

    /// Records a probe, and adds it to the next batch.
    fn prepare(&mut self, slot: SlotId, flow: Flow, now: Nanos, extra: bool, sink: &mut impl Sink) {
        let Self { engine, links, outbox, .. } = self;
        let (Some(to), Some(link)) = (engine.address(slot), links.get_mut(slot.index())) else { return };
        match if extra { engine.begin_extra(slot, now) } else { engine.begin(slot, now) } {
            Ok(label) => {
                let (sequence, tag) = link.begin(label, flow);
                engine.tag(label, tag);
                let form = match (extra, link.asks(sequence)) {
                    (true, _) => Form::Extra,
                    (false, true) => Form::Asking,
                    (false, false) => Form::Usual,
                };
                outbox.push(label, sequence, flow, SocketAddr::new(to, self.port), form);
            }
            Err(reason) => sink.event(slot, Event::NotSent(reason)),
        }
    }

    /// Sends the batch. `due`: when its probes were to be sent, if they were scheduled.
    fn flush(&mut self, due: Option<Nanos>, sink: &mut impl Sink) {
        let Self { wire, clock, codec, engine, links, outbox, .. } = self;
        outbox.write(codec, clock.realtime());
        let now = clock.now();
        outbox.labels().for_each(|label| engine.stamp(label, now));
        outbox.send(wire, &mut |label, result| {
            if result.is_err() {
                // The peer must not find a gap. If a newer probe was sent, there is one.
                if let Some(link) = links.get_mut(label.slot.index()) {
                    if engine.take_back(label) {
                        link.take_back();
                    } else {
                        link.ways.forget();
                    }
                }
            } else if let Some(due) = due {
                sink.send_lag(now.since(due));
            }
            if let Some(event) = engine.sent(label, result) {
                sink.event(label.slot, event);
            }
        });
    }
}

impl<C: Clock> UdpProber<super::UdpSockets, C> {
    /// Waits until there is something to read, if that must wake the thread. Cancel-safe.
    pub async fn readable(&self) {
        self.wire.readable().await;
    }

    /// Returns the number of packets that the kernel has dropped so far because the queue of a flow
    /// was full. `None` if it does not tell it.
    pub fn drops(&mut self) -> Option<u64> {
        self.wire.drops()
    }
}

#[cfg(test)]
mod tests;
