//! Scrapers that misbehave.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;

use socket2::{Domain, Socket, Type};

use crate::canary::{Canary, PEERS, talkative};
use crate::common::until::{PATIENCE, until_so};
use crate::http_support::connect;
use crate::shim::{PLAIN, shim};

/// A scrape whose answer has begun and does not fit what the kernel holds for this client, which reads no further.
pub fn stuck_scrape(canary: &Canary) -> TcpStream {
    begun_scrape(canary, 4_096).1
}

/// The begin of the answer to a scrape, and where the rest comes from, with a receive buffer of so many bytes.
pub fn begun_scrape(canary: &Canary, buffer: usize) -> ([u8; 512], TcpStream) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(buffer).expect("a small buffer");
    socket.connect(&canary.http.into()).expect("the server accepts");
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: canary\r\n\r\n").expect("the request is sent");
    let mut begin = [0; 512];
    stream.read_exact(&mut begin).expect("the answer begins");
    assert!(begin.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&begin));
    (begin, stream)
}

#[test]
fn a_scraper_that_goes_away_in_the_middle_of_a_response_ends_neither_program() {
    for program in [Path::new(PLAIN), shim()] {
        let mut canary = talkative(program);
        for round in 0..20 {
            let stream = stuck_scrape(&canary);
            // Closed with bytes unread, a socket resets. Where it has said that it is done before, the reset is EPIPE to
            // the writer instead of ECONNRESET, and EPIPE comes with SIGPIPE.
            if round % 2 == 0 {
                stream.shutdown(Shutdown::Write).expect("half a close");
            }
        }
        assert_eq!(canary.get("/healthz").status, 200, "{}", program.display());
        until_so("a whole scrape after them", || canary.get("/metrics").body.len() > 1 << 20);
        assert!(!canary.process.has_ended(), "{}", program.display());
    }
}

#[test]
fn health_is_answered_while_64_idle_connections_take_every_place() {
    let canary = Canary::start(&PEERS);
    until_so("it is ready", || canary.get("/readyz").status == 200);
    let idle: Vec<TcpStream> = (0..64).map(|_| connect(canary.http)).collect();
    for path in ["/healthz", "/readyz"] {
        let response = canary.get(path);
        assert_eq!(response.status, 200, "{path}: {}", response.body);
    }
    until_so("a scrape is refused: every place is taken", || canary.get("/metrics").status == 503);
    assert_eq!(canary.get("/healthz").status, 200);
    drop(idle);
    until_so("a scrape is answered: places are free", || canary.get("/metrics").status == 200);
}
