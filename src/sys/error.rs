//! What the operating system could not do.

use std::borrow::Cow;
use std::io;

/// An operation of the system that has failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation}: {error}")]
pub struct SystemError {
    /// What was to be done.
    pub operation: Cow<'static, str>,
    /// The system's error.
    pub error: io::Error,
}

/// Adds the operation that failed to an error of the system.
pub fn system(operation: impl Into<Cow<'static, str>>) -> impl FnOnce(io::Error) -> SystemError {
    |error| SystemError { operation: operation.into(), error }
}
