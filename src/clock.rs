//! The machine's clocks.
//!
//! Not `std::time::Instant`: the pacing timer needs `CLOCK_MONOTONIC`'s own value, which `Instant` hides.

use crate::units::Nanos;

/// `CLOCK_MONOTONIC`: never steps.
pub fn monotonic() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// `CLOCK_REALTIME`, since the epoch; may step either way at any time.
pub fn realtime() -> Nanos {
    read(libc::CLOCK_REALTIME)
}

/// `CLOCK_BOOTTIME`: the time since the start of the machine, in which it was suspended, too.
pub fn boottime() -> Nanos {
    read(libc::CLOCK_BOOTTIME)
}

/// What `CLOCK_REALTIME`, as it is set now, showed at a moment of `CLOCK_MONOTONIC`: now, where that is yet to come.
pub fn realtime_of(moment: Nanos) -> Nanos {
    realtime().since(monotonic().since(moment))
}

/// Processor time of the whole process, user and system.
pub fn process_cpu() -> Nanos {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

#[expect(unsafe_code, reason = "clock_gettime has no safe wrapper in std")]
fn read(clock: libc::clockid_t) -> Nanos {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec to write to, and all these clocks exist on every Linux: the
    // call cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut t) };
    Nanos(t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_run() {
        let (a, b, since_boot) = (monotonic(), monotonic(), boottime());
        assert!(a <= b && b <= since_boot && a.0 > 0 && process_cpu().0 > 0);
        assert!(realtime().0 > 1_600_000_000_000_000_000);
    }

    #[test]
    fn a_moment_has_its_time_of_day() {
        // The conversion reads two clocks one after the other: what it gives is off by as long as this thread is held up
        // between the two, which the same clocks show around it.
        let (begin, before) = (monotonic(), realtime());
        let now = realtime_of(begin);
        let a_second_ago = realtime_of(begin.since(Nanos(1_000_000_000)));
        let held_up = monotonic().since(begin).plus(Nanos(1_000_000));
        assert!(now.0.abs_diff(before.0) <= held_up.0, "{before:?} {now:?} {held_up:?}");
        assert!(a_second_ago.0.abs_diff(before.0 - 1_000_000_000) <= held_up.0, "{a_second_ago:?} {held_up:?}");
    }
}
