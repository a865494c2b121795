//! The numbers of one pair of zones, ours and a peer's. They go on when peers come and go, until no
//! peer of the zone is left and its place is needed for another.
//!
//! A probe is counted as sent here when it is answered or lost: a peer may change its zone while one is under way, and
//! the sums of both zones must stay right.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::bump;
use super::histogram::{Bounds, Histogram, HistogramReading};
use crate::prober::Event;

/// Counters and round-trip times of our zone to another.
#[derive(Debug, Default)]
pub struct ZoneStatistics {
    /// A peer of the zone has been probed this way.
    in_use: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
    lost: AtomicU64,
    rtt: Histogram,
}

/// A zone pair's counters as read at one moment: `received + lost ≤ sent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneReading {
    /// Probes that went out and were answered or lost.
    pub sent: u64,
    /// Answered in time.
    pub received: u64,
    /// Not answered in time.
    pub lost: u64,
    /// Round-trip times.
    pub rtt: HistogramReading,
}

impl ZoneStatistics {
    /// A peer of the zone is probed this way.
    pub(super) fn begin(&self) {
        self.in_use.store(true, Ordering::Relaxed);
    }

    /// Resets all numbers for another zone, and is unused until [`ZoneStatistics::begin`]. Needs
    /// the directory's write lock, which keeps readers out.
    pub(super) fn end(&self) {
        self.in_use.store(false, Ordering::Relaxed);
        for counter in [&self.sent, &self.received, &self.lost] {
            counter.store(0, Ordering::Relaxed);
        }
        self.rtt.reset();
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.in_use.load(Ordering::Relaxed)
    }

    pub(super) fn record(&self, event: Event, bounds: &Bounds) {
        match event {
            Event::Received { rtt, .. } => {
                bump(&self.sent, 1);
                self.rtt.observe(rtt, bounds);
                bump(&self.received, 1);
            }
            Event::Lost => {
                bump(&self.sent, 1);
                bump(&self.lost, 1);
            }
            _ => {}
        }
    }

    /// Reads everything, `sent` last.
    pub fn read(&self) -> ZoneReading {
        ZoneReading {
            lost: self.lost.load(Ordering::Acquire),
            received: self.received.load(Ordering::Acquire),
            rtt: self.rtt.read(),
            sent: self.sent.load(Ordering::Acquire),
        }
    }
}
