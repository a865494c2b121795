//! Collects the reports of all members for a judge.
//!
//! Reports come from other pods and are not trusted. A report counts under the name that discovery
//! gives its address, and may name only nodes that discovery knows. Its bytes, objects and time are
//! bounded. Whatever it contains, the other reports arrive as they would without it.
//!
//! They are compact ([`compact`]). Of each link 8 bytes stay. The requests are spread over the
//! round. However slow agents are, there is time for the others ([`openings`]).
//!
//! [`openings`]: super::openings
//!
//! The traps: an agent may answer for another node than the one that was asked, and an agent of
//! another version has a report that cannot be read, which is no fault of its node.

use std::borrow::Cow;
use std::cell::RefCell;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError};

use tokio::time::Instant;

use super::matrix::{Matrix, MatrixBounds};
use super::openings::{Opened, Openings};
use super::queue::{AgentQueue, Silent};
use super::row_error::RowError;
use super::times::Times;
use crate::exposition::{self, View};
use crate::limits::{JUDGE_REQUEST_PAUSE, MESH_REPORTS_MAX};
use crate::peers::name_in_reports;
use crate::report::compact;
use crate::report::{Missing, Peer, Source};
use crate::sys::clock::Stopwatch;
use crate::sys::wall;

/// In builds for tests, a report of this zone makes a judge panic that reads it.
#[cfg(feature = "fuzzing")]
const PANIC_ZONE: &str = "panic-in-reading";

/// The result of a collection, which a judge judges.
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

/// Asks this agent and all others. `silent` has the agents that did not answer in the collection
/// before, and then those of this one.
pub async fn collect(view: Arc<View>, port: u16, times: Times, silent: &mut Silent) -> Collected {
    let stopwatch = Stopwatch::start();
    let mut matrix = Matrix::within(MatrixBounds::JUDGE, stopwatch.epoch);
    list(&view, &mut matrix);
    // A judge words only the checks of its own list.
    matrix.set_checks(&view.statistics.checks().names());
    let hashes = Hashes::new(&matrix);
    let mut collection = Collection { matrix, stopwatch, hashes, missing: Vec::new(), missing_not_listed: 0 };
    let done = collection.take(&view.node, &exposition::compact_report(&view));
    collection.note(&view.node, done);
    let queue = RefCell::new(AgentQueue::with_all_members(&view, port, silent));
    // A new judge replaces one that others miss.
    let pause = if silent.is_known() { JUDGE_REQUEST_PAUSE } else { JUDGE_REQUEST_PAUSE / 5 };
    let until = Instant::now() + times.collection;
    let mut openings = Openings::new(&queue, until, times, Some(pause));
    while let Some((target, opened)) = poll_fn(|cx| openings.poll_next(cx)).await {
        let done = match opened {
            // A report that is left half-read counts as broken off.
            Ok(Opened::Compact(report)) => {
                wall::around(|| collection.take(&target.node, &report)).unwrap_or(Err(RowError::Panicked))
            }
            // A judge opens no other.
            Ok(Opened::Json(..)) => Err(RowError::OtherVersion),
            Err(error) => Err(error),
        };
        collection.note(&target.node, done);
    }
    // There was no time for these. Those that answered before count as not asked.
    let mut not_asked = 0;
    while let Some(target) = queue.borrow_mut().next() {
        if target.is_late {
            collection.note(&target.node, Err(RowError::Silent));
        } else {
            not_asked += 1;
        }
    }
    let Collection { mut matrix, missing, missing_not_listed, .. } = collection;
    silent.replace(matrix.numbers().filter(|node| matrix.get(*node).is_missing()).map(|node| matrix.name(node)));
    matrix.finish();
    let members = view.directory.read().unwrap_or_else(PoisonError::into_inner).mesh().members;
    // This agent is asked too, so it counts as one.
    let beyond = usize::try_from(members).unwrap_or_default().saturating_sub(queue.borrow().count() + 1);
    Collected { matrix, missing, missing_not_listed, further: not_asked + beyond }
}

/// Adds all members to a matrix, with names and zones from discovery.
fn list(view: &View, matrix: &mut Matrix) {
    let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
    matrix.member(&view.node, directory.own_zone());
    for (_, peer) in directory.peers() {
        matrix.member(peer.node(), directory.zone_name(peer.zone()));
    }
    let roster = directory.roster();
    for (node, zone) in (0..roster.named()).filter_map(|place| roster.name(place)) {
        matrix.member(node, zone.unwrap_or_default());
    }
}

/// The numbers of a matrix's nodes by the hashes that stand for their names in compact reports: 10
/// bytes a node.
#[derive(Default)]
struct Hashes(Vec<([u8; 8], [u8; 2])>);

impl Hashes {
    fn new(matrix: &Matrix) -> Self {
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

struct Collection {
    matrix: Matrix,
    stopwatch: Stopwatch,
    /// The nodes by their hashes.
    hashes: Hashes,
    missing: Vec<Missing>,
    missing_not_listed: usize,
}

impl Collection {
    fn take(&mut self, node: &str, report: &[u8]) -> Result<(), RowError> {
        let mut reader = compact::CompactReader::new(report, self.stopwatch.now_unix_seconds())?;
        check_source(node, &reader.source, |name| self.matrix.knows(name))?;
        #[cfg(feature = "fuzzing")]
        assert!(reader.source.zone != PANIC_ZONE, "the report of {node} is of zone {PANIC_ZONE}");
        self.matrix.begin_row(&reader.source, self.stopwatch.seconds());
        for check in &reader.checks {
            // The reader has each name once.
            self.matrix.check(check);
        }
        let mut name = String::new();
        while let Some((hash, peer)) = reader.next_peer() {
            // A report cannot add a node that discovery does not know. If another agent learns of a
            // new node earlier than this one, the next collection is complete.
            let Some(number) = self.hashes.find(hash) else { continue };
            name.clear();
            name.push_str(self.matrix.name(number));
            if !self.matrix.peer(&Peer { node: Cow::Borrowed(&name), ..peer }) {
                return Err(RowError::Implausible(format!("not a report: it names {name} twice")));
            }
        }
        self.matrix.end_row();
        Ok(())
    }

    /// Notes why the report of an agent is missing.
    fn note(&mut self, node: &str, done: Result<(), RowError>) {
        let Err(error) = done else { return };
        match error {
            RowError::OtherVersion => return self.matrix.add_other_version(node),
            RowError::Another(_) => self.matrix.displaced(node),
            _ => {}
        }
        let error = error.to_string();
        self.matrix.missing(node, &error);
        if self.missing.len() < MESH_REPORTS_MAX {
            self.missing.push(Missing::new(node.to_owned(), error));
        } else {
            self.missing_not_listed += 1;
        }
    }
}

/// Checks that a report comes from the agent of `node`, which was asked.
pub fn check_source(node: &str, source: &Source<'_>, is_known: impl FnOnce(&str) -> bool) -> Result<(), RowError> {
    // DNS gives only the address of an agent that has not answered an identity request yet. Such an
    // agent may give a name that no other node has.
    let is_nameless = || node.parse::<IpAddr>().is_ok();
    let is_right = source.node == node || is_nameless() && !is_known(&source.node);
    if is_right { Ok(()) } else { Err(RowError::Another(source.node.clone().into_owned())) }
}
