//! What a canary says of the whole mesh: the page, all rows, the verdicts, and the last hour of any pair.
//!
//! Everything else is the agent's own ([`App`]). One gathering at a time: it costs every canary a row. Who asks meanwhile
//! waits, and for verdicts alone takes those that were just judged.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::gather::{Gathered, gather, locate};
use super::page;
use super::pipe::{Pipe, Piped};
use super::targets::{Target, Targets};
use super::times::Times;
use super::verdicts::{self, Verdict};
use crate::clock;
use crate::exposition::{App, decoded};
use crate::http::{Reply, Routes, client};
use crate::limits::{GATHERING_WAITERS_MAX, HOUR_BYTES_MAX};
use crate::units::Nanos;

/// Bytes of what stands behind the rows that are written at a time.
const FIELDS_PART_BYTES: usize = 1_024;
const JSON: &str = "application/json";

/// The agent's own routes, and those of the mesh.
pub struct MeshRoutes(Arc<Mesh>);

struct Mesh {
    app: App,
    /// Of our own HTTP server, and of peers whose list does not tell.
    port: u16,
    times: Times,
    turn: Arc<Semaphore>,
    /// Requests that wait for it.
    waiting: AtomicUsize,
    judged: Mutex<Option<Judged>>,
}

/// What is kept of a gathering.
struct Judged {
    at: Nanos,
    nodes: usize,
    /// The fields behind the rows, as JSON.
    fields: String,
}

#[derive(Serialize)]
struct Missing<'a> {
    node: &'a str,
    error: &'a str,
}

#[derive(Serialize)]
struct Fields<'a> {
    missing: Vec<Missing<'a>>,
    not_gathered: usize,
    headline: String,
    verdicts: Vec<Verdict>,
}

impl MeshRoutes {
    /// Around the agent's own; `port` is that of its server.
    pub fn new(app: App, port: u16, times: Times) -> Self {
        let (turn, waiting, judged) = (Arc::new(Semaphore::new(1)), AtomicUsize::new(0), Mutex::new(None));
        Self(Arc::new(Mesh { app, port, times, turn, waiting, judged }))
    }
}

impl Routes for MeshRoutes {
    fn route(&self, path: &str, accept: &str) -> Reply {
        let mesh = &self.0;
        match path {
            "/" => page::reply(),
            "/api/v1/mesh" => Reply::Later(Box::pin(Arc::clone(mesh).rows())),
            "/api/v1/verdicts" => match mesh.kept_verdicts() {
                Some(reply) => reply,
                None => Reply::Later(Box::pin(Arc::clone(mesh).verdicts())),
            },
            _ => match path.strip_prefix("/api/v1/hour/").and_then(|pair| pair.split_once('/')) {
                Some((source, peer)) => match decoded(source) {
                    // Our own: as the app has it.
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
}

impl Mesh {
    /// `/api/v1/mesh`: every row on a line of its own.
    async fn rows(self: Arc<Self>) -> Reply {
        let Some(turn) = self.turn().await else { return busy() };
        let pipe = Pipe::default();
        let out = pipe.clone();
        let writer = async move {
            out.write(&[b"{\"rows\":[\n"]).await;
            let fields = self.gather_and_judge(out.clone()).await;
            out.write(&[b"],"]).await;
            for part in fields.as_bytes()[1..].chunks(FIELDS_PART_BYTES) {
                out.write(&[part]).await;
            }
            out.write(&[b"\n"]).await;
            // It ends with the body, also where that is dropped.
            drop(turn);
        };
        Reply::Live { content_type: JSON, body: Box::new(Piped::new(pipe, writer)) }
    }

    /// `/api/v1/verdicts`, judged anew.
    async fn verdicts(self: Arc<Self>) -> Reply {
        let Some(_turn) = self.turn().await else { return busy() };
        // Whoever had the turn before has judged.
        if let Some(reply) = self.kept_verdicts() {
            return reply;
        }
        self.gather_and_judge(Pipe::nowhere()).await;
        self.kept_verdicts().unwrap_or_else(busy)
    }

    fn kept_verdicts(&self) -> Option<Reply> {
        let judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        let judged = judged.as_ref()?;
        let age = clock::monotonic().since(judged.at);
        (age < self.times.verdicts.into()).then(|| {
            let body = format!(
                "{{\"age_seconds\":{:.1},\"nodes\":{},{}\n",
                age.as_secs_f64(),
                judged.nodes,
                &judged.fields[1..]
            );
            Reply::Full { status: 200, content_type: JSON, body: body.into_bytes() }
        })
    }

    /// Gathers, judges, keeps the verdicts, and returns what stands behind the rows, as a JSON object.
    async fn gather_and_judge(&self, rows: Pipe) -> String {
        let Gathered { matrix, missing, further } =
            gather(Arc::clone(&self.app.view), self.port, self.times, rows).await;
        let verdicts = verdicts::judge(&matrix);
        let fields = Fields {
            missing: missing.iter().map(|(node, error)| Missing { node, error }).collect(),
            not_gathered: further,
            headline: verdicts::headline(&verdicts, &matrix),
            verdicts,
        };
        // Serializing these cannot fail.
        let fields = serde_json::to_string(&fields).unwrap_or_else(|_| "{}".to_owned());
        let judged = Judged { at: clock::monotonic(), nodes: matrix.node_count(), fields: fields.clone() };
        *self.judged.lock().unwrap_or_else(PoisonError::into_inner) = Some(judged);
        fields
    }

    /// Waits for the gathering under way; none where that takes too long, or too many wait.
    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        let waiting = Waiting::begin(&self.waiting);
        if waiting.before >= GATHERING_WAITERS_MAX {
            return None;
        }
        timeout(self.times.wait, Arc::clone(&self.turn).acquire_owned()).await.ok()?.ok()
    }

    /// The hour of a pair that another canary probes; the peer is as it stands in the path.
    fn hour(self: &Arc<Self>, source: &str, peer: &str) -> Reply {
        let path = format!("/api/v1/hour/{peer}");
        match Targets::find(&self.app.view, self.port, source) {
            Some(target) => Reply::Later(Box::pin(hour_of(target, path, self.times.row))),
            None if self.is_partial() => Reply::Later(Box::pin(Arc::clone(self).far_hour(source.to_owned(), path))),
            None => no_such_source(),
        }
    }

    /// Whether there are nodes that our list does not name.
    fn is_partial(&self) -> bool {
        let directory = self.app.view.directory.read().unwrap_or_else(PoisonError::into_inner);
        // Each once, at however many addresses, and without those that have left.
        let listed = directory.nodes().iter().sum::<usize>();
        // Ourselves are a member, too.
        usize::try_from(directory.mesh().members).unwrap_or_default() > listed + 1
    }

    /// Likewise, of a canary that only others' rows name: it is looked for in them, which is as much as a gathering.
    async fn far_hour(self: Arc<Self>, source: String, path: String) -> Reply {
        let Some(turn) = self.turn().await else { return busy() };
        let found = locate(Arc::clone(&self.app.view), self.port, self.times, source).await;
        drop(turn);
        match found {
            Some(target) => hour_of(target, path, self.times.row).await,
            None => no_such_source(),
        }
    }
}

async fn hour_of(target: Target, path: String, time: Duration) -> Reply {
    match client::get(target.address, &path, HOUR_BYTES_MAX, time).await {
        Ok(body) => Reply::Full { status: 200, content_type: JSON, body },
        Err(client::GetError::Status(status)) if status == 404 => Reply::text(404, "it keeps no hour of this peer\n"),
        Err(error) => Reply::text(502, format!("{}: {error}\n", target.node)),
    }
}

fn no_such_source() -> Reply {
    Reply::text(404, "no such source in the list\n")
}

fn busy() -> Reply {
    Reply::text(503, "a gathering is under way; try again\n")
}

/// One that waits, until it is dropped.
struct Waiting<'a> {
    count: &'a AtomicUsize,
    before: usize,
}

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        Self { count, before: count.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
