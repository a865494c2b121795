//! What the judges of the mesh agree on, as an agent tells it.
//!
//! Any agent answers for all judges, by a few KB for a mesh of any size. So one agent is asked, and
//! the next one if it fails, or if it has not answered within a second. A dead agent costs that
//! second, however long its connection would take.
//!
//! Judges keep no traces. If a verdict may have some, a few agents are asked for their own. All are
//! asked only with `--collect`.
//!
//! An agent is trusted no further than a judge: what it answers is bounded, and is printed without
//! control characters.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::output::{Unanswered, count, joined};
use super::reading::MeshReading;
use super::traces::OfVerdict;
use crate::commands::fleet::ask::{self, AgentAnswer, AskError, Targets, foreign};
use crate::config::{AgentUrl, Agents};
use crate::http::client::GetError;
use crate::limits::{JUDGE_DOCUMENT_BYTES_MAX, JUDGE_VERDICTS_MAX, MESH_REPORTS_MAX};
use crate::mesh::JUDGES;
use crate::mesh::verdicts::{MeshState, Overall, UnsentEntry, UnsentProbes, Verdict};
use crate::report::{Missing, at_most};

const PATH: &str = "/api/v1/verdicts";
/// Bytes of an answer. What three judges agree on may be more than one of them has.
pub const BYTES_MAX: usize = 2 * JUDGE_DOCUMENT_BYTES_MAX;
/// Verdicts of an answer, for the same reason.
pub const VERDICTS_MAX: usize = 2 * JUDGE_VERDICTS_MAX;
/// Missing nodes that an answer may list, for the same reason.
const MISSING_MAX: usize = 2 * MESH_REPORTS_MAX;
/// Time in which one of the agents must answer.
const ALL_TIME: Duration = Duration::from_secs(10);
/// How long an agent has before the next one is asked too. It asks three judges at a time, each of
/// which has 1 s.
const STEP: Duration = Duration::from_secs(1);
/// Agents that are asked at the same time.
const AGENTS_AT_ONCE: usize = 4;
/// Agents that find no judge, after which no other is asked: they are of another version, or the
/// mesh has no judge.
const WITHOUT_JUDGES_MAX: usize = 3;

/// Agents that are asked for their traces. If there are more, none is asked: few of them would have
/// any of a verdict. A report has some 50 KB.
const TRACING_MAX: usize = 32;

/// A judge, as an agent names it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Judge {
    /// The name of its node.
    pub node: String,
    /// How many seconds ago it judged.
    pub age_seconds: f64,
}

/// Says which judges have judged, and how much.
#[derive(Clone, Debug, Serialize)]
pub struct JudgesSummary {
    /// The judges that have answered; at least one.
    pub judges: Vec<Judge>,
    /// The age of the oldest of their judgements.
    age_seconds: f64,
    /// The number of nodes that were judged.
    pub nodes: usize,
    /// The number of missing nodes beside those that are listed.
    pub missing_not_listed: usize,
    /// The number of nodes that were not asked for their reports.
    pub not_gathered: usize,
    /// The number of agents that were asked for their traces and have answered. None if no verdict
    /// can have a trace.
    #[serde(skip)]
    tracing: Option<usize>,
}

/// What the judges agree on.
#[derive(Debug)]
pub struct JudgesFindings {
    /// Says which judges have judged, and how much.
    pub judged: JudgesSummary,
    /// The state of the mesh in one line.
    pub headline: String,
    /// The state of the mesh.
    pub state: MeshState,
    /// The verdicts that hold, the gravest first.
    pub verdicts: Vec<Verdict>,
    /// The traces of their links.
    pub traces: Vec<OfVerdict>,
    /// Probes that could not be sent.
    pub unsent: UnsentProbes,
    /// What else is known of the mesh as a whole.
    pub overall: Overall,
    /// Nodes whose report is missing.
    pub missing: Vec<Missing>,
    /// Agents that were asked before one has answered.
    pub unanswered: Vec<Unanswered>,
}

/// The answer of an agent. Without judges it says nothing of the mesh.
#[derive(Debug, Deserialize)]
struct VerdictsAnswer {
    #[serde(deserialize_with = "at_most::<_, JUDGES, _>")]
    judges: Vec<Judge>,
    nodes: usize,
    #[serde(deserialize_with = "at_most::<_, MISSING_MAX, _>")]
    missing: Vec<Missing>,
    missing_not_listed: usize,
    not_gathered: usize,
    headline: String,
    state: MeshState,
    #[serde(flatten)]
    unsent: UnsentProbes,
    overall: Overall,
    #[serde(deserialize_with = "at_most::<_, VERDICTS_MAX, _>")]
    verdicts: Vec<Verdict>,
}

/// Asks these agents, until one knows what the judges agree on. None if none does.
pub async fn agreed(agents: &[AgentUrl]) -> Option<JudgesFindings> {
    let end = Instant::now() + ALL_TIME;
    let mut waiting = agents.iter();
    let (mut asked, mut without_judges, mut unanswered) = (JoinSet::new(), 0, Vec::new());
    loop {
        if without_judges == WITHOUT_JUDGES_MAX {
            return None;
        }
        if asked.len() < AGENTS_AT_ONCE
            && let Some(agent) = waiting.next().cloned()
        {
            asked.spawn(async move { (ask_agent(&agent).await, agent) });
        }
        let (answer, agent) = tokio::select! {
            done = asked.join_next() => match done {
                Some(Ok(done)) => done,
                // Only a panic ends such a task without a result.
                Some(Err(_)) => continue,
                None => return None,
            },
            () = sleep(STEP) => continue,
            () = sleep_until(end) => return None,
        };
        match answer {
            Ok(document) if !document.judges.is_empty() => return Some(document.agreed(unanswered)),
            Ok(_) | Err(AskError::Foreign { .. } | AskError::Get(GetError::Status(_))) => without_judges += 1,
            Err(error) => unanswered.push(Unanswered { url: agent.to_string(), error: error.to_string() }),
        }
    }
}

async fn ask_agent(agent: &AgentUrl) -> Result<VerdictsAnswer, AskError> {
    let text = AgentAnswer::request(agent, PATH).await?.whole(BYTES_MAX).await?;
    serde_json::from_slice(&text).map_err(foreign(PATH))
}

impl JudgesFindings {
    /// Does the same as [`JudgesFindings::with_traces`] with the agents to ask now. If a name
    /// cannot be resolved, it has those of the agents that are known without it.
    pub async fn with_traces_of(mut self, agents: &Agents) -> Self {
        if !self.may_have_traces() {
            return self;
        }
        let Targets { urls, unresolved } = ask::targets(agents).await.unwrap_or_else(|error| {
            let urls = agents.own().into_iter().cloned().collect();
            Targets { urls, unresolved: Some(error) }
        });
        self.unanswered.extend(unresolved.as_ref().map(Unanswered::dns));
        self.with_traces(&urls).await
    }

    fn may_have_traces(&self) -> bool {
        self.verdicts.iter().any(Verdict::is_loss)
    }

    /// Asks these agents for their traces, if they are few, and if a verdict may have any. Agents
    /// that do not answer in time are left out.
    pub async fn with_traces(mut self, agents: &[AgentUrl]) -> Self {
        if !self.may_have_traces() {
            return self;
        }
        let (agents, mut reading) = (if agents.len() > TRACING_MAX { &[] } else { agents }, MeshReading::default());
        let ask_report = |agent: AgentUrl| async move { ask::report(&agent).await };
        let take = |document, answer: Result<Vec<u8>, AskError>| {
            // A report that breaks off has its first traces.
            let _ = answer.map(|text| reading.report(document, &text));
        };
        let _ = timeout(ALL_TIME, ask::each(agents, ask_report, take)).await;
        let (_, _, reports, facts) = reading.finish();
        self.traces = facts.traces.by_verdict(&self.verdicts);
        self.judged.tracing = Some(reports);
        self
    }
}

impl VerdictsAnswer {
    fn agreed(self, unanswered: Vec<Unanswered>) -> JudgesFindings {
        let Self { judges, nodes, missing, missing_not_listed, not_gathered, headline, state, .. } = self;
        let Self { mut unsent, overall, verdicts, .. } = self;
        unsent.unsent.retain(UnsentEntry::is_bounded);
        let overall = if overall.is_bounded() { overall } else { Overall::default() };
        let age_seconds = judges.iter().map(|judge| judge.age_seconds).fold(0.0, f64::max);
        JudgesFindings {
            judged: JudgesSummary { judges, age_seconds, nodes, missing_not_listed, not_gathered, tracing: None },
            headline,
            state,
            verdicts: verdicts.into_iter().filter(Verdict::holds).collect(),
            traces: Vec::new(),
            unsent,
            overall,
            missing,
            unanswered,
        }
    }
}

impl fmt::Display for JudgesSummary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let age = Duration::try_from_secs_f64(self.age_seconds).unwrap_or(Duration::MAX).as_secs();
        let (nodes, names) = (count(self.nodes, "node"), joined(&self.judges));
        write!(out, "Judged: {nodes}, {age} s ago at most, by {names}.")?;
        if self.judges.len() == 1 {
            write!(out, " No other judge has answered, so no verdict is more than likely.")?;
        }
        if self.missing_not_listed > 0 {
            write!(out, " Missing and not listed: {}.", count(self.missing_not_listed, "report"))?;
        }
        if self.not_gathered > 0 {
            write!(out, " Not asked for: {}.", count(self.not_gathered, "report"))?;
        }
        match self.tracing.filter(|agents| *agents < self.nodes) {
            Some(agents) => write!(out, " Asked for traces: {}; --collect asks all.", count(agents, "agent")),
            None => Ok(()),
        }
    }
}
