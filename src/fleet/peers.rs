//! Parses `/api/v1/peers`: the agent that measured, and the sum over its peers.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The fields of a row that are used.
#[derive(Deserialize)]
pub struct Document<'a> {
    /// The agent that measured.
    #[serde(borrow)]
    pub source: Source<'a>,
    /// The sum over the peers that it measured.
    #[serde(borrow)]
    pub peers: Sum<'a>,
}

/// The object that describes the agent in a row.
#[derive(Deserialize)]
pub struct Source<'a> {
    /// The name of its node.
    #[serde(borrow)]
    pub node: Cow<'a, str>,
    /// The zone of its node.
    #[serde(borrow)]
    pub zone: Cow<'a, str>,
    /// The number of nodes in the mesh.
    pub members: Option<u64>,
    /// The number of nodes that probe it.
    pub watchers: Option<u64>,
    /// The number of watchers that it should have in addition.
    pub watchers_missing: Option<u64>,
    /// Seconds since its list was last confirmed. None also if it never was.
    pub peer_list_age_seconds: Option<f64>,
    /// The figures of its last minute.
    #[serde(default)]
    pub recent: RecentSource,
}

/// An agent's own figures of the last minute. A figure that an older agent does not report is none.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct RecentSource {
    /// The 99th percentile of the send lag, in seconds.
    pub send_lag_p99_seconds: Option<f64>,
}

/// The object of one peer.
#[derive(Deserialize)]
pub struct Peer<'a> {
    /// The name of its node.
    #[serde(borrow)]
    pub node: Cow<'a, str>,
    /// The network of the probed address.
    #[serde(borrow)]
    pub network: Cow<'a, str>,
    /// The protocol of the probes.
    #[serde(borrow)]
    pub protocol: Cow<'a, str>,
    /// Probes sent since the start.
    sent: u64,
    /// The figures of the last minute.
    pub recent: Recent,
}

/// A peer's figures of the last minute.
#[derive(Deserialize)]
pub struct Recent {
    received: u64,
    lost: u64,
    /// The 99th percentile of the round-trip times, in seconds.
    pub rtt_p99_seconds: Option<f64>,
}

/// Returns the loss among decided probes, 0 to 1. None if no probe is decided.
pub fn loss(received: u64, lost: u64) -> Option<f64> {
    let decided = received.saturating_add(lost);
    (decided > 0).then(|| lost as f64 / decided as f64)
}

/// The sum over all peers of a row. They are added one after the other, so
/// thousands are never held.
#[derive(Default)]
pub struct Sum<'a> {
    /// The number of links in the row.
    pub links: u64,
    /// Probes sent since the start.
    pub sent: u64,
    /// Probes answered in the last minute.
    pub recent_received: u64,
    /// Probes lost in the last minute.
    pub recent_lost: u64,
    /// The loss of the worst peer, and that peer.
    pub worst: Option<(f64, Peer<'a>)>,
}

impl<'a> Sum<'a> {
    fn add(&mut self, peer: Peer<'a>) {
        self.links += 1;
        self.sent = self.sent.saturating_add(peer.sent);
        self.recent_received = self.recent_received.saturating_add(peer.recent.received);
        self.recent_lost = self.recent_lost.saturating_add(peer.recent.lost);
        let Some(loss) = loss(peer.recent.received, peer.recent.lost) else { return };
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
