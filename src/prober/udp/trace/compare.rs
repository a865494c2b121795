//! Says what a trace has found, also by comparison with the baseline of its slot.
//!
//! # Traps
//! - If answers of the destination are lost, all routers answer and the destination does not. So
//!   the last router is no cause unless the loss is known to be on the way to the destination.
//! - A baseline of another flow is another path of a fabric. That the two differ says nothing.
//! - A router that limits its errors seems to lose packets. What it does not answer says nothing;
//!   what it answers shows that packets reach it.

use std::fmt;
use std::net::IpAddr;

use super::baseline::Baseline;
use super::path::{End, Trace};

/// Hops that lose nothing are before the loss if chance explains that in less than this share of
/// cases. With 30 packets per hop, it must be a loss of 13 % or more.
const CHANCE_MAX: f64 = 0.02;

/// How a path differs from its baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// There is no baseline of this flow, and the path is complete or unknown.
    NoBaseline,
    /// The path is complete, and all hops that are known in both are the same.
    Same,
    /// The destination has not answered, and whether packets reach it is not known.
    SilentBehind {
        /// The last hop that has answered. `None` if none has.
        last: Option<IpAddr>,
    },
    /// The path is complete, and packets to all hops behind this one are lost.
    LosesBehind {
        /// The last hop that has answered all packets.
        hop: IpAddr,
    },
    /// Packets do not get farther than to this hop. `after` is `None` if no hop has answered.
    DiesAfter {
        /// The last hop that has answered.
        after: Option<IpAddr>,
        /// The next known hop of the baseline. `None` without one.
        before: Option<IpAddr>,
        /// Whether the baseline is a path of the same flow. Parallel flows may take another path.
        same_flow: bool,
    },
    /// A hop says that the destination is unreachable, or that the packet is prohibited.
    RefusedBy {
        /// The hop that says so.
        by: IpAddr,
    },
    /// The path is complete, and this is the first hop that differs from an earlier path of the
    /// same flow.
    GoesBy {
        /// The hop of the trace.
        by: IpAddr,
        /// The hop of the baseline.
        instead_of: IpAddr,
    },
    /// The path is complete and longer or shorter, and no known hop differs.
    OtherLength {
        /// Number of hops of the trace, with the destination.
        hops: u8,
        /// Number of hops of the baseline.
        instead_of: u8,
    },
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoBaseline => write!(f, "no earlier path to compare with"),
            Self::Same => write!(f, "same path"),
            Self::SilentBehind { last: Some(last) } => write!(f, "no answer from behind {last}"),
            Self::SilentBehind { last: None } => write!(f, "no hop answers"),
            Self::LosesBehind { hop } => write!(f, "loses behind {hop}"),
            Self::DiesAfter { after, before, same_flow } => {
                match after {
                    Some(after) => write!(f, "dies after {after}")?,
                    None => write!(f, "dies before the first hop")?,
                }
                match before {
                    Some(before) => {
                        let of = if same_flow { "" } else { " of another flow" };
                        write!(f, "; the path{of} went on by {before}")
                    }
                    None => Ok(()),
                }
            }
            Self::RefusedBy { by } => write!(f, "refused by {by}"),
            Self::GoesBy { by, instead_of } => write!(f, "goes by {by} instead of {instead_of}"),
            Self::OtherLength { hops, instead_of } => write!(f, "{hops} hops instead of {instead_of}"),
        }
    }
}

/// Returns how a trace that is over compares with a baseline.
pub fn compare(trace: &Trace, baseline: Option<&Baseline>) -> Comparison {
    let hops = trace.hops();
    let same_flow = baseline.is_some_and(|baseline| baseline.flow() == trace.flow);
    let last = hops.last().and_then(|hop| hop.address);
    match (trace.end, last) {
        (End::Refused, Some(by)) => return Comparison::RefusedBy { by },
        (End::Reached, _) => {}
        (End::Silent | End::Refused, after) => {
            // That routers behind this hop are silent, too, is no proof: their errors may take the
            // path back that loses the answers.
            if !trace.is_outbound() {
                return Comparison::SilentBehind { last: after };
            }
            let behind = baseline.into_iter().flat_map(|baseline| baseline.hops().skip(hops.len()));
            return Comparison::DiesAfter { after, before: behind.flatten().next(), same_flow };
        }
    }
    if let Some(hop) = loses_behind(trace) {
        return Comparison::LosesBehind { hop };
    }
    let Some(baseline) = baseline.filter(|_| same_flow) else { return Comparison::NoBaseline };
    let addresses = hops.iter().map(|hop| hop.address);
    let ours = Length { least: nearest(addresses.clone()), most: hops.len() };
    let theirs = Length { least: nearest(baseline.hops()), most: baseline.hops().len() };
    // The destination in place of a router is another length, not another way. Silent hops say
    // nothing: a router may limit its errors.
    let routers = addresses.take(ours.least - 1).zip(baseline.hops().take(theirs.least - 1));
    let mut known = routers.filter_map(|(ours, theirs)| Some((ours?, theirs?)));
    if let Some((by, instead_of)) = known.find(|(ours, theirs)| ours != theirs) {
        return Comparison::GoesBy { by, instead_of };
    }
    if ours.most < theirs.least || theirs.most < ours.least {
        let count = |hops: usize| u8::try_from(hops).unwrap_or(u8::MAX);
        return Comparison::OtherLength { hops: count(ours.most), instead_of: count(theirs.most) };
    }
    Comparison::Same
}

/// Returns the hop of a complete path behind which packets are lost, if it is certain enough: the
/// last one that has answered all packets. All hops behind it have lost some, and the destination,
/// which limits nothing, so many that it is no chance that this hop lost none.
///
/// If answers may be lost on the way back, the path of these packets says nothing.
fn loses_behind(trace: &Trace) -> Option<IpAddr> {
    let (destination, routers) = trace.hops().split_last().filter(|_| trace.is_outbound())?;
    let before = routers.iter().rev().find(|hop| hop.sent > 0 && hop.answered == hop.sent)?;
    let passed = f64::from(destination.answered) / f64::from(destination.sent.max(1));
    let is_chance = passed.powi(before.sent.into()) >= CHANCE_MAX;
    before.address.filter(|_| !is_chance)
}

/// The number of hops of a complete path. If the hops before the destination are silent, the
/// destination may be nearer than it seems: packets to these TTLs may have reached it, and been
/// lost.
#[derive(Clone, Copy)]
struct Length {
    least: usize,
    most: usize,
}

/// Returns the least number of hops of a complete path: one more than up to the last known router.
fn nearest(hops: impl ExactSizeIterator<Item = Option<IpAddr>>) -> usize {
    let routers = hops.len().saturating_sub(1);
    hops.take(routers).enumerate().filter(|(_, hop)| hop.is_some()).last().map_or(1, |(index, _)| index + 2)
}
