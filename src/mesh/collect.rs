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
//! A judge asks for compact reports ([`compact`]), which no reader sees, and spreads its requests
//! over the round. Agents that do not know that form send JSON. However slow agents are, there is
//! time for the others ([`openings`]).
//!
//! [`openings`]: super::openings
//!
//! Three traps are handled here:
//! - A report may break off in the middle, and the document must still be complete.
//! - An agent may answer for another node than the one that was asked.
//! - A slow reader of the document must not make the agents look slow.

use std::borrow::Cow;
use std::cell::RefCell;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use tokio::time::Instant;

use super::frame_writer::FrameWriter;
use super::matrix::{Bounds, Matrix};
use super::openings::{Opened, Openings, in_time, share};
use super::queue::{Queue, Silent, Target};
use super::split::{Object, SplitError, Splitter};
use super::times::Times;
use crate::exposition::{PeersBody, View};
use crate::http::Render as _;
use crate::http::client::{GetError, Link};
use crate::limits::{FRAME_BYTES, JUDGE_REQUEST_PAUSE, MESH_REPORTS_MAX, REPORT_BYTES_MAX, REPORT_PEERS_MAX};
use crate::peers::name_in_reports;
use crate::report::compact::{self, NotCompact};
use crate::report::{Missing, Peer, Source};
use crate::sys::clock::Stopwatch;

/// Least time that an agent may let a reader wait for its report, however many are still to be
/// read.
const READING_MIN: Duration = Duration::from_millis(100);

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
    /// The data is not a compact report.
    #[error(transparent)]
    Compact(#[from] NotCompact),
    /// The agent did not answer in the last collection, and there was no time to ask it again.
    #[error("did not answer before, and was not asked again")]
    Silent,
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
    /// The first [`MESH_REPORTS_MAX`] nodes whose report is missing or incomplete.
    pub missing: Vec<Missing>,
    /// Number of further ones.
    pub missing_not_listed: usize,
    /// Number of further nodes, which were not asked.
    pub further: usize,
}

/// What a collection is for.
pub enum For<'a> {
    /// A document for a reader. It is written to this writer.
    Reader(FrameWriter),
    /// The same of these nodes alone, beside this agent's own.
    ReaderOf(FrameWriter, &'a [String]),
    /// A judge. These agents were silent in its last collection. They become those of this one.
    Judge(&'a mut Silent),
}

/// Asks this agent and others, and writes `{row}
/// ,{row}
/// …` for a reader.
pub async fn collect(view: Arc<View>, port: u16, times: Times, purpose: For<'_>) -> Collected {
    let stopwatch = Stopwatch::start();
    let within = |bounds| Matrix::within(bounds, stopwatch.epoch);
    let (queue, mut matrix, rows, mut silent) = match purpose {
        For::Reader(rows) => (Queue::new(&view, port), within(Bounds::AGENT), rows, None),
        For::ReaderOf(rows, nodes) => (Queue::of_named(&view, port, nodes), within(Bounds::AGENT), rows, None),
        For::Judge(silent) => {
            let (queue, rows) = (Queue::of_all(&view, port, silent), FrameWriter::nowhere());
            (queue, within(Bounds::JUDGE), rows, Some(silent))
        }
    };
    list(&view, &mut matrix, silent.is_some());
    let queue = RefCell::new(queue);
    let hashes = if silent.is_some() { Hashes::of(&matrix) } else { Hashes::default() };
    let mut collection = Collection { matrix, stopwatch, rows, count: 0, queue: &queue, times, hashes };
    let (mut missing, mut missing_not_listed) = (Vec::new(), 0);
    let mut note = |matrix: &mut Matrix, node: &str, error: &RowError| {
        if let RowError::Another(_) = error {
            matrix.displaced(node);
        }
        let error = error.to_string();
        matrix.missing(node, &error);
        if missing.len() < MESH_REPORTS_MAX {
            missing.push(Missing::new(node.to_owned(), error));
        } else {
            missing_not_listed += 1;
        }
    };
    if let Err(error) = collection.own(Arc::clone(&view)).await {
        note(&mut collection.matrix, &view.node, &error);
    }
    for target in queue.borrow().waiting() {
        collection.matrix.seek(&target.node);
    }
    let until = Instant::now() + times.collection;
    let pause = match &silent {
        Some(silent) if silent.is_known() => JUDGE_REQUEST_PAUSE,
        // A new judge replaces one that others miss.
        Some(_) => JUDGE_REQUEST_PAUSE / 5,
        None => Duration::ZERO,
    };
    let mut openings = Openings::new(&queue, until, times, silent.is_some().then_some(pause));
    while let Some((target, opened)) = poll_fn(|cx| openings.poll_next(cx)).await {
        // An agent without a name in the list answers under its own.
        collection.matrix.seek(&target.node);
        let done = match opened {
            Ok(Opened::Report(link, body)) => {
                let waiting = queue.borrow().waiting_count() + openings.count() + 1;
                let mut row = pin!(collection.other(&target, (link, body), until, waiting));
                poll_fn(|cx| {
                    openings.drive(cx);
                    row.as_mut().poll(cx)
                })
                .await
            }
            Ok(Opened::Json(report)) => collection.json(&target, &report).await,
            Ok(Opened::Compact(report)) => collection.compact(&target, &report),
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            note(&mut collection.matrix, &target.node, &error);
        }
    }
    let mut matrix = collection.matrix;
    if let Some(silent) = &mut silent {
        // There was no time for these. Those that answered before count as not asked.
        while let Some(target) = queue.borrow_mut().next() {
            if target.is_late {
                note(&mut matrix, &target.node, &RowError::Silent);
            }
        }
        silent.replace(matrix.numbers().filter(|node| matrix.get(*node).is_missing()).map(|node| matrix.name(node)));
    }
    matrix.finish();
    let members = view.directory.read().unwrap_or_else(PoisonError::into_inner).mesh().members;
    // This agent is asked too, so it counts as one.
    let beyond = usize::try_from(members).unwrap_or_default().saturating_sub(queue.borrow().count() + 1);
    let further = matrix.unsought().max(beyond);
    Collected { matrix, missing, missing_not_listed, further }
}

/// Adds the agent's own list to a matrix, or all members, with names and zones from discovery.
fn list(view: &View, matrix: &mut Matrix, are_all: bool) {
    let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
    matrix.member(&view.node, directory.own_zone());
    for (_, peer) in directory.peers() {
        matrix.member(peer.node(), directory.zone_name(peer.zone()));
    }
    let roster = directory.roster();
    for (node, zone) in (0..roster.named()).filter(|_| are_all).filter_map(|place| roster.name(place)) {
        matrix.member(node, zone.unwrap_or_default());
    }
}

/// The numbers of a matrix's nodes by the hashes that stand for their names in compact reports: 10
/// bytes a node.
#[derive(Default)]
struct Hashes(Vec<([u8; 8], [u8; 2])>);

impl Hashes {
    fn of(matrix: &Matrix) -> Self {
        let hash = |node: u16| (name_in_reports(matrix.name(node)).to_be_bytes(), node.to_be_bytes());
        let mut all: Vec<_> = matrix.numbers().map(hash).collect();
        all.sort_unstable();
        Self(all)
    }

    fn find(&self, hash: u64) -> Option<u16> {
        let at = self.0.binary_search_by_key(&hash.to_be_bytes(), |(hash, _)| *hash).ok()?;
        Some(u16::from_be_bytes(self.0[at].1))
    }
}

struct Collection<'a> {
    matrix: Matrix,
    stopwatch: Stopwatch,
    rows: FrameWriter,
    /// Number of reports that have begun.
    count: usize,
    queue: &'a RefCell<Queue>,
    times: Times,
    /// The nodes by their hashes. Empty if the collection is for a reader.
    hashes: Hashes,
}

impl Collection<'_> {
    fn knows(&self, node: &str) -> bool {
        self.matrix.knows(node) || self.queue.borrow().has_member(node)
    }

    /// Checks that a report comes from the agent that was asked.
    fn check_source(&self, target: &Target, source: &Source<'_>) -> Result<(), RowError> {
        // Discovery may know an agent without its name. Such an agent may give a name that no other
        // node has.
        let is_right = source.node == target.node || target.is_nameless() && !self.knows(&source.node);
        if is_right { Ok(()) } else { Err(RowError::Another(source.node.clone().into_owned())) }
    }

    fn compact(&mut self, target: &Target, report: &[u8]) -> Result<(), RowError> {
        let mut reader = compact::Reader::new(report, self.stopwatch.now_unix_seconds())?;
        self.check_source(target, &reader.source)?;
        self.matrix.begin_row(&reader.source, self.stopwatch.seconds());
        let mut name = String::new();
        while let Some((hash, peer)) = reader.next_peer() {
            // A report cannot add a node that discovery does not know.
            let Some(number) = self.hashes.find(hash) else { continue };
            name.clear();
            name.push_str(self.matrix.name(number));
            if !self.matrix.peer(&Peer { node: Cow::Borrowed(&name), ..peer }) {
                return Err(named_twice(&name));
            }
        }
        self.matrix.end_row();
        Ok(())
    }

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

    /// Reads a whole report in JSON.
    async fn json(&mut self, target: &Target, report: &[u8]) -> Result<(), RowError> {
        let mut row = Row::new(self, Some(target));
        let done = row.take(report).await;
        row.end(done).await
    }

    /// Reads a report in JSON as it arrives. It is one of `waiting`.
    async fn other(
        &mut self,
        target: &Target,
        (mut link, mut body): (Link, Incoming),
        until: Instant,
        waiting: usize,
    ) -> Result<(), RowError> {
        let times = self.times;
        let mut row = Row::new(self, Some(target));
        let share = share(until.saturating_duration_since(Instant::now()), waiting, 1, READING_MIN);
        let (whole, patience) = (Instant::now() + times.whole_row, share.min(times.whole_row));
        let mut waited = Duration::ZERO;
        let done = loop {
            // Only the agent's time is limited here. The server limits the time of the
            // document's reader.
            let frame = async { link.frame(&mut body).await.transpose().map_err(|error| GetError::Wire(error).into()) };
            let begun = Instant::now();
            let limits = [
                (begun + times.row, RowError::Stalled(times.row)),
                (begun + patience.saturating_sub(waited), RowError::Slow(patience)),
                (whole, RowError::Slow(times.whole_row)),
                (until, RowError::NoTime(times.collection)),
            ];
            let frame = in_time(frame, limits).await;
            waited += begun.elapsed();
            let frame = match frame {
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

fn named_twice(node: &str) -> RowError {
    RowError::Implausible(format!("not a report: it names {node} twice"))
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
            match object {
                Object::Source(text) => {
                    let source: Source<'_> = serde_json::from_slice(text)?;
                    if let Some(target) = self.target {
                        self.collection.check_source(target, &source)?;
                    }
                    let Collection { matrix, stopwatch, rows, count, .. } = &mut *self.collection;
                    matrix.begin_row(&source, stopwatch.seconds());
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
                    if !self.collection.knows(&peer.node) {
                        continue;
                    }
                    let Collection { matrix, rows, queue, .. } = &mut *self.collection;
                    if !matrix.peer(&peer) {
                        return Err(named_twice(&peer.node));
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
