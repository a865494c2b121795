//! Decides what to ask next, what an answer means, and what to report. It does no I/O and has no
//! clock and no randomness of its own.
//!
//! ```text
//!              whole list (once) ─┐
//! List ─►                         ├─► Watch(version) ─► Watch(newer version) …
//!  ▲      metadata of all slices ─┘     │   each change: that slice is stale, and is read when the plan says so
//!  └── 410, malformed, silent, empty ───┘
//! ```
//! After the first list, later lists contain only names and versions. Slices that differ from ours
//! are stale, as if the watch had said so. So if an API server restarts and ends every watch,
//! agents do not ask it for everything again.
//!
//! A partial state is never reported. At the start, and after an empty result, nothing is reported
//! before every slice has been read once. An empty list is reported only if a second look, at etcd
//! itself rather than the cache, finds the same.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::api::{EndpointSlice, Metadata, WatchEvent, list_version};
use super::backoff::Backoff;
use super::config::Timing;
use super::failure::ApiFailure;
use super::plan;
use super::slices::{By, ListedEndpoint, Store};
use crate::discovery::members::{MemberId, Members};
use crate::discovery::ranks::{RankedBy, Ranks};
use crate::discovery::roster::Roster;
use crate::discovery::selection::{Selection, select};
use crate::discovery::update::{MeshFacts, Ourselves, PeerList, PeerSpec};
use crate::limits;
use crate::method::Network;

/// The request that must be sent next to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextRequest {
    /// List all slices of the Service.
    List {
        /// Include the slices' content, not only metadata.
        whole: bool,
        /// Read from etcd, not from the cache.
        consistent: bool,
    },
    /// Watch for changes of slices.
    Watch {
        /// The version after which changes are wanted.
        version: u64,
    },
}

/// What a change has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// Nothing more is needed. [`Machine::changes`] may have updates.
    Settled,
    /// All peers seem to be gone. Ask again before this is believed.
    LookAgain,
}

/// Updates for the probe loop.
#[derive(Debug, Default)]
pub struct PendingUpdates {
    /// Facts about the mesh, to be sent before the list.
    pub mesh: Option<MeshFacts>,
    /// The roster, if it has changed.
    pub roster: Option<Arc<Roster>>,
    /// The list, if it has changed.
    pub list: Option<PeerList>,
}

#[derive(Clone, Copy)]
enum MachinePhase {
    /// 0 until the version arrives.
    List {
        version: u64,
        trusted: bool,
    },
    Watch {
        version: u64,
    },
}

const NEW_LIST: MachinePhase = MachinePhase::List { version: 0, trusted: true };

/// The state of one sequence of lists and watches.
pub struct Machine {
    phase: MachinePhase,
    timing: Timing,
    store: Store,
    ourselves: Ourselves,
    selection: Option<Selection>,
    /// The version of the members from which the selection was made.
    selected_at: u64,
    /// What was reported last: the mesh, and a hash of the list.
    reported: Option<(MeshFacts, u64)>,
    /// The last roster, the change count of its endpoints, and whether the list was a part of them.
    roster: Arc<Roster>,
    roster_of: Option<(u64, bool)>,
    /// The newest version of any answer. It is lowered only if a complete list shows that the
    /// earlier history is over.
    newest: u64,
    /// The last result was empty and is not confirmed yet.
    empty_once: bool,
    /// An empty list was confirmed and is in force.
    empty_in_force: bool,
    /// Everything has been read once since the start or the last empty result.
    synced: bool,
    /// Doubted addresses that wait for a reading.
    doubts: Vec<IpAddr>,
    backoff: Backoff,
}

impl Machine {
    /// Makes a machine that starts with a list.
    pub fn new(ourselves: Ourselves, timing: Timing) -> Self {
        Self {
            phase: NEW_LIST,
            timing,
            store: Store::new(Members::new(ourselves.forget_after)),
            ourselves,
            selection: None,
            selected_at: 0,
            reported: None,
            roster: Arc::default(),
            roster_of: None,
            newest: 0,
            empty_once: false,
            empty_in_force: false,
            synced: false,
            doubts: Vec::new(),
            backoff: Backoff::new(timing.backoff_min, timing.backoff_max),
        }
    }

    /// Returns the next request.
    pub fn ask(&self) -> NextRequest {
        match self.phase {
            MachinePhase::List { .. } => {
                NextRequest::List { whole: self.store.is_unlisted(), consistent: self.empty_once }
            }
            MachinePhase::Watch { version } => NextRequest::Watch { version },
        }
    }

    /// Starts a list that is about to arrive.
    pub fn list_begins(&mut self) {
        self.phase = NEW_LIST;
        self.store.list_begins();
    }

    /// Takes the metadata of the list.
    ///
    /// # Errors
    /// The metadata cannot be read.
    pub fn list_metadata(&mut self, message: &[u8]) -> Result<(), ApiFailure> {
        let version = list_version(message).map_err(ApiFailure::Malformed)?;
        // A version lower than a known one belongs to another history, as after a restore of etcd.
        self.phase = MachinePhase::List { version, trusted: version >= self.newest };
        // Only a complete list lowers `newest`. If a list breaks off, the next one must not be
        // taken for the known history.
        self.newest = self.newest.max(version);
        Ok(())
    }

    /// Takes one item of the list.
    ///
    /// # Errors
    /// The item is unreadable, comes before the list's metadata, or exceeds the number of slices.
    pub fn list_item(&mut self, item: &[u8], whole: bool, now: Instant, random: f64) -> Result<(), ApiFailure> {
        let MachinePhase::List { version: 1.., trusted } = self.phase else {
            return Err(ApiFailure::Malformed("an item before the list's metadata".into()));
        };
        let by = if trusted { By::List } else { By::OtherHistory };
        let taken = if whole {
            EndpointSlice::read(item).and_then(|slice| self.store.put(&slice, false))
        } else {
            Metadata::read_item(item).and_then(|metadata| self.store.announce(&metadata, by, now, random))
        };
        taken.map_err(ApiFailure::Malformed)
    }

    /// Ends a list that has arrived completely.
    ///
    /// # Errors
    /// The list had no metadata.
    pub fn list_ends(&mut self, now: Instant) -> Result<ChangeOutcome, ApiFailure> {
        let MachinePhase::List { version: version @ 1.., .. } = self.phase else {
            return Err(ApiFailure::Malformed("a list without metadata".into()));
        };
        self.store.list_ends(now);
        self.newest = version;
        self.phase = MachinePhase::Watch { version };
        Ok(self.settle(now))
    }

    /// Takes an event of the watch.
    ///
    /// # Errors
    /// The event was an ERROR, or added one slice too many. The watch is over.
    pub fn event(&mut self, event: &WatchEvent, now: Instant, random: f64) -> Result<ChangeOutcome, ApiFailure> {
        let MachinePhase::Watch { version: before } = self.phase else { return Ok(ChangeOutcome::Settled) };
        let version = match event {
            WatchEvent::Changed(metadata) | WatchEvent::Deleted(metadata) => metadata.version,
            WatchEvent::Bookmark(version) => *version,
            WatchEvent::Error { code: 410, .. } => return Err(ApiFailure::Gone),
            WatchEvent::Error { code, message } => {
                log::debug!("kubernetes discovery: ERROR event {code}: {message}");
                return Err(ApiFailure::from_status(*code, None));
            }
        };
        if version < before {
            // The versions of a watch never decrease.
            return Err(ApiFailure::Gone);
        }
        self.phase = MachinePhase::Watch { version };
        self.newest = self.newest.max(version);
        match event {
            WatchEvent::Changed(metadata) => {
                self.store.announce(metadata, By::Event, now, random).map_err(ApiFailure::Malformed)?;
                Ok(ChangeOutcome::Settled)
            }
            WatchEvent::Deleted(metadata) => {
                self.store.deleted(metadata.name, now);
                Ok(self.settle(now))
            }
            WatchEvent::Bookmark(_) | WatchEvent::Error { .. } => Ok(ChangeOutcome::Settled),
        }
    }

    /// Returns the slice to read next, the minimum version that it must have, and when.
    pub fn next_reading(&self, now: Instant) -> Option<(&str, u64, Instant)> {
        self.store.next(&self.timing, now)
    }

    /// Takes the result of reading a slice that should have at least version `asked`. A body of
    /// None means that no slice of that name exists.
    ///
    /// # Errors
    /// The slice is unreadable, is another one, or is older than asked for. It stays stale.
    pub fn read(
        &mut self,
        name: &str,
        asked: u64,
        body: Option<&[u8]>,
        now: Instant,
    ) -> Result<ChangeOutcome, ApiFailure> {
        // The slice was deleted since, or it has a lower version because the asked one belongs to a
        // history that is over.
        let Some(newest) = self.store.awaits(name).filter(|newest| *newest >= asked) else {
            return Ok(ChangeOutcome::Settled);
        };
        let Some(body) = body else {
            if newest > asked {
                // The slice may have been created again since.
                self.store.read_too_early(name, now);
            } else {
                self.store.deleted(name, now);
            }
            return Ok(self.settle(now));
        };
        let slice = super::api::open(body, super::api::ObjectKind::SLICE).and_then(EndpointSlice::read);
        let slice = slice.map_err(ApiFailure::Malformed)?;
        if slice.metadata.name != name {
            return Err(ApiFailure::Malformed(format!("another slice than {name}")));
        }
        let version = slice.metadata.version;
        if version < asked {
            return Err(ApiFailure::Malformed(format!("{name} of version {version}, where {asked} was asked for")));
        }
        self.newest = self.newest.max(version);
        self.store.put(&slice, true).map_err(ApiFailure::Malformed)?;
        if version < newest {
            self.store.read_too_early(name, now);
        }
        Ok(self.settle(now))
    }

    /// Records that reading a slice failed.
    pub fn reading_failed(&mut self, name: &str, now: Instant) {
        self.store.failed(name, now);
    }

    /// Applies the passing of time: members that have been absent for long are removed.
    pub fn settle(&mut self, now: Instant) -> ChangeOutcome {
        self.store.settle(now);
        if !self.store.is_empty() {
            self.empty_once = false;
            self.empty_in_force = false;
            self.synced |= !self.store.has_unread();
        } else if !self.empty_in_force && !self.store.has_stale() {
            if !self.empty_once {
                self.empty_once = true;
                // After an empty result, a partial state must not be reported either.
                self.synced = false;
                self.phase = NEW_LIST;
                return ChangeOutcome::LookAgain;
            }
            self.empty_once = false;
            self.empty_in_force = true;
            self.synced = true;
        }
        ChangeOutcome::Settled
    }

    /// Returns what has changed since the last call. Nothing before everything has been read, or
    /// while an empty list is not confirmed.
    pub fn changes(&mut self) -> PendingUpdates {
        if !self.is_reportable() {
            return PendingUpdates::default();
        }
        let members = self.store.members();
        if self.selection.is_none() || self.selected_at != members.version() {
            self.selected_at = members.version();
            let Ourselves { node, zone, max_peers, .. } = &self.ourselves;
            let listed = members.find(node).and_then(|own| members.zone(own));
            self.selection = Some(select(members, node, zone.as_deref().or(listed), *max_peers));
        }
        // Our own entry is included, because it gives our zone.
        let own = members.find(&self.ourselves.node);
        let endpoints = self.store.endpoints(|id| Some(id) == own || self.is_ours(id));
        let facts = self.selection.as_ref().map(Selection::facts).unwrap_or_default();
        let hash = self.hash(&endpoints);
        let roster = self.new_roster();
        if self.reported == Some((facts, hash)) {
            return PendingUpdates { roster, ..PendingUpdates::default() };
        }
        let mesh = self.reported.is_none_or(|(before, _)| before != facts).then_some(facts);
        self.reported = Some((facts, hash));
        PendingUpdates { mesh, roster, list: Some(self.list(&endpoints)) }
    }

    /// Returns the roster if it has changed.
    fn new_roster(&mut self) -> Option<Arc<Roster>> {
        let is_partial = self.selection.as_ref().is_some_and(Selection::is_partial);
        let wanted = Some((self.store.revision(), is_partial));
        if std::mem::replace(&mut self.roster_of, wanted) == wanted {
            return None;
        }
        let Ourselves { node, addresses, .. } = &self.ourselves;
        let ranks = Ranks::new(self.store.staying(), RankedBy::Name, (node, addresses));
        let beyond = is_partial.then(|| self.store.staying());
        let roster = self.roster.next(ranks, beyond)?;
        self.roster = Arc::clone(&roster);
        Some(roster)
    }

    /// Returns a hash of the contents of the list.
    fn hash(&self, endpoints: &[ListedEndpoint]) -> u64 {
        let members = self.store.members();
        let mut hasher = DefaultHasher::new();
        for e in endpoints {
            (members.name(e.member), members.zone(e.member), e.address, e.readiness, e.port, e.is_displaced)
                .hash(&mut hasher);
        }
        hasher.finish()
    }

    fn list(&self, endpoints: &[ListedEndpoint]) -> PeerList {
        let members = self.store.members();
        let spec = |e: &ListedEndpoint| PeerSpec {
            node: members.name(e.member).to_owned(),
            address: e.address,
            zone: members.zone(e.member).map(str::to_owned),
            readiness: e.readiness,
            http_port: e.port,
            network: Network::Pod,
            is_displaced: e.is_displaced,
        };
        PeerList { peers: endpoints.iter().map(spec).collect() }
    }

    /// Returns whether the known state is complete and confirmed.
    fn is_reportable(&self) -> bool {
        self.synced && (!self.store.is_empty() || self.empty_in_force)
    }

    fn is_ours(&self, id: MemberId) -> bool {
        self.selection.as_ref().is_some_and(|selection| selection.contains(id))
    }

    /// Returns whether the reported list is still right: no slice is overdue.
    pub fn is_sure(&self, now: Instant) -> bool {
        self.reported.is_some() && self.is_reportable() && !self.store.is_overdue(&self.timing, now)
    }

    /// Returns whether time alone may change the state.
    pub fn has_absent(&self) -> bool {
        self.store.members().any_absent()
    }

    /// Records a doubt about an address. If its slice is stale, it is due at once.
    /// [`Machine::answer`] returns it once the doubt is settled. Returns false if there
    /// are too many doubts.
    pub fn doubt(&mut self, address: IpAddr, now: Instant) -> bool {
        let is_new = !self.doubts.contains(&address);
        if is_new && self.doubts.len() == usize::from(limits::DOUBTS_MAX) {
            return false;
        }
        self.store.doubt(address, now);
        if is_new {
            self.doubts.push(address);
        }
        true
    }

    /// Returns the next doubted address for which the reported list is as new as possible. None
    /// while the known state is not reported.
    pub fn answer(&mut self) -> Option<IpAddr> {
        if !self.is_reportable() {
            return None;
        }
        let at = self.doubts.iter().position(|address| self.store.is_fresh(*address))?;
        Some(self.doubts.swap_remove(at))
    }

    /// Removes and returns all doubts, because nothing can be read now.
    pub fn give_up_doubts(&mut self) -> Vec<IpAddr> {
        std::mem::take(&mut self.doubts)
    }

    /// Records how long a watch has lasted. If it was long enough, it has worked, however it ended.
    pub fn watched(&mut self, lasted: Duration) {
        self.backoff.lasted(lasted);
    }

    /// Records a failure. Returns the wait before the next request. Both random numbers must be in
    /// [0, 1).
    pub fn failed(&mut self, failure: &ApiFailure, [first, second]: [f64; 2]) -> Duration {
        if failure.needs_new_list() {
            self.phase = NEW_LIST;
        }
        let wait = self.backoff.next(first) + plan::return_pause(self.store.len(), second, &self.timing);
        wait + failure.retry_after()
    }
}

#[cfg(test)]
mod tests;
