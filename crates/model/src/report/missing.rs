//! A report that is missing.

use serde::{Deserialize, Serialize};

/// A node of a mesh document whose report is missing or incomplete.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Missing {
    /// The name of the node.
    pub node: String,
    /// Why the report is missing or incomplete.
    pub error: String,
}

impl Missing {
    /// Bytes of the reason. It may quote what an agent sent.
    pub const ERROR_BYTES_MAX: usize = 256;

    /// Makes the entry of a node. A longer reason is cut.
    pub fn new(node: String, mut error: String) -> Self {
        error.truncate(error.floor_char_boundary(Self::ERROR_BYTES_MAX));
        Self { node, error }
    }
}
