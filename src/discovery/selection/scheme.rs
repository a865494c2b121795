//! Which node probes which in a mesh that is too large for a full mesh.
//!
//! Every node (*watcher*) probes k others (*targets*). All nodes are on a ring, at the hash of
//! their name. A target needs ⌈k/2⌉ watchers, ⌈k/4⌉ of them from other zones. It gets the nearest
//! nodes behind it on the ring that still have capacity, of k targets each. A watcher serves the
//! nearest node before it first. Watchers with capacity left use it for the nodes behind them on a
//! second ring. So each node probes k others, and k others probe it on average.
//!
//! Both sides prefer the nearest, so the matching is stable, and there is only one. It depends on
//! no order of input. A node that joins or leaves changes only its own pairs and those of nodes
//! that must now search further. Distances are processed in turn, shortest first, since each node
//! occurs once at each distance.
//!
//! If one zone has most of the nodes, watchers in other zones are scarce. Each can serve k targets,
//! and every node of the large zone needs ⌈k/4⌉ of them. So some of these watchers reserve their
//! capacity for that zone, and nodes of that zone watch them in turn. The larger the zone, the more
//! watchers do so. A node's lot decides from which size on it does: one threshold for all would
//! move thousands of pairs at once. Watchers that cannot be found are reported as missing.

use kube_canary_kernel::region::List;

use crate::discovery::hash;
use crate::discovery::members::{MEMBER_ZONES_MAX, MemberId, Members, ZoneNumber};
use crate::discovery::update::MeshFacts;

/// The id of our own node if it is not a member.
const NOT_A_MEMBER: MemberId = MemberId(u16::MAX);
/// The zone of our own node if no other node is in it.
const NEW_ZONE: ZoneNumber = 255;
const _: () = assert!(NEW_ZONE as usize == MEMBER_ZONES_MAX, "behind all that have a number");
/// Shares in percent of the largest zone between which more and more watchers of other zones
/// reserve capacity for it. Below, watchers are not scarce. Above, they have no other choice.
const SCARCE: (usize, usize) = (50, 75);
/// Nodes of the target's zone, and of others, that are tried in an exchange for one target. Mostly
/// the first one works.
const SUBSTITUTES_MAX: usize = 8;

#[derive(Clone, Copy)]
struct SchemeNode {
    id: MemberId,
    zone: ZoneNumber,
    /// Watches nodes of the largest zone first.
    reserves: bool,
    /// Number of nodes that it watches.
    targets: u16,
    /// Number of assigned watchers, out of those it needs.
    watchers: u16,
}

const BLANK: SchemeNode = SchemeNode { id: NOT_A_MEMBER, zone: 0, reserves: false, targets: 0, watchers: 0 };

/// Which nodes may watch a target.
#[derive(Clone, Copy, PartialEq)]
enum Zones {
    /// Nodes of other zones. Those that reserve capacity for the largest zone watch only that zone.
    OthersReserving,
    /// Nodes of other zones.
    Others,
    /// Nodes of the same zone, except those that reserve capacity for the largest.
    Same,
}

/// The selections of all nodes of a mesh of more than k + 1.
///
/// Takes 10 bytes for each node and ⌈k/2⌉ × 2 more, in mappings of its own that are released with
/// it: 170 KB for 5,000 nodes and k = 24.
pub struct Scheme {
    k: usize,
    /// Watchers that each node needs: of all zones, and of other zones.
    needed: (usize, usize),
    /// In ring order. A place is an index into this list.
    nodes: List<SchemeNode>,
    /// `needed.0` entries for each node, of which the first `watchers` are set: the
    /// places of its watchers.
    watchers: List<u16>,
    /// Places in the order of the second ring.
    second: List<u16>,
    /// The zone that watchers reserve capacity for, if any do.
    largest: ZoneNumber,
    /// How many nodes of each zone can watch more targets.
    spare: [u16; MEMBER_ZONES_MAX + 1],
    /// How many of these may watch nodes of their own zone.
    spare_within: [u16; MEMBER_ZONES_MAX + 1],
    /// The sum over all zones.
    spare_all: u16,
}

impl Scheme {
    /// Computes the selections of all members, for at most `k` targets each. k is at least 1. If it
    /// is the number of other members or more, every node probes all others.
    pub fn new(members: &Members, k: usize) -> Self {
        Self::with(members, k, None)
    }

    /// The same with one more node, unless it is already a member.
    pub(super) fn with(members: &Members, k: usize, own: Option<(&str, Option<&str>)>) -> Self {
        let extra = own.filter(|(node, _)| members.place(node).is_err());
        let n = members.len() + usize::from(extra.is_some());
        let k = k.clamp(1, n.saturating_sub(1).max(1));
        let needed = (k.div_ceil(2), k.div_ceil(4));
        let nodes = nodes(members, own);
        let name = |id| if id == NOT_A_MEMBER { own.map_or("", |own| own.0) } else { members.name(id) };
        let second = second_ring(&nodes, name);
        let mut watchers = List::new(n * needed.0);
        watchers.resize(n * needed.0, 0);
        let none = [0; MEMBER_ZONES_MAX + 1];
        let mut scheme =
            Self { k, needed, nodes, watchers, second, largest: 0, spare: none, spare_within: none, spare_all: 0 };
        scheme.count_spare();
        scheme.reserve_for_the_largest(name);
        scheme.match_all();
        scheme
    }

    /// Returns the members that a member probes.
    pub fn chosen_by(&self, id: MemberId) -> Vec<MemberId> {
        self.place_of(Some(id)).map(|place| self.chosen_at(place)).unwrap_or_default()
    }

    /// Returns what a member knows of the mesh.
    pub fn facts(&self, id: MemberId) -> MeshFacts {
        self.place_of(Some(id)).map(|place| self.facts_at(place)).unwrap_or_default()
    }

    pub(super) fn place_of(&self, id: Option<MemberId>) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id.unwrap_or(NOT_A_MEMBER))
    }

    /// Calls `pair` with each watcher and each of its targets. This is much cheaper than
    /// one query per node.
    pub fn for_each_pair(&self, mut pair: impl FnMut(MemberId, MemberId)) {
        let id = |place: usize| self.nodes[place].id;
        for target in 0..self.nodes.len() {
            self.watchers_of(target).for_each(|watcher| pair(id(watcher), id(target)));
        }
        for (at, watcher) in self.second.iter().enumerate() {
            self.further(at).for_each(|target| pair(id(usize::from(*watcher)), id(target)));
        }
    }

    pub(super) fn chosen_at(&self, place: usize) -> Vec<MemberId> {
        let assigned = (0..self.nodes.len()).filter(|target| self.watches(place, *target));
        assigned.chain(self.further(self.on_second_ring(place))).map(|target| self.nodes[target].id).collect()
    }

    pub(super) fn facts_at(&self, place: usize) -> MeshFacts {
        let (mut in_zone, mut elsewhere) = (0_u32, 0_u32);
        for watcher in self.watchers_of(place).chain(self.further_watchers(place)) {
            let same = self.nodes[watcher].zone == self.nodes[place].zone;
            *(if same { &mut in_zone } else { &mut elsewhere }) += 1;
        }
        let missing = |needed: usize, has: u32| u32::try_from(needed).unwrap_or(u32::MAX).saturating_sub(has);
        let single = self.nodes.iter().all(|node| node.zone == self.nodes[place].zone);
        MeshFacts {
            members: u32::try_from(self.nodes.len()).unwrap_or(u32::MAX),
            watchers_in_zone: in_zone,
            watchers_elsewhere: elsewhere,
            watchers_missing: missing(self.needed.0, in_zone + elsewhere),
            // A mesh of one zone has no other zones to be watched from.
            watchers_missing_elsewhere: if single { 0 } else { missing(self.needed.1, elsewhere) },
        }
    }

    /// Returns the watchers that are assigned to the target on the first pass.
    fn watchers_of(&self, target: usize) -> impl Iterator<Item = usize> {
        let begin = target * self.needed.0;
        self.watchers[begin..begin + usize::from(self.nodes[target].watchers)]
            .iter()
            .map(|watcher| usize::from(*watcher))
    }

    fn watches(&self, watcher: usize, target: usize) -> bool {
        self.watchers_of(target).any(|other| other == watcher)
    }

    fn on_second_ring(&self, place: usize) -> usize {
        self.second.iter().position(|other| usize::from(*other) == place).unwrap_or(0)
    }

    /// Returns the further targets of the watcher at that place of the second ring, so
    /// that it has k.
    fn further(&self, at: usize) -> impl Iterator<Item = usize> {
        let watcher = usize::from(self.second[at]);
        let behind = self.second[at + 1..].iter().chain(&self.second[..at]).map(|place| usize::from(*place));
        let left = self.k.saturating_sub(usize::from(self.nodes[watcher].targets));
        behind.filter(move |target| !self.watches(watcher, *target)).take(left)
    }

    /// Returns the watchers that have this target as a further one. A watcher skips at most k
    /// targets that it already has, and takes at most k.
    fn further_watchers(&self, target: usize) -> impl Iterator<Item = usize> {
        let (n, own) = (self.nodes.len(), self.on_second_ring(target));
        let before = (1..n.min(2 * self.k + 1)).map(move |distance| (own + n - distance) % n);
        let takes = move |at: &usize| self.further(*at).any(|further| further == target);
        before.filter(takes).map(|at| usize::from(self.second[at]))
    }

    /// Counts the capacity before any watcher is assigned.
    fn count_spare(&mut self) {
        for node in &*self.nodes {
            self.spare[usize::from(node.zone)] += 1;
            self.spare_all += 1;
        }
        self.spare_within = self.spare;
    }

    fn reserve_for_the_largest<'a>(&mut self, name: impl Fn(MemberId) -> &'a str) {
        let n = self.nodes.len();
        let largest = (0..=ZoneNumber::MAX).zip(&self.spare).max_by_key(|(_, nodes)| **nodes);
        let Some((largest, &nodes)) = largest else { return };
        // Share of the 65,536 lots.
        let (begin, end) = SCARCE;
        let part = (100 * usize::from(nodes)).saturating_sub(begin * n) * 65_536 / ((end - begin) * n).max(1);
        if part == 0 {
            return;
        }
        self.largest = largest;
        for node in self.nodes.iter_mut().filter(|node| node.zone != largest) {
            node.reserves = hash::lot(name(node.id)) < part as u64;
            self.spare_within[usize::from(node.zone)] -= u16::from(node.reserves);
        }
    }

    fn match_all(&mut self) {
        let n = self.nodes.len();
        let (any, others) = self.needed;
        // Search nearby first, then nearby on the second ring. If watchers are scarce, a queue for
        // them would grow long in one part of the ring. Every node that joins would then move all
        // of it.
        let mut circle = List::new(n);
        (0..n).for_each(|place| _ = circle.push(narrow(place)));
        self.pass(&circle, others, Zones::OthersReserving, self.k);
        circle.copy_from_slice(&self.second);
        self.pass(&circle, others, Zones::OthersReserving, n);
        (0..n).all(|target| self.exchange_for(target, others));
        circle.sort_unstable_by_key(|place| (self.nodes[usize::from(*place)].zone, *place));
        let mut begin = 0;
        while begin < n {
            let zone = self.nodes[usize::from(circle[begin])].zone;
            let end = begin + circle[begin..].partition_point(|place| self.nodes[usize::from(*place)].zone == zone);
            self.pass(&circle[begin..end], any, Zones::Same, n);
            begin = end;
        }
        circle.sort_unstable();
        self.pass(&circle, any, Zones::Others, n);
    }

    /// Gives every node on the circle with fewer than `wanted` watchers the nearest ones behind it,
    /// at most `far` away.
    fn pass(&mut self, circle: &[u16], wanted: usize, zones: Zones, far: usize) {
        let n = circle.len();
        let mut open = List::new(n);
        for (at, place) in (0_u16..).zip(circle) {
            if usize::from(self.nodes[usize::from(*place)].watchers) < wanted {
                let _ = open.push(at);
            }
        }
        let mut len = open.len();
        for distance in 1..n.min(far + 1) {
            if len == 0 {
                break;
            }
            let mut kept = 0;
            for index in 0..len {
                let at = usize::from(open[index]);
                let behind = if at + distance < n { at + distance } else { at + distance - n };
                let (target, watcher) = (usize::from(circle[at]), usize::from(circle[behind]));
                if self.may(watcher, target, zones) {
                    self.watch(watcher, target);
                }
                if usize::from(self.nodes[target].watchers) < wanted && self.has_spare(target, zones) {
                    open[kept] = open[index];
                    kept += 1;
                }
            }
            len = kept;
        }
    }

    fn may(&self, watcher: usize, target: usize, zones: Zones) -> bool {
        let (w, t) = (&self.nodes[watcher], &self.nodes[target]);
        let allowed = match zones {
            Zones::Same => w.zone == t.zone && !w.reserves,
            Zones::Others => w.zone != t.zone,
            Zones::OthersReserving => w.zone != t.zone && (!w.reserves || t.zone == self.largest),
        };
        allowed && usize::from(w.targets) < self.k && !self.watches(watcher, target)
    }

    fn watch(&mut self, watcher: usize, target: usize) {
        self.add_watcher(watcher, target);
        self.use_capacity(watcher);
    }

    fn add_watcher(&mut self, watcher: usize, target: usize) {
        let watchers = &mut self.nodes[target].watchers;
        self.watchers[target * self.needed.0 + usize::from(*watchers)] = narrow(watcher);
        *watchers += 1;
    }

    fn use_capacity(&mut self, watcher: usize) {
        let node = &mut self.nodes[watcher];
        node.targets += 1;
        if usize::from(node.targets) == self.k {
            let zone = usize::from(node.zone);
            self.spare_within[zone] -= u16::from(!node.reserves);
            self.spare[zone] -= 1;
            self.spare_all -= 1;
        }
    }

    /// Finds watchers for a target that lacks some, although no node with capacity can watch it
    /// directly. A node with capacity already watches it, or is in its zone. That node replaces
    /// another watcher elsewhere, which then watches this target. Needed if capacity is just
    /// sufficient. Returns whether the target has all it wants.
    fn exchange_for(&mut self, target: usize, wanted: usize) -> bool {
        while usize::from(self.nodes[target].watchers) < wanted {
            let (nodes, k) = (&self.nodes, self.k);
            let zone = nodes[target].zone;
            let has_left = |own: bool, node: &SchemeNode| (node.zone == zone) == own && usize::from(node.targets) < k;
            let left = |own| (0..nodes.len()).filter(move |place| has_left(own, &nodes[*place])).take(SUBSTITUTES_MAX);
            let exchange = left(false).chain(left(true)).find_map(|substitute| self.exchange(substitute, target));
            let Some((substitute, slot)) = exchange else { return false };
            let watcher = usize::from(std::mem::replace(&mut self.watchers[slot], narrow(substitute)));
            self.use_capacity(substitute);
            self.add_watcher(watcher, target);
        }
        true
    }

    /// Returns an entry of another target that `substitute` can replace. Its present watcher can
    /// then watch this target.
    fn exchange(&self, substitute: usize, target: usize) -> Option<(usize, usize)> {
        let zone = |place: usize| self.nodes[place].zone;
        (0..self.nodes.len()).find_map(|other| {
            if other == target || zone(other) == zone(substitute) || self.watches(substitute, other) {
                return None;
            }
            let free = |watcher: usize| zone(watcher) != zone(target) && !self.watches(watcher, target);
            let entry = self.watchers_of(other).position(free)?;
            Some((substitute, other * self.needed.0 + entry))
        })
    }

    /// Returns whether any node has capacity that the target may use.
    fn has_spare(&self, target: usize, zones: Zones) -> bool {
        let zone = usize::from(self.nodes[target].zone);
        match zones {
            Zones::Same => self.spare_within[zone] > 0,
            Zones::Others | Zones::OthersReserving => self.spare_all > self.spare[zone],
        }
    }
}

/// Converts a place. There are at most [`crate::limits::PEER_SLOTS_MAX`] + 1.
fn narrow(place: usize) -> u16 {
    u16::try_from(place).unwrap_or(u16::MAX)
}

/// Returns the members in ring order, with our own node among them.
fn nodes(members: &Members, own: Option<(&str, Option<&str>)>) -> List<SchemeNode> {
    let mut nodes = List::new(members.len() + 1);
    let place = own.map(|(node, _)| members.place(node));
    let zone = own.and_then(|(_, zone)| zone).filter(|zone| !zone.is_empty());
    let zone = zone.map_or(Members::UNKNOWN_ZONE, |zone| members.find_zone(zone).unwrap_or(NEW_ZONE));
    let extra = SchemeNode { zone, ..BLANK };
    for (at, id) in members.ring().enumerate() {
        if place == Some(Err(at)) {
            let _ = nodes.push(extra);
        }
        let _ = nodes.push(SchemeNode { id, zone: members.zone_number(id), ..BLANK });
    }
    if place == Some(Err(members.len())) {
        let _ = nodes.push(extra);
    }
    nodes
}

/// Returns the places in the order of the second ring. Equal keys keep the order of the first.
fn second_ring<'a>(nodes: &[SchemeNode], name: impl Fn(MemberId) -> &'a str) -> List<u16> {
    let mut keys = List::new(nodes.len());
    for (place, node) in nodes.iter().enumerate() {
        let _ = keys.push(hash::on_second_ring(name(node.id)) & !0xffff | place as u64);
    }
    keys.sort_unstable();
    let mut second = List::new(nodes.len());
    keys.iter().for_each(|key| _ = second.push(narrow((key & 0xffff) as usize)));
    second
}
