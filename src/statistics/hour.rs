//! The last hour of every peer, in one-minute steps: so that a page and a verdict can say since when, without a database.
//!
//! A peer has 128 bytes: a ring of 60 minutes of 16 bits ([`Minute`]), and what its counters were when the minute under way
//! began. A loss is counted from those, so that it is exact for the whole minute at any interval; times come from the recent
//! window ([`super::recent`]), whose halves divide the minute: at intervals from 167 ms they are those of the whole minute,
//! below that those of its last 3.5 seconds or more.
//!
//! Only slots below [`HOUR_PEERS_MAX`] have an hour: to choose among peers would take a table of who has which.
//!
//! - A probe counts in the minute in which it was answered or given up, not in that in which it was sent: with any timeout, and
//!   at intervals of more than a minute. A minute in which neither happened is not measured, which is not "well".
//! - Minutes are counted from the first tick, on the monotonic clock; wall-clock time is made of them when they are read, so a
//!   step of that clock shifts nothing. Time that the monotonic clock does not count (a suspended machine) is not in the
//!   ring: what was before seems later by so much.
//! - Minutes without a tick are not measured. What became of their probes counts in the minute in which the agent goes on; the
//!   one in which it stood still ends with what was known by then.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use super::minute::{self, Minute};
use super::slots::Outcomes;
use super::turns::Turns;
use crate::limits::{HOUR_PEERS_MAX, HOUR_STEPS};
use crate::peers::{Compaction, SlotId};
use crate::region::{Atomic, Table, Zero};
use crate::units::Nanos;

/// A peer's hour: 128 bytes.
#[derive(Debug)]
pub(super) struct Past {
    /// As the minute under way began.
    answered: AtomicU32,
    lost: AtomicU32,
    /// Minute `n` is at `n % 60`.
    minutes: [AtomicU16; HOUR_STEPS],
}

#[expect(unsafe_code, reason = "the compiler cannot see of what a type is made")]
mod atomics {
    use super::{Atomic, Past, Zero};
    // SAFETY: atomic integers and an array of them.
    unsafe impl Zero for Past {}
    // SAFETY: as above.
    unsafe impl Atomic for Past {}
}

/// The hours of all peers. The probe thread writes, HTTP workers read.
#[derive(Debug)]
pub(super) struct Hours {
    table: Table<Past>,
    /// Minutes that have ended; one whose end is being written overwrites the oldest.
    minutes: Turns<AtomicU32>,
    /// Slots that anybody was ever in; the others' pages are not touched.
    slots: AtomicU32,
}

/// A step of an hour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HourStep {
    /// The part of the probes that was lost, 0 to 1; none where none was answered or given up. [`Minute::loss`] says how exact.
    pub loss: Option<f64>,
    /// The upper bound of the median's octave, in seconds. None where nobody answered. The upper bound, and not something
    /// within the octave, because it is true: half of them took at most this.
    pub rtt_p50_seconds: Option<f64>,
    /// The same of the 99th percentile.
    pub rtt_p99_seconds: Option<f64>,
}

/// What became of the probes to a peer in the last ten whole minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenMinutes {
    /// How much time is measured: 60 for each of the ten minutes that counts.
    pub seconds: u32,
    /// Probes answered or given up: as many as the interval has in that time.
    pub sent: u32,
    /// Probes lost. Exact up to about 60 probes per minute; above that as exact as
    /// [`Minute::loss`].
    pub lost: u32,
}

/// A peer's hour as read at one moment.
#[derive(Clone, Copy, Debug)]
pub struct HourReading {
    pub(super) minutes: Minutes,
    /// Probes of a whole minute.
    pub(super) probes: u32,
    /// When the last step ended, on the monotonic clock.
    pub end: Nanos,
}

/// Minutes that [`TenMinutes`] covers.
const TEN: usize = 10;
/// Minutes that an hour must have measured before its quickest one says what is usual.
const USUAL_MINUTES_MIN: usize = 5;

/// The minutes of an hour, the oldest first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Minutes {
    all: [Minute; HOUR_STEPS],
    /// So many of them, the first ones, have been.
    count: usize,
    /// Minutes that have ended since the agent started.
    pub(super) ended: u32,
}

impl HourReading {
    /// Its steps, the oldest first: at most 60, fewer in the agent's first hour.
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

    /// Returns the sum of the last ten minutes at `probes` per minute, or none if no minute counts.
    ///
    /// A minute keeps the share that was lost, and not of how many. So only a whole minute counts:
    /// one beside a minute without measurement may have had a few probes, as when a peer joins.
    pub(super) fn last_ten(&self, probes: u32) -> Option<TenMinutes> {
        let minutes = self.as_slice();
        let is_measured = |minute: Option<&Minute>| minute.is_some_and(|minute| *minute != Minute::NOT_MEASURED);
        let mut sum = TenMinutes::default();
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

    /// Returns the octave of the lowest median of all minutes, or none if fewer than
    /// [`USUAL_MINUTES_MIN`] had an answer.
    fn quickest(&self) -> Option<usize> {
        let medians = || self.as_slice().iter().filter_map(|minute| minute.times()).map(|[p50, _]| p50);
        medians().min().filter(|_| medians().count() >= USUAL_MINUTES_MIN)
    }
}

impl HourReading {
    /// Returns what became of the probes in the last ten whole minutes. None if no whole minute is
    /// measured, as at intervals of more than a minute.
    pub fn ten_minutes(&self) -> Option<TenMinutes> {
        self.minutes.last_ten(self.probes)
    }

    /// Returns the median round trip of the quickest minute, in seconds: the upper bound of its
    /// octave. None if fewer than five minutes had an answer.
    pub fn usual_rtt_p50_seconds(&self) -> Option<f64> {
        Some(minute::upper(self.minutes.quickest()?))
    }
}

impl Past {
    /// Empty, from these counters on. Written even where there are zeroes already: what a peer costs shows when it comes, not a
    /// minute later.
    fn start(&self, outcomes: Outcomes) {
        self.minutes.iter().for_each(|minute| minute.store(0, Ordering::Relaxed));
        self.begin(outcomes);
    }

    fn begin(&self, outcomes: Outcomes) {
        self.answered.store(outcomes.answered, Ordering::Release);
        self.lost.store(outcomes.lost, Ordering::Release);
    }

    /// Ends minute `from`, and leaves those up to `to` without measurement.
    fn end(&self, from: u32, to: u32, outcomes: Outcomes, times: Option<[usize; 2]>) {
        let since = |counter: u32, begin: &AtomicU32| counter.wrapping_sub(begin.load(Ordering::Relaxed));
        let (answered, lost) = (since(outcomes.answered, &self.answered), since(outcomes.lost, &self.lost));
        self.minutes[place(from)].store(Minute::new(answered, lost, times).0, Ordering::Relaxed);
        // Once round is enough.
        for missed in (from + 1..to).take(HOUR_STEPS) {
            self.minutes[place(missed)].store(Minute::NOT_MEASURED.0, Ordering::Relaxed);
        }
        self.begin(outcomes);
    }

    fn take_over(&self, other: &Self) {
        self.answered.store(other.answered.load(Ordering::Relaxed), Ordering::Relaxed);
        self.lost.store(other.lost.load(Ordering::Relaxed), Ordering::Relaxed);
        for (to, from) in self.minutes.iter().zip(&other.minutes) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
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

    /// Somebody new is in `slot`.
    pub(super) fn join(&self, slot: SlotId) {
        if let Some(past) = self.table.get(slot.index()) {
            self.slots.fetch_max(slot.0 + 1, Ordering::Relaxed);
            past.start(Outcomes::default());
        }
    }

    /// Takes over who sits where now. Who comes from a slot that has no hour begins his with the counters that he brings.
    pub(super) fn compact(&self, compaction: &Compaction, outcomes: impl Fn(SlotId) -> Outcomes) {
        for (from, to) in compaction.moves() {
            let Some(past) = self.table.get(to.index()) else { continue };
            match self.table.get(from.index()) {
                Some(from) => past.take_over(from),
                None => past.start(outcomes(to)),
            }
        }
        let slots = compaction.slots().min(HOUR_PEERS_MAX);
        self.slots.store(u32::try_from(slots).unwrap_or(0), Ordering::Relaxed);
        self.table.give_back(slots);
    }

    /// Minute `from` has ended, and `to` is the one under way. `of` tells a slot's counters, and the octaves of its p50 and p99.
    pub(super) fn turn(&self, from: u32, to: u32, of: impl Fn(SlotId) -> (Outcomes, Option<[usize; 2]>)) {
        self.minutes.turn(to, || {
            for (slot, past) in (0..self.slots.load(Ordering::Relaxed)).map(SlotId).zip(&*self.table) {
                let (outcomes, times) = of(slot);
                past.end(from, to, outcomes, times);
            }
        });
    }

    /// The hour of a slot; none where there is no room for one.
    pub(super) fn read(&self, slot: SlotId) -> Option<Minutes> {
        let past = self.table.get(slot.index())?;
        let ended = self.minutes.done();
        let count = (ended as usize).min(HOUR_STEPS);
        let oldest = ended - u32::try_from(count).unwrap_or(ended);
        let mut all = [Minute::NOT_MEASURED; HOUR_STEPS];
        for (minute, number) in all.iter_mut().zip(oldest..ended) {
            *minute = Minute(past.minutes[place(number)].load(Ordering::Relaxed));
        }
        // Minutes that are just ending take the places of as many of the oldest.
        let ending = self.minutes.begun();
        for (minute, number) in all.iter_mut().zip(oldest..ended) {
            if ending.saturating_sub(number) as usize > HOUR_STEPS {
                *minute = Minute::NOT_MEASURED;
            }
        }
        Some(Minutes { all, count, ended })
    }

    /// The minute in which the present run of losing minutes began. The one under way loses if it has lost anything so
    /// far. A run may have gaps of up to `gap` minutes; those that were not measured count as gaps too, for nobody knows. Where
    /// the run is as old as the hour, its first minute: it may be older still.
    pub(super) fn losing_since(&self, slot: SlotId, gap: u32, now_lost: impl Fn() -> u32) -> Option<u32> {
        let past = self.table.get(slot.index())?;
        // Read first: the counter is never behind it.
        let lost = past.lost.load(Ordering::Acquire);
        let is_losing = now_lost() != lost;
        let hour = self.read(slot)?;
        let before = hour.as_slice().iter().rev().map(|minute| minute.is_losing());
        let back = begin_of_run(std::iter::once(is_losing).chain(before), gap)?;
        Some(hour.ended - u32::try_from(back).unwrap_or(0))
    }
}

/// The last of a run of losing minutes, given the newest first: a run goes on over at most `gap` others. None where it does
/// not begin within as many.
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
