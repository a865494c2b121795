//! Time limits of the parts of a collection.

use std::time::Duration;

use crate::limits::RESPONSE_TIME;

/// The time limits of a collection. An agent uses the defaults. A test that is not about time sets
/// limits that cannot run out.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// How long an agent may take to begin its report, and to continue it. It answers from memory.
    pub row: Duration,
    /// How long a whole report may take once it has begun. Reports are read one after the other, so
    /// a slow one must not use up the time of all others.
    pub whole_row: Duration,
    /// How long a collection may take. 100 reports take half a second. Dead agents take 2 s for
    /// four of them.
    pub collection: Duration,
    /// How long a request waits for the collection before it.
    pub wait: Duration,
    /// How long the reader of a mesh document may block its collection in total. Then the document
    /// is cut off. This is shorter than `wait`, so that waiting requests are answered. 300 reports
    /// of 299 peers are 27 MB, so a reader needs 5 MB/s.
    pub reader: Duration,
    /// Least time from the beginning of one collection for a reader in a large mesh to that of the
    /// next, as its judges have it. So readers, however many, cost another agent less than the
    /// judges do.
    pub large: Duration,
}

const AGENT: Times = Times {
    row: Duration::from_secs(2),
    whole_row: Duration::from_secs(5),
    collection: Duration::from_secs(20),
    wait: Duration::from_secs(8),
    reader: Duration::from_secs(5),
    large: Duration::from_secs(15),
};

const _: () = assert!(AGENT.collection.as_secs() + AGENT.wait.as_secs() < RESPONSE_TIME.as_secs());

impl Default for Times {
    fn default() -> Self {
        AGENT
    }
}
