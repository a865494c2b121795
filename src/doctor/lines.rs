//! The document of `/api/v1/mesh`, a line at a time, as an agent writes it: a head, each row in a line of its
//! own, and the rest in the last.
//!
//! The trap: a document that lost its end, or a row of it, must never pass for a whole one.

use super::reading::{NoFields, NoRow, Reading};

/// The first line. No report begins so.
pub const HEAD: &[u8] = b"{\"rows\":[";

/// Why no further line can be read.
#[derive(Debug, thiserror::Error)]
pub enum NoMesh {
    /// The row beyond the last that may be.
    #[error(transparent)]
    Row(#[from] NoRow),
    /// What stands behind the rows.
    #[error(transparent)]
    Fields(#[from] NoFields),
    /// Another text.
    #[error("no rows in lines of their own")]
    Lines,
    /// Its last line is not there.
    #[error("it breaks off")]
    BrokeOff,
}

/// Where in the document the next line is.
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
    /// Takes the next line that is not blank. Returns why the row in it is none: that is no reason to
    /// leave the rest unread.
    ///
    /// # Errors
    /// [`NoMesh`]; then the rest is of no use.
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

    /// Nothing more comes.
    ///
    /// # Errors
    /// [`NoMesh::BrokeOff`].
    pub fn end(&self) -> Result<(), NoMesh> {
        if self.place == Place::End { Ok(()) } else { Err(NoMesh::BrokeOff) }
    }
}
