//! The last minute of a peer, for the verdicts and the page. It consists of two halves; the older
//! one is dropped as a whole.
//!
//! Rejected: a sliding window, which needs a ring per peer. Two halves take two bytes per native
//! bucket and cover 30 to 60 seconds. Their counters have 8 bits. At intervals below 167 ms the
//! halves are therefore shorter ([`super::halves`]), so that no half sees more probes than it can
//! count.
//!
//! A half that is cleared for another window during a read has numbers of both windows. The reader
//! learns that from [`Turns`] and drops what it has read.

use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

use kube_canary_kernel::atomic;
use zerocopy::FromZeros;

use super::modulo;
use super::scale::{BINS_MAX, Scale};
use super::turns::Turns;
use crate::prober::Event;

/// This many losses in a row are an outage.
const OUTAGE_PROBES: u8 = 4;

#[derive(Debug, Default, FromZeros)]
struct Half {
    sent: AtomicU8,
    lost: AtomicU8,
}
atomic!(Half { sent, lost });

/// Counters of both halves besides round-trip times. All zeroes is a valid initial state.
#[derive(Debug, Default, FromZeros)]
pub(super) struct Windows {
    /// Number of the window that the newer half belongs to, modulo 2^16. A peer on the list is
    /// never silent for this many windows.
    numbers: Turns<AtomicU16>,
    halves: [Half; 2],
    /// Number of probes that were last lost in a row, and of those that were answered since.
    lost_in_row: AtomicU8,
    answered_since: AtomicU8,
}
atomic!(Windows { numbers, halves, lost_in_row, answered_since });

/// What only losses change.
#[derive(Debug, Default, FromZeros)]
pub(super) struct RecentLosses {
    /// When a probe was lost while neither half had a loss, and enough probes had been answered
    /// since the last one ([`Counts::apart`]), in seconds after the first tick, modulo 2^16.
    first: AtomicU16,
    /// Number of probes that were answered between the last losses in a row and the loss before.
    answered_before: AtomicU8,
    /// When the last loss was known, in seconds after the first tick, modulo 2^8. The recent window
    /// is shorter.
    last: AtomicU8,
}
atomic!(RecentLosses { first, answered_before, last });

/// A moment on the clock of the ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowMoment {
    /// The number of the half that is current then.
    pub(super) half: u32,
    /// Seconds after the first tick, modulo 2^16.
    pub(super) second: u16,
}

/// Numbers of probes in some times, at an interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    /// At most this many are answered between a lost one and the time when its loss is known.
    pub(super) late: u8,
    /// Probes answered in a row after which a further loss is another one. 255 is too many to be
    /// counted.
    pub(super) apart: u8,
}

/// The two halves of one slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recent<'a> {
    pub(super) windows: &'a Windows,
    pub(super) losses: &'a RecentLosses,
    /// Round-trip times per native bucket: first of the even half, then of the odd half.
    pub(super) bins: &'a [AtomicU8],
    pub(super) scale: &'a Scale,
}

/// The counts and round-trip times of the recent window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecentReading {
    /// Time covered, in seconds.
    pub seconds: f64,
    /// Number of probes sent in that time.
    pub sent: u32,
    /// Number of probes answered in that time.
    pub received: u32,
    /// Number of probes lost in that time.
    pub lost: u32,
    /// Number of probes that were last lost in a row; at most 255. 0 if none was lost in that time.
    pub lost_in_row: u32,
    /// Number of probes that were answered since; at most 255.
    pub answered_since: u32,
    /// Number of probes that were answered between that and the loss before; at most 255.
    pub answered_before: u32,
    /// Median of the round-trip times in seconds; `None` if no probe was answered.
    pub rtt_p50_seconds: Option<f64>,
    /// 99th percentile of the round-trip times in seconds; `None` if no probe was answered.
    pub rtt_p99_seconds: Option<f64>,
}

/// The first loss in a row is remembered as one that is at most this many seconds ago: far more
/// than the hour that is reported.
const FIRST_AGE_MAX: u16 = 1 << 15;

/// Saturates, for a machine that was stopped for long: a wrong sum must not wrap to zero.
fn bump8(counter: &AtomicU8) {
    counter.store(counter.load(Ordering::Relaxed).saturating_add(1), Ordering::Release);
}

impl Recent<'_> {
    /// Returns the half that `window` belongs to, and its round-trip times.
    fn half(&self, window: u16) -> (&Half, &[AtomicU8]) {
        let odd = usize::from(window % 2);
        let (even_bins, odd_bins) = self.bins.split_at(self.bins.len() / 2);
        (&self.windows.halves[odd], if odd == 1 { odd_bins } else { even_bins })
    }

    const fn runs(&self) -> [&AtomicU8; 3] {
        [&self.windows.lost_in_row, &self.windows.answered_since, &self.losses.answered_before]
    }

    fn clear(&self, window: u16) {
        let (half, bins) = self.half(window);
        [&half.sent, &half.lost].into_iter().chain(bins).for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    /// Counts an event at this moment. `cell` is that of its round-trip time.
    pub(super) fn record(
        &self,
        event: Event,
        cell: usize,
        WindowMoment { half, second }: WindowMoment,
        counts: Counts,
    ) {
        let window = modulo(half);
        let windows = &self.windows.numbers;
        let held = windows.done();
        if held != window {
            windows.turn(window, || {
                // Halves alternate. If the peer had no event for longer, both halves are cleared.
                self.clear(window);
                if window.wrapping_sub(held) > 1 {
                    self.clear(window.wrapping_add(1));
                }
            });
        }
        let (half, bins) = self.half(window);
        match event {
            Event::Sent => bump8(&half.sent),
            Event::Received { .. } => {
                bins.get(self.scale.bin(cell)).into_iter().for_each(bump8);
                bump8(&self.windows.answered_since);
            }
            Event::Lost => {
                let answered = self.windows.answered_since.load(Ordering::Relaxed);
                let lost_in_row = self.windows.lost_in_row.load(Ordering::Relaxed);
                let is_calm = self.windows.halves.iter().all(|half| half.lost.load(Ordering::Relaxed) == 0);
                if is_calm && (lost_in_row == 0 || answered >= counts.apart) {
                    self.losses.first.store(second, Ordering::Relaxed);
                }
                // The seconds wrap around after 18 hours. What began before that did not begin just
                // now.
                if second.wrapping_sub(self.first_lost()) > FIRST_AGE_MAX {
                    self.losses.first.store(second.wrapping_sub(FIRST_AGE_MAX), Ordering::Relaxed);
                }
                bump8(&half.lost);
                self.losses.last.store(second.to_le_bytes()[0], Ordering::Relaxed);
                // A loss is known late. So the last ones of an outage come after the first answers.
                if answered > if lost_in_row >= OUTAGE_PROBES { counts.late } else { 0 } {
                    self.losses.answered_before.store(answered, Ordering::Relaxed);
                    self.windows.lost_in_row.store(0, Ordering::Relaxed);
                    self.windows.answered_since.store(0, Ordering::Relaxed);
                }
                bump8(&self.windows.lost_in_row);
            }
            _ => {}
        }
    }

    /// Reads `window` and, if `and_before`, the window before it; together they cover `seconds`.
    /// `None` if the writer has reached a later window, so that a part of the data is gone.
    pub(super) fn read(&self, window: u16, and_before: bool, seconds: f64) -> Option<RecentReading> {
        self.read_while(window, and_before, seconds, || {})
    }

    /// Does the same; a test passes a `meanwhile` that acts as the writer during the read.
    fn read_while(
        &self,
        window: u16,
        and_before: bool,
        seconds: f64,
        meanwhile: impl FnOnce(),
    ) -> Option<RecentReading> {
        // Two halves count at most 510 in a bucket.
        let (mut sent, mut lost, mut bins) = (0, 0, [0_u16; BINS_MAX]);
        let halves = self.held(window, and_before)?;
        for of in halves.into_iter().flatten() {
            let (half, times) = self.half(of);
            for (sum, count) in bins.iter_mut().zip(times) {
                *sum += u16::from(count.load(Ordering::Acquire));
            }
            lost += u32::from(half.lost.load(Ordering::Acquire));
            // `sent` is read last because it is counted first: a reader never sees the end of a
            // probe that was not sent.
            sent += u32::from(half.sent.load(Ordering::Acquire));
        }
        meanwhile();
        // A half is overwritten two windows after its own.
        let begun = self.windows.numbers.begun();
        if halves.iter().flatten().any(|of| begun.wrapping_sub(*of) > 1) {
            return None;
        }
        let quantile = |q| self.scale.quantile_of_bins(q, bins.iter().map(|count| u64::from(*count)));
        let received = bins.iter().map(|count| u32::from(*count)).sum();
        // A probe may have been answered meanwhile, or lost.
        let [lost_in_row, answered_since, answered_before] =
            self.runs().map(|count| if lost > 0 { count.load(Ordering::Relaxed).into() } else { 0 });
        let [rtt_p50_seconds, rtt_p99_seconds] = [0.5, 0.99].map(quantile);
        Some(RecentReading {
            seconds,
            sent,
            received,
            lost,
            lost_in_row,
            answered_since,
            answered_before,
            rtt_p50_seconds,
            rtt_p99_seconds,
        })
    }

    /// Returns when the first probe was lost after enough answers in a row, in seconds after the
    /// first tick, modulo 2^16.
    pub(super) fn first_lost(&self) -> u16 {
        self.losses.first.load(Ordering::Relaxed)
    }

    /// Returns how many seconds before this one the last loss was known, modulo 2^8. The second is
    /// counted as in [`WindowMoment`].
    pub(super) fn seconds_since_loss(&self, second: u16) -> u8 {
        second.to_le_bytes()[0].wrapping_sub(self.losses.last.load(Ordering::Relaxed))
    }

    /// Returns the windows of the halves that a reader of `window` reads. `None` if the writer has
    /// advanced since the reader looked.
    fn held(&self, window: u16, and_before: bool) -> Option<[Option<u16>; 2]> {
        let held = self.windows.numbers.done();
        // Windows older than both do not count. If no event has come since a window began, the half
        // of its parity still holds the window before the last.
        match window.wrapping_sub(held) {
            0 => Some([Some(held), and_before.then(|| held.wrapping_sub(1))]),
            1 if and_before => Some([Some(held), None]),
            u16::MAX => None,
            _ => Some([None; 2]),
        }
    }

    /// Adds the round-trip times of `window` and of the window before it to sums of several slots.
    /// A half that is cleared during the call adds a part of its times.
    pub(super) fn add_times(&self, window: u16, sums: &mut [u64; BINS_MAX]) {
        for of in self.held(window, true).into_iter().flatten().flatten() {
            for (sum, count) in sums.iter_mut().zip(self.half(of).1) {
                *sum += u64::from(count.load(Ordering::Relaxed));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prober::Stamp;
    use crate::units::Nanos;

    const RECEIVED: Event = Event::Received { rtt: Nanos(1), reordered: false, sequence: 0, stamp: Stamp::Kernel };

    const AT_ONCE: Counts = Counts { late: 0, apart: 90 };

    fn record(recent: Recent<'_>, window: u16, times: usize) {
        for _ in 0..times {
            recent.record(Event::Sent, 0, WindowMoment { half: window.into(), second: 0 }, AT_ONCE);
            recent.record(RECEIVED, 0, WindowMoment { half: window.into(), second: 0 }, AT_ONCE);
        }
    }

    /// Returns what a reader of `window` sees of 10 probes in window 8, 20 in window 9, and one in
    /// `next` that arrives during the read.
    fn seen(window: u16, and_before: bool, next: u16) -> Option<(u32, u32)> {
        let (windows, losses, scale) = (Windows::default(), RecentLosses::default(), Scale::default());
        let bins: Vec<AtomicU8> = (0..2 * scale.bin_count()).map(|_| AtomicU8::new(0)).collect();
        let recent = Recent { windows: &windows, losses: &losses, bins: &bins, scale: &scale };
        record(recent, 8, 10);
        record(recent, 9, 20);
        let reading = recent.read_while(window, and_before, 60.0, || record(recent, next, 1));
        reading.map(|reading| (reading.sent, reading.received))
    }

    #[test]
    fn data_that_the_writer_overwrites_during_a_read_is_dropped() {
        assert_eq!(seen(9, true, 9), Some((30, 30)), "of the same window, as a number of more or less");
        assert_eq!(seen(9, true, 10), None, "the older half is the next window's");
        assert_eq!(seen(9, false, 10), Some((20, 20)));
        assert_eq!(seen(10, true, 10), Some((20, 20)), "the newer half stays");
        assert_eq!(seen(9, false, 11), None);
        assert_eq!(seen(8, true, 9), None, "gone before it was read");
        assert_eq!(seen(20, true, 21), Some((0, 0)));
    }

    /// Records probes, `x` for a lost one and `.` for an answered one, and returns what was last
    /// lost in a row, answered since, and answered before.
    fn last(outcomes: &str, late: u8) -> [u32; 3] {
        let (windows, losses, scale) = (Windows::default(), RecentLosses::default(), Scale::default());
        let bins: Vec<AtomicU8> = (0..2 * scale.bin_count()).map(|_| AtomicU8::new(0)).collect();
        let recent = Recent { windows: &windows, losses: &losses, bins: &bins, scale: &scale };
        let counts = Counts { late, ..AT_ONCE };
        for outcome in outcomes.chars() {
            recent.record(Event::Sent, 0, WindowMoment { half: 8, second: 0 }, counts);
            recent.record(
                if outcome == 'x' { Event::Lost } else { RECEIVED },
                0,
                WindowMoment { half: 8, second: 0 },
                counts,
            );
        }
        let reading = recent.read(8, true, 60.0).expect("a reading");
        [reading.lost_in_row, reading.answered_since, reading.answered_before]
    }

    #[test]
    fn the_last_losses_in_a_row_and_the_answers_since_are_counted() {
        for (outcomes, expected) in [
            ("", [0, 0, 0]),
            ("......", [0, 0, 0]),
            ("..x", [1, 0, 2]),
            ("..xxx...", [3, 3, 2]),
            ("..xxx..x", [1, 0, 2]),
            ("..xx.x.", [1, 1, 1]),
            // The last losses of an outage are known after the first answers.
            ("..xxxx.x.x...", [6, 5, 2]),
            ("..xxxx.......x", [1, 0, 7]),
        ] {
            assert_eq!(last(outcomes, 6), expected, "{outcomes}");
        }
        assert_eq!(last("..xxxxx.xx", 1), [7, 1, 2], "handshakes of which one was answered meanwhile");
        assert_eq!(last("..xxxx.x", 0), [1, 0, 1], "a loss is known at once");
        assert_eq!(last(&"x".repeat(300), 6), [255, 0, 0]);
        assert_eq!(last(&format!("xxxx{}", ".".repeat(300)), 6), [4, 255, 0]);
    }
}
