//! Rows on their way into the matrix: each source once, a peer at a time, and who is missing.
//!
//! The traps: meshes of several canaries overlap, and a source that counts twice would double what was sent to everybody; a
//! node is missing only if no mesh has its whole row; a row that breaks off is kept as such, for what is absent from it is no
//! evidence. The first that comes is kept, also where it breaks off and another mesh has it whole.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;

use crate::limits::LIST_AGE_MAX;
use crate::mesh::matrix::Matrix;
use crate::mesh::row::{Age, PeerRow, Source};
use crate::mesh::split::{Object, SplitError, Splitter};

/// Why a text is no row.
#[derive(Debug, thiserror::Error)]
pub enum NoRow {
    /// As a whole.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// One of its objects.
    #[error(transparent)]
    Parse(#[from] serde_json::Error),
}

/// What was read.
#[derive(Debug, Default)]
pub struct Reading {
    matrix: Matrix,
    /// Sources whose row was taken, and from which document.
    taken: HashMap<String, usize>,
    /// Rows that came again in a further document, which may have more of them.
    again: Vec<(usize, String)>,
    /// Who has a probed address, as the rows say.
    owners: HashMap<String, String>,
    /// Node and reason, from which document.
    missing: Vec<(usize, Missing)>,
    told: Told,
}

/// What sources say of the mesh, and of their lists.
#[derive(Debug, Default)]
pub struct Told {
    /// Those whose list is old.
    pub old_lists: Vec<OldList>,
    /// By how many others the node is probed that is probed by the fewest, at least.
    pub watchers: Option<u64>,
    /// How many nodes should be probed by more, but cannot.
    pub watchers_missing: usize,
}

/// An old list of peers.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct OldList {
    /// Whose.
    pub node: String,
    /// When it was last confirmed; none: never.
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
        // A source that knows of no mesh says 0.
        let watchers = source.watchers.filter(|watchers| *watchers > 0);
        self.watchers = self.watchers.into_iter().chain(watchers).min();
    }
}

/// A node without a row, or with half of one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
pub struct Missing {
    /// Which.
    pub node: String,
    /// Why.
    pub error: String,
}

/// What stands behind the rows of a mesh.
#[derive(Deserialize)]
struct Fields {
    missing: Vec<Missing>,
}

impl Reading {
    /// A row, from one of several documents.
    ///
    /// # Errors
    /// It is none, or it breaks off; what came of it is kept.
    pub fn row(&mut self, document: usize, text: &[u8]) -> Result<(), NoRow> {
        let mut begun = None;
        let read = self.objects(document, text, &mut begun);
        let Some(node) = begun else { return read };
        match &read {
            Ok(()) => self.matrix.end_row(),
            Err(error) => self.missing.push((document, Missing { node, error: format!("not a row: {error}") })),
        }
        self.matrix.finish();
        read
    }

    /// The objects of a row. `begun` becomes the source, unless its row was taken before.
    fn objects(&mut self, document: usize, mut text: &[u8], begun: &mut Option<String>) -> Result<(), NoRow> {
        let mut splitter = Splitter::default();
        while let Some(object) = splitter.next(&mut text)? {
            match object {
                Object::Source(text) => {
                    let source: Source<'_> = serde_json::from_slice(text)?;
                    if self.taken.contains_key(&*source.node) {
                        self.again.push((document, source.node.into_owned()));
                    } else {
                        self.taken.insert(source.node.clone().into_owned(), document);
                        self.matrix.begin_row(&source);
                        self.told.take(&source);
                        *begun = Some(source.node.into_owned());
                    }
                }
                Object::Peer(text) if begun.is_some() => {
                    let peer: PeerRow<'_> = serde_json::from_slice(text)?;
                    if !peer.address.is_empty() && !self.owners.contains_key(&*peer.address) {
                        self.owners.insert(peer.address.clone().into_owned(), peer.node.clone().into_owned());
                    }
                    self.matrix.peer(&peer);
                }
                Object::Peer(_) => {}
            }
        }
        Ok(splitter.end()?)
    }

    /// What stands behind the rows of a mesh, as an object.
    ///
    /// # Errors
    /// It is something else.
    pub fn fields(&mut self, document: usize, text: &[u8]) -> Result<(), serde_json::Error> {
        let Fields { missing } = serde_json::from_slice(text)?;
        self.missing.extend(missing.into_iter().map(|missing| (document, missing)));
        Ok(())
    }

    /// A canary at `address` has given no row. Gives whether anyone knows which node that is.
    pub fn silent(&mut self, document: usize, address: &str, error: &str) -> bool {
        let Some(node) = self.owners.get(address) else { return false };
        self.missing.push((document, Missing { node: node.clone(), error: error.to_owned() }));
        true
    }

    /// Nothing more comes: the matrix, who is missing in every document, how many rows there are, and what they say.
    pub fn finish(mut self) -> (Matrix, Vec<Missing>, usize, Told) {
        let lacks = |document: usize, node: &str| self.missing.iter().any(|(of, m)| *of == document && m.node == node);
        let whole_again: HashSet<&str> =
            self.again.iter().filter(|(of, node)| !lacks(*of, node)).map(|(_, node)| node.as_str()).collect();
        let mut missing: Vec<Missing> = Vec::new();
        for (document, found) in &self.missing {
            let came_elsewhere = self.taken.get(&found.node).is_some_and(|taken| taken != document);
            if came_elsewhere || missing.iter().any(|known| known.node == found.node) {
                continue;
            }
            self.matrix.missing(&found.node, &found.error);
            if !whole_again.contains(found.node.as_str()) {
                missing.push(found.clone());
            }
        }
        self.matrix.finish();
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
        // Of the same mesh: it broke off.
        reading.row(1, row("n4", &["n1"]).as_bytes()).unwrap();
        reading.fields(1, fields(&["n3", "n4"]).as_bytes()).unwrap();
        let (matrix, missing, rows, _) = reading.finish();
        assert_eq!((missing.iter().map(|m| m.node.as_str()).collect::<Vec<_>>(), rows), (vec!["n3", "n4"], 3));
        let of = |name: &str| presences(&matrix).into_iter().find(|(node, _)| node == name).unwrap().1;
        let all = ["n1", "n2", "n3", "n4"].map(of);
        assert_eq!(all, [Presence::Whole, Presence::Whole, Presence::Missing, Presence::Broken]);
    }

    #[test]
    fn a_node_is_not_missing_where_one_mesh_has_half_its_row_and_another_all() {
        let fields = |missing: &str| format!(r#"{{"missing":[{missing}]}}"#);
        let (half, whole) = (row("n3", &["n1"]), row("n3", &["n1", "n2"]));
        let broke_off = fields(r#"{"node":"n3","error":"broke off"}"#);
        for documents in [[(&half, &broke_off), (&whole, &fields(""))], [(&whole, &fields("")), (&half, &broke_off)]] {
            let mut reading = Reading::default();
            for (document, (row, fields)) in documents.into_iter().enumerate() {
                reading.row(document, row.as_bytes()).unwrap();
                reading.fields(document, fields.as_bytes()).unwrap();
            }
            let (matrix, missing, rows, _) = reading.finish();
            assert_eq!((missing, rows), (vec![], 1));
            let expected = if documents[0].0 == &half { Presence::Broken } else { Presence::Whole };
            assert!(
                presences(&matrix).contains(&("n3".to_owned(), expected)),
                "the first is kept: {:?}",
                presences(&matrix)
            );
        }
        let mut reading = Reading::default();
        for document in 0..2 {
            reading.row(document, half.as_bytes()).unwrap();
            reading.fields(document, broke_off.as_bytes()).unwrap();
        }
        assert_eq!(reading.finish().1.len(), 1, "no mesh has all of it");
    }

    #[test]
    fn a_row_that_breaks_off_keeps_what_came_and_is_known_as_broken() {
        let whole = row("n1", &["n2", "n3"]);
        let cut = &whole.as_bytes()[..whole.len() - 20];
        let mut reading = Reading::default();
        assert!(reading.row(0, cut).is_err());
        reading.row(0, row("n2", &["n1"]).as_bytes()).unwrap();
        let (matrix, missing, _, _) = reading.finish();
        assert!(missing[0].node == "n1" && missing[0].error.starts_with("not a row: "), "{missing:?}");
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
        assert!(reading.silent(1, "10.0.0.2", "refused") && !reading.silent(2, "10.0.0.9", "refused"));
        let (matrix, missing, _, _) = reading.finish();
        assert_eq!(missing, [Missing { node: "n2".into(), error: "refused".into() }]);
        assert_eq!(presences(&matrix)[1].1, Presence::Missing);
    }

    #[test]
    fn what_is_no_row_is_an_error() {
        for text in
            ["", "[]", "{}", r#"{"peers":[],"source":{"node":"a"}}"#, r#"{"source":{"node":"a"}}"#, "{\"source\":"]
        {
            assert!(Reading::default().row(0, text.as_bytes()).is_err(), "{text}");
        }
        let twice = format!("{}{}", row("a", &[]), row("b", &[]));
        assert!(Reading::default().row(0, twice.as_bytes()).is_err());
    }
}
