//! Failure domains as causes: like zones, but each is compared with all nodes outside it.
//!
//! Two sums per domain are enough: its links to the rest, and those inside it. Domains that are a
//! node, a zone or the whole mesh are left out (`matrix/domains.rs`).

use super::candidates::{Candidates, add, most_pairs};
use super::causes::{Cause, DomainExtent, Finding};
use super::pairs::{NetworkScope, Pair};
use super::score::LayerSums;
use super::subject::is_same_finding;
use crate::domains::DOMAIN_NONE;
use crate::matrix::Layer;
use kube_canary_model::verdict::{Kind, Verdict};

/// The sums of a domain.
#[derive(Clone, Copy, Debug, Default)]
pub struct DomainSums {
    /// Its links to all other nodes.
    pub outside: LayerSums,
    /// Its links between its own nodes.
    pub inside: LayerSums,
}

/// Calls `change` with the sums to which a pair belongs. `sums` is empty if there are no domains.
pub fn change_pair_sums(
    sums: &mut [DomainSums],
    scope: &NetworkScope<'_>,
    pair: &Pair,
    change: impl Fn(&mut LayerSums),
) {
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
fn known(sums: &[DomainSums]) -> impl Iterator<Item = (u8, &DomainSums)> {
    let is_left = |sums: &DomainSums| most_pairs(&sums.outside) + most_pairs(&sums.inside) > 0;
    (0..=u8::MAX).zip(sums).filter(move |(number, sums)| *number != DOMAIN_NONE && is_left(sums))
}

/// Returns the number of candidates: each domain with its outside links, its inside
/// links, and both.
pub fn candidate_count(sums: &[DomainSums]) -> usize {
    3 * known(sums).count()
}

/// Returns the domains that are worth their cost.
pub fn candidates<'a>(sums: &'a [DomainSums], of: &'a Candidates<'_>) -> impl Iterator<Item = Finding> + 'a {
    known(sums).flat_map(move |(number, sums)| {
        // Links on a bad path each lose at their own rate, too. By chance, some domain has most of
        // its few links on such a path. So beside bad paths, the links of a domain must lose alike.
        let hit = |mut sums: LayerSums| {
            Layer::in_set(of.shared.paths()).for_each(|layer| sums[layer as usize].hit = 0);
            sums
        };
        let (outside, inside) = (hit(sums.outside), hit(sums.inside));
        let mut both = outside;
        add(&mut both, &inside);
        let candidate = |(extent, sums): (DomainExtent, LayerSums)| {
            let cause = Cause::Domain(number, extent);
            let finding = of.wide(cause, &sums)?;
            // If outside and inside links lose at different rates, they are two causes.
            let worth = |sums: &LayerSums| of.worth(sums, &finding, of.search.costs.cost(cause));
            let below = if extent == DomainExtent::Both { worth(&outside) + worth(&inside) } else { 0.0 };
            (of.are_some(&sums, &finding) && finding.score > below).then_some(finding)
        };
        let found = [(DomainExtent::Outside, outside), (DomainExtent::Inside, inside), (DomainExtent::Both, both)]
            .map(candidate);
        found.into_iter().flatten()
    })
}

/// Joins the verdicts over one zone or domain that loses at one rate to the rest and at another
/// inside: it is one cause with one id. It holds while either part holds, and the part that holds
/// gives its words.
pub fn join_extents(verdicts: &mut Vec<Verdict>) {
    let mut joined: Vec<Verdict> = Vec::with_capacity(verdicts.len());
    for mut verdict in verdicts.drain(..) {
        let is_same = |other: &&mut Verdict| {
            matches!(verdict.kind, Kind::Zone | Kind::Domain)
                && other.is_loss() == verdict.is_loss()
                && is_same_finding(other, &verdict)
        };
        let Some(first) = joined.iter_mut().find(is_same) else {
            joined.push(verdict);
            continue;
        };
        if !first.holds() && verdict.holds() {
            std::mem::swap(first, &mut verdict);
        }
        // A part that is over affects no user.
        if first.holds() == verdict.holds() {
            first.severity = first.severity.max(verdict.severity);
        }
        first.figures.complete(&verdict.figures);
        first.weight = first.weight.max(verdict.weight);
        first.since_unix_seconds = first.since_unix_seconds.into_iter().chain(verdict.since_unix_seconds).min();
        let later = |one: Option<u64>, other: Option<u64>| one.zip(other).map(|(one, other)| one.max(other));
        first.ended_unix_seconds = later(first.ended_unix_seconds, verdict.ended_unix_seconds);
        first.calm_since_unix_seconds = later(first.calm_since_unix_seconds, verdict.calm_since_unix_seconds);
    }
    *verdicts = joined;
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_canary_model::verdict::Severity;
    use kube_canary_model::verdict::{Figure, Figures};

    #[test]
    fn joined_extents_hold_while_either_part_holds() {
        let part = |severity, (since, calm, ended): (u64, Option<u64>, Option<u64>)| {
            let text = r#"{"kind":"zone","subject":"a","direction":"both","network":"pod","evidence":"","since_unix_seconds":1}"#;
            Verdict {
                severity,
                since_unix_seconds: Some(since),
                calm_since_unix_seconds: calm,
                ended_unix_seconds: ended,
                figures: Figures::default().with([(Figure::Lost, since as f64)]),
                ..serde_json::from_str(text).expect("a verdict")
            }
        };
        let joined = |parts: [Verdict; 2]| {
            let mut verdicts = parts.to_vec();
            join_extents(&mut verdicts);
            assert_eq!((verdicts.len(), verdicts[0].since_unix_seconds), (1, Some(5)));
            let Verdict { severity, calm_since_unix_seconds, ended_unix_seconds, figures, .. } =
                verdicts.swap_remove(0);
            (ended_unix_seconds, calm_since_unix_seconds, severity, figures.count(Figure::Lost))
        };
        let over = part(Severity::Critical, (5, Some(20), Some(20)));
        let holds = part(Severity::Warning, (7, None, None));
        let expected = (None, None, Severity::Warning, 7);
        assert_eq!(joined([over.clone(), holds.clone()]), expected);
        assert_eq!(joined([holds.clone(), over.clone()]), expected);
        let later = part(Severity::Warning, (7, Some(31), Some(30)));
        for parts in [[over.clone(), later.clone()], [later, over]] {
            let (ended, calm, severity, _) = joined(parts);
            assert_eq!((ended, calm, severity), (Some(30), Some(31), Severity::Critical));
        }
        let both = joined([part(Severity::Critical, (5, None, None)), holds]);
        assert_eq!((both.0, both.2), (None, Severity::Critical));
    }
}
