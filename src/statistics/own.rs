//! Counters that an agent keeps about itself, and their recent part. They separate a starved agent
//! from a slow network.
//!
//! All these counters only grow. So the recent window needs no counters of its own: it is the
//! difference to the values at the start of its older half.

use std::sync::{Mutex, PoisonError, TryLockError};

use super::echo::EchoCounters;
use super::lag::LagCounts;
use crate::sys::proc;
use crate::units::Nanos;

/// The agent's counters, since the start or since an earlier reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnCounters {
    /// Echo counters of our network namespace, if the kernel tells them.
    pub echoes: Option<EchoCounters>,
    /// Delays between schedule and sending.
    pub send_lag: LagCounts,
    /// Delays between a reply's arrival and our read.
    pub read_delay: LagCounts,
    /// Number of probes left out because the agent was stopped for longer than an interval.
    pub skipped: u64,
    /// Number of packets that the kernel dropped because our receive queue was full, if it
    /// tells it.
    pub receive_queue_drops: Option<u64>,
    /// How long the probe thread was runnable and waited for a CPU, if the kernel counts it.
    pub run_delay: Option<Nanos>,
}

impl OwnCounters {
    /// Returns the increase since `earlier`, of what is known at both times.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            echoes: self.echoes.zip(earlier.echoes).map(|(now, then)| now.since(then)),
            send_lag: self.send_lag.since(&earlier.send_lag),
            read_delay: self.read_delay.since(&earlier.read_delay),
            skipped: self.skipped.saturating_sub(earlier.skipped),
            receive_queue_drops: self
                .receive_queue_drops
                .zip(earlier.receive_queue_drops)
                .map(|(now, then)| now.saturating_sub(then)),
            run_delay: self.run_delay.zip(earlier.run_delay).map(|(now, then)| now.since(then)),
        }
    }
}

/// Returns how long the main thread, which probes, waited for a CPU: the second field of its
/// schedstat, in nanoseconds. The process's file is that of its main thread alone. `None` if the
/// kernel does not keep it.
pub fn probe_thread_run_delay() -> Option<Nanos> {
    proc::find("/proc/self/schedstat", |line| line.split(' ').nth(1)?.parse().ok().map(Nanos))
}

/// What the agent's own counters have counted in the recent window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RecentOwn {
    /// Time covered, in seconds: 30 to 60, or one to two halves of a shorter window. More if
    /// the agent was stopped.
    pub seconds: f64,
    /// Increase of the counters in that time.
    pub counters: OwnCounters,
}

/// The counters and the time at the start of the older and of the newer half of the recent window.
#[derive(Debug, Default)]
pub(super) struct Marks(Mutex<Option<[(Nanos, OwnCounters); 2]>>);

impl Marks {
    /// Begins a new half. Returns false, without effect, while a reader copies the marks, because
    /// the probe thread never waits for a worker.
    #[must_use]
    pub(super) fn turn(&self, now: Nanos, counters: &OwnCounters) -> bool {
        let mut marks = match self.0.try_lock() {
            Ok(marks) => marks,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let mark = (now, *counters);
        *marks = Some([marks.map_or(mark, |held| held[1]), mark]);
        true
    }

    /// Returns the increase in the recent window; zeroes before the first half.
    pub(super) fn read(&self, now: Nanos, counters: &OwnCounters) -> RecentOwn {
        let marks = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (begun, then) = marks.map_or((now, *counters), |[older, _]| older);
        RecentOwn { seconds: now.since(begun).as_secs_f64(), counters: counters.since(&then) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::lag::lag_counts_of;
    use std::fs;

    /// Returns counters that are all `n`.
    fn at(n: u64) -> OwnCounters {
        OwnCounters {
            echoes: Some(EchoCounters { requests_received: n, replies_sent: n }),
            send_lag: lag_counts_of(n),
            read_delay: lag_counts_of(n),
            skipped: n,
            receive_queue_drops: Some(n),
            run_delay: Some(Nanos(n)),
        }
    }

    #[test]
    fn the_recent_window_starts_at_the_older_half() {
        let marks = Marks::default();
        let read = |seconds: u64, n| {
            let recent = marks.read(Nanos(seconds * 1_000_000_000), &at(n));
            (recent.seconds, recent.counters)
        };
        let turn = |seconds: u64, n| assert!(marks.turn(Nanos(seconds * 1_000_000_000), &at(n)));
        assert_eq!(read(1, 5), (0.0, at(0)));
        turn(10, 10);
        assert_eq!(read(15, 15), (5.0, at(5)));
        turn(40, 20);
        turn(70, 30);
        assert_eq!(read(75, 33), (35.0, at(13)));
        // A counter that went back reads as zero. The counters of a network namespace that is
        // left can do so.
        assert_eq!(read(76, 3), (36.0, at(0)));
    }

    #[test]
    fn what_the_kernel_does_not_tell_has_no_increase() {
        let untold = OwnCounters { echoes: None, receive_queue_drops: None, run_delay: None, ..at(5) };
        for (now, then) in [(untold, untold), (untold, at(2)), (at(7), untold)] {
            let OwnCounters { echoes, receive_queue_drops, run_delay, .. } = now.since(&then);
            assert_eq!((echoes, receive_queue_drops, run_delay), (None, None, None));
        }
    }

    #[test]
    fn the_writer_waits_for_no_reader() {
        let marks = Marks::default();
        let held = marks.0.lock().unwrap();
        assert!(!marks.turn(Nanos(1), &at(1)));
        drop(held);
        assert!(marks.turn(Nanos(2), &at(2)));
        assert_eq!(marks.read(Nanos(2), &at(9)).counters, at(7));
    }

    #[test]
    fn the_schedstat_of_the_process_is_that_of_its_main_thread() {
        let own = || fs::read_to_string("/proc/self/schedstat").unwrap();
        let main = format!("/proc/self/task/{}/schedstat", std::process::id());
        let ran = |text: String| text.split(' ').next().unwrap().parse::<u64>().unwrap();
        let began = std::time::Instant::now();
        while began.elapsed() < std::time::Duration::from_millis(20) {}
        let (before, main, after) = (ran(own()), ran(fs::read_to_string(main).unwrap()), ran(own()));
        assert!((before..=after).contains(&main), "{before} {main} {after}");
        assert!(probe_thread_run_delay().is_some());
    }
}
