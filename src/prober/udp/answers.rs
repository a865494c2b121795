//! Reads the answers to our probes.

use std::net::IpAddr;

use super::link::{self, Link};
use super::wire::{Datagram, Flow};
use crate::peers::SlotId;
use crate::prober::packet::{Codec, Label};
use crate::prober::stamp::{ErrorEstimate, NtpTime, Reply};
use crate::prober::{Clock, Engine, Event, Sink};
use crate::sys::region::List;
use crate::units::Nanos;

/// What it takes to read an answer.
pub struct Answers<'a> {
    pub codec: &'a Codec,
    pub engine: &'a mut Engine,
    links: &'a mut List<Link>,
    /// Port of the reflectors.
    port: u16,
    /// How far our clock is to be trusted.
    error: ErrorEstimate,
    /// How far the real-time clock is ahead of the monotonic clock.
    ahead: i64,
    /// Set if another node begins or ceases to answer for a peer.
    news: &'a mut bool,
}

impl<'a> Answers<'a> {
    pub fn new(
        codec: &'a Codec,
        engine: &'a mut Engine,
        links: &'a mut List<Link>,
        (port, error): (u16, ErrorEstimate),
        news: &'a mut bool,
        clock: &impl Clock,
    ) -> Self {
        let ahead = clock.realtime().0.wrapping_sub(clock.now().0).cast_signed();
        Self { codec, engine, links, port, error, ahead, news }
    }

    /// Reads a datagram. Returns whether it answers a probe that was sent over this flow to its
    /// source.
    pub fn read(&mut self, flow: Flow, datagram: &Datagram<'_>, sink: &mut impl Sink) -> bool {
        let Some(reply) = Reply::read(datagram.bytes).filter(|_| datagram.from.port() == self.port) else {
            return false;
        };
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are in the label")]
        let low = reply.sender_sequence as u16;
        let from = datagram.from.ip();
        let Some(label) = reply.padding.and_then(|padding| self.codec.identify(padding, low, from)) else {
            return false;
        };
        let sight = self.engine.sight(label, datagram.moment);
        // The answer to a probe over another flow says nothing about this one.
        if sight.is_some_and(|sight| link::read(sight.tag).0 != flow) {
            return false;
        }
        if self.is_of_other(label, from, &reply) {
            if let Some((slot, event)) = self.engine.answered_by_other(label, from) {
                sink.event_of_reply(slot, low, event);
            }
            return true;
        }
        let dwell = reply.dwell().unwrap_or_default();
        let Some((slot, events)) = self.engine.reply_after(label, from, datagram.moment, Some(dwell)) else {
            return false;
        };
        let counted = events.into_iter().flatten().filter(|event| !matches!(event, Event::Extra { .. }));
        counted.for_each(|event| sink.event_of_reply(slot, low, event));
        let (Some(link), Some(sight)) = (self.links.get_mut(slot.index()), sight) else { return true };
        let extra = matches!(events, [Some(Event::Extra { .. }), _]);
        match events {
            // Sent: the first answer at an address, whose probe counts from now on.
            [Some(Event::Received { .. } | Event::Sent | Event::Extra { answered: true }), _] => {
                sink.flow(slot, flow.0, true, extra);
                let (sequence, oldest) = (link.sequence(low), self.engine.oldest_waiting());
                if let Some(directions) = link.ways.answered(label.number, sequence, reply.count, oldest) {
                    report(slot, directions, sink);
                }
                if let Some(ttl) = datagram.ttl {
                    sink.hops(slot, hops(ttl));
                }
                let [there, back] = one_way(&reply, self.ahead, sight.sent_at, sight.at);
                sink.one_way(slot, [there, back], clocks_apart(self.error, reply.error));
            }
            // It was not lost before this moment. Its count is known, and its direction is not.
            [Some(Event::Lost | Event::Extra { .. }), _] if sight.waits => {
                sink.flow(slot, flow.0, false, extra);
                link.ways.hear(reply.count, true);
            }
            [Some(Event::Duplicate), _] => link.ways.hear(reply.count, false),
            _ => {}
        }
        true
    }
}

impl Answers<'_> {
    /// Whether another node than the one in the list has sent this answer to a probe of ours.
    fn is_of_other(&mut self, label: Label, from: IpAddr, reply: &Reply<'_>) -> bool {
        let Some(slot) = self.engine.slot_at(label, from) else { return false };
        let Some(link) = self.links.get_mut(slot.index()) else { return false };
        let was_of_other = link.is_of_other;
        let is_of_other = link.answers_as(reply.named);
        if is_of_other != was_of_other {
            link.ways.forget();
            *self.news = true;
        }
        is_of_other
    }
}

fn report(slot: SlotId, directions: super::ways::Directions, sink: &mut impl Sink) {
    let super::ways::Directions { there, back, flows, out } = directions;
    if there + back > 0 {
        sink.ways(slot, there, back);
    }
    for flow in (0..16).filter(|flow| flows >> flow & 1 == 1) {
        sink.flow_way(slot, flow, out);
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
fn one_way(reply: &Reply<'_>, ahead: i64, sent_at: Nanos, arrived_at: Nanos) -> [i64; 2] {
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
mod tests {
    use super::*;

    #[test]
    fn two_clocks_are_comparable_if_both_are_synchronized_in_one_format() {
        let good = ErrorEstimate::new(Nanos::from_millis(1), true);
        let apart = clocks_apart(good, good).unwrap().0;
        assert!((2_000_000..2_050_000).contains(&apart), "{apart}");
        for bad in [
            ErrorEstimate::UNKNOWN,
            ErrorEstimate { synchronized: false, ..good },
            ErrorEstimate { ptp: true, ..good },
            // RFC 4656: the multiplier must not be zero.
            ErrorEstimate { multiplier: 0, ..good },
        ] {
            assert_eq!(clocks_apart(good, bad), None, "{bad:?}");
        }
        assert_eq!(clocks_apart(ErrorEstimate::UNKNOWN, good), None);
    }

    #[test]
    fn hops_are_counted_from_the_usual_starts() {
        assert_eq!([64, 63, 128, 125, 255, 250, 1, 0].map(hops), [1, 2, 1, 4, 1, 6, 64, 65]);
    }
}
