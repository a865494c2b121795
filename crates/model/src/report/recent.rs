//! What a report says of a peer in the last minute, and in the last ten.

use serde::{Deserialize, Serialize};

use super::rounded::is_zero;
use super::{SendError, rounded};

/// What a source measured of a peer in the last 30 to 60 s.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RecentPeer {
    /// Time covered, in seconds.
    #[serde(serialize_with = "rounded::number")]
    pub seconds: f64,
    /// Number of probes sent.
    pub sent: u32,
    /// Number of probes answered.
    pub received: u32,
    /// Number of probes lost.
    pub lost: u32,
    /// Number of probes that were last lost in a row; at most 255.
    #[serde(skip_serializing_if = "is_zero")]
    pub lost_in_row: u32,
    /// Number of probes that were answered since; at most 255.
    #[serde(skip_serializing_if = "is_zero")]
    pub answered_since: u32,
    /// Number of probes that were answered between that and the loss before; at most 255.
    #[serde(skip_serializing_if = "is_zero")]
    pub answered_before: u32,
    /// Seconds since the last loss was known, at most 255; 0 without an answer since. TCP only.
    #[serde(skip_serializing_if = "is_zero")]
    pub answered_seconds: u32,
    /// Number of them lost on the way to the peer, as the peer's count of requests shows. UDP only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_there: Option<u32>,
    /// Number of them whose answer was lost. The way of the others is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_back: Option<u32>,
    /// Whether the peer refused a lost handshake: its host answers, and no agent listens. TCP only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// Number of probes that could not be sent. They are in none of the numbers above.
    #[serde(skip_serializing_if = "is_zero")]
    pub send_errors: u32,
    /// Why most of them could not be sent. `None` if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_error_reason: Option<SendError>,
    /// Median round-trip time.
    #[serde(serialize_with = "rounded::option")]
    pub rtt_p50_seconds: Option<f64>,
    /// 99th percentile of the round-trip times.
    #[serde(serialize_with = "rounded::option")]
    pub rtt_p99_seconds: Option<f64>,
}

/// What a source measured of a peer in the last ten whole minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenMinutes {
    /// Measured time, in seconds; a multiple of 60.
    #[serde(serialize_with = "rounded::whole")]
    pub seconds: f64,
    /// Number of probes answered or lost.
    pub sent: u32,
    /// Number of probes lost.
    pub lost: u32,
}
