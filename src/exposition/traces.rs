//! The latest traces of paths that lose or have changed, as the HTTP workers read them.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use crate::limits::TRACES_KEPT;
use crate::prober::udp::trace::{HOPS_MAX, Trace};
use crate::report::{self, HOPS_LISTED_MAX, Hop};
use crate::sys::clock;

// A reader refuses a longer list.
const _: () = assert!(HOPS_MAX <= HOPS_LISTED_MAX);

/// The traces, at most [`TRACES_KEPT`], each with the address that it is about and its source port.
/// They are found by address: a slot may have another peer by now.
#[derive(Debug, Default)]
pub struct Traces(Mutex<Vec<(IpAddr, u16, Trace)>>);

impl Traces {
    /// Replaces the traces, unless a worker reads them now. Returns whether it did.
    pub fn replace(&self, traces: impl Iterator<Item = (IpAddr, u16, Trace)>) -> bool {
        let Ok(mut kept) = self.0.try_lock() else { return false };
        kept.clear();
        kept.extend(traces.take(TRACES_KEPT));
        true
    }

    /// Returns the trace of the path to this address, if there is one.
    pub fn find(&self, address: IpAddr) -> Option<report::Trace<'static>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, source_port, trace) = kept.iter().find(|(of, ..)| *of == address)?;
        Some(report::Trace {
            source_port: *source_port,
            at_unix_seconds: clock::realtime_of(trace.at).as_secs(),
            reached: trace.reached(),
            says: Cow::Owned(trace.comparison.to_string()),
            hops: trace.hops().iter().map(|hop| Hop(hop.address)).collect(),
            sent: trace.hops().iter().map(|hop| hop.sent).collect(),
            answered: trace.hops().iter().map(|hop| hop.answered).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prober::udp::trace::Comparison;

    #[test]
    fn what_an_agent_says_of_any_trace_is_accepted_by_the_readers_of_its_report() {
        let (v4, v6) = (IpAddr::from([203, 255, 255, 255]), IpAddr::from([0xfffe_u16; 8]));
        let mapped = IpAddr::from([0_u16, 0, 0, 0, 0, 0xffff, 0xcbff, 0xffff]);
        let with = |by: IpAddr, instead_of: IpAddr, same_flow: bool| {
            let all = [(Some(by), None), (None, None), (Some(by), Some(instead_of)), (None, Some(instead_of))];
            let dies = all.map(|(after, before)| Comparison::DiesAfter { after, before, same_flow });
            let behind = [Comparison::LosesBehind { hop: by }, Comparison::SilentBehind { last: Some(by) }];
            [&dies[..], &behind, &[Comparison::RefusedBy { by }, Comparison::GoesBy { by, instead_of }]].concat()
        };
        let silent = Comparison::SilentBehind { last: None };
        let longer = Comparison::OtherLength { hops: 9, instead_of: 255 };
        let others = [Comparison::NoBaseline, Comparison::Same, silent, longer];
        let all =
            [(v4, v6, true), (v6, v6, false), (mapped, v4, false)].map(|(by, of, same)| with(by, of, same)).concat();
        for comparison in all.iter().chain(&others) {
            let says = Cow::Owned(comparison.to_string());
            let text = serde_json::to_string(&report::Trace { says, ..report::Trace::default() }).unwrap();
            assert!(serde_json::from_str::<report::Trace<'_>>(&text).is_ok(), "{text}");
        }
    }
}
