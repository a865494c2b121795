//! A trace in progress: which packet is next, and what an answer means.
//!
//! The packets go out in passes over the TTLs, one packet for each TTL and pass, so that the tries
//! of one hop are apart. Linux lets a router send one host six errors at once, and then one a
//! second. So the first ten passes are half a second apart, and the rest a second: such a router
//! answers all packets.

use std::net::{IpAddr, SocketAddr};

use super::path::{End, HOPS_MAX, Reason, TracedFlow};
use crate::limits::TRACE_PACKETS_MAX;
use crate::prober::{Moment, Refusal};
use crate::units::Nanos;

/// Time between two packets. Packets that could not go out between two turns follow together.
const PACE: Nanos = Nanos::from_millis(25);
/// Time that the packets of one turn make up for: ten packets.
const BURST: Nanos = Nanos::from_millis(250);
/// Time between the begins of two passes, of the first [`PASSES_LOSING`] and of later ones.
const PASS: Nanos = Nanos::from_millis(500);
const PASS_LATER: Nanos = Nanos::from_millis(1_000);
/// Time that an answer may take. It includes that our own turns are up to 250 ms apart, and those
/// of the far agent too.
const ANSWER: Nanos = Nanos::from_millis(1_500);
/// TTLs that are tried behind the last one that has answered.
const GAP: u8 = 5;
/// Packets to a TTL behind the last one that has answered, and behind the number of hops that the
/// path should have.
const SILENT_TRIES: u8 = 3;
/// Passes over a path that loses all packets, or in a direction that is not known.
const PASSES_LOSING: u8 = 10;
/// Passes over a path that is complete and loses some packets on the way there. A hop behind a loss
/// of a fifth answers this many by chance in one of 800 traces.
const PASSES_COUNTED: u8 = 30;
/// Passes over a path that a command asks for.
const PASSES_REQUESTED: u8 = 3;

#[derive(Clone, Copy, Debug)]
struct TracePacket {
    at: Nanos,
    ttl: u8,
    answered: bool,
}

/// Holds a trace that has not ended.
#[derive(Debug)]
pub struct Run {
    pub trace: TracedFlow,
    pub to: SocketAddr,
    pass: u8,
    /// When the pass began.
    pass_at: Nanos,
    /// When the next packet may leave.
    next_at: Nanos,
    last_at: Nanos,
    sent: u8,
    packets: [TracePacket; TRACE_PACKETS_MAX],
}

const TTL_MAX: u8 = 30;
const _: () = assert!(TTL_MAX as usize == HOPS_MAX && TRACE_PACKETS_MAX < u8::MAX as usize);

impl Run {
    pub fn new(trace: &TracedFlow, to: SocketAddr, now: Nanos) -> Self {
        let unsent = TracePacket { at: Nanos(0), ttl: 0, answered: true };
        Self {
            trace: *trace,
            to,
            pass: 1,
            pass_at: now,
            next_at: now,
            last_at: now,
            sent: 0,
            packets: [unsent; TRACE_PACKETS_MAX],
        }
    }

    /// Returns the number of passes, as far as the path is known.
    fn passes(&self) -> u8 {
        match self.trace.reason {
            Reason::Losing { is_outbound: true, .. } if self.trace.reached() => PASSES_COUNTED,
            Reason::Losing { .. } => PASSES_LOSING,
            Reason::Requested => PASSES_REQUESTED,
        }
    }

    /// Returns when the next pass may begin.
    const fn next_pass(&self) -> Nanos {
        self.pass_at.plus(if self.pass < PASSES_LOSING { PASS } else { PASS_LATER })
    }

    /// Returns the number of hops that the path should have; 0 if it is not known.
    const fn expected(&self) -> u8 {
        match self.trace.reason {
            Reason::Losing { hops, .. } => hops,
            Reason::Requested => 0,
        }
    }

    /// Returns the highest TTL that is worth a packet.
    fn ceiling(&self) -> u8 {
        let last = u8::try_from(self.trace.hops().len()).unwrap_or(TTL_MAX);
        if self.trace.end == End::Silent { last.saturating_add(GAP).max(self.expected()).min(TTL_MAX) } else { last }
    }

    /// Returns the next TTL of this pass.
    fn candidate(&self) -> Option<u8> {
        let is_wanted = |ttl: &u8| {
            let hop = self.trace.hop(*ttl);
            let is_behind = usize::from(*ttl) > self.trace.hops().len().max(self.expected().into());
            hop.sent < self.pass && (!is_behind || hop.sent < SILENT_TRIES)
        };
        let room = usize::from(self.sent) < TRACE_PACKETS_MAX;
        if room { (1..=self.ceiling()).find(is_wanted) } else { None }
    }

    /// Returns TTL and index of the next packet, if one is due.
    pub fn next(&mut self, now: Nanos) -> Option<(u8, u8)> {
        if now < self.next_at {
            return None;
        }
        if self.candidate().is_none() && self.pass < self.passes() && now >= self.next_pass() {
            self.pass += 1;
            self.pass_at = now;
        }
        let ttl = self.candidate()?;
        let index = self.sent;
        let packet = self.packets.get_mut(usize::from(index))?;
        *packet = TracePacket { at: now, ttl, answered: false };
        self.trace.sent(ttl);
        self.sent += 1;
        self.last_at = now;
        self.next_at = self.next_at.max(Nanos(now.0.saturating_sub(BURST.0))).plus(PACE);
        Some((ttl, index))
    }

    /// Returns whether nothing more is sent or awaited.
    pub fn is_over(&self, now: Nanos) -> bool {
        let last_pass = self.pass >= self.passes() || usize::from(self.sent) == TRACE_PACKETS_MAX;
        let awaited = || self.packets.iter().any(|packet| !packet.answered);
        last_pass && self.candidate().is_none() && (now.since(self.last_at) >= ANSWER || !awaited())
    }

    /// Returns when something is due at the latest, if no answer arrives before.
    pub fn next_due(&self) -> Nanos {
        if self.candidate().is_some() {
            self.next_at
        } else if self.pass < self.passes() && usize::from(self.sent) < TRACE_PACKETS_MAX {
            self.next_at.max(self.next_pass())
        } else {
            self.last_at.plus(ANSWER)
        }
    }

    /// Takes back a packet that the kernel has not sent.
    pub fn not_sent(&mut self, index: u8) {
        if let Some(packet) = self.open(index) {
            packet.answered = true;
            let ttl = packet.ttl;
            self.trace.not_sent(ttl);
        }
    }

    /// Sets when a packet has left, according to the kernel.
    pub fn departed(&mut self, index: u8, moment: Moment) {
        if let Some(packet) = self.open(index)
            && let Some((at, _)) = moment.departure(packet.at)
        {
            packet.at = at;
        }
    }

    fn open(&mut self, index: u8) -> Option<&mut TracePacket> {
        self.packets.get_mut(usize::from(index)).filter(|packet| !packet.answered)
    }

    /// Records the answer of the destination's reflector.
    pub fn answered(&mut self, index: u8, moment: Moment) -> bool {
        self.record(index, self.to.ip(), moment, End::Reached)
    }

    /// Records an ICMP error. Returns whether it counts.
    pub fn refused(&mut self, index: u8, offender: IpAddr, refusal: Refusal, moment: Moment) -> bool {
        let end = match refusal {
            Refusal::TimeExceeded => End::Silent,
            Refusal::Unreachable(reason) => End::Refused(reason),
            // It is about the size, and a trace has small packets.
            Refusal::TooBig { .. } => return false,
        };
        let plausible = !offender.is_unspecified() && !offender.is_multicast();
        let same_family = offender.is_ipv4() == self.to.is_ipv4();
        plausible && same_family && self.record(index, offender, moment, end)
    }

    /// Each packet has one answer. Its number says with which TTL it was sent.
    fn record(&mut self, index: u8, address: IpAddr, moment: Moment, end: End) -> bool {
        let Some(packet) = self.open(index) else { return false };
        packet.answered = true;
        let (arrived, _) = moment.arrival(packet.at, false);
        let (ttl, rtt) = (packet.ttl, arrived.since(packet.at));
        self.trace.record(ttl, address, rtt, end);
        true
    }
}
