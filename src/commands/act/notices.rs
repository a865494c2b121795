//! Which verdicts hold, and the Events and messages that report them, as values. No I/O, no clock.
//!
//! A verdict is open from the round in which two agents call it certain until two agents lack it.
//! Its end is reported wherever its beginning was. So a closed verdict stays here until its end is
//! delivered.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::agreement::Agreement;
use super::conditions::node_of;
use crate::mesh::verdicts::wording::{evidence, runbook, title};
use crate::mesh::verdicts::{Confidence, Kind, Severity, Verdict};
use crate::sys::console::printable;

/// Verdicts that are open, or whose end is not reported yet. Judges name 64.
const VERDICTS_MAX: usize = 128;
/// Events in a minute. More wait.
const EVENTS_PER_MINUTE: u32 = 10;
const MINUTE: Duration = Duration::from_mins(1);
/// The API server forgets an Event after an hour, so that of a verdict that holds is renewed.
const EVENT_RENEWAL: Duration = Duration::from_mins(30);
/// How often it is repeated that a verdict holds, for a receiver that forgets it otherwise.
const REPEAT: Duration = Duration::from_mins(1);
/// An agent that is replaced may have such a verdict for a while. The alert waits as long.
const AGENT_HOLD: Duration = Duration::from_mins(2);
/// Silence of judges that is reported.
const SILENCE: Duration = Duration::from_mins(1);
/// Bytes of a sentence: the API refuses an Event of more than 1 KiB of text.
const SENTENCE_BYTES_MAX: usize = 800;

/// Where in its life a verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The verdict has begun.
    Begin,
    /// It still holds, which is repeated.
    Still,
    /// The verdict has ended.
    End,
}

/// A message that reports a verdict to people.
#[derive(Clone, Debug)]
pub struct Notice {
    /// Whether the verdict begins or ends.
    pub phase: Phase,
    /// The verdict that it reports.
    pub verdict: Verdict,
}

/// What an Event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Regarding {
    /// A node, by its name.
    Node(String),
    /// The DaemonSet of the agents.
    Mesh,
}

/// An Event that is written to the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventNote {
    /// What it is about.
    pub regarding: Regarding,
    /// Its name, which follows from what it says: the same Event is never there twice.
    pub name: String,
    /// Its reason, a word.
    pub reason: &'static str,
    /// Whether something is wrong.
    pub is_warning: bool,
    /// A sentence, at most 1 KiB.
    pub text: String,
    /// The number of times that it has been reported.
    pub count: u32,
}

/// How far something is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reported {
    /// Neither beginning nor end.
    #[default]
    Nothing,
    /// The beginning is reported, or waits for its delivery.
    Begin,
    /// Both are reported, or neither has to be.
    All,
}

/// A verdict that holds, or whose end is not reported yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenVerdict {
    verdict: Verdict,
    /// The severity of its beginning. Messages keep it: Alertmanager takes another one for another
    /// alert.
    severity: Severity,
    event: Reported,
    message: Reported,
    /// How long it has been heard.
    #[serde(skip)]
    age: Duration,
    /// Number of Events so far, which the Event itself has.
    #[serde(default)]
    events: u32,
    #[serde(skip)]
    event_at: Duration,
    #[serde(skip)]
    message_at: Duration,
    /// Whether this process has sent a message in this phase.
    #[serde(skip)]
    is_sent: bool,
}

/// Says what the process remembers after a restart.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptNotices {
    verdicts: Vec<OpenVerdict>,
    is_silence_reported: bool,
}

/// All open verdicts, and how far they are reported.
#[derive(Debug, Default)]
pub struct Notices {
    open: BTreeMap<String, OpenVerdict>,
    /// When the Events of the last minute were written.
    written: VecDeque<Duration>,
    silent_for: Duration,
    is_silence_reported: bool,
}

/// Returns a verdict in a sentence, without control characters.
pub fn sentence(verdict: &Verdict) -> String {
    let mut text = printable(&format!("{}: {}", title(verdict), evidence(verdict)));
    text.truncate(text.floor_char_boundary(SENTENCE_BYTES_MAX));
    text
}

/// Returns an id of one occurrence of a verdict: the same before and after a restart.
pub fn occurrence(verdict: &Verdict) -> String {
    format!("{}-{:x}", verdict.id, verdict.since_unix_seconds.unwrap_or(0))
}

impl Notices {
    /// Makes the notices of a process that has just started.
    pub fn new(kept: KeptNotices) -> Self {
        let open = kept.verdicts.into_iter().take(VERDICTS_MAX);
        // The hold of an agent's verdict is over if its beginning is reported.
        let open = open.map(|open| (occurrence(&open.verdict), OpenVerdict { age: AGENT_HOLD, ..open }));
        Self { open: open.collect(), is_silence_reported: kept.is_silence_reported, ..Self::default() }
    }

    /// Returns what the process must remember.
    pub fn kept(&self) -> KeptNotices {
        let is_reported = |open: &&OpenVerdict| open.event != Reported::Nothing || open.message != Reported::Nothing;
        let kept = |open: &OpenVerdict| {
            let mut open = open.clone();
            (open.verdict.members, open.verdict.sizes) = (Vec::new(), Vec::new());
            open
        };
        let verdicts = self.open.values().filter(is_reported).map(kept).collect();
        KeptNotices { verdicts, is_silence_reported: self.is_silence_reported }
    }

    /// Takes what agents agree on, `elapsed` after the round before.
    pub fn hear(&mut self, agreement: &Agreement, elapsed: Duration, now_unix_seconds: u64) {
        self.silent_for = Duration::ZERO;
        for open in self.open.values_mut().filter(|open| open.verdict.holds()) {
            let heard = agreement.verdicts.iter().find(|verdict| verdict.id == open.verdict.id);
            if let Some(verdict) = heard {
                open.age += elapsed;
                // The beginning is part of the id under which it was reported.
                let since_unix_seconds = open.verdict.since_unix_seconds;
                open.verdict = Verdict { since_unix_seconds, ..verdict.clone() };
            } else if !agreement.in_doubt.contains(&open.verdict.id) {
                open.verdict.ended_unix_seconds = Some(now_unix_seconds);
                open.is_sent = false;
            }
        }
        for verdict in agreement.verdicts.iter().filter(|verdict| verdict.confidence == Confidence::Certain) {
            let is_open = |open: &OpenVerdict| open.verdict.holds() && open.verdict.id == verdict.id;
            if self.open.values().any(is_open) || self.open.len() >= VERDICTS_MAX {
                continue;
            }
            let since = verdict.since_unix_seconds.unwrap_or(now_unix_seconds);
            let verdict = Verdict { since_unix_seconds: Some(since), ..verdict.clone() };
            let key = occurrence(&verdict);
            if let Some(open) = self.open.get_mut(&key) {
                // It ended too soon, for agents had disagreed.
                (open.verdict, open.is_sent) = (verdict, false);
                if open.event == Reported::All {
                    open.event = Reported::Nothing;
                }
                continue;
            }
            let open = OpenVerdict {
                event: Reported::Nothing,
                message: Reported::Nothing,
                age: Duration::ZERO,
                events: 0,
                event_at: Duration::ZERO,
                message_at: Duration::ZERO,
                is_sent: false,
                severity: verdict.severity,
                verdict,
            };
            self.open.insert(key, open);
        }
        self.forget();
    }

    /// Takes a round in which judges were silent. No verdict begins or ends.
    pub fn hear_nothing(&mut self, elapsed: Duration) {
        self.silent_for += elapsed;
    }

    /// Returns the verdicts that hold, with their sentences.
    pub fn holding(&self) -> impl Iterator<Item = (&Verdict, String)> {
        let holds = |open: &&OpenVerdict| open.verdict.holds();
        self.open.values().filter(holds).map(|open| (&open.verdict, sentence(&open.verdict)))
    }

    /// Whether judges have been silent for long enough to report it.
    pub fn is_silent(&self) -> bool {
        self.silent_for >= SILENCE
    }

    /// Returns the messages that are due. `is_planned` says of a node whether it is under planned
    /// work: then no message is sent.
    pub fn messages(&mut self, is_planned: impl Fn(&str) -> bool, now: Duration) -> Vec<Notice> {
        let mut due = Vec::new();
        for open in self.open.values_mut() {
            let planned = node_of(&open.verdict).is_some_and(&is_planned);
            let phase = match (open.verdict.holds(), open.message) {
                (true, Reported::Nothing) if planned || open.age < hold(&open.verdict) => continue,
                // After a restart it is sent again, under the same id.
                (true, Reported::Nothing) => Phase::Begin,
                (true, _) if !open.is_sent => Phase::Begin,
                (true, _) if now.saturating_sub(open.message_at) >= REPEAT => Phase::Still,
                (false, Reported::Begin) if !open.is_sent => Phase::End,
                (false, Reported::Nothing) => {
                    open.message = Reported::All;
                    continue;
                }
                _ => continue,
            };
            (open.is_sent, open.message_at) = (true, now);
            if phase == Phase::Begin {
                open.message = Reported::Begin;
            }
            due.push(Notice { phase, verdict: Verdict { severity: open.severity, ..open.verdict.clone() } });
        }
        due
    }

    /// Takes that the end of an occurrence has been delivered wherever it had to be.
    pub fn delivered(&mut self, occurrence: &str) {
        if let Some(open) = self.open.get_mut(occurrence).filter(|open| !open.verdict.holds()) {
            open.message = Reported::All;
        }
        self.forget();
    }

    /// Returns the Events that are due, as many as the minute has room for.
    /// Those of refused occurrences wait.
    pub fn events(&mut self, now: Duration, is_refused: impl Fn(&str) -> bool) -> Vec<(String, EventNote)> {
        while self.written.front().is_some_and(|at| now.saturating_sub(*at) >= MINUTE) {
            self.written.pop_front();
        }
        let room = (EVENTS_PER_MINUTE as usize).saturating_sub(self.written.len());
        let mut due: Vec<(String, EventNote)> = Vec::new();
        if self.is_silent() != self.is_silence_reported && room > 0 && !is_refused("") {
            due.push((String::new(), silence(self.is_silent())));
        }
        for (occurrence, open) in &mut self.open {
            let phase = match (open.verdict.holds(), open.event) {
                (true, Reported::Nothing) if open.age < hold(&open.verdict) => continue,
                (true, Reported::Nothing) => Phase::Begin,
                (true, Reported::Begin) if now.saturating_sub(open.event_at) >= EVENT_RENEWAL => Phase::Still,
                (false, Reported::Begin) => Phase::End,
                (false, Reported::Nothing) => {
                    open.event = Reported::All;
                    continue;
                }
                _ => continue,
            };
            if due.len() < room && !is_refused(occurrence) {
                due.push((occurrence.clone(), note(open, occurrence, phase)));
            }
        }
        self.forget();
        due
    }

    /// Takes that the API server has accepted an Event.
    pub fn event_accepted(&mut self, occurrence: &str, now: Duration) {
        self.written.push_back(now);
        if occurrence.is_empty() {
            self.is_silence_reported = !self.is_silence_reported;
        } else if let Some(open) = self.open.get_mut(occurrence) {
            open.event = if open.verdict.holds() { Reported::Begin } else { Reported::All };
            (open.events, open.event_at) = (open.events + 1, now);
        }
        self.forget();
    }

    /// Forgets what has ended and is reported. If there are too many, the oldest ends go.
    fn forget(&mut self) {
        self.open
            .retain(|_, open| open.verdict.holds() || open.event != Reported::All || open.message != Reported::All);
        while self.open.len() > VERDICTS_MAX * 3 / 4 {
            let ended =
                self.open.iter().filter_map(|(key, open)| Some((open.verdict.ended_unix_seconds?, key.clone())));
            let Some((_, key)) = ended.min() else { return };
            self.open.remove(&key);
        }
    }
}

/// How long a verdict must hold before it is reported.
const fn hold(verdict: &Verdict) -> Duration {
    match verdict.kind {
        Kind::AgentStarved | Kind::AgentUnreachable => AGENT_HOLD,
        _ => Duration::ZERO,
    }
}

fn note(open: &OpenVerdict, occurrence: &str, phase: Phase) -> EventNote {
    let verdict = &open.verdict;
    let regarding = match node_of(verdict) {
        // An agent is no node, and what is wrong with it need not be wrong with its node.
        Some(node) if !verdict.kind.is_agent_fault() => Regarding::Node(node.to_owned()),
        _ => Regarding::Mesh,
    };
    let (text, reason) = match phase {
        Phase::End => (format!("Over: {}", printable(&title(verdict))), "NetworkProblemEnded"),
        _ => (format!("{} Runbook: {}", sentence(verdict), runbook(verdict)), "NetworkProblem"),
    };
    let ending = if phase == Phase::End { "end" } else { "begin" };
    let is_warning = phase != Phase::End && verdict.severity >= Severity::Warning;
    EventNote {
        regarding,
        name: format!("kube-canary.{occurrence}.{ending}"),
        reason,
        is_warning,
        text,
        // The end is an Event of its own.
        count: if phase == Phase::End { 1 } else { open.events + 1 },
    }
}

fn silence(is_silent: bool) -> EventNote {
    let text = if is_silent {
        "No two judges answer, so nothing is known of the network: conditions of nodes stay as they are"
    } else {
        "Two judges answer again"
    };
    let (name, reason) = if is_silent { ("silent", "JudgesSilent") } else { ("heard", "JudgesHeard") };
    let name = format!("kube-canary.judges.{name}");
    EventNote { regarding: Regarding::Mesh, name, reason, is_warning: is_silent, text: text.into(), count: 1 }
}
