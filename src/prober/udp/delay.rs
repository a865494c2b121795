//! How long an answer takes from the call to send until it leaves, by its place in the batch.
//!
//! The time at which an answer leaves is written before it is sent. The wait for the kernel would
//! be a part of every round-trip time, so its mean is added. The mean is measured: the kernel
//! stamps some of the answers.

use kube_canary_kernel::batch::BATCH;

use crate::units::Nanos;

/// A single delay counts as at most twice the mean and this. A thread that loses its CPU in the
/// call, or a packet that waits for the device, is not the rule.
const SLACK: u64 = 2_000;
/// The most that the first delay may be.
const FIRST_MAX: u64 = 50_000;
/// The difference between two places for which nothing is known. Typical of a packet.
const STEP: u64 = 2_000;
/// A new delay moves the mean by this part of the difference.
const PART: u64 = 8;

/// The mean delays of answers, by their places in the batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delays {
    /// By place, zero if unknown.
    means: [u64; BATCH],
}

impl Delays {
    /// Returns the mean delay of a place. If it is unknown, that of the nearest place before it is
    /// continued, or else a delay of zero for the first.
    pub fn expected(&self, place: usize) -> Nanos {
        let before = self.means.iter().enumerate().take(place + 1).rev().find(|(_, mean)| **mean > 0);
        let (known, mean) = before.map_or((0, 0), |(known, mean)| (known, *mean));
        Nanos(mean + (place - known) as u64 * STEP)
    }

    /// Learns the delay of an answer at this place.
    pub fn learn(&mut self, place: usize, delay: Nanos) {
        let Some(mean) = self.means.get_mut(place) else { return };
        *mean = match *mean {
            0 => delay.0.clamp(1, FIRST_MAX),
            known => {
                let delay = delay.0.min(2 * known + SLACK);
                (known * (PART - 1) + delay).div_ceil(PART).max(1)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_the_mean_is_small_and_an_outlier_hardly_moves_it() {
        let mut delays = Delays::default();
        assert_eq!(delays.expected(3), Nanos(3 * STEP), "nothing is known");
        for i in 0..200 {
            delays.learn(0, Nanos(8_000 + i % 5 * 1_000));
        }
        let mean = delays.expected(0).0;
        assert!(mean.abs_diff(10_000) < 500, "{mean}");
        delays.learn(0, Nanos(30_000_000));
        assert!(delays.expected(0).0 < mean + 2_000, "{:?}", delays.expected(0));
        // What lasts is learned.
        for _ in 0..100 {
            delays.learn(0, Nanos(80_000));
        }
        assert!(delays.expected(0).0.abs_diff(80_000) < 500);
        assert_eq!(delays.expected(2), Nanos(delays.expected(0).0 + 2 * STEP));
        delays.learn(2, Nanos(1_000_000));
        assert_eq!(delays.expected(2), Nanos(FIRST_MAX));
        delays.learn(BATCH, Nanos(1));
    }
}
