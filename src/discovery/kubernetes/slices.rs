//! The stored state of the EndpointSlices of one Service, and which of them have changed since they
//! were read. No I/O.
//!
//! Traps of the API:
//! * An endpoint may be in two slices at once.
//! * The order within a slice means nothing.
//! * The endpoints of a deleted slice may be in another one that we have not read yet.
//! * The address of a pod that has died may be listed a second time, for the pod of another node.
//! * Two pods of one node (one terminating, and its successor) are two endpoints of one name. The
//!   API does not show which one is newer. So an endpoint keeps the number that it got when its
//!   address was first seen.
//!
//! The memory is that of the endpoints. Names and zones are stored in the members.

use std::collections::BTreeMap;
use std::net::IpAddr;

use tokio::time::Instant;

use super::api;
use super::config::Timing;
use super::endpoints::Endpoints;
use super::plan::Stale;
use crate::discovery::holder::{Claim, displaced};
use crate::discovery::members::{MemberId, Members};
use crate::discovery::ranks;
use crate::discovery::update::Readiness;
use crate::limits;

/// An endpoint, as a slice lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedEndpoint {
    /// A higher number is newer.
    pub number: u32,
    /// The node that the endpoint is on.
    pub member: MemberId,
    /// Its address, of either family.
    pub address: IpAddr,
    /// Its state in the slice.
    pub readiness: Readiness,
    /// The HTTP port of its slice.
    pub port: Option<u16>,
    /// Another member holds its address.
    pub is_displaced: bool,
}

/// The stored state of one EndpointSlice.
struct StoredSlice {
    /// The version of the stored content; 0 if it was never read.
    version: u64,
    /// The newest version that was announced in the present history.
    announced: u64,
    /// Creation time, in seconds since the epoch.
    created: u64,
    port: Option<u16>,
    /// When it was deleted, if it was.
    gone: Option<Instant>,
    /// The list in progress contains it.
    in_list: bool,
    /// Number of unusable endpoints, as last logged.
    refused: usize,
    stale: Option<Stale>,
    endpoints: Endpoints,
}

impl StoredSlice {
    fn new(announced: u64, stale: Option<Stale>) -> Self {
        let endpoints = Endpoints::none();
        let (version, created, port, gone) = (0, 0, None, None);
        Self { version, announced, created, port, gone, in_list: true, refused: 0, stale, endpoints }
    }

    /// Marks it as deleted. Its content stays, and needs no reading.
    fn delete(&mut self, now: Instant) {
        self.gone.get_or_insert(now);
        self.stale = None;
    }
}

/// How a slice's version became known, which decides the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// From an event. A reading may have been ahead of it, so an older version is no change.
    Event,
    /// From a list that is as new as everything seen before. A slice with an older version is one
    /// that etcd was restored to. Its store then started above all versions (`etcdutl snapshot
    /// restore --bump-revision`).
    List,
    /// From a list older than what was seen before. Versions cannot be compared, so any
    /// slice counts as changed.
    OtherHistory,
}

/// The slices of one Service.
pub struct Store {
    members: Members,
    slices: BTreeMap<Box<str>, StoredSlice>,
    next_number: u32,
    /// Number of changes of endpoints.
    revision: u64,
}

impl Store {
    /// Makes a store without slices.
    pub const fn new(members: Members) -> Self {
        Self { members, slices: BTreeMap::new(), next_number: 1, revision: 0 }
    }

    /// Returns all members that have been in the slices.
    pub const fn members(&self) -> &Members {
        &self.members
    }

    /// Returns a number that changes with every change of an endpoint.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns every endpoint that is not terminating.
    pub fn staying(&self) -> impl Iterator<Item = ranks::ListedMember<'_>> + Clone {
        self.slices.values().flat_map(|slice| {
            let staying = slice.endpoints.iter().filter(|(.., readiness)| *readiness != Readiness::Terminating);
            staying.map(|(_, member, address, _)| ranks::ListedMember {
                node: self.members.name(member),
                address,
                http_port: slice.port,
                zone: self.members.zone(member),
            })
        })
    }

    /// Returns the number of slices, including deleted ones that are kept.
    pub fn len(&self) -> usize {
        self.slices.len()
    }

    /// Returns whether no slice is known.
    pub fn is_unlisted(&self) -> bool {
        self.slices.is_empty()
    }

    /// Starts a list that is about to arrive.
    pub fn list_begins(&mut self) {
        self.slices.values_mut().for_each(|slice| slice.in_list = false);
    }

    /// Takes the present version of a slice.
    ///
    /// # Errors
    /// There are too many slices.
    pub fn announce(&mut self, metadata: &api::Metadata, by: By, now: Instant, random: f64) -> Result<(), String> {
        let stale = || Some(Stale::new(now, random));
        let Some(slice) = self.slices.get_mut(metadata.name) else {
            return self.add(metadata.name, StoredSlice::new(metadata.version, stale())).map(drop);
        };
        slice.in_list = true;
        slice.gone = None;
        let changed = match by {
            By::Event => metadata.version > slice.announced,
            By::List => metadata.version != slice.announced,
            By::OtherHistory => true,
        };
        if changed {
            slice.announced = metadata.version;
            if slice.stale.is_none() {
                slice.stale = stale();
            }
        }
        Ok(())
    }

    /// Marks a slice as deleted. Its content stays until the slices that may hold it now are read.
    pub fn deleted(&mut self, name: &str, now: Instant) {
        if let Some(slice) = self.slices.get_mut(name) {
            slice.delete(now);
        }
    }

    /// Ends a list that has arrived completely. Slices that were not in it are deleted.
    pub fn list_ends(&mut self, now: Instant) {
        self.slices.values_mut().filter(|slice| !slice.in_list).for_each(|slice| slice.delete(now));
        self.number();
    }

    /// Takes the content of a slice. `numbered` must be false within a list. The end of the list
    /// assigns the numbers, in the order of the slices' creation.
    ///
    /// # Errors
    /// There are too many slices.
    pub fn put(&mut self, given: &api::EndpointSlice, numbered: bool) -> Result<(), String> {
        let metadata = given.metadata;
        if !self.slices.contains_key(metadata.name) {
            self.add(metadata.name, StoredSlice::new(metadata.version, None))?;
        }
        let (fresh, refused) = Endpoints::read(given, &mut self.members);
        let Some(slice) = self.slices.get_mut(metadata.name) else { return Ok(()) };
        let before = std::mem::replace(&mut slice.endpoints, fresh);
        self.revision += 1;
        (slice.created, slice.port, slice.gone, slice.in_list) = (metadata.created, given.port, None, true);
        slice.version = metadata.version;
        if metadata.version >= slice.announced {
            (slice.announced, slice.stale) = (metadata.version, None);
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

    fn add(&mut self, name: &str, slice: StoredSlice) -> Result<(), String> {
        if self.slices.len() == limits::SLICES_MAX {
            return Err(format!("more than {} EndpointSlices", limits::SLICES_MAX));
        }
        self.slices.insert(name.into(), slice);
        Ok(())
    }

    /// Records that a slice was read as new as asked for, but older than the newest known version.
    pub fn read_too_early(&mut self, name: &str, now: Instant) {
        if let Some(stale) = self.slices.get_mut(name).and_then(|slice| slice.stale.as_mut()) {
            stale.read_too_early(now);
        }
    }

    /// Records that reading a slice failed.
    pub fn failed(&mut self, name: &str, now: Instant) {
        if let Some(stale) = self.slices.get_mut(name).and_then(|slice| slice.stale.as_mut()) {
            stale.failed(now);
        }
    }

    /// Gives the endpoints of a slice the numbers that they had in it before, or
    /// have in another slice.
    fn inherit(&mut self, name: &str, before: &Endpoints) {
        let Some(mut slice) = self.slices.remove(name) else { return };
        // The slice as it was comes first and has nearly all endpoints. The others are searched
        // only for new ones.
        let others = self.slices.values().map(|slice| &slice.endpoints);
        slice.endpoints.inherit(std::iter::once(before).chain(others));
        self.slices.insert(name.into(), slice);
    }

    /// Numbers the new endpoints.
    fn number(&mut self) {
        let mut order: Vec<&mut StoredSlice> = self.slices.values_mut().collect();
        order.sort_by_key(|slice| slice.created);
        for slice in order {
            slice.endpoints.number(&mut self.next_number);
        }
    }

    /// Removes deleted slices once every slice that may hold their endpoints is read. Removes
    /// members that have been absent for long. Must be called after every change.
    pub fn settle(&mut self, now: Instant) {
        let oldest = self.slices.values().filter_map(|slice| slice.stale.as_ref().map(Stale::since)).min();
        let count = self.slices.len();
        self.slices.retain(|_, slice| slice.gone.is_none_or(|gone| oldest.is_some_and(|stale| stale <= gone)));
        self.revision += u64::from(self.slices.len() != count);
        let present = self.slices.values().flat_map(|slice| slice.endpoints.members());
        self.members.listed(present, now);
    }

    /// Returns the newest known version of a slice whose content is wanted: it is
    /// known and not deleted.
    pub fn awaits(&self, name: &str) -> Option<u64> {
        self.slices.get(name).filter(|slice| slice.gone.is_none()).map(|slice| slice.announced)
    }

    /// Returns whether any slice has changed since it was read.
    pub fn has_stale(&self) -> bool {
        self.slices.values().any(|slice| slice.stale.is_some())
    }

    /// Returns whether any slice was never read and is not deleted.
    pub fn has_unread(&self) -> bool {
        self.slices.values().any(|slice| slice.version == 0 && slice.gone.is_none())
    }

    /// Returns whether there is no endpoint at all, not even in a deleted slice that is still kept.
    pub fn is_empty(&self) -> bool {
        self.slices.values().all(|slice| slice.endpoints.is_empty())
    }

    /// Returns the slice to read next, the minimum version that it must have, and when.
    pub fn next(&self, timing: &Timing, now: Instant) -> Option<(&str, u64, Instant)> {
        // A doubt does not wait for long, so doubted slices come before all others. Dead peers are
        // doubted again and again, so slices that are overdue come with the doubted ones.
        let stale = self.slices.iter().filter_map(|(name, slice)| {
            let stale = slice.stale?;
            let is_urgent = stale.is_doubted() || stale.is_overdue(self.len(), timing, now);
            Some((!is_urgent, stale.due(self.len(), timing), name, slice.announced))
        });
        let (_, due, name, version) = stale.min_by_key(|(later, due, ..)| (*later, *due))?;
        Some((name, version, due))
    }

    /// Returns whether a slice should have been read long ago.
    pub fn is_overdue(&self, timing: &Timing, now: Instant) -> bool {
        self.slices.values().filter_map(|slice| slice.stale).any(|stale| stale.is_overdue(self.len(), timing, now))
    }

    /// Returns whether no slice that contains the address has changed since it was read, or was
    /// deleted and is kept.
    pub fn is_fresh(&self, address: IpAddr) -> bool {
        let mut holders = self.slices.values().filter(|slice| slice.endpoints.has(address));
        holders.all(|slice| slice.gone.is_none() && slice.stale.is_none())
    }

    /// Records a doubt about an address. Its slices are read at once. Deleted slices lose that
    /// address, but keep their other endpoints, which are not doubted.
    pub fn doubt(&mut self, address: IpAddr, now: Instant) {
        let gone = |slice: &&mut StoredSlice| slice.gone.is_some() && slice.endpoints.has(address);
        let mut removed = false;
        for slice in self.slices.values_mut().filter(gone) {
            slice.endpoints.remove(address);
            removed = true;
        }
        if removed {
            self.revision += 1;
            self.settle(now);
        }
        for slice in self.slices.values_mut() {
            if let Some(stale) = &mut slice.stale
                && !stale.is_doubted()
                && slice.endpoints.has(address)
            {
                stale.doubt(now);
            }
        }
    }

    /// Returns every endpoint as its slice lists it.
    fn each(&self) -> impl Iterator<Item = ListedEndpoint> {
        self.slices.values().flat_map(|slice| {
            let port = slice.port;
            slice.endpoints.iter().map(move |(number, member, address, readiness)| ListedEndpoint {
                number,
                member,
                address,
                readiness,
                port,
                is_displaced: false,
            })
        })
    }

    /// Returns the endpoints of those members, each once, the newest last. An address that several
    /// members have is held as [`crate::discovery::holder`] says.
    pub fn endpoints(&self, wanted: impl Fn(MemberId) -> bool) -> Vec<ListedEndpoint> {
        let mut all: Vec<ListedEndpoint> = self.each().filter(|e| wanted(e.member)).collect();
        // Another member may hold the address of one that is wanted.
        let mut addresses: Vec<IpAddr> = all.iter().map(|e| e.address).collect();
        addresses.sort_unstable();
        all.extend(self.each().filter(|e| !wanted(e.member) && addresses.binary_search(&e.address).is_ok()));
        // If the same endpoint is in two slices, the better state is the one that the controller
        // wrote last, or will write.
        all.sort_unstable_by_key(|e| (e.address, e.member, e.readiness));
        all.dedup_by(|next, kept| {
            let same = (next.address, next.member) == (kept.address, kept.member);
            if same {
                kept.number = kept.number.min(next.number);
            }
            same
        });
        let claim = |index: usize| {
            let ListedEndpoint { number, member: node, address, readiness, is_displaced, .. } = all[index];
            Claim { node, address, is_displaced, readiness, number }
        };
        for index in displaced(all.len(), claim) {
            all[index].is_displaced = true;
        }
        all.retain(|e| wanted(e.member));
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

#[cfg(test)]
mod tests;
