//! Descriptors, and options of sockets that no library sets.
#![expect(unsafe_code, reason = "options and calls without a safe wrapper; each block says why it is sound")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use socket2::SockFilter;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const ON: libc::c_int = 1;

/// Returns a duplicate of `fd` that is closed on exec. It is for a library that gives the number of
/// its descriptor alone, which the library must still own: another number has another duplicate.
///
/// # Errors
/// The error of `fcntl`, for example if no descriptor is left.
pub fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers alone, and refuses one that is no descriptor.
    let duplicate = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, libc::STDERR_FILENO + 1) };
    if duplicate < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(duplicate) })
}

/// Registers `fd` with tokio for reading only: with writing, every sent packet
/// would wake the thread.
///
/// # Errors
/// The error of `epoll_ctl`.
pub fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd always gives the same descriptor and keeps it open until it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// Sets one socket option. It is private, because the value of some options has addresses.
fn set<T>(fd: &impl AsFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    // SAFETY: `value` outlives the call, and `length` is its size.
    let done = unsafe { libc::setsockopt(fd.as_fd().as_raw_fd(), level, name, (&raw const *value).cast(), length) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the kernel stamp every packet in software (`SO_TIMESTAMPING`, real time): when it arrives
/// from the device, and when it is handed to the device. The second timestamp is returned with the
/// packet on the error queue.
///
/// Rejected: `SO_TIMESTAMPNS`. If the kernel has not started to stamp yet, it returns the time of
/// reading as if it were a timestamp.
///
/// # Errors
/// The error of `setsockopt`.
pub fn stamp_all(fd: &impl AsFd) -> io::Result<()> {
    let flags =
        libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    set(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)
}

/// Makes the kernel stamp every packet in software when it arrives. Packets that leave are stamped
/// only if their control messages ask for it.
///
/// # Errors
/// The error of `setsockopt`.
pub fn stamp_arrivals(fd: &impl AsFd) -> io::Result<()> {
    let flags = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    set(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)
}

/// Makes packets arrive with their time to live, or hop limit.
///
/// # Errors
/// The error of `setsockopt`.
pub fn deliver_ttl(fd: &impl AsFd, over_ipv6: bool) -> io::Result<()> {
    let of_v6 = (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT);
    let (level, name) = if over_ipv6 { of_v6 } else { (libc::IPPROTO_IP, libc::IP_RECVTTL) };
    set(fd, level, name, &ON)
}

/// Makes packets arrive with the address that they were sent to.
///
/// # Errors
/// The error of `setsockopt`.
pub fn deliver_destination(fd: &impl AsFd, over_ipv6: bool) -> io::Result<()> {
    let of_v6 = (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO);
    let (level, name) = if over_ipv6 { of_v6 } else { (libc::IPPROTO_IP, libc::IP_PKTINFO) };
    set(fd, level, name, &ON)
}

/// Makes ICMP errors about packets of this socket arrive on its error queue.
///
/// # Errors
/// The error of `setsockopt`.
pub fn deliver_errors(fd: &impl AsFd, over_ipv6: bool) -> io::Result<()> {
    let of_v6 = (libc::IPPROTO_IPV6, libc::IPV6_RECVERR);
    let (level, name) = if over_ipv6 { of_v6 } else { (libc::IPPROTO_IP, libc::IP_RECVERR) };
    set(fd, level, name, &ON)
}

/// Makes the kernel never fragment a datagram, whatever it believes of the path
/// (`IP_PMTUDISC_PROBE`).
///
/// # Errors
/// The error of `setsockopt`.
pub fn never_fragment(fd: &impl AsFd, over_ipv6: bool) -> io::Result<()> {
    if over_ipv6 {
        set(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, &libc::IPV6_PMTUDISC_PROBE)?;
        set(fd, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, &ON)
    } else {
        set(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &libc::IP_PMTUDISC_PROBE)
    }
}

/// Makes a raw ICMP socket drop all messages but echo replies.
///
/// # Errors
/// The error of `setsockopt`.
pub fn deliver_echo_replies_only(fd: &impl AsFd, over_ipv6: bool) -> io::Result<()> {
    // From linux/icmp.h and linux/icmpv6.h; the libc crate lacks them.
    const SOL_RAW: libc::c_int = 255;
    const ICMP_FILTER: libc::c_int = 1;
    const ICMP6_FILTER: libc::c_int = 1;
    const ECHO_REPLY_V6: usize = 129;
    // A set bit blocks a type. Echo reply is type 0 of ICMP for IPv4.
    if over_ipv6 {
        let mut blocked = [u32::MAX; 8];
        blocked[ECHO_REPLY_V6 / 32] &= !(1 << (ECHO_REPLY_V6 % 32));
        set(fd, libc::IPPROTO_ICMPV6, ICMP6_FILTER, &blocked)
    } else {
        set(fd, SOL_RAW, ICMP_FILTER, &!1u32)
    }
}

/// Makes bind(2) leave the choice of the port to connect(2), which may use one that other
/// connections from the same address use.
///
/// # Errors
/// The error of `setsockopt`.
pub fn choose_port_later(fd: &impl AsFd) -> io::Result<()> {
    set(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, &ON)
}

/// Sets the program that chooses one of the sockets of a port for each packet or handshake
/// (`SO_ATTACH_REUSEPORT_CBPF` of socket(7)). `fd` is one of them.
///
/// # Errors
/// The error of `setsockopt`.
pub fn choose_by(fd: &impl AsFd, program: &[SockFilter]) -> io::Result<()> {
    let len = libc::c_ushort::try_from(program.len()).map_err(io::Error::other)?;
    // A `SockFilter` is a transparent `sock_filter`, of which there are `len`. The kernel copies
    // them, and writes nothing.
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
    set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// What the kernel says of the receive queue of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveQueue {
    /// Bytes that the packets in it take, and up to a quarter of `limit` more.
    pub used: u32,
    /// Bytes that they may take.
    pub limit: u32,
    /// Number of packets that were dropped because it was full, or by the filter of the socket.
    pub drops: u32,
}

/// Returns the state of the receive queue. `None` if the kernel does not tell it. It uses
/// `SO_MEMINFO` because ping sockets never deliver `SO_RXQ_OVFL`.
pub fn receive_queue(fd: BorrowedFd<'_>) -> Option<ReceiveQueue> {
    const SK_MEMINFO_RMEM_ALLOC: usize = 0;
    const SK_MEMINFO_RCVBUF: usize = 1;
    const SK_MEMINFO_DROPS: usize = 8;
    // From asm-generic/socket.h, with the same value on x86-64 and arm64. The libc crate lacks it.
    const SO_MEMINFO: libc::c_int = 55;
    let mut info = [0u32; SK_MEMINFO_DROPS + 1];
    #[expect(clippy::cast_possible_truncation, reason = "36")]
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: `info` has the `length` bytes that the kernel may write, and both outlive the call.
    let told = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, SO_MEMINFO, info.as_mut_ptr().cast(), &raw mut length)
    };
    (told == 0 && length as usize == size_of_val(&info)).then_some(ReceiveQueue {
        used: info[SK_MEMINFO_RMEM_ALLOC],
        limit: info[SK_MEMINFO_RCVBUF],
        drops: info[SK_MEMINFO_DROPS],
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd as _;

    use super::receive_queue;

    #[test]
    fn a_queue_that_the_kernel_does_not_describe_is_unknown() {
        let (pipe, _writer) = std::io::pipe().unwrap();
        assert_eq!(receive_queue(pipe.as_fd()), None);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let queue = receive_queue(socket.as_fd()).expect("Linux has it since 4.12");
        assert_eq!((queue.used, queue.drops), (0, 0));
        assert!(queue.limit > 0);
    }
}
