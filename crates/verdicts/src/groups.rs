//! Groups of nodes that reach each other inside the group, but not across groups.
//!
//! Two nodes are connected if either of them gets answers from the other by each protocol: a loss
//! that one end reports does not cut a connection that the other end reports. The trap: an agent
//! inside one group gets no reports from the other group. If many nodes answer nothing and have no
//! report, they are one group. A few such nodes are dead nodes.

use std::rc::Rc;

use super::causes::NO_GROUP;
use super::pairs::{NetworkScope, Pair};
use super::tally::Tally;
use crate::domains::DOMAIN_NONE;
use crate::matrix::{Layer, ZONE_UNKNOWN};

/// A link connects if it loses less. The limit is far from the 90 % that a partition loses at
/// least, and from what a lossy mesh loses: 30 probes are never on the wrong side by chance.
const CONNECTED_BELOW: f64 = 0.5;
/// Silent nodes make a group from this number on, and from this share of the nodes on.
const SILENT_MIN: usize = 3;
const SILENT_ONE_OF: usize = 4;
/// A node whose links all lose more joins the group to which it loses less than this.
const LOSSY_BELOW: f64 = 0.85;
/// Largest number of sums of such nodes and groups: 8 bytes each.
const LOSSY_MAX: usize = 512;
/// A silent node leaves at least this share of its probes unanswered.
const SILENT_LOSS: f64 = 0.9;

/// Returns the group of each node. Empty if the mesh does not fall into at least two groups. Takes
/// 3 bytes per node, and 12 more per node without a report.
pub async fn find(scope: &NetworkScope<'_>) -> Rc<[u8]> {
    let mut parents: Vec<u16> = scope.matrix.numbers().collect();
    scope
        .each_pair_by_layer(|pairs| {
            if let Some(Pair { a, b, .. }) = pairs.first().filter(|_| is_connected(pairs)) {
                let (a, b) = (root(&mut parents, *a), root(&mut parents, *b));
                parents[usize::from(a.max(b))] = a.min(b);
            }
        })
        .await;
    let mut roots: Vec<u16> = scope.matrix.numbers().map(|node| root(&mut parents, node)).collect();
    // A group of one node is not a group. A group is identified by its lowest node,
    // which is its root.
    let mut known: Vec<u16> = Vec::new();
    for node in scope.matrix.numbers() {
        let of = roots[usize::from(node)];
        if of != node && !known.contains(&of) && known.len() < usize::from(NO_GROUP) {
            known.push(of);
        }
    }
    known.sort_unstable();
    if let [first, rest @ ..] = &silent(scope, &roots, &known).await[..] {
        for node in rest {
            roots[usize::from(*node)] = *first;
        }
        known.push(*first);
    }
    if known.len() < 2 {
        return Rc::default();
    }
    join_lossy(scope, &mut roots, &known).await;
    let is_one = |of: &dyn Fn(u16) -> u8| is_one_part(scope, &roots, &known, of);
    if is_one(&|node| scope.matrix.get(node).zone) || is_one(&|node| scope.matrix.domain(node)) {
        return Rc::default();
    }
    let place = |root: u16| known.iter().position(|known| *known == root).and_then(|place| u8::try_from(place).ok());
    roots.into_iter().map(|root| place(root).unwrap_or(NO_GROUP)).collect()
}

/// Whether one of two groups is a zone or a domain. That zone or domain is then cut off, which is
/// no partition. `of` returns a node's zone or domain, 0 if it has none.
fn is_one_part(scope: &NetworkScope<'_>, roots: &[u16], known: &[u16], of: &dyn Fn(u16) -> u8) -> bool {
    const _: () = assert!(ZONE_UNKNOWN == 0 && DOMAIN_NONE == 0);
    let part_of = |group: u16| {
        let mut nodes = scope.matrix.numbers().filter(|node| roots[usize::from(*node)] == group);
        let first = of(nodes.next()?);
        let is_one = first != 0 && nodes.all(|node| of(node) == first);
        is_one.then_some(first)
    };
    let is_elsewhere = |group: u16, part: u8| {
        let others = |node: &u16| known.contains(&roots[usize::from(*node)]) && roots[usize::from(*node)] != group;
        scope.matrix.numbers().filter(others).any(|node| of(node) == part)
    };
    known.len() == 2 && known.iter().any(|group| part_of(*group).is_some_and(|part| !is_elsewhere(*group, part)))
}

/// Puts nodes that lose a lot inside their own group into the group to which they lose least.
async fn join_lossy(scope: &NetworkScope<'_>, roots: &mut [u16], known: &[u16]) {
    let lossy: Vec<u16> = scope.matrix.numbers().filter(|node| !known.contains(&roots[usize::from(*node)])).collect();
    if lossy.is_empty() || lossy.len() * known.len() > LOSSY_MAX {
        return;
    }
    let mut lost = vec![Tally::default(); lossy.len() * known.len()];
    scope
        .each_pair(|pair| {
            for (node, other) in [(pair.a, pair.b), (pair.b, pair.a)] {
                let place = lossy.binary_search(&node).ok();
                let group = known.iter().position(|root| *root == roots[usize::from(other)]);
                if let (Some(place), Some(group)) = (place, group) {
                    let sum = &mut lost[place * known.len() + group];
                    *sum = sum.plus(pair.both());
                }
            }
        })
        .await;
    for (node, lost) in lossy.iter().zip(lost.chunks(known.len())) {
        let measured = lost.iter().zip(known).filter(|(sum, _)| sum.probes > 0 && sum.rate() < LOSSY_BELOW);
        if let Some((_, group)) = measured.reduce(|best, next| if next.0.rate() < best.0.rate() { next } else { best })
        {
            roots[usize::from(*node)] = *group;
        }
    }
}

/// Returns the nodes that answer no other node and have no report, if they are a group.
async fn silent(scope: &NetworkScope<'_>, roots: &[u16], known: &[u16]) -> Vec<u16> {
    let is_alone =
        |node: &u16| roots[usize::from(*node)] == *node && !known.contains(node) && scope.matrix.row(*node).is_none();
    let mut nodes: Vec<u16> = scope.matrix.numbers().filter(is_alone).collect();
    let are_enough =
        |nodes: &[u16]| nodes.len() >= SILENT_MIN && nodes.len() * SILENT_ONE_OF >= scope.matrix.node_count();
    if known.is_empty() || !are_enough(&nodes) {
        return Vec::new();
    }
    let (mut measured, mut answers) = (vec![false; nodes.len()], Tally::default());
    scope
        .each_pair(|pair| {
            let mut places = [pair.a, pair.b].into_iter().filter_map(|node| nodes.binary_search(&node).ok());
            if let Some(place) = places.next() {
                // Two silent nodes are no pair, because neither has a report.
                measured[place] = true;
                answers = answers.plus(pair.both());
            }
        })
        .await;
    let mut place = 0..;
    nodes.retain(|_| place.next().is_some_and(|place: usize| measured[place]));
    if are_enough(&nodes) && answers.rate() >= SILENT_LOSS { nodes } else { Vec::new() }
}

/// Whether either end gets answers from the other, by each layer: one of them may be cut alone. Of
/// handshakes there are too few to tell, unless nothing else is measured.
fn is_connected(pairs: &[Pair]) -> bool {
    let connects = |tally: &Tally| tally.probes > 0 && tally.rate() < CONNECTED_BELOW;
    let mut telling = pairs.iter().filter(|pair| pair.layer() != Layer::Tcp || pairs.len() == 1);
    telling.all(|pair| [pair.there, pair.back].iter().any(connects))
}

/// Returns the lowest node of a node's group, and shortens the path to it.
fn root(parents: &mut [u16], node: u16) -> u16 {
    let mut at = node;
    while parents[usize::from(at)] != at {
        let next = parents[usize::from(at)];
        parents[usize::from(at)] = parents[usize::from(next)];
        at = next;
    }
    at
}
