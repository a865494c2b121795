//! Decides which path is traced when, and keeps the results.

use std::net::{IpAddr, SocketAddr};

use super::baseline::{Baseline, Baselines};
use super::compare::{Comparison, compare};
use super::path::Trace;
use super::rota::Rota;
use super::run::Run;
use super::wants::{Reason, Wants};
use crate::limits::{BASELINES_PER_MINUTE, TRACES_KEPT, TRACES_PER_MINUTE};
use crate::peers::{Change, Compaction, SlotId};
use crate::prober::Moment;
use crate::prober::udp::Flow;
use crate::prober::udp::wire::Refusal;
use crate::sys::region::List;
use crate::units::Nanos;

/// A slot that was traced within this time is traced again only if no other slot waits. The same
/// flow is not traced again at all.
const RETRACE: Nanos = Nanos::from_millis(900_000);
const MINUTE: Nanos = Nanos::from_millis(60_000);
/// Pause between a trace and one of a path that loses. Routers that limit their errors to one a
/// second have six again, and answer all packets.
const REST: Nanos = Nanos::from_millis(5_000);
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

/// The beginnings of the last `N` traces.
#[derive(Debug)]
struct Budget<const N: usize> {
    starts: [Option<Nanos>; N],
}

impl<const N: usize> Budget<N> {
    const NEW: Self = Self { starts: [None; N] };

    /// Returns the place of a start that is allowed now: one of `N` in each minute.
    fn place(&mut self, now: Nanos) -> Option<&mut Option<Nanos>> {
        self.starts.iter_mut().find(|start| start.is_none_or(|at| now.since(at) >= MINUTE))
    }

    /// Returns when a start is allowed at the earliest.
    fn free_at(&self) -> Nanos {
        self.starts.iter().map(|start| start.map_or(Nanos(0), |at| at.plus(MINUTE))).min().unwrap_or_default()
    }
}

/// Traces one path at a time.
#[derive(Debug)]
pub struct Tracer {
    /// Number of source ports per family. 0 if nothing is traced.
    flows: u8,
    /// Whether requests are subject to the budget.
    is_budgeted: bool,
    wants: Wants,
    losing: Budget<TRACES_PER_MINUTE>,
    /// When traces of paths that lose may begin, so that they have a bound in the whole mesh.
    rota: Rota,
    /// The end of the pause after the last trace.
    rested_at: Nanos,
    /// When [`Tracer::due`] was called last.
    now: Nanos,
    healthy: Budget<BASELINES_PER_MINUTE>,
    /// Number of the current or last trace.
    number: u32,
    run: Option<Run>,
    baselines: Baselines,
    /// The latest traces, at most one per slot.
    kept: List<Trace>,
    /// The slot of a trace that has just ended.
    finished: Option<SlotId>,
    /// Whether the traces that are kept have changed.
    has_changed: bool,
}

impl Tracer {
    /// Makes a tracer for `flows` source ports, at least one.
    pub fn new(flows: u8) -> Self {
        Self {
            flows: flows.max(1),
            is_budgeted: true,
            wants: Wants::default(),
            losing: Budget::NEW,
            rota: Rota::ALWAYS,
            rested_at: Nanos(0),
            now: Nanos(0),
            healthy: Budget::NEW,
            number: 0,
            run: None,
            baselines: Baselines::new(),
            kept: List::new(TRACES_KEPT),
            finished: None,
            has_changed: false,
        }
    }

    /// Makes a tracer for a command, which requests few traces. They follow each other at once.
    pub fn for_command(flows: u8) -> Self {
        Self { is_budgeted: false, ..Self::new(flows) }
    }

    /// Stops all traces: without ICMP errors, no hop of a path is known.
    pub const fn stop(&mut self) {
        self.flows = 0;
    }

    /// Sets the number of members of the mesh, from which the times of traces follow.
    pub fn set_mesh(&mut self, node: &str, members: u32) {
        self.rota = Rota::new(node, members);
    }

    /// Returns whether no trace is in progress or requested.
    pub fn is_idle(&self) -> bool {
        self.run.is_none() && self.wants.is_empty()
    }

    /// Makes room for `slots` slots.
    pub fn reserve(&mut self, slots: usize) {
        self.baselines.reserve(slots);
    }

    /// Applies a change of the list. `moved` says whether a [`Change::Probe`] has another address
    /// than before.
    pub fn apply(&mut self, change: Change, moved: bool) {
        match change {
            Change::Join { slot } => {
                self.baselines.set_active(slot, false);
                self.forget(slot);
            }
            Change::Probe { slot, terminating, .. } => {
                if moved {
                    self.forget(slot);
                }
                self.baselines.set_active(slot, !terminating);
            }
            Change::Stop { slot } => {
                self.baselines.set_active(slot, false);
                self.wants.forget(slot);
                self.run.take_if(|run| run.trace.slot == slot);
            }
            Change::Zone { .. } => {}
        }
    }

    /// Forgets everything about a slot, because its address has changed.
    fn forget(&mut self, slot: SlotId) {
        self.baselines.forget(slot);
        self.wants.forget(slot);
        self.run.take_if(|run| run.trace.slot == slot);
        if let Some(index) = self.kept.iter().position(|trace| trace.slot == slot) {
            self.remove_kept(index);
        }
    }

    /// Moves slots as `compaction` says.
    pub fn compact(&mut self, compaction: &Compaction) {
        self.baselines.compact(compaction);
        self.wants.compact(compaction);
        self.finished = self.finished.and_then(|slot| compaction.now(slot));
        if let Some(run) = &mut self.run {
            // A packet in flight carries the slot of before, and would not count.
            match compaction.now(run.trace.slot) {
                Some(slot) if slot == run.trace.slot => {}
                _ => self.run = None,
            }
        }
        for index in (0..self.kept.len()).rev() {
            let now = self.kept.get(index).and_then(|trace| compaction.now(trace.slot));
            match (now, self.kept.get_mut(index)) {
                (Some(slot), Some(trace)) => trace.rename(slot),
                _ => self.remove_kept(index),
            }
        }
    }

    /// Notes that the trace of a flow of a slot is wanted. Repeat it as long as the reason lasts: a
    /// request is dropped after a minute. It costs a few comparisons.
    pub fn want(&mut self, slot: SlotId, flow: Flow, reason: Reason, now: Nanos) {
        let is_traced = self.run.as_ref().is_some_and(|run| run.trace.slot == slot && run.trace.flow == flow);
        // A trace that says more, because the direction of the losses is known by now, is worth it.
        let says_more = |it: &Trace| !it.is_outbound() && matches!(reason, Reason::Losing { is_outbound: true, .. });
        let is_recent = |it: &Trace| it.flow == flow && now.since(it.at) < RETRACE && !says_more(it);
        let was_traced = self.last(slot).is_some_and(is_recent);
        if !is_traced && !was_traced && flow.0 < self.flows {
            self.wants.add(slot, flow, reason, now);
        }
    }

    /// Notes how many hops the probes of a slot take. If the number has changed, its baseline is
    /// traced again.
    pub fn saw_hops(&mut self, slot: SlotId, hops: u8, now: Nanos) {
        self.baselines.saw_hops(slot, hops, now);
    }

    /// Returns the next packet to send, if one is due. Call it until it returns `None`, after
    /// everything that has arrived was read. `destination` returns where a slot is probed.
    pub fn due(&mut self, now: Nanos, destination: impl Fn(SlotId) -> Option<SocketAddr>) -> Option<TraceProbe> {
        self.now = now;
        if self.run.as_ref().is_some_and(|run| run.is_over(now)) {
            self.finish(now);
        }
        if self.run.is_none() {
            self.start(now, destination);
        }
        let run = self.run.as_mut()?;
        let (ttl, index) = run.next(now)?;
        let sequence = self.number << INDEX_BITS | u32::from(index);
        Some(TraceProbe { to: run.to, slot: run.trace.slot, flow: run.trace.flow, ttl, sequence })
    }

    /// Returns when [`Tracer::due`] has something to do at the latest, if no answer arrives.
    /// Baselines have no time: they start at whatever turn comes.
    pub fn next_due(&self) -> Option<Nanos> {
        match &self.run {
            Some(run) => Some(run.next_due()),
            None if self.wants.is_empty() => None,
            None => Some(self.wanted_from(self.now)),
        }
    }

    /// Returns the first moment from `now` on in which a requested trace may begin.
    fn wanted_from(&self, now: Nanos) -> Nanos {
        if self.is_budgeted { self.rota.next(now.max(self.losing.free_at()).max(self.rested_at)) } else { now }
    }

    fn start(&mut self, now: Nanos, destination: impl Fn(SlotId) -> Option<SocketAddr>) {
        let Some((slot, flow, reason)) = self.choose(now) else { return };
        let Some(to) = destination(slot) else { return };
        let known = self.baselines.get(slot).map_or(0, |it| u8::try_from(it.hops().len()).unwrap_or(0));
        self.number = self.number.wrapping_add(1);
        self.run = Some(Run::new(&Trace::new(slot, flow, reason, now), to, known, now));
    }

    fn choose(&mut self, now: Nanos) -> Option<(SlotId, Flow, Reason)> {
        if self.flows == 0 {
            return None;
        }
        let from = self.wanted_from(now);
        if from <= now {
            let kept = &self.kept;
            let is_recent = |slot| kept.iter().any(|trace| trace.slot == slot && now.since(trace.at) < RETRACE);
            if let Some(want) = self.wants.take(now, |want| Some(u8::from(!is_recent(want.slot)))) {
                if let Some(place) = self.losing.place(now) {
                    *place = Some(now);
                }
                return Some((want.slot, want.flow, want.reason));
            }
        } else if !self.wants.is_empty() && from <= self.rested_at {
            // A baseline would lengthen the pause.
            return None;
        }
        let place = self.healthy.place(now)?;
        let slot = self.baselines.take_due(now)?;
        *place = Some(now);
        // The baseline of a slot keeps its flow, so that it can be compared with the one before.
        // Different slots have different flows, so that together they see all paths.
        let flow = self
            .baselines
            .get(slot)
            .map_or_else(|| Flow(u8::try_from(slot.index() % usize::from(self.flows)).unwrap_or(0)), Baseline::flow);
        Some((slot, flow, Reason::Hourly))
    }

    fn finish(&mut self, now: Nanos) {
        let Some(Run { mut trace, .. }) = self.run.take() else { return };
        self.rested_at = now.plus(REST);
        let baseline = self.baselines.get(trace.slot);
        trace.comparison = compare(&trace, baseline);
        if matches!(trace.reason, Reason::Losing { .. }) {
            self.keep(&trace);
        } else {
            // A change of the path is worth showing. A path as before is not.
            let has_changed = trace.comparison != Comparison::Same && baseline.is_some();
            if has_changed || trace.reason == Reason::Requested {
                self.keep(&trace);
            }
            self.baselines.keep(&trace, now);
        }
    }

    fn keep(&mut self, trace: &Trace) {
        self.finished = Some(trace.slot);
        self.has_changed = true;
        if let Some(place) = self.kept.iter_mut().find(|it| it.slot == trace.slot) {
            *place = *trace;
        } else if !self.kept.push(*trace)
            && let Some(oldest) = self.kept.iter_mut().min_by_key(|it| it.at)
        {
            *oldest = *trace;
        }
    }

    fn remove_kept(&mut self, index: usize) {
        self.has_changed = true;
        if let Some(last) = self.kept.last().copied() {
            if let Some(place) = self.kept.get_mut(index) {
                *place = last;
            }
            self.kept.resize(self.kept.len() - 1, last);
        }
    }

    /// Records that the kernel did not send a packet.
    pub fn not_sent(&mut self, sequence: u32) {
        if let Some((run, index)) = self.of(sequence) {
            run.not_sent(index);
        }
    }

    /// Sets when a packet has left, according to the kernel.
    pub fn departed(&mut self, sequence: u32, moment: Moment) {
        if let Some((run, index)) = self.of(sequence) {
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

    fn of(&mut self, sequence: u32) -> Option<(&mut Run, u8)> {
        let index = u8::try_from(sequence & ((1 << INDEX_BITS) - 1)).ok()?;
        let is_current = sequence >> INDEX_BITS == self.number & (u32::MAX >> INDEX_BITS);
        self.run.as_mut().filter(|_| is_current).map(|run| (run, index))
    }

    fn sent(&mut self, slot: SlotId, flow: Flow, sequence: u32) -> Option<(&mut Run, u8)> {
        self.of(sequence).filter(|(run, _)| run.trace.slot == slot && run.trace.flow == flow)
    }

    /// Returns the latest trace of a slot that was requested or has shown another path.
    pub fn last(&self, slot: SlotId) -> Option<&Trace> {
        self.kept.iter().find(|trace| trace.slot == slot)
    }

    /// Returns the trace that has ended since the last call, if it was kept.
    pub fn take_finished(&mut self) -> Option<&Trace> {
        let slot = self.finished.take()?;
        self.last(slot)
    }

    /// Returns the traces that are kept, at most one per slot.
    pub fn kept(&self) -> &[Trace] {
        &self.kept
    }

    /// Returns whether the traces that are kept have changed since [`Tracer::published`].
    pub const fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Notes that the traces were copied to where other threads read them.
    pub const fn published(&mut self) {
        self.has_changed = false;
    }

    /// Returns the last complete path of a slot.
    pub fn baseline(&self, slot: SlotId) -> Option<&Baseline> {
        self.baselines.get(slot)
    }

    /// Returns the resident bytes of all tables, in whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.baselines.resident_bytes() + self.kept.resident_bytes()
    }
}
