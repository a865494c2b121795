//! A small HTTP/1.1 client over any byte stream. It sends one request at a time, and bounds every
//! answer in bytes and time.
//!
//! hyper splits a client into a handle and a connection that must be polled. The usual way spawns
//! the connection, which costs a task. Here [`HttpConnection`] polls it together with the operation
//! that waits for it, in one future. So no part of it outlives a request that was given up, and the
//! client works on any runtime.
//!
//! The trap: hyper reads and discards 1xx answers without limit, and also the digits of a chunk's
//! size. Code above hyper sees neither, so the bytes are counted below it ([`Metered`]).

use std::future::{Future, poll_fn, ready};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The body of a request. The default is none.
pub type RequestBody = Full<Bytes>;

/// Read buffer of an HTTP client connection, and so the largest response head: hyper's smallest.
const BUFFER_BYTES: usize = 8_192;
/// Bytes that a client reads of an answer besides its body: the head with every 1xx response before
/// it, chunk sizes and trailers. It allows a head of hyper's largest size, body bytes read together
/// with it, and as much again for 1xx. Heads of our own answers have 150 bytes, those of API
/// servers less than 2 KB.
pub const OVERHEAD_BYTES_MAX: usize = 4 * BUFFER_BYTES;

/// The reason why a request got no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// There is no TCP connection.
    #[error("connecting: {0}")]
    Connect(#[source] io::Error),
    /// HTTP cannot carry this path.
    #[error("bad path: {0}")]
    Path(#[source] hyper::http::Error),
    /// The connection broke, or the answer was not HTTP.
    #[error("{}", chain(.0))]
    Wire(#[source] hyper::Error),
    /// The status of the answer was not 200.
    #[error("status {0}")]
    Status(StatusCode),
    /// The answer has more bytes than allowed.
    #[error("more than {0} bytes")]
    TooLarge(usize),
    /// The answer was not complete in time.
    #[error("no complete answer within {0:?}")]
    Time(Duration),
}

/// Returns an error with all its causes in one line. hyper's own text omits the I/O error. The page
/// of documentation that rustls adds to some reasons is left out.
pub fn chain(error: &dyn std::error::Error) -> String {
    let reason = |error: &dyn std::error::Error| {
        let mut text = error.to_string();
        text.truncate(text.find(": https://").unwrap_or(text.len()));
        text
    };
    let mut text = reason(error);
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = reason(cause);
        // The text of some errors already ends with the text of their cause.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// Returns the body of `GET http://address{path}`, over a separate connection. It takes at most
/// `limit` bytes and `time`.
///
/// # Errors
/// [`GetError`]. Every status other than 200 is an error.
pub async fn get(address: SocketAddr, path: &str, limit: usize, time: Duration) -> Result<Vec<u8>, GetError> {
    let exchange = async {
        let (mut link, response) = open(address, path, None).await?;
        link.collect(response.into_body(), limit).await
    };
    tokio::time::timeout(time, exchange).await.map_err(|_| GetError::Time(time))?
}

/// Sends a request and reads the head of the answer. The caller reads the rest from the
/// [`HttpConnection`], within its own bounds. `accept` is the media type to ask for, if not any.
///
/// # Errors
/// As [`get`].
pub async fn open(
    address: SocketAddr,
    path: &str,
    accept: Option<&'static str>,
) -> Result<(HttpConnection, Response<Incoming>), GetError> {
    let mut request = Request::get(path).header(header::HOST, address.to_string()).header(header::CONNECTION, "close");
    if let Some(accept) = accept {
        request = request.header(header::ACCEPT, accept);
    }
    let request = request.body(RequestBody::default()).map_err(GetError::Path)?;
    let stream = TcpStream::connect(address).await.map_err(GetError::Connect)?;
    let mut link = HttpConnection::handshake(stream).await.map_err(GetError::Wire)?;
    let response = link.send(request).await.map_err(GetError::Wire)?;
    if response.status() != StatusCode::OK {
        return Err(GetError::Status(response.status()));
    }
    Ok((link, response))
}

/// The number of bytes that may still be read from a stream. An [`HttpConnection`], which knows
/// what is a body, and the stream below hyper share it.
#[derive(Debug)]
struct Allowance(AtomicUsize);

impl Allowance {
    /// Resets the allowance at the start of a request.
    fn renew(&self) {
        self.0.store(OVERHEAD_BYTES_MAX, Ordering::Relaxed);
    }

    /// Subtracts the bytes of a read. If they were not allowed, the error names the limit.
    fn take(&self, bytes: usize) -> io::Result<()> {
        let left = self.0.load(Ordering::Relaxed).checked_sub(bytes);
        self.0.store(left.unwrap_or(0), Ordering::Relaxed);
        let reason = || format!("more than {OVERHEAD_BYTES_MAX} bytes beside the body");
        left.map(drop).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, reason()))
    }

    /// Adds the bytes of a piece of a body that has arrived. On the wire, a chunk of `n` bytes
    /// takes at most `2n + 8`, if its size has no leading zeros and no extension.
    fn give_back(&self, bytes: usize) {
        let left = self.0.load(Ordering::Relaxed);
        let more = left.saturating_add(bytes.saturating_mul(2).saturating_add(8));
        self.0.store(more.min(OVERHEAD_BYTES_MAX), Ordering::Relaxed);
    }
}

/// A stream of which each read is metered: `meter` is called with the number of bytes, and its
/// error is that of the read.
pub struct Metered<S, M> {
    /// The stream that carries the bytes.
    pub stream: S,
    /// The function that is called after each read.
    pub meter: M,
}

impl<S: AsyncRead + Unpin, M: Fn(usize) -> io::Result<()> + Unpin> AsyncRead for Metered<S, M> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        std::task::ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        Poll::Ready((self.meter)(into.filled().len() - before))
    }
}

impl<S: AsyncWrite + Unpin, M: Unpin> AsyncWrite for Metered<S, M> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A client connection that is polled by the future that waits for it. At most
/// [`OVERHEAD_BYTES_MAX`] of each answer are read in addition to its body.
pub struct HttpConnection {
    sender: SendRequest<RequestBody>,
    allowance: Arc<Allowance>,
    wire: Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>>,
    open: bool,
}

impl HttpConnection {
    /// Creates a connection from a stream. Sends nothing yet.
    ///
    /// # Errors
    /// Never for HTTP/1.1, but hyper's signature has one.
    pub async fn handshake<S>(stream: S) -> Result<Self, hyper::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let allowance = Arc::new(Allowance(AtomicUsize::new(OVERHEAD_BYTES_MAX)));
        let shared = Arc::clone(&allowance);
        let stream = Metered { stream, meter: move |bytes| shared.take(bytes) };
        let (sender, wire) =
            http1::Builder::new().max_buf_size(BUFFER_BYTES).handshake::<_, RequestBody>(TokioIo::new(stream)).await?;
        Ok(Self { sender, allowance, wire: Box::pin(wire), open: true })
    }

    /// Whether another request can be sent: the last body was read to its end, and the
    /// server keeps the connection.
    pub async fn is_usable(&mut self) -> bool {
        // A single poll detects a server that has closed the connection since.
        self.drive(ready(())).await;
        self.open && self.sender.is_ready()
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// # Errors
    /// The connection broke, the answer was not HTTP, or it has more than
    /// [`OVERHEAD_BYTES_MAX`].
    pub async fn send(&mut self, request: Request<RequestBody>) -> Result<Response<Incoming>, hyper::Error> {
        self.allowance.renew();
        let response = self.sender.send_request(request);
        self.drive(response).await
    }

    /// Returns the next piece of a body, or none at its end. The future can be dropped and the call
    /// repeated without losing anything.
    pub async fn frame(&mut self, body: &mut Incoming) -> Option<Result<Frame<Bytes>, hyper::Error>> {
        let frame = self.drive(body.frame()).await;
        if let Some(Ok(data)) = frame.as_ref().map(|frame| frame.as_ref().map(Frame::data_ref)) {
            self.allowance.give_back(data.map_or(0, Bytes::len));
        }
        frame
    }

    /// Reads the rest of a body, which must not be longer than `limit` bytes.
    ///
    /// # Errors
    /// [`GetError::TooLarge`], as soon as the length is known, or [`GetError::Wire`].
    pub async fn collect(&mut self, mut body: Incoming, limit: usize) -> Result<Vec<u8>, GetError> {
        let announced = body.size_hint();
        if announced.lower() > limit as u64 {
            return Err(GetError::TooLarge(limit));
        }
        // A known length is reserved at once: a vector that doubles would touch twice the memory.
        let mut bytes = Vec::with_capacity(usize::try_from(announced.exact().unwrap_or(0)).unwrap_or(0));
        while let Some(frame) = self.frame(&mut body).await {
            if let Ok(data) = frame.map_err(GetError::Wire)?.into_data() {
                if bytes.len() + data.len() > limit {
                    return Err(GetError::TooLarge(limit));
                }
                bytes.extend_from_slice(&data);
            }
        }
        Ok(bytes)
    }

    /// Runs `future` while the connection transfers its bytes. If the connection ends first, hyper
    /// reports that to `future`, which then ends too.
    async fn drive<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            if self.open && self.wire.as_mut().poll(context).is_ready() {
                self.open = false;
            }
            future.as_mut().poll(context)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[test]
    fn a_broken_tls_connection_has_a_reason_and_no_address_of_documentation() {
        // As rustls says it, beneath the error of the connection.
        let page = "https://docs.rs/rustls/latest/rustls/manual/_03_howto/index.html#unexpected-eof";
        let reason = "peer closed connection without sending TLS close_notify";
        let tls_error = io::Error::new(io::ErrorKind::UnexpectedEof, format!("{reason}: {page}"));
        assert_eq!(chain(&tls_error), reason);
        assert_eq!(chain(&io::Error::other(tls_error)), reason);
        let found = io::Error::other("not found: http://10.0.0.1/");
        assert_eq!(chain(&found), "not found: http://10.0.0.1/");
    }

    /// Serves one connection: sends a fixed text after the request's head, and returns the
    /// request's first line.
    async fn answer(listener: TcpListener, text: &'static [u8]) -> String {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(text).await.unwrap();
        String::from_utf8(head).unwrap().lines().next().unwrap().to_owned()
    }

    async fn exchange(text: &'static [u8], limit: usize) -> (Result<Vec<u8>, GetError>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::join!(get(address, "/a?b=c", limit, Duration::from_secs(30)), answer(listener, text))
    }

    #[tokio::test]
    async fn a_body_is_complete_with_a_length_or_in_chunks() {
        let (body, line) = exchange(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 5).await;
        assert_eq!((body.unwrap(), line.as_str()), (b"hello".to_vec(), "GET /a?b=c HTTP/1.1"));
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
        assert_eq!(exchange(chunked, 5).await.0.unwrap(), b"hello");
    }

    #[tokio::test]
    async fn a_body_above_the_limit_is_an_error_with_and_without_a_length() {
        let (body, _) = exchange(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 4).await;
        assert!(matches!(body, Err(GetError::TooLarge(4))), "{body:?}");
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
        assert!(matches!(exchange(chunked, 4).await.0, Err(GetError::TooLarge(4))));
    }

    /// Sends `piece` repeatedly until the client has closed the connection. Returns the number of
    /// bytes that were sent.
    async fn send_without_end(stream: &mut (impl AsyncWrite + Unpin), piece: &[u8]) -> usize {
        let mut taken = 0;
        while let Ok(bytes) = stream.write(&piece[taken % piece.len()..]).await {
            taken += bytes;
        }
        taken
    }

    /// Reads a request: hyper sends one before it reads.
    async fn take_request(stream: &mut (impl AsyncRead + Unpin)) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
    }

    const PIPE_BYTES: usize = 64;

    /// Returns the number of bytes that a client reads from a server that sends `head` and then
    /// `piece` without end, and the client's error.
    async fn read_of_endless(head: &[u8], piece: &[u8]) -> (usize, String) {
        let (ours, mut theirs) = tokio::io::duplex(PIPE_BYTES);
        let client = async move {
            let mut link = HttpConnection::handshake(ours).await.unwrap();
            let response = link.send(Request::get("/").body(RequestBody::default()).unwrap()).await;
            let body = link.collect(response.map_err(GetError::Wire)?.into_body(), 1_000).await;
            body.map(drop)
        };
        let server = async {
            take_request(&mut theirs).await;
            theirs.write_all(head).await.unwrap();
            send_without_end(&mut theirs, piece).await + head.len()
        };
        let (error, bytes) = tokio::join!(client, server);
        (bytes, error.unwrap_err().to_string())
    }

    #[tokio::test]
    async fn an_endless_answer_is_read_up_to_the_limit_that_the_error_names() {
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let endless: [(&[u8], &[u8]); 4] = [
            (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
            (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n"),
            (chunked, b"0000000000000000"),
            (chunked, b"0"),
        ];
        for (head, piece) in endless {
            let (bytes, error) = read_of_endless(head, piece).await;
            assert!(error.ends_with(&format!("more than {OVERHEAD_BYTES_MAX} bytes beside the body")), "{error}");
            // The read that exceeds the limit may be as large as the buffer.
            let most = OVERHEAD_BYTES_MAX + BUFFER_BYTES + PIPE_BYTES;
            assert!(
                (OVERHEAD_BYTES_MAX..=most).contains(&bytes),
                "{bytes} bytes of {:?}",
                String::from_utf8_lossy(piece)
            );
        }
    }

    #[tokio::test]
    async fn a_body_does_not_count_towards_the_overhead_of_its_connection() {
        for piece in [1, 3, 16, 5_000] {
            let pieces = 4 * OVERHEAD_BYTES_MAX / piece;
            let (ours, mut theirs) = tokio::io::duplex(PIPE_BYTES);
            let mut link = HttpConnection::handshake(ours).await.unwrap();
            for _ in 0..2 {
                let client = async {
                    let response = link.send(Request::get("/").body(RequestBody::default()).unwrap()).await.unwrap();
                    link.collect(response.into_body(), usize::MAX).await.unwrap()
                };
                let server = async {
                    take_request(&mut theirs).await;
                    theirs.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
                    let chunk = [format!("{piece:x}\r\n").as_bytes(), &vec![b'x'; piece], b"\r\n"].concat();
                    for _ in 0..pieces {
                        theirs.write_all(&chunk).await.unwrap();
                    }
                    theirs.write_all(b"0\r\n\r\n").await.unwrap();
                };
                let (body, ()) = tokio::join!(client, server);
                assert_eq!(body.len(), pieces * piece);
            }
        }
    }

    #[tokio::test]
    async fn endless_interim_answers_are_an_error_before_the_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = || async {
            let (mut stream, _) = listener.accept().await.unwrap();
            take_request(&mut stream).await;
            send_without_end(&mut stream, b"HTTP/1.1 100 Continue\r\n\r\n").await
        };
        let (got, _) = tokio::join!(get(address, "/", 9, Duration::from_hours(1)), server());
        let (opened, _) = tokio::join!(open(address, "/", None), server());
        for error in [got.map(drop).unwrap_err(), opened.map(drop).unwrap_err()] {
            assert!(matches!(&error, GetError::Wire(_)) && error.to_string().contains("beside the body"), "{error}");
        }
    }

    #[tokio::test]
    async fn another_status_a_truncated_body_and_another_protocol_are_errors() {
        let (body, _) = exchange(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", 9).await;
        assert!(matches!(body, Err(GetError::Status(StatusCode::SERVICE_UNAVAILABLE))), "{body:?}");
        let (body, _) = exchange(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", 9).await;
        assert!(matches!(body, Err(GetError::Wire(_))), "{body:?}");
        let (body, _) = exchange(b"SSH-2.0-OpenSSH\r\n\r\n", 9).await;
        assert!(matches!(body, Err(GetError::Wire(_))), "{body:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_is_a_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let time = Duration::from_secs(2);
        let got = get(listener.local_addr().unwrap(), "/", 9, time).await;
        assert!(matches!(got, Err(GetError::Time(t)) if t == time), "{got:?}");
    }

    #[tokio::test]
    async fn a_port_without_a_listener_is_a_connect_error() {
        // The socket is bound, so that no other process gets the port, but it does not listen.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let got = get(socket.local_addr().unwrap(), "/", 9, Duration::from_secs(30)).await;
        assert!(matches!(got, Err(GetError::Connect(_))), "{got:?}");
    }
}
