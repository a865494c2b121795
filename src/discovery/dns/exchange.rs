//! One question to one server of the DNS: by UDP, and by TCP if the answer does not fit.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::wire::{self, DnsReply};
use crate::discovery::random;

/// Largest answer by TCP.
pub const ANSWER_BYTES_MAX: usize = u16::MAX as usize;
/// Datagrams that are read for one answer: forged ones, and late answers to other questions.
const DATAGRAMS_MAX: usize = 128;

/// Sends one question to one server, from a new port that the kernel chooses. `time` is the timeout
/// of each of the up to three ways: with EDNS, without it, and by TCP. Of an answer by TCP of more
/// than `bytes_max` bytes only the head is read, so it has no addresses.
///
/// # Errors
/// The error of the kernel, [`io::ErrorKind::TimedOut`], or [`io::ErrorKind::InvalidData`] if what
/// has come is no answer.
pub async fn exchange(
    server: SocketAddr,
    name: &[u8],
    kind: u16,
    time: Duration,
    bytes_max: usize,
) -> io::Result<DnsReply> {
    // A forger must guess this id and the port that the kernel chooses.
    let mut query = wire::query(random::id(), name, kind);
    let mut reply = in_time(time, by_udp(server, &query)).await?;
    if reply.code == wire::FORMERR {
        // So answers a server that does not know EDNS (RFC 6891, section 7).
        wire::without_edns(&mut query);
        reply = in_time(time, by_udp(server, &query)).await?;
    }
    if reply.truncated { in_time(time, by_tcp(server, &query, bytes_max)).await } else { Ok(reply) }
}

async fn in_time<T>(time: Duration, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(time, future).await.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")))
}

async fn by_udp(server: SocketAddr, query: &[u8]) -> io::Result<DnsReply> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    // The socket is connected, so the kernel drops packets from others, and reports at once if the
    // port is closed.
    socket.connect(server).await?;
    socket.send(query).await?;
    let mut buffer = vec![0; wire::UDP_BYTES.into()];
    for _ in 0..DATAGRAMS_MAX {
        let length = socket.recv(&mut buffer).await?;
        if let Some(reply) = wire::parse(&buffer[..length], query) {
            return Ok(reply);
        }
    }
    Err(malformed("a flood of other datagrams"))
}

async fn by_tcp(server: SocketAddr, query: &[u8], bytes_max: usize) -> io::Result<DnsReply> {
    let mut stream = TcpStream::connect(server).await?;
    let mut message = Vec::with_capacity(query.len() + 2);
    message.extend_from_slice(&u16::try_from(query.len()).map_err(io::Error::other)?.to_be_bytes());
    message.extend_from_slice(query);
    stream.write_all(&message).await?;
    let length = usize::from(stream.read_u16().await?);
    let mut answer = vec![0; length.min(bytes_max)];
    stream.read_exact(&mut answer).await?;
    let reply = if answer.len() < length { wire::parse_head(&answer, query) } else { wire::parse(&answer, query) };
    // An answer that is truncated by TCP too would otherwise be requested for ever.
    reply.filter(|reply| !reply.truncated).ok_or_else(|| malformed("malformed answer by TCP"))
}

fn malformed(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
