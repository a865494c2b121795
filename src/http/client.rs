//! A small HTTP/1.1 client over any byte stream: one request at a time, every answer bounded in bytes and time.
//!
//! hyper splits a client into a handle and a connection that someone must drive. Spawning the connection is the usual
//! way and costs a task; here [`Link`] polls it beside whatever waits for it, in one future: nothing outlives a request
//! that was given up, and the client works on any runtime.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::limits;

/// Why a request got no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// No TCP connection.
    #[error("connecting: {0}")]
    Connect(#[source] std::io::Error),
    /// The path is not one that HTTP can carry.
    #[error("bad path: {0}")]
    Path(#[source] hyper::http::Error),
    /// The connection broke, or what came was not HTTP.
    #[error("{}", chain(.0))]
    Wire(#[source] hyper::Error),
    /// An answer, but not 200.
    #[error("status {0}")]
    Status(StatusCode),
    /// More bytes than allowed.
    #[error("more than {0} bytes")]
    TooLarge(usize),
    /// Not done in time.
    #[error("no complete answer within {0:?}")]
    Time(Duration),
}

/// An error with all its causes in one line: hyper's own text leaves out the I/O error.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some errors have their cause's text in their own.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// The body of `GET http://address{path}`: a whole connection for one request. At most `limit` bytes and `time`.
///
/// # Errors
/// [`GetError`]; everything but status 200 is one.
pub async fn get(address: SocketAddr, path: &str, limit: usize, time: Duration) -> Result<Vec<u8>, GetError> {
    let exchange = async {
        let (mut link, body) = open(address, path).await?;
        link.collect(body, limit).await
    };
    tokio::time::timeout(time, exchange).await.map_err(|_| GetError::Time(time))?
}

/// The same as far as the head of the answer: what follows is read from the [`Link`], with bounds of one's own.
///
/// # Errors
/// As [`get`].
pub async fn open(address: SocketAddr, path: &str) -> Result<(Link, Incoming), GetError> {
    let request = Request::get(path)
        .header(header::HOST, address.to_string())
        .header(header::CONNECTION, "close")
        .body(Empty::new())
        .map_err(GetError::Path)?;
    let stream = TcpStream::connect(address).await.map_err(GetError::Connect)?;
    let mut link = Link::handshake(stream).await.map_err(GetError::Wire)?;
    let response = link.send(request).await.map_err(GetError::Wire)?;
    if response.status() != StatusCode::OK {
        return Err(GetError::Status(response.status()));
    }
    Ok((link, response.into_body()))
}

/// A client connection that is driven by whoever waits on it.
pub struct Link {
    sender: SendRequest<Empty<Bytes>>,
    wire: Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>>,
    open: bool,
}

impl Link {
    /// Makes a connection of a stream. Sends nothing yet.
    ///
    /// # Errors
    /// Never for HTTP/1.1, but hyper's signature has one.
    pub async fn handshake<S>(stream: S) -> Result<Self, hyper::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, wire) = http1::Builder::new()
            .max_buf_size(limits::CLIENT_BUFFER_BYTES)
            .handshake::<_, Empty<Bytes>>(TokioIo::new(stream))
            .await?;
        Ok(Self { sender, wire: Box::pin(wire), open: true })
    }

    /// Whether another request can be sent: the last body was read to its end and the peer keeps the connection.
    pub async fn is_usable(&mut self) -> bool {
        // One poll of the wire notices a peer that has closed since.
        poll_fn(|context| {
            if self.open && self.wire.as_mut().poll(context).is_ready() {
                self.open = false;
            }
            Poll::Ready(())
        })
        .await;
        self.open && self.sender.is_ready()
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// # Errors
    /// The connection broke, or what came was not HTTP.
    pub async fn send(&mut self, request: Request<Empty<Bytes>>) -> Result<Response<Incoming>, hyper::Error> {
        let response = self.sender.send_request(request);
        self.drive(response).await
    }

    /// The next piece of a body, None at its end. Can be dropped and called again without losing anything.
    pub async fn frame(&mut self, body: &mut Incoming) -> Option<Result<Frame<Bytes>, hyper::Error>> {
        self.drive(body.frame()).await
    }

    /// The rest of a body, which must not be longer than `limit` bytes.
    ///
    /// # Errors
    /// [`GetError::TooLarge`], as soon as it is known, or [`GetError::Wire`].
    pub async fn collect(&mut self, mut body: Incoming, limit: usize) -> Result<Vec<u8>, GetError> {
        let announced = body.size_hint();
        if announced.lower() > limit as u64 {
            return Err(GetError::TooLarge(limit));
        }
        // Known lengths are reserved at once: a vector that doubles would touch twice the memory.
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

    /// Runs `future` while the connection moves its bytes. Where the connection ends first, `future` hears of it from
    /// hyper and ends too.
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

    /// Serves one connection with a fixed text after the request's head, and gives the request's first line back.
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
    async fn a_body_comes_back_whole_with_a_length_or_in_chunks() {
        let (body, line) = exchange(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 5).await;
        assert_eq!((body.unwrap(), line.as_str()), (b"hello".to_vec(), "GET /a?b=c HTTP/1.1"));
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
        assert_eq!(exchange(chunked, 5).await.0.unwrap(), b"hello");
    }

    #[tokio::test]
    async fn a_body_past_the_limit_is_refused_whether_announced_or_not() {
        let (body, _) = exchange(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 4).await;
        assert!(matches!(body, Err(GetError::TooLarge(4))), "{body:?}");
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
        assert!(matches!(exchange(chunked, 4).await.0, Err(GetError::TooLarge(4))));
    }

    #[tokio::test]
    async fn another_status_a_cut_and_nonsense_are_errors() {
        let (body, _) = exchange(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", 9).await;
        assert!(matches!(body, Err(GetError::Status(StatusCode::SERVICE_UNAVAILABLE))), "{body:?}");
        let (body, _) = exchange(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", 9).await;
        assert!(matches!(body, Err(GetError::Wire(_))), "{body:?}");
        let (body, _) = exchange(b"SSH-2.0-OpenSSH\r\n\r\n", 9).await;
        assert!(matches!(body, Err(GetError::Wire(_))), "{body:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_left_after_the_time_allowed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let time = Duration::from_secs(2);
        let got = get(listener.local_addr().unwrap(), "/", 9, time).await;
        assert!(matches!(got, Err(GetError::Time(t)) if t == time), "{got:?}");
    }

    #[tokio::test]
    async fn nobody_listening_is_a_connect_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let got = get(address, "/", 9, Duration::from_secs(30)).await;
        assert!(matches!(got, Err(GetError::Connect(_))), "{got:?}");
    }
}
