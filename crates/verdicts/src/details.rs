//! The figures of each cause, for its sentence. They are summed up in one walk over pairs and one
//! over cells.

use super::causes::{Cause, Finding, Findings};
use super::pairs::{NetworkScope, Pair, sum_of_layers};
use super::quiet::Quiet;
use super::tally::Tally;
use crate::matrix::{Cell, Layer};
use crate::slices::Slice;

/// Largest number of moments kept per cause.
const MOMENTS_MAX: usize = 128;
/// Below this, the recent window is nearly all of the time since the begin.
const AFTER_BEGIN_MIN: f64 = 1.25;
/// The loss since the begin is known from this many probes on.
const YOUNG_PROBES_MIN: f64 = 5.0;

/// The figures of one cause.
#[derive(Debug, Default)]
pub struct Detail {
    /// All probes over its pairs.
    pub both: Tally,
    /// Number of pairs, and how many of them lose.
    pub pairs: [u32; 2],
    /// What other nodes measured of a node.
    pub to: Tally,
    /// Number of nodes that measured it, and how many of them lose.
    pub sources: [u32; 2],
    /// What the node itself measured.
    pub by: Tally,
    /// Number of nodes that it measured, and to how many of them it loses.
    pub targets: [u32; 2],
    /// The pair, if the cause is a link.
    pub pair: Option<Pair>,
    /// All probes over its pairs by IPv4 and by IPv6.
    pub by_family: [Tally; 2],
    /// What each layer lost over the pairs that no other part of the mesh is a cause for, whether
    /// it is touched or not. A pair may be measured by some layers only.
    pub by_layer: [Tally; Layer::ALL.len()],
    since: Moments,
    young: Young,
    quiet: Quiet,
}

impl Detail {
    /// Returns how many times the loss of the recent window is lost since the losses began. `None`
    /// if they began before that window, or if too few probes tell.
    pub fn after_begin(&self) -> Option<f64> {
        let times = self.young.rate()? / self.both.rate();
        (times > AFTER_BEGIN_MIN).then_some(times)
    }

    /// Returns when the losses ended, in seconds after the matrix's epoch. `None` if they go on, or
    /// if that is not certain.
    pub fn ended(&self) -> Option<i16> {
        self.quiet.begin()
    }

    /// Returns since when nearly all its cells have lost nothing, in seconds after the matrix's
    /// epoch. `None` if they lose now.
    pub fn calm_since(&self) -> Option<i16> {
        self.quiet.calm_since()
    }

    /// Returns the median of when its cells began to lose, in seconds after the matrix's epoch.
    pub fn since(&self) -> Option<i16> {
        let mut moments = self.since.kept.clone();
        moments.sort_unstable();
        moments.get(moments.len().saturating_sub(1) / 2).copied()
    }
}

/// What cells have lost that began to lose within their window, after the loss that was the first.
#[derive(Debug, Default)]
struct Young {
    probes: f64,
    lost: u32,
    /// Losses of the other cells.
    lost_of_old: u32,
}

impl Young {
    /// Adds a cell that loses. Its probes cover `seconds`.
    fn add(&mut self, cell: Cell, read: i16, seconds: f64) {
        let age = cell.since().map(|since| f64::from(read) - f64::from(since));
        let Some(age) = age.filter(|age| (0.0..seconds).contains(age)) else {
            return self.lost_of_old += cell.lost();
        };
        self.probes += (f64::from(cell.probes()) * age / seconds - 1.0).max(0.0);
        self.lost += cell.lost().saturating_sub(1);
    }

    /// Returns the loss since the begin. `None` if most losses are older, or if it is not known.
    fn rate(&self) -> Option<f64> {
        let is_known = self.probes >= YOUNG_PROBES_MIN && self.lost > self.lost_of_old;
        is_known.then(|| (f64::from(self.lost) / self.probes).min(1.0))
    }
}

/// A regular sample of moments: every second, fourth, eighth …, as their number grows.
#[derive(Debug)]
struct Moments {
    kept: Vec<i16>,
    step: usize,
    seen: usize,
}

impl Default for Moments {
    fn default() -> Self {
        Self { kept: Vec::new(), step: 1, seen: 0 }
    }
}

impl Moments {
    fn add(&mut self, moment: i16) {
        if self.seen.is_multiple_of(self.step) {
            if self.kept.len() == MOMENTS_MAX {
                let mut index = 0;
                self.kept.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.step *= 2;
            }
            if self.seen.is_multiple_of(self.step) {
                self.kept.push(moment);
            }
        }
        self.seen += 1;
    }
}

/// Returns the figures of all causes, in their order.
pub async fn collect(scope: &NetworkScope<'_>, findings: &Findings) -> Vec<Detail> {
    let (first_read, last_read) = scope.matrix.reads();
    let detail = || Detail { quiet: Quiet::new(first_read, last_read), ..Detail::default() };
    let mut details: Vec<Detail> = findings.found.iter().map(|_| detail()).collect();
    // Most meshes measure only one network.
    if !scope.is_measured() {
        return details;
    }
    let count = |[all, losing]: &mut [u32; 2], tally: Tally| {
        *all += u32::from(tally.probes > 0);
        *losing += u32::from(tally.lost > 0);
    };
    scope
        .each_pair_by_layer(|pairs| {
            let nodes = (pairs[0].a, pairs[0].b);
            let is_one_cause = |cause: Cause| counted(findings, scope, nodes).all(|(_, other)| other.cause == cause);
            for (index, finding) in counted(findings, scope, nodes) {
                let detail = &mut details[index];
                if is_one_cause(finding.cause) {
                    for pair in pairs {
                        let sum = &mut detail.by_layer[pair.layer() as usize];
                        *sum = sum.plus(pair.both());
                    }
                }
                let Some(pair) = &sum_of_layers(pairs, finding.layers) else { continue };
                detail.both = detail.both.plus(pair.both());
                for (sum, tally) in detail.by_family.iter_mut().zip(pair.by_family()) {
                    *sum = sum.plus(tally);
                }
                for tally in [pair.there, pair.back].iter().filter(|tally| tally.lost == 0) {
                    detail.quiet.add_others(tally.probes);
                }
                count(&mut detail.pairs, pair.both());
                match finding.cause {
                    Cause::Node(node) => {
                        let (to, by) = (pair.measured_by(pair.other(node)), pair.measured_by(node));
                        (detail.to, detail.by) = (detail.to.plus(to), detail.by.plus(by));
                        count(&mut detail.sources, to);
                        count(&mut detail.targets, by);
                    }
                    Cause::Link(..) => detail.pair = Some(*pair),
                    _ => {}
                }
            }
        })
        .await;
    let mut slice = Slice::default();
    for node in scope.matrix.numbers() {
        slice.add(scope.cells(node).len()).await;
        let (read, seconds) =
            scope.matrix.row(node).map(|row| (row.read(), row.facts.cells_seconds)).unwrap_or_default();
        for cell in scope.cells(node).iter().filter(|cell| cell.lost() > 0 && scope.counts(node, **cell)) {
            let last_losses = scope.matrix.last_losses(node, *cell);
            let pair = (node.min(cell.peer()), node.max(cell.peer()));
            let its = counted(findings, scope, pair).filter(|(_, finding)| finding.has(cell.layer()));
            for (index, finding) in its {
                cell.since().into_iter().for_each(|since| details[index].since.add(since));
                if cell.layer() != Layer::Tcp || finding.layers & scope.layers == Layer::Tcp.bit() {
                    details[index].quiet.add(*cell, last_losses, read);
                    details[index].young.add(*cell, read, seconds.into());
                }
            }
        }
    }
    details
}

/// Returns the causes whose figures include this pair. If a cause touches all links, its figures
/// are those of links that no other cause touches.
pub fn counted<'a>(
    findings: &'a Findings,
    scope: &'a NetworkScope<'_>,
    pair: (u16, u16),
) -> impl Iterator<Item = (usize, &'a Finding)> {
    let is_of_all = |finding: &Finding| matches!(finding.cause, Cause::Mesh | Cause::Paths);
    let is_explained = findings.touching(scope, pair).any(|(_, finding)| !is_of_all(finding));
    findings.touching(scope, pair).filter(move |(_, finding)| !is_explained || !is_of_all(finding))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_many_moments_is_that_of_an_even_choice() {
        let mut detail = Detail::default();
        assert_eq!(detail.since(), None);
        (0..10_000).for_each(|moment| detail.since.add(moment));
        assert!(detail.since.kept.len() <= MOMENTS_MAX);
        let median = detail.since().expect("a moment");
        assert!((4_800..=5_200).contains(&median), "{median}");
    }
}
