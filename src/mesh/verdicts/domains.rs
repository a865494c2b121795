//! Failure domains as causes: like zones, but each is compared with all nodes outside it.
//!
//! Two sums per domain are enough: its links to the rest, and those inside it. Domains that are a
//! node, a zone or the whole mesh are left out (`matrix/domains.rs`).

use super::causes::{Cause, Extent, Finding};
use super::pairs::{Pair, Scope};
use super::score::Sum;
use super::search::{Search, wide};
use super::shared::{Hypothesis, Shared};
use super::{Kind, Verdict};
use crate::mesh::domains::DOMAIN_NONE;

/// The sums of a domain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    /// Its links to all other nodes.
    pub outside: Sum,
    /// Its links between its own nodes.
    pub inside: Sum,
}

/// Calls `change` with the sums to which a pair belongs. `sums` is empty if there are no domains.
pub fn of_pair(sums: &mut [Sums], scope: &Scope<'_>, pair: &Pair, change: impl Fn(&mut Sum)) {
    if sums.is_empty() {
        return;
    }
    let (a, b) = (scope.matrix.domain(pair.a), scope.matrix.domain(pair.b));
    if a == b {
        change(&mut sums[usize::from(a)].inside);
    } else {
        change(&mut sums[usize::from(a)].outside);
        change(&mut sums[usize::from(b)].outside);
    }
}

/// Returns the domains that have links left to explain, with their numbers.
fn known(sums: &[Sums]) -> impl Iterator<Item = (u8, &Sums)> {
    let is_left = |sums: &Sums| sums.outside.pairs + sums.inside.pairs > 0;
    (0..=u8::MAX).zip(sums).filter(move |(number, sums)| *number != DOMAIN_NONE && is_left(sums))
}

/// Returns the number of candidates: each domain with its outside links, its inside
/// links, and both.
pub fn candidate_count(sums: &[Sums]) -> usize {
    3 * known(sums).count()
}

/// Returns the domains that are worth their cost.
pub fn candidates<'a>(
    search: &'a Search<'_, '_>,
    sums: &'a [Sums],
    shared: Shared,
) -> impl Iterator<Item = Finding> + 'a {
    known(sums).flat_map(move |(number, sums)| {
        // Links on a bad path each lose at their own rate, too. By chance, some domain has most of
        // its few links on such a path. So beside bad paths, the links of a domain must lose alike.
        let hit = |sum: Sum| Sum { hit: if shared.of == Hypothesis::Paths { 0 } else { sum.hit }, ..sum };
        let (outside, inside) = (hit(sums.outside), hit(sums.inside));
        let mut both = outside;
        both.add(&inside);
        let candidate = |(extent, sum): (Extent, Sum)| {
            let cause = Cause::Domain(number, extent);
            let finding = wide(search, shared, cause, &sum)?;
            // If outside and inside links lose at different rates, they are two causes.
            let worth = |sum: &Sum| (sum.worth(shared).0 - search.costs.of(cause)).max(0.0);
            let below = if extent == Extent::Both { worth(&outside) + worth(&inside) } else { 0.0 };
            // A cause that touches all pairs is the mesh.
            let is_some = sum.pairs >= 2 && sum.pairs < search.pairs;
            (is_some && finding.score > below).then_some(finding)
        };
        let found = [(Extent::Outside, outside), (Extent::Inside, inside), (Extent::Both, both)].map(candidate);
        found.into_iter().flatten()
    })
}

/// Joins the verdicts over one zone or domain that loses at one rate to the rest and at another
/// inside: it is one cause with one id.
pub fn join_extents(verdicts: &mut Vec<Verdict>) {
    let mut joined: Vec<Verdict> = Vec::with_capacity(verdicts.len());
    for verdict in verdicts.drain(..) {
        let is_same = |other: &&mut Verdict| {
            matches!(verdict.kind, Kind::Zone | Kind::Domain)
                && (other.kind, &other.subject, other.network, other.protocol)
                    == (verdict.kind, &verdict.subject, verdict.network, verdict.protocol)
        };
        let Some(first) = joined.iter_mut().find(is_same) else {
            joined.push(verdict);
            continue;
        };
        first.evidence = format!("{}; {}", first.evidence, verdict.evidence);
        first.severity = first.severity.max(verdict.severity);
        first.weight = first.weight.max(verdict.weight);
        let moments = first.since_unix_seconds.into_iter().chain(verdict.since_unix_seconds);
        first.since_unix_seconds = moments.min();
    }
    *verdicts = joined;
}
