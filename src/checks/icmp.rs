//! The check by one ICMP echo.
//!
//! Its socket is connected, so the kernel reports on it what a router says of the echo. Rejected: a
//! client of surge-ping, which spawns a task, and reports no such error.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::LazyLock;

use kube_canary_model::check::{CheckFailure, CheckPhase};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use super::attempt::Attempt;
use super::failure::failure_of_io;
use super::stamp::DATAGRAMS_MAX;
use crate::discovery::random;
use crate::peers::{Family, SlotId};
use crate::prober::icmp::{Decoded, EchoFormat};
use crate::prober::{Label, ProbeKey, SocketKind, listen_only_to};

/// Bytes behind the header of an echo, as ping(8) has them.
const PAYLOAD_BYTES: usize = 56;
/// Bytes of an IPv4 header with all options, and of the header of an echo.
const HEADER_BYTES_MAX: usize = 68;

/// The key of the checks of this process. It proves that a reply is to a request of ours.
pub(super) static KEY: LazyLock<ProbeKey> = LazyLock::new(ProbeKey::random);

/// Sends one echo request, and waits for its reply.
pub async fn check(to: IpAddr, found: &mut Attempt) -> Result<(), CheckFailure> {
    let format = EchoFormat::new(KEY.session(), PAYLOAD_BYTES);
    let (socket, kind) = open(to, KEY.session()).map_err(|error| failure_of_io(&error))?;
    let echo = async { echo(&socket, kind, &format, to).await.map_err(|error| failure_of_io(&error)) };
    found.timed(CheckPhase::FirstByte, echo).await
}

async fn echo(socket: &UdpSocket, kind: SocketKind, format: &EchoFormat, to: IpAddr) -> io::Result<()> {
    let label = Label { number: 0, slot: SlotId(0), sequence: random::id() };
    let mut buffer = [0; HEADER_BYTES_MAX + PAYLOAD_BYTES];
    let request = &mut buffer[..format.message_bytes()];
    format.encode(&KEY, label, to, kind, request);
    socket.send(request).await?;
    for _ in 0..DATAGRAMS_MAX {
        let length = socket.recv(&mut buffer).await?;
        if format.decode(&KEY, to, &buffer[..length], kind) == Decoded::Reply(label) {
            return Ok(());
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Opens a ping socket, or a raw socket if these are not permitted.
fn open(to: IpAddr, identifier: u16) -> io::Result<(UdpSocket, SocketKind)> {
    let (domain, protocol) = match to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    let open = |kind: Type| Socket::new(domain, kind.nonblocking(), Some(protocol));
    let (socket, kind) = match open(Type::DGRAM) {
        Ok(socket) => (socket, SocketKind::Datagram),
        // The error of the ping socket is reported: its remedy is the usual one.
        Err(error) => (open(Type::RAW).map_err(|_| error)?, SocketKind::Raw),
    };
    socket.connect(&SocketAddr::new(to, 0).into())?;
    let socket = OwnedFd::from(socket);
    listen_only_to(&socket, Family::from_address(to), kind, identifier)?;
    Ok((UdpSocket::from_std(socket.into())?, kind))
}
