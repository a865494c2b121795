//! Decides what to ask next, what an answer means, and what is told on. No I/O, no clock, no randomness of its own.
//!
//! ```text
//!              whole list (once) ─┐
//! List ─►                         ├─► Watch(version) ─► Watch(newer version) …
//!  ▲      metadata of all slices ─┘     │   each change: that slice is stale, and is read when the plan says so
//!  └── 410, malformed, silent, empty ───┘
//! ```
//! After the first list, none brings more than names and versions: those that we do not hold are stale, as if the watch had
//! said so. So an API server that restarts, and turns every watch away, is not asked for everything by everybody.
//!
//! What is told on is never half of something: nothing before every slice has been read once, at the start and after a look
//! that found nothing, and an empty list only when a second look, at etcd itself rather than the cache, finds the same.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::api::{Event, Metadata, Slice, list_version};
use super::backoff::Backoff;
use super::config::Timing;
use super::failure::Failure;
use super::plan;
use super::slices::{By, Known, Listed, Search, Store};
use crate::discovery::{
    MemberId, Members, MeshFacts, Network, Ourselves, PeerList, PeerSpec, Roster, Selection, select,
};
use crate::limits;

/// What to ask the API server next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A list.
    List {
        /// With the slices' content.
        whole: bool,
        /// Not from the cache.
        consistent: bool,
    },
    /// A watch.
    Watch {
        /// After which version.
        version: u64,
    },
}

/// What a change comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// [`Machine::news`] may have some.
    Settled,
    /// All peers seem to be gone: ask again before it is believed.
    LookAgain,
}

/// What the probe loop is to be told.
#[derive(Debug, Default)]
pub struct News {
    /// Of the mesh; before the list.
    pub mesh: Option<MeshFacts>,
    /// A new roster.
    pub roster: Option<Arc<Roster>>,
    /// A new list.
    pub list: Option<PeerList>,
}

#[derive(Clone, Copy)]
enum Phase {
    /// 0: its version has not come yet.
    List {
        version: u64,
        trusted: bool,
    },
    Watch {
        version: u64,
    },
}

const NEW_LIST: Phase = Phase::List { version: 0, trusted: true };

/// The state of one list-and-watch.
pub struct Machine {
    phase: Phase,
    timing: Timing,
    store: Store,
    ourselves: Ourselves,
    selection: Option<Selection>,
    /// Of the members, as the selection was made.
    selected_at: u64,
    /// What was told last: the mesh, and the list as a hash.
    told: Option<(MeshFacts, u64)>,
    /// The change of the endpoints that the last roster has.
    roster_of: Option<u64>,
    /// No answer had a newer version, but for one of a history that a whole list has shown to be over.
    newest: u64,
    /// The last thing seen was empty, and not believed yet.
    empty_once: bool,
    /// An empty list is in force.
    empty_in_force: bool,
    /// Set by the first list.
    own_search_until: Option<Instant>,
    /// Everything has been read once, since nothing was seen last.
    synced: bool,
    /// Addresses that somebody doubts, and that wait for a reading.
    doubts: Vec<IpAddr>,
    backoff: Backoff,
}

impl Machine {
    /// Starts with a list.
    pub fn new(ourselves: Ourselves, timing: Timing) -> Self {
        Self {
            phase: NEW_LIST,
            timing,
            store: Store::new(Members::new(ourselves.forget_after)),
            ourselves,
            selection: None,
            selected_at: 0,
            told: None,
            roster_of: None,
            newest: 0,
            empty_once: false,
            empty_in_force: false,
            own_search_until: None,
            synced: false,
            doubts: Vec::new(),
            backoff: Backoff::new(timing.backoff_min, timing.backoff_max),
        }
    }

    /// What to ask now.
    pub fn ask(&self) -> Ask {
        match self.phase {
            Phase::List { .. } => Ask::List { whole: self.store.knows_none(), consistent: self.empty_once },
            Phase::Watch { version } => Ask::Watch { version },
        }
    }

    /// A list begins to come.
    pub fn list_begins(&mut self) {
        self.phase = NEW_LIST;
        self.store.list_begins();
    }

    /// Its metadata.
    ///
    /// # Errors
    /// They are unreadable.
    pub fn list_metadata(&mut self, message: &[u8]) -> Result<(), Failure> {
        let version = list_version(message).map_err(Failure::Malformed)?;
        // Lower than one that we have seen: another history, as after a restore of etcd.
        self.phase = Phase::List { version, trusted: version >= self.newest };
        // Only a list that comes whole lowers it: after one that breaks off, the next is not to be taken for the known history.
        self.newest = self.newest.max(version);
        Ok(())
    }

    /// One of its items.
    ///
    /// # Errors
    /// It is unreadable, comes before the list's metadata, or is one too many.
    pub fn list_item(&mut self, item: &[u8], whole: bool, now: Instant, random: f64) -> Result<(), Failure> {
        let Phase::List { version: 1.., trusted } = self.phase else {
            return Err(Failure::Malformed("an item before the list's metadata".into()));
        };
        let by = if trusted { By::List } else { By::OtherHistory };
        let taken = if whole {
            Slice::read(item).and_then(|slice| self.store.put(&slice, false))
        } else {
            Metadata::of_item(item).and_then(|metadata| self.store.heard(&metadata, by, now, random))
        };
        taken.map_err(Failure::Malformed)
    }

    /// It has come whole.
    ///
    /// # Errors
    /// It had no metadata.
    pub fn list_ends(&mut self, now: Instant) -> Result<Outcome, Failure> {
        let Phase::List { version: version @ 1.., .. } = self.phase else {
            return Err(Failure::Malformed("a list without metadata".into()));
        };
        self.store.list_ends(now);
        self.newest = version;
        self.own_search_until.get_or_insert(now + limits::OWN_SEARCH_TIME);
        self.phase = Phase::Watch { version };
        Ok(self.settle(now))
    }

    /// Takes an event of the watch.
    ///
    /// # Errors
    /// It was an ERROR, or a slice too many: the watch is over.
    pub fn event(&mut self, event: &Event, now: Instant, random: f64) -> Result<Outcome, Failure> {
        let Phase::Watch { version: before } = self.phase else { return Ok(Outcome::Settled) };
        let version = match event {
            Event::Changed(metadata) | Event::Deleted(metadata) => metadata.version,
            Event::Bookmark(version) => *version,
            Event::Error { code: 410, .. } => return Err(Failure::Gone),
            Event::Error { code, message } => {
                log::debug!("kubernetes discovery: ERROR event {code}: {message}");
                return Err(Failure::of_status(*code, None));
            }
        };
        if version < before {
            // A watch never goes back.
            return Err(Failure::Gone);
        }
        self.phase = Phase::Watch { version };
        self.newest = self.newest.max(version);
        match event {
            Event::Changed(metadata) => {
                self.store.heard(metadata, By::Event, now, random).map_err(Failure::Malformed)?;
                Ok(Outcome::Settled)
            }
            Event::Deleted(metadata) => {
                self.store.deleted(metadata.name, now);
                Ok(self.settle(now))
            }
            Event::Bookmark(_) | Event::Error { .. } => Ok(Outcome::Settled),
        }
    }

    /// The slice to read next, the version that it must have at least, and when.
    pub fn next_reading(&self) -> Option<(&str, u64, Instant)> {
        let search = Search { all_unread: self.told.is_none(), own_until: self.own_search_until() };
        self.store.next(|id| self.is_ours(id), search, &self.timing)
    }

    /// Until when our own endpoint is looked for, which tells our zone. An agent that has just been replaced lists before its endpoint
    /// is there, and this comes by a slice that need not hold a peer of ours.
    fn own_search_until(&self) -> Option<Instant> {
        let Ourselves { node, zone, .. } = &self.ourselves;
        self.own_search_until.filter(|_| zone.is_none() && self.store.members().find(node).is_none())
    }

    /// A slice was read that was to have that version at least; None: there is none of that name.
    ///
    /// # Errors
    /// It is unreadable, another, or older than what was asked for; it stays stale.
    pub fn read(&mut self, name: &str, asked: u64, body: Option<&[u8]>, now: Instant) -> Result<Outcome, Failure> {
        // Deleted meanwhile; or lower, since what was asked for is of a history that is over.
        let Some(heard) = self.store.awaits(name).filter(|heard| *heard >= asked) else { return Ok(Outcome::Settled) };
        let Some(body) = body else {
            if heard > asked {
                // It may have come back since.
                self.store.read_too_early(name, now);
            } else {
                self.store.deleted(name, now);
            }
            return Ok(self.settle(now));
        };
        let slice = super::api::open(body, super::api::Kind::SLICE).and_then(Slice::read);
        let slice = slice.map_err(Failure::Malformed)?;
        if slice.metadata.name != name {
            return Err(Failure::Malformed(format!("another slice than {name}")));
        }
        let version = slice.metadata.version;
        if version < asked {
            return Err(Failure::Malformed(format!("{name} of version {version}, where {asked} was asked for")));
        }
        self.newest = self.newest.max(version);
        self.store.put(&slice, true).map_err(Failure::Malformed)?;
        if version < heard {
            self.store.read_too_early(name, now);
        }
        Ok(self.settle(now))
    }

    /// Reading a slice failed.
    pub fn reading_failed(&mut self, name: &str, now: Instant) {
        self.store.failed(name, now);
    }

    /// Time has passed: members who have been away for long are let go.
    pub fn settle(&mut self, now: Instant) -> Outcome {
        self.store.settle(now);
        if !self.store.is_empty() {
            self.empty_once = false;
            self.empty_in_force = false;
            self.synced |= !self.store.has_unread();
        } else if !self.empty_in_force && !self.store.has_stale() {
            if !self.empty_once {
                self.empty_once = true;
                // What comes after nothing is not told by halves either.
                self.synced = false;
                self.phase = NEW_LIST;
                return Outcome::LookAgain;
            }
            self.empty_once = false;
            self.empty_in_force = true;
            self.synced = true;
        }
        Outcome::Settled
    }

    /// What has changed since it was last asked for. None before everything has been read, or while an empty list is not
    /// believed.
    pub fn news(&mut self) -> News {
        if !self.is_to_be_told() {
            return News::default();
        }
        let members = self.store.members();
        if self.selection.is_none() || self.selected_at != members.version() {
            self.selected_at = members.version();
            let Ourselves { node, zone, max_peers, .. } = &self.ourselves;
            let told = members.find(node).and_then(|own| members.zone(own));
            self.selection = Some(select(members, node, zone.as_deref().or(told), *max_peers));
        }
        // Our own entry, too: it says our zone.
        let own = members.find(&self.ourselves.node);
        let endpoints = self.store.endpoints(|id| Some(id) == own || self.is_ours(id));
        let facts = self.selection.as_ref().map(Selection::facts).unwrap_or_default();
        let hash = self.hash(&endpoints);
        let roster = self.new_roster();
        if self.told == Some((facts, hash)) {
            return News { roster, ..News::default() };
        }
        let mesh = self.told.is_none_or(|(before, _)| before != facts).then_some(facts);
        self.told = Some((facts, hash));
        News { mesh, roster, list: Some(self.list(&endpoints)) }
    }

    /// Returns the roster if it has changed. A mesh whose members are all in the list needs none.
    fn new_roster(&mut self) -> Option<Arc<Roster>> {
        let is_partial = self.selection.as_ref().is_some_and(Selection::is_partial);
        let wanted = is_partial.then(|| self.store.changes());
        if std::mem::replace(&mut self.roster_of, wanted) == wanted {
            return None;
        }
        let members = self.store.addresses();
        Some(Arc::new(if is_partial { Roster::new(members) } else { Roster::default() }))
    }

    /// Of what a list would say.
    fn hash(&self, endpoints: &[Listed]) -> u64 {
        let members = self.store.members();
        let mut hasher = DefaultHasher::new();
        for e in endpoints {
            (members.name(e.member), members.zone(e.member), e.address, e.readiness, e.port).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn list(&self, endpoints: &[Listed]) -> PeerList {
        let members = self.store.members();
        let spec = |e: &Listed| PeerSpec {
            node: members.name(e.member).to_owned(),
            address: e.address,
            zone: members.zone(e.member).map(str::to_owned),
            readiness: e.readiness,
            http_port: e.port,
            network: Network::Pod,
        };
        PeerList { peers: endpoints.iter().map(spec).collect() }
    }

    /// Whether what is known is whole, and believed.
    fn is_to_be_told(&self) -> bool {
        self.synced && (!self.store.is_empty() || self.empty_in_force)
    }

    fn is_ours(&self, id: MemberId) -> bool {
        self.selection.as_ref().is_some_and(|selection| selection.contains(id))
    }

    /// Whether what was told is right, as far as it is to be: nothing that we need is overdue.
    pub fn is_sure(&self, now: Instant) -> bool {
        self.told.is_some() && self.is_to_be_told() && !self.store.is_overdue(|id| self.is_ours(id), &self.timing, now)
    }

    /// Whether time alone may change something.
    pub fn has_absent(&self) -> bool {
        self.store.members().any_absent()
    }

    /// Somebody doubts an address. Its slice is due at once where it is stale; [`Machine::answer`] says when that is over.
    /// Returns false where there are too many doubts for another.
    pub fn doubt(&mut self, address: IpAddr, now: Instant) -> bool {
        if self.doubts.len() == usize::from(limits::DOUBTS_MAX) {
            return false;
        }
        self.store.doubt(address, now);
        if !self.doubts.contains(&address) {
            self.doubts.push(address);
        }
        true
    }

    /// The next address of which the list told so far is as new as can be had. None while what is known is not told.
    pub fn answer(&mut self) -> Option<IpAddr> {
        if !self.is_to_be_told() {
            return None;
        }
        let at = self.doubts.iter().position(|address| self.store.known(*address) == Known::Fresh)?;
        Some(self.doubts.swap_remove(at))
    }

    /// Nothing can be looked up: all doubts, which are no longer ours.
    pub fn give_up_doubts(&mut self) -> Vec<IpAddr> {
        std::mem::take(&mut self.doubts)
    }

    /// A watch has stood for so long: long enough, and it has shown that it works, however it ended.
    pub fn watched(&mut self, stood: Duration) {
        self.backoff.stood(stood);
    }

    /// After a failure: where to go on, and after how long, for two numbers in [0, 1).
    pub fn failed(&mut self, failure: &Failure, [first, second]: [f64; 2]) -> Duration {
        if failure.needs_new_list() {
            self.phase = NEW_LIST;
        }
        let wait = self.backoff.next(first) + plan::return_pause(self.store.len(), second, &self.timing);
        wait + failure.retry_after()
    }
}

#[cfg(test)]
mod tests;
