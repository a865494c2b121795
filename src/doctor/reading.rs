//! Adds rows to the matrix: each source once, one peer at a time. Also records which nodes are
//! missing.
//!
//! The traps: the meshes of several agents overlap, and a source that counts twice would double the
//! probes sent to every peer. A node is missing only if no mesh has its row. The first row of a
//! source is judged. If it breaks off, the part is kept and marked as incomplete, because what is
//! absent from it is no evidence. Its node then counts as missing even if another mesh has the
//! whole row, because that one was not judged.
//!
//! The input may be malicious, so everything that is kept of it is bounded.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::limits::{
    AGENTS_MAX, LIST_AGE_MAX, MISSING_MAX, NAME_BYTES_MAX, PEER_SLOTS_MAX, ROWS_MESH_BYTES_MAX, ROWS_NODES_MAX,
};
use crate::mesh::domains::Domains;
use crate::mesh::matrix::{Bounds, Matrix};
use crate::mesh::row::{Age, PeerRow, Source};
use crate::mesh::split::{Object, SplitError, Splitter};

/// The reason why a text is no row.
#[derive(Debug, thiserror::Error)]
pub enum NoRow {
    /// The text as a whole is no row.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// One of its objects, or the text between them, is invalid.
    #[error(transparent)]
    Parse(#[from] serde_json::Error),
    /// The name is longer than a node's name can be.
    #[error("a name of more than {NAME_BYTES_MAX} bytes")]
    Name,
    /// There are more peers than an agent can have.
    #[error("more than {PEER_SLOTS_MAX} peers")]
    Peers,
    /// A peer appears twice. An agent names each node once for each network and address family.
    #[error("it names {0} twice")]
    Twice(String),
    /// The document already has the row of this node.
    #[error("a second report of {0}, which is not judged")]
    Repeated(String),
    /// There are more rows than a mesh can have.
    #[error("more than {0} rows")]
    Rows(usize),
}

/// The reason why a text is not valid after the rows of a mesh.
#[derive(Debug, thiserror::Error)]
pub enum NoFields {
    /// The text is not the expected object.
    #[error(transparent)]
    Parse(#[from] serde_json::Error),
    /// There are more missing nodes than a mesh can have.
    #[error("more than {MISSING_MAX} nodes without a row")]
    Missing,
}

/// The state of reading: everything that was read so far.
#[derive(Debug)]
pub struct Reading {
    matrix: Matrix,
    /// The limit of accepted rows, and of the lines of a document.
    rows_max: usize,
    /// Sources whose row was accepted, with the document it came from.
    taken: HashMap<String, usize>,
    /// The node that each probed address belongs to, according to the rows. At most as many as
    /// an agent has peers.
    owners: HashMap<IpAddr, String>,
    /// Missing nodes and the reasons, with the document they came from.
    missing: Vec<(usize, Missing)>,
    told: Told,
    /// The operator's failure domains.
    domains: Option<Arc<Domains>>,
}

/// What sources report about the mesh and about their lists.
#[derive(Debug, Default)]
pub struct Told {
    /// Sources whose list is old.
    pub old_lists: Vec<OldList>,
    /// The smallest number of watchers that a node has.
    pub watchers: Option<u64>,
    /// The number of nodes that should have more watchers, but cannot.
    pub watchers_missing: usize,
    /// The number of nodes whose rows a mesh left out, because it exceeds the limits of a collect.
    pub not_gathered: usize,
}

/// An old list of peers.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct OldList {
    /// The node that has the list.
    pub node: String,
    /// Seconds since it was last confirmed. None means never.
    pub age_seconds: Option<f64>,
}

impl Told {
    fn take(&mut self, source: &Source<'_>) {
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

/// A node whose row is missing or incomplete.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
pub struct Missing {
    /// The name of the node.
    pub node: String,
    /// The reason why it is missing.
    pub error: String,
}

/// The object that follows the rows of a mesh.
#[derive(Deserialize)]
pub struct Fields {
    /// The nodes without a row.
    pub missing: Vec<Missing>,
    /// The number of nodes whose rows were not requested.
    pub not_gathered: usize,
}

/// A row that was parsed as a whole.
#[derive(Deserialize)]
pub struct WholeRow<'a> {
    /// The agent that measured.
    #[serde(borrow)]
    pub source: Source<'a>,
    /// The peers that it measured.
    #[serde(borrow)]
    pub peers: Vec<PeerRow<'a>>,
}

impl Default for Reading {
    /// Creates the state for the answers of agents.
    fn default() -> Self {
        Self::within(Bounds::AGENT, AGENTS_MAX)
    }
}

impl Reading {
    /// Creates the state for reports that are judged offline. Its limits are larger than an
    /// agent's, because no agent's memory is used.
    pub fn off_line() -> Self {
        let bounds = Bounds { rows: ROWS_NODES_MAX, nodes: ROWS_NODES_MAX, bytes: ROWS_MESH_BYTES_MAX };
        Self::within(bounds, ROWS_NODES_MAX)
    }

    /// Returns the state with these failure domains.
    pub fn with_domains(self, domains: Option<Arc<Domains>>) -> Self {
        Self { domains, ..self }
    }

    fn within(bounds: Bounds, rows_max: usize) -> Self {
        Self {
            matrix: Matrix::within(bounds),
            rows_max,
            taken: HashMap::new(),
            owners: HashMap::new(),
            missing: Vec::new(),
            told: Told::default(),
            domains: None,
        }
    }

    /// Returns the largest number of rows that are read, over all documents and in each one.
    pub const fn rows_max(&self) -> usize {
        self.rows_max
    }

    /// Adds a row from one of several documents.
    ///
    /// # Errors
    /// The text is no row, or breaks off. The valid part is kept.
    pub fn row(&mut self, document: usize, text: &[u8]) -> Result<(), NoRow> {
        let mut begun = None;
        let read = self.objects(document, text, &mut begun);
        self.end_row(document, begun, read)
    }

    /// Adds a parsed row from one of several documents.
    ///
    /// # Errors
    /// As [`Reading::row`].
    pub fn whole_row(&mut self, document: usize, row: &WholeRow<'_>) -> Result<(), NoRow> {
        let begun = self.begin_row(document, &row.source)?;
        let read = row.peers.iter().enumerate().try_for_each(|(before, peer)| self.peer(peer, before));
        self.end_row(document, Some(begun), read)
    }

    fn end_row(&mut self, document: usize, begun: Option<String>, read: Result<(), NoRow>) -> Result<(), NoRow> {
        let Some(node) = begun else { return read };
        match &read {
            Ok(()) => self.matrix.end_row(),
            Err(error) => self.missing.push((document, Missing { node, error: format!("not a report: {error}") })),
        }
        self.matrix.finish();
        read
    }

    /// Reads the objects of a row. `begun` is set to the source, unless its
    /// row was accepted before.
    fn objects(&mut self, document: usize, text: &[u8], begun: &mut Option<String>) -> Result<(), NoRow> {
        let (mut splitter, mut rest, mut peers) = (Splitter::default(), text, 0);
        while let Some(object) = splitter.next(&mut rest)? {
            match object {
                Object::Source(text) => match self.begin_row(document, &serde_json::from_slice(text)?) {
                    Ok(node) => *begun = Some(node),
                    // Meshes overlap. The rest is checked for validity all the same.
                    Err(NoRow::Repeated(node)) if self.taken.get(&node) != Some(&document) => {}
                    Err(error) => return Err(error),
                },
                Object::Peer(text) if begun.is_some() => {
                    self.peer(&serde_json::from_slice(text)?, peers)?;
                    peers += 1;
                }
                Object::Peer(_) => {}
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

    /// Begins the row of a source that has none yet. Returns the source's name.
    fn begin_row(&mut self, document: usize, source: &Source<'_>) -> Result<String, NoRow> {
        if source.node.len() > NAME_BYTES_MAX {
            return Err(NoRow::Name);
        }
        let node = source.node.clone().into_owned();
        if self.taken.contains_key(&node) {
            return Err(NoRow::Repeated(node));
        }
        if self.taken.len() == self.rows_max {
            return Err(NoRow::Rows(self.rows_max));
        }
        self.taken.insert(node.clone(), document);
        self.matrix.begin_row(source);
        self.told.take(source);
        Ok(node)
    }

    /// Adds a peer to the current row. `before` is the number of peers already in it.
    fn peer(&mut self, peer: &PeerRow<'_>, before: usize) -> Result<(), NoRow> {
        if before == PEER_SLOTS_MAX {
            return Err(NoRow::Peers);
        }
        self.learn_owner(peer);
        if self.matrix.peer(peer) { Ok(()) } else { Err(NoRow::Twice(peer.node.clone().into_owned())) }
    }

    fn learn_owner(&mut self, peer: &PeerRow<'_>) {
        if let Ok(address) = peer.address.parse()
            && self.owners.len() < PEER_SLOTS_MAX
            && peer.node.len() <= NAME_BYTES_MAX
        {
            self.owners.entry(address).or_insert_with(|| peer.node.clone().into_owned());
        }
    }

    /// Reads the object after the rows of a mesh.
    ///
    /// # Errors
    /// It is another object, or has too many nodes. None of it is kept then.
    pub fn fields(&mut self, document: usize, text: &[u8]) -> Result<(), NoFields> {
        self.whole_fields(document, serde_json::from_slice(text)?)
    }

    /// Adds the parsed object after the rows.
    ///
    /// # Errors
    /// [`NoFields::Missing`]. None of it is kept then.
    pub fn whole_fields(&mut self, document: usize, fields: Fields) -> Result<(), NoFields> {
        let Fields { missing, not_gathered } = fields;
        if self.missing.len() + missing.len() > MISSING_MAX {
            return Err(NoFields::Missing);
        }
        self.missing.extend(missing.into_iter().map(|missing| (document, missing)));
        self.told.not_gathered = self.told.not_gathered.max(not_gathered);
        Ok(())
    }

    /// Records that an agent at `address` has given no row. Returns whether the node of
    /// that address is known.
    pub fn silent(&mut self, document: usize, address: IpAddr, error: &str) -> bool {
        let Some(node) = self.owners.get(&address) else { return false };
        self.missing.push((document, Missing { node: node.clone(), error: error.to_owned() }));
        true
    }

    /// Ends the reading. Returns the matrix, the missing nodes, the number of rows, and what
    /// sources report about the mesh.
    pub fn finish(mut self) -> (Matrix, Vec<Missing>, usize, Told) {
        let (mut missing, mut known) = (Vec::new(), HashSet::new());
        for (document, found) in self.missing {
            let came_elsewhere = self.taken.get(&found.node).is_some_and(|taken| *taken != document);
            if !came_elsewhere && known.insert(found.node.clone()) {
                self.matrix.missing(&found.node, &found.error);
                missing.push(found);
            }
        }
        self.matrix.finish();
        if let Some(domains) = &self.domains {
            self.matrix.set_domains(domains);
        }
        self.told.old_lists.sort_by(|a, b| a.node.cmp(&b.node));
        (self.matrix, missing, self.taken.len(), self.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::matrix::Presence;

    fn row(source: &str, peers: &[&str]) -> String {
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

    fn presences(matrix: &Matrix) -> Vec<(String, Presence)> {
        let mut found: Vec<_> = matrix.numbers().map(|n| (matrix.name(n).to_owned(), matrix.get(n).presence)).collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    #[test]
    fn a_source_counts_once_however_many_meshes_have_it() {
        let mut reading = Reading::default();
        for document in 0..2 {
            reading.row(document, row("n1", &["n2", "n3"]).as_bytes()).unwrap();
            reading.row(document, row("n2", &["n1", "n3"]).as_bytes()).unwrap();
        }
        let (matrix, missing, rows, _) = reading.finish();
        assert_eq!((matrix.cell_count(), rows, matrix.not_kept().rows), (4, 2, 0));
        assert_eq!(missing, []);
        let node = |name: &str, presence| (name.to_owned(), presence);
        let expected = [node("n1", Presence::Whole), node("n2", Presence::Whole), node("n3", Presence::Listed)];
        assert_eq!(presences(&matrix), expected);
    }

    #[test]
    fn a_node_is_missing_only_where_no_mesh_has_its_row() {
        let mut reading = Reading::default();
        reading.row(0, row("n1", &["n2", "n3"]).as_bytes()).unwrap();
        let fields = |nodes: &[&str]| {
            let missing: Vec<String> =
                nodes.iter().map(|node| format!(r#"{{"node":"{node}","error":"refused"}}"#)).collect();
            format!(r#"{{"missing":[{}],"not_gathered":0,"verdicts":[{{"kind":"link"}}]}}"#, missing.join(","))
        };
        reading.fields(0, fields(&["n2", "n3"]).as_bytes()).unwrap();
        reading.row(1, row("n2", &["n1"]).as_bytes()).unwrap();
        // A row of the same mesh that broke off.
        reading.row(1, row("n4", &["n1"]).as_bytes()).unwrap();
        reading.fields(1, fields(&["n3", "n4"]).as_bytes()).unwrap();
        let (matrix, missing, rows, _) = reading.finish();
        assert_eq!((missing.iter().map(|m| m.node.as_str()).collect::<Vec<_>>(), rows), (vec!["n3", "n4"], 3));
        let of = |name: &str| presences(&matrix).into_iter().find(|(node, _)| node == name).unwrap().1;
        let all = ["n1", "n2", "n3", "n4"].map(of);
        assert_eq!(all, [Presence::Whole, Presence::Whole, Presence::Missing, Presence::Broken]);
    }

    /// The text after the rows, with these missing nodes.
    fn behind(missing: &str) -> String {
        format!(r#"{{"missing":[{missing}],"not_gathered":0}}"#)
    }

    #[test]
    fn a_node_is_missing_if_the_row_that_was_judged_broke_off_whatever_another_mesh_has() {
        let (half, whole) = (row("n3", &["n1"]), row("n3", &["n1", "n2"]));
        let broke_off = behind(r#"{"node":"n3","error":"broke off"}"#);
        let (of_half, of_whole) = ((&half, broke_off), (&whole, behind("")));
        for (documents, is_missing, expected) in [
            ([&of_half, &of_whole], true, Presence::Broken),
            ([&of_whole, &of_half], false, Presence::Whole),
            ([&of_half, &of_half], true, Presence::Broken),
        ] {
            let mut reading = Reading::default();
            for (document, (row, fields)) in documents.into_iter().enumerate() {
                reading.row(document, row.as_bytes()).unwrap();
                reading.fields(document, fields.as_bytes()).unwrap();
            }
            let (matrix, missing, rows, _) = reading.finish();
            assert_eq!((missing.iter().any(|missing| missing.node == "n3"), rows), (is_missing, 1));
            let found = presences(&matrix);
            assert!(found.contains(&("n3".to_owned(), expected)), "the first is kept: {found:?}");
        }
    }

    #[test]
    fn a_row_with_anything_between_its_objects_is_none() {
        let whole = row("n1", &["n2", "n3"]);
        for (from, to) in [("},{\"node\":\"n3\"", "}x{\"node\":\"n3\""), ("}]}", "}}}"), ("[1]", "[1"), ("[1]", "1]")] {
            let mut reading = Reading::default();
            let bad = whole.replace(from, to);
            assert!(bad != whole && reading.row(0, bad.as_bytes()).is_err(), "{bad}");
            let (_, missing, _, _) = reading.finish();
            assert_eq!(missing.len(), 1, "{bad}");
        }
    }

    #[test]
    fn what_is_kept_of_a_liar_is_bounded() {
        let row = |peers: usize| {
            let peers: Vec<String> = (0..peers).map(|n| format!(r#"{{"node":"p{n}"}}"#)).collect();
            format!(r#"{{"source":{{"node":"a"}},"peers":[{}]}}"#, peers.join(","))
        };
        Reading::default().row(0, row(PEER_SLOTS_MAX).as_bytes()).unwrap();
        let error = Reading::default().row(0, row(PEER_SLOTS_MAX + 1).as_bytes()).unwrap_err();
        assert!(matches!(error, NoRow::Peers), "{error}");

        let mut reading = Reading::default();
        let source = |node: &str| format!(r#"{{"source":{{"node":"{node}"}},"peers":[]}}"#);
        for number in 0..AGENTS_MAX {
            reading.row(0, source(&number.to_string()).as_bytes()).unwrap();
        }
        assert!(matches!(reading.row(0, source("one more").as_bytes()), Err(NoRow::Rows(AGENTS_MAX))));
        reading.row(1, source("7").as_bytes()).unwrap();
        let long = source(&"a".repeat(NAME_BYTES_MAX + 1));
        assert!(matches!(Reading::default().row(0, long.as_bytes()), Err(NoRow::Name)));

        let many = |count: usize| {
            let missing: Vec<String> = (0..count).map(|n| format!(r#"{{"node":"m{n}","error":""}}"#)).collect();
            behind(&missing.join(","))
        };
        reading.fields(0, many(MISSING_MAX).as_bytes()).unwrap();
        assert!(matches!(reading.fields(0, many(1).as_bytes()), Err(NoFields::Missing)));
        assert_eq!(reading.finish().1.len(), MISSING_MAX);
    }

    #[test]
    fn a_row_that_names_a_node_twice_is_none_and_what_came_before_counts() {
        let mut reading = Reading::default();
        let twice = row("n1", &["n2", "n3", "n2", "n4"]);
        let error = reading.row(0, twice.as_bytes()).unwrap_err();
        assert!(matches!(&error, NoRow::Twice(node) if node == "n2"), "{error}");
        // A peer on its other network, or by the other protocol, is another object.
        let thrice = row("n2", &["n1", "n1", "n1"]);
        let thrice = thrice.replacen("\"pod\"", "\"node\"", 1).replacen("\"icmp\"", "\"icmpv6\"", 2);
        let thrice = thrice.replacen("\"icmpv6\"", "\"icmp\"", 1);
        reading.row(0, thrice.as_bytes()).unwrap();
        let (matrix, missing, _, _) = reading.finish();
        let error = "not a report: it names n2 twice".to_owned();
        assert_eq!(missing, [Missing { node: "n1".into(), error }]);
        assert_eq!((presences(&matrix)[0].1, matrix.cell_count()), (Presence::Broken, 2 + 3));
    }

    #[test]
    fn a_second_row_of_a_document_is_refused_and_that_of_another_document_passed_over() {
        let mut reading = Reading::default();
        reading.row(0, row("n1", &["n2"]).as_bytes()).unwrap();
        let error = reading.row(0, row("n1", &["n3"]).as_bytes()).unwrap_err();
        assert!(matches!(&error, NoRow::Repeated(node) if node == "n1"), "{error}");
        reading.row(1, row("n1", &["n3"]).as_bytes()).unwrap();
        let (matrix, missing, rows, _) = reading.finish();
        assert_eq!((matrix.cell_count(), missing.len(), rows), (1, 0, 1));
    }

    #[test]
    fn off_line_there_is_room_for_what_no_agent_may_keep() {
        let mut reading = Reading::off_line();
        let names: Vec<String> = (0..24).map(|n| format!("n{n}")).collect();
        let peers: Vec<&str> = names.iter().map(String::as_str).collect();
        for number in 0..=AGENTS_MAX {
            reading.row(0, row(&format!("source-{number}"), &peers).as_bytes()).unwrap();
        }
        let (matrix, missing, rows, _) = reading.finish();
        assert_eq!((rows, missing.len(), matrix.cell_count()), (AGENTS_MAX + 1, 0, (AGENTS_MAX + 1) * 24));
        assert_eq!((matrix.not_kept().rows, matrix.not_kept().cells), (0, 0));
    }

    #[test]
    fn a_row_that_breaks_off_keeps_what_came_and_is_known_as_broken() {
        let whole = row("n1", &["n2", "n3"]);
        let cut = &whole.as_bytes()[..whole.len() - 20];
        let mut reading = Reading::default();
        assert!(reading.row(0, cut).is_err());
        reading.row(0, row("n2", &["n1"]).as_bytes()).unwrap();
        let (matrix, missing, _, _) = reading.finish();
        assert!(missing[0].node == "n1" && missing[0].error.starts_with("not a report: "), "{missing:?}");
        assert_eq!((matrix.cell_count(), presences(&matrix)[0].1), (2, Presence::Broken));
    }

    #[test]
    fn what_sources_say_of_the_mesh_and_their_lists_is_kept() {
        let mut reading = Reading::default();
        let row = |node: &str, says: &str| format!(r#"{{"source":{{"node":"{node}","zone":"z",{says}}},"peers":[]}}"#);
        for (node, says) in [
            ("n4", r#""peer_list_age_seconds":null,"watchers":0"#),
            ("n1", r#""peer_list_age_seconds":240,"watchers":24,"watchers_missing":0"#),
            ("n2", r#""peer_list_age_seconds":241,"watchers":12,"watchers_missing":2"#),
            ("n3", r#""version":"0.1.0""#),
        ] {
            reading.row(0, row(node, says).as_bytes()).unwrap();
        }
        let (_, _, rows, told) = reading.finish();
        let old = |node: &str, age_seconds| OldList { node: node.into(), age_seconds };
        assert_eq!((rows, told.watchers, told.watchers_missing), (4, Some(12), 1));
        assert_eq!(told.old_lists, [old("n2", Some(241.0)), old("n4", None)]);
    }

    #[test]
    fn who_is_silent_is_known_by_its_address() {
        let mut reading = Reading::default();
        reading.row(0, row("n1", &["n2"]).as_bytes()).unwrap();
        assert!(
            reading.silent(1, [10, 0, 0, 2].into(), "refused") && !reading.silent(2, [10, 0, 0, 9].into(), "refused")
        );
        let (matrix, missing, _, _) = reading.finish();
        assert_eq!(missing, [Missing { node: "n2".into(), error: "refused".into() }]);
        assert_eq!(presences(&matrix)[1].1, Presence::Missing);
    }

    #[test]
    fn data_that_is_no_report_is_an_error() {
        for text in
            ["", "[]", "{}", r#"{"peers":[],"source":{"node":"a"}}"#, r#"{"source":{"node":"a"}}"#, "{\"source\":"]
        {
            assert!(Reading::default().row(0, text.as_bytes()).is_err(), "{text}");
        }
        let twice = format!("{}{}", row("a", &[]), row("b", &[]));
        assert!(Reading::default().row(0, twice.as_bytes()).is_err());
    }
}
