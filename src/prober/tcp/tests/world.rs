//! A wire whose handshakes do what the test says.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::*;
use crate::limits::TCP_HANDSHAKES_MAX;

/// The fate of the handshakes with an address.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// No SYN is sent.
    NotSent(SendError),
    /// The call that begins it refuses it.
    RefusedAtOnce,
    /// It is refused, but only a question finds that.
    RefusedInSilence,
    /// It has this outcome this many milliseconds after its beginning.
    After(u64, Handshake),
    /// It has no outcome.
    Silent,
    /// The same, because this host drops its SYN.
    Unsent,
}

#[derive(Debug)]
pub(super) struct ScriptedWire {
    pub(super) clock: SetClock,
    fates: BTreeMap<IpAddr, Fate>,
    flying: BTreeMap<u8, (Nanos, SocketAddr)>,
    /// Largest number of handshakes in flight so far.
    pub(super) most: usize,
    pub(super) begun: Vec<SocketAddr>,
    pub(super) members: Vec<IpAddr>,
    /// Number of connections of members that wait to be accepted.
    pub(super) backlog: usize,
    /// How many connections of strangers each turn could accept.
    pub(super) strangers: Vec<usize>,
}

impl TcpWire for ScriptedWire {
    fn connect(&mut self, place: Place, to: SocketAddr) -> Result<Begun, SendError> {
        match self.fates.get(&to.ip()) {
            Some(Fate::NotSent(reason)) => return Err(*reason),
            Some(Fate::RefusedAtOnce) => return Ok(Begun::Refused),
            _ => {}
        }
        let taken = self.flying.insert(place.0, (self.clock.now(), to));
        assert!(taken.is_none() && place.index() < TCP_HANDSHAKES_MAX, "{place:?} is taken");
        self.most = self.most.max(self.flying.len());
        self.begun.push(to);
        Ok(Begun::InFlight)
    }

    fn read(&mut self, accepts: Accepts, found: &mut dyn FnMut(Place, Handshake)) -> usize {
        let (now, fates) = (self.clock.now(), &self.fates);
        self.flying.retain(|place, (at, to)| match fates.get(&to.ip()) {
            Some(Fate::After(ms, outcome)) if now.since(*at) >= Nanos::from_millis(*ms) => {
                found(Place(*place), *outcome);
                false
            }
            _ => true,
        });
        self.strangers.push(accepts.strangers);
        let accepted = accepts.members.min(self.backlog);
        self.backlog -= accepted;
        accepted
    }

    fn is_refused(&mut self, place: Place) -> bool {
        let (_, to) = self.flying[&place.0];
        matches!(self.fates.get(&to.ip()), Some(Fate::RefusedInSilence))
    }

    fn is_unsent(&mut self, place: Place) -> bool {
        let (_, to) = self.flying[&place.0];
        matches!(self.fates.get(&to.ip()), Some(Fate::Unsent))
    }

    fn close(&mut self, place: Place) {
        assert!(self.flying.remove(&place.0).is_some(), "{place:?} is free");
    }

    fn admit(&mut self, members: &[IpAddr]) {
        self.members = members.to_vec();
    }
}

pub(super) struct World {
    pub(super) prober: Prober<Tcp<ScriptedWire>, SetClock>,
    pub(super) clock: SetClock,
    pub(super) observed: Observed,
    /// Number of turns that [`World::until`] has done.
    pub(super) turns: u32,
}

pub(super) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
pub(super) const MOVED: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));

pub(super) const fn done(us: u64, retransmissions: u32) -> Handshake {
    Handshake::Done { rtt: Nanos(us * 1_000), retransmissions }
}

pub(super) const fn refused(retransmissions: u32) -> Handshake {
    Handshake::Refused { retransmissions }
}

impl World {
    pub(super) fn empty(settings: &Settings) -> Self {
        Self::with(settings, PLAIN)
    }

    pub(super) fn with(settings: &Settings, handshakes: Handshakes) -> Self {
        let clock = SetClock::default();
        let wire = ScriptedWire {
            clock: clock.clone(),
            fates: BTreeMap::new(),
            flying: BTreeMap::new(),
            most: 0,
            begun: Vec::new(),
            members: Vec::new(),
            backlog: 0,
            strangers: Vec::new(),
        };
        Self {
            prober: Tcp::prober(wire, clock.clone(), settings, handshakes),
            clock,
            observed: Observed::default(),
            turns: 0,
        }
    }

    /// One peer in slot 0, whose handshakes have this fate.
    pub(super) fn of_one(fate: Fate, settings: &Settings) -> Self {
        Self::of_one_by(PLAIN, fate, settings)
    }

    /// The same with these handshakes.
    pub(super) fn of_one_by(handshakes: Handshakes, fate: Fate, settings: &Settings) -> Self {
        let mut world = Self::with(settings, handshakes);
        world.join(0, PEER, fate);
        world
    }

    pub(super) fn join(&mut self, slot: u32, address: IpAddr, fate: Fate) {
        self.prober.apply(Change::Join { slot: SlotId(slot) });
        self.prober.apply(probe(slot, address, false));
        self.fate(address, fate);
    }

    pub(super) fn fate(&mut self, address: IpAddr, fate: Fate) {
        self.prober.wire().fates.insert(address, fate);
    }

    /// Turns once. Returns whether everything was read.
    pub(super) fn turn(&mut self) -> bool {
        self.prober.turn(&mut |observation| self.observed.observe(observation))
    }

    /// Does one turn at this time, and returns what it has reported.
    pub(super) fn at(&mut self, ms: u64) -> Vec<Observation> {
        self.clock.set(ms);
        self.turn();
        self.observed.take()
    }

    /// Does all turns that are due until this time, and returns what they have reported.
    pub(super) fn until(&mut self, ms: u64) -> Vec<Observation> {
        let mut turns = 0;
        while let Some(due) = self.prober.next_turn().filter(|due| *due <= Nanos::from_millis(ms)) {
            self.clock.0.set(due.max(self.clock.now()));
            self.turn();
            turns += 1;
            assert!(turns < 10_000, "turns that have nothing to do");
        }
        self.turns += turns;
        self.clock.set(ms);
        self.observed.take()
    }

    pub(super) fn in_flight(&mut self) -> usize {
        self.prober.wire().flying.len()
    }

    /// Begins the handshakes that are due now.
    pub(super) fn begin(&mut self) -> &mut Self {
        let sent = self.at(0);
        assert_eq!(sent, [event(0, Event::Sent)]);
        self
    }
}
