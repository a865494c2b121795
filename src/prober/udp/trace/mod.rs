//! Traces of one 5-tuple, without a privilege: UDP packets with small TTLs from a flow's own source
//! port to the peer's reflector, and the ICMP errors that the kernel puts on the error queue.
//!
//! ```text
//! want ─► run (one trace at a time) ─► path ─► finding
//! ```
//!
//! No packet is sent here, and no clock is read: [`Tracer::due`] says what to send, and the prober
//! passes on what has come back.
//!
//! # Budget
//! An agent traces a path only while it loses packets itself over some of its links, and not over
//! most of them: then the cause is near, and all traces would tell the same. It traces one path at
//! a time, a link once in ten minutes, and begins [`crate::limits::TRACES_PER_MINUTE`] at most,
//! fewer in a mesh of more than 600. A trace has at most [`crate::limits::TRACE_PACKETS_MAX`]
//! packets of 100 bytes and ends after some 30 s. A router gets at most 30 packets of it that it
//! must answer, unless it is in a loop or refuses them.
//!
//! # Traps
//! - Packets of one trace must take one path, so the source port is that of the flow. Neither TTL
//!   nor payload is part of the hash of a router.
//! - A silent hop is no dead hop: routers limit their errors, or send none. Only if nothing behind
//!   a hop answers, the destination included, the path dies there.
//! - If answers of the destination are lost, all routers answer and the destination does not. So
//!   the last router is no cause unless the loss is known to be on the way to the destination.
//! - An error counts only if it quotes the check, the number and the flow of a packet that was sent
//!   and not answered. A router that quotes 8 bytes of the packet, the least that RFC 792 asks for,
//!   shows as silent. Linux and the switches of large clusters quote more (RFC 1812, 4.3.2.3).
//! - An overlay hides the hops of the underlay. Its path has two or three hops.

mod finding;
mod path;
mod run;
#[cfg(test)]
mod tests;
mod tracer;

pub use finding::TraceFinding;
pub use path::{End, HOPS_MAX, Reason, TraceHop, TracedFlow};
pub use tracer::{TraceProbe, Tracer};
