//! What counts as evidence, for all that show what was measured beside the verdicts.

use super::agents::{self, Standing};
use super::answering::Answering;
use crate::matrix::{Cell, Matrix};

/// Which measurements of a mesh count.
pub struct Evidence<'a> {
    matrix: &'a Matrix,
    standings: Vec<Standing>,
    answering: Answering,
}

impl<'a> Evidence<'a> {
    /// Returns what counts in a mesh. Takes 1 byte per node, and what [`Answering::new`] takes.
    pub fn new(matrix: &'a Matrix) -> Self {
        let standings = agents::standings(matrix);
        Self { answering: Answering::new(matrix, &standings), standings, matrix }
    }

    /// Returns the standing of a node.
    pub fn standing(&self, node: u16) -> Standing {
        self.standings[usize::from(node)]
    }

    /// Returns the cells of a node's row, in the order of their peers, without those of nodes that
    /// are leaving or may be invented, and without probes that the peer's agent could not answer.
    /// They are evidence if the standing of the node is [`Standing::Sound`].
    pub fn cells(&self, node: u16) -> impl Iterator<Item = Cell> {
        let counts =
            move |cell: &Cell| self.standing(cell.peer()).is_evidence_of_others() && self.answering.counts(node, *cell);
        self.matrix.cells(node).iter().flat_map(|cell| cell.parts()).filter(counts)
    }
}
