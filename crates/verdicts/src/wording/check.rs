//! Makes sentences of a verdict over a check. The name of the check is in the subject, and that is
//! a name of the judges' own lists.

use std::borrow::Cow;
use std::fmt::Write as _;

use kube_canary_model::check::{CheckFailure, CheckKind};
use kube_canary_model::method::Family;
use kube_canary_model::verdict::{Figure, Verdict};

use super::words::{Of, time, with_noun};

/// From this share of attempts on, all fail.
const ALL: f64 = 0.9;
/// A share of attempts in between, as of one of several backends or paths.
const PARTIAL: std::ops::RangeInclusive<f64> = 0.04..=0.75;

/// Whose attempts a verdict is about.
enum Who {
    AllNodes,
    /// The zone with its noun, or the node.
    One(String),
}

/// Returns whose attempts a verdict is about, and the name of the check, with the family if one
/// alone is hit.
fn parts(verdict: &Verdict) -> (Who, Cow<'_, str>) {
    let (who, check) = match verdict.checked() {
        Some(("*", check)) => (Who::AllNodes, check),
        Some((zone, check)) if Of(verdict).has(Figure::IsZone) => (Who::One(with_noun("zone", zone)), check),
        Some((node, check)) => (Who::One(node.to_owned()), check),
        None => (Who::AllNodes, verdict.subject.as_str()),
    };
    let over = |family: Family| format!("{check} over {}", family.name()).into();
    (who, verdict.family.map_or(Cow::Borrowed(check), over))
}

fn failure(verdict: &Verdict) -> Option<CheckFailure> {
    verdict.check.and_then(|check| check.failure)
}

fn kind(verdict: &Verdict) -> CheckKind {
    verdict.check.map_or(CheckKind::Other, |check| check.kind)
}

/// Whether nothing comes back from the target, so that the way to it may be the reason.
const fn is_way_to_target(failure: Option<CheckFailure>) -> bool {
    matches!(
        failure,
        Some(
            CheckFailure::Timeout
                | CheckFailure::Refused
                | CheckFailure::NoRoute
                | CheckFailure::NotSent
                | CheckFailure::Closed
        )
    )
}

/// Returns the finding and its place, as a title.
pub fn title(verdict: &Verdict) -> String {
    let rate = verdict.loss_ratio().unwrap_or(0.0);
    match parts(verdict) {
        (Who::AllNodes, check) if verdict.is_slow() => format!("{check} is slow for {}", nodes(verdict)),
        (Who::AllNodes, check) if rate >= ALL => format!("{check} fails for {}", nodes(verdict)),
        (Who::AllNodes, check) => format!("{check} fails now and then for {}", nodes(verdict)),
        (Who::One(who), check) if verdict.is_slow() => format!("{check} is slow for {who}"),
        (Who::One(who), check) if rate >= ALL && is_way_to_target(failure(verdict)) => {
            format!("{who} cannot reach {check}")
        }
        (Who::One(who), check) if rate >= ALL => format!("{check} fails for {who}"),
        (Who::One(who), check) => format!("{check} fails now and then for {who}"),
    }
}

/// Returns how many nodes are concerned: nearly all, or a number.
fn nodes(verdict: &Verdict) -> String {
    let of = Of(verdict);
    let (hit, all) = (of.count(Figure::CheckingNodesHit), of.count(Figure::CheckingNodes));
    if hit >= all || hit as f64 >= all as f64 * ALL { "all nodes".to_owned() } else { format!("{hit} of {all} nodes") }
}

/// Returns the finding with its size in a few plain words, for headlines.
pub fn summary(verdict: &Verdict) -> String {
    let rate = verdict.loss_ratio().unwrap_or(0.0);
    let why = failure(verdict).map(|failure| format!(": {}", failure.words())).unwrap_or_default();
    if verdict.is_slow() || rate >= ALL {
        return title(verdict) + &why;
    }
    let (who, check) = match parts(verdict) {
        (Who::AllNodes, check) => (nodes(verdict), check),
        (Who::One(who), check) => (who, check),
    };
    format!("{check} fails for {:.0} % of the attempts from {who}{why}", rate * 100.0)
}

/// Returns what was the matter with a check that is well again.
pub fn was_bad(verdict: &Verdict) -> String {
    let was = if verdict.is_slow() { "was slow" } else { "failed" };
    match parts(verdict) {
        (Who::AllNodes, check) => format!("{check} {was}"),
        (Who::One(who), check) => format!("{check} {was} for {who}"),
    }
}

/// Returns one sentence with the figures.
pub fn evidence(verdict: &Verdict) -> String {
    let of = Of(verdict);
    let (tried, hit, all) =
        (of.count(Figure::Attempts), of.count(Figure::CheckingNodesHit), of.count(Figure::CheckingNodes));
    let from = match parts(verdict) {
        (Who::One(who), _) if !of.has(Figure::IsZone) => format!("from {who}"),
        _ => format!("from {hit} of {all} nodes"),
    };
    let mut text = if verdict.is_slow() {
        let slow = of.count(Figure::SlowAttempts);
        let longer = of.has(Figure::SlowFromSeconds).then(|| time(of.value(Figure::SlowFromSeconds)));
        let longer = longer.map_or_else(|| "are slow".to_owned(), |longer| format!("take longer than {longer}"));
        format!("{slow} of {tried} answers to attempts {from} {longer}")
    } else {
        let why = failure(verdict).map(|failure| format!(": {}", failure.words())).unwrap_or_default();
        let over = verdict.family.map(|family| format!(" over {}", family.name())).unwrap_or_default();
        format!("{} of {tried} attempts{over} {from} fail{why}", of.count(Figure::FailedAttempts))
    };
    if verdict.is_slow() && of.has(Figure::AnswerSeconds) {
        let _ = write!(text, "; the median answer takes {}", time(of.value(Figure::AnswerSeconds)));
    }
    text + &places(verdict)
}

/// Returns what the numbers say of where the fault is.
fn places(verdict: &Verdict) -> String {
    let of = Of(verdict);
    let share = verdict.loss_ratio().unwrap_or_else(|| of.ratio(Figure::SlowAttempts, Figure::Attempts));
    let (servers, failing) = (of.count(Figure::Servers), of.count(Figure::ServersFailing));
    if servers > 1 && failing > 0 && failing < servers {
        let fail = if failing == 1 { "fails" } else { "fail" };
        return format!("; {failing} of {servers} servers {fail}, and the others answer");
    }
    let is_of_all = matches!(parts(verdict), (Who::AllNodes, _));
    if is_of_all && PARTIAL.contains(&share) && (servers <= 1 || failing == 0) && may_have_backends(kind(verdict)) {
        return "; as with one of several backends".to_owned();
    }
    if kind(verdict) == CheckKind::Service && !verdict.is_slow() && is_way_to_target(failure(verdict)) {
        let place = if is_of_all { "on the nodes" } else { "there" };
        return format!(
            "; the agents behind it answer the probes of their peers: look at kube-proxy, or what replaces it, {place}"
        );
    }
    String::new()
}

/// Whether several backends may be behind the address of a target.
const fn may_have_backends(kind: CheckKind) -> bool {
    !matches!(kind, CheckKind::Icmp | CheckKind::Udp | CheckKind::Other)
}
