//! What the UDP prober and its reflector tell statistics, path searches and traces, once a second.

use kube_canary_kernel::ntp;

use super::ProbeLoop;
use crate::limits::FLOW_PROBES_PER_SECOND;
use crate::peers::{Method, SlotId};
use crate::prober::Flow;
use crate::prober::udp::UdpWire as _;
use crate::prober::udp::mtu::{PathMtu, PathState};
use crate::prober::udp::stamp::ErrorEstimate;
use crate::prober::udp::trace::Reason;
use crate::statistics::{FlowWay, MtuReading, RecentReading};
use crate::units::Nanos;

impl ProbeLoop {
    /// Publishes how many requests of each peer the reflector has counted in the recent window.
    pub(super) fn publish_heard(&mut self, now: Nanos) {
        let (statistics, slots) = (&self.view.statistics, self.slots);
        let (Some(udp), Some((begun, half, current))) = (&mut self.probers.udp, statistics.recent_halves()) else {
            return;
        };
        self.heard_half = current;
        udp.reflecting().reflector.set_halves(begun, half);
        for slot in (0..slots).map(SlotId::at) {
            if let (Some(link), Some(address)) = (statistics.udp(slot), udp.address(slot)) {
                link.set_heard(udp.reflecting().reflector.heard(address, now));
            }
        }
    }

    /// Publishes what the reflector has refused and what is known of paths. Flows that may lose are
    /// probed more often, and the path of one that loses is traced.
    pub(super) fn serve_udp(&mut self, now: Nanos) {
        let statistics = &self.view.statistics;
        let Some(udp) = &mut self.probers.udp else { return };
        let Some(explorer) = &mut self.probers.explorer else { return };
        statistics.set_requests_refused(udp.reflecting().reflector.refusals().sum());
        self.view.strangers.set_heard(udp.reflecting().reflector.strangers(now));
        let slots = self.slots;
        let mut extras = FLOW_PROBES_PER_SECOND.min(slots);
        let (mut links, mut worst) = (AgentLinks::default(), None);
        for index in 0..slots {
            // Each second begins at another slot, so that the budget serves all of them.
            let slot = SlotId::at((index + self.first_extra) % slots);
            let Some(link) = statistics.udp(slot) else { return };
            link.set_mtu(mtu(explorer.mtu.path(slot)));
            if extras > 0
                && let Some(flow) = link.take_suspect()
            {
                extras -= usize::from(udp.probe_flow(slot, Flow(flow)));
            }
            let flows = link.flows();
            // A slot keeps the figures of a peer that has left.
            if udp.address(slot).is_none() || !flows.are_probed() {
                continue;
            }
            links.probed += 1;
            let Some((flow, percent)) = flows.trace_candidate() else { continue };
            // The counts of the flows reach further back than the recent window.
            let recent = statistics.method(Method::Udp).recent(slot, now).filter(|recent| recent.lost > 0);
            let Some(recent) = recent else { continue };
            links.losing += 1;
            let way = link.flow_ways()[usize::from(flow)];
            // The path there says nothing of losses on the way back.
            if way != FlowWay::Back && explorer.tracer.may_trace(slot, now) {
                let is_outbound = way == FlowWay::Out || is_deaf(&recent, link.heard());
                // Each link has its turn.
                let age = explorer.tracer.last(slot).map_or(Nanos(u64::MAX), |trace| now.since(trace.at));
                let rank = (is_outbound, explorer.tracer.is_waiting(slot), age, percent);
                worst = worst.max(Some((rank, slot, flow, link.hops().unwrap_or_default())));
            }
        }
        if let Some(((is_outbound, ..), slot, flow, hops)) = worst.filter(|_| links.are_few_losing()) {
            explorer.tracer.want(slot, Flow(flow), Reason::Losing { is_outbound, hops }, now);
        }
        self.view.traces.replace(explorer.tracer.kept().iter().filter_map(|trace| {
            let address = udp.address(trace.slot)?;
            let port = udp.wire_ref().source_port(trace.flow, address.is_ipv6())?;
            Some((address, port, *trace))
        }));
        // The largest error grows by half a millisecond in the second until the next call.
        udp.set_clock_error(ErrorEstimate::from_clock_error(ntp::realtime_error()));
        self.first_extra = self.first_extra.wrapping_add(1) % slots.max(1);
    }
}

/// The links of an agent.
#[derive(Default)]
struct AgentLinks {
    probed: u32,
    losing: u32,
}

impl AgentLinks {
    /// Whether the cause may be behind a hop that traces of some links show. If most links lose, it
    /// is near, and all agents would trace the same.
    const fn are_few_losing(&self) -> bool {
        self.losing < 2 || self.losing * 2 <= self.probed
    }
}

/// Whether nothing reaches a peer, though its requests reach us: at least half as many in the same
/// window. Without any answer, no count of its reflector tells the direction.
fn is_deaf(recent: &RecentReading, heard: Option<u32>) -> bool {
    recent.received == 0 && heard.unwrap_or(0) >= recent.sent.div_ceil(2)
}

/// Returns what is shown of a path's MTU.
const fn mtu(path: PathMtu) -> MtuReading {
    match path.state {
        PathState::Unknown => MtuReading::Unknown,
        PathState::Full => MtuReading::Full { bytes: path.path_mtu_bytes },
        PathState::HoleSilent => MtuReading::Hole { passes: path.path_mtu_bytes, is_said: false },
        PathState::HoleSaid => MtuReading::Hole { passes: path.path_mtu_bytes, is_said: true },
    }
}
