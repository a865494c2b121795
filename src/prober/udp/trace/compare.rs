//! Compares a trace with the baseline of its slot.

use std::fmt;
use std::net::IpAddr;

use super::baseline::Baseline;
use super::path::{End, Trace};

/// How a path differs from its baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// There is no baseline, and the path is complete or unknown.
    NoBaseline,
    /// The path is complete, and all hops that are known in both are the same.
    Same,
    /// Nothing has answered behind this hop. `after` is `None` if no hop has answered.
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
    /// The path is complete, and this is the first hop that differs.
    GoesBy {
        /// The hop of the trace.
        by: IpAddr,
        /// The hop of the baseline.
        instead_of: IpAddr,
        /// Whether the baseline is a path of the same flow.
        same_flow: bool,
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
        let other = |same_flow: bool| if same_flow { "" } else { " of another flow" };
        match *self {
            Self::NoBaseline => write!(f, "no earlier path to compare with"),
            Self::Same => write!(f, "same path"),
            Self::DiesAfter { after, before, same_flow } => {
                match after {
                    Some(after) => write!(f, "dies after {after}")?,
                    None => write!(f, "dies before the first hop")?,
                }
                match before {
                    Some(before) => write!(f, "; the path{} went on by {before}", other(same_flow)),
                    None => Ok(()),
                }
            }
            Self::RefusedBy { by } => write!(f, "refused by {by}"),
            Self::GoesBy { by, instead_of, same_flow } => {
                write!(f, "goes by {by} instead of {instead_of}")?;
                if same_flow { Ok(()) } else { write!(f, ", the path of another flow") }
            }
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
            let behind = baseline.into_iter().flat_map(|baseline| baseline.hops().skip(hops.len()));
            return Comparison::DiesAfter { after, before: behind.flatten().next(), same_flow };
        }
    }
    let Some(baseline) = baseline else { return Comparison::NoBaseline };
    let addresses = hops.iter().map(|hop| hop.address);
    let ours = Length { least: nearest(addresses.clone()), most: hops.len() };
    let theirs = Length { least: nearest(baseline.hops()), most: baseline.hops().len() };
    // The destination in place of a router is another length, not another way. Silent hops say
    // nothing: a router may limit its errors.
    let routers = addresses.take(ours.least - 1).zip(baseline.hops().take(theirs.least - 1));
    let mut known = routers.filter_map(|(ours, theirs)| Some((ours?, theirs?)));
    if let Some((by, instead_of)) = known.find(|(ours, theirs)| ours != theirs) {
        return Comparison::GoesBy { by, instead_of, same_flow };
    }
    if ours.most < theirs.least || theirs.most < ours.least {
        let count = |hops: usize| u8::try_from(hops).unwrap_or(u8::MAX);
        return Comparison::OtherLength { hops: count(ours.most), instead_of: count(theirs.most) };
    }
    Comparison::Same
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
