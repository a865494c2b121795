//! Sorts the summaries of all nodes, and formats them as a table.

use std::cmp::Ordering;

use super::summary::NodeSummary;
use crate::config::Column;
use crate::report::Network;
use crate::sys::table::{self, Kind, kilobytes, known, percent, time};

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

/// Formats the table. An agent that has not answered is shown with its URL and the reason.
pub fn render(nodes: &[NodeSummary]) -> String {
    let heads = [
        ("NODE", Kind::Text),
        ("RSS KB", Kind::Number),
        ("DIRTY KB", Kind::Number),
        ("CORES", Kind::Number),
        ("THREADS", Kind::Number),
        ("ALLOCATOR", Kind::Text),
        ("NARENAS", Kind::Number),
        ("LINKAGE", Kind::Text),
        ("VERSION", Kind::Text),
        ("CPU/PROBE", Kind::Number),
        ("LOSS", Kind::Number),
        ("LAG P99", Kind::Number),
        ("PEERS", Kind::Number),
        ("WATCHERS", Kind::Number),
        ("LIST AGE", Kind::Number),
        ("WORST PEER", Kind::Text),
    ];
    let cells = |node: &NodeSummary| {
        let count = |value: Option<u64>| known(value, |n| n.to_string());
        [
            node.node.clone().unwrap_or_else(|| node.url.clone()),
            known(node.rss_bytes, kilobytes),
            known(node.private_dirty_bytes, kilobytes),
            count(node.cpus),
            count(node.threads),
            known(node.allocator.clone(), |name| name),
            count(node.narenas),
            known(node.linkage.clone(), |name| name),
            known(node.version.clone(), |name| name),
            known(node.cpu_seconds_per_probe, time),
            known(node.loss, percent),
            known(node.send_lag_p99_seconds, time),
            of_members(node),
            watchers(node),
            known(node.peer_list_age_seconds, time),
            last(node),
        ]
    };
    table::render(heads, nodes.iter().map(cells))
}

/// The number of links, and of other members. Each member may have several links.
fn of_members(node: &NodeSummary) -> String {
    let others = node.members.filter(|members| *members > 0).map(|members| format!("/{}", members - 1));
    known(node.links, |links| format!("{links}{}", others.unwrap_or_default()))
}

fn watchers(node: &NodeSummary) -> String {
    let missing = node.watchers_missing.filter(|missing| *missing > 0).map(|missing| format!(" (-{missing})"));
    known(node.watchers, |watchers| format!("{watchers}{}", missing.unwrap_or_default()))
}

fn last(node: &NodeSummary) -> String {
    if let Some(error) = &node.error {
        return error.clone();
    }
    known(node.worst_peer.as_ref(), |peer| {
        let network = node.worst_peer_network.filter(|network| *network != Network::Pod);
        let network = network.map(|network| format!(" ({} network)", network.label())).unwrap_or_default();
        let p99 = node.worst_peer_rtt_p99_seconds.map(|p99| format!(", p99 {}", time(p99))).unwrap_or_default();
        format!("{peer}{network}: loss {}{p99}", known(node.worst_peer_loss, percent))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let text = render(&[partial, older]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("PEERS  WATCHERS  LIST AGE"), "{text}");
        assert!(lines[1].contains(" 24/299   11 (-1)  250.0 ms  "), "{text}");
        assert!(lines[2].contains("      2         -         -  "), "{text}");
    }

    #[test]
    fn an_agent_that_does_not_answer_is_a_line_with_its_error() {
        let mut silent = NodeSummary { url: "http://10.0.0.9:9877".into(), ..NodeSummary::default() };
        silent.error = Some("connecting: refused".into());
        let mut fine = row("node-1", Some(1_355_776), None);
        fine.worst_peer = Some("node-2".into());
        fine.worst_peer_network = Some(Network::Node);
        (fine.worst_peer_loss, fine.worst_peer_rtt_p99_seconds) = (Some(0.125), Some(0.000_041));
        let text = render(&[fine, silent]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("node-1 ") && lines[1].contains(" 1,324 "), "{text}");
        assert!(lines[1].ends_with("node-2 (node network): loss 12.5%, p99 41 µs"), "{text}");
        assert!(lines[2].starts_with("http://10.0.0.9:9877 ") && lines[2].ends_with(" connecting: refused"), "{text}");
    }
}
