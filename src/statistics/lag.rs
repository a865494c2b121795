//! How late the agent itself was: probes sent against their schedule, replies read after they had come.

use super::histogram::{Bounds, Histogram, HistogramReading};
use crate::units::Nanos;

/// A histogram with bounds of its own, of all peers together.
#[derive(Debug, Default)]
pub struct SendLag {
    // The bounds of round trips serve here too: an idle machine is late by tens of microseconds, a busy one by far more.
    bounds: Bounds,
    histogram: Histogram,
}

impl SendLag {
    /// Its bounds.
    pub const fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Counts one probe or reply. One writer only.
    pub fn observe(&self, lag: Nanos) {
        self.histogram.observe(lag, &self.bounds);
    }

    /// Reads it.
    pub fn read(&self) -> HistogramReading {
        self.histogram.read()
    }
}
