//! What checks have found: totals for series, and the recent window for reports.
//!
//! There are at most [`CHECKS_MAX`] checks, each with an attempt every few seconds. So one lock
//! serves: the task that checks holds it while it counts one attempt, and a reader while it copies
//! one record.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube_canary_model::check::{CHECKS_MAX, Check, CheckFailure, CheckKind, CheckPhase};

use super::bounds::BucketBounds;
use super::histogram::Histogram;
use super::scale::Scale;
use crate::checks::{Attempt, CheckSpec, CheckTarget, DueAttempt};
use crate::peers::Family;
use crate::sys::clock;
use crate::units::Nanos;

/// Half of the recent window, or twice the time between two attempts, if that is longer.
const HALF: Nanos = Nanos::from_millis(30_000);
/// Failures so soon after the check began count in totals alone, unless an attempt was good before:
/// the network of a new pod may not be complete.
const START: Nanos = Nanos::from_millis(30_000);
/// Servers of a check with counts of their own: three of resolv.conf, or an address of each family.
pub const CHECK_SERVERS_MAX: usize = 4;
/// Families of the addresses that are asked, and attempts without an address.
pub const CHECK_FAMILIES: usize = Family::ALL.len() + 1;
const NO_FAMILY: usize = Family::ALL.len();
/// Times of which the median is taken.
const TIMES: usize = 16;
/// Good attempts in a row after which what failed before is over: as many as chance makes this
/// rarely at the rate at which attempts failed, in this range. What fails always is over after the
/// least, and the most are needed as long as fewer than [`RATE_FROM`] have failed.
const GOOD_ENDS: std::ops::RangeInclusive<u8> = 3..=10;
const CHANCE: f64 = 0.02;
const RATE_FROM: u16 = 3;
/// The time from which on an attempt is slow, if nothing is known of what is usual there.
const SLOW_FROM: Nanos = Nanos::from_millis(100);
/// Times that are this many times as long as usual are slow, if they are not below [`SLOW_FROM`].
const SLOW_TIMES: u32 = 4;
/// The quickest median of this time, and of up to twice this time, counts as usual.
const USUAL_KEPT: Nanos = Nanos::from_millis(1_800_000);
/// Native buckets per doubling of a phase's histogram, as a power of two.
const SCHEMA: u8 = 1;
/// The longest time that an attempt takes.
const LONGEST: Duration = Duration::from_secs(10);
/// Bytes of a `target` label, of which a longer one is cut: `https://`, the longest name of a host,
/// a port, and 50 bytes of a path.
pub const CHECK_TARGET_BYTES_MAX: usize = 320;

/// All checks of an agent.
#[derive(Debug)]
pub struct CheckBoard {
    scale: Arc<Scale>,
    list: Mutex<CheckList>,
}

#[derive(Debug, Default)]
struct CheckList {
    /// Number of lists before this one.
    number: u32,
    records: Vec<CheckRecord>,
}

/// The results of one check.
#[derive(Debug)]
pub struct CheckRecord {
    /// What is checked, as the operator named it.
    pub spec: CheckSpec,
    /// The `target` label, at most [`CHECK_TARGET_BYTES_MAX`] bytes.
    pub target: Box<str>,
    /// The time from which the check counts, in seconds since the epoch.
    pub created: u32,
    /// Number of attempts since the start.
    pub attempts: u64,
    /// By family, and at last without one, the number of those that failed, in the order of
    /// [`CheckFailure::ALL`].
    pub failures: [[u64; CheckFailure::ALL.len()]; CHECK_FAMILIES],
    /// By family, the times of each phase, in the order of [`CheckPhase::ALL`]; `None` until there
    /// is one.
    pub phases: [[Option<Arc<Histogram>>; CheckPhase::ALL.len()]; Family::ALL.len()],
    /// When the certificate of the target expires, in Unix seconds.
    pub certificate_not_after: Option<u64>,
    servers: u8,
    /// The first attempt, and whether any was good.
    begun: Option<Nanos>,
    has_succeeded: bool,
    halves: [HalfCounts; 2],
    half: u64,
    half_length: Nanos,
    good_in_row: u8,
    failed_in_row: u8,
    since: Option<Nanos>,
    /// Attempts since then, and those that failed or were slow.
    since_counts: (u16, u16),
    /// When the last row of bad attempts began, and how many it has.
    bad_row: (Nanos, u16),
    reaches_itself: bool,
    /// The last times of answered attempts, in microseconds.
    times: [u32; TIMES],
    times_len: usize,
    times_next: usize,
    /// The quickest medians of the present and of the last time of [`USUAL_KEPT`].
    usual: [Option<u32>; 2],
    usual_turn: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct HalfCounts {
    tried: u32,
    slow: u32,
    failures: [u16; CheckFailure::ALL.len()],
    /// Of each server: attempts, and those that failed.
    servers: [(u16, u16); CHECK_SERVERS_MAX],
    /// Of each family, and at last without one: attempts, and those that failed or were slow.
    families: [(u16, u16); CHECK_FAMILIES],
}

impl HalfCounts {
    fn plus(mut self, other: &Self) -> Self {
        self.tried += other.tried;
        self.slow += other.slow;
        for (sum, count) in self.failures.iter_mut().zip(other.failures) {
            *sum = sum.saturating_add(count);
        }
        let (servers, families) = (self.servers.iter_mut(), self.families.iter_mut());
        for (sum, count) in servers.zip(other.servers).chain(families.zip(other.families)) {
            *sum = (sum.0.saturating_add(count.0), sum.1.saturating_add(count.1));
        }
        self
    }

    /// Returns the family of all attempts that failed or were slow, and the number of its attempts,
    /// if those over the other one were good.
    fn family_alone(&self) -> Option<(Family, u32)> {
        let is_bad = |place: usize| self.families[place].1 > 0;
        let [v4, v6] = Family::ALL.map(|family| self.families[family as usize]);
        if is_bad(NO_FAMILY) || v4.0 == 0 || v6.0 == 0 {
            return None;
        }
        let alone = |family: &Family| is_bad(*family as usize) && !is_bad(1 - *family as usize);
        Family::ALL.into_iter().find(alone).map(|family| (family, self.families[family as usize].0.into()))
    }

    fn failed(&self) -> u32 {
        self.failures.iter().map(|count| u32::from(*count)).sum()
    }
}

impl Default for CheckBoard {
    fn default() -> Self {
        let scale = Arc::new(Scale::new(BucketBounds::for_checks(), SCHEMA, LONGEST));
        Self { scale, list: Mutex::default() }
    }
}

impl CheckBoard {
    fn lock(&self) -> MutexGuard<'_, CheckList> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the division of times into buckets.
    pub fn scale(&self) -> &Scale {
        &self.scale
    }

    /// Replaces the list of checks, of which the first [`CHECKS_MAX`] count. A check that was there
    /// before keeps its numbers.
    pub fn replace(&self, specs: &[CheckSpec]) {
        let mut list = self.lock();
        let mut before = std::mem::take(&mut list.records);
        list.number = list.number.wrapping_add(1);
        list.records.reserve_exact(specs.len().min(CHECKS_MAX));
        for spec in specs.iter().take(CHECKS_MAX) {
            let kept = before.iter().position(|record| record.spec == *spec).map(|at| before.swap_remove(at));
            list.records.push(kept.unwrap_or_else(|| CheckRecord::new(spec.clone())));
        }
    }

    /// Counts an attempt of a check, which asked one of `servers` servers. An answer of the agent
    /// itself does not count.
    pub fn record(&self, due: DueAttempt, servers: usize, now: Nanos, attempt: &Attempt) {
        if let Some(record) = self.lock().records.get_mut(due.check) {
            if attempt.is_own_answer {
                record.reaches_itself = true;
                return;
            }
            record.set_half(Nanos(due.spacing.0.saturating_mul(2)).max(HALF));
            record.record((due.server, servers), now, attempt, &self.scale);
        }
    }

    /// Returns the number of checks.
    pub fn count(&self) -> usize {
        self.lock().records.len()
    }

    /// Reads one record, if there is one at this place.
    pub fn read<T>(&self, place: usize, read: impl FnOnce(&CheckRecord) -> T) -> Option<T> {
        self.lock().records.get(place).map(read)
    }

    /// Returns the number of the list, for [`CheckBoard::read_of`].
    pub fn list_number(&self) -> u32 {
        self.lock().number
    }

    /// Reads one record of the list with this number. `None` if another list has replaced it: then
    /// the check at this place may be one that was read before.
    pub fn read_of<T>(&self, list_number: u32, place: usize, read: impl FnOnce(&CheckRecord) -> T) -> Option<T> {
        let list = self.lock();
        list.records.get(place).filter(|_| list.number == list_number).map(read)
    }

    /// Returns the names of all checks, in their order.
    pub fn names(&self) -> Vec<Box<str>> {
        self.lock().records.iter().map(|record| record.spec.name.clone()).collect()
    }
}

fn micros(time: Nanos) -> u32 {
    u32::try_from(time.0 / 1_000).unwrap_or(u32::MAX)
}

impl CheckRecord {
    fn new(spec: CheckSpec) -> Self {
        let mut target = spec.target.to_string();
        target.truncate(target.floor_char_boundary(CHECK_TARGET_BYTES_MAX));
        Self {
            target: target.into(),
            created: u32::try_from(clock::realtime().as_secs()).unwrap_or(u32::MAX),
            spec,
            attempts: 0,
            failures: Default::default(),
            phases: Default::default(),
            certificate_not_after: None,
            servers: 0,
            begun: None,
            has_succeeded: false,
            halves: Default::default(),
            half: 0,
            half_length: HALF,
            good_in_row: 0,
            failed_in_row: 0,
            since: None,
            since_counts: (0, 0),
            bad_row: (Nanos::default(), 0),
            reaches_itself: false,
            times: [0; TIMES],
            times_len: 0,
            times_next: 0,
            usual: [None; 2],
            usual_turn: 0,
        }
    }

    /// Returns what the check asks for.
    pub const fn kind(&self) -> CheckKind {
        self.spec.target.kind()
    }

    fn record(&mut self, (server, servers): (usize, usize), now: Nanos, attempt: &Attempt, scale: &Scale) {
        self.turn(now);
        self.attempts += 1;
        self.servers = u8::try_from(servers).unwrap_or(u8::MAX);
        if attempt.certificate_not_after.is_some() {
            self.certificate_not_after = attempt.certificate_not_after;
        }
        let family = attempt.family.map_or(NO_FAMILY, |family| family as usize);
        for (histogram, time) in self.phases.get_mut(family).into_iter().flatten().zip(attempt.phases) {
            if let Some(time) = time {
                histogram.get_or_insert_with(|| Arc::new(Histogram::new(scale))).observe(time, scale.cell(time));
            }
        }
        let is_starting = !self.has_succeeded && now.since(*self.begun.get_or_insert(now)) < START;
        self.has_succeeded |= attempt.end.is_ok();
        if let Err(failure) = attempt.end {
            self.failures[family][failure as usize] += 1;
            if is_starting {
                return;
            }
        }
        let is_slow = attempt.end.is_ok() && self.is_slow(attempt);
        let half = &mut self.halves[0];
        half.tried += 1;
        half.slow += u32::from(is_slow);
        let of_family = &mut half.families[family];
        of_family.0 = of_family.0.saturating_add(1);
        of_family.1 = of_family.1.saturating_add(u16::from(is_slow || attempt.end.is_err()));
        let of_server = &mut half.servers[server.min(CHECK_SERVERS_MAX - 1)];
        of_server.0 = of_server.0.saturating_add(1);
        if let Err(failure) = attempt.end {
            let count = &mut half.failures[failure as usize];
            *count = count.saturating_add(1);
            of_server.1 = of_server.1.saturating_add(1);
            self.failed_in_row = self.failed_in_row.saturating_add(1);
        } else {
            self.failed_in_row = 0;
            self.take_time(self.judged_time(attempt), now);
        }
        let is_bad = attempt.end.is_err() || is_slow;
        if is_bad && self.since.is_none() {
            (self.since, self.since_counts) = (Some(now), (0, 0));
        }
        let (tried, bad) = &mut self.since_counts;
        (*tried, *bad) = (tried.saturating_add(1), bad.saturating_add(u16::from(is_bad)));
        let (begin, row) = &mut self.bad_row;
        *row = if is_bad { row.saturating_add(1) } else { 0 };
        if *row == 1 {
            *begin = now;
        }
        self.good_in_row = if is_bad { 0 } else { self.good_in_row.saturating_add(1) };
        self.since = self.since.filter(|_| self.good_in_row < self.good_ends());
        self.begin_anew();
    }

    /// Lets a fault begin with the present row of bad attempts, if those before are too few for it.
    /// A bad attempt now and then is no fault, and the one that follows would begin too early.
    fn begin_anew(&mut self) {
        let ((begin, row), (tried, bad)) = (self.bad_row, self.since_counts);
        let (tried, bad) = (tried.saturating_sub(row), bad.saturating_sub(row));
        let rate = f64::from(bad) / f64::from(tried.max(1));
        if row == RATE_FROM && bad < RATE_FROM && rate.powi(RATE_FROM.into()) < CHANCE {
            (self.since, self.since_counts) = (Some(begin), (row, row));
        }
    }

    /// Returns the number of good attempts in a row after which what failed is over.
    fn good_ends(&self) -> u8 {
        let (tried, bad) = self.since_counts;
        let before = tried.saturating_sub(self.good_in_row.into()).max(1);
        let rate = if bad < RATE_FROM { 0.0 } else { f64::from(bad) / f64::from(before) };
        let (least, most) = (f64::from(*GOOD_ENDS.start()), f64::from(*GOOD_ENDS.end()));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in the range")]
        let ends = (CHANCE.ln() / (-rate).ln_1p()).clamp(least, most).ceil() as u8;
        ends
    }

    /// Sets the length of a half. Attempts of a large mesh are rare.
    fn set_half(&mut self, length: Nanos) {
        if length != self.half_length {
            // Halves are numbered by their length.
            self.half = self.half.saturating_mul(self.half_length.0) / length.0;
            self.half_length = length;
        }
    }

    /// Begins another half of the window if one is due.
    fn turn(&mut self, now: Nanos) {
        let half = now.0 / self.half_length.0;
        match half.saturating_sub(self.half) {
            0 => {}
            1 => self.halves = [HalfCounts::default(), self.halves[0]],
            _ => self.halves = Default::default(),
        }
        self.half = half.max(self.half);
    }

    /// Returns the time that may be slow. The resolution is left out, because the DNS has a check
    /// of its own, and so is the handshake of the API server: it depends on the CPU of the server.
    fn judged_time(&self, attempt: &Attempt) -> Nanos {
        let [_, connect, handshake, first_byte] = attempt.phases.map(|time| time.unwrap_or_default().0);
        match self.spec.target {
            CheckTarget::ApiServer { .. } => Nanos(connect),
            _ => Nanos(connect.saturating_add(handshake).saturating_add(first_byte)),
        }
    }

    fn is_slow(&self, attempt: &Attempt) -> bool {
        micros(self.judged_time(attempt)) >= self.slow_from()
    }

    /// Returns the time from which on an attempt is slow, in microseconds. As long as nothing is
    /// usual, that is known within a cluster alone.
    fn slow_from(&self) -> u32 {
        let is_near = self.spec.target.is_in_cluster();
        match self.usual.into_iter().flatten().min() {
            Some(usual) => usual.saturating_mul(SLOW_TIMES).max(micros(SLOW_FROM)),
            None if is_near => micros(SLOW_FROM),
            None => u32::MAX,
        }
    }

    fn take_time(&mut self, time: Nanos, now: Nanos) {
        self.times[self.times_next] = micros(time);
        self.times_next = (self.times_next + 1) % TIMES;
        self.times_len = (self.times_len + 1).min(TIMES);
        let turn = now.0 / USUAL_KEPT.0;
        if turn != self.usual_turn {
            self.usual = if turn == self.usual_turn + 1 { [None, self.usual[0]] } else { [None; 2] };
            self.usual_turn = turn;
        }
        if let Some(median) = self.median(TIMES).filter(|_| self.times_len == TIMES) {
            self.usual[0] = Some(self.usual[0].map_or(median, |usual| usual.min(median)));
        }
    }

    /// Returns the median of the last `count` times, of which [`TIMES`] are kept. `None` if there
    /// are none.
    fn median(&self, count: usize) -> Option<u32> {
        let mut times = self.times;
        times.rotate_left(self.times_next);
        let times = &mut times[TIMES - count.min(self.times_len)..];
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    }

    /// Returns what is reported at this time.
    pub fn report(&self, now: Nanos) -> Check<'_> {
        let passed = (now.0 / self.half_length.0).saturating_sub(self.half);
        let window = match passed {
            0 => self.halves[0].plus(&self.halves[1]),
            1 => self.halves[0],
            _ => HalfCounts::default(),
        };
        let failed = window.failed();
        let is_bad = failed + window.slow > 0;
        let family = window.family_alone();
        let answered = usize::try_from(window.tried.saturating_sub(failed)).unwrap_or(TIMES);
        let failing =
            window.servers.iter().filter(|(tried, failed)| u32::from(*failed) * 2 > u32::from(*tried)).count();
        let seconds = |micros: u32| f64::from(micros) / 1e6;
        Check {
            name: (&*self.spec.name).into(),
            kind: self.kind(),
            tried: window.tried,
            failed,
            slow: window.slow,
            good_in_row: if is_bad { self.good_in_row.into() } else { 0 },
            failed_in_row: if is_bad { self.failed_in_row.into() } else { 0 },
            reason: CheckFailure::most_frequent(&window.failures),
            family: family.map(|(family, _)| family),
            family_tried: family.map_or(0, |(_, tried)| tried),
            reaches_itself: self.reaches_itself,
            since_unix_seconds: self.since.filter(|_| is_bad).map(clock::realtime_of).map(Nanos::as_secs),
            servers: self.servers,
            servers_failing: u8::try_from(failing).unwrap_or(u8::MAX),
            time_p50_seconds: self.median(answered).map(seconds),
            slow_from_seconds: Some(self.slow_from()).filter(|_| window.slow > 0).map(seconds),
        }
    }
}

#[cfg(test)]
mod tests;
