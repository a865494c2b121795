//! The real wire: a socket for each handshake in flight, and the listeners.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use kube_canary_kernel::poll::{self, Polled};
use kube_canary_kernel::socket::choose_port_later;
use kube_canary_kernel::tcp_info::{self, CLOSED, SYN_RECEIVED, SYN_SENT};
use socket2::{Domain, Protocol, Socket, Type};

use super::connections::Place;
use super::listener::{ListenError, Listener};
use super::{Accepts, Begun, Handshake, TcpWire};
use crate::limits::TCP_HANDSHAKES_MAX;
use crate::prober::{SendError, Sources};
use crate::sys::lacks::Lack;

/// Bytes that a peer may send into a connection before it is closed: the kernel's smallest buffer.
const RECEIVE_BYTES: usize = 2 * 1_024;

/// Listening sockets of both families: of members, and of strangers.
const LISTENERS: usize = 4;

/// The sockets of all handshakes in flight, and the listeners of both families.
#[derive(Debug)]
pub struct TcpSockets {
    handshakes: Box<[Option<Socket>; TCP_HANDSHAKES_MAX]>,
    /// No place at or after this one is taken.
    pub(super) end: usize,
    pub(super) listeners: [Option<Listener>; 2],
    sources: Sources,
    /// Whether the listener of members had no more room for connections.
    overran: bool,
    /// Whether an error of poll(2) was logged: it is retried at every turn.
    logged: bool,
}

impl TcpSockets {
    /// Opens the listeners: those of both families for the IPv6 wildcard if the host has both, and
    /// otherwise one.
    ///
    /// # Errors
    /// [`ListenError`] if the kernel refuses the address.
    pub fn listen(address: SocketAddr) -> Result<Self, ListenError> {
        let sources = Sources::new(address.ip(), &[]);
        Ok(Self { listeners: Listener::open(address)?, sources, ..Self::without_listener() })
    }

    /// Makes the handshakes come from these addresses.
    #[must_use]
    pub const fn sending_from(mut self, sources: Sources) -> Self {
        self.sources = sources;
        self
    }

    /// Makes the wire of a process that only probes.
    pub fn without_listener() -> Self {
        let handshakes = Box::new([const { None }; TCP_HANDSHAKES_MAX]);
        Self { handshakes, end: 0, listeners: [None, None], sources: Sources::default(), overran: false, logged: false }
    }

    /// Returns whether the listener of members was found without room for a further connection
    /// since the last call. The kernel drops their handshakes then.
    pub const fn overran(&mut self) -> bool {
        std::mem::replace(&mut self.overran, false)
    }

    /// Returns the addresses of the listeners, for the log.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.listeners.iter().flatten().map(Listener::address)
    }

    pub(super) fn at(&self, place: Place) -> Option<&Socket> {
        self.handshakes.get(place.index())?.as_ref()
    }

    /// Returns the places that may be taken.
    fn places(&self) -> impl Iterator<Item = Place> + use<> {
        (0..=u8::MAX).take(self.end).map(Place)
    }
}

impl TcpWire for TcpSockets {
    fn connect(&mut self, place: Place, to: SocketAddr) -> Result<Begun, SendError> {
        let socket = open(self.sources.address(to.is_ipv6()), to).map_err(|error| match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::EAFNOSUPPORT) => SendError::NoSocket,
            _ => SendError::from(&error),
        })?;
        match socket.connect(&to.into()) {
            // It is also done at once if the peer is on this host.
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(Begun::Refused),
            Err(error) => return Err(SendError::from(&error)),
        }
        let free = self.handshakes.get_mut(place.index()).ok_or(SendError::TableFull)?;
        *free = Some(socket);
        self.end = self.end.max(place.index() + 1);
        Ok(Begun::InFlight)
    }

    fn read(&mut self, accepts: Accepts, found: &mut dyn FnMut(Place, Handshake)) -> usize {
        let mut polled = [Polled::NONE; LISTENERS + TCP_HANDSHAKES_MAX];
        let (listeners, handshakes) = polled.split_at_mut(LISTENERS);
        for (polled, listener) in listeners.chunks_exact_mut(2).zip(self.listeners.iter().flatten()) {
            polled.copy_from_slice(&listener.polled());
        }
        for (polled, socket) in handshakes.iter_mut().zip(&self.handshakes[..self.end]) {
            *polled = socket.as_ref().map_or(Polled::NONE, Polled::watching);
        }
        match poll::poll(&mut polled[..LISTENERS + self.end]) {
            Ok(true) => {}
            Ok(false) => return 0,
            Err(error) => {
                if !std::mem::replace(&mut self.logged, true) {
                    log::warn!("cannot look for the outcomes of TCP handshakes: {error}");
                }
                return 0;
            }
        }
        let (listeners, handshakes) = polled.split_at(LISTENERS);
        for place in self.places() {
            if handshakes.get(place.index()).is_some_and(|polled| polled.is_ready())
                && let Some(outcome) = self.at(place).and_then(outcome)
            {
                self.close(place);
                found(place, outcome);
            }
        }
        let Self { listeners: own, overran, .. } = self;
        let ready = own.iter_mut().flatten().zip(listeners.chunks_exact(2));
        ready
            .filter(|(_, polled)| polled.iter().any(|polled| polled.is_ready()))
            .map(|(listener, _)| {
                *overran |= listener.is_full();
                listener.accept(accepts)
            })
            .sum()
    }

    fn is_refused(&mut self, place: Place) -> bool {
        self.at(place).and_then(error).is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }

    fn is_unsent(&mut self, place: Place) -> bool {
        let info = self.at(place).and_then(|socket| tcp_info::read(socket.as_fd()).ok());
        info.is_some_and(|info| info.state == SYN_SENT && info.retransmissions > 0 && info.repeated_in_flight == 0)
    }

    fn close(&mut self, place: Place) {
        if let Some(taken) = self.handshakes.get_mut(place.index()) {
            *taken = None;
        }
        while self.end > 0 && self.handshakes[self.end - 1].is_none() {
            self.end -= 1;
        }
    }

    fn admit(&mut self, members: &[IpAddr]) {
        self.listeners.iter_mut().flatten().for_each(|listener| listener.admit(members));
    }
}

/// Opens a socket that closes by a reset.
fn open(source: Option<IpAddr>, to: SocketAddr) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new_raw(Domain::for_address(to), kind, Some(Protocol::TCP))?;
    Lack::Resets.tolerate(&socket.set_linger(Some(Duration::ZERO)));
    Lack::Buffers.tolerate(&socket.set_recv_buffer_size(RECEIVE_BYTES));
    if let Some(source) = source {
        // Without this, the port is chosen for the address alone, of which a busy host has no more.
        // An older kernel does so.
        _ = choose_port_later(&socket);
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    Ok(socket)
}

fn error(socket: &Socket) -> Option<io::Error> {
    socket.take_error().ok().flatten()
}

/// Returns the outcome of a handshake; `None` while it is in flight.
fn outcome(socket: &Socket) -> Option<Handshake> {
    let Ok(info) = tcp_info::read(socket.as_fd()) else { return Some(Handshake::Failed) };
    let retransmissions = info.retransmissions;
    let done = Handshake::Done { rtt: info.rtt, retransmissions };
    if !matches!(info.state, SYN_SENT | SYN_RECEIVED | CLOSED) {
        return Some(done);
    }
    match error(socket).as_ref().map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => Some(Handshake::Refused { retransmissions }),
        // The peer has closed the connection already. Only one that was established can be reset.
        Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => Some(done),
        Some(_) => Some(Handshake::Failed),
        None if info.state == CLOSED => Some(Handshake::Failed),
        None => None,
    }
}
