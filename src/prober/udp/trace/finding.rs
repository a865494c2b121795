//! Says what a trace has found.

use std::fmt;
use std::net::IpAddr;

use super::path::{End, TracedFlow};
use crate::prober::Unreachable;

/// Hops that lose nothing are before the loss if chance explains that in less than this share of
/// cases. With 30 packets per hop, it must be a loss of 13 % or more.
const CHANCE_MAX: f64 = 0.02;
/// A hop that answers more than this many packets fewer than the destination may limit its errors.
const LIMITED: u8 = 1;

/// What a trace that is over has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFinding {
    /// The path is complete, and no hop is known behind which packets are lost.
    Complete,
    /// The destination has not answered, and whether packets reach it is not known.
    SilentBehind {
        /// The last hop that has answered. `None` if none has.
        last: Option<IpAddr>,
    },
    /// Packets do not get farther than to this hop. `None` if no hop has answered.
    DiesAfter {
        /// The last hop that has answered.
        last: Option<IpAddr>,
    },
    /// The path is complete, and packets to all hops behind this one are lost.
    LosesBehind {
        /// The last hop that has answered all packets.
        hop: IpAddr,
        /// The hop to which it sends them. `None` if that one is silent, or answers rarely.
        next: Option<IpAddr>,
    },
    /// A hop, or the destination, says that it does not pass packets on or accept them.
    RefusedBy {
        /// The hop that says so.
        hop: IpAddr,
        /// Why it refuses them.
        reason: Unreachable,
    },
}

impl fmt::Display for TraceFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Complete => write!(f, "complete path"),
            Self::SilentBehind { last: Some(last) } => write!(f, "no answer from behind {last}"),
            Self::SilentBehind { last: None } => write!(f, "no hop answers"),
            Self::DiesAfter { last: Some(last) } => write!(f, "dies after {last}"),
            Self::DiesAfter { last: None } => write!(f, "dies before the first hop"),
            Self::LosesBehind { hop, next: Some(next) } => write!(f, "loses behind {hop}; the next hop is {next}"),
            Self::LosesBehind { hop, next: None } => write!(f, "loses behind {hop}"),
            Self::RefusedBy { hop, reason } => write!(f, "refused by {hop} ({})", reason.words()),
        }
    }
}

impl TraceFinding {
    /// Returns what a trace that is over has found.
    pub fn from_trace(trace: &TracedFlow) -> Self {
        let last = trace.hops().last().and_then(|hop| hop.address);
        match (trace.end, last) {
            (End::Reached, _) => loses_behind(trace).unwrap_or(Self::Complete),
            (End::Refused(reason), Some(hop)) => Self::RefusedBy { hop, reason },
            // That routers behind this hop are silent, too, is no proof: their errors may take the
            // path back that loses the answers.
            _ if trace.is_outbound() && trace.hop(1).sent > 0 => Self::DiesAfter { last },
            _ => Self::SilentBehind { last },
        }
    }
}

/// Returns the hop of a complete path behind which packets are lost, if it is certain enough: the
/// last one that has answered all packets. All hops behind it have lost some, and the destination,
/// which limits nothing, so many that it is no chance that this hop lost none. So a router that
/// limits its errors is never this hop. If the next one does, it is not named either: packets may
/// be lost behind it.
///
/// If answers may be lost on the way back, the path of these packets says nothing.
fn loses_behind(trace: &TracedFlow) -> Option<TraceFinding> {
    let (destination, routers) = trace.hops().split_last().filter(|_| trace.is_outbound())?;
    let at = routers.iter().rposition(|hop| hop.sent > 0 && hop.answered == hop.sent)?;
    let passed = f64::from(destination.answered) / f64::from(destination.sent.max(1));
    let is_chance = passed.powi(routers[at].sent.into()) >= CHANCE_MAX;
    let hop = routers[at].address.filter(|_| !is_chance)?;
    let next = trace.hops()[at + 1];
    let is_limited = next.answered + LIMITED < destination.answered;
    Some(TraceFinding::LosesBehind { hop, next: next.address.filter(|_| !is_limited) })
}
