//! Collects the reports of all agents into one document, and judges them.
//!
//! Members beyond the agent's own list are found in the reports of the agents that are asked
//! ([`Queue`]).
//!
//! Reports come from other pods and are not trusted. A report counts under the name that discovery
//! gives its address, and may name only nodes that discovery knows. Its bytes, objects and time are
//! bounded. Whatever it contains, the other reports arrive as they would without it.
//!
//! Memory is bounded by the size of one report, not by the number of reports. A report is passed on
//! as it arrives, object by object, and 8 bytes of each cell stay for the verdicts. Reports are
//! read one after the other, because they go into one stream. While one is read, the connections to
//! the next agents are opened.
//!
//! Three traps are handled here:
//! - A report may break off in the middle, and the document must still be complete.
//! - An agent may answer for another node than the one that was asked.
//! - A slow reader of the document must not make the agents look slow.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::frame_writer::FrameWriter;
use super::matrix::Matrix;
use super::queue::{Queue, Target};
use super::split::{Object, SplitError, Splitter};
use super::times::Times;
use crate::exposition::{PeersBody, View};
use crate::http::Render as _;
use crate::http::client::{self, GetError, Link};
use crate::limits::{FRAME_BYTES, REPORT_BYTES_MAX, REPORT_PEERS_MAX, REPORT_REQUESTS_MAX};
use crate::report::{self, Missing, Peer, Source};

/// Why the report of a node is missing or incomplete.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// The request or the connection failed.
    #[error(transparent)]
    Get(#[from] GetError),
    /// No further data came within this time.
    #[error("sent nothing more for {0:?}")]
    Stalled(Duration),
    /// The report was not complete within this time.
    #[error("not complete after {0:?}")]
    Slow(Duration),
    /// The data is not a report.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// An object of the report cannot be parsed.
    #[error("not a report: {0}")]
    Parse(#[from] serde_json::Error),
    /// The address now belongs to another node, which has this name.
    #[error("answers as {0}")]
    Another(String),
    /// The report names a node twice for one network and address family, or is longer than
    /// a report can be.
    #[error("{0}")]
    Implausible(String),
    /// The collection as a whole took too long.
    #[error("the collection ended after {0:?}")]
    NoTime(Duration),
}

/// The result of a collection. Its reports have been written to the document.
pub struct Collected {
    /// The input of the verdicts.
    pub matrix: Matrix,
    /// Nodes whose report is missing or incomplete.
    pub missing: Vec<Missing>,
    /// Number of further nodes, which were not asked.
    pub further: usize,
}

/// Asks this agent and all others, and writes `{row}
/// ,{row}
/// …` into `rows`.
pub async fn collect(view: Arc<View>, port: u16, times: Times, rows: FrameWriter) -> Collected {
    let queue = RefCell::new(Queue::new(&view, port));
    let mut collection = Collection { matrix: listed(&view), rows, count: 0, queue: &queue, times };
    let mut missing = Vec::new();
    let mut note = |matrix: &mut Matrix, node: &str, error: &RowError| {
        let error = error.to_string();
        matrix.missing(node, &error);
        missing.push(Missing { node: node.to_owned(), error });
    };
    if let Err(error) = collection.own(Arc::clone(&view)).await {
        note(&mut collection.matrix, &view.node, &error);
    }
    for target in queue.borrow().waiting() {
        collection.matrix.seek(&target.node);
    }
    let until = Instant::now() + times.collection;
    let (in_flight, answered) = (Vec::with_capacity(REPORT_REQUESTS_MAX), VecDeque::new());
    let mut openings = Openings { queue: &queue, in_flight, answered, until, times };
    while let Some((target, opened)) = poll_fn(|cx| openings.poll_next(cx)).await {
        let done = match opened {
            Ok(opened) => {
                let mut row = pin!(collection.other(&target, opened, until));
                poll_fn(|cx| {
                    openings.drive(cx);
                    row.as_mut().poll(cx)
                })
                .await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            note(&mut collection.matrix, &target.node, &error);
        }
    }
    let mut matrix = collection.matrix;
    matrix.finish();
    let members = view.directory.read().unwrap_or_else(PoisonError::into_inner).mesh().members;
    // This agent is asked too, so it counts as one.
    let beyond = usize::try_from(members).unwrap_or_default().saturating_sub(queue.borrow().count() + 1);
    let further = matrix.unsought().max(beyond);
    Collected { matrix, missing, further }
}

/// Returns a matrix of the agent's own list, with names and zones from discovery.
fn listed(view: &View) -> Matrix {
    let mut matrix = Matrix::new();
    let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
    matrix.member(&view.node, directory.own_zone());
    for (_, peer) in directory.peers() {
        matrix.member(peer.node(), directory.zone_name(peer.zone()));
    }
    matrix
}

type Opened = (Link, Incoming);
type Opening = Pin<Box<dyn Future<Output = Result<Opened, RowError>>>>;

/// Requests to agents that are in flight or answered, a few at a time.
struct Openings<'a> {
    queue: &'a RefCell<Queue>,
    in_flight: Vec<(Target, Opening)>,
    answered: VecDeque<(Target, Result<Opened, RowError>)>,
    until: Instant,
    times: Times,
}

impl Openings<'_> {
    /// Advances all requests that are in flight, and starts further ones if there is room.
    fn drive(&mut self, cx: &mut Context<'_>) {
        while self.in_flight.len() + self.answered.len() < REPORT_REQUESTS_MAX
            && let Some(target) = self.queue.borrow_mut().next()
        {
            let opening = Box::pin(open(target.address, self.until, self.times));
            self.in_flight.push((target, opening));
        }
        let mut at = 0;
        while let Some((_, opening)) = self.in_flight.get_mut(at) {
            if let Poll::Ready(opened) = opening.as_mut().poll(cx) {
                let (target, _) = self.in_flight.remove(at);
                self.answered.push_back((target, opened));
            } else {
                at += 1;
            }
        }
    }

    /// Returns the next agent that has answered or failed; `None` if there are no more agents.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Target, Result<Opened, RowError>)>> {
        self.drive(cx);
        match self.answered.pop_front() {
            None if !self.in_flight.is_empty() => Poll::Pending,
            next => Poll::Ready(next),
        }
    }
}

async fn open(address: SocketAddr, until: Instant, times: Times) -> Result<Opened, RowError> {
    let opening = async { Ok(client::open(address, report::PATH).await?) };
    let answer = GetError::Time(times.row).into();
    in_time(opening, [(Instant::now() + times.row, answer), (until, RowError::NoTime(times.collection))]).await
}

/// Waits for `waiting`, at most until the first of `limits`. Returns the error of that moment
/// if it passes first.
async fn in_time<T, const N: usize>(
    waiting: impl Future<Output = Result<T, RowError>>,
    limits: [(Instant, RowError); N],
) -> Result<T, RowError> {
    let Some((due, late)) = limits.into_iter().min_by_key(|(due, _)| *due) else { return waiting.await };
    if Instant::now() >= due {
        return Err(late);
    }
    match timeout_at(due, waiting).await {
        Ok(done) => done,
        Err(_) => Err(late),
    }
}

struct Collection<'a> {
    matrix: Matrix,
    rows: FrameWriter,
    /// Number of reports that have begun.
    count: usize,
    queue: &'a RefCell<Queue>,
    times: Times,
}

impl Collection<'_> {
    async fn own(&mut self, view: Arc<View>) -> Result<(), RowError> {
        let (mut body, mut frame) = (PeersBody::new(view), Vec::with_capacity(FRAME_BYTES));
        let mut row = Row::new(self, None);
        let done = loop {
            frame.clear();
            let more = body.render(&mut frame);
            match row.take(&frame).await {
                Ok(()) if more => {}
                done => break done,
            }
        };
        row.end(done).await
    }

    async fn other(&mut self, target: &Target, (mut link, mut body): Opened, until: Instant) -> Result<(), RowError> {
        let times = self.times;
        let mut row = Row::new(self, Some(target));
        let whole = Instant::now() + times.whole_row;
        let done = loop {
            // Only the agent's time is limited here. The server limits the time of the
            // document's reader.
            let frame = async { link.frame(&mut body).await.transpose().map_err(|error| GetError::Wire(error).into()) };
            let limits = [
                (Instant::now() + times.row, RowError::Stalled(times.row)),
                (whole, RowError::Slow(times.whole_row)),
                (until, RowError::NoTime(times.collection)),
            ];
            let frame = match in_time(frame, limits).await {
                Err(error) => break Err(error),
                Ok(None) => break Ok(()),
                Ok(Some(frame)) => frame,
            };
            if let Some(bytes) = frame.data_ref()
                && let Err(error) = row.take(bytes).await
            {
                break Err(error);
            }
        };
        row.end(done).await
    }
}

/// A report that is being copied from an agent into the document.
struct Row<'a, 'b> {
    collection: &'a mut Collection<'b>,
    /// The agent that was asked; `None` for this agent's own report.
    target: Option<&'a Target>,
    splitter: Splitter,
    /// Whether the object of the source has arrived.
    has_begun: bool,
    /// Number of peer objects that have arrived; `peers` is the number of those passed on.
    arrived: usize,
    peers: usize,
    bytes: usize,
}

impl<'a, 'b> Row<'a, 'b> {
    fn new(collection: &'a mut Collection<'b>, target: Option<&'a Target>) -> Self {
        Self { collection, target, splitter: Splitter::default(), has_begun: false, arrived: 0, peers: 0, bytes: 0 }
    }

    async fn take(&mut self, mut bytes: &[u8]) -> Result<(), RowError> {
        self.bytes += bytes.len();
        if self.bytes > REPORT_BYTES_MAX {
            return Err(RowError::Implausible(format!("a report of more than {REPORT_BYTES_MAX} bytes")));
        }
        while let Some(object) = self.splitter.next(&mut bytes)? {
            let (Object::Source(text) | Object::Peer(text)) = object;
            // A report is one line of the document, and the document is valid UTF-8.
            if text.contains(&b'\n') || std::str::from_utf8(text).is_err() {
                return Err(SplitError::NotARow.into());
            }
            let Collection { matrix, rows, count, queue, .. } = &mut *self.collection;
            let is_known = |matrix: &Matrix, node: &str| matrix.knows(node) || queue.borrow().has_member(node);
            match object {
                Object::Source(text) => {
                    let source: Source<'_> = serde_json::from_slice(text)?;
                    // Discovery may know an agent without its name. Such an agent may give a name
                    // that no other node has.
                    let is_right = self.target.is_none_or(|target| {
                        source.node == target.node || target.is_nameless() && !is_known(matrix, &source.node)
                    });
                    if !is_right {
                        return Err(RowError::Another(source.node.into_owned()));
                    }
                    matrix.begin_row(&source);
                    let comma: &[u8] = if *count > 0 { b"," } else { b"" };
                    rows.write(&[comma, b"{\"source\":", text, b",\"peers\":["]).await;
                    *count += 1;
                    self.has_begun = true;
                }
                Object::Peer(text) => {
                    self.arrived += 1;
                    if self.arrived > REPORT_PEERS_MAX {
                        return Err(RowError::Implausible(format!("a report of more than {REPORT_PEERS_MAX} peers")));
                    }
                    let peer: Peer<'_> = serde_json::from_slice(text)?;
                    // A report cannot add a node that discovery does not know. If another agent
                    // learns of a new node earlier than this one, the next collection is complete.
                    if !is_known(matrix, &peer.node) {
                        continue;
                    }
                    if !matrix.peer(&peer) {
                        return Err(RowError::Implausible(format!("not a report: it names {} twice", peer.node)));
                    }
                    // The peers of this agent's own report are those of its own list, which are
                    // in the queue already.
                    if self.target.is_some() {
                        queue.borrow_mut().learn(&peer, matrix);
                    }
                    let comma: &[u8] = if self.peers > 0 { b"," } else { b"" };
                    rows.write(&[comma, text]).await;
                    self.peers += 1;
                }
            }
        }
        Ok(())
    }

    async fn end(self, done: Result<(), RowError>) -> Result<(), RowError> {
        let done = done.and_then(|()| Ok(self.splitter.end()?));
        if self.has_begun {
            if done.is_ok() {
                self.collection.matrix.end_row();
            }
            self.collection.rows.write(&[b"]}\n"]).await;
        }
        done
    }
}
