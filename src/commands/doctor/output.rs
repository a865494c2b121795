//! Prints the result for an operator, or for a program.

use std::fmt::{self, Write as _};

use serde::Serialize;

use super::Conclusion;
use super::act::ActSummary;
use super::judges::{Judge, JudgesSummary};
use super::reading::{MeshReading, OFFLINE_MESH_BYTES_MAX, OldList};
use super::traces::{OfVerdict, Traced};
use crate::commands::fleet::ask::AskError;
use crate::config::AgentUrl;
use crate::discovery::dns::ResolveError;
use crate::limits::OFFLINE_NODES_MAX;
use crate::mesh::matrix::RowPresence;
use crate::mesh::verdicts::{self, Confidence, Judgement, Kind, MeshState, Overall, UnsentProbes, Verdict, wording};
use crate::report::{Missing, Network};
use crate::sys::clock::date;
use crate::sys::console::{json_line, printable};
use crate::sys::terminal::{Terminal, Tint};

/// What an examination has found.
#[derive(Debug, Serialize)]
pub struct Examination {
    /// The summary in one line.
    pub(super) headline: String,
    /// Whether all is well, links have losses without a known cause, or there is a cause.
    pub(super) state: MeshState,
    /// Verdicts, the most severe first.
    #[serde(serialize_with = "wording::worded")]
    pub verdicts: Vec<Verdict>,
    /// The traces of the links that a verdict is about, as their sources report them.
    pub(super) traces: Vec<OfVerdict>,
    /// Probes that could not be sent.
    #[serde(flatten)]
    pub(super) unsent: UnsentProbes,
    /// What else is known of the mesh as a whole.
    pub(super) overall: Overall,
    /// Nodes whose report is missing or incomplete.
    pub missing: Vec<Missing>,
    /// Agents that were asked and gave no valid answer.
    pub unanswered: Vec<Unanswered>,
    /// Parts of a file that are no report.
    pub unread: Vec<Unread>,
    /// What act has done. None if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) act: Option<ActSummary>,
    /// Says whether judges have judged, and how much.
    #[serde(flatten)]
    pub(super) extent: JudgedExtent,
}

/// Says whether judges have judged, and how much.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum JudgedExtent {
    /// The judges of the mesh have.
    Judges(JudgesSummary),
    /// `doctor` has.
    Here(JudgedHere),
}

/// How much `doctor` has judged itself.
#[derive(Debug, Serialize)]
pub(super) struct JudgedHere {
    /// No judge has judged.
    judges: [Judge; 0],
    /// Whether judges were asked for, and none has answered.
    #[serde(skip)]
    instead_of_judges: bool,
    /// The number of reports that were judged.
    rows: usize,
    /// The number of nodes that are known, by their reports or as peers of others.
    nodes: usize,
    /// The number of nodes that are known only from other reports, because their
    /// own was not requested.
    not_gathered: usize,
    /// The number of measured pairs.
    links: usize,
    /// The number of reports and pairs that exceeded the limits.
    not_kept: usize,
    /// The number of members of the mesh, as far as the agents know.
    members: usize,
    /// The networks that were measured.
    networks: Vec<&'static str>,
    /// The smallest number of watchers that a node has. None if the agents do not report it.
    watchers: Option<u64>,
    /// The number of nodes that should have more watchers, but cannot.
    watchers_missing: usize,
    /// Agents whose peer list is old. That is no fault of the network, and no verdict.
    old_lists: Vec<OldList>,
}

/// An agent that was asked and gave no valid answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unanswered {
    /// The URL that was requested, or `DNS`.
    pub url: String,
    /// The reason why there is no answer.
    pub error: String,
}

impl Unanswered {
    /// Returns the entry for an agent.
    pub fn agent((agent, error): &(AgentUrl, AskError)) -> Self {
        Self { url: agent.to_string(), error: error.to_string() }
    }

    /// Returns the entry for a Service that could not be resolved, so that some of its agents were
    /// not asked.
    pub fn dns(error: &ResolveError) -> Self {
        Self { url: "DNS".into(), error: error.to_string() }
    }
}

/// A part of a file that is no report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unread {
    /// The line number, from 1. None if the part is not one line.
    pub line: Option<usize>,
    /// The reason why it was not read.
    pub error: String,
}

impl Unread {
    /// Returns the entry for a file that has more reports than are judged.
    pub fn too_much() -> Self {
        let mebibytes = OFFLINE_MESH_BYTES_MAX >> 20;
        let error = format!("more than {OFFLINE_NODES_MAX} nodes or {mebibytes} MiB of links: the rest is not judged");
        Self { line: None, error }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(out, "line {line}: {}", self.error),
            None => out.write_str(&self.error),
        }
    }
}

impl Examination {
    /// Judges everything that was read.
    pub fn judged(reading: MeshReading) -> Self {
        let (matrix, missing, rows, facts) = reading.finish();
        let judgement = verdicts::judge_whole(&matrix);
        let (headline, Judgement { found, unsent, overall, .. }) = (judgement.headline(), judgement);
        let verdicts = found.verdicts;
        let listed = matrix.numbers().filter(|node| matrix.get(*node).presence == RowPresence::Listed);
        let not_kept = matrix.not_kept();
        let networks = [(Network::Pod, "pod"), (Network::Node, "node")];
        // Members that no report names were not asked either.
        let not_gathered = listed.count() + (matrix.members() - matrix.node_count());
        Self {
            headline: headline.text,
            state: headline.state,
            traces: facts.traces.by_verdict(&verdicts),
            verdicts,
            unsent,
            overall,
            missing,
            unanswered: Vec::new(),
            unread: Vec::new(),
            act: None,
            extent: JudgedExtent::Here(JudgedHere {
                judges: [],
                instead_of_judges: false,
                rows,
                nodes: matrix.node_count(),
                not_gathered,
                links: matrix.cell_count(),
                not_kept: not_kept.rows + not_kept.all_cells(),
                members: matrix.members(),
                networks: networks
                    .into_iter()
                    .filter(|(network, _)| matrix.is_measured(*network))
                    .map(|(_, network)| network)
                    .collect(),
                watchers: facts.watchers,
                watchers_missing: facts.watchers_missing,
                old_lists: facts.old_lists,
            }),
        }
        .with_true_headline()
    }

    /// Returns the report with the agents that have not answered.
    pub fn with_unanswered(self, unanswered: Vec<Unanswered>) -> Self {
        Self { unanswered, ..self }.with_true_headline()
    }

    /// Returns the report with the parts of the file that were not read.
    pub fn with_unread(self, unread: Vec<Unread>) -> Self {
        Self { unread, ..self }.with_true_headline()
    }

    /// Returns the report with the traces that were read.
    pub fn with_traces(mut self, reading: MeshReading) -> Self {
        let (_, _, reports, facts) = reading.finish();
        self.traces = facts.traces.by_verdict(&self.verdicts);
        if let JudgedExtent::Judges(judged) = &mut self.extent {
            judged.tracing = Some(reports);
        }
        self
    }

    /// Returns the report with what act has done.
    pub fn with_act(self, act: Option<ActSummary>) -> Self {
        Self { act, ..self }
    }

    /// Returns the report as one that was made because no judge has answered.
    pub fn instead_of_judges(mut self) -> Self {
        if let JudgedExtent::Here(here) = &mut self.extent {
            here.instead_of_judges = true;
        }
        self
    }

    /// Corrects the headline: it knows only the judged reports, not the missing ones.
    pub(super) fn with_true_headline(mut self) -> Self {
        if self.outcome() == Conclusion::Unknown && self.is_measured() {
            let parts = self.not_judged().into_iter().filter(|(number, ..)| *number > 0);
            let parts: Vec<String> = parts.map(|(number, of, what)| format!("{} {what}", count(number, of))).collect();
            self.headline = format!("nothing found, but not all was judged: {}", parts.join(", "));
        }
        self
    }

    /// Returns the numbers of what was not judged, with words for each.
    fn not_judged(&self) -> [(usize, &'static str, &'static str); 5] {
        let (missing_not_listed, not_gathered, unanswered) = match &self.extent {
            JudgedExtent::Judges(judged) => (judged.missing_not_listed, judged.not_gathered, 0),
            // An agent collects a part of a large mesh.
            JudgedExtent::Here(_) => (0, 0, self.unanswered.len()),
        };
        [
            (self.missing.len().saturating_add(missing_not_listed), "node", "without a whole report"),
            (not_gathered, "node", "not asked"),
            (self.overall.other_version, "node", "of another version"),
            (unanswered, "agent", "asked in vain"),
            (self.unread.len(), "part", "of the input not read"),
        ]
    }

    /// Whether there is at least one link.
    const fn is_measured(&self) -> bool {
        match &self.extent {
            JudgedExtent::Judges(judged) => judged.nodes > 1,
            JudgedExtent::Here(here) => here.links > 0,
        }
    }

    /// Whether the judges of the mesh have judged.
    pub const fn is_by_judges(&self) -> bool {
        matches!(self.extent, JudgedExtent::Judges(_))
    }

    /// Returns the number of reports that `doctor` has judged.
    pub const fn rows(&self) -> usize {
        match &self.extent {
            JudgedExtent::Judges(_) => 0,
            JudgedExtent::Here(here) => here.rows,
        }
    }

    /// Whether reports or pairs exceeded the limits.
    pub const fn is_cut(&self) -> bool {
        match &self.extent {
            JudgedExtent::Judges(_) => false,
            JudgedExtent::Here(here) => here.not_kept > 0,
        }
    }

    /// Returns the outcome of the examination.
    pub fn outcome(&self) -> Conclusion {
        match self.state {
            MeshState::Cause | MeshState::Losses => return Conclusion::Found,
            MeshState::Unknown => return Conclusion::Unknown,
            MeshState::Well => {}
        }
        let is_whole = self.not_judged().iter().all(|(number, ..)| *number == 0);
        if is_whole && self.is_measured() { Conclusion::Well } else { Conclusion::Unknown }
    }

    /// Returns the nodes without a complete report that no verdict mentions.
    pub fn without_verdict(&self) -> impl Iterator<Item = &Missing> {
        let unreachable = self.verdicts.iter().filter(|verdict| verdict.kind == Kind::AgentUnreachable);
        self.missing.iter().filter(move |missing| unreachable.clone().all(|verdict| verdict.subject != missing.node))
    }

    /// Returns the traces of a verdict.
    pub fn traces_of(&self, verdict: &Verdict) -> &[Traced] {
        self.traces.iter().find(|of| of.id == verdict.id).map_or(&[], |of| &of.traces)
    }

    /// Returns the headline in printable form.
    pub fn headline(&self) -> String {
        printable(&self.headline)
    }

    /// Returns one line that says how much was judged, and by which judges.
    pub fn extent(&self) -> String {
        match &self.extent {
            JudgedExtent::Judges(judged) => judged.to_string(),
            JudgedExtent::Here(here) => here.to_string(),
        }
    }

    fn old_lists(&self) -> &[OldList] {
        match &self.extent {
            JudgedExtent::Judges(_) => &[],
            JudgedExtent::Here(here) => &here.old_lists,
        }
    }

    /// Formats the report as one object on one line.
    pub fn json(&self) -> String {
        json_line(self)
    }

    /// Returns the colour of the headline. It is red unless every verdict is only likely.
    pub fn tint(&self) -> Tint {
        match self.outcome() {
            Conclusion::Well => Tint::Good,
            Conclusion::Unknown => Tint::Warning,
            Conclusion::Found if self.verdicts.is_empty() => Tint::Bad,
            Conclusion::Found if self.verdicts.iter().all(|verdict| tint(verdict) == Tint::Warning) => Tint::Warning,
            Conclusion::Found => Tint::Bad,
        }
    }

    /// Formats the report as lines of text.
    pub fn text(&self, terminal: Terminal) -> String {
        let mut text = terminal.paint(self.tint(), &self.headline()) + "\n";
        // Writing to memory cannot fail.
        for verdict in &self.verdicts {
            let title = terminal.paint(tint(verdict), &title(verdict));
            let _ = write!(text, "\n{title}\n    {}\n", printable(&wording::evidence(verdict)));
            for traced in self.traces_of(verdict) {
                let _ = writeln!(text, "    {traced}");
            }
            if let Some(command) = wording::next_command(verdict) {
                let _ = writeln!(text, "    next: {command}");
            }
            let _ = writeln!(text, "    runbook: {}", wording::runbook(verdict));
        }
        for (place, unsent) in self.unsent.unsent.iter().enumerate() {
            let head = if place == 0 { "\nNot sent, so not measured:\n" } else { "" };
            let _ = writeln!(text, "{head}    {}: {}", printable(&unsent.node), printable(&unsent.words()));
        }
        if self.unsent.unsent_not_listed > 0 {
            let _ = writeln!(text, "    and of {}", count(self.unsent.unsent_not_listed, "more node"));
        }
        for note in wording::notes(&self.overall) {
            let _ = writeln!(text, "\nNo fault: {}", printable(&note));
        }
        // The others are in a verdict, together with what else is known of them.
        for (place, Missing { node, error }) in self.without_verdict().enumerate() {
            let head = if place == 0 { "\nMissing:\n" } else { "" };
            let _ = writeln!(text, "{head}    {}: {}", printable(node), printable(error));
        }
        for (place, OldList { node, age_seconds }) in self.old_lists().iter().enumerate() {
            let head = if place == 0 {
                "\nOld peer lists, which lack nodes that joined and have nodes that left since:\n"
            } else {
                ""
            };
            let age = age_seconds.map_or_else(|| "never had one".to_owned(), |age| format!("{:.0} min", age / 60.0));
            let _ = writeln!(text, "{head}    {}: {age}", printable(node));
        }
        let _ = writeln!(text, "\n{}", self.extent());
        if let Some(act) = &self.act {
            let _ = writeln!(text, "{act}");
        }
        text
    }
}

impl fmt::Display for JudgedHere {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Judged: {} of {} nodes, {} links", self.rows, self.members, self.links)?;
        if self.networks.len() > 1 {
            write!(out, " on the {} networks", self.networks.join(" and "))?;
        }
        out.write_str(".")?;
        if let Some(watchers) = self.watchers {
            write!(out, " Each node is watched by {} at least", count_of(watchers, "other"))?;
            if self.watchers_missing > 0 {
                write!(out, "; {} should be by more", count(self.watchers_missing, "node"))?;
            }
            out.write_str(".")?;
        }
        if self.not_gathered > 0 {
            write!(out, " Not asked for: {}.", count(self.not_gathered, "report"))?;
        }
        if self.not_kept > 0 {
            write!(out, " Did not fit: {}.", count(self.not_kept, "report or link"))?;
        }
        if self.instead_of_judges {
            out.write_str(" No judge has answered, so doctor has judged itself.")?;
        }
        Ok(())
    }
}

/// Formats a number with its noun, which is in the plural unless the number is 1.
pub fn count(number: usize, of: &str) -> String {
    count_of(number as u64, of)
}

/// Formats the number of judges and their names, separated by commas.
pub fn joined(judges: &[Judge]) -> String {
    let names: Vec<_> = judges.iter().map(|judge| printable(&judge.node)).collect();
    format!("{}: {}", count(judges.len(), "judge"), names.join(", "))
}

fn count_of(number: u64, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

/// Returns the colour of a verdict.
pub const fn tint(verdict: &Verdict) -> Tint {
    match verdict.confidence {
        Confidence::Certain => Tint::Bad,
        Confidence::Likely => Tint::Warning,
    }
}

/// Returns the finding, its place and its start.
pub fn title(verdict: &Verdict) -> String {
    let mut title = finding(verdict);
    if let Some(since) = verdict.since_unix_seconds {
        let _ = write!(title, ", since {}", moment(since));
    }
    title
}

/// Returns the finding and its place.
pub fn finding(verdict: &Verdict) -> String {
    printable(&wording::title(verdict))
}

/// Formats a time in UTC, to the minute. Verdicts know it no more exactly.
pub fn moment(unix_seconds: u64) -> String {
    let minutes = unix_seconds % 86_400 / 60;
    format!("{} {:02}:{:02} UTC", date(unix_seconds), minutes / 60, minutes % 60)
}

/// Formats a time in UTC, to the second.
pub fn stamp(unix_seconds: u64) -> String {
    let seconds = unix_seconds % 86_400;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!("{} {hours:02}:{minutes:02}:{:02} UTC", date(unix_seconds), seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::reading::MeshReading;

    #[test]
    fn a_mesh_probed_in_part_and_old_lists_are_shown_and_are_no_fault() {
        let mut reading = MeshReading::default();
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
            reading.report(0, row.as_bytes()).expect("a row");
        }
        let report = Examination::judged(reading);
        assert_eq!(report.outcome(), Conclusion::Well);
        assert_eq!(
            report.text(Terminal::PLAIN),
            "all well as far as measured: nothing is known of 38 nodes\n\n\
             Old peer lists, which lack nodes that joined and have nodes that left since:\n    a: 10 min\n    b: never had one\n\n\
             Judged: 2 of 40 nodes, 4 links on the pod and node networks. Each node is watched by 12 others at least; \
             1 node should be by more. Not asked for: 38 reports.\n"
        );
        let json: serde_json::Value = serde_json::from_str(&report.json()).expect("JSON");
        assert_eq!((&json["members"], &json["networks"][1]), (&40.into(), &"node".into()));
        assert_eq!(json["old_lists"][1], serde_json::json!({"node": "b", "age_seconds": null}));
    }

    #[test]
    fn what_could_not_be_sent_is_a_finding_with_its_reason() {
        let mut reading = MeshReading::default();
        for (node, other) in [("a", "b"), ("b", "a")] {
            let row = format!(
                r#"{{"source":{{"node":"{node}","zone":"z"}},"peers":[
                    {{"node":"{other}","zone":"z","recent":{{"seconds":60,"sent":60,"received":60}}}},
                    {{"node":"{other}","zone":"z","protocol":"icmpv6","recent":{{"seconds":60,"send_errors":59,
                        "send_error_reason":"no_route"}}}}]}}"#
            );
            reading.report(0, row.as_bytes()).expect("a row");
        }
        let report = Examination::judged(reading);
        assert_eq!((report.outcome(), report.tint()), (Conclusion::Found, Tint::Bad));
        let docs = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs");
        assert_eq!(
            report.text(Terminal::PLAIN).replace(docs, "DOCS"),
            "a and b cannot send over IPv6 to each other: no route\n\n\
             link a->b, pod network, IPv6 only: cannot be sent\n    \
             probes over 2 of 2 links could not be sent: no route; they count as neither sent nor lost\n    \
             next: kubectl -n kube-canary exec POD-ON-a -- /kube-canary ping b\n    \
             runbook: DOCS/verdicts.md#probes-that-cannot-be-sent\n\n\
             Not sent, so not measured:\n    a: ICMP over IPv6 to 1 of 1 peer: no route\n    \
             b: ICMP over IPv6 to 1 of 1 peer: no route\n\nJudged: 2 of 2 nodes, 2 links.\n"
        );
        let json: serde_json::Value = serde_json::from_str(&report.json()).expect("JSON");
        assert_eq!((&json["state"], &json["unsent"][1]["reason"]), (&"cause".into(), &"no_route".into()));
    }

    #[test]
    fn times_follow_the_calendar() {
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
            assert_eq!(stamp(unix_seconds).replace(&format!(":{:02} UTC", unix_seconds % 60), " UTC"), text);
        }
        assert_eq!(stamp(951_782_399), "2000-02-28 23:59:59 UTC");
    }
}
