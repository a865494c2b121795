//! Passes on the reports of named nodes to a reader, each on its own line: `/api/v1/mesh/NODES`.
//!
//! Reports come from other pods and are not trusted. A report counts under the name that discovery
//! gives its address. What it says of nodes that discovery does not know is left out. Its bytes,
//! objects and time are bounded.
//!
//! Memory is bounded by the size of an object, not of a report: it is passed on as it arrives,
//! object by object. Reports are read one after the other, because they go into one stream. While
//! one is read, the connections to the next agents are opened.
//!
//! The traps: a report may break off in the middle, and the document must still be complete. A slow
//! reader of the document must not make the agents look slow.

use std::cell::RefCell;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use tokio::time::Instant;

use super::collect::check_source;
use super::frame_writer::FrameWriter;
use super::openings::{Opened, Openings, in_time, share};
use super::queue::{AgentQueue, Target};
use super::row_error::RowError;
use super::split::{ReportObject, SplitError, Splitter};
use super::times::Times;
use crate::check::{CHECKS_MAX, Check, is_check_name};
use crate::exposition::{PeersBody, View};
use crate::http::Render as _;
use crate::http::client::{GetError, HttpConnection};
use crate::limits::{FRAME_BYTES, REPORT_BYTES_MAX, REPORT_PEERS_MAX};
use crate::peers::{Roster, name_in_reports};
use crate::report::{Missing, Peer, Source};

/// Least time that an agent may let a reader wait for its report, however many are still to be
/// read.
const READING_MIN: Duration = Duration::from_millis(100);

/// Writes the reports of these nodes as `{row}
/// ,{row}
/// …`, as far as discovery knows them. Returns those that are missing or incomplete.
pub async fn relay(view: Arc<View>, port: u16, times: Times, nodes: &[String], rows: FrameWriter) -> Vec<Missing> {
    let mut relay = Relay { known: KnownNodes::new(&view), rows, count: 0, times };
    let (queue, unknown) = AgentQueue::with_nodes(&view, port, nodes);
    let queue = RefCell::new(queue);
    let not_listed = |node: String| Missing::new(node, RowError::Unknown.to_string());
    let mut missing: Vec<Missing> = unknown.into_iter().map(not_listed).collect();
    let mut note = |node: &str, done: Result<(), RowError>| {
        missing.extend(done.err().map(|error| Missing::new(node.to_owned(), error.to_string())));
    };
    if nodes.contains(&view.node) {
        note(&view.node, relay.own(Arc::clone(&view)).await);
    }
    let until = Instant::now() + times.collection;
    let mut openings = Openings::new(&queue, until, times, None);
    while let Some((target, opened)) = poll_fn(|cx| openings.poll_next(cx)).await {
        let done = match opened {
            Ok(Opened::Json(link, body)) => {
                let waiting = queue.borrow().waiting_count() + openings.count() + 1;
                let mut row = pin!(relay.other(&target, (link, body), until, waiting));
                poll_fn(|cx| {
                    openings.drive(cx);
                    row.as_mut().poll(cx)
                })
                .await
            }
            // A reader opens no other.
            Ok(Opened::Compact(_)) => Err(SplitError::NotARow.into()),
            Err(error) => Err(error),
        };
        note(&target.node, done);
    }
    missing
}

/// The nodes that discovery knows.
struct KnownNodes {
    /// The hashes of the names of the agent's own list, sorted.
    listed: Vec<u64>,
    roster: Arc<Roster>,
}

impl KnownNodes {
    fn new(view: &View) -> Self {
        let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
        let mut listed = vec![name_in_reports(&view.node)];
        listed.extend(directory.peers().map(|(_, peer)| name_in_reports(peer.node())));
        listed.sort_unstable();
        Self { listed, roster: Arc::clone(directory.roster()) }
    }

    fn has(&self, node: &str) -> bool {
        self.listed.binary_search(&name_in_reports(node)).is_ok() || self.roster.address(node).is_some()
    }
}

struct Relay {
    known: KnownNodes,
    rows: FrameWriter,
    /// Number of reports that have begun.
    count: usize,
    times: Times,
}

impl Relay {
    async fn own(&mut self, view: Arc<View>) -> Result<(), RowError> {
        let (mut body, mut frame) = (PeersBody::new(view), Vec::with_capacity(FRAME_BYTES));
        let mut row = RelayedReport::new(self, None);
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

    /// Reads a report as it arrives. It is one of `waiting`.
    async fn other(
        &mut self,
        target: &Target,
        (mut link, mut body): (HttpConnection, Incoming),
        until: Instant,
        waiting: usize,
    ) -> Result<(), RowError> {
        let times = self.times;
        let mut row = RelayedReport::new(self, Some(target));
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

/// A report that is being copied from an agent into the document.
struct RelayedReport<'a> {
    relay: &'a mut Relay,
    /// The agent that was asked; `None` for this agent's own report.
    target: Option<&'a Target>,
    splitter: Splitter,
    /// Whether the object of the source has arrived.
    has_begun: bool,
    /// Number of peers and of checks that have arrived.
    arrived: [usize; 2],
    /// Number of peers and of checks that were passed on.
    peers: usize,
    checks: usize,
    bytes: usize,
}

impl<'a> RelayedReport<'a> {
    fn new(relay: &'a mut Relay, target: Option<&'a Target>) -> Self {
        let splitter = Splitter::default();
        Self { relay, target, splitter, has_begun: false, arrived: [0; 2], peers: 0, checks: 0, bytes: 0 }
    }

    async fn take(&mut self, mut bytes: &[u8]) -> Result<(), RowError> {
        self.bytes += bytes.len();
        if self.bytes > REPORT_BYTES_MAX {
            return Err(RowError::Implausible(format!("a report of more than {REPORT_BYTES_MAX} bytes")));
        }
        while let Some(object) = self.splitter.next(&mut bytes)? {
            let Relay { known, rows, count, .. } = &mut *self.relay;
            let (ReportObject::Source(text) | ReportObject::Check(text) | ReportObject::Peer(text)) = object;
            // A report is one line of the document, and the document is valid UTF-8.
            if text.contains(&b'\n') || std::str::from_utf8(text).is_err() {
                return Err(SplitError::NotARow.into());
            }
            match object {
                ReportObject::Source(text) => {
                    let source: Source<'_> = serde_json::from_slice(text)?;
                    if let Some(target) = self.target {
                        check_source(&target.node, &source, |name| known.has(name))?;
                    }
                    let comma: &[u8] = if *count > 0 { b"," } else { b"" };
                    rows.write(&[comma, b"{\"source\":", text]).await;
                    *count += 1;
                    self.has_begun = true;
                }
                ReportObject::Check(text) => {
                    self.arrived[1] += 1;
                    if self.arrived[1] > CHECKS_MAX {
                        return Err(RowError::Implausible(format!("a report of more than {CHECKS_MAX} checks")));
                    }
                    let check: Check<'_> = serde_json::from_slice(text)?;
                    if !is_check_name(&check.name) {
                        continue;
                    }
                    let before: &[u8] = if self.checks > 0 { b"," } else { b",\"checks\":[" };
                    rows.write(&[before, text]).await;
                    self.checks += 1;
                }
                ReportObject::Peer(text) => {
                    self.arrived[0] += 1;
                    if self.arrived[0] > REPORT_PEERS_MAX {
                        return Err(RowError::Implausible(format!("a report of more than {REPORT_PEERS_MAX} peers")));
                    }
                    let peer: Peer<'_> = serde_json::from_slice(text)?;
                    if !known.has(&peer.node) {
                        continue;
                    }
                    let before = if self.peers > 0 { b"," } else { before_peers(self.checks) };
                    rows.write(&[before, text]).await;
                    self.peers += 1;
                }
            }
        }
        Ok(())
    }

    async fn end(self, done: Result<(), RowError>) -> Result<(), RowError> {
        let done = done.and_then(|()| Ok(self.splitter.end()?));
        if self.has_begun {
            let before = if self.peers > 0 { b"" } else { before_peers(self.checks) };
            self.relay.rows.write(&[before, b"]}\n"]).await;
        }
        done
    }
}

/// Returns what is written before the first peer, behind the source and this many checks.
const fn before_peers(checks: usize) -> &'static [u8] {
    if checks > 0 { b"],\"peers\":[" } else { b",\"peers\":[" }
}
