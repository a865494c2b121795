//! The report of one agent, `/api/v1/peers`: the agent itself, its checks, and what it measured of
//! each peer. An agent writes it, and the other agents and the commands read it, all by these
//! types.
//!
//! During a rollout, the agents of a mesh differ in version. So a reader ignores unknown fields,
//! and a field that the first versions did not write may be missing. Fields may be added, and no
//! field is removed or renamed. Strings without an escape are borrowed from the text.

pub mod compact;
mod judge;
mod links;
mod missing;
mod protocol;
mod recent;
pub(crate) mod rounded;
mod weighed;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use judge::{JUDGE_BYTES_MAX, JUDGE_PATH, JUDGE_PROTOCOL, JudgeAnswer};
pub use links::{
    FLOWS_LISTED_MAX, Flows, HOPS_LISTED_MAX, HoleNotice, Hop, LosingFlow, MtuHole, SAYS_BYTES_MAX, Suspect, Trace, Way,
};
pub use missing::Missing;
pub use protocol::Protocol;
pub use recent::{RecentPeer, TenMinutes};
pub use rounded::Rounded;
pub use weighed::weighed_loss;

use crate::check::{CHECKS_MAX, Check};
use crate::limits::{REPORT_PEERS_MAX, STRANGERS_MAX};
pub use crate::method::{Method, Methods, Network};
pub use crate::send_error::SendError;

/// The path of the report.
pub const PATH: &str = "/api/v1/peers";

/// A whole report. Agents write and read it object by object, so that they never hold one.
#[derive(Clone, Debug, Deserialize)]
pub struct Report<'a> {
    /// The agent that measured.
    #[serde(borrow)]
    pub source: Source<'a>,
    /// What it has found by checks, at most [`CHECKS_MAX`].
    #[serde(borrow, default, deserialize_with = "at_most::<_, CHECKS_MAX, _>")]
    pub checks: Vec<Check<'a>>,
    /// What it measured: an object for each link, at most [`REPORT_PEERS_MAX`].
    #[serde(borrow, deserialize_with = "at_most::<_, REPORT_PEERS_MAX, _>")]
    pub peers: Vec<Peer<'a>>,
}

/// Reads a list of at most `N` items. A short item in the text can take twenty times its bytes in
/// memory, so that a limit of the text alone would not bound it.
///
/// # Errors
/// The list is longer, or it is no list of such items.
pub fn at_most<'de, T: Deserialize<'de>, const N: usize, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct Items<T, const N: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for Items<T, N> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "at most {N} items")
        }

        fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<Self::Value, S::Error> {
            let mut taken = Vec::new();
            while let Some(item) = items.next_element()? {
                if taken.len() == N {
                    return Err(de::Error::invalid_length(N + 1, &self));
                }
                taken.push(item);
            }
            Ok(taken)
        }
    }

    deserializer.deserialize_seq(Items::<T, N>(PhantomData))
}

/// The object `source` of a report: the agent that measured, and what it reports about itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
    /// The libc that the agent is linked with; empty if not reported.
    #[serde(borrow, default)]
    pub libc: Cow<'a, str>,
    /// Resident memory of the agent. Older agents write 0 if they do not know it.
    pub rss_bytes: Option<u64>,
    /// The part of `rss_bytes` that the agent has written to and shares with no other process,
    /// from the same reading.
    pub private_dirty_bytes: Option<u64>,
    /// Number of CPUs of the node.
    pub cpus: Option<u64>,
    /// Number of threads of the agent.
    pub threads: Option<u64>,
    /// CPU time of the agent since its start.
    #[serde(serialize_with = "rounded::option")]
    pub cpu_seconds: Option<f64>,
    /// Time between two probes of one peer.
    #[serde(serialize_with = "rounded::option")]
    pub interval_seconds: Option<f64>,
    /// Whether every peer's last hour is kept.
    pub hour_kept: Option<bool>,
    /// Number of nodes of the mesh, including this one; 0 before the first list. The agent
    /// probes a part of them.
    pub members: Option<u64>,
    /// Number of nodes that probe this node, by the selection that all agents compute.
    pub watchers: Option<u64>,
    /// Number of watchers that this node should have but cannot, because its zone has too large a
    /// share of the nodes.
    pub watchers_missing: Option<u64>,
    /// Time since the peer list was last confirmed.
    #[serde(default)]
    pub peer_list_age_seconds: Age,
    /// Echo requests counted by the kernel since the agent's network namespace was created. Left
    /// out if the kernel does not tell: earlier versions refuse `null` here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub echo_requests_received: Option<u64>,
    /// Echo replies counted by the kernel since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub echo_replies_sent: Option<u64>,
    /// Time since which the agent has answered UDP probes and accepted TCP connections without a
    /// gap of more than two seconds. It begins at the start, when the agent did not run for that
    /// long, and when more came than it serves, so that the kernel has dropped some.
    /// `None` if it does neither, as older agents do not.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "rounded::option")]
    pub listening_seconds: Option<f64>,
    /// The session of its UDP probes, if most of its links have no answer by UDP. `None` otherwise:
    /// who knows it can use up the answers that it would get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
    /// Requests that came by UDP from addresses that are no member's, in the recent window.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "at_most::<_, STRANGERS_MAX, _>")]
    pub strangers: Vec<Stranger>,
    /// Measurements in the recent window.
    #[serde(default)]
    pub recent: RecentSource,
}

/// The session of an agent's UDP probes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The identifier of the session (SSID of RFC 8972).
    pub ssid: u16,
    /// The addresses of the agent in the list of members, one of each family, as far as it knows
    /// them.
    #[serde(default, deserialize_with = "at_most::<_, 2, _>")]
    pub addresses: Vec<IpAddr>,
}

/// Requests of a session that came from an address that is no member's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stranger {
    /// The address that they came from.
    pub address: IpAddr,
    /// The identifier of the session (SSID of RFC 8972).
    pub ssid: u16,
    /// How many came in the recent window.
    pub requests: u32,
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

impl Age {
    /// Returns the age in seconds, if there is a list and its age is reported.
    pub const fn seconds(self) -> Option<f64> {
        if let Self::Seconds(age) = self { Some(age) } else { None }
    }
}

impl Serialize for Age {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.seconds().map(Rounded).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Age {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<f64>::deserialize(deserializer)?.map_or(Self::Never, Self::Seconds))
    }
}

/// What an agent reports about itself in the last 30 to 60 s.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecentSource {
    /// Time covered, in seconds.
    #[serde(serialize_with = "rounded::option")]
    pub seconds: Option<f64>,
    /// Echo requests counted by the kernel in the agent's network namespace.
    pub echo_requests_received: Option<u64>,
    /// Echo replies counted by the kernel in the agent's network namespace.
    pub echo_replies_sent: Option<u64>,
    /// 99th percentile of how late probes were sent; of fewer than 200, the third-largest.
    #[serde(serialize_with = "rounded::option")]
    pub send_lag_p99_seconds: Option<f64>,
    /// 99th percentile of how late replies were read; of fewer than 200, the third-largest.
    #[serde(serialize_with = "rounded::option")]
    pub read_delay_p99_seconds: Option<f64>,
    /// Probes not sent because the agent was stopped for longer than an interval.
    pub probes_skipped: Option<u64>,
    /// Packets dropped because the socket's queue was full.
    pub receive_queue_drops: Option<u64>,
    /// How long the probe thread waited for a CPU.
    #[serde(serialize_with = "rounded::option")]
    pub run_delay_seconds: Option<f64>,
    /// 99th percentile of the round-trip times of all peers, by ICMP if the agent probes by it.
    #[serde(serialize_with = "rounded::option")]
    pub rtt_p99_seconds: Option<f64>,
}

/// An object of a report's `peers`: a peer as the agent measured it, by one protocol.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Peer<'a> {
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
    pub state: PeerState,
    /// The address that is probed. `None` if it is not reported, or is no address.
    #[serde(default, deserialize_with = "address")]
    pub address: Option<IpAddr>,
    /// Number of probes sent since the start of the agent.
    #[serde(default)]
    pub sent: u64,
    /// Number of them answered.
    #[serde(default)]
    pub received: u64,
    /// Number of them lost.
    #[serde(default)]
    pub lost: u64,
    /// Number of lost ones answered after the timeout.
    #[serde(default)]
    pub late: u64,
    /// Median round-trip time since the start.
    #[serde(serialize_with = "rounded::option")]
    pub rtt_p50_seconds: Option<f64>,
    /// 99th percentile of the round-trip times since the start.
    #[serde(serialize_with = "rounded::option")]
    pub rtt_p99_seconds: Option<f64>,
    /// When the current loss began. `None` if nothing is lost now, or if the peer has no hour.
    pub since_unix_seconds: Option<u64>,
    /// Median round-trip time of the quickest minute of the last hour. `None` if not reported, or
    /// if fewer than five minutes had an answer, or if the hour is not kept.
    #[serde(serialize_with = "rounded::option")]
    pub usual_rtt_p50_seconds: Option<f64>,
    /// Measurements in the recent window.
    #[serde(default)]
    pub recent: RecentPeer,
    /// The last ten whole minutes. `None` if not reported, or if none of them was measured.
    pub ten_minutes: Option<TenMinutes>,
    /// Number of requests of this peer that the source's reflector counted in the recent window.
    /// UDP only, as what follows up to the flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard: Option<u32>,
    /// Number of hops that answers of the peer take: 1 without a router between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hops: Option<u8>,
    /// Mean one-way delay of requests. `None` unless both clocks are synchronized to UTC, and the
    /// sum of their largest errors is less than a quarter of it.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "rounded::option")]
    pub delay_there_seconds: Option<f64>,
    /// The same of the answers.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "rounded::option")]
    pub delay_back_seconds: Option<f64>,
    /// Mean difference between the one-way delays of consecutive requests (RFC 3550, section
    /// 6.4.1). How far the clocks of the nodes are apart has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "rounded::option")]
    pub delay_variation_there_seconds: Option<f64>,
    /// The same of the answers.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "rounded::option")]
    pub delay_variation_back_seconds: Option<f64>,
    /// Size of the largest packet that passes to the peer without being fragmented.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_mtu_bytes: Option<u16>,
    /// Packets of the route's full size that do not pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu_hole: Option<MtuHole>,
    /// The flows of the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<Flows>,
    /// The last trace of a flow that loses.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace<'a>>,
    /// Number of SYN segments sent again since the start. TCP only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syn_retransmissions: Option<u64>,
}

/// Reads an address. A text that is no address is not an error, because an agent may be of another
/// version, and its figures count all the same.
fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
    struct Text;
    impl Visitor<'_> for Text {
        type Value = Option<IpAddr>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("an address")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(text.parse().ok())
        }
    }
    deserializer.deserialize_str(Text)
}

/// State of a peer in a source's list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerState {
    /// Listed, and its agent is ready.
    #[default]
    Ready,
    /// Listed, but its agent is not ready.
    Unready,
    /// The peer is terminating.
    Terminating,
    /// Another node holds its address, so nothing of the peer is measured. It is in no compact
    /// report. Earlier versions read it as a state that they do not know.
    Displaced,
    /// The peer is no longer listed.
    Left,
    /// A state that this version does not know.
    #[serde(other)]
    Other,
}

impl PeerState {
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
        assert_eq!((source.echo_requests_received, source.recent.echo_replies_sent), (Some(7), Some(4)));
        assert_eq!((source.recent.seconds, source.rss_bytes, source.version.as_ref()), (None, None, ""));
        assert_eq!((source.members, source.peer_list_age_seconds), (None, Age::Unknown));
    }

    #[test]
    fn a_source_of_this_version_is_read_and_unknown_fields_are_ignored() {
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
    fn a_source_has_the_size_of_the_mesh_and_the_age_of_its_list() {
        let source = |age: &str| {
            let text = format!(
                r#"{{"node":"a","zone":"z","members":300,"watchers":23,"watchers_missing":1,"peer_list_age_seconds":{age}}}"#
            );
            serde_json::from_str::<Source>(&text)
                .map(|source| (source.members, source.watchers, source.watchers_missing, source.peer_list_age_seconds))
        };
        let expected = |age| (Some(300), Some(23), Some(1), age);
        assert_eq!(source("12.5").expect("a source"), expected(Age::Seconds(12.5)));
        assert_eq!(source("null").expect("a source"), expected(Age::Never));
        assert!(source("\"old\"").is_err());
    }

    #[test]
    fn more_peers_than_an_agent_can_have_are_an_error() {
        let peer = r#"{"node":"p","sent":1,"received":1,"lost":0,"recent":{"sent":1,"lost":0}}"#;
        let report = |peers: usize| format!(r#"{{"source":{{"node":"a"}},"peers":[{}]}}"#, vec![peer; peers].join(","));
        let (most, more) = (report(REPORT_PEERS_MAX), report(REPORT_PEERS_MAX + 1));
        assert_eq!(serde_json::from_str::<Report>(&most).expect("a report").peers.len(), REPORT_PEERS_MAX);
        let error = serde_json::from_str::<Report>(&more).expect_err("one too many").to_string();
        assert!(error.starts_with("invalid length 49153, expected at most 49152 items"), "{error}");
    }

    #[test]
    fn a_report_without_checks_has_none_and_more_than_32_are_an_error() {
        let report = |checks: usize| {
            let checks = vec![r#"{"name":"dns","kind":"dns","tried":12,"new":1}"#; checks].join(",");
            format!(r#"{{"source":{{"node":"a"}},"checks":[{checks}],"peers":[]}}"#)
        };
        let read = |text: &str| serde_json::from_str::<Report>(text).map(|report| report.checks.len());
        assert_eq!(read(r#"{"source":{"node":"a"},"peers":[]}"#).ok(), Some(0));
        assert_eq!(read(&report(CHECKS_MAX)).ok(), Some(CHECKS_MAX));
        assert!(read(&report(CHECKS_MAX + 1)).is_err());
    }

    #[test]
    fn a_peer_is_read_and_borrows_its_names() {
        let text = r#"{"node":"b","zone":"z","network":"node","protocol":"icmpv6","state":"unready","address":"fd00::1",
            "sent":10,"received":9,"lost":1,"late":0,"rtt_p50_seconds":0.1,"rtt_p99_seconds":null,"since_unix_seconds":60,
            "recent":{"seconds":31.5,"sent":5,"received":4,"lost":1,"rtt_p50_seconds":0.1,"rtt_p99_seconds":null}}"#;
        let peer: Peer = serde_json::from_str(text).expect("a peer");
        assert!(matches!(peer.node, Cow::Borrowed("b")) && peer.address == "fd00::1".parse().ok());
        assert_eq!((peer.network, peer.protocol, peer.state), (Network::Node, Protocol::Icmpv6, PeerState::Unready));
        assert_eq!((peer.since_unix_seconds, peer.recent.sent, peer.recent.lost), (Some(60), 5, 1));
        assert_eq!(peer.ten_minutes, None, "an older agent does not report it");
    }

    #[test]
    fn ten_minutes_are_read_and_invalid_counts_are_an_error() {
        let read = |text: &str| {
            let text = format!(r#"{{"node":"b","ten_minutes":{text}}}"#);
            serde_json::from_str::<Peer>(&text).map(|peer| peer.ten_minutes).map_err(|_| ())
        };
        let expected = TenMinutes { seconds: 600.0, sent: 600, lost: 12 };
        assert_eq!(read(r#"{"seconds":600,"sent":600,"lost":12,"new":[]}"#), Ok(Some(expected)));
        assert_eq!((read("null"), read("{}")), (Ok(None), Ok(Some(TenMinutes::default()))));
        for text in [r#"{"lost":-1}"#, r#"{"sent":4294967296}"#, r#"{"sent":0.5}"#, "7"] {
            assert_eq!(read(text), Err(()), "{text}");
        }
    }

    #[test]
    fn unknown_protocols_and_states_are_other() {
        let text = r#"{"node":"b\"","protocol":"sctp","state":"paused","recent":{"sent":1}}"#;
        let peer: Peer = serde_json::from_str(text).expect("a peer");
        assert_eq!(peer.node, "b\"");
        assert_eq!((peer.network, peer.protocol, peer.state), (Network::Pod, Protocol::Other, PeerState::Other));
        assert!(!peer.state.is_evidence());
    }

    #[test]
    fn an_object_without_a_name_is_an_error() {
        assert!(serde_json::from_str::<Source>("{}").is_err());
        assert!(serde_json::from_str::<Peer>("{\"node\":7}").is_err());
        assert!(serde_json::from_str::<Peer>(r#"{"node":"b","network":"overlay"}"#).is_err());
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let source = Source {
            node: Cow::Borrowed("a"),
            rss_bytes: Some(1_355_776),
            private_dirty_bytes: Some(12_288),
            cpu_seconds: Some(0.000_123_456),
            peer_list_age_seconds: Age::Seconds(2.0),
            ..Source::default()
        };
        let peer = Peer {
            node: Cow::Borrowed("b"),
            network: Network::Node,
            protocol: Protocol::Icmpv6,
            state: PeerState::Unready,
            address: "fd00::1".parse().ok(),
            ten_minutes: Some(TenMinutes { seconds: 600.0, sent: 600, lost: 12 }),
            ..Peer::default()
        };
        let (source, peer) = (serde_json::to_string(&source).unwrap(), serde_json::to_string(&peer).unwrap());
        assert!(source.contains(r#","cpu_seconds":0.0001235,"#) && source.contains(r#","threads":null,"#), "{source}");
        assert!(
            peer.contains(r#","network":"node","protocol":"icmpv6","state":"unready","address":"fd00::1","#),
            "{peer}"
        );
        assert!(peer.ends_with(r#","ten_minutes":{"seconds":600,"sent":600,"lost":12}}"#), "{peer}");
        let text = format!(r#"{{"source":{source},"peers":[{peer}]}}"#);
        let report: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&report.source).unwrap(), source);
        assert_eq!(serde_json::to_string(&report.peers[0]).unwrap(), peer);
    }

    #[test]
    fn what_only_udp_and_tcp_measure_is_read_as_it_was_written_and_icmp_objects_do_not_grow() {
        let losing = LosingFlow { source_port: 40_312, lost: 5, probes: 8, direction: Way::Out };
        let peer = Peer {
            protocol: Protocol::Udpv6,
            address: "fd00::1".parse().ok(),
            heard: Some(59),
            hops: Some(3),
            delay_there_seconds: Some(2.5),
            delay_back_seconds: Some(1.5),
            delay_variation_there_seconds: Some(0.25),
            delay_variation_back_seconds: Some(0.5),
            path_mtu_bytes: Some(1_450),
            mtu_hole: Some(MtuHole { passes_bytes: 1_300, direction: Way::In, said: HoleNotice::TooBig }),
            flows: Some(Flows { probed: 16, losing_count: 1, losing: vec![losing], ..Flows::default() }),
            recent: RecentPeer { lost_there: Some(3), lost_back: Some(0), ..RecentPeer::default() },
            ..Peer::default()
        };
        let text = serde_json::to_string(&peer).unwrap();
        for part in [
            r#""lost":0,"lost_there":3,"lost_back":0,"rtt_p50_seconds":null"#,
            r#","heard":59,"hops":3,"delay_there_seconds":2.5,"delay_back_seconds":1.5"#,
            r#","delay_variation_there_seconds":0.25,"delay_variation_back_seconds":0.5"#,
            r#","path_mtu_bytes":1450,"mtu_hole":{"passes_bytes":1300,"direction":"in","said":"too_big"},"#,
            r#""flows":{"probed":16,"losing_count":1,"losing":[{"source_port":40312,"lost":5,"probes":8,"direction":"out"}]}}"#,
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(serde_json::to_string(&serde_json::from_str::<Peer>(&text).unwrap()).unwrap(), text);
        let tcp = serde_json::to_string(&Peer { syn_retransmissions: Some(2), ..Peer::default() }).unwrap();
        assert!(tcp.ends_with(r#","syn_retransmissions":2}"#));
        let icmp = serde_json::to_string(&Peer::default()).unwrap();
        assert!(icmp.ends_with(r#","ten_minutes":null}"#) && !icmp.contains("lost_there"), "{icmp}");
        assert!(!serde_json::to_string(&Source::default()).unwrap().contains("listening"));
    }

    #[test]
    fn an_address_of_another_kind_is_not_known_and_no_error() {
        let read = |address: &str| {
            let text = format!(r#"{{"node":"b","address":{address}}}"#);
            serde_json::from_str::<Peer>(&text).map(|peer| peer.address).map_err(drop)
        };
        assert_eq!(read(r#""10.0.0.1""#), Ok(Some([10, 0, 0, 1].into())));
        assert_eq!((read(r#""""#), read(r#""b.example""#), read("7")), (Ok(None), Ok(None), Err(())));
    }
}
