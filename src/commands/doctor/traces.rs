//! The paths that agents have traced, and the verdicts that they belong to.
//!
//! An agent traces its own links only, so what a report says of a path is shown with the name of
//! its source. Its form was checked as it was read ([`Trace`]). Here it is bounded: a report has at
//! most as many traces as an agent keeps, and a verdict shows the few that most sources agree on.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::output::moment;
use crate::limits::{NAME_BYTES_MAX, TRACES_KEPT};
use crate::mesh::verdicts::{Verdict, covers_udp_between};
use crate::report::{Peer, Protocol, Trace};
use crate::sys::console::printable;

/// Traces that are kept of all reports: some of every agent that an agent collects from. Each takes
/// some 250 bytes.
const TRACES_MAX: usize = 10_000;
/// Traces that are shown beside a verdict.
const SHOWN_MAX: usize = 3;

/// A trace, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Traced {
    /// The node that has traced its path to the peer.
    pub source: String,
    /// The node at the end of the path.
    pub peer: String,
    /// The zones of both nodes.
    #[serde(skip)]
    zones: [String; 2],
    /// `udp` or `udpv6`.
    pub protocol: Protocol,
    /// The source port of the packets.
    pub source_port: u16,
    /// When it began, by the clock of the source.
    pub at_unix_seconds: u64,
    /// What was found, such as "dies after 10.0.3.1".
    pub says: String,
}

impl fmt::Display for Traced {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, peer, source_port, at_unix_seconds, says, .. } = self;
        let (source, peer, at) = (printable(source), printable(peer), moment(*at_unix_seconds));
        write!(out, "{} (trace from {source} to {peer}, UDP source port {source_port}, {at})", printable(says))
    }
}

/// What belongs to a verdict: the traces of its links, at most three.
#[derive(Clone, Debug, Serialize)]
pub struct OfVerdict {
    /// The id of the verdict.
    pub id: String,
    /// For each different result the first trace. The result of most sources comes first.
    pub traces: Vec<Traced>,
}

/// All traces that were read.
#[derive(Debug, Default)]
pub struct Traces {
    source: String,
    zone: String,
    of_source: usize,
    all: Vec<Traced>,
}

impl Traces {
    /// Begins the report of a source.
    pub fn begin_report(&mut self, source: &str, zone: &str) {
        source.clone_into(&mut self.source);
        zone.clone_into(&mut self.zone);
        self.of_source = 0;
    }

    /// Adds the trace of a peer, if there is one that has found something.
    pub fn add(&mut self, peer: &Peer<'_>) {
        let Some(trace) = &peer.trace else { return };
        let is_udp = matches!(peer.protocol, Protocol::Udp | Protocol::Udpv6);
        let has_room = self.of_source < TRACES_KEPT && self.all.len() < TRACES_MAX;
        if !is_udp || !has_room || !is_telling(trace) || peer.node.len().max(peer.zone.len()) > NAME_BYTES_MAX {
            return;
        }
        self.of_source += 1;
        self.all.push(Traced {
            source: self.source.clone(),
            peer: peer.node.clone().into_owned(),
            zones: [self.zone.clone(), peer.zone.clone().into_owned()],
            protocol: peer.protocol,
            source_port: trace.source_port,
            at_unix_seconds: trace.at_unix_seconds,
            says: trace.says.clone().into_owned(),
        });
    }

    /// Returns the traces of each verdict that has any, in the order of the verdicts.
    pub fn by_verdict(&self, verdicts: &[Verdict]) -> Vec<OfVerdict> {
        let with_traces = |verdict: &Verdict| {
            let traces = self.covered_by(verdict);
            (!traces.is_empty()).then(|| OfVerdict { id: verdict.id.clone(), traces })
        };
        verdicts.iter().filter(|verdict| verdict.is_loss()).filter_map(with_traces).collect()
    }

    fn covered_by(&self, verdict: &Verdict) -> Vec<Traced> {
        let mut by_result: BTreeMap<&str, (usize, &Traced)> = BTreeMap::new();
        // The traces of a source are beside each other, so a source counts once per result.
        let mut last: BTreeMap<&str, &str> = BTreeMap::new();
        let covers = |traced: &&Traced| {
            let [source, peer] = [&traced.source, &traced.peer];
            covers_udp_between(verdict, (source, &traced.zones[0]), (peer, &traced.zones[1]))
        };
        // A path that was traced long before is that of another fault.
        let earliest = verdict.since_unix_seconds.map_or(0, |since| since.saturating_sub(BEFORE_SECONDS));
        for traced in self.all.iter().filter(covers).filter(|traced| traced.at_unix_seconds >= earliest) {
            let (count, _) = by_result.entry(&traced.says).or_insert((0, traced));
            *count += usize::from(last.insert(&traced.says, &traced.source) != Some(&traced.source));
        }
        let mut results: Vec<(usize, &Traced)> = by_result.into_values().collect();
        results.sort_by_key(|(sources, _)| std::cmp::Reverse(*sources));
        results.into_iter().take(SHOWN_MAX).map(|(_, traced)| traced.clone()).collect()
    }
}

/// A trace that was made this long before a verdict began may still be of its fault: the clocks of
/// two nodes differ, and losses come before what is known to be a fault.
const BEFORE_SECONDS: u64 = 60;

/// What a trace says of a complete path that loses nothing.
const COMPLETE: [&str; 2] = ["", "complete path"];

/// Whether a trace says more than that the path is complete.
fn is_telling(trace: &Trace<'_>) -> bool {
    !COMPLETE.contains(&&*trace.says)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::output::Examination;
    use crate::commands::doctor::reading::MeshReading;
    use crate::mesh::verdicts::Kind;
    use crate::report::Network;
    use crate::sys::terminal::Terminal;

    const NODES: [&str; 4] = ["a", "b", "c", "d"];
    const DIES: &str = "dies after 10.0.3.1";

    /// Four nodes, each of which loses to `b`, or by UDP to `b` alone, and says this of its path.
    fn examined(
        says: impl Fn(&str, &str) -> Option<&'static str>,
        is_lost: impl Fn(&str, &str, &str) -> bool,
    ) -> Examination {
        let mut reading = MeshReading::default();
        for source in NODES {
            let mut peers = Vec::new();
            for (peer, protocol) in NODES.iter().flat_map(|peer| [(*peer, "icmp"), (*peer, "udp")]) {
                if peer == source {
                    continue;
                }
                let lost = if is_lost(source, peer, protocol) { 60 } else { 0 };
                let mut object = serde_json::json!({"node": peer, "zone": "z", "protocol": protocol,
                    "recent": {"seconds": 60, "sent": 60, "received": 60 - lost, "lost": lost}});
                if let Some(says) = says(source, peer).filter(|_| protocol == "udp") {
                    object["trace"] = serde_json::json!({"source_port": 40_312, "at_unix_seconds": 60, "reached": false,
                        "says": says, "hops": ["10.0.3.1"]});
                }
                peers.push(object);
            }
            let source = serde_json::json!({"node": source, "zone": "z", "listening_seconds": 600});
            let row = serde_json::json!({"source": source, "peers": peers}).to_string();
            // The source comes first, as an agent writes it.
            let row =
                format!("{{\"source\":{source},\"peers\":{}}}", &row[row.find('[').unwrap()..=row.rfind(']').unwrap()]);
            reading.report(0, row.as_bytes()).unwrap();
        }
        Examination::judged(reading)
    }

    fn lines(examination: &Examination) -> Vec<String> {
        examination
            .text(Terminal::PLAIN)
            .lines()
            .filter(|line| line.contains("trace from"))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn the_trace_of_a_link_is_a_line_below_its_verdict() {
        let is_it = |source: &str, peer: &str| (source, peer) == ("a", "b");
        let link = examined(
            |source, peer| is_it(source, peer).then_some(DIES),
            |source, peer, protocol| is_it(source, peer) && protocol == "udp",
        );
        let text = link.text(Terminal::PLAIN);
        let below = text.split_once("link a->b").unwrap().1;
        let expected = format!("\n    {DIES} (trace from a to b, UDP source port 40312, 1970-01-01 00:01 UTC)\n");
        assert!(below.contains(&expected), "{text}");
        let json: serde_json::Value = serde_json::from_str(&link.json()).unwrap();
        assert_eq!(json["traces"][0]["id"], json["verdicts"][0]["id"]);
        let expected = serde_json::json!({"source": "a", "peer": "b", "protocol": "udp", "source_port": 40_312,
            "at_unix_seconds": 60, "says": DIES});
        assert_eq!(json["traces"][0]["traces"], serde_json::json!([expected]));
    }

    #[test]
    fn traces_of_other_links_and_of_whole_paths_and_other_protocols_are_no_lines() {
        let udp = |source: &str, peer: &str, protocol: &str| (source, peer, protocol) == ("a", "b", "udp");
        assert_eq!(lines(&examined(|source, peer| (source == "c" || peer == "c").then_some(DIES), udp)), [""; 0]);
        for says in COMPLETE {
            assert_eq!(lines(&examined(|_, _| Some(says), udp)), [""; 0]);
        }
        let icmp = |source: &str, peer: &str, protocol: &str| (source, peer, protocol) == ("a", "b", "icmp");
        assert_eq!(lines(&examined(|_, _| Some(DIES), icmp)), [""; 0]);
    }

    #[test]
    fn the_trace_of_an_earlier_fault_is_not_shown() {
        let mut traces = Traces::default();
        traces.begin_report("a", "z");
        let trace = Some(Trace { says: DIES.into(), at_unix_seconds: 1_000, ..Trace::default() });
        traces.add(&Peer { node: "b".into(), protocol: Protocol::Udp, trace, ..Peer::default() });
        let shown = |since: Option<u64>| {
            let verdict = Verdict::new(Kind::Link, "a->b".into(), Network::Pod);
            traces.covered_by(&Verdict { since_unix_seconds: since, ..verdict }).len()
        };
        assert_eq!([None, Some(900), Some(1_060), Some(1_061)].map(shown), [1, 1, 1, 0]);
    }

    #[test]
    fn of_many_traces_what_most_sources_say_comes_first_and_few_are_shown() {
        let says = |source: &str, peer: &str| match (source, peer) {
            // One source says much, about all links.
            ("b", "a") => Some("dies after 10.9.9.1"),
            ("b", "c") => Some("dies after 10.9.9.2"),
            ("b", "d") => Some("dies after 10.9.9.3"),
            (_, "b") => Some(DIES),
            _ => None,
        };
        let node = examined(says, |source, peer, protocol| protocol == "udp" && (source == "b" || peer == "b"));
        let lines = lines(&node);
        assert_eq!(lines.len(), SHOWN_MAX, "{lines:?}");
        assert!(lines[0].starts_with(&format!("    {DIES} (trace from a to b,")), "{lines:?}");
    }

    #[test]
    fn a_source_has_as_many_traces_as_an_agent_keeps_and_all_have_a_limit() {
        let trace = Some(Trace { says: DIES.into(), ..Trace::default() });
        let peer = Peer { node: "b".into(), protocol: Protocol::Udp, trace, ..Peer::default() };
        let mut traces = Traces::default();
        for source in 0..1_000 {
            traces.begin_report(&source.to_string(), "z");
            (0..100).for_each(|_| traces.add(&peer));
            assert_eq!(traces.all.len(), ((source + 1) * TRACES_KEPT).min(TRACES_MAX));
        }
        let long = Peer { node: "n".repeat(NAME_BYTES_MAX + 1).into(), ..peer };
        traces = Traces::default();
        traces.add(&long);
        assert!(traces.all.is_empty());
    }
}
