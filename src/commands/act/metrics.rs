//! What act exposes of itself: its metrics, and what `doctor` reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::commands::doctor::act::{ActSummary, ConditionMode, MessageCounts, NodeCondition, PATH};
use crate::exposition::{FamilyWriter, Format};
use crate::http::{Reply, Routes};
use crate::sys::console::json_line;

/// The numbers of the process.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// Whether it holds the Lease.
    pub leads: bool,
    /// Whether judges are silent.
    pub is_silent: bool,
    /// Rounds in which agents were asked.
    pub rounds: u64,
    /// The number of verdicts that hold.
    pub verdicts: u64,
    /// Nodes whose condition is not False.
    pub not_false: u64,
    /// Nodes with a verdict that wait for its time or for a place.
    pub waiting: u64,
    /// Changes of conditions by status, and whether they were only said.
    pub changes: BTreeMap<(&'static str, bool), u64>,
    /// Events that were written.
    pub events: u64,
    /// Attempts to send messages, by receiver and result.
    pub messages: BTreeMap<(&'static str, &'static str), u64>,
    /// Requests to the API server.
    pub requests: u64,
    /// Requests that it refused or did not answer.
    pub failures: u64,
    /// Start of the process, in seconds since the epoch.
    pub started: u32,
    /// Whether it sets conditions.
    pub mode: ConditionMode,
    /// The first of the nodes whose condition is not False.
    pub nodes: Vec<NodeCondition>,
    /// The number of further ones.
    pub not_listed: u64,
}

/// The numbers, as the loop and the HTTP worker share them.
#[derive(Debug, Default)]
pub struct ActMetrics(Mutex<Numbers>);

impl ActMetrics {
    /// Returns the numbers to read or change.
    pub fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the document that `doctor` reads.
    fn summary(&self) -> ActSummary {
        let numbers = self.lock();
        let mut messages: BTreeMap<&str, MessageCounts> = BTreeMap::new();
        for ((receiver, result), count) in &numbers.messages {
            let counts = messages.entry(receiver).or_default();
            (*receiver).clone_into(&mut counts.receiver);
            *match *result {
                "sent" => &mut counts.sent,
                "failed" => &mut counts.failed,
                "refused" => &mut counts.refused,
                _ => &mut counts.lost,
            } = *count;
        }
        ActSummary {
            acts: numbers.leads,
            conditions: numbers.mode,
            judges_silent: numbers.is_silent,
            verdicts: numbers.verdicts,
            nodes: numbers.nodes.clone(),
            nodes_not_listed: numbers.not_listed,
            nodes_waiting: numbers.waiting,
            events: numbers.events,
            messages: messages.into_values().collect(),
            started_unix_seconds: numbers.started.into(),
        }
    }

    fn text(&self, format: Format) -> Vec<u8> {
        let numbers = self.lock().clone();
        let mut out = Vec::new();
        let head = &mut FamilyWriter::new(format, numbers.started, &mut out);
        for (name, help, value) in [
            ("kube_canary_act_leads", "Whether this process holds the Lease: 1 or 0.", numbers.leads.into()),
            (
                "kube_canary_act_judges_silent",
                "Whether no two judges have answered for a minute: 1 or 0.",
                numbers.is_silent.into(),
            ),
            ("kube_canary_act_verdicts", "Verdicts that hold and are certain.", numbers.verdicts),
            ("kube_canary_act_nodes_not_false", "Nodes whose condition is not False.", numbers.not_false),
            (
                "kube_canary_act_nodes_waiting",
                "Nodes with a verdict that wait for --hold or --max-nodes.",
                numbers.waiting,
            ),
        ] {
            head.gauges(name, help, [([], value)]);
        }
        for (name, help, value) in [
            ("kube_canary_act_rounds_total", "Rounds in which agents were asked.", numbers.rounds),
            ("kube_canary_act_events_total", "Events that were written.", numbers.events),
            ("kube_canary_act_api_requests_total", "Requests to the API server.", numbers.requests),
            (
                "kube_canary_act_api_failures_total",
                "Requests that the API server refused or did not answer.",
                numbers.failures,
            ),
        ] {
            head.counters(name, help, [([], value)]);
        }
        head.counters(
            "kube_canary_act_condition_changes_total",
            "Changes of node conditions; with dry_run they were only said.",
            numbers.changes.iter().map(|((status, dry_run), count)| {
                ([("dry_run", if *dry_run { "true" } else { "false" }), ("status", *status)], *count)
            }),
        );
        head.counters(
            "kube_canary_act_messages_total",
            "Attempts to send a message: sent, failed, refused or lost.",
            numbers
                .messages
                .iter()
                .map(|((receiver, result), count)| ([("receiver", *receiver), ("result", *result)], *count)),
        );
        if format == Format::OpenMetrics {
            out.extend_from_slice(b"# EOF\n");
        }
        out
    }
}

/// Answers requests for the numbers.
pub struct ActRoutes(pub Arc<ActMetrics>);

impl Routes for ActRoutes {
    fn route(&self, path: &str, accept: &str) -> Reply {
        match path {
            "/metrics" => {
                let format = Format::accepted(accept);
                Reply::Full { status: 200, content_type: format.content_type(), body: self.0.text(format) }
            }
            PATH => Reply::Full {
                status: 200,
                content_type: "application/json",
                body: json_line(&self.0.summary()).into_bytes(),
            },
            "/healthz" | "/readyz" => Reply::text(200, "ok\n"),
            _ => Reply::text(404, "not found; there are /metrics, /healthz and /api/v1/act\n"),
        }
    }
}
