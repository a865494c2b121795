//! How well the real-time clock is synchronized, as the NTP client of the node has told the kernel.
#![expect(unsafe_code, reason = "adjtimex(2) has no safe form")]

use std::ffi::{c_int, c_long};
use std::mem::zeroed;

use kube_canary_model::units::Nanos;

/// Returns the largest error of `CLOCK_REALTIME`. `None` if it is not synchronized, or if the
/// kernel refuses (a seccomp filter).
///
/// This is the `maxerror` of adjtimex(2). It grows between two updates of the NTP client, by 0.5 ms
/// per second. The estimated error is not used: systemd-timesyncd always sets it to zero.
pub fn realtime_error() -> Option<Nanos> {
    let (state, read) = read();
    error(state, read.status, read.maxerror)
}

fn read() -> (c_int, libc::timex) {
    // SAFETY: the type has only integers, for which zeroes are values.
    let mut timex: libc::timex = unsafe { zeroed() };
    // SAFETY: our own variable. Its `modes` are zero, so nothing is set and no privilege is needed.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    (state, timex)
}

fn error(state: c_int, status: c_int, microseconds: c_long) -> Option<Nanos> {
    let synchronized = (0..libc::TIME_ERROR).contains(&state) && status & libc::STA_UNSYNC == 0;
    let microseconds = u64::try_from(microseconds).ok().filter(|_| synchronized)?;
    Some(Nanos(microseconds.saturating_mul(1_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers_and_says_the_same_again() {
        let ((state, first), (_, second)) = (read(), read());
        assert!((0..=libc::TIME_ERROR).contains(&state), "{state}");
        assert!(first.tick > 0 && first.tick == second.tick, "microseconds per tick");
        assert!((0..=16_000_000).contains(&first.maxerror), "the kernel's limit is 16 s: {}", first.maxerror);
    }

    #[test]
    fn only_a_synchronized_clock_has_an_error() {
        assert_eq!(error(libc::TIME_OK, 0, 2_500), Some(Nanos(2_500_000)));
        assert_eq!(error(libc::TIME_INS, libc::STA_PLL, 0), Some(Nanos(0)), "before a leap second");
        assert_eq!(error(libc::TIME_ERROR, libc::STA_UNSYNC, 16_000_000), None);
        assert_eq!(error(libc::TIME_OK, libc::STA_UNSYNC, 100), None);
        assert_eq!(error(libc::TIME_ERROR, 0, 100), None);
        assert_eq!(error(-1, 0, 100), None, "the call has failed");
        assert_eq!(error(libc::TIME_OK, 0, -1), None);
    }
}
