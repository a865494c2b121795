//! What UDP probes tell of a link beyond losses and round trips: its flows, and its MTU.

use std::borrow::Cow;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Largest number of losing flows that an object lists.
pub const FLOWS_LISTED_MAX: usize = 4;

/// The direction in which packets of a link are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// From the source to the peer.
    Out,
    /// From the peer to the source.
    In,
    /// Not known, or both.
    #[default]
    #[serde(other)]
    Unknown,
}

/// The flows of a link: each has a source port of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flows {
    /// Number of flows that are probed.
    pub probed: u8,
    /// Number of flows that lose while the others do not.
    pub losing_count: u8,
    /// The first [`FLOWS_LISTED_MAX`] of them.
    #[serde(deserialize_with = "losing")]
    pub losing: Vec<LosingFlow>,
}

/// A flow that loses while the others of its link do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LosingFlow {
    /// The source port of its probes.
    pub source_port: u16,
    /// Number of its last probes that were lost.
    pub lost: u8,
    /// Number of its last probes.
    pub probes: u8,
    /// Where they were lost.
    pub direction: Way,
}

/// Packets of the route's full size do not pass, and smaller ones do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MtuHole {
    /// Size of the largest packet that passes.
    pub passes_bytes: u16,
    /// Where larger packets are lost.
    pub direction: Way,
    /// What the network says of larger packets.
    pub said: Said,
}

/// The path of one flow of a link, hop by hop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Trace<'a> {
    /// The source port of the flow.
    pub source_port: u16,
    /// When the trace began.
    pub at_unix_seconds: u64,
    /// Whether the peer has answered.
    pub reached: bool,
    /// How the path differs from the last complete one, as a sentence.
    pub says: Cow<'a, str>,
    /// The addresses of the hops, of which the last is the peer if it has answered. `*` is a hop
    /// that has not answered.
    pub hops: Vec<Cow<'a, str>>,
}

/// What the network says of packets that are too large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// Nothing: they are dropped in silence.
    #[default]
    Silent,
    /// A hop answers that they are too big.
    TooBig,
    /// An answer that this version does not know.
    #[serde(other)]
    Other,
}

/// Reads the losing flows, which are at most [`FLOWS_LISTED_MAX`].
fn losing<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<LosingFlow>, D::Error> {
    struct Losing;

    impl<'de> Visitor<'de> for Losing {
        type Value = Vec<LosingFlow>;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(formatter, "at most {FLOWS_LISTED_MAX} flows")
        }

        fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<Self::Value, S::Error> {
            let mut flows = Vec::new();
            while let Some(flow) = items.next_element()? {
                if flows.len() == FLOWS_LISTED_MAX {
                    return Err(de::Error::invalid_length(flows.len() + 1, &self));
                }
                flows.push(flow);
            }
            Ok(flows)
        }
    }

    deserializer.deserialize_seq(Losing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_flows_than_an_agent_lists_are_an_error_and_unknown_words_are_not() {
        let flows = |count: usize| {
            let text = format!(r#"{{"probed":16,"losing_count":9,"losing":[{}]}}"#, vec!["{}"; count].join(","));
            serde_json::from_str::<Flows>(&text).map(|flows| flows.losing.len()).map_err(|error| error.to_string())
        };
        assert_eq!(flows(FLOWS_LISTED_MAX), Ok(FLOWS_LISTED_MAX));
        assert!(flows(FLOWS_LISTED_MAX + 1).is_err_and(|error| error.contains("at most 4 flows")));
        let hole: MtuHole = serde_json::from_str(r#"{"passes_bytes":1300,"direction":"up","said":"maybe"}"#).unwrap();
        assert_eq!(hole, MtuHole { passes_bytes: 1_300, direction: Way::Unknown, said: Said::Other });
        assert!(serde_json::from_str::<Flows>(r#"{"probed":300}"#).is_err());
    }
}
