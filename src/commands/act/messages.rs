//! The messages to people, as their receivers take them. No I/O, no clock.
//!
//! docs/act.md describes the JSON of the webhook. Each message has an id that does not change when
//! it is sent again.

use std::fmt::Write as _;

use ring::hmac;
use serde::Serialize;
use serde_json::{Value, json};

use super::notices::{Notice, Phase, occurrence, sentence};
use crate::config::Receiver;
use crate::mesh::verdicts::wording::{runbook, summary, title};
use crate::mesh::verdicts::{Kind, Severity, Verdict};
use crate::report::Methods;
use crate::sys::clock;
use crate::sys::console::printable;
use crate::units::Nanos;

/// How long Alertmanager believes that a verdict holds, in seconds: four times the time after which
/// the alert is posted again.
const BELIEVED_SECONDS: u64 = 240;

/// How far back an end is dated, in seconds. Alertmanager takes an end in its future for a
/// repetition, and goes on to believe in the time before it: clocks differ, and ours is rounded.
const END_BACK_SECONDS: u64 = 5;

/// A request that is sent to a receiver, without its address.
#[derive(Clone, Debug)]
pub struct Letter {
    /// The same for each attempt, and after a restart.
    pub id: String,
    /// The occurrence of the verdict whose end this tells, if it does.
    pub ends: Option<String>,
    /// Whether it repeats an earlier one, so that it may be lost.
    pub is_repetition: bool,
    /// What is behind the path of the receiver's URL.
    pub path: &'static str,
    /// The body, which is sent as JSON.
    pub body: Value,
}

#[derive(Serialize)]
struct WebhookBody<'a> {
    version: u8,
    id: &'a str,
    occurrence: &'a str,
    phase: Phase,
    title: String,
    summary: String,
    sentence: String,
    runbook: String,
    loss_ratio: Option<f64>,
    verdict: &'a Verdict,
}

/// Returns the letter for a receiver. `None` if it is not told of this.
pub fn letter(receiver: &Receiver, notice: &Notice, now_unix_seconds: u64) -> Option<Letter> {
    let Notice { phase, verdict } = notice;
    let occurrence = occurrence(verdict);
    let word = match phase {
        Phase::Begin => "begin",
        Phase::Still => "still",
        Phase::End => "end",
    };
    let id = format!("{occurrence}-{word}");
    let (path, body) = match receiver {
        Receiver::Alertmanager { labels, .. } => ("/api/v2/alerts", alert(notice, labels, now_unix_seconds)),
        _ if *phase == Phase::Still => return None,
        Receiver::Webhook { .. } => ("", webhook(notice, &id, &occurrence)),
        Receiver::Slack { .. } => ("", json!({"text": line(notice)})),
        Receiver::PagerDuty { .. } => ("", pagerduty(notice, &occurrence)),
    };
    let ends = (*phase == Phase::End).then_some(occurrence);
    Some(Letter { id, ends, is_repetition: *phase == Phase::Still, path, body })
}

fn webhook(Notice { phase, verdict }: &Notice, id: &str, occurrence: &str) -> Value {
    let body = WebhookBody {
        version: 1,
        id,
        occurrence,
        phase: *phase,
        title: printable(&title(verdict)),
        summary: printable(&summary(verdict)),
        sentence: sentence(verdict),
        runbook: runbook(verdict),
        loss_ratio: verdict.loss_ratio(),
        verdict,
    };
    // Serializing these types cannot fail.
    serde_json::to_value(&body).unwrap_or_default()
}

fn line(Notice { phase, verdict }: &Notice) -> String {
    // Slack reads these three as markup.
    let plain = |text: String| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    match phase {
        Phase::End => format!("Over: {}", plain(printable(&title(verdict)))),
        _ => format!("{}: {} {}", verdict.severity.label(), plain(sentence(verdict)), runbook(verdict)),
    }
}

/// Returns the event without its routing key, which is a secret and added when it is sent.
fn pagerduty(Notice { phase, verdict }: &Notice, occurrence: &str) -> Value {
    let action = if *phase == Phase::End { "resolve" } else { "trigger" };
    let time = rfc3339(verdict.since_unix_seconds.unwrap_or(0));
    json!({
        "event_action": action, "dedup_key": occurrence, "client": "KubeCanary",
        "payload": {
            "summary": sentence(verdict), "source": printable(&verdict.subject), "severity": verdict.severity.label(),
            "timestamp": time, "component": "network", "class": verdict.kind.label(),
            "custom_details": {"id": verdict.id, "network": verdict.network.label(), "runbook": runbook(verdict)},
        },
    })
}

/// Returns the alert. Its labels are those of the alert of our rules, so that both become one.
fn alert(Notice { phase, verdict }: &Notice, labels: &[(String, String)], now_unix_seconds: u64) -> Value {
    let (name, severity) = match verdict.kind {
        Kind::Check => ("KubeCanaryCheck", verdict.severity),
        Kind::AgentSuspect => ("KubeCanaryJudgeSuspect", Severity::Warning),
        Kind::AgentStarved | Kind::AgentUnreachable => ("KubeCanaryAgentFault", Severity::Warning),
        _ => ("KubeCanaryFault", verdict.severity),
    };
    let mut all = json!({
        "alertname": name, "id": verdict.id, "kind": verdict.kind.label(), "subject": verdict.subject,
        "network": verdict.network.label(), "protocol": verdict.protocol.map_or("all", Methods::label),
        "severity": severity.label(),
    });
    for (name, value) in labels {
        all[name] = value.as_str().into();
    }
    let ends = match phase {
        Phase::End => now_unix_seconds.saturating_sub(END_BACK_SECONDS),
        _ => now_unix_seconds + BELIEVED_SECONDS,
    };
    let begins = verdict.since_unix_seconds.unwrap_or(now_unix_seconds);
    json!([{
        "labels": all, "startsAt": rfc3339(begins.min(ends)), "endsAt": rfc3339(ends),
        "annotations": {"summary": printable(&title(verdict)), "description": sentence(verdict), "runbook_url": runbook(verdict)},
    }])
}

fn rfc3339(unix_seconds: u64) -> String {
    clock::rfc3339(Nanos(unix_seconds.saturating_mul(1_000_000_000)))
}

/// Returns the value of the header that signs a body.
pub fn signature(key: &[u8], body: &[u8]) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), body);
    tag.as_ref().iter().fold("sha256=".to_owned(), |mut text, byte| {
        // Writing to memory cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HttpUrl;
    use crate::report::Network;

    fn notice(phase: Phase) -> Notice {
        let verdict = Verdict {
            id: "ab".into(),
            since_unix_seconds: Some(1_000),
            ..Verdict::new(Kind::Node, "<n>".into(), Network::Pod)
        };
        Notice { phase, verdict }
    }

    #[test]
    fn a_signature_is_that_of_rfc_4231() {
        let expected = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(signature(b"Jefe", b"what do ya want for nothing?"), expected);
    }

    #[test]
    fn a_verdict_that_holds_is_posted_again_to_alertmanager_alone() {
        let url = HttpUrl::parse("http://a:9093").unwrap();
        let alertmanager = Receiver::Alertmanager { url, labels: vec![("cluster".into(), "c".into())] };
        let letter_of = |receiver: &Receiver, phase| letter(receiver, &notice(phase), 2_000);
        let still = letter_of(&alertmanager, Phase::Still).unwrap();
        assert!(still.is_repetition && still.path == "/api/v2/alerts");
        assert_eq!(still.body[0]["labels"]["cluster"], "c");
        assert_eq!(
            (&still.body[0]["startsAt"], &still.body[0]["endsAt"]),
            (&json!(rfc3339(1_000)), &json!(rfc3339(2_240)))
        );
        let end = letter_of(&alertmanager, Phase::End).unwrap();
        assert_eq!((&end.body[0]["endsAt"], end.ends.as_deref()), (&json!(rfc3339(1_995)), Some("ab-3e8")));
        assert_eq!(end.body[0]["labels"], still.body[0]["labels"]);
        let slack = Receiver::Slack { url: "f".into() };
        assert!(letter_of(&slack, Phase::Still).is_none());
        let text = letter_of(&slack, Phase::End).unwrap().body["text"].to_string();
        assert!(text.contains("Over: node &lt;n&gt;"), "{text}");
    }

    #[test]
    fn a_message_has_the_same_id_when_it_is_sent_again() {
        let pagerduty = Receiver::PagerDuty { key: "f".into(), url: HttpUrl::parse("http://a/").unwrap() };
        let begin = letter(&pagerduty, &notice(Phase::Begin), 2_000).unwrap();
        let end = letter(&pagerduty, &notice(Phase::End), 3_000).unwrap();
        assert_eq!(begin.body["dedup_key"], end.body["dedup_key"]);
        assert_eq!((&begin.body["event_action"], &end.body["event_action"]), (&json!("trigger"), &json!("resolve")));
        assert_eq!(begin.id, letter(&pagerduty, &notice(Phase::Begin), 9_000).unwrap().id);
    }
}
