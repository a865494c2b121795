//! When a changed slice is read, and when to return to the API server. Time and randomness are
//! arguments.
//!
//! A changed slice is read after a pause, and at once if a peer in it is doubted.
//!
//! Every agent sees a change in the same millisecond, and in a rollout a slice changes several
//! times a second. Without a pause, each of 5,000 agents would read each of 50 slices again and
//! again. The pause grows with the number of slices, so that an agent's reads per second do not. It
//! is random, so that agents do not read together. The first change since the last reading sets the
//! time, so a steady stream of changes cannot postpone it.
//!
//! Doubts need no such spread: each agent probes at a phase of its own. Slices without our peers
//! need no longer pause: it saves 5 % of the bytes of a rollout (docs/adr/0023).

use std::time::Duration;

use tokio::time::Instant;

use super::config::Timing;
use crate::discovery::random;

/// A slice that is still unread this long after it was due leaves the list unconfirmed, so that the
/// list's age rises.
const OVERDUE: Duration = Duration::from_secs(30);
/// A watch that ends at most this long before its duration counts as complete. Servers take whole
/// seconds and start to count later than we do.
const WATCH_END_SLACK: Duration = Duration::from_secs(1);

/// A slice that has changed since it was read.
#[derive(Clone, Copy, Debug)]
pub struct Stale {
    /// When the slice became stale. Endpoints of a slice that is deleted later may be in it.
    since: Instant,
    /// The start of its pause: the change, or the last attempt to read it.
    from: Instant,
    /// When a peer in it was first doubted.
    doubted: Option<Instant>,
    /// In [0, 1): the random part of the pause.
    random: f32,
    /// Failed attempts to read it.
    failures: u8,
}

impl Stale {
    /// Makes a slice that is stale from `now` on.
    #[expect(clippy::cast_possible_truncation, reason = "a part of a pause")]
    pub const fn new(now: Instant, random: f64) -> Self {
        Self { since: now, from: now, doubted: None, random: random as f32, failures: 0 }
    }

    /// Returns when the slice became stale.
    pub const fn since(&self) -> Instant {
        self.since
    }

    /// Returns whether it comes before all others, because a doubt waits for it. False after a
    /// failed reading, which may fail again.
    pub const fn is_doubted(&self) -> bool {
        self.doubted.is_some() && self.failures == 0
    }

    /// Records that a doubt waits for it.
    pub fn doubt(&mut self, now: Instant) {
        self.doubted.get_or_insert(now);
    }

    /// Records that the slice was read but has changed again since. Its pause starts again. A
    /// waiting doubt keeps waiting.
    pub fn read_too_early(&mut self, now: Instant) {
        *self = Self { from: now, failures: 0, ..*self };
    }

    /// Records that a reading failed. The slice is due after its back-off.
    pub fn failed(&mut self, now: Instant) {
        *self = Self { from: now, failures: self.failures.saturating_add(1), ..*self };
    }

    /// Returns when to read it, if there are `slices` slices.
    pub fn due(&self, slices: usize, timing: &Timing) -> Instant {
        // The back-off applies even to doubts: a struggling server is not asked more often for
        // them.
        let earliest = self.from + self.backoff(timing);
        // The bound applies to the middle, not to the result. Otherwise all pauses above the bound
        // would end at the same moment.
        let middle = timing.read_spacing.saturating_mul(others(slices)).min(timing.read_pause);
        let planned = earliest + middle.mul_f64(0.5 + f64::from(self.random)).max(timing.coalesce);
        self.doubted.map_or(planned, |at| planned.min(at.max(earliest)))
    }

    /// Returns whether it should have been read long ago. Then the list cannot be confirmed.
    pub fn is_overdue(&self, slices: usize, timing: &Timing, now: Instant) -> bool {
        self.failures > 0 || self.due(slices, timing) + OVERDUE < now
    }

    fn backoff(&self, timing: &Timing) -> Duration {
        if self.failures == 0 {
            return Duration::ZERO;
        }
        let ceiling = timing.backoff_min.saturating_mul(1 << self.failures.min(16)).min(timing.backoff_max);
        // Never less than a quarter of the ceiling. The random part is drawn once for all attempts,
        // and one near 0 would be no back-off at all.
        random::spread(ceiling / 2, 0.5, self.random.into())
    }
}

/// Returns the number of slices besides the first.
fn others(slices: usize) -> u32 {
    u32::try_from(slices.saturating_sub(1)).unwrap_or(u32::MAX)
}

/// Returns how long an agent waits beyond its back-off before it returns to an API server that has
/// turned all agents away.
pub fn return_pause(slices: usize, random: f64, timing: &Timing) -> Duration {
    timing.return_spacing.saturating_mul(others(slices)).min(timing.return_pause).mul_f64(random)
}

/// Returns whether a watch ended before its duration. A server that stops, or that loses etcd, ends
/// all its watches at once. Otherwise the server ends a watch on the second. Our time starts when
/// the watch is requested.
pub fn is_early(elapsed: Duration, lasting: Duration) -> bool {
    elapsed + WATCH_END_SLACK < lasting
}

/// Returns the time between the first look at an empty list and the second. All agents see the
/// empty list in the same moment, and their second look bypasses the cache.
pub fn second_look(random: f64, timing: &Timing) -> Duration {
    timing.second_look + timing.return_pause.mul_f64(random)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn due(slices: usize, random: f64) -> Duration {
        let now = Instant::now();
        Stale::new(now, random).due(slices, &Timing::default()) - now
    }

    #[test]
    fn one_slice_is_read_as_soon_as_a_burst_is_over() {
        assert_eq!([0.0, 0.5, 0.999].map(|random| due(1, random)), [Timing::default().coalesce; 3]);
    }

    #[test]
    fn the_pause_grows_with_the_slices_up_to_its_bound() {
        assert_eq!(
            [2, 11, 41, 50, 4_096].map(|slices| due(slices, 0.5)),
            [800, 8_000, 32_000, 39_200, 40_000].map(|ms| ms * MILLI)
        );
        assert_eq!((due(50, 0.0), due(50, 1.0)), (19_600 * MILLI, 58_800 * MILLI));
    }

    #[test]
    fn a_doubted_slice_is_read_at_once_and_never_later_than_planned() {
        let (now, timing) = (Instant::now(), Timing::default());
        let mut stale = Stale::new(now, 0.999);
        stale.doubt(now + 3_000 * MILLI);
        assert_eq!(stale.due(50, &timing) - now, 3_000 * MILLI);
        stale.doubt(now + 9_000 * MILLI);
        assert_eq!(stale.due(50, &timing) - now, 3_000 * MILLI, "the first doubt counts");
        let mut stale = Stale::new(now, 0.0);
        stale.doubt(now + 3_000 * MILLI);
        assert_eq!(stale.due(2, &timing) - now, 400 * MILLI);
    }

    #[test]
    fn a_slice_that_cannot_be_read_is_due_later_and_later() {
        let (now, timing) = (Instant::now(), Timing::default());
        let mut stale = Stale::new(now, 0.5);
        let waits: Vec<_> = (0..8)
            .map(|_| {
                stale.failed(now);
                (stale.due(1, &timing) - (now + timing.coalesce)).as_secs()
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
    }

    #[test]
    fn the_backoff_of_a_slice_grows_for_every_random_part() {
        let (now, timing) = (Instant::now(), Timing::default());
        for (random, expected) in [(0.0, [500, 1_000, 2_000, 4_000]), (1.0, [1_500, 3_000, 6_000, 12_000])] {
            let mut stale = Stale::new(now, random);
            for ms in expected {
                stale.failed(now);
                assert_eq!(stale.due(1, &timing) - now, ms * MILLI + timing.coalesce);
            }
        }
    }

    #[test]
    fn a_doubted_slice_that_cannot_be_read_is_tried_after_its_backoff_and_before_no_other() {
        let (now, timing) = (Instant::now(), Timing::default());
        let mut stale = Stale::new(now, 0.5);
        stale.doubt(now);
        assert!(stale.is_doubted());
        for expected in [1_000, 2_000, 4_000] {
            stale.failed(now);
            assert_eq!((stale.due(50, &timing) - now, stale.is_doubted()), (expected * MILLI, false));
        }
    }

    #[test]
    fn a_watch_is_early_up_to_a_second_before_its_time() {
        let lasting = Duration::from_mins(5);
        for (seconds, early) in
            [(0, true), (149, true), (151, true), (298, true), (299, false), (300, false), (301, false)]
        {
            assert_eq!(is_early(Duration::from_secs(seconds), lasting), early, "{seconds} s");
        }
        assert!(!is_early(Duration::ZERO, Duration::from_secs(1)));
    }

    #[test]
    fn second_looks_are_spread() {
        let waits = [0.0, 0.5, 1.0].map(|random| second_look(random, &Timing::default()).as_secs());
        assert_eq!(waits, [5, 10, 15]);
    }

    #[test]
    fn a_slice_is_overdue_some_time_after_it_was_due_and_once_a_reading_failed() {
        let (now, timing) = (Instant::now(), Timing::default());
        let mut stale = Stale::new(now, 0.5);
        let late = now + timing.coalesce + OVERDUE;
        assert!(!stale.is_overdue(1, &timing, late));
        assert!(stale.is_overdue(1, &timing, late + MILLI));
        stale.failed(now);
        assert!(stale.is_overdue(1, &timing, now));
    }
}
