//! A report of `/api/v1/peers` as it is parsed: its source, and one peer at a time.
//!
//! During a rollout, the agents of a mesh differ in version. So only the needed fields are read:
//! unknown fields are ignored, and fields that the first versions did not write may be missing.
//! Strings without an escape are borrowed from the text.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

/// The object `source` of a report: the agent that measured, and what it reports about itself.
#[derive(Clone, Debug, Deserialize)]
pub struct Source<'a> {
    /// Name of the node.
    #[serde(borrow)]
    pub node: Cow<'a, str>,
    /// Zone of the node, or `unknown`.
    #[serde(borrow, default)]
    pub zone: Cow<'a, str>,
    /// Version of the agent; empty if not reported.
    #[serde(borrow, default)]
    pub version: Cow<'a, str>,
    /// The allocator that the agent uses; empty if not reported.
    #[serde(borrow, default)]
    pub allocator: Cow<'a, str>,
    /// Number of jemalloc's arenas.
    pub narenas: Option<u64>,
    /// `rust` or `c-shim`; empty if not reported.
    #[serde(borrow, default)]
    pub linkage: Cow<'a, str>,
    /// Resident memory of the agent.
    pub rss_bytes: Option<u64>,
    /// Number of CPUs of the node.
    pub cpus: Option<u64>,
    /// Time between two probes of one peer.
    pub interval_seconds: Option<f64>,
    /// Whether every peer's last hour is kept.
    pub hour_kept: Option<bool>,
    /// Echo requests counted by the kernel since the agent's network namespace was created.
    #[serde(default)]
    pub echo_requests_received: u64,
    /// Echo replies counted by the kernel since then.
    #[serde(default)]
    pub echo_replies_sent: u64,
    /// Number of nodes of the mesh, including this one. The agent probes a part of them.
    pub members: Option<u64>,
    /// Number of nodes that probe this node, by the selection that all agents compute.
    pub watchers: Option<u64>,
    /// Number of watchers that this node should have but cannot, because its zone has too large a
    /// share of the nodes.
    pub watchers_missing: Option<u64>,
    /// Time since the peer list was last confirmed.
    #[serde(default, deserialize_with = "age")]
    pub peer_list_age_seconds: Age,
    /// Measurements in the recent window.
    #[serde(default)]
    pub recent: RecentSource,
}

/// Age of an agent's list of peers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Age {
    /// Not reported, by an older agent.
    #[default]
    Unknown,
    /// The agent has never had a list.
    Never,
    /// The age of the list in seconds.
    Seconds(f64),
}

fn age<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Age, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.map_or(Age::Never, Age::Seconds))
}

/// What an agent reports about itself in the last 30 to 60 s.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct RecentSource {
    /// Time covered, in seconds.
    pub seconds: Option<f64>,
    /// Echo requests counted by the kernel in the agent's network namespace.
    pub echo_requests_received: Option<u64>,
    /// Echo replies counted by the kernel in the agent's network namespace.
    pub echo_replies_sent: Option<u64>,
    /// Delay between schedule and sending: the 99th percentile; with fewer than 200 probes, the
    /// third-largest.
    pub send_lag_p99_seconds: Option<f64>,
    /// Delay between a reply's arrival and its read: the 99th percentile; with fewer than 200
    /// replies, the third-largest.
    pub read_delay_p99_seconds: Option<f64>,
    /// Probes not sent because the agent was stopped for longer than an interval.
    pub probes_skipped: Option<u64>,
    /// Packets dropped because the socket's queue was full.
    pub receive_queue_drops: Option<u64>,
    /// How long the probe thread waited for a CPU.
    pub run_delay_seconds: Option<f64>,
}

/// An object that a report has in `peers`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PeerRow<'a> {
    /// Name of the node.
    #[serde(borrow)]
    pub node: Cow<'a, str>,
    /// Zone of the node as the source knows it, or `unknown`.
    #[serde(borrow, default)]
    pub zone: Cow<'a, str>,
    /// Which of the node's addresses is probed.
    #[serde(default)]
    pub network: Network,
    /// The protocol of the probes.
    #[serde(default)]
    pub protocol: Protocol,
    /// State of the peer in the source's list.
    #[serde(default)]
    pub state: State,
    /// The address that is probed; empty if not reported.
    #[serde(borrow, default)]
    pub address: Cow<'a, str>,
    /// When the current loss began. `None` if nothing is lost now, or if the peer has no hour.
    pub since_unix_seconds: Option<u64>,
    /// Median round-trip time of the quickest minute of the last hour. `None` if not reported, or
    /// if fewer than five minutes were measured.
    pub usual_rtt_p50_seconds: Option<f64>,
    /// Measurements in the recent window.
    #[serde(default)]
    pub recent: RecentPeer,
    /// The last ten whole minutes. `None` if not reported, or if none of them was measured.
    pub ten_minutes: Option<TenMinutes>,
}

/// What a source measured of a peer in the last ten whole minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TenMinutes {
    /// Measured time, in seconds.
    pub seconds: f64,
    /// Number of probes answered or lost.
    pub sent: u32,
    /// Number of probes lost.
    pub lost: u32,
}

/// What a source measured of a peer in the last 30 to 60 s.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RecentPeer {
    /// Time covered, in seconds.
    pub seconds: f64,
    /// Number of probes sent.
    pub sent: u32,
    /// Number of probes answered.
    pub received: u32,
    /// Number of probes lost.
    pub lost: u32,
    /// Median round-trip time.
    pub rtt_p50_seconds: Option<f64>,
    /// 99th percentile of the round-trip times.
    pub rtt_p99_seconds: Option<f64>,
}

/// The network whose address is probed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// The pod's address.
    #[default]
    Pod,
    /// The node's own address.
    Node,
    /// A network that this version does not know.
    #[serde(other)]
    Other,
}

/// The protocol of the probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// ICMP echo over IPv4.
    #[default]
    Icmp,
    /// ICMPv6 echo over IPv6.
    Icmpv6,
    /// A protocol that this version does not know.
    #[serde(other)]
    Other,
}

/// State of a peer in a source's list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Listed, and its agent is ready.
    #[default]
    Ready,
    /// Listed, but its agent is not ready.
    Unready,
    /// The peer is terminating.
    Terminating,
    /// The peer is no longer listed.
    Left,
    /// A state that this version does not know.
    #[serde(other)]
    Other,
}

impl State {
    /// Whether measurements of the peer say something about the network. An address that is being
    /// removed may answer or not.
    pub const fn is_evidence(self) -> bool {
        matches!(self, Self::Ready | Self::Unready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_of_the_first_version_is_read() {
        let text = r#"{"node":"a","zone":"z","echo_requests_received":7,"echo_replies_sent":6,
            "recent":{"echo_requests_received":5,"echo_replies_sent":4}}"#;
        let source: Source = serde_json::from_str(text).expect("a source");
        assert!(matches!(source.node, Cow::Borrowed("a")) && matches!(source.zone, Cow::Borrowed("z")));
        assert_eq!((source.echo_requests_received, source.recent.echo_replies_sent), (7, Some(4)));
        assert_eq!((source.recent.seconds, source.rss_bytes, source.version.as_ref()), (None, None, ""));
        assert_eq!((source.members, source.peer_list_age_seconds), (None, Age::Unknown));
    }

    #[test]
    fn a_source_of_today_is_read_and_what_comes_tomorrow_passes() {
        let text = r#"{"node":"a","zone":"z","version":"1","allocator":"jemalloc","narenas":1,"linkage":"rust","rss_bytes":5,
            "cpus":8,"interval_seconds":0.5,"hour_kept":true,"echo_requests_received":7,"echo_replies_sent":6,"new":[{}],
            "recent":{"seconds":31.5,"echo_requests_received":5,"echo_replies_sent":4,"send_lag_p99_seconds":null,
            "read_delay_p99_seconds":0.1,"probes_skipped":3,"receive_queue_drops":2,"run_delay_seconds":0.25,"new":1}}"#;
        let source: Source = serde_json::from_str(text).expect("a source");
        assert_eq!((source.narenas, source.cpus, source.hour_kept), (Some(1), Some(8), Some(true)));
        assert_eq!(source.recent.seconds, Some(31.5));
        assert_eq!(source.recent.send_lag_p99_seconds, None);
        assert_eq!((source.recent.probes_skipped, source.recent.receive_queue_drops), (Some(3), Some(2)));
    }

    #[test]
    fn a_source_tells_of_the_mesh_and_how_old_its_list_is() {
        let source = |age: &str| {
            let text = format!(
                r#"{{"node":"a","zone":"z","members":300,"watchers":23,"watchers_missing":1,"peer_list_age_seconds":{age}}}"#
            );
            serde_json::from_str::<Source>(&text)
                .map(|source| (source.members, source.watchers, source.watchers_missing, source.peer_list_age_seconds))
        };
        let told = |age| (Some(300), Some(23), Some(1), age);
        assert_eq!(source("12.5").expect("a source"), told(Age::Seconds(12.5)));
        assert_eq!(source("null").expect("a source"), told(Age::Never));
        assert!(source("\"old\"").is_err());
    }

    #[test]
    fn a_peer_is_read_and_borrows_its_names() {
        let text = r#"{"node":"b","zone":"z","network":"node","protocol":"icmpv6","state":"unready","address":"fd00::1",
            "sent":10,"received":9,"lost":1,"late":0,"rtt_p50_seconds":0.1,"rtt_p99_seconds":null,"since_unix_seconds":60,
            "recent":{"seconds":31.5,"sent":5,"received":4,"lost":1,"rtt_p50_seconds":0.1,"rtt_p99_seconds":null}}"#;
        let peer: PeerRow = serde_json::from_str(text).expect("a peer");
        assert!(matches!(peer.node, Cow::Borrowed("b")) && matches!(peer.address, Cow::Borrowed("fd00::1")));
        assert_eq!((peer.network, peer.protocol, peer.state), (Network::Node, Protocol::Icmpv6, State::Unready));
        assert_eq!((peer.since_unix_seconds, peer.recent.sent, peer.recent.lost), (Some(60), 5, 1));
        assert_eq!(peer.ten_minutes, None, "an older agent does not say");
    }

    #[test]
    fn ten_minutes_are_read_and_what_cannot_be_counts_is_an_error() {
        let read = |text: &str| {
            let text = format!(r#"{{"node":"b","ten_minutes":{text}}}"#);
            serde_json::from_str::<PeerRow>(&text).map(|peer| peer.ten_minutes).map_err(|_| ())
        };
        let told = TenMinutes { seconds: 600.0, sent: 600, lost: 12 };
        assert_eq!(read(r#"{"seconds":600,"sent":600,"lost":12,"new":[]}"#), Ok(Some(told)));
        assert_eq!((read("null"), read("{}")), (Ok(None), Ok(Some(TenMinutes::default()))));
        for text in [r#"{"lost":-1}"#, r#"{"sent":4294967296}"#, r#"{"sent":0.5}"#, "7"] {
            assert_eq!(read(text), Err(()), "{text}");
        }
    }

    #[test]
    fn networks_protocols_and_states_of_tomorrow_are_told_from_ours() {
        let text = r#"{"node":"b\"","network":"overlay","protocol":"tcp","state":"paused","recent":{"sent":1}}"#;
        let peer: PeerRow = serde_json::from_str(text).expect("a peer");
        assert_eq!(peer.node, "b\"");
        assert_eq!((peer.network, peer.protocol, peer.state), (Network::Other, Protocol::Other, State::Other));
        assert!(!peer.state.is_evidence());
    }

    #[test]
    fn what_has_no_name_is_an_error() {
        assert!(serde_json::from_str::<Source>("{}").is_err());
        assert!(serde_json::from_str::<PeerRow>("{\"node\":7}").is_err());
    }
}
