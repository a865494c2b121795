//! The request of a check that has come back to the agent that sent it: the agent is a backend of
//! the Service that it asks.
//!
//! The network rewrites the source of such a request, or the pod could not answer itself. So it
//! comes from an address that is no member's, and gets no answer. It proves that the way through
//! the Service works, and nothing else.

use std::sync::atomic::{AtomicU64, Ordering};

/// SSID and sequence number of the last one, as one number. The reflector sets it, and the check
/// that waits for an answer reads it.
static LAST: AtomicU64 = AtomicU64::new(0);

const fn number(ssid: u16, sequence: u32) -> u64 {
    (ssid as u64) << 32 | sequence as u64
}

/// Notes the request of a check that came from no member. Its number is random, so that of another
/// pod is not one of ours.
pub fn note(ssid: u16, sequence: u32) {
    LAST.store(number(ssid, sequence), Ordering::Relaxed);
}

/// Whether the request with this number was the last one.
pub fn is_last(ssid: u16, sequence: u32) -> bool {
    LAST.load(Ordering::Relaxed) == number(ssid, sequence)
}
