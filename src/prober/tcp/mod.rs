//! Probes by TCP: one handshake per peer and [`crate::limits::TCP_INTERVAL`], and the listener that
//! answers those of others.
//!
//! Everything runs on the probe thread. [`Tcp`] decides what is sent and what is lost, over a
//! [`TcpWire`] and a [`Clock`](super::Clock). [`TcpSockets`] is the real wire. The outcomes go
//! through the same [`Engine`](super::Engine) as those of ICMP, so drains, doubts and counters
//! behave alike.
//!
//! # The time of a handshake
//! The kernel measures it from the SYN to the SYN-ACK (`tcpi_rtt` of `TCP_INFO`, in microseconds).
//! It is its first sample, and no data follows, so it is never smoothed. The thread need not wake
//! up for it: the next turn finds it. It is kept even if the other end has closed the connection
//! by then. A peer's kernel answers, not its agent, so an agent that is late delays no handshake.
//!
//! # What is lost
//! Both kernels repeat a SYN or a SYN-ACK that is not answered after one second
//! ([`REPEATED_AFTER`]). From then on the time of a handshake is not that of one exchange: the
//! answer may be to either copy. So a probe is lost if it is not answered within `--timeout`, and
//! never later than after that second. A handshake whose SYN was repeated is always lost. If it is
//! done in the end, it is lost and late, its repetitions are counted
//! ([`super::Observation::SynRetransmissions`]), and it gives no round-trip time. The connection
//! stays open for [`KEPT_FOR`] for that. A silent peer's repetitions are not counted: they say no
//! more than the loss.
//!
//! A handshake that is refused (a reset, or an ICMP error "port unreachable") is lost after the
//! same time, because the peer's pod may just be replaced. It is also counted apart
//! ([`super::Observation::Refused`]), directly after its loss. Other errors from the network are
//! silence.
//!
//! # What is not sent
//! If this host's own firewall drops the SYN, connect(2) does not say so: the handshake looks like
//! silence. But the kernel counts a repetition as sent only if it was (`tcpi_retrans` beside
//! `tcpi_total_retrans`, Linux's `tcp_retransmit_skb`). So with a timeout of [`REPEATED_AFTER`], a
//! loss is decided [`UNSENT_WAIT`] later, when the first repetition has told. A shorter timeout
//! decides before it, and such a handshake is lost.
//!
//! # What is left behind
//! The prober closes a connection by a reset (`SO_LINGER` of zero), so neither end keeps it in
//! TIME_WAIT. The listener accepts and closes in the same way, and never reads. Until it does, a
//! connection costs kernel memory only, up to [`crate::limits::TCP_BACKLOG`]. A member that floods
//! the listener costs [`crate::limits::TCP_ACCEPTS_PER_SECOND`].
//!
//! The connections of strangers wait in a queue of their own, of
//! [`crate::limits::TCP_STRANGERS_MAX`], which is emptied at most once in
//! [`crate::limits::TCP_STRANGERS_EVERY`]. The kernel drops what exceeds it.

mod connections;
mod listener;
mod refusals;
mod sockets;
mod turn;

pub use connections::Place;
pub use listener::ListenError;
pub use sockets::TcpSockets;
pub use turn::{Handshakes, Tcp};

use std::net::{IpAddr, SocketAddr};

use super::SendError;
use crate::units::Nanos;

/// When a kernel repeats a SYN or a SYN-ACK that is not answered: Linux's first retransmission
/// timeout (RFC 6298).
pub const REPEATED_AFTER: Nanos = Nanos::from_millis(1_000);
/// How long after [`REPEATED_AFTER`] the first repetition has left, or was dropped.
pub const UNSENT_WAIT: Nanos = Nanos::from_millis(150);
/// How long the connection of a lost probe stays open, counted from its SYN. Linux repeats a SYN
/// after 1, 2 and 3 s (`tcp_syn_linear_timeouts`, since Linux 6.5) or after 1 and 3 s. Measured:
/// up to 61 ms later than that.
pub const KEPT_FOR: Nanos = Nanos::from_millis(3_200);

/// State of a handshake after the call that began it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It is in flight, or done already: the next [`TcpWire::read`] finds it.
    InFlight,
    /// It was refused at once. Its place is free.
    Refused,
}

/// How a handshake has ended, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// The other end has answered with a SYN-ACK.
    Done {
        /// Time from the SYN to the SYN-ACK. It means nothing if the SYN was repeated.
        rtt: Nanos,
        /// How often the SYN was repeated.
        retransmissions: u32,
    },
    /// The other end has refused it.
    Refused {
        /// How often the SYN was repeated.
        retransmissions: u32,
    },
    /// The kernel has given up, for example because a router reported the host as unreachable.
    Failed,
}

/// How many connections of others may be accepted, per family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepts {
    /// Maximum number of those of members, and of all where the kernel does not divide them.
    pub members: usize,
    /// Maximum number of those of strangers.
    pub strangers: usize,
}

/// The seam to the network: everything that the TCP prober needs of sockets.
pub trait TcpWire {
    /// Begins a handshake with `to`, in a place that is free. Never blocks.
    ///
    /// # Errors
    /// The reason for which no SYN was sent. The place stays free.
    fn connect(&mut self, place: Place, to: SocketAddr) -> Result<Begun, SendError>;
    /// Reports the handshakes that have an outcome. Their connections are closed, and their places
    /// are free. Also accepts and closes the connections of others, up to `accepts`. Returns the
    /// number of those that were not of strangers.
    fn read(&mut self, accepts: Accepts, found: &mut dyn FnMut(Place, Handshake)) -> usize;
    /// Whether a router or the peer's kernel has refused a handshake that is still in flight.
    fn is_refused(&mut self, place: Place) -> bool;
    /// Whether this host has dropped the repeated SYN of a handshake that is still in flight.
    fn is_unsent(&mut self, place: Place) -> bool;
    /// Gives up a handshake in flight. Its place is free.
    fn close(&mut self, place: Place);
    /// Sets the addresses of members. All others are strangers. Before the first call, all are
    /// members.
    fn admit(&mut self, members: &[IpAddr]);
}

#[cfg(test)]
mod tests;
