//! Traces of one 5-tuple, without a privilege: UDP packets with small TTLs from a flow's own source
//! port to the peer's reflector, and the ICMP errors that the kernel puts on the error queue.
//!
//! ```text
//! want ─► wants ─► rota ─┐
//!                        ├─► run (one trace at a time) ─► path ─► compare ─► last
//! baselines ─────────────┘                                  └─► baselines
//! ```
//!
//! No packet is sent here, and no clock is read: [`Tracer::due`] says what to send, and the prober
//! passes on what has come back.
//!
//! # Budget
//! An agent traces one path at a time: at most [`crate::limits::TRACES_PER_MINUTE`] links or flows
//! that lose, the worst first, and [`crate::limits::BASELINES_PER_MINUTE`] healthy paths. Only
//! agents that see loss trace more than their baselines. A trace has at most
//! [`crate::limits::TRACE_PACKETS_MAX`] packets of 100 bytes and ends within 30 s. A router gets at
//! most 30 packets per trace that it must answer, and 60 a minute from one agent for loss.
//!
//! The rota (`rota.rs`) bounds the traces for loss of a whole mesh: up to 600 agents begin 120 a
//! minute, with at most 320 packets per second, and 5,000 agents 1,000 a minute.
//!
//! # Traps
//! - Packets of one trace must take one path, so the source port is that of the flow. Neither TTL
//!   nor payload is part of the hash of a router.
//! - A silent hop is no dead hop: routers limit their errors, or send none. Only if nothing behind
//!   a hop answers, the destination included, the path dies there.
//! - An error counts only if it quotes the check, the number and the flow of a packet that was sent
//!   and not answered. A router that quotes 8 bytes of the packet, the least that RFC 792 asks for,
//!   shows as silent. Linux and the switches of large clusters quote more (RFC 1812, 4.3.2.3).
//! - An overlay hides the hops of the underlay. Its path has two or three hops.

mod baseline;
mod compare;
mod path;
mod rota;
mod run;
#[cfg(test)]
mod tests;
mod tracer;
mod wants;

pub use baseline::Baseline;
pub use compare::Comparison;
pub use path::{End, HOPS_MAX, Hop, Trace};
pub use tracer::{TraceProbe, Tracer};
pub use wants::Reason;
