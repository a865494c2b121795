//! What the kernel knows of a TCP socket: `TCP_INFO` of tcp(7).
#![expect(unsafe_code, reason = "the option has no safe wrapper")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use kube_canary_model::units::Nanos;

/// What the kernel knows about a connection.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// State of the connection: a number of linux/tcp_states.h.
    pub state: u8,
    /// Smoothed round-trip time. After one sample, it is that sample.
    pub rtt: Nanos,
    /// Number of segments that were repeated.
    pub retransmissions: u32,
    /// Number of segments that have left again and are not acknowledged.
    pub repeated_in_flight: u32,
}

/// State of a connection whose SYN is not answered.
pub const SYN_SENT: u8 = 2;
/// State of a connection whose SYN was answered by a SYN, and not acknowledged yet.
pub const SYN_RECEIVED: u8 = 3;
/// State of a connection that has ended, or of a handshake that has failed.
pub const CLOSED: u8 = 7;

/// Reads `TCP_INFO`.
///
/// # Errors
/// The error of `getsockopt`.
pub fn read(fd: BorrowedFd<'_>) -> io::Result<Info> {
    let info = tcp_info(fd)?;
    let rtt = Nanos(u64::from(info.tcpi_rtt) * 1_000);
    let (retransmissions, repeated_in_flight) = (info.tcpi_total_retrans, info.tcpi_retrans);
    Ok(Info { state: info.tcpi_state, rtt, retransmissions, repeated_in_flight })
}

/// Returns how many connections of a listener wait to be accepted, and how many may.
///
/// # Errors
/// The error of `getsockopt`.
pub fn backlog(fd: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    // Of a listener, these two fields have another meaning (tcp_get_info() of the kernel).
    tcp_info(fd).map(|info| (info.tcpi_unacked, info.tcpi_sacked))
}

fn tcp_info(fd: BorrowedFd<'_>) -> io::Result<libc::tcp_info> {
    // SAFETY: the structure consists of integers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of_val(&info)).map_err(io::Error::other)?;
    // SAFETY: `info` has the `length` bytes that the kernel may write, and both outlive the call.
    let done = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut length)
    };
    if done == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}
