//! Whether the bad attempts of a cause are over.
//!
//! A report says how many attempts were good since the last bad one. If those of a cause are too
//! many for the rate of before, it is over. A few nodes may have a bad one again, which costs the
//! number of choices of these. See [`crate::quiet`], which does the same for links.

use super::evidence::{NodeAttempts, window_seconds};

/// Nats of the good attempts: chance has as many in one of 1,000 judgements.
const NATS: f64 = 6.9;
/// Nothing is over before this many seconds. What fails for a second and works for some is not well
/// in between.
const SECONDS_MIN: f64 = 5.0;
/// One of this many nodes may have a bad attempt again.
const STRAY_ONE_OF: u32 = 8;
/// A check fails at most at this rate: one that fails always may have had a good attempt.
const RATE_MAX: f64 = 0.9;
/// Largest number of attempts of a recent window. Higher ones count as this many.
const COUNT_MAX: usize = u8::MAX as usize;

/// Sums over nodes with the same number of good attempts since the last bad one.
#[derive(Clone, Copy, Debug, Default)]
struct SameSums {
    nodes: u32,
    bad: u32,
    tried: u32,
}

/// The attempts of a cause, by the good ones since the last bad one.
#[derive(Debug)]
pub struct Over {
    by_good: Vec<SameSums>,
    /// Number of nodes without a bad attempt, by their attempts.
    clean: Vec<u32>,
    nodes: u32,
    attempts: u32,
    seconds: f64,
}

/// Since when a cause is calm, and since when it is over, as seconds before the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ages {
    /// Nearly all nodes have had good attempts alone since then.
    pub calm: Option<f64>,
    /// These are too many for the former rate.
    pub over: Option<f64>,
}

impl Default for Over {
    fn default() -> Self {
        let (by_good, clean) = (vec![SameSums::default(); COUNT_MAX + 1], vec![0; COUNT_MAX + 1]);
        Self { by_good, clean, nodes: 0, attempts: 0, seconds: 0.0 }
    }
}

impl Over {
    /// Adds a node of the cause, whose counters cover this time.
    pub fn add(&mut self, node: &NodeAttempts, seconds: f64) {
        self.attempts = self.attempts.saturating_add(node.tried);
        self.seconds += window_seconds(seconds);
        let Some(bad) = node.bad.filter(|_| node.hit > 0) else {
            self.clean[(node.tried as usize).min(COUNT_MAX)] += 1;
            return;
        };
        self.nodes += 1;
        let same = &mut self.by_good[usize::from(bad.good_in_row)];
        same.nodes += 1;
        same.bad += node.hit;
        same.tried += node.tried;
    }

    /// Returns since when the cause is calm and over.
    pub fn ages(&self) -> Ages {
        let per_attempt = self.seconds / f64::from(self.attempts.max(1));
        let mut quiet = SameSums::default();
        let (mut best, mut ages) = (NATS, Ages::default());
        for (good, same) in self.by_good.iter().enumerate().skip(1).rev() {
            quiet.nodes += same.nodes;
            quiet.bad += same.bad;
            quiet.tried += same.tried;
            let strays = self.nodes - quiet.nodes;
            if quiet.nodes == 0 || strays * STRAY_ONE_OF > self.nodes {
                continue;
            }
            let age = good as f64 * per_attempt;
            ages.calm = ages.calm.or(Some(age));
            let nats = self.nats(good, &quiet, strays);
            if nats >= best && age >= SECONDS_MIN {
                (best, ages.over) = (nats, Some(age));
            }
        }
        ages
    }

    /// Returns the nats of this many good attempts of all nodes but the strays.
    fn nats(&self, good: usize, quiet: &SameSums, strays: u32) -> f64 {
        let (mut since, mut before) = (good as f64 * f64::from(quiet.nodes), f64::from(quiet.tried));
        before -= since;
        for (tried, nodes) in self.clean.iter().enumerate().filter(|(_, nodes)| **nodes > 0) {
            since += tried.min(good) as f64 * f64::from(*nodes);
            before += tried.saturating_sub(good) as f64 * f64::from(*nodes);
        }
        let bad = f64::from(quiet.bad);
        // The last attempt before is always a bad one.
        let rate = ((bad - 0.5) / before.max(bad)).clamp(0.0, RATE_MAX);
        let choices = match f64::from(strays) {
            0.0 => 0.0,
            strays => strays * (1.0 + (f64::from(self.nodes) / strays).ln()),
        };
        since * -(1.0 - rate).ln() - choices
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_canary_model::check::Check;

    fn ages(nodes: &[(u32, u32, u32)]) -> Ages {
        let mut over = Over::default();
        for (place, (tried, failed, good_in_row)) in (0_u16..).zip(nodes) {
            let check = Check {
                name: "dns".into(),
                tried: *tried,
                failed: *failed,
                good_in_row: *good_in_row,
                ..Check::default()
            };
            let mut matrix = crate::matrix::Matrix::new(0);
            matrix.set_checks(&["dns".into()]);
            let source = serde_json::from_str(r#"{"node":"a","zone":"z"}"#).expect("a source");
            matrix.begin_row(&source, 0);
            assert!(matrix.check(&check));
            matrix.end_row();
            matrix.finish();
            let (_, bad) = matrix.attempts(0).next().expect("attempts");
            over.add(&NodeAttempts { node: place, zone: 0, tried: *tried, hit: *failed, failed_in_row: 0, bad }, 60.0);
        }
        over.ages()
    }

    #[test]
    fn good_attempts_end_a_cause_once_they_are_too_many_for_its_rate() {
        let is_over = |nodes: &[(u32, u32, u32)]| ages(nodes).over.is_some();
        assert!(!is_over(&[(12, 12, 0)]) && !is_over(&[(12, 11, 1)]) && !is_over(&[(12, 10, 2)]));
        assert!(is_over(&[(12, 9, 3)]));
        assert!(!is_over(&[(12, 2, 8)]), "two of four and then eight may be chance");
        assert!(!is_over(&[(12, 6, 1); 40]) || is_over(&[(12, 6, 2); 40]));
        assert!(is_over(&[(12, 4, 4); 4]) && !is_over(&[(12, 6, 1); 4]));
        assert_eq!(ages(&[(12, 9, 3)]).over, Some(15.0), "three of twelve in a minute");
        // One of ten is bad again.
        assert!(is_over(&[vec![(12, 8, 4); 9], vec![(12, 9, 0)]].concat()));
        assert!(!is_over(&[vec![(12, 8, 4); 8], vec![(12, 9, 0); 2]].concat()));
        assert_eq!(ages(&[(12, 0, 0); 4]), Ages::default());
    }
}
