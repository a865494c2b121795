//! Decides which path is traced when, and keeps the results.

use std::net::{IpAddr, SocketAddr};

use kube_canary_kernel::region::List;

use super::finding::TraceFinding;
use super::path::{Reason, TracedFlow};
use super::run::Run;
use crate::limits::{TRACES_KEPT, TRACES_PER_MESH_MINUTE, TRACES_PER_MINUTE};
use crate::peers::{Change, Compaction, SlotId};
use crate::prober::{Flow, Moment, Refusal};
use crate::units::Nanos;

/// A link is traced once in this time. The traces of all links in this time are kept.
const AGAIN: Nanos = Nanos::from_millis(600_000);
const MINUTE: u64 = 60_000_000_000;
const _: () = assert!(TRACES_KEPT as u64 > AGAIN.0 / MINUTE * TRACES_PER_MINUTE);
/// Time between the begins of two traces.
const PAUSE: Nanos = Nanos(MINUTE / TRACES_PER_MINUTE);
/// Pause after a trace. Routers that limit their errors to one a second have six again, and answer
/// all packets.
const REST: Nanos = Nanos::from_millis(5_000);
/// The direction of the losses is waited for, because a trace says more with it. If no probe is
/// answered, it is known once the recent window shows nothing else.
const DIRECTION_WAIT: Nanos = Nanos::from_millis(60_000);
/// A link that is wanted no more is forgotten.
const WANTED: Nanos = Nanos::from_millis(2_000);
/// Bits of the index of a packet within its trace. The rest is the number of the trace.
const INDEX_BITS: u32 = 8;
const _: () = assert!(crate::limits::TRACE_PACKETS_MAX <= 1 << INDEX_BITS);

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceProbe {
    /// Address and port of the destination's reflector.
    pub to: SocketAddr,
    /// The slot of the traced link.
    pub slot: SlotId,
    /// The source port that it leaves from.
    pub flow: Flow,
    /// The time to live.
    pub ttl: u8,
    /// The number that the packet carries, with its slot and under the key of every probe.
    pub sequence: u32,
}

/// The path that is traced next.
#[derive(Clone, Copy, Debug)]
struct Want {
    slot: SlotId,
    flow: Flow,
    reason: Reason,
    /// Since when, and until when it is traced if it is not wanted again.
    since: Nanos,
    until: Nanos,
}

/// Traces one path at a time.
#[derive(Debug)]
pub struct Tracer {
    /// Number of source ports per family. 0 if nothing is traced.
    flows: u8,
    /// Time between the begins of two traces.
    pause: Nanos,
    /// When the next trace may begin.
    free_at: Nanos,
    want: Option<Want>,
    /// Number of the current or last trace.
    number: u32,
    run: Option<Run>,
    /// The latest traces, at most one per slot.
    kept: List<TracedFlow>,
    /// The slot of a trace that has just ended.
    finished: Option<SlotId>,
}

impl Tracer {
    /// Makes a tracer for `flows` source ports, at least one.
    pub fn new(flows: u8) -> Self {
        Self {
            flows: flows.max(1),
            pause: PAUSE,
            free_at: Nanos(0),
            want: None,
            number: 0,
            run: None,
            kept: List::new(TRACES_KEPT),
            finished: None,
        }
    }

    /// Stops all traces: without ICMP errors, no hop of a path is known.
    pub const fn stop(&mut self) {
        self.flows = 0;
    }

    /// Sets the number of members of the mesh, which together begin at most
    /// [`TRACES_PER_MESH_MINUTE`] traces a minute.
    pub fn set_members(&mut self, members: u32) {
        self.pause = PAUSE.max(Nanos(u64::from(members) * MINUTE / TRACES_PER_MESH_MINUTE));
    }

    /// Whether no trace is in progress or requested.
    pub const fn is_idle(&self) -> bool {
        self.run.is_none() && self.want.is_none()
    }

    /// Applies a change of the list. `moved` says whether a [`Change::Probe`] has another address
    /// than before.
    pub fn apply(&mut self, change: Change, moved: bool) {
        match change {
            Change::Join { slot } => self.forget(slot),
            Change::Probe { slot, .. } if moved => self.forget(slot),
            Change::Stop { slot } => self.drop_running(slot),
            Change::Probe { .. } | Change::Zone { .. } => {}
        }
    }

    fn drop_running(&mut self, slot: SlotId) {
        self.want.take_if(|want| want.slot == slot);
        self.run.take_if(|run| run.trace.slot == slot);
    }

    /// Forgets everything about a slot, because its address has changed.
    fn forget(&mut self, slot: SlotId) {
        self.drop_running(slot);
        if let Some(index) = self.kept.iter().position(|trace| trace.slot == slot) {
            self.remove_kept(index);
        }
    }

    /// Moves slots as `compaction` says.
    pub fn compact(&mut self, compaction: &Compaction) {
        self.want = self.want.and_then(|want| Some(Want { slot: compaction.now(want.slot)?, ..want }));
        self.finished = self.finished.and_then(|slot| compaction.now(slot));
        // A packet in flight carries the slot of before, and would not count.
        self.run.take_if(|run| compaction.now(run.trace.slot) != Some(run.trace.slot));
        for index in (0..self.kept.len()).rev() {
            let now = self.kept.get(index).and_then(|trace| compaction.now(trace.slot));
            match (now, self.kept.get_mut(index)) {
                (Some(slot), Some(trace)) => trace.slot = slot,
                _ => self.remove_kept(index),
            }
        }
    }

    /// Whether a link that loses may be traced now, or once the time of another trace is over.
    pub fn may_trace(&self, slot: SlotId, now: Nanos) -> bool {
        let is_running = self.run.as_ref().is_some_and(|run| run.trace.slot == slot);
        !is_running && self.last(slot).is_none_or(|trace| now.since(trace.at) >= AGAIN)
    }

    /// Whether a link waits to be traced.
    pub fn is_waiting(&self, slot: SlotId) -> bool {
        self.want.is_some_and(|want| want.slot == slot)
    }

    /// Sets which path is traced next. Repeat it each second as long as the reason lasts.
    pub fn want(&mut self, slot: SlotId, flow: Flow, reason: Reason, now: Nanos) {
        if flow.0 < self.flows {
            let since = self.want.filter(|want| want.slot == slot).map_or(now, |want| want.since);
            self.want = Some(Want { slot, flow, reason, since, until: now.plus(WANTED) });
        }
    }

    /// Returns the next packet to send, if one is due. Call it until it returns `None`, after
    /// everything that has arrived was read. `destination` returns where a slot is probed.
    pub fn due(&mut self, now: Nanos, destination: impl Fn(SlotId) -> Option<SocketAddr>) -> Option<TraceProbe> {
        if let Some(Run { mut trace, .. }) = self.run.take_if(|run| run.is_over(now)) {
            self.free_at = self.free_at.max(now.plus(REST));
            trace.finding = TraceFinding::from_trace(&trace);
            self.keep(&trace);
        }
        if self.run.is_none() {
            self.start(now, destination);
        }
        let run = self.run.as_mut()?;
        let (ttl, index) = run.next(now)?;
        let sequence = self.number << INDEX_BITS | u32::from(index);
        Some(TraceProbe { to: run.to, slot: run.trace.slot, flow: run.trace.flow, ttl, sequence })
    }

    /// Returns when [`Tracer::due`] has something to do at the latest, if no answer arrives. A
    /// trace that is wanted begins at whatever turn comes.
    pub fn next_due(&self) -> Option<Nanos> {
        self.run.as_ref().map(Run::next_due)
    }

    fn start(&mut self, now: Nanos, destination: impl Fn(SlotId) -> Option<SocketAddr>) {
        self.want.take_if(|want| want.reason != Reason::Requested && want.until < now);
        let is_due = |want: &mut Want| match want.reason {
            Reason::Requested => true,
            Reason::Losing { is_outbound, .. } => {
                self.free_at <= now && (is_outbound || now.since(want.since) >= DIRECTION_WAIT)
            }
        };
        let Some(Want { slot, flow, reason, .. }) = self.want.take_if(is_due) else { return };
        let Some(to) = destination(slot) else { return };
        self.free_at = now.plus(self.pause);
        self.number = self.number.wrapping_add(1);
        self.run = Some(Run::new(&TracedFlow::new(slot, flow, reason, now), to, now));
    }

    fn keep(&mut self, trace: &TracedFlow) {
        self.finished = Some(trace.slot);
        if let Some(place) = self.kept.iter_mut().find(|kept| kept.slot == trace.slot) {
            *place = *trace;
        } else if !self.kept.push(*trace)
            && let Some(oldest) = self.kept.iter_mut().min_by_key(|kept| kept.at)
        {
            *oldest = *trace;
        }
    }

    fn remove_kept(&mut self, index: usize) {
        if let Some(last) = self.kept.last().copied() {
            if let Some(place) = self.kept.get_mut(index) {
                *place = last;
            }
            self.kept.resize(self.kept.len() - 1, last);
        }
    }

    /// Records that the kernel did not send a packet.
    pub fn not_sent(&mut self, sequence: u32) {
        if let Some((run, index)) = self.packet(sequence) {
            run.not_sent(index);
        }
    }

    /// Sets when a packet has left, according to the kernel.
    pub fn departed(&mut self, sequence: u32, moment: Moment) {
        if let Some((run, index)) = self.packet(sequence) {
            run.departed(index, moment);
        }
    }

    /// Records an ICMP error that quotes a packet of ours, whose check was compared for this slot
    /// and the destination. Returns whether it counts: the packet was sent by this flow for this
    /// slot, in the trace in progress, and has no answer yet. An error of our own kernel, which
    /// has no offender, does not count.
    pub fn refused(
        &mut self,
        (slot, flow, sequence): (SlotId, Flow, u32),
        offender: Option<IpAddr>,
        refusal: Refusal,
        moment: Moment,
    ) -> bool {
        match (self.sent(slot, flow, sequence), offender) {
            (Some((run, index)), Some(offender)) => run.refused(index, offender, refusal, moment),
            _ => false,
        }
    }

    /// Records the reflector's answer to a packet, whose check was compared for this slot and the
    /// destination. Returns whether it counts, as [`Tracer::refused`] does.
    pub fn answered(&mut self, (slot, flow, sequence): (SlotId, Flow, u32), moment: Moment) -> bool {
        self.sent(slot, flow, sequence).is_some_and(|(run, index)| run.answered(index, moment))
    }

    fn packet(&mut self, sequence: u32) -> Option<(&mut Run, u8)> {
        let index = u8::try_from(sequence & ((1 << INDEX_BITS) - 1)).ok()?;
        let is_current = sequence >> INDEX_BITS == self.number & (u32::MAX >> INDEX_BITS);
        self.run.as_mut().filter(|_| is_current).map(|run| (run, index))
    }

    fn sent(&mut self, slot: SlotId, flow: Flow, sequence: u32) -> Option<(&mut Run, u8)> {
        self.packet(sequence).filter(|(run, _)| run.trace.slot == slot && run.trace.flow == flow)
    }

    /// Returns the latest trace of a slot.
    pub fn last(&self, slot: SlotId) -> Option<&TracedFlow> {
        self.kept.iter().find(|trace| trace.slot == slot)
    }

    /// Returns the trace that has ended since the last call.
    pub fn take_finished(&mut self) -> Option<&TracedFlow> {
        let slot = self.finished.take()?;
        self.last(slot)
    }

    /// Returns the traces that are kept, at most one per slot.
    pub fn kept(&self) -> &[TracedFlow] {
        &self.kept
    }

    /// Returns the resident bytes of the table, in whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.kept.resident_bytes()
    }
}
