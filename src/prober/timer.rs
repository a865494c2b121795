//! The pacing timer. It is a timerfd, because tokio's timers tick in whole milliseconds and would
//! add that much to the send delay of every probe.
#![expect(unsafe_code, reason = "timerfd has no safe wrapper in std or tokio")]

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use tokio::io::unix::AsyncFd;

use super::options::watch;
use crate::units::Nanos;

/// A one-shot timer on `CLOCK_MONOTONIC`.
#[derive(Debug)]
pub struct Timer {
    fd: AsyncFd<OwnedFd>,
    /// The time it is set to, until it fires.
    at: Cell<Option<Nanos>>,
}

impl Timer {
    /// Makes a timer that is not set. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The kernel's error, for example if no descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { fd: watch(create(libc::CLOCK_MONOTONIC)?)?, at: Cell::new(None) })
    }

    /// Sets the timer to `at`. A time in the past fires at once.
    ///
    /// # Errors
    /// The kernel's error for `timerfd_settime`.
    pub fn set(&self, at: Nanos) -> io::Result<()> {
        // A wait that ends early is usually followed by one for the same time.
        if self.at.replace(Some(at)) == Some(at) {
            return Ok(());
        }
        // Zero would disarm the timer.
        let at = at.0.max(1);
        let at = libc::timespec {
            tv_sec: i64::try_from(at / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: libc::c_long::try_from(at % 1_000_000_000).unwrap_or(0),
        };
        set_once(self.fd.get_ref(), libc::TFD_TIMER_ABSTIME, at).inspect_err(|_| self.at.set(None))
    }

    /// Waits until the timer fires. Cancel-safe: setting it to another time
    /// clears an earlier expiration.
    pub async fn fired(&self) {
        match self.fd.readable().await {
            Ok(mut guard) => {
                guard.clear_ready();
                self.at.set(None);
            }
            Err(error) => {
                log::error!("waiting for the pacing timer: {error}");
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Wakes the waiting task when the real-time clock is stepped, so that a step is noticed before the
/// next packet is stamped.
#[derive(Debug)]
pub struct StepAlarm {
    fd: AsyncFd<OwnedFd>,
}

impl StepAlarm {
    /// Makes an alarm that is active from now on. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The kernel's error, for example if no descriptor is left.
    pub fn new() -> io::Result<Self> {
        let fd = create(libc::CLOCK_REALTIME)?;
        // The time never comes. It is set because a step cancels only a timer that is set.
        let never = libc::timespec { tv_sec: i64::MAX, tv_nsec: 0 };
        set_once(&fd, libc::TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET, never)?;
        Ok(Self { fd: watch(fd)? })
    }

    /// Waits for a step of the clock. Cancel-safe.
    pub async fn stepped(&self) {
        match self.fd.readable().await {
            Ok(mut guard) => {
                let mut expirations = 0u64;
                // SAFETY: reads 8 bytes at most into a place that has them. ECANCELED is the
                // answer, and arms it again.
                unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut expirations).cast(), size_of::<u64>()) };
                guard.clear_ready();
            }
            Err(error) => {
                log::error!("waiting for steps of the real-time clock: {error}");
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Creates a timer that is not set.
fn create(clock: libc::clockid_t) -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    let fd = unsafe { libc::timerfd_create(clock, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just given us this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set_once(fd: &OwnedFd, flags: libc::c_int, at: libc::timespec) -> io::Result<()> {
    let once = libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
    // SAFETY: `once` outlives the call, and the old value is not asked for.
    let done = unsafe { libc::timerfd_settime(fd.as_raw_fd(), flags, &raw const once, std::ptr::null_mut()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prober::{Clock, MonotonicClock};

    #[test]
    fn it_fires_at_its_time_again_and_again_and_at_once_for_the_past() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let timer = Timer::new().unwrap();
            for _ in 0..3 {
                let at = MonotonicClock.now().plus(Nanos::from_millis(5));
                timer.set(at).unwrap();
                timer.fired().await;
                assert!(MonotonicClock.now() >= at);
            }
            for _ in 0..2 {
                timer.set(Nanos(0)).unwrap();
                timer.fired().await;
            }
            let (far, near) = (MonotonicClock.now().plus(Nanos::from_millis(3_600_000)), MonotonicClock.now());
            for at in [far, far, near, near] {
                timer.set(at).unwrap();
            }
            timer.fired().await;
        });
    }
}
