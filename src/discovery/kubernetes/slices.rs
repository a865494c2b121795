//! What is kept of the EndpointSlices of one Service, and which of them have changed since they were read. No I/O.
//!
//! Traps of the API: an endpoint may stand in two slices at once; within a slice the order means nothing; a slice that is
//! deleted may have its endpoints in another, which we have not read yet; and pods of one node (an old one on its way out, its
//! successor) are two endpoints of one name. Which of them is newer is not in the API, so we count: an endpoint keeps the
//! number it got when its address was first seen.
//!
//! Cost: that of the endpoints; names and zones are the members'.

use std::collections::BTreeMap;
use std::net::IpAddr;

use tokio::time::Instant;

use super::api;
use super::config::Timing;
use super::endpoints::Endpoints;
use super::plan::{Need, Stale};
use crate::discovery::Readiness;
use crate::discovery::members::{MemberId, Members};
use crate::limits;

/// An endpoint, as a slice lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The newer the higher.
    pub number: u32,
    /// On whose node.
    pub member: MemberId,
    /// Where.
    pub address: IpAddr,
    /// In what state.
    pub readiness: Readiness,
    /// Of its slice.
    pub port: Option<u16>,
}

/// One EndpointSlice.
struct Slice {
    /// Of what is kept; 0: it has never been read.
    version: u64,
    /// The newest that we have heard of, in the history that we follow.
    heard: u64,
    /// Its creation, in seconds since the epoch.
    created: u64,
    port: Option<u16>,
    /// Since when it is deleted.
    gone: Option<Instant>,
    /// The list under way has it.
    in_list: bool,
    /// Endpoints that cannot be used, as last logged.
    refused: usize,
    stale: Option<Stale>,
    endpoints: Endpoints,
}

impl Slice {
    fn new(heard: u64, stale: Option<Stale>) -> Self {
        let endpoints = Endpoints::none();
        let (version, created, port, gone) = (0, 0, None, None);
        Self { version, heard, created, port, gone, in_list: true, refused: 0, stale, endpoints }
    }

    fn need(&self, is_ours: &impl Fn(MemberId) -> bool) -> Need {
        if self.version == 0 || self.endpoints.members().any(is_ours) { Need::Ours } else { Need::Others }
    }
}

/// By what a slice's version is heard of, and so what it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A reading may have been ahead of it: what is older is no change.
    Event,
    /// A list that is as new as all that was heard before: a slice that is older there is one that etcd was restored to, whose store
    /// then began above all versions (`etcdutl snapshot restore --bump-revision`).
    List,
    /// A list older than what was heard before: no version can be compared, and any is a change.
    OtherHistory,
}

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// What we have of it is the newest.
    Fresh,
    /// Its slice has changed since.
    Stale,
    /// Its slice is deleted, and what it held is kept until the others are read.
    Gone,
}

/// What is looked for, beside what has changed of ours.
#[derive(Clone, Copy, Debug, Default)]
pub struct Search {
    /// What has never been read: nothing can be told before.
    pub all_unread: bool,
    /// Our own endpoint, in whatever can be due until then as one of ours is.
    pub own_until: Option<Instant>,
}

/// The slices of one Service.
pub struct Store {
    members: Members,
    slices: BTreeMap<Box<str>, Slice>,
    next_number: u32,
    /// Counts changes of endpoints.
    changes: u64,
}

impl Store {
    /// Without any.
    pub const fn new(members: Members) -> Self {
        Self { members, slices: BTreeMap::new(), next_number: 1, changes: 0 }
    }

    /// Who has been in them.
    pub const fn members(&self) -> &Members {
        &self.members
    }

    /// Returns a number that changes with every change of an endpoint.
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns name and address of every endpoint that is not terminating.
    pub fn addresses(&self) -> impl Iterator<Item = (&str, IpAddr)> {
        let endpoints = self.slices.values().flat_map(|slice| slice.endpoints.iter());
        let staying = endpoints.filter(|(.., readiness)| *readiness != Readiness::Terminating);
        staying.map(|(_, member, address, _)| (self.members.name(member), address))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slices.len()
    }

    /// Whether nothing is known of any slice.
    pub fn knows_none(&self) -> bool {
        self.slices.is_empty()
    }

    /// A list begins.
    pub fn list_begins(&mut self) {
        self.slices.values_mut().for_each(|slice| slice.in_list = false);
    }

    /// A slice has that version now.
    ///
    /// # Errors
    /// There are too many slices.
    pub fn heard(&mut self, metadata: &api::Metadata, by: By, now: Instant, random: f64) -> Result<(), String> {
        let stale = || Some(Stale::new(now, random));
        let Some(slice) = self.slices.get_mut(metadata.name) else {
            return self.add(metadata.name, Slice::new(metadata.version, stale())).map(drop);
        };
        slice.in_list = true;
        slice.gone = None;
        let changed = match by {
            By::Event => metadata.version > slice.heard,
            By::List => metadata.version != slice.heard,
            By::OtherHistory => true,
        };
        if changed {
            slice.heard = metadata.version;
            if slice.stale.is_none() {
                slice.stale = stale();
            }
        }
        Ok(())
    }

    /// A slice is deleted. What it held stays until the slices are read that may hold it now.
    pub fn deleted(&mut self, name: &str, now: Instant) {
        if let Some(slice) = self.slices.get_mut(name) {
            slice.gone.get_or_insert(now);
            slice.stale = None;
        }
    }

    /// The list is whole: what it did not have is deleted.
    pub fn list_ends(&mut self, now: Instant) {
        for slice in self.slices.values_mut().filter(|slice| !slice.in_list) {
            slice.gone.get_or_insert(now);
            slice.stale = None;
        }
        self.number();
    }

    /// Takes the content of a slice. `numbered` is to be false within a list, whose end gives the numbers, in the order of the
    /// slices' creation.
    ///
    /// # Errors
    /// There are too many slices.
    pub fn put(&mut self, given: &api::Slice, numbered: bool) -> Result<(), String> {
        let metadata = given.metadata;
        if !self.slices.contains_key(metadata.name) {
            self.add(metadata.name, Slice::new(metadata.version, None))?;
        }
        let (fresh, refused) = Endpoints::of(given, &mut self.members);
        let Some(slice) = self.slices.get_mut(metadata.name) else { return Ok(()) };
        let before = std::mem::replace(&mut slice.endpoints, fresh);
        self.changes += 1;
        (slice.created, slice.port, slice.gone, slice.in_list) = (metadata.created, given.port, None, true);
        slice.version = metadata.version;
        if metadata.version >= slice.heard {
            (slice.heard, slice.stale) = (metadata.version, None);
        }
        if refused > std::mem::replace(&mut slice.refused, refused) {
            log::warn!(
                "kubernetes discovery: EndpointSlice {}: {refused} endpoint(s) without a usable {:?} address or name, or \
                 beyond {} of them or {} members, skipped",
                metadata.name,
                given.family,
                limits::ENDPOINTS_PER_SLICE_MAX,
                limits::PEER_SLOTS_MAX,
            );
        }
        if numbered {
            self.inherit(metadata.name, &before);
            self.number();
        }
        Ok(())
    }

    fn add(&mut self, name: &str, slice: Slice) -> Result<(), String> {
        if self.slices.len() == limits::SLICES_MAX {
            return Err(format!("more than {} EndpointSlices", limits::SLICES_MAX));
        }
        self.slices.insert(name.into(), slice);
        Ok(())
    }

    /// What was read of a slice was as new as was asked for, and older than what has been heard of meanwhile.
    pub fn read_too_early(&mut self, name: &str, now: Instant) {
        if let Some(stale) = self.slices.get_mut(name).and_then(|slice| slice.stale.as_mut()) {
            stale.read_too_early(now);
        }
    }

    /// Reading a slice failed.
    pub fn failed(&mut self, name: &str, now: Instant) {
        if let Some(stale) = self.slices.get_mut(name).and_then(|slice| slice.stale.as_mut()) {
            stale.failed(now);
        }
    }

    /// Gives the endpoints of a slice the numbers that they had in it before, or have in another.
    fn inherit(&mut self, name: &str, before: &Endpoints) {
        let Some(mut slice) = self.slices.remove(name) else { return };
        // The slice as it was is looked at first, where nearly all are found, and all others only for those who are new.
        let others = self.slices.values().map(|slice| &slice.endpoints);
        slice.endpoints.inherit(std::iter::once(before).chain(others));
        self.slices.insert(name.into(), slice);
    }

    /// Numbers the endpoints that are new.
    fn number(&mut self) {
        let mut order: Vec<&mut Slice> = self.slices.values_mut().collect();
        order.sort_by_key(|slice| slice.created);
        for slice in order {
            slice.endpoints.number(&mut self.next_number);
        }
    }

    /// Lets go of deleted slices where every slice that might hold their endpoints is read, and of members who have been away
    /// for long. To be called after every change.
    pub fn settle(&mut self, now: Instant) {
        let oldest = self.slices.values().filter_map(|slice| slice.stale.as_ref().map(Stale::since)).min();
        let count = self.slices.len();
        self.slices.retain(|_, slice| slice.gone.is_none_or(|gone| oldest.is_some_and(|stale| stale <= gone)));
        self.changes += u64::from(self.slices.len() != count);
        let present = self.slices.values().flat_map(|slice| slice.endpoints.members());
        self.members.listed(present, now);
    }

    /// The newest version heard of of a slice whose content is wanted: it is known, and not deleted.
    pub fn awaits(&self, name: &str) -> Option<u64> {
        self.slices.get(name).filter(|slice| slice.gone.is_none()).map(|slice| slice.heard)
    }

    /// Whether there is a slice that has changed since it was read.
    pub fn has_stale(&self) -> bool {
        self.slices.values().any(|slice| slice.stale.is_some())
    }

    /// Whether there is a slice that has never been read, and still can be.
    pub fn has_unread(&self) -> bool {
        self.slices.values().any(|slice| slice.version == 0 && slice.gone.is_none())
    }

    /// Whether there is no endpoint at all, not even in a deleted slice that is still kept.
    pub fn is_empty(&self) -> bool {
        self.slices.values().all(|slice| slice.endpoints.is_empty())
    }

    /// The slice to read next, the version that it must have at least, and when.
    pub fn next(
        &self,
        is_ours: impl Fn(MemberId) -> bool,
        search: Search,
        timing: &Timing,
    ) -> Option<(&str, u64, Instant)> {
        let count = self.len();
        // A rolled pod's endpoint returns to whichever slice has room: any that has changed may hold it.
        let missing = self.members.any_absent_of(&is_ours);
        let due = |slice: &Slice, stale: &Stale| {
            if search.all_unread && slice.version == 0 {
                return stale.due(Need::Start, count, timing);
            }
            let soon = stale.due(Need::Ours, count, timing);
            let searched = missing || search.own_until.is_some_and(|end| soon <= end);
            if searched { soon } else { stale.due(slice.need(&is_ours), count, timing) }
        };
        // Who doubts does not wait for long: what others need, however late, comes after.
        let order = |slice: &Slice| {
            let stale = slice.stale?;
            Some((!stale.is_doubted(), due(slice, &stale)))
        };
        let all = self.slices.iter().filter_map(|(name, slice)| Some((order(slice)?, name, slice.heard)));
        let ((_, due), name, heard) = all.min_by_key(|(order, ..)| *order)?;
        Some((name, heard, due))
    }

    /// Whether something that we need should have been read long ago.
    pub fn is_overdue(&self, is_ours: impl Fn(MemberId) -> bool, timing: &Timing, now: Instant) -> bool {
        let count = self.len();
        self.slices
            .values()
            .any(|slice| slice.stale.is_some_and(|stale| stale.is_overdue(slice.need(&is_ours), count, timing, now)))
    }

    /// What is known of an address: the worst of what the slices that have it say. Fresh where none has.
    pub fn known(&self, address: IpAddr) -> Known {
        let mut known = Known::Fresh;
        for slice in self.slices.values().filter(|slice| has(slice, address)) {
            match (slice.gone, &slice.stale) {
                (Some(_), _) => return Known::Gone,
                (None, Some(_)) => known = Known::Stale,
                (None, None) => {}
            }
        }
        known
    }

    /// Somebody doubts an address: its slices are read at once, and deleted ones have it no longer. Of what else these held nobody
    /// has said anything.
    pub fn doubt(&mut self, address: IpAddr, now: Instant) {
        let gone = |slice: &&mut Slice| slice.gone.is_some() && has(slice, address);
        let mut removed = false;
        for slice in self.slices.values_mut().filter(gone) {
            slice.endpoints.remove(address);
            removed = true;
        }
        if removed {
            self.changes += 1;
            self.settle(now);
        }
        for slice in self.slices.values_mut() {
            if slice.stale.is_some_and(|stale| !stale.is_doubted())
                && has(slice, address)
                && let Some(stale) = &mut slice.stale
            {
                stale.doubt(now);
            }
        }
    }

    /// The endpoints of those members, each once, the newest last.
    pub fn endpoints(&self, wanted: impl Fn(MemberId) -> bool) -> Vec<Listed> {
        let mut all: Vec<Listed> = Vec::new();
        for slice in self.slices.values() {
            let port = slice.port;
            let ours = slice.endpoints.iter().filter(|(_, member, ..)| wanted(*member));
            all.extend(ours.map(|(number, member, address, readiness)| Listed {
                number,
                member,
                address,
                readiness,
                port,
            }));
        }
        // The same endpoint in two slices: the better state is the one that the controller wrote last, or will.
        all.sort_unstable_by_key(|e| (e.address, e.member, e.readiness));
        all.dedup_by(|next, kept| {
            let same = (next.address, next.member) == (kept.address, kept.member);
            if same {
                kept.number = kept.number.min(next.number);
            }
            same
        });
        all.sort_unstable_by_key(|e| e.number);
        if all.len() > limits::PEER_SLOTS_MAX {
            log::warn!(
                "{} of {} endpoints are left out: there are no more slots",
                all.len() - limits::PEER_SLOTS_MAX,
                all.len()
            );
            all.truncate(limits::PEER_SLOTS_MAX);
        }
        all
    }
}

fn has(slice: &Slice, address: IpAddr) -> bool {
    slice.endpoints.iter().any(|(_, _, other, _)| other == address)
}

#[cfg(test)]
mod tests;
