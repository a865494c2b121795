//! Compares the two networks of a mesh. The nodes' network carries the pods' network, so some
//! losses of the pods' network are losses of the nodes' network.
//!
//! A bad interface loses on both networks and is one cause. Its verdict is about the nodes'
//! network, and mentions the loss of the pods' network. If only the pods' network loses, or if it
//! loses far more, the overlay is the cause. The trap: a small loss is found on one network and, by
//! chance, not on the other. So the other network's losses over the same pairs are compared,
//! whether found or not.

use std::rc::Rc;
use std::sync::Arc;

use super::causes::{Cause, Finding, Findings, is_zone_or_domain};
use super::details::{self, Detail};
use super::pairs::NetworkScope;
use super::score::{apart, gain};
use super::slow::Slow;
use super::tally::Tally;

/// A network has a cause of its own if it loses this many times as much as the other,
/// and this much more.
const TIMES: f64 = 1.5;
const EXTRA: f64 = 0.01;
/// Also, two rates must explain the losses of both networks better than one rate, by this many
/// nats.
const APART: f64 = 4.5;
/// This many nats of unexplained loss on the nodes' network suffice as evidence, in addition to the
/// loss of the pods' network.
const SOME: f64 = 3.0;

/// The causes found in a network, with their figures.
pub struct NetworkCauses {
    /// The causes of the losses.
    pub findings: Findings,
    /// The figures of each cause.
    pub details: Vec<Detail>,
    /// Whether the other network or another protocol explains the cause; used for the pods' network
    /// only.
    pub is_shared: Vec<bool>,
}

impl NetworkCauses {
    /// Makes it from `findings`, and computes the figures.
    pub async fn new(scope: &NetworkScope<'_>, findings: Findings) -> Self {
        let details = if findings.found.is_empty() { Vec::new() } else { details::collect(scope, &findings).await };
        let is_shared = vec![false; findings.found.len()];
        Self { findings, details, is_shared }
    }
}

/// One cause on both networks: its indices among their findings.
pub struct SharedCause {
    /// Index among the findings of the pods' network.
    pub pod: usize,
    /// Index among the findings of the nodes' network.
    pub node: usize,
}

/// Finds the causes that both networks have in common.
pub async fn join(
    pods: &mut NetworkCauses,
    (scope, mut nodes): (&NetworkScope<'_>, NetworkCauses),
) -> (NetworkCauses, Vec<SharedCause>) {
    if pods.is_shared.iter().all(|is_shared| *is_shared) {
        return (nodes, Vec::new());
    }
    // What the nodes' network lost over the pairs of each cause of the pods' network.
    let below = details::collect(scope, &pods.findings).await;
    let mut further: Vec<Finding> = Vec::new();
    let own = pods.findings.found.iter().zip(pods.details.iter().zip(&below)).zip(&pods.is_shared);
    for ((finding, (pod, node)), _) in own.filter(|(_, is_shared)| !**is_shared) {
        let is_known = nodes.findings.found.iter().any(|known| covers(scope, known.cause, finding.cause));
        let has_some = gain(node.both.lost, node.both.probes, nodes.findings.background) > SOME;
        if !is_known && has_some && is_alike(pod.both, node.both) {
            further.push(Finding { rate: node.both.rate(), ..*finding });
        }
    }
    if !further.is_empty() {
        nodes.findings.found.extend(further);
        if nodes.findings.groups.is_empty() {
            nodes.findings.groups = Rc::clone(&pods.findings.groups);
        }
        nodes = NetworkCauses::new(scope, nodes.findings).await;
    }
    let mut shared = Vec::new();
    for (place, finding) in pods.findings.found.iter().enumerate() {
        if pods.is_shared[place] {
            continue;
        }
        let both = pods.details[place].both;
        let explains = |known: &Finding| {
            covers(scope, known.cause, finding.cause)
                && (both.rate() <= known.rate * TIMES + EXTRA || is_alike(both, below[place].both))
        };
        // The same cause is preferred to a wider one.
        let same = nodes.findings.found.iter().position(|other| other.cause == finding.cause && explains(other));
        pods.is_shared[place] = same.is_some() || nodes.findings.found.iter().any(explains);
        shared.extend(same.map(|node| SharedCause { pod: place, node }));
    }
    (nodes, shared)
}

/// Whether `wide` touches all links that `narrow` touches.
fn covers(scope: &NetworkScope<'_>, wide: Cause, narrow: Cause) -> bool {
    let is_wide = is_zone_or_domain(wide) || matches!(wide, Cause::Node(_));
    match narrow {
        Cause::Link(a, b) if is_wide => {
            let findings = Findings { domains: Arc::clone(scope.matrix.domains()), ..Findings::default() };
            findings.touches(scope, wide, (a, b))
        }
        _ => wide == narrow,
    }
}

/// Whether one rate explains both about as well as separate rates do.
fn is_alike(pod: Tally, node: Tally) -> bool {
    apart(pod, node) < APART
}

/// Whether the first loses far more than the second.
pub fn differs(more: Tally, less: Tally) -> bool {
    more.rate() > less.rate() * TIMES + EXTRA && !is_alike(more, less)
}

/// Whether the nodes' network is slow there, too.
pub fn is_slow_below(pod: &Slow, nodes: &[Slow]) -> bool {
    nodes.iter().any(|node| match (node.cause, pod.cause) {
        (Cause::Node(slow), Cause::Link(a, b)) => slow == a || slow == b,
        (wide, narrow) => wide == narrow,
    })
}
