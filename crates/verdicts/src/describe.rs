//! Makes verdicts of causes: their subjects, figures and names. `wording.rs` makes sentences of
//! them.

use super::causes::{Cause, DomainExtent, Findings, NO_GROUP};
use super::details::Detail;
use super::direction::{Directions, Requests};
use super::pairs::{NetworkScope, Pair};
use super::slow::Slow;
use super::subject;
use super::tally::Tally;
use super::{agents, search, weigh};
use crate::matrix::{Hole, Layer, LosingFlows, Matrix, RowPresence};
use kube_canary_model::method::Family;
use kube_canary_model::report::{HoleNotice, Network, Way};
use kube_canary_model::verdict::{
    Confidence, Direction, Example, Figure, Figures, GROUPS_MAX, Kind, MEMBERS_MAX, Mention, Severity, Verdict,
};

/// The subject of a verdict that is about no node, zone or link in particular.
const EVERYTHING: &str = "*";

fn loss(kind: Kind, subject: String, scope: &NetworkScope<'_>, detail: &Detail) -> Verdict {
    let [since_unix_seconds, calm_since_unix_seconds] =
        [detail.since(), detail.calm_since()].map(|moment| moment.map(|moment| scope.matrix.moment(moment)));
    let mut verdict =
        Verdict { since_unix_seconds, calm_since_unix_seconds, ..Verdict::new(kind, subject, scope.network) };
    if let Some(times) = detail.after_begin() {
        verdict.figures.set(Figure::AfterBeginTimes, times);
    }
    verdict
}

fn set_tally(figures: &mut Figures, [probes, lost]: [Figure; 2], tally: Tally) {
    if tally.probes > 0 {
        figures.set(probes, tally.probes.into());
        figures.set(lost, tally.lost.into());
    }
}

fn set_requests(figures: &mut Figures, [counted, missed]: [Figure; 2], requests: Requests) {
    let sent = requests.sent.round();
    figures.set(counted, sent);
    figures.set(missed, requests.missed.round().clamp(0.0, sent.max(0.0)));
}

/// Adds what was counted in both directions: `there` is to a node, or from the first end of a link.
fn set_directions(figures: &mut Figures, directions: &Directions, there: Requests, back: Requests) {
    set_requests(figures, [Figure::CountedThere, Figure::MissedThere], there);
    set_requests(figures, [Figure::CountedBack, Figure::MissedBack], back);
    figures.set(Figure::CountedByUdp, f64::from(u8::from(directions.is_by_udp)));
}

/// Adds what is lost elsewhere, which is the background, and what the pods' network loses if it
/// loses for the same reason.
pub fn beside(verdict: &mut Verdict, background: f64, pods: Option<Tally>) {
    if matches!(verdict.kind, Kind::Zone | Kind::ZonePair | Kind::Domain) {
        verdict.figures.set(Figure::ElsewhereRatio, background);
    }
    if let Some(pods) = pods {
        set_tally(&mut verdict.figures, [Figure::PodProbes, Figure::PodLost], pods);
    }
}

/// Adds what each protocol loses, and which one the verdict is about.
pub fn by_protocol(verdict: &mut Verdict, by_layer: &[Tally; Layer::ALL.len()]) {
    for (layer, of) in [
        (Layer::Icmp, [Figure::IcmpProbes, Figure::IcmpLost]),
        (Layer::Udp, [Figure::UdpProbes, Figure::UdpLost]),
        (Layer::Tcp, [Figure::TcpProbes, Figure::TcpLost]),
    ] {
        set_tally(&mut verdict.figures, of, by_layer[layer as usize]);
    }
}

/// Adds what each address family loses, if both are probed, and which one the verdict is about.
pub fn by_family(verdict: &mut Verdict, family: Option<Family>, [v4, v6]: [Tally; 2]) {
    if v4.probes > 0 && v6.probes > 0 {
        set_tally(&mut verdict.figures, [Figure::Ipv4Probes, Figure::Ipv4Lost], v4);
        set_tally(&mut verdict.figures, [Figure::Ipv6Probes, Figure::Ipv6Lost], v6);
    }
    verdict.family = family;
}

/// Adds the number of agents whose reports the cause keeps away.
pub fn with_unread(verdict: &mut Verdict, reports: u32) {
    verdict.figures.set(Figure::UnreadReports, reports.into());
}

/// Returns the verdict over a bad node.
pub fn node(scope: &NetworkScope<'_>, node: u16, detail: &Detail, directions: Option<Directions>) -> Verdict {
    let name = scope.matrix.name(node);
    let mut verdict = loss(Kind::Node, subject::from_name(name), scope, detail);
    let figures = &mut verdict.figures;
    for (of, tally, nodes, [all, hit]) in [
        ([Figure::ProbesTo, Figure::LostTo], detail.to, [Figure::Sources, Figure::SourcesHit], detail.sources),
        ([Figure::ProbesBy, Figure::LostBy], detail.by, [Figure::Targets, Figure::TargetsHit], detail.targets),
    ] {
        set_tally(figures, of, tally);
        if all > 0 {
            figures.set(nodes[0], all.into());
            figures.set(nodes[1], hit.into());
        }
    }
    let known = directions.filter(|directions| directions.direction != Direction::Both);
    if let Some(directions) = known {
        set_directions(figures, &directions, directions.inbound, directions.outbound);
    }
    verdict.direction = known.map_or(Direction::Both, |directions| directions.direction);
    if scope.matrix.get(node).presence == RowPresence::Missing {
        verdict.figures.set(Figure::AgentIsSilent, 1.0);
        verdict = verdict.mentioning(Mention::Error, scope.matrix.error(node));
    }
    verdict
}

fn wide(kind: Kind, subject: String, scope: &NetworkScope<'_>, detail: &Detail) -> Verdict {
    let mut verdict = loss(kind, subject, scope, detail);
    let [pairs, hit] = detail.pairs;
    set_tally(&mut verdict.figures, [Figure::Probes, Figure::Lost], detail.both);
    verdict.figures.set(Figure::Pairs, pairs.into());
    verdict.figures.set(Figure::PairsHit, hit.into());
    verdict
}

/// Returns the verdict over the links between two zones, or inside one.
pub fn zones(scope: &NetworkScope<'_>, zones: (u8, u8), detail: &Detail) -> Verdict {
    let (a, b) = zone_names(scope.matrix, zones);
    if a == b {
        return part(scope, (Kind::Zone, a), DomainExtent::Inside, detail);
    }
    wide(Kind::ZonePair, subject::from_ends(a, b), scope, detail)
}

/// Returns the verdict over a zone or failure domain that loses to all others, inside, or both.
pub fn part(scope: &NetworkScope<'_>, (kind, name): (Kind, &str), extent: DomainExtent, detail: &Detail) -> Verdict {
    let mut verdict = wide(kind, subject::from_name(name), scope, detail);
    match extent {
        DomainExtent::Outside => {}
        DomainExtent::Both => verdict.figures.set(Figure::WithInside, 1.0),
        DomainExtent::Inside => verdict.figures.move_inside(),
    }
    verdict
}

/// Returns the verdict over a failure domain that loses to all other nodes, or inside, or both.
pub fn domain(scope: &NetworkScope<'_>, domain: u8, extent: DomainExtent, detail: &Detail) -> Verdict {
    let name = scope.matrix.domain_name(domain);
    let mut verdict = part(scope, (Kind::Domain, name), extent, detail);
    let is_member = |node: &u16| {
        scope.matrix.domain(*node) == domain && scope.standings[usize::from(*node)].is_evidence_of_others()
    };
    let mut group: Vec<&str> = scope.matrix.numbers().filter(is_member).map(|node| scope.matrix.name(node)).collect();
    group.sort_unstable();
    set_members(&mut verdict, vec![group]);
    verdict
}

/// Adds the first [`MEMBERS_MAX`] names of each of the first [`GROUPS_MAX`] groups, and the number
/// of the others.
fn set_members(verdict: &mut Verdict, mut groups: Vec<Vec<&str>>) {
    let further = groups.iter().skip(GROUPS_MAX).map(Vec::len).sum::<usize>();
    groups.truncate(GROUPS_MAX);
    let left_out = further + groups.iter().map(|group| group.len().saturating_sub(MEMBERS_MAX)).sum::<usize>();
    if left_out > 0 {
        verdict.figures.set(Figure::MembersNotListed, left_out as f64);
    }
    let named = |group: Vec<&str>| group.into_iter().take(MEMBERS_MAX).map(str::to_owned).collect();
    verdict.members = groups.into_iter().map(named).collect();
}

/// Returns the verdict over groups that do not reach each other.
pub fn partition(scope: &NetworkScope<'_>, findings: &Findings, detail: &Detail) -> Verdict {
    let count = findings.groups.iter().filter(|group| **group != NO_GROUP).max().map_or(0, |most| *most + 1);
    let mut groups: Vec<Vec<&str>> = vec![Vec::new(); usize::from(count)];
    for node in scope.matrix.numbers() {
        let group = findings.groups.get(usize::from(node)).copied().unwrap_or(NO_GROUP);
        if let Some(group) = groups.get_mut(usize::from(group)) {
            group.push(scope.matrix.name(node));
        }
    }
    for group in &mut groups {
        group.sort_unstable();
    }
    groups.sort_unstable();
    let firsts: Vec<&str> = groups.iter().filter_map(|group| group.first().copied()).collect();
    let mut verdict = wide(Kind::Partition, subject::from_groups(&firsts), scope, detail);
    let sizes = groups.iter().map(|group| u16::try_from(group.len()).unwrap_or(u16::MAX));
    verdict.sizes = sizes.take(GROUPS_MAX).collect();
    set_members(&mut verdict, groups);
    verdict
}

/// Returns the verdict over a mesh in which all links lose alike, or over links on one of several
/// parallel paths.
pub fn everywhere(scope: &NetworkScope<'_>, kind: Kind, rate: f64, detail: &Detail) -> Verdict {
    let mut verdict = wide(kind, EVERYTHING.to_owned(), scope, detail);
    verdict.figures.set(Figure::LossRatio, rate);
    verdict
}

/// Returns the end whose report of loss is excluded by the other end's report.
pub fn reporter(pair: &Pair) -> Option<u16> {
    weigh::one_sided(pair, search::ONE_SIDED)
}

/// Returns the verdict over a bad link. The subject has the direction of the loss, if that is
/// known. Otherwise, if only one end loses, it has the direction of that end's requests: that is a
/// filter rather than a wire. Otherwise it is in the order of names.
pub fn link(scope: &NetworkScope<'_>, pair: &Pair, detail: &Detail, directions: Option<Directions>) -> Verdict {
    let direction = directions.map_or(Direction::Both, |directions| directions.direction);
    let measured = pair.is_measured_twice();
    let reporter = reporter(pair);
    let turned = match direction {
        Direction::In => true,
        Direction::Out => false,
        Direction::Both if reporter.is_some() => reporter == Some(pair.b),
        Direction::Both if measured && pair.there.lost == 0 => true,
        Direction::Both if measured && pair.back.lost == 0 => false,
        Direction::Both => scope.matrix.name(pair.b) < scope.matrix.name(pair.a),
    };
    let (from, to) = if turned { (pair.b, pair.a) } else { (pair.a, pair.b) };
    let names = (scope.matrix.name(from), scope.matrix.name(to));
    let mut verdict = loss(Kind::Link, subject::from_ends(names.0, names.1), scope, detail);
    let figures = &mut verdict.figures;
    set_tally(figures, [Figure::ProbesThere, Figure::LostThere], pair.measured_by(from));
    set_tally(figures, [Figure::ProbesBack, Figure::LostBack], pair.measured_by(to));
    if reporter.is_some() {
        // The subject begins with it.
        figures.set(Figure::ReportedByFirst, 1.0);
    }
    for (node, alone) in [(from, Figure::FirstIsAlone), (to, Figure::SecondIsAlone)] {
        if is_lone_end(scope, node) {
            figures.set(alone, 1.0);
        }
    }
    if let Some(directions) = directions.filter(|_| direction != Direction::Both) {
        let (there, back) =
            if turned { (directions.inbound, directions.outbound) } else { (directions.outbound, directions.inbound) };
        set_directions(figures, &directions, there, back);
        verdict.direction = Direction::Out;
    }
    verdict
}

/// Whether an end of a bad link may be the cause, because nothing else was measured of that node.
/// If only some agents were asked, most evidence about the node is missing.
fn is_lone_end(scope: &NetworkScope<'_>, node: u16) -> bool {
    if scope.matrix.row(node).is_some() {
        return false;
    }
    let mut pairs = 0;
    scope.each_pair_of(node, |_| pairs += 1);
    pairs == 1
}

/// Returns the verdict over a slow node, zone or link, or a slow mesh.
pub fn slow(scope: &NetworkScope<'_>, slow: &Slow) -> Verdict {
    let (kind, subject) = match slow.cause {
        Cause::Node(node) => (Kind::Node, subject::from_name(scope.matrix.name(node))),
        Cause::Zones(a, b) => match zone_names(scope.matrix, (a, b)) {
            (a, b) if a == b => (Kind::Zone, subject::from_name(a)),
            (a, b) => (Kind::ZonePair, subject::from_ends(a, b)),
        },
        Cause::Link(a, b) => {
            let (a, b) = (scope.matrix.name(a), scope.matrix.name(b));
            (Kind::Link, subject::from_ends(a.min(b), a.max(b)))
        }
        // No other cause is possible.
        _ => (Kind::Mesh, EVERYTHING.to_owned()),
    };
    let mut verdict = Verdict::new(kind, subject, scope.network);
    let [rtt_us, usual_us] = [slow.rtt_us, slow.usual_us].map(f64::from);
    verdict.figures = Figures::default().with([
        (Figure::RttSeconds, rtt_us / 1e6),
        (Figure::UsualRttSeconds, usual_us / 1e6),
        (Figure::PairsHit, slow.pairs.into()),
        (Figure::Pairs, slow.of.into()),
    ]);
    (verdict.weight, verdict.severity) = (rtt_us / usual_us, Severity::Warning);
    match slow.by {
        Some(by) => verdict.mentioning(Mention::By, scope.matrix.zone_name(by)),
        None => verdict,
    }
}

fn example(matrix: &Matrix, flow: &LosingFlows) -> Example {
    let [from, to] = [flow.source, flow.peer].map(|node| matrix.name(node).to_owned());
    let LosingFlows { source_port, losing, probed, way, .. } = *flow;
    Example { from, to, source_port, losing, probed, way }
}

/// Returns the verdict over a flow that loses while the others of its link do not.
pub fn flow(matrix: &Matrix, flow: &LosingFlows) -> Verdict {
    let (from, to) = in_direction(flow.source, flow.peer, flow.way);
    let subject = subject::from_ends(matrix.name(from), matrix.name(to));
    let figures = Figures::default().with([
        (Figure::Lost, flow.lost.into()),
        (Figure::Probes, flow.probes.into()),
        (Figure::FlowRatio, f64::from(flow.losing) / f64::from(flow.probed.max(1))),
    ]);
    Verdict {
        direction: if flow.way == Way::Unknown { Direction::Both } else { Direction::Out },
        figures,
        example: Some(example(matrix, flow)),
        weight: flow.lost.into(),
        ..Verdict::new(Kind::Flow, subject, Network::Pod)
    }
}

/// Returns the verdict over the same share of flows of many pairs: those of a node, or those on one
/// of several parallel paths.
pub fn flows(
    matrix: &Matrix,
    network: Network,
    node: Option<u16>,
    pairs: usize,
    share: f64,
    worst: &LosingFlows,
) -> Verdict {
    let (kind, subject) = match node {
        Some(node) => (Kind::Node, subject::from_name(matrix.name(node))),
        None => (Kind::Paths, EVERYTHING.to_owned()),
    };
    let figures = Figures::default().with([(Figure::FlowRatio, share), (Figure::PairsHit, pairs as f64)]);
    Verdict { figures, example: Some(example(matrix, worst)), weight: share, ..Verdict::new(kind, subject, network) }
}

fn set_hole(figures: &mut Figures, hole: Hole) {
    figures.set(Figure::PassesBytes, hole.passes_bytes.into());
    match hole.said {
        HoleNotice::TooBig => figures.set(Figure::SaysTooBig, 1.0),
        HoleNotice::Silent => figures.set(Figure::SaysNothing, 1.0),
        HoleNotice::Other => {}
    }
}

/// Returns the verdict over a link that large packets do not pass.
pub fn hole(matrix: &Matrix, hole: Hole) -> Verdict {
    let (from, to) = in_direction(hole.source, hole.peer, hole.way);
    let subject = subject::from_ends(matrix.name(from), matrix.name(to));
    let mut verdict = Verdict::new(Kind::Mtu, subject, Network::Pod);
    verdict.direction = if hole.way == Way::Unknown { Direction::Both } else { Direction::Out };
    set_hole(&mut verdict.figures, hole);
    verdict
}

/// Returns the verdict over many links that large packets do not pass: those of a node, or of all.
pub fn holes(matrix: &Matrix, node: Option<u16>, (pairs, of): (usize, usize), example: Hole) -> Verdict {
    let subject = node.map_or_else(|| EVERYTHING.to_owned(), |node| subject::from_name(matrix.name(node)));
    let mut verdict = Verdict::new(Kind::Mtu, subject, Network::Pod);
    set_hole(&mut verdict.figures, example);
    verdict.figures.set(Figure::PairsHit, pairs as f64);
    verdict.figures.set(Figure::Pairs, of as f64);
    let (from, to) = in_direction(example.source, example.peer, example.way);
    let [from, to] = [from, to].map(|node| matrix.name(node).to_owned());
    Verdict { example: Some(Example { from, to, ..Example::default() }), weight: pairs as f64, ..verdict }
}

/// Returns the verdict over a starved agent.
pub fn starved(matrix: &Matrix, node: u16) -> Verdict {
    let mut verdict = agent_verdict(Kind::AgentStarved, matrix.name(node));
    verdict.figures = matrix.row(node).map(|row| agents::symptoms(&row.facts)).unwrap_or_default();
    verdict
}

/// Returns the verdict over an agent that does not answer. Its node answers probes,
/// or is not probed.
pub fn unreachable(matrix: &Matrix, node: u16, detail: &Detail) -> Verdict {
    let mut verdict = agent_verdict(Kind::AgentUnreachable, matrix.name(node));
    set_tally(&mut verdict.figures, [Figure::ProbesTo, Figure::LostTo], detail.to);
    verdict.figures.set(Figure::Sources, detail.sources[0].into());
    verdict.mentioning(Mention::Error, matrix.error(node))
}

/// Returns the verdict over a judge that adds a verdict to what the two others find, or lacks one
/// of theirs.
pub fn suspect(node: &str, adds: bool, disputed: &Verdict) -> Verdict {
    let mut suspect = agent_verdict(Kind::AgentSuspect, node);
    suspect.figures.set(if adds { Figure::Adds } else { Figure::Lacks }, 1.0);
    let suspect = suspect.mentioning(Mention::Disputed, &format!("{} {}", disputed.kind.label(), disputed.subject));
    Verdict { id: subject::id(&suspect), ..suspect }
}

fn agent_verdict(kind: Kind, node: &str) -> Verdict {
    Verdict { confidence: Confidence::Certain, ..Verdict::new(kind, subject::from_name(node), Network::Pod) }
}

fn zone_names(matrix: &Matrix, (a, b): (u8, u8)) -> (&str, &str) {
    let (a, b) = (matrix.zone_name(a), matrix.zone_name(b));
    (a.min(b), a.max(b))
}

/// Returns the ends of a link in the direction of its loss.
pub const fn in_direction(source: u16, peer: u16, way: Way) -> (u16, u16) {
    if matches!(way, Way::In) { (peer, source) } else { (source, peer) }
}
