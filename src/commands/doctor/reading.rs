//! Adds reports to the matrix: each source once, one peer at a time. Also records which nodes are
//! missing.
//!
//! The traps: the meshes of several agents overlap, and a source that counts twice would double the
//! probes sent to every peer. A node is missing only if no mesh has its report. The first report of
//! a source is judged. If it breaks off, the part is kept and marked as incomplete, because what is
//! absent from it is no evidence. Its node then counts as missing even if another mesh has the
//! whole report, because that one was not judged.
//!
//! The input may be malicious, so everything that is kept of it is bounded.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::traces::Traces;
use crate::check::{CHECKS_MAX, Check, DEFAULT_CHECKS, is_check_name};
use crate::limits::{AGENTS_MAX, LIST_AGE_MAX, NAME_BYTES_MAX, OFFLINE_NODES_MAX, PEER_SLOTS_MAX, REPORT_PEERS_MAX};
use crate::mesh::domains::Domains;
use crate::mesh::matrix::{Matrix, MatrixBounds, RowPresence};
use crate::mesh::split::{ReportObject, SplitError, Splitter};
use crate::report::{Age, Missing, Peer, Report, Source};
use crate::sys::clock::Stopwatch;

/// Nodes without a report that are read, of all meshes together: twice the
/// largest supported Kubernetes cluster.
const MISSING_MAX: usize = 10_000;
/// Bytes that `doctor --rows` keeps of a mesh. 5,000 nodes that each probe all others take 200 MB.
pub const OFFLINE_MESH_BYTES_MAX: usize = 512 << 20;

/// The reason why a text is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The text as a whole is no report.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// One of its objects, or the text between them, is invalid.
    #[error(transparent)]
    Parse(#[from] serde_json::Error),
    /// The name is longer than a node's name can be.
    #[error("a name of more than {NAME_BYTES_MAX} bytes")]
    Name,
    /// There are more peers than an agent can have.
    #[error("more than {REPORT_PEERS_MAX} peers")]
    Peers,
    /// There are more checks than an agent can have.
    #[error("more than {CHECKS_MAX} checks")]
    Checks,
    /// A peer or a check appears twice. An agent names each node once for each network and address
    /// family.
    #[error("it names {0} twice")]
    Twice(String),
    /// The document already has the report of this node.
    #[error("a second report of {0}, which is not judged")]
    Repeated(String),
    /// There are more reports than a mesh can have.
    #[error("more than {0} reports")]
    TooMany(usize),
}

/// The reason why a text is not valid after the reports of a mesh.
#[derive(Debug, thiserror::Error)]
pub enum FieldsError {
    /// The text is not the expected object.
    #[error(transparent)]
    Parse(#[from] serde_json::Error),
    /// There are more missing nodes than a mesh can have.
    #[error("more than {MISSING_MAX} nodes without a report")]
    Missing,
}

/// The state of reading: everything that was read so far.
#[derive(Debug)]
pub struct MeshReading {
    matrix: Matrix,
    stopwatch: Stopwatch,
    /// The limit of accepted reports, and of the lines of a document.
    reports_max: usize,
    /// Sources whose report was accepted, with the document it came from.
    taken: HashMap<String, usize>,
    /// The node that each probed address belongs to, according to the reports. At most as many as
    /// an agent has peers.
    owners: HashMap<IpAddr, String>,
    /// Missing nodes and the reasons, with the document they came from.
    missing: Vec<(usize, Missing)>,
    /// The names of the checks that are judged: the defaults, and then those of the reports as they
    /// come. A command has no list of its own.
    checks: Vec<Box<str>>,
    facts: ReportedFacts,
    /// The operator's failure domains.
    domains: Option<Arc<Domains>>,
}

/// What sources report about the mesh and about their lists.
#[derive(Debug, Default)]
pub struct ReportedFacts {
    /// Sources whose list is old.
    pub old_lists: Vec<OldList>,
    /// The smallest number of watchers that a node has.
    pub watchers: Option<u64>,
    /// The number of nodes that should have more watchers, but cannot.
    pub watchers_missing: usize,
    /// The paths that agents have traced.
    pub traces: Traces,
}

/// An old list of peers.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct OldList {
    /// The node that has the list.
    pub node: String,
    /// Seconds since it was last confirmed. None means never.
    pub age_seconds: Option<f64>,
}

impl ReportedFacts {
    fn add(&mut self, source: &Source<'_>) {
        let old = match source.peer_list_age_seconds {
            Age::Never => Some(None),
            Age::Seconds(age) => (age > LIST_AGE_MAX.as_secs_f64()).then_some(Some(age)),
            Age::Unknown => None,
        };
        self.old_lists.extend(old.map(|age_seconds| OldList { node: source.node.clone().into_owned(), age_seconds }));
        self.watchers_missing += usize::from(source.watchers_missing.is_some_and(|missing| missing > 0));
        // A source that knows of no mesh reports 0.
        let watchers = source.watchers.filter(|watchers| *watchers > 0);
        self.watchers = self.watchers.into_iter().chain(watchers).min();
    }
}

/// The object after the reports of a mesh.
#[derive(Deserialize)]
pub struct MeshFields {
    /// The nodes without a report.
    pub missing: Vec<Missing>,
}

impl Default for MeshReading {
    /// Creates the state for the answers of agents.
    fn default() -> Self {
        Self::within(MatrixBounds::AGENT, AGENTS_MAX)
    }
}

impl MeshReading {
    /// Creates the state for reports that are judged offline. Its limits are larger than an
    /// agent's, because no agent's memory is used.
    pub fn off_line() -> Self {
        let bounds = MatrixBounds { rows: OFFLINE_NODES_MAX, nodes: OFFLINE_NODES_MAX, bytes: OFFLINE_MESH_BYTES_MAX };
        Self::within(bounds, OFFLINE_NODES_MAX)
    }

    /// Returns the state with these failure domains.
    pub fn with_domains(self, domains: Option<Arc<Domains>>) -> Self {
        Self { domains, ..self }
    }

    fn within(bounds: MatrixBounds, reports_max: usize) -> Self {
        let stopwatch = Stopwatch::start();
        let checks: Vec<Box<str>> = DEFAULT_CHECKS.map(Into::into).into();
        let mut matrix = Matrix::within(bounds, stopwatch.epoch);
        matrix.set_checks(&checks);
        Self {
            matrix,
            stopwatch,
            reports_max,
            taken: HashMap::new(),
            owners: HashMap::new(),
            missing: Vec::new(),
            checks,
            facts: ReportedFacts::default(),
            domains: None,
        }
    }

    /// Returns the largest number of reports that are read, over all documents and in each one.
    pub const fn reports_max(&self) -> usize {
        self.reports_max
    }

    /// Returns the nodes that reports name, and whose own has not been read.
    pub fn unread(&self) -> impl Iterator<Item = &str> {
        let listed = self.matrix.numbers().filter(|node| self.matrix.get(*node).presence == RowPresence::Listed);
        listed.map(|node| self.matrix.name(node))
    }

    /// Adds a report from one of several documents.
    ///
    /// # Errors
    /// The text is no report, or breaks off. The valid part is kept.
    pub fn report(&mut self, document: usize, text: &[u8]) -> Result<(), ReportError> {
        let mut begun = None;
        let read = self.objects(document, text, &mut begun);
        self.end_report(document, begun, read)
    }

    /// Adds a parsed report from one of several documents.
    ///
    /// # Errors
    /// As [`MeshReading::report`].
    pub fn whole_report(&mut self, document: usize, report: &Report<'_>) -> Result<(), ReportError> {
        let begun = self.begin_report(document, &report.source)?;
        let checks = report.checks.iter().enumerate().try_for_each(|(before, check)| self.check(check, before));
        let mut peers = report.peers.iter().enumerate();
        let read = checks.and_then(|()| peers.try_for_each(|(before, peer)| self.peer(peer, before)));
        self.end_report(document, Some(begun), read)
    }

    fn end_report(
        &mut self,
        document: usize,
        begun: Option<String>,
        read: Result<(), ReportError>,
    ) -> Result<(), ReportError> {
        let Some(node) = begun else { return read };
        match &read {
            Ok(()) => self.matrix.end_row(),
            Err(error) => self.missing.push((document, Missing { node, error: format!("not a report: {error}") })),
        }
        read
    }

    /// Reads the objects of a report. `begun` is set to the source, unless its
    /// report was accepted before.
    fn objects(&mut self, document: usize, text: &[u8], begun: &mut Option<String>) -> Result<(), ReportError> {
        let (mut splitter, mut rest, mut checks, mut peers) = (Splitter::default(), text, 0, 0);
        while let Some(object) = splitter.next(&mut rest)? {
            match object {
                ReportObject::Source(text) => match self.begin_report(document, &serde_json::from_slice(text)?) {
                    Ok(node) => *begun = Some(node),
                    // Meshes overlap. The rest is checked for validity all the same.
                    Err(ReportError::Repeated(node)) if self.taken.get(&node) != Some(&document) => {}
                    Err(error) => return Err(error),
                },
                ReportObject::Check(text) if begun.is_some() => {
                    self.check(&serde_json::from_slice(text)?, checks)?;
                    checks += 1;
                }
                ReportObject::Peer(text) if begun.is_some() => {
                    self.peer(&serde_json::from_slice(text)?, peers)?;
                    peers += 1;
                }
                ReportObject::Check(_) | ReportObject::Peer(_) => {}
            }
        }
        // The splitter finds objects and their end, and accepts anything between them.
        match (splitter.end(), serde_json::from_slice::<IgnoredAny>(text)) {
            (Ok(()), json) => Ok(json.map(drop)?),
            // It is a complete object of another kind.
            (Err(_), Ok(_)) => Err(SplitError::NotARow.into()),
            (Err(error), Err(_)) => Err(error.into()),
        }
    }

    /// Begins the report of a source that has none yet. Returns the source's name.
    fn begin_report(&mut self, document: usize, source: &Source<'_>) -> Result<String, ReportError> {
        if source.node.len() > NAME_BYTES_MAX {
            return Err(ReportError::Name);
        }
        let node = source.node.clone().into_owned();
        if self.taken.contains_key(&node) {
            return Err(ReportError::Repeated(node));
        }
        if self.taken.len() == self.reports_max {
            return Err(ReportError::TooMany(self.reports_max));
        }
        self.taken.insert(node.clone(), document);
        self.matrix.begin_row(source, self.stopwatch.seconds());
        self.facts.add(source);
        self.facts.traces.begin_report(&node, &source.zone);
        Ok(node)
    }

    /// Adds a check to the current report. `before` is the number of checks already in it. A check
    /// whose name cannot be, or for which there is no room, is left out.
    fn check(&mut self, check: &Check<'_>, before: usize) -> Result<(), ReportError> {
        if before == CHECKS_MAX {
            return Err(ReportError::Checks);
        }
        if !self.checks.iter().any(|name| **name == *check.name) {
            if self.checks.len() == CHECKS_MAX || !is_check_name(&check.name) {
                return Ok(());
            }
            self.checks.push((&*check.name).into());
            self.matrix.set_checks(&self.checks);
        }
        if self.matrix.check(check) { Ok(()) } else { Err(ReportError::Twice(check.name.clone().into_owned())) }
    }

    /// Adds a peer to the current report. `before` is the number of peers already in it.
    fn peer(&mut self, peer: &Peer<'_>, before: usize) -> Result<(), ReportError> {
        if before == REPORT_PEERS_MAX {
            return Err(ReportError::Peers);
        }
        self.learn_owner(peer);
        self.facts.traces.add(peer);
        if self.matrix.peer(peer) { Ok(()) } else { Err(ReportError::Twice(peer.node.clone().into_owned())) }
    }

    fn learn_owner(&mut self, peer: &Peer<'_>) {
        if let Some(address) = peer.address
            && self.owners.len() < PEER_SLOTS_MAX
            && peer.node.len() <= NAME_BYTES_MAX
        {
            self.owners.entry(address).or_insert_with(|| peer.node.clone().into_owned());
        }
    }

    /// Reads the object after the reports of a mesh.
    ///
    /// # Errors
    /// It is another object, or has too many nodes. None of it is kept then.
    pub fn fields(&mut self, document: usize, text: &[u8]) -> Result<(), FieldsError> {
        self.whole_fields(document, serde_json::from_slice(text)?)
    }

    /// Adds the parsed object after the reports.
    ///
    /// # Errors
    /// [`FieldsError::Missing`]. None of it is kept then.
    pub fn whole_fields(&mut self, document: usize, fields: MeshFields) -> Result<(), FieldsError> {
        let MeshFields { missing } = fields;
        if self.missing.len() + missing.len() > MISSING_MAX {
            return Err(FieldsError::Missing);
        }
        self.missing.extend(missing.into_iter().map(|missing| (document, missing)));
        Ok(())
    }

    /// Records that an agent at `address` has given no report. Returns whether the node of
    /// that address is known.
    pub fn unanswered(&mut self, document: usize, address: IpAddr, error: &str) -> bool {
        let Some(node) = self.owners.get(&address) else { return false };
        self.missing.push((document, Missing { node: node.clone(), error: error.to_owned() }));
        true
    }

    /// Ends the reading. Returns the matrix, the missing nodes, the number of reports, and what
    /// sources report about the mesh.
    pub fn finish(mut self) -> (Matrix, Vec<Missing>, usize, ReportedFacts) {
        let (mut missing, mut known) = (Vec::new(), HashSet::new());
        for (document, found) in self.missing {
            let is_taken_elsewhere = self.taken.get(&found.node).is_some_and(|taken| *taken != document);
            if !is_taken_elsewhere && known.insert(found.node.clone()) {
                self.matrix.missing(&found.node, &found.error);
                missing.push(found);
            }
        }
        self.matrix.finish();
        if let Some(domains) = &self.domains {
            self.matrix.set_domains(domains);
        }
        self.facts.old_lists.sort_by(|a, b| a.node.cmp(&b.node));
        (self.matrix, missing, self.taken.len(), self.facts)
    }
}

#[cfg(test)]
mod tests;
