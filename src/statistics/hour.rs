//! The last hour of every peer, in one-minute steps. With it, a page and a verdict can say when a
//! loss began, without a database.
//!
//! A peer takes 128 bytes: a ring of 60 minutes of 16 bits ([`Minute`]), and the peer's counters at
//! the start of the current minute. Losses are counted from these counters, so they are exact for
//! the whole minute at any interval. Round-trip times come from the recent window
//! ([`super::recent`]), whose halves divide the minute. At intervals from 167 ms the times are
//! those of the whole minute; at shorter intervals, those of at least its last 3.5 seconds.
//!
//! Only slots below [`HOUR_PEERS_MAX`] have an hour. Rejected: choosing which peers have one,
//! because it needs a table from peers to hours.
//!
//! - A probe counts in the minute in which it is answered or lost, not in the minute in which it is
//!   sent. This works with any timeout and at intervals of more than a minute. A minute without
//!   answer and loss is "not measured", which is not the same as "no loss".
//! - Minutes are counted from the first tick, on the monotonic clock. They are converted to
//!   wall-clock time when they are read, so a step of the wall clock shifts nothing. Time that the
//!   monotonic clock does not count (a suspended machine) is not in the ring: earlier minutes
//!   appear later by that time.
//! - Minutes without a tick are not measured. The outcomes of their probes count in the minute in
//!   which the agent resumes. The minute in which the agent was stopped ends with what was known by
//!   then.

mod links;

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

pub use links::LinksHour;

use super::minute::{self, Minute};
use super::slots::Outcomes;
use super::turns::Turns;
use crate::limits::HOUR_PEERS_MAX;
use crate::peers::{Compaction, SlotId};
use crate::units::Nanos;
use kube_canary_kernel::atomic;
use kube_canary_kernel::region::{Atomic as _, Table};
use zerocopy::FromZeros;

/// Number of steps of [`crate::limits::HOUR_STEP`] that are kept of every peer.
const HOUR_STEPS: usize = 60;

/// A peer's hour: 128 bytes.
#[derive(Debug, FromZeros)]
pub(super) struct Past {
    /// Value of the counter at the start of the current minute, as is `lost`.
    answered: AtomicU32,
    lost: AtomicU32,
    /// Minute `n` is stored at index `n % 60`.
    minutes: [AtomicU16; HOUR_STEPS],
}
atomic!(Past { answered, lost, minutes });

/// The hours of all peers. The probe thread writes, HTTP workers read.
#[derive(Debug)]
pub(super) struct Hours {
    table: Table<Past>,
    /// Number of minutes that have ended. The minute that is being written overwrites the oldest.
    minutes: Turns<AtomicU32>,
    /// Number of slots that were ever in use. The pages of the other slots are not touched.
    slots: AtomicU32,
}

/// One minute of a peer's hour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HourStep {
    /// Share of the probes that was lost, 0 to 1. `None` if no probe was answered or lost.
    /// [`Minute::loss`] has the precision.
    pub loss: Option<f64>,
    /// Upper bound of the octave of the median round-trip time, in seconds. `None` without an
    /// answer. The upper bound is used, not a point within the octave, because it is always true:
    /// half of the round trips took at most this long.
    pub rtt_p50_seconds: Option<f64>,
    /// Upper bound of the octave of the 99th percentile, in seconds; `None` without an answer.
    pub rtt_p99_seconds: Option<f64>,
}

/// Outcomes of the probes to a peer in the last ten whole minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenMinuteOutcomes {
    /// Measured time in seconds: 60 for each of the ten minutes that counts.
    pub seconds: u32,
    /// Number of probes answered or lost, computed from the interval and the measured time.
    pub sent: u32,
    /// Number of probes lost. Exact up to about 60 probes per minute; above that, as precise as
    /// [`Minute::loss`].
    pub lost: u32,
}

/// A peer's hour as read at one moment.
#[derive(Clone, Copy, Debug)]
pub struct HourReading {
    pub(super) minutes: Minutes,
    /// Number of probes in a whole minute.
    pub(super) probes: u32,
    /// When the last minute ended, on the monotonic clock.
    pub end: Nanos,
}

/// Number of minutes that [`TenMinuteOutcomes`] covers.
const TEN: usize = 10;
/// Measured minutes that an hour needs before its quickest minute counts as the usual one.
const USUAL_MINUTES_MIN: usize = 5;

/// The minutes of an hour, in order from the oldest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Minutes {
    all: [Minute; HOUR_STEPS],
    /// Number of valid minutes at the start of `all`.
    count: usize,
    /// Number of minutes that have ended since the agent started.
    pub(super) ended: u32,
}

impl HourReading {
    /// Returns the minutes in order from the oldest: at most 60, and fewer in the
    /// agent's first hour.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = HourStep> {
        self.minutes.as_slice().iter().map(|minute| {
            let [p50, p99] = minute.times().map_or([None; 2], |times| times.map(|at| Some(minute::upper(at))));
            HourStep { loss: minute.loss(), rtt_p50_seconds: p50, rtt_p99_seconds: p99 }
        })
    }
}

impl Minutes {
    fn as_slice(&self) -> &[Minute] {
        &self.all[..self.count]
    }

    /// Returns the sum of the last ten minutes at `probes` per minute, or `None`
    /// if no minute counts.
    ///
    /// A minute stores the lost share and not the number of probes. Therefore only whole minutes
    /// count. A minute beside one that is not measured may have had only a few probes, for example
    /// when a peer joins.
    pub(super) fn last_ten(&self, probes: u32) -> Option<TenMinuteOutcomes> {
        let minutes = self.as_slice();
        let is_measured = |minute: Option<&Minute>| minute.is_some_and(|minute| *minute != Minute::NOT_MEASURED);
        let mut sum = TenMinuteOutcomes::default();
        for at in minutes.len().saturating_sub(TEN).max(1)..minutes.len() {
            let is_last = at + 1 == minutes.len();
            let is_whole = is_measured(minutes.get(at - 1)) && (is_last || is_measured(minutes.get(at + 1)));
            let Some(loss) = minutes[at].loss().filter(|_| is_whole) else { continue };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to the number of probes")]
            let count = (loss * f64::from(probes)).round() as u32;
            sum.seconds += 60;
            sum.sent += probes;
            sum.lost += count;
        }
        (sum.seconds > 0).then_some(sum)
    }

    /// Returns the octave of the lowest median of all minutes, or `None` if fewer than
    /// [`USUAL_MINUTES_MIN`] minutes had an answer.
    fn quickest(&self) -> Option<usize> {
        let medians = || self.as_slice().iter().filter_map(|minute| minute.times()).map(|[p50, _]| p50);
        medians().min().filter(|_| medians().count() >= USUAL_MINUTES_MIN)
    }
}

impl HourReading {
    /// Returns the outcomes of the probes in the last ten whole minutes. `None` if no whole minute
    /// is measured, for example at intervals of more than a minute.
    pub fn ten_minutes(&self) -> Option<TenMinuteOutcomes> {
        self.minutes.last_ten(self.probes)
    }

    /// Returns the median round-trip time of the quickest minute, in seconds, as the upper bound of
    /// its octave. `None` if fewer than five minutes had an answer.
    pub fn usual_rtt_p50_seconds(&self) -> Option<f64> {
        Some(minute::upper(self.minutes.quickest()?))
    }
}

impl Past {
    /// Clears the hour and counts from `outcomes` on. Writes zeroes even over zeroes, so that the
    /// memory of a peer becomes resident when the peer joins and not a minute later.
    fn start(&self, outcomes: Outcomes) {
        self.minutes.iter().for_each(|minute| minute.store(0, Ordering::Relaxed));
        self.begin(outcomes);
    }

    fn begin(&self, outcomes: Outcomes) {
        self.answered.store(outcomes.answered, Ordering::Release);
        self.lost.store(outcomes.lost, Ordering::Release);
    }

    /// Ends minute `from`, and marks the minutes between `from` and `to` as not measured.
    fn end(&self, from: u32, to: u32, outcomes: Outcomes, times: Option<[usize; 2]>) {
        let since = |counter: u32, begin: &AtomicU32| counter.wrapping_sub(begin.load(Ordering::Relaxed));
        let (answered, lost) = (since(outcomes.answered, &self.answered), since(outcomes.lost, &self.lost));
        self.minutes[place(from)].store(Minute::new(answered, lost, times).0, Ordering::Relaxed);
        // Writing each of the 60 places once is enough.
        for missed in (from + 1..to).take(HOUR_STEPS) {
            self.minutes[place(missed)].store(Minute::NOT_MEASURED.0, Ordering::Relaxed);
        }
        self.begin(outcomes);
    }
}

const fn place(minute: u32) -> usize {
    minute as usize % HOUR_STEPS
}

impl Hours {
    pub(super) fn new() -> Self {
        Self { table: Table::new(HOUR_PEERS_MAX), minutes: Turns::default(), slots: AtomicU32::new(0) }
    }

    pub(super) fn resident_bytes(&self) -> usize {
        self.table.resident_bytes()
    }

    /// Starts the hour of a peer that joins in `slot`.
    pub(super) fn join(&self, slot: SlotId) {
        if let Some(past) = self.table.get(slot.index()) {
            self.slots.fetch_max(slot.0 + 1, Ordering::Relaxed);
            past.start(Outcomes::default());
        }
    }

    /// Moves the hours as `compaction` says. A peer that moves in from a slot without history
    /// starts its history from its current counters.
    pub(super) fn compact(&self, compaction: &Compaction, outcomes: impl Fn(SlotId) -> Outcomes) {
        for (from, to) in compaction.moves() {
            let Some(past) = self.table.get(to.index()) else { continue };
            match self.table.get(from.index()) {
                Some(from) => past.copy_from(from),
                None => past.start(outcomes(to)),
            }
        }
        let slots = compaction.slots().min(HOUR_PEERS_MAX);
        self.slots.store(u32::try_from(slots).unwrap_or(0), Ordering::Relaxed);
        self.table.give_back(slots);
    }

    /// Ends minute `from` and begins minute `to`. `of` returns a slot's counters and the octaves of
    /// its median and 99th percentile.
    pub(super) fn turn(&self, from: u32, to: u32, of: impl Fn(SlotId) -> (Outcomes, Option<[usize; 2]>)) {
        self.minutes.turn(to, || {
            for (slot, past) in (0..self.slots.load(Ordering::Relaxed)).map(SlotId).zip(&*self.table) {
                let (outcomes, times) = of(slot);
                past.end(from, to, outcomes, times);
            }
        });
    }

    /// Reads the hour of `slot`; `None` if the slot has no hour.
    pub(super) fn read(&self, slot: SlotId) -> Option<Minutes> {
        let past = self.table.get(slot.index())?;
        let ended = self.minutes.done();
        let count = (ended as usize).min(HOUR_STEPS);
        let oldest = ended - u32::try_from(count).unwrap_or(ended);
        let mut all = [Minute::NOT_MEASURED; HOUR_STEPS];
        for (minute, number) in all.iter_mut().zip(oldest..ended) {
            *minute = Minute(past.minutes[place(number)].load(Ordering::Relaxed));
        }
        // A minute that is being written overwrites one of the oldest: such minutes are dropped.
        let ending = self.minutes.begun();
        for (minute, number) in all.iter_mut().zip(oldest..ended) {
            if ending.saturating_sub(number) as usize > HOUR_STEPS {
                *minute = Minute::NOT_MEASURED;
            }
        }
        Some(Minutes { all, count, ended })
    }

    /// Returns the minute in which the current run of losing minutes began. The current minute is
    /// losing if it has lost a probe so far. A run may have gaps of up to `gap` minutes. Minutes
    /// without measurement count as gaps, because nothing is known about them. If the run is as old
    /// as the hour, the result is the first minute of the hour; the run may be older.
    pub(super) fn losing_since(&self, slot: SlotId, gap: u32, now_lost: impl Fn() -> u32) -> Option<u32> {
        let past = self.table.get(slot.index())?;
        // This is read before `now_lost`, so the counter is never behind it.
        let lost = past.lost.load(Ordering::Acquire);
        let is_losing = now_lost() != lost;
        let hour = self.read(slot)?;
        let before = hour.as_slice().iter().rev().map(|minute| minute.is_losing());
        let back = begin_of_run(std::iter::once(is_losing).chain(before), gap)?;
        Some(hour.ended - u32::try_from(back).unwrap_or(0))
    }
}

/// Returns the index of the last minute of a run of losing minutes, given the newest first. A run
/// continues over gaps of at most `gap` minutes. `None` if no run begins within this many minutes.
fn begin_of_run(minutes: impl Iterator<Item = bool>, gap: u32) -> Option<usize> {
    let (mut begin, mut others) = (None, 0);
    for (back, is_losing) in minutes.enumerate() {
        others = if is_losing { 0 } else { others + 1 };
        if is_losing {
            begin = Some(back);
        } else if others > gap {
            break;
        }
    }
    begin
}

#[cfg(test)]
mod tests;
