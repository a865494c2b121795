//! What an agent must know of members beyond its own list: the ranks of those that may judge, and
//! the addresses of all members of a mesh of which it probes a part.
//!
//! Only discovery fills it. A report from another agent may name members, but they are asked only
//! at the addresses from here. So a report cannot send requests to an address of its choice.
//!
//! A mesh of 5,000 members with IPv4 addresses takes 60 KB. Names are kept as hashes of 64 bits.
//! Each roster has a new key, so a name with the same hash as another cannot be chosen on purpose.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

use crate::discovery::ranks::Ranks;

/// Members by name, with at most one address of each family.
#[derive(Debug, Default)]
pub struct Roster {
    key: RandomState,
    v4: Box<[Entry<4>]>,
    v6: Box<[Entry<16>]>,
    ranks: Ranks,
}

/// Byte arrays, so that alignment wastes nothing. Sorted by hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry<const N: usize> {
    name: [u8; 8],
    address: [u8; N],
}

const _: () = assert!(size_of::<Entry<4>>() == 12 && size_of::<Entry<16>>() == 24, "as the head of this file says");

impl Roster {
    /// Makes a roster of names and addresses. If a name has two addresses of one family, it
    /// keeps one of them.
    pub fn new<'a>(members: impl Iterator<Item = (&'a str, IpAddr)>) -> Self {
        let key = RandomState::new();
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (node, address) in members {
            let name = key.hash_one(node).to_be_bytes();
            match address {
                IpAddr::V4(address) => v4.push(Entry { name, address: address.octets() }),
                IpAddr::V6(address) => v6.push(Entry { name, address: address.octets() }),
            }
        }
        Self { key, v4: sorted(v4), v6: sorted(v6), ranks: Ranks::default() }
    }

    /// Returns the roster that replaces this one, with `ranks` and the addresses of `beyond`. None
    /// if nothing changes. `beyond` are all members, or none if the agent's own list has all.
    pub fn next<'a>(&self, ranks: Ranks, beyond: Option<impl Iterator<Item = (&'a str, IpAddr)>>) -> Option<Arc<Self>> {
        if beyond.is_none() && self.bytes() == 0 && self.ranks == ranks {
            return None;
        }
        let addresses = beyond.map(Self::new).unwrap_or_default();
        Some(Arc::new(Self { ranks, ..addresses }))
    }

    /// Returns the ranks of the members that may judge. They are complete even if the roster has no
    /// addresses.
    pub const fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// Returns the address of a member, the IPv4 one if it has both. None if it is no member.
    pub fn address(&self, node: &str) -> Option<IpAddr> {
        let name = self.key.hash_one(node).to_be_bytes();
        let v4 = find(&self.v4, name).map(IpAddr::from);
        v4.or_else(|| find(&self.v6, name).map(IpAddr::from))
    }

    /// Returns the addresses of all members.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + Clone + '_ {
        let v4 = self.v4.iter().map(|entry| IpAddr::from(entry.address));
        v4.chain(self.v6.iter().map(|entry| IpAddr::from(entry.address)))
    }

    /// Returns the bytes that the entries take.
    pub const fn bytes(&self) -> usize {
        size_of_val(&*self.v4) + size_of_val(&*self.v6)
    }
}

fn sorted<const N: usize>(mut entries: Vec<Entry<N>>) -> Box<[Entry<N>]> {
    entries.sort_unstable();
    entries.dedup_by_key(|entry| entry.name);
    entries.into()
}

fn find<const N: usize>(entries: &[Entry<N>], name: [u8; 8]) -> Option<[u8; N]> {
    entries.binary_search_by_key(&name, |entry| entry.name).ok().map(|at| entries[at].address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_their_own_addresses_and_others_have_none() {
        let members: Vec<(String, IpAddr)> = (0..5_000u16)
            .map(|n| {
                let [high, low] = n.to_be_bytes();
                (format!("node-{n}"), [10, 0, high, low].into())
            })
            .collect();
        let six: IpAddr = "fd00::7".parse().unwrap();
        let both = [("node-7", six), ("only-six", six)];
        let roster = Roster::new(members.iter().map(|(node, address)| (node.as_str(), *address)).chain(both));
        for (node, address) in &members {
            assert_eq!(roster.address(node), Some(*address));
        }
        assert_eq!(roster.address("only-six"), Some(six));
        assert_eq!((roster.address("node-5000"), roster.address("")), (None, None));
        assert_eq!(roster.bytes(), 5_000 * 12 + 2 * 24);
        assert_eq!(Roster::default().bytes(), 0);
    }
}
