//! Scrapes that have begun and wait, and the stop of an agent that serves them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::agent::{Agent, talkative};
use crate::common::until::PATIENCE;
use crate::http_support::connect;
use crate::shim::PLAIN;

/// A scrape whose answer has begun. It is larger than the kernel's buffers for this client,
/// which reads no further.
pub fn stuck_scrape(agent: &Agent) -> TcpStream {
    begun_scrape(agent, 4_096).1
}

/// The beginning of the answer to a scrape, and the connection for the rest, with a receive buffer
/// of `buffer` bytes.
pub fn begun_scrape(agent: &Agent, buffer: usize) -> ([u8; 512], TcpStream) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(buffer).expect("a small buffer");
    socket.connect(&agent.http.into()).expect("the server accepts");
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: canary\r\n\r\n").expect("the request is sent");
    let mut begin = [0; 512];
    stream.read_exact(&mut begin).expect("the answer begins");
    assert!(begin.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&begin));
    (begin, stream)
}

/// Stops an agent by each signal while connections are idle and a scrape is stuck. Each agent must
/// end with exit code 0 and take less than `limit`.
pub fn signals_end_it_within(limit: Duration) {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut agent = talkative(PLAIN);
        let idle: Vec<_> = (0..8).map(|_| connect(agent.http)).collect();
        let stuck = stuck_scrape(&agent);
        let asked = Instant::now();
        agent.process.signal(signal);
        let status = agent.process.end();
        assert_eq!(status.code(), Some(0), "{status}: {}", agent.process.log());
        println!("ended after {:?}", asked.elapsed());
        assert!(asked.elapsed() < limit, "after {:?}", asked.elapsed());
        drop((idle, stuck));
    }
}
