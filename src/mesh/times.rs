//! Time limits of the parts of a collection.

use std::time::Duration;

use crate::limits;

/// The time limits of a collection. The agent uses the defaults, which `limits` explains. A test
/// that is not about time sets limits that cannot run out.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Until an agent begins its report, and between two parts of it.
    pub row: Duration,
    /// For a whole report, once it has begun.
    pub whole_row: Duration,
    /// For all reports together.
    pub collection: Duration,
    /// For a request that waits until an earlier collection ends.
    pub wait: Duration,
    /// For the total time that the reader of the document may delay it.
    pub reader: Duration,
    /// How long verdicts are kept before they are judged again.
    pub verdicts: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            row: limits::ROW_TIME,
            whole_row: limits::ROW_WHOLE_TIME,
            collection: limits::COLLECTION_TIME,
            wait: limits::COLLECTION_WAIT,
            reader: limits::MESH_READER_TIME,
            verdicts: limits::VERDICTS_TIME,
        }
    }
}
