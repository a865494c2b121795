//! The report of one agent: its row (`/api/v1/peers`), and the head of its metrics.

use serde::Serialize;

use super::ask::{AskError, Connection, More, within};
use super::own::OwnSamples;
use super::peers::{Document, loss};
use crate::config::AgentUrl;
use crate::http::client::GetError;
use crate::limits::{AGENT_TIME, OWN_SAMPLES_BYTES_MAX, ROW_BYTES_MAX, SAMPLE_BYTES_MAX};

const PEERS: &str = "/api/v1/peers";
const METRICS: &str = "/metrics";

/// The figures of one agent. A figure that it does not report is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The name of its node. None if it has not answered.
    pub node: Option<String>,
    /// The node's zone, or `unknown`.
    pub zone: Option<String>,
    /// The URL that was asked.
    pub url: String,
    /// Resident memory, in bytes.
    pub rss_bytes: Option<u64>,
    /// Private dirty memory, in bytes.
    pub private_dirty_bytes: Option<u64>,
    /// The number of CPUs of the machine.
    pub cpus: Option<u64>,
    /// The number of threads of the agent.
    pub threads: Option<u64>,
    /// The malloc that runs.
    pub allocator: Option<String>,
    /// The number of jemalloc's arenas.
    pub narenas: Option<u64>,
    /// How the program was linked: `rust` or `c-shim`.
    pub linkage: Option<String>,
    /// The libc of the build.
    pub libc: Option<String>,
    /// The version of the agent.
    pub version: Option<String>,
    /// CPU time per probe since the start, in seconds.
    pub cpu_seconds_per_probe: Option<f64>,
    /// The number of links that it measures: peers, families and networks.
    pub links: Option<u64>,
    /// The peer with the highest recent loss. Among equals, the one with the longest p99.
    pub worst_peer: Option<String>,
    /// The network of the worst peer.
    pub worst_peer_network: Option<String>,
    /// The protocol of the worst peer.
    pub worst_peer_protocol: Option<String>,
    /// The recent loss of the worst peer, 0 to 1.
    pub worst_peer_loss: Option<f64>,
    /// The recent p99 of the worst peer, in seconds.
    pub worst_peer_rtt_p99_seconds: Option<f64>,
    /// Recent loss over all links, 0 to 1.
    pub loss: Option<f64>,
    /// Recent p99 of the send lag, in seconds.
    pub send_lag_p99_seconds: Option<f64>,
    /// The number of nodes in the mesh that the agent knows of.
    pub members: Option<u64>,
    /// The number of nodes that probe it.
    pub watchers: Option<u64>,
    /// The number of watchers that it should have in addition.
    pub watchers_missing: Option<u64>,
    /// Seconds since its list of peers was last confirmed.
    pub peer_list_age_seconds: Option<f64>,
    /// The reason why figures are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Asks one agent. Never fails: an error is stored in the row.
pub async fn ask(agent: AgentUrl) -> Row {
    let mut row = Row { url: agent.to_string(), ..Row::default() };
    if let Err(error) = within(AGENT_TIME, fill(&mut row, &agent)).await {
        row.error = Some(error.to_string());
    }
    row
}

async fn fill(row: &mut Row, agent: &AgentUrl) -> Result<(), AskError> {
    let mut connection = Connection::open(agent).await?;
    let body = connection.whole(PEERS, ROW_BYTES_MAX).await?;
    let sent = row.take_peers(&body)?;
    drop(body);
    if !connection.is_usable().await {
        connection = Connection::open(agent).await?;
    }
    let mut own = OwnSamples::default();
    let take = |line: &[u8]| Ok::<_, GetError>(std::str::from_utf8(line).map_or(More::Wanted, |line| own.take(line)));
    connection.lines(METRICS, SAMPLE_BYTES_MAX, OWN_SAMPLES_BYTES_MAX, take).await?;
    own.give(row, sent);
    Ok(())
}

impl Row {
    /// Takes the answer of `/api/v1/peers`. Returns the number of probes sent since the start.
    fn take_peers(&mut self, body: &[u8]) -> Result<u64, AskError> {
        let foreign = |error: serde_json::Error| AskError::Foreign { path: PEERS, reason: error.to_string() };
        let Document { source, peers } = serde_json::from_slice(body).map_err(foreign)?;
        self.node = Some(source.node.into_owned());
        self.zone = Some(source.zone.into_owned());
        self.send_lag_p99_seconds = source.recent.send_lag_p99_seconds;
        self.members = source.members;
        self.watchers = source.watchers;
        self.watchers_missing = source.watchers_missing;
        self.peer_list_age_seconds = source.peer_list_age_seconds;
        self.links = Some(peers.links);
        self.loss = loss(peers.recent_received, peers.recent_lost);
        if let Some((loss, worst)) = peers.worst {
            self.worst_peer = Some(worst.node.into_owned());
            self.worst_peer_network = Some(worst.network.into_owned());
            self.worst_peer_protocol = Some(worst.protocol.into_owned());
            self.worst_peer_loss = Some(loss);
            self.worst_peer_rtt_p99_seconds = worst.recent.rtt_p99_seconds;
        }
        Ok(peers.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(node: &str, received: u32, lost: u32, p99: &str) -> String {
        format!(
            r#"{{"node":"{node}","zone":"z","network":"pod","protocol":"icmp","state":"ready","sent":100,"received":99,
            "recent":{{"seconds":60.0,"sent":60,"received":{received},"lost":{lost},"rtt_p99_seconds":{p99}}}}}"#
        )
    }

    fn row(source: &str, peers: &[String]) -> Row {
        let mut row = Row::default();
        let body = format!(r#"{{"source":{{"node":"n\"1","zone":"z"{source}}},"peers":[{}]}}"#, peers.join(","));
        row.take_peers(body.as_bytes()).unwrap();
        row
    }

    #[test]
    fn the_worst_peer_is_the_one_with_the_highest_loss_then_the_longest_p99() {
        let [slow, lossy, fast, silent] = [
            peer("slow", 60, 0, "0.5"),
            peer("lossy", 59, 1, "0.001"),
            peer("fast", 60, 0, "0.001"),
            peer("silent", 0, 0, "null"),
        ];
        let worst =
            row(r#","recent":{"send_lag_p99_seconds":0.25}"#, &[fast.clone(), slow.clone(), lossy, silent.clone()]);
        assert_eq!((worst.node.as_deref(), worst.links), (Some("n\"1"), Some(4)));
        assert_eq!((worst.worst_peer.as_deref(), worst.worst_peer_loss), (Some("lossy"), Some(1.0 / 60.0)));
        assert_eq!((worst.loss, worst.send_lag_p99_seconds), (Some(1.0 / 180.0), Some(0.25)));
        let worst = row("", &[fast, slow, silent.clone()]);
        assert_eq!((worst.worst_peer.as_deref(), worst.worst_peer_rtt_p99_seconds), (Some("slow"), Some(0.5)));
        assert_eq!((worst.loss, worst.send_lag_p99_seconds), (Some(0.0), None));
        let none = row("", &[silent]);
        assert_eq!((none.worst_peer, none.loss, none.links), (None, None, Some(1)), "not measured is not well");
    }

    #[test]
    fn what_it_says_of_the_mesh_is_taken_and_an_older_one_says_nothing() {
        let row = row(r#","members":300,"watchers":12,"watchers_missing":1,"peer_list_age_seconds":2.5,"new":1"#, &[]);
        assert_eq!((row.members, row.watchers, row.watchers_missing), (Some(300), Some(12), Some(1)));
        assert_eq!(row.peer_list_age_seconds, Some(2.5));
        let older = self::row("", &[]);
        assert_eq!((older.members, older.peer_list_age_seconds), (None, None));
    }

    #[test]
    fn a_stranger_s_answer_is_an_error_that_names_the_path() {
        for body in
            ["", "[]", "<html>", r#"{"source":{},"peers":[]}"#, r#"{"source":{"node":"a","zone":"z"},"peers":3}"#]
        {
            let error = Row::default().take_peers(body.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("/api/v1/peers is not what an agent says: "), "{error}");
        }
    }
}
