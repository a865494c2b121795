//! Random clusters: the number of nodes and zones, how unequal the zones are, and the selection
//! over them.

#[path = "../common/splitmix.rs"]
mod splitmix;

use std::collections::HashMap;
use std::time::Duration;

use kube_canary::discovery::{MemberId, Members, Scheme};
pub use splitmix::Random;

pub const FORGET_AFTER: Duration = Duration::from_mins(5);

/// A number from `low` to `high`, both included.
pub fn between(random: &mut Random, low: usize, high: usize) -> usize {
    low + usize::try_from(random.next() % (high - low + 1) as u64).expect("small")
}

/// Nodes with their zones.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub nodes: Vec<(String, Option<String>)>,
    pub k: usize,
}

impl Cluster {
    /// This many nodes, in 1 to 20 zones, whose sizes are powers of random numbers. The first
    /// zone may be unknown.
    pub fn random(random: &mut Random, nodes: usize) -> Self {
        let (zones, power) = (between(random, 1, 20), between(random, 0, 9));
        let mut weight = || (0..power).map(|_| between(random, 1, 64)).product::<usize>() >> (4 * power);
        let weights: Vec<usize> = (0..zones).map(|_| weight()).collect();
        let total = weights.iter().sum::<usize>().max(1);
        let mut sizes: Vec<usize> = weights.iter().map(|weight| nodes * weight / total).collect();
        let placed: usize = sizes.iter().sum();
        sizes[between(random, 0, zones - 1)] += nodes.saturating_sub(placed);
        Self::of(&sizes, between(random, 4, 64), random.next().is_multiple_of(2), random.next())
    }

    /// Zones of those sizes. `salt` changes the names.
    pub fn of(sizes: &[usize], k: usize, unknown: bool, salt: u64) -> Self {
        let zone = |zone: usize| (zone > 0 || !unknown).then(|| format!("zone-{zone}"));
        let name = |z: usize, n: usize| format!("ip-10-{z}-{n}.{salt:x}.internal");
        let nodes = sizes.iter().enumerate().flat_map(|(z, size)| (0..*size).map(move |n| (name(z, n), zone(z))));
        Self { nodes: nodes.collect(), k }
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the size of the largest zone, and the number of zones.
    pub fn largest_zone(&self) -> (usize, usize) {
        let mut sizes = HashMap::new();
        self.nodes.iter().for_each(|(_, zone)| *sizes.entry(zone).or_insert(0) += 1);
        (sizes.values().copied().max().unwrap_or(0), sizes.len())
    }

    pub fn members(&self) -> Members {
        let mut members = Members::new(FORGET_AFTER);
        for (node, zone) in &self.nodes {
            members.put(node, zone.as_deref()).expect("room");
        }
        members
    }

    pub fn shuffled(&self, random: &mut Random) -> Self {
        let mut nodes = self.nodes.clone();
        (1..nodes.len()).for_each(|last| nodes.swap(last, between(random, 0, last)));
        Self { nodes, ..*self }
    }
}

/// All pairs of watcher and target as members, in order.
pub fn pairs(scheme: &Scheme) -> Vec<(MemberId, MemberId)> {
    let mut pairs = Vec::new();
    scheme.for_each_pair(|watcher, target| pairs.push((watcher, target)));
    pairs.sort_unstable();
    pairs
}

/// The same by name, in order.
pub fn named(members: &Members, k: usize) -> Vec<(&str, &str)> {
    let mut pairs = Vec::new();
    let mut pair = |watcher, target| pairs.push((members.name(watcher), members.name(target)));
    Scheme::new(members, k).for_each_pair(&mut pair);
    pairs.sort_unstable();
    pairs
}

/// The number of pairs that are in only one of two meshes. Both inputs are in order.
pub fn changed<T: Ord>(before: &[T], after: &[T]) -> usize {
    let gone = before.iter().filter(|pair| after.binary_search(pair).is_err()).count();
    gone + after.iter().filter(|pair| before.binary_search(pair).is_err()).count()
}
