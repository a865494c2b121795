//! Which members a node probes if it cannot probe all. [`Scheme`] decides for all nodes, [`select`]
//! asks it for one.
//!
//! Pure: the input is the members' names and zones. Every agent with the same input computes the
//! same result, in whatever order it learned of the members.

mod scheme;

pub use scheme::Scheme;

use crate::discovery::members::{MemberId, Members};
use crate::discovery::update::MeshFacts;

/// The members that one node probes, and what it may know of the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    own: Option<MemberId>,
    /// Sorted. None means all others.
    chosen: Option<Box<[MemberId]>>,
    facts: MeshFacts,
}

impl Selection {
    /// Returns whether that member is to be probed.
    pub fn contains(&self, id: MemberId) -> bool {
        self.own != Some(id) && self.chosen.as_ref().is_none_or(|chosen| chosen.binary_search(&id).is_ok())
    }

    /// Returns whether there are other members than those to be probed.
    pub const fn is_partial(&self) -> bool {
        self.chosen.is_some()
    }

    /// Returns the facts about the mesh as a whole and about the watchers of our node.
    pub const fn facts(&self) -> MeshFacts {
        self.facts
    }
}

/// Returns the selection for a node. It is all others if `max_peers` is 0 or large enough, else
/// what [`Scheme`] selects.
///
/// A node that is not among the members counts as one, in `own_zone`. If it is a member, its zone
/// there counts, because all other agents use that zone.
pub fn select(members: &Members, own_node: &str, own_zone: Option<&str>, max_peers: usize) -> Selection {
    let own = members.find(own_node);
    let nodes = members.len() + usize::from(own.is_none());
    if max_peers == 0 || nodes <= max_peers + 1 {
        return Selection { own, chosen: None, facts: full_mesh(members, own, own_zone) };
    }
    let scheme = Scheme::with(members, max_peers, Some((own_node, own_zone)));
    let Some(place) = scheme.place_of(own) else {
        return Selection { own, chosen: Some(Box::default()), facts: MeshFacts::default() };
    };
    let mut chosen = scheme.chosen_at(place);
    chosen.sort_unstable();
    Selection { own, chosen: Some(chosen.into()), facts: scheme.facts_at(place) }
}

/// All members watch us. More is not possible, so nothing is missing.
fn full_mesh(members: &Members, own: Option<MemberId>, own_zone: Option<&str>) -> MeshFacts {
    // None is a zone without any other member.
    let zone = match (own, own_zone) {
        (Some(own), _) => Some(members.zone_number(own)),
        (None, Some(zone)) => members.find_zone(zone),
        (None, None) => Some(Members::UNKNOWN_ZONE),
    };
    let (mut in_zone, mut elsewhere) = (0, 0);
    for id in members.ring().filter(|id| Some(*id) != own) {
        *(if Some(members.zone_number(id)) == zone { &mut in_zone } else { &mut elsewhere }) += 1;
    }
    MeshFacts {
        members: in_zone + elsewhere + 1,
        watchers_in_zone: in_zone,
        watchers_elsewhere: elsewhere,
        ..MeshFacts::default()
    }
}
