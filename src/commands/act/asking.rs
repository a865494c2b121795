//! Asks agents of different nodes, chosen by chance each time.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::agreement::{ASKED, AgentSaid};
use crate::commands::doctor::judges::BYTES_MAX;
use crate::commands::fleet::ask::{self, AgentAnswer, AskError, foreign, within};
use crate::config::{AgentUrl, Agents};
use crate::discovery::random;
use crate::limits::{AGENTS_MAX, FRAME_BYTES, NAME_BYTES_MAX, NODES_DOCUMENT_BYTES_MAX};

const VERDICTS: &str = "/api/v1/verdicts";
const NODES: &str = "/api/v1/nodes";
/// How long an agent may take. It asks three judges, each of which has 1 s.
const ANSWER: Duration = Duration::from_secs(3);
/// How long the document of all nodes may take.
const NODES_TIME: Duration = Duration::from_secs(5);
/// How long addresses are used before they are resolved again.
const RESOLVED: Duration = Duration::from_mins(1);

/// The agents, as they were resolved last.
#[derive(Debug)]
pub struct AgentList {
    agents: Agents,
    urls: Vec<AgentUrl>,
    at: Option<Instant>,
}

impl AgentList {
    /// Makes a list that is resolved when it is first used.
    pub const fn new(agents: Agents) -> Self {
        Self { agents, urls: Vec::new(), at: None }
    }

    /// Puts agents by chance to the front of the list, and returns this many.
    ///
    /// The addresses are of one family, and a DaemonSet has one pod on a node. So no node is asked
    /// twice, without belief in what an agent calls itself.
    async fn choose(&mut self, count: usize) -> Vec<AgentUrl> {
        if self.at.is_none_or(|at| at.elapsed() >= RESOLVED) {
            match ask::targets(&self.agents).await {
                Ok(targets) => (self.urls, self.at) = (targets.urls, Some(Instant::now())),
                // Pods keep their addresses, so those that were known may still answer.
                Err(error) => log::warn!("DNS: {error}"),
            }
        }
        let known = self.urls.len();
        for place in 0..count.min(known) {
            let others = u32::try_from(known - place).unwrap_or(u32::MAX);
            let other = Duration::from_nanos(others.into()).mul_f64(random::unit()).as_nanos();
            self.urls.swap(place, (place + usize::try_from(other).unwrap_or(0)).min(known - 1));
        }
        self.urls.iter().take(count).cloned().collect()
    }

    /// Returns what agents say of the mesh. If fewer than three answer, as many are asked beside
    /// them.
    pub async fn verdicts(&mut self) -> Vec<AgentSaid> {
        let chosen = self.choose(2 * ASKED).await;
        let mut said = Vec::new();
        for agents in chosen.chunks(ASKED) {
            let take = |place: usize, answer: Result<AgentSaid, AskError>| match answer {
                Ok(answer) => said.push(answer),
                Err(error) => log::info!("{}: {error}", agents[place]),
            };
            ask::each(agents, |agent| async move { ask_verdicts(&agent).await }, take).await;
            if said.len() >= ASKED {
                break;
            }
        }
        said.truncate(ASKED);
        said
    }

    /// Returns the names of the nodes that are judged, as one agent passes them on. `None` if it
    /// does not answer; the next round asks another one.
    pub async fn names(&mut self) -> Option<BTreeSet<String>> {
        let agent = self.choose(1).await.pop()?;
        let answer = within(NODES_TIME, names(&agent)).await;
        answer.inspect_err(|error| log::info!("{agent}: {error}")).ok()
    }
}

async fn ask_verdicts(agent: &AgentUrl) -> Result<AgentSaid, AskError> {
    let asking = async { AgentAnswer::request(agent, VERDICTS).await?.whole(BYTES_MAX).await };
    let body = within(ANSWER, asking).await?;
    AgentSaid::read(&body).ok_or_else(|| foreign(VERDICTS)("not verdicts"))
}

/// Reads the names of a document that has one node per line.
async fn names(agent: &AgentUrl) -> Result<BTreeSet<String>, AskError> {
    let (mut names, mut is_row) = (BTreeSet::new(), false);
    let read = |line: &[u8]| {
        is_row |= line.ends_with(b"\"rows\":[");
        if is_row && names.len() < AGENTS_MAX {
            names.extend(name_of(line));
        }
        Ok::<_, AskError>(())
    };
    AgentAnswer::request(agent, NODES).await?.lines(FRAME_BYTES, NODES_DOCUMENT_BYTES_MAX, read).await?;
    Ok(names)
}

/// Returns the name of a node in a line, if it is one that a node can have.
fn name_of(line: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Row {
        node: String,
    }
    let line = line.strip_prefix(b",").unwrap_or(line);
    let Row { node } = serde_json::from_slice(line).ok()?;
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    (!node.is_empty() && node.len() <= NAME_BYTES_MAX && node.bytes().all(is_plain)).then_some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_a_node_can_have_are_taken() {
        assert_eq!(name_of(br#",{"node":"a-1.b","zone":"z"}"#).as_deref(), Some("a-1.b"));
        for bad in [r#"{"node":"A"}"#, r#"{"node":""}"#, r#"{"node":"a/status"}"#, "]}", r#"{"source":"a"}"#] {
            assert_eq!(name_of(bad.as_bytes()), None, "{bad}");
        }
    }
}
