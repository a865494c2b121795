//! How long the parts of a gathering may take.

use std::time::Duration;

use crate::limits;

/// The time limits of a gathering. The agent uses the defaults, which `limits` explains; a test that is not about time
/// sets limits that cannot run out.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Until an agent begins its row, and between two parts of it.
    pub row: Duration,
    /// For the whole of a row, once it has begun.
    pub whole_row: Duration,
    /// For all rows.
    pub gathering: Duration,
    /// For a request that waits until an earlier gathering ends.
    pub wait: Duration,
    /// For which a reader of the collected document may keep it from going on, in all.
    pub reader: Duration,
    /// How long verdicts are kept before they are judged again.
    pub verdicts: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            row: limits::ROW_TIME,
            whole_row: limits::ROW_WHOLE_TIME,
            gathering: limits::GATHERING_TIME,
            wait: limits::GATHERING_WAIT,
            reader: limits::MESH_READER_TIME,
            verdicts: limits::VERDICTS_TIME,
        }
    }
}
