//! The demo's table, with a line for each agent.

use std::net::{Ipv4Addr, SocketAddr};

use crate::allocator::AllocatorInfo;
use crate::report::{Method, Peer, Report};
use crate::sys::console::printable;
use crate::sys::table::{self, ColumnKind, kilobytes, known, percent, time};

/// Resident KB of an agent of the image, which is built with musl: the median in a mesh of 25.
// <!-- report: code-image -->
const IMAGE_RSS_KB: &str = "1,224";
// <!-- end of report -->

const HEADS: [(&str, ColumnKind); 10] = [
    ("NODE", ColumnKind::Text),
    ("ADDRESS", ColumnKind::Text),
    ("PEERS", ColumnKind::Number),
    ("SENT", ColumnKind::Number),
    ("LOST", ColumnKind::Number),
    ("LOSS", ColumnKind::Number),
    ("RTT P50", ColumnKind::Number),
    ("RTT P99", ColumnKind::Number),
    ("THREADS", ColumnKind::Number),
    ("RSS KB", ColumnKind::Number),
];

/// What is shown of one agent.
#[derive(Debug)]
pub struct AgentSummary {
    cells: [String; HEADS.len()],
    /// Whether the agent has answered.
    pub has_answered: bool,
    /// Whether the agent has a result for each of the expected peers.
    pub is_complete: bool,
}

impl AgentSummary {
    /// Creates the summary of an agent, whose report is none if it has not answered.
    pub fn new(node: &str, address: Ipv4Addr, report: Option<&Report<'_>>, expected_peers: usize) -> Self {
        let peers = report.map_or(&[][..], |report| &report.peers);
        let peers: Vec<&Peer<'_>> = peers.iter().filter(|peer| peer.protocol.method() == Some(Method::Icmp)).collect();
        let sum = |count: fn(&Peer<'_>) -> u64| peers.iter().map(|peer| count(peer)).sum::<u64>();
        let decided = sum(|peer| peer.received + peer.lost);
        let mut medians: Vec<f64> = peers.iter().filter_map(|peer| peer.rtt_p50_seconds).collect();
        medians.sort_unstable_by(f64::total_cmp);
        let worst = peers.iter().filter_map(|peer| peer.rtt_p99_seconds).reduce(f64::max);
        let source = report.map(|report| &report.source);
        let number = |count: fn(&Peer<'_>) -> u64| known(report, |_| sum(count).to_string());
        let cells = [
            node.to_owned(),
            address.to_string(),
            number(|_| 1),
            number(|peer| peer.sent),
            number(|peer| peer.lost),
            known((decided > 0).then(|| sum(|peer| peer.lost) as f64 / decided as f64), percent),
            known(medians.get(medians.len() / 2).copied(), time),
            known(worst, time),
            known(source.and_then(|source| source.threads), |threads| threads.to_string()),
            known(source.and_then(|source| source.rss_bytes), kilobytes),
        ];
        let is_complete = peers.len() == expected_peers && peers.iter().all(|peer| peer.received + peer.lost > 0);
        Self { cells, has_answered: report.is_some(), is_complete: report.is_some() && is_complete }
    }
}

/// Formats the whole table, with the malloc of this build, the verdict and the way to the page of
/// the `first` agent.
pub fn render(agents: &[AgentSummary], malloc: &AllocatorInfo, headline: &str, first: SocketAddr) -> String {
    let table = table::render(HEADS, agents.iter().map(|agent| agent.cells.clone()));
    format!(
        "{table}\nBy ICMP. RTT P50: median over the peers; P99: of the worst peer (both interpolated in the histogram).\n\
         RSS with {} {}; an agent of the image, with musl, takes {IMAGE_RSS_KB} KB in a mesh of 25.\n\
         Verdict: {}\n\
         Page: http://{first}/ (metrics: http://{first}/metrics)\n\
         More: kube-canary doctor --url http://{first} — Ctrl-C stops the mesh.\n",
        malloc.allocator,
        malloc.version,
        printable(headline)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

    fn line(report: Option<&str>) -> (String, AgentSummary) {
        let report = report.map(|text| serde_json::from_str(text).unwrap());
        let summary = AgentSummary::new("node1", ADDRESS, report.as_ref(), 2);
        let (allocator, version) = ("glibc", "2.36".to_owned());
        let glibc = AllocatorInfo { allocator, version, narenas: None, libc: "glibc", linkage: "rust" };
        let text = render(std::slice::from_ref(&summary), &glibc, "all well", (ADDRESS, 9_877).into());
        assert!(text.contains("\nRSS with glibc 2.36; an agent of the image, with musl, takes "), "{text}");
        assert!(text.contains("\nVerdict: all well\nPage: http://127.0.0.2:9877/ "), "{text}");
        (text.lines().nth(1).unwrap().to_owned(), summary)
    }

    #[test]
    fn a_line_has_the_sums_over_the_peers() {
        let (line, summary) = line(Some(
            r#"{"source":{"node":"node1","rss_bytes":1355776,"threads":5},"peers":[
            {"node":"b","sent":10,"received":9,"lost":1,"rtt_p50_seconds":2e-5,"rtt_p99_seconds":9e-5},
            {"node":"c","sent":10,"received":9,"lost":0,"rtt_p50_seconds":4e-5,"rtt_p99_seconds":0.0012}]}"#,
        ));
        assert!(summary.is_complete);
        let words: Vec<&str> = line.split("  ").filter(|word| !word.is_empty()).map(str::trim).collect();
        assert_eq!(words, ["node1", "127.0.0.2", "2", "20", "1", "5.3%", "40 µs", "1.2 ms", "5", "1,324"]);
    }

    #[test]
    fn an_agent_that_does_not_answer_has_dashes() {
        let (line, summary) = line(None);
        assert!(!summary.is_complete && !summary.has_answered);
        assert_eq!(line.split_whitespace().filter(|word| *word == "-").count(), HEADS.len() - 2, "{line}");
    }
}
