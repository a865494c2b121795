//! The pacing timer. It is a timerfd, because tokio's timers tick in whole milliseconds and would
//! add that much to the send delay of every probe.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;

use kube_canary_kernel::socket::watch;
use rustix::time::{self, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::unix::AsyncFd;

use crate::units::Nanos;

/// A timer on `CLOCK_MONOTONIC` that fires once.
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
        Ok(Self { fd: watch(create(TimerfdClockId::Monotonic)?)?, at: Cell::new(None) })
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
        let (seconds, nanos) = ((at / 1_000_000_000).cast_signed(), (at % 1_000_000_000).cast_signed());
        let at = Timespec { tv_sec: seconds, tv_nsec: nanos };
        set_once(self.fd.get_ref(), TimerfdTimerFlags::ABSTIME, at).inspect_err(|_| self.at.set(None))
    }

    /// Waits until the timer fires. Cancel-safe: setting it to another time
    /// clears an earlier expiration.
    pub async fn fired(&self) {
        readable(&self.fd, "the pacing timer").await;
        self.at.set(None);
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
        let fd = create(TimerfdClockId::Realtime)?;
        // The time never comes. It is set because a step cancels only a timer that is set.
        let never = Timespec { tv_sec: i64::MAX, tv_nsec: 0 };
        set_once(&fd, TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET, never)?;
        Ok(Self { fd: watch(fd)? })
    }

    /// Waits for a step of the clock. Cancel-safe.
    pub async fn stepped(&self) {
        readable(&self.fd, "steps of the real-time clock").await;
        // The answer is ECANCELED. Reading it arms the timer again.
        let _ = rustix::io::read(&self.fd, &mut [0; size_of::<u64>()]);
    }
}

/// Waits for an event of a descriptor, for ever if tokio cannot.
pub async fn readable(fd: &AsyncFd<OwnedFd>, what: &str) {
    match fd.readable().await {
        Ok(mut guard) => guard.clear_ready(),
        Err(error) => {
            log::error!("waiting for {what}: {error}");
            std::future::pending::<()>().await;
        }
    }
}

/// Creates a timer that is not set.
fn create(clock: TimerfdClockId) -> io::Result<OwnedFd> {
    Ok(time::timerfd_create(clock, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?)
}

fn set_once(fd: &OwnedFd, flags: TimerfdTimerFlags, at: Timespec) -> io::Result<()> {
    let once = Itimerspec { it_interval: Timespec::default(), it_value: at };
    time::timerfd_settime(fd, flags, &once)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prober::{Clock, MonotonicClock};

    #[test]
    fn the_timer_fires_at_its_time_and_at_once_for_the_past() {
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
