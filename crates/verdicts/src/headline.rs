//! One line that sums up a mesh: no problem, losses without a cause, or a cause.
//!
//! A judge says what the line follows from ([`Overall`]), and the program that shows it words it.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::overall::{Overall, UnexplainedLosses};
use super::wording::{percent, summary, was_bad, where_to};
use kube_canary_model::method::Method;
use kube_canary_model::verdict::{Figure, Kind, Severity, Verdict};

/// For this long after its end a verdict explains what was lost over ten minutes. The last of ten
/// whole minutes ends up to a minute later.
pub const EXPLAINS_SECONDS: u64 = 660;

/// State of a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeshState {
    /// Nothing stands out, as far as was measured.
    Well,
    /// Links lose, without a known cause.
    Losses,
    /// There is at least one verdict.
    Cause,
    /// No judge answers, so nothing is known of the mesh.
    Unknown,
}

/// One line that sums up a mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// State of the mesh.
    pub state: MeshState,
    /// Text of the line.
    pub text: String,
}

/// Returns the line for these verdicts, for what has just ended, and for the rest. A fault of the
/// network comes before an agent's own, the graver one first.
pub fn headline(verdicts: &[Verdict], past: &[&Verdict], overall: &Overall) -> Headline {
    let mut line = line(verdicts, past, overall);
    match overall.other_version {
        0 => {}
        1 => line.text += "; 1 node runs another version",
        more => _ = write!(line.text, "; {more} nodes run another version"),
    }
    line
}

fn line(verdicts: &[Verdict], past: &[&Verdict], overall: &Overall) -> Headline {
    let gravest = verdicts.iter().min_by_key(|verdict| gravity(verdict));
    if let Some(first) = gravest {
        let more = if verdicts.len() > 1 { format!(", and {} more", verdicts.len() - 1) } else { String::new() };
        return Headline { state: MeshState::Cause, text: summary(first) + &more };
    }
    if let Some(losses) = &overall.losses {
        return Headline { state: MeshState::Losses, text: lines_of(losses) };
    }
    let last =
        past.iter().filter(|verdict| !verdict.kind.is_agent_fault()).max_by_key(|verdict| verdict.ended_unix_seconds);
    let text = last.and_then(|verdict| recovered(verdict)).unwrap_or_else(|| nothing_wrong(overall));
    Headline { state: MeshState::Well, text }
}

/// Returns the place of a verdict among others, the gravest first: faults of the network and of
/// checks, then agents; the severe ones first.
pub fn gravity(verdict: &Verdict) -> (bool, std::cmp::Reverse<Severity>, bool, Kind) {
    (verdict.kind.is_agent_fault(), std::cmp::Reverse(verdict.severity), verdict.is_slow(), verdict.kind)
}

/// Returns the line of an agent that finds no judge. Of its `peers` it loses packets to `losing`.
pub fn without_judges(is_member: bool, (losing, peers): (usize, usize)) -> Headline {
    let who = if is_member { "this node" } else { "this agent, which is outside of the mesh," };
    let own = match (losing, peers) {
        (_, 0) => format!("{who} has no peers"),
        (0, _) => format!("{who} loses no packets to its {peers} peers"),
        _ => format!("{who} loses packets to {losing} of {peers} peers"),
    };
    Headline { state: MeshState::Unknown, text: format!("no judge answers; {own}") }
}

/// Returns the line for a mesh in which a judge sees losses, or failures of a check, and others see
/// other ones.
pub fn unconfirmed(verdict: &Verdict) -> Headline {
    let seen = match verdict.kind {
        Kind::Check if verdict.is_slow() => "slow answers",
        Kind::Check => "failures",
        _ if verdict.is_slow() => "slow round trips",
        _ if verdict.is_unsent() => "probes that could not be sent",
        _ => "loss",
    };
    let what = match verdict.checked() {
        Some((_, check)) => check,
        None if verdict.subject == "*" => "some links",
        None => &verdict.subject,
    };
    let text = format!("{}: {seen} seen, not yet confirmed", what.replace("->", " -> "));
    Headline { state: MeshState::Losses, text }
}

fn recovered(verdict: &Verdict) -> Option<String> {
    let ended = verdict.ended_unix_seconds?;
    let was = match verdict.kind {
        _ if verdict.figures.has(Figure::Rewritten) => "sent from another address",
        _ if verdict.is_unsent() => "could not send, or be sent to,",
        Kind::Mtu => "lost large packets",
        _ if verdict.is_loss() => "lost packets",
        Kind::Check => return Some(well_since(verdict, ended, &was_bad(verdict))),
        _ => "was slow",
    };
    let subject = match verdict.kind {
        Kind::Mesh => "all links".to_owned(),
        Kind::Mtu if verdict.subject == "*" => "most links".to_owned(),
        Kind::Paths => "one of several parallel paths".to_owned(),
        Kind::Partition => "a partition".to_owned(),
        _ => verdict.subject.replace("->", " -> "),
    };
    let network = where_to(verdict.network);
    Some(well_since(verdict, ended, &format!("{subject} {was}{network}")))
}

fn well_since(verdict: &Verdict, ended: u64, what: &str) -> String {
    let from = verdict.since_unix_seconds.map(|since| format!(" from {}", clock_time(since))).unwrap_or_default();
    format!("well since {0} UTC; {what}{from} to {0} UTC", clock_time(ended))
}

/// Returns the time of day, as all texts give it.
fn clock_time(unix_seconds: u64) -> String {
    format!("{:02}:{:02}", unix_seconds % 86_400 / 3_600, unix_seconds % 3_600 / 60)
}

fn lines_of(losses: &UnexplainedLosses) -> String {
    let UnexplainedLosses { over_ten_minutes, losing, links, worst } = losses;
    let worst = worst.as_ref().map(|link| {
        let since = link.since_unix_seconds.filter(|_| !over_ten_minutes);
        let since = since.map(|since| format!(" since {} UTC", clock_time(since))).unwrap_or_default();
        let by = if link.method == Method::Icmp { String::new() } else { format!(" by {}", link.method.name()) };
        let (rate, network) = (percent(link.loss_ratio), where_to(link.network));
        format!(": {rate} from {} to {}{by}{since}{network}", link.source, link.peer)
    });
    let worst = worst.unwrap_or_default();
    if *over_ten_minutes {
        let have = if *losing == 1 { "has" } else { "have" };
        format!("{losing} of {links} links {have} lost 2 % and more over ten minutes{worst}; no cause stands out")
    } else {
        let lose = if *losing == 1 { "loses" } else { "lose" };
        format!("{losing} of {links} links {lose}{worst}; no cause stands out")
    }
}

/// Returns the line for a mesh without a verdict.
fn nothing_wrong(overall: &Overall) -> String {
    let Overall { unknown, first_unknown, rows_not_kept, links_not_kept, is_unmeasured, .. } = overall;
    if *is_unmeasured {
        return "nothing measured yet".into();
    }
    let what = match (unknown, first_unknown) {
        (0, _) if rows_not_kept + links_not_kept > 0 => {
            return format!("all well as far as kept: {rows_not_kept} reports and {links_not_kept} links did not fit");
        }
        (0, _) => return "all well".into(),
        (1, None) => "1 node".to_owned(),
        (nodes, None) => format!("{nodes} nodes"),
        (1, Some(only)) => only.clone(),
        (nodes, Some(first)) => format!("{first} and {} more", nodes - 1),
    };
    format!("all well as far as measured: nothing is known of {what}")
}
