//! Gets reports from agents over HTTP.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;

use super::DoctorError;
use super::lines::MeshLines;
use super::output::{Examination, Unanswered};
use super::reading::Reading;
use crate::config::{AgentUrl, Agents, Host};
use crate::fleet::ask::{self, Answer, AskError, Targets, foreign, within};
use crate::http::client::GetError;
use crate::limits::{MESH_DOCUMENT_BYTES_MAX, REPORT_BYTES_MAX};
use crate::mesh::domains::Domains;
use crate::report;

const MESH: &str = "/api/v1/mesh";
/// Timeout of one mesh. The agent that is asked first collects it from all others, and may have to
/// wait for another collection.
const MESH_TIME: Duration = Duration::from_mins(1);
/// The pause before an agent that is busy with another collect is asked again.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// Asks all agents, which are at these URLs now, and judges their answers.
///
/// # Errors
/// [`DoctorError::Silent`]: none has answered.
pub async fn examine(
    agents: &Agents,
    targets: Targets,
    domains: Option<Arc<Domains>>,
) -> Result<Examination, DoctorError> {
    let Targets { urls, unresolved } = targets;
    let agent_urls = &urls[..];
    let mut reading = Reading::default();
    let mut failed: Vec<(usize, AskError)> = Vec::new();
    match agents {
        Agents::Urls(_) => {
            for (document, agent) in agent_urls.iter().enumerate() {
                let asked = within(MESH_TIME, mesh(agent, document, &mut reading)).await;
                failed.extend(asked.err().map(|error| (document, error)));
            }
        }
        Agents::Service { .. } => {
            let ask_report = |agent: AgentUrl| async move { ask::report(&agent).await };
            let take = |document, answer: Result<Vec<u8>, AskError>| {
                let read = answer.and_then(|text| reading.report(document, &text).map_err(foreign(report::PATH)));
                failed.extend(read.err().map(|error| (document, error)));
            };
            ask::each(agent_urls, ask_report, take).await;
            // This is done once all answers are known. Only they say which node is at the address
            // of an agent that did not answer.
            for (document, error) in &failed {
                if let Host::Address(address) = agent_urls[*document].host {
                    reading.unanswered(*document, address, &error.to_string());
                }
            }
        }
    }
    let failed =
        failed.iter().map(|(at, error)| Unanswered { url: agent_urls[*at].to_string(), error: error.to_string() });
    let unanswered = unresolved.as_ref().map(Unanswered::dns).into_iter().chain(failed).collect();
    let examination = Examination::judged(reading.with_domains(domains)).with_unanswered(unanswered);
    if examination.rows() == 0 { Err(DoctorError::Silent(examination.unanswered)) } else { Ok(examination) }
}

/// Reads the mesh of one agent. Repeats the request while the agent is busy.
async fn mesh(agent: &AgentUrl, document: usize, reading: &mut Reading) -> Result<(), AskError> {
    loop {
        match mesh_once(agent, document, reading).await {
            Err(AskError::Get(GetError::Status(StatusCode::SERVICE_UNAVAILABLE))) => {
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            done => return done,
        }
    }
}

async fn mesh_once(agent: &AgentUrl, document: usize, reading: &mut Reading) -> Result<(), AskError> {
    let (mut lines, mut bad) = (MeshLines::default(), None);
    let read = |line: &[u8]| {
        let invalid = lines.take(document, line, reading).map_err(foreign(MESH))?;
        bad = bad.take().or(invalid);
        Ok::<_, AskError>(())
    };
    let is_whole = Answer::of(agent, MESH).await?.lines(REPORT_BYTES_MAX, MESH_DOCUMENT_BYTES_MAX, read).await?;
    if let Some(bad) = bad {
        return Err(foreign(MESH)(bad));
    }
    lines.end().map_err(foreign(MESH))?;
    if is_whole { Ok(()) } else { Err(foreign(MESH)("it breaks off")) }
}
