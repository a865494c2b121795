//! Traffic with the API server: received bytes and sent requests. The counts are for the whole
//! process, which has one source.
//!
//! Bytes are those of the TCP stream, including TLS and its handshakes, because an API server and
//! its load balancer carry them.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

static RECEIVED: AtomicU64 = AtomicU64::new(0);
static REQUESTS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// The kind of request. It is the `verb` label, in the words of Kubernetes' own metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// A list of all slices, or of their metadata.
    List,
    /// A watch for changes.
    Watch,
    /// A read of one slice.
    Get,
}

impl Verb {
    /// All verbs, in label order.
    pub const ALL: [Self; 3] = [Self::Get, Self::List, Self::Watch];

    /// Returns the label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Watch => "watch",
            Self::Get => "get",
        }
    }

    /// Returns the number of requests sent so far, answered or not.
    pub fn requests(self) -> u64 {
        REQUESTS[self as usize].load(Ordering::Relaxed)
    }

    /// Counts one more request.
    pub(super) fn count(self) {
        REQUESTS[self as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the number of bytes received from the API server so far.
pub fn received_bytes() -> u64 {
    RECEIVED.load(Ordering::Relaxed)
}

/// A stream whose received bytes are counted.
pub struct Counted<S>(pub S);

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.0).poll_read(context, into);
        RECEIVED.fetch_add((into.filled().len() - before) as u64, Ordering::Relaxed);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
