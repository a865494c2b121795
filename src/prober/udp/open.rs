//! Opens the UDP sockets: of each family a sender per flow, and the reflector.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use kube_canary_kernel::socket::choose_by;
use socket2::{Domain, Protocol, Socket, Type};

use crate::prober::Sources;
use crate::prober::filter;
use crate::prober::options::{self, UdpAbilities};
use crate::sys::lacks::is_family_absent;

/// Bytes of the queue of strangers: some hundred requests.
const STRANGERS_BYTES: usize = 64 * 1_024;

/// Why there are no UDP sockets.
#[derive(Debug, thiserror::Error)]
pub enum UdpSocketError {
    /// The reflector has no port.
    #[error(
        "cannot receive UDP probes at {address} ({error}): give all agents another port with --udp-port, or leave udp \
         out of --probes"
    )]
    Reflector {
        /// The address and port that are taken or not ours.
        address: SocketAddr,
        /// The error of the kernel.
        error: io::Error,
    },
    /// No socket could be opened, or an open one could not be registered.
    #[error("cannot {operation} a UDP socket: {error}")]
    Setup {
        /// The operation that failed.
        operation: &'static str,
        /// The error of the kernel.
        error: io::Error,
    },
}

impl UdpSocketError {
    pub(super) fn setup(operation: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::Setup { operation, error }
    }
}

/// Returns the address that stands for all addresses of a family.
const fn any(over_ipv6: bool) -> IpAddr {
    if over_ipv6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) }
}

/// Opens a socket at `address`, which shares the port with others if these do, too. An IPv6 socket
/// serves no IPv4.
fn bind(address: SocketAddr, shares: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if shares {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Opens a socket beside that of the reflector, which gets what strangers send. The kernel chooses
/// between them. So a flood of strangers fills its own queue alone.
fn open_for_strangers(members: &Socket, address: SocketAddr) -> io::Result<OwnedFd> {
    // Another agent that uses the port was found as the first was bound: it shares with sockets
    // alone that say so before.
    members.set_reuse_port(true)?;
    let strangers = bind(address, true)?;
    choose_by(members, &filter::choosing_first())?;
    strangers.set_recv_buffer_size(STRANGERS_BYTES)?;
    Ok(strangers.into())
}

fn port(socket: &Socket) -> u16 {
    socket.local_addr().ok().and_then(|address| address.as_socket()).map_or(0, |address| address.port())
}

/// The senders of a family, each with its port, and what the kernel does for all of them.
pub(super) type Senders = (Vec<(OwnedFd, u16)>, UdpAbilities);

/// Opens `flows` senders of a family, each with a port that the kernel chooses. None if this host
/// lacks the family.
///
/// If the reflector listens at one address, no family but its own is probed.
pub(super) fn senders(
    over_ipv6: bool,
    listen: IpAddr,
    sources: &Sources,
    flows: u8,
) -> Result<Senders, UdpSocketError> {
    let (mut senders, mut abilities) = (Vec::with_capacity(flows.into()), UdpAbilities::ALL);
    if !listen.is_unspecified() && listen.is_ipv6() != over_ipv6 {
        return Ok((senders, abilities));
    }
    let source = sources.address(over_ipv6).unwrap_or_else(|| any(over_ipv6));
    for _ in 0..flows {
        let socket = match bind(SocketAddr::new(source, 0), false) {
            Ok(socket) => socket,
            Err(_) if senders.is_empty() && is_family_absent(over_ipv6) => return Ok((senders, abilities)),
            Err(error) => return Err(UdpSocketError::setup("open")(error)),
        };
        let port = port(&socket);
        let fd = OwnedFd::from(socket);
        abilities = abilities.and(options::send_probes(&fd, over_ipv6));
        options::enable_timestamps(&fd);
        options::check_batches(&fd);
        senders.push((fd, port));
    }
    Ok((senders, abilities))
}

/// By family, the socket of the reflector with its port, and that of strangers. This one is missing
/// if the kernel does not let us choose: then it drops what they send.
pub(super) type Reflectors = ([Option<(OwnedFd, u16)>; 2], [Option<OwnedFd>; 2]);

/// Opens the sockets of the reflector. `[::]` stands for the addresses of both families, of which a
/// host may lack one.
pub(super) fn reflectors(listen: SocketAddr) -> Result<Reflectors, UdpSocketError> {
    let both = listen.ip() == any(true);
    let (mut reflectors, mut strangers) = ([None, None], [None, None]);
    let mut listen_port = listen.port();
    for (over_ipv6, family) in [(false, 0), (true, 1)] {
        if !both && over_ipv6 != listen.is_ipv6() {
            continue;
        }
        let mut address = if both { SocketAddr::new(any(over_ipv6), 0) } else { listen };
        address.set_port(listen_port);
        match bind(address, false) {
            Ok(socket) => {
                listen_port = port(&socket);
                let of_strangers = open_for_strangers(&socket, SocketAddr::new(address.ip(), listen_port));
                let of_strangers = of_strangers.inspect_err(|error| {
                    log::debug!("what strangers send to {address} by UDP is not read: {error}");
                    _ = socket.set_reuse_port(false);
                });
                let fd = OwnedFd::from(socket);
                options::answer_probes(&fd, over_ipv6);
                options::enable_arrival_timestamps(&fd);
                (reflectors[family], strangers[family]) = (Some((fd, listen_port)), of_strangers.ok());
            }
            Err(_) if both && is_family_absent(over_ipv6) => {}
            Err(error) => return Err(UdpSocketError::Reflector { address, error }),
        }
    }
    if reflectors.iter().all(Option::is_none) {
        let error = io::ErrorKind::AddrNotAvailable.into();
        return Err(UdpSocketError::Reflector { address: listen, error });
    }
    Ok((reflectors, strangers))
}
