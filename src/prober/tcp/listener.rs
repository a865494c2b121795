//! The listeners on the probe port: they accept and close at once.
//!
//! Members have a listener of their own beside that of strangers, on the same port. The kernel
//! chooses by the source address ([`filter::choosing`]), and drops what exceeds the queue of one.
//! So strangers take no handshake of a member, and a full queue of members is not their doing.
//!
//! Rejected: to drop strangers by a filter on one listener, which Linux 6.18 permits only with
//! `CAP_NET_ADMIN`. Where the kernel does not let a process choose either, the first listener
//! serves all.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use kube_canary_kernel::poll::Polled;
use kube_canary_kernel::socket::choose_by;
use kube_canary_kernel::tcp_info;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use super::Accepts;
use crate::limits::{TCP_BACKLOG, TCP_STRANGERS_MAX};
use crate::prober::filter;
use crate::sys::lacks::{Lack, is_family_absent};

/// Bytes that a connection may receive before it is accepted: the kernel's smallest buffer.
const RECEIVE_BYTES: usize = 2 * 1_024;

/// Why there is no listener.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address} for the handshakes of TCP probes ({error}): give all agents another port with \
     --tcp-port, or leave tcp out of --probes"
)]
pub struct ListenError {
    /// The address that the kernel refuses.
    pub address: SocketAddr,
    /// The error of the kernel.
    #[source]
    pub error: io::Error,
}

/// The listening sockets of one family.
#[derive(Debug)]
pub struct Listener {
    /// That of members, and of all before these are known.
    members: Socket,
    /// That of all others. Without it, the first serves all.
    strangers: Option<Socket>,
    address: SocketAddr,
    /// Errors that were already logged: accepting is retried at every turn.
    logged: bool,
}

impl Listener {
    /// Opens the listeners for an address. The IPv6 wildcard stands for both families, of which a
    /// host may lack one.
    ///
    /// # Errors
    /// [`ListenError`] for the first address that the kernel refuses.
    pub fn open(address: SocketAddr) -> Result<[Option<Self>; 2], ListenError> {
        let open = |address| Self::open_one(address).map_err(|error| ListenError { address, error });
        if address.ip() != IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
            return Ok([Some(open(address)?), None]);
        }
        let v6 = match open(address) {
            Err(_) if is_family_absent(true) => None,
            v6 => Some(v6?),
        };
        // With port 0 the kernel chooses one, which is then that of both.
        let port = v6.as_ref().map_or(address.port(), |v6| v6.address.port());
        match open((Ipv4Addr::UNSPECIFIED, port).into()) {
            Err(_) if v6.is_some() && is_family_absent(false) => Ok([None, v6]),
            v4 => Ok([Some(v4?), v6]),
        }
    }

    fn open_one(address: SocketAddr) -> io::Result<Self> {
        let members = bind(address, false)?;
        // Another agent that already listens here was found above, because it may share the port
        // only with sockets that say so before they bind.
        let can_choose = members.set_reuse_port(true);
        members.listen(TCP_BACKLOG)?;
        // Without this, the outcome of no handshake is known: each would count as failed.
        tcp_info::backlog(members.as_fd())?;
        let address = members.local_addr()?.as_socket().unwrap_or(address);
        let strangers = can_choose.and_then(|()| open_for_strangers(&members, address));
        let strangers = strangers.inspect_err(|error| {
            log::debug!("strangers share the TCP listener of members at {address}: {error}");
            _ = members.set_reuse_port(false);
        });
        Ok(Self { members, strangers: strangers.ok(), address, logged: false })
    }

    /// Returns the address that it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its descriptors, to be polled: that of members first.
    pub fn polled(&self) -> [Polled; 2] {
        [Polled::watching(&self.members), self.strangers.as_ref().map_or(Polled::NONE, Polled::watching)]
    }

    /// Whether as many connections of members wait as may.
    pub fn is_full(&self) -> bool {
        tcp_info::backlog(self.members.as_fd()).is_ok_and(|(waiting, most)| waiting >= most)
    }

    /// Accepts and closes what waits, up to these numbers of connections. Returns how many of them
    /// were not of strangers.
    pub fn accept(&mut self, most: Accepts) -> usize {
        if let Some(strangers) = &self.strangers {
            accept(strangers, most.strangers, &mut self.logged);
        }
        accept(&self.members, most.members, &mut self.logged)
    }

    /// Makes the kernel tell strangers from these addresses.
    pub fn admit(&mut self, members: &[IpAddr]) {
        if self.strangers.is_none() {
            return;
        }
        let program = |ranges_max| filter::choosing(self.address.is_ipv6(), members, ranges_max);
        let attached = filter::attach(program, |program| choose_by(&self.members, program));
        if let Err(error) = attached {
            log::debug!("strangers are not told from members at {}: {error}", self.address);
        }
    }
}

#[cfg(test)]
impl Listener {
    /// Returns how many connections of members wait, and how many of strangers.
    pub fn waiting(&self) -> [u32; 2] {
        let waiting = |socket: &Socket| tcp_info::backlog(socket.as_fd()).unwrap().0;
        [waiting(&self.members), self.strangers.as_ref().map_or(0, waiting)]
    }

    /// Makes the first listener serve all, as where the kernel does not let a process choose.
    pub fn serve_all(&mut self) {
        self.strangers = None;
    }
}

/// Makes a socket at this address that does not listen yet.
fn bind(address: SocketAddr, shares: bool) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new_raw(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Lack::PortReuse.tolerate(&socket.set_reuse_address(true));
    if shares {
        socket.set_reuse_port(true)?;
    }
    // Accepted sockets inherit these.
    Lack::Resets.tolerate(&socket.set_linger(Some(Duration::ZERO)));
    Lack::Buffers.tolerate(&socket.set_recv_buffer_size(RECEIVE_BYTES));
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Makes the listener of strangers beside that of members, which gets all handshakes at first.
fn open_for_strangers(members: &Socket, address: SocketAddr) -> io::Result<Socket> {
    let program: &[SockFilter] = &filter::choosing_first();
    // Without a program, the kernel would divide the handshakes among both as soon as both listen.
    choose_by(members, program)?;
    let strangers = bind(address, true)?;
    strangers.listen(TCP_STRANGERS_MAX)?;
    Ok(strangers)
}

/// Accepts and closes up to `most` connections. Returns their number.
fn accept(socket: &Socket, most: usize, logged: &mut bool) -> usize {
    for accepted in 0..most {
        match accept_with(socket, SocketFlags::CLOEXEC) {
            Ok(accepted) => drop(accepted),
            Err(Errno::WOULDBLOCK) => return accepted,
            // The connection has ended, or a signal has arrived.
            Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => {}
            // What waits stays in the backlog, also if no descriptor is left.
            Err(error) => {
                if !std::mem::replace(logged, true) {
                    log::warn!("cannot accept the handshakes of TCP probes: {error}");
                }
                return accepted;
            }
        }
    }
    most
}
