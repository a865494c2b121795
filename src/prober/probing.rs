//! The prober: what the probes of all protocols have in common. It keeps the list of peers, and has
//! the schedule and the engine, by which a [`ProbeProtocol`] sends what is due, reads what comes back,
//! and decides what is lost.

use std::net::IpAddr;

use super::flights::Generation;
use super::{Clock, Engine, Observation, Schedule};
use crate::limits::PEER_SLOTS_MAX;
use crate::peers::{Change, Compaction, Network, SlotId};
use crate::units::Nanos;

/// Longest delay of a loss decision after the timeout. Probes that time out soon after each other
/// are decided by the same turn. If turns are frequent, there is one within that time anyway.
const LOSS_SLACK: Nanos = Nanos::from_millis(125);
/// Room for slots is added in steps of this many: a join must not copy all tables.
const ROOM: usize = 32;

/// The settings that a prober of any protocol runs with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time between two probes to one peer.
    pub interval: Nanos,
    /// A probe whose round trip takes longer is lost. A handshake has at most a second.
    pub timeout: Nanos,
    /// Name of our node, which decides the phase. If it is empty, there is no mesh to stay apart
    /// from, and the first turn is at once.
    pub node: String,
    /// Whether questions ([`Prober::ask`]) are answered. If so, one is asked before
    /// a loss is counted.
    pub doubts: bool,
    /// How long a peer that is new at its address may leave probes unanswered without losing them.
    /// Not by ICMP, which the kernel answers.
    pub new_peer_silence: Nanos,
    /// Longest time that what has arrived may wait to be read. If turns are at least as frequent,
    /// averaged over the interval, packets do not wake the thread. The next turn reads them, and
    /// their times are the kernel's. A handshake that is due waits as long for the turn of another
    /// protocol.
    pub replies_wait: Nanos,
}

/// What all protocols have.
#[derive(Debug)]
pub struct Common<C> {
    pub(super) clock: C,
    pub(super) engine: Engine,
    pub(super) schedule: Schedule,
    /// Whether no further probes are sent.
    pub(super) finishing: bool,
    /// Number of slots that have room.
    room: usize,
    /// When the last turn began.
    turned: Nanos,
}

impl<C: Clock> Common<C> {
    /// Joins them. The schedule begins now.
    pub fn new(clock: C, engine: Engine, interval: Nanos, node: &str) -> Self {
        let now = clock.now();
        let schedule = Schedule::new(interval, node, now);
        Self { clock, engine, schedule, finishing: false, room: 0, turned: now }
    }

    /// Begins a turn. Returns the time, and that since the last one.
    ///
    /// The time is read before the packets are. Everything that had arrived by then was read once
    /// the sockets are empty, however long the thread is delayed before losses are decided.
    pub fn begin_turn(&mut self) -> (Nanos, Nanos) {
        let start = self.clock.now();
        (start, start.since(std::mem::replace(&mut self.turned, start)))
    }

    /// Returns when the last turn began.
    pub const fn turned(&self) -> Nanos {
        self.turned
    }

    /// Returns all slots that have room.
    pub fn slots(&self) -> impl Iterator<Item = SlotId> + use<C> {
        (0..self.room).map(SlotId::at)
    }

    /// Reports the probes that were left out.
    pub fn report_skipped(&mut self, observe: &mut impl FnMut(Observation)) {
        let skipped = self.schedule.take_skipped();
        if skipped > 0 {
            observe(Observation::Skipped(skipped));
        }
    }

    fn peer(&self, slot: SlotId) -> SlotHolder {
        SlotHolder { generation: self.engine.generation(slot), address: self.engine.address(slot) }
    }
}

/// Says which peer holds a slot, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotHolder {
    /// Another one means that it moved, left, or began to terminate.
    pub generation: Option<Generation>,
    /// `None` while it is off the list.
    pub address: Option<IpAddr>,
}

/// Sends probes and reads what comes back.
pub trait ProbeProtocol {
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
    /// Called before a slot leaves the schedule, if it is in it.
    fn pausing(&mut self, _slot: SlotId, _schedule: &Schedule) {}
    /// Called with the mean time between two turns that send; `None` if there are none.
    fn attend(&mut self, _gap: Option<Nanos>) {}
    /// Sends, reads and decides, without waiting. Returns whether everything that has arrived was
    /// read.
    fn turn<C: Clock>(&mut self, common: &mut Common<C>, observe: &mut impl FnMut(Observation)) -> bool;
    /// Returns when the next probes are due.
    fn next_due<C: Clock>(&self, common: &Common<C>) -> Option<Nanos> {
        if common.finishing { None } else { common.schedule.next_due() }
    }
    /// Called before each wait, with the time of the next turn.
    fn before_wait(&mut self, _next: Option<Nanos>) {}
}

/// Probes all peers by one protocol, and decides the outcomes by a clock.
#[derive(Debug)]
pub struct Prober<P, C> {
    pub(super) protocol: P,
    pub(super) common: Common<C>,
}

impl<P: ProbeProtocol, C: Clock> Prober<P, C> {
    /// Returns the clock of the prober.
    pub const fn clock(&self) -> &C {
        &self.common.clock
    }

    /// Returns the address of a slot's peer; `None` while it is off the list.
    pub fn address(&self, slot: SlotId) -> Option<IpAddr> {
        self.common.engine.address(slot)
    }

    /// Makes room for `slots` peers. Otherwise only a change that joins a slot beyond them, and a
    /// compaction, allocate.
    pub fn reserve(&mut self, slots: usize) {
        let Common { engine, schedule, room, .. } = &mut self.common;
        if slots > *room {
            *room = room_for(slots);
            engine.reserve(*room);
            schedule.reserve(*room);
            self.protocol.reserve(*room);
        }
    }

    /// Returns the resident memory of the data per slot, in bytes of whole pages.
    pub fn resident_bytes(&self) -> usize {
        let Common { engine, schedule, .. } = &self.common;
        engine.resident_bytes() + schedule.resident_bytes() + self.protocol.resident_bytes()
    }

    /// Moves peers as `compaction` says, and frees the memory of unused slots.
    pub fn compact(&mut self, compaction: &Compaction) {
        let Common { engine, schedule, room, .. } = &mut self.common;
        *room = room_for(compaction.slots());
        engine.compact(compaction, *room);
        schedule.compact(compaction, *room);
        self.protocol.compact(compaction, *room);
    }

    /// Applies a change of the peer list.
    pub fn apply(&mut self, change: Change) {
        let slot = match change {
            Change::Probe { network: Network::Node, .. } if !P::PROBES_NODES => return,
            Change::Zone { .. } => return,
            Change::Join { slot } | Change::Probe { slot, .. } | Change::Stop { slot } => slot,
        };
        if let Change::Join { .. } = change {
            self.reserve(slot.index() + 1);
        }
        let before = self.common.peer(slot);
        self.common.engine.apply(change);
        self.protocol.changed(change, before, self.common.peer(slot));
        if let Change::Probe { .. } = change {
            self.common.schedule.add(slot);
            self.attend();
        } else {
            self.pause(slot);
        }
    }

    /// Stops sending to a slot until its next [`Change::Probe`]. Unlike after [`Change::Stop`],
    /// probes in flight still count.
    pub fn pause(&mut self, slot: SlotId) {
        self.protocol.pausing(slot, &self.common.schedule);
        self.common.schedule.remove(slot);
        self.attend();
    }

    /// Stops sending to all peers. Probes in flight still count, and those of others are answered.
    pub fn finish(&mut self) {
        self.common.finishing = true;
        self.attend();
    }

    fn attend(&mut self) {
        let gap = self.common.schedule.mean_gap().filter(|_| !self.common.finishing);
        self.protocol.attend(gap);
    }

    /// Whether the outcome of a probe is still open.
    pub fn awaits_any(&mut self) -> bool {
        self.common.engine.awaits_any()
    }

    /// Passes on the new questions: is the peer at this address still on the list? `ask` returns
    /// whether it accepted the question; if not, the loss is counted. Called after each turn.
    pub fn ask(&mut self, ask: impl FnMut(IpAddr) -> bool) {
        let Common { clock, engine, .. } = &mut self.common;
        engine.ask(|| clock.now(), ask);
    }

    /// Receives the answer to the question about this address, after the list that it is about.
    /// What was withheld is lost, and a later doubt leads to a new question.
    pub fn answered(&mut self, address: IpAddr) {
        self.common.engine.answered(address);
    }

    /// Sends, reads and decides, without waiting, and passes on what it observes. It is called when
    /// a socket is readable, at [`Prober::next_turn`] and at the turns of other probers; a listener
    /// also needs it once a second. Returns whether everything that has arrived was read; if not,
    /// it must be called again at once.
    pub fn turn(&mut self, observe: &mut impl FnMut(Observation)) -> bool {
        self.protocol.turn(&mut self.common, observe)
    }

    /// Returns when the next turn is due, if nothing arrives before. It must be called before each
    /// wait. Packets that arrive during the wait may wait until then and do not count as read late.
    pub fn next_turn(&mut self) -> Option<Nanos> {
        let due = self.protocol.next_due(&self.common);
        let engine = &mut self.common.engine;
        let expiry = engine.next_expiry().map(|at| at.plus(LOSS_SLACK));
        let next = [due, expiry, engine.next_doubt()].into_iter().flatten().min();
        self.protocol.before_wait(next);
        next
    }
}

/// Returns for how many slots there is room if there are this many.
fn room_for(slots: usize) -> usize {
    slots.next_multiple_of(ROOM).min(PEER_SLOTS_MAX)
}
