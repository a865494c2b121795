//! The listeners on the probe port: they accept and close at once.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use socket2::{Domain, Protocol, Socket, Type};

use super::calls::{self, Polled};
use crate::limits::TCP_BACKLOG;
use crate::prober::stamp::filter;
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

/// A listening socket of one family.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
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
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new_raw(Domain::for_address(address), kind, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        Lack::PortReuse.tolerate(&socket.set_reuse_address(true));
        // Accepted sockets inherit these.
        Lack::Resets.tolerate(&socket.set_linger(Some(Duration::ZERO)));
        Lack::Buffers.tolerate(&socket.set_recv_buffer_size(RECEIVE_BYTES));
        socket.bind(&address.into())?;
        socket.listen(TCP_BACKLOG)?;
        // Without this, the outcome of no handshake is known: each would count as failed.
        calls::backlog(socket.as_fd())?;
        let address = socket.local_addr()?.as_socket().unwrap_or(address);
        Ok(Self { socket, address, logged: false })
    }

    /// Returns the address that it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its descriptor, to be polled.
    pub fn polled(&self) -> Polled {
        Polled::of(&self.socket)
    }

    /// Whether as many connections wait as may.
    pub fn is_full(&self) -> bool {
        calls::backlog(self.socket.as_fd()).is_ok_and(|(waiting, most)| waiting >= most)
    }

    /// Accepts and closes what waits, up to so many connections. Returns their number.
    pub fn accept(&mut self, most: usize) -> usize {
        for accepted in 0..most {
            match accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(accepted) => drop(accepted),
                Err(Errno::WOULDBLOCK) => return accepted,
                // The connection has ended, or a signal has arrived.
                Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => {}
                // What waits stays in the backlog, also if no descriptor is left.
                Err(error) => {
                    if !std::mem::replace(&mut self.logged, true) {
                        log::warn!("cannot accept the handshakes of TCP probes: {error}");
                    }
                    return accepted;
                }
            }
        }
        most
    }

    /// Makes the kernel drop what arrives from other addresses than these.
    pub fn admit(&mut self, members: &[IpAddr]) {
        let mut members = members.to_vec();
        members.sort_unstable();
        let program = |ranges_max| filter::of_family(self.address.is_ipv6(), &members, ranges_max);
        let attached = filter::attach(program, |program| self.socket.attach_filter(program));
        if let Err(error) = attached
            && !std::mem::replace(&mut self.logged, true)
        {
            log::warn!("cannot limit the TCP handshakes at {} to members: {error}", self.address);
        }
    }
}
