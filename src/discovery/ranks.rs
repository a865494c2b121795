//! The members that may judge the mesh: those whose names have the smallest hashes.
//!
//! All agents must find the same members, so the hash has no key. A rank is no secret. It comes
//! from the name that discovery gave. DNS gives only addresses, and the names of its members are
//! their own claims, so there it comes from the address (docs/adr/0025).
//!
//! An agent that probes a part of the mesh must know these members with their addresses. 16 of them
//! take some 1.3 KB.

use std::net::{IpAddr, SocketAddr};

use crate::discovery::hash;

/// Best-ranked members that are known. Three of them judge. The others replace those that are dead
/// but listed, that another version runs, or that a partition has taken away.
pub const RANKED_MAX: usize = 16;

/// What the rank of a member comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RankedBy {
    /// Its name, which comes from the source.
    #[default]
    Name,
    /// Its address, because its name is its own claim.
    Address,
}

/// A member that discovery lists, with one of its addresses.
#[derive(Clone, Copy, Debug)]
pub struct ListedMember<'a> {
    /// The name of its node.
    pub node: &'a str,
    /// The address of its pod.
    pub address: IpAddr,
    /// The port of its HTTP server, if the source gives one.
    pub http_port: Option<u16>,
    /// Its zone, if it is known.
    pub zone: Option<&'a str>,
}

/// One of the best-ranked members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranked {
    rank: u64,
    /// Its name, or the address that stands in for it.
    pub node: Box<str>,
    /// The address of its pod, the IPv4 one if it has both.
    pub address: IpAddr,
    /// The port of its HTTP server, if the source gives one.
    pub http_port: Option<u16>,
}

impl Ranked {
    /// Returns the address of its HTTP server. `port` is that of a member whose port the source
    /// does not give.
    pub fn server(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, self.http_port.unwrap_or(port))
    }
}

/// The best-ranked other members. It also knows the place of our own node among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// In order, the best first. At most [`RANKED_MAX`].
    others: Box<[Ranked]>,
    /// How many of `others` are better than our own node. None if no other agent can find it here.
    better: Option<usize>,
}

impl Ranks {
    /// Returns the ranks of these members. Our own node is `own`, or has one of `own_addresses`.
    /// The list may lack it if it is ranked by name.
    ///
    /// By address, only the members of one family are ranked: IPv4, if there are any. A node of
    /// both families would have two ranks, and only its own claim says that it is one node.
    pub fn new<'a>(
        members: impl Iterator<Item = ListedMember<'a>> + Clone,
        by: RankedBy,
        (own, own_addresses): (&str, &[IpAddr]),
    ) -> Self {
        let is_own = |member: &ListedMember<'_>| {
            own_addresses.contains(&member.address) || by == RankedBy::Name && member.node == own
        };
        let has_v4 = members.clone().any(|member| member.address.is_ipv4());
        let ranked = members.filter(|member| by == RankedBy::Name || member.address.is_ipv4() == has_v4);
        let mut others: Vec<Ranked> = Vec::with_capacity(RANKED_MAX);
        let mut own_rank = (by == RankedBy::Name).then(|| hash::rank(own));
        for member in ranked {
            let rank = match by {
                RankedBy::Name => hash::rank(member.node),
                RankedBy::Address => hash::rank(&member.address.to_string()),
            };
            if is_own(&member) {
                own_rank = Some(rank);
                continue;
            }
            match others.binary_search_by(|other| (other.rank, &*other.node).cmp(&(rank, member.node))) {
                // The IPv4 address counts, and of one family the later one, which is newer.
                Ok(at) if others[at].address.is_ipv4() && member.address.is_ipv6() => {}
                Ok(at) => (others[at].address, others[at].http_port) = (member.address, member.http_port),
                Err(RANKED_MAX) => {}
                Err(at) => {
                    others.truncate(RANKED_MAX - 1);
                    let ListedMember { node, address, http_port, .. } = member;
                    others.insert(at, Ranked { rank, node: node.into(), address, http_port });
                }
            }
        }
        let better = own_rank.map(|own| others.partition_point(|other| other.rank < own));
        Self { others: others.into(), better }
    }

    /// Returns all other members that may judge, the best-ranked first: at most [`RANKED_MAX`].
    pub fn others(&self) -> &[Ranked] {
        &self.others
    }

    /// Returns the members that are better-ranked than our own node, the best first: at most 15.
    /// None if our own node is not one of the [`RANKED_MAX`] best.
    pub fn better(&self) -> Option<&[Ranked]> {
        self.others.get(..self.better.filter(|better| *better < RANKED_MAX)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(node: &str, last: u8) -> ListedMember<'_> {
        ListedMember { node, address: [10, 0, 0, last].into(), http_port: Some(9), zone: None }
    }

    /// The names of the ranked members as an agent of that name finds them, itself included.
    fn seen_by(own: &str, names: &[String]) -> Vec<String> {
        let members = names.iter().map(|name| listed(name, 1));
        let ranks = Ranks::new(members, RankedBy::Name, (own, &[]));
        let mut all: Vec<String> = ranks.others.iter().map(|rank| rank.node.to_string()).collect();
        if let Some(better) = ranks.better() {
            all.insert(better.len(), own.to_owned());
        }
        all.truncate(RANKED_MAX);
        all
    }

    #[test]
    fn all_agents_find_the_same_members_in_the_same_order() {
        let names: Vec<String> = (0..5_000).map(|n| format!("node-{n}")).collect();
        let best = seen_by("node-0", &names);
        assert_eq!(best.len(), RANKED_MAX);
        for own in best.iter().map(String::as_str).chain(["node-7", "node-4999"]) {
            assert_eq!(seen_by(own, &names), best, "{own}");
            let mut reversed = names.clone();
            reversed.reverse();
            assert_eq!(seen_by(own, &reversed), best, "{own}");
        }
        let judges = names.iter().filter(|own| {
            let members = names.iter().map(|name| listed(name, 1));
            Ranks::new(members, RankedBy::Name, (own, &[])).better().is_some()
        });
        assert_eq!(judges.count(), RANKED_MAX);
    }

    #[test]
    fn our_own_node_is_found_by_its_name_and_by_its_address_and_need_not_be_listed() {
        let others = [listed("b", 2), listed("c", 3)];
        let own = [listed("a", 1)];
        let without = Ranks::new(others.into_iter(), RankedBy::Name, ("a", &[]));
        assert_eq!(Ranks::new(others.into_iter().chain(own), RankedBy::Name, ("a", &[])), without);
        let by_address = Ranks::new(others.into_iter().chain(own), RankedBy::Name, ("x", &[own[0].address]));
        assert_eq!(by_address, without);
        assert!(without.better().is_some_and(|better| better.len() <= 2) && without.others.len() == 2);
        assert_eq!(
            Ranks::new(own.into_iter(), RankedBy::Name, ("a", &[])).better(),
            Some(&[][..]),
            "the node is alone"
        );
        assert_eq!(Ranks::default().better(), None, "nothing is known yet");
    }

    #[test]
    fn a_node_of_two_families_has_one_rank_and_its_newest_ipv4_address() {
        let six = ListedMember { address: "fd00::2".parse().unwrap(), ..listed("b", 0) };
        for members in [[six, listed("b", 2), listed("b", 3)], [listed("b", 2), listed("b", 3), six]] {
            let ranks = Ranks::new(members.into_iter(), RankedBy::Name, ("a", &[]));
            assert_eq!(ranks.others.iter().map(|rank| rank.address).collect::<Vec<_>>(), [listed("b", 3).address]);
        }
    }

    #[test]
    fn by_address_claimed_names_do_not_count() {
        let own: IpAddr = [10, 0, 0, 1].into();
        let ranked = |names: [&'static str; 3]| {
            let six = ListedMember { address: "fd00::1".parse().unwrap(), ..listed("six", 0) };
            let members = names.into_iter().zip(1..).map(|(node, last)| listed(node, last)).chain([six]);
            let ranks = Ranks::new(members, RankedBy::Address, ("a", &[own]));
            (ranks.others.iter().map(|rank| rank.address).collect::<Vec<_>>(), ranks.better)
        };
        assert_eq!(ranked(["a", "b", "c"]), ranked(["b", "a", "a"]));
        assert_eq!(ranked(["a", "b", "c"]).0.len(), 2, "of one family");
        // No other agent finds a node at an address that DNS does not give.
        let unlisted = Ranks::new([listed("b", 2)].into_iter(), RankedBy::Address, ("a", &[own]));
        assert_eq!(unlisted.better(), None);
    }
}
