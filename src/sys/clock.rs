//! The clocks of the machine.
//!
//! `std::time::Instant` is not used: the pacing timer needs the value of `CLOCK_MONOTONIC`, which
//! `Instant` hides.

use rustix::time::{ClockId, clock_gettime};

use crate::units::Nanos;

/// Reads `CLOCK_MONOTONIC`, which never steps.
pub fn monotonic() -> Nanos {
    read(ClockId::Monotonic)
}

/// Reads `CLOCK_REALTIME`, the time since the epoch. It may step in either direction at any time.
pub fn realtime() -> Nanos {
    read(ClockId::Realtime)
}

/// Reads `CLOCK_BOOTTIME`: the time since the start of the machine, including the time
/// when it was suspended.
pub fn boottime() -> Nanos {
    read(ClockId::Boottime)
}

/// Converts a time of `CLOCK_MONOTONIC` to `CLOCK_REALTIME` as it is set now. A time in the future
/// becomes the current time.
pub fn realtime_of(moment: Nanos) -> Nanos {
    realtime().since(monotonic().since(moment))
}

/// Returns the CPU time of the whole process, user and system.
pub fn process_cpu() -> Nanos {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> Nanos {
    let t = clock_gettime(clock);
    Nanos(t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_are_in_their_order() {
        let (a, b, since_boot) = (monotonic(), monotonic(), boottime());
        assert!(a <= b && b <= since_boot && a.0 > 0 && process_cpu().0 > 0);
        assert!(realtime().0 > 1_600_000_000_000_000_000);
    }

    #[test]
    fn a_monotonic_time_is_converted_to_a_time_of_day() {
        // The conversion reads two clocks one after the other. If this thread is delayed between
        // the two, the result is wrong by that delay. The same clocks measure the delay around the
        // conversion.
        let (begin, before) = (monotonic(), realtime());
        let now = realtime_of(begin);
        let a_second_ago = realtime_of(begin.since(Nanos(1_000_000_000)));
        let held_up = monotonic().since(begin).plus(Nanos(1_000_000));
        assert!(now.0.abs_diff(before.0) <= held_up.0, "{before:?} {now:?} {held_up:?}");
        assert!(a_second_ago.0.abs_diff(before.0 - 1_000_000_000) <= held_up.0, "{a_second_ago:?} {held_up:?}");
    }
}
