//! Reading `/api/v1/peers`: who measured, and all its peers added up.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// What is read of a row.
#[derive(Deserialize)]
pub struct Document<'a> {
    /// Who measured.
    #[serde(borrow)]
    pub source: Source<'a>,
    /// What it measured.
    #[serde(borrow)]
    pub peers: Sum<'a>,
}

/// A row's source.
#[derive(Deserialize)]
pub struct Source<'a> {
    /// The node.
    #[serde(borrow)]
    pub node: Cow<'a, str>,
    /// Its zone.
    #[serde(borrow)]
    pub zone: Cow<'a, str>,
    /// Nodes of the mesh.
    pub members: Option<u64>,
    /// Nodes that probe its own.
    pub watchers: Option<u64>,
    /// Those that should but cannot.
    pub watchers_missing: Option<u64>,
    /// How long ago its list was last confirmed; none where it never was, too.
    pub peer_list_age_seconds: Option<f64>,
    /// Its last minute.
    #[serde(default)]
    pub recent: RecentSource,
}

/// A canary's own last minute; what an older one does not say is none.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct RecentSource {
    /// How late it sends.
    pub send_lag_p99_seconds: Option<f64>,
}

/// A peer.
#[derive(Deserialize)]
pub struct Peer<'a> {
    /// Its node.
    #[serde(borrow)]
    pub node: Cow<'a, str>,
    /// Which of its addresses.
    #[serde(borrow)]
    pub network: Cow<'a, str>,
    /// By which protocol.
    #[serde(borrow)]
    pub protocol: Cow<'a, str>,
    /// Since the start.
    sent: u64,
    /// The last minute.
    pub recent: Recent,
}

/// A peer's last minute.
#[derive(Deserialize)]
pub struct Recent {
    received: u64,
    lost: u64,
    /// Of the round trips.
    pub rtt_p99_seconds: Option<f64>,
}

/// Of the probes that are decided; none where none is.
pub fn loss(received: u64, lost: u64) -> Option<f64> {
    let decided = received.saturating_add(lost);
    (decided > 0).then(|| lost as f64 / decided as f64)
}

/// All peers of a row, added up one after the other: thousands are never held.
#[derive(Default)]
pub struct Sum<'a> {
    /// How many.
    pub links: u64,
    /// Probes since the start.
    pub sent: u64,
    /// Answered in the last minute.
    pub recent_received: u64,
    /// Lost in it.
    pub recent_lost: u64,
    /// The loss of the worst, and which it is.
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
