//! The routes about the whole mesh: the page, reports of named nodes, what the judges say, and the
//! last hour of any pair.
//!
//! Everything else is the agent's own ([`App`]). Nothing is judged here: verdicts, their past and
//! the figures of all nodes come from the judges. If none answers, the answer says so, beside what
//! this agent's own report shows.
//!
//! Reports are collected for one reader at a time, because they cost other agents work
//! ([`ReaderTurns`]). Requests for verdicts and for an hour are answered by others from their own
//! memory. So no request is forwarded twice.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::domains::DomainsFile;
use super::frame_writer::{FrameWriter, WrittenBody};
use super::judge::{self, Agreed, JudgeTimes, Judges, Overview};
use super::page;
use super::queue::Target;
use super::relay::relay;
use super::times::Times;
use super::turns::ReaderTurns;
use super::verdicts;
use crate::exposition::{App, OwnLosses, View};
use crate::http::path::decoded;
use crate::http::{Background, Reply, Routes, client};
use crate::limits::{HOUR_BYTES_MAX, NAMED_REPORTS_MAX};
use crate::report::{self, Missing};
use crate::sys::clock;
use crate::sys::console::printable;

/// Bytes written at a time of the fields that follow the reports.
const FIELDS_PART_BYTES: usize = 1_024;
/// Nodes of a mesh of which reports may be collected as often as a reader asks. Collections of a
/// larger mesh are rare ([`Times::large`]).
const SMALL_NODES_MAX: usize = 24;
/// Requests that wait for a collection. More are refused.
const COLLECTION_WAITERS_MAX: usize = 8;
const JSON: &str = "application/json";
const NO_NODES: &str = "name 1 to 100 nodes: /api/v1/mesh/NODE,NODE has their reports, and /api/v1/verdicts what the \
    judges say of the whole mesh\n";

/// The routes that an agent serves: its own, and those of the mesh.
pub struct MeshRoutes(Arc<RoutesState>);

struct RoutesState {
    app: App,
    /// Port of this agent's HTTP server. It is also assumed for peers whose list does not give one.
    port: u16,
    times: Times,
    turns: ReaderTurns,
    judges: Arc<Judges>,
    may_judge: bool,
}

/// A judge as `/api/v1/verdicts` names it.
#[derive(Serialize)]
struct JudgeOf<'a> {
    node: &'a str,
    age_seconds: f64,
}

/// The head of an answer that comes from the judges. What they agree on follows.
#[derive(Serialize)]
struct HeadOf<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<usize>,
    judges: &'a [JudgeOf<'a>],
}

impl MeshRoutes {
    /// Wraps the agent's own routes. `port` is that of its server, `domains` the operator's failure
    /// domains. With `judge`, the agent judges the mesh if its rank requires it.
    pub fn new(app: App, port: u16, times: Times, domains: Option<DomainsFile>, judge: Option<JudgeTimes>) -> Self {
        let (turns, may_judge) = (ReaderTurns::new(COLLECTION_WAITERS_MAX), judge.is_some());
        let judge = judge.unwrap_or_default();
        let judges = Arc::new(Judges::new(Arc::clone(&app.view), port, (judge, times), domains));
        Self(Arc::new(RoutesState { app, port, times, turns, judges, may_judge }))
    }
}

impl Routes for MeshRoutes {
    fn route(&self, path: &str, accept: &str) -> Reply {
        let mesh = &self.0;
        match path {
            "/" => page::reply(),
            "/api/v1/mesh" => Reply::text(404, NO_NODES),
            "/api/v1/verdicts" => Reply::Later(Box::pin(Arc::clone(mesh).verdicts())),
            "/api/v1/history" => Reply::Later(Box::pin(Arc::clone(mesh).history())),
            "/api/v1/nodes" => Reply::Later(Box::pin(Arc::clone(mesh).nodes())),
            judge::NODES_PATH => mesh.own_nodes().unwrap_or_else(not_a_judge),
            report::JUDGE_PATH => {
                Reply::Shared { content_type: JSON, head: b"{".to_vec(), body: judge::fields(&mesh.judges.answer()) }
            }
            judge::PATH => match mesh.judges.document() {
                Some((head, body)) => Reply::Shared { content_type: JSON, head, body },
                None => not_a_judge(),
            },
            judge::KEPT_PATH => match mesh.judges.kept_document() {
                Some((head, body)) => Reply::Shared { content_type: JSON, head, body },
                None => Reply::text(404, "this agent keeps nothing of judges\n"),
            },
            _ if let Some(nodes) = path.strip_prefix("/api/v1/mesh/") => match named(nodes) {
                Some(nodes) => Reply::Later(Box::pin(Arc::clone(mesh).reports(nodes))),
                None => Reply::text(404, NO_NODES),
            },
            _ => match path.strip_prefix("/api/v1/hour/").and_then(|pair| pair.split_once('/')) {
                // A peer is one path segment. With more segments, each agent would forward the
                // rest to another agent.
                Some((_, peer)) if peer.contains('/') => no_such_source(),
                Some((source, peer)) => match decoded(source) {
                    // The hour of this agent is served by the app.
                    Some(source) if source == mesh.app.view.node => {
                        mesh.app.route(&format!("/api/v1/hour/{peer}"), accept)
                    }
                    Some(source) => mesh.hour(&source, peer),
                    None => no_such_source(),
                },
                None => mesh.app.route(path, accept),
            },
        }
    }

    fn background(&self, part: usize) -> Option<Background> {
        let mesh = &self.0;
        (part == 0 && mesh.may_judge).then(|| Box::pin(Arc::clone(&mesh.judges).run()) as Background)
    }
}

impl RoutesState {
    /// Answers `/api/v1/mesh/NODES` with the reports of these nodes, each on a line of its own.
    async fn reports(self: Arc<Self>, nodes: Vec<String>) -> Reply {
        let least = if self.is_large() { self.times.large } else { Duration::ZERO };
        let Some(turn) = self.turns.turn(self.times.wait, least).await else {
            return Reply::text(503, "reports are being collected for another reader; try again\n");
        };
        let (rows, reader) = (FrameWriter::default(), self.times.reader);
        let out = rows.clone();
        let writer = async move {
            #[derive(Serialize)]
            struct End {
                missing: Vec<Missing>,
            }
            out.write(&[b"{\"rows\":[\n"]).await;
            let view = Arc::clone(&self.app.view);
            let missing = turn.work(relay(view, self.port, self.times, &nodes, out.clone())).await;
            out.write(&[b"],"]).await;
            for part in judge::fields(&End { missing }).chunks(FIELDS_PART_BYTES) {
                out.write(&[part]).await;
            }
            // The turn ends with the body, also if the body is dropped.
            drop(turn);
        };
        Reply::Live { content_type: JSON, body: Box::new(WrittenBody::new(rows, writer, reader)) }
    }

    /// Answers `/api/v1/verdicts`: what the judges agree on, or that none answers.
    async fn verdicts(self: Arc<Self>) -> Reply {
        let agreed = self.judges.agreed().await;
        let judges = agreed.as_ref().map(|agreed| judges_of(agreed)).unwrap_or_default();
        let age_seconds = judges.iter().map(|judge| judge.age_seconds).fold(0.0, f64::max);
        let nodes = agreed.as_ref().map_or(0, |agreed| agreed.nodes);
        let fields = agreed.as_ref().map_or_else(|| without_judges(&self.app.view), |agreed| Arc::clone(&agreed.now));
        shared(&HeadOf { age_seconds: Some(age_seconds), nodes: Some(nodes), judges: &judges }, &fields)
    }

    /// Answers `/api/v1/history`: the verdicts of the last 24 hours, on which the judges agree.
    async fn history(self: Arc<Self>) -> Reply {
        match self.judges.agreed().await {
            Some(agreed) => {
                let head = HeadOf { age_seconds: None, nodes: None, judges: &judges_of(&agreed) };
                shared(&head, &agreed.history)
            }
            None => Reply::text(503, "no judge answers, and only judges keep the past\n"),
        }
    }

    /// Answers `/api/v1/nodes`: what a judge keeps of all nodes.
    async fn nodes(self: Arc<Self>) -> Reply {
        match self.own_nodes() {
            Some(own) => own,
            None => self.judges.relay_nodes().await,
        }
    }

    fn own_nodes(&self) -> Option<Reply> {
        Some(Reply::Stream { content_type: JSON, body: Box::new(self.judges.nodes()?) })
    }

    /// Whether the mesh is too large for frequent collections.
    fn is_large(&self) -> bool {
        let directory = self.app.view.directory.read().unwrap_or_else(PoisonError::into_inner);
        let listed = directory.nodes().iter().sum::<usize>() + 1;
        listed.max(usize::try_from(directory.mesh().members).unwrap_or(usize::MAX)) > SMALL_NODES_MAX
    }

    /// Returns the hour of a pair that another agent probes. `peer` is as it appears in the path.
    fn hour(self: &Arc<Self>, source: &str, peer: &str) -> Reply {
        let path = format!("/api/v1/hour/{peer}");
        match Target::find(&self.app.view, self.port, source) {
            Some(target) => Reply::Later(Box::pin(hour_of(target, path, self.times.row))),
            None => no_such_source(),
        }
    }
}

/// Returns the nodes that a path names, each once. `None` if it names none or too many, or if a
/// name is not well encoded.
fn named(path: &str) -> Option<Vec<String>> {
    let mut nodes = path.split(',').map(decoded).collect::<Option<Vec<String>>>()?;
    nodes.sort_unstable();
    nodes.dedup();
    (!nodes[0].is_empty() && nodes.len() <= NAMED_REPORTS_MAX).then_some(nodes)
}

async fn hour_of(target: Target, path: String, time: Duration) -> Reply {
    match client::get(target.address, &path, HOUR_BYTES_MAX, time).await {
        Ok(body) => Reply::Full { status: 200, content_type: JSON, body },
        Err(client::GetError::Status(status)) if status == 404 => {
            Reply::text(404, "the agent keeps no last hour of this peer\n")
        }
        Err(error) => Reply::text(502, printable(&format!("{}: {error}", target.node)) + "\n"),
    }
}

/// Returns the judges with the age of their last judgement now.
fn judges_of(agreed: &Agreed) -> Vec<JudgeOf<'_>> {
    let since = clock::monotonic().since(agreed.at).as_secs_f64();
    agreed.judges.iter().map(|(node, judge)| JudgeOf { node, age_seconds: tenths(judge.age_seconds + since) }).collect()
}

/// Returns what an agent says that finds no judge: what its own report shows.
fn without_judges(view: &View) -> Arc<[u8]> {
    let OwnLosses { peers, losing } = OwnLosses::count(view);
    let headline = verdicts::without_judges(view.about.is_member, (losing, peers));
    judge::now(&headline, &Overview::default(), &[], None)
}

fn tenths(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}

/// Returns the answer with this head and the fields that follow it.
fn shared(head: &HeadOf<'_>, fields: &Arc<[u8]>) -> Reply {
    // Serializing this type cannot fail.
    let mut text = serde_json::to_vec(head).unwrap_or_default();
    // Its brace is closed by the fields.
    text.pop();
    text.push(b',');
    Reply::Shared { content_type: JSON, head: text, body: Arc::clone(fields) }
}

fn no_such_source() -> Reply {
    Reply::text(404, "no such source in the list\n")
}

fn not_a_judge() -> Reply {
    Reply::text(404, "this agent is not a judge\n")
}
