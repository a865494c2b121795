//! Sorts the summaries of all nodes, and formats them as a table.

use std::cmp::Ordering;
use std::fmt::Write as _;

use super::summary::NodeSummary;
use crate::check::Check;
use crate::config::Column;
use crate::report::Network;
use crate::sys::console::printable;
use crate::sys::table::{self, ColumnKind, TableCell, kilobytes, known, percent, time};
use crate::sys::terminal::{Terminal, Tint};

/// Sorts the summaries: texts from A to Z, numbers the largest first. Unknown values come last, and
/// equal values are ordered by node.
pub fn sort(nodes: &mut [NodeSummary], by: Column) {
    nodes.sort_by(|a, b| {
        let order = match by {
            Column::Node => text(a.node.as_ref(), b.node.as_ref()),
            Column::Rss => number(a.rss_bytes, b.rss_bytes),
            Column::Dirty => number(a.private_dirty_bytes, b.private_dirty_bytes),
            Column::Cores => number(a.cpus, b.cpus),
            Column::Threads => number(a.threads, b.threads),
            Column::Allocator => {
                text(a.allocator.as_ref(), b.allocator.as_ref()).then_with(|| number(a.narenas, b.narenas))
            }
            Column::Version => text(a.version.as_ref(), b.version.as_ref()),
            Column::Cpu => number(a.cpu_seconds_per_probe, b.cpu_seconds_per_probe),
            Column::Loss => number(a.loss, b.loss),
            Column::Worst => number(a.worst_peer_loss, b.worst_peer_loss)
                .then_with(|| number(a.worst_peer_rtt_p99_seconds, b.worst_peer_rtt_p99_seconds)),
            Column::Lag => number(a.send_lag_p99_seconds, b.send_lag_p99_seconds),
        };
        order.then_with(|| text(a.node.as_ref(), b.node.as_ref())).then_with(|| a.url.cmp(&b.url))
    });
}

fn text(a: Option<&String>, b: Option<&String>) -> Ordering {
    a.is_none().cmp(&b.is_none()).then_with(|| a.cmp(&b))
}

fn number<T: PartialOrd + Copy>(a: Option<T>, b: Option<T>) -> Ordering {
    a.is_none().cmp(&b.is_none()).then_with(|| b.partial_cmp(&a).unwrap_or(Ordering::Equal))
}

/// Formats the table with all columns. An agent that has not answered is shown with its URL and the
/// reason.
pub fn render_wide(nodes: &[NodeSummary], terminal: Terminal) -> String {
    let heads = [
        ("NODE", ColumnKind::Text),
        ("RSS KB", ColumnKind::Number),
        ("DIRTY KB", ColumnKind::Number),
        ("CORES", ColumnKind::Number),
        ("THREADS", ColumnKind::Number),
        ("ALLOCATOR", ColumnKind::Text),
        ("NARENAS", ColumnKind::Number),
        ("LINKAGE", ColumnKind::Text),
        ("VERSION", ColumnKind::Text),
        ("CPU/PROBE", ColumnKind::Number),
        ("LOSS", ColumnKind::Number),
        ("LAG P99", ColumnKind::Number),
        ("PEERS", ColumnKind::Number),
        ("WATCHERS", ColumnKind::Number),
        ("LIST AGE", ColumnKind::Number),
        ("WORST PEER", ColumnKind::Text),
    ];
    let cells = |node: &NodeSummary| {
        let count = |value: Option<u64>| known(value, |n| n.to_string()).into();
        [
            node.node.clone().unwrap_or_else(|| node.url.clone()).into(),
            known(node.rss_bytes, kilobytes).into(),
            known(node.private_dirty_bytes, kilobytes).into(),
            count(node.cpus),
            count(node.threads),
            text_cell(node.allocator.as_ref()),
            count(node.narenas),
            text_cell(node.linkage.as_ref()),
            text_cell(node.version.as_ref()),
            known(node.cpu_seconds_per_probe, time).into(),
            loss(node.loss),
            known(node.send_lag_p99_seconds, time).into(),
            links_and_members(node).into(),
            watchers(node),
            known(node.peer_list_age_seconds, time).into(),
            last(node),
        ]
    };
    table::render_on(terminal.unlimited(), heads, nodes.iter().map(cells))
}

/// Formats a table that fits into 100 columns, with the figures that say how the mesh is. What is
/// the same for every agent, and agents that have not answered, are below the table.
pub fn render(nodes: &[NodeSummary], terminal: Terminal) -> String {
    let heads = [
        ("NODE", ColumnKind::Text),
        ("RSS KB", ColumnKind::Number),
        ("ALLOCATOR", ColumnKind::Same),
        ("VERSION", ColumnKind::Same),
        ("LOSS", ColumnKind::Number),
        ("LAG P99", ColumnKind::Number),
        ("PEERS", ColumnKind::Number),
        ("WATCHERS", ColumnKind::Number),
        ("WORST PEER", ColumnKind::Text),
        ("ITS LOSS", ColumnKind::Number),
        ("ITS P99", ColumnKind::Number),
    ];
    let answered = || nodes.iter().filter(|node| node.error.is_none());
    let cells = |node: &NodeSummary| {
        [
            node.node.clone().unwrap_or_else(|| node.url.clone()).into(),
            known(node.rss_bytes, kilobytes).into(),
            text_cell(node.allocator.as_ref()),
            text_cell(node.version.as_ref()),
            loss(node.loss),
            known(node.send_lag_p99_seconds, time).into(),
            links_and_members(node).into(),
            watchers(node),
            known(worst_peer(node), |peer| peer).into(),
            loss(node.worst_peer_loss),
            known(node.worst_peer_rtt_p99_seconds, time).into(),
        ]
    };
    let mut text = String::new();
    if answered().next().is_some() {
        text += &table::render_on(terminal, heads, answered().map(cells));
        let same = [
            common(answered(), "version", |node| node.version.as_ref()),
            common(answered(), "allocator", |node| node.allocator.as_ref()),
        ];
        let same: Vec<String> = same.into_iter().flatten().collect();
        if !same.is_empty() {
            // Writing to memory cannot fail.
            let _ = writeln!(text, "\n{}", terminal.wrap(&format!("Every agent: {}.", same.join(", ")), 0));
        }
    }
    let mut head = "\nNot sent in the last minute, and in no loss:\n";
    for node in answered() {
        let (Some(errors @ 1..), Some(reason)) = (node.send_errors, node.send_error_reason) else { continue };
        let name = printable(node.node.as_deref().unwrap_or(&node.url));
        let line = format!("    {name}: {errors} probe{}, {}", if errors == 1 { "" } else { "s" }, reason.words());
        text += std::mem::take(&mut head);
        text.push_str(&terminal.paint(Tint::Bad, &line));
        text.push('\n');
    }
    write_checks(answered(), terminal, &mut text);
    let mut head = if text.is_empty() { "No answer:\n" } else { "\nNo answer:\n" };
    for node in nodes {
        let Some(error) = &node.error else { continue };
        let line = terminal.wrap(&printable(&format!("    {}: {error}", node.url)), 8);
        text += std::mem::take(&mut head);
        for part in line.lines() {
            text.push_str(&terminal.paint(Tint::Bad, part));
            text.push('\n');
        }
    }
    text
}

/// Appends a line for each node with checks that fail or are slow.
fn write_checks<'a>(nodes: impl Iterator<Item = &'a NodeSummary>, terminal: Terminal, text: &mut String) {
    let mut head = "\nChecks that failed or were slow in the last minute:\n";
    for node in nodes.filter(|node| !node.bad_checks.is_empty()) {
        let of_check = |check: &Check<'_>| {
            let Check { name, tried, failed, slow, .. } = check;
            match check.reason {
                Some(reason) if *failed > 0 => format!("{name} {failed} of {tried} failed, {}", reason.words()),
                _ => format!("{name} {slow} of {tried} slow"),
            }
        };
        let checks: Vec<String> = node.bad_checks.iter().map(of_check).collect();
        let name = node.node.as_deref().unwrap_or(&node.url);
        text.push_str(std::mem::take(&mut head));
        for line in terminal.wrap(&printable(&format!("    {name}: {}", checks.join("; "))), 8).lines() {
            text.push_str(&terminal.paint(Tint::Bad, line));
            text.push('\n');
        }
    }
}

/// The longest name of an allocator or a version that is shown for all agents.
const COMMON_CHARACTERS_MAX: usize = 40;

/// Returns the text that all nodes report, with its name. None if they report
/// several, none, or one that is too long.
fn common<'a>(
    mut nodes: impl Iterator<Item = &'a NodeSummary>,
    name: &str,
    text: fn(&NodeSummary) -> Option<&String>,
) -> Option<String> {
    let first = text(nodes.next()?).filter(|first| first.chars().count() <= COMMON_CHARACTERS_MAX)?;
    nodes.all(|node| text(node) == Some(first)).then(|| format!("{name} {}", printable(first)))
}

fn text_cell(text: Option<&String>) -> TableCell {
    known(text, String::clone).into()
}

fn loss(share: Option<f64>) -> TableCell {
    TableCell::tinted(known(share, percent), Tint::Bad, share.is_some_and(|share| share > 0.0))
}

/// The number of links, and of other members. Each member may have several links.
fn links_and_members(node: &NodeSummary) -> String {
    let others = node.members.filter(|members| *members > 0).map(|members| format!("/{}", members - 1));
    known(node.links, |links| format!("{links}{}", others.unwrap_or_default()))
}

fn watchers(node: &NodeSummary) -> TableCell {
    let missing = node.watchers_missing.filter(|missing| *missing > 0);
    let text = known(node.watchers, |watchers| match missing {
        Some(missing) => format!("{watchers} (-{missing})"),
        None => watchers.to_string(),
    });
    TableCell::tinted(text, Tint::Warning, missing.is_some())
}

fn worst_peer(node: &NodeSummary) -> Option<String> {
    let network = node.worst_peer_network.filter(|network| *network != Network::Pod);
    let network = network.map(|network| format!(" ({} network)", network.label())).unwrap_or_default();
    node.worst_peer.as_ref().map(|peer| format!("{peer}{network}"))
}

fn last(node: &NodeSummary) -> TableCell {
    if let Some(error) = &node.error {
        return TableCell::tinted(error.clone(), Tint::Bad, true);
    }
    let text = known(worst_peer(node), |peer| {
        let p99 = node.worst_peer_rtt_p99_seconds.map(|p99| format!(", p99 {}", time(p99))).unwrap_or_default();
        format!("{peer}: loss {}{p99}", known(node.worst_peer_loss, percent))
    });
    TableCell::tinted(text, Tint::Bad, node.worst_peer_loss.is_some_and(|share| share > 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::CheckFailure;
    use crate::report::SendError;

    fn row(node: &str, rss: Option<u64>, lag: Option<f64>) -> NodeSummary {
        NodeSummary {
            node: Some(node.into()),
            rss_bytes: rss,
            send_lag_p99_seconds: lag,
            url: "u".into(),
            ..NodeSummary::default()
        }
    }

    fn order(mut rows: Vec<NodeSummary>, by: Column) -> Vec<String> {
        sort(&mut rows, by);
        rows.into_iter().map(|row| row.node.unwrap_or(row.url)).collect()
    }

    #[test]
    fn numbers_are_sorted_largest_first_texts_from_a_to_z_and_unknown_values_last() {
        let silent = NodeSummary { url: "http://10.0.0.9:9877".into(), ..NodeSummary::default() };
        let rows = vec![
            silent,
            row("b", Some(1), Some(0.5)),
            row("c", Some(3), None),
            row("a", Some(3), Some(0.7)),
            row("d", None, Some(0.1)),
        ];
        let silent = "http://10.0.0.9:9877";
        assert_eq!(order(rows.clone(), Column::Rss), ["a", "c", "b", "d", silent]);
        assert_eq!(order(rows.clone(), Column::Node), ["a", "b", "c", "d", silent]);
        assert_eq!(order(rows, Column::Lag), ["a", "b", "d", "c", silent]);
    }

    #[test]
    fn the_worst_are_sorted_by_loss_then_by_p99_and_allocators_by_name_then_by_arenas() {
        let worst = |node: &str, loss, p99| NodeSummary {
            worst_peer_loss: Some(loss),
            worst_peer_rtt_p99_seconds: Some(p99),
            ..row(node, None, None)
        };
        assert_eq!(
            order(vec![worst("a", 0.0, 0.1), worst("b", 0.0, 0.2), worst("c", 0.1, 0.0)], Column::Worst),
            ["c", "b", "a"]
        );
        let built = |node: &str, allocator: &str, narenas| NodeSummary {
            allocator: Some(allocator.into()),
            narenas,
            ..row(node, None, None)
        };
        let builds = vec![built("a", "musl", None), built("b", "jemalloc", Some(1)), built("c", "jemalloc", Some(8))];
        assert_eq!(order(builds, Column::Allocator), ["c", "b", "a"]);
    }

    #[test]
    fn links_and_watchers_are_shown_with_the_number_of_other_members_and_of_missing_watchers() {
        let partial = NodeSummary {
            links: Some(24),
            members: Some(300),
            watchers: Some(11),
            watchers_missing: Some(1),
            peer_list_age_seconds: Some(0.25),
            ..row("node-1", None, None)
        };
        let older = NodeSummary { links: Some(2), ..row("node-2", None, None) };
        let text = render_wide(&[partial, older], Terminal::PLAIN);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("PEERS  WATCHERS  LIST AGE"), "{text}");
        assert!(lines[1].contains(" 24/299   11 (-1)  250.0 ms  "), "{text}");
        assert!(lines[2].contains("      2         -         -  "), "{text}");
    }

    #[test]
    fn probes_that_could_not_be_sent_have_a_line_with_their_reason() {
        let (mut unsent, well) = (row("node-1", None, None), row("node-2", None, None));
        (unsent.send_errors, unsent.send_error_reason) = (Some(60), Some(SendError::NoRoute));
        let text = render(&[unsent, well], Terminal::PLAIN);
        let (table, rest) = text.split_once("\n\n").expect("a part behind the table");
        assert!(table.lines().nth(1).is_some_and(|line| line.contains("  -  ")), "no loss is known: {text}");
        assert!(
            rest.ends_with("Not sent in the last minute, and in no loss:\n    node-1: 60 probes, no route\n"),
            "{text}"
        );
    }

    #[test]
    fn checks_that_fail_or_are_slow_have_a_line_for_their_node() {
        let check = |name: &'static str, failed, slow, reason| Check {
            name: name.into(),
            tried: 12,
            failed,
            slow,
            reason,
            ..Check::default()
        };
        let (mut bad, well) = (row("node-1", None, None), row("node-2", None, None));
        bad.bad_checks = vec![check("dns", 5, 1, Some(CheckFailure::Timeout)), check("web", 0, 2, None)];
        let text = render(&[bad, well], Terminal::PLAIN);
        let lines = "Checks that failed or were slow in the last minute:\n    \
                     node-1: dns 5 of 12 failed, no answer in time; web 2 of 12 slow\n";
        assert!(text.ends_with(lines), "{text}");
    }

    #[test]
    fn an_agent_that_does_not_answer_is_a_line_with_its_error() {
        let mut silent = NodeSummary { url: "http://10.0.0.9:9877".into(), ..NodeSummary::default() };
        silent.error = Some("connecting: refused".into());
        let mut fine = row("node-1", Some(1_355_776), None);
        fine.worst_peer = Some("node-2".into());
        fine.worst_peer_network = Some(Network::Node);
        (fine.worst_peer_loss, fine.worst_peer_rtt_p99_seconds) = (Some(0.125), Some(0.000_041));
        let text = render_wide(&[fine.clone(), silent.clone()], Terminal::PLAIN);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("node-1 ") && lines[1].contains(" 1,324 "), "{text}");
        assert!(lines[1].ends_with("node-2 (node network): loss 12.5%, p99 41 µs"), "{text}");
        assert!(lines[2].starts_with("http://10.0.0.9:9877 ") && lines[2].ends_with(" connecting: refused"), "{text}");
        // The narrow table has a list of them below.
        let text = render(&[fine, silent.clone()], Terminal::PLAIN);
        assert!(text.contains(" node-2 (node network)     12.5%    41 µs\n"), "{text}");
        assert!(text.ends_with("\n\nNo answer:\n    http://10.0.0.9:9877: connecting: refused\n"), "{text}");
        let alone = render(&[silent], Terminal::PLAIN);
        assert_eq!(alone, "No answer:\n    http://10.0.0.9:9877: connecting: refused\n");
    }

    /// A node with figures as long as they usually get.
    fn full(node: &str, version: &str) -> NodeSummary {
        NodeSummary {
            allocator: Some("jemalloc".into()),
            version: Some(version.into()),
            loss: Some(1.0),
            worst_peer: Some(format!("{node}-peer")),
            worst_peer_loss: Some(1.0),
            worst_peer_rtt_p99_seconds: Some(0.999),
            links: Some(256),
            members: Some(5_000),
            watchers: Some(128),
            watchers_missing: Some(12),
            ..row(node, Some(12_345 << 10), Some(0.25))
        }
    }

    fn longest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn no_name_url_error_or_hostile_text_makes_a_line_longer_than_100_columns() {
        let terminal = Terminal { columns: 100, has_colours: false };
        let names =
            ["a", "b"].map(|suffix| format!("ip-10-0-123-45{suffix}.eu-central-1.compute.a-long-zone.internal"));
        assert!(names[0].len() > 50);
        let mut silent = NodeSummary {
            url: "http://[fd00:1234:5678:9abc:def0:1234:5678:9abc]:9877".into(),
            ..NodeSummary::default()
        };
        silent.error = Some(
            "/api/v1/peers is not what an agent says: expected value at line 1 column 1, and a long reason".into(),
        );
        let mut hostile = full(&"n".repeat(3_000), "9");
        hostile.version = Some("v".repeat(3_000));
        (hostile.links, hostile.members, hostile.send_lag_p99_seconds) = (Some(u64::MAX), Some(u64::MAX), Some(1e300));
        let usual = [full(&names[0], "0.1.0"), full(&names[1], "0.1.0"), silent];
        let text = render(&usual, terminal);
        assert_eq!(longest(&text), 100, "{text}");
        assert!(["ip-10-0-123-45a…", "ip-10-0-123-45b…"].iter().all(|name| text.contains(name)), "{text}");
        assert!(text.contains("\nEvery agent: version 0.1.0, allocator jemalloc.\n"), "{text}");
        assert!(text.contains(" says:\n        expected value at line 1 column 1, and a long reason\n"), "{text}");
        let text = render(&[&usual[..], &[hostile.clone()]].concat(), terminal);
        assert_eq!(longest(&text), 100, "{text}");
        let alone = render(&[hostile], terminal);
        assert_eq!(longest(&alone), 100, "{alone}");
        // A wider terminal shows whole names, and `--output wide` does so on any.
        for text in [render(&usual, Terminal { columns: 200, ..terminal }), render_wide(&usual, terminal)] {
            assert!(!text.contains('…') && text.contains(&names[0]) && longest(&text) > 100, "{text}");
        }
    }

    #[test]
    fn builds_have_columns_only_if_they_differ_and_bad_cells_stand_out() {
        let text = render(&[full("a", "0.1.0"), full("b", "0.2.0")], Terminal::PLAIN);
        assert!(text.starts_with("NODE  RSS KB  VERSION    LOSS "), "{text}");
        assert!(text.ends_with("\nEvery agent: allocator jemalloc.\n"), "{text}");
        let coloured = Terminal { has_colours: true, ..Terminal::PLAIN };
        let text = render(&[full("a", "0.1.0"), row("b", None, None)], coloured);
        assert!(text.contains("\x1b[31m100.0%\x1b[0m") && text.contains("\x1b[33m128 (-12)\x1b[0m"), "{text}");
        assert!(!text.lines().nth(2).unwrap().contains('\x1b'), "unknown is not bad: {text}");
    }
}
