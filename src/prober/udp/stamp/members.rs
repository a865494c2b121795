//! The addresses that the reflector answers, and what it keeps of those that ask.
//!
//! Every node of the mesh is a member, but in a large mesh only some of them probe this one. So an
//! address has 4 or 16 bytes and an index of 2 bytes, and only members that have sent a request
//! have an entry.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kube_canary_kernel::region::List;

use crate::limits::PEER_SLOTS_MAX;

/// The members of one IP family.
#[derive(Debug)]
struct FamilyMembers<A> {
    /// Sorted, and without duplicates.
    addresses: List<A>,
    /// For each address, the index of its entry plus one. 0 without an entry.
    entries: List<u16>,
}

impl<A: Copy + Ord> FamilyMembers<A> {
    fn new() -> Self {
        Self { addresses: List::new(PEER_SLOTS_MAX), entries: List::new(PEER_SLOTS_MAX) }
    }

    /// Sorts the addresses after they were added, and forgets all entries.
    fn sort(&mut self) {
        self.addresses.sort_unstable();
        let mut kept = 0;
        for at in 0..self.addresses.len() {
            if kept == 0 || self.addresses[at] != self.addresses[kept - 1] {
                self.addresses[kept] = self.addresses[at];
                kept += 1;
            }
        }
        if let Some(last) = self.addresses.last().copied() {
            self.addresses.resize(kept, last);
        }
        self.entries.resize(kept, 0);
        self.entries.fill(0);
    }

    /// Returns the place of the index of this member's entry.
    fn entry_mut(&mut self, address: &A) -> Option<&mut u16> {
        let at = self.addresses.binary_search(address).ok()?;
        self.entries.get_mut(at)
    }
}

/// An entry of a member that has sent a request.
#[derive(Clone, Copy, Debug)]
struct ListedAddress<T> {
    address: Ipv6Addr,
    value: T,
}

/// The members, and a `T` for each that has sent a request.
#[derive(Debug)]
pub(super) struct MemberSet<T> {
    v4: FamilyMembers<Ipv4Addr>,
    v6: FamilyMembers<Ipv6Addr>,
    entries: List<ListedAddress<T>>,
}

impl<T: Copy + Default> MemberSet<T> {
    pub(super) fn new() -> Self {
        const { assert!(2 * PEER_SLOTS_MAX < u16::MAX as usize && size_of::<ListedAddress<T>>() <= 72) };
        Self { v4: FamilyMembers::new(), v6: FamilyMembers::new(), entries: List::new(2 * PEER_SLOTS_MAX) }
    }

    /// Replaces the members. Entries of those that stay are kept. Returns whether all had room.
    pub(super) fn set(&mut self, members: impl Iterator<Item = IpAddr>) -> bool {
        self.v4.addresses.resize(0, Ipv4Addr::UNSPECIFIED);
        self.v6.addresses.resize(0, Ipv6Addr::UNSPECIFIED);
        let mut fits = true;
        for member in members {
            fits &= match member.to_canonical() {
                IpAddr::V4(address) => self.v4.addresses.push(address),
                IpAddr::V6(address) => self.v6.addresses.push(address),
            };
        }
        self.v4.sort();
        self.v6.sort();
        let mut kept = 0;
        for at in 0..self.entries.len() {
            let entry = self.entries[at];
            if let Some(place) = self.place_mut(entry.address.into()) {
                *place = plus_one(kept);
                self.entries[kept] = entry;
                kept += 1;
            }
        }
        if let Some(last) = self.entries.last().copied() {
            self.entries.resize(kept, last);
        }
        fits
    }

    /// Returns whether this is a member's address.
    pub(super) fn has(&mut self, address: IpAddr) -> bool {
        self.place_mut(address).is_some()
    }

    /// Returns the entry of a member. `None` if the address is no member, or has no entry.
    pub(super) fn get(&mut self, address: IpAddr) -> Option<&T> {
        let at = self.place_mut(address)?.checked_sub(1)?;
        self.entries.get(usize::from(at)).map(|entry| &entry.value)
    }

    /// Returns the entry of a member, which is created if it has none. `None` if the address is no
    /// member.
    pub(super) fn entry(&mut self, address: IpAddr) -> Option<&mut T> {
        let next = self.entries.len();
        let place = self.place_mut(address)?;
        let at = usize::from(*place).checked_sub(1).unwrap_or(next);
        *place = plus_one(at);
        if at == next {
            let address = match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            // There are as many places for entries as for members of both families together.
            if !self.entries.push(ListedAddress { address, value: T::default() }) {
                return None;
            }
        }
        self.entries.get_mut(at).map(|entry| &mut entry.value)
    }

    fn place_mut(&mut self, address: IpAddr) -> Option<&mut u16> {
        match address.to_canonical() {
            IpAddr::V4(address) => self.v4.entry_mut(&address),
            IpAddr::V6(address) => self.v6.entry_mut(&address),
        }
    }

    /// Returns the bytes of memory that are resident.
    pub(super) fn resident_bytes(&self) -> usize {
        let (v4, v6) = (&self.v4, &self.v6);
        let addresses = v4.addresses.resident_bytes() + v6.addresses.resident_bytes();
        addresses + v4.entries.resident_bytes() + v6.entries.resident_bytes() + self.entries.resident_bytes()
    }
}

/// Returns an index as it is kept.
fn plus_one(index: usize) -> u16 {
    u16::try_from(index + 1).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(n: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + n).into()
    }

    fn v6(n: u32) -> IpAddr {
        Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(n)).into()
    }

    #[test]
    fn members_are_found_in_both_families_and_strangers_are_not() {
        let mut members = MemberSet::<u8>::new();
        assert!(!members.has(v4(1)) && members.entry(v4(1)).is_none());
        // In no order, and one twice.
        assert!(members.set([v4(9), v6(3), v4(1), v4(5), v4(9), v6(1)].into_iter()));
        for n in 0..12 {
            assert_eq!(members.has(v4(n)), [1, 5, 9].contains(&n), "{n}");
            assert_eq!(members.has(v6(n)), [1, 3].contains(&n), "{n}");
        }
        assert!(members.has("::ffff:10.0.0.9".parse().unwrap()), "as a socket of both families writes it");
        assert!(members.get(v4(9)).is_none() && members.entry(v4(2)).is_none());
        *members.entry(v4(9)).unwrap() = 7;
        assert_eq!((members.get(v4(9)).copied(), members.get(v4(1)).copied()), (Some(7), None));
        assert_eq!(members.entry("::ffff:10.0.0.9".parse().unwrap()), Some(&mut 7));
        assert_eq!(members.entries.iter().map(|entry| entry.value).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn entries_of_members_that_stay_are_kept() {
        let mut members = MemberSet::<u32>::new();
        assert!(members.set((0..1_000).map(v4).chain((0..1_000).map(v6))));
        for n in (0..1_000).step_by(3) {
            *members.entry(v4(n)).unwrap() = n;
            *members.entry(v6(n)).unwrap() = 10_000 + n;
        }
        assert!(members.set((500..1_500).rev().map(v4).chain((900..950).map(v6))));
        for n in 0..1_500 {
            let kept = n % 3 == 0 && (500..1_000).contains(&n);
            assert_eq!(members.get(v4(n)).copied(), kept.then_some(n), "{n}");
            let kept = n % 3 == 0 && (900..950).contains(&n);
            assert_eq!(members.get(v6(n)).copied(), kept.then_some(10_000 + n), "{n}");
        }
        assert_eq!(members.entries.len(), 167 + 17);
        assert!(members.set([].into_iter()) && !members.has(v4(501)) && members.entries.is_empty());
        assert!(members.set([v4(501)].into_iter()) && members.get(v4(501)).is_none(), "a return is a new member");
    }

    #[test]
    fn memory_is_that_of_the_members_and_of_those_that_ask() {
        let mut members = MemberSet::<[u64; 5]>::new();
        assert_eq!(members.resident_bytes(), 0);
        assert!(members.set((0..5_000).map(v4)));
        let pages = |bytes: usize| bytes.div_ceil(4_096) * 4_096;
        assert_eq!(members.resident_bytes(), pages(20_000) + pages(10_000));
        for n in 0..24 {
            members.entry(v4(n * 200)).unwrap();
        }
        assert_eq!(members.resident_bytes(), pages(20_000) + pages(10_000) + 32 * 56, "a block of the heap");
    }

    #[test]
    fn members_beyond_the_limit_are_left_out() {
        let mut members = MemberSet::<u32>::new();
        let most = u32::try_from(PEER_SLOTS_MAX).unwrap();
        assert!(members.set((0..most).map(v4).chain((0..most).map(v6))));
        assert!(!members.set((0..=most).map(v4)));
        assert!(members.has(v4(most - 1)) && !members.has(v4(most)));
        // All members of both families have an entry.
        assert!(members.set((0..most).map(v4).chain((0..most).map(v6))));
        for n in 0..most {
            *members.entry(v4(n)).unwrap() = n;
            *members.entry(v6(n)).unwrap() = n + most;
        }
        for n in 0..most {
            assert_eq!((members.get(v4(n)).copied(), members.get(v6(n)).copied()), (Some(n), Some(n + most)));
        }
    }
}
