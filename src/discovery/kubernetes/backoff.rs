//! How long to wait after the n-th failure: full jitter, a random part of a ceiling that doubles.
//!
//! Without jitter, all agents of a cluster would return to a restarted API server in the same
//! second. With a fixed part ("equal jitter"), they still return in waves.

use std::time::Duration;

/// A watch that has lasted this long has worked, however it ended. Something between us and the
/// server may cut idle connections, as some proxies do after 50 s. Suppose a server ends watches
/// after this time and accepts them again. It gets at most one request per agent every 20 s. A
/// server that fails at once gets one every 30 s on average, so the difference is small.
pub const WATCH_WORKED: Duration = Duration::from_secs(20);

/// The number of consecutive failures, and the bounds of the ceiling.
#[derive(Clone, Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// Makes a back-off whose ceilings double from `min` to `max`.
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, failures: 0 }
    }

    /// Returns the next wait, for `random` in [0, 1).
    pub fn next(&mut self, random: f64) -> Duration {
        let ceiling = self.min.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX)).min(self.max);
        self.failures = self.failures.saturating_add(1);
        ceiling.mul_f64(random)
    }

    /// Records how long the last attempt has lasted. If it was long enough, the number of
    /// failures is zero again.
    pub fn lasted(&mut self, long: Duration) {
        if long >= self.max.min(WATCH_WORKED) {
            self.reset();
        }
    }

    /// Sets the count of failures to zero.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_mins(1);

    /// Returns the longest first and 30th wait after attempts that last for `lasted`, after
    /// `failures` that did not last.
    fn waits(failures: u32, lasted: Duration) -> (Duration, Duration) {
        let mut backoff = Backoff::new(Duration::from_secs(1), MAX);
        (0..failures).for_each(|_| _ = backoff.next(1.0));
        let waits = (0..30).map(|_| {
            backoff.lasted(lasted);
            backoff.next(1.0)
        });
        let waits: Vec<_> = waits.collect();
        (waits[0], waits[29])
    }

    #[test]
    fn a_watch_that_lasted_starts_the_backoff_again_even_after_an_outage() {
        let second = Duration::from_secs(1);
        for lasted in [20, 45, 50, 59] {
            assert_eq!(waits(0, lasted * second), (second, second), "{lasted} s");
            assert_eq!(waits(10, lasted * second), (second, second), "{lasted} s, after an outage");
        }
    }

    #[test]
    fn watches_that_end_soon_are_backed_off_from_more_and_more() {
        for (failures, ms) in [(0, 0), (0, 900), (0, 5_000), (0, 19_900), (10, 19_900)] {
            let (_, last) = waits(failures, Duration::from_millis(ms));
            assert_eq!(last, MAX, "{ms} ms, after {failures} failures");
        }
    }

    #[test]
    fn ceilings_double_up_to_the_longest_and_start_again_after_success() {
        let mut backoff = Backoff::new(Duration::from_secs(1), MAX);
        let waits: Vec<u64> = (0..8).map(|_| backoff.next(1.0).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        for _ in 0..100 {
            assert_eq!(backoff.next(0.5), Duration::from_secs(30));
        }
        backoff.reset();
        assert_eq!(backoff.next(0.25), Duration::from_millis(250));
    }
}
