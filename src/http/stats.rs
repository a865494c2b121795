//! The server's counters about itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::limits::COMPRESSED_RESPONSES_MAX;

/// Counts what the server does, for exposition.
#[derive(Debug, Default)]
pub struct ServerStats {
    pub(super) requests: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) connections: AtomicUsize,
    pub(super) frames: AtomicUsize,
    compressors: AtomicUsize,
}

impl ServerStats {
    /// Returns the number of requests that were answered by a route, or with 400, 403 or 405.
    pub fn requests_served(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that got 503 because every ordinary permit was taken.
    pub fn requests_refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that are open now, including idle ones.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the number of frame buffers that are allocated now, each of
    /// [`crate::limits::FRAME_BYTES`]. They are in use or spare.
    pub fn frame_buffers(&self) -> usize {
        self.frames.load(Ordering::Relaxed)
    }

    /// Returns the number of responses that are being compressed now, at most
    /// [`COMPRESSED_RESPONSES_MAX`]. Each has [`crate::limits::GZIP_BYTES`] of memory.
    pub fn compressors(&self) -> usize {
        self.compressors.load(Ordering::Acquire)
    }

    /// Returns the permit to compress one more response. Returns none if the maximum is reached.
    pub(super) fn compressor_permit(self: &Arc<Self>) -> Option<CompressorPermit> {
        let more = |count: usize| (count < COMPRESSED_RESPONSES_MAX).then_some(count + 1);
        self.compressors.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(CompressorPermit(Arc::clone(self)))
    }
}

/// One of the [`COMPRESSED_RESPONSES_MAX`] permits. It is returned on drop.
#[derive(Debug)]
pub(super) struct CompressorPermit(Arc<ServerStats>);

impl Drop for CompressorPermit {
    fn drop(&mut self) {
        self.0.compressors.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_responses_compressed_at_once_is_limited() {
        let stats = Arc::<ServerStats>::default();
        let mut permits: Vec<_> = (0..COMPRESSED_RESPONSES_MAX).map(|_| stats.compressor_permit().unwrap()).collect();
        assert!(stats.compressor_permit().is_none() && stats.compressors() == COMPRESSED_RESPONSES_MAX);
        permits.pop();
        let again = stats.compressor_permit();
        assert!(again.is_some() && stats.compressor_permit().is_none());
        drop((permits, again));
        assert_eq!(stats.compressors(), 0);
    }
}
