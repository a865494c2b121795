//! How much the one-way delays of a link vary: 16 bytes.
//!
//! A one-way delay is between the clocks of two nodes. How far they are apart is not known, but it
//! is the same for consecutive probes, so it is not in the difference of their delays. The mean of
//! the differences is the interarrival jitter of RFC 3550, section 6.4.1.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::units::Nanos;

/// Part by which each difference changes the mean, as in RFC 3550.
const SHARE: u32 = 16;
/// A larger difference comes from a step of a clock.
const DIFFERENCE_MAX: u32 = 200_000_000;
// The mean is stored times `SHARE`.
const _: () = assert!(DIFFERENCE_MAX < u32::MAX / SHARE);

/// The variation of one direction. The probe thread writes.
#[derive(Debug, Default)]
pub(super) struct Variation {
    /// The low bits of the last delay in nanoseconds, of which the lowest is set; 0 before the
    /// first.
    last: AtomicU32,
    /// The mean, times [`SHARE`].
    mean: AtomicU32,
}

impl Variation {
    /// Takes the delay of a probe, in nanoseconds between two clocks.
    pub(super) fn observe(&self, delay: i64) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the low bits are enough")]
        let delay = delay as u32 | 1;
        let last = self.last.load(Ordering::Relaxed);
        self.last.store(delay, Ordering::Relaxed);
        let difference = delay.wrapping_sub(last).cast_signed().unsigned_abs();
        if last != 0 && difference <= DIFFERENCE_MAX {
            let mean = self.mean.load(Ordering::Relaxed);
            self.mean.store(mean - mean / SHARE + difference, Ordering::Relaxed);
        }
    }

    /// Returns the mean difference. `None` before the first delay.
    pub(super) fn read(&self) -> Option<Nanos> {
        let mean = self.mean.load(Ordering::Relaxed) / SHARE;
        (self.last.load(Ordering::Relaxed) != 0).then(|| Nanos(mean.into()))
    }

    /// Copies another one.
    pub(super) fn copy(&self, other: &Self) {
        self.last.store(other.last.load(Ordering::Relaxed), Ordering::Relaxed);
        self.mean.store(other.mean.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: i64 = 1_000;

    #[test]
    fn the_distance_of_the_clocks_and_their_steps_are_not_in_the_variation() {
        for ahead in [0, -7, 3_600_000_000_000, i64::from(i32::MAX), i64::MIN / 2] {
            let variation = Variation::default();
            assert_eq!(variation.read(), None);
            for probe in 0..200 {
                // Every second request waits for 80 µs. One clock is set twice.
                let step = if probe < 70 { 0 } else { 900_000_000 };
                let step = if probe < 100 { step } else { -1_300_000_000 };
                variation.observe(ahead + step + 500 * US + probe % 2 * 80 * US);
            }
            let mean = variation.read().unwrap().0;
            assert!((79_900..=80_100).contains(&mean), "{mean} ns with clocks {ahead} ns apart");
        }
    }

    #[test]
    fn a_steady_delay_does_not_vary_and_a_single_late_probe_is_forgotten() {
        let variation = Variation::default();
        for _ in 0..50 {
            variation.observe(300 * US);
        }
        assert_eq!(variation.read(), Some(Nanos(0)));
        variation.observe(100_300 * US);
        assert!(variation.read() > Some(Nanos(6_000_000)));
        for _ in 0..200 {
            variation.observe(300 * US);
        }
        assert!(variation.read() < Some(Nanos(1_000)));
    }
}
