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
    /// A peer appears twice. An agent names each node once for each network and address family.
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
        Self {
            matrix: Matrix::within(bounds, stopwatch.epoch),
            stopwatch,
            reports_max,
            taken: HashMap::new(),
            owners: HashMap::new(),
            missing: Vec::new(),
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
        let read = report.peers.iter().enumerate().try_for_each(|(before, peer)| self.peer(peer, before));
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
        self.matrix.finish();
        read
    }

    /// Reads the objects of a report. `begun` is set to the source, unless its
    /// report was accepted before.
    fn objects(&mut self, document: usize, text: &[u8], begun: &mut Option<String>) -> Result<(), ReportError> {
        let (mut splitter, mut rest, mut peers) = (Splitter::default(), text, 0);
        while let Some(object) = splitter.next(&mut rest)? {
            match object {
                ReportObject::Source(text) => match self.begin_report(document, &serde_json::from_slice(text)?) {
                    Ok(node) => *begun = Some(node),
                    // Meshes overlap. The rest is checked for validity all the same.
                    Err(ReportError::Repeated(node)) if self.taken.get(&node) != Some(&document) => {}
                    Err(error) => return Err(error),
                },
                ReportObject::Peer(text) if begun.is_some() => {
                    self.peer(&serde_json::from_slice(text)?, peers)?;
                    peers += 1;
                }
                ReportObject::Peer(_) => {}
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
mod tests {
    use super::*;

    fn report(source: &str, peers: &[&str]) -> String {
        let peer = |node: &&str| {
            format!(
                r#"{{"node":"{node}","zone":"z","network":"pod","protocol":"icmp","state":"ready","address":"10.0.0.{}",
                "sent":60,"received":60,"lost":0,"recent":{{"seconds":60.0,"sent":60,"received":60,"lost":0}}}}"#,
                &node[1..]
            )
        };
        let peers: Vec<String> = peers.iter().map(peer).collect();
        format!(
            r#"{{"source":{{"node":"{source}","zone":"z","recent":{{}}}},"new":[1],"peers":[{}]}}"#,
            peers.join(",")
        )
    }

    fn presences(matrix: &Matrix) -> Vec<(String, RowPresence)> {
        let mut found: Vec<_> = matrix.numbers().map(|n| (matrix.name(n).to_owned(), matrix.get(n).presence)).collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    #[test]
    fn a_source_that_several_meshes_have_counts_once() {
        let mut reading = MeshReading::default();
        for document in 0..2 {
            reading.report(document, report("n1", &["n2", "n3"]).as_bytes()).unwrap();
            reading.report(document, report("n2", &["n1", "n3"]).as_bytes()).unwrap();
        }
        let (matrix, missing, reports, _) = reading.finish();
        assert_eq!((matrix.cell_count(), reports, matrix.not_kept().rows), (4, 2, 0));
        assert_eq!(missing, []);
        let node = |name: &str, presence| (name.to_owned(), presence);
        let expected =
            [node("n1", RowPresence::Whole), node("n2", RowPresence::Whole), node("n3", RowPresence::Listed)];
        assert_eq!(presences(&matrix), expected);
    }

    #[test]
    fn a_node_is_missing_only_if_no_mesh_has_its_report() {
        let mut reading = MeshReading::default();
        reading.report(0, report("n1", &["n2", "n3"]).as_bytes()).unwrap();
        let fields = |nodes: &[&str]| {
            let missing: Vec<String> =
                nodes.iter().map(|node| format!(r#"{{"node":"{node}","error":"refused"}}"#)).collect();
            format!(r#"{{"missing":[{}],"verdicts":[{{"kind":"link"}}]}}"#, missing.join(","))
        };
        reading.fields(0, fields(&["n2", "n3"]).as_bytes()).unwrap();
        reading.report(1, report("n2", &["n1"]).as_bytes()).unwrap();
        // A row of the same mesh that broke off.
        reading.report(1, report("n4", &["n1"]).as_bytes()).unwrap();
        reading.fields(1, fields(&["n3", "n4"]).as_bytes()).unwrap();
        let (matrix, missing, reports, _) = reading.finish();
        assert_eq!((missing.iter().map(|m| m.node.as_str()).collect::<Vec<_>>(), reports), (vec!["n3", "n4"], 3));
        let of = |name: &str| presences(&matrix).into_iter().find(|(node, _)| node == name).unwrap().1;
        let all = ["n1", "n2", "n3", "n4"].map(of);
        assert_eq!(all, [RowPresence::Whole, RowPresence::Whole, RowPresence::Missing, RowPresence::Broken]);
    }

    /// The text after the reports, with these missing nodes.
    fn behind(missing: &str) -> String {
        format!(r#"{{"missing":[{missing}]}}"#)
    }

    #[test]
    fn a_node_whose_judged_report_broke_off_is_missing_even_if_another_mesh_has_a_whole_one() {
        let (half, whole) = (report("n3", &["n1"]), report("n3", &["n1", "n2"]));
        let broke_off = behind(r#"{"node":"n3","error":"broke off"}"#);
        let (of_half, of_whole) = ((&half, broke_off), (&whole, behind("")));
        for (documents, is_missing, expected) in [
            ([&of_half, &of_whole], true, RowPresence::Broken),
            ([&of_whole, &of_half], false, RowPresence::Whole),
            ([&of_half, &of_half], true, RowPresence::Broken),
        ] {
            let mut reading = MeshReading::default();
            for (document, (row, fields)) in documents.into_iter().enumerate() {
                reading.report(document, row.as_bytes()).unwrap();
                reading.fields(document, fields.as_bytes()).unwrap();
            }
            let (matrix, missing, reports, _) = reading.finish();
            assert_eq!((missing.iter().any(|missing| missing.node == "n3"), reports), (is_missing, 1));
            let found = presences(&matrix);
            assert!(found.contains(&("n3".to_owned(), expected)), "the first is kept: {found:?}");
        }
    }

    #[test]
    fn a_report_with_a_text_between_its_objects_is_invalid() {
        let whole = report("n1", &["n2", "n3"]);
        for (from, to) in [("},{\"node\":\"n3\"", "}x{\"node\":\"n3\""), ("}]}", "}}}"), ("[1]", "[1"), ("[1]", "1]")] {
            let mut reading = MeshReading::default();
            let bad = whole.replace(from, to);
            assert!(bad != whole && reading.report(0, bad.as_bytes()).is_err(), "{bad}");
            let (_, missing, _, _) = reading.finish();
            assert_eq!(missing.len(), 1, "{bad}");
        }
    }

    #[test]
    fn memory_for_a_malicious_report_is_bounded() {
        let report = |peers: usize| {
            let peers: Vec<String> = (0..peers).map(|n| format!(r#"{{"node":"p{n}"}}"#)).collect();
            format!(r#"{{"source":{{"node":"a"}},"peers":[{}]}}"#, peers.join(","))
        };
        MeshReading::default().report(0, report(REPORT_PEERS_MAX).as_bytes()).unwrap();
        let error = MeshReading::default().report(0, report(REPORT_PEERS_MAX + 1).as_bytes()).unwrap_err();
        assert!(matches!(error, ReportError::Peers), "{error}");

        let mut reading = MeshReading::default();
        let source = |node: &str| format!(r#"{{"source":{{"node":"{node}"}},"peers":[]}}"#);
        for number in 0..AGENTS_MAX {
            reading.report(0, source(&number.to_string()).as_bytes()).unwrap();
        }
        assert!(matches!(reading.report(0, source("one more").as_bytes()), Err(ReportError::TooMany(AGENTS_MAX))));
        reading.report(1, source("7").as_bytes()).unwrap();
        let long = source(&"a".repeat(NAME_BYTES_MAX + 1));
        assert!(matches!(MeshReading::default().report(0, long.as_bytes()), Err(ReportError::Name)));

        let many = |count: usize| {
            let missing: Vec<String> = (0..count).map(|n| format!(r#"{{"node":"m{n}","error":""}}"#)).collect();
            behind(&missing.join(","))
        };
        reading.fields(0, many(MISSING_MAX).as_bytes()).unwrap();
        assert!(matches!(reading.fields(0, many(1).as_bytes()), Err(FieldsError::Missing)));
        assert_eq!(reading.finish().1.len(), MISSING_MAX);
    }

    #[test]
    fn a_report_that_names_a_node_twice_is_invalid_and_its_earlier_part_counts() {
        let mut reading = MeshReading::default();
        let twice = report("n1", &["n2", "n3", "n2", "n4"]);
        let error = reading.report(0, twice.as_bytes()).unwrap_err();
        assert!(matches!(&error, ReportError::Twice(node) if node == "n2"), "{error}");
        // A peer on its other network, or by the other protocol, is another object.
        let thrice = report("n2", &["n1", "n1", "n1"]);
        let thrice = thrice.replacen("\"pod\"", "\"node\"", 1).replacen("\"icmp\"", "\"icmpv6\"", 2);
        let thrice = thrice.replacen("\"icmpv6\"", "\"icmp\"", 1);
        reading.report(0, thrice.as_bytes()).unwrap();
        let (matrix, missing, _, _) = reading.finish();
        let error = "not a report: it names n2 twice".to_owned();
        assert_eq!(missing, [Missing { node: "n1".into(), error }]);
        assert_eq!((presences(&matrix)[0].1, matrix.cell_count()), (RowPresence::Broken, 2 + 3));
    }

    #[test]
    fn a_second_report_of_a_node_is_refused_in_the_same_document_and_skipped_in_another() {
        let mut reading = MeshReading::default();
        reading.report(0, report("n1", &["n2"]).as_bytes()).unwrap();
        let error = reading.report(0, report("n1", &["n3"]).as_bytes()).unwrap_err();
        assert!(matches!(&error, ReportError::Repeated(node) if node == "n1"), "{error}");
        reading.report(1, report("n1", &["n3"]).as_bytes()).unwrap();
        let (matrix, missing, reports, _) = reading.finish();
        assert_eq!((matrix.cell_count(), missing.len(), reports), (1, 0, 1));
    }

    #[test]
    fn off_line_there_is_room_for_more_than_an_agent_may_keep() {
        let mut reading = MeshReading::off_line();
        let names: Vec<String> = (0..24).map(|n| format!("n{n}")).collect();
        let peers: Vec<&str> = names.iter().map(String::as_str).collect();
        for number in 0..=AGENTS_MAX {
            reading.report(0, report(&format!("source-{number}"), &peers).as_bytes()).unwrap();
        }
        let (matrix, missing, reports, _) = reading.finish();
        assert_eq!((reports, missing.len(), matrix.cell_count()), (AGENTS_MAX + 1, 0, (AGENTS_MAX + 1) * 24));
        assert_eq!((matrix.not_kept().rows, matrix.not_kept().cells), (0, 0));
    }

    #[test]
    fn a_report_that_breaks_off_keeps_its_first_part_and_is_marked_as_broken() {
        let whole = report("n1", &["n2", "n3"]);
        let cut = &whole.as_bytes()[..whole.len() - 20];
        let mut reading = MeshReading::default();
        assert!(reading.report(0, cut).is_err());
        reading.report(0, report("n2", &["n1"]).as_bytes()).unwrap();
        let (matrix, missing, _, _) = reading.finish();
        assert!(missing[0].node == "n1" && missing[0].error.starts_with("not a report: "), "{missing:?}");
        assert_eq!((matrix.cell_count(), presences(&matrix)[0].1), (2, RowPresence::Broken));
    }

    #[test]
    fn facts_about_the_mesh_and_old_lists_are_kept() {
        let mut reading = MeshReading::default();
        let report =
            |node: &str, says: &str| format!(r#"{{"source":{{"node":"{node}","zone":"z",{says}}},"peers":[]}}"#);
        for (node, says) in [
            ("n4", r#""peer_list_age_seconds":null,"watchers":0"#),
            ("n1", r#""peer_list_age_seconds":240,"watchers":24,"watchers_missing":0"#),
            ("n2", r#""peer_list_age_seconds":241,"watchers":12,"watchers_missing":2"#),
            ("n3", r#""version":"0.1.0""#),
        ] {
            reading.report(0, report(node, says).as_bytes()).unwrap();
        }
        let (_, _, reports, facts) = reading.finish();
        let old = |node: &str, age_seconds| OldList { node: node.into(), age_seconds };
        assert_eq!((reports, facts.watchers, facts.watchers_missing), (4, Some(12), 1));
        assert_eq!(facts.old_lists, [old("n2", Some(241.0)), old("n4", None)]);
    }

    #[test]
    fn an_unanswered_agent_is_identified_by_its_address() {
        let mut reading = MeshReading::default();
        reading.report(0, report("n1", &["n2"]).as_bytes()).unwrap();
        assert!(
            reading.unanswered(1, [10, 0, 0, 2].into(), "refused")
                && !reading.unanswered(2, [10, 0, 0, 9].into(), "refused")
        );
        let (matrix, missing, _, _) = reading.finish();
        assert_eq!(missing, [Missing { node: "n2".into(), error: "refused".into() }]);
        assert_eq!(presences(&matrix)[1].1, RowPresence::Missing);
    }

    #[test]
    fn an_invalid_report_is_an_error() {
        for text in
            ["", "[]", "{}", r#"{"peers":[],"source":{"node":"a"}}"#, r#"{"source":{"node":"a"}}"#, "{\"source\":"]
        {
            assert!(MeshReading::default().report(0, text.as_bytes()).is_err(), "{text}");
        }
        let twice = format!("{}{}", report("a", &[]), report("b", &[]));
        assert!(MeshReading::default().report(0, twice.as_bytes()).is_err());
    }
}
