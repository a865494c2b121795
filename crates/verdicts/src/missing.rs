//! Nodes whose report is missing: whether the agent is the reason, or a fault of UDP or TCP.
//!
//! A report travels by TCP. So what drops TCP takes the reports of the nodes that it is about. If
//! the cause of that is named, a verdict over each of these agents would be about the same cause.

use super::answering::{Unheard, hears_nothing};
use super::causes::{Cause, Finding};
use super::details::Detail;
use super::loss_causes::{LossCauses, is_by_agents, only_report};
use super::pairs::NetworkScope;
use super::tally::Tally;
use super::unsent::causes::hides_report;
use super::{Kind, Verdict, describe};
use crate::matrix::{Layer, Matrix, RowPresence};
use kube_canary_model::report::Method;

/// This many sources must have begun to lose what they send to a node before its missing report
/// says nothing until the next collection. One false report hides no agent.
const FRESH_MIN: u16 = 2;

/// Whether a loss of UDP or TCP alone may be of an agent that nothing is known of, because its
/// report is missing or was not asked for.
pub fn may_be_agent_fault(causes: &LossCauses<'_>, finding: &Finding) -> bool {
    let unheard = |node: u16| causes.pods.answering.unheard(node);
    let is_unknown = |node: u16| causes.pods.matrix.row(node).is_none();
    is_by_agents(finding)
        && match finding.cause {
            Cause::Node(node) => is_unknown(node) && unheard(node) != Some(Unheard::Enough),
            Cause::Link(a, b) => [a, b].into_iter().any(|node| is_unknown(node) && unheard(node).is_none()),
            _ => false,
        }
}

/// Whether the evidence of a cause lacks the report of a node that it is about.
pub fn is_likely_at_most(matrix: &Matrix, finding: &Finding) -> bool {
    is_by_agents(finding)
        && match finding.cause {
            Cause::Node(node) => matrix.row(node).is_none(),
            Cause::Mesh => only_report(matrix).is_some(),
            _ => false,
        }
}

/// What the sources have measured of a node whose report is missing.
#[derive(Default)]
struct MissingNode {
    /// All echo requests to it.
    detail: Detail,
    /// Number of its pairs that no cause touches.
    unexplained: u32,
    /// Number of sources whose handshakes with it get no answer.
    silent: u32,
    /// How many of them are not explained by a cause with a verdict.
    silent_unexplained: u32,
    /// Whether the agent that has collected the reports is one of them.
    is_silent_here: bool,
}

/// Adds verdicts over agents whose report is missing, if the network is not the reason. `scope` is
/// that of the pods' network by ICMP.
pub fn add_missing_agents(scope: &NetworkScope<'_>, causes: &LossCauses<'_>, verdicts: &mut Vec<Verdict>) {
    let (matrix, findings) = (scope.matrix, &causes.findings);
    let is_missing = |node: &u16| {
        let member = matrix.get(*node);
        let is_fresh = matrix.fresh_sources(*node) >= FRESH_MIN;
        member.presence == RowPresence::Missing
            && !member.is_leaving()
            && !member.is_displaced
            && !findings.in_scope(scope).any(|finding| finding.cause == Cause::Node(*node))
            && !is_fresh
            && !hides_report(matrix, *node)
    };
    let missing: Vec<u16> = matrix.numbers().filter(is_missing).collect();
    if missing.is_empty() {
        return;
    }
    let mut known: Vec<MissingNode> = Vec::new();
    known.resize_with(missing.len(), Default::default);
    let collector = matrix.collector();
    for source in matrix.numbers() {
        for cells in scope.cells(source).chunk_by(|a, b| a.peer() == b.peer()) {
            let peer = cells[0].peer();
            let Ok(place) = missing.binary_search(&peer) else { continue };
            let (silence, pair) = (&mut known[place], (source.min(peer), source.max(peer)));
            // Of a cell that stands for several, the first part is that of ICMP.
            let by_icmp = || cells.iter().filter(|cell| cell.layer().method() == Method::Icmp);
            silence.detail.sources[0] += u32::from(by_icmp().next().is_some());
            for cell in by_icmp() {
                silence.detail.to = silence.detail.to.plus(Tally { probes: cell.probes(), lost: cell.lost() });
                silence.unexplained += u32::from(findings.touching(scope, pair).next().is_none());
            }
            if hears_nothing(cells) {
                silence.silent += 1;
                silence.silent_unexplained += u32::from(!is_explained(causes, pair));
                silence.is_silent_here |= collector == Some(source);
            }
        }
    }
    let mut unread = 0;
    for (node, silence) in missing.iter().zip(&known) {
        let to = silence.detail.to;
        let is_unheard = silence.is_silent_here || scope.answering.unheard(*node) == Some(Unheard::Enough);
        if silence.silent > 0 && silence.silent_unexplained == 0 && is_unheard {
            unread += 1;
        } else if to.probes == 0 || to.lost < to.probes || silence.unexplained > 0 {
            verdicts.push(describe::unreachable(matrix, *node, &silence.detail));
        }
    }
    let is_about_tcp =
        |verdict: &&mut Verdict| verdict.is_loss() && verdict.protocol.is_some_and(|methods| methods.has(Method::Tcp));
    // The verdict over a node says it of that node.
    let mut about_tcp = verdicts.iter_mut().filter(is_about_tcp);
    if unread > 0
        && let Some(verdict) = about_tcp.find(|verdict| verdict.kind != Kind::Node)
    {
        describe::with_unread(verdict, unread);
    }
}

/// Whether a cause with a verdict explains that handshakes between two nodes get no answer.
fn is_explained(causes: &LossCauses<'_>, pair: (u16, u16)) -> bool {
    let mut touching = causes.findings.touching(&causes.pods, pair);
    touching.any(|(place, finding)| {
        finding.has(Layer::Tcp) && !causes.are_flows[place] && !may_be_agent_fault(causes, finding)
    })
}
