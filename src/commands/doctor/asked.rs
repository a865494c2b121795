//! Gets reports from agents over HTTP.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;

use super::DoctorError;
use super::lines::MeshLines;
use super::output::{Examination, Unanswered};
use super::reading::MeshReading;
use crate::commands::fleet::ask::{self, AgentAnswer, AskError, Targets, foreign, within};
use crate::config::{AgentUrl, Agents, Host};
use crate::http::client::GetError;
use crate::http::path::encoded;
use crate::limits::{MESH_DOCUMENT_BYTES_MAX, MESH_REPORTS_MAX, NAMED_REPORTS_MAX, REPORT_BYTES_MAX};
use crate::mesh::domains::Domains;
use crate::report;

const MESH: &str = "/api/v1/mesh/NODES";
/// Bytes of a path of names, beyond which it gets no further one. The head of a request may have 8
/// KiB.
const PATH_BYTES_MAX: usize = 6_000;
/// Timeout of one mesh. The agent that is asked passes on the reports of others, of a large mesh
/// 100 in 15 s, and may be busy with another reader.
const MESH_TIME: Duration = Duration::from_mins(2);
/// The pause before an agent that is busy with another reader is asked again.
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
    let mut reading = MeshReading::default();
    let mut failed: Vec<(usize, AskError)> = Vec::new();
    match agents {
        Agents::Urls(_) => {
            for (document, agent) in agent_urls.iter().enumerate() {
                let asked = within(MESH_TIME, Box::pin(mesh(agent, document, &mut reading))).await;
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

/// Reads the mesh through one agent: its own report, and those of the nodes that are named, which
/// it passes on. These name further ones, so the nearest are read before the limit is reached. What
/// another agent has passed on before is not asked for again.
async fn mesh(agent: &AgentUrl, document: usize, reading: &mut MeshReading) -> Result<(), AskError> {
    reading.report(document, &ask::report(agent).await?).map_err(foreign(report::PATH))?;
    let mut asked = HashSet::new();
    loop {
        let room = NAMED_REPORTS_MAX.min((MESH_REPORTS_MAX - 1).saturating_sub(asked.len()));
        let unread = reading.unread().filter(|node| !asked.contains(*node));
        let (mut path, mut nodes) = (MESH.replace("NODES", ""), Vec::new());
        for node in unread.take(room) {
            path += if nodes.is_empty() { "" } else { "," };
            path += &encoded(node);
            nodes.push(node.to_owned());
            if path.len() > PATH_BYTES_MAX {
                break;
            }
        }
        if nodes.is_empty() {
            return Ok(());
        }
        passed_on(agent, document, &path, reading).await?;
        asked.extend(nodes);
    }
}

/// Reads the reports that an agent passes on at this path. Repeats the request while it is busy.
async fn passed_on(agent: &AgentUrl, document: usize, path: &str, reading: &mut MeshReading) -> Result<(), AskError> {
    let answer = loop {
        match AgentAnswer::request(agent, path).await {
            Err(AskError::Get(GetError::Status(StatusCode::SERVICE_UNAVAILABLE))) => {
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            answer => break answer?,
        }
    };
    let (mut lines, mut bad) = (MeshLines::default(), None);
    let read = |line: &[u8]| {
        let invalid = lines.take(document, line, reading).map_err(foreign(MESH))?;
        bad = bad.take().or(invalid);
        Ok::<_, AskError>(())
    };
    let is_whole = answer.lines(REPORT_BYTES_MAX, MESH_DOCUMENT_BYTES_MAX, read).await?;
    if let Some(bad) = bad {
        return Err(foreign(MESH)(bad));
    }
    lines.end().map_err(foreign(MESH))?;
    if is_whole { Ok(()) } else { Err(foreign(MESH)("it breaks off")) }
}
