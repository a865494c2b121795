//! Limits of what is kept of a mesh, the bytes that it takes, and counts of what was dropped.

use super::{Cell, JUDGED_BYTES_PER_NODE, JUDGED_BYTES_PER_NODE_AND_LAYER, Matrix, MatrixNode, MatrixRow};
use kube_canary_model::limits::{JUDGED_BYTES_MAX, JUDGED_NODES_MAX, MESH_BYTES_MAX, MESH_NODES_MAX, MESH_REPORTS_MAX};

/// Limits of what a matrix keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixBounds {
    /// Largest number of rows.
    pub rows: usize,
    /// Largest number of nodes, from their own rows or as peers. Less than 65,535, because a cell
    /// has 16 bits for a node.
    pub nodes: usize,
    /// Largest number of bytes, including those that the verdicts take. At least this much
    /// address space is reserved.
    pub bytes: usize,
}

impl MatrixBounds {
    /// The limits of an agent that collects for a reader.
    pub const AGENT: Self = Self { rows: MESH_REPORTS_MAX, nodes: MESH_NODES_MAX, bytes: MESH_BYTES_MAX };
    /// The limits of a judge, which collects all reports.
    pub const JUDGE: Self = Self { rows: JUDGED_NODES_MAX, nodes: JUDGED_NODES_MAX, bytes: JUDGED_BYTES_MAX };
}

/// Counts of what did not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotKept {
    /// Rows beyond [`MatrixBounds::rows`], and second rows of a node.
    pub rows: usize,
    /// Cells dropped because there was no room for them or for their node. ICMP only.
    pub cells: usize,
    /// Cells of UDP and TCP dropped for this reason.
    pub udp_and_tcp_cells: usize,
}

impl NotKept {
    /// Returns the number of all dropped cells.
    pub const fn all_cells(&self) -> usize {
        self.cells + self.udp_and_tcp_cells
    }
}

impl Matrix {
    /// Returns the bytes in use, including those that the verdicts will take per node.
    pub fn bytes(&self) -> usize {
        let nodes = self.nodes.len() * (size_of::<MatrixNode>() + self.judged_bytes_per_node());
        let rows = self.rows.len() * size_of::<MatrixRow>();
        self.cells.len() * size_of::<Cell>()
            + nodes
            + rows
            + self.links.bytes()
            + self.silence.bytes()
            + self.unsent.bytes()
            + self.strangers.bytes()
            + self.checks.bytes()
            + self.numbers.bytes()
            + self.text.bytes()
    }

    /// Returns the bytes that the verdicts will take per node.
    pub(super) const fn judged_bytes_per_node(&self) -> usize {
        let layers = self.layers.count_ones() as usize;
        JUDGED_BYTES_PER_NODE + JUDGED_BYTES_PER_NODE_AND_LAYER * if layers == 0 { 1 } else { layers }
    }
}
