//! What one canary says of itself: its row (`/api/v1/peers`), and the head of its metrics.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::ask::{AskError, Connection, More, within};
use super::samples::Sample;
use crate::config::CanaryUrl;
use crate::http::client::GetError;
use crate::limits::{CANARY_TIME, OWN_SAMPLES_BYTES_MAX, ROW_BYTES_MAX, SAMPLE_BYTES_MAX};

const PEERS: &str = "/api/v1/peers";
const METRICS: &str = "/metrics";

/// A canary; what it has not said is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// Its node; none where it has not answered.
    pub node: Option<String>,
    /// The node's zone, or `unknown`.
    pub zone: Option<String>,
    /// Where it was asked.
    pub url: String,
    /// Resident memory.
    pub rss_bytes: Option<u64>,
    /// Private dirty memory.
    pub private_dirty_bytes: Option<u64>,
    /// Processors of the machine.
    pub cpus: Option<u64>,
    /// Threads of the canary.
    pub threads: Option<u64>,
    /// The malloc that runs.
    pub allocator: Option<String>,
    /// jemalloc's arenas.
    pub narenas: Option<u64>,
    /// Who links: `rust` or `c-shim`.
    pub linkage: Option<String>,
    /// The libc.
    pub libc: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Processor time per probe since the start, in seconds.
    pub cpu_seconds_per_probe: Option<f64>,
    /// Links that it measures: peers, families and networks.
    pub links: Option<u64>,
    /// The peer with the highest recent loss, of these that with the longest p99.
    pub worst_peer: Option<String>,
    /// On which network.
    pub worst_peer_network: Option<String>,
    /// By which protocol.
    pub worst_peer_protocol: Option<String>,
    /// Its recent loss, 0 to 1.
    pub worst_peer_loss: Option<f64>,
    /// Its recent p99, in seconds.
    pub worst_peer_rtt_p99_seconds: Option<f64>,
    /// Recent loss over all links, 0 to 1.
    pub loss: Option<f64>,
    /// Recent p99 of how late it sends.
    pub send_lag_p99_seconds: Option<f64>,
    /// Why something is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Asks one canary. Never fails: what went wrong is in the row.
pub async fn ask(canary: CanaryUrl) -> Row {
    let mut row = Row { url: canary.to_string(), ..Row::default() };
    if let Err(error) = within(CANARY_TIME, fill(&mut row, &canary)).await {
        row.error = Some(error.to_string());
    }
    row
}

async fn fill(row: &mut Row, canary: &CanaryUrl) -> Result<(), AskError> {
    let mut connection = Connection::open(canary).await?;
    let body = connection.whole(PEERS, ROW_BYTES_MAX).await?;
    let sent = row.take_peers(&body)?;
    drop(body);
    if !connection.is_usable().await {
        connection = Connection::open(canary).await?;
    }
    let mut own = OwnSamples::default();
    let mut bytes = 0;
    connection
        .lines(METRICS, SAMPLE_BYTES_MAX, |line| {
            bytes += line.len();
            if bytes > OWN_SAMPLES_BYTES_MAX {
                return Err(GetError::TooLarge(OWN_SAMPLES_BYTES_MAX));
            }
            Ok(std::str::from_utf8(line).map_or(More::Wanted, |line| own.take(line)))
        })
        .await?;
    own.give(row, sent);
    Ok(())
}

/// What is read of a row.
#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    source: Source<'a>,
    #[serde(borrow)]
    peers: Sum<'a>,
}

#[derive(Deserialize)]
struct Source<'a> {
    #[serde(borrow)]
    node: Cow<'a, str>,
    #[serde(borrow)]
    zone: Cow<'a, str>,
    #[serde(default)]
    recent: RecentSource,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RecentSource {
    send_lag_p99_seconds: Option<f64>,
}

#[derive(Deserialize)]
struct Peer<'a> {
    #[serde(borrow)]
    node: Cow<'a, str>,
    #[serde(borrow)]
    network: Cow<'a, str>,
    #[serde(borrow)]
    protocol: Cow<'a, str>,
    sent: u64,
    recent: Recent,
}

#[derive(Deserialize)]
struct Recent {
    received: u64,
    lost: u64,
    rtt_p99_seconds: Option<f64>,
}

impl Recent {
    /// Of the probes that are decided; none where none is.
    fn loss(&self) -> Option<f64> {
        let decided = self.received.saturating_add(self.lost);
        (decided > 0).then(|| self.lost as f64 / decided as f64)
    }
}

/// All peers of a row, added up one after the other: thousands are never held.
#[derive(Default)]
struct Sum<'a> {
    links: u64,
    sent: u64,
    recent_received: u64,
    recent_lost: u64,
    worst: Option<(f64, Peer<'a>)>,
}

impl<'a> Sum<'a> {
    fn add(&mut self, peer: Peer<'a>) {
        self.links += 1;
        self.sent = self.sent.saturating_add(peer.sent);
        self.recent_received = self.recent_received.saturating_add(peer.recent.received);
        self.recent_lost = self.recent_lost.saturating_add(peer.recent.lost);
        let Some(loss) = peer.recent.loss() else { return };
        let p99 = |peer: &Peer<'_>| peer.recent.rtt_p99_seconds.unwrap_or(0.0);
        let worse = |(worst, of): &(f64, Peer<'_>)| {
            loss.total_cmp(worst).then_with(|| p99(&peer).total_cmp(&p99(of))) == Ordering::Greater
        };
        if self.worst.as_ref().is_none_or(worse) {
            self.worst = Some((loss, peer));
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Sum<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Adding;
        impl<'de> Visitor<'de> for Adding {
            type Value = Sum<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a list of peers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut peers: A) -> Result<Sum<'de>, A::Error> {
                let mut sum = Sum::default();
                while let Some(peer) = peers.next_element()? {
                    sum.add(peer);
                }
                Ok(sum)
            }
        }
        from.deserialize_seq(Adding)
    }
}

impl Row {
    /// Takes what `/api/v1/peers` says; gives the probes sent since the start.
    fn take_peers(&mut self, body: &[u8]) -> Result<u64, AskError> {
        let foreign = |error: serde_json::Error| AskError::Foreign { path: PEERS, reason: error.to_string() };
        let Document { source, peers } = serde_json::from_slice(body).map_err(foreign)?;
        self.node = Some(source.node.into_owned());
        self.zone = Some(source.zone.into_owned());
        self.send_lag_p99_seconds = source.recent.send_lag_p99_seconds;
        self.links = Some(peers.links);
        self.loss = Recent { received: peers.recent_received, lost: peers.recent_lost, rtt_p99_seconds: None }.loss();
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

/// The canary's own samples, which stand before those of its peers.
#[derive(Debug, Default)]
struct OwnSamples {
    rss: Option<f64>,
    dirty: Option<f64>,
    cpus: Option<f64>,
    threads: Option<f64>,
    cpu_seconds: Option<f64>,
    /// Allocator, narenas, linkage, libc, version.
    build: [Option<String>; 5],
}

impl OwnSamples {
    fn take(&mut self, line: &str) -> More {
        let Some(sample) = Sample::parse(line) else { return More::Wanted };
        let value = sample.value;
        match sample.name {
            "process_resident_memory_bytes" => self.rss = Some(value),
            "process_threads" => self.threads = Some(value),
            "process_cpu_seconds_total" => self.cpu_seconds = Some(value),
            "kube_canary_cpus" => self.cpus = Some(value),
            // All that it has written to is its own; `shared` alone may be another's as well.
            "kube_canary_memory_bytes" => {
                let is = |label, text| sample.label(label).is_some_and(|value| value == text);
                if is("state", "dirty") && !is("category", "shared") {
                    self.dirty = Some(self.dirty.unwrap_or(0.0) + value);
                }
            }
            "kube_canary_build_info" => {
                let label = |name| sample.label(name).map(Cow::into_owned);
                self.build = ["allocator", "narenas", "linkage", "libc", "version"].map(label);
            }
            _ if sample.label("peer_node").is_some() => return More::Enough,
            _ => {}
        }
        More::Wanted
    }

    fn give(self, row: &mut Row, sent: u64) {
        let [allocator, narenas, linkage, libc, version] = self.build;
        row.rss_bytes = self.rss.and_then(whole);
        row.private_dirty_bytes = self.dirty.and_then(whole);
        row.cpus = self.cpus.and_then(whole);
        row.threads = self.threads.and_then(whole);
        row.narenas = narenas.and_then(|text| text.parse().ok());
        (row.allocator, row.linkage, row.libc, row.version) = (allocator, linkage, libc, version);
        row.cpu_seconds_per_probe = self.cpu_seconds.filter(|_| sent > 0).map(|seconds| seconds / sent as f64);
    }
}

fn whole(value: f64) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "range-checked")]
    (0.0..9.0e15).contains(&value).then_some(value as u64)
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
    fn a_stranger_s_answer_is_an_error_that_names_the_path() {
        for body in
            ["", "[]", "<html>", r#"{"source":{},"peers":[]}"#, r#"{"source":{"node":"a","zone":"z"},"peers":3}"#]
        {
            let error = Row::default().take_peers(body.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("/api/v1/peers is not what a canary says: "), "{error}");
        }
    }

    #[test]
    fn a_canary_s_own_samples_are_those_before_its_peers() {
        let text = "# HELP process_threads Threads.\nprocess_threads 5\nprocess_cpu_seconds_total 0.5\n\
            process_resident_memory_bytes 1355776\nkube_canary_cpus 64\n\
            kube_canary_build_info{allocator=\"jemalloc\",libc=\"musl\",linkage=\"rust\",narenas=\"1\",version=\"0.1.0\"} 1\n\
            kube_canary_memory_bytes{category=\"heap\",state=\"dirty\"} 4096\n\
            kube_canary_memory_bytes{category=\"heap\",state=\"clean\"} 100\n\
            kube_canary_memory_bytes{category=\"anon\",state=\"dirty\"} 8192\n\
            kube_canary_memory_bytes{category=\"shared\",state=\"dirty\"} 100\n\
            kube_canary_probes_received_total{source_node=\"a\",peer_node=\"b\"} 7\nprocess_threads 9\n";
        let mut own = OwnSamples::default();
        let ended = text.lines().take_while(|line| own.take(line) == More::Wanted).count();
        assert_eq!(ended, 10, "nothing behind the first peer is read");
        let mut row = Row::default();
        own.give(&mut row, 1_000);
        assert_eq!(
            (row.rss_bytes, row.private_dirty_bytes, row.cpus, row.threads),
            (Some(1_355_776), Some(12_288), Some(64), Some(5))
        );
        assert_eq!(
            (row.allocator.as_deref(), row.narenas, row.linkage.as_deref()),
            (Some("jemalloc"), Some(1), Some("rust"))
        );
        assert_eq!((row.libc.as_deref(), row.version.as_deref()), (Some("musl"), Some("0.1.0")));
        assert!((row.cpu_seconds_per_probe.unwrap() - 0.0005).abs() < 1e-9);
        let mut silent = Row::default();
        OwnSamples::default().give(&mut silent, 0);
        assert_eq!(silent, Row::default());
    }
}
