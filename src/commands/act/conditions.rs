//! The condition of each node: when it is set and when it is taken back. No I/O, no clock.
//!
//! The traps: a fault of the mesh must never empty it, so the nodes with the condition are bounded.
//! Silence proves nothing, so no time counts in which judges are silent. What restarts in between
//! must leave nothing behind, so a node is claimed in the memory of the Lease before it is patched,
//! and what a node has is read before the first patch.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::PATCHES_PER_ROUND;
use crate::commands::doctor::act::NodeCondition;
use crate::config::NodeConditions;
use crate::limits::AGENTS_MAX;
use crate::mesh::verdicts::{Kind, Severity, Verdict};
use crate::report::Method;
use crate::verdict::Figure;

/// Nodes that are read in a round because nothing is known of them yet: one a second, so that a
/// start costs the API server little.
const READ_PER_ROUND: usize = 5;
/// Nodes with a fault that are read in a round.
const FAULTY_READ_PER_ROUND: usize = 16;
/// A node with a fault is read again after this time: it may have been cordoned.
const READ_AGAIN: Duration = Duration::from_mins(1);
/// From this loss on, a node is unreachable.
const UNREACHABLE: f64 = 0.999;

/// Why a node has the condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionReason {
    /// It loses a part of its packets.
    PacketLoss,
    /// It loses all of them.
    Unreachable,
    /// Large packets do not pass.
    MtuBlackHole,
    /// UDP alone does not pass.
    UdpBlocked,
    /// Its round trips are slow, or a check is.
    Slow,
    /// It cannot use what a check asks for, and other nodes can.
    CheckFailed,
}

impl ConditionReason {
    /// Returns the reason as the API has it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::PacketLoss => "PacketLoss",
            Self::Unreachable => "Unreachable",
            Self::MtuBlackHole => "MtuBlackHole",
            Self::UdpBlocked => "UdpBlocked",
            Self::Slow => "Slow",
            Self::CheckFailed => "CheckFailed",
        }
    }

    fn from_verdict(verdict: &Verdict) -> Self {
        let is_whole = verdict.loss_ratio().is_some_and(|ratio| ratio >= UNREACHABLE);
        let has = |method: Method| verdict.protocol.is_none_or(|methods| methods.has(method));
        match verdict.kind {
            _ if verdict.is_slow() => Self::Slow,
            Kind::Mtu => Self::MtuBlackHole,
            Kind::Check => Self::CheckFailed,
            _ if is_whole && has(Method::Udp) && has(Method::Tcp) => Self::Unreachable,
            _ if is_whole && has(Method::Udp) => Self::UdpBlocked,
            _ => Self::PacketLoss,
        }
    }
}

/// The status that a condition has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// The node has a problem.
    True,
    /// The node has no problem.
    False,
    /// Judges have been silent for too long to say.
    Unknown,
}

impl ConditionStatus {
    /// Returns the status as the API has it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Returns the reason that a condition has in the API.
pub const fn condition_reason(status: ConditionStatus, reason: Option<ConditionReason>) -> &'static str {
    match (status, reason) {
        (ConditionStatus::Unknown, _) => "JudgesSilent",
        (ConditionStatus::True, Some(reason)) => reason.label(),
        _ => "NoNetworkProblem",
    }
}

/// What the API says of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Whether it is cordoned, or about to be restarted or removed.
    pub is_planned: bool,
    /// The status of our condition. `None` if it has none.
    pub status: Option<ConditionStatus>,
}

/// A patch that gives a node's condition another status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionChange {
    /// The name of the node.
    pub node: String,
    /// The status that it gets.
    pub status: ConditionStatus,
    /// Why; `None` without a problem.
    pub reason: Option<ConditionReason>,
    /// The verdict in a sentence; empty without one.
    pub sentence: String,
    /// Since when it has that status, if it has it already. `None` if it has another one, or if
    /// that is not known.
    pub since_unix_seconds: Option<u64>,
}

/// Returns the node that a verdict is about, if it is one alone.
pub fn node_of(verdict: &Verdict) -> Option<&str> {
    match verdict.kind {
        Kind::Node | Kind::AgentStarved | Kind::AgentUnreachable | Kind::AgentSuspect => Some(&verdict.subject),
        Kind::Mtu if verdict.subject != "*" && verdict.ends().is_none() => Some(&verdict.subject),
        Kind::Check if !verdict.figures.has(Figure::IsZone) => {
            verdict.checked().map(|(source, _)| source).filter(|source| *source != "*")
        }
        _ => None,
    }
}

/// Whether a verdict makes a condition of its node: nothing about an agent alone does.
fn counts(verdict: &Verdict) -> bool {
    !verdict.kind.is_agent_fault() && node_of(verdict).is_some()
}

/// What is wrong with a node.
#[derive(Clone, Debug)]
struct Wanted {
    reason: ConditionReason,
    sentence: String,
    weight: (Severity, f64),
}

/// A node of the mesh.
#[derive(Debug, Default)]
struct ConditionedNode {
    wanted: Option<Wanted>,
    /// How long the verdict has been heard, and not heard.
    bad_for: Duration,
    good_for: Duration,
    /// Why it has the condition, or is about to have it.
    claimed: Option<ConditionReason>,
    /// Facts, and when they were read.
    facts: Option<(NodeFacts, Duration)>,
    /// What the API server last accepted.
    accepted: Option<(ConditionStatus, Option<ConditionReason>)>,
    /// When this process has given it that status.
    since_unix_seconds: Option<u64>,
}

impl ConditionedNode {
    fn is_not_false(&self) -> bool {
        let is_other = |(status, _): &(ConditionStatus, _)| *status != ConditionStatus::False;
        self.claimed.is_some() || self.accepted.as_ref().is_some_and(is_other)
    }

    fn is_planned(&self) -> bool {
        self.facts.is_some_and(|(facts, _)| facts.is_planned)
    }
}

/// The conditions of all nodes.
#[derive(Debug)]
pub struct Conditions {
    /// `None` sets no condition: nodes with a verdict are read, and no more.
    rules: Option<NodeConditions>,
    nodes: BTreeMap<String, ConditionedNode>,
    judged: usize,
    silent_for: Duration,
}

impl Conditions {
    /// Makes the conditions of the nodes that the memory has claimed.
    pub fn new(rules: Option<NodeConditions>, claimed: BTreeMap<String, ConditionReason>) -> Self {
        let node = |(name, reason)| (name, ConditionedNode { claimed: Some(reason), ..Default::default() });
        let nodes = claimed.into_iter().map(node).take(AGENTS_MAX).collect();
        Self { rules, nodes, judged: 0, silent_for: Duration::ZERO }
    }

    /// Returns the nodes that have the condition, or are about to have it, for the memory.
    pub fn claimed(&self) -> BTreeMap<String, ConditionReason> {
        self.nodes.iter().filter_map(|(name, node)| Some((name.clone(), node.claimed?))).collect()
    }

    /// Takes the names of the nodes that judges judge. Nodes that left are forgotten, unless they
    /// have the condition or a verdict.
    pub fn take_names(&mut self, names: BTreeSet<String>) {
        self.nodes.retain(|name, node| node.is_not_false() || node.wanted.is_some() || names.contains(name));
        for name in names {
            self.insert(name);
        }
    }

    fn insert(&mut self, name: String) -> Option<&mut ConditionedNode> {
        if self.nodes.len() >= AGENTS_MAX && !self.nodes.contains_key(&name) {
            return None;
        }
        Some(self.nodes.entry(name).or_default())
    }

    /// Takes the verdicts of a round, `elapsed` after the one before, of a mesh of that many nodes.
    pub fn hear<'a>(
        &mut self,
        verdicts: impl Iterator<Item = (&'a Verdict, String)>,
        judged: usize,
        elapsed: Duration,
    ) {
        (self.judged, self.silent_for) = (judged, Duration::ZERO);
        self.nodes.values_mut().for_each(|node| node.wanted = None);
        for (verdict, sentence) in verdicts.filter(|(verdict, _)| counts(verdict)) {
            let weight = (verdict.severity, verdict.loss_ratio().unwrap_or(0.0));
            let Some(node) = node_of(verdict).and_then(|name| self.insert(name.to_owned())) else { continue };
            if node.wanted.as_ref().is_none_or(|before| heavier(weight, before.weight).is_gt()) {
                node.wanted = Some(Wanted { reason: ConditionReason::from_verdict(verdict), sentence, weight });
            }
        }
        for node in self.nodes.values_mut() {
            if node.wanted.is_some() {
                (node.bad_for, node.good_for) = (node.bad_for + elapsed, Duration::ZERO);
            } else {
                (node.bad_for, node.good_for) = (Duration::ZERO, node.good_for + elapsed);
            }
        }
        match self.rules {
            Some(rules) => self.decide(rules),
            None => self.nodes.retain(|_, node| node.wanted.is_some() || node.claimed.is_some()),
        }
    }

    /// Takes a round in which judges were silent. Nothing is set or taken back.
    pub fn hear_nothing(&mut self, elapsed: Duration) {
        self.silent_for += elapsed;
    }

    /// Claims nodes whose verdict has held for long enough, the worst first, and gives up those
    /// that have been well for long enough.
    fn decide(&mut self, rules: NodeConditions) {
        for node in self.nodes.values_mut() {
            match &node.wanted {
                None if node.good_for >= rules.clear => node.claimed = None,
                Some(wanted) if node.claimed.is_some() => node.claimed = Some(wanted.reason),
                _ => {}
            }
        }
        let mut room = rules.max_nodes.count_for(self.judged).saturating_sub(self.not_false());
        let mut waiting: Vec<&mut ConditionedNode> = self.nodes.values_mut().collect();
        waiting.retain(|node| {
            // What is not known to be a node of the cluster, unplanned, gets none.
            let is_ready = node.facts.is_some() && !node.is_planned() && node.bad_for >= rules.hold;
            // A node whose condition is being taken back has its place already.
            is_ready && node.wanted.is_some() && node.claimed.is_none()
        });
        let weight =
            |node: &ConditionedNode| node.wanted.as_ref().map_or((Severity::Warning, 0.0), |wanted| wanted.weight);
        waiting.sort_by(|a, b| heavier(weight(b), weight(a)));
        for node in waiting {
            let has_place = node.is_not_false();
            if has_place || room > 0 {
                node.claimed = node.wanted.as_ref().map(|wanted| wanted.reason);
                room -= usize::from(!has_place);
            }
        }
    }

    /// Returns the number of nodes whose condition is not False, or is about to be.
    pub fn not_false(&self) -> usize {
        self.nodes.values().filter(|node| node.is_not_false()).count()
    }

    /// Returns the conditions that are not False, as the API server has accepted them.
    pub fn accepted_not_false(&self) -> impl Iterator<Item = NodeCondition> {
        self.nodes.iter().filter_map(|(name, node)| {
            let (status, reason) = node.accepted.filter(|(status, _)| *status != ConditionStatus::False)?;
            Some(NodeCondition {
                node: name.clone(),
                status: status.label().to_owned(),
                reason: condition_reason(status, reason).to_owned(),
                since_unix_seconds: node.since_unix_seconds,
            })
        })
    }

    /// Returns the number of nodes with a verdict that waits for its time or for a place.
    pub fn waiting(&self) -> usize {
        self.nodes.values().filter(|node| node.wanted.is_some() && node.claimed.is_none()).count()
    }

    /// Returns the nodes to read now: first those with a verdict, then those of which nothing is
    /// known.
    pub fn to_read(&self, now: Duration, is_refused: impl Fn(&str) -> bool) -> Vec<String> {
        let is_old = |node: &ConditionedNode| node.facts.is_none_or(|(_, at)| now.saturating_sub(at) >= READ_AGAIN);
        let is_faulty = |node: &ConditionedNode| node.wanted.is_some() || node.claimed.is_some();
        let nodes = || self.nodes.iter().filter(|(name, _)| !is_refused(name));
        let faulty = nodes().filter(|(_, node)| is_faulty(node) && is_old(node)).take(FAULTY_READ_PER_ROUND);
        let unknown = nodes().filter(|(_, node)| !is_faulty(node) && node.facts.is_none()).take(READ_PER_ROUND);
        faulty.chain(unknown).map(|(name, _)| name.clone()).collect()
    }

    /// Takes what the API says of a node. `None` if it has no such node.
    pub fn learn(&mut self, name: &str, facts: Option<NodeFacts>, now: Duration) {
        let Some(facts) = facts else {
            self.nodes.remove(name);
            return;
        };
        let Some(node) = self.nodes.get_mut(name) else { return };
        if node.facts.is_none() {
            node.accepted = facts.status.map(|status| (status, node.claimed));
            if node.claimed.is_none() && facts.status.is_some_and(|status| status != ConditionStatus::False) {
                // Left behind by a process whose memory is lost. It is taken back as any other.
                node.claimed = Some(ConditionReason::PacketLoss);
                node.accepted = facts.status.map(|status| (status, node.claimed));
            }
            if facts.status.is_none_or(|status| status == ConditionStatus::False) && node.wanted.is_none() {
                // The process ended before its patch, and the verdict has ended since.
                node.claimed = None;
            }
        }
        node.facts = Some((facts, now));
    }

    /// Returns the patches that are due. Those that set a problem come first.
    pub fn changes(&self, is_refused: impl Fn(&str) -> bool) -> Vec<ConditionChange> {
        let Some(rules) = self.rules else { return Vec::new() };
        let is_silent = self.silent_for > Duration::ZERO;
        let is_unknown = rules.unknown_after.is_some_and(|after| self.silent_for >= after);
        let mut changes: Vec<ConditionChange> = Vec::new();
        for (name, node) in self.nodes.iter().filter(|(_, node)| node.facts.is_some()) {
            let status = match node.claimed {
                Some(_) if is_unknown => ConditionStatus::Unknown,
                Some(_) => ConditionStatus::True,
                None => ConditionStatus::False,
            };
            let is_same = node.accepted == Some((status, node.claimed));
            // Nothing but Unknown is news while judges are silent.
            if is_same || is_refused(name) || is_silent && status != ConditionStatus::Unknown {
                continue;
            }
            let sentence = node.wanted.as_ref().map_or_else(String::new, |wanted| wanted.sentence.clone());
            let is_other = node.accepted.is_none_or(|(before, _)| before != status);
            let since_unix_seconds = node.since_unix_seconds.filter(|_| !is_other);
            let (node, reason) = (name.clone(), node.claimed);
            changes.push(ConditionChange { node, status, reason, sentence, since_unix_seconds });
        }
        changes.sort_by_key(|change| change.status == ConditionStatus::False);
        changes.truncate(PATCHES_PER_ROUND);
        changes
    }

    /// Takes that the API server has accepted a change.
    pub fn accepted(&mut self, change: &ConditionChange, now_unix_seconds: u64) {
        if let Some(node) = self.nodes.get_mut(&change.node) {
            if node.accepted.is_none_or(|(status, _)| status != change.status) {
                node.since_unix_seconds = Some(now_unix_seconds);
            }
            node.accepted = Some((change.status, change.reason));
        }
    }

    /// Whether a node is under planned work.
    pub fn is_planned(&self, name: &str) -> bool {
        self.nodes.get(name).is_some_and(ConditionedNode::is_planned)
    }
}

/// Compares two faults by severity, then by loss.
fn heavier(a: (Severity, f64), b: (Severity, f64)) -> Ordering {
    a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
}
