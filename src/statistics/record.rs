//! What the probers observe, as the statistics count it.

use std::sync::atomic::Ordering;

use super::{FlowWay, Statistics, bump};
use crate::peers::{Family, Method, SlotId, Via, ZoneId};
use crate::prober::{Event, Observation};

impl Statistics {
    /// Counts what a prober of this method has observed. Only the probe thread calls it.
    pub fn record(&self, method: Method, observation: Observation) {
        match observation {
            Observation::Probe { slot, event, .. } => self.record_event(method, slot, event),
            Observation::Flow { slot, flow, answered, extra } => {
                if let Some(link) = self.udp(slot) {
                    link.outcome(flow, !answered, extra);
                }
            }
            Observation::FlowDirection { slot, flow, there } => {
                if let Some(link) = self.udp(slot) {
                    link.way(flow, if there { FlowWay::Out } else { FlowWay::Back });
                }
            }
            Observation::Directions { slot, there, back } => {
                if let Some(link) = self.udp(slot) {
                    link.lost(there, back);
                }
            }
            Observation::Hops { slot, hops } => {
                if let Some(link) = self.udp(slot) {
                    link.set_hops(hops);
                }
            }
            Observation::OneWay { slot, delays, apart } => {
                if let Some(link) = self.udp(slot) {
                    link.one_way(delays, apart);
                }
            }
            Observation::SynRetransmissions { slot, count } => {
                if let Some(peer) = self.method(method).slot(slot) {
                    peer.add_syn_retransmissions(count);
                }
            }
            Observation::Refused(slot) => {
                if let Some(peer) = self.method(method).slot(slot) {
                    peer.set_refused(self.halves.current());
                }
            }
            Observation::SendLag(lag) => self.send_lag.observe(lag),
            Observation::ReadDelay(delay) => self.read_delay.observe(delay),
            Observation::Skipped(probes) => bump(&self.skipped, probes),
            Observation::Unrelated => bump(&self.unrelated, 1),
        }
    }

    fn record_event(&self, method: Method, slot: SlotId, event: Event) {
        let Some(numbers) = &self.numbers[method as usize] else { return };
        let Some(peer) = numbers.slots.get(slot.index()) else { return };
        peer.record(event, self.halves.moment(), numbers.counts);
        let cell = match event {
            Event::Received { stamp, rtt, .. } => {
                bump(&self.stamps[stamp as usize], 1);
                self.zone_scale.cell(rtt)
            }
            Event::NotSent(reason) => {
                let via = Via::ALL.get(usize::from(peer.hot.via.load(Ordering::Relaxed)));
                let family = via.map_or(Family::V4, |via| via.family);
                self.send_errors.count(method, family, reason);
                0
            }
            Event::Terminating { answered } => {
                bump(&self.terminating[usize::from(!answered)], 1);
                0
            }
            Event::Sent | Event::Extra { .. } => return,
            Event::Lost | Event::Late | Event::Duplicate | Event::Corrupt => 0,
        };
        let (zone, via) = (peer.hot.zone.load(Ordering::Relaxed), peer.hot.via.load(Ordering::Relaxed));
        if let Some(pair) = numbers.zones.get(ZoneId(zone), via) {
            pair.record(event, cell);
        }
    }
}
