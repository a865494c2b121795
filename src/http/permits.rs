//! State that the workers share: the number of ordinary permits that are free among all of them,
//! and the notifications that wake them.
//!
//! All workers listen on one socket, and the one that wakes first accepts a connection. A worker
//! without a free permit must therefore not accept while another worker has one. If no worker has
//! one, all of them accept, but for health checks alone. Each worker waits on its own [`Notify`],
//! which stores one notification. So no notification is lost, and no lock is shared.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The number of free ordinary permits of all workers, and one notification for each worker.
#[derive(Debug)]
pub(super) struct Permits {
    free: AtomicUsize,
    stopping: AtomicBool,
    notify: Box<[Notify]>,
}

impl Permits {
    pub(super) fn new(workers: usize, permits_per_worker: usize) -> Self {
        Self {
            free: AtomicUsize::new(workers * permits_per_worker),
            stopping: AtomicBool::new(false),
            notify: (0..workers).map(|_| Notify::new()).collect(),
        }
    }

    /// Returns the number of workers.
    pub(super) fn workers(&self) -> usize {
        self.notify.len()
    }

    /// The notification of one worker.
    pub(super) fn notify(&self, worker: usize) -> &Notify {
        &self.notify[worker]
    }

    /// Whether no worker has an ordinary permit left.
    pub(super) fn all_taken(&self) -> bool {
        self.free.load(Ordering::Acquire) == 0
    }

    /// Records that a worker has used one of its ordinary permits.
    pub(super) fn take(&self) {
        if self.free.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.notify_all();
        }
    }

    /// Records that an ordinary permit is free again.
    pub(super) fn give(&self) {
        if self.free.fetch_add(1, Ordering::AcqRel) == 0 {
            self.notify_all();
        }
    }

    /// Asks all workers to finish.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.notify_all();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn notify_all(&self) {
        self.notify.iter().for_each(Notify::notify_one);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;

    fn is_notified(permits: &Permits, worker: usize) -> bool {
        pin!(permits.notify(worker).notified()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn every_worker_is_notified_when_the_last_permit_is_taken_and_when_the_first_is_returned() {
        let permits = Permits::new(2, 1);
        permits.take();
        assert!(!permits.all_taken() && !is_notified(&permits, 0) && !is_notified(&permits, 1));
        permits.take();
        assert!(permits.all_taken() && is_notified(&permits, 0) && is_notified(&permits, 1));
        permits.give();
        assert!(!permits.all_taken() && is_notified(&permits, 0) && is_notified(&permits, 1));
        permits.give();
        assert!(!is_notified(&permits, 0) && !is_notified(&permits, 1), "no worker's choice changes");
        permits.stop();
        assert!(permits.is_stopping() && is_notified(&permits, 0) && is_notified(&permits, 1));
    }
}
