//! Which attempts are evidence, and what the network already explains.

use kube_canary_model::check::{CheckFailure, CheckKind};
use kube_canary_model::report::{Method, Methods};
use kube_canary_model::verdict::{Figure, Kind, Verdict};

use crate::agents::Standing;
use crate::matrix::{BadAttempts, Matrix, RowPresence, TriedAttempts};
use crate::slices::yield_now;
use crate::subject;

/// Links lose by this method: bit 0 to 2 of what explains a node's failed attempts.
const fn bit(method: Method) -> u8 {
    1 << method as u8
}

const ALL_METHODS: u8 = bit(Method::Icmp) | bit(Method::Udp) | bit(Method::Tcp);
/// Links of the node are slow.
const SLOW: u8 = 1 << 3;
/// The node itself is the subject of a verdict.
const BAD_NODE: u8 = 1 << 4;
/// A check of the DNS fails for the node.
const DNS_FAILS: u8 = 1 << 5;
/// The check that is judged fails for the node.
const CHECK_FAILS: u8 = 1 << 6;
/// A check may fail this many times as often as links lose, since an attempt is several packets.
const TIMES: f64 = 1.5;
/// Seconds that a recent window covers, of a source that does not say it.
const WINDOW_SECONDS: f64 = 45.0;
const WINDOW_SECONDS_MAX: f64 = 60.0;

/// Returns the seconds that counters cover, of a source that says this.
pub fn window_seconds(seconds: f64) -> f64 {
    if seconds > 0.0 { seconds.min(WINDOW_SECONDS_MAX) } else { WINDOW_SECONDS }
}

/// What attempts are counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadOutcome {
    /// Attempts that failed, for any reason.
    Failed,
    /// Their answers were slow.
    Slow,
}

/// What explains bad attempts beside the checks.
#[derive(Debug)]
pub struct Explained {
    /// A set of bits of each node.
    of_nodes: Vec<u8>,
    /// The share that all links lose, by method.
    mesh: [f64; Method::ALL.len()],
    /// The share of nodes that are bad, or whose report is missing.
    bad_nodes: f64,
    /// The share of one node among all.
    one_node: f64,
}

impl Explained {
    /// Returns what the verdicts over the network explain, those that have ended as well.
    pub async fn by_network(matrix: &Matrix, verdicts: &[Verdict]) -> Self {
        let mut explained =
            Self { of_nodes: vec![0; matrix.node_count()], mesh: [0.0; 3], bad_nodes: 0.0, one_node: 1.0 };
        for verdict in verdicts.iter().filter(|verdict| verdict.kind.is_network_fault()) {
            yield_now().await;
            explained.add(matrix, verdict);
        }
        let is_absent = |node: &u16| {
            explained.of_nodes[usize::from(*node)] & BAD_NODE != 0
                || matches!(matrix.get(*node).presence, RowPresence::Missing)
        };
        let members = || matrix.numbers().filter(|node| !matrix.get(*node).is_leaving());
        explained.one_node = 1.0 / members().count().max(1) as f64;
        explained.bad_nodes = members().filter(is_absent).count() as f64 * explained.one_node;
        explained
    }

    fn add(&mut self, matrix: &Matrix, verdict: &Verdict) {
        // What UDP probes lack for a rewritten address is no loss.
        if verdict.figures.has(Figure::Rewritten) {
            return;
        }
        // A policy that drops the probes of all agents by one protocol, or a family without routes,
        // says nothing of what checks ask. It would hide them for as long as it is there.
        let is_wide = matches!(verdict.kind, Kind::Mesh | Kind::Paths | Kind::Partition);
        if is_wide && (verdict.family.is_some() || verdict.protocol.is_some_and(|methods| methods != Methods::ICMP)) {
            return;
        }
        let methods = verdict.protocol.map_or(ALL_METHODS, |methods| methods.iter().fold(0, |bits, of| bits | bit(of)));
        let own = if verdict.is_slow() { SLOW } else { methods };
        let bits = if verdict.kind == Kind::Node { own | BAD_NODE } else { own };
        if let (Kind::Mesh | Kind::Paths, false, Some(rate)) = (verdict.kind, verdict.is_slow(), verdict.loss_ratio()) {
            for method in Method::ALL.into_iter().filter(|method| methods & bit(*method) != 0) {
                let mesh = &mut self.mesh[method as usize];
                *mesh = mesh.max(rate);
            }
            return;
        }
        for node in matrix.numbers().filter(|node| is_part(matrix, verdict, *node)) {
            self.of_nodes[usize::from(node)] |= bits;
        }
    }

    /// Notes the nodes of which a check of the DNS fails: those of its causes, and those that have
    /// lost an answer.
    pub fn dns_fails(&mut self, matrix: &Matrix, check: u8, is_covered: impl Fn(u16, u8) -> bool) {
        for (_, bad) in matrix.attempts(check) {
            if let Some(bad) = bad.filter(|bad| bad.failed > 0) {
                self.of_nodes[usize::from(bad.node)] |= DNS_FAILS;
            }
        }
        self.set(matrix, DNS_FAILS, is_covered);
    }

    /// Notes the nodes of which the check that is judged fails, in place of those of another check.
    pub fn set_failing(&mut self, matrix: &Matrix, is_covered: impl Fn(u16, u8) -> bool) {
        self.of_nodes.iter_mut().for_each(|bits| *bits &= !CHECK_FAILS);
        self.set(matrix, CHECK_FAILS, is_covered);
    }

    fn set(&mut self, matrix: &Matrix, bits: u8, is_covered: impl Fn(u16, u8) -> bool) {
        for node in matrix.numbers().filter(|node| is_covered(*node, matrix.get(*node).zone)) {
            self.of_nodes[usize::from(node)] |= bits;
        }
    }
}

/// Whether a node is a part of the mesh that a verdict over the network is about.
fn is_part(matrix: &Matrix, verdict: &Verdict, node: u16) -> bool {
    let (subject, zone) = (verdict.subject.as_str(), matrix.zone_name(matrix.get(node).zone));
    let is = |name: &str| subject == name || name.len() > subject.len() && subject == subject::from_name(name);
    match verdict.kind {
        Kind::Node => is(matrix.name(node)),
        Kind::Zone => is(zone),
        Kind::ZonePair => verdict.ends().is_some_and(|(a, b)| zone == a || zone == b),
        Kind::Domain => is(matrix.domain_name(matrix.domain(node))),
        // Nothing can be sent by them. What all links lose has a rate.
        Kind::Mesh | Kind::Partition => true,
        _ => false,
    }
}

/// Returns what a check asks for, as most nodes report it of which it fails or is slow.
pub fn kind(matrix: &Matrix, check: u8) -> CheckKind {
    let mut counts = [0_u32; CheckKind::Other as usize + 1];
    for bad in matrix.attempts(check).filter_map(|(_, bad)| bad) {
        counts[bad.kind as usize] += 1;
    }
    let most = CheckKind::ALL.into_iter().rev().max_by_key(|kind| counts[*kind as usize]);
    most.filter(|kind| counts[*kind as usize] > 0).unwrap_or_default()
}

/// Returns why a check fails for most nodes of which it does.
pub fn reason(matrix: &Matrix, check: u8) -> Option<CheckFailure> {
    let mut counts = [0_u32; CheckFailure::ALL.len()];
    for reason in matrix.attempts(check).filter_map(|(_, bad)| bad?.reason) {
        counts[reason as usize] += 1;
    }
    CheckFailure::most_frequent(&counts)
}

/// Returns the methods whose losses explain that a check fails.
const fn methods(kind: CheckKind) -> u8 {
    match kind {
        CheckKind::Dns | CheckKind::Udp => bit(Method::Udp),
        CheckKind::Tcp | CheckKind::Tls | CheckKind::Http => bit(Method::Tcp),
        CheckKind::Icmp => bit(Method::Icmp),
        CheckKind::Service => bit(Method::Udp) | bit(Method::Tcp),
        CheckKind::Other => ALL_METHODS,
    }
}

/// The attempts of a node that count.
#[derive(Clone, Copy, Debug)]
pub struct NodeAttempts {
    /// Number of the node.
    pub node: u16,
    /// Number of its zone.
    pub zone: u8,
    /// Number of attempts, at least one.
    pub tried: u32,
    /// Number of those that are counted.
    pub hit: u32,
    /// Number of the last ones that failed, if failed ones are counted.
    pub failed_in_row: u32,
    /// The rest of what it reports, if some are bad.
    pub bad: Option<BadAttempts>,
}

impl NodeAttempts {
    /// Returns how many of the counted attempts failed in a row at last. What is older than the
    /// recent window has no weight, as everywhere else.
    pub fn in_row(&self) -> u32 {
        self.failed_in_row.min(self.hit)
    }
}

/// The evidence of one check, for one outcome.
pub struct Scope<'a> {
    /// What the nodes report.
    pub matrix: &'a Matrix,
    /// The standing of each node.
    pub standings: &'a [Standing],
    /// What is explained already.
    pub explained: &'a Explained,
    /// Place of the check in the judge's list.
    pub check: u8,
    /// What it asks for.
    pub kind: CheckKind,
    /// The outcome that is counted.
    pub outcome: BadOutcome,
    /// If only attempts of the last this many seconds count, because those before belong to a
    /// target that is over.
    pub since: Option<f64>,
}

impl Scope<'_> {
    /// Returns what counts, in the order of the numbers of the nodes. Nodes whose bad attempts are
    /// explained are left out.
    pub fn nodes(&self) -> impl Iterator<Item = NodeAttempts> {
        let sound = |node: u16| self.standings.get(usize::from(node)) == Some(&Standing::Sound);
        let attempts = self.matrix.attempts(self.check).filter(move |(attempts, _)| sound(attempts.node));
        attempts.filter_map(|(attempts, bad)| self.node(attempts, bad))
    }

    fn node(&self, attempts: TriedAttempts, bad: Option<BadAttempts>) -> Option<NodeAttempts> {
        let TriedAttempts { node, tried, .. } = attempts;
        let (hit, failed_in_row) = match (self.outcome, bad) {
            (_, None) => (0, 0),
            (BadOutcome::Failed, Some(bad)) => (bad.failed, bad.failed_in_row),
            (BadOutcome::Slow, Some(bad)) => (bad.slow, 0),
        };
        if bad.is_some_and(|bad| hit > 0 && self.is_explained(bad)) {
            return None;
        }
        let zone = self.matrix.get(node).zone;
        let [mut tried, mut hit, failed_in_row] = [tried, hit, failed_in_row].map(u32::from);
        if let Some(since) = self.since {
            let seconds = window_seconds(self.seconds(node));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of the attempts")]
            let later = (f64::from(tried) * (since / seconds).clamp(0.0, 1.0)) as u32;
            // What has failed for longer goes on since then.
            hit = if failed_in_row <= later { hit.min(failed_in_row) } else { 0 };
            tried = later.max(hit).max(1);
        }
        Some(NodeAttempts { node, zone, tried, hit, failed_in_row, bad })
    }

    /// Returns the seconds that the recent window of a node covers.
    pub fn seconds(&self, node: u16) -> f64 {
        self.matrix.row(node).map_or(0.0, |row| row.facts.covered_seconds()).into()
    }

    fn is_explained(&self, bad: BadAttempts) -> bool {
        let bits = self.explained.of_nodes[usize::from(bad.node)];
        let of_kind = methods(bad.kind);
        match (self.outcome, bad.reason) {
            (BadOutcome::Slow, _) => bits & (SLOW | CHECK_FAILS | of_kind) != 0,
            (_, Some(CheckFailure::Unresolved)) => bits & (DNS_FAILS | of_kind | bit(Method::Udp)) != 0,
            (_, Some(CheckFailure::Timeout | CheckFailure::NoRoute | CheckFailure::NotSent | CheckFailure::Closed)) => {
                bits & of_kind != 0
            }
            _ => false,
        }
    }

    /// Returns the share of bad attempts that the network explains at all nodes, 0 to 1: what all
    /// links lose, and for a Service of agents the share of nodes that are bad. A pod that is its
    /// own backend counts as bad too, unless it is known to reach itself: some networks drop what
    /// comes back to its sender.
    pub fn expected(&self) -> f64 {
        let of_kind = methods(self.kind);
        let lossy = Method::ALL.into_iter().filter(|method| of_kind & bit(*method) != 0);
        let mesh = lossy.map(|method| self.explained.mesh[method as usize]).fold(0.0, f64::max);
        let Explained { bad_nodes, one_node, .. } = self.explained;
        let itself = one_node * (1.0 - self.matrix.reaching_themselves(self.check));
        let [bad_nodes, itself] = if self.kind == CheckKind::Service { [*bad_nodes, itself] } else { [0.0; 2] };
        ((mesh + bad_nodes) * TIMES + itself).min(1.0)
    }
}
