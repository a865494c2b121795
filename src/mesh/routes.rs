//! The routes about the whole mesh: the page, all reports, the verdicts, and the last hour of any
//! pair.
//!
//! Everything else is the agent's own ([`App`]). One collection runs at a time, because it costs
//! every agent a report. The next begins after a pause in proportion to its work ([`Turn`]). A
//! request that arrives earlier waits. A request for the verdicts alone takes those that were just
//! judged.
//!
//! Verdicts and their past come from the judges, if any answers, and an agent collects for them
//! only if none does. Requests for these and for an hour are answered by others from their own
//! memory. So no request is forwarded twice.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

use super::collect::{Collected, For, collect};
use super::domains::DomainsFile;
use super::frame_writer::{FrameWriter, WrittenBody};
use super::judge::{self, Agreed, Fields, JudgeTimes, Judges, Nodes, Overview, Round};
use super::matrix::Matrix;
use super::page;
use super::queue::{Silent, Target};
use super::times::Times;
use super::verdicts;
use crate::exposition::{App, decoded};
use crate::http::{Reply, Routes, client};
use crate::limits::{HOUR_BYTES_MAX, NAMED_REPORTS_MAX};
use crate::sys::clock;
use crate::sys::console::printable;
use crate::units::Nanos;

/// Bytes written at a time of the fields that follow the reports.
const FIELDS_PART_BYTES: usize = 1_024;
/// The pause after a collection is this many times as long as the collection worked. A client that
/// asks without end takes a tenth of a CPU for the reports that this agent reads and judges.
const COLLECTION_PAUSE_FACTOR: u32 = 9;
/// Upper bound of the pause by [`COLLECTION_PAUSE_FACTOR`], so that a request that waits
/// [`Times::wait`] gets its turn.
const COLLECTION_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Nodes of a mesh whose page collects by itself. Collections of a larger mesh are rare
/// ([`Times::large`]): its page shows what the judges say.
const SMALL_NODES_MAX: usize = 24;
/// Requests that wait for a collection. More are refused.
const COLLECTION_WAITERS_MAX: usize = 8;
const JSON: &str = "application/json";

/// The routes that an agent serves: its own, and those of the mesh.
pub struct MeshRoutes(Arc<Mesh>);

struct Mesh {
    app: App,
    /// Port of this agent's HTTP server. It is also assumed for peers whose list does not give one.
    port: u16,
    times: Times,
    turn: Arc<Semaphore>,
    /// When the pause after the last turn ends. `None` before the first turn.
    pause_until: Mutex<Option<Instant>>,
    /// When all reports of a large mesh may next be collected for a reader. `None` before the first
    /// time.
    next_whole: Mutex<Option<Instant>>,
    /// One permit for each request that may wait for a turn.
    waiting: Semaphore,
    judged: Mutex<Option<Judged>>,
    /// The agents that did not answer in the last round, if this agent judges.
    silent: Mutex<Silent>,
    domains: Option<DomainsFile>,
    /// None if this agent must not judge. Then it does not ask judges either.
    judges: Option<Arc<Judges>>,
}

/// What is kept of a collection.
struct Judged {
    at: Nanos,
    nodes: usize,
    /// The fields after the reports, as JSON. All readers share it.
    fields: Arc<[u8]>,
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
        let (turn, waiting) = (Arc::new(Semaphore::new(1)), Semaphore::new(COLLECTION_WAITERS_MAX));
        let (judged, pause_until, next_whole) = (Mutex::new(None), Mutex::new(None), Mutex::new(None));
        Self(Arc::new(Mesh {
            judges: judge.map(|times| Arc::new(Judges::new(Arc::clone(&app.view), port, times))),
            app,
            port,
            times,
            turn,
            pause_until,
            next_whole,
            waiting,
            judged,
            silent: Mutex::default(),
            domains,
        }))
    }
}

impl Routes for MeshRoutes {
    fn route(&self, path: &str, accept: &str) -> Reply {
        let mesh = &self.0;
        match path {
            "/" => page::reply(),
            "/api/v1/mesh" => Reply::Later(Box::pin(Arc::clone(mesh).rows(None))),
            "/api/v1/verdicts" => Reply::Later(Box::pin(Arc::clone(mesh).verdicts())),
            "/api/v1/history" => Reply::Later(Box::pin(Arc::clone(mesh).history())),
            "/api/v1/nodes" => Reply::Later(Box::pin(Arc::clone(mesh).nodes())),
            judge::NODES_PATH => mesh.own_nodes().unwrap_or_else(not_a_judge),
            judge::PATH => match mesh.judges.as_ref().and_then(|judges| judges.document()) {
                Some((head, body)) => Reply::Shared { content_type: JSON, head, body },
                None => not_a_judge(),
            },
            _ if let Some(nodes) = path.strip_prefix("/api/v1/mesh/") => match named(nodes) {
                Some(nodes) => Reply::Later(Box::pin(Arc::clone(mesh).rows(Some(nodes)))),
                None => Reply::text(404, "name 1 to 100 nodes, with commas between them\n"),
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

    fn background(&self) -> Option<Pin<Box<dyn Future<Output = ()>>>> {
        let (mesh, judges) = (Arc::clone(&self.0), self.0.judges.clone()?);
        // Each round is in a box of its own, so that an agent that never judges has none.
        Some(Box::pin(judges.run(Box::new(move || Box::pin(Arc::clone(&mesh).round())))))
    }
}

impl Mesh {
    /// Answers `/api/v1/mesh`, with each report on a line of its own. If nodes are named, it has
    /// theirs alone, beside this agent's.
    async fn rows(self: Arc<Self>, nodes: Option<Vec<String>>) -> Reply {
        let is_whole = nodes.is_none() && self.is_large();
        if is_whole && self.lock_next_whole().is_some_and(|next| Instant::now() < next) {
            return Reply::text(503, "all reports of a mesh this large are collected once a minute; try again\n");
        }
        let Some(turn) = self.turn().await else { return busy() };
        if is_whole {
            *self.lock_next_whole() = Some(turn.begun + self.times.large_whole);
        }
        let (rows, reader) = (FrameWriter::default(), self.times.reader);
        let out = rows.clone();
        let writer = async move {
            out.write(&[b"{\"rows\":[\n"]).await;
            let purpose = match &nodes {
                Some(nodes) => For::ReaderOf(out.clone(), nodes),
                None => For::Reader(out.clone()),
            };
            let (fields, ..) = turn.work(self.collect_and_judge(purpose)).await;
            out.write(&[b"],"]).await;
            for part in fields.chunks(FIELDS_PART_BYTES) {
                out.write(&[part]).await;
            }
            // The turn ends with the body, also if the body is dropped.
            drop(turn);
        };
        Reply::Live { content_type: JSON, body: Box::new(WrittenBody::new(rows, writer, reader)) }
    }

    /// Answers `/api/v1/verdicts`: what the judges agree on, or else this agent's own judgement.
    async fn verdicts(self: Arc<Self>) -> Reply {
        if let Some(agreed) = self.agreed().await {
            let judges = judges_of(&agreed);
            let age_seconds = judges.iter().map(|judge| judge.age_seconds).fold(0.0, f64::max);
            let head = HeadOf { age_seconds: Some(age_seconds), nodes: Some(agreed.nodes), judges: &judges };
            return shared(&head, &agreed.now);
        }
        if let Some(reply) = self.kept_verdicts() {
            return reply;
        }
        let Some(turn) = self.turn().await else { return busy() };
        // The request that had the turn before may just have judged.
        if let Some(reply) = self.kept_verdicts() {
            return reply;
        }
        turn.work(self.collect_and_judge(For::Reader(FrameWriter::nowhere()))).await;
        self.kept_verdicts().unwrap_or_else(busy)
    }

    /// Answers `/api/v1/history`: the verdicts of the last 24 hours, on which the judges agree.
    async fn history(self: Arc<Self>) -> Reply {
        match self.agreed().await {
            Some(agreed) => {
                let head = HeadOf { age_seconds: None, nodes: None, judges: &judges_of(&agreed) };
                shared(&head, &agreed.history)
            }
            None => Reply::text(503, "no judge answers, and only judges keep the past\n"),
        }
    }

    /// Answers `/api/v1/nodes`: what a judge keeps of all nodes.
    async fn nodes(self: Arc<Self>) -> Reply {
        match (self.own_nodes(), &self.judges) {
            (Some(own), _) => own,
            (None, Some(judges)) => judges.relay_nodes(self.times).await,
            (None, None) => Reply::text(503, "this agent runs with --judge never, so it asks no judge\n"),
        }
    }

    fn own_nodes(&self) -> Option<Reply> {
        let body = self.judges.as_ref()?.nodes()?;
        Some(Reply::Stream { content_type: JSON, body: Box::new(body) })
    }

    async fn agreed(&self) -> Option<Arc<Agreed>> {
        match &self.judges {
            Some(judges) => judges.agreed().await,
            None => None,
        }
    }

    /// Collects and judges as a judge does. It takes no turn: it is spread over most of the time
    /// between two rounds, and no reader should wait for it.
    async fn round(self: Arc<Self>) -> Round {
        let mut silent = std::mem::take(&mut *self.silent.lock().unwrap_or_else(PoisonError::into_inner));
        let (_, round, matrix) = self.collect_and_judge(For::Judge(&mut silent)).await;
        *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = silent;
        Round { figures: Some(Nodes::of(&matrix).await), ..round }
    }

    fn kept_verdicts(&self) -> Option<Reply> {
        let judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        let judged = judged.as_ref()?;
        let age = clock::monotonic().since(judged.at);
        (age < self.times.verdicts.into()).then(|| {
            let age_seconds = tenths(age.as_secs_f64());
            let head = HeadOf { age_seconds: Some(age_seconds), nodes: Some(judged.nodes), judges: &[] };
            shared(&head, &judged.fields)
        })
    }

    /// Collects and judges, and keeps the verdicts if no nodes are named. Returns the fields after
    /// the reports, what a judge keeps, and what was judged.
    async fn collect_and_judge(&self, purpose: For<'_>) -> (Arc<[u8]>, Round, Matrix) {
        let is_part = matches!(purpose, For::ReaderOf(..));
        let Collected { mut matrix, missing, missing_not_listed, further } =
            collect(Arc::clone(&self.app.view), self.port, self.times, purpose).await;
        if let Some(domains) = &self.domains {
            matrix.set_domains(&domains.current(|level, text| log::log!(level, "{text}")));
        }
        let past = self.judges.as_ref().map(|judges| judges.just_ended()).unwrap_or_default();
        let judgement = verdicts::judge_in_slices(&matrix, &past).await;
        let headline = judgement.headline();
        let (overview, found) = Overview::of(judgement, (missing, missing_not_listed), further);
        let fields = Fields::new(&headline, &overview, &found.verdicts).text();
        let nodes = matrix.node_count();
        let judged = Judged { at: clock::monotonic(), nodes, fields: Arc::clone(&fields) };
        if !is_part {
            *self.judged.lock().unwrap_or_else(PoisonError::into_inner) = Some(judged);
        }
        (fields, Round { overview, found, nodes, figures: None }, matrix)
    }

    /// Waits until the last turn and the pause after it end. `None` if that takes too long, or if
    /// too many requests wait.
    async fn turn(self: &Arc<Self>) -> Option<Turn> {
        let _waiting = self.waiting.try_acquire().ok()?;
        let end = Instant::now() + self.times.wait;
        let permit = timeout(self.times.wait, Arc::clone(&self.turn).acquire_owned()).await.ok()?.ok()?;
        let pause = *self.pause_until.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(until) = pause {
            if until > end {
                return None;
            }
            sleep_until(until).await;
        }
        let (begun, worked) = (Instant::now(), Cell::default());
        Some(Turn { mesh: Arc::clone(self), begun, worked, _permit: permit })
    }

    fn lock_next_whole(&self) -> MutexGuard<'_, Option<Instant>> {
        self.next_whole.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The permit to collect. Its end begins a pause in proportion to the work. So a client that
/// repeats its requests takes a known share of a CPU ([`COLLECTION_PAUSE_FACTOR`]).
struct Turn {
    mesh: Arc<Mesh>,
    begun: Instant,
    /// Time that the collection was running, without the time it waited for agents
    /// or for its reader.
    worked: Cell<Duration>,
    _permit: OwnedSemaphorePermit,
}

impl Turn {
    async fn work<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            let begun = Instant::now();
            let done = work.as_mut().poll(cx);
            self.worked.update(|worked| worked + begun.elapsed());
            done
        })
        .await
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let pause = (self.worked.get() * COLLECTION_PAUSE_FACTOR).min(COLLECTION_PAUSE_MAX);
        // Also if the reader went away before the end: the others were asked all the same.
        let rare = if self.mesh.is_large() { self.mesh.times.large } else { Duration::ZERO };
        let until = (Instant::now() + pause).max(self.begun + rare);
        // This is set before the next turn begins, because the permit is dropped later.
        *self.mesh.pause_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
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

fn busy() -> Reply {
    Reply::text(503, "another collection is running; try again\n")
}
