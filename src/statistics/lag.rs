//! Delays caused by the agent itself: probes sent later than scheduled, and replies read later than
//! they arrived.

use std::sync::Arc;
use std::time::Duration;

use super::bounds::BucketBounds;
use super::histogram::{ClassicReading, Histogram, HistogramReading, by_bin};
use super::scale::{SCHEMA_MAX, Scale};
use crate::units::Nanos;

/// Longer delays are counted in the histogram's last bucket.
const LONGEST: Duration = Duration::from_secs(32);
/// Native buckets per count of [`LagCounts`]: half an octave.
const BINS_PER_COUNT: usize = 1 << (SCHEMA_MAX - 1);
/// Counts of [`LagCounts`]: two for each of 25 octaves, one below them and one above.
const COUNTS: usize = 2 * 25 + 2;

/// A histogram of delays over all peers. It has its own scale: an idle machine is late by tens of
/// microseconds, a busy one by much more than a timeout.
#[derive(Debug)]
pub struct SendLag {
    scale: Arc<Scale>,
    histogram: Histogram,
}

/// Delays per half octave. They are smaller than the whole histogram, because past
/// ones are kept too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LagCounts([u64; COUNTS]);

impl Default for LagCounts {
    fn default() -> Self {
        Self([0; COUNTS])
    }
}

impl Default for SendLag {
    fn default() -> Self {
        Self::new(Arc::new(Scale::new(BucketBounds::default(), SCHEMA_MAX, LONGEST)))
    }
}

impl SendLag {
    fn new(scale: Arc<Scale>) -> Self {
        Self { histogram: Histogram::new(&scale), scale }
    }

    /// Makes another histogram with the same scale.
    pub(super) fn sibling(&self) -> Self {
        Self::new(Arc::clone(&self.scale))
    }

    /// Returns the scale of the histogram.
    pub fn scale(&self) -> &Scale {
        &self.scale
    }

    /// Counts one probe or reply. Only one thread may write.
    pub fn observe(&self, lag: Nanos) {
        self.histogram.observe(lag, self.scale.cell(lag));
    }

    /// Reads the histogram as a classic one.
    pub fn classic(&self) -> ClassicReading {
        self.histogram.classic(&self.scale)
    }

    /// Reads the histogram into `reading`.
    pub fn read_into(&self, reading: &mut HistogramReading) {
        self.histogram.read_into(reading);
    }

    /// Reads the histogram into new memory.
    pub fn read(&self) -> HistogramReading {
        let mut reading = HistogramReading::default();
        self.read_into(&mut reading);
        reading
    }

    /// Reads the histogram, reduced to half octaves.
    pub fn counts(&self) -> LagCounts {
        let mut counts = LagCounts::default();
        for (bin, count) in by_bin(&self.scale, self.histogram.counts()) {
            counts.0[bin.div_ceil(BINS_PER_COUNT).min(COUNTS - 1)] += count;
        }
        counts
    }
}

impl LagCounts {
    /// Returns the number of delays in all counts.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the increase since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|index| self.0[index].saturating_sub(earlier.0[index])))
    }

    /// Returns the `q`-quantile in seconds, interpolated within its half octave. `None`
    /// if nothing was counted.
    pub fn quantile(&self, q: f64, lag: &SendLag) -> Option<f64> {
        let (index, part) = super::scale::rank(q, self.0.iter().copied())?;
        let upper = |index: usize| lag.scale.zero_threshold() * (index as f64 / 2.0).exp2();
        let lower = index.checked_sub(1).map_or(0.0, upper);
        Some(lower + (upper(index) - lower) * part)
    }
}

#[cfg(test)]
pub(super) fn lag_counts_of(n: u64) -> LagCounts {
    LagCounts([n; COUNTS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_numbers_tell_the_quantile_to_half_an_octave() {
        let lag = SendLag::default();
        for n in 1..=1_000_u64 {
            lag.observe(Nanos(n * n * 20_000));
        }
        let counts = lag.counts();
        assert_eq!((counts.count(), lag.read().count()), (1_000, 1_000));
        for (q, exact) in [(0.5, 5.0), (0.99, 19.602), (0.01, 0.002)] {
            let found = counts.quantile(q, &lag).unwrap();
            assert!((found / exact).log2().abs() <= 0.5, "{q}: {found} {exact}");
        }
        assert_eq!(counts.since(&counts).quantile(0.5, &lag), None);
        lag.observe(Nanos(u64::MAX));
        assert_eq!(lag.counts().count(), 1_001, "longer than the longest");
    }
}
