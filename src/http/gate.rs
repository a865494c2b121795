//! What the workers share: how many ordinary places are free among all of them, and the bells that wake them.
//!
//! All workers listen on one socket, and whichever wakes first takes a connection. A worker whose places are full must
//! therefore stand back while another has room, and all of them must come forward, for health checks alone, when none
//! has. Each worker waits on a bell of its own that keeps one ring: no ring is lost, and no lock is shared.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::limits::COMPRESSED_RESPONSES_MAX;

/// What the server counts about itself, for exposition.
#[derive(Debug, Default)]
pub struct ServerStats {
    requests: AtomicU64,
    refused: AtomicU64,
    connections: AtomicUsize,
    frames: AtomicUsize,
    compressors: Arc<AtomicUsize>,
}

impl ServerStats {
    /// Requests that were answered by a route, or with 400, 403 or 405.
    pub fn requests_served(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Requests that got 503 because every ordinary place was taken.
    pub fn requests_refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Connections that are open now, idle ones too.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Frame buffers that are allocated now, each of [`crate::limits::FRAME_BYTES`]: those on their way to a client, and
    /// the spare ones.
    pub fn frame_buffers(&self) -> usize {
        self.frames.load(Ordering::Relaxed)
    }

    /// Responses that are being compressed now, each with [`crate::limits::GZIP_BYTES`] of memory:
    /// at most [`COMPRESSED_RESPONSES_MAX`].
    pub fn compressors(&self) -> usize {
        self.compressors.load(Ordering::Acquire)
    }

    /// The right to compress one more response, unless as many as may be are compressed already.
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

/// One of the [`COMPRESSED_RESPONSES_MAX`], until it is dropped.
#[derive(Debug)]
pub(super) struct CompressorPermit(Arc<AtomicUsize>);

impl Drop for CompressorPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The free ordinary places of all workers, and a bell for each worker.
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

    /// The bell of one worker.
    pub(super) fn bell(&self, worker: usize) -> &Notify {
        &self.bells[worker]
    }

    /// Whether no worker has an ordinary place left.
    pub(super) fn is_full(&self) -> bool {
        self.free.load(Ordering::Acquire) == 0
    }

    /// An ordinary place was taken by a worker that had one.
    pub(super) fn take(&self) {
        if self.free.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.ring();
        }
    }

    /// An ordinary place is free again.
    pub(super) fn give(&self) {
        if self.free.fetch_add(1, Ordering::AcqRel) == 0 {
            self.ring();
        }
    }

    /// Tells all workers to finish.
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
