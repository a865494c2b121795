//! The latest traces of paths that lose, as the HTTP workers read them.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use crate::limits::TRACES_KEPT;
use crate::prober::udp::trace::{HOPS_MAX, TracedFlow};
use crate::report::{self, HOPS_LISTED_MAX, Hop};
use crate::sys::clock;

// A reader refuses a longer list.
const _: () = assert!(HOPS_MAX <= HOPS_LISTED_MAX);

/// The traces, at most [`TRACES_KEPT`], each with the address that it is about and its source port.
/// They are found by address: a slot may have another peer by now.
#[derive(Debug, Default)]
pub struct PeerTraces(Mutex<Vec<(IpAddr, u16, TracedFlow)>>);

impl PeerTraces {
    /// Replaces the traces, unless a worker reads them now. They are replaced each second.
    pub fn replace(&self, traces: impl Iterator<Item = (IpAddr, u16, TracedFlow)>) {
        if let Ok(mut kept) = self.0.try_lock() {
            kept.clear();
            kept.extend(traces.take(TRACES_KEPT));
        }
    }

    /// Returns the trace of the path to this address, if there is one.
    pub fn find(&self, address: IpAddr) -> Option<report::Trace<'static>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, source_port, trace) = kept.iter().find(|(traced, ..)| *traced == address)?;
        Some(report::Trace {
            source_port: *source_port,
            at_unix_seconds: clock::realtime_of(trace.at).as_secs(),
            reached: trace.reached(),
            says: Cow::Owned(trace.finding.to_string()),
            hops: trace.hops().iter().map(|hop| Hop(hop.address)).collect(),
            sent: trace.hops().iter().map(|hop| hop.sent).collect(),
            answered: trace.hops().iter().map(|hop| hop.answered).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prober::Unreachable;
    use crate::prober::udp::trace::TraceFinding;

    #[test]
    fn what_an_agent_says_of_any_trace_is_accepted_by_the_readers_of_its_report() {
        let mapped = IpAddr::from([0_u16, 0, 0, 0, 0, 0xffff, 0xcbff, 0xffff]);
        let addresses = [IpAddr::from([203, 255, 255, 255]), IpAddr::from([0xfffe_u16; 8]), mapped];
        let mut all = vec![TraceFinding::Complete];
        for hop in addresses {
            let (some, none) = (Some(hop), None);
            all.extend([some, none].map(|last| TraceFinding::SilentBehind { last }));
            all.extend([some, none].map(|last| TraceFinding::DiesAfter { last }));
            all.extend([some, none].map(|next| TraceFinding::LosesBehind { hop, next }));
            let reasons = [Unreachable::Network, Unreachable::Host, Unreachable::Port, Unreachable::Prohibited];
            all.extend(reasons.map(|reason| TraceFinding::RefusedBy { hop, reason }));
        }
        for finding in all {
            let says = Cow::Owned(finding.to_string());
            let text = serde_json::to_string(&report::Trace { says, ..report::Trace::default() }).unwrap();
            assert!(serde_json::from_str::<report::Trace<'_>>(&text).is_ok(), "{text}");
        }
    }
}
