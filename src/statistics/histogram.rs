//! Histograms of times: counts per cell of a [`Scale`], of one writer.
//!
//! Those of all peers together have 64-bit counts: 5,000 peers fill 32 bits within ten days. A peer's own have 32.

use std::sync::atomic::{AtomicU64, Ordering};

use super::bump;
use super::scale::Scale;
use crate::limits::RTT_BUCKETS_MAX;
use crate::units::Nanos;

/// Counts per cell, and the sum of all values.
#[derive(Debug)]
pub struct Histogram {
    sum: AtomicU64,
    cells: Box<[AtomicU64]>,
}

/// A histogram as read at one moment, into memory that is used again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramReading {
    /// Of all values.
    pub sum: Nanos,
    /// Counts of the scale's cells.
    pub cells: Vec<u64>,
}

/// A classic histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassicReading {
    /// Of all values.
    pub sum: Nanos,
    /// Values in all buckets.
    pub count: u64,
    /// Values at or below each bound; as many as there are bounds are in use.
    pub up_to: [u64; RTT_BUCKETS_MAX],
}

impl ClassicReading {
    /// Of counts per cell, each of which is looked at once.
    pub(super) fn new(sum: Nanos, counts: impl Iterator<Item = u64>, scale: &Scale) -> Self {
        let mut classic = Self { sum, ..Self::default() };
        let bounds = scale.bounds().as_slice().len();
        let mut bound = 0;
        for (cell, count) in counts.enumerate() {
            while bound < bounds && scale.cells_up_to(bound) <= cell {
                classic.up_to[bound] = classic.count;
                bound += 1;
            }
            classic.count += count;
        }
        classic.up_to[bound..bounds].fill(classic.count);
        classic
    }
}

impl HistogramReading {
    /// Takes over a sum, and counts per cell.
    pub(super) fn set(&mut self, sum: Nanos, counts: impl Iterator<Item = u64>) {
        self.sum = sum;
        self.cells.clear();
        self.cells.extend(counts);
    }

    /// Values in all cells.
    pub fn count(&self) -> u64 {
        self.cells.iter().sum()
    }

    /// As a classic histogram.
    pub fn classic(&self, scale: &Scale) -> ClassicReading {
        ClassicReading::new(self.sum, self.cells.iter().copied(), scale)
    }

    /// Numbers and counts of all native buckets, ascending; the first is the zero bucket.
    pub fn bins(&self, scale: &Scale) -> impl Iterator<Item = (usize, u64)> + Clone {
        by_bin(scale, self.cells.iter().copied())
    }
}

/// Numbers and counts of all native buckets of counts per cell.
pub(super) fn by_bin(
    scale: &Scale,
    counts: impl Iterator<Item = u64> + Clone,
) -> impl Iterator<Item = (usize, u64)> + Clone {
    let mut cells = counts.enumerate().map(|(cell, count)| (scale.bin(cell), count)).peekable();
    std::iter::from_fn(move || {
        let (bin, mut sum) = cells.next()?;
        while let Some((_, count)) = cells.next_if(|(next, _)| *next == bin) {
            sum += count;
        }
        Some((bin, sum))
    })
}

impl Histogram {
    /// An empty one with so many cells.
    pub(super) fn new(scale: &Scale) -> Self {
        Self { sum: AtomicU64::new(0), cells: (0..scale.cells()).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Sets everything to zero, one number after the other. There must be no reader at that time.
    pub(super) fn reset(&self) {
        self.cells.iter().chain([&self.sum]).for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    /// Counts a `value` that is in `cell`. One writer only.
    pub(super) fn observe(&self, value: Nanos, cell: usize) {
        if let Some(count) = self.cells.get(cell) {
            bump(count, 1);
            bump(&self.sum, value.0);
        }
    }

    /// Reads it into `reading`.
    pub fn read_into(&self, reading: &mut HistogramReading) {
        reading.set(Nanos(self.sum.load(Ordering::Acquire)), self.counts());
    }

    /// Reads it as a classic histogram.
    pub fn classic(&self, scale: &Scale) -> ClassicReading {
        ClassicReading::new(Nanos(self.sum.load(Ordering::Acquire)), self.counts(), scale)
    }

    /// The counts of its cells.
    pub(super) fn counts(&self) -> impl Iterator<Item = u64> + Clone {
        self.cells.iter().map(|count| count.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> Nanos {
        Nanos(n * 1_000)
    }

    #[test]
    fn both_kinds_of_histograms_count_every_value_once() {
        let scale = Scale::default();
        let histogram = Histogram::new(&scale);
        for value in [Nanos(0), us(25), Nanos(25_001), us(1_000_000), us(1_000_001)] {
            histogram.observe(value, scale.cell(value));
        }
        let mut read = HistogramReading::default();
        histogram.read_into(&mut read);
        let classic = read.classic(&scale);
        assert_eq!((classic.up_to[0], classic.up_to[1], classic.up_to[11], classic.count), (2, 3, 4, 5));
        assert_eq!(classic.up_to[12..], [0; 4], "there are twelve bounds");
        assert_eq!((read.count(), read.sum), (5, Nanos(25_000 + 25_001 + 1_000_000_000 + 1_000_001_000)));
        let bins: Vec<(usize, u64)> = read.bins(&scale).collect();
        assert_eq!((bins[0], bins.iter().map(|(_, count)| count).sum::<u64>()), ((0, 1), 5));
        assert!(bins.iter().map(|(bin, _)| *bin).eq(0..scale.bin_count()));
        histogram.reset();
        histogram.read_into(&mut read);
        assert_eq!((read.count(), read.sum), (0, Nanos(0)));
    }
}
