//! How the sockets of probes are set up: timestamps, filters, buffers.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};

use kube_canary_kernel::{batch, socket};
use socket2::{SockFilter, SockRef};

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

/// Makes the kernel stamp every packet, when it arrives and when it leaves. If it does not, the
/// agent takes the times itself.
pub fn enable_timestamps(fd: &OwnedFd) {
    Lack::Stamps.tolerate(&socket::stamp_all(fd));
}

/// Makes the kernel stamp every packet when it arrives. Packets that leave are stamped only if
/// their control messages ask for it.
pub fn enable_arrival_timestamps(fd: &OwnedFd) {
    Lack::Stamps.tolerate(&socket::stamp_arrivals(fd));
}

/// Logs if the kernel lacks calls for many packets. Each packet then costs a call of its own.
pub fn check_batches(fd: &OwnedFd) {
    Lack::Batches.tolerate(&batch::check(fd.as_fd()));
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

/// Sets what both kinds of UDP sockets have. Datagrams are never fragmented, and arrive with their
/// time to live. Returns whether the kernel never fragments.
fn set_up_udp(fd: &OwnedFd, over_ipv6: bool) -> bool {
    Lack::ArrivalTtl.tolerate(&socket::deliver_ttl(fd, over_ipv6));
    Lack::WholeDatagrams.tolerate(&socket::never_fragment(fd, over_ipv6))
}

/// Sets up a UDP socket that sends probes: ICMP errors about them arrive on the error queue.
pub fn send_probes(fd: &OwnedFd, over_ipv6: bool) -> UdpAbilities {
    let whole_datagrams = set_up_udp(fd, over_ipv6);
    UdpAbilities { errors: Lack::ErrorQueue.tolerate(&socket::deliver_errors(fd, over_ipv6)), whole_datagrams }
}

/// Sets up a UDP socket that answers probes: each arrives with the address that it was sent to. The
/// answer must come from there, which a socket for all addresses would not do by itself.
pub fn answer_probes(fd: &OwnedFd, over_ipv6: bool) {
    set_up_udp(fd, over_ipv6);
    Lack::ArrivalAddress.tolerate(&socket::deliver_destination(fd, over_ipv6));
}

/// Makes a raw socket drop everything except echo replies with this identifier, so that other ICMP
/// traffic of a busy host costs nothing. Also drops packets that arrived before, when no request
/// had been sent. A ping socket needs no filter.
///
/// # Errors
/// The error of `setsockopt`.
pub fn listen_only_to(fd: &OwnedFd, family: Family, kind: SocketKind, identifier: u16) -> io::Result<()> {
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
    socket::deliver_echo_replies_only(fd, family == Family::V6)?;
    let filtered = match family {
        Family::V4 => {
            let load = [SockFilter::new(LDX_IP_HEADER, 0, 0, 0), SockFilter::new(LD_HALF_BEHIND, 0, 0, IDENTIFIER_AT)];
            let [header, half] = load;
            SockRef::from(fd).attach_filter(&[header, half, same, take, drop])
        }
        Family::V6 => {
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
