//! Writes verdicts as sentences with their figures.

use std::fmt::Write as _;

use super::causes::{Cause, Extent, Findings, NO_GROUP};
use super::details::Detail;
use super::direction::{Direction, Directions, Requests};
use super::links;
use super::pairs::{Pair, Scope, Tally};
use super::protocols::ByMethod;
use super::slow::Slow;
use super::subject;
use super::{Confidence, Kind, OfNetwork, Severity, Verdict, agents, search};
use crate::matrix::{Hole, LosingFlows, Matrix, Presence};
use kube_canary_model::report::{Method, Network, Said, Way};

/// The subject of a verdict that is about no node, zone or link in particular.
const EVERYTHING: &str = "*";
/// From this loss on, a zone or domain is called cut off.
const CUT_OFF: f64 = 0.9;
/// Largest number of listed members per group.
pub const MEMBERS_MAX: usize = 64;

fn verdict(kind: Kind, subject: String, network: Network) -> Verdict {
    Verdict {
        id: String::new(),
        kind,
        subject,
        members: Vec::new(),
        confidence: Confidence::Likely,
        severity: Severity::Info,
        direction: Direction::Both,
        network: if network == Network::Node { OfNetwork::Node } else { OfNetwork::Pod },
        protocol: None,
        evidence: String::new(),
        since_unix_seconds: None,
        calm_since_unix_seconds: None,
        ended_unix_seconds: None,
        judges: None,
        unconfirmed: false,
        is_loss: false,
        summary: String::new(),
        weight: 0.0,
    }
}

fn loss(kind: Kind, subject: String, scope: &Scope<'_>, detail: &Detail) -> Verdict {
    let [since_unix_seconds, calm_since_unix_seconds] =
        [detail.since(), detail.calm_since()].map(|moment| moment.map(|moment| scope.matrix.moment(moment)));
    Verdict { is_loss: true, since_unix_seconds, calm_since_unix_seconds, ..verdict(kind, subject, scope.network) }
}

fn percent(rate: f64) -> String {
    if rate > 0.0 && rate < 0.000_5 { "less than 0.1 %".into() } else { format!("{:.1} %", rate * 100.0) }
}

fn time(us: f32) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.0} µs"),
        us if us < 100_000.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.0} ms", us / 1e3),
    }
}

/// Returns the network for headlines; empty for the pods' network, which is the default.
pub const fn where_to(network: Network) -> &'static str {
    if matches!(network, Network::Node) { " (node network)" } else { "" }
}

fn in_words(direction: Direction) -> &'static str {
    match direction {
        Direction::In => " inbound",
        Direction::Out => " outbound",
        Direction::Both => "",
    }
}

fn of_requests(unit: &str, requests: Requests, whose: &str) -> String {
    // A count slightly above what was sent rounds to -0, which `clamp` does not change:
    // `abs` removes the sign.
    let (sent, missed) = (requests.sent.round(), requests.missed.round().clamp(0.0, requests.sent.round()).abs());
    format!("{missed:.0} of {sent:.0} {unit} {whose}")
}

/// From this loss of all links on, a rule of the cluster may be the cause of what UDP or TCP alone
/// loses. After twelve seconds of a minute, a rule has dropped so much.
const RULE: f64 = 0.2;

/// Adds what each protocol loses, and which one the verdict is about.
pub fn by_protocol(verdict: &mut Verdict, protocol: Option<Method>, by_method: &ByMethod) {
    let measured = Method::ALL.into_iter().zip(by_method).filter(|(_, tally)| tally.probes > 0);
    let rates: Vec<String> =
        measured.map(|(method, tally)| format!("{} {}", method.name(), percent(tally.rate()))).collect();
    // Writing to a String cannot fail.
    let _ = write!(verdict.evidence, "; by protocol: {}", rates.join(", "));
    let Some(protocol) = protocol else { return };
    let _ = write!(verdict.summary, " ({} only)", protocol.name());
    let (own, name) = (by_method[protocol as usize].rate(), protocol.name());
    if verdict.kind == Kind::Mesh && protocol != Method::Icmp && own >= RULE {
        let _ = write!(verdict.evidence, "; a NetworkPolicy or a firewall may not let {name} through");
    }
}

/// Adds that only the report of `name` could be read.
pub fn as_one_report_sees(verdict: &mut Verdict, name: &str) {
    // Writing to a String cannot fail.
    let _ = write!(verdict.summary, ", as far as {name} sees");
    let _ = write!(verdict.evidence, "; only the report of {name} could be read, so it may also be {name} alone");
}

/// Adds the number of agents whose reports the cause keeps away.
pub fn with_unread(verdict: &mut Verdict, reports: u32) {
    let noun = if reports == 1 { "report" } else { "reports" };
    let _ = write!(verdict.evidence, "; for this reason {reports} {noun} could not be read");
}

/// Returns the text about the pods' network, if it loses for the same reason.
fn of_pods(likewise: Option<Tally>) -> String {
    likewise.map(|tally| format!("; so does the pod network, {}", percent(tally.rate()))).unwrap_or_default()
}

/// Returns the verdict over a bad node.
pub fn node(
    scope: &Scope<'_>,
    node: u16,
    detail: &Detail,
    directions: Option<Directions>,
    likewise: Option<Tally>,
) -> Verdict {
    let name = scope.matrix.name(node);
    let mut evidence = String::new();
    let ([sources, losing], [targets, losing_targets]) = (detail.sources, detail.targets);
    // Writing to a String cannot fail.
    if sources > 0 {
        let rate = percent(detail.to.rate());
        let _ = write!(evidence, "loses {rate} of the probes from {losing} of {sources} sources");
    }
    if targets > 0 {
        let rate = percent(detail.by.rate());
        let lead = if sources > 0 { ", and " } else { "loses " };
        let _ = write!(evidence, "{lead}{rate} of its own to {losing_targets} of {targets} nodes");
    }
    if scope.matrix.get(node).presence == Presence::Missing {
        let _ = write!(evidence, "; its agent does not answer either ({})", scope.matrix.error(node));
    }
    evidence += &of_pods(likewise);
    let known = directions.filter(|directions| directions.direction != Direction::Both);
    if let Some(directions) = known {
        let of = |requests: Requests, whose: &str| of_requests(directions.unit, requests, whose);
        let (inbound, outbound) = (of(directions.inbound, "to it"), of(directions.outbound, "from it"));
        let _ = write!(evidence, "; {inbound} were lost, and {outbound}");
    }
    let direction = known.map_or(Direction::Both, |directions| directions.direction);
    let links = if sources > 0 {
        format!("from {losing} of {sources} sources")
    } else {
        format!("to {losing_targets} of {targets} nodes")
    };
    let summary = format!("{name} is losing packets {links}{}{}", in_words(direction), where_to(scope.network));
    Verdict { direction, evidence, summary, ..loss(Kind::Node, subject::of_one(name), scope, detail) }
}

/// Returns the verdict over the links between two zones, or inside one.
pub fn zones(scope: &Scope<'_>, zones: (u8, u8), detail: &Detail, background: f64, likewise: Option<Tally>) -> Verdict {
    let (a, b) = zone_names(scope.matrix, zones);
    let (between, summary, kind, subject) = if a == b {
        (format!("within zone {a}"), format!("zone {a}"), Kind::Zone, subject::of_one(a))
    } else {
        let between = format!("between zones {a} and {b}");
        (between, format!("zone {a} <-> zone {b}"), Kind::ZonePair, subject::of_two(a, b))
    };
    let evidence = of_wide(&between, detail, background, likewise);
    let summary = format!("{summary} is losing packets{}", where_to(scope.network));
    Verdict { evidence, summary, ..loss(kind, subject, scope, detail) }
}

/// Returns the verdict over a zone or failure domain that loses to all `others`, inside, or both.
fn part(
    scope: &Scope<'_>,
    (kind, name, others): (Kind, &str, &str),
    extent: Extent,
    detail: &Detail,
    background: f64,
    likewise: Option<Tally>,
) -> Verdict {
    let noun = if kind == Kind::Zone { "zone" } else { "domain" };
    let between = match extent {
        Extent::Outside => format!("between {noun} {name} and all {others}"),
        Extent::Inside => format!("within {noun} {name}"),
        Extent::Both => format!("between {noun} {name} and all {others}, and within it,"),
    };
    let evidence = of_wide(&between, detail, background, likewise);
    let is_cut_off = extent == Extent::Outside && detail.both.rate() >= CUT_OFF;
    let others = if kind == Kind::Zone { "other zones" } else { others };
    let finding = if is_cut_off { format!("is cut off from all {others}") } else { "is losing packets".to_owned() };
    let summary = format!("{noun} {name} {finding}{}", where_to(scope.network));
    Verdict { evidence, summary, ..loss(kind, subject::of_one(name), scope, detail) }
}

/// Returns the verdict over a zone that loses to all others, and if `inside` also inside.
pub fn zone(
    scope: &Scope<'_>,
    (zone, inside): (u8, bool),
    detail: &Detail,
    background: f64,
    likewise: Option<Tally>,
) -> Verdict {
    let extent = if inside { Extent::Both } else { Extent::Outside };
    part(scope, (Kind::Zone, scope.matrix.zone_name(zone), "others"), extent, detail, background, likewise)
}

/// Returns the verdict over a failure domain that loses to all other nodes, or inside, or both.
pub fn domain(
    scope: &Scope<'_>,
    (domain, extent): (u8, Extent),
    detail: &Detail,
    background: f64,
    likewise: Option<Tally>,
) -> Verdict {
    let name = scope.matrix.domain_name(domain);
    let verdict = part(scope, (Kind::Domain, name, "other nodes"), extent, detail, background, likewise);
    let is_member = |node: &u16| {
        scope.matrix.domain(*node) == domain && scope.standings[usize::from(*node)].is_evidence_of_others()
    };
    let mut group: Vec<&str> = scope.matrix.numbers().filter(is_member).map(|node| scope.matrix.name(node)).collect();
    group.sort_unstable();
    let mut evidence = verdict.evidence;
    let members = members(vec![group], &mut evidence);
    Verdict { members, evidence, ..verdict }
}

fn of_wide(between: &str, detail: &Detail, background: f64, likewise: Option<Tally>) -> String {
    let [pairs, losing] = detail.pairs;
    format!(
        "{} of the probes {between} are lost, on {losing} of {pairs} pairs of nodes; elsewhere {}{}",
        percent(detail.both.rate()),
        percent(background),
        of_pods(likewise)
    )
}

/// Returns the first [`MEMBERS_MAX`] names of each group, and adds the number of the others to
/// `evidence`.
fn members(groups: Vec<Vec<&str>>, evidence: &mut String) -> Vec<Vec<String>> {
    let left_out = groups.iter().map(|group| group.len().saturating_sub(MEMBERS_MAX)).sum::<usize>();
    if left_out > 0 {
        // Writing to a String cannot fail.
        let _ = write!(evidence, "; {left_out} members are not listed");
    }
    let named = |group: Vec<&str>| group.into_iter().take(MEMBERS_MAX).map(str::to_owned).collect();
    groups.into_iter().map(named).collect()
}

/// Returns the verdict over groups that do not reach each other.
pub fn partition(scope: &Scope<'_>, findings: &Findings, detail: &Detail, likewise: Option<Tally>) -> Verdict {
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
    let sizes: Vec<String> = groups.iter().map(|group| group.len().to_string()).collect();
    let firsts: Vec<&str> = groups.iter().filter_map(|group| group.first().copied()).collect();
    let [pairs, losing] = detail.pairs;
    let mut evidence = format!(
        "{} of the probes between groups of {} nodes are lost, on {losing} of {pairs} pairs; the groups begin with {}",
        percent(detail.both.rate()),
        sizes.join(" and "),
        firsts.join(" and ")
    );
    let subject = subject::of_groups(&firsts);
    let members = members(groups, &mut evidence);
    evidence += &of_pods(likewise);
    let sizes = sizes.join(" | ");
    let summary = format!("the mesh is split: {sizes} nodes do not reach each other{}", where_to(scope.network));
    Verdict { members, evidence, summary, ..loss(Kind::Partition, subject, scope, detail) }
}

/// Returns the verdict over a mesh in which all links lose alike.
pub fn mesh(scope: &Scope<'_>, rate: f64, detail: &Detail, likewise: Option<Tally>) -> Verdict {
    let [pairs, losing] = detail.pairs;
    let evidence = format!(
        "{} of the probes are lost on links that no other cause explains, and {losing} of {pairs} pairs of nodes lose: \
         no node, zone or link stands out{}",
        percent(rate),
        of_pods(likewise)
    );
    let what = if rate >= CUT_OFF { "nearly all packets" } else { "packets alike" };
    let summary = format!("all links are losing {what}{}", where_to(scope.network));
    Verdict { evidence, summary, ..loss(Kind::Mesh, EVERYTHING.to_owned(), scope, detail) }
}

/// Returns the verdict over links on one of several parallel paths.
pub fn paths(scope: &Scope<'_>, rate: f64, detail: &Detail, likewise: Option<Tally>) -> Verdict {
    let [pairs, losing] = detail.pairs;
    let evidence = format!(
        "{losing} of {pairs} pairs of nodes lose, {} of the probes of those that do, and they are spread over nodes and \
         zones as one of several parallel paths is{}",
        percent(rate),
        of_pods(likewise)
    );
    let summary = format!(
        "one of several parallel paths is losing packets: {losing} of {pairs} links{}",
        where_to(scope.network)
    );
    Verdict { evidence, summary, ..loss(Kind::Paths, EVERYTHING.to_owned(), scope, detail) }
}

/// Returns the end whose report of loss is excluded by the other end's report.
pub fn reporter(pair: &Pair) -> Option<u16> {
    search::one_sided(pair, search::ONE_SIDED)
}

/// Returns the verdict over a bad link. The subject has the direction of the loss, if that is
/// known. Otherwise, if only one end loses, it has the direction of that end's requests: that is a
/// filter rather than a wire. Otherwise it is in the order of names.
pub fn link(
    scope: &Scope<'_>,
    pair: &Pair,
    detail: &Detail,
    directions: Option<Directions>,
    likewise: Option<Tally>,
) -> Verdict {
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
    let side = |from: &str, to: &str, tally: Tally| match tally.probes {
        0 => format!("{from} to {to} is not measured"),
        probes => format!("{} of {probes} from {from} to {to}", tally.lost),
    };
    let mut evidence = format!(
        "loses {} of the round trips: {}, {}",
        percent(pair.both().rate()),
        side(names.0, names.1, pair.of(from)),
        side(names.1, names.0, pair.of(to))
    );
    if reporter.is_some() {
        let _ = write!(evidence, "; only {} reports the loss, and what {} reports excludes it", names.0, names.1);
    }
    evidence += &of_pods(likewise);
    if let Some(directions) = directions.filter(|_| direction != Direction::Both) {
        let (lost, other) =
            if turned { (directions.inbound, directions.outbound) } else { (directions.outbound, directions.inbound) };
        let from = |node: &str, requests: Requests| of_requests(directions.unit, requests, &format!("from {node}"));
        let _ = write!(evidence, "; {} were lost, and {}", from(names.0, lost), from(names.1, other));
    }
    let direction = if direction == Direction::Both { direction } else { Direction::Out };
    let summary = format!("{} -> {} is losing packets{}", names.0, names.1, where_to(scope.network));
    Verdict { direction, evidence, summary, ..loss(Kind::Link, subject::of_two(names.0, names.1), scope, detail) }
}

/// Adds that a node of the link may be the cause, if nothing else was measured of that node. If
/// only some agents were asked, most evidence about the node is missing.
pub fn with_lone_ends(mut verdict: Verdict, scope: &Scope<'_>, pair: &Pair) -> Verdict {
    for node in [pair.a, pair.b].into_iter().filter(|node| scope.matrix.row(*node).is_none()) {
        let mut pairs = 0;
        scope.each_pair_of(node, |_| pairs += 1);
        if pairs == 1 {
            let _ = write!(
                verdict.evidence,
                "; no other collected report names {0}: the cause may be {0}",
                scope.matrix.name(node)
            );
        }
    }
    verdict
}

/// Returns the verdict over a slow node, zone or link, or a slow mesh.
pub fn slow(scope: &Scope<'_>, slow: &Slow) -> Verdict {
    let (own, usual) = (time(slow.rtt_us), time(slow.usual_us));
    let (kind, subject, evidence, finding) = match slow.cause {
        Cause::Node(node) => {
            let name = scope.matrix.name(node);
            let evidence = format!(
                "round trips of {own} (median) to {} of {} nodes; usual between such zones are {usual}",
                slow.pairs, slow.of
            );
            (
                Kind::Node,
                subject::of_one(name),
                evidence,
                format!("{name} is slow to {} of {} nodes", slow.pairs, slow.of),
            )
        }
        Cause::Zones(a, b) => {
            let (a, b) = zone_names(scope.matrix, (a, b));
            let by = slow.by.map_or("", |by| scope.matrix.zone_name(by));
            let evidence = format!(
                "round trips of {own} (median of {} pairs of nodes); by way of zone {by} they would take {usual}",
                slow.pairs
            );
            let finding = if a == b { format!("zone {a} is slow") } else { format!("zone {a} <-> zone {b} is slow") };
            let (kind, subject) =
                if a == b { (Kind::Zone, subject::of_one(a)) } else { (Kind::ZonePair, subject::of_two(a, b)) };
            (kind, subject, evidence, finding)
        }
        Cause::Link(a, b) => {
            let (a, b) = (scope.matrix.name(a), scope.matrix.name(b));
            let (a, b) = (a.min(b), a.max(b));
            let usual = match slow.by {
                Some(by) => format!("by way of zone {} they would take {usual}", scope.matrix.zone_name(by)),
                None => format!("usual between such zones are {usual}"),
            };
            let evidence = format!("round trips of {own} (median); {usual}");
            (Kind::Link, subject::of_two(a, b), evidence, format!("{a} -> {b} is slow"))
        }
        // No other cause is possible.
        _ => {
            let evidence = format!(
                "round trips of {own} (median); on {} of {} pairs of nodes they take at least {:.0} times as long as \
                 in the quickest minute of the last hour: no node, zone or link stands out",
                slow.pairs,
                slow.of,
                slow.rtt_us / slow.usual_us
            );
            (Kind::Mesh, EVERYTHING.to_owned(), evidence, "all links are slow".to_owned())
        }
    };
    let summary = format!("{finding}{}", where_to(scope.network));
    let (weight, severity) = (f64::from(slow.rtt_us / slow.usual_us), Severity::Warning);
    Verdict { severity, evidence, summary, weight, ..verdict(kind, subject, scope.network) }
}

/// Returns the verdict over a flow that loses while the others of its link do not.
pub fn flow(matrix: &Matrix, flow: &LosingFlows) -> Verdict {
    let (from, to) = links::in_direction(flow.source, flow.peer, flow.way);
    let subject = subject::of_two(matrix.name(from), matrix.name(to));
    let direction = if flow.way == Way::Unknown { Direction::Both } else { Direction::Out };
    let evidence = format!(
        "{}; it lost {} of its last {} probes, and the other flows of this link do not lose",
        of_flow(matrix, flow),
        flow.lost,
        flow.probes
    );
    let summary = format!("{} of {} flows {} -> {} lose", flow.losing, flow.probed, matrix.name(from), matrix.name(to));
    let weight = flow.lost.into();
    Verdict { direction, evidence, summary, weight, is_loss: true, ..verdict(Kind::Flow, subject, Network::Pod) }
}

fn of_flow(matrix: &Matrix, flow: &LosingFlows) -> String {
    let way = match flow.way {
        Way::Out => ", on the way out",
        Way::In => ", on the way back",
        Way::Unknown => "",
    };
    let (from, to) = (matrix.name(flow.source), matrix.name(flow.peer));
    format!("{} of {} flows from {from} to {to}, source port {}{way}", flow.losing, flow.probed, flow.source_port)
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
    let evidence = format!(
        "{} of the flows of {pairs} pairs of nodes lose, and their other flows do not, as on one of several parallel \
         paths; for example {}",
        percent(share),
        of_flow(matrix, worst)
    );
    let (kind, subject, summary) = if let Some(node) = node {
        let name = matrix.name(node);
        (Kind::Node, subject::of_one(name), format!("{name} is losing packets of some flows to {pairs} nodes"))
    } else {
        let summary = format!("one of several parallel paths is losing packets: some flows of {pairs} links");
        (Kind::Paths, EVERYTHING.to_owned(), summary)
    };
    let summary = summary + where_to(network);
    Verdict { evidence, summary, weight: share, is_loss: true, ..verdict(kind, subject, network) }
}

/// Returns the verdict over a link that large packets do not pass.
pub fn hole(matrix: &Matrix, hole: Hole) -> Verdict {
    let (from, to) = links::in_direction(hole.source, hole.peer, hole.way);
    let (from, to) = (matrix.name(from), matrix.name(to));
    let direction = if hole.way == Way::Unknown { Direction::Both } else { Direction::Out };
    let evidence =
        format!("packets over {} bytes do not pass from {from} to {to}; {}", hole.passes_bytes, said(hole.said));
    let summary = format!("packets over {} bytes do not pass {from} -> {to}", hole.passes_bytes);
    Verdict {
        direction,
        evidence,
        summary,
        is_loss: true,
        ..verdict(Kind::Mtu, subject::of_two(from, to), Network::Pod)
    }
}

/// Returns the verdict over many links that large packets do not pass: those of a node, or of all.
pub fn holes(matrix: &Matrix, node: Option<u16>, (pairs, of): (usize, usize), example: Hole) -> Verdict {
    let (from, to) = links::in_direction(example.source, example.peer, example.way);
    let evidence = format!(
        "packets over {} bytes do not pass from {} to {}, and so on {pairs} of {of} pairs of nodes; {}",
        example.passes_bytes,
        matrix.name(from),
        matrix.name(to),
        said(example.said)
    );
    let subject = node.map_or_else(|| EVERYTHING.to_owned(), |node| subject::of_one(matrix.name(node)));
    let of_node = node.map(|node| format!(" of {}", matrix.name(node))).unwrap_or_default();
    let summary = format!("packets over {} bytes do not pass on {pairs} of {of} links{of_node}", example.passes_bytes);
    let weight = pairs as f64;
    Verdict { evidence, summary, weight, is_loss: true, ..verdict(Kind::Mtu, subject, Network::Pod) }
}

const fn said(said: Said) -> &'static str {
    match said {
        Said::Silent => "nothing says so: they are dropped in silence",
        Said::TooBig => "a hop says that they are too big",
        Said::Other => "what the network says of them is not known",
    }
}

/// Returns the verdict over a starved agent.
pub fn starved(matrix: &Matrix, node: u16) -> Verdict {
    let name = matrix.name(node);
    let symptoms = matrix.row(node).map(|row| agents::symptoms(&row.facts)).unwrap_or_default();
    let evidence = format!("its agent lags, and what it measured is discounted: {symptoms}");
    let summary = format!("the agent on {name} is starved: {symptoms}");
    of_agent(Kind::AgentStarved, name, evidence, summary)
}

/// Returns the verdict over an agent that does not answer. Its node answers probes,
/// or is not probed.
pub fn unreachable(matrix: &Matrix, node: u16, detail: &Detail) -> Verdict {
    let (name, error) = (matrix.name(node), matrix.error(node));
    let answered = detail.to.probes - detail.to.lost;
    let rest = match (detail.to.probes, answered) {
        (0, _) => "nothing is measured of its node".to_owned(),
        (probes, 0) => format!("its node answered none of {probes} probes"),
        (probes, _) => format!(
            "its node answers {} of the probes of {} sources",
            percent(f64::from(answered) / f64::from(probes)),
            detail.sources[0]
        ),
    };
    let evidence = format!("its report is missing ({error}); {rest}");
    let summary = format!("the agent on {name} does not answer; {rest}");
    of_agent(Kind::AgentUnreachable, name, evidence, summary)
}

/// Returns the verdict over a judge that does not judge as the two others do. `what` says in which
/// way.
pub fn suspect(node: &str, what: &str) -> Verdict {
    let evidence = format!("as a judge it {what}");
    let summary = format!("the agent on {node} is suspect: {evidence}");
    let suspect = of_agent(Kind::AgentSuspect, node, evidence, summary);
    Verdict { id: subject::id(&suspect), ..suspect }
}

fn of_agent(kind: Kind, node: &str, evidence: String, summary: String) -> Verdict {
    let confidence = Confidence::Certain;
    Verdict { confidence, evidence, summary, ..verdict(kind, subject::of_one(node), Network::Pod) }
}

fn zone_names(matrix: &Matrix, (a, b): (u8, u8)) -> (&str, &str) {
    let (a, b) = (matrix.zone_name(a), matrix.zone_name(b));
    (a.min(b), a.max(b))
}
