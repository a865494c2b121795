//! What the nodes report of checks, as far as the judge has checks of these names itself.
//!
//! A check whose attempts are all good takes 4 bytes per node, and any other one 28. With four
//! checks, 5,000 nodes take 80 KB if all is well, and 560 KB if all fails. A name that the list
//! lacks takes none, so no report can add one.

use kube_canary_kernel::region::List;
use kube_canary_model::check::{CHECK_NAME_BYTES_MAX, CHECKS_MAX, Check, CheckFailure, CheckKind};
use kube_canary_model::method::Family;

/// More attempts of a recent window count as this many, with the same shares: those at three
/// servers of the DNS that fail for a minute. So no report counts for more than a few others.
const TRIED_MAX: u32 = 72;

/// The attempts of a node by one check in its recent window.
#[derive(Clone, Copy, Debug)]
pub struct TriedAttempts {
    /// Number of the node.
    pub node: u16,
    /// Place of the check in the judge's list.
    pub check: u8,
    /// Number of attempts, at least one.
    pub tried: u8,
}

/// What is kept beside [`TriedAttempts`] of a check of which some failed or were slow.
#[derive(Clone, Copy, Debug)]
pub struct BadAttempts {
    /// Number of the node.
    pub node: u16,
    /// Place of the check in the judge's list.
    pub check: u8,
    /// What the check asks for, as the node reports it.
    pub kind: CheckKind,
    /// Number of attempts that failed.
    pub failed: u8,
    /// Number of attempts with a slow answer. Together with the failed ones at most all.
    pub slow: u8,
    /// Number of good attempts since the last bad one, at most all.
    pub good_in_row: u8,
    /// Number of attempts that failed since the last one that did not.
    pub failed_in_row: u8,
    /// Why most of the failed ones failed.
    pub reason: Option<CheckFailure>,
    /// The family that alone is hit.
    pub family: Option<Family>,
    /// Number of attempts over that family.
    pub family_tried: u8,
    /// Servers, at most 15, and in the upper bits those of which most attempts failed.
    servers: u8,
    /// When it began, in seconds after the epoch of the matrix.
    since: i16,
    answer_seconds: f32,
    slow_from_seconds: f32,
}

const _: () = assert!(size_of::<TriedAttempts>() == 4 && size_of::<BadAttempts>() == 24);

/// It is not known when it began.
const NO_SINCE: i16 = i16::MIN;

impl BadAttempts {
    /// Returns when it began, in seconds after the epoch of the matrix.
    pub fn since(&self) -> Option<i16> {
        (self.since != NO_SINCE).then_some(self.since)
    }

    /// Returns the number of servers or addresses, and how many of them fail.
    pub const fn servers(&self) -> [u8; 2] {
        [self.servers & 15, self.servers >> 4]
    }

    /// Returns the median time of the answers, and the time from which on one is slow, in seconds.
    pub fn times(&self) -> [Option<f32>; 2] {
        [self.answer_seconds, self.slow_from_seconds].map(|seconds| (seconds > 0.0).then_some(seconds))
    }
}

/// Returns a time of at most a day; 0 if it is none.
fn time(seconds: Option<f64>) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "at most a day")]
    seconds.filter(|seconds| (0.0..=86_400.0).contains(seconds)).map_or(0.0, |seconds| seconds as f32)
}

fn byte(count: u32) -> u8 {
    u8::try_from(count).unwrap_or(u8::MAX)
}

/// What all reports say of the checks in the judge's own list.
#[derive(Debug)]
pub(super) struct AttemptTable {
    names: Vec<Box<str>>,
    /// Bytes of the names.
    name_bytes: usize,
    tried: List<TriedAttempts>,
    bad: List<BadAttempts>,
    /// The checks that the row has, which is being read, as a set of bits.
    said: u32,
    /// Of each check, the number of nodes that reach themselves by it.
    reaching_themselves: [u16; CHECKS_MAX],
}

const _: () = assert!(CHECKS_MAX <= u32::BITS as usize);

impl AttemptTable {
    /// Makes empty tables that take at most this many bytes each.
    pub fn new(bytes: usize) -> Self {
        let (tried, bad) = (List::new(bytes / size_of::<TriedAttempts>()), List::new(bytes / size_of::<BadAttempts>()));
        Self { names: Vec::new(), name_bytes: 0, tried, bad, said: 0, reaching_themselves: [0; CHECKS_MAX] }
    }

    /// Takes the names of the judge's own checks, each once.
    pub fn set_names(&mut self, names: &[Box<str>]) {
        self.names.clear();
        for name in names.iter().filter(|name| !name.is_empty() && name.len() <= CHECK_NAME_BYTES_MAX) {
            if self.names.len() < CHECKS_MAX && !self.names.contains(name) {
                self.names.push(name.clone());
            }
        }
        self.name_bytes = self.names.iter().map(|name| size_of_val(name) + name.len()).sum();
    }

    /// Begins the row of a node.
    pub const fn begin_row(&mut self) {
        self.said = 0;
    }

    /// Adds what a node reports of a check, if there is `room` for it. `seconds` makes seconds
    /// after the epoch of a Unix time. Returns false if the row already has a check of this name.
    pub fn add(&mut self, node: u16, check: &Check<'_>, room: usize, seconds: impl Fn(u64) -> Option<i16>) -> bool {
        let Some(place) = self.names.iter().position(|name| **name == *check.name) else { return true };
        let bit = 1 << place;
        if self.said & bit != 0 {
            return false;
        }
        self.said |= bit;
        let scale = |count: u32| {
            let of = u64::from(check.tried.max(1));
            let scaled = u64::from(count.min(check.tried)) * u64::from(check.tried.min(TRIED_MAX)) / of;
            // What is there stays, however many attempts there are.
            u32::try_from(scaled).unwrap_or(TRIED_MAX).max(u32::from(count.min(check.tried) > 0))
        };
        let tried = check.tried.min(TRIED_MAX);
        let failed = scale(check.failed);
        let slow = scale(check.slow).min(tried - failed);
        let is_bad = failed + slow > 0;
        let bytes = size_of::<TriedAttempts>() + if is_bad { size_of::<BadAttempts>() } else { 0 };
        // Without room, the links of the row do not fit either, which is counted.
        if tried == 0 || room < bytes {
            return true;
        }
        if let Some(count) = self.reaching_themselves.get_mut(place) {
            *count = count.saturating_add(u16::from(check.reaches_itself));
        }
        let place = u8::try_from(place).unwrap_or(u8::MAX);
        if is_bad {
            let since = check.since_unix_seconds.and_then(seconds).unwrap_or(NO_SINCE);
            let bad = BadAttempts {
                node,
                check: place,
                kind: check.kind,
                failed: byte(failed),
                slow: byte(slow),
                good_in_row: byte(check.good_in_row.min(tried - failed - slow)),
                failed_in_row: byte(if failed > 0 { check.failed_in_row } else { 0 }),
                reason: check.reason.filter(|_| failed > 0),
                family: check.family,
                family_tried: byte(scale(check.family_tried).clamp(failed + slow, tried)),
                servers: check.servers.min(15) | check.servers_failing.min(check.servers).min(15) << 4,
                since,
                answer_seconds: time(check.time_p50_seconds),
                slow_from_seconds: time(check.slow_from_seconds),
            };
            if !self.bad.push(bad) {
                return true;
            }
        }
        _ = self.tried.push(TriedAttempts { node, check: place, tried: byte(tried) });
        true
    }

    /// Sorts by check and then by node. The rest of this needs it.
    pub fn settle(&mut self) {
        self.tried.sort_unstable_by_key(|attempts| (attempts.check, attempts.node));
        self.bad.sort_unstable_by_key(|bad| (bad.check, bad.node));
    }

    /// Returns the names of the checks.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// Returns what the nodes report of a check, in the order of their numbers.
    pub fn attempts(&self, check: u8) -> impl Iterator<Item = (TriedAttempts, Option<BadAttempts>)> {
        let from = self.tried.partition_point(|attempts| attempts.check < check);
        let to = self.tried.partition_point(|attempts| attempts.check <= check);
        let begin = self.bad.partition_point(|bad| bad.check < check);
        let mut bad = self.bad[begin..].iter().peekable();
        self.tried[from..to].iter().map(move |attempts| {
            (*attempts, bad.next_if(|bad| (bad.check, bad.node) == (check, attempts.node)).copied())
        })
    }

    /// Returns the share of the nodes with attempts by a check that reach themselves by it.
    pub fn reaching_themselves(&self, check: u8) -> f64 {
        let count = self.reaching_themselves.get(usize::from(check)).copied().unwrap_or_default();
        f64::from(count) / self.attempts(check).count().max(1) as f64
    }

    /// Returns the bytes in use.
    pub fn bytes(&self) -> usize {
        self.name_bytes + size_of_val(&self.tried[..]) + size_of_val(&self.bad[..])
    }
}
