//! The last minute of a peer, for the verdicts and the page: two half-minutes, of which the older is dropped whole.
//!
//! A sliding window would cost a ring per peer; two halves cost 80 bytes and cover 30 to 60 seconds.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use super::histogram::{Bounds, HISTOGRAM_BUCKETS};
use crate::prober::Event;
use crate::units::Nanos;

/// Half of the recent window.
pub const RECENT_HALF: Nanos = Nanos::from_millis(30_000);

#[derive(Debug, Default)]
struct Half {
    sent: AtomicU16,
    received: AtomicU16,
    lost: AtomicU16,
    buckets: [AtomicU16; HISTOGRAM_BUCKETS],
}

/// Two half-minutes. 16 bits hold the 3,000 probes that the shortest interval sends in one.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// The window that the newer half belongs to.
    window: AtomicU32,
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

fn bump16(counter: &AtomicU16) {
    counter.store(counter.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
}

impl Half {
    fn clear(&self) {
        for counter in [&self.sent, &self.received, &self.lost].into_iter().chain(&self.buckets) {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

impl Recent {
    pub(super) fn record(&self, event: Event, bounds: &Bounds, window: u32) {
        let held = self.window.load(Ordering::Relaxed);
        if held != window {
            // Halves alternate; whoever was away for longer has nothing recent.
            self.halves[window as usize % 2].clear();
            if window.wrapping_sub(held) > 1 {
                self.halves[(window as usize + 1) % 2].clear();
            }
            self.window.store(window, Ordering::Release);
        }
        let half = &self.halves[window as usize % 2];
        match event {
            Event::Sent => bump16(&half.sent),
            Event::Received { rtt, .. } => {
                bump16(&half.received);
                bump16(&half.buckets[bounds.bucket(rtt)]);
            }
            Event::Lost => bump16(&half.lost),
            _ => {}
        }
    }

    pub(super) fn read(&self, window: u32, current: Nanos) -> RecentReading {
        let held = self.window.load(Ordering::Acquire);
        let mut reading = RecentReading {
            seconds: (current.as_secs_f64() + if window > 1 { RECENT_HALF.as_secs_f64() } else { 0.0 }).min(60.0),
            sent: 0,
            received: 0,
            lost: 0,
            buckets: [0; HISTOGRAM_BUCKETS],
        };
        // Half `w % 2` is about window `w` only if something was recorded since that window began.
        for of in [window, window.wrapping_sub(1)] {
            if of > held || held.wrapping_sub(of) > 1 {
                continue;
            }
            let half = &self.halves[of as usize % 2];
            let read = |counter: &AtomicU16| u32::from(counter.load(Ordering::Relaxed));
            reading.sent += read(&half.sent);
            reading.received += read(&half.received);
            reading.lost += read(&half.lost);
            for (sum, bucket) in reading.buckets.iter_mut().zip(&half.buckets) {
                *sum += read(bucket);
            }
        }
        reading
    }

    pub(super) fn reset(&self) {
        self.halves.iter().for_each(Half::clear);
    }
}
