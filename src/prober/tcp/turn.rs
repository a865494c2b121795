//! One turn of the TCP prober: finds the outcomes of handshakes, decides losses, and begins what is
//! due.

use std::net::{IpAddr, SocketAddr};

use super::connections::{Connection, Connections, Place};
use super::refusals::OpenRefusals;
use super::{Accepts, Begun, Handshake, KEPT_FOR, REPEATED_AFTER, TcpWire};
use crate::limits::{
    TCP_ACCEPTS_MAX, TCP_ACCEPTS_PER_SECOND, TCP_BACKLOG, TCP_INTERVAL, TCP_STRANGERS_EVERY, TCP_STRANGERS_MAX,
};
use crate::peers::{Change, Compaction, SlotId};
use crate::prober::probing::{Common, ProbeProtocol, SlotHolder};
use crate::prober::{Clock, Engine, Event, Moment, Observation, Prober, Schedule, SendError, Settings};
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
/// If no place is free for it, it is tried again after this time. Handshakes at their usual time
/// take the places of those that are lost, so it may wait for as long as many peers are silent.
const RETRY_PAUSE: Nanos = Nanos::from_millis(100);
/// Handshakes that wait to follow a lost one. Those of further peers come at their usual time.
const RETRIES_MAX: usize = 64;

/// Says where handshakes go, and how soon a lost one is followed by another.
#[derive(Clone, Copy, Debug)]
pub struct Handshakes {
    /// Port of the peers' listeners.
    pub port: u16,
    /// Whether a lost handshake is followed soon by another.
    pub retries_lost: bool,
    /// How long after [`REPEATED_AFTER`] a loss is decided, so that it is known whether the first
    /// repetition was sent: 0 or [`super::UNSENT_WAIT`].
    pub unsent_wait: Nanos,
}

/// Begins handshakes over a wire, finds their outcomes, and accepts those of others.
#[derive(Debug)]
pub struct Tcp<W> {
    wire: W,
    connections: Connections,
    refusals: OpenRefusals,
    port: u16,
    timeout: Nanos,
    /// How long after the timeout a loss is decided.
    unsent_wait: Nanos,
    /// Longest time that a handshake which is due may wait for a turn that other probes need
    /// anyway. With turns as frequent as this, handshakes never wake the thread.
    wait: Nanos,
    /// The cell that is not sent completely: when it was due, and its next peer.
    rest: Option<(Nanos, SlotId)>,
    /// When to continue with `rest`.
    resume: Nanos,
    /// Whether a lost handshake is soon followed by another.
    retries_lost: bool,
    /// Peers whose last handshake was lost, and when they are probed again: allocated once.
    retries: Vec<(Nanos, SlotId)>,
    /// Time for which no connection was accepted, up to [`CREDIT_MAX`]. Each takes [`ACCEPT_COST`].
    credit: Nanos,
    /// When strangers are accepted again.
    strangers: Nanos,
}

impl<W: TcpWire> Tcp<W> {
    /// Makes a prober without peers. A handshake that takes [`REPEATED_AFTER`] is lost. The
    /// interval is at least [`TCP_INTERVAL`].
    pub fn prober<C: Clock>(wire: W, clock: C, settings: &Settings, handshakes: Handshakes) -> Prober<Self, C> {
        let interval = settings.interval.max(TCP_INTERVAL.into());
        let timeout = settings.timeout.min(REPEATED_AFTER);
        let unsent_wait = if timeout == REPEATED_AFTER { handshakes.unsent_wait } else { Nanos(0) };
        let engine = Engine::with_dwell(timeout, unsent_wait, interval, settings.doubts, false);
        let common = Common::new(clock, engine.excusing(settings.new_peer_silence, interval), interval, &settings.node);
        let now = common.turned();
        let protocol = Self {
            wire,
            connections: Connections::new(),
            refusals: OpenRefusals::new(),
            port: handshakes.port,
            timeout,
            unsent_wait,
            wait: settings.replies_wait,
            rest: None,
            resume: now,
            retries_lost: handshakes.retries_lost,
            retries: Vec::with_capacity(RETRIES_MAX),
            credit: CREDIT_MAX,
            strangers: now,
        };
        Prober { protocol, common }
    }
}

impl<W: TcpWire, C: Clock> Prober<Tcp<W>, C> {
    /// Returns the wire of the prober.
    pub const fn wire(&mut self) -> &mut W {
        &mut self.protocol.wire
    }

    /// Sets the addresses of members, of which strangers take no handshake. Before the first call,
    /// all are members.
    pub fn set_members(&mut self, members: &[IpAddr]) {
        self.protocol.wire.admit(members);
    }
}

impl<W: TcpWire> ProbeProtocol for Tcp<W> {
    const PROBES_NODES: bool = false;

    fn resident_bytes(&self) -> usize {
        self.refusals.resident_bytes()
    }

    fn compact(&mut self, compaction: &Compaction, _: usize) {
        let Self { wire, connections, .. } = self;
        connections.relabel(|slot| compaction.now(slot), |place| wire.close(place));
        self.refusals.compact(compaction);
        self.rest = self.rest.and_then(|(due, slot)| Some((due, compaction.now(slot)?)));
        self.retries.retain_mut(|(_, slot)| compaction.now(*slot).map(|now| *slot = now).is_some());
    }

    fn changed(&mut self, change: Change, _: SlotHolder, _: SlotHolder) {
        let Change::Join { slot } = change else { return };
        let Self { wire, connections, refusals, .. } = self;
        connections.remove_if(|place, connection| {
            let ended = connection.label.slot == slot;
            if ended {
                wire.close(place);
            }
            ended
        });
        refusals.clear(slot);
    }

    fn pausing(&mut self, slot: SlotId, schedule: &Schedule) {
        if let Some((due, next)) = self.rest.filter(|(_, next)| *next == slot) {
            self.rest = schedule.after(next).map(|after| (due, after));
        }
        self.retries.retain(|(_, retried)| *retried != slot);
    }

    fn turn<C: Clock>(&mut self, common: &mut Common<C>, observe: &mut impl FnMut(Observation)) -> bool {
        let (start, since_last) = common.begin_turn();
        self.credit = self.credit.plus(since_last).min(CREDIT_MAX);
        let drained = self.read(common, start, observe);
        self.look_after_overdue(common, start, observe);
        self.expire(common, start, observe);
        if !common.finishing {
            self.send_due(common, start, observe);
        }
        common.report_skipped(observe);
        drained
    }

    /// A handshake that is done before that is found by the next turn.
    fn next_due<C: Clock>(&self, common: &Common<C>) -> Option<Nanos> {
        if common.finishing {
            return (!self.connections.is_empty()).then(|| common.turned().plus(FINISH_PAUSE));
        }
        let due = match self.rest {
            Some(_) => Some(self.resume),
            None => common.schedule.next_due().map(|at| at.plus(self.wait)),
        };
        let retry = self.retries.first().map(|(at, _)| at.plus(self.wait));
        [due, retry].into_iter().flatten().min()
    }
}

impl<W: TcpWire> Tcp<W> {
    fn read<C: Clock>(&mut self, common: &mut Common<C>, start: Nanos, observe: &mut impl FnMut(Observation)) -> bool {
        let Self { wire, connections, refusals, timeout, credit, strangers, .. } = self;
        let Common { clock, engine, .. } = common;
        let affordable = usize::try_from(credit.0 / ACCEPT_COST.0).unwrap_or(usize::MAX);
        let mut accepts = Accepts { members: affordable.min(TCP_ACCEPTS_MAX), strangers: 0 };
        if *strangers <= start {
            accepts.strangers = TCP_STRANGERS_MAX.unsigned_abs() as usize;
            *strangers = start.plus(TCP_STRANGERS_EVERY.into());
        }
        let accepted = wire.read(accepts, &mut |place, handshake| {
            let Some(Connection { label, at, to, overdue, .. }) = connections.take(place) else { return };
            let (retransmissions, rtt) = match handshake {
                Handshake::Done { rtt, retransmissions } => (retransmissions, Some(rtt)),
                Handshake::Refused { retransmissions } => (retransmissions, None),
                Handshake::Failed => return,
            };
            if retransmissions > 0 {
                observe(Observation::SynRetransmissions { slot: label.slot, count: retransmissions });
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
                Observation::from_reply(slot, label.sequence, events).for_each(&mut *observe);
            }
        });
        *credit = credit.since(Nanos(ACCEPT_COST.0 * accepted as u64));
        // Beyond the rate, the rest waits for the next turn.
        accepted < TCP_ACCEPTS_MAX || credit.0 < ACCEPT_COST.0
    }

    /// Looks at the handshakes whose time is over, and closes those that were kept long enough.
    /// A handshake whose loss is due, and that this host has not sent, is none.
    fn look_after_overdue<C: Clock>(
        &mut self,
        common: &mut Common<C>,
        now: Nanos,
        observe: &mut impl FnMut(Observation),
    ) {
        let Self { wire, connections, refusals, timeout, unsent_wait, .. } = self;
        let engine = &mut common.engine;
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
            let is_unsent = is_due && unsent_wait.0 > 0 && wire.is_unsent(place);
            let unsent = is_unsent.then(|| engine.unsent(connection.label, SendError::NotPermitted)).flatten();
            if let Some(event) = unsent {
                observe(Observation::probe(connection.label.slot, event));
            }
            let ended = refused || unsent.is_some() || age > KEPT_FOR;
            if ended {
                wire.close(place);
            }
            ended
        });
    }

    /// Decides losses as of a time until which all outcomes were found.
    fn expire<C: Clock>(&mut self, common: &mut Common<C>, as_of: Nanos, observe: &mut impl FnMut(Observation)) {
        while let Some((slot, event)) = common.engine.expire(as_of) {
            observe(Observation::probe(slot, event));
            if event == Event::Lost && self.retries_lost {
                self.retry(slot, as_of);
            }
            // A withdrawn probe takes its refusal with it.
            if self.refusals.take(slot) && event == Event::Lost {
                observe(Observation::Refused(slot));
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

    fn send_due<C: Clock>(&mut self, common: &mut Common<C>, now: Nanos, observe: &mut impl FnMut(Observation)) {
        let mut left = CONNECTS_MAX;
        // They are in the order of their times, except that one which found no place is tried
        // again.
        while left > 0 && self.retries.first().is_some_and(|(at, _)| *at <= now) {
            let Some(place) = self.connections.free() else {
                self.retries[0].0 = now.plus(RETRY_PAUSE);
                break;
            };
            let (_, slot) = self.retries.remove(0);
            left -= 1;
            self.send(common, place, slot, observe);
        }
        while let Some((due, slot)) = self.rest.or_else(|| common.schedule.advance(now)) {
            let place = if left > 0 { self.place() } else { None };
            if left == 0 || place.is_none() && now.since(due) <= PLACE_WAIT_MAX {
                self.rest = Some((due, slot));
                self.resume = if left == 0 { now } else { now.plus(PLACE_PAUSE) };
                return;
            }
            left -= 1;
            self.rest = common.schedule.after(slot).map(|next| (due, next));
            match place {
                Some(place) => self.send(common, place, slot, observe),
                None => observe(Observation::probe(slot, Event::NotSent(SendError::TableFull))),
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

    fn send<C: Clock>(
        &mut self,
        common: &mut Common<C>,
        place: Place,
        slot: SlotId,
        observe: &mut impl FnMut(Observation),
    ) {
        let Self { wire, connections, refusals, port, .. } = self;
        let Common { clock, engine, .. } = common;
        let Some(to) = engine.address(slot) else { return };
        let at = clock.now();
        let label = match engine.begin(slot, at) {
            Ok(label) => label,
            Err(reason) => return observe(Observation::probe(slot, Event::NotSent(reason))),
        };
        let begun = wire.connect(place, SocketAddr::new(to, *port));
        if let Some(event) = engine.sent(label, begun.map(|_| ())) {
            observe(Observation::probe(slot, event));
        }
        match begun {
            Ok(Begun::InFlight) => connections.put(place, Connection { label, at, to, overdue: false, decided: false }),
            Ok(Begun::Refused) => refusals.note(slot),
            Err(_) => {}
        }
    }
}
