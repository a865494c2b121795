//! The fixed-size HTTP server, and the small client that discovery and the command line use.
//!
//! The server knows nothing of probes: it hands a request's path to a [`Routes`] and streams what
//! comes back, compressed if the client accepts gzip.

mod answer;
mod coding;
mod frames;
mod gate;
mod gzip;
mod hosts;
mod line;
mod listen;
mod places;
mod server;
mod weight;
mod worker;

#[cfg(feature = "fuzzing")]
pub use coding::fuzz_accept_encoding;
pub use gate::ServerStats;
pub use hosts::Hosts;
pub use server::{Bound, ServeError, ServeLimits, Server};
pub use weight::thousandths;
pub mod client;
pub mod lines;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Answers requests. Called on a worker thread; must not block.
pub trait Routes: Send + Sync + 'static {
    /// The answer to `GET path` (a `HEAD` gets the same without its body). `accept` is the Accept header, or empty.
    fn route(&self, path: &str, accept: &str) -> Reply;
}

/// What a route answers.
pub enum Reply {
    /// A short body, complete.
    Full {
        /// HTTP status.
        status: u16,
        /// Content-Type.
        content_type: &'static str,
        /// The body.
        body: Vec<u8>,
    },
    /// A body that is rendered in pieces, while it is being sent.
    Stream {
        /// Content-Type.
        content_type: &'static str,
        /// What renders it.
        body: Box<dyn Render>,
    },
    /// An HTML document for browsers.
    Page {
        /// Content-Security-Policy: what the document may load, and who may show it in a frame.
        policy: &'static str,
        /// What renders it.
        body: Box<dyn Render>,
    },
    /// As [`Reply::Stream`], but what it is made of comes from elsewhere.
    Live {
        /// Content-Type.
        content_type: &'static str,
        /// What renders it.
        body: Box<dyn Live>,
    },
    /// An answer whose status is not known yet. On the worker's own event loop; its time is that of the whole response.
    Later(Pin<Box<dyn Future<Output = Reply>>>),
}

impl Reply {
    /// A short answer in words.
    pub fn text(status: u16, text: impl Into<Vec<u8>>) -> Self {
        Self::Full { status, content_type: "text/plain; charset=utf-8", body: text.into() }
    }
}

/// A body that is written in pieces into a buffer that the worker owns and reuses: borrowed for one call of [`Render::render`],
/// never kept.
pub trait Render: Send {
    /// Appends the next piece to `out`, which is empty and has [`crate::limits::FRAME_BYTES`] of capacity: it must not
    /// grow. Returns whether there is more to come; a last piece may be empty.
    fn render(&mut self, out: &mut Vec<u8>) -> bool;
}

/// A body that waits for something, on its worker's own event loop: it never leaves that thread.
pub trait Live {
    /// As [`Render::render`], or pending with nothing written: then the task is woken when there is more.
    fn poll_render(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<bool>;

    /// Ready if the body is given up because of its reader. It is asked also while the reader has no
    /// room for a piece. The body is then dropped at once, and its connection closed.
    fn poll_given_up(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}
