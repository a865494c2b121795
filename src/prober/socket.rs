//! The real wire: one ICMP socket per family for all peers, opened by surge-ping (ping socket first, raw socket
//! second), used in batches through a descriptor of our own.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use surge_ping::{AsyncSocket, Config, ICMP};
use tokio::io::unix::AsyncFd;

use super::clock::{arrival, read_together};
use super::mmsg::{self, Batch};
use super::packet::ECHO_HEADER_BYTES;
use super::{Clock, Datagram, Outgoing, SendError, SocketKind, Stamp, Wire};
use crate::peers::Protocol;
use crate::units::Nanos;

/// Batches read in one go before the prober gets to send again; a flood cannot hold it for longer.
const READS_MAX: usize = 256;
/// Bytes of an IPv4 header with every option, which a raw socket hands over.
const IP_HEADER_BYTES_MAX: usize = 60;

/// Why there is no ICMP socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Neither kind of socket is permitted.
    #[error(
        "cannot open an ICMP socket ({0}): either include this process's group in net.ipv4.ping_group_range \
         (sysctl -w net.ipv4.ping_group_range=\"0 2147483647\", or the pod's securityContext.sysctls), or grant the \
         capability NET_RAW to a process that runs as root"
    )]
    Refused(io::Error),
    /// An open socket could not be prepared.
    #[error("cannot {operation} on an ICMP socket: {error}")]
    Setup {
        /// What was tried.
        operation: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
}

#[derive(Debug)]
struct Socket {
    fd: AsyncFd<OwnedFd>,
    kind: SocketKind,
    /// When it was last found empty: nothing that is read later can have arrived before.
    empty_at: Nanos,
}

/// The sockets of both families. Where the host lacks a family, sending to it gives [`SendError::NoSocket`].
#[derive(Debug)]
pub struct Sockets {
    v4: Option<Socket>,
    v6: Option<Socket>,
    batch: Batch,
}

impl Sockets {
    /// Opens both sockets. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`SocketError`] where neither family can be opened, or one cannot be set up.
    pub fn open(payload_bytes: usize) -> Result<Self, SocketError> {
        let (v4, v6) = (Socket::open(ICMP::V4), Socket::open(ICMP::V6));
        let (v4, v6) = match (v4, v6) {
            // The IPv4 error is the one to show: its remedies are those of both.
            (Err(error), Err(_)) => return Err(error),
            (v4, v6) => {
                (v4.inspect_err(|e| log::warn!("IPv4: {e}")).ok(), v6.inspect_err(|e| log::warn!("IPv6: {e}")).ok())
            }
        };
        Ok(Self { v4, v6, batch: Batch::new(IP_HEADER_BYTES_MAX + ECHO_HEADER_BYTES + payload_bytes) })
    }

    /// The kinds of the sockets that are open, for the log.
    pub fn describe(&self) -> String {
        let name = |socket: &Option<Socket>| match socket.as_ref().map(|s| s.kind) {
            Some(SocketKind::Datagram) => "SOCK_DGRAM",
            Some(SocketKind::Raw) => "SOCK_RAW",
            None => "none",
        };
        format!("IPv4 {}, IPv6 {}", name(&self.v4), name(&self.v6))
    }

    /// Packets that the kernel has dropped so far because a socket's queue was full.
    pub fn drops(&self) -> u64 {
        [&self.v4, &self.v6].into_iter().flatten().map(|socket| u64::from(mmsg::drops(socket.fd.get_ref()))).sum()
    }

    /// Waits until there is something to read. Cancel-safe.
    pub async fn readable(&self) {
        tokio::select! {
            () = wait(self.v4.as_ref()) => {}
            () = wait(self.v6.as_ref()) => {}
        }
    }

    fn of(&self, address: IpAddr) -> Option<&Socket> {
        match Protocol::of(address) {
            Protocol::Icmp => self.v4.as_ref(),
            Protocol::Icmpv6 => self.v6.as_ref(),
        }
    }
}

async fn wait(socket: Option<&Socket>) {
    match socket {
        // Readiness is edge-triggered and the caller reads until the socket is empty, so it can be cleared here.
        Some(socket) => match socket.fd.readable().await {
            Ok(mut guard) => guard.clear_ready(),
            Err(error) => {
                log::error!("waiting for an ICMP socket: {error}");
                std::future::pending::<()>().await;
            }
        },
        None => std::future::pending().await,
    }
}

impl Socket {
    fn open(family: ICMP) -> Result<Self, SocketError> {
        let opened = AsyncSocket::new(&Config::builder().kind(family).build()).map_err(SocketError::Refused)?;
        let kind = match opened.get_type() {
            socket2::Type::RAW => SocketKind::Raw,
            _ => SocketKind::Datagram,
        };
        // A duplicate, because tokio has surge-ping's own descriptor registered; that one is closed here.
        let setup = |operation| move |error| SocketError::Setup { operation, error };
        let fd = mmsg::duplicate(opened.get_native_sock()).map_err(setup("duplicate the descriptor"))?;
        mmsg::enable_receive_timestamps(&fd).map_err(setup("set SO_TIMESTAMPNS"))?;
        drop(opened);
        let fd = mmsg::watch(fd).map_err(setup("register for events"))?;
        Ok(Self { fd, kind, empty_at: Nanos(0) })
    }
}

impl Wire for Sockets {
    fn kind(&self, address: IpAddr) -> SocketKind {
        self.of(address).map_or(SocketKind::Datagram, |socket| socket.kind)
    }

    fn send(&mut self, packets: &[Outgoing<'_>], sent: &mut dyn FnMut(usize, Result<(), SendError>)) {
        let mut from = 0;
        while from < packets.len() {
            // A run of one family goes out in one call.
            let protocol = Protocol::of(packets[from].to);
            let run = packets[from..].iter().take_while(|p| Protocol::of(p.to) == protocol).count();
            let to = from + run;
            match self.of(packets[from].to) {
                None => (from..to).for_each(|i| sent(i, Err(SendError::NoSocket))),
                Some(socket) => mmsg::send_all(socket.fd.get_ref().as_fd(), &packets[from..to], &mut |i, result| {
                    sent(from + i, result.map_err(|error| reason(&error)));
                }),
            }
            from = to;
        }
    }

    fn receive(&mut self, clock: &dyn Clock, deliver: &mut dyn FnMut(Datagram<'_>)) -> bool {
        let mut drained = true;
        for socket in [&mut self.v4, &mut self.v6].into_iter().flatten() {
            drained &= socket.receive(&mut self.batch, clock, deliver);
        }
        drained
    }
}

impl Socket {
    fn receive(&mut self, batch: &mut Batch, clock: &dyn Clock, deliver: &mut dyn FnMut(Datagram<'_>)) -> bool {
        for _ in 0..READS_MAX {
            let before = clock.now();
            let count = match batch.receive(self.fd.get_ref().as_fd()) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.empty_at = before;
                    return true;
                }
                // An ICMP error that the kernel reports on the socket: it is consumed by the call; read on.
                Err(_) => continue,
            };
            let (now, realtime) = read_together(clock);
            for packet in batch.packets(count) {
                let at = packet.stamp.map_or(now, |stamp| arrival(stamp, now, realtime, self.empty_at));
                let from = match packet.from {
                    Some(SocketAddr::V4(v4)) => IpAddr::V4(*v4.ip()),
                    Some(SocketAddr::V6(v6)) => IpAddr::V6(*v6.ip()),
                    None => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                };
                let stamp = if packet.stamp.is_some() { Stamp::Kernel } else { Stamp::User };
                deliver(Datagram { from, bytes: packet.bytes, at, stamp });
            }
        }
        false
    }
}

fn reason(error: &io::Error) -> SendError {
    match error.raw_os_error() {
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN) => SendError::NoRoute,
        Some(libc::EPERM | libc::EACCES) => SendError::NotPermitted,
        Some(libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN) => SendError::NoBuffer,
        Some(libc::EMSGSIZE) => SendError::MessageTooLong,
        Some(libc::EINVAL | libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT) => SendError::Address,
        _ => SendError::Other,
    }
}
