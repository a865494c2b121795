//! Socket options of the probe path: descriptors, timestamps, filters, buffers.
#![expect(unsafe_code, reason = "options and calls without a safe wrapper; each block says why it is sound")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use socket2::{SockFilter, SockRef};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::SocketKind;
use crate::peers::Family;
use crate::sys::lacks::Lack;

/// Packets that a raw socket may have received before its filter was attached, and that are
/// discarded. This is what its first queue holds.
const UNHEARD_PACKETS_MAX: usize = 4_096;
/// Bytes that the kernel counts for one small packet in a receive queue and for its departure on
/// the error queue, which share one limit. Each is 768 bytes on x86-64 with Linux 6, rounded up.
const RECEIVE_BYTES_PER_PEER: usize = 2 * 1_024;
/// Smallest receive buffer that is requested: what most kernels grant (`net.core.rmem_max`).
/// Replies wait for up to a quarter of a second, together with unrelated packets. The kernel grants
/// double this value. 550 small packets of 768 bytes each fit into that.
const RECEIVE_BYTES_MIN: usize = 208 * 1_024;
/// Largest receive buffer that is requested: 4,096 peers, all within one timeout. It costs memory
/// only while packets wait.
const RECEIVE_BYTES_MAX: usize = 8 << 20;

/// Returns a duplicate of `fd` that is closed on exec.
///
/// # Errors
/// The error of `fcntl`, for example if no descriptor is left.
pub fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the caller's socket is open for the whole call, and the borrow ends with it.
    unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()
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

/// Sets one socket option.
fn set<T>(fd: &impl AsRawFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    // SAFETY: `value` outlives the call, and `length` is its size.
    let done = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const *value).cast(), length) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets an option that the agent can do without. Returns whether the kernel has granted it.
fn wish<T>(fd: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T, lack: Lack) -> bool {
    lack.tolerate(&set(fd, level, name, value))
}

/// Makes the kernel stamp every packet in software (`SO_TIMESTAMPING`, real time): when it arrives
/// from the device, and when it is handed to the device. The second timestamp is returned with the
/// packet on the error queue. Returns whether the kernel has agreed. Otherwise the agent takes the
/// times itself.
///
/// Rejected: `SO_TIMESTAMPNS`. If the kernel has not started to stamp yet, it returns the time of
/// reading as if it were a timestamp.
pub fn enable_timestamps(fd: &OwnedFd) -> bool {
    let flags =
        libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    wish(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags, Lack::Stamps)
}

/// Makes the kernel stamp every packet in software when it arrives. Packets that leave are stamped
/// only if their control messages ask for it.
pub fn enable_arrival_timestamps(fd: &OwnedFd) {
    let flags = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    wish(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags, Lack::Stamps);
}

/// What the kernel does for the UDP sockets that send probes, besides carrying the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpAbilities {
    /// ICMP errors about packets are reported.
    pub errors: bool,
    /// Datagrams are never fragmented.
    pub whole_datagrams: bool,
}

impl UdpAbilities {
    /// All that a kernel may have.
    pub const ALL: Self = Self { errors: true, whole_datagrams: true };

    /// Returns what both have.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { errors: self.errors && other.errors, whole_datagrams: self.whole_datagrams && other.whole_datagrams }
    }

    /// Whether the path MTU can be searched. Without ICMP errors, a router that reports its MTU
    /// would look like one that drops in silence. A datagram in fragments passes any router.
    pub const fn allow_mtu_search(self) -> bool {
        self.errors && self.whole_datagrams
    }
}

const ON: libc::c_int = 1;

/// Sets what both kinds of UDP sockets have. Datagrams are never fragmented, whatever the kernel
/// believes of the path (`IP_PMTUDISC_PROBE`), and arrive with their time to live. Returns whether
/// the kernel never fragments.
fn set_up_udp(fd: &OwnedFd, over_ipv6: bool) -> bool {
    if over_ipv6 {
        const IPV6: libc::c_int = libc::IPPROTO_IPV6;
        wish(fd, IPV6, libc::IPV6_RECVHOPLIMIT, &ON, Lack::ArrivalTtl);
        wish(fd, IPV6, libc::IPV6_MTU_DISCOVER, &libc::IPV6_PMTUDISC_PROBE, Lack::WholeDatagrams)
            && wish(fd, IPV6, libc::IPV6_DONTFRAG, &ON, Lack::WholeDatagrams)
    } else {
        wish(fd, libc::IPPROTO_IP, libc::IP_RECVTTL, &ON, Lack::ArrivalTtl);
        wish(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &libc::IP_PMTUDISC_PROBE, Lack::WholeDatagrams)
    }
}

/// Sets up a UDP socket that sends probes: ICMP errors about them arrive on the error queue.
pub fn send_probes(fd: &OwnedFd, over_ipv6: bool) -> UdpAbilities {
    let whole_datagrams = set_up_udp(fd, over_ipv6);
    let (level, name) =
        if over_ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) } else { (libc::IPPROTO_IP, libc::IP_RECVERR) };
    UdpAbilities { errors: wish(fd, level, name, &ON, Lack::ErrorQueue), whole_datagrams }
}

/// Sets up a UDP socket that answers probes: each arrives with the address that it was sent to. The
/// answer must come from there, which a socket for all addresses would not do by itself.
pub fn answer_probes(fd: &OwnedFd, over_ipv6: bool) {
    set_up_udp(fd, over_ipv6);
    let (level, name) =
        if over_ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) } else { (libc::IPPROTO_IP, libc::IP_PKTINFO) };
    wish(fd, level, name, &ON, Lack::ArrivalAddress);
}

/// Makes bind(2) leave the choice of the port to connect(2), which may use one that other
/// connections from the same address use.
///
/// # Errors
/// The error of `setsockopt`.
pub fn choose_port_later(fd: &impl AsRawFd) -> io::Result<()> {
    set(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, &ON)
}

/// Makes a raw socket drop everything except echo replies with this identifier, so that other ICMP
/// traffic of a busy host costs nothing. Also drops packets that arrived before, when no request
/// had been sent. A ping socket needs no filter.
///
/// # Errors
/// The error of `setsockopt`.
pub fn listen_only_to(fd: &OwnedFd, family: Family, kind: SocketKind, identifier: u16) -> io::Result<()> {
    // From linux/icmp.h and linux/icmpv6.h; the libc crate lacks them.
    const SOL_RAW: libc::c_int = 255;
    const ICMP_FILTER: libc::c_int = 1;
    const ICMP6_FILTER: libc::c_int = 1;
    const ECHO_REPLY_V6: usize = 129;
    // From linux/filter.h. The instructions are: load the length of the IPv4 header, load 16 bits
    // at an offset (with and without that length), compare, return.
    const LDX_IP_HEADER: u16 = 0xb1;
    const LD_HALF_BEHIND: u16 = 0x48;
    const LD_HALF: u16 = 0x28;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const IDENTIFIER_AT: u32 = 4;
    if kind == SocketKind::Datagram {
        return Ok(());
    }
    let verdict = [
        SockFilter::new(JUMP_EQUAL, 0, 1, identifier.into()),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ];
    let [same, take, drop] = verdict;
    let filtered = match family {
        Family::V4 => {
            // A set bit blocks a type; echo reply is type 0.
            set(fd, SOL_RAW, ICMP_FILTER, &!1u32)?;
            let load = [SockFilter::new(LDX_IP_HEADER, 0, 0, 0), SockFilter::new(LD_HALF_BEHIND, 0, 0, IDENTIFIER_AT)];
            let [header, half] = load;
            SockRef::from(fd).attach_filter(&[header, half, same, take, drop])
        }
        Family::V6 => {
            let mut blocked = [u32::MAX; 8];
            blocked[ECHO_REPLY_V6 / 32] &= !(1 << (ECHO_REPLY_V6 % 32));
            set(fd, libc::IPPROTO_ICMPV6, ICMP6_FILTER, &blocked)?;
            let load = SockFilter::new(LD_HALF, 0, 0, IDENTIFIER_AT);
            SockRef::from(fd).attach_filter(&[load, same, take, drop])
        }
    };
    for _ in 0..UNHEARD_PACKETS_MAX {
        let heard = SockRef::from(fd).recv_with_flags(&mut [MaybeUninit::uninit(); 1], libc::MSG_DONTWAIT);
        if heard.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            break;
        }
    }
    filtered
}

/// Sets the program that chooses one of the sockets of a port for each packet or handshake
/// (`SO_ATTACH_REUSEPORT_CBPF` of socket(7)). `fd` is one of them.
///
/// # Errors
/// The error of `setsockopt`.
pub fn choose_by(fd: &impl AsRawFd, program: &[SockFilter]) -> io::Result<()> {
    let len = libc::c_ushort::try_from(program.len()).map_err(io::Error::other)?;
    // A `SockFilter` is a transparent `sock_filter`, of which there are `len`. The kernel copies
    // them, and writes nothing.
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
    set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// Asks for a receive queue that holds what `peers` answer within about a second. The kernel grants
/// at most `net.core.rmem_max`. Never asks for less than the current size.
pub fn make_room(fd: &OwnedFd, peers: usize) {
    let wanted = peers.saturating_mul(RECEIVE_BYTES_PER_PEER).clamp(RECEIVE_BYTES_MIN, RECEIVE_BYTES_MAX);
    let socket = SockRef::from(fd);
    // The kernel doubles the requested size and returns the doubled one.
    let grown = socket
        .recv_buffer_size()
        .and_then(|now| if wanted > now / 2 { socket.set_recv_buffer_size(wanted) } else { Ok(()) });
    Lack::QueueSize.tolerate(&grown);
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
