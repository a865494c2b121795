//! The clock seam, and the way from the kernel's time stamps to our clock.
//!
//! The kernel stamps packets in real time, which may be stepped at any moment; round-trip times and timeouts are of the
//! monotonic clock. Both run at the same pace (NTP slews them alike), so that their distance changes by steps alone: it
//! is measured once, held, and compared at every reading. A stamp that was taken around a step has two possible
//! meanings; which of them holds is for whoever knows what happened before.

use crate::clock;
use crate::units::Nanos;

/// A monotonic clock, and the real-time clock that the kernel stamps packets with.
pub trait Clock {
    /// `CLOCK_MONOTONIC`.
    fn now(&self) -> Nanos;
    /// `CLOCK_REALTIME`, nanoseconds since the epoch; may step either way at any time.
    fn realtime(&self) -> Nanos;
}

/// The machine's clocks.
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

/// A change of the distance by less is not a step: it makes no difference to anyone, and reading two clocks takes time.
const STEP_MIN: u64 = 10_000;
/// What the measured distance may be wrong by, so that a packet seems to have come before what it answers.
const SLACK: Nanos = Nanos(2_000);
/// Two clocks read with so little time between them were not interrupted.
const CLOSE: u64 = 1_000;

/// How far real time is ahead of the monotonic clock.
#[derive(Debug)]
pub struct RealTime {
    distance: i64,
    /// What it was before a step since the last reading.
    before: Option<i64>,
    /// Steps so far.
    steps: u32,
}

impl RealTime {
    /// Measures the distance now.
    pub fn new(clock: &dyn Clock) -> Self {
        Self { distance: measure(clock).1, before: None, steps: 0 }
    }

    /// Looks for a step, and gives the time. To be called when stamps have been read and before they are converted. Until
    /// [`RealTime::emptied`], they may be from before it.
    pub fn check(&mut self, clock: &dyn Clock) -> Nanos {
        let (now, distance, width) = measure(clock);
        if distance.abs_diff(self.distance) > STEP_MIN + width {
            self.before = Some(std::mem::replace(&mut self.distance, distance));
            self.steps = self.steps.wrapping_add(1);
        }
        now
    }

    /// Steps that were noticed so far: where the number changes while packets are read, some stamped before may be unread.
    pub const fn steps(&self) -> u32 {
        self.steps
    }

    /// Everything that was stamped has been read: what comes now is stamped by today's clock.
    pub const fn emptied(&mut self) {
        self.before = None;
    }

    /// What a stamp that was just read means; without one, the time of reading.
    pub fn moment(&self, stamp: Option<Nanos>, now: Nanos) -> Moment {
        let at = |distance: i64| stamp.and_then(|stamp| stamp.0.checked_add_signed(-distance)).map(Nanos);
        Moment { at: at(self.distance), or: self.before.and_then(at), read: now }
    }
}

/// (now, real time less now, the uncertainty of that). A thread that is held up in between reads again.
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

/// When something happened to a packet, as far as its stamp tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// As the stamp says.
    at: Option<Nanos>,
    /// As it says if it is from before a step of the real-time clock.
    or: Option<Nanos>,
    /// When we read it.
    read: Nanos,
}

impl Moment {
    /// A moment of which only the time of reading is known.
    pub const fn read(now: Nanos) -> Self {
        Self { at: None, or: None, read: now }
    }

    /// The stamp's possible meanings: not before `earliest`, nor after it was read.
    fn meanings(self, earliest: Nanos) -> [Option<Nanos>; 2] {
        let possible = |at: &Nanos| at.plus(SLACK) >= earliest && *at <= self.read.plus(SLACK);
        [self.at.filter(possible), self.or.filter(possible)]
    }

    /// When a reply arrived, which cannot be before `earliest`, and whether the stamp tells it. Of two possible meanings the
    /// earlier one: too short a time raises no alarm. Not so where the departure was in doubt: it may have been taken for one
    /// after the step, and then nothing arrived before it. Where there is no meaning, the time of reading.
    pub fn arrival(self, earliest: Nanos, departure_in_doubt: bool) -> (Nanos, bool) {
        match self.meanings(earliest) {
            [Some(at), None] | [None, Some(at)] => (at.max(earliest), true),
            [Some(after_the_step), Some(_)] if departure_in_doubt => (after_the_step.max(earliest), false),
            [Some(at), Some(or)] => (at.min(or).max(earliest), false),
            [None, None] => (self.read.max(earliest), false),
        }
    }

    /// When a request left, which cannot be before `earliest`, and whether the stamp tells it. Of two possible meanings the
    /// later one: too short a time raises no alarm. Where there is none, nothing.
    pub fn departure(self, earliest: Nanos) -> Option<(Nanos, bool)> {
        match self.meanings(earliest) {
            [Some(at), None] | [None, Some(at)] => Some((at.max(earliest), true)),
            [Some(at), Some(or)] => Some((at.max(or).max(earliest), false)),
            [None, None] => None,
        }
    }

    /// How late we read it: since it arrived, or since `due` if that is later, the moment until which it may wait. None
    /// without a stamp that can be.
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

    /// Real time is stepped by `step`; the packet is stamped at 100 ms, `late` says whether after the step; it answers
    /// one from 90 ms and is read at 130 ms. Gives the milliseconds that are made of it, and whether by the stamp.
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
        // Less than a step: nobody can tell it from the time that reading takes.
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
        // Departure at 20 ms, arrival at 40, both read at 50; the step at `when`.
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
            let (came, _) = real_time.moment(Some(shown(40)), now).arrival(left, !stamped);
            let off = (20 * MS).checked_sub(came.since(left).0).expect("never too long");
            assert!(off == 0 || off == step.unsigned_abs(), "{step} at {when}: {off}");
        }
    }

    #[test]
    fn without_a_stamp_or_with_an_impossible_one_the_time_of_reading_stands_in() {
        assert_eq!(Moment::read(Nanos(7)).arrival(Nanos(3), false), (Nanos(7), false));
        assert_eq!(
            Moment::read(Nanos(7)).arrival(Nanos(9), false),
            (Nanos(9), false),
            "and never a time before what came first"
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
            assert!(real_time.before.is_none(), "a step that nobody made");
        }
    }
}
