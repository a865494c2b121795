//! The clock seam.

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

/// Both clocks, read together: a thread that is held up between the two readings reads again.
pub fn read_together(clock: &dyn Clock) -> (Nanos, Nanos) {
    /// Two undisturbed readings are far closer; a thread that lost its processor is not.
    const CLOSE: Nanos = Nanos(5_000);
    let mut before = clock.now();
    for _ in 0..4 {
        let realtime = clock.realtime();
        let after = clock.now();
        if after.since(before) <= CLOSE {
            return (after, realtime);
        }
        before = after;
    }
    (before, clock.realtime())
}

/// Turns the kernel's real-time stamp of an arrival into a monotonic one, read at (`now`, `realtime_now`).
///
/// The real-time clock may have been stepped between the stamp and the reading. A packet that we read now cannot have
/// arrived in the future, nor before `earliest` (when its probe was sent, or when the socket was last found empty):
/// a stamp that says so is worthless, and the time of reading stands in for it.
pub fn arrival(stamp: Nanos, now: Nanos, realtime_now: Nanos, earliest: Nanos) -> Nanos {
    match realtime_now.0.checked_sub(stamp.0) {
        Some(age) if now.0.checked_sub(age).is_some_and(|at| at >= earliest.0) => Nanos(now.0 - age),
        _ => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_stamp_moves_the_arrival_back_to_when_it_was() {
        assert_eq!(arrival(Nanos(9_000), Nanos(500), Nanos(9_100), Nanos(300)), Nanos(400));
    }

    #[test]
    fn a_clock_stepped_either_way_falls_back_to_the_time_of_reading() {
        let hour = 3_600_000_000_000;
        for realtime_now in [Nanos(10 * hour - hour), Nanos(10 * hour + hour)] {
            assert_eq!(arrival(Nanos(10 * hour), Nanos(500), realtime_now, Nanos(300)), Nanos(500));
        }
    }
}
