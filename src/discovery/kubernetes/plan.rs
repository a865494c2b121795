//! When a changed slice is read, and when to return to the API server. Time and randomness are
//! arguments.
//!
//! A slice is read soon if it holds our peers, or may hold one that is missing, and later
//! otherwise. It is read at once if a peer in it is doubted.
//!
//! Every agent sees a change in the same millisecond, and in a rollout a slice changes several
//! times a second. Without a delay, each of 5,000 agents would read each of 50 slices again and
//! again. The delay grows with the number of slices, so that an agent's reads per second do not. It
//! is random, so that agents do not read together. The first change since the last reading sets the
//! time, so a steady stream of changes cannot postpone it.

use std::time::Duration;

use tokio::time::Instant;

use super::config::Timing;
use crate::discovery::random;
use crate::limits;

/// How much a slice's content matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The slice has never been read, and nothing can be reported before.
    Start,
    /// The slice holds a probed endpoint. Or it may hold one, or our own: it was never read, or one
    /// of these is missing.
    Ours,
    /// The slice holds only other endpoints.
    Others,
}

/// A slice that has changed since it was read.
#[derive(Clone, Copy, Debug)]
pub struct Stale {
    /// When the slice became stale. Endpoints of a slice that is deleted later may be in it.
    since: Instant,
    /// The start of its delay: the change, or the last attempt to read it.
    from: Instant,
    /// When a peer in it was first doubted.
    doubted: Option<Instant>,
    /// In [0, 1): the random part of the delay.
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

    /// Records that the slice was read but has changed again since. Its delay starts again. A
    /// waiting doubt keeps waiting.
    pub fn read_too_early(&mut self, now: Instant) {
        *self = Self { from: now, failures: 0, ..*self };
    }

    /// Records that a reading failed. The slice is due later. A waiting doubt waits for a second
    /// attempt, but not for a third.
    pub fn failed(&mut self, now: Instant) {
        let doubted = self.doubted.filter(|_| self.failures == 0);
        *self = Self { from: now, doubted, failures: self.failures.saturating_add(1), ..*self };
    }

    /// Returns when to read it, if there are `slices` slices.
    pub fn due(&self, need: Need, slices: usize, timing: &Timing) -> Instant {
        let random = self.random.into();
        let earliest = self.from + self.penalty(timing);
        let planned = earliest + pause(need, slices, random, timing);
        match self.doubted {
            // The penalty of failures applies even to doubts: a struggling server is not asked more
            // often for them.
            Some(at) => planned.min((at + doubt_pause(slices, random)).max(earliest)),
            None => planned,
        }
    }

    /// Returns whether it should have been read long ago. Then the list cannot be confirmed.
    pub fn is_overdue(&self, need: Need, slices: usize, timing: &Timing, now: Instant) -> bool {
        need == Need::Ours && (self.failures > 0 || self.due(need, slices, timing) + limits::READ_OVERDUE < now)
    }

    fn penalty(&self, timing: &Timing) -> Duration {
        if self.failures == 0 {
            return Duration::ZERO;
        }
        let ceiling = timing.backoff_min.saturating_mul(1 << self.failures.min(16)).min(timing.backoff_max);
        // Never less than a quarter of the ceiling. The random part is drawn once for all attempts,
        // and one near 0 would be no back-off at all.
        random::spread(ceiling / 2, 0.5, self.random.into())
    }
}

/// Returns the delay between a slice's change and its reading.
fn pause(need: Need, slices: usize, random: f64, timing: &Timing) -> Duration {
    let others = u32::try_from(slices.saturating_sub(1)).unwrap_or(u32::MAX);
    // The bound applies to the middle, not to the result. Otherwise all delays above the bound
    // would end at the same moment.
    let middle = timing.read_spacing.saturating_mul(others).min(timing.read_pause);
    let jittered = middle.mul_f64(0.5 + random);
    let pause = match need {
        // The rest of a first list is spread like other returns, but over up to `read_pause`. So a
        // longer list is not read faster.
        Need::Start => {
            timing.coalesce + timing.return_spacing.saturating_mul(others).min(timing.read_pause).mul_f64(random)
        }
        Need::Ours => jittered,
        Need::Others => jittered * limits::READ_OTHERS_FACTOR,
    };
    pause.max(timing.coalesce)
}

/// Returns the delay between a doubt and the reading. Few slices mean few agents,
/// which need no spreading.
fn doubt_pause(slices: usize, random: f64) -> Duration {
    let others = u32::try_from(slices.saturating_sub(1)).unwrap_or(u32::MAX);
    limits::DOUBT_SPACING.saturating_mul(others).min(limits::DOUBT_PAUSE_MAX).mul_f64(random)
}

/// Returns how long an agent waits beyond its back-off before it returns to an API server that has
/// turned all agents away.
pub fn return_pause(slices: usize, random: f64, timing: &Timing) -> Duration {
    let others = u32::try_from(slices.saturating_sub(1)).unwrap_or(u32::MAX);
    timing.return_spacing.saturating_mul(others).min(limits::RETURN_PAUSE_MAX).mul_f64(random)
}

/// Returns whether a watch ended before its duration. A server that stops, or that loses etcd, ends
/// all its watches at once. Otherwise the server ends a watch on the second. Our time starts when
/// the watch is requested.
pub fn is_early(elapsed: Duration, lasting: Duration) -> bool {
    elapsed + limits::WATCH_END_SLACK < lasting
}

/// Returns the time between the first look at an empty list and the second. All agents see the
/// empty list in the same moment, and their second look bypasses the cache.
pub fn second_look(random: f64, timing: &Timing) -> Duration {
    timing.second_look + timing.second_look_spread.mul_f64(random)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn due(need: Need, slices: usize, random: f64) -> Duration {
        let now = Instant::now();
        Stale::new(now, random).due(need, slices, &Timing::default()) - now
    }

    #[test]
    fn one_slice_is_read_as_soon_as_a_burst_is_over() {
        for random in [0.0, 0.5, 0.999] {
            assert_eq!(due(Need::Ours, 1, random), limits::EVENTS_COALESCE);
            assert_eq!(due(Need::Others, 1, random), limits::EVENTS_COALESCE);
        }
    }

    #[test]
    fn the_pause_grows_with_the_slices_up_to_its_bound_and_others_wait_four_times_as_long() {
        assert_eq!(
            [2, 11, 41, 50, 4_096].map(|n| due(Need::Ours, n, 0.5)),
            [800, 8_000, 32_000, 39_200, 40_000].map(|ms| ms * MILLI)
        );
        assert_eq!([2, 11, 50].map(|n| due(Need::Others, n, 0.5)), [3_200, 32_000, 156_800].map(|ms| ms * MILLI));
        assert_eq!((due(Need::Ours, 50, 0.0), due(Need::Ours, 50, 1.0)), (19_600 * MILLI, 58_800 * MILLI));
    }

    #[test]
    fn what_a_start_waits_for_is_spread_over_ten_seconds_and_over_more_where_there_is_more() {
        let at = |slices| [0.0, 0.5, 1.0].map(|random| due(Need::Start, slices, random).as_millis());
        assert_eq!(at(1), [100; 3]);
        assert_eq!(at(50), [100, 5_000, 9_900]);
        assert_eq!(at(4_096), [100, 20_100, 40_100]);
    }

    #[test]
    fn a_doubt_is_looked_into_at_once_and_never_later_than_planned() {
        let (now, timing) = (Instant::now(), Timing::default());
        let mut stale = Stale::new(now, 0.999);
        stale.doubt(now + 3_000 * MILLI);
        let at = stale.due(Need::Others, 50, &timing) - now;
        assert!((3_100 * MILLI..=3_200 * MILLI).contains(&at), "{at:?}");
        // The first doubt counts.
        stale.doubt(now + 9_000 * MILLI);
        assert_eq!(stale.due(Need::Others, 50, &timing) - now, at);
        let mut stale = Stale::new(now, 0.999);
        stale.doubt(now);
        assert_eq!(stale.due(Need::Ours, 1, &timing), now);
        let mut stale = Stale::new(now, 0.0);
        stale.doubt(now + 3_000 * MILLI);
        assert_eq!(stale.due(Need::Ours, 2, &timing) - now, 400 * MILLI);
    }

    #[test]
    fn a_slice_that_cannot_be_read_is_due_later_and_later() {
        let (now, timing) = (Instant::now(), Timing::default());
        let mut stale = Stale::new(now, 0.5);
        let waits: Vec<_> = (0..8)
            .map(|_| {
                stale.failed(now);
                (stale.due(Need::Ours, 1, &timing) - (now + limits::EVENTS_COALESCE)).as_secs()
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
    }

    #[test]
    fn whatever_was_drawn_the_back_off_of_a_slice_grows() {
        let (now, timing) = (Instant::now(), Timing::default());
        for (random, expected) in [(0.0, [500, 1_000, 2_000, 4_000]), (1.0, [1_500, 3_000, 6_000, 12_000])] {
            let mut stale = Stale::new(now, random);
            for ms in expected {
                stale.failed(now);
                assert_eq!(stale.due(Need::Ours, 1, &timing) - now, ms * MILLI + limits::EVENTS_COALESCE);
            }
        }
    }

    #[test]
    fn a_doubted_slice_that_cannot_be_read_is_tried_once_more_soon_but_comes_before_no_other() {
        let (now, timing) = (Instant::now(), Timing::default());
        let mut stale = Stale::new(now, 0.5);
        stale.doubt(now);
        assert!(stale.is_doubted());
        let due = |stale: &Stale| stale.due(Need::Ours, 50, &timing) - now;
        stale.failed(now);
        assert_eq!((due(&stale), stale.is_doubted()), (1_000 * MILLI, false));
        stale.failed(now);
        assert_eq!(due(&stale), 41_200 * MILLI, "nobody waits any more");
        // A new doubt waits for the back-off of the slice, but not for its normal delay.
        stale.doubt(now);
        assert_eq!((due(&stale), stale.is_doubted()), (2_000 * MILLI, false));
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
    fn only_what_we_need_can_be_overdue() {
        let (now, timing) = (Instant::now(), Timing::default());
        let mut stale = Stale::new(now, 0.5);
        let late = now + limits::EVENTS_COALESCE + limits::READ_OVERDUE;
        assert!(!stale.is_overdue(Need::Ours, 1, &timing, late));
        assert!(stale.is_overdue(Need::Ours, 1, &timing, late + MILLI));
        assert!(!stale.is_overdue(Need::Others, 1, &timing, late + MILLI));
        stale.failed(now);
        assert!(stale.is_overdue(Need::Ours, 1, &timing, now));
    }
}
