//! Asks an address for its identity: `GET http://ADDRESS:PORT/api/v1/identity`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::http::client::{GetError, get};
use crate::limits;

/// The name that a peer reports of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The node name. It is neither empty nor too long.
    pub node: String,
    /// None if the peer does not know it.
    pub zone: Option<String>,
}

/// The parts of an answer that are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The name and zone of the peer.
    pub identity: Identity,
    /// The addresses of its node in the order of the answer, at most
    /// [`limits::NODE_ADDRESSES_MAX`]. They are not checked.
    pub node_addresses: Vec<IpAddr>,
}

/// Why a peer stays unnamed.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The request to the peer failed.
    #[error(transparent)]
    Get(#[from] GetError),
    /// The body is not an identity.
    #[error("not an identity: {0}")]
    Malformed(String),
}

#[derive(Deserialize)]
struct Body {
    node: String,
    #[serde(default)]
    zone: Option<String>,
    #[serde(default)]
    node_addresses: Option<Addresses>,
}

/// The first addresses of a list. Other items are skipped, because a later version
/// may send more there.
struct Addresses(Vec<IpAddr>);

impl<'de> Deserialize<'de> for Addresses {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct First;
        impl<'de> Visitor<'de> for First {
            type Value = Addresses;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a list of addresses")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Addresses, A::Error> {
                let mut found = Vec::new();
                for _ in 0..limits::NODE_ADDRESSES_MAX {
                    let Some(text) = list.next_element::<String>()? else { break };
                    // An IPv4-mapped address is IPv4 on the wire.
                    found.extend(text.parse::<IpAddr>().map(|address| address.to_canonical()));
                }
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Addresses(found))
            }
        }
        from.deserialize_seq(First)
    }
}

/// Asks a peer for its identity, within `time` and [`limits::IDENTITY_BYTES_MAX`].
///
/// # Errors
/// [`IdentityError`]
pub async fn ask(server: SocketAddr, time: Duration) -> Result<Answer, IdentityError> {
    let body = get(server, "/api/v1/identity", limits::IDENTITY_BYTES_MAX, time).await?;
    parse(&body)
}

pub(super) fn parse(body: &[u8]) -> Result<Answer, IdentityError> {
    let Body { node, zone, node_addresses } =
        serde_json::from_slice(body).map_err(|e| IdentityError::Malformed(e.to_string()))?;
    let fits =
        |name: &str| !name.is_empty() && name.len() <= limits::NAME_BYTES_MAX && !name.chars().any(char::is_control);
    if !fits(&node) {
        return Err(IdentityError::Malformed("its node name is empty, too long or not text".into()));
    }
    // The agent itself writes `unknown` for a zone that it does not know.
    let identity = Identity { node, zone: zone.filter(|z| fits(z) && z != "unknown") };
    Ok(Answer { identity, node_addresses: node_addresses.map_or_else(Vec::new, |addresses| addresses.0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_and_other_fields_are_left() {
        let body = br#"{"node":"n1","zone":"z1","version":"1","node_addresses":["10.0.0.1"]}"#;
        let identity = Identity { node: "n1".into(), zone: Some("z1".into()) };
        let node_addresses = vec![[10, 0, 0, 1].into()];
        assert_eq!(parse(body).unwrap(), Answer { identity, node_addresses });
        for zone in [r#","zone":null"#, r#","zone":"""#, r#","zone":"unknown""#, ""] {
            assert_eq!(parse(format!(r#"{{"node":"n1"{zone}}}"#).as_bytes()).unwrap().identity.zone, None);
        }
    }

    #[test]
    fn node_addresses_are_read_as_far_as_they_are_addresses_and_not_beyond_the_limit() {
        let read = |list: &str| {
            let body = format!(r#"{{"node":"n1","node_addresses":{list}}}"#);
            let addresses = parse(body.as_bytes()).map(|answer| answer.node_addresses);
            addresses.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(read("null").unwrap(), [""; 0]);
        assert_eq!(read(r#"["::ffff:10.0.0.1","host.example","fd00::1"]"#).unwrap(), ["10.0.0.1", "fd00::1"]);
        let many: Vec<String> = (0..1_000).map(|n| format!("\"10.0.{}.{}\"", n / 256, n % 256)).collect();
        let read_of_many = read(&format!("[{}]", many.join(","))).unwrap();
        assert_eq!(read_of_many.len(), limits::NODE_ADDRESSES_MAX);
        assert_eq!(read_of_many[7], "10.0.0.7");
        assert!(read(r#""10.0.0.1""#).is_err() && read("[1]").is_err());
    }

    #[test]
    fn what_names_no_node_is_refused() {
        let long = format!(r#"{{"node":"{}"}}"#, "x".repeat(254));
        for body in ["", "{}", r#"{"node":""}"#, r#"{"node":7}"#, r#"{"node":"a\nb"}"#, &long] {
            assert!(parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
