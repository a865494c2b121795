//! The current half of the recent window and the current minute of the hour. Both are counted from
//! the first tick.
//!
//! The grid is fixed. Rejected: starting each half a given time after the last turn. Each turn
//! would be a little late, and 60 minutes would add up to more than an hour. A whole number of
//! halves makes a minute, so the last half of a minute ends with it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::modulo;
use super::recent::WindowMoment;
use crate::limits::{HOUR_STEP, IN_FLIGHT_PER_PEER_MAX};
use crate::units::Nanos;

/// Longest half of the recent window. The window covers one to two halves: the last minute.
const RECENT_HALF_MAX: Nanos = Nanos::from_millis(30_000);
const _: () = assert!(RECENT_HALF_MAX.0 as u128 * 2 == HOUR_STEP.as_nanos(), "the recent window is a minute");
/// Probes that a peer may be sent in half of the recent window. Its counters have 8 bits. None may
/// exceed 255, even with replies to probes that were in flight when the half began.
pub(super) const RECENT_HALF_PROBES: u32 = 180;
const _: () = assert!(RECENT_HALF_PROBES as u64 + IN_FLIGHT_PER_PEER_MAX + 2 < u8::MAX as u64);

/// The grid of halves. Only the probe thread advances it.
#[derive(Debug)]
pub(super) struct Halves {
    /// Length of one half.
    half: Nanos,
    per_minute: u32,
    /// Time of the first tick. It is set before the first turn and never changes.
    epoch: AtomicU64,
    /// Number of the current half, counted from 1; 0 before the first tick.
    current: AtomicU32,
    /// Seconds from the first tick to the last one.
    second: AtomicU32,
}

fn seconds(time: Nanos) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

/// The end of one or more halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HalvesEnd {
    /// The half that has ended; 0 at the first tick.
    pub(super) from: u32,
    /// The half that begins.
    pub(super) to: u32,
}

impl Halves {
    /// Makes the grid for probes that are `interval` apart.
    pub(super) fn new(interval: Nanos) -> Self {
        let minute = Nanos::from(HOUR_STEP).0;
        let longest = interval.0.saturating_mul(RECENT_HALF_PROBES.into()).clamp(1, RECENT_HALF_MAX.0);
        let per_minute = minute.div_ceil(longest);
        Self {
            half: Nanos(minute / per_minute),
            // The shortest interval has the most halves per minute, and that number fits.
            per_minute: u32::try_from(per_minute).unwrap_or(u32::MAX),
            epoch: AtomicU64::new(0),
            current: AtomicU32::new(0),
            second: AtomicU32::new(0),
        }
    }

    /// Returns the number of the current half; 0 before the first tick.
    pub(super) fn current(&self) -> u32 {
        self.current.load(Ordering::Acquire)
    }

    /// Returns the turn if the current half is over at `now`. The caller does the work of the turn
    /// and then calls [`Halves::turn`].
    pub(super) fn due(&self, now: Nanos) -> Option<HalvesEnd> {
        let from = self.current.load(Ordering::Relaxed);
        if from == 0 {
            self.epoch.store(now.0, Ordering::Relaxed);
            return Some(HalvesEnd { from, to: 1 });
        }
        let passed = now.since(Nanos(self.epoch.load(Ordering::Relaxed))).0 / self.half.0;
        let to = u32::try_from(passed).unwrap_or(u32::MAX).saturating_add(1);
        (to > from).then_some(HalvesEnd { from, to })
    }

    /// Makes `turn.to` the current half.
    pub(super) fn turn(&self, turn: HalvesEnd) {
        self.current.store(turn.to, Ordering::Release);
    }

    /// Notes the time of a tick.
    pub(super) fn set_second(&self, now: Nanos) {
        let epoch = Nanos(self.epoch.load(Ordering::Relaxed));
        self.second.store(seconds(now.since(epoch)), Ordering::Relaxed);
    }

    /// Returns the moment of the last tick.
    pub(super) fn moment(&self) -> WindowMoment {
        WindowMoment { half: self.current(), second: modulo(self.second.load(Ordering::Relaxed)) }
    }

    /// Returns how much time `half` and the half before it cover at `now`. Half 0 covers nothing,
    /// and half 1 has no half before it.
    pub(super) fn covered(&self, half: u32, now: Nanos) -> Nanos {
        match half {
            0 => Nanos(0),
            1 => now.since(self.begin(half)).min(self.half),
            _ => now.since(self.begin(half)).min(self.half).plus(self.half),
        }
    }

    /// Returns when the first half began, and the length of each. `None` before the first tick.
    pub(super) fn grid(&self) -> Option<(Nanos, Nanos)> {
        (self.current() > 0).then(|| (self.begin(1), self.half))
    }

    /// Returns the minute that `half` (counted from 1) is part of, counted from 0.
    pub(super) const fn minute(&self, half: u32) -> u32 {
        half.saturating_sub(1) / self.per_minute
    }

    /// Whether `half` is the first of its minute.
    pub(super) const fn is_first(&self, half: u32) -> bool {
        half.saturating_sub(1).is_multiple_of(self.per_minute)
    }

    /// Returns when this second was, if it was within `minute` or, if it `may_be_later`, between
    /// that and now; and otherwise when that minute began. Seconds are counted from the first tick,
    /// modulo 2^16.
    pub(super) fn at_or_after(&self, minute: u32, second: u16, may_be_later: bool) -> Nanos {
        let begin = self.minute_begin(minute);
        let first = modulo(seconds(begin.since(self.begin(1))));
        let [after, now] = [second, self.moment().second].map(|second| second.wrapping_sub(first));
        let after_begin = Nanos(u64::from(after) * 1_000_000_000);
        let is_within = after_begin < HOUR_STEP.into() || may_be_later && after <= now;
        if is_within { begin.plus(after_begin) } else { begin }
    }

    /// Returns when `minute` began, on the clock of the ticks. The result is wrong
    /// before the first tick.
    pub(super) fn minute_begin(&self, minute: u32) -> Nanos {
        self.begin(minute.saturating_mul(self.per_minute).saturating_add(1))
    }

    fn begin(&self, half: u32) -> Nanos {
        let passed = u64::from(half.saturating_sub(1)).saturating_mul(self.half.0);
        Nanos(self.epoch.load(Ordering::Relaxed)).plus(Nanos(passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{INTERVAL_MAX, INTERVAL_MIN};

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn halves_divide_a_minute_and_none_sees_more_probes_than_it_counts() {
        for ms in [10, 11, 50, 83, 84, 100, 166, 167, 170, 1_000, 60_000, 300_000] {
            let (interval, minute) = (Nanos::from_millis(ms), 60 * SECOND);
            assert!((INTERVAL_MIN..=INTERVAL_MAX).contains(&std::time::Duration::from(interval)));
            let halves = Halves::new(interval);
            let sum = halves.half.0 * u64::from(halves.per_minute);
            assert!((minute - 100..=minute).contains(&sum), "{ms} ms: {sum}");
            assert!(halves.half.0 <= 30 * SECOND && halves.half.0 <= interval.0 * u64::from(RECENT_HALF_PROBES));
            assert_eq!(halves.per_minute == 2, ms >= 167, "{ms} ms: {halves:?}");
        }
    }

    #[test]
    fn late_ticks_do_not_shift_the_grid() {
        let halves = Halves::new(Nanos(SECOND));
        let at = |seconds: u64| Nanos(1_000 * SECOND + seconds * SECOND);
        let turns: Vec<_> = [at(0), at(29), at(30), at(61), at(89), at(90), at(121)]
            .into_iter()
            .map(|now| {
                let turn = halves.due(now);
                turn.inspect(|turn| halves.turn(*turn)).map(|turn| (turn.from, turn.to))
            })
            .collect();
        assert_eq!(turns, [Some((0, 1)), None, Some((1, 2)), Some((2, 3)), None, Some((3, 4)), Some((4, 5))]);
        assert_eq!(
            [1, 2, 3, 4, 5].map(|half| (halves.minute(half), halves.is_first(half))),
            [(0, true), (0, false), (1, true), (1, false), (2, true)]
        );
        assert_eq!((halves.minute_begin(0), halves.minute_begin(2)), (at(0), at(120)));
    }

    #[test]
    fn after_a_long_step_the_halves_between_are_gone() {
        let halves = Halves::new(Nanos(SECOND));
        halves.turn(halves.due(Nanos(5)).unwrap());
        let turn = halves.due(Nanos(5 + 3_605 * SECOND)).unwrap();
        assert_eq!(turn, HalvesEnd { from: 1, to: 121 });
        halves.turn(turn);
        assert_eq!(halves.covered(121, Nanos(5 + 3_605 * SECOND)), Nanos(35 * SECOND));
        assert_eq!(halves.minute(121), 60);
    }
}
