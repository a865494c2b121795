//! Why the report of a node is missing or incomplete.

use std::time::Duration;

use super::split::SplitError;
use crate::http::client::GetError;
use crate::report::compact::NotCompact;

/// Why the report of a node is missing or incomplete.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// The request or the connection failed.
    #[error(transparent)]
    Get(#[from] GetError),
    /// No further data came within this time.
    #[error("sent nothing more for {0:?}")]
    Stalled(Duration),
    /// The report was not complete within this time.
    #[error("not complete after {0:?}")]
    Slow(Duration),
    /// The data is not a report.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// An object of the report cannot be parsed.
    #[error("not a report: {0}")]
    Parse(#[from] serde_json::Error),
    /// The data is not a compact report.
    #[error(transparent)]
    Compact(#[from] NotCompact),
    /// The agent does not know our form of the compact report.
    #[error("runs another version")]
    OtherVersion,
    /// The agent did not answer in the last collection, and there was no time to ask it again.
    #[error("did not answer before, and was not asked again")]
    Silent,
    /// The address now belongs to another node, which has this name.
    #[error("answers as {0}")]
    Another(String),
    /// The report names a node twice for one network and address family, or is longer than
    /// a report can be.
    #[error("{0}")]
    Implausible(String),
    /// The collection as a whole took too long.
    #[error("the collection ended after {0:?}")]
    NoTime(Duration),
    /// Reading it has ended in a panic.
    #[error("cannot be read, which is a defect; the log of the judge says where")]
    Panicked,
    /// Discovery does not know the node.
    #[error("no such node in this agent's list")]
    Unknown,
}
