//! What an operator reads, or a program.

use std::fmt::Write as _;

use serde::Serialize;

use super::reading::{Missing, OldList, Told};
use crate::config::CanaryUrl;
use crate::console::printable;
use crate::fleet::ask::AskError;
use crate::mesh::matrix::{Matrix, Presence};
use crate::mesh::row::Network;
use crate::mesh::verdicts::{self, Direction, Kind, OfNetwork, Verdict};

/// The result of an examination.
#[derive(Debug, Serialize)]
pub struct Report {
    /// All in one line.
    headline: String,
    /// The gravest first.
    verdicts: Vec<Verdict>,
    /// Nodes without a row, or with half of one.
    missing: Vec<Missing>,
    /// Canaries that were asked, and have not answered as they should.
    pub unanswered: Vec<Unanswered>,
    /// Rows that were judged.
    pub rows: usize,
    /// Nodes that are known, by their rows or as somebody's peers.
    nodes: usize,
    /// Nodes of which only others speak, because nobody was asked for their rows.
    not_gathered: usize,
    /// Pairs that were measured.
    links: usize,
    /// Rows and pairs that did not fit.
    not_kept: usize,
    /// Nodes that there are, as far as the canaries know.
    members: usize,
    /// Networks that were measured.
    networks: Vec<&'static str>,
    /// By how many others each node is probed, at least; none where the canaries do not say.
    watchers: Option<u64>,
    /// Nodes that should be probed by more, but cannot.
    watchers_missing: usize,
    /// Canaries whose list of peers is old: no fault of the network, and no verdict.
    old_lists: Vec<OldList>,
}

/// A canary that was asked, and has not answered as it should.
#[derive(Debug, Serialize)]
pub struct Unanswered {
    /// Where.
    pub url: String,
    /// What came instead.
    pub error: String,
}

impl Report {
    /// Of what was judged.
    pub fn new<'a>(
        matrix: &Matrix,
        verdicts: Vec<Verdict>,
        missing: Vec<Missing>,
        rows: usize,
        told: Told,
        failed: impl Iterator<Item = (&'a CanaryUrl, &'a AskError)>,
    ) -> Self {
        let listed = matrix.numbers().filter(|node| matrix.get(*node).presence == Presence::Listed);
        let not_kept = matrix.not_kept();
        let networks = [(Network::Pod, "pod"), (Network::Node, "node")];
        // Members that no row names were not asked either.
        let not_gathered = listed.count() + (matrix.members() - matrix.node_count());
        // A mesh may know of nodes that none of its rows names.
        let not_gathered = not_gathered.max(told.not_gathered);
        Self {
            headline: verdicts::headline(&verdicts, matrix),
            verdicts,
            missing,
            unanswered: failed
                .map(|(url, error)| Unanswered { url: url.to_string(), error: error.to_string() })
                .collect(),
            rows,
            nodes: matrix.node_count(),
            not_gathered,
            links: matrix.cell_count(),
            not_kept: not_kept.rows + not_kept.cells,
            members: matrix.members(),
            networks: networks.into_iter().filter(|(it, _)| matrix.is_measured(*it)).map(|(_, name)| name).collect(),
            watchers: told.watchers,
            watchers_missing: told.watchers_missing,
            old_lists: told.old_lists,
        }
    }

    /// Whether everybody has answered, something was measured, and nothing is wrong.
    pub fn is_well(&self) -> bool {
        self.verdicts.is_empty() && self.missing.is_empty() && self.unanswered.is_empty() && self.links > 0
    }

    /// As one object on one line.
    pub fn json(&self) -> String {
        serde_json::to_string(self).map_or_else(|error| format!("{error}\n"), |text| text + "\n")
    }

    /// As lines.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", printable(&self.headline));
        // Into memory: it cannot fail.
        for verdict in &self.verdicts {
            let _ = write!(text, "\n{}\n    {}\n", title(verdict), printable(&verdict.evidence));
        }
        // Of the others a verdict tells, with what else is known of them.
        let untold = |missing: &&Missing| {
            let is_it = |verdict: &Verdict| verdict.kind == Kind::AgentUnreachable && verdict.subject == missing.node;
            !self.verdicts.iter().any(is_it)
        };
        for (place, Missing { node, error }) in self.missing.iter().filter(untold).enumerate() {
            let head = if place == 0 { "\nMissing:\n" } else { "" };
            let _ = writeln!(text, "{head}    {}: {}", printable(node), printable(error));
        }
        for (place, OldList { node, age_seconds }) in self.old_lists.iter().enumerate() {
            let head =
                if place == 0 { "\nOld peer lists, so that who joined or left since is told wrongly:\n" } else { "" };
            let age = age_seconds.map_or_else(|| "never had one".to_owned(), |age| format!("{:.0} min", age / 60.0));
            let _ = writeln!(text, "{head}    {}: {age}", printable(node));
        }
        let _ = write!(text, "\nJudged: {} of {} nodes, {} links", self.rows, self.members, self.links);
        if self.networks.len() > 1 {
            let _ = write!(text, " on the {} networks", self.networks.join(" and "));
        }
        text.push('.');
        if let Some(watchers) = self.watchers {
            let _ = write!(text, " Each node is watched by {} at least", count_of(watchers, "other"));
            if self.watchers_missing > 0 {
                let _ = write!(text, "; {} should be by more", count(self.watchers_missing, "node"));
            }
            text.push('.');
        }
        if self.not_gathered > 0 {
            let _ = write!(text, " Not asked for: {}.", count(self.not_gathered, "row"));
        }
        if self.not_kept > 0 {
            let _ = write!(text, " Did not fit: {}.", count(self.not_kept, "row or link"));
        }
        text.push('\n');
        text
    }
}

fn count(number: usize, of: &str) -> String {
    count_of(number as u64, of)
}

fn count_of(number: u64, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

fn title(verdict: &Verdict) -> String {
    let subject = printable(&verdict.subject);
    let network = match verdict.network {
        OfNetwork::Pod => "pod network",
        OfNetwork::Node => "node network",
    };
    let way = |out: &str, back: &str| match verdict.direction {
        Direction::Out => format!(", {out}"),
        Direction::In => format!(", {back}"),
        Direction::Both => String::new(),
    };
    let mut title = match verdict.kind {
        Kind::Node => format!("node {subject}{}, {network}", way("what it sends", "what is sent to it")),
        Kind::Link => format!("link {subject}{}, {network}", way("that way", "the way back")),
        Kind::ZonePair => format!("zones {subject}{}, {network}", way("that way", "the way back")),
        Kind::AgentStarved => format!("agent on {subject}: its own lag, not the network's"),
        Kind::AgentUnreachable => format!("agent on {subject}: does not answer"),
    };
    if let Some(since) = verdict.since_unix_seconds {
        let _ = write!(title, ", since {}", moment(since));
    }
    title
}

/// A moment in UTC, to the minute: what verdicts know is no finer.
fn moment(unix_seconds: u64) -> String {
    let (days, minutes) = (unix_seconds / 86_400, unix_seconds % 86_400 / 60);
    // Years that begin in March have their odd day last; eras of 400 of them are alike. 719,468 days lie between the
    // first of March of year 0 and 1970.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next;
    format!("{year:04}-{month:02}-{of_month:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::reading::Reading;

    #[test]
    fn a_mesh_that_is_probed_in_part_and_lists_that_are_old_are_told_and_no_fault() {
        let mut reading = Reading::default();
        let peer = |node: &str, network: &str| {
            format!(
                r#"{{"node":"{node}","zone":"z","network":"{network}","recent":{{"seconds":60,"sent":60,"received":60}}}}"#
            )
        };
        for (node, other) in [("a", "b"), ("b", "a")] {
            let row = format!(
                r#"{{"source":{{"node":"{node}","zone":"z","members":40,"watchers":12,"watchers_missing":{},
                    "peer_list_age_seconds":{}}},"peers":[{},{}]}}"#,
                u8::from(node == "a"),
                if node == "a" { "600" } else { "null" },
                peer(other, "pod"),
                peer(other, "node")
            );
            reading.row(0, row.as_bytes()).expect("a row");
        }
        let (matrix, missing, rows, told) = reading.finish();
        let report = Report::new(&matrix, verdicts::judge(&matrix), missing, rows, told, std::iter::empty());
        assert!(report.is_well());
        assert_eq!(
            report.text(),
            "all well as far as measured: nothing is known of 38 nodes\n\n\
             Old peer lists, so that who joined or left since is told wrongly:\n    a: 10 min\n    b: never had one\n\n\
             Judged: 2 of 40 nodes, 4 links on the pod and node networks. Each node is watched by 12 others at least; \
             1 node should be by more. Not asked for: 38 rows.\n"
        );
        let json: serde_json::Value = serde_json::from_str(&report.json()).expect("JSON");
        assert_eq!((&json["members"], &json["networks"][1]), (&40.into(), &"node".into()));
        assert_eq!(json["old_lists"][1], serde_json::json!({"node": "b", "age_seconds": null}));
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (unix_seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (951_868_800, "2000-03-01 00:00 UTC"),
            (1_709_164_800, "2024-02-29 00:00 UTC"),
            (1_735_689_540, "2024-12-31 23:59 UTC"),
            (4_102_444_800, "2100-01-01 00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(moment(unix_seconds), text);
        }
    }
}
