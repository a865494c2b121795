//! How much is kept of a mesh, and what was not.

use crate::limits::{MESH_BYTES_MAX, MESH_NODES_MAX, MESH_ROWS_MAX};

/// How much a matrix keeps at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Rows.
    pub rows: usize,
    /// Nodes, by their own rows or as peers: fewer than 65,535, which a cell's 16 bits tell apart.
    pub nodes: usize,
    /// Bytes, with those that the verdicts take. At least this much address space is reserved.
    pub bytes: usize,
}

impl Bounds {
    /// Those of an agent, whose memory is bounded.
    pub const AGENT: Self = Self { rows: MESH_ROWS_MAX, nodes: MESH_NODES_MAX, bytes: MESH_BYTES_MAX };
}

/// What did not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotKept {
    /// Rows beyond [`Bounds::rows`], or a node's second.
    pub rows: usize,
    /// Cells, for want of room or of a node's place.
    pub cells: usize,
}
