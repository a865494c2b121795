//! The clocks of the machine, and how their times are written.
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

/// Formats the day of a time of `CLOCK_REALTIME`, in UTC: 2026-11-23.
pub fn date(unix_seconds: u64) -> String {
    let days = unix_seconds / 86_400;
    // If years begin in March, the leap day is the last day. Eras of 400 such years are alike.
    // 719,468 days lie between the first of March of year 0 and 1970.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next;
    format!("{year:04}-{month:02}-{of_month:02}")
}

/// Formats a time of `CLOCK_REALTIME` as in RFC 3339, in UTC, to the millisecond:
/// 2026-11-23T18:07:02.123Z.
pub fn rfc3339(time: Nanos) -> String {
    let (unix_seconds, nanos) = (time.0 / 1_000_000_000, time.0 % 1_000_000_000);
    let seconds = unix_seconds % 86_400;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!("{}T{hours:02}:{minutes:02}:{:02}.{:03}Z", date(unix_seconds), seconds % 60, nanos / 1_000_000)
}

fn read(clock: ClockId) -> Nanos {
    let t = clock_gettime(clock);
    Nanos(t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs())
}

/// The time since it was started. It counts the time of day on from there, whatever steps the
/// real-time clock makes.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    /// When it was started, in Unix seconds.
    pub epoch: u64,
    begun: Nanos,
}

impl Stopwatch {
    /// Starts one.
    pub fn start() -> Self {
        Self { epoch: realtime().as_secs(), begun: monotonic() }
    }

    /// Returns the whole seconds since its start.
    pub fn seconds(&self) -> i64 {
        monotonic().since(self.begun).as_secs().cast_signed()
    }

    /// Returns the time of day in Unix seconds.
    pub fn now_unix_seconds(&self) -> u64 {
        self.epoch.saturating_add_signed(self.seconds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_real_time_clock_moves_no_stopwatch() {
        for step in [3_600_i64, -3_600] {
            // As if the clock had stepped by this much since then.
            let begun = Stopwatch::start();
            let stepped = Stopwatch { epoch: begun.epoch.saturating_add_signed(-step), ..begun };
            assert!((0..60).contains(&stepped.seconds()), "{step}");
            assert!((stepped.epoch..stepped.epoch + 60).contains(&stepped.now_unix_seconds()), "{step}");
        }
    }

    #[test]
    fn the_clocks_are_in_their_order() {
        let (a, b, since_boot) = (monotonic(), monotonic(), boottime());
        assert!(a <= b && b <= since_boot && a.0 > 0 && process_cpu().0 > 0);
        assert!(realtime().0 > 1_600_000_000_000_000_000);
    }

    #[test]
    fn times_are_written_in_utc_to_the_millisecond() {
        for (nanos, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999_999_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_001_000_000, "2000-02-29T00:00:00.001Z"),
            (1_735_689_599_000_000_000, "2024-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(rfc3339(Nanos(nanos)), text);
        }
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
