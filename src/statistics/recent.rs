//! The last minute of a peer, for the verdicts and the page: two halves, of which the older is dropped whole.
//!
//! A sliding window would cost a ring per peer; two halves cost 40 bytes and cover 30 to 60 seconds. Their counters have
//! 8 bits, so at intervals below 167 ms the halves are shorter ([`super::halves`]): no half sees more probes than they count.
//!
//! A half that is read while it is cleared for another window has numbers of both: the reader
//! learns that from [`Turns`], and drops what it has read.

use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

use super::histogram::{Bounds, HISTOGRAM_BUCKETS};
use super::turns::Turns;
use crate::prober::Event;

#[derive(Debug, Default)]
struct Half {
    sent: AtomicU8,
    lost: AtomicU8,
    buckets: [AtomicU8; HISTOGRAM_BUCKETS],
}

/// Two halves, as zeroed memory has them.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// The windows that the newer half belongs to, modulo 2^16: a peer on the list is never silent
    /// for so many.
    windows: Turns<AtomicU16>,
    halves: [Half; 2],
}

/// What the recent window says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecentReading {
    /// How much time it covers.
    pub seconds: f64,
    /// Probes sent in it.
    pub sent: u32,
    /// Probes answered in it.
    pub received: u32,
    /// Probes lost in it.
    pub lost: u32,
    /// Round-trip times, per bucket.
    pub buckets: [u32; HISTOGRAM_BUCKETS],
}

/// Saturating, for what a machine may do that stood still for long: a wrong sum must not look like none.
fn bump8(counter: &AtomicU8) {
    counter.store(counter.load(Ordering::Relaxed).saturating_add(1), Ordering::Release);
}

impl Half {
    fn counters(&self) -> impl Iterator<Item = &AtomicU8> {
        [&self.sent, &self.lost].into_iter().chain(&self.buckets)
    }

    fn clear(&self) {
        self.counters().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }
}

impl Recent {
    pub(super) fn record(&self, event: Event, bounds: &Bounds, window: u16) {
        let held = self.windows.done();
        if held != window {
            self.windows.turn(window, || {
                // Halves alternate; a peer that was away for longer has nothing recent.
                self.halves[usize::from(window % 2)].clear();
                if window.wrapping_sub(held) > 1 {
                    self.halves[usize::from(window.wrapping_add(1) % 2)].clear();
                }
            });
        }
        let half = &self.halves[usize::from(window % 2)];
        match event {
            Event::Sent => bump8(&half.sent),
            Event::Received { rtt, .. } => bump8(&half.buckets[bounds.bucket(rtt)]),
            Event::Lost => bump8(&half.lost),
            _ => {}
        }
    }

    /// What it holds of `window` and, where `and_before`, of the one before; they cover so many
    /// `seconds`. None if the writer has gone on to a later window, so that a part of it is no
    /// longer there.
    pub(super) fn read(&self, window: u16, and_before: bool, seconds: f64) -> Option<RecentReading> {
        self.read_while(window, and_before, seconds, || {})
    }

    /// The same; a test has the writer do `meanwhile` what it may do.
    fn read_while(
        &self,
        window: u16,
        and_before: bool,
        seconds: f64,
        meanwhile: impl FnOnce(),
    ) -> Option<RecentReading> {
        let held = self.windows.done();
        let mut reading = RecentReading { seconds, sent: 0, received: 0, lost: 0, buckets: [0; HISTOGRAM_BUCKETS] };
        // Of windows older than both nothing counts; where nothing has come since a window began, the half of its parity
        // is still that of two windows ago.
        let halves: &[u16] = match window.wrapping_sub(held) {
            0 if and_before => &[held, held.wrapping_sub(1)],
            0 => &[held],
            1 if and_before => &[held],
            // The writer has gone on since our caller looked.
            u16::MAX => return None,
            _ => &[],
        };
        for of in halves {
            let half = &self.halves[usize::from(of % 2)];
            let read = |counter: &AtomicU8| u32::from(counter.load(Ordering::Acquire));
            for (sum, bucket) in reading.buckets.iter_mut().zip(&half.buckets) {
                *sum += read(bucket);
            }
            reading.lost += read(&half.lost);
            // Last, for it is counted first: a probe is never seen to end that was not sent.
            reading.sent += read(&half.sent);
        }
        meanwhile();
        // A half is overwritten by the second window behind its own.
        let begun = self.windows.begun();
        if halves.iter().any(|of| begun.wrapping_sub(*of) > 1) {
            return None;
        }
        reading.received = reading.buckets.iter().sum();
        Some(reading)
    }

    /// Becomes a copy of `other`.
    pub(super) fn take_over(&self, other: &Self) {
        self.windows.turn(other.windows.done(), || {
            let counters = self.halves.iter().flat_map(Half::counters);
            for (to, from) in counters.zip(other.halves.iter().flat_map(Half::counters)) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prober::Stamp;
    use crate::units::Nanos;

    const RECEIVED: Event = Event::Received { rtt: Nanos(1), reordered: false, sequence: 0, stamp: Stamp::Kernel };

    fn record(recent: &Recent, window: u16, times: usize) {
        for _ in 0..times {
            recent.record(Event::Sent, &Bounds::default(), window);
            recent.record(RECEIVED, &Bounds::default(), window);
        }
    }

    /// What a reader of `window` sees of 10 probes in window 8, 20 in 9, and one of `next` that
    /// comes while it reads.
    fn seen(window: u16, and_before: bool, next: u16) -> Option<(u32, u32)> {
        let recent = Recent::default();
        record(&recent, 8, 10);
        record(&recent, 9, 20);
        let reading = recent.read_while(window, and_before, 60.0, || record(&recent, next, 1));
        reading.map(|reading| (reading.sent, reading.received))
    }

    #[test]
    fn what_the_writer_overwrites_meanwhile_is_not_read() {
        assert_eq!(seen(9, true, 9), Some((30, 30)), "of the same window, as a number of more or less");
        assert_eq!(seen(9, true, 10), None, "the older half is the next window's");
        assert_eq!(seen(9, false, 10), Some((20, 20)));
        assert_eq!(seen(10, true, 10), Some((20, 20)), "the newer half stays");
        assert_eq!(seen(9, false, 11), None);
        assert_eq!(seen(8, true, 9), None, "gone before it was read");
        assert_eq!(seen(20, true, 21), Some((0, 0)));
    }
}
