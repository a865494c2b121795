//! Scripts of rounds: what agents say goes in, and what would be done comes out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::agreement::{AgentSaid, agreement};
use super::conditions::{ConditionReason, ConditionStatus, NodeFacts};
use super::notices::{Phase, Regarding, occurrence};
use super::state::ActState;
use crate::config::{MaxNodes, NodeConditions};
use crate::mesh::verdicts::{self, Severity, Verdict};

const RULES: NodeConditions = NodeConditions {
    dry_run: false,
    hold: Duration::from_mins(1),
    clear: Duration::from_mins(2),
    max_nodes: MaxNodes::Percent(10),
    unknown_after: None,
};
const ROUND: Duration = Duration::from_secs(5);
/// Rounds within `hold` and within `clear`.
const HOLD: usize = 12;
const CLEAR: usize = 24;

fn verdict(kind: &str, subject: &str, lost: u32) -> Verdict {
    let value = serde_json::json!({"kind": kind, "subject": subject, "direction": "both", "network": "pod",
        "confidence": "certain", "severity": "critical", "figures": {"probes": 100, "lost": lost},
        "since_unix_seconds": 1_000, "judges": 3});
    let verdict: Verdict = serde_json::from_value(value).expect("a verdict");
    Verdict { id: verdicts::id(&verdict), ..verdict }
}

/// What an agent says that has found this many judges of a mesh of 40 nodes.
fn said(judges: usize, verdicts: &[Verdict]) -> AgentSaid {
    let judges: Vec<_> =
        (0..judges).map(|at| serde_json::json!({"node": format!("j{at}"), "age_seconds": 9.0})).collect();
    let body = serde_json::json!({"judges": judges, "nodes": 40, "verdicts": verdicts});
    AgentSaid::read(&serde_json::to_vec(&body).unwrap()).expect("an answer")
}

/// A process, the nodes of its cluster, and what has been done.
struct Script {
    state: ActState,
    now: Duration,
    /// The conditions that the API has.
    nodes: BTreeMap<String, NodeFacts>,
    messages: Vec<(Phase, String)>,
    /// The severities that messages and their repetitions have.
    severities: BTreeSet<Severity>,
    events: Vec<(Regarding, &'static str)>,
    /// By round, the number of nodes that are read and patched.
    requests: Vec<usize>,
    /// Whether receivers take what is sent to them.
    delivers: bool,
}

impl Script {
    fn new() -> Self {
        Self::with(Some(RULES))
    }

    fn with(rules: Option<NodeConditions>) -> Self {
        Self::of_nodes(40, rules)
    }

    fn of_nodes(count: usize, rules: Option<NodeConditions>) -> Self {
        let nodes = (0..count).map(|at| (format!("n{at}"), NodeFacts::default())).collect();
        let state = ActState::restored("", rules);
        Self {
            state,
            now: Duration::ZERO,
            nodes,
            messages: Vec::new(),
            severities: BTreeSet::new(),
            events: Vec::new(),
            requests: Vec::new(),
            delivers: true,
        }
    }

    fn rounds(&mut self, count: usize, answers: &[AgentSaid]) {
        for _ in 0..count {
            self.now += ROUND;
            match agreement(answers.to_vec()) {
                Some(agreed) => self.state.hear(&agreed, ROUND, 1_000 + self.now.as_secs()),
                None => self.state.hear_nothing(ROUND),
            }
            let (to_read, mut requests) = (self.state.conditions.to_read(self.now, |_| false), 0);
            for name in to_read {
                requests += 1;
                self.state.conditions.learn(&name, self.nodes.get(&name).copied(), self.now);
            }
            for (occurrence, note) in self.state.notices.events(self.now, |_| false) {
                self.events.push((note.regarding, note.reason));
                self.state.notices.event_accepted(&occurrence, self.now);
            }
            for notice in self.state.messages(self.now) {
                let id = occurrence(&notice.verdict);
                self.severities.insert(notice.verdict.severity);
                if notice.phase == Phase::End && self.delivers {
                    self.state.notices.delivered(&id);
                }
                if notice.phase != Phase::Still {
                    self.messages.push((notice.phase, notice.verdict.subject.clone()));
                }
            }
            for change in self.state.conditions.changes(|_| false) {
                requests += 1;
                self.nodes.get_mut(&change.node).expect("a node of the cluster").status = Some(change.status);
                self.state.conditions.accepted(&change, 1_000 + self.now.as_secs());
            }
            self.requests.push(requests);
        }
    }

    /// Three agents that say the same.
    fn agree(&mut self, count: usize, verdicts: &[Verdict]) {
        self.rounds(count, &[said(3, verdicts), said(3, verdicts), said(3, verdicts)]);
    }

    fn not_false(&self) -> Vec<&str> {
        let is_other = |facts: &NodeFacts| facts.status.is_some_and(|status| status != ConditionStatus::False);
        self.nodes.iter().filter(|(_, facts)| is_other(facts)).map(|(name, _)| name.as_str()).collect()
    }

    fn restart(&mut self, memory: &str) {
        self.state = ActState::restored(memory, Some(RULES));
    }
}

#[test]
fn a_bad_node_is_reported_at_once_and_has_the_condition_from_hold_to_clear() {
    let mut script = Script::new();
    let bad = [verdict("node", "n7", 30)];
    script.agree(1, &bad);
    assert_eq!(script.messages, [(Phase::Begin, "n7".to_owned())]);
    assert_eq!(script.events, [(Regarding::Node("n7".into()), "NetworkProblem")]);
    script.agree(HOLD - 2, &bad);
    assert!(script.not_false().is_empty());
    script.agree(1, &bad);
    assert_eq!(
        (script.not_false(), script.state.conditions.claimed()["n7"]),
        (vec!["n7"], ConditionReason::PacketLoss)
    );
    script.agree(CLEAR - 1, &[]);
    assert_eq!(script.not_false(), ["n7"]);
    script.agree(1, &[]);
    assert_eq!(script.nodes["n7"].status, Some(ConditionStatus::False));
    assert_eq!(script.messages.last(), Some(&(Phase::End, "n7".to_owned())));
    assert_eq!(script.events.last(), Some(&(Regarding::Node("n7".into()), "NetworkProblemEnded")));
    assert_eq!((script.messages.len(), script.events.len()), (2, 2));
}

#[test]
fn faults_that_are_not_of_one_node_are_reported_and_set_no_condition() {
    let no_nodes = [
        "partition n0|n2",
        "mesh *",
        "zone a",
        "zone_pair a->b",
        "paths *",
        "link n1->n2",
        "domain r",
        "mtu *",
        "mtu n1->n2",
        "check *->dns",
        "agent_suspect n1",
    ];
    for (kind, subject) in no_nodes.iter().filter_map(|text| text.split_once(' ')) {
        let mut script = Script::new();
        script.agree(4 * HOLD, &[verdict(kind, subject, 50)]);
        assert!(script.not_false().is_empty(), "{kind} {subject}");
        assert_eq!(script.messages, [(Phase::Begin, subject.to_owned())]);
        assert_eq!(script.events, [(Regarding::Mesh, "NetworkProblem")], "{kind} {subject}");
    }
}

#[test]
fn verdicts_over_one_node_have_a_reason_of_their_own() {
    for (kind, subject, lost, reason) in [
        ("node", "n1", 100, ConditionReason::Unreachable),
        ("node", "n1", 99, ConditionReason::PacketLoss),
        ("mtu", "n1", 100, ConditionReason::MtuBlackHole),
    ] {
        let mut script = Script::new();
        script.agree(HOLD, &[verdict(kind, subject, lost)]);
        assert_eq!(script.state.conditions.claimed().get("n1"), Some(&reason), "{kind}");
    }
    let figures = serde_json::json!({"attempts": 10, "failed_attempts": 9});
    let check = Verdict { figures: serde_json::from_value(figures).unwrap(), ..verdict("check", "n1->dns", 0) };
    let mut script = Script::new();
    script.agree(HOLD, &[check]);
    assert_eq!(script.state.conditions.claimed().get("n1"), Some(&ConditionReason::CheckFailed));
}

#[test]
fn one_lying_agent_neither_makes_nor_hides_nor_ends_a_verdict() {
    let (bad, lie) = ([verdict("node", "n7", 30)], [verdict("node", "n1", 100)]);
    let mut script = Script::new();
    script.rounds(2 * HOLD, &[said(3, &lie), said(3, &[]), said(3, &[])]);
    script.rounds(2 * HOLD, &[said(3, &lie), said(3, &[])]);
    assert!(script.messages.is_empty() && script.events.is_empty() && script.not_false().is_empty());
    script.rounds(HOLD, &[said(3, &lie), said(3, &bad), said(3, &bad)]);
    script.rounds(2 * CLEAR, &[said(3, &[]), said(3, &bad), said(3, &bad)]);
    assert_eq!((script.not_false(), script.messages.len()), (vec!["n7"], 1));
    // Of two answers one has it: nothing is known.
    script.rounds(2 * CLEAR, &[said(3, &[]), said(3, &bad)]);
    assert_eq!((script.not_false(), script.messages.len()), (vec!["n7"], 1));
}

#[test]
fn an_answer_with_a_false_id_or_one_verdict_twice_is_none() {
    let read = |verdicts: &[Verdict]| {
        let body = serde_json::json!({"judges": [], "nodes": 3, "verdicts": verdicts});
        AgentSaid::read(&serde_json::to_vec(&body).unwrap())
    };
    let bad = verdict("node", "n7", 30);
    assert!(read(std::slice::from_ref(&bad)).is_some());
    assert!(read(&[bad.clone(), bad.clone()]).is_none());
    assert!(read(&[Verdict { subject: "n1".into(), ..bad }]).is_none());
}

#[test]
fn what_one_judge_alone_says_is_likely_and_nothing_is_done() {
    let likely = Verdict { confidence: verdicts::Confidence::Likely, judges: Some(1), ..verdict("node", "n7", 30) };
    let mut script = Script::new();
    script.agree(4 * HOLD, &[likely]);
    assert!(script.messages.is_empty() && script.events.is_empty() && script.not_false().is_empty());
}

#[test]
fn silent_judges_set_nothing_and_take_nothing_back() {
    let bad = [verdict("node", "n7", 30)];
    let mut script = Script::new();
    script.agree(HOLD, &bad);
    // Two judges are away.
    let one = [said(1, &[]), said(1, &[]), said(1, &[])];
    script.rounds(3 * CLEAR, &one);
    assert_eq!((script.not_false(), script.messages.len()), (vec!["n7"], 1));
    assert_eq!(script.events[1..], [(Regarding::Mesh, "JudgesSilent")]);
    script.rounds(3 * CLEAR, &[]);
    assert_eq!(script.not_false(), ["n7"]);
    // The time of silence does not count towards --clear.
    script.agree(CLEAR - 1, &[]);
    assert_eq!(script.not_false(), ["n7"]);
    script.agree(1, &[]);
    assert!(script.not_false().is_empty());
    assert!(script.events.contains(&(Regarding::Mesh, "JudgesHeard")));
}

#[test]
fn silence_makes_conditions_unknown_only_if_asked_for() {
    let rules = NodeConditions { unknown_after: Some(Duration::from_mins(5)), ..RULES };
    let (bad, mut script) = ([verdict("node", "n7", 30)], Script::with(Some(rules)));
    script.agree(HOLD, &bad);
    script.rounds(59, &[]);
    assert_eq!(script.nodes["n7"].status, Some(ConditionStatus::True));
    script.rounds(1, &[]);
    assert_eq!(script.nodes["n7"].status, Some(ConditionStatus::Unknown));
    assert_eq!(script.not_false(), ["n7"], "no other node");
    script.agree(1, &bad);
    assert_eq!(script.nodes["n7"].status, Some(ConditionStatus::True));
}

#[test]
fn a_restart_leaves_nothing_behind_and_repeats_under_the_same_id() {
    let bad = [verdict("node", "n7", 30)];
    let mut script = Script::new();
    script.agree(HOLD, &bad);
    let memory = script.state.memory();
    script.restart(&memory);
    script.agree(1, &bad);
    assert_eq!(script.not_false(), ["n7"]);
    assert_eq!(script.messages, [(Phase::Begin, "n7".to_owned()), (Phase::Begin, "n7".to_owned())]);
    assert_eq!(script.events.len(), 1);
    // The verdict ends while no process acts.
    script.restart(&memory);
    script.agree(CLEAR, &[]);
    assert!(script.not_false().is_empty());
    assert_eq!(script.messages.last(), Some(&(Phase::End, "n7".to_owned())));
    assert_eq!(script.events.last(), Some(&(Regarding::Node("n7".into()), "NetworkProblemEnded")));
}

#[test]
fn a_verdict_that_returns_before_its_end_is_delivered_has_events_and_messages_again() {
    let bad = [verdict("node", "n7", 30)];
    let mut script = Script::new();
    script.delivers = false;
    script.agree(HOLD, &bad);
    script.agree(1, &[]);
    script.agree(1, &bad);
    let of_node = |reason| (Regarding::Node("n7".to_owned()), reason);
    let events = ["NetworkProblem", "NetworkProblemEnded", "NetworkProblem"].map(of_node);
    assert_eq!(script.events, events);
    let phases = [Phase::Begin, Phase::End, Phase::Begin].map(|phase| (phase, "n7".to_owned()));
    assert_eq!(script.messages, phases);
}

#[test]
fn a_condition_whose_memory_is_lost_is_found_and_taken_back() {
    let mut script = Script::new();
    script.nodes.get_mut("n7").unwrap().status = Some(ConditionStatus::True);
    let names: BTreeSet<String> = script.nodes.keys().cloned().collect();
    script.state.conditions.take_names(names);
    script.agree(40 / 5 + CLEAR, &[]);
    assert!(script.nodes.values().all(|facts| facts.status == Some(ConditionStatus::False)), "each is False once");
    script.agree(1, &[]);
    assert!(script.state.conditions.changes(|_| false).is_empty(), "no heartbeat");
}

#[test]
fn a_claim_that_was_never_patched_is_dropped() {
    let mut script = Script::new();
    script.restart(r#"{"conditions":{"n7":"PacketLoss"}}"#);
    script.agree(2, &[]);
    assert_eq!((script.not_false(), script.state.conditions.claimed().len()), (vec![], 0));
}

#[test]
fn a_mass_failure_takes_a_tenth_of_the_nodes_and_the_worst_first() {
    let all: Vec<Verdict> = (0..20).map(|at| verdict("node", &format!("n{at}"), 30 + at)).collect();
    let mut script = Script::new();
    for _ in 0..4 * HOLD {
        script.agree(1, &all);
        assert!(script.not_false().len() <= 4, "{:?}", script.not_false());
    }
    assert_eq!(script.not_false(), ["n16", "n17", "n18", "n19"]);
    // A node keeps its place until --clear, although others are worse now.
    let worse: Vec<Verdict> =
        (0..20).filter(|at| *at != 19).map(|at| verdict("node", &format!("n{at}"), 90 - at)).collect();
    script.agree(CLEAR - 1, &worse);
    assert_eq!(script.not_false(), ["n16", "n17", "n18", "n19"]);
    for _ in 0..3 {
        script.agree(1, &worse);
        assert!(script.not_false().len() <= 4);
    }
    assert_eq!(script.not_false(), ["n0", "n16", "n17", "n18"]);
    // Nor does a restart, or a lying agent that calls the mesh large.
    script.restart(&script.state.memory());
    script.agree(2 * HOLD, &worse);
    assert_eq!(script.not_false(), ["n0", "n16", "n17", "n18"]);
}

#[test]
fn messages_keep_the_severity_of_the_beginning() {
    let mut script = Script::new();
    let bad = verdict("node", "n7", 100);
    script.agree(HOLD, std::slice::from_ref(&bad));
    script.agree(CLEAR, &[Verdict { severity: Severity::Warning, ..bad.clone() }]);
    script.restart(&script.state.memory());
    script.agree(CLEAR, &[Verdict { severity: Severity::Warning, ..bad }]);
    script.agree(CLEAR, &[]);
    assert_eq!(script.severities, BTreeSet::from([Severity::Critical]));
}

#[test]
fn a_node_under_planned_work_gets_no_message_and_no_condition() {
    let bad = [verdict("node", "n7", 100)];
    let mut script = Script::new();
    script.nodes.get_mut("n7").unwrap().is_planned = true;
    script.agree(2 * HOLD, &bad);
    assert!(script.messages.is_empty() && script.not_false().is_empty());
    script.nodes.get_mut("n7").unwrap().is_planned = false;
    script.agree(2 * HOLD, &bad);
    assert_eq!((script.messages.len(), script.not_false()), (1, vec!["n7"]));
    // What cordons a node because of the condition does not take it back by that.
    script.nodes.get_mut("n7").unwrap().is_planned = true;
    script.agree(2 * HOLD, &bad);
    assert_eq!(script.not_false(), ["n7"]);
}

#[test]
fn without_conditions_nodes_with_a_verdict_alone_are_read() {
    let mut script = Script::with(None);
    script.agree(2 * HOLD, &[verdict("node", "n7", 100)]);
    assert!(script.not_false().is_empty() && script.messages.len() == 1);
    script.agree(2, &[]);
    assert!(script.state.conditions.to_read(script.now + Duration::from_hours(1), |_| false).is_empty());
}

#[test]
fn events_of_a_minute_are_bounded_and_the_rest_follows() {
    let all: Vec<Verdict> = (0..30).map(|at| verdict("node", &format!("n{at}"), 30)).collect();
    let mut script = Script::new();
    script.agree(HOLD - 1, &all);
    assert_eq!(script.events.len(), 10);
    script.agree(3 * HOLD, &all);
    assert_eq!(script.events.len(), 30);
}

#[test]
fn a_fault_of_an_agent_is_reported_after_two_minutes() {
    let mut script = Script::new();
    script.agree(23, &[verdict("agent_unreachable", "n7", 0)]);
    script.agree(9, &[]);
    assert!(script.messages.is_empty() && script.events.is_empty());
    script.agree(26, &[verdict("agent_unreachable", "n7", 0)]);
    assert_eq!((script.messages.len(), script.not_false().len()), (1, 0));
}

#[test]
fn a_start_in_a_mesh_of_5000_nodes_costs_two_requests_a_second_and_rest_costs_none() {
    const NODES: usize = 5_000;
    let mut script = Script::of_nodes(NODES, Some(RULES));
    script.state.conditions.take_names(script.nodes.keys().cloned().collect());
    script.agree(NODES / 5, &[]);
    assert!(script.nodes.values().all(|facts| facts.status == Some(ConditionStatus::False)));
    assert_eq!(script.requests.iter().sum::<usize>(), 2 * NODES, "each node is read once and patched once");
    assert!(script.requests.chunks(12).all(|minute| minute.iter().sum::<usize>() <= 120));
    script.requests.clear();
    script.agree(NODES / 5, &[]);
    assert_eq!(script.requests.iter().sum::<usize>(), 0);
}
