//! Histograms of times: bounds that are fixed at start, buckets of one writer.
//!
//! Those of all peers together have 64-bit buckets: 5,000 peers fill 32 bits within ten days. A peer's own stand in its
//! slot, with 32 bits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::bump;
use crate::limits::RTT_BUCKETS_MAX;
use crate::units::Nanos;

/// Buckets of a histogram: one per bound at most, and +Inf.
pub const HISTOGRAM_BUCKETS: usize = RTT_BUCKETS_MAX + 1;

/// Upper bounds of the buckets below +Inf, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds(Box<[Nanos]>);

impl Default for Bounds {
    /// 10 µs to 1 s in steps of 1, 2.5 and 5: a rack's round trip is 20 to 60 µs.
    fn default() -> Self {
        const US: [u64; RTT_BUCKETS_MAX] = [
            10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
            1_000_000,
        ];
        Self(US.map(|us| Nanos(us * 1_000)).into())
    }
}

impl Bounds {
    /// Bounds from durations.
    ///
    /// # Errors
    /// A sentence that says what is accepted, where there are none or too many, or they do not ascend from above zero.
    pub fn new(durations: &[Duration]) -> Result<Self, String> {
        let bounds: Box<[Nanos]> = durations.iter().copied().map(Nanos::from).collect();
        if bounds.is_empty() || bounds.len() > RTT_BUCKETS_MAX {
            return Err(format!("1 to {RTT_BUCKETS_MAX} durations, separated by commas"));
        }
        if bounds[0] == Nanos(0) || bounds.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err("durations above zero, each larger than the one before".into());
        }
        Ok(Self(bounds))
    }

    /// The bounds.
    pub const fn as_slice(&self) -> &[Nanos] {
        &self.0
    }

    /// The bucket of a value; a bound belongs to its own bucket (`le`).
    pub fn bucket(&self, value: Nanos) -> usize {
        self.0.partition_point(|bound| *bound < value)
    }

    /// The upper bound of a bucket, in seconds; of the +Inf bucket the highest bound.
    pub fn upper(&self, bucket: usize) -> f64 {
        self.0.get(bucket).or(self.0.last()).map_or(0.0, |bound| bound.as_secs_f64())
    }

    /// The `q`-quantile in seconds, interpolated within its bucket as PromQL's `histogram_quantile` does; in the
    /// +Inf bucket the highest bound. None without any value.
    pub fn quantile<C: Copy + Into<u64>>(&self, q: f64, buckets: &[C]) -> Option<f64> {
        let (index, part) = rank(q, buckets)?;
        let upper = self.upper(index);
        let lower = match index {
            0 => 0.0,
            _ if index < self.0.len() => self.0[index - 1].as_secs_f64(),
            _ => upper,
        };
        Some(lower + (upper - lower) * part)
    }
}

/// The bucket of the `q`-quantile, and which part of that bucket's values is not above it. None without any value.
pub(super) fn rank<C: Copy + Into<u64>>(q: f64, buckets: &[C]) -> Option<(usize, f64)> {
    let total: u64 = buckets.iter().map(|&count| count.into()).sum();
    let rank = q * total as f64;
    let mut below = 0.0;
    let mut last = None;
    for (index, &count) in buckets.iter().enumerate() {
        let count = count.into() as f64;
        if count > 0.0 {
            last = Some((index, ((rank - below) / count).clamp(0.0, 1.0)));
            if below + count >= rank {
                break;
            }
        }
        below += count;
    }
    last
}

/// Counts per bucket, and the sum of all values.
#[derive(Debug, Default)]
pub struct Histogram {
    sum: AtomicU64,
    buckets: [AtomicU64; HISTOGRAM_BUCKETS],
}

/// A histogram as read at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistogramReading {
    /// Of all values.
    pub sum: Nanos,
    /// Not cumulative; the first `bounds + 1` are in use, the last of those is +Inf.
    pub buckets: [u64; HISTOGRAM_BUCKETS],
}

impl HistogramReading {
    /// Values in all buckets.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// What came since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let came = |index: usize| self.buckets[index].saturating_sub(earlier.buckets[index]);
        Self { sum: self.sum.since(earlier.sum), buckets: std::array::from_fn(came) }
    }
}

impl Histogram {
    /// Sets everything to zero, one number after the other. There must be no reader at that time.
    pub(super) fn reset(&self) {
        self.buckets.iter().chain([&self.sum]).for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    /// Counts `value`. One writer only.
    pub fn observe(&self, value: Nanos, bounds: &Bounds) {
        bump(&self.buckets[bounds.bucket(value)], 1);
        bump(&self.sum, value.0);
    }

    /// Reads it.
    pub fn read(&self) -> HistogramReading {
        HistogramReading {
            sum: Nanos(self.sum.load(Ordering::Acquire)),
            buckets: std::array::from_fn(|i| self.buckets[i].load(Ordering::Acquire)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> Nanos {
        Nanos(n * 1_000)
    }

    #[test]
    fn a_value_lands_in_the_bucket_of_the_first_bound_not_below_it() {
        let bounds = Bounds::default();
        let histogram = Histogram::default();
        for value in [Nanos(0), us(10), Nanos(10_001), us(1_000_000), us(1_000_001)] {
            histogram.observe(value, &bounds);
        }
        let read = histogram.read();
        assert_eq!((read.buckets[0], read.buckets[1], read.buckets[15], read.buckets[16]), (2, 1, 1, 1));
        assert_eq!((read.count(), read.sum), (5, Nanos(10_000 + 10_001 + 1_000_000_000 + 1_000_001_000)));
    }

    #[test]
    fn quantiles_are_interpolated_within_their_bucket() {
        let bounds = Bounds::new(&[Duration::from_millis(1), Duration::from_millis(2)]).unwrap();
        let close = |a: Option<f64>, b: f64| assert!((a.unwrap() - b).abs() < 1e-12, "{a:?} {b}");
        close(bounds.quantile(0.5, &[4u32, 0, 0]), 0.000_5);
        close(bounds.quantile(0.75, &[2u64, 2, 0]), 0.001_5);
        close(bounds.quantile(0.99, &[1u32, 1, 98]), 0.002);
        close(bounds.quantile(0.01, &[0u64, 3, 0]), 0.001_01);
        assert_eq!(bounds.quantile(0.5, &[0u32, 0, 0]), None);
        assert_eq!(rank(0.99, &[1u32, 1, 98]).map(|(index, _)| index), Some(2));
        assert_eq!([0, 1, 2].map(|bucket| bounds.upper(bucket).to_string()), ["0.001", "0.002", "0.002"]);
    }

    #[test]
    fn bounds_must_ascend_and_be_few() {
        let ms = Duration::from_millis;
        assert!(Bounds::new(&[ms(1), ms(2)]).is_ok());
        for bad in [vec![], vec![ms(0)], vec![ms(2), ms(1)], vec![ms(1), ms(1)], (1..=17).map(ms).collect()] {
            assert!(Bounds::new(&bad).is_err(), "{bad:?}");
        }
    }
}
