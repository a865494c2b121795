//! A server like an agent's, whose mesh is made up, and which may fail.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use kube_canary::allocator::finder::{LeakScope, ScopeNumber};
use kube_canary::http::path::decoded;
use kube_canary::http::{LiveBody, Reply, Routes, ServeLimits, Server};
use kube_canary::limits::FRAME_BYTES;
use kube_canary::mesh::page;
use kube_canary::sys::clock;
use serde_json::{Value, json};

use crate::leaks::NoLeaks;
use crate::made_up::{self, Mesh};

const JSON: &str = "application/json";
/// No browser takes this long: what the server cuts off is not under test here.
const PATIENCE: Duration = Duration::from_mins(10);

/// The answer to the next collection of the mesh.
#[derive(Clone)]
pub enum Collection {
    /// The reports of this mesh that are named.
    Whole(Arc<str>),
    /// These very bytes, whatever is named.
    AsIs(Arc<str>),
    /// Up to this byte of them, then the connection ends.
    Broken(Arc<str>, usize),
    /// Status 503, with no document.
    Busy,
}

/// The state that the test and the server share.
pub struct Shared {
    collection: Mutex<Collection>,
    /// The report of the agent itself, which names the nodes of the last whole collection.
    own: Mutex<String>,
    /// What the judges say. They say of the last whole collection what its end says.
    said: Mutex<Option<Value>>,
    /// The verdicts of the last 24 hours. Without them, no judge keeps any.
    past: Mutex<Option<Vec<Value>>>,
    /// Since when the judges remember.
    since: Mutex<u64>,
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
        let (said, own) = (said(&collection), own(&collection));
        let past = said.as_ref().and_then(|said| said["verdicts"].as_array().cloned());
        let shared = Arc::new(Shared {
            said: Mutex::new(said),
            past: Mutex::new(Some(past.unwrap_or_default())),
            since: Mutex::new(clock::realtime().as_secs() - 86_400),
            figures: Mutex::new(Some(json!({"rows": [], "worst": []}).to_string())),
            collection: Mutex::new(collection),
            own: Mutex::new(own.unwrap_or_else(|| r#"{"source":{"node":"node-1"},"peers":[]}"#.to_owned())),
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
        if let Some(own) = own(&collection) {
            *lock(&self.shared.own) = own;
        }
        *lock(&self.shared.collection) = collection;
    }

    /// What judges say of the last whole collection.
    pub fn said(&self) -> Value {
        lock(&self.shared.said).clone().expect("a whole collection")
    }

    /// Sets what judges say.
    pub fn set_said(&self, said: Value) {
        *lock(&self.shared.said) = Some(said);
    }

    /// The reports of these nodes, as the agent passes them on.
    pub fn reports(answer: &str, nodes: &[&str]) -> String {
        Reports::of(answer).named(&nodes.join(",")).to_string()
    }

    /// Sets the verdicts of the last 24 hours.
    pub fn set_past(&self, past: Vec<Value>) {
        *lock(&self.shared.past) = Some(past);
    }

    /// Sets since when the judges remember what happened.
    pub fn set_since(&self, unix_seconds: u64) {
        *lock(&self.shared.since) = unix_seconds;
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

/// The reports of a made-up mesh, and the nodes without one.
struct Reports<'a> {
    rows: Vec<&'a str>,
    missing: Vec<Value>,
}

impl<'a> Reports<'a> {
    fn of(answer: &'a str) -> Self {
        let (rows, end) = answer.trim_end().rsplit_once("\n]").expect("an end");
        let end: Value = serde_json::from_str(&format!("{{{}", &end[1..])).expect("an end");
        let rows = rows.lines().skip(1).map(|row| row.trim_start_matches(',')).collect();
        Self { rows, missing: end["missing"].as_array().expect("a list").clone() }
    }

    /// Returns the answer with the reports of these nodes.
    fn named(&self, named: &str) -> Arc<str> {
        let named: HashSet<String> = named.split(',').map(|name| decoded(name).expect("a name")).collect();
        let rows: Vec<&str> = self.rows.iter().filter(|row| named.contains(&node_of(row))).copied().collect();
        let is_named = |it: &&Value| it["node"].as_str().is_some_and(|node| named.contains(node));
        let missing: Vec<&Value> = self.missing.iter().filter(is_named).collect();
        format!("{{\"rows\":[\n{}\n],\"missing\":{}}}\n", rows.join("\n,"), json!(missing)).into()
    }

    /// Returns the report of the first node, which names all others.
    fn own(&self) -> String {
        let missing = self.missing.iter().filter_map(|it| Some(it["node"].as_str()?.to_owned()));
        let mut nodes = self.rows.iter().map(|row| node_of(row)).chain(missing);
        let source = json!({"node": nodes.next().expect("a node")});
        let peers: Vec<Value> = nodes.map(|node| json!({"node": node, "network": "pod"})).collect();
        format!("{{\"source\":{source},\"peers\":{}}}\n", json!(peers))
    }
}

/// Returns the report of the agent itself in a whole collection.
fn own(collection: &Collection) -> Option<String> {
    if let Collection::Whole(answer) = collection { Some(Reports::of(answer).own()) } else { None }
}

/// Returns the name of the source of a report. One that cannot be read has a name nevertheless.
fn node_of(row: &str) -> String {
    let (_, rest) = row.split_once("\"node\":").expect("a source");
    let name = serde_json::Deserializer::from_str(rest).into_iter::<String>().next();
    name.expect("a name").expect("a text")
}

/// Returns what judges say of a mesh that is collected whole: its end.
fn said(collection: &Collection) -> Option<Value> {
    let Collection::Whole(text) = collection else { return None };
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
        LeakScope::adopt(self.0.test);
        let text = |status, body: &str| Reply::Full { status, content_type: "text/plain", body: body.into() };
        match path {
            "/" => page::reply(),
            "/api/v1/verdicts" | "/api/v1/history" | "/api/v1/nodes" => {
                let answer = match path {
                    "/api/v1/verdicts" => lock(&self.0.said).as_ref().map(Value::to_string),
                    "/api/v1/history" => lock(&self.0.past).as_ref().map(|it| {
                        json!({"remembered_since_unix_seconds": *lock(&self.0.since), "verdicts": it}).to_string()
                    }),
                    _ => lock(&self.0.figures).clone(),
                };
                match answer {
                    Some(body) => Reply::Full { status: 200, content_type: JSON, body: body.into_bytes() },
                    None => text(503, "no judge answers\n"),
                }
            }
            "/api/v1/peers" => {
                Reply::Full { status: 200, content_type: JSON, body: lock(&self.0.own).clone().into_bytes() }
            }
            _ if let Some(named) = path.strip_prefix("/api/v1/mesh/") => {
                self.0.collections.fetch_add(1, SeqCst);
                lock(&self.0.named).push(named.to_owned());
                let body = |text: Arc<str>, end: usize| Reply::Live {
                    content_type: JSON,
                    body: Box::new(Body { text, sent: 0, end }),
                };
                match lock(&self.0.collection).clone() {
                    Collection::Whole(text) => {
                        let text = Reports::of(&text).named(named);
                        let end = text.len();
                        body(text, end)
                    }
                    Collection::AsIs(text) => {
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

impl LiveBody for Body {
    fn poll_render(&mut self, _: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<bool> {
        let until = self.end.min(self.sent + FRAME_BYTES);
        out.extend_from_slice(&self.text.as_bytes()[self.sent..until]);
        self.sent = until;
        Poll::Ready(self.sent < self.end)
    }
}
