//! Attempts at servers on loopback that answer well, badly, slowly or not at all.

mod datagrams;
mod dns;
mod http;
mod service;
mod tls;

use std::io;
use std::net::SocketAddr;

use kube_canary_model::check::{CheckFailure, CheckPhase};
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::*;
use crate::peers::Family;

/// What an attempt knows besides its target.
const CONTEXT: Context<'static> = Context {
    own_node: "own",
    authorities: None,
    cluster_name: "kubernetes.default.svc.cluster.local.",
    record: DnsRecord::A,
};

fn loopback(port: u16) -> HostPort {
    HostPort { host: Host::Address([127, 0, 0, 1].into()), port }
}

/// An attempt over IPv4 that passed no phase.
fn ended(failure: CheckFailure) -> Attempt {
    Attempt { end: Err(failure), family: Some(Family::V4), ..Attempt::default() }
}

/// Whether exactly these phases have ended.
fn has_phases(found: &Attempt, phases: &[CheckPhase]) -> bool {
    CheckPhase::ALL.iter().all(|phase| found.phases[*phase as usize].is_some() == phases.contains(phase))
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Makes an attempt at a server that serves one connection by `serve`.
async fn attempt_at<F: Future<Output = ()>>(
    target: impl Fn(u16) -> CheckTarget,
    context: Context<'_>,
    serve: impl FnOnce(TcpStream) -> F,
) -> Attempt {
    let (listener, address) = listen().await;
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        serve(stream).await;
    };
    let target = target(address.port());
    tokio::join!(attempt(&target, address, &context), server).0
}

/// Sends `piece` until the client has closed. Returns the number of bytes that were taken.
async fn send_without_end(stream: &mut (impl AsyncWrite + Unpin), piece: &[u8]) -> usize {
    let mut taken = 0;
    while let Ok(bytes) = stream.write(&piece[taken % piece.len()..]).await {
        taken += bytes;
    }
    taken
}

/// Reads until the client has closed.
async fn read_to_end(stream: &mut TcpStream) {
    let mut bytes = [0; 4_096];
    while stream.read(&mut bytes).await.is_ok_and(|length| length > 0) {}
}

#[tokio::test]
async fn a_connection_is_all_that_a_check_by_tcp_needs() {
    let found = attempt_at(|port| CheckTarget::Tcp(loopback(port)), CONTEXT, |stream| async { drop(stream) }).await;
    assert_eq!(found.end, Ok(()));
    assert!(has_phases(&found, &[CheckPhase::Connect]));
}

#[tokio::test]
async fn a_port_without_a_listener_refuses_every_check_by_tcp() {
    // The socket is bound, so that no other process gets the port, but it does not listen.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let to = socket.local_addr().unwrap();
    let host = loopback(to.port());
    for target in [
        CheckTarget::Tcp(host.clone()),
        CheckTarget::Tls(host.clone()),
        CheckTarget::Http { is_secure: false, host: host.clone(), path: "/".into() },
        CheckTarget::Http { is_secure: true, host: host.clone(), path: "/".into() },
        CheckTarget::Service(host),
    ] {
        let found = attempt(&target, to, &CONTEXT).await;
        assert_eq!(found, ended(CheckFailure::Refused), "{target}");
    }
}

/// A queue of connections that is full drops SYN segments, as a firewall does.
#[tokio::test(start_paused = true)]
async fn an_unanswered_connection_is_a_timeout() {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.listen(0).unwrap();
    let to = socket.local_addr().unwrap().as_socket().unwrap();
    let _taken = TcpStream::connect(to).await.unwrap();
    for target in [CheckTarget::Tcp(loopback(to.port())), CheckTarget::Tls(loopback(to.port()))] {
        let found = attempt(&target, to, &CONTEXT).await;
        assert_eq!(found, ended(CheckFailure::Timeout), "{target}");
    }
}

#[test]
fn errors_of_the_kernel_have_their_reasons() {
    for (number, reason) in [
        (libc::ECONNREFUSED, CheckFailure::Refused),
        (libc::ENETUNREACH, CheckFailure::NoRoute),
        (libc::EHOSTUNREACH, CheckFailure::NoRoute),
        (libc::EADDRNOTAVAIL, CheckFailure::NoRoute),
        (libc::EAFNOSUPPORT, CheckFailure::NoRoute),
        (libc::EPERM, CheckFailure::NotSent),
        (libc::EACCES, CheckFailure::NotSent),
        (libc::ENOBUFS, CheckFailure::NotSent),
        (libc::ETIMEDOUT, CheckFailure::Timeout),
        (libc::ECONNRESET, CheckFailure::Closed),
        (libc::EPIPE, CheckFailure::Closed),
        (libc::EMFILE, CheckFailure::Other),
    ] {
        let error = io::Error::from_raw_os_error(number);
        assert_eq!(failure::failure_of_io(&error), reason, "{error}");
    }
}

#[test]
fn an_attempt_that_waits_is_small() {
    let to = SocketAddr::from(([127, 0, 0, 1], 53));
    let bytes = size_of_val(&attempt(&CheckTarget::ClusterDns, to, &CONTEXT));
    assert!(bytes <= 2_048, "{bytes}");
}
