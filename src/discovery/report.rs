//! One log line per kind of failure, not one per retry. An API server that is away for an hour is
//! one event.

use std::fmt::Display;

/// Remembers which kinds of failure were logged since the last success.
pub struct Reporter {
    source: &'static str,
    seen: Vec<&'static str>,
}

impl Reporter {
    /// Makes a reporter for the source of that name.
    pub const fn new(source: &'static str) -> Self {
        Self { source, seen: Vec::new() }
    }

    /// Logs `what`, unless its `kind` was logged since the last [`Reporter::recovered`].
    /// Returns whether it did.
    pub fn failed(&mut self, kind: &'static str, what: &dyn Display) -> bool {
        let new = !self.seen.contains(&kind);
        if new {
            self.seen.push(kind);
            log::warn!("{} discovery: {what}; the last list stays", self.source);
        }
        new
    }

    /// Forgets all kinds, so that the next failure is logged.
    pub fn forget(&mut self) {
        self.seen.clear();
    }

    /// Forgets all kinds, and logs the recovery once if there was a failure.
    pub fn recovered(&mut self) {
        if !self.seen.is_empty() {
            self.seen.clear();
            log::info!("{} discovery: recovered", self.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_logged_once_until_recovery() {
        let mut reporter = Reporter::new("test");
        assert!(reporter.failed("a", &"first"));
        assert!(!reporter.failed("a", &"again"));
        assert!(reporter.failed("b", &"another kind"));
        reporter.recovered();
        assert!(reporter.failed("a", &"after recovery"));
    }
}
