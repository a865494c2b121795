//! What is known of each address, and which address to ask next. No I/O, no clock.
//!
//! The traps:
//! * An answer without records is believed only when it is seen a second time.
//! * A name that a peer has given stays with its address while the address stays in DNS, whatever
//!   happens to later questions.
//! * A name is only the peer's own claim. If two addresses of one family give the same name,
//!   neither has it: one of them may be a pod that poses as another node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use tokio::time::Instant;

use super::resolve::{FamilyRecords, Resolved};
use crate::discovery::identity::{AskSchedule, PeerIdentity, next_due};
use crate::discovery::update::{PeerList, PeerSpec};
use crate::limits::PEER_SLOTS_MAX;

/// The state of one address.
struct KnownAddress {
    identity: Option<PeerIdentity>,
    schedule: AskSchedule,
    /// Increases in the order in which addresses appear. The newer address is later in the list.
    sequence: u64,
}

/// The addresses of the mesh, and the names that they have given.
#[derive(Default)]
pub struct NamedAddresses {
    known: BTreeMap<IpAddr, KnownAddress>,
    sequence: u64,
    /// Whether the previous answer had no record at all, for IPv4 and for IPv6.
    empty_before: [bool; 2],
    /// Some answer was believed.
    loaded: bool,
}

/// The result that a look-up returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupChange {
    /// Addresses were added or removed, or this is the first list.
    Changed,
    /// Addresses of one family changed, while the other is [`LookupChange::Unsure`]. The list
    /// changes, but is not confirmed.
    ChangedInPart,
    /// The addresses are unchanged.
    Same,
    /// Part of the look-up failed, or is empty and must be seen again. Nothing is confirmed.
    Unsure,
}

impl NamedAddresses {
    /// Takes the result of a look-up. A family that failed keeps its addresses.
    pub fn resolved(&mut self, resolved: &Resolved, now: Instant) -> LookupChange {
        let first = !self.loaded;
        // A single-stack Service never has the other family. So an empty family is a loss only if
        // it had addresses. If both families are empty, that is suspicious at the start as well.
        let nothing = self.known.is_empty() && [&resolved.ipv4, &resolved.ipv6].iter().all(|f| is_empty(f));
        if nothing && first && !std::mem::replace(&mut self.empty_before, [true; 2])[0] {
            return LookupChange::Unsure;
        }
        let (four, six) = (self.family(&resolved.ipv4, false, now), self.family(&resolved.ipv6, true, now));
        let (changed, unsure) =
            ([four, six].contains(&LookupChange::Changed), [four, six].contains(&LookupChange::Unsure));
        if changed || (first && !unsure) {
            self.loaded = true;
            // Before the first list there is nothing to keep. Half a list is better than none, even
            // though it is incomplete.
            return if unsure && !first { LookupChange::ChangedInPart } else { LookupChange::Changed };
        }
        if unsure { LookupChange::Unsure } else { LookupChange::Same }
    }

    fn family(&mut self, found: &FamilyRecords, ipv6: bool, now: Instant) -> LookupChange {
        let Some(found) = found else { return LookupChange::Unsure };
        let had = self.known.keys().any(|a| a.is_ipv6() == ipv6);
        let empty = found.is_empty();
        let empty_before = std::mem::replace(&mut self.empty_before[usize::from(ipv6)], empty);
        if empty && had && !empty_before {
            return LookupChange::Unsure;
        }
        let before = self.known.len();
        self.known.retain(|address, _| address.is_ipv6() != ipv6 || found.contains(address));
        let mut changed = self.known.len() != before;
        for &address in found {
            if self.known.len() == PEER_SLOTS_MAX {
                break;
            }
            self.known.entry(address).or_insert_with(|| {
                changed = true;
                self.sequence += 1;
                KnownAddress { identity: None, schedule: AskSchedule::new(now), sequence: self.sequence }
            });
        }
        if changed { LookupChange::Changed } else { LookupChange::Same }
    }

    /// Returns an address to ask now, and marks it as in progress.
    pub fn next_to_ask(&mut self, now: Instant) -> Option<IpAddr> {
        let address = next_due(self.known.iter().map(|(address, known)| (*address, &known.schedule)), now)?;
        self.known.get_mut(&address)?.schedule.begin();
        Some(address)
    }

    /// Returns when the next question is due.
    pub fn ask_at(&self) -> Option<Instant> {
        self.known.values().filter_map(|known| known.schedule.due()).min()
    }

    /// Takes an answer, or None for a failure. Returns whether the list changes by it.
    pub fn answered(&mut self, address: IpAddr, identity: Option<PeerIdentity>, now: Instant, random: f64) -> bool {
        // The address has left DNS since the question.
        let Some(known) = self.known.get_mut(&address) else { return false };
        known.schedule.ended(identity.is_some(), now, random);
        let changed = identity.is_some() && known.identity != identity;
        if changed {
            known.identity = identity;
        }
        changed
    }

    /// Returns whether every address has been asked once.
    pub fn all_tried(&self) -> bool {
        self.known.values().all(|known| known.schedule.is_tried())
    }

    /// Returns the list, the newest address last. The address stands in for the name if it has
    /// given no name. The same holds if another address of its family has given that name.
    pub fn peers(&self) -> PeerList {
        let mut claims: Vec<(bool, &str)> =
            self.known.iter().filter_map(|(a, known)| Some((a.is_ipv6(), &*known.identity.as_ref()?.node))).collect();
        claims.sort_unstable();
        let mut all: Vec<_> = self.known.iter().collect();
        all.sort_by_key(|(_, known)| known.sequence);
        let peers = all.into_iter().map(|(address, known)| {
            let is_unique = |identity: &&PeerIdentity| {
                let claim = (address.is_ipv6(), &*identity.node);
                let first = claims.partition_point(|other| *other < claim);
                claims.get(first + 1) != Some(&claim)
            };
            match known.identity.as_ref().filter(is_unique) {
                Some(PeerIdentity { node, zone }) => PeerSpec { zone: zone.clone(), ..PeerSpec::pod(node, *address) },
                None => PeerSpec::pod(address.to_string(), *address),
            }
        });
        PeerList { peers: peers.collect() }
    }
}

fn is_empty(family: &FamilyRecords) -> bool {
    family.as_ref().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::discovery::identity::{REFRESH, RETRY};

    #[expect(clippy::unnecessary_wraps, reason = "the type of a look-up")]
    fn some(addresses: &[&str]) -> FamilyRecords {
        Some(addresses.iter().map(|a| a.parse().unwrap()).collect())
    }

    fn look_up(names: &mut NamedAddresses, ipv4: FamilyRecords, ipv6: FamilyRecords) -> LookupChange {
        let ttl = Some(Duration::from_secs(5));
        let resolved = Resolved { ipv4, ipv6, ttl, name: "n.".into(), partial: None };
        names.resolved(&resolved, Instant::now())
    }

    fn nodes(names: &NamedAddresses) -> Vec<String> {
        names.peers().peers.into_iter().map(|p| p.node).collect()
    }

    #[expect(clippy::unnecessary_wraps, reason = "the type of an answer")]
    fn name(node: &str) -> Option<PeerIdentity> {
        Some(PeerIdentity { node: node.into(), zone: None })
    }

    #[test]
    fn both_families_make_one_list_with_the_newest_last() {
        let mut names = NamedAddresses::default();
        assert_eq!(look_up(&mut names, some(&["10.0.0.9"]), some(&["fd00::9"])), LookupChange::Changed);
        assert_eq!(look_up(&mut names, some(&["10.0.0.1", "10.0.0.9"]), some(&["fd00::9"])), LookupChange::Changed);
        assert_eq!(nodes(&names), ["10.0.0.9", "fd00::9", "10.0.0.1"]);
        assert_eq!(look_up(&mut names, some(&["10.0.0.9", "10.0.0.1"]), some(&["fd00::9"])), LookupChange::Same);
    }

    #[test]
    fn a_family_that_fails_keeps_its_addresses_and_confirms_nothing() {
        let mut names = NamedAddresses::default();
        look_up(&mut names, some(&["10.0.0.1"]), some(&["fd00::1"]));
        assert_eq!(look_up(&mut names, some(&["10.0.0.1"]), None), LookupChange::Unsure);
        assert_eq!(look_up(&mut names, some(&["10.0.0.2"]), None), LookupChange::ChangedInPart);
        assert_eq!(nodes(&names), ["fd00::1", "10.0.0.2"]);
    }

    #[test]
    fn the_first_list_may_be_of_one_family() {
        let mut names = NamedAddresses::default();
        assert_eq!(look_up(&mut names, None, some(&["fd00::1"])), LookupChange::Changed);
        assert_eq!(look_up(&mut names, None, some(&["fd00::1"])), LookupChange::Unsure);
        assert_eq!(
            look_up(&mut names, some(&["10.0.0.1"]), some(&[])),
            LookupChange::ChangedInPart,
            "an empty family must be seen twice"
        );
    }

    #[test]
    fn an_empty_answer_is_believed_when_seen_twice_in_a_row() {
        let mut names = NamedAddresses::default();
        look_up(&mut names, some(&["10.0.0.1"]), some(&[]));
        assert_eq!(look_up(&mut names, some(&[]), some(&[])), LookupChange::Unsure);
        assert_eq!(look_up(&mut names, some(&["10.0.0.1"]), some(&[])), LookupChange::Same);
        assert_eq!(look_up(&mut names, some(&[]), some(&[])), LookupChange::Unsure);
        assert_eq!(nodes(&names), ["10.0.0.1"]);
        assert_eq!(look_up(&mut names, some(&[]), some(&[])), LookupChange::Changed);
        assert!(nodes(&names).is_empty());
        assert_eq!(look_up(&mut names, some(&[]), some(&[])), LookupChange::Same);
    }

    #[test]
    fn an_empty_first_answer_is_a_list_when_seen_twice() {
        let mut names = NamedAddresses::default();
        assert_eq!(look_up(&mut names, some(&[]), some(&[])), LookupChange::Unsure);
        assert_eq!(look_up(&mut names, some(&[]), some(&[])), LookupChange::Changed);
        assert_eq!(look_up(&mut names, some(&[]), some(&[])), LookupChange::Same);
    }

    #[test]
    fn an_identity_stays_with_its_address_and_is_asked_for_again() {
        let mut names = NamedAddresses::default();
        let start = Instant::now();
        look_up(&mut names, some(&["10.0.0.1"]), some(&[]));
        let asked = names.next_to_ask(start + Duration::from_secs(1)).unwrap();
        assert_eq!(names.next_to_ask(start + Duration::from_secs(1)), None, "it is being asked");
        assert!(names.answered(asked, name("n1"), start, 0.0));
        assert_eq!(nodes(&names), ["n1"]);
        let refresh = start + REFRESH / 2;
        assert_eq!(names.ask_at(), Some(refresh));
        assert_eq!(names.next_to_ask(refresh), Some(asked));
        assert!(!names.answered(asked, None, refresh, 0.5), "a failure takes no name away");
        assert_eq!(nodes(&names), ["n1"]);
        assert_eq!(names.ask_at(), Some(refresh + RETRY));
        assert!(names.answered(asked, name("n2"), refresh, 0.5), "the address moved to another node");
        look_up(&mut names, some(&["10.0.0.2"]), some(&[]));
        look_up(&mut names, some(&["10.0.0.1"]), some(&[]));
        assert_eq!(nodes(&names), ["10.0.0.1"], "the address left in between, so its new holder is asked");
    }

    #[test]
    fn a_name_that_two_addresses_of_one_family_report_is_used_for_neither() {
        let (mut names, now) = (NamedAddresses::default(), Instant::now());
        look_up(&mut names, some(&["10.0.0.1", "10.0.0.2"]), some(&["fd00::1"]));
        let answer = |names: &mut NamedAddresses, address: &str, node| {
            names.answered(address.parse().unwrap(), name(node), now, 0.5);
            nodes(names)
        };
        answer(&mut names, "10.0.0.1", "n1");
        assert_eq!(answer(&mut names, "fd00::1", "n1"), ["n1", "10.0.0.2", "n1"], "a node of two families is one");
        assert_eq!(answer(&mut names, "10.0.0.2", "n1"), ["10.0.0.1", "10.0.0.2", "n1"]);
        assert_eq!(answer(&mut names, "10.0.0.2", "n2"), ["n1", "n2", "n1"]);
    }

    #[test]
    fn new_addresses_are_asked_before_known_ones() {
        let mut names = NamedAddresses::default();
        let start = Instant::now();
        look_up(&mut names, some(&["10.0.0.1"]), some(&[]));
        let first = names.next_to_ask(start + Duration::from_secs(1)).unwrap();
        assert!(!names.all_tried());
        names.answered(first, None, start, 0.0);
        assert!(names.all_tried());
        look_up(&mut names, some(&["10.0.0.1", "10.0.0.2"]), some(&[]));
        assert_eq!(names.next_to_ask(start + Duration::from_mins(1)), Some("10.0.0.2".parse().unwrap()));
        assert!(!names.answered("10.0.0.99".parse().unwrap(), name("x"), start, 0.0), "not in DNS any more");
    }
}
