//! The endpoints of one slice in compact form: 10 bytes per IPv4 endpoint and 22 per IPv6 one, in
//! one allocation.
//!
//! The API does not show which of a node's endpoints is newer. So endpoints get ascending numbers
//! when they are first seen. The numbers persist from one reading to the next, and from slice to
//! slice.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::api::{self, SliceFamily};
use crate::discovery::address::valid_host_address;
use crate::discovery::members::{MemberId, Members};
use crate::discovery::update::Readiness;
use crate::limits;

/// One address of one member. It consists of bytes, so that alignment wastes nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CompactEndpoint<const N: usize> {
    /// The endpoint's number in order of first sight over all slices, times 4, plus the readiness.
    /// Number 0 means none yet.
    number: [u8; 4],
    member: MemberId,
    address: [u8; N],
}

const _: () = assert!(
    size_of::<CompactEndpoint<4>>() == 10 && size_of::<CompactEndpoint<16>>() == 22,
    "as the head of this file says"
);

impl<const N: usize> CompactEndpoint<N> {
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

    fn is_same(&self, other: &Self) -> bool {
        (self.member, self.address) == (other.member, other.address)
    }
}

/// The endpoints of a slice, all of one family.
pub enum Endpoints {
    V4(Box<[CompactEndpoint<4>]>),
    V6(Box<[CompactEndpoint<16>]>),
}

impl Endpoints {
    /// Returns an empty set.
    pub fn none() -> Self {
        Self::V4(Box::default())
    }

    /// Returns the usable endpoints of a slice, without numbers, and how many are not usable.
    pub fn read(slice: &api::EndpointSlice, members: &mut Members) -> (Self, usize) {
        let mut refused = 0;
        let read = match slice.family {
            Some(SliceFamily::V4) => Self::V4(compact(members, slice, &mut refused, ipv4)),
            Some(SliceFamily::V6) => Self::V6(compact(members, slice, &mut refused, ipv6)),
            None => Self::none(),
        };
        (read, refused)
    }

    /// Takes over the numbers that the endpoints have in `known`. The set that has most of
    /// them should come first.
    pub fn inherit<'s>(&mut self, known: impl Iterator<Item = &'s Self>) {
        match self {
            Self::V4(new) => inherit(new, known, |known| if let Self::V4(all) = known { all } else { &[] }),
            Self::V6(new) => inherit(new, known, |known| if let Self::V6(all) = known { all } else { &[] }),
        }
    }

    /// Numbers the endpoints that have no number, from `next` on.
    pub fn number(&mut self, next: &mut u32) {
        match self {
            Self::V4(all) => number(all, next),
            Self::V6(all) => number(all, next),
        }
    }

    /// Removes the endpoints at that address.
    pub fn remove(&mut self, address: IpAddr) {
        match self {
            Self::V4(all) => remove(all, |e| IpAddr::from(e.address) == address),
            Self::V6(all) => remove(all, |e| IpAddr::from(e.address) == address),
        }
    }

    /// Returns whether any endpoint has this address.
    pub fn has(&self, address: IpAddr) -> bool {
        self.iter().any(|(_, _, other, _)| other == address)
    }

    /// Returns number, member, address and readiness of each endpoint.
    pub fn iter(&self) -> impl Iterator<Item = (u32, MemberId, IpAddr, Readiness)> + Clone {
        let (v4, v6): (&[_], &[_]) = match self {
            Self::V4(all) => (all, &[]),
            Self::V6(all) => (&[], all),
        };
        let v4 = v4.iter().map(|e| (e.number(), e.member, IpAddr::V4(Ipv4Addr::from(e.address)), e.readiness()));
        v4.chain(v6.iter().map(|e| (e.number(), e.member, IpAddr::V6(Ipv6Addr::from(e.address)), e.readiness())))
    }

    /// Returns the member of each endpoint.
    pub fn members(&self) -> impl Iterator<Item = MemberId> {
        self.iter().map(|(_, member, ..)| member)
    }

    /// Returns whether there are no endpoints.
    pub const fn is_empty(&self) -> bool {
        match self {
            Self::V4(all) => all.is_empty(),
            Self::V6(all) => all.is_empty(),
        }
    }

    /// Returns the bytes that they take.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        match self {
            Self::V4(all) => size_of_val(&**all),
            Self::V6(all) => size_of_val(&**all),
        }
    }
}

/// Returns the usable endpoints of a slice.
fn compact<const N: usize>(
    members: &mut Members,
    slice: &api::EndpointSlice,
    refused: &mut usize,
    read: impl Fn(IpAddr) -> Option<[u8; N]>,
) -> Box<[CompactEndpoint<N>]> {
    let count = slice.endpoints().count();
    let mut kept = Vec::with_capacity(count.min(limits::ENDPOINTS_PER_SLICE_MAX));
    for endpoint in slice.endpoints() {
        let address =
            endpoint.address.parse().ok().and_then(|address| valid_host_address(address).ok()).and_then(&read);
        let node = [endpoint.node, endpoint.pod, endpoint.address].into_iter().find(|name| !name.is_empty());
        let zone = Some(endpoint.zone).filter(|zone| (1..=limits::NAME_BYTES_MAX).contains(&zone.len()));
        let put = |node: &str| members.put(node, zone);
        if let Some(address) = address
            && kept.len() < limits::ENDPOINTS_PER_SLICE_MAX
            && let Some(member) = node.filter(|node| node.len() <= limits::NAME_BYTES_MAX).and_then(put)
        {
            kept.push(CompactEndpoint::new(member, address, endpoint.readiness));
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

/// The slice as it was comes first and has nearly all endpoints. The others are searched
/// only for new ones.
fn inherit<'s, const N: usize>(
    new: &mut [CompactEndpoint<N>],
    before: impl Iterator<Item = &'s Endpoints>,
    same_family: impl Fn(&'s Endpoints) -> &'s [CompactEndpoint<N>],
) {
    let mut left = new.len();
    for known in before.map(same_family) {
        if left == 0 {
            return;
        }
        for endpoint in new.iter_mut().filter(|endpoint| endpoint.number() == 0) {
            if let Some(same) = known.iter().find(|other| other.is_same(endpoint)) {
                *endpoint = endpoint.numbered(same.number());
                left -= usize::from(same.number() != 0);
            }
        }
    }
}

fn remove<const N: usize>(endpoints: &mut Box<[CompactEndpoint<N>]>, goes: impl Fn(&CompactEndpoint<N>) -> bool) {
    *endpoints = endpoints.iter().filter(|endpoint| !goes(endpoint)).copied().collect();
}

fn number<const N: usize>(endpoints: &mut [CompactEndpoint<N>], next: &mut u32) {
    for endpoint in endpoints.iter_mut().filter(|endpoint| endpoint.number() == 0) {
        *endpoint = endpoint.numbered(*next);
        // There are 2^30 numbers. A mesh of 5,000 that rolls every hour uses them up in 24 years.
        // From then on all are equally new.
        *next = (*next + 1).min((1 << 30) - 1);
    }
}
