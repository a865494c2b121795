//! A row of `/api/v1/peers` as it is read: its source, and one peer at a time.
//!
//! Canaries of one mesh differ in version while it rolls, so what is read is as little as is needed: unknown fields pass,
//! and what the first rows did not have may be missing. Strings are borrowed from the text where they hold no escape.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

/// The object `source` of a row: who measured, and what it says of itself.
#[derive(Clone, Debug, Deserialize)]
pub struct Source<'a> {
    /// The node's name.
    #[serde(borrow)]
    pub node: Cow<'a, str>,
    /// Its zone, or `unknown`.
    #[serde(borrow, default)]
    pub zone: Cow<'a, str>,
    /// The canary's version; empty where it is not said.
    #[serde(borrow, default)]
    pub version: Cow<'a, str>,
    /// The malloc that runs there; empty where it is not said.
    #[serde(borrow, default)]
    pub allocator: Cow<'a, str>,
    /// jemalloc's arenas.
    pub narenas: Option<u64>,
    /// `rust` or `c-shim`; empty where it is not said.
    #[serde(borrow, default)]
    pub linkage: Cow<'a, str>,
    /// Resident memory.
    pub rss_bytes: Option<u64>,
    /// Processors of the node.
    pub cpus: Option<u64>,
    /// Between two probes of one peer.
    pub interval_seconds: Option<f64>,
    /// Whether every peer's last hour is kept.
    pub hour_kept: Option<bool>,
    /// Echo requests that its network namespace counted since it was made.
    #[serde(default)]
    pub echo_requests_received: u64,
    /// Echo replies likewise.
    #[serde(default)]
    pub echo_replies_sent: u64,
    /// Nodes of the mesh, its own included, of which it probes a part.
    pub members: Option<u64>,
    /// Nodes that probe its own, by the selection that all make.
    pub watchers: Option<u64>,
    /// Those that should but cannot, for its zone has too large a share of the nodes.
    pub watchers_missing: Option<u64>,
    /// How long ago its list was last confirmed.
    #[serde(default, deserialize_with = "age")]
    pub peer_list_age_seconds: Age,
    /// The last minute.
    #[serde(default)]
    pub recent: RecentSource,
}

/// How old a canary's list of peers is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Age {
    /// An older canary does not say.
    #[default]
    Unknown,
    /// It has never had one.
    Never,
    /// In seconds.
    Seconds(f64),
}

fn age<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Age, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.map_or(Age::Never, Age::Seconds))
}

/// What a canary says of itself over the last 30 to 60 s.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct RecentSource {
    /// How much time it covers.
    pub seconds: Option<f64>,
    /// Echo requests that its network namespace counted.
    pub echo_requests_received: Option<u64>,
    /// Echo replies likewise.
    pub echo_replies_sent: Option<u64>,
    /// How late probes were sent, against their schedule: the 99th percentile, of fewer than 200 the latest but two.
    pub send_lag_p99_seconds: Option<f64>,
    /// How late replies were read, likewise.
    pub read_delay_p99_seconds: Option<f64>,
    /// Probes that were not sent, for want of time.
    pub probes_skipped: Option<u64>,
    /// Packets that its socket had no room for.
    pub receive_queue_drops: Option<u64>,
    /// How long its probe thread waited for a processor.
    pub run_delay_seconds: Option<f64>,
}

/// An object of a row's `peers`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PeerRow<'a> {
    /// The node's name.
    #[serde(borrow)]
    pub node: Cow<'a, str>,
    /// Its zone as the source knows it, or `unknown`.
    #[serde(borrow, default)]
    pub zone: Cow<'a, str>,
    /// Which of the node's addresses.
    #[serde(default)]
    pub network: Network,
    /// By which protocol.
    #[serde(default)]
    pub protocol: Protocol,
    /// What the source's list says of it.
    #[serde(default)]
    pub state: State,
    /// The address that is probed; empty where it is not said.
    #[serde(borrow, default)]
    pub address: Cow<'a, str>,
    /// Since when it loses; `None` where it loses nothing now, and where its hour is not kept.
    pub since_unix_seconds: Option<u64>,
    /// The median round trip of the quickest minute of the last hour; `None` if the source does not
    /// say, or has measured fewer than five minutes.
    pub usual_rtt_p50_seconds: Option<f64>,
    /// The last minute.
    #[serde(default)]
    pub recent: RecentPeer,
    /// The last ten whole minutes; `None` if the source does not say, or has measured none of them.
    pub ten_minutes: Option<TenMinutes>,
}

/// What a source saw of a peer over the last ten whole minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TenMinutes {
    /// How much of them was measured, in seconds.
    pub seconds: f64,
    /// Probes answered or lost.
    pub sent: u32,
    /// Probes lost.
    pub lost: u32,
}

/// What a source saw of a peer over the last 30 to 60 s.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RecentPeer {
    /// How much time it covers.
    pub seconds: f64,
    /// Probes sent.
    pub sent: u32,
    /// Probes answered.
    pub received: u32,
    /// Probes lost.
    pub lost: u32,
    /// Median round trip of those answered.
    pub rtt_p50_seconds: Option<f64>,
    /// 99th percentile of them.
    pub rtt_p99_seconds: Option<f64>,
}

/// Which network of a node is probed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// The pod's address.
    #[default]
    Pod,
    /// The node's own.
    Node,
    /// One that is newer than we are.
    #[serde(other)]
    Other,
}

/// How a peer is probed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Over IPv4.
    #[default]
    Icmp,
    /// Over IPv6.
    Icmpv6,
    /// One that is newer than we are.
    #[serde(other)]
    Other,
}

/// What a source's list says of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Listed and serving.
    #[default]
    Ready,
    /// Listed, not serving.
    Unready,
    /// On its way out.
    Terminating,
    /// Off the list.
    Left,
    /// One that is newer than we are.
    #[serde(other)]
    Other,
}

impl State {
    /// Whether what is measured of it says something of a network: an address that is going away may answer or not.
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
