//! Histograms of times: counts per cell of a [`Scale`], with one writer.
//!
//! Histograms over all peers have 64-bit counts, because 5,000 peers overflow 32 bits within ten
//! days. Histograms of one peer have 32-bit counts.

use std::sync::atomic::{AtomicU64, Ordering};

use super::bump;
use super::scale::Scale;
use crate::limits::RTT_BUCKETS_MAX;
use crate::units::Nanos;

/// Counts per cell, and the sum of all values. Written by one thread. The default has no cells and
/// counts nothing.
#[derive(Debug, Default)]
pub struct Histogram {
    sum: AtomicU64,
    cells: Box<[AtomicU64]>,
}

/// A histogram as read at one moment. The memory is reused for the next reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramReading {
    /// Sum of all values.
    pub sum: Nanos,
    /// Number of values in each cell of the scale.
    pub cells: Vec<u64>,
}

/// A classic histogram as read at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassicReading {
    /// Sum of all values.
    pub sum: Nanos,
    /// Number of values in all buckets.
    pub count: u64,
    /// Number of values at or below each bound. The first entries are in use, one per bound.
    pub up_to: [u64; RTT_BUCKETS_MAX],
}

impl ClassicReading {
    /// Sums up counts per cell. Reads each count once.
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
    /// Replaces the content by this sum and these counts per cell.
    pub(super) fn set(&mut self, sum: Nanos, counts: impl Iterator<Item = u64>) {
        self.sum = sum;
        self.cells.clear();
        self.cells.extend(counts);
    }

    /// Returns the number of values in all cells.
    pub fn count(&self) -> u64 {
        self.cells.iter().sum()
    }

    /// Returns the same values as a classic histogram.
    pub fn classic(&self, scale: &Scale) -> ClassicReading {
        ClassicReading::new(self.sum, self.cells.iter().copied(), scale)
    }

    /// Returns number and count of each native bucket, in ascending order. Bucket 0
    /// is the zero bucket.
    pub fn bins(&self, scale: &Scale) -> impl Iterator<Item = (usize, u64)> + Clone {
        by_bin(scale, self.cells.iter().copied())
    }
}

/// Sums counts per cell up to native buckets. Returns number and count of each, in ascending order.
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
    /// Makes an empty histogram with the cells of `scale`.
    pub(super) fn new(scale: &Scale) -> Self {
        Self { sum: AtomicU64::new(0), cells: (0..scale.cells()).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Sets all numbers to zero, one after the other. There must be no reader at that time.
    pub(super) fn reset(&self) {
        self.cells.iter().chain([&self.sum]).for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    /// Counts `value`, which belongs to `cell`. Only one thread may write.
    pub(super) fn observe(&self, value: Nanos, cell: usize) {
        if let Some(count) = self.cells.get(cell) {
            bump(count, 1);
            bump(&self.sum, value.0);
        }
    }

    /// Reads the histogram into `reading`.
    pub fn read_into(&self, reading: &mut HistogramReading) {
        reading.set(Nanos(self.sum.load(Ordering::Acquire)), self.counts());
    }

    /// Reads the histogram as a classic one.
    pub fn classic(&self, scale: &Scale) -> ClassicReading {
        ClassicReading::new(Nanos(self.sum.load(Ordering::Acquire)), self.counts(), scale)
    }

    /// Returns the counts of the cells.
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
