//! The session of our UDP probes, and what has come from strangers.

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::limits::STRANGERS_MAX;
use crate::report::{Session, Stranger};

/// What a report tells of both.
#[derive(Debug, Default)]
pub struct HeardStrangers {
    own: OnceLock<Session>,
    heard: Mutex<Vec<Stranger>>,
}

impl HeardStrangers {
    /// Stores our session, before the probes begin.
    pub fn set_own(&self, session: Session) {
        // The first one stays.
        _ = self.own.set(session);
    }

    /// Returns our session. `None` without UDP probes.
    pub fn own(&self) -> Option<&Session> {
        self.own.get()
    }

    /// Stores what has come from strangers, unless a reader has the list now.
    pub fn set_heard(&self, heard: impl Iterator<Item = Stranger>) {
        if let Ok(mut kept) = self.heard.try_lock() {
            kept.clear();
            kept.extend(heard.take(STRANGERS_MAX));
        }
    }

    /// Returns what has come from strangers in the recent window.
    pub fn heard(&self) -> Vec<Stranger> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
