//! Verdicts in words, each with its figures.

use std::fmt::Write as _;

use super::details::Detail;
use super::direction::{Direction, Way, Ways};
use super::loss::Culprit;
use super::pairs::{Pair, Scope, Tally};
use super::slow::Slow;
use super::{Kind, OfNetwork, Verdict, agents};
use crate::mesh::matrix::{Matrix, Presence};
use crate::mesh::row::Network;

fn verdict(kind: Kind, subject: String, network: Network) -> Verdict {
    Verdict {
        kind,
        subject,
        direction: Direction::Both,
        network: if network == Network::Node { OfNetwork::Node } else { OfNetwork::Pod },
        evidence: String::new(),
        since_unix_seconds: None,
        is_loss: false,
        summary: String::new(),
        weight: 0.0,
    }
}

fn loss(kind: Kind, subject: String, scope: &Scope<'_>, detail: &Detail) -> Verdict {
    let since_unix_seconds = detail.since().map(|since| scope.matrix.moment(since));
    Verdict { is_loss: true, since_unix_seconds, ..verdict(kind, subject, scope.network) }
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

/// In headlines: the pods' network goes without saying.
const fn where_to(network: Network) -> &'static str {
    if matches!(network, Network::Node) { " (node network)" } else { "" }
}

fn in_words(direction: Direction) -> &'static str {
    match direction {
        Direction::In => " on the way in",
        Direction::Out => " on the way out",
        Direction::Both => "",
    }
}

fn of_requests(way: Way, whose: &str, direction: &str) -> String {
    // A count that is a little above what was sent rounds to -0, which is below no bound.
    let (sent, missed) = (way.sent.round(), way.missed.round().clamp(0.0, way.sent.round()).abs());
    format!("of {sent:.0} requests {whose} {missed:.0} were lost on the way {direction}")
}

/// What the pods' network loses for the same reason.
fn of_pods(likewise: Option<Tally>) -> String {
    likewise.map(|tally| format!("; so does the pod network, {}", percent(tally.rate()))).unwrap_or_default()
}

/// A bad node.
pub fn node(scope: &Scope<'_>, node: u16, detail: &Detail, ways: Option<Ways>, likewise: Option<Tally>) -> Verdict {
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
    let told = ways.filter(|ways| ways.direction != Direction::Both);
    if let Some(ways) = told {
        let (inwards, outwards) =
            (of_requests(ways.inwards, "to it", "in"), of_requests(ways.outwards, "from it", "out"));
        let _ = write!(evidence, "; {inwards}, {outwards}");
    }
    let direction = told.map_or(Direction::Both, |ways| ways.direction);
    let whom = if sources > 0 {
        format!("from {losing} of {sources} sources")
    } else {
        format!("to {losing_targets} of {targets} nodes")
    };
    let summary = format!("{name} is losing packets {whom}{}{}", in_words(direction), where_to(scope.network));
    Verdict { direction, evidence, summary, ..loss(Kind::Node, name.to_owned(), scope, detail) }
}

/// Two bad zones, or one.
pub fn zones(scope: &Scope<'_>, zones: (u8, u8), detail: &Detail, background: f64, likewise: Option<Tally>) -> Verdict {
    let (a, b) = zone_names(scope.matrix, zones);
    let [pairs, losing] = detail.pairs;
    let between = if a == b { format!("within zone {a}") } else { format!("between zones {a} and {b}") };
    let evidence = format!(
        "{} of the probes {between} are lost, on {losing} of {pairs} pairs of nodes; elsewhere {}{}",
        percent(detail.both.rate()),
        percent(background),
        of_pods(likewise)
    );
    let between = if a == b { format!("zone {a}") } else { format!("zone {a} <-> zone {b}") };
    let summary = format!("{between} is losing packets{}", where_to(scope.network));
    Verdict { evidence, summary, ..loss(Kind::ZonePair, format!("{a}->{b}"), scope, detail) }
}

/// A bad link. Its subject is in the order of the way that loses, where that is told; else in that of the only one who
/// loses, which is a filter rather than a wire; else in that of names.
pub fn link(scope: &Scope<'_>, pair: &Pair, detail: &Detail, ways: Option<Ways>, likewise: Option<Tally>) -> Verdict {
    let direction = ways.map_or(Direction::Both, |ways| ways.direction);
    let measured = pair.there.probes > 0 && pair.back.probes > 0;
    let turned = match direction {
        Direction::In => true,
        Direction::Out => false,
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
    evidence += &of_pods(likewise);
    if let Some(ways) = ways.filter(|_| direction != Direction::Both) {
        let (lost, other) = if turned { (ways.inwards, ways.outwards) } else { (ways.outwards, ways.inwards) };
        let there = of_requests(lost, &format!("from {}", names.0), "there");
        let back = of_requests(other, &format!("from {}", names.1), "back");
        let _ = write!(evidence, "; {there}, {back}");
    }
    let direction = if direction == Direction::Both { direction } else { Direction::Out };
    let summary = format!("{} -> {} is losing packets{}", names.0, names.1, where_to(scope.network));
    Verdict { direction, evidence, summary, ..loss(Kind::Link, format!("{}->{}", names.0, names.1), scope, detail) }
}

/// Says of a link's nodes of which nothing else was measured that it may be them: where only some rows were asked for, most of
/// what the others would have shown is not there.
pub fn with_lone_ends(mut verdict: Verdict, scope: &Scope<'_>, pair: &Pair) -> Verdict {
    for node in [pair.a, pair.b].into_iter().filter(|node| scope.matrix.get(*node).presence == Presence::Listed) {
        let mut pairs = 0;
        scope.each_pair(|pair| pairs += u32::from(pair.a == node || pair.b == node));
        if pairs == 1 {
            let _ = write!(
                verdict.evidence,
                "; no other row of those gathered knows {0}: it may be {0}",
                scope.matrix.name(node)
            );
        }
    }
    verdict
}

/// Something slow.
pub fn slow(scope: &Scope<'_>, slow: &Slow) -> Verdict {
    let (own, usual) = (time(slow.rtt_us), time(slow.usual_us));
    let (kind, subject, evidence, who) = match slow.culprit {
        Culprit::Node(node) => {
            let name = scope.matrix.name(node);
            let evidence = format!(
                "round trips of {own} (median) to {} of {} nodes; usual between such zones are {usual}",
                slow.pairs, slow.of
            );
            (Kind::Node, name.to_owned(), evidence, format!("{name} is slow to {} of {} nodes", slow.pairs, slow.of))
        }
        Culprit::Zones(a, b) => {
            let (a, b) = zone_names(scope.matrix, (a, b));
            let by = slow.by.map_or("", |by| scope.matrix.zone_name(by));
            let evidence = format!(
                "round trips of {own} (median of {} pairs of nodes); by way of zone {by} they would take {usual}",
                slow.pairs
            );
            let who = if a == b { format!("zone {a} is slow") } else { format!("zone {a} <-> zone {b} is slow") };
            (Kind::ZonePair, format!("{a}->{b}"), evidence, who)
        }
        Culprit::Link(a, b) => {
            let (a, b) = (scope.matrix.name(a), scope.matrix.name(b));
            let (a, b) = (a.min(b), a.max(b));
            let usual = match slow.by {
                Some(by) => format!("by way of zone {} they would take {usual}", scope.matrix.zone_name(by)),
                None => format!("usual between such zones are {usual}"),
            };
            let evidence = format!("round trips of {own} (median); {usual}");
            (Kind::Link, format!("{a}->{b}"), evidence, format!("{a} -> {b} is slow"))
        }
    };
    let summary = format!("{who}{}", where_to(scope.network));
    let weight = f64::from(slow.rtt_us / slow.usual_us);
    Verdict { evidence, summary, weight, ..verdict(kind, subject, scope.network) }
}

/// A starved agent.
pub fn starved(matrix: &Matrix, node: u16) -> Verdict {
    let name = matrix.name(node);
    let symptoms = matrix.row(node).map(|row| agents::symptoms(&row.facts)).unwrap_or_default();
    let evidence = format!("its agent lags, and what it measured is discounted: {symptoms}");
    let summary = format!("the agent on {name} is starved: {symptoms}");
    Verdict { evidence, summary, ..verdict(Kind::AgentStarved, name.to_owned(), Network::Pod) }
}

/// An agent that does not answer, on a node that does, or of which nobody knows.
pub fn unreachable(matrix: &Matrix, node: u16, detail: &Detail) -> Verdict {
    let (name, error) = (matrix.name(node), matrix.error(node));
    let answered = detail.to.probes - detail.to.lost;
    let rest = match (detail.to.probes, answered) {
        (0, _) => "nobody probes its node".to_owned(),
        (probes, 0) => format!("its node answered none of {probes} probes"),
        (probes, _) => format!(
            "its node answers {} of the probes of {} sources",
            percent(f64::from(answered) / f64::from(probes)),
            detail.sources[0]
        ),
    };
    let evidence = format!("its row is missing ({error}); {rest}");
    let summary = format!("the agent on {name} does not answer; {rest}");
    Verdict { evidence, summary, ..verdict(Kind::AgentUnreachable, name.to_owned(), Network::Pod) }
}

/// What is said where there is no verdict: what was not measured is not well.
pub fn nothing_wrong(matrix: &Matrix) -> String {
    let mut measured = vec![false; matrix.node_count()];
    for node in matrix.numbers().filter(|node| !matrix.get(*node).is_leaving()) {
        for cell in matrix.cells(node).iter().filter(|cell| !matrix.get(cell.peer()).is_leaving()) {
            measured[usize::from(node)] = true;
            measured[usize::from(cell.peer())] = true;
        }
    }
    if !measured.contains(&true) {
        return "nothing measured yet".into();
    }
    let unknown = matrix.numbers().filter(|node| !measured[usize::from(*node)] && !matrix.get(*node).is_leaving());
    let unknown: Vec<u16> = unknown.collect();
    let (rows, cells) = (matrix.not_kept().rows, matrix.not_kept().cells);
    let unnamed = matrix.members() - matrix.node_count();
    match unknown[..] {
        _ if unnamed > 0 => {
            let nodes = unknown.len() + unnamed;
            format!(
                "all well as far as measured: nothing is known of {nodes} node{}",
                if nodes == 1 { "" } else { "s" }
            )
        }
        [] if rows + cells > 0 => format!("all well as far as kept: {rows} rows and {cells} cells are not"),
        [] => "all well".into(),
        [only] => format!("all well as far as measured: nothing is known of {}", matrix.name(only)),
        [first, ref rest @ ..] => {
            format!("all well as far as measured: nothing is known of {} and {} more", matrix.name(first), rest.len())
        }
    }
}

fn zone_names(matrix: &Matrix, (a, b): (u8, u8)) -> (&str, &str) {
    let (a, b) = (matrix.zone_name(a), matrix.zone_name(b));
    (a.min(b), a.max(b))
}
