//! Decides what to ask next and what an answer means. No I/O, no clock, no randomness of its own.
//!
//! ```text
//! List(first page) ─► List(next page) … ─► Watch(version) ─► Watch(newer version) …
//!        ▲                                       │
//!        └── 410, malformed, empty: a new list ──┘
//! ```
//! The live store is replaced only by a complete list, so that nothing in between is ever published; an empty one only
//! when a second look finds the same.

use std::time::Duration;

use super::api::{Event, Page};
use super::backoff::Backoff;
use super::failure::Failure;
use super::slices::Store;
use crate::discovery::PeerList;
use crate::limits;

/// What to ask the API server next.
#[derive(Debug, PartialEq, Eq)]
pub enum Ask<'a> {
    /// A page of the list; the first where there is no token.
    List {
        /// Where it starts.
        continue_token: Option<&'a str>,
    },
    /// A watch.
    Watch {
        /// After which version.
        resource_version: &'a str,
    },
}

/// What a page or an event comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The list has more pages.
    More,
    /// [`Machine::peers`] is to be published.
    Changed,
    /// As known.
    Unchanged,
    /// All peers seem to be gone: ask again before it is believed.
    LookAgain,
}

enum Phase {
    List { continue_token: Option<String>, staging: Store, pages: usize },
    Watch { resource_version: String },
}

impl Phase {
    fn new_list() -> Self {
        Self::List { continue_token: None, staging: Store::default(), pages: 0 }
    }
}

/// The state of one list-and-watch.
pub struct Machine {
    phase: Phase,
    live: Store,
    /// The last thing seen was empty, and not believed yet.
    empty_once: bool,
    /// An empty list is in force.
    empty_in_force: bool,
    backoff: Backoff,
}

impl Machine {
    /// Starts with a list.
    pub fn new(backoff: Backoff) -> Self {
        Self { phase: Phase::new_list(), live: Store::default(), empty_once: false, empty_in_force: false, backoff }
    }

    /// What to ask now.
    pub fn ask(&self) -> Ask<'_> {
        match &self.phase {
            Phase::List { continue_token, .. } => Ask::List { continue_token: continue_token.as_deref() },
            Phase::Watch { resource_version } => Ask::Watch { resource_version },
        }
    }

    /// The merged list of the live store.
    pub fn peers(&self) -> PeerList {
        self.live.peers()
    }

    /// Takes a page of the list.
    ///
    /// # Errors
    /// The list never ends, or its slices cannot be kept.
    pub fn page(&mut self, page: Page) -> Result<Outcome, Failure> {
        let Phase::List { continue_token, staging, pages } = &mut self.phase else {
            return Err(Failure::Malformed("a page without a list".into()));
        };
        *pages += 1;
        if *pages > limits::SLICES_MAX {
            return Err(Failure::Malformed(format!("a list of more than {} pages", limits::SLICES_MAX)));
        }
        for slice in &page.slices {
            staging.put(slice).map_err(Failure::Malformed)?;
        }
        if let Some(token) = page.continue_token {
            *continue_token = Some(token.get().to_owned());
            return Ok(Outcome::More);
        }
        if staging.is_empty() && !self.empty_in_force && !self.empty_once {
            self.empty_once = true;
            self.phase = Phase::new_list();
            return Ok(Outcome::LookAgain);
        }
        let mut synced = std::mem::take(staging);
        synced.number(&self.live.sequences());
        self.live = synced;
        self.empty_once = false;
        self.empty_in_force = self.live.is_empty();
        self.phase = Phase::Watch { resource_version: page.resource_version.get().to_owned() };
        Ok(Outcome::Changed)
    }

    /// Takes an event of the watch.
    ///
    /// # Errors
    /// It was an ERROR, or a slice that cannot be kept: the watch is over.
    pub fn event(&mut self, event: Event) -> Result<Outcome, Failure> {
        let (resource_version, changed) = match event {
            Event::Put(slice, version) => {
                let before = self.live.sequences();
                self.live.put(&slice).map_err(Failure::Malformed)?;
                self.live.number(&before);
                (version, true)
            }
            Event::Delete(slice, version) => {
                self.live.delete(&slice).map_err(Failure::Malformed)?;
                (version, true)
            }
            Event::Bookmark(version) => (version, false),
            Event::Error { code: 410, .. } => return Err(Failure::Gone),
            Event::Error { code, message } => {
                log::debug!("kubernetes discovery: ERROR event {code}: {message}");
                return Err(Failure::of_status(code, None));
            }
        };
        self.healthy();
        self.phase = Phase::Watch { resource_version };
        if !changed {
            return Ok(Outcome::Unchanged);
        }
        if self.live.is_empty() && !self.empty_in_force {
            // This was the first look; the list that follows is the second.
            self.empty_once = true;
            self.phase = Phase::new_list();
            return Ok(Outcome::LookAgain);
        }
        self.empty_in_force = self.live.is_empty();
        Ok(Outcome::Changed)
    }

    /// A watch has shown that it works: it brought an event, or lasted.
    pub fn healthy(&mut self) {
        self.backoff.reset();
    }

    /// After a failure: where to go on, and after how long, for `random` in [0, 1).
    pub fn failed(&mut self, failure: &Failure, random: f64) -> Duration {
        if failure.needs_new_list() {
            self.phase = Phase::new_list();
        }
        let wait = self.backoff.next(random);
        match failure {
            // On top of what was asked for, so that those who were sent away together do not come back together.
            Failure::Busy { retry_after: Some(after), .. } => wait + (*after).min(limits::API_RETRY_AFTER_MAX),
            _ => wait,
        }
    }
}

#[cfg(test)]
mod tests;
