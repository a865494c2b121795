//! `--watch`: repeats the judgement and prints only changes.
//!
//! Only the last judgement is kept, so memory does not grow with time. The traps: a failed
//! examination does not end a verdict, because nothing was judged. Figures differ every time, and
//! are no change. The reader of the output may be gone for hours before there is something to
//! write.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use super::output::{Examination, finding, stamp, tint, title};
use super::{Conclusion, DoctorError, examine, file};
use crate::allocator;
use crate::config::{DoctorSettings, Verdicts};
use crate::mesh::domains::DomainsFile;
use crate::mesh::verdicts::{Verdict, wording};
use crate::sys::clock;
use crate::sys::console::{self, OutputReader, json_line, printable};
use crate::sys::error::{SystemError, system};
use crate::sys::stop::StopOrEof;
use crate::sys::terminal::{Terminal, Tint};

/// How soon the watch notices that the reader of its output is gone.
const READER_TIME: Duration = Duration::from_secs(1);

/// Repeats the examination until a signal arrives or the output has no reader, with `--until-eof`
/// also until standard input ends. Returns the last outcome.
///
/// # Errors
/// A signal handler, standard output, or a file that cannot be read again.
pub async fn run(
    settings: &DoctorSettings,
    verdicts: &Verdicts,
    domains: Option<&DomainsFile>,
    interval: Duration,
) -> Result<Conclusion, DoctorError> {
    let mut stop = StopOrEof::new(settings.until_eof).map_err(system("handle signals"))?;
    allocator::mark_baseline();
    if let Verdicts::Read(file) = verdicts {
        file::expect_lasting(file)?;
    }
    let (mut watched, mut outcome) = (Watched::default(), Conclusion::Unknown);
    loop {
        let next = Instant::now() + interval;
        let result = tokio::select! {
            result = examine(verdicts, domains) => result,
            () = stop.asked() => return Ok(outcome),
        };
        outcome = result.as_ref().map_or(Conclusion::Unknown, Examination::outcome);
        let changes = watched.take(result, clock::realtime().as_secs());
        let terminal = Terminal::stdout(settings.colours);
        let text = changes.map(|changes| if settings.json { changes.json() } else { changes.text(terminal) });
        let is_read = tokio::select! {
            is_read = show(text, next) => is_read?,
            () = stop.asked() => return Ok(outcome),
        };
        if !is_read {
            return Ok(outcome);
        }
    }
}

/// Prints what has changed, and waits until the next examination. Returns whether the output
/// still has a reader.
async fn show(text: Option<String>, next: Instant) -> Result<bool, SystemError> {
    let text = text.unwrap_or_default();
    if !console::print_in_pieces(text).await.map_err(system("write to standard output"))? {
        return Ok(false);
    }
    loop {
        if console::reader() == OutputReader::Gone {
            return Ok(false);
        }
        let now = Instant::now();
        if now >= next {
            return Ok(true);
        }
        sleep_until(next.min(now + READER_TIME)).await;
    }
}

/// The identity of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// Kind, subject, network and protocol of a verdict, in words.
    Verdict(String),
    /// A node without a whole report, an agent that does not answer, or a line that is no report.
    Unjudged(String),
}

/// An entry as it is shown.
#[derive(Clone, Debug)]
struct ShownEntry {
    /// The title. If it differs from the last one, that is a change.
    title: String,
    /// The title, followed by its start time.
    line: String,
    /// The evidence, with its figures, and the traces, each on a line.
    detail: String,
    tint: Tint,
    verdict: Option<Verdict>,
}

/// The state after the last examination.
#[derive(Debug, Default)]
struct Watched {
    outcome: Option<Conclusion>,
    is_by_judges: bool,
    entries: BTreeMap<Key, ShownEntry>,
    /// The reason why the last examination failed.
    failed: Option<String>,
}

/// The differences from the last examination.
#[derive(Debug)]
struct Changes {
    unix_seconds: u64,
    /// Whether it also says how much was judged. The first examination does, and the first one by
    /// judges or without them.
    says_extent: bool,
    result: Result<Examination, String>,
    new: Vec<ShownEntry>,
    changed: Vec<ShownEntry>,
    over: Vec<ShownEntry>,
}

impl Watched {
    /// Takes the result of an examination. Returns the changes, if there are any.
    fn take(&mut self, result: Result<Examination, DoctorError>, unix_seconds: u64) -> Option<Changes> {
        let (is_first, failed_before) = (self.outcome.is_none(), self.failed.take());
        let examination = match result {
            Ok(examination) => examination,
            Err(error) => {
                let reason = match &error {
                    DoctorError::Silent(silent) => silent.first(),
                    _ => None,
                };
                let reason = reason.map(|first| format!(": {}: {}", first.url, first.error)).unwrap_or_default();
                let error = format!("{error}{reason}");
                self.failed = Some(error.clone());
                let is_change = failed_before.is_none_or(|before| before != error);
                return is_change.then(|| Changes {
                    unix_seconds,
                    says_extent: false,
                    result: Err(error),
                    new: Vec::new(),
                    changed: Vec::new(),
                    over: Vec::new(),
                });
            }
        };
        let outcome = self.outcome.replace(examination.outcome());
        let was_by_judges = std::mem::replace(&mut self.is_by_judges, examination.is_by_judges());
        let says_extent = is_first || was_by_judges != self.is_by_judges;
        let entries = entries(&examination);
        let before = std::mem::replace(&mut self.entries, entries);
        let (mut new, mut changed) = (Vec::new(), Vec::new());
        for (key, entry) in &self.entries {
            match before.get(key) {
                None => new.push(entry.clone()),
                Some(known) if known.title != entry.title => changed.push(entry.clone()),
                Some(_) => {}
            }
        }
        let over: Vec<ShownEntry> =
            before.into_iter().filter(|(key, _)| !self.entries.contains_key(key)).map(|(_, entry)| entry).collect();
        let is_same = new.is_empty() && changed.is_empty() && over.is_empty() && outcome == self.outcome;
        let is_change = says_extent || failed_before.is_some() || !is_same;
        is_change.then_some(Changes { unix_seconds, says_extent, result: Ok(examination), new, changed, over })
    }
}

/// Returns all findings of a report, and all parts that were not judged.
fn entries(examination: &Examination) -> BTreeMap<Key, ShownEntry> {
    let mut entries = BTreeMap::new();
    for verdict in &examination.verdicts {
        let key = format!("{:?} {}", verdict.kind, verdict.id);
        let entry = ShownEntry {
            title: finding(verdict),
            line: title(verdict),
            detail: examination
                .traces_of(verdict)
                .iter()
                .fold(printable(&wording::evidence(verdict)), |detail, traced| format!("{detail}\n      {traced}")),
            tint: tint(verdict),
            verdict: Some(verdict.clone()),
        };
        entries.insert(Key::Verdict(key), entry);
    }
    let mut unjudged = |what: String, error: &str| {
        let (line, detail) = (format!("{what}: not judged"), printable(error));
        entries.insert(
            Key::Unjudged(what),
            ShownEntry { title: line.clone(), line, detail, tint: Tint::Warning, verdict: None },
        );
    };
    for missing in examination.without_verdict() {
        unjudged(format!("report of {}", printable(&missing.node)), &missing.error);
    }
    // The judges have judged the nodes of these agents.
    for agent in examination.unanswered.iter().filter(|_| !examination.is_by_judges()) {
        unjudged(agent.url.clone(), &agent.error);
    }
    for unread in &examination.unread {
        let what = unread.line.map_or_else(|| "a part of the file".to_owned(), |line| format!("line {line}"));
        unjudged(what, &unread.error);
    }
    entries
}

impl Changes {
    /// Formats the changes as lines: the time, the headline, and what is new (`+`), changed (`~`)
    /// or over (`-`).
    fn text(&self, terminal: Terminal) -> String {
        let now = stamp(self.unix_seconds);
        let examination = match &self.result {
            Ok(examination) => examination,
            Err(error) => {
                let text = format!("cannot judge: {}", printable(error));
                return format!("{now}: {}\n", terminal.paint(Tint::Warning, &text));
            }
        };
        // Writing to memory cannot fail.
        let mut text = format!("{now}: {}\n", terminal.paint(examination.tint(), &examination.headline()));
        for (mark, entries) in [("+", &self.new), ("~", &self.changed)] {
            for entry in entries {
                let line = terminal.paint(entry.tint, &entry.line);
                let _ = write!(text, "  {mark} {line}\n      {}\n", entry.detail);
            }
        }
        for entry in &self.over {
            let _ = writeln!(text, "  - {}", terminal.paint(Tint::Good, &entry.title));
        }
        if self.says_extent {
            let _ = writeln!(text, "  {}", examination.extent());
        }
        text
    }

    /// Formats the examination as one object on one line, with the time and the
    /// verdicts that have changed.
    fn json(&self) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            time_unix_seconds: u64,
            error: Option<&'a str>,
            new: Vec<&'a Verdict>,
            changed: Vec<&'a Verdict>,
            over: Vec<&'a Verdict>,
            #[serde(flatten)]
            examination: Option<&'a Examination>,
        }
        fn verdicts(entries: &[ShownEntry]) -> Vec<&Verdict> {
            entries.iter().filter_map(|entry| entry.verdict.as_ref()).collect()
        }
        let line = Line {
            time_unix_seconds: self.unix_seconds,
            error: self.result.as_ref().err().map(String::as_str),
            new: verdicts(&self.new),
            changed: verdicts(&self.changed),
            over: verdicts(&self.over),
            examination: self.result.as_ref().ok(),
        };
        json_line(&line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::output::{Unanswered, Unread};
    use crate::commands::doctor::reading::MeshReading;

    const NODES: [&str; 4] = ["a", "b", "c", "d"];

    /// A report on four nodes. Of 60 probes to `b`, `lost` are lost.
    fn look(lost: u32) -> Examination {
        let mut reading = MeshReading::off_line();
        for source in &NODES {
            let peer = |peer: &&str| {
                let lost = if *peer == "b" { lost } else { 0 };
                format!(
                    r#"{{"node":"{peer}","zone":"z","recent":{{"seconds":60,"sent":60,"received":{},"lost":{lost}}}}}"#,
                    60 - lost
                )
            };
            let peers: Vec<String> = NODES.iter().filter(|node| *node != source).map(peer).collect();
            let row = format!(r#"{{"source":{{"node":"{source}","zone":"z"}},"peers":[{}]}}"#, peers.join(","));
            reading.report(0, row.as_bytes()).unwrap();
        }
        Examination::judged(reading)
    }

    fn silent() -> Result<Examination, DoctorError> {
        Err(DoctorError::Silent(Vec::new()))
    }

    #[test]
    fn silence_is_printed_with_what_an_agent_fails_by() {
        let mut watched = Watched::default();
        let mut take = |error: &str| {
            let silent = Unanswered { url: "http://a".into(), error: error.into() };
            let changes = watched.take(Err(DoctorError::Silent(vec![silent])), 951_782_399);
            changes.map(|changes| changes.text(Terminal::PLAIN))
        };
        for error in ["refused", "no answer within 10s"] {
            let text = take(error).expect("another error is a change");
            assert!(text.contains(&format!("none of 1 agents answers: http://a: {error}")), "{text}");
        }
        assert_eq!(take("no answer within 10s"), None);
    }

    #[test]
    fn only_changes_are_printed() {
        let mut watched = Watched::default();
        let mut take = |look| watched.take(look, 951_782_399).map(|changes| changes.text(Terminal::PLAIN));
        let look = |lost| Ok(look(lost));
        let begin = take(look(0));
        let now = "2000-02-28 23:59:59 UTC";
        assert_eq!(begin, Some(format!("{now}: all well\n  Judged: 4 of 4 nodes, 12 links.\n")));
        assert_eq!(take(look(0)), None);
        let bad = take(look(30)).unwrap();
        assert!(bad.contains("\n  + node b, pod network\n      loses 50.0 %") && !bad.contains("Judged"), "{bad}");
        // Other figures alone are no change.
        assert_eq!(take(look(45)), None);
        // A failed examination ends no verdict, and is reported once.
        assert_eq!(take(silent()), Some(format!("{now}: cannot judge: none of 0 agents answers\n")));
        assert_eq!(take(silent()), None);
        let again = take(look(45)).unwrap();
        assert!(again.starts_with(now) && again.lines().count() == 1, "{again}");
        let well = take(look(0));
        assert_eq!(well, Some(format!("{now}: all well\n  - node b, pod network\n")));
    }

    #[test]
    fn unjudged_parts_are_printed_when_they_begin_and_end() {
        let mut watched = Watched::default();
        let mut take = |look: Examination| watched.take(Ok(look), 0).map(|changes| changes.text(Terminal::PLAIN));
        let unread = |lines: &[usize]| {
            let unread = |line: &usize| Unread { line: Some(*line), error: "not a report".into() };
            look(0).with_unread(lines.iter().map(unread).collect())
        };
        let first = take(unread(&[2])).unwrap();
        assert!(
            first.contains("not all was judged: 1 part of the input not read\n  + line 2: not judged\n"),
            "{first}"
        );
        let second = take(unread(&[2, 3])).unwrap();
        assert!(second.contains("  + line 3: not judged\n") && !second.contains("line 2"), "{second}");
        assert_eq!(take(unread(&[])).unwrap().matches("\n  - line ").count(), 2);
    }
}
