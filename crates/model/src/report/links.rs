//! What UDP probes tell of a link beyond losses and round trips: its flows, and its MTU.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::at_most;
use super::rounded::is_zero;

/// Largest number of losing flows that an object lists.
pub const FLOWS_LISTED_MAX: usize = 4;
/// Largest number of hops of a trace.
pub const HOPS_LISTED_MAX: usize = 30;
/// Largest number of bytes of the sentence of a trace. The longest has two addresses of 39 bytes.
pub const SAYS_BYTES_MAX: usize = 160;

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
    #[serde(deserialize_with = "at_most::<_, FLOWS_LISTED_MAX, _>")]
    pub losing: Vec<LosingFlow>,
    /// The flow that may be losing, if none is said to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspect: Option<Suspect>,
    /// Number of probes of these flows that were answered since the last loss of any of them; at
    /// most 255. 0 if they lose now, or if it is not known.
    #[serde(skip_serializing_if = "is_zero")]
    pub answered: u8,
    /// Time since that loss was known, in seconds; at most 255.
    #[serde(skip_serializing_if = "is_zero")]
    pub answered_seconds: u8,
}

/// A flow that may lose while the others of its link do not. Chance explains that of one link, but
/// not of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Suspect {
    /// The source port of its probes.
    pub source_port: u16,
    /// Number of its last probes that were lost.
    pub lost: u8,
    /// Number of its last probes.
    pub probes: u8,
    /// Where they were lost.
    pub direction: Way,
    /// The evidence in tenths of a nat, below that of a flow which is said to lose.
    pub decinats: u8,
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
    pub said: HoleNotice,
}

/// The path of one flow of a link, hop by hop.
///
/// Other agents and `doctor` show it to people. So a reader refuses a report with a longer list, a
/// hop that is no address, or a sentence that has other characters than those of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trace<'a> {
    /// The source port of the flow.
    pub source_port: u16,
    /// When the trace began.
    pub at_unix_seconds: u64,
    /// Whether the peer has answered.
    pub reached: bool,
    /// What the trace has found, as a sentence of at most [`SAYS_BYTES_MAX`] bytes: lower-case
    /// letters, digits, spaces, and `.` `:` `;` `,` `(` `)`.
    #[serde(borrow, deserialize_with = "says")]
    pub says: Cow<'a, str>,
    /// The hops, at most [`HOPS_LISTED_MAX`]. The last is the peer if it has answered.
    #[serde(deserialize_with = "at_most::<_, HOPS_LISTED_MAX, _>")]
    pub hops: Vec<Hop>,
    /// Number of packets that were sent to each hop. A router may limit its answers, and loses no
    /// packet then.
    #[serde(deserialize_with = "at_most::<_, HOPS_LISTED_MAX, _>")]
    pub sent: Vec<u8>,
    /// Number of packets that each hop answered.
    #[serde(deserialize_with = "at_most::<_, HOPS_LISTED_MAX, _>")]
    pub answered: Vec<u8>,
}

/// A hop of a trace: its address, as text. `*` is a hop that has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop(pub Option<IpAddr>);

impl Serialize for Hop {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(address) => address.serialize(serializer),
            None => serializer.serialize_str("*"),
        }
    }
}

impl<'de> Deserialize<'de> for Hop {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Hop;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an address or *")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Hop, E> {
                if text == "*" {
                    return Ok(Hop(None));
                }
                text.parse().map(|address| Hop(Some(address))).map_err(|_| E::custom("a hop is no address"))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// What the network says of packets that are too large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoleNotice {
    /// Nothing: they are dropped in silence.
    #[default]
    Silent,
    /// A hop answers that they are too big.
    TooBig,
    /// An answer that this version does not know.
    #[serde(other)]
    Other,
}

/// Reads the sentence of a trace.
fn says<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'a, str>, D::Error> {
    let is_plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b" .:;,()".contains(&c);
    // A text with an escape is not borrowed, and has a character that is not plain.
    let text = <&str>::deserialize(deserializer)?;
    if text.len() <= SAYS_BYTES_MAX && text.bytes().all(is_plain) {
        Ok(Cow::Borrowed(text))
    } else {
        Err(de::Error::custom("a trace says what no agent does"))
    }
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
        assert!(flows(FLOWS_LISTED_MAX + 1).is_err_and(|error| error.contains("at most 4 items")));
        let hole: MtuHole = serde_json::from_str(r#"{"passes_bytes":1300,"direction":"up","said":"maybe"}"#).unwrap();
        assert_eq!(hole, MtuHole { passes_bytes: 1_300, direction: Way::Unknown, said: HoleNotice::Other });
        assert!(serde_json::from_str::<Flows>(r#"{"probed":300}"#).is_err());
    }

    #[test]
    fn a_trace_is_read_as_it_was_written() {
        let text = r#"{"source_port":40312,"at_unix_seconds":60,"reached":false,"says":"loses behind fd00::1; the next hop is 10.0.4.1","hops":["10.0.2.1","*","fd00::1"],"sent":[10,3,10],"answered":[10,0,9]}"#;
        let trace: Trace<'_> = serde_json::from_str(text).unwrap();
        assert!(matches!(trace.says, Cow::Borrowed(_)));
        assert_eq!(trace.hops[1], Hop(None));
        assert_eq!(serde_json::to_string(&trace).unwrap(), text);
        assert_eq!(serde_json::from_str::<Trace<'_>>(r#"{"later":[1]}"#).unwrap(), Trace::default());
    }

    #[test]
    fn a_trace_that_no_agent_would_write_is_an_error() {
        let read = |text: &str| serde_json::from_str::<Trace<'_>>(text).map(drop).map_err(|error| error.to_string());
        let hops = |hops: &[&str]| read(&serde_json::json!({"hops": hops}).to_string());
        assert_eq!(hops(&["*"; HOPS_LISTED_MAX]), Ok(()));
        assert!(hops(&["*"; HOPS_LISTED_MAX + 1]).is_err_and(|error| error.contains("at most 30 items")));
        for list in ["sent", "answered"] {
            assert_eq!(read(&serde_json::json!({list: vec![255; HOPS_LISTED_MAX]}).to_string()), Ok(()));
            assert!(read(&serde_json::json!({list: vec![1; HOPS_LISTED_MAX + 1]}).to_string()).is_err());
            assert!(read(&serde_json::json!({list: [256]}).to_string()).is_err());
        }
        for hop in ["", "a router", "10.0.0.1 ", "10.0.0.1:9877", "**"] {
            assert!(hops(&[hop]).is_err_and(|error| error.contains("no address")), "{hop}");
        }
        let says = |says: &str| read(&serde_json::json!({"says": says}).to_string());
        assert_eq!(says(&"d".repeat(SAYS_BYTES_MAX)), Ok(()));
        for text in [&"d".repeat(SAYS_BYTES_MAX + 1), "dies after <b>", "\u{1b}[31m", "a\n", "ü", "\"dies\""] {
            assert!(says(text).is_err(), "{text}");
        }
        for text in
            [r#"{"says":7}"#, r#"{"hops":"10.0.0.1"}"#, r#"{"reached":"no"}"#, r#"{"source_port":65536}"#, "[[]]"]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
