//! What `kube-canary act` has done, as it says itself.
//!
//! Its Service has the name of that of the agents, with `-act` behind it. Most meshes have none, so
//! its absence is no fault and costs no more than a look-up. What it says is bounded, and is
//! printed without control characters.

use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::output::{count, moment};
use crate::commands::fleet::ask::{AgentAnswer, AskError, each, foreign, within};
use crate::config::{AgentUrl, Agents, Host};
use crate::discovery::dns::{self, Servers};
use crate::report::at_most;
use crate::sys::console::{self, printable};

/// Where act serves this document.
pub const PATH: &str = "/api/v1/act";
/// The type of the condition that act sets. A problem is True, as with the node problem detector.
pub const CONDITION: &str = "KubeCanaryNetworkProblem";
/// Nodes that the document lists. The others are counted.
pub const NODES_MAX: usize = 16;
/// Largest number of kinds of receivers that are printed.
const RECEIVERS_MAX: usize = 4;
/// Processes that are asked: the one that acts, one that stands by, and those of a rollout.
const PROCESSES_MAX: usize = 4;
/// Bytes of the document: 16 nodes with names of 253 bytes, and the rest.
const BYTES_MAX: usize = 16 << 10;
/// Time for the look-up of the name, and time in which a process must answer.
const TIME: Duration = Duration::from_secs(1);

/// What a process of act has done since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActSummary {
    /// Whether it acts. Otherwise it stands by, or waits for the Lease.
    pub acts: bool,
    /// Whether it sets conditions.
    pub conditions: ConditionMode,
    /// Whether judges are silent, so that it begins and ends nothing.
    pub judges_silent: bool,
    /// The number of verdicts that hold.
    pub verdicts: u64,
    /// Nodes whose condition is not False, in the order of their names.
    #[serde(deserialize_with = "at_most::<_, NODES_MAX, _>")]
    pub nodes: Vec<NodeCondition>,
    /// The number of further ones.
    pub nodes_not_listed: u64,
    /// Nodes with a verdict that wait for `--hold` or `--max-nodes`.
    pub nodes_waiting: u64,
    /// Events that it has written.
    pub events: u64,
    /// Messages by the kind of their receiver.
    #[serde(deserialize_with = "at_most::<_, RECEIVERS_MAX, _>")]
    pub messages: Vec<MessageCounts>,
    /// When the process started.
    pub started_unix_seconds: u64,
}

/// Whether conditions of nodes are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConditionMode {
    /// Conditions are not set.
    #[default]
    Off,
    /// The log alone says what would be set.
    DryRun,
    /// Conditions of nodes are set in the API server.
    On,
}

/// Says which condition a node has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCondition {
    /// The name of the node.
    pub node: String,
    /// `True` or `Unknown`.
    pub status: String,
    /// The reason, a word.
    pub reason: String,
    /// When this process has set it. None if an earlier one has.
    pub since_unix_seconds: Option<u64>,
}

/// Attempts to send messages to a receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageCounts {
    /// The kind of the receiver.
    pub receiver: String,
    /// Messages that it has taken.
    pub sent: u64,
    /// Attempts that are repeated.
    pub failed: u64,
    /// Messages that it does not take.
    pub refused: u64,
    /// Messages for which there was no room.
    pub lost: u64,
}

/// Asks the processes of act beside these agents. None if there is none, or none answers.
pub async fn said_by_agents(agents: &Agents) -> Option<ActSummary> {
    let Agents::Service { name, port, .. } = agents else { return None };
    let (service, namespace) = name.split_at(name.find('.').unwrap_or(name.len()));
    let name = format!("{service}-act{namespace}");
    let addresses = timeout(TIME, dns::service_addresses(&Servers::System, &name)).await.ok()?.ok()?;
    let urls = addresses.into_iter().map(|address| AgentUrl { host: Host::Address(address), port: *port });
    said_by_processes(&urls.take(PROCESSES_MAX).collect::<Vec<_>>()).await
}

/// Asks these processes. Returns what the one says that acts, or else any other.
pub async fn said_by_processes(urls: &[AgentUrl]) -> Option<ActSummary> {
    let mut found: Option<ActSummary> = None;
    let take = |place: usize, answer: Result<ActSummary, AskError>| match answer {
        Ok(summary) if summary.acts || found.is_none() => found = Some(summary),
        Ok(_) => {}
        Err(error) => console::print_error(format_args!("act at {}: {error}", urls[place])),
    };
    each(urls, |url| async move { within(TIME, ask(&url)).await }, take).await;
    found
}

async fn ask(url: &AgentUrl) -> Result<ActSummary, AskError> {
    let text = AgentAnswer::request(url, PATH).await?.whole(BYTES_MAX).await?;
    serde_json::from_slice(&text).map_err(foreign(PATH))
}

impl fmt::Display for ActSummary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.acts { "Act: acts" } else { "Act: stands by, and no process acts" })?;
        if self.judges_silent {
            out.write_str(", but no two judges answer, so nothing begins or ends")?;
        }
        let total = |count: fn(&MessageCounts) -> u64| self.messages.iter().map(count).fold(0, u64::saturating_add);
        let number = |of: u64, what| count(usize::try_from(of).unwrap_or(usize::MAX), what);
        write!(out, "; {}, {} sent", number(self.events, "Event"), number(total(|of| of.sent), "message"))?;
        let counts: [(u64, &str); 3] =
            [(total(|of| of.failed), "failed"), (total(|of| of.refused), "refused"), (total(|of| of.lost), "lost")];
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            write!(out, ", {count} {what}")?;
        }
        write!(out, " since {}.", moment(self.started_unix_seconds))?;
        if self.nodes_waiting > 0 {
            write!(out, " Waiting for --hold or --max-nodes: {}.", number(self.nodes_waiting, "node"))?;
        }
        let has = if self.conditions == ConditionMode::DryRun { "would have" } else { "has" };
        for NodeCondition { node, status, reason, since_unix_seconds } in &self.nodes {
            let mut line = format!("{node} {has} {CONDITION}={status} ({reason})");
            if let Some(since) = since_unix_seconds {
                write!(line, " since {}", moment(*since))?;
            }
            write!(out, "\n    {}", printable(&line))?;
        }
        if self.nodes_not_listed > 0 {
            write!(out, "\n    and {}", number(self.nodes_not_listed, "more node"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_shown_with_their_counts_and_nodes() {
        let node = |node: &str, since_unix_seconds| NodeCondition {
            node: node.into(),
            status: "True".into(),
            reason: "PacketLoss".into(),
            since_unix_seconds,
        };
        let messages = |receiver: &str, sent, failed| MessageCounts {
            receiver: receiver.into(),
            sent,
            failed,
            ..MessageCounts::default()
        };
        let mut summary = ActSummary {
            acts: true,
            conditions: ConditionMode::On,
            nodes: vec![node("node3", Some(951_782_400)), node("node4\x1b", None)],
            nodes_not_listed: 1,
            nodes_waiting: 2,
            events: 1,
            messages: vec![messages("slack", 2, 0), messages("webhook", 1, 4)],
            ..ActSummary::default()
        };
        assert_eq!(
            summary.to_string(),
            "Act: acts; 1 Event, 3 messages sent, 4 failed since 1970-01-01 00:00 UTC. \
             Waiting for --hold or --max-nodes: 2 nodes.\n    \
             node3 has KubeCanaryNetworkProblem=True (PacketLoss) since 2000-02-29 00:00 UTC\n    \
             node4? has KubeCanaryNetworkProblem=True (PacketLoss)\n    and 1 more node"
        );
        let text = serde_json::to_vec(&summary).unwrap();
        assert_eq!(serde_json::from_slice::<ActSummary>(&text).unwrap(), summary);
        summary.nodes = vec![node("n", None); NODES_MAX + 1];
        assert!(serde_json::from_slice::<ActSummary>(&serde_json::to_vec(&summary).unwrap()).is_err(), "it is bounded");
    }

    #[test]
    fn a_longest_document_is_within_its_bound() {
        let name = "n".repeat(253);
        let node = NodeCondition {
            node: name,
            status: "Unknown".into(),
            reason: "MtuBlackHole".into(),
            since_unix_seconds: Some(u64::MAX),
        };
        let count = u64::MAX;
        let messages =
            MessageCounts { receiver: "alertmanager".into(), sent: count, failed: count, refused: count, lost: count };
        let summary = ActSummary {
            nodes: vec![node; NODES_MAX],
            messages: vec![messages; RECEIVERS_MAX],
            ..ActSummary::default()
        };
        assert!(serde_json::to_vec(&summary).unwrap().len() < BYTES_MAX);
    }
}
