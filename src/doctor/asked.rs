//! Gets reports from agents over HTTP.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;

use super::DoctorError;
use super::lines::MeshLines;
use super::output::{Report, Unanswered};
use super::reading::Reading;
use crate::config::{AgentUrl, Agents, Host};
use crate::fleet::FleetError;
use crate::fleet::ask::{self, AskError, Connection, More, within};
use crate::http::client::GetError;
use crate::limits::{AGENT_TIME, MESH_DOCUMENT_BYTES_MAX, MESH_TIME, ROW_BYTES_MAX};
use crate::mesh::domains::Domains;

const MESH: &str = "/api/v1/mesh";
const ROW: &str = "/api/v1/peers";
/// The pause before an agent that is busy with another collect is asked again.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// Asks all agents, and judges their answers.
///
/// # Errors
/// [`DoctorError`]: no agent could be asked, or none has answered.
pub async fn examine(agents: &Agents, domains: Option<Arc<Domains>>) -> Result<Report, DoctorError> {
    let agent_urls = ask::whom(agents).await.map_err(FleetError::from)?;
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
            let ask_row = |agent: AgentUrl| async move { within(AGENT_TIME, row(&agent)).await };
            let take = |document, answer: Result<Vec<u8>, AskError>| {
                let read = answer.and_then(|text| reading.row(document, &text).map_err(foreign(ROW)));
                failed.extend(read.err().map(|error| (document, error)));
            };
            ask::each(&agent_urls, ask_row, take).await;
            // This is done once all answers are known. Only they say which node is at the address
            // of an agent that did not answer.
            for (document, error) in &failed {
                if let Host::Address(address) = agent_urls[*document].host {
                    reading.silent(*document, address, &error.to_string());
                }
            }
        }
    }
    let unanswered = failed
        .iter()
        .map(|(at, error)| Unanswered { url: agent_urls[*at].to_string(), error: error.to_string() })
        .collect();
    let report = Report::judged(reading.with_domains(domains)).with_unanswered(unanswered);
    if report.rows == 0 { Err(DoctorError::Silent(report.unanswered)) } else { Ok(report) }
}

fn foreign<E: std::fmt::Display>(path: &'static str) -> impl Fn(E) -> AskError {
    move |error| AskError::Foreign { path, reason: error.to_string() }
}

async fn row(agent: &AgentUrl) -> Result<Vec<u8>, AskError> {
    Ok(Connection::open(agent).await?.whole(ROW, ROW_BYTES_MAX).await?)
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
        let row = lines.take(document, line, reading).map_err(foreign(MESH))?;
        bad = bad.take().or(row);
        Ok::<_, AskError>(More::Wanted)
    };
    let mut connection = Connection::open(agent).await?;
    let is_whole = connection.lines(MESH, ROW_BYTES_MAX, MESH_DOCUMENT_BYTES_MAX, read).await?;
    if let Some(bad) = bad {
        return Err(foreign(MESH)(bad));
    }
    lines.end().map_err(foreign(MESH))?;
    if is_whole { Ok(()) } else { Err(foreign(MESH)("it breaks off")) }
}
