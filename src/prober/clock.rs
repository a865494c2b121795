//! The seam to the clocks, and the conversion of the kernel's timestamps to the monotonic clock.
//!
//! The kernel's timestamps are real time, which may be stepped at any moment. Round-trip times and
//! timeouts use the monotonic clock. Both clocks run at the same rate (NTP slews them alike), so
//! their distance changes only by steps. It is measured once, kept, and compared at every reading.
//! A timestamp near a step has two possible meanings. The caller, which knows what happened before,
//! selects one.

use crate::sys::clock;
use crate::units::Nanos;

/// Reads a monotonic clock, and the real-time clock of the kernel's timestamps.
pub trait Clock {
    /// Returns `CLOCK_MONOTONIC`.
    fn now(&self) -> Nanos;
    /// Returns `CLOCK_REALTIME` in nanoseconds since the epoch. It may step in either
    /// direction at any time.
    fn realtime(&self) -> Nanos;
}

/// Reads the clocks of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now(&self) -> Nanos {
        clock::monotonic()
    }

    fn realtime(&self) -> Nanos {
        clock::realtime()
    }
}

/// A smaller change of the distance is not a step. It has no effect that matters, and reading
/// two clocks takes time.
const STEP_MIN: u64 = 10_000;
/// Error of the measured distance. Without this margin, a packet may seem to arrive before the one
/// that it answers leaves.
const SLACK: Nanos = Nanos(2_000);
/// If two clock reads are this close, the thread was not interrupted between them.
const CLOSE: u64 = 1_000;

/// How far the real-time clock is ahead of the monotonic clock.
#[derive(Debug)]
pub struct RealTime {
    distance: i64,
    /// The distance before a step since the last reading.
    before: Option<i64>,
    /// Number of steps so far.
    steps: u32,
}

impl RealTime {
    /// Measures the distance now.
    pub fn new(clock: &dyn Clock) -> Self {
        Self { distance: measure(clock).1, before: None, steps: 0 }
    }

    /// Looks for a step, and returns the time. It is called after timestamps were read and before
    /// they are converted. Until [`RealTime::emptied`], the timestamps may be from before the step.
    pub fn check(&mut self, clock: &dyn Clock) -> Nanos {
        let (now, distance, width) = measure(clock);
        if distance.abs_diff(self.distance) > STEP_MIN + width {
            self.before = Some(std::mem::replace(&mut self.distance, distance));
            self.steps = self.steps.wrapping_add(1);
        }
        now
    }

    /// Returns the number of steps noticed so far. If it changes while packets are read, packets
    /// that were stamped before the step may be unread.
    pub const fn steps(&self) -> u32 {
        self.steps
    }

    /// Notes that all stamped packets were read. Later packets have timestamps
    /// of the current clock.
    pub const fn emptied(&mut self) {
        self.before = None;
    }

    /// Returns the meaning of a timestamp that was just read. Without a timestamp, it is
    /// the time of reading.
    pub fn moment(&self, stamp: Option<Nanos>, now: Nanos) -> Moment {
        let at = |distance: i64| stamp.and_then(|stamp| stamp.0.checked_add_signed(-distance)).map(Nanos);
        Moment { at: at(self.distance), or: self.before.and_then(at), read: now }
    }
}

/// Returns the time, the real time minus that time, and the uncertainty of the difference. Measures
/// again if the thread was interrupted.
fn measure(clock: &dyn Clock) -> (Nanos, i64, u64) {
    let mut best = (Nanos(0), 0, u64::MAX);
    let mut before = clock.now();
    for _ in 0..4 {
        let realtime = clock.realtime();
        let now = clock.now();
        let width = now.since(before).0;
        if width < best.2 {
            let middle = before.0 + width / 2;
            best = (now, realtime.0.wrapping_sub(middle).cast_signed(), width);
        }
        if width <= CLOSE {
            break;
        }
        before = now;
    }
    (clock.now().max(best.0), best.1, best.2)
}

/// When something happened to a packet, as far as its timestamp says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time according to the timestamp.
    at: Option<Nanos>,
    /// Time according to the timestamp if it is from before a step of the real-time clock.
    or: Option<Nanos>,
    /// When the packet was read.
    read: Nanos,
}

impl Moment {
    /// Makes a moment of which only the time of reading is known.
    pub const fn read(now: Nanos) -> Self {
        Self { at: None, or: None, read: now }
    }

    /// Makes a moment on the monotonic clock that the kernel itself has measured, and that
    /// was read at `read`.
    pub const fn measured(at: Nanos, read: Nanos) -> Self {
        Self { at: Some(at), or: None, read }
    }

    /// Returns the possible meanings of the timestamp: not before `earliest`, and not
    /// after it was read.
    fn meanings(self, earliest: Nanos) -> [Option<Nanos>; 2] {
        let possible = |at: &Nanos| at.plus(SLACK) >= earliest && *at <= self.read.plus(SLACK);
        [self.at.filter(possible), self.or.filter(possible)]
    }

    /// Returns when a reply arrived, and whether the timestamp gives that time. The time is
    /// never before `earliest`. Of two possible meanings it is the earlier one: too short a
    /// time raises no alarm. This does not apply if the departure was in doubt. It may have
    /// been taken for one after the step, and nothing arrived before it. Without a possible
    /// meaning, it is the time of reading.
    pub fn arrival(self, earliest: Nanos, departure_in_doubt: bool) -> (Nanos, bool) {
        match self.meanings(earliest) {
            [Some(at), None] | [None, Some(at)] => (at.max(earliest), true),
            [Some(after_the_step), Some(_)] if departure_in_doubt => (after_the_step.max(earliest), false),
            [Some(at), Some(or)] => (at.min(or).max(earliest), false),
            [None, None] => (self.read.max(earliest), false),
        }
    }

    /// Returns when a request left, and whether the timestamp gives that time. The time is never
    /// before `earliest`. Of two possible meanings it is the later one: too short a time raises no
    /// alarm. `None` without a possible meaning.
    pub fn departure(self, earliest: Nanos) -> Option<(Nanos, bool)> {
        match self.meanings(earliest) {
            [Some(at), None] | [None, Some(at)] => Some((at.max(earliest), true)),
            [Some(at), Some(or)] => Some((at.max(or).max(earliest), false)),
            [None, None] => None,
        }
    }

    /// Returns how late the packet was read: since it arrived, or since `due` if that is later.
    /// `due` is the time until which it may wait. `None` without a usable timestamp.
    pub fn read_delay(self, due: Nanos) -> Option<Nanos> {
        let (at, stamped) = self.arrival(Nanos(0), false);
        stamped.then(|| self.read.since(at.max(due)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct Scripted {
        now: Cell<u64>,
        real: Cell<u64>,
    }

    impl Clock for Scripted {
        fn now(&self) -> Nanos {
            Nanos(self.now.get())
        }

        fn realtime(&self) -> Nanos {
            Nanos(self.real.get())
        }
    }

    const HOUR: u64 = 3_600_000_000_000;
    const MS: u64 = 1_000_000;
    const REAL: u64 = 400_000 * HOUR;

    /// Real time is stepped by `step`. The packet is stamped at 100 ms, after the step if `late`.
    /// It answers one from 90 ms and is read at 130 ms. Returns the resulting milliseconds, and
    /// whether they come from the timestamp.
    fn around_a_step(step: i64, late: bool) -> (u64, bool) {
        let clock = Scripted { now: Cell::new(0), real: Cell::new(REAL) };
        let mut real_time = RealTime::new(&clock);
        let stamp = (REAL + 100 * MS).checked_add_signed(if late { step } else { 0 }).unwrap();
        clock.now.set(130 * MS);
        clock.real.set((REAL + 130 * MS).checked_add_signed(step).unwrap());
        let now = real_time.check(&clock);
        let (at, stamped) = real_time.moment(Some(Nanos(stamp)), now).arrival(Nanos(90 * MS), false);
        (at.0 / MS, stamped)
    }

    #[test]
    fn a_stamp_means_a_moment_of_the_monotonic_clock() {
        assert_eq!(around_a_step(0, false), (100, true));
        // Less than a step: the time that reading takes may have the same effect.
        assert_eq!(around_a_step(5_000, false), (100, true));
    }

    #[test]
    fn a_step_on_either_side_of_the_stamp_changes_nothing() {
        for step in [HOUR.cast_signed(), -HOUR.cast_signed(), 40 * 1_000_000, -40 * 1_000_000] {
            assert_eq!(around_a_step(step, false), (100, true), "{step}");
            assert_eq!(around_a_step(step, true), (100, true), "{step}");
        }
    }

    #[test]
    fn where_a_small_step_leaves_two_meanings_the_time_is_never_too_long() {
        let ms = 1_000_000;
        assert_eq!(around_a_step(5 * ms, true), (100, false));
        assert_eq!(around_a_step(-5 * ms, false), (100, false));
        assert_eq!(around_a_step(5 * ms, false), (95, false));
        assert_eq!(around_a_step(-5 * ms, true), (95, false));
    }

    #[test]
    fn a_small_step_between_departure_and_arrival_never_makes_the_time_too_long_nor_shorter_than_by_itself() {
        // Departure at 20 ms and arrival at 40 ms, both read at 50 ms. The step is at `when`.
        for (step, when) in
            [5, -5, 7, -7].into_iter().flat_map(|step| [10, 30, 45].map(|when| (step * 1_000_000, when)))
        {
            let clock = Scripted { now: Cell::new(0), real: Cell::new(REAL) };
            let mut real_time = RealTime::new(&clock);
            let shown = |at: u64| Nanos((REAL + at * MS).checked_add_signed(if at > when { step } else { 0 }).unwrap());
            clock.now.set(50 * MS);
            clock.real.set(shown(50).0);
            let now = real_time.check(&clock);
            let (left, stamped) = real_time.moment(Some(shown(20)), now).departure(Nanos(8 * MS)).unwrap();
            let (arrived, _) = real_time.moment(Some(shown(40)), now).arrival(left, !stamped);
            let off = (20 * MS).checked_sub(arrived.since(left).0).expect("never too long");
            assert!(off == 0 || off == step.unsigned_abs(), "{step} at {when}: {off}");
        }
    }

    #[test]
    fn without_a_stamp_or_with_an_impossible_one_the_time_of_reading_stands_in() {
        assert_eq!(Moment::read(Nanos(7)).arrival(Nanos(3), false), (Nanos(7), false));
        assert_eq!(
            Moment::read(Nanos(7)).arrival(Nanos(9), false),
            (Nanos(9), false),
            "and never a time before what happened first"
        );
        let impossible = Moment { at: Some(Nanos(HOUR)), or: None, read: Nanos(7) };
        assert_eq!(impossible.arrival(Nanos(3), false), (Nanos(7), false));
        assert_eq!((impossible.departure(Nanos(3)), impossible.read_delay(Nanos(0))), (None, None));
        let either = Moment { at: Some(Nanos(9_000)), or: Some(Nanos(4_000)), read: Nanos(9_500) };
        assert_eq!(either.arrival(Nanos(3_000), false), (Nanos(4_000), false));
        assert_eq!(either.departure(Nanos(3_000)), Some((Nanos(9_000), false)));
        assert_eq!(either.departure(Nanos(7_000)), Some((Nanos(9_000), true)), "the other is impossible");
    }

    #[test]
    fn the_machines_clocks_keep_their_distance() {
        let mut real_time = RealTime::new(&MonotonicClock);
        for _ in 0..1_000 {
            real_time.check(&MonotonicClock);
            assert!(real_time.before.is_none(), "a step that did not happen");
        }
    }
}
