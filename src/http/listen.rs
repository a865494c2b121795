//! Opens the only listening socket.
//!
//! Every option that costs memory is set here, because an accepted socket inherits it. By default,
//! the kernel grows a send buffer to megabytes for a scraper that does not read, and charges the
//! container for it.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
};

use socket2::{Domain, Protocol, Socket, Type};

use super::ServeError;
use crate::limits::FRAME_BYTES;
use crate::sys::lacks::{Lack, is_family_absent};

/// Connections that wait in the kernel to be accepted.
const BACKLOG: i32 = 128;
/// Bytes that the kernel may hold for a client that does not read. For its own bookkeeping the
/// kernel counts twice this and charges it to the container. A scrape of 1.6 MB over a round trip
/// of 50 ms still takes less than 3 s.
const SEND_BYTES: usize = 32 * 1_024;
/// Bytes of requests that the kernel may hold before they are read.
const RECEIVE_BYTES: usize = 16 * 1_024;
const _: () = assert!(3 * FRAME_BYTES <= SEND_BYTES, "a third of a send buffer takes a frame");

/// Opens the socket. The IPv6 wildcard accepts both families. On a host without IPv6 it
/// becomes the IPv4 wildcard.
pub(super) fn open(listen: SocketAddr) -> Result<TcpListener, ServeError> {
    match open_exactly(listen) {
        Err(_) if is_wildcard_v6(listen) && is_family_absent(true) => {
            let fallback = SocketAddr::from((Ipv4Addr::UNSPECIFIED, listen.port()));
            open_exactly(fallback).map_err(|source| explain(fallback, source))
        }
        other => other.map_err(|source| explain(listen, source)),
    }
}

fn open_exactly(listen: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(listen), Type::STREAM, Some(Protocol::TCP))?;
    if listen.is_ipv6() {
        // Without this, the distribution's default decides (net.ipv6.bindv6only).
        socket.set_only_v6(!is_wildcard_v6(listen))?;
    }
    // A restarted agent must not wait until the connections of the previous one leave TIME_WAIT.
    Lack::PortReuse.tolerate(&socket.set_reuse_address(true));
    Lack::Buffers.tolerate(&socket.set_send_buffer_size(SEND_BYTES));
    Lack::Buffers.tolerate(&socket.set_recv_buffer_size(RECEIVE_BYTES));
    // A frame is written as a whole. Holding back its tail for an acknowledgement only delays the
    // scrape.
    Lack::NoDelay.tolerate(&socket.set_tcp_nodelay(true));
    socket.set_nonblocking(true)?;
    socket.bind(&listen.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn is_wildcard_v6(listen: SocketAddr) -> bool {
    listen.is_ipv6() && listen.ip().is_unspecified()
}

fn explain(listen: SocketAddr, source: io::Error) -> ServeError {
    match source.kind() {
        io::ErrorKind::AddrInUse => ServeError::AddressInUse { listen },
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::PermissionDenied => ServeError::Listen { listen, source },
        _ => ServeError::Socket { listen, source },
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn error_that_no_address_mends_asks_for_no_other_address() {
        let listen = "0.0.0.0:9877".parse().expect("an address");
        let text = |error| explain(listen, io::Error::from_raw_os_error(error)).to_string();
        for error in [libc::EADDRINUSE, libc::EADDRNOTAVAIL, libc::EACCES] {
            assert!(text(error).contains("with --listen"), "{}", text(error));
        }
        for error in [libc::EAFNOSUPPORT, libc::ENOPROTOOPT, libc::ENOSYS] {
            assert!(!text(error).contains("with --listen"), "{}", text(error));
        }
    }

    #[test]
    fn the_default_wildcard_answers_on_ipv4() {
        let listener = open("[::]:0".parse().expect("an address")).expect("a socket");
        let port = listener.local_addr().expect("an address").port();
        TcpStream::connect(("127.0.0.1", port)).expect("an IPv4 client reaches the IPv6 wildcard");
    }

    #[test]
    fn an_address_in_use_is_named_with_the_flag_that_changes_it() {
        let listener = open("127.0.0.1:0".parse().expect("an address")).expect("a socket");
        let taken = listener.local_addr().expect("an address");
        let text = open(taken).expect_err("the port is taken").to_string();
        assert!(text.contains(&taken.to_string()) && text.contains("--listen"), "{text}");
    }
}
