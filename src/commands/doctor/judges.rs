//! What the judges of the mesh agree on, as an agent tells it.
//!
//! Any agent answers for all judges, by a few KB for a mesh of any size. So one agent is asked, and
//! the next one if it fails, or if it has not answered within a second.
//!
//! Judges keep no traces. If a verdict may have some, a few agents are asked for their own. All are
//! asked only with `--collect`.
//!
//! An agent is trusted no further than a judge: what it answers is bounded, and is printed without
//! control characters.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::output::{Examination, JudgedExtent, Unanswered, count, joined};
use super::reading::MeshReading;
use crate::commands::fleet::ask::{self, AgentAnswer, AskError, Targets, foreign};
use crate::config::{AgentUrl, Agents};
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
/// Time in which agents must answer with their traces.
const TRACES_TIME: Duration = Duration::from_secs(10);
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
    pub tracing: Option<usize>,
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

/// Asks these agents, until one knows what the judges agree on. None if none does. Agents that were
/// asked before are not needed: a node whose agent is silent is known to the judges.
pub async fn agreed(agents: &[AgentUrl]) -> Option<Examination> {
    let (answer, failed) = ask::first(agents, |agent| async move { ask_agent(&agent).await }).await;
    // An agent that knows of no judge has answered.
    let silent = failed.iter().filter(|(_, error)| !error.is_refusal());
    Some(answer?.agreed(silent.map(Unanswered::agent).collect()))
}

async fn ask_agent(agent: &AgentUrl) -> Result<VerdictsAnswer, AskError> {
    let text = AgentAnswer::request(agent, PATH).await?.whole(BYTES_MAX).await?;
    let answer: VerdictsAnswer = serde_json::from_slice(&text).map_err(foreign(PATH))?;
    if answer.judges.is_empty() { Err(foreign(PATH)("no judge answers")) } else { Ok(answer) }
}

/// Does the same as [`with_traces`] with the agents to ask now. If a name cannot be resolved, it
/// has those of the agents that are known without it.
pub async fn with_traces_of(mut agreed: Examination, agents: &Agents) -> Examination {
    if !may_have_traces(&agreed) {
        return agreed;
    }
    let Targets { urls, unresolved } = ask::targets(agents).await.unwrap_or_else(|error| {
        let urls = agents.own().into_iter().cloned().collect();
        Targets { urls, unresolved: Some(error) }
    });
    agreed.unanswered.extend(unresolved.as_ref().map(Unanswered::dns));
    with_traces(agreed, &urls).await
}

fn may_have_traces(agreed: &Examination) -> bool {
    agreed.verdicts.iter().any(Verdict::is_loss)
}

/// Asks these agents for their traces, if they are few, and if a verdict may have any. Agents that
/// do not answer in time are left out.
pub async fn with_traces(agreed: Examination, agents: &[AgentUrl]) -> Examination {
    if !may_have_traces(&agreed) {
        return agreed;
    }
    let (agents, mut reading) = (if agents.len() > TRACING_MAX { &[] } else { agents }, MeshReading::default());
    let ask_report = |agent: AgentUrl| async move { ask::report(&agent).await };
    let take = |document, answer: Result<Vec<u8>, AskError>| {
        // A report that breaks off has its first traces.
        let _ = answer.map(|text| reading.report(document, &text));
    };
    let _ = timeout(TRACES_TIME, ask::each(agents, ask_report, take)).await;
    agreed.with_traces(reading)
}

impl VerdictsAnswer {
    fn agreed(self, unanswered: Vec<Unanswered>) -> Examination {
        let Self { judges, nodes, missing, missing_not_listed, not_gathered, headline, state, .. } = self;
        let Self { mut unsent, overall, mut verdicts, .. } = self;
        unsent.unsent.retain(UnsentEntry::is_bounded);
        verdicts.retain(Verdict::holds);
        let overall = if overall.is_bounded() { overall } else { Overall::default() };
        let age_seconds = judges.iter().map(|judge| judge.age_seconds).fold(0.0, f64::max);
        let judged = JudgesSummary { judges, age_seconds, nodes, missing_not_listed, not_gathered, tracing: None };
        let (unread, traces, act, extent) = (Vec::new(), Vec::new(), None, JudgedExtent::Judges(judged));
        Examination { headline, state, verdicts, traces, unsent, overall, missing, unanswered, unread, act, extent }
            .with_true_headline()
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
