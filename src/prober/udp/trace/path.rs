//! What a trace has found: the hops of one 5-tuple.

use std::net::IpAddr;

use super::finding::TraceFinding;
use crate::peers::SlotId;
use crate::prober::{Flow, Unreachable};
use crate::units::Nanos;

/// Largest TTL of a trace, and the number of hops it can show. Paths in a cluster have up to 10.
pub const HOPS_MAX: usize = 30;

/// One hop of a trace. 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHop {
    /// The first address that answered; `None` if none did.
    pub address: Option<IpAddr>,
    /// Number of packets sent with this TTL.
    pub sent: u8,
    /// Number of packets with this TTL that were answered.
    pub answered: u8,
    /// Shortest round-trip time in nanoseconds, up to 4.29 s.
    best_ns: u32,
}

const _: () = assert!(size_of::<TraceHop>() == 24);

impl TraceHop {
    /// A TTL without any packet.
    pub(super) const NONE: Self = Self { address: None, sent: 0, answered: 0, best_ns: u32::MAX };

    /// Returns the shortest round-trip time; `None` without an answer.
    pub fn best_rtt(&self) -> Option<Nanos> {
        (self.answered > 0).then_some(Nanos(self.best_ns.into()))
    }

    pub(super) fn record(&mut self, address: IpAddr, rtt: Nanos) {
        self.address.get_or_insert(address);
        self.answered = self.answered.saturating_add(1);
        self.best_ns = self.best_ns.min(u32::try_from(rtt.0).unwrap_or(u32::MAX));
    }
}

/// Why a path is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A command asks for it.
    Requested,
    /// The flow or the link loses.
    Losing {
        /// Whether packets are known to be lost on the way to the destination.
        is_outbound: bool,
        /// Number of hops that answers have come; 0 if it is not known. The path there may have as
        /// many.
        hops: u8,
    },
}

/// How a path ended, as the packets of its trace show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing behind the last hop has answered.
    Silent,
    /// The destination has answered.
    Reached,
    /// The last hop refused the packets for this reason.
    Refused(Unreachable),
}

/// The path of one 5-tuple, at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedFlow {
    /// The slot of the traced link.
    pub slot: SlotId,
    /// The source port of the packets.
    pub flow: Flow,
    /// Why it was traced.
    pub reason: Reason,
    /// When the trace began.
    pub at: Nanos,
    /// How the path ended.
    pub end: End,
    /// What the trace has found, if it is over.
    pub finding: TraceFinding,
    /// Number of hops up to the last one that answered.
    len: u8,
    hops: [TraceHop; HOPS_MAX],
}

impl TracedFlow {
    pub(super) const fn new(slot: SlotId, flow: Flow, reason: Reason, at: Nanos) -> Self {
        let (end, finding) = (End::Silent, TraceFinding::SilentBehind { last: None });
        Self { slot, flow, reason, at, end, finding, len: 0, hops: [TraceHop::NONE; HOPS_MAX] }
    }

    /// Returns the hops from TTL 1 to the last one that answered. Silent hops before it are
    /// included. If the destination has answered, it is the last.
    pub fn hops(&self) -> &[TraceHop] {
        self.hops.get(..self.len.into()).unwrap_or_default()
    }

    /// Returns whether it was traced because packets are lost on the way to the destination.
    pub fn is_outbound(&self) -> bool {
        matches!(self.reason, Reason::Losing { is_outbound: true, .. })
    }

    /// Returns whether the destination has answered.
    pub fn reached(&self) -> bool {
        self.end == End::Reached
    }

    /// Returns what is known of a TTL, from 1 on.
    pub(super) fn hop(&self, ttl: u8) -> TraceHop {
        let hop = ttl.checked_sub(1).and_then(|index| self.hops.get(usize::from(index)));
        hop.copied().unwrap_or(TraceHop::NONE)
    }

    pub(super) fn sent(&mut self, ttl: u8) {
        if let Some(hop) = self.hops.get_mut(usize::from(ttl).wrapping_sub(1)) {
            hop.sent = hop.sent.saturating_add(1);
        }
    }

    /// Takes back a packet that the kernel has not sent.
    pub(super) fn not_sent(&mut self, ttl: u8) {
        if let Some(hop) = self.hops.get_mut(usize::from(ttl).wrapping_sub(1)) {
            hop.sent = hop.sent.saturating_sub(1);
        }
    }

    /// Records the answer to a packet. `end` is what it says about the end of the path.
    pub(super) fn record(&mut self, ttl: u8, address: IpAddr, rtt: Nanos, end: End) {
        // Behind the end there is no path, unless something answers from there after all.
        let is_behind = match (self.end, end) {
            // What reaches the end and is refused there is lost: its agent may be replaced.
            (End::Reached, End::Refused(_)) => ttl >= self.len,
            (End::Reached, _) => ttl > self.len,
            (End::Refused(_), End::Refused(_)) => ttl > self.len || ttl == self.len && self.end != end,
            _ => false,
        };
        if is_behind {
            return;
        }
        let Some(hop) = self.hops.get_mut(usize::from(ttl).wrapping_sub(1)) else { return };
        // A router and the end may both have answered packets of one TTL, if the path has changed
        // during the trace. The end counts.
        let is_new_end = match end {
            End::Silent => false,
            End::Reached => self.end != End::Reached,
            End::Refused(_) => (self.end, self.len) != (end, ttl),
        };
        if is_new_end {
            *hop = TraceHop { sent: hop.sent, ..TraceHop::NONE };
        }
        hop.record(address, rtt);
        (self.end, self.len) = match (self.end, end) {
            // Only the end of the path is nearer than what has answered before.
            (_, End::Reached) => (end, ttl),
            (End::Reached, _) => (self.end, self.len.max(ttl)),
            (_, End::Refused(_)) => (end, ttl),
            // What was refused before passes now.
            (End::Refused(_), End::Silent) if ttl >= self.len => (end, ttl),
            (_, End::Silent) => (self.end, self.len.max(ttl)),
        };
    }
}
