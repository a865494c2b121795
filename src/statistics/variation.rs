//! The one-way delays of a link, and how much they vary: 24 bytes.
//!
//! A one-way delay is between the clocks of two nodes. How far they are apart is not known, but it
//! is the same for consecutive probes, so it is not in the difference of their delays. The mean of
//! the differences is the interarrival jitter of RFC 3550, section 6.4.1.
//!
//! The delay itself has the error of both clocks. Clients of NTP mostly bound it to some
//! milliseconds, so the delays within a cluster are known only with better clocks.

use std::sync::atomic::{AtomicU32, Ordering};

use kube_canary_kernel::atomic;
use zerocopy::FromZeros;

use crate::units::Nanos;

/// Part by which each difference changes the mean, as in RFC 3550.
const SHARE: u32 = 16;
/// A larger difference comes from a step of a clock.
const DIFFERENCE_MAX: u32 = 200_000_000;
/// A delay is known if the error of both clocks is less than this part of it: the true delay is
/// then within 25 % of the measured one. With more, a difference between the two directions, which
/// is what is read from them, could come from the clocks.
const ERROR_PART: u64 = 4;
// The mean is stored times `SHARE`.
const _: () = assert!(DIFFERENCE_MAX < u32::MAX / SHARE);

/// The variation of one direction. The probe thread writes.
#[derive(Debug, Default, FromZeros)]
pub(super) struct Variation {
    /// The low bits of the last delay in nanoseconds, of which the lowest is set; 0 before the
    /// first.
    last: AtomicU32,
    /// The mean, times [`SHARE`].
    mean: AtomicU32,
}
atomic!(Variation { last, mean });

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
}

/// The mean delay of one direction. The probe thread writes.
#[derive(Debug, Default, FromZeros)]
pub(super) struct Delay {
    /// In nanoseconds, up to 4.29 s. 0 if it is not known.
    mean: AtomicU32,
}
atomic!(Delay { mean });

impl Delay {
    /// Takes the delay of a probe, in nanoseconds between two clocks that are so far `apart` at
    /// most. If the clocks are no measure of it, the mean is not known from now on.
    pub(super) fn observe(&self, delay: i64, apart: Option<Nanos>) {
        let delay = u32::try_from(delay).unwrap_or(0);
        let is_known = apart.is_some_and(|apart| apart.0.saturating_mul(ERROR_PART) < delay.into());
        let mean = match self.mean.load(Ordering::Relaxed) {
            _ if !is_known => 0,
            0 => delay,
            mean => mean - mean / SHARE + delay / SHARE,
        };
        self.mean.store(mean, Ordering::Relaxed);
    }

    /// Returns the mean delay. `None` if it is not known.
    pub(super) fn read(&self) -> Option<Nanos> {
        Some(self.mean.load(Ordering::Relaxed)).filter(|mean| *mean > 0).map(|mean| Nanos(mean.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_known_only_while_the_clocks_are_a_measure_of_it() {
        let delay = Delay::default();
        assert_eq!(delay.read(), None);
        let apart = |us: u64| Some(Nanos(us * 1_000));
        for (ns, apart, expected) in [
            (400 * US, apart(99), Some(400_000)),
            (400 * US, apart(100), None),
            (400 * US, None, None),
            (-400 * US, apart(0), None),
            (0, apart(0), None),
            (5_000_000 * US, apart(1), None),
            (400 * US, apart(1), Some(400_000)),
            // A 16th of the difference.
            (560 * US, apart(1), Some(410_000)),
        ] {
            delay.observe(ns, apart);
            assert_eq!(delay.read(), expected.map(Nanos), "{ns} ns, {apart:?}");
        }
        for _ in 0..1_000 {
            delay.observe(i64::from(u32::MAX), apart(1));
        }
        assert!(delay.read() > Some(Nanos(4_200_000_000)));
    }

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
