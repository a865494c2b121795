//! What some kernels and sandboxes lack, and the agent can do without. It logs each cause once:
//! what the kernel has refused, by which error, and what the agent does not do for that reason.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

use socket2::{Domain, Protocol, Socket, Type};

/// What a kernel may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The kernel opens no sockets over IPv4.
    Ipv4,
    /// The kernel opens no sockets over IPv6.
    Ipv6,
    /// Time stamps of packets (`SO_TIMESTAMPING`).
    Stamps,
    /// ICMP errors about probes (`IP_RECVERR`, `IPV6_RECVERR`).
    ErrorQueue,
    /// Datagrams that are never fragmented (`IP_MTU_DISCOVER`, `IPV6_DONTFRAG`).
    WholeDatagrams,
    /// The time to live of what arrives (`IP_RECVTTL`, `IPV6_RECVHOPLIMIT`).
    ArrivalTtl,
    /// The address that a probe was sent to (`IP_PKTINFO`, `IPV6_RECVPKTINFO`).
    ArrivalAddress,
    /// Many packets in one system call (`sendmmsg`, `recvmmsg`).
    Batches,
    /// Receive queues of a chosen size (`SO_RCVBUF`).
    QueueSize,
    /// Filters of packets (`SO_ATTACH_FILTER`).
    Filters,
    /// Connections that close by a reset (`SO_LINGER`).
    Resets,
    /// Small buffers of connections (`SO_SNDBUF`, `SO_RCVBUF`).
    Buffers,
    /// A port that a connection in TIME_WAIT still uses (`SO_REUSEADDR`).
    PortReuse,
    /// Segments that leave at once (`TCP_NODELAY`).
    NoDelay,
    /// A timer that reports steps of the real-time clock.
    ClockSteps,
    /// Routes and interfaces (rtnetlink).
    Netlink,
}

/// The causes that were logged, one bit each.
static LOGGED: AtomicU32 = AtomicU32::new(0);
const _: () = assert!((Lack::Netlink as u32) < u32::BITS);

impl Lack {
    /// Returns whether the kernel has granted what may be lacking. An error is only logged, once in
    /// this process.
    pub fn tolerate<T>(self, result: &io::Result<T>) -> bool {
        result.as_ref().inspect_err(|error| self.log(error)).is_ok()
    }

    /// Logs that the kernel lacks this, unless that was logged before.
    pub fn log(self, error: &io::Error) {
        let bit = 1 << self as u32;
        if LOGGED.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            let (lack, consequence) = self.texts();
            log::warn!("{lack} ({error}): {consequence}");
        }
    }

    /// Returns what the kernel lacks, and what follows.
    const fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Ipv4 => (
                "this host cannot use IPv4",
                "IPv4 peers are not probed; list IPv6 addresses alone, or let the agent open IPv4 sockets",
            ),
            Self::Ipv6 => (
                "this host cannot use IPv6",
                "IPv6 peers are not probed; list IPv4 addresses alone, or enable IPv6 in the kernel (ipv6.disable=0)",
            ),
            Self::Stamps => ("the kernel does not stamp packets", "the agent takes the times of packets itself"),
            Self::ErrorQueue => (
                "the kernel reports no ICMP errors about UDP packets",
                "no path is traced, and no path MTU is searched",
            ),
            Self::WholeDatagrams => ("the kernel may fragment UDP packets", "no path MTU is searched"),
            Self::ArrivalTtl => {
                ("the kernel does not tell the time to live of UDP packets", "the hops of paths are not known")
            }
            Self::ArrivalAddress => (
                "the kernel does not tell the destination of UDP packets",
                "on a host with several addresses, peers may not recognize the answers to their UDP probes",
            ),
            Self::Batches => ("the kernel has no sendmmsg or recvmmsg", "each packet costs a system call of its own"),
            Self::QueueSize => {
                ("the kernel grants no larger receive queue", "it may drop replies that arrive together")
            }
            Self::Filters => {
                ("the kernel does not filter packets", "the agent reads those of strangers and refuses them one by one")
            }
            Self::Resets => {
                ("the kernel does not close connections by a reset", "each TCP probe leaves a port in use for a minute")
            }
            Self::Buffers => {
                ("the kernel does not limit the buffers of connections", "slow scrapers may cost more memory")
            }
            Self::PortReuse => (
                "the kernel does not share a port with connections that have ended",
                "a restart within a minute may find the address in use",
            ),
            Self::NoDelay => ("the kernel holds back small segments", "scrapes take longer"),
            Self::ClockSteps => (
                "the kernel does not report steps of the real-time clock",
                "a step is noticed when probes are next sent",
            ),
            Self::Netlink => (
                "the kernel does not list routes and interfaces",
                "no path MTU is searched; give this agent's own addresses with --pod-addresses",
            ),
        }
    }
}

/// Returns whether this host cannot use a family at all, which is logged once. It opens a socket as
/// every stage does: a kernel may lack the family, and a sandbox may refuse it by another error. A
/// process without free descriptors says nothing of the family.
pub fn is_family_absent(over_ipv6: bool) -> bool {
    let lack = if over_ipv6 { Lack::Ipv6 } else { Lack::Ipv4 };
    let exhausted = |error: &io::Error| {
        matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS))
    };
    match open_of_family(over_ipv6) {
        Err(error) if exhausted(&error) => false,
        opened => !lack.tolerate(&opened),
    }
}

fn open_of_family(over_ipv6: bool) -> io::Result<()> {
    let any: SocketAddr = if over_ipv6 { (Ipv6Addr::UNSPECIFIED, 0).into() } else { (Ipv4Addr::UNSPECIFIED, 0).into() };
    let socket = Socket::new(Domain::for_address(any), Type::DGRAM, Some(Protocol::UDP))?;
    if over_ipv6 {
        socket.set_only_v6(true)?;
    }
    socket.bind(&any.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_is_logged_and_success_is_not() {
        assert!(Lack::Stamps.tolerate(&Ok(())));
        for error in [libc::ENOPROTOOPT, libc::EPERM, libc::EINVAL, libc::ENOSYS] {
            assert!(!Lack::Stamps.tolerate::<()>(&Err(io::Error::from_raw_os_error(error))), "{error}");
        }
    }

    #[test]
    fn family_of_loopback_is_there() {
        assert!(!is_family_absent(false));
    }
}
