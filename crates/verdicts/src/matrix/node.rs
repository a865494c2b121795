//! A node of the mesh, and what the rows report of it.

use kube_canary_kernel::text::Span;
use kube_canary_model::report::{PeerState, RecentPeer};
use serde::Serialize;

/// State of a node's row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowPresence {
    /// Only other rows name the node.
    #[default]
    Listed,
    /// The row arrived and is complete.
    Whole,
    /// The row broke off. Its cells count, but conclusions that need a complete row do not.
    Broken,
    /// The row did not arrive.
    Missing,
    /// The agent is of another version, whose row cannot be read. That is no fault.
    OtherVersion,
}

/// A node that is part of the mesh.
#[derive(Clone, Copy, Debug, Default)]
pub struct MatrixNode {
    pub(super) name: Span,
    pub(super) error: Span,
    /// Place of the node's row, if there is one.
    pub(super) row: Option<u16>,
    /// Number of the node's zone.
    pub zone: u8,
    /// State of the node's row.
    pub presence: RowPresence,
    /// Whether another node answers at its address. Measurements of it are then no evidence.
    pub is_displaced: bool,
    /// Whether discovery gave the zone.
    pub(super) is_zone_certain: bool,
    pub(super) listed: RowCounts,
    /// What the current row, or the last row that named this node, reports of it.
    pub(super) said: RowMention,
    /// Number of cells that say how many probes were sent to the node's pod.
    pub aimed: u16,
    /// Probes to the node's pod per second, summed over all sources.
    pub probes_per_second: f32,
}

/// In how many rows a node is a peer. Each row counts once, however many of its
/// objects name the node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowCounts {
    /// Number of rows per [`Stay`].
    rows: [u16; 4],
    /// What the first row of the matrix reports.
    first: Option<Stay>,
}

/// What a row reports of a node's membership, from present to gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stay {
    /// The node is present.
    Present,
    /// The node is being removed.
    Leaving,
    /// The node has left within the recent window.
    Left,
    /// The node left before the recent window.
    LongLeft,
}

impl Stay {
    pub(super) const fn from_state(state: PeerState, recent: &RecentPeer) -> Self {
        match state {
            PeerState::Ready | PeerState::Unready | PeerState::Displaced => Self::Present,
            PeerState::Left if recent.sent == 0 => Self::LongLeft,
            PeerState::Left => Self::Left,
            PeerState::Terminating | PeerState::Other => Self::Leaving,
        }
    }
}

/// What one row has reported of a node so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowMention {
    /// Place of the row plus 1; 0 is none.
    pub(super) row: u16,
    /// Bit n is set if an object with code n of layer and address family has arrived.
    pub(super) objects: u8,
    pub(super) stay: Option<Stay>,
}

impl RowCounts {
    /// Counts what a row reports, in place of what the same row reported before.
    pub(super) fn count(&mut self, before: Option<Stay>, now: Stay, is_first: bool) {
        if let Some(before) = before {
            self.rows[before as usize] -= 1;
        }
        self.rows[now as usize] += 1;
        if is_first {
            self.first = Some(now);
        }
    }

    pub(super) const fn rows_with(&self, stay: Stay) -> u32 {
        self.rows[stay as usize] as u32
    }

    /// Returns the number of rows that say: being removed, or gone within the recent window.
    const fn leaving(&self) -> u32 {
        self.rows_with(Stay::Leaving) + self.rows_with(Stay::Left)
    }
}

impl MatrixNode {
    /// Whether its row did not arrive, or broke off.
    pub const fn is_missing(&self) -> bool {
        matches!(self.presence, RowPresence::Missing | RowPresence::Broken)
    }

    /// Whether the node is being removed. Measurements of it are then no evidence. Not all
    /// sources learn of the removal in the same second. Those that do not know yet lose probes to
    /// the node for this reason.
    ///
    /// More than half of the rows that list the node decide. If they are divided evenly, the first
    /// row of the matrix decides, which is that of the collecting agent. Otherwise one false row
    /// could hide a node of a mesh of three. Rows that saw it leave before the recent window do not
    /// count: in a partial mesh, a node can leave a source's peers and stay in the mesh.
    pub fn is_leaving(&self) -> bool {
        let (leaving, present) = (self.listed.leaving(), self.listed.rows_with(Stay::Present));
        let first = self.listed.first.is_some_and(|first| matches!(first, Stay::Leaving | Stay::Left));
        self.is_gone() || leaving > present || leaving > 0 && leaving == present && first
    }

    /// Whether only one row lists the node, and its own row neither arrived nor was asked for.
    pub(super) const fn is_named_once(&self) -> bool {
        let [present, leaving, left, long_left] = self.listed.rows;
        matches!(self.presence, RowPresence::Listed) && present + leaving + left + long_left == 1
    }

    /// Whether any row saw the node leave within the recent window.
    pub const fn is_leaving_for_some(&self) -> bool {
        self.listed.leaving() > 0
    }

    /// Whether all rows that list the node say that it has left.
    pub const fn is_gone(&self) -> bool {
        let left = self.listed.rows_with(Stay::Left) + self.listed.rows_with(Stay::LongLeft);
        left > 0 && self.listed.rows_with(Stay::Present) + self.listed.rows_with(Stay::Leaving) == 0
    }
}
