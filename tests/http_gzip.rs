//! Compressed responses: which clients get them, how many at once, and what remains of them.

#[path = "common/gunzip.rs"]
mod gunzip;
mod http_support;

use std::{
    io::{BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use gunzip::{beginning, gunzip};
use http_support::{
    Response, WAIT_MAX, bind, connect, eventually, exchange, generous_limits, is_closed, leaks::NoLeaks, lines,
    receive_body, receive_chunk, receive_head, serve,
};
use kube_canary::{
    allocator::finder::{LeakScope, ScopeNumber},
    http::{LiveBody, Reply, Routes, ServeLimits, Server},
    limits::COMPRESSED_RESPONSES_MAX,
};
use socket2::{Domain, Socket, Type};

/// Lines of a response that does not fit in the sockets of a client that reads nothing: 18 MB
/// plain, and 1.5 MB compressed.
const ENDLESS: usize = 400_000;

const SHORT: Duration = Duration::from_millis(200);

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: canary\r\nAccept-Encoding: gzip\r\n\r\n")
}

/// Sends a request, and reads the response with its body as received.
fn ask(stream: &mut TcpStream, request: &str) -> (Response, Vec<u8>) {
    stream.write_all(request.as_bytes()).expect("a request is sent");
    let mut answer = BufReader::new(stream);
    let head = receive_head(&mut answer).expect("a head");
    let body = receive_body(&mut answer, &head).expect("a body");
    (head, body)
}

fn is_gzip(response: &Response) -> bool {
    response.header("content-encoding") == Some("gzip")
}

/// A connection that has sent a request, with a small receive buffer in the kernel.
fn connect_narrow(address: SocketAddr, request: &str) -> BufReader<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("an option");
    socket.connect(&address.into()).expect("the server accepts");
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(WAIT_MAX)).expect("a timeout");
    stream.write_all(request.as_bytes()).expect("a request is sent");
    BufReader::new(stream)
}

#[test]
fn only_a_client_that_accepts_gzip_gets_a_compressed_body() {
    let agent = serve(1, 3_000, generous_limits());
    let mut stream = connect(agent.address);
    for (path, vary) in [("/metrics", "accept, accept-encoding"), ("/", "accept-encoding")] {
        for (accepted, is_compressed) in [
            ("", false),
            ("Accept-Encoding: br\r\n", false),
            ("Accept-Encoding: gzip;q=0, *\r\n", false),
            ("Accept-Encoding: gzip, deflate, br\r\n", true),
            ("Accept-Encoding: br\r\nAccept-Encoding: GZIP;q=0.5\r\n", true),
        ] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: canary\r\n{accepted}\r\n");
            let (head, body) = ask(&mut stream, &request);
            assert_eq!((head.status, is_gzip(&head)), (200, is_compressed), "{request}");
            assert_eq!((head.header("vary"), head.header("cache-control")), (Some(vary), Some("no-store")));
            assert_eq!((head.header("etag"), head.header("transfer-encoding")), (None, Some("chunked")));
            let text = if is_compressed { gunzip(&body).expect("a gzip stream") } else { body.clone() };
            assert!(text == lines(3_000).into_bytes(), "{request}");
            assert!(!is_compressed || body.len() * 6 < text.len(), "{} bytes", body.len());
        }
    }
    assert_eq!((agent.stats.connections(), agent.stats.compressors()), (1, 0));
}

#[test]
fn a_complete_body_is_compressed_if_it_is_long_and_no_error() {
    let agent = serve(1, 3, generous_limits());
    let mut stream = connect(agent.address);
    for (path, status, is_compressed) in
        [("/api/long", 200, true), ("/api/short", 200, false), ("/api/refused", 404, false), ("/healthz", 200, false)]
    {
        let (head, body) = ask(&mut stream, &request(path));
        assert_eq!((head.status, is_gzip(&head)), (status, is_compressed), "{path}");
        let is_coded = path.starts_with("/api/");
        let expected = is_coded.then_some("accept-encoding");
        assert_eq!((head.header("vary"), head.header("cache-control")), (expected, expected.map(|_| "no-store")));
        if is_compressed {
            assert_eq!(head.header("content-length"), None);
            assert!(gunzip(&body).expect("a gzip stream") == lines(200).into_bytes());
        } else {
            assert_eq!(head.header("content-length"), Some(body.len().to_string().as_str()));
        }
    }
}

#[test]
fn head_has_the_headers_of_get_and_compresses_nothing() {
    let agent = serve(2, ENDLESS, generous_limits());
    // Whether a compressor is free makes no difference to it.
    let held: Vec<_> = (0..COMPRESSED_RESPONSES_MAX)
        .map(|_| {
            let mut reader = connect_narrow(agent.address, &request("/metrics"));
            assert!(is_gzip(&receive_head(&mut reader).expect("a head")));
            reader
        })
        .collect();
    let head_of = |stream: &mut TcpStream, path: &str| {
        exchange(stream, &request(path).replace("GET", "HEAD")).expect("an answer")
    };
    let mut stream = connect(agent.address);
    for (path, is_compressed) in [("/metrics", true), ("/", true), ("/api/long", true), ("/api/short", false)] {
        let answer = head_of(&mut stream, path);
        assert_eq!((answer.status, is_gzip(&answer)), (200, is_compressed), "{path}");
        assert_eq!(answer.header("content-length").is_some(), !is_compressed, "{path}");
        assert_eq!(agent.stats.compressors(), COMPRESSED_RESPONSES_MAX);
    }
    drop(held);
    eventually("all compressors are gone", || agent.stats.compressors() == 0);
}

#[test]
fn at_most_16_responses_are_compressed_at_once() {
    const READERS: usize = 48;
    let agent = serve(4, ENDLESS, generous_limits());
    for _ in 0..3 {
        let mut readers: Vec<_> = (0..READERS).map(|_| connect_narrow(agent.address, &request("/metrics"))).collect();
        let compressed = readers.iter_mut().map(|reader| is_gzip(&receive_head(reader).expect("a head")));
        // None of them can have ended, because the readers have not read.
        assert_eq!(compressed.filter(|is_gzip| *is_gzip).count(), COMPRESSED_RESPONSES_MAX);
        assert_eq!(agent.stats.compressors(), COMPRESSED_RESPONSES_MAX);
        drop(readers);
        eventually("all compressors are gone", || agent.stats.compressors() == 0);
        eventually("all places are free", || agent.stats.connections() == 0);
    }
    assert_eq!(agent.observed.bodies.load(Ordering::SeqCst), 0);
}

#[test]
fn parallel_readers_get_the_complete_body_compressed_or_not() {
    let agent = serve(4, 5_000, generous_limits());
    let expected = lines(5_000).into_bytes();
    thread::scope(|scope| {
        let readers: Vec<_> =
            (0..48).map(|_| scope.spawn(|| ask(&mut connect(agent.address), &request("/metrics")))).collect();
        for reader in readers {
            let (head, body) = reader.join().expect("no panic");
            let text = if is_gzip(&head) { gunzip(&body).expect("a gzip stream") } else { body };
            assert!(text == expected);
        }
    });
    assert_eq!(agent.stats.compressors(), 0, "each is gone when its last byte is compressed");
}

#[test]
fn a_reader_that_disconnects_frees_its_compressor() {
    let agent = serve(1, ENDLESS, generous_limits());
    for _ in 0..40 {
        let mut client = connect_narrow(agent.address, &request("/metrics"));
        receive_head(&mut client).expect("a head");
        client.read_exact(&mut [0; 1_000]).expect("the beginning of a body");
    }
    eventually("all places are free", || agent.stats.connections() == 0);
    assert_eq!(agent.stats.compressors(), 0);
}

#[test]
fn a_response_that_times_out_frees_its_compressor() {
    let agent = serve(1, ENDLESS, ServeLimits { response_time: SHORT, ..generous_limits() });
    let mut reader = connect_narrow(agent.address, &request("/metrics"));
    let head = receive_head(&mut reader).expect("a head");
    assert!(is_gzip(&head));
    eventually("its place is free", || agent.stats.connections() == 0);
    assert_eq!(agent.stats.compressors(), 0);
    assert!(receive_body(&mut reader, &head).is_err(), "the body ends before its end");
}

#[test]
fn shutdown_frees_all_compressors() {
    let agent = serve(2, ENDLESS, ServeLimits { shutdown_time: SHORT, ..generous_limits() });
    let mut reader = connect_narrow(agent.address, &request("/metrics"));
    assert!(is_gzip(&receive_head(&mut reader).expect("a head")));
    assert_eq!(agent.stats.compressors(), 1);
    agent.server.shutdown();
    assert_eq!((agent.stats.compressors(), agent.stats.frame_buffers()), (0, 0));
}

#[test]
fn http_1_0_gets_a_compressed_stream_that_ends_with_the_connection() {
    let agent = serve(1, 5_000, generous_limits());
    let mut stream = connect(agent.address);
    let (head, body) = ask(&mut stream, "GET /metrics HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n");
    assert_eq!((is_gzip(&head), head.header("transfer-encoding")), (true, None));
    assert!(gunzip(&body).expect("a gzip stream") == lines(5_000).into_bytes());
    assert!(is_closed(&mut stream));
}

/// A gate at which a body waits.
#[derive(Default)]
struct Signal {
    given: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

impl Signal {
    fn give(&self) {
        self.given.store(true, Ordering::SeqCst);
        if let Some(waker) = self.waiting.lock().expect("no panic").take() {
            waker.wake();
        }
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        *self.waiting.lock().expect("no panic") = Some(cx.waker().clone());
        if self.given.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// A body that writes one row at once, and the other after the signal.
struct Rows {
    signal: Arc<Signal>,
    written: usize,
}

const ROWS: [&[u8]; 2] = [b"{\"rows\":[\n{\"node\":\"a\"}", b",\n{\"node\":\"b\"}\n]}\n"];

impl LiveBody for Rows {
    fn poll_render(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<bool> {
        if self.written == 1 && self.signal.poll(cx).is_pending() {
            return Poll::Pending;
        }
        out.extend_from_slice(ROWS[self.written]);
        self.written += 1;
        Poll::Ready(self.written < ROWS.len())
    }
}

struct LiveRoutes {
    signal: Arc<Signal>,
    test: ScopeNumber,
}

impl Routes for LiveRoutes {
    fn route(&self, _path: &str, _accept: &str) -> Reply {
        LeakScope::adopt(self.test);
        let body = Rows { signal: Arc::clone(&self.signal), written: 0 };
        Reply::Live { content_type: "application/json", body: Box::new(body) }
    }
}

/// A server whose only body waits for the signal.
struct LiveAgent {
    server: Server,
    signal: Arc<Signal>,
    /// Declared last, so that it is dropped last.
    _no_leaks: NoLeaks,
}

fn serve_live(limits: ServeLimits) -> LiveAgent {
    let no_leaks = NoLeaks::here();
    let signal = Arc::<Signal>::default();
    let routes = LiveRoutes { signal: Arc::clone(&signal), test: no_leaks.number() };
    let server = bind().start_with(1, Arc::new(routes), limits).expect("a server");
    LiveAgent { server, signal, _no_leaks: no_leaks }
}

#[test]
fn a_live_body_is_flushed_while_it_waits() {
    let agent = serve_live(generous_limits());
    let mut stream = connect(agent.server.local_addr());
    stream.write_all(request("/api/v1/mesh").as_bytes()).expect("a request is sent");
    let mut answer = BufReader::new(stream);
    assert!(is_gzip(&receive_head(&mut answer).expect("a head")));
    let mut body = Vec::new();
    // The body does not go on before the signal. A part that is not sent by then is never read, and
    // the read times out.
    while beginning(&body) != ROWS[0] {
        receive_chunk(&mut answer, &mut body).expect("a chunk");
    }
    assert_eq!(agent.server.stats().compressors(), 1);
    agent.signal.give();
    while receive_chunk(&mut answer, &mut body).expect("a chunk") > 0 {}
    assert_eq!(gunzip(&body).expect("a gzip stream"), ROWS.concat());
    assert_eq!(agent.server.stats().compressors(), 0);
}

#[test]
fn a_live_body_that_times_out_frees_its_compressor() {
    let agent = serve_live(ServeLimits { response_time: SHORT, ..generous_limits() });
    let mut answer = connect_narrow(agent.server.local_addr(), &request("/api/v1/mesh"));
    let head = receive_head(&mut answer).expect("a head");
    assert!(is_gzip(&head));
    eventually("its compressor is gone", || agent.server.stats().compressors() == 0);
    assert!(receive_body(&mut answer, &head).is_err(), "the body ends before its end");
}
