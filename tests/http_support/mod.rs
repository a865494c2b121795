//! A server with made-up routes, and a client that sees every byte.
#![allow(dead_code, reason = "each test binary uses its own part")]

#[path = "../common/leaks.rs"]
pub mod leaks;

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use kube_canary::{
    allocator::finder::{LeakScope, ScopeNumber},
    http::{Bound, Render, Reply, Routes, ServeLimits, Server, ServerStats},
    limits::FRAME_BYTES,
};

use leaks::NoLeaks;
use socket2::{Domain, Socket, Type};

/// The limit of every wait. A wait takes longer only if it hangs.
pub const WAIT_MAX: Duration = Duration::from_mins(1);

/// The observations of the renderer of `/metrics`.
#[derive(Default)]
pub struct Observed {
    pub rendered_bytes: AtomicUsize,
    pub frame_buffers_max: AtomicUsize,
    pub bodies: AtomicUsize,
}

/// `/metrics` and `/` return `lines` numbered lines, in frames. `/healthz` and `/readyz` return
/// `ok`. Paths below `/api/` have complete bodies. No other path exists.
pub struct TestRoutes {
    lines: usize,
    observed: Arc<Observed>,
    stats: Arc<ServerStats>,
    test: ScopeNumber,
}

struct Lines {
    next: usize,
    end: usize,
    observed: Arc<Observed>,
    stats: Arc<ServerStats>,
}

pub fn line(number: usize) -> String {
    format!("made_up_total{{number=\"{number:09}\"}} {number}\n")
}

pub fn lines(count: usize) -> String {
    (0..count).map(line).collect()
}

impl Render for Lines {
    fn render(&mut self, out: &mut Vec<u8>) -> bool {
        assert_eq!((out.len(), out.capacity()), (0, FRAME_BYTES), "the frame is empty and of its size");
        self.observed.frame_buffers_max.fetch_max(self.stats.frame_buffers(), Ordering::SeqCst);
        while self.next < self.end && out.len() + 64 <= FRAME_BYTES {
            writeln!(out, "made_up_total{{number=\"{:09}\"}} {}", self.next, self.next).expect("writing to a vector");
            self.next += 1;
        }
        self.observed.rendered_bytes.fetch_add(out.len(), Ordering::SeqCst);
        self.next < self.end
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.observed.bodies.fetch_sub(1, Ordering::SeqCst);
    }
}

impl TestRoutes {
    fn lines(&self) -> Lines {
        self.observed.bodies.fetch_add(1, Ordering::SeqCst);
        let (observed, stats) = (Arc::clone(&self.observed), Arc::clone(&self.stats));
        Lines { next: 0, end: self.lines, observed, stats }
    }
}

impl Routes for TestRoutes {
    fn route(&self, path: &str, accept: &str) -> Reply {
        // Whichever worker this is, it belongs to the one server of the test.
        LeakScope::adopt(self.test);
        let text = |status, body: &str| Reply::Full { status, content_type: "text/plain", body: body.into() };
        match path {
            "/metrics" => Reply::Stream { content_type: "text/plain; version=0.0.4", body: Box::new(self.lines()) },
            "/healthz" | "/readyz" => text(200, "ok\n"),
            "/accept" => text(200, accept),
            "/empty" => text(200, ""),
            "/" => Reply::Page { policy: "default-src 'none'", body: Box::new(self.lines()) },
            "/api/short" => text(200, "short\n"),
            "/api/long" => text(200, &lines(200)),
            "/api/refused" => text(404, &lines(200)),
            _ => text(404, "not here\n"),
        }
    }
}

/// A running server on 127.0.0.1.
pub struct Agent {
    pub address: SocketAddr,
    pub observed: Arc<Observed>,
    pub stats: Arc<ServerStats>,
    pub server: Server,
    /// Declared last, so that it is dropped last.
    pub no_leaks: NoLeaks,
}

pub fn bind() -> Bound {
    Server::bind("127.0.0.1:0".parse().expect("an address")).expect("a socket")
}

pub fn serve(workers: usize, lines: usize, limits: ServeLimits) -> Agent {
    serve_on(bind(), workers, lines, limits)
}

pub fn serve_on(bound: Bound, workers: usize, lines: usize, limits: ServeLimits) -> Agent {
    let no_leaks = NoLeaks::here();
    let (observed, stats) = (Arc::new(Observed::default()), bound.stats());
    let test = no_leaks.number();
    let routes = TestRoutes { lines, observed: Arc::clone(&observed), stats: Arc::clone(&stats), test };
    let server = bound.start_with(workers, Arc::new(routes), limits).expect("a server");
    Agent { address: server.local_addr(), observed, stats, server, no_leaks }
}

/// Returns long timeouts: only a test of a timeout shortens it.
pub fn generous_limits() -> ServeLimits {
    let long = WAIT_MAX * 10;
    ServeLimits { request_head_time: long, response_time: long, drain_time: long, ..ServeLimits::default() }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(WAIT_MAX)).expect("a timeout");
    stream
}

/// A port of 127.0.0.1 that refuses connections as long as this exists: it is bound,
/// but has no listener.
pub struct Closed {
    pub port: u16,
    _socket: Socket,
}

impl Closed {
    pub fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
        let address = socket.local_addr().expect("an address").as_socket().expect("an address of IPv4");
        Self { port: address.port(), _socket: socket }
    }
}

/// A response as received.
#[derive(Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Response {
    /// The value of a header, with its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Sends one request on a connection of its own.
pub fn get(address: SocketAddr, path: &str) -> io::Result<Response> {
    exchange(&mut connect(address), &format!("GET {path} HTTP/1.1\r\nHost: canary\r\nConnection: close\r\n\r\n"))
}

pub fn exchange(stream: &mut TcpStream, request: &str) -> io::Result<Response> {
    stream.write_all(request.as_bytes())?;
    receive(&mut BufReader::new(stream), request.starts_with("HEAD"))
}

/// Reads one response, whatever form its length has.
pub fn receive(from: &mut impl BufRead, is_head: bool) -> io::Result<Response> {
    let mut response = receive_head(from)?;
    if !is_head {
        let body = receive_body(from, &response)?;
        response.body = String::from_utf8(body).map_err(|_| io::ErrorKind::InvalidData)?;
    }
    Ok(response)
}

/// Reads a response up to its body.
pub fn receive_head(from: &mut impl BufRead) -> io::Result<Response> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if from.read_line(&mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let status = head.get(9..12).and_then(|text| text.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Response { status, head: head.to_lowercase().replace("\r\n", "\n"), body: String::new() })
}

/// Reads the body after a head.
pub fn receive_body(from: &mut impl BufRead, response: &Response) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if response.header("transfer-encoding") == Some("chunked") {
        while receive_chunk(from, &mut body)? > 0 {}
    } else if let Some(length) = response.header("content-length") {
        let length = length.parse().map_err(|_| io::ErrorKind::InvalidData)?;
        from.take(length).read_to_end(&mut body)?;
    } else {
        from.read_to_end(&mut body)?;
    }
    Ok(body)
}

/// Reads one chunk of a body, and returns its length.
pub fn receive_chunk(from: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<u64> {
    let mut size = String::new();
    from.read_line(&mut size)?;
    let size = u64::from_str_radix(size.trim(), 16).map_err(|_| io::ErrorKind::InvalidData)?;
    from.by_ref().take(size).read_to_end(body)?;
    let mut end = [0; 2];
    from.read_exact(&mut end)?;
    Ok(size)
}

/// Waits until an event on another thread has happened.
pub fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT_MAX;
    while !happened() {
        assert!(Instant::now() < end, "this never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether the server closes the connection without another byte.
pub fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 1]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}
