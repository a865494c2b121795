//! What an agent must know of members beyond its own list: the ranks of those that may judge, and
//! the addresses of all members of a mesh of which it probes a part.
//!
//! Only discovery fills it. A report from another agent may name members, but they are asked only
//! at the addresses from here. So a report cannot send requests to an address of its choice.
//!
//! Names are kept as hashes of 64 bits, so a mesh of 5,000 members with IPv4 addresses takes 60 KB.
//! Judges ask all members, so the 16 that may judge also have the names: 20 bytes a member and the
//! names themselves.

use std::net::IpAddr;
use std::sync::Arc;

use crate::discovery::hash;
use crate::discovery::ranks::{ListedMember, Ranks};

/// Zones that a roster names. Further ones are unknown to it.
const ZONES_MAX: usize = u8::MAX as usize;

/// Members by name, with at most one address of each family.
#[derive(Debug, Default)]
pub struct Roster {
    v4: Box<[RosterEntry<4>]>,
    v6: Box<[RosterEntry<16>]>,
    named: NamedMembers,
    ranks: Ranks,
}

/// Byte arrays, so that alignment wastes nothing. Sorted by hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RosterEntry<const N: usize> {
    name: [u8; 8],
    address: [u8; N],
}

const _: () =
    assert!(size_of::<RosterEntry<4>>() == 12 && size_of::<RosterEntry<16>>() == 24, "as the head of this file says");

/// The names and zones of all members.
#[derive(Debug, Default)]
struct NamedMembers {
    text: Box<str>,
    members: Box<[NamePlace]>,
    zones: Box<[Box<str>]>,
}

/// Where a name is in the text, and the place of its zone plus 1; 0 is none.
#[derive(Clone, Copy, Debug)]
struct NamePlace {
    begin: u32,
    length: u8,
    zone: u8,
}

const _: () = assert!(size_of::<NamePlace>() == 8);

impl Roster {
    /// Makes a roster of members. If a name has two addresses of one family, it keeps one of them.
    /// With `keeps_names`, it has the names as well.
    pub fn new<'a>(members: impl Iterator<Item = ListedMember<'a>>, keeps_names: bool) -> Self {
        let (mut v4, mut v6, mut named) = (Vec::new(), Vec::new(), Vec::new());
        for member in members {
            let name = hash::in_reports(member.node).to_be_bytes();
            match member.address {
                IpAddr::V4(address) => v4.push(RosterEntry { name, address: address.octets() }),
                IpAddr::V6(address) => v6.push(RosterEntry { name, address: address.octets() }),
            }
            if keeps_names {
                named.push((member.node, member.zone));
            }
        }
        Self { v4: sorted(v4), v6: sorted(v6), named: NamedMembers::new(named), ranks: Ranks::default() }
    }

    /// Returns the roster that replaces this one, with `ranks` and the members `beyond` the agent's
    /// own list. None if nothing changes. `beyond` are all members, or none if that list has all.
    pub fn next<'a>(&self, ranks: Ranks, beyond: Option<impl Iterator<Item = ListedMember<'a>>>) -> Option<Arc<Self>> {
        if beyond.is_none() && self.bytes() == 0 && self.ranks == ranks {
            return None;
        }
        let may_judge = ranks.better().is_some();
        let members = beyond.map(|beyond| Self::new(beyond, may_judge)).unwrap_or_default();
        Some(Arc::new(Self { ranks, ..members }))
    }

    /// Returns the ranks of the members that may judge. They are complete even if the roster has no
    /// addresses.
    pub const fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// Returns the address of a member, the IPv4 one if it has both. None if it is no member.
    pub fn address(&self, node: &str) -> Option<IpAddr> {
        let name = hash::in_reports(node).to_be_bytes();
        let v4 = find(&self.v4, name).map(IpAddr::from);
        v4.or_else(|| find(&self.v6, name).map(IpAddr::from))
    }

    /// Returns the addresses of all members.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + Clone + '_ {
        let v4 = self.v4.iter().map(|entry| IpAddr::from(entry.address));
        v4.chain(self.v6.iter().map(|entry| IpAddr::from(entry.address)))
    }

    /// Returns the number of members that it names: all, or none if the agent may not judge.
    pub const fn named(&self) -> usize {
        self.named.members.len()
    }

    /// Returns the name and the zone of one of the members that it names.
    pub fn name(&self, place: usize) -> Option<(&str, Option<&str>)> {
        let NamedMembers { text, members, zones } = &self.named;
        let NamePlace { begin, length, zone } = members.get(place)?;
        let name = text.get(*begin as usize..*begin as usize + usize::from(*length))?;
        Some((name, usize::from(*zone).checked_sub(1).and_then(|zone| zones.get(zone)).map(|zone| &**zone)))
    }

    /// Returns the bytes that the members take.
    pub fn bytes(&self) -> usize {
        let NamedMembers { text, members, zones } = &self.named;
        let named = text.len() + size_of_val(&**members) + zones.iter().map(|zone| zone.len()).sum::<usize>();
        size_of_val(&*self.v4) + size_of_val(&*self.v6) + named
    }
}

impl NamedMembers {
    /// Makes the table of these names and zones: each name once, in ascending order.
    fn new(mut all: Vec<(&str, Option<&str>)>) -> Self {
        all.sort_unstable();
        // Of two entries of a node, the one with a zone counts, which is the later one.
        all.dedup_by(|next, held| {
            let is_same = next.0 == held.0;
            held.1 = if is_same { next.1 } else { held.1 };
            is_same
        });
        let mut zones: Vec<&str> = Vec::new();
        let mut text = String::with_capacity(all.iter().map(|(name, _)| name.len()).sum());
        let members = all.into_iter().filter_map(|(name, zone)| {
            let held = zone.and_then(|zone| zones.iter().position(|held| *held == zone));
            let place = held.or_else(|| {
                zones.push(zone.filter(|_| zones.len() < ZONES_MAX)?);
                Some(zones.len() - 1)
            });
            let zone = place.and_then(|place| u8::try_from(place + 1).ok()).unwrap_or_default();
            let begin = u32::try_from(text.len()).ok()?;
            text.push_str(name);
            Some(NamePlace { begin, length: u8::try_from(name.len()).ok()?, zone })
        });
        let members = members.collect();
        Self { text: text.into(), members, zones: zones.into_iter().map(Box::from).collect() }
    }
}

fn sorted<const N: usize>(mut entries: Vec<RosterEntry<N>>) -> Box<[RosterEntry<N>]> {
    entries.sort_unstable();
    entries.dedup_by_key(|entry| entry.name);
    entries.into()
}

fn find<const N: usize>(entries: &[RosterEntry<N>], name: [u8; 8]) -> Option<[u8; N]> {
    entries.binary_search_by_key(&name, |entry| entry.name).ok().map(|at| entries[at].address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(node: &str, address: IpAddr) -> ListedMember<'_> {
        ListedMember { node, address, http_port: None, zone: None }
    }

    #[test]
    fn members_have_their_own_addresses_and_others_have_none() {
        let members: Vec<(String, IpAddr)> = (0..5_000u16)
            .map(|n| {
                let [high, low] = n.to_be_bytes();
                (format!("node-{n}"), [10, 0, high, low].into())
            })
            .collect();
        let six: IpAddr = "fd00::7".parse().unwrap();
        let both = [listed("node-7", six), listed("only-six", six)];
        let all = members.iter().map(|(node, address)| listed(node, *address)).chain(both);
        let roster = Roster::new(all, false);
        for (node, address) in &members {
            assert_eq!(roster.address(node), Some(*address));
        }
        assert_eq!(roster.address("only-six"), Some(six));
        assert_eq!((roster.address("node-5000"), roster.address("")), (None, None));
        assert_eq!((roster.bytes(), roster.named()), (5_000 * 12 + 2 * 24, 0));
        assert_eq!(Roster::default().bytes(), 0);
    }

    #[test]
    fn members_that_may_judge_have_each_name_once_with_its_zone() {
        let in_zone = |node, last, zone| ListedMember { zone, ..listed(node, [10, 0, 0, last].into()) };
        let both = ListedMember { address: "fd00::1".parse().unwrap(), ..in_zone("a", 1, None) };
        let all = [in_zone("b", 2, Some("y")), in_zone("a", 1, Some("z")), both, in_zone("c", 3, Some("y"))];
        let roster = Roster::new(all.into_iter(), true);
        let named: Vec<_> = (0..roster.named()).filter_map(|place| roster.name(place)).collect();
        assert_eq!(named, [("a", Some("z")), ("b", Some("y")), ("c", Some("y"))]);
        assert_eq!(roster.name(3), None);
        let zones: Vec<String> = (0..300).map(|zone| format!("zone-{zone}")).collect();
        let many = zones.iter().map(|zone| ListedMember { zone: Some(zone), ..listed(zone, [10, 0, 0, 1].into()) });
        let roster = Roster::new(many, true);
        let known = (0..roster.named()).filter_map(|place| roster.name(place)?.1).count();
        assert_eq!((roster.named(), known), (300, ZONES_MAX));
    }

    #[test]
    fn only_a_roster_of_a_member_that_may_judge_has_names() {
        use crate::discovery::ranks::RankedBy;
        let names: Vec<String> = (0..100).map(|n| format!("node-{n}")).collect();
        let all = || names.iter().map(|node| listed(node, [10, 0, 0, 1].into()));
        let count = |own: &str| {
            let ranks = Ranks::new(all(), RankedBy::Name, (own, &[]));
            Roster::default().next(ranks, Some(all())).expect("a roster").named()
        };
        let counts: Vec<usize> = names.iter().map(|own| count(own)).collect();
        assert_eq!(counts.iter().filter(|count| **count == 100).count(), 16);
        assert_eq!(counts.iter().filter(|count| **count == 0).count(), 84);
    }
}
