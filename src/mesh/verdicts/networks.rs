//! Both networks of a mesh together: which losses of the pods' network are those of the nodes', which carries it.
//!
//! A bad interface loses on both, and is one cause: it is said of the nodes' network, and that the pods' loses likewise. What only
//! the pods' network loses, or far more of, is its own: the overlay's. The trap: a loss that is small is found on the one
//! network and by chance not on the other, so what the other lost over the same pairs is looked at, found or not.

use std::rc::Rc;
use std::sync::Arc;

use super::causes::{Culprit, Finding, Findings, is_of_zones};
use super::details::{self, Detail};
use super::pairs::{Scope, Tally};
use super::score::{gain, likelihood};
use super::slow::Slow;

/// A network loses for a reason of its own from so many times what the other loses, and so much more.
const TIMES: f64 = 1.5;
const EXTRA: f64 = 0.01;
/// And from so many nats by which two rates explain both networks' losses better than one.
const APART: f64 = 4.5;
/// So many nats of loss on the nodes' network, which nobody was blamed for, are enough beside what the pods' shows.
const SOME: f64 = 3.0;

/// What was found of a network, with its figures.
pub struct Found {
    /// Who.
    pub findings: Findings,
    /// The figures of each.
    pub details: Vec<Detail>,
    /// Whether the other network explains it; of the pods' alone.
    pub is_shared: Vec<bool>,
}

impl Found {
    /// With the figures.
    pub fn of(scope: &Scope<'_>, findings: Findings) -> Self {
        let details = if findings.found.is_empty() { Vec::new() } else { details::gather(scope, &findings) };
        let is_shared = vec![false; findings.found.len()];
        Self { findings, details, is_shared }
    }
}

/// One culprit on both networks: its places among their findings.
pub struct Shared {
    /// Among the pods'.
    pub pod: usize,
    /// Among the nodes'.
    pub node: usize,
}

/// Finds what both have in common.
pub fn join(
    (_, mut pods): (&Scope<'_>, Found),
    (scope, mut nodes): (&Scope<'_>, Found),
) -> (Found, Found, Vec<Shared>) {
    if pods.findings.found.is_empty() {
        return (pods, nodes, Vec::new());
    }
    // What the nodes' network lost over the pairs of each culprit of the pods'.
    let below = details::gather(scope, &pods.findings);
    let mut further: Vec<Finding> = Vec::new();
    for (finding, (pod, node)) in pods.findings.found.iter().zip(pods.details.iter().zip(&below)) {
        let is_known = nodes.findings.found.iter().any(|known| covers(scope, known.culprit, finding.culprit));
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
        nodes = Found::of(scope, nodes.findings);
    }
    let mut shared = Vec::new();
    for (place, finding) in pods.findings.found.iter().enumerate() {
        let both = pods.details[place].both;
        let explains = |known: &Finding| {
            covers(scope, known.culprit, finding.culprit)
                && (both.rate() <= known.rate * TIMES + EXTRA || is_alike(both, below[place].both))
        };
        // The same one rather than a wider one.
        let same = nodes.findings.found.iter().position(|it| it.culprit == finding.culprit && explains(it));
        pods.is_shared[place] = same.is_some() || nodes.findings.found.iter().any(explains);
        shared.extend(same.map(|node| Shared { pod: place, node }));
    }
    (pods, nodes, shared)
}

/// Whether whatever `narrow` is to blame for, `wide` is.
fn covers(scope: &Scope<'_>, wide: Culprit, narrow: Culprit) -> bool {
    let is_wide = is_of_zones(wide) || matches!(wide, Culprit::Node(_));
    match narrow {
        Culprit::Link(a, b) if is_wide => {
            let findings = Findings { domains: Arc::clone(scope.matrix.domains()), ..Findings::default() };
            findings.touches(scope, wide, (a, b))
        }
        _ => wide == narrow,
    }
}

/// Whether one rate explains both about as well as a rate of each one's own.
fn is_alike(pod: Tally, node: Tally) -> bool {
    let own = |tally: Tally| likelihood(tally.lost, tally.probes, tally.rate());
    let all = pod.plus(node);
    own(pod) + own(node) - likelihood(all.lost, all.probes, all.rate()) < APART
}

/// Whether the nodes' network is slow there, too.
pub fn is_slow_below(pod: &Slow, nodes: &[Slow]) -> bool {
    nodes.iter().any(|node| match (node.culprit, pod.culprit) {
        (Culprit::Node(slow), Culprit::Link(a, b)) => slow == a || slow == b,
        (wide, narrow) => wide == narrow,
    })
}
