//! The latest traces of paths that lose or have changed, as the HTTP workers read them.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use crate::limits::TRACES_KEPT;
use crate::prober::udp::trace::Trace;
use crate::report;
use crate::sys::clock;

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
        let name = |address: Option<IpAddr>| address.map_or(Cow::Borrowed("*"), |it| Cow::Owned(it.to_string()));
        Some(report::Trace {
            source_port: *source_port,
            at_unix_seconds: clock::realtime_of(trace.at).as_secs(),
            reached: trace.reached(),
            says: Cow::Owned(trace.comparison.to_string()),
            hops: trace.hops().iter().map(|hop| name(hop.address)).collect(),
        })
    }
}
