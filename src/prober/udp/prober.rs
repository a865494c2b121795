//! Probes by UDP: sends them, reads and answers. These differ from echo requests:
//!
//! - All probes of a turn leave from one source port. The next revolution of the wheel takes the
//!   next one, so each link uses all its flows in turn.
//! - A peer may keep a probe until its own next turn, and says for how long. The round-trip time is
//!   without that wait, and a loss is decided this much later ([`DWELL_MAX`]).
//! - Between its own probes, a turn answers those of others.

use std::net::{IpAddr, SocketAddr};

use super::answers::Answers;
use super::explorer::Explorer;
use super::link::Link;
use super::outbox::{Form, Outbox};
use super::reflecting::Reflecting;
use super::wire::{Delivery, Flow, UdpWire};
use crate::limits::{DWELL_MAX, FLOWS_MAX, PAYLOAD_BYTES_MIN, PEER_SLOTS_MAX, SENDER_FILTER_RANGES_MAX};
use crate::peers::{Change, Compaction, SlotId};
use crate::prober::datagrams::{self, BATCH_UNSTAMPED, Datagrams};
use crate::prober::mmsg::BATCH;
use crate::prober::packet::Codec;
use crate::prober::probing::{Common, Peer, Protocol};
use crate::prober::reading::Reading;
use crate::prober::stamp::{ErrorEstimate, filter};
use crate::prober::{Clock, Engine, Event, Prober, Settings, Sink};
use crate::sys::region::List;
use crate::units::Nanos;

/// Extra probes that wait for the next turn.
const EXTRAS_MAX: usize = BATCH;

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

/// Sends probes over a wire, reads the answers, and answers those of others.
#[derive(Debug)]
pub struct Udp<W> {
    wire: W,
    codec: Codec,
    links: List<Link>,
    outbox: Outbox,
    reflecting: Reflecting,
    extras: Vec<(SlotId, Flow)>,
    port: u16,
    flows: u8,
    /// Whether the kernel reports departures.
    departures: bool,
    reading: Reading,
    /// Another node has begun or ceased to answer for a peer since [`Prober::take_news`].
    news: bool,
}

impl<W: UdpWire> Udp<W> {
    /// Makes a prober without peers and without members. `port` is that of the reflectors of all
    /// peers. There are this many flows, 1 to [`FLOWS_MAX`].
    pub fn prober<C: Clock>(wire: W, clock: C, settings: &Settings, (port, flows): (u16, u8)) -> Prober<Self, C> {
        // Its key is not that of the ICMP prober. If it were, an ICMP probe would show a peer the
        // check of the UDP probe with the same number.
        let codec = Codec::new(PAYLOAD_BYTES_MIN);
        let Settings { interval, timeout, doubts, new_peer_silence, replies_wait, .. } = *settings;
        let engine = Engine::with_dwell(timeout, DWELL_MAX.into(), interval, doubts, true);
        let common = Common::new(clock, engine.excusing(new_peer_silence, interval), interval, &settings.node);
        let protocol = Self {
            wire,
            // Neither this nor the SSID that differs in the last bit may be 0.
            outbox: Outbox::new(codec.identifier().max(2)),
            codec,
            links: List::new(PEER_SLOTS_MAX),
            reflecting: Reflecting::new(&settings.node, port, interval, common.turned()),
            extras: Vec::with_capacity(EXTRAS_MAX),
            port,
            flows: flows.clamp(1, FLOWS_MAX),
            departures: false,
            reading: Reading::new(replies_wait),
            news: false,
        };
        Prober { protocol, common }
    }

    /// Does a turn, and passes on what is not about probes to a guest.
    fn turn_with<C: Clock>(&mut self, common: &mut Common<C>, sink: &mut impl Sink, guest: &mut impl Guest) -> bool {
        let (start, drained) = datagrams::turn(self, common, sink, guest);
        // A flood of requests must not keep losses from being decided.
        let answered = self.reflecting.turn(&mut self.wire, &common.clock, start);
        self.reading.turned(drained);
        drained && answered
    }

    /// Records a probe, and adds it to the next batch.
    fn prepare<C: Clock>(
        &mut self,
        common: &mut Common<C>,
        (slot, flow, extra): (SlotId, Flow, bool),
        now: Nanos,
        sink: &mut impl Sink,
    ) {
        let (Self { links, outbox, port, .. }, engine) = (self, &mut common.engine);
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
                outbox.push(label, sequence, flow, SocketAddr::new(to, *port), form);
            }
            Err(reason) => sink.event(slot, Event::NotSent(reason)),
        }
    }

    /// Sends the batch. `due`: when its probes were to be sent, if they were scheduled.
    fn flush<C: Clock>(&mut self, common: &mut Common<C>, due: Option<Nanos>, sink: &mut impl Sink) {
        let Self { wire, codec, links, outbox, .. } = self;
        let Common { clock, engine, .. } = common;
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

impl<W: UdpWire> Protocol for Udp<W> {
    const PROBES_NODES: bool = false;

    fn reserve(&mut self, slots: usize) {
        self.links.resize(slots, Link::default());
        self.wire.make_room(slots);
    }

    fn compact(&mut self, compaction: &Compaction, slots: usize) {
        for (from, to) in compaction.moves() {
            self.links.swap(from.index(), to.index());
        }
        self.links.resize(slots, Link::default());
        self.extras.clear();
    }

    fn resident_bytes(&self) -> usize {
        self.links.resident_bytes()
    }

    fn changed(&mut self, change: Change, before: Peer, now: Peer) {
        let (Change::Join { slot } | Change::Probe { slot, .. } | Change::Stop { slot }) = change else { return };
        let Some(link) = self.links.get_mut(slot.index()) else { return };
        if let Change::Join { .. } = change {
            *link = Link::default();
        } else if now.address != before.address {
            link.moved();
        } else if now != before {
            link.ways.forget();
        }
        // The list may have forgotten which node answers.
        self.news |= link.is_of_other;
    }

    fn finish(&mut self) {
        self.extras.clear();
    }

    fn attend(&mut self, gap: Option<Nanos>) {
        let replies_wait = self.reading.pace(gap);
        self.wire.attend(replies_wait);
    }

    fn turn<C: Clock>(&mut self, common: &mut Common<C>, sink: &mut impl Sink) -> bool {
        self.turn_with(common, sink, &mut ())
    }

    fn before_wait(&mut self, next: Option<Nanos>) {
        self.reading.next_turn(next);
    }
}

impl<W: UdpWire> Datagrams for Udp<W> {
    fn send<C: Clock>(
        &mut self,
        common: &mut Common<C>,
        first: SlotId,
        due: Nanos,
        sink: &mut impl Sink,
    ) -> Option<SlotId> {
        #[expect(clippy::cast_possible_truncation, reason = "the remainder of a number of 8 bits")]
        let flow = Flow((common.schedule.revolution() % u64::from(self.flows)) as u8);
        let most = if self.departures { BATCH } else { BATCH_UNSTAMPED };
        let now = common.clock.now();
        let mut next = Some(first);
        for _ in 0..most {
            let Some(slot) = next else { break };
            next = common.schedule.after(slot);
            self.prepare(common, (slot, flow, false), now, sink);
        }
        self.flush(common, Some(due), sink);
        next
    }

    fn send_further<C: Clock>(&mut self, common: &mut Common<C>, sink: &mut impl Sink) -> bool {
        if self.extras.is_empty() {
            return false;
        }
        let now = common.clock.now();
        for index in 0..self.extras.len() {
            let (slot, flow) = self.extras[index];
            self.prepare(common, (slot, flow, true), now, sink);
        }
        self.extras.clear();
        self.flush(common, None, sink);
        true
    }

    fn receive<C: Clock>(&mut self, common: &mut Common<C>, sink: &mut impl Sink, guest: &mut impl Guest) -> bool {
        let Self { wire, codec, links, departures, reading, port, outbox, news, .. } = self;
        let Common { clock, engine, .. } = common;
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

    fn expire<C: Clock>(&mut self, common: &mut Common<C>, as_of: Nanos, sink: &mut impl Sink) {
        let (links, engine) = (&mut self.links, &mut common.engine);
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
}

impl<W: UdpWire, C: Clock> Prober<Udp<W>, C> {
    /// Returns the wire of the prober.
    pub const fn wire(&mut self) -> &mut W {
        &mut self.protocol.wire
    }

    /// Returns the wire of the prober, to wait for it.
    pub const fn wire_ref(&self) -> &W {
        &self.protocol.wire
    }

    /// Returns the reflector and what it has counted.
    pub const fn reflecting(&mut self) -> &mut Reflecting {
        &mut self.protocol.reflecting
    }

    /// Returns the session identifier (SSID) of our probes: random, and at least 2. Other packets
    /// that a peer's reflector answers have the SSID that differs in the last bit alone. It counts
    /// those of a session together, and those of such a pair have their own rate.
    pub const fn ssid(&self) -> u16 {
        self.protocol.outbox.ssid()
    }

    /// Sets how far our clock is to be trusted, as requests and answers say it.
    pub const fn set_clock_error(&mut self, error: ErrorEstimate) {
        self.protocol.outbox.error = error;
        self.protocol.reflecting.error = error;
    }

    /// Sets which addresses are answered: those of the members of the mesh. The kernel drops the
    /// requests of others, and what comes to our flows from elsewhere than the reflectors of our
    /// peers. Call it after the changes of a list, which say where these are. Returns whether all
    /// had room.
    pub fn set_members(&mut self, members: impl Iterator<Item = IpAddr>) -> bool {
        let reflector = &mut self.protocol.reflecting.reflector;
        let had_room = reflector.set_members(members);
        self.protocol
            .wire
            .admit(&|over_ipv6, ranges_max| reflector.filter(over_ipv6, ranges_max), &|over_ipv6, ranges_max| {
                reflector.choosing(over_ipv6, ranges_max)
            });
        let mut peers: Vec<IpAddr> = self.common.slots().filter_map(|slot| self.address(slot)).collect();
        peers.sort_unstable();
        let port = self.protocol.port;
        self.protocol.wire.admit_answers(&|over_ipv6, ranges_max| {
            let ranges_max = ranges_max.min(SENDER_FILTER_RANGES_MAX);
            filter::from_port(port, filter::of_family(over_ipv6, &peers, ranges_max))
        });
        had_room
    }

    /// Sets the hash of the name of the node in a slot; 0 if its name is not known. Its probes ask
    /// which node answers, and answers of another one do not count.
    pub fn expect(&mut self, slot: SlotId, node: u64) {
        if let Some(link) = self.protocol.links.get_mut(slot.index()) {
            link.expect(node);
        }
    }

    /// Whether the last answer of a slot's address was that of another node.
    pub fn is_of_other(&self, slot: SlotId) -> bool {
        self.protocol.links.get(slot.index()).is_some_and(|link| link.is_of_other)
    }

    /// Returns whether [`Prober::is_of_other`] may have changed for any slot.
    pub const fn has_news(&self) -> bool {
        self.protocol.news
    }

    /// Notes that the news were passed on.
    pub const fn take_news(&mut self) {
        self.protocol.news = false;
    }

    /// Sends an extra probe to a slot over a flow at the next turn. It has no event, so it changes
    /// no figure of the link: only its flow's outcomes, and the direction of the flow's loss.
    /// Returns false if too many wait.
    pub fn probe_flow(&mut self, slot: SlotId, flow: Flow) -> bool {
        let has_room =
            self.protocol.extras.len() < EXTRAS_MAX && flow.0 < self.protocol.flows && !self.common.finishing;
        if has_room {
            self.protocol.extras.push((slot, flow));
        }
        has_room
    }

    /// Does a turn, and passes on what is not about probes to a guest.
    pub fn turn_with(&mut self, sink: &mut impl Sink, guest: &mut impl Guest) -> bool {
        self.protocol.turn_with(&mut self.common, sink, guest)
    }

    /// Does a turn of an explorer, after a turn of ours that has read everything. `as_of` is a time
    /// before that turn. `mtu` returns the MTU of the route to an address.
    pub fn explore(&mut self, explorer: &mut Explorer, as_of: Nanos, mtu: impl Fn(IpAddr) -> u32) {
        let Udp { wire, outbox, .. } = &mut self.protocol;
        let Common { clock, engine, finishing, .. } = &mut self.common;
        explorer.ssid = outbox.ssid() ^ 1;
        if !*finishing {
            explorer.turn(wire, clock, as_of, |slot| engine.address(slot), mtu);
        }
    }

    /// Returns whether turns are so frequent that nothing else need wake the thread.
    pub const fn is_frequent(&self) -> bool {
        self.protocol.reading.waits()
    }
}

impl<C: Clock> Prober<Udp<super::UdpSockets>, C> {
    /// Waits until there is something to read, if that must wake the thread. Cancel-safe.
    pub async fn readable(&self) {
        self.protocol.wire.readable().await;
    }

    /// Returns the number of packets that the kernel has dropped so far because the queue of a flow
    /// was full. `None` if it does not tell it.
    pub fn drops(&mut self) -> Option<u64> {
        self.protocol.wire.drops()
    }
}

#[cfg(test)]
mod tests;
