//! Decides whether this agent is one of the judges. No I/O, no clock.
//!
//! ```text
//!  watching ──── fewer than three better-ranked judges for long enough ───► judging
//!     ▲                                                                        │
//!     └──── three better-ranked ones have judged twice each ◄──────────────────┘
//! ```
//! There is no election: each agent decides alone, by the ranks that all of them compute and by
//! what the better-ranked members answer. If lists or answers differ for a while, there are more
//! than three judges for as long, never fewer.
//!
//! All members of a mesh of up to three judge, from their first check on: no other replaces them.
//!
//! The traps:
//! - A listed member may be dead, of another version, or behind a partition. So what counts is that
//!   it answers as a judge, not its rank.
//! - If all replacements began at once, there would be too many. So each waits 2 s longer for every
//!   member that is better-ranked.
//! - A judge that ends as soon as a better one begins leaves a gap, because the better one has not
//!   judged yet.

use std::time::Duration;

use super::times::JudgeTimes;
use crate::units::Nanos;

/// Judges of a mesh: a verdict counts if two of them agree, so one may be wrong or missing.
pub const JUDGES: usize = 3;
/// Ranks that check from the start. They replace the judges. Ranks beyond them look rarely while
/// there are three judges, so that these are not asked by all.
pub const RANKS_FIRST: usize = 8;
/// Judgements after which a better-ranked judge is trusted to stay.
pub const ROUNDS_PROVEN: u32 = 2;

/// What a check has found. The default is a node without a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Number of better-ranked members. None if our own node has no rank.
    pub better: Option<usize>,
    /// How many of them answered as judges of our protocol. It is enough to find [`JUDGES`].
    pub judges: usize,
    /// How many of these have judged at least [`ROUNDS_PROVEN`] times.
    pub proven: usize,
    /// Whether there are no more than [`JUDGES`] members. All of them judge.
    pub is_small: bool,
}

/// A change of the role, which [`Role::checked`] returns once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleChange {
    /// The agent judges from now on.
    Begins,
    /// The agent no longer judges.
    Ends,
}

/// The role of one agent.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    times: JudgeTimes,
    judges: bool,
    /// Since when every check found fewer than three better-ranked judges.
    lacking_since: Option<Nanos>,
}

impl Role {
    /// Makes the role of an agent that has just started. It does not judge.
    pub const fn new(times: JudgeTimes) -> Self {
        Self { times, judges: false, lacking_since: None }
    }

    /// Whether a check need not ask any further: the answers that it has decide.
    pub const fn is_decided(&self, judges: usize, proven: usize) -> bool {
        if self.judges { proven >= JUDGES } else { judges >= JUDGES }
    }

    /// Takes the result of a check. Returns the change of the role, if it changes.
    pub fn checked(&mut self, seen: Seen, now: Nanos) -> Option<RoleChange> {
        let Some(better) = seen.better else {
            self.lacking_since = None;
            return std::mem::take(&mut self.judges).then_some(RoleChange::Ends);
        };
        if seen.judges >= JUDGES {
            self.lacking_since = None;
            let ends = self.judges && seen.proven >= JUDGES;
            self.judges &= !ends;
            return ends.then_some(RoleChange::Ends);
        }
        let since = *self.lacking_since.get_or_insert(now);
        let steps = u32::try_from(better).unwrap_or(u32::MAX);
        let wait =
            if seen.is_small { Duration::ZERO } else { self.times.lacking + self.times.step.saturating_mul(steps) };
        let begins = !self.judges && now.since(since) >= wait.into();
        self.judges |= begins;
        begins.then_some(RoleChange::Begins)
    }

    /// Returns when to check next, after a check that found `seen` at `now`.
    pub fn next_check(&self, seen: Seen, now: Nanos) -> Nanos {
        let is_late = seen.better.is_some_and(|better| better >= RANKS_FIRST);
        let is_rare = is_late && !self.judges && seen.judges >= JUDGES;
        now.plus(if is_rare { self.times.rare_check } else { self.times.check }.into())
    }
}

#[cfg(test)]
mod tests;
