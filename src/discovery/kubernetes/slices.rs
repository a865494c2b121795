//! What is kept of the EndpointSlices of one Service, and which of them have changed since they were read. No I/O.
//!
//! Traps of the API: an endpoint may stand in two slices at once; within a slice the order means nothing; a slice that is
//! deleted may have its endpoints in another, which we have not read yet; and pods of one node (an old one on its way out, its
//! successor) are two endpoints of one name. Which of them is newer is not in the API, so we count: an endpoint keeps the
//! number it got when its address was first seen.
//!
//! Cost: 10 bytes per IPv4 endpoint and 22 per IPv6 one, in one allocation per slice; names and zones are the members'.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tokio::time::Instant;

use super::api::{self, Family};
use super::config::Timing;
use super::plan::{Need, Stale};
use crate::discovery::Readiness;
use crate::discovery::members::{MemberId, Members};
use crate::limits;

/// One address of one member. Bytes, so that nothing is lost to alignment.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Endpoint<const N: usize> {
    /// When first seen, counted over all endpoints, times 4, and the readiness.
    number: [u8; 4],
    member: MemberId,
    address: [u8; N],
}

const _: () =
    assert!(size_of::<Endpoint<4>>() == 10 && size_of::<Endpoint<16>>() == 22, "as the head of this file says");

impl<const N: usize> Endpoint<N> {
    const fn new(member: MemberId, address: [u8; N], readiness: Readiness) -> Self {
        Self { number: (readiness as u32).to_ne_bytes(), member, address }
    }

    const fn numbered(mut self, number: u32) -> Self {
        self.number = (number << 2 | u32::from_ne_bytes(self.number) & 3).to_ne_bytes();
        self
    }

    const fn number(&self) -> u32 {
        u32::from_ne_bytes(self.number) >> 2
    }

    const fn readiness(&self) -> Readiness {
        match u32::from_ne_bytes(self.number) & 3 {
            0 => Readiness::Ready,
            1 => Readiness::Unready,
            _ => Readiness::Terminating,
        }
    }

    fn is_of(&self, other: &Self) -> bool {
        (self.member, self.address) == (other.member, other.address)
    }
}

/// The endpoints of a slice, all of one family.
enum Endpoints {
    V4(Box<[Endpoint<4>]>),
    V6(Box<[Endpoint<16>]>),
}

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

impl Endpoints {
    fn iter(&self) -> impl Iterator<Item = (u32, MemberId, IpAddr, Readiness)> {
        let (v4, v6): (&[_], &[_]) = match self {
            Self::V4(all) => (all, &[]),
            Self::V6(all) => (&[], all),
        };
        let v4 = v4.iter().map(|e| (e.number(), e.member, IpAddr::V4(Ipv4Addr::from(e.address)), e.readiness()));
        v4.chain(v6.iter().map(|e| (e.number(), e.member, IpAddr::V6(Ipv6Addr::from(e.address)), e.readiness())))
    }

    fn members(&self) -> impl Iterator<Item = MemberId> {
        self.iter().map(|(_, member, ..)| member)
    }

    const fn len(&self) -> usize {
        match self {
            Self::V4(all) => all.len(),
            Self::V6(all) => all.len(),
        }
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        match self {
            Self::V4(all) => size_of_val(&**all),
            Self::V6(all) => size_of_val(&**all),
        }
    }
}

/// One EndpointSlice.
struct Slice {
    /// Of what is kept; 0: it has never been read.
    version: u64,
    /// The newest that we have heard of.
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
        let endpoints = Endpoints::V4(Box::default());
        let (version, created, port, gone) = (0, 0, None, None);
        Self { version, heard, created, port, gone, in_list: true, refused: 0, stale, endpoints }
    }

    fn need(&self, is_ours: &impl Fn(MemberId) -> bool) -> Need {
        if self.version == 0 || self.endpoints.members().any(is_ours) { Need::Ours } else { Need::Others }
    }
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

/// The slices of one Service.
pub struct Store {
    members: Members,
    slices: BTreeMap<Box<str>, Slice>,
    next_number: u32,
}

impl Store {
    /// Without any.
    pub const fn new(members: Members) -> Self {
        Self { members, slices: BTreeMap::new(), next_number: 1 }
    }

    /// Who has been in them.
    pub const fn members(&self) -> &Members {
        &self.members
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

    /// A slice has that version now. Without `trusted`, versions cannot be compared with those before, and any other is a change.
    ///
    /// # Errors
    /// There are too many slices.
    pub fn heard(&mut self, metadata: &api::Metadata, trusted: bool, now: Instant, random: f64) -> Result<(), String> {
        let stale = || Some(Stale::new(now, random));
        let Some(slice) = self.slices.get_mut(metadata.name) else {
            return self.add(metadata.name, Slice::new(metadata.version, stale())).map(drop);
        };
        slice.in_list = true;
        slice.gone = None;
        let newer = if trusted { metadata.version > slice.version.max(slice.heard) } else { true };
        if newer {
            slice.heard = metadata.version;
            if !trusted {
                // Nothing that was read before is newer than what will be.
                slice.version = slice.version.min(1);
            }
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
        let mut refused = 0;
        let fresh = match given.family {
            Some(Family::V4) => Endpoints::V4(compact(&mut self.members, given, &mut refused, ipv4)),
            Some(Family::V6) => Endpoints::V6(compact(&mut self.members, given, &mut refused, ipv6)),
            None => Endpoints::V4(Box::default()),
        };
        let Some(slice) = self.slices.get_mut(metadata.name) else { return Ok(()) };
        let before = std::mem::replace(&mut slice.endpoints, fresh);
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

    /// Reading a slice failed.
    pub fn failed(&mut self, name: &str, now: Instant) {
        if let Some(stale) = self.slices.get_mut(name).and_then(|slice| slice.stale.as_mut()) {
            stale.failed(now);
        }
    }

    /// Gives the endpoints of a slice the numbers that they had in it before, or have in another.
    fn inherit(&mut self, name: &str, before: &Endpoints) {
        let Some(mut slice) = self.slices.remove(name) else { return };
        let others = self.slices.values().map(|slice| &slice.endpoints);
        match (&mut slice.endpoints, before) {
            (Endpoints::V4(new), before) => inherit(new, std::iter::once(before).chain(others), |e| match e {
                Endpoints::V4(all) => all,
                Endpoints::V6(_) => &[],
            }),
            (Endpoints::V6(new), before) => inherit(new, std::iter::once(before).chain(others), |e| match e {
                Endpoints::V4(_) => &[],
                Endpoints::V6(all) => all,
            }),
        }
        self.slices.insert(name.into(), slice);
    }

    /// Numbers the endpoints that are new.
    fn number(&mut self) {
        let mut order: Vec<&mut Slice> = self.slices.values_mut().collect();
        order.sort_by_key(|slice| slice.created);
        for slice in order {
            match &mut slice.endpoints {
                Endpoints::V4(all) => number(all, &mut self.next_number),
                Endpoints::V6(all) => number(all, &mut self.next_number),
            }
        }
    }

    /// Lets go of deleted slices where every slice that might hold their endpoints is read, and of members who have been away
    /// for long. To be called after every change.
    pub fn settle(&mut self, now: Instant) {
        let oldest = self.slices.values().filter_map(|slice| slice.stale.as_ref().map(Stale::since)).min();
        self.slices.retain(|_, slice| slice.gone.is_none_or(|gone| oldest.is_some_and(|stale| stale <= gone)));
        let present = self.slices.values().flat_map(|slice| slice.endpoints.members());
        self.members.listed(present, now);
    }

    /// Whether the content of that slice is wanted: it is known, and not deleted.
    pub fn awaits(&self, name: &str) -> bool {
        self.slices.get(name).is_some_and(|slice| slice.gone.is_none())
    }

    /// Whether there is a slice that has changed since it was read.
    pub fn has_stale(&self) -> bool {
        self.slices.values().any(|slice| slice.stale.is_some())
    }

    /// Whether there is a slice that has never been read.
    pub fn has_unread(&self) -> bool {
        self.slices.values().any(|slice| slice.version == 0)
    }

    /// Whether there is no endpoint at all, not even in a deleted slice that is still kept.
    pub fn is_empty(&self) -> bool {
        self.slices.values().all(|slice| slice.endpoints.len() == 0)
    }

    /// The slice to read next, the version that it must have at least, and when.
    pub fn next(&self, is_ours: impl Fn(MemberId) -> bool, timing: &Timing) -> Option<(&str, u64, Instant)> {
        let count = self.len();
        let due = |slice: &Slice| Some(slice.stale?.due(slice.need(&is_ours), count, timing));
        let all = self.slices.iter().filter_map(|(name, slice)| Some((&**name, slice.heard, due(slice)?)));
        all.min_by_key(|(.., due)| *due)
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

    /// Somebody doubts an address: its slices are read at once, and deleted ones are let go of.
    pub fn doubt(&mut self, address: IpAddr, now: Instant) {
        self.slices.retain(|_, slice| slice.gone.is_none() || !has(slice, address));
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

/// The endpoints of a slice that can be used.
fn compact<const N: usize>(
    members: &mut Members,
    slice: &api::Slice,
    refused: &mut usize,
    read: impl Fn(IpAddr) -> Option<[u8; N]>,
) -> Box<[Endpoint<N>]> {
    let count = slice.endpoints().count();
    let mut kept = Vec::with_capacity(count.min(limits::ENDPOINTS_PER_SLICE_MAX));
    for endpoint in slice.endpoints() {
        let address = endpoint.address.parse().ok().filter(|a: &IpAddr| !a.is_unspecified()).and_then(&read);
        let node = [endpoint.node, endpoint.pod, endpoint.address].into_iter().find(|name| !name.is_empty());
        let zone = Some(endpoint.zone).filter(|zone| (1..=limits::NAME_BYTES_MAX).contains(&zone.len()));
        let put = |node: &str| members.put(node, zone);
        if let Some(address) = address
            && kept.len() < limits::ENDPOINTS_PER_SLICE_MAX
            && let Some(member) = node.filter(|node| node.len() <= limits::NAME_BYTES_MAX).and_then(put)
        {
            kept.push(Endpoint::new(member, address, endpoint.readiness));
        }
    }
    *refused = count - kept.len();
    kept.into()
}

const fn ipv4(address: IpAddr) -> Option<[u8; 4]> {
    match address {
        IpAddr::V4(address) => Some(address.octets()),
        IpAddr::V6(_) => None,
    }
}

const fn ipv6(address: IpAddr) -> Option<[u8; 16]> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(address.octets()),
    }
}

/// The slice as it was is looked at first, where nearly all are found, and all others only for those who are new.
fn inherit<'s, const N: usize>(
    new: &mut [Endpoint<N>],
    before: impl Iterator<Item = &'s Endpoints>,
    of_family: impl Fn(&'s Endpoints) -> &'s [Endpoint<N>],
) {
    let mut left = new.len();
    for known in before.map(of_family) {
        if left == 0 {
            return;
        }
        for endpoint in new.iter_mut().filter(|endpoint| endpoint.number() == 0) {
            if let Some(same) = known.iter().find(|other| other.is_of(endpoint)) {
                *endpoint = endpoint.numbered(same.number());
                left -= usize::from(same.number() != 0);
            }
        }
    }
}

fn number<const N: usize>(endpoints: &mut [Endpoint<N>], next: &mut u32) {
    for endpoint in endpoints.iter_mut().filter(|endpoint| endpoint.number() == 0) {
        *endpoint = endpoint.numbered(*next);
        // 2^30 endpoints: a mesh of 5,000 that rolls every hour has so many in 24 years; from then on all are equally new.
        *next = (*next + 1).min((1 << 30) - 1);
    }
}

#[cfg(test)]
mod tests;
