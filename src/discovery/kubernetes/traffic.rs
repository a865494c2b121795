//! Traffic with the API server: received bytes and sent requests. The counts are for the whole
//! process, which has one source.
//!
//! Bytes are those of the TCP stream, including TLS and its handshakes, because an API server and
//! its load balancer carry them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::http::client::Metered;

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

/// Returns the stream with its received bytes counted.
pub fn counted<S>(stream: S) -> Metered<S, impl Fn(usize) -> io::Result<()> + Unpin> {
    let meter = |bytes: usize| {
        RECEIVED.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    };
    Metered { stream, meter }
}
