//! STAMP, the Simple Two-Way Active Measurement Protocol: RFC 8762 without authentication, with the
//! session identifier (SSID) and the Extra Padding TLV of RFC 8972.
//!
//! This module decides and does no I/O. [`packet`] writes requests and reads answers, and [`time`]
//! has the timestamps that both carry. [`Reflector`] answers the requests of other agents.
//!
//! # Traps
//! - All that arrives comes from other pods and may be forged. No input can make this code panic,
//!   and no answer is longer than its request, so it amplifies nothing.
//! - An answer proves nothing by itself: the padding carries our keyed check
//!   ([`crate::prober::ProbeKey`]), which only the destination of the request can return.
//! - Clocks of two nodes are never compared. Each dwell time is a difference of two timestamps of
//!   one node.

mod answer;
mod members;
pub mod packet;
mod reflector;
pub mod returned;
mod strangers;
pub mod time;

pub use answer::{Reflection, set_reflected_at};
pub use packet::{Named, StampReply};
pub use reflector::{Reflector, Refusals, Refused};
pub use time::{ErrorEstimate, NtpTime};
