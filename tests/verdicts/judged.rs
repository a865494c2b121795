//! The quality of the verdicts over a generated mesh. Each verdict is true or false, and each
//! visible fault is found or not.

use std::collections::BTreeMap;

use kube_canary::mesh::verdicts::wording::{evidence, summary};
use kube_canary::mesh::verdicts::{Confidence, Direction, Kind, Verdict};
use kube_canary::report::{Method, Methods, Network};

use super::mesh::{Fault, Plan, Reach, domain_name, group, name, zone_name};

/// The loss from which a fault must be found: of all round trips over a node, and over a link.
pub const NODE_MUST: f64 = 0.05;
pub const LINK_MUST: f64 = 0.15;
/// Pairs of a bad node that must be measured if only a part of the reports was requested.
const SAMPLED_PAIRS_MIN: usize = 6;

/// The counts of one kind of mesh.
#[derive(Clone, Copy, Debug, Default)]
pub struct Score {
    pub meshes: u32,
    pub verdicts: u32,
    pub true_verdicts: u32,
    pub must: u32,
    pub found: u32,
    /// Verdicts about a loss in one direction only that name the right direction, of all such
    /// verdicts that name one.
    pub one_way: u32,
    pub directed: u32,
    pub direction_right: u32,
}

impl Score {
    pub fn precision(&self) -> f64 {
        if self.verdicts == 0 { 1.0 } else { f64::from(self.true_verdicts) / f64::from(self.verdicts) }
    }

    pub fn recall(&self) -> f64 {
        if self.must == 0 { 1.0 } else { f64::from(self.found) / f64::from(self.must) }
    }

    pub fn add(&mut self, other: &Self) {
        for (to, from) in [
            (&mut self.meshes, other.meshes),
            (&mut self.verdicts, other.verdicts),
            (&mut self.true_verdicts, other.true_verdicts),
            (&mut self.must, other.must),
            (&mut self.found, other.found),
            (&mut self.one_way, other.one_way),
            (&mut self.directed, other.directed),
            (&mut self.direction_right, other.direction_right),
        ] {
            *to += from;
        }
    }
}

/// Prints a table with a line per kind of mesh, and returns the sum.
pub fn print(title: &str, scores: &BTreeMap<String, Score>) -> Score {
    let mut all = Score::default();
    say!("{title}\n{:28} meshes verdicts precision must recall | one way: named right", "");
    for (label, score) in scores {
        all.add(score);
        line(label, score);
    }
    line("all", &all);
    all
}

fn line(label: &str, score: &Score) {
    say!(
        "{label:28} {:6} {:8} {:8.2}% {:5} {:6.2}% | {:6} {:6} {:6}",
        score.meshes,
        score.verdicts,
        score.precision() * 100.0,
        score.must,
        score.recall() * 100.0,
        score.one_way,
        score.directed,
        score.direction_right
    );
}

/// Returns the loss of a round trip, from the losses of its two directions.
fn round_trip(there: f64, back: f64) -> f64 {
    1.0 - (1.0 - there) * (1.0 - back)
}

fn is_pair(subject: &str, a: &str, b: &str) -> bool {
    subject == format!("{a}->{b}") || subject == format!("{b}->{a}")
}

/// Whether a verdict is about this fault, its direction left aside.
fn is_about(verdict: &Verdict, fault: &Fault, plan: &Plan, probed: &[Vec<usize>]) -> bool {
    let (kind, subject, loss) = (verdict.kind, verdict.subject.as_str(), verdict.is_loss());
    let network = match plan.reach {
        None | Some(Reach::Pods) => Network::Pod,
        Some(Reach::Both | Reach::Nodes) => Network::Node,
    };
    let of_agent = matches!(fault, Fault::Starved { .. } | Fault::NoRow { .. });
    if !of_agent && verdict.network != network {
        return false;
    }
    match *fault {
        // In a mesh of two nodes, no observer can say which is bad.
        Fault::Node { node, .. } if plan.nodes == 2 => {
            kind == Kind::Link && loss && is_pair(subject, &name(0), &name(1)) || subject == name(node)
        }
        // The same holds if only one of the reporting nodes probes it, and says so.
        Fault::Node { node, .. } if plan.rows.is_some() && !plan.has_row(node) && watchers(node, plan, probed) == 1 => {
            let says_so = evidence(verdict).ends_with(&format!("it may be {}", name(node)));
            kind == Kind::Link && loss && subject.split("->").any(|end| end == name(node)) && says_so
        }
        Fault::Node { node, .. } => kind == Kind::Node && loss && subject == name(node),
        Fault::Link { a, b, .. } => kind == Kind::Link && loss && is_pair(subject, &name(a), &name(b)),
        Fault::Zones { a, b, .. } => kind == Kind::ZonePair && loss && is_pair(subject, &zone_name(a), &zone_name(b)),
        Fault::Mesh { .. } => kind == Kind::Mesh && loss && subject == "*",
        Fault::Path { .. } => kind == Kind::Paths && subject == "*",
        Fault::Split { bounds, .. } => kind == Kind::Partition && is_split(verdict, bounds, plan),
        Fault::CutOff { zone, .. } if plan.zones == 2 => {
            kind == Kind::ZonePair && loss && is_pair(subject, &zone_name(zone), &zone_name(1 - zone))
        }
        Fault::CutOff { zone, .. } | Fault::Inside { zone, .. } => {
            kind == Kind::Zone && loss && subject == zone_name(zone)
        }
        Fault::DomainCut { domain, .. } | Fault::DomainInside { domain, .. } => {
            kind == Kind::Domain && loss && subject == domain_name(domain)
        }
        Fault::Liar { node, .. } => {
            kind == Kind::Node && subject == name(node)
                || kind == Kind::Link
                    && subject.starts_with(&format!("{}->", name(node)))
                    && verdict.confidence == Confidence::Likely
        }
        Fault::Filter { from, to } => {
            kind == Kind::Link
                && subject == format!("{}->{}", name(from), name(to))
                // Until a window has passed, both ends lose too little to contradict each other.
                && (plan.since.is_some() || verdict.confidence == Confidence::Likely)
        }
        Fault::SlowNode { node, .. } => kind == Kind::Node && !loss && subject == name(node),
        Fault::SlowLink { a, b, .. } => kind == Kind::Link && !loss && is_pair(subject, &name(a), &name(b)),
        Fault::SlowZones { a, b, .. } => {
            kind == Kind::ZonePair && !loss && is_pair(subject, &zone_name(a), &zone_name(b))
        }
        Fault::SlowMesh { .. } => kind == Kind::Mesh && !loss && subject == "*",
        Fault::SaysSlow { .. }
        | Fault::Young { .. }
        | Fault::Restarted { .. }
        | Fault::Frozen { .. }
        | Fault::Older { .. } => false,
        Fault::Starved { node, .. } => kind == Kind::AgentStarved && subject == name(node),
        Fault::NoRow { node } => kind == Kind::AgentUnreachable && subject == name(node),
    }
}

/// Whether a partition's groups are those of the fault.
fn is_split(verdict: &Verdict, bounds: (usize, usize), plan: &Plan) -> bool {
    let mut groups = vec![Vec::new(); 1 + group(bounds, plan.nodes - 1)];
    for node in 0..plan.nodes {
        groups[group(bounds, node)].push(name(node));
    }
    // A node that hardly reaches its own group may be in none.
    let is_lost = |node: &String| {
        let of = |fault: &Fault| match *fault {
            Fault::Node { node: bad, inwards, outwards } => name(bad) == *node && round_trip(inwards, outwards) > 0.75,
            _ => false,
        };
        plan.faults.iter().any(of) && !verdict.members.concat().contains(node)
    };
    for group in &mut groups {
        group.retain(|node| !is_lost(node));
    }
    for group in &mut groups {
        group.sort();
    }
    groups.sort();
    for group in &mut groups {
        group.truncate(64);
    }
    let firsts: Vec<&str> = groups.iter().map(|group| group[0].as_str()).collect();
    verdict.members == groups && verdict.subject == firsts.join("|")
}

/// The only direction in which a fault loses, as a verdict names it, with a link's subject.
fn only_way(fault: &Fault) -> Option<(Direction, Option<String>)> {
    match *fault {
        Fault::Node { inwards, outwards, .. } if outwards == 0.0 && inwards > 0.0 => Some((Direction::In, None)),
        Fault::Node { inwards, outwards, .. } if inwards == 0.0 && outwards > 0.0 => Some((Direction::Out, None)),
        Fault::Link { a, b, there, back } if back == 0.0 && there > 0.0 => {
            Some((Direction::Out, Some(format!("{}->{}", name(a), name(b)))))
        }
        Fault::Link { a, b, there, back } if there == 0.0 && back > 0.0 => {
            Some((Direction::Out, Some(format!("{}->{}", name(b), name(a)))))
        }
        _ => None,
    }
}

/// Whether the named direction is the right one.
fn is_right_way(verdict: &Verdict, fault: &Fault) -> bool {
    let only = only_way(fault);
    only.is_some_and(|(way, subject)| way == verdict.direction && subject.is_none_or(|it| it == verdict.subject))
}

/// The number of reporting nodes that probe `node`.
fn watchers(node: usize, plan: &Plan, probed: &[Vec<usize>]) -> usize {
    (0..plan.nodes).filter(|other| plan.has_row(*other) && probed[*other].contains(&node)).count()
}

/// Whether 60 probes must show the fault.
fn must_be_found(fault: &Fault, plan: &Plan, probed: &[Vec<usize>]) -> bool {
    let measures = |from: usize, to: usize| plan.has_row(from) && probed[from].contains(&to);
    let pairs = |node: usize| (0..plan.nodes).filter(|other| measures(node, *other) || measures(*other, node)).count();
    match *fault {
        // If only a part of the mesh reports, there may be no report about this node.
        Fault::Node { node, inwards, outwards } => {
            let enough = if plan.rows.is_some() { SAMPLED_PAIRS_MIN } else { 2 };
            round_trip(inwards, outwards) >= NODE_MUST && pairs(node) >= enough
        }
        Fault::Link { a, b, there, back } => round_trip(there, back) >= LINK_MUST && (measures(a, b) || measures(b, a)),
        Fault::Zones { rate, .. }
        | Fault::CutOff { rate, .. }
        | Fault::Inside { rate, .. }
        | Fault::DomainCut { rate, .. }
        | Fault::DomainInside { rate, .. } => round_trip(rate, rate) >= NODE_MUST,
        // Its node may be the cause.
        Fault::NoRow { node } => {
            let is_cause = |fault: &Fault| match *fault {
                Fault::Node { node: bad, .. } => bad == node,
                // The reports are lost with all of TCP.
                Fault::Mesh { rate } => rate >= 1.0,
                _ => false,
            };
            !plan.every_fault().any(|(_, fault)| is_cause(fault))
        }
        Fault::Starved { node, .. } => plan.has_row(node),
        Fault::Mesh { rate } => (plan.nodes >= 12 || plan.since.is_some()) && round_trip(rate, rate) >= 0.01,
        Fault::Liar { .. }
        | Fault::SaysSlow { .. }
        | Fault::Young { .. }
        | Fault::Restarted { .. }
        | Fault::Frozen { .. }
        | Fault::Older { .. } => false,
        _ => true,
    }
}

/// Whether a verdict names the protocols of a fault: all that have the same one, or none if all
/// that are measured share it.
fn is_by(verdict: &Verdict, fault: &Fault, method: Option<Method>, plan: &Plan) -> bool {
    let same = plan.every_fault().filter(|(_, other)| *other == fault).filter_map(|(method, _)| method);
    let expected = if plan.protocols && method.is_some() { Some(Methods::new(same)) } else { None };
    verdict.protocol == expected
}

/// Whether the protocol of a fault has enough probes to show it.
fn has_enough(fault: &Fault, method: Option<Method>, plan: &Plan, probed: &[Vec<usize>]) -> bool {
    // All of it is lost, if only for some seconds.
    if method != Some(Method::Tcp) || plan.since.is_some() {
        return true;
    }
    match *fault {
        Fault::Node { node, inwards, outwards } => {
            let pairs = probed[node].len() as f64;
            // This many of the node's handshakes of a minute are lost.
            round_trip(inwards, outwards) * pairs * 12.0 >= 14.0
        }
        Fault::Link { there, back, .. } => round_trip(there, back) >= 0.7,
        Fault::Mesh { rate } => plan.nodes >= 12 && rate >= 0.05,
        _ => false,
    }
}

/// Compares the verdicts with the plan, and returns the counts.
pub fn score(plan: &Plan, probed: &[Vec<usize>], verdicts: &[Verdict], report: bool) -> Score {
    let mut score = Score { meshes: 1, ..Score::default() };
    for verdict in verdicts {
        let fault = plan
            .every_fault()
            .find(|(method, fault)| is_about(verdict, fault, plan, probed) && is_by(verdict, fault, *method, plan));
        let fault = fault.map(|(_, fault)| fault);
        let is_directed = verdict.direction != Direction::Both;
        let right = fault.is_some_and(|fault| !is_directed || is_right_way(verdict, fault));
        score.verdicts += 1;
        score.true_verdicts += u32::from(right);
        if fault.is_some_and(|fault| only_way(fault).is_some()) {
            score.one_way += 1;
            score.directed += u32::from(is_directed);
            score.direction_right += u32::from(is_directed && right);
        }
        if report && !right {
            say!(
                "FALSE {} {:?} {:?} {}: {} in {plan:?}",
                verdict.subject,
                verdict.protocol,
                verdict.direction,
                summary(verdict),
                evidence(verdict)
            );
        }
    }
    let must = |method: Option<Method>, fault: &Fault| {
        must_be_found(fault, plan, probed) && has_enough(fault, method, plan, probed)
    };
    for (method, fault) in plan.every_fault().filter(|(method, fault)| must(*method, fault)) {
        let found = verdicts
            .iter()
            .any(|verdict| is_about(verdict, fault, plan, probed) && is_by(verdict, fault, method, plan));
        score.must += 1;
        score.found += u32::from(found);
        if report && !found {
            say!("MISSED {fault:?} in {plan:?}: {verdicts:?}");
        }
    }
    score
}
