//! `--history`: the verdicts of the last 24 hours, on which the judges agree.
//!
//! Any agent answers for all of them. So the agents are asked until one answers. An agent is
//! trusted no further than a judge: what it answers is bounded, and is printed without control
//! characters.

use std::fmt::Write as _;

use hyper::StatusCode;
use serde::{Deserialize, Serialize};

use super::judges::{BYTES_MAX, Judge, VERDICTS_MAX};
use super::output::{Unanswered, count, finding, joined, stamp, tint};
use super::{Conclusion, DoctorError};
use crate::commands::fleet::FleetError;
use crate::commands::fleet::ask::{self, AgentAnswer, AskError, foreign};
use crate::config::{AgentUrl, Agents};
use crate::http::client::GetError;
use crate::mesh::JUDGES;
use crate::mesh::verdicts::{Verdict, wording};
use crate::report::at_most;
use crate::sys::clock;
use crate::sys::console::{self, json_line, printable};
use crate::sys::error::system;
use crate::sys::terminal::{Terminal, Tint};

const PATH: &str = "/api/v1/history";
const DAY_SECONDS: u64 = 24 * 3_600;

/// The answer of an agent.
#[derive(Debug, Deserialize, Serialize)]
struct History {
    #[serde(deserialize_with = "at_most::<_, JUDGES, _>")]
    judges: Vec<Judge>,
    /// Since when the judges remember what happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remembered_since_unix_seconds: Option<u64>,
    #[serde(deserialize_with = "at_most::<_, VERDICTS_MAX, _>", serialize_with = "wording::worded")]
    verdicts: Vec<Verdict>,
}

/// Asks for the past and prints it.
///
/// # Errors
/// [`DoctorError`]: no agent could be asked, or none has answered.
pub async fn run(agents: &Agents, json: bool, terminal: Terminal) -> Result<Conclusion, DoctorError> {
    let mut unanswered = Vec::new();
    // The agent beside this command is asked before any name is resolved.
    let own = agents.own();
    let mut history = first(own.cloned().as_slice(), &mut unanswered).await;
    if history.is_none() {
        let mut urls = ask::targets(agents).await.map_err(FleetError::from)?.urls;
        urls.retain(|url| Some(url) != own);
        history = first(&urls, &mut unanswered).await;
    }
    let Some(history) = history else { return Err(DoctorError::Silent(unanswered)) };
    let now = clock::realtime().as_secs();
    let text = if json { json_line(&history) } else { history.text(terminal, now) };
    console::print(text).map_err(system("write to standard output"))?;
    Ok(Conclusion::Well)
}

/// Asks these agents until one answers, and names those that fail.
async fn first(agents: &[AgentUrl], unanswered: &mut Vec<Unanswered>) -> Option<History> {
    let (history, failed) = ask::first(agents, |agent| async move { ask_agent(&agent).await }).await;
    for (agent, error) in failed {
        let error = match error {
            AskError::Get(GetError::Status(StatusCode::SERVICE_UNAVAILABLE)) => {
                "no judge answers it, and only judges keep the past".to_owned()
            }
            error => error.to_string(),
        };
        console::print_error(format_args!("{agent}: {error}"));
        unanswered.push(Unanswered { url: agent.to_string(), error });
    }
    history
}

async fn ask_agent(agent: &AgentUrl) -> Result<History, AskError> {
    let text = AgentAnswer::request(agent, PATH).await?.whole(BYTES_MAX).await?;
    serde_json::from_slice(&text).map_err(foreign(PATH))
}

impl History {
    /// Formats what holds, and then what has ended, the last one first.
    fn text(&self, terminal: Terminal, now_unix_seconds: u64) -> String {
        // What was wrong before is not known.
        let short = self
            .remembered_since_unix_seconds
            .filter(|since| since.saturating_add(DAY_SECONDS) > now_unix_seconds.saturating_add(60));
        let of_time = |day: &str| short.map_or_else(|| day.to_owned(), |since| format!("since {}", stamp(since)));
        let mut text = match &self.verdicts[..] {
            [] => terminal.paint(Tint::Good, &format!("nothing was wrong {}", of_time("in the last 24 hours"))),
            all => format!("{} {}", count(all.len(), "verdict"), of_time("of the last 24 hours")),
        };
        let _ = writeln!(text, ", by {}", joined(&self.judges));
        for verdict in &self.verdicts {
            let time = match (verdict.since_unix_seconds, verdict.ended_unix_seconds) {
                (Some(since), None) => format!("since {}", stamp(since)),
                (None, None) => "now".to_owned(),
                (Some(since), Some(end)) => format!("{} for {}", stamp(since), lasting(end.saturating_sub(since))),
                (None, Some(end)) => format!("until {}", stamp(end)),
            };
            let unconfirmed = if verdict.unconfirmed { ", unconfirmed" } else { "" };
            let line = format!("{time}: {}{unconfirmed}", finding(verdict));
            let _ = writeln!(text, "{}", if verdict.holds() { terminal.paint(tint(verdict), &line) } else { line });
            let _ = writeln!(text, "    {}", printable(&wording::evidence(verdict)));
        }
        text
    }
}

/// Formats a time between two looks of a judge.
fn lasting(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_and_what_has_ended_is_printed_with_its_times() {
        let verdict = |kind: &str, subject: &str, times: &str| {
            format!(
                r#"{{"kind":"{kind}","subject":"{subject}","direction":"both","network":"pod","confidence":"certain",
                "figures":{{"probes":100,"lost":9,"pairs":3,"pairs_hit":2,"probes_to":100,"lost_to":9,"sources":3,"sources_hit":2,
                "probes_there":60,"lost_there":3,"probes_back":60}}{times}}}"#
            )
        };
        let verdicts = [
            verdict("node", "n3", r#","since_unix_seconds":1700000000"#),
            verdict("link", "a->b", r#","since_unix_seconds":1699990000,"ended_unix_seconds":1699990630"#),
            verdict(
                "zone",
                "z\\u001b",
                r#","since_unix_seconds":null,"ended_unix_seconds":1699980000,"unconfirmed":true"#,
            ),
        ];
        let judges = r#"[{"node":"a","age_seconds":3.5},{"node":"b","age_seconds":9}]"#;
        let text = format!(r#"{{"judges":{judges},"verdicts":[{}]}}"#, verdicts.join(","));
        let history: History = serde_json::from_str(&text).unwrap();
        let plain = history.text(Terminal::PLAIN, 0);
        let expected = "3 verdicts of the last 24 hours, by 2 judges: a, b\n\
            since 2023-11-14 22:13:20 UTC: node n3, pod network\n    loses 9.0 % of the probes from 2 of 3 sources\n\
            2023-11-14 19:26:40 UTC for 10 min: link a->b, pod network\n    \
            loses 9.0 % of the round trips: 3 of 60 from a to b, 0 of 60 from b to a\n\
            until 2023-11-14 16:40:00 UTC: zone z?, pod network, unconfirmed\n    \
            9.0 % of the probes between zone z? and all others are lost, on 2 of 3 pairs of nodes; elsewhere 0.0 %\n";
        assert_eq!(plain, expected);
        let nothing = |since: Option<u64>| {
            let nothing = History { judges: Vec::new(), remembered_since_unix_seconds: since, verdicts: Vec::new() };
            nothing.text(Terminal::PLAIN, 1_700_000_000)
        };
        let day = "nothing was wrong in the last 24 hours, by 0 judges: \n";
        assert_eq!([nothing(None), nothing(Some(1_700_000_000 - 86_400))], [day, day]);
        let since = "nothing was wrong since 2023-11-14 21:13:20 UTC, by 0 judges: \n";
        assert_eq!(nothing(Some(1_700_000_000 - 3_600)), since);
        assert!(nothing(Some(u64::MAX)).starts_with("nothing was wrong since "), "no agent would say so");
    }

    #[test]
    fn an_answer_with_too_many_verdicts_is_refused() {
        let of = |count: usize| {
            let one = r#"{"kind":"node","subject":"n","direction":"in","network":"pod"}"#;
            format!(r#"{{"judges":[],"verdicts":[{}]}}"#, vec![one; count].join(","))
        };
        assert!(serde_json::from_str::<History>(&of(VERDICTS_MAX)).is_ok());
        assert!(serde_json::from_str::<History>(&of(VERDICTS_MAX + 1)).is_err());
    }
}
