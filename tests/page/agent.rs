//! A server like an agent's, whose mesh is made up, and which may fail.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use kube_canary::allocator::finder::{Scope, ScopeNumber};
use kube_canary::http::{Live, Reply, Routes, ServeLimits, Server};
use kube_canary::limits::FRAME_BYTES;
use kube_canary::mesh::page;
use serde_json::{Value, json};

use crate::leaks::NoLeaks;
use crate::made_up::{self, Mesh};

const JSON: &str = "application/json";
/// No browser takes so long: what the server cuts off is not under test here.
const PATIENCE: Duration = Duration::from_mins(10);

/// The answer to the next collection of the mesh.
#[derive(Clone)]
pub enum Collection {
    /// Every byte of this text.
    Whole(Arc<str>),
    /// Up to this byte, then the connection ends.
    Broken(Arc<str>, usize),
    /// Status 503, with no document.
    Busy,
}

/// The state that the test and the server share.
pub struct Shared {
    collection: Mutex<Collection>,
    /// What the judges say. They say of the last whole collection what its end says.
    said: Mutex<Option<Value>>,
    /// The verdicts of the last 24 hours. Without them, no judge keeps any.
    past: Mutex<Option<Vec<Value>>>,
    /// The figures of all nodes. Without them, no judge has any.
    figures: Mutex<Option<String>>,
    pub collections: AtomicUsize,
    hours: Mutex<Vec<String>>,
    /// The nodes that collections named, with commas between them.
    named: Mutex<Vec<String>>,
    layers: Vec<(&'static str, &'static str)>,
    test: ScopeNumber,
}

/// The server, until it is dropped.
pub struct Agent {
    pub address: String,
    pub shared: Arc<Shared>,
    pub server: Option<Server>,
    _no_leaks: NoLeaks,
}

struct Answers(Arc<Shared>);

struct Body {
    text: Arc<str>,
    sent: usize,
    end: usize,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Agent {
    pub fn of(mesh: &Mesh) -> Self {
        Self::serve(&mesh.layers, || Collection::Whole(mesh.answer().into()))
    }

    pub fn serve(layers: &[(&'static str, &'static str)], collection: impl FnOnce() -> Collection) -> Self {
        let no_leaks = NoLeaks::here();
        let collection = collection();
        let said = said(&collection);
        let past = said.as_ref().and_then(|said| said["verdicts"].as_array().cloned());
        let shared = Arc::new(Shared {
            said: Mutex::new(said),
            past: Mutex::new(Some(past.unwrap_or_default())),
            figures: Mutex::new(Some(json!({"rows": [], "worst": []}).to_string())),
            collection: Mutex::new(collection),
            collections: AtomicUsize::new(0),
            hours: Mutex::default(),
            named: Mutex::default(),
            layers: layers.to_vec(),
            test: no_leaks.number(),
        });
        let bound = Server::bind("127.0.0.1:0".parse().expect("an address")).expect("a socket");
        let limits = ServeLimits { request_head_time: PATIENCE, response_time: PATIENCE, ..ServeLimits::default() };
        let server = bound.start_with(2, Arc::new(Answers(Arc::clone(&shared))), limits).expect("a server");
        let address = format!("http://{}/", server.local_addr());
        Self { address, shared, server: Some(server), _no_leaks: no_leaks }
    }

    pub fn next(&self, collection: Collection) {
        if let Some(said) = said(&collection) {
            *lock(&self.shared.said) = Some(said);
        }
        *lock(&self.shared.collection) = collection;
    }

    /// Sets the verdicts of the last 24 hours.
    pub fn set_past(&self, past: Vec<Value>) {
        *lock(&self.shared.past) = Some(past);
    }

    /// Sets the document of all nodes.
    pub fn set_figures(&self, figures: Option<String>) {
        *lock(&self.shared.figures) = figures;
    }

    /// The nodes that each collection of a part named.
    pub fn named(&self) -> Vec<Vec<String>> {
        lock(&self.shared.named).iter().map(|named| named.split(',').map(str::to_owned).collect()).collect()
    }

    /// Paths of the hours that were requested.
    pub fn hours(&self) -> Vec<String> {
        lock(&self.shared.hours).clone()
    }
}

/// Returns the answer with the reports of these nodes alone.
fn part(answer: &str, named: &str) -> Arc<str> {
    let named: HashSet<&str> = named.split(',').collect();
    let is_named = |row: &str| {
        let (_, rest) = row.split_once("\"node\":\"").expect("a source");
        named.contains(rest.split('"').next().expect("a name"))
    };
    let (rows, end) = answer.trim_end().rsplit_once("\n]").expect("an end");
    let rows = rows.lines().skip(1).map(|row| row.trim_start_matches(',')).filter(|row| is_named(row));
    format!("{{\"rows\":[\n{}\n]{end}\n", rows.collect::<Vec<_>>().join("\n,")).into()
}

/// Returns what judges say of a mesh that is collected whole: the end of the document.
fn said(collection: &Collection) -> Option<Value> {
    let (Collection::Whole(text) | Collection::Broken(text, _)) = collection else {
        return None;
    };
    let end = text.lines().last()?.strip_prefix("],")?;
    let mut said: Value = serde_json::from_str(&format!("{{{end}")).ok()?;
    let nodes = text.matches("{\"source\":").count() + said["missing"].as_array().map_or(0, Vec::len);
    said["nodes"] = nodes.into();
    said["age_seconds"] = 7.0.into();
    said["judges"] = ["judge-1", "judge-2"].map(|node| json!({"node": node, "age_seconds": 7.0})).into_iter().collect();
    for verdict in said["verdicts"].as_array_mut()?.iter_mut().filter(|it| it.get("id").is_none()) {
        verdict["id"] = format!("{} {}", verdict["kind"], verdict["subject"]).into();
    }
    Some(said)
}

impl Routes for Answers {
    fn route(&self, path: &str, _accept: &str) -> Reply {
        Scope::adopt(self.0.test);
        let text = |status, body: &str| Reply::Full { status, content_type: "text/plain", body: body.into() };
        match path {
            "/" => page::reply(),
            "/api/v1/verdicts" | "/api/v1/history" | "/api/v1/nodes" => {
                let answer = match path {
                    "/api/v1/verdicts" => lock(&self.0.said).as_ref().map(Value::to_string),
                    "/api/v1/history" => lock(&self.0.past).as_ref().map(|it| json!({ "verdicts": it }).to_string()),
                    _ => lock(&self.0.figures).clone(),
                };
                match answer {
                    Some(body) => Reply::Full { status: 200, content_type: JSON, body: body.into_bytes() },
                    None => text(503, "no judge answers\n"),
                }
            }
            _ if path == "/api/v1/mesh" || path.starts_with("/api/v1/mesh/") => {
                self.0.collections.fetch_add(1, SeqCst);
                let named = path.strip_prefix("/api/v1/mesh/");
                lock(&self.0.named).extend(named.map(str::to_owned));
                let body = |text: Arc<str>, end: usize| Reply::Live {
                    content_type: JSON,
                    body: Box::new(Body { text, sent: 0, end }),
                };
                match lock(&self.0.collection).clone() {
                    Collection::Whole(text) => {
                        let text = named.map_or(text.clone(), |named| part(&text, named));
                        let end = text.len();
                        body(text, end)
                    }
                    Collection::Broken(text, end) => body(text, end),
                    Collection::Busy => text(503, "another collection is running\n"),
                }
            }
            _ => match path.strip_prefix("/api/v1/hour/") {
                Some(link) => {
                    lock(&self.0.hours).push(link.into());
                    if link.ends_with("unkept") {
                        return text(404, "not kept\n");
                    }
                    Reply::Full { status: 200, content_type: JSON, body: made_up::hour(&self.0.layers).into_bytes() }
                }
                None => text(404, "not here\n"),
            },
        }
    }
}

impl Live for Body {
    fn poll_render(&mut self, _: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<bool> {
        let until = self.end.min(self.sent + FRAME_BYTES);
        out.extend_from_slice(&self.text.as_bytes()[self.sent..until]);
        self.sent = until;
        Poll::Ready(self.sent < self.end)
    }
}
