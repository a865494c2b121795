//! Reads the document of `/api/v1/mesh` line by line, as an agent writes it: a head, each row in
//! its own line, and the rest in the last line.
//!
//! The trap: a document that lost its end or one of its rows must never be taken for a complete
//! one.

use super::reading::{NoFields, NoRow, Reading};

/// The first line of the document. No report begins like this.
pub const HEAD: &[u8] = b"{\"rows\":[";

/// The reason why no further line can be read.
#[derive(Debug, thiserror::Error)]
pub enum NoMesh {
    /// There are more rows than allowed.
    #[error(transparent)]
    Row(#[from] NoRow),
    /// The text after the rows is invalid.
    #[error(transparent)]
    Fields(#[from] NoFields),
    /// The text is not a mesh with one row per line.
    #[error("no rows in lines of their own")]
    Lines,
    /// The last line is missing.
    #[error("it breaks off")]
    BrokeOff,
}

/// The part of the document that the next line belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Head,
    Rows,
    End,
}

/// A document that is being read.
#[derive(Debug, Default)]
pub struct MeshLines {
    place: Place,
    rows: usize,
}

impl MeshLines {
    /// Takes the next line that is not blank. If it holds no valid row, returns the reason. The
    /// rest is still read in that case.
    ///
    /// # Errors
    /// [`NoMesh`]: the rest cannot be used.
    pub fn take(&mut self, document: usize, line: &[u8], reading: &mut Reading) -> Result<Option<NoRow>, NoMesh> {
        let line = line.trim_ascii();
        match self.place {
            Place::Head if line == HEAD => self.place = Place::Rows,
            Place::Rows if line.starts_with(b"],") => {
                self.place = Place::End;
                reading.fields(document, &[b"{", &line[2..]].concat())?;
            }
            Place::Rows => {
                self.rows += 1;
                if self.rows > reading.rows_max() {
                    return Err(NoRow::Rows(reading.rows_max()).into());
                }
                return Ok(reading.row(document, line.strip_prefix(b",").unwrap_or(line)).err());
            }
            Place::Head | Place::End => return Err(NoMesh::Lines),
        }
        Ok(None)
    }

    /// Checks that the document is complete.
    ///
    /// # Errors
    /// [`NoMesh::BrokeOff`].
    pub fn end(&self) -> Result<(), NoMesh> {
        if self.place == Place::End { Ok(()) } else { Err(NoMesh::BrokeOff) }
    }
}
