//! The last minute of a peer, for the verdicts and the page: two halves, of which the older is dropped whole.
//!
//! A sliding window would cost a ring per peer; two halves cost 40 bytes and cover 30 to 60 seconds. Their counters have
//! 8 bits, so at intervals below 167 ms the halves are shorter ([`super::halves`]): no half sees more probes than they count.

use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

use super::histogram::{Bounds, HISTOGRAM_BUCKETS};
use crate::prober::Event;

#[derive(Debug, Default)]
struct Half {
    sent: AtomicU8,
    lost: AtomicU8,
    buckets: [AtomicU8; HISTOGRAM_BUCKETS],
}

/// Two halves, as zeroed memory has them.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// The window that the newer half belongs to, modulo 2^16: a peer on the list is never silent for so many.
    window: AtomicU16,
    halves: [Half; 2],
}

/// What the recent window says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecentReading {
    /// How much time it covers.
    pub seconds: f64,
    /// Probes sent in it.
    pub sent: u32,
    /// Probes answered in it.
    pub received: u32,
    /// Probes lost in it.
    pub lost: u32,
    /// Round-trip times, per bucket.
    pub buckets: [u32; HISTOGRAM_BUCKETS],
}

/// Saturating, for what a machine may do that stood still for long: a wrong sum must not look like none.
fn bump8(counter: &AtomicU8) {
    counter.store(counter.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
}

impl Half {
    fn counters(&self) -> impl Iterator<Item = &AtomicU8> {
        [&self.sent, &self.lost].into_iter().chain(&self.buckets)
    }

    fn clear(&self) {
        self.counters().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }
}

impl Recent {
    pub(super) fn record(&self, event: Event, bounds: &Bounds, window: u16) {
        let held = self.window.load(Ordering::Relaxed);
        if held != window {
            // Halves alternate; whoever was away for longer has nothing recent.
            self.halves[usize::from(window % 2)].clear();
            if window.wrapping_sub(held) > 1 {
                self.halves[usize::from(window.wrapping_add(1) % 2)].clear();
            }
            self.window.store(window, Ordering::Release);
        }
        let half = &self.halves[usize::from(window % 2)];
        match event {
            Event::Sent => bump8(&half.sent),
            Event::Received { rtt, .. } => bump8(&half.buckets[bounds.bucket(rtt)]),
            Event::Lost => bump8(&half.lost),
            _ => {}
        }
    }

    /// What it holds of `window` and, where `and_before`, of the one before; they cover so many `seconds`.
    pub(super) fn read(&self, window: u16, and_before: bool, seconds: f64) -> RecentReading {
        let held = self.window.load(Ordering::Acquire);
        let mut reading = RecentReading { seconds, sent: 0, received: 0, lost: 0, buckets: [0; HISTOGRAM_BUCKETS] };
        // Of windows older than both nothing counts; where nothing has come since a window began, the half of its parity
        // is still that of two windows ago.
        let halves: &[u16] = match window.wrapping_sub(held) {
            0 if and_before => &[held, held.wrapping_sub(1)],
            0 => &[held],
            1 if and_before => &[held],
            // The writer has gone on since our caller looked.
            u16::MAX => &[window],
            _ => &[],
        };
        for of in halves {
            let half = &self.halves[usize::from(of % 2)];
            let read = |counter: &AtomicU8| u32::from(counter.load(Ordering::Relaxed));
            reading.sent += read(&half.sent);
            reading.lost += read(&half.lost);
            for (sum, bucket) in reading.buckets.iter_mut().zip(&half.buckets) {
                *sum += read(bucket);
            }
        }
        reading.received = reading.buckets.iter().sum();
        reading
    }

    /// Becomes a copy of `other`.
    pub(super) fn take_over(&self, other: &Self) {
        self.window.store(other.window.load(Ordering::Relaxed), Ordering::Relaxed);
        let counters = self.halves.iter().flat_map(Half::counters);
        for (to, from) in counters.zip(other.halves.iter().flat_map(Half::counters)) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}
