//! When a slice that has changed is read: soon where it holds peers of ours, or may hold one that is missing; later
//! otherwise; at once where a peer in it is doubted. And when to come back to the API server. Time and randomness are arguments.
//!
//! A change is seen by every agent in the same millisecond, and a slice in the middle of a rollout changes several times a
//! second: without a pause, each of 5,000 agents would read each of 50 slices again and again. The pause grows with the number of
//! slices, so that what an agent reads per second does not, and is spread by chance, so that agents do not read together. The first
//! change since the last reading sets the time: a steady stream cannot put it off.

use std::time::Duration;

use tokio::time::Instant;

use super::config::Timing;
use crate::discovery::random;
use crate::limits;

/// How much a slice's content matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It has never been read, and nothing can be told before.
    Start,
    /// It holds an endpoint that is probed, or may hold one or our own: it has never been read, or one of these is missing.
    Ours,
    /// It holds others.
    Others,
}

/// A slice that has changed since it was read.
#[derive(Clone, Copy, Debug)]
pub struct Stale {
    /// Since when: what a slice held that is deleted later may be in it.
    since: Instant,
    /// What its pause counts from: the change, or the last attempt to read it.
    from: Instant,
    /// When a peer in it was first doubted.
    doubted: Option<Instant>,
    /// In [0, 1): the share of the pause that is ours.
    random: f32,
    /// Attempts to read it that failed.
    failures: u8,
}

impl Stale {
    /// As of now.
    #[expect(clippy::cast_possible_truncation, reason = "a part of a pause")]
    pub const fn new(now: Instant, random: f64) -> Self {
        Self { since: now, from: now, doubted: None, random: random as f32, failures: 0 }
    }

    /// Since when.
    pub const fn since(&self) -> Instant {
        self.since
    }

    /// Whether it comes before all others, for somebody waits for it: not where reading it has failed, for it may fail again.
    pub const fn is_doubted(&self) -> bool {
        self.doubted.is_some() && self.failures == 0
    }

    /// Somebody waits for it.
    pub fn doubt(&mut self, now: Instant) {
        self.doubted.get_or_insert(now);
    }

    /// It was read, and has changed again meanwhile: its pause begins anew. Who waits for it goes on waiting.
    pub fn read_too_early(&mut self, now: Instant) {
        *self = Self { from: now, failures: 0, ..*self };
    }

    /// Reading it failed: it is due later. Who waits for it goes on waiting for a second attempt, and for no third.
    pub fn failed(&mut self, now: Instant) {
        let doubted = self.doubted.filter(|_| self.failures == 0);
        *self = Self { from: now, doubted, failures: self.failures.saturating_add(1), ..*self };
    }

    /// When to read it, where there are so many slices.
    pub fn due(&self, need: Need, slices: usize, timing: &Timing) -> Instant {
        let random = self.random.into();
        let earliest = self.from + self.penalty(timing);
        let planned = earliest + pause(need, slices, random, timing);
        match self.doubted {
            // Failures are paid for whoever waits: a server that struggles is not asked more often for it.
            Some(at) => planned.min((at + doubt_pause(slices, random)).max(earliest)),
            None => planned,
        }
    }

    /// Whether it should have been read long ago: the list can no longer be said to be right.
    pub fn is_overdue(&self, need: Need, slices: usize, timing: &Timing, now: Instant) -> bool {
        need == Need::Ours && (self.failures > 0 || self.due(need, slices, timing) + limits::READ_OVERDUE < now)
    }

    fn penalty(&self, timing: &Timing) -> Duration {
        if self.failures == 0 {
            return Duration::ZERO;
        }
        let ceiling = timing.backoff_min.saturating_mul(1 << self.failures.min(16)).min(timing.backoff_max);
        // Never less than a quarter: the share is drawn once for all attempts, and one near 0 would
        // be no back-off at all.
        random::spread(ceiling / 2, 0.5, self.random.into())
    }
}

/// Between a slice's change and its reading.
fn pause(need: Need, slices: usize, random: f64, timing: &Timing) -> Duration {
    let others = u32::try_from(slices.saturating_sub(1)).unwrap_or(u32::MAX);
    // The middle is what is bounded, and not the sum: else those above the bound would all come at the same moment.
    let middle = timing.read_spacing.saturating_mul(others).min(timing.read_pause);
    let jittered = middle.mul_f64(0.5 + random);
    let pause = match need {
        // The rest of a first list: spread as what is asked for anew, but not faster for being more.
        Need::Start => {
            timing.coalesce + timing.return_spacing.saturating_mul(others).min(timing.read_pause).mul_f64(random)
        }
        Need::Ours => jittered,
        Need::Others => jittered * limits::READ_OTHERS_FACTOR,
    };
    pause.max(timing.coalesce)
}

/// Between a doubt and the reading: where there are few slices there are few agents, which need no spreading.
fn doubt_pause(slices: usize, random: f64) -> Duration {
    let others = u32::try_from(slices.saturating_sub(1)).unwrap_or(u32::MAX);
    limits::DOUBT_SPACING.saturating_mul(others).min(limits::DOUBT_PAUSE_MAX).mul_f64(random)
}

/// How much longer than its back-off an agent waits before it comes back to an API server that has sent all of them away.
pub fn return_pause(slices: usize, random: f64, timing: &Timing) -> Duration {
    let others = u32::try_from(slices.saturating_sub(1)).unwrap_or(u32::MAX);
    timing.return_spacing.saturating_mul(others).min(limits::RETURN_PAUSE_MAX).mul_f64(random)
}

/// Whether a watch that was to last so long has ended before its time: all are ended at once by a server that goes away, or that
/// loses etcd. At its time the server ends it to the second, and ours began to count when it was asked for.
pub fn is_early(elapsed: Duration, lasting: Duration) -> bool {
    elapsed + limits::WATCH_END_SLACK < lasting
}

/// Between the first look at an empty list and the second. All agents see it in the same moment, and their second look is past
/// the cache.
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
        // Whoever doubts it again waits for its back-off, not for its turn.
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
