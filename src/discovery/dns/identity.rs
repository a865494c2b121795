//! Who is behind an address: `GET http://ADDRESS:PORT/api/v1/identity`.

use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;

use crate::http::client::{GetError, get};
use crate::limits;

/// A peer's own word on its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Node name; neither empty nor too long.
    pub node: String,
    /// None where it does not know.
    pub zone: Option<String>,
}

/// Why a peer stays unnamed.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// No answer to use.
    #[error(transparent)]
    Get(#[from] GetError),
    /// Not an identity.
    #[error("not an identity: {0}")]
    Malformed(String),
}

#[derive(Deserialize)]
struct Body {
    node: String,
    #[serde(default)]
    zone: Option<String>,
}

/// Asks; at most [`limits::IDENTITY_TIME`] and [`limits::IDENTITY_BYTES_MAX`].
///
/// # Errors
/// [`IdentityError`]
pub async fn ask(address: IpAddr, port: u16) -> Result<Identity, IdentityError> {
    let server = SocketAddr::new(address, port);
    let body = get(server, "/api/v1/identity", limits::IDENTITY_BYTES_MAX, limits::IDENTITY_TIME).await?;
    parse(&body)
}

fn parse(body: &[u8]) -> Result<Identity, IdentityError> {
    let Body { node, zone } = serde_json::from_slice(body).map_err(|e| IdentityError::Malformed(e.to_string()))?;
    let fits =
        |name: &str| !name.is_empty() && name.len() <= limits::NAME_BYTES_MAX && !name.chars().any(char::is_control);
    if !fits(&node) {
        return Err(IdentityError::Malformed("its node name is empty, too long or not text".into()));
    }
    // `unknown` is how the agent itself writes a zone that it does not know.
    Ok(Identity { node, zone: zone.filter(|z| fits(z) && z != "unknown") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_and_other_fields_are_left() {
        let body = br#"{"node":"n1","zone":"z1","version":"1","node_addresses":["10.0.0.1"]}"#;
        assert_eq!(parse(body).unwrap(), Identity { node: "n1".into(), zone: Some("z1".into()) });
        for zone in [r#","zone":null"#, r#","zone":"""#, r#","zone":"unknown""#, ""] {
            assert_eq!(parse(format!(r#"{{"node":"n1"{zone}}}"#).as_bytes()).unwrap().zone, None);
        }
    }

    #[test]
    fn what_names_no_node_is_refused() {
        let long = format!(r#"{{"node":"{}"}}"#, "x".repeat(254));
        for body in ["", "{}", r#"{"node":""}"#, r#"{"node":7}"#, r#"{"node":"a\nb"}"#, &long] {
            assert!(parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
