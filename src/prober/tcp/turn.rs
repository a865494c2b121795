//! One turn of the TCP prober: finds the outcomes of handshakes, decides losses, and begins what is
//! due.

use std::net::{IpAddr, SocketAddr};

use super::connections::{Connection, Connections, Place};
use super::refusals::Refusals;
use super::{Accepts, Begun, KEPT_FOR, Outcome, REPEATED_AFTER, Wire};
use crate::limits::{
    TCP_ACCEPTS_MAX, TCP_ACCEPTS_PER_SECOND, TCP_BACKLOG, TCP_INTERVAL, TCP_STRANGERS_EVERY, TCP_STRANGERS_MAX,
};
use crate::peers::{Change, Compaction, Network, SlotId};
use crate::prober::turn::{LOSS_SLACK, room};
use crate::prober::{Clock, Engine, Event, Moment, Schedule, SendError, Sink};
use crate::units::Nanos;

/// Handshakes that one turn begins. Each takes about 10 µs of CPU, and other probes wait for them.
const CONNECTS_MAX: usize = 16;
/// If no place is free for a handshake, it is tried again after this time, and for
/// [`PLACE_WAIT_MAX`] from when it was due. Handshakes in flight end in the meantime.
const PLACE_PAUSE: Nanos = Nanos::from_millis(10);
const PLACE_WAIT_MAX: Nanos = Nanos::from_millis(1_000);
/// While the agent stops, outcomes are looked for as often as this: nothing else wakes the thread.
const FINISH_PAUSE: Nanos = Nanos::from_millis(10);
/// Time for which a connection that is accepted uses up the listener's rate.
const ACCEPT_COST: Nanos = Nanos(1_000_000_000 / TCP_ACCEPTS_PER_SECOND);
/// A whole backlog may be accepted at once.
const CREDIT_MAX: Nanos = Nanos(ACCEPT_COST.0 * TCP_BACKLOG.unsigned_abs() as u64);
/// The kernel's unit. A handshake that it measures as zero took less.
const RTT_UNIT: Nanos = Nanos(1_000);
/// A lost handshake is followed by another after this time. Ten seconds between handshakes would
/// show a fault too late. Random losses are as likely in it as in any other.
const RETRY_AFTER: Nanos = Nanos::from_millis(1_000);
/// Handshakes that wait to follow a lost one. Those of further peers come at their usual time.
const RETRIES_MAX: usize = 64;

/// The settings that a TCP prober runs with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time between two probes of the other methods to one peer. A longer one than
    /// [`TCP_INTERVAL`] is also that of handshakes.
    pub interval: Nanos,
    /// A handshake that takes longer is lost, and so is one that takes [`REPEATED_AFTER`].
    pub timeout: Nanos,
    /// Port of the peers' listeners.
    pub port: u16,
    /// Name of our node, which decides the phase.
    pub node: String,
    /// Whether questions ([`Prober::ask`]) are answered. If so, one is asked before
    /// a loss is counted.
    pub doubts: bool,
    /// How long a peer that is new at its address may fail handshakes without losing them.
    pub new_peer_silence: Nanos,
    /// Whether a lost handshake is followed soon by another.
    pub retries_lost: bool,
    /// How long after [`REPEATED_AFTER`] a loss is decided, so that it is known whether the first
    /// repetition was sent: 0 or [`super::UNSENT_WAIT`].
    pub unsent_wait: Nanos,
    /// Longest time that a handshake which is due may wait for a turn that other probes need
    /// anyway. With turns as frequent as this, handshakes never wake the thread.
    pub wait: Nanos,
}

/// Probes peers by handshakes over a wire, and decides their outcomes by a clock.
#[derive(Debug)]
pub struct Prober<W, C> {
    wire: W,
    clock: C,
    engine: Engine,
    schedule: Schedule,
    connections: Connections,
    refusals: Refusals,
    port: u16,
    timeout: Nanos,
    /// How long after the timeout a loss is decided.
    unsent_wait: Nanos,
    wait: Nanos,
    /// The cell that is not sent completely: when it was due, and its next peer.
    rest: Option<(Nanos, SlotId)>,
    /// When to continue with `rest`.
    resume: Nanos,
    /// Whether a lost handshake is soon followed by another.
    retries_lost: bool,
    /// Peers whose last handshake was lost, and when they are probed again: allocated once.
    retries: Vec<(Nanos, SlotId)>,
    /// When the last turn began.
    turned: Nanos,
    /// Number of slots that have room.
    room: usize,
    /// Whether no further handshakes are begun.
    finishing: bool,
    /// Time for which no connection was accepted, up to [`CREDIT_MAX`]. Each takes [`ACCEPT_COST`].
    credit: Nanos,
    /// When strangers are accepted again.
    strangers: Nanos,
}

impl<W: Wire, C: Clock> Prober<W, C> {
    /// Makes a prober without peers.
    pub fn new(wire: W, clock: C, settings: &Settings) -> Self {
        let now = clock.now();
        let interval = settings.interval.max(TCP_INTERVAL.into());
        let timeout = settings.timeout.min(REPEATED_AFTER);
        let unsent_wait = if timeout == REPEATED_AFTER { settings.unsent_wait } else { Nanos(0) };
        let engine = Engine::with_dwell(timeout, unsent_wait, interval, settings.doubts, false);
        Self {
            wire,
            clock,
            engine: engine.excusing(settings.new_peer_silence, interval),
            schedule: Schedule::new(interval, &settings.node, now),
            connections: Connections::new(),
            refusals: Refusals::new(),
            port: settings.port,
            timeout,
            unsent_wait,
            wait: settings.wait,
            rest: None,
            resume: now,
            retries_lost: settings.retries_lost,
            retries: Vec::with_capacity(RETRIES_MAX),
            turned: now,
            room: 0,
            finishing: false,
            credit: CREDIT_MAX,
            strangers: now,
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

    /// Makes room for `slots` peers. Otherwise only a change that joins a slot beyond them, and a
    /// compaction, allocate.
    pub fn reserve(&mut self, slots: usize) {
        if slots > self.room {
            self.room = room(slots);
            self.engine.reserve(self.room);
            self.schedule.reserve(self.room);
        }
    }

    /// Returns the resident memory of the data per slot, in bytes of whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.engine.resident_bytes() + self.schedule.resident_bytes() + self.refusals.resident_bytes()
    }

    /// Moves peers as `compaction` says, and frees the memory of unused slots.
    pub fn compact(&mut self, compaction: &Compaction) {
        let Self { wire, connections, .. } = self;
        connections.relabel(|slot| compaction.now(slot), |place| wire.close(place));
        self.refusals.compact(compaction);
        self.rest = self.rest.and_then(|(due, slot)| Some((due, compaction.now(slot)?)));
        self.retries.retain_mut(|(_, slot)| compaction.now(*slot).map(|now| *slot = now).is_some());
        self.room = room(compaction.slots());
        self.engine.compact(compaction, self.room);
        self.schedule.compact(compaction, self.room);
    }

    /// Applies a change of the peer list. Addresses on the nodes' own network are not probed: no
    /// agent listens there.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Probe { network: Network::Node, .. } | Change::Zone { .. } => return,
            Change::Probe { .. } => {}
            Change::Stop { slot } => self.pause(slot),
            Change::Join { slot } => {
                self.reserve(slot.index() + 1);
                self.pause(slot);
                let Self { wire, connections, .. } = self;
                connections.remove_if(|place, connection| {
                    let ended = connection.label.slot == slot;
                    if ended {
                        wire.close(place);
                    }
                    ended
                });
                self.refusals.clear(slot);
            }
        }
        self.engine.apply(change);
        if let Change::Probe { slot, .. } = change {
            self.schedule.add(slot);
        }
    }

    /// Stops sending to a slot until its next [`Change::Probe`]. Unlike after [`Change::Stop`],
    /// handshakes in flight still count.
    pub fn pause(&mut self, slot: SlotId) {
        if let Some((due, next)) = self.rest.filter(|(_, next)| *next == slot) {
            self.rest = self.schedule.after(next).map(|after| (due, after));
        }
        self.retries.retain(|(_, retried)| *retried != slot);
        self.schedule.remove(slot);
    }

    /// Stops sending to all peers. Handshakes in flight still count.
    pub fn finish(&mut self) {
        self.finishing = true;
    }

    /// Whether the outcome of a handshake is still open.
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

    /// Sets the addresses of members, of which strangers take no handshake. Before the first call,
    /// all are members.
    pub fn set_members(&mut self, members: impl IntoIterator<Item = IpAddr>) {
        self.wire.admit(&mut members.into_iter());
    }

    /// Finds outcomes, decides losses, and begins what is due, without waiting. It is called at
    /// [`Prober::next_turn`] and at the turns of other probers. Without any of these it must still
    /// be called once a second, for the listener's sake. Returns whether the listener has accepted
    /// what it may; if not, it must be called again at once.
    pub fn turn(&mut self, sink: &mut impl Sink) -> bool {
        // The time is read before the outcomes are. Everything that was done by then is found,
        // however long the thread is delayed before losses are decided.
        let start = self.clock.now();
        let since_last = start.since(std::mem::replace(&mut self.turned, start));
        self.credit = self.credit.plus(since_last).min(CREDIT_MAX);
        let drained = self.read(start, sink);
        self.look_after_overdue(start, sink);
        self.expire(start, sink);
        if !self.finishing {
            self.send_due(start, sink);
        }
        let skipped = self.schedule.take_skipped();
        if skipped > 0 {
            sink.skipped(skipped);
        }
        drained
    }

    /// Returns when the next turn is due. It must be called before each wait. A handshake that is
    /// done in the meantime can wait until then.
    pub fn next_turn(&mut self) -> Option<Nanos> {
        let due = match self.rest {
            _ if self.finishing => (!self.connections.is_empty()).then(|| self.turned.plus(FINISH_PAUSE)),
            Some(_) => Some(self.resume),
            None => self.schedule.next_due().map(|at| at.plus(self.wait)),
        };
        let expiry = self.engine.next_expiry().map(|at| at.plus(LOSS_SLACK));
        let retry = self.retries.first().filter(|_| !self.finishing).map(|(at, _)| at.plus(self.wait));
        [due, expiry, retry, self.engine.next_doubt()].into_iter().flatten().min()
    }

    fn read(&mut self, start: Nanos, sink: &mut impl Sink) -> bool {
        let Self { wire, clock, engine, connections, refusals, timeout, credit, strangers, .. } = self;
        let affordable = usize::try_from(credit.0 / ACCEPT_COST.0).unwrap_or(usize::MAX);
        let mut accepts = Accepts { members: affordable.min(TCP_ACCEPTS_MAX), strangers: 0 };
        if *strangers <= start {
            accepts.strangers = TCP_STRANGERS_MAX.unsigned_abs() as usize;
            *strangers = start.plus(TCP_STRANGERS_EVERY.into());
        }
        let accepted = wire.read(accepts, &mut |place, outcome| {
            let Some(Connection { label, at, to, overdue, .. }) = connections.take(place) else { return };
            let (retransmissions, rtt) = match outcome {
                Outcome::Done { rtt, retransmissions } => (retransmissions, Some(rtt)),
                Outcome::Refused { retransmissions } => (retransmissions, None),
                Outcome::Failed => return,
            };
            if retransmissions > 0 {
                sink.syn_retransmissions(label.slot, retransmissions);
            }
            let now = clock.now();
            let moment = match rtt {
                // Its loss is decided already, as silence.
                None if overdue => return,
                None => return refusals.note(label.slot),
                // It is lost, and expires like a silent one unless its time is already over.
                Some(_) if retransmissions > 0 && now.since(at) <= *timeout => return,
                Some(_) if retransmissions > 0 => Moment::read(now),
                Some(rtt) => {
                    engine.departed(label, Moment::measured(at, now));
                    Moment::measured(at.plus(rtt.max(RTT_UNIT)), now)
                }
            };
            if let Some((slot, events)) = engine.reply(label, to, moment) {
                events.into_iter().flatten().for_each(|event| sink.event_of_reply(slot, label.sequence, event));
            }
        });
        *credit = credit.since(Nanos(ACCEPT_COST.0 * accepted as u64));
        // Beyond the rate, the rest waits for the next turn.
        accepted < TCP_ACCEPTS_MAX || credit.0 < ACCEPT_COST.0
    }

    /// Looks at the handshakes whose time is over, and closes those that were kept long enough.
    /// A handshake whose loss is due, and that this host has not sent, is none.
    fn look_after_overdue(&mut self, now: Nanos, sink: &mut impl Sink) {
        let Self { wire, engine, connections, refusals, timeout, unsent_wait, .. } = self;
        let decided_after = timeout.plus(*unsent_wait);
        connections.remove_if(|place, connection| {
            let age = now.since(connection.at);
            // An ICMP error that arrives during the call of connect(2) does not end the handshake,
            // and no event reports it.
            let refused =
                age > *timeout && !std::mem::replace(&mut connection.overdue, age > *timeout) && wire.is_refused(place);
            if refused {
                refusals.note(connection.label.slot);
            }
            let is_due = age > decided_after && !std::mem::replace(&mut connection.decided, age > decided_after);
            let unsent = if is_due && unsent_wait.0 > 0 && wire.is_unsent(place) {
                engine.unsent(connection.label, SendError::NotPermitted)
            } else {
                None
            };
            if let Some(event) = unsent {
                sink.event(connection.label.slot, event);
            }
            let ended = refused || unsent.is_some() || age > KEPT_FOR;
            if ended {
                wire.close(place);
            }
            ended
        });
    }

    /// Decides losses as of a time until which all outcomes were found.
    fn expire(&mut self, as_of: Nanos, sink: &mut impl Sink) {
        while let Some((slot, event)) = self.engine.expire(as_of) {
            sink.event(slot, event);
            if event == Event::Lost && self.retries_lost {
                self.retry(slot, as_of);
            }
            // A withdrawn probe takes its refusal with it.
            if self.refusals.take(slot) && event == Event::Lost {
                sink.refused(slot);
            }
        }
    }

    /// Lets another handshake follow a lost one, unless one is planned or in flight.
    fn retry(&mut self, slot: SlotId, now: Nanos) {
        let mut exists = self.retries.len() == RETRIES_MAX || self.retries.iter().any(|(_, planned)| *planned == slot);
        self.connections.remove_if(|_, connection| {
            exists |= connection.label.slot == slot && !connection.overdue;
            false
        });
        if !exists {
            self.retries.push((now.plus(RETRY_AFTER), slot));
        }
    }

    fn send_due(&mut self, now: Nanos, sink: &mut impl Sink) {
        let mut left = CONNECTS_MAX;
        // They are in the order of their times.
        while left > 0
            && self.retries.first().is_some_and(|(at, _)| *at <= now)
            && let Some(place) = self.connections.free()
        {
            let (_, slot) = self.retries.remove(0);
            left -= 1;
            self.send(place, slot, sink);
        }
        while let Some((due, slot)) = self.rest.or_else(|| self.schedule.advance(now)) {
            let place = if left > 0 { self.place() } else { None };
            if left == 0 || place.is_none() && now.since(due) <= PLACE_WAIT_MAX {
                self.rest = Some((due, slot));
                self.resume = if left == 0 { now } else { now.plus(PLACE_PAUSE) };
                return;
            }
            left -= 1;
            self.rest = self.schedule.after(slot).map(|next| (due, next));
            match place {
                Some(place) => self.send(place, slot, sink),
                None => sink.event(slot, Event::NotSent(SendError::TableFull)),
            }
        }
    }

    /// Returns a free place. If there is none, the oldest handshake that is lost makes room.
    fn place(&mut self) -> Option<Place> {
        self.connections.free().or_else(|| {
            let place = self.connections.oldest_overdue()?;
            self.connections.take(place);
            self.wire.close(place);
            Some(place)
        })
    }

    fn send(&mut self, place: Place, slot: SlotId, sink: &mut impl Sink) {
        let Self { wire, clock, engine, connections, refusals, port, .. } = self;
        let Some(to) = engine.address(slot) else { return };
        let at = clock.now();
        let label = match engine.begin(slot, at) {
            Ok(label) => label,
            Err(reason) => return sink.event(slot, Event::NotSent(reason)),
        };
        let begun = wire.connect(place, SocketAddr::new(to, *port));
        if let Some(event) = engine.sent(label, begun.map(|_| ())) {
            sink.event(slot, event);
        }
        match begun {
            Ok(Begun::InFlight) => connections.put(place, Connection { label, at, to, overdue: false, decided: false }),
            Ok(Begun::Refused) => refusals.note(slot),
            Err(_) => {}
        }
    }
}
