//! The summary of one agent: the figures that `fleet` shows, from the agent's report.

use std::borrow::Cow;

use serde::Serialize;

use super::ask::{self, AskError};
use crate::check::{Check, is_check_name};
use crate::config::AgentUrl;
use crate::report::{self, Network, Peer, Protocol, Report, SendError, weighed_loss};

/// The figures of one agent. A figure that it does not report is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeSummary {
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
    /// The peer with the highest recent loss, of which few probes weigh less. Among equals, the one
    /// with the longest p99.
    pub worst_peer: Option<String>,
    /// The network of the worst peer.
    pub worst_peer_network: Option<Network>,
    /// The protocol of the worst peer.
    pub worst_peer_protocol: Option<Protocol>,
    /// The recent loss of the worst peer, 0 to 1.
    pub worst_peer_loss: Option<f64>,
    /// The recent p99 of the worst peer, in seconds.
    pub worst_peer_rtt_p99_seconds: Option<f64>,
    /// Recent loss over all links, 0 to 1.
    pub loss: Option<f64>,
    /// Recent probes that could not be sent. They are in no loss.
    pub send_errors: Option<u64>,
    /// Why most of those of one link could not be sent: of the link that has the most.
    pub send_error_reason: Option<SendError>,
    /// Its checks of which recent attempts failed or were slow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bad_checks: Vec<Check<'static>>,
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

/// Asks one agent. Never fails: an error is stored in the summary.
pub async fn ask(agent: AgentUrl) -> NodeSummary {
    let summary = ask::report(&agent).await.and_then(|text| NodeSummary::parse(&text));
    let summary = summary.unwrap_or_else(|error| NodeSummary { error: Some(error.to_string()), ..Default::default() });
    NodeSummary { url: agent.to_string(), ..summary }
}

/// Returns the loss among decided probes, 0 to 1. None if no probe is decided.
fn loss(received: u64, lost: u64) -> Option<f64> {
    let decided = received.saturating_add(lost);
    (decided > 0).then(|| lost as f64 / decided as f64)
}

impl NodeSummary {
    fn parse(text: &[u8]) -> Result<Self, AskError> {
        serde_json::from_slice(text).map(Self::from_report).map_err(ask::foreign(report::PATH))
    }

    /// Returns the summary of a report. A figure that an older agent does not report is none.
    fn from_report(Report { source, checks, peers }: Report<'_>) -> Self {
        let sum = |count: fn(&Peer<'_>) -> u64| peers.iter().map(count).fold(0, u64::saturating_add);
        let recent_loss = |peer: &Peer<'_>| loss(peer.recent.received.into(), peer.recent.lost.into());
        let weighed =
            |peer: &Peer<'_>| weighed_loss(peer.recent.lost, peer.recent.lost.saturating_add(peer.recent.received));
        let p99 = |peer: &Peer<'_>| peer.recent.rtt_p99_seconds.unwrap_or(0.0);
        // Of equal peers the first one is named. `max_by` returns the last.
        let measured = peers.iter().rev().filter_map(|peer| Some((recent_loss(peer)?, peer)));
        let worst =
            measured.max_by(|(_, a), (_, b)| weighed(a).total_cmp(&weighed(b)).then_with(|| p99(a).total_cmp(&p99(b))));
        let worst_unsent = peers.iter().max_by_key(|peer| peer.recent.send_errors);
        let bad = checks.into_iter().filter(|check| check.failed > 0 || check.slow > 0);
        let bad = bad.filter(|check| is_check_name(&check.name));
        let reported = |text: Cow<'_, str>| Some(text.into_owned()).filter(|text| !text.is_empty());
        let sent = sum(|peer| peer.sent);
        let mut summary = Self {
            node: Some(source.node.into_owned()),
            zone: Some(source.zone.into_owned()),
            url: String::new(),
            // Older agents write 0 if they do not know it.
            rss_bytes: source.rss_bytes.filter(|bytes| *bytes > 0),
            private_dirty_bytes: source.private_dirty_bytes,
            cpus: source.cpus,
            threads: source.threads,
            allocator: reported(source.allocator),
            narenas: source.narenas,
            linkage: reported(source.linkage),
            libc: reported(source.libc),
            version: reported(source.version),
            cpu_seconds_per_probe: source.cpu_seconds.filter(|_| sent > 0).map(|seconds| seconds / sent as f64),
            links: Some(peers.len() as u64),
            loss: loss(sum(|peer| peer.recent.received.into()), sum(|peer| peer.recent.lost.into())),
            send_errors: Some(sum(|peer| peer.recent.send_errors.into())),
            send_error_reason: worst_unsent.and_then(|peer| peer.recent.send_error_reason),
            bad_checks: bad.map(|check| Check { name: check.name.into_owned().into(), ..check }).collect(),
            send_lag_p99_seconds: source.recent.send_lag_p99_seconds,
            members: source.members,
            watchers: source.watchers,
            watchers_missing: source.watchers_missing,
            peer_list_age_seconds: source.peer_list_age_seconds.seconds(),
            ..Self::default()
        };
        if let Some((loss, worst)) = worst {
            summary.worst_peer = Some(worst.node.clone().into_owned());
            summary.worst_peer_network = Some(worst.network);
            summary.worst_peer_protocol = Some(worst.protocol);
            summary.worst_peer_loss = Some(loss);
            summary.worst_peer_rtt_p99_seconds = worst.recent.rtt_p99_seconds;
        }
        summary
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

    fn summary(source: &str, peers: &[String]) -> NodeSummary {
        let text = format!(r#"{{"source":{{"node":"n\"1","zone":"z"{source}}},"peers":[{}]}}"#, peers.join(","));
        NodeSummary::parse(text.as_bytes()).unwrap()
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
            summary(r#","recent":{"send_lag_p99_seconds":0.25}"#, &[fast.clone(), slow.clone(), lossy, silent.clone()]);
        assert_eq!((worst.node.as_deref(), worst.links), (Some("n\"1"), Some(4)));
        assert_eq!((worst.worst_peer.as_deref(), worst.worst_peer_loss), (Some("lossy"), Some(1.0 / 60.0)));
        assert_eq!((worst.loss, worst.send_lag_p99_seconds), (Some(1.0 / 180.0), Some(0.25)));
        let worst = summary("", &[fast, slow, silent.clone()]);
        assert_eq!((worst.worst_peer.as_deref(), worst.worst_peer_rtt_p99_seconds), (Some("slow"), Some(0.5)));
        assert_eq!((worst.loss, worst.send_lag_p99_seconds), (Some(0.0), None));
        let none = summary("", &[silent]);
        assert_eq!((none.worst_peer, none.loss, none.links), (None, None, Some(1)), "not measured is not well");
    }

    #[test]
    fn probes_that_could_not_be_sent_are_no_loss_and_have_their_reason() {
        let unsent = |node: &str, errors: u32, reason: &str| {
            let recent = format!(r#"{{"send_errors":{errors},"send_error_reason":"{reason}"}}"#);
            format!(r#"{{"node":"{node}","recent":{recent}}}"#)
        };
        let found = summary("", &[unsent("a", 6, "no_buffer"), peer("b", 60, 0, "null"), unsent("c", 60, "no_route")]);
        assert_eq!((found.send_errors, found.send_error_reason), (Some(66), Some(SendError::NoRoute)));
        assert_eq!((found.loss, found.worst_peer.as_deref()), (Some(0.0), Some("b")), "of what was sent");
        let none = summary("", &[unsent("a", 60, "no_route")]);
        assert_eq!((none.loss, none.worst_peer, none.send_errors), (None, None, Some(60)));
        let well = summary("", &[peer("b", 60, 0, "null")]);
        assert_eq!((well.send_errors, well.send_error_reason), (Some(0), None));
    }

    #[test]
    fn checks_that_fail_or_are_slow_are_listed() {
        let of = |text: &str| {
            let text = format!(r#"{{"source":{{"node":"a"}},"checks":[{text}],"peers":[]}}"#);
            let checks = NodeSummary::parse(text.as_bytes()).unwrap().bad_checks;
            checks.iter().map(|check| check.name.to_string()).collect::<Vec<_>>()
        };
        let checks = r#"{"name":"dns","kind":"dns","tried":12,"failed":5,"reason":"timeout"},
            {"name":"web","kind":"http","tried":12,"slow":1},{"name":"api","kind":"tls","tried":6},
            {"name":"a b","kind":"tcp","tried":6,"failed":6}"#;
        assert_eq!((of(checks), of("")), (vec!["dns".to_owned(), "web".to_owned()], vec![]));
    }

    #[test]
    fn few_lost_handshakes_are_no_worse_than_many_lost_echo_requests() {
        let tcp = |node, received, lost| peer(node, received, lost, "0.001").replace("icmp", "tcp");
        let found = summary("", &[tcp("a", 2, 6), peer("a", 42, 18, "0.001"), tcp("b", 5, 1)]);
        let worst = (found.worst_peer.as_deref(), found.worst_peer_protocol, found.worst_peer_loss);
        assert_eq!(worst, (Some("a"), Some(Protocol::Icmp), Some(0.3)));
        let alone = summary("", &[tcp("a", 0, 6), peer("a", 60, 0, "0.001")]);
        assert_eq!((alone.worst_peer_protocol, alone.worst_peer_loss), (Some(Protocol::Tcp), Some(1.0)));
    }

    #[test]
    fn the_mesh_as_the_report_describes_it_is_shown_and_an_older_report_does_not() {
        let newer =
            summary(r#","members":300,"watchers":12,"watchers_missing":1,"peer_list_age_seconds":2.5,"new":1"#, &[]);
        assert_eq!((newer.members, newer.watchers, newer.watchers_missing), (Some(300), Some(12), Some(1)));
        assert_eq!(newer.peer_list_age_seconds, Some(2.5));
        let older = summary("", &[]);
        assert_eq!((older.members, older.peer_list_age_seconds), (None, None));
    }

    #[test]
    fn memory_threads_and_cpu_time_are_those_of_the_report() {
        let says = r#","version":"0.1.0","allocator":"jemalloc","narenas":1,"linkage":"rust","libc":"musl","rss_bytes":1355776,
            "private_dirty_bytes":12288,"cpus":64,"threads":5,"cpu_seconds":0.5"#;
        let probed = peer("a", 60, 0, "null");
        let found = summary(says, &[probed.clone(), probed.clone()]);
        let numbers = [found.rss_bytes, found.private_dirty_bytes, found.cpus, found.threads, found.narenas];
        assert_eq!(numbers, [1_355_776, 12_288, 64, 5, 1].map(Some));
        let texts = [found.allocator, found.linkage, found.libc, found.version];
        assert_eq!(texts.map(Option::unwrap), ["jemalloc", "rust", "musl", "0.1.0"]);
        // Of 100 probes to each.
        assert!((found.cpu_seconds_per_probe.unwrap() - 0.0025).abs() < 1e-9);
        let older = summary(r#","rss_bytes":0"#, &[probed]);
        assert_eq!((older.rss_bytes, older.private_dirty_bytes, older.threads), (None, None, None));
        assert_eq!((older.libc, older.version, older.cpu_seconds_per_probe), (None, None, None));
        assert_eq!(summary(r#","cpu_seconds":1"#, &[]).cpu_seconds_per_probe, None, "no probe");
    }

    #[test]
    fn another_program_s_answer_is_an_error_that_names_the_path() {
        for body in
            ["", "[]", "<html>", r#"{"source":{},"peers":[]}"#, r#"{"source":{"node":"a","zone":"z"},"peers":3}"#]
        {
            let error = NodeSummary::parse(body.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("/api/v1/peers is not what an agent says: "), "{error}");
        }
    }
}
