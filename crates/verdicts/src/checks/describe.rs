//! Makes verdicts of the causes of a check: their subjects and figures.

use kube_canary_model::check::CheckFailure;
use kube_canary_model::method::Family;
use kube_canary_model::report::Network;
use kube_canary_model::verdict::{CheckCause, Confidence, Figure, Kind, Severity, Verdict};

use super::evidence::{BadOutcome, NodeAttempts, Scope};
use super::over::Over;
use super::search::{CheckFinding, CheckPart};
use crate::CERTAIN_NATS;
use crate::subject;

/// The subject of a verdict over a target, in place of a node.
const ALL_NODES: &str = "*";
/// What fails at this rate, or at present for this share of the nodes, is critical. One of two
/// backends that is dead makes half of the attempts fail, give or take.
const CRITICAL_RATE: f64 = 0.4;
/// The last attempts of a node that failed in a row, from which on it is critical.
const CRITICAL_IN_ROW: u32 = 2;
/// A family alone is hit if this share of the nodes that are hit say so.
const FAMILY_SHARE: f64 = 0.9;

/// The nodes of which one family alone is hit, and their attempts over it.
#[derive(Clone, Copy, Default)]
struct FamilyAttempts {
    nodes: u32,
    tried: u32,
    failed: u32,
    slow: u32,
}

/// What the nodes of a cause report.
#[derive(Default)]
struct CheckDetail {
    nodes: u32,
    hit: u32,
    tried: u32,
    failed: u32,
    slow: u32,
    /// Nodes whose last attempts failed.
    failing_now: u32,
    reasons: [u32; CheckFailure::ALL.len()],
    families: [FamilyAttempts; Family::ALL.len()],
    servers: Vec<[u8; 2]>,
    since: Vec<i16>,
    answer_seconds: Vec<f32>,
    slow_from_seconds: Vec<f32>,
    over: Over,
}

impl CheckDetail {
    fn add(&mut self, node: &NodeAttempts, seconds: f64) {
        self.nodes += 1;
        self.tried = self.tried.saturating_add(node.tried);
        self.over.add(node, seconds);
        let Some(bad) = node.bad else { return };
        self.failed = self.failed.saturating_add(bad.failed.into());
        self.slow = self.slow.saturating_add(bad.slow.into());
        if node.hit == 0 {
            return;
        }
        self.hit += 1;
        self.failing_now += u32::from(node.failed_in_row >= CRITICAL_IN_ROW.min(node.hit));
        if let Some(reason) = bad.reason {
            self.reasons[reason as usize] += u32::from(bad.failed);
        }
        if let Some(family) = bad.family {
            let of = &mut self.families[family as usize];
            of.nodes += 1;
            of.tried = of.tried.saturating_add(bad.family_tried.into());
            of.failed = of.failed.saturating_add(bad.failed.into());
            of.slow = of.slow.saturating_add(bad.slow.into());
        }
        self.servers.push(bad.servers());
        self.since.extend(bad.since());
        let [answer, slow_from] = bad.times();
        self.answer_seconds.extend(answer);
        self.slow_from_seconds.extend(slow_from);
    }

    /// Returns the family that alone is hit, and the attempts over it.
    fn family(&self) -> Option<(Family, FamilyAttempts)> {
        let is_alone = |(_, of): &(Family, FamilyAttempts)| f64::from(of.nodes) >= f64::from(self.hit) * FAMILY_SHARE;
        Family::ALL.into_iter().zip(self.families).filter(|_| self.hit > 0).find(is_alone)
    }

    /// The severity is that of the alert. So what fails at present counts from the first attempts
    /// on, and not only once it fills the recent windows.
    fn severity(&self) -> Severity {
        let share = |part: u32, whole: u32| f64::from(part) / f64::from(whole.max(1));
        let is_grave = share(self.failed, self.tried) >= CRITICAL_RATE
            || share(self.failing_now, self.nodes) >= CRITICAL_RATE && self.failing_now > 0;
        if is_grave { Severity::Critical } else { Severity::Warning }
    }
}

/// Returns the middle one, the lower of two.
fn middle<T: Copy>(mut values: Vec<T>, compare: impl FnMut(&T, &T) -> std::cmp::Ordering) -> Option<T> {
    values.sort_unstable_by(compare);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// Returns the verdicts over these causes.
pub fn verdicts(scope: &Scope<'_>, found: &[CheckFinding]) -> Vec<Verdict> {
    let describe = |finding: &CheckFinding| {
        // The figures of a target are without what stands out from it.
        let is_apart = |node: &NodeAttempts| {
            let mut others = found.iter().filter(|other| other.part != CheckPart::Target);
            finding.part == CheckPart::Target && others.any(|other| other.part.covers(node.node, node.zone))
        };
        let mut detail = CheckDetail::default();
        for node in scope.nodes().filter(|node| finding.part.covers(node.node, node.zone) && !is_apart(node)) {
            detail.add(&node, scope.seconds(node.node));
        }
        verdict(scope, finding, detail)
    };
    found.iter().map(describe).collect()
}

fn verdict(scope: &Scope<'_>, finding: &CheckFinding, detail: CheckDetail) -> Verdict {
    let matrix = scope.matrix;
    let who = match finding.part {
        CheckPart::Target => ALL_NODES,
        CheckPart::Zone(zone) => matrix.zone_name(zone),
        CheckPart::Node(node) => matrix.name(node),
    };
    let name = matrix.check_names().get(usize::from(scope.check)).map_or("", |name| &**name);
    let mut verdict = Verdict::new(Kind::Check, subject::from_ends(who, name), Network::Pod);
    let is_failing = scope.outcome == BadOutcome::Failed;
    let failure = CheckFailure::most_frequent(&detail.reasons).filter(|_| is_failing);
    verdict.check = Some(CheckCause { kind: scope.kind, failure });
    verdict.weight = finding.score;
    let family = detail.family();
    verdict.family = family.map(|(family, _)| family);
    if is_failing {
        verdict.severity = detail.severity();
        let is_certain = finding.score >= CERTAIN_NATS;
        verdict.confidence = if is_certain { Confidence::Certain } else { Confidence::Likely };
    }
    set_times(&mut verdict, scope, &detail);
    let figures = &mut verdict.figures;
    // Those over the other family say nothing of this one.
    let all = FamilyAttempts { nodes: detail.nodes, tried: detail.tried, failed: detail.failed, slow: detail.slow };
    let FamilyAttempts { tried, failed, slow, .. } = family.map_or(all, |(_, of)| of);
    figures.set(Figure::Attempts, tried.into());
    figures.set(Figure::CheckingNodes, detail.nodes.into());
    figures.set(Figure::CheckingNodesHit, detail.hit.into());
    if is_failing {
        figures.set(Figure::FailedAttempts, failed.into());
    }
    if slow > 0 {
        figures.set(Figure::SlowAttempts, slow.into());
    }
    if matches!(finding.part, CheckPart::Zone(_)) {
        figures.set(Figure::IsZone, 1.0);
    }
    if let Some([servers, failing]) = middle(detail.servers, |a, b| a[1].cmp(&b[1]).then(a[0].cmp(&b[0]))) {
        figures.set(Figure::Servers, servers.into());
        figures.set(Figure::ServersFailing, failing.into());
    }
    for (figure, times) in
        [(Figure::AnswerSeconds, detail.answer_seconds), (Figure::SlowFromSeconds, detail.slow_from_seconds)]
    {
        if let Some(seconds) = middle(times, f32::total_cmp) {
            figures.set(figure, seconds.into());
        }
    }
    verdict
}

/// Sets when it began, since when it is calm, and when it ended.
fn set_times(verdict: &mut Verdict, scope: &Scope<'_>, detail: &CheckDetail) {
    let (_, last_read) = scope.matrix.reads();
    let since = middle(detail.since.clone(), i16::cmp);
    #[expect(clippy::cast_possible_truncation, reason = "at most 255 minutes")]
    let before = |age: f64| scope.matrix.moment(last_read.saturating_sub(age as i16));
    let ages = detail.over.ages();
    verdict.since_unix_seconds = since.map(|since| scope.matrix.moment(since));
    verdict.calm_since_unix_seconds = ages.calm.map(before);
    let begun = verdict.since_unix_seconds.unwrap_or(0);
    verdict.ended_unix_seconds = ages.over.map(|age| before(age).max(begun));
}
