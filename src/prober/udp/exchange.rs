//! Probes by UDP: requests of STAMP and the answers of reflectors. These differ from echo requests:
//!
//! - All probes of a turn leave from one source port. The next revolution of the wheel takes the
//!   next one, so each link uses all its flows in turn.
//! - A peer may keep a probe until its own next turn, and says for how long. The round-trip time is
//!   without that wait, and a loss is decided this much later ([`DWELL_MAX`]).
//! - Between its own probes, a turn answers those of others.

use std::net::{IpAddr, SocketAddr};

use kube_canary_kernel::batch::BATCH;
use kube_canary_kernel::region::List;

use super::explorer::Explorer;
use super::reflecting::Reflecting;
use super::session::{self, PeerSession};
use super::ways::LossDirections;
use super::wire::UdpWire;
use crate::limits::{DWELL_MAX, FLOWS_MAX, PEER_SLOTS_MAX};
use crate::peers::{Change, Compaction, SlotId};
use crate::prober::datagrams::{Datagrams, Exchange, ProbeRequest};
use crate::prober::engine::Sight;
use crate::prober::flights::Tag;
use crate::prober::probing::{Common, SlotHolder};
use crate::prober::udp::stamp::packet::{
    ASKING_REQUEST_BYTES, EXTRA_REQUEST_BYTES, REQUEST_BYTES, write_question, write_request,
};
use crate::prober::udp::stamp::{ErrorEstimate, NtpTime, StampReply};
use crate::prober::{Clock, Datagram, Engine, Event, Events, Flow, Observation, Prober, SendError, Settings};
use crate::prober::{Label, ProbeKey};
use crate::units::Nanos;

/// Extra probes that wait for the next turn.
const EXTRAS_MAX: usize = BATCH;
/// Bytes of the longest request.
const MESSAGE_BYTES: usize = ASKING_REQUEST_BYTES;
const _: () = assert!(REQUEST_BYTES < EXTRA_REQUEST_BYTES && EXTRA_REQUEST_BYTES < MESSAGE_BYTES);

/// Sends requests of STAMP over a wire, reads the answers, and answers those of others.
pub type Udp<W> = Datagrams<W, StampExchange>;

/// The exchange of requests and answers with the reflectors of all peers, and our own reflector.
#[derive(Debug)]
pub struct StampExchange {
    sessions: List<PeerSession>,
    reflecting: Reflecting,
    extras: Vec<(SlotId, Flow)>,
    /// Port of the reflectors.
    port: u16,
    flows: u8,
    ssid: u16,
    /// How far our clock is to be trusted.
    error: ErrorEstimate,
    /// How far the real-time clock is ahead of the monotonic clock.
    ahead: i64,
    /// Another node has begun or ceased to answer for a peer since [`Prober::take_news`].
    news: bool,
}

impl<W: UdpWire> Udp<W> {
    /// Makes a prober without peers and without members. `port` is that of the reflectors of all
    /// peers. There are this many flows, 1 to [`FLOWS_MAX`].
    pub fn prober<C: Clock>(wire: W, clock: C, settings: &Settings, (port, flows): (u16, u8)) -> Prober<Self, C> {
        // Its key is not that of the ICMP prober. If it were, an ICMP probe would show a peer the
        // check of the UDP probe with the same number.
        let key = ProbeKey::random();
        let Settings { interval, timeout, doubts, new_peer_silence, replies_wait, .. } = *settings;
        let engine = Engine::with_dwell(timeout, DWELL_MAX.into(), interval, doubts, true);
        let common = Common::new(clock, engine.excusing(new_peer_silence, interval), interval, &settings.node);
        let exchange = StampExchange {
            sessions: List::new(PEER_SLOTS_MAX),
            reflecting: Reflecting::new(&settings.node, port, interval, common.turned()),
            extras: Vec::with_capacity(EXTRAS_MAX),
            port,
            flows: flows.clamp(1, FLOWS_MAX),
            // Neither this nor the SSID that differs in the last bit may be 0.
            ssid: key.session().max(2),
            error: ErrorEstimate::UNKNOWN,
            ahead: 0,
            news: false,
        };
        Prober { protocol: Self::new(wire, exchange, key, MESSAGE_BYTES, replies_wait), common }
    }
}

impl<W: UdpWire> Exchange<W> for StampExchange {
    const PROBES_NODES: bool = false;

    fn reserve(&mut self, slots: usize) {
        self.sessions.resize(slots, PeerSession::default());
    }

    fn compact(&mut self, compaction: &Compaction, slots: usize) {
        for (from, to) in compaction.moves() {
            self.sessions.swap(from.index(), to.index());
        }
        self.sessions.resize(slots, PeerSession::default());
        self.extras.clear();
    }

    fn resident_bytes(&self) -> usize {
        self.sessions.resident_bytes()
    }

    fn changed(&mut self, change: Change, before: SlotHolder, now: SlotHolder) {
        let (Change::Join { slot } | Change::Probe { slot, .. } | Change::Stop { slot }) = change else { return };
        let Some(session) = self.sessions.get_mut(slot.index()) else { return };
        if let Change::Join { .. } = change {
            *session = PeerSession::default();
        } else if now.address != before.address {
            session.moved();
        } else if now != before {
            session.ways.forget();
        }
        // The list may have forgotten which node answers.
        self.news |= session.other_node_answers;
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn flow(&self, revolution: u64) -> Flow {
        #[expect(clippy::cast_possible_truncation, reason = "the remainder of a number of 8 bits")]
        Flow((revolution % u64::from(self.flows)) as u8)
    }

    fn next_extra(&mut self) -> Option<(SlotId, Flow)> {
        self.extras.pop()
    }

    fn begin(
        &mut self,
        engine: &mut Engine,
        to: SocketAddr,
        (slot, flow, extra): (SlotId, Flow, bool),
        now: Nanos,
    ) -> Result<ProbeRequest, SendError> {
        let session = self.sessions.get_mut(slot.index()).ok_or(SendError::Address)?;
        let label = if extra { engine.begin_extra(slot, now) } else { engine.begin(slot, now) }?;
        let (sequence, tag) = session.begin(label, flow);
        engine.tag(label, tag);
        let bytes = match (extra, session.asks(sequence)) {
            (true, _) => EXTRA_REQUEST_BYTES,
            (false, true) => ASKING_REQUEST_BYTES,
            (false, false) => REQUEST_BYTES,
        };
        Ok(ProbeRequest { label, sequence, flow, to, bytes })
    }

    fn write(&self, key: &ProbeKey, request: &ProbeRequest, at: Nanos, out: &mut [u8]) {
        let identity = key.identity(request.label, request.to.ip());
        let mut bytes = out.len();
        if let (ASKING_REQUEST_BYTES, Some(question)) = (bytes, out.last_chunk_mut()) {
            write_question(question);
            bytes = REQUEST_BYTES;
        }
        let at = NtpTime::from_unix(at);
        write_request(&mut out[..bytes], request.sequence, self.ssid, at, self.error, &identity);
    }

    fn not_sent(&mut self, engine: &mut Engine, label: Label) {
        // The peer must not find a gap. If a newer probe was sent, there is one.
        if let Some(session) = self.sessions.get_mut(label.slot.index()) {
            if engine.take_back(label) {
                session.take_back();
            } else {
                session.ways.forget();
            }
        }
    }

    fn begin_reading(&mut self, clock: &impl Clock) {
        self.ahead = clock.realtime().0.wrapping_sub(clock.now().0).cast_signed();
    }

    /// Whether the datagram answers a probe that was sent over this flow to its source.
    fn read(
        &mut self,
        key: &ProbeKey,
        engine: &mut Engine,
        (flow, datagram): (Flow, &Datagram<'_>),
        observe: &mut impl FnMut(Observation),
    ) -> bool {
        let Some(reply) = StampReply::read(datagram.bytes).filter(|_| datagram.from.port() == self.port) else {
            return false;
        };
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are in the label")]
        let low = reply.sender_sequence as u16;
        let from = datagram.from.ip();
        let Some(label) = reply.padding.and_then(|padding| key.identify(padding, low, from)) else {
            return false;
        };
        let sight = engine.sight(label, datagram.moment);
        // The answer to a probe over another flow says nothing about this one.
        if sight.is_some_and(|sight| session::read(sight.tag).0 != flow) {
            return false;
        }
        if self.other_node_answers(engine, label, from, &reply) {
            if let Some((slot, event)) = engine.answered_by_other(label, from) {
                observe(Observation::Probe { slot, event, reply: Some(low) });
            }
            return true;
        }
        let dwell = reply.dwell().unwrap_or_default();
        let Some((slot, events)) = engine.reply_after(label, from, datagram.moment, Some(dwell)) else {
            return false;
        };
        let counted = events.map(|event| event.filter(|event| !matches!(event, Event::Extra { .. })));
        Observation::from_reply(slot, low, counted).for_each(&mut *observe);
        if let Some(sight) = sight {
            self.learn(engine, slot, &Answered { label, flow, reply, events, sight, ttl: datagram.ttl }, observe);
        }
        true
    }

    fn unanswered(&mut self, slot: SlotId, tag: Tag, extra: bool, observe: &mut impl FnMut(Observation)) {
        if let Some(session) = self.sessions.get_mut(slot.index()) {
            let Flow(flow) = session.lost(tag, extra);
            observe(Observation::Flow { slot, flow, answered: false, extra });
        }
    }

    /// A flood of requests must not keep losses from being decided, so it comes after them.
    fn end_turn(&mut self, wire: &mut W, clock: &impl Clock, start: Nanos) -> bool {
        self.reflecting.turn(wire, clock, start)
    }
}

/// An answer to a probe of ours.
struct Answered<'a> {
    label: Label,
    flow: Flow,
    reply: StampReply<'a>,
    events: Events,
    sight: Sight,
    ttl: Option<u8>,
}

impl StampExchange {
    /// Whether another node than the one in the list has sent this answer to a probe of ours.
    fn other_node_answers(&mut self, engine: &Engine, label: Label, from: IpAddr, reply: &StampReply<'_>) -> bool {
        let Some(slot) = engine.slot_at(label, from) else { return false };
        let Some(session) = self.sessions.get_mut(slot.index()) else { return false };
        let before = session.other_node_answers;
        let mut now = session.answers_as(reply.named);
        // The engine has given the peer up, and only the directory brings it back. So it must have
        // heard of the other node before that is taken back.
        if before && self.news {
            (session.other_node_answers, now) = (true, true);
        }
        if now != before {
            session.ways.forget();
            self.news = true;
        }
        now
    }

    /// Learns from an answer what it says besides its round-trip time.
    fn learn(
        &mut self,
        engine: &mut Engine,
        slot: SlotId,
        answered: &Answered<'_>,
        observe: &mut impl FnMut(Observation),
    ) {
        let Some(session) = self.sessions.get_mut(slot.index()) else { return };
        let Answered { label, flow: Flow(flow), ref reply, events, sight, ttl } = *answered;
        let extra = matches!(events, [Some(Event::Extra { .. }), _]);
        match events {
            // Sent: the first answer at an address, whose probe counts from now on.
            [Some(Event::Received { .. } | Event::Sent | Event::Extra { answered: true }), _] => {
                observe(Observation::Flow { slot, flow, answered: true, extra });
                let (sequence, oldest) = (session.sequence(label.sequence), engine.oldest_waiting());
                if let Some(directions) = session.ways.answered(label.number, sequence, reply.count, oldest) {
                    report(slot, directions, observe);
                }
                if let Some(ttl) = ttl {
                    observe(Observation::Hops { slot, hops: hops(ttl) });
                }
                let delays = one_way(reply, self.ahead, sight.sent_at, sight.at);
                observe(Observation::OneWay { slot, delays, apart: clocks_apart(self.error, reply.error) });
            }
            // It was not lost before this moment. Its count is known, and its direction is not.
            [Some(Event::Lost | Event::Extra { .. }), _] if sight.waits => {
                observe(Observation::Flow { slot, flow, answered: false, extra });
                session.ways.hear(reply.count, true);
            }
            [Some(Event::Duplicate), _] => session.ways.hear(reply.count, false),
            _ => {}
        }
    }
}

fn report(slot: SlotId, directions: LossDirections, observe: &mut impl FnMut(Observation)) {
    let LossDirections { there, back, flows, out } = directions;
    if there + back > 0 {
        observe(Observation::Directions { slot, there, back });
    }
    for flow in (0..16).filter(|flow| flows >> flow & 1 == 1) {
        observe(Observation::FlowDirection { slot, flow, there: out });
    }
}

impl<W: UdpWire, C: Clock> Prober<Udp<W>, C> {
    /// Returns the reflector and what it has counted.
    pub const fn reflecting(&mut self) -> &mut Reflecting {
        &mut self.protocol.exchange.reflecting
    }

    /// Returns the session identifier (SSID) of our probes: random, and at least 2. Other packets
    /// that a peer's reflector answers have the SSID that differs in the last bit alone. It counts
    /// those of a session together, and those of such a pair have their own rate.
    pub const fn ssid(&self) -> u16 {
        self.protocol.exchange.ssid
    }

    /// Sets how far our clock is to be trusted, as requests and answers say it.
    pub const fn set_clock_error(&mut self, error: ErrorEstimate) {
        self.protocol.exchange.error = error;
        self.protocol.exchange.reflecting.error = error;
    }

    /// Sets which addresses are answered: those of the members of the mesh. The kernel drops the
    /// requests of others, and what comes to our flows from elsewhere than the reflectors of our
    /// peers. Call it after the changes of a list, which say where these are. Returns whether all
    /// had room.
    pub fn set_members(&mut self, members: &[IpAddr]) -> bool {
        let peers: Vec<IpAddr> = self.common.slots().filter_map(|slot| self.address(slot)).collect();
        self.protocol.wire.admit(members);
        self.protocol.wire.admit_answers(&peers, self.protocol.exchange.port);
        self.protocol.exchange.reflecting.reflector.set_members(members.iter().copied())
    }

    /// Sets the hash of the name of the node in a slot; 0 if its name is not known. Its probes ask
    /// which node answers, and answers of another one do not count.
    pub fn expect(&mut self, slot: SlotId, node: u64) {
        if let Some(session) = self.protocol.exchange.sessions.get_mut(slot.index()) {
            session.expect(node);
        }
    }

    /// Whether the last answer of a slot's address was that of another node.
    pub fn other_node_answers(&self, slot: SlotId) -> bool {
        self.protocol.exchange.sessions.get(slot.index()).is_some_and(|session| session.other_node_answers)
    }

    /// Returns whether [`Prober::other_node_answers`] may have changed for any slot.
    pub const fn has_news(&self) -> bool {
        self.protocol.exchange.news
    }

    /// Notes that the news were passed on.
    pub const fn take_news(&mut self) {
        self.protocol.exchange.news = false;
    }

    /// Sends an extra probe to a slot over a flow at the next turn. It has no event, so it changes
    /// no figure of the link: only its flow's outcomes, and the direction of the flow's loss.
    /// Returns false if too many wait.
    pub fn probe_flow(&mut self, slot: SlotId, flow: Flow) -> bool {
        let has_room = self.protocol.exchange.extras.len() < EXTRAS_MAX
            && flow.0 < self.protocol.exchange.flows
            && !self.common.finishing;
        if has_room {
            self.protocol.exchange.extras.push((slot, flow));
        }
        has_room
    }

    /// Does a turn of an explorer, after a turn of ours that has read everything. `as_of` is a time
    /// before that turn. `mtu` returns the MTU of the route to an address.
    pub fn explore(&mut self, explorer: &mut Explorer, as_of: Nanos, mtu: impl Fn(IpAddr) -> u32) {
        let Datagrams { wire, exchange, .. } = &mut self.protocol;
        let Common { clock, engine, finishing, .. } = &mut self.common;
        explorer.ssid = exchange.ssid ^ 1;
        if !*finishing {
            explorer.turn(wire, clock, as_of, |slot| engine.address(slot), mtu);
        }
    }
}

/// Returns how many hops a packet has come that arrived with this time to live: one more than the
/// routers that it has passed. Systems start with 64, 128 or 255.
const fn hops(ttl: u8) -> u8 {
    let start = match ttl {
        0..=64 => 64,
        65..=128 => 128,
        129.. => 255,
    };
    start - ttl + 1
}

/// Returns T2 − T1 and T4 − T3, each between two clocks.
fn one_way(reply: &StampReply<'_>, ahead: i64, sent_at: Nanos, arrived_at: Nanos) -> [i64; 2] {
    let here = |at: Nanos| at.0.wrapping_add_signed(ahead);
    let there = |at: NtpTime| at.to_unix().0;
    [
        there(reply.received_at).wrapping_sub(here(sent_at)).cast_signed(),
        here(arrived_at).wrapping_sub(there(reply.reflected_at)).cast_signed(),
    ]
}

/// Returns how far two clocks are apart at most, if both are synchronized to UTC. Timestamps of PTP
/// may count TAI, whose distance is not in the error.
fn clocks_apart(ours: ErrorEstimate, theirs: ErrorEstimate) -> Option<Nanos> {
    let is_known = ours.synchronized && theirs.synchronized && !theirs.ptp && theirs.multiplier > 0;
    is_known.then(|| ours.error().plus(theirs.error()))
}

#[cfg(test)]
mod tests;
