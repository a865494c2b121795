//! What the probers report, as the statistics count it.

use std::sync::atomic::Ordering;

use super::{FlowWay, Statistics, bump};
use crate::peers::{Family, Method, SlotId, Via, ZoneId};
use crate::prober::{Event, Sink};
use crate::units::Nanos;

/// The writer's handle of one method, used by the probe loop.
#[derive(Clone, Copy, Debug)]
pub struct MethodSink<'a> {
    statistics: &'a Statistics,
    method: Method,
}

impl<'a> MethodSink<'a> {
    pub(super) const fn new(statistics: &'a Statistics, method: Method) -> Self {
        Self { statistics, method }
    }
}

impl Sink for MethodSink<'_> {
    fn event(&mut self, slot: SlotId, event: Event) {
        let Self { statistics, method } = *self;
        let Some(numbers) = &statistics.numbers[method as usize] else { return };
        let Some(peer) = numbers.slots.get(slot.index()) else { return };
        peer.record(event, statistics.halves.moment(), numbers.counts);
        let cell = match event {
            Event::Received { stamp, rtt, .. } => {
                bump(&statistics.stamps[stamp as usize], 1);
                statistics.zone_scale.cell(rtt)
            }
            Event::Lost => 0,
            Event::NotSent(reason) => {
                let via = Via::ALL.get(usize::from(peer.hot.via.load(Ordering::Relaxed)));
                let family = via.map_or(Family::V4, |via| via.family);
                return statistics.send_errors.count(method, family, reason);
            }
            Event::Terminating { answered } => return bump(&statistics.terminating[usize::from(!answered)], 1),
            _ => return,
        };
        let (zone, via) = (peer.hot.zone.load(Ordering::Relaxed), peer.hot.via.load(Ordering::Relaxed));
        if let Some(pair) = numbers.zones.get(ZoneId(zone), via) {
            pair.record(event, cell);
        }
    }

    fn flow(&mut self, slot: SlotId, flow: u8, answered: bool, extra: bool) {
        if let Some(link) = self.statistics.udp(slot) {
            link.outcome(flow, !answered, extra);
        }
    }

    fn flow_way(&mut self, slot: SlotId, flow: u8, out: bool) {
        if let Some(link) = self.statistics.udp(slot) {
            link.way(flow, if out { FlowWay::Out } else { FlowWay::Back });
        }
    }

    fn ways(&mut self, slot: SlotId, lost_there: u32, lost_back: u32) {
        if let Some(link) = self.statistics.udp(slot) {
            link.lost(lost_there, lost_back);
        }
    }

    fn syn_retransmissions(&mut self, slot: SlotId, count: u32) {
        if let Some(peer) = self.statistics.of(self.method).slot(slot) {
            peer.add_syn_retransmissions(count);
        }
    }

    fn refused(&mut self, slot: SlotId) {
        if let Some(peer) = self.statistics.of(self.method).slot(slot) {
            peer.set_refused(self.statistics.halves.current());
        }
    }

    fn hops(&mut self, slot: SlotId, hops: u8) {
        if let Some(link) = self.statistics.udp(slot) {
            link.set_hops(hops);
        }
    }

    fn one_way(&mut self, slot: SlotId, delays: [i64; 2], apart: Option<Nanos>) {
        if let Some(link) = self.statistics.udp(slot) {
            link.one_way(delays, apart);
        }
    }

    fn send_lag(&mut self, lag: Nanos) {
        self.statistics.send_lag.observe(lag);
    }

    fn read_delay(&mut self, delay: Nanos) {
        self.statistics.read_delay.observe(delay);
    }

    fn skipped(&mut self, probes: u64) {
        bump(&self.statistics.skipped, probes);
    }

    fn unrelated(&mut self) {
        bump(&self.statistics.unrelated, 1);
    }
}
