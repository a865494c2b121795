//! The HTTP server, whose size is fixed, and the small client that discovery and the command line
//! use.
//!
//! The server knows nothing of probes. It passes a request's path to a [`Routes`] and streams the
//! result, compressed if the client accepts gzip.
//!
//! `server` starts the threads. `worker` is the state machine of a worker and its connections. All
//! others are below it: `answer` → `body` → `socket`, and helpers that know nothing of connections.

mod answer;
mod body;
mod coding;
mod gzip;
mod hosts;
mod listen;
mod permits;
mod places;
mod server;
mod socket;
mod stats;
mod worker;

#[cfg(feature = "fuzzing")]
pub use coding::fuzz_accept_encoding;
pub use coding::thousandths;
pub use hosts::Hosts;
pub use server::{Bound, ServeError, ServeLimits, Server};
pub use stats::ServerStats;
pub mod client;
pub mod lines;
pub mod path;
pub mod tls;

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Answers requests. Called on a worker thread; must not block.
pub trait Routes: Send + Sync + 'static {
    /// Returns the answer to `GET path`. A `HEAD` gets the same without its body. `accept` is the
    /// Accept header, or empty.
    fn route(&self, path: &str, accept: &str) -> Reply;

    /// Returns a part of the work that does not end and that no request asks for, by its number
    /// below [`BACKGROUND_PARTS`]. A worker runs it beside its connections, and drops it when the
    /// server stops. Each part has a worker of its own, if there are as many.
    fn background(&self, _part: usize) -> Option<Background> {
        None
    }
}

/// Work that a worker does beside its connections.
pub type Background = Pin<Box<dyn Future<Output = ()>>>;
/// Number of parts of [`Routes::background`].
pub const BACKGROUND_PARTS: usize = 2;

/// The answer of a route.
pub enum Reply {
    /// A short, complete body.
    Full {
        /// The status code of the response.
        status: u16,
        /// The Content-Type.
        content_type: &'static str,
        /// The complete content of the body.
        body: Vec<u8>,
    },
    /// A complete body whose memory many answers share. It is copied frame by frame while it is
    /// sent, so that slow readers hold no copies.
    Shared {
        /// The Content-Type.
        content_type: &'static str,
        /// What this answer has before the shared part: short.
        head: Vec<u8>,
        /// What all these answers share.
        body: Arc<[u8]>,
    },
    /// A body that is rendered in pieces while it is sent.
    Stream {
        /// The Content-Type.
        content_type: &'static str,
        /// The renderer of the body.
        body: Box<dyn Render>,
    },
    /// An HTML document for browsers.
    Page {
        /// The Content-Security-Policy: what the document may load, and which sites may show
        /// it in a frame.
        policy: &'static str,
        /// The renderer of the body.
        body: Box<dyn Render>,
    },
    /// A body like that of [`Reply::Stream`], but its data comes from elsewhere and may
    /// have to be awaited.
    Live {
        /// The Content-Type.
        content_type: &'static str,
        /// The renderer of the body.
        body: Box<dyn LiveBody>,
    },
    /// An answer whose status is not known yet. The future runs on the worker's own event loop. Its
    /// time is part of the time of the whole response.
    Later(Pin<Box<dyn Future<Output = Reply>>>),
    /// An answer that says which address asks. It is given that address, or `None` if the kernel
    /// does not tell it.
    ToClient(Box<dyn FnOnce(Option<IpAddr>) -> Reply>),
}

impl Reply {
    /// Waits until the status is known. `client` returns the address of the client.
    async fn known(mut self, client: impl Fn() -> Option<IpAddr>) -> Self {
        loop {
            self = match self {
                Self::Later(later) => later.await,
                Self::ToClient(answer) => answer(client()),
                known => return known,
            };
        }
    }

    /// Creates a short answer in plain text.
    pub fn text(status: u16, text: impl Into<Vec<u8>>) -> Self {
        Self::Full { status, content_type: "text/plain; charset=utf-8", body: text.into() }
    }
}

/// A body that is written in pieces into a buffer. The worker owns and reuses the buffer. It is
/// borrowed for one call of [`Render::render`] and never kept.
pub trait Render: Send {
    /// Appends the next piece to `out`, which is empty and has
    /// [`crate::limits::FRAME_BYTES`] of capacity. `out` must not grow. Returns whether more
    /// pieces follow. The last piece may be empty.
    fn render(&mut self, out: &mut Vec<u8>) -> bool;
}

/// A body that waits for its data on its worker's own event loop. It never leaves that thread.
pub trait LiveBody {
    /// Appends the next piece as [`Render::render`] does, or returns pending with nothing written.
    /// In that case the task is woken when there is more.
    fn poll_render(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<bool>;

    /// Ready if the body is given up because of its client. It is polled even while the client has
    /// no room for a piece. The body is then dropped at once, and its connection closed.
    fn poll_given_up(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}
