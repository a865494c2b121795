//! UDP probes and their reflector, over one socket for each source port.
//!
//! # Traps
//! - A socket with `IP_RECVERR` reports an ICMP error about an earlier datagram by a failure of the
//!   next call, whatever that call sends.
//! - An answer of a socket that is bound to all addresses leaves from the address that the routing
//!   table prefers. The reflector must give it the address that the request was sent to.

mod delay;
mod exchange;
mod explorer;
pub mod mtu;
mod open;
mod packets;
mod reflecting;
pub mod route;
mod session;
pub mod socket;
pub mod stamp;
pub mod trace;
mod ways;
pub mod wire;

pub use exchange::Udp;
pub use explorer::Explorer;
pub use open::UdpSocketError;
pub use reflecting::Reflecting;
pub use socket::UdpSockets;
pub use wire::{Answer, Reflected, UdpWire};
