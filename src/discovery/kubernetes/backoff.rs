//! How long to wait after the n-th failure: full jitter, a random part of a ceiling that doubles.
//!
//! Without jitter all agents of a cluster would come back to a restarted API server in the same second; with a part of
//! it fixed ("equal jitter") they still come in waves.

use std::time::Duration;

/// Counts failures in a row.
#[derive(Clone, Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// Ceilings from `min`, doubling, to `max`.
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, failures: 0 }
    }

    /// The next wait, for `random` in [0, 1).
    pub fn next(&mut self, random: f64) -> Duration {
        let ceiling = self.min.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX)).min(self.max);
        self.failures = self.failures.saturating_add(1);
        ceiling.mul_f64(random)
    }

    /// All is well again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_double_up_to_the_longest_and_start_again_after_success() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
        let waits: Vec<u64> = (0..8).map(|_| backoff.next(1.0).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        for _ in 0..100 {
            assert_eq!(backoff.next(0.5), Duration::from_secs(30));
        }
        backoff.reset();
        assert_eq!(backoff.next(0.25), Duration::from_millis(250));
    }
}
