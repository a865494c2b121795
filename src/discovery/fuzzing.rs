//! Entry points to this stage's private parsers, for the targets in `fuzz/`.

use super::{identity, static_list};

/// Reads any bytes as a peer's answer to an identity request.
pub fn identity(body: &[u8]) {
    if let Ok(answer) = identity::parse(body) {
        assert!(answer.node_addresses.len() <= crate::limits::NODE_ADDRESSES_MAX);
        assert!((1..=crate::limits::NAME_BYTES_MAX).contains(&answer.identity.node.len()));
    }
}

/// Reads any text as a peers file.
pub fn peers_file(text: &[u8]) {
    if let Ok(text) = std::str::from_utf8(text) {
        let _ = static_list::parse_file(text, std::path::Path::new("peers"));
    }
}
