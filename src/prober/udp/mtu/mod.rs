//! The search for the path MTU, and for holes in it: sizes that vanish though smaller packets pass.
//!
//! ```text
//! check (once a minute and pair) ─► search: is there a hole? ─► how large is it? ─► path (8 bytes)
//! ```
//!
//! A check is one packet of the route's full size with DF set (`IP_PMTUDISC_PROBE`: the kernel
//! neither fragments it nor obeys what it has learned). The answer must be small, so that only
//! this direction is measured; the peer's own search measures the other. If the packet is lost, a
//! search begins on the same 5-tuple ([`evidence`]). It confirms the hole in two rounds and then
//! bisects. A hole is reported once it is known to 8 bytes, and then to one.
//!
//! No packet is sent here, and no clock is read.
//!
//! # Time
//! With the default timeout, a search takes at most 12 s to confirm a hole, and 3 s for each of at
//! most 14 sizes. The next check comes after at most a minute. So a hole is reported within two
//! minutes, also for packets of 9,000 bytes. If it hits all paths at once, the budget is shared:
//! the first results are the first guesses for the others. While a hole is known, all pairs are
//! checked every 10 s, so its end is known as soon.
//!
//! # Budget
//! [`crate::limits::MTU_PROBES_PER_SECOND`] large packets per second leave in total. A healthy pair
//! costs one per minute. While a hole is known, a pair costs six, and a pair with a hole 18.
//!
//! # Traps
//! - A hole may be on one of several parallel paths. A check uses one flow, and the next check of
//!   the pair uses the next flow. A search stays on its flow, and so do the checks of a known hole.
//! - "Fragmentation needed" (RFC 792) and "packet too big" (RFC 4443) count only if they quote a
//!   packet that is in flight, and say an MTU that is possible. They never report a hole by
//!   themselves: a size that is answered passes, whatever was said.
//! - An answer may come after its packet was counted lost. It still proves that its size passes.

pub mod evidence;
mod flights;
mod mtu_search;
mod path;
mod search;
#[cfg(test)]
mod tests;

pub use mtu_search::{MtuProbe, MtuSearch, Route, payload_bytes};
pub use path::{PathMtu, PathState};
