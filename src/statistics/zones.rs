//! The numbers of one pair of zones, ours and a peer's. They go on when peers come and go.
//!
//! A probe is counted as sent here when it is answered or lost: a peer may change its zone while one is under way, and
//! the sums of both zones must stay right.

use std::sync::atomic::{AtomicU64, Ordering};

use super::bump;
use super::histogram::{Bounds, Histogram, HistogramReading};
use crate::prober::Event;

/// Counters and round-trip times of our zone to another.
#[derive(Debug, Default)]
pub struct ZoneStatistics {
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
