//! The demo's table, with a row for each agent.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use serde::Deserialize;

use crate::config::DemoSettings;
use crate::exposition::field;

/// The part of `/api/v1/peers` that is shown.
#[derive(Debug, Deserialize)]
pub struct RowData {
    peers: Vec<PeerData>,
}

#[derive(Debug, Deserialize)]
struct PeerData {
    sent: u64,
    received: u64,
    lost: u64,
    rtt_p50_seconds: Option<f64>,
    rtt_p99_seconds: Option<f64>,
}

/// The row of one agent.
#[derive(Debug)]
pub struct Row {
    node: String,
    address: Ipv4Addr,
    expected_peers: usize,
    rss_kilobytes: Option<i64>,
    threads: Option<i64>,
    /// None if the agent did not answer.
    pub data: Option<RowData>,
}

impl Row {
    /// Creates a row. Memory and threads are read here.
    pub fn new(node: &str, address: Ipv4Addr, pid: u32, data: Option<RowData>, expected_peers: usize) -> Self {
        Self {
            node: node.to_owned(),
            address,
            expected_peers,
            rss_kilobytes: field(&format!("/proc/{pid}/smaps_rollup"), "Rss:"),
            threads: field(&format!("/proc/{pid}/status"), "Threads:"),
            data,
        }
    }

    /// Whether every peer has at least one result.
    pub fn is_complete(&self) -> bool {
        let Some(data) = &self.data else { return false };
        data.peers.len() == self.expected_peers && data.peers.iter().all(|peer| peer.received + peer.lost > 0)
    }
}

/// Formats the whole table.
pub fn render(rows: &[Row], settings: &DemoSettings) -> String {
    let mut text =
        String::from("NODE    ADDRESS       PEERS    SENT   LOST    LOSS   RTT P50   RTT P99   THREADS        RSS\n");
    for row in rows {
        let (mut sent, mut lost, mut done) = (0, 0, 0);
        let (mut medians, mut worst) = (Vec::new(), None::<f64>);
        for peer in row.data.iter().flat_map(|data| &data.peers) {
            sent += peer.sent;
            lost += peer.lost;
            done += peer.received + peer.lost;
            medians.extend(peer.rtt_p50_seconds);
            worst = peer.rtt_p99_seconds.into_iter().chain(worst).reduce(f64::max);
        }
        medians.sort_unstable_by(f64::total_cmp);
        let median = medians.get(medians.len() / 2).copied();
        let peers = row.data.as_ref().map_or_else(|| "-".into(), |data| data.peers.len().to_string());
        let share = if done == 0 { "-".into() } else { format!("{:.2}%", lost as f64 / done as f64 * 100.0) };
        let shown = |value: Option<i64>| value.map_or_else(|| "-".into(), |v| v.to_string());
        let _ = writeln!(
            text,
            "{:<8}{:<14}{peers:>5}{sent:>8}{lost:>7}{share:>8}{:>10}{:>10}{:>10}{:>8} KB",
            row.node,
            row.address,
            time(median),
            time(worst),
            shown(row.threads),
            shown(row.rss_kilobytes),
        );
    }
    let address = rows.first().map_or(Ipv4Addr::LOCALHOST, |row| row.address);
    let _ = writeln!(
        text,
        "\nRTT P50: median over the peers; P99: of the worst peer (both interpolated in the histogram).\n\
         One agent's metrics: curl http://{address}:{}/metrics — Ctrl-C stops the mesh.",
        settings.port
    );
    text
}

fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".into(),
        Some(s) if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        Some(s) => format!("{:.2} ms", s * 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_row_adds_up_its_peers() {
        let json = r#"{"source":{},"peers":[
            {"sent":10,"received":9,"lost":1,"rtt_p50_seconds":2e-5,"rtt_p99_seconds":9e-5},
            {"sent":10,"received":9,"lost":0,"rtt_p50_seconds":4e-5,"rtt_p99_seconds":0.0012}]}"#;
        let data = serde_json::from_str(json).unwrap();
        let row = Row::new("node1", Ipv4Addr::new(127, 0, 0, 2), std::process::id(), Some(data), 2);
        assert!(row.is_complete());
        let settings = DemoSettings { nodes: 3, interval: Duration::from_secs(1), port: 9_877, seconds: None };
        let text = render(&[row], &settings);
        let line = text.lines().nth(1).unwrap();
        for part in ["node1", "127.0.0.2", " 20 ", " 1 ", "5.26%", "40 µs", "1.20 ms", "KB"] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }

    #[test]
    fn a_canary_that_does_not_answer_has_dashes() {
        let row = Row::new("node1", Ipv4Addr::new(127, 0, 0, 2), 0, None, 2);
        assert!(!row.is_complete());
        let settings = DemoSettings { nodes: 3, interval: Duration::from_secs(1), port: 9_877, seconds: None };
        assert!(render(&[row], &settings).lines().nth(1).unwrap().contains(" - "));
    }
}
