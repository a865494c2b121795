//! State that the workers share: the number of ordinary permits that are free among all of them,
//! and the notifications that wake them.
//!
//! All workers listen on one socket, and the one that wakes first accepts a connection. A worker
//! without a free permit must therefore not accept while another worker has one. If no worker has
//! one, all of them accept, but for health checks alone. Each worker waits on its own [`Notify`],
//! which stores one notification. So no notification is lost, and no lock is shared.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::limits::COMPRESSED_RESPONSES_MAX;

/// The counters that the server keeps about itself.
#[derive(Debug, Default)]
pub struct ServerStats {
    requests: AtomicU64,
    refused: AtomicU64,
    connections: AtomicUsize,
    frames: AtomicUsize,
    compressors: Arc<AtomicUsize>,
}

impl ServerStats {
    /// Returns the requests that were answered by a route, or with 400, 403 or 405.
    pub fn requests_served(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns the requests that got 503 because every ordinary permit was taken.
    pub fn requests_refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the connections that are open now, including idle ones.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the frame buffers that are allocated now, each of [`crate::limits::FRAME_BYTES`].
    /// They are in use or spare.
    pub fn frame_buffers(&self) -> usize {
        self.frames.load(Ordering::Relaxed)
    }

    /// Returns the responses that are being compressed now, at most [`COMPRESSED_RESPONSES_MAX`].
    /// Each has [`crate::limits::GZIP_BYTES`] of memory.
    pub fn compressors(&self) -> usize {
        self.compressors.load(Ordering::Acquire)
    }

    /// Returns the permit to compress one more response. Returns none if the maximum is reached.
    pub(super) fn compressor(&self) -> Option<CompressorPermit> {
        let more = |count: usize| (count < COMPRESSED_RESPONSES_MAX).then_some(count + 1);
        self.compressors.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(CompressorPermit(Arc::clone(&self.compressors)))
    }

    pub(super) fn served(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn frame_allocated(&self) {
        self.frames.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn frame_freed(&self) {
        self.frames.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One of the [`COMPRESSED_RESPONSES_MAX`] permits. It is returned on drop.
#[derive(Debug)]
pub(super) struct CompressorPermit(Arc<AtomicUsize>);

impl Drop for CompressorPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The number of free ordinary permits of all workers, and one notification for each worker.
#[derive(Debug)]
pub(super) struct Gate {
    free: AtomicUsize,
    stopping: AtomicBool,
    bells: Box<[Notify]>,
}

impl Gate {
    pub(super) fn new(workers: usize, places_per_worker: usize) -> Self {
        Self {
            free: AtomicUsize::new(workers * places_per_worker),
            stopping: AtomicBool::new(false),
            bells: (0..workers).map(|_| Notify::new()).collect(),
        }
    }

    /// The notification of one worker.
    pub(super) fn bell(&self, worker: usize) -> &Notify {
        &self.bells[worker]
    }

    /// Whether no worker has an ordinary permit left.
    pub(super) fn is_full(&self) -> bool {
        self.free.load(Ordering::Acquire) == 0
    }

    /// Records that a worker has used one of its ordinary permits.
    pub(super) fn take(&self) {
        if self.free.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.ring();
        }
    }

    /// Records that an ordinary permit is free again.
    pub(super) fn give(&self) {
        if self.free.fetch_add(1, Ordering::AcqRel) == 0 {
            self.ring();
        }
    }

    /// Asks all workers to finish.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.ring();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn ring(&self) {
        for bell in &self.bells {
            bell.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;

    fn has_rung(gate: &Gate, worker: usize) -> bool {
        pin!(gate.bell(worker).notified()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn only_so_many_responses_are_compressed_at_once() {
        let stats = ServerStats::default();
        let mut permits: Vec<_> = (0..COMPRESSED_RESPONSES_MAX).map(|_| stats.compressor().unwrap()).collect();
        assert!(stats.compressor().is_none() && stats.compressors() == COMPRESSED_RESPONSES_MAX);
        permits.pop();
        let again = stats.compressor();
        assert!(again.is_some() && stats.compressor().is_none());
        drop((permits, again));
        assert_eq!(stats.compressors(), 0);
    }

    #[test]
    fn every_worker_hears_when_the_last_place_goes_and_when_the_first_returns() {
        let gate = Gate::new(2, 1);
        gate.take();
        assert!(!gate.is_full() && !has_rung(&gate, 0) && !has_rung(&gate, 1));
        gate.take();
        assert!(gate.is_full() && has_rung(&gate, 0) && has_rung(&gate, 1));
        gate.give();
        assert!(!gate.is_full() && has_rung(&gate, 0) && has_rung(&gate, 1));
        gate.give();
        assert!(!has_rung(&gate, 0) && !has_rung(&gate, 1), "nothing changes for anyone");
        gate.stop();
        assert!(gate.is_stopping() && has_rung(&gate, 0) && has_rung(&gate, 1));
    }
}
