//! Asks an address for its identity: `GET http://ADDRESS:PORT/api/v1/identity`. `requests` is the
//! one component that does so, with a bound on the requests in progress.

mod requests;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::http::client::get;
use crate::limits::NAME_BYTES_MAX;
pub use requests::{AskSchedule, IdentityQuestion, IdentityRequests, next_due};
#[cfg(test)]
pub use requests::{REFRESH, RETRY};

/// The path at which every agent tells its identity.
pub const PATH: &str = "/api/v1/identity";
/// Timeout of one request. A first list waits as long for the names of its peers.
pub const TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of an answer: two names of 253 bytes and the node's addresses. Fields may be added later.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Node addresses of one answer that are used: two families on a few networks.
const NODE_ADDRESSES_MAX: usize = 8;

/// The name that a peer reports of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The node name. It is neither empty nor too long.
    pub node: String,
    /// None if the peer does not know it.
    pub zone: Option<String>,
}

/// The parts of an answer that are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityAnswer {
    /// The name and zone of the peer.
    pub identity: PeerIdentity,
    /// The addresses of its node in the order of the answer, at most
    /// [`NODE_ADDRESSES_MAX`]. They are not checked.
    pub node_addresses: Vec<IpAddr>,
    /// The address from which the peer was asked, as it arrived there.
    pub asked_from: Option<IpAddr>,
}

#[derive(Deserialize)]
struct Body {
    node: String,
    #[serde(default)]
    zone: Option<String>,
    #[serde(default)]
    node_addresses: Option<FirstAddresses>,
    #[serde(default)]
    asked_from: Option<String>,
}

/// The first addresses of a list. Other items are skipped, because a later version
/// may send more there.
struct FirstAddresses(Vec<IpAddr>);

impl<'de> Deserialize<'de> for FirstAddresses {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct First;
        impl<'de> Visitor<'de> for First {
            type Value = FirstAddresses;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a list of addresses")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<FirstAddresses, A::Error> {
                let mut found = Vec::new();
                for _ in 0..NODE_ADDRESSES_MAX {
                    let Some(text) = list.next_element::<String>()? else { break };
                    // An IPv4-mapped address is IPv4 on the wire.
                    found.extend(text.parse::<IpAddr>().map(|address| address.to_canonical()));
                }
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(FirstAddresses(found))
            }
        }
        from.deserialize_seq(First)
    }
}

/// Asks a peer for its identity, within `timeout` and [`BODY_BYTES_MAX`]. An error is a
/// text for the log.
async fn ask(server: SocketAddr, timeout: Duration) -> Result<IdentityAnswer, String> {
    let body = get(server, PATH, BODY_BYTES_MAX, timeout).await.map_err(|error| error.to_string())?;
    parse(&body).map_err(|reason| format!("not an identity: {reason}"))
}

/// Reads an answer.
///
/// # Errors
/// Why it is no identity.
pub fn parse(body: &[u8]) -> Result<IdentityAnswer, String> {
    let Body { node, zone, node_addresses, asked_from } =
        serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let fits = |name: &str| (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
    if !fits(&node) {
        return Err("its node name is empty, too long or not text".into());
    }
    // The agent itself writes `unknown` for a zone that it does not know.
    let identity = PeerIdentity { node, zone: zone.filter(|zone| fits(zone) && zone != "unknown") };
    let node_addresses = node_addresses.map_or_else(Vec::new, |addresses| addresses.0);
    let asked_from = asked_from.and_then(|text| text.parse::<IpAddr>().ok()).map(|address| address.to_canonical());
    Ok(IdentityAnswer { identity, node_addresses, asked_from })
}

/// Reads any bytes as a peer's answer. Only for fuzzing.
#[cfg(feature = "fuzzing")]
pub fn fuzz_answer(body: &[u8]) {
    if let Ok(answer) = parse(body) {
        assert!(answer.node_addresses.len() <= NODE_ADDRESSES_MAX);
        assert!((1..=NAME_BYTES_MAX).contains(&answer.identity.node.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_and_unknown_fields_are_ignored() {
        let body = br#"{"node":"n1","zone":"z1","version":"1","node_addresses":["10.0.0.1"]}"#;
        let identity = PeerIdentity { node: "n1".into(), zone: Some("z1".into()) };
        let node_addresses = vec![[10, 0, 0, 1].into()];
        assert_eq!(parse(body).unwrap(), IdentityAnswer { identity, node_addresses, asked_from: None });
        let asked =
            |from: &str| parse(format!(r#"{{"node":"n1","asked_from":"{from}"}}"#).as_bytes()).unwrap().asked_from;
        assert_eq!([asked("::ffff:10.0.0.7"), asked("n7")], [Some([10, 0, 0, 7].into()), None]);
        for zone in [r#","zone":null"#, r#","zone":"""#, r#","zone":"unknown""#, ""] {
            assert_eq!(parse(format!(r#"{{"node":"n1"{zone}}}"#).as_bytes()).unwrap().identity.zone, None);
        }
    }

    #[test]
    fn node_addresses_are_read_up_to_the_limit_and_other_items_are_skipped() {
        let read = |list: &str| {
            let body = format!(r#"{{"node":"n1","node_addresses":{list}}}"#);
            let addresses = parse(body.as_bytes()).map(|answer| answer.node_addresses);
            addresses.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(read("null").unwrap(), [""; 0]);
        assert_eq!(read(r#"["::ffff:10.0.0.1","host.example","fd00::1"]"#).unwrap(), ["10.0.0.1", "fd00::1"]);
        let many: Vec<String> = (0..1_000).map(|n| format!("\"10.0.{}.{}\"", n / 256, n % 256)).collect();
        let read_of_many = read(&format!("[{}]", many.join(","))).unwrap();
        assert_eq!(read_of_many.len(), NODE_ADDRESSES_MAX);
        assert_eq!(read_of_many[7], "10.0.0.7");
        assert!(read(r#""10.0.0.1""#).is_err() && read("[1]").is_err());
    }

    #[test]
    fn an_answer_without_a_valid_node_name_is_refused() {
        let long = format!(r#"{{"node":"{}"}}"#, "x".repeat(254));
        for body in ["", "{}", r#"{"node":""}"#, r#"{"node":7}"#, r#"{"node":"a\nb"}"#, &long] {
            assert!(parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
