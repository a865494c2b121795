//! Reads the document of `/api/v1/mesh/NODES` line by line, as an agent writes it: a head, each
//! report in its own line, and the rest in the last line. Several documents may follow each other.
//!
//! The trap: a document that lost its end or one of its reports must never be taken for a complete
//! one.

use super::reading::{FieldsError, MeshReading, ReportError};

/// The first line of the document. No report begins like this.
pub const HEAD: &[u8] = b"{\"rows\":[";

/// The reason why no further line can be read.
#[derive(Debug, thiserror::Error)]
pub enum MeshError {
    /// There are more reports than allowed.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The text after the reports is invalid.
    #[error(transparent)]
    Fields(#[from] FieldsError),
    /// The text is not a mesh with one report per line.
    #[error("no reports in lines of their own")]
    Lines,
    /// The last line is missing.
    #[error("it breaks off")]
    BrokeOff,
}

/// The part of the document that the next line belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DocumentPart {
    #[default]
    Head,
    Reports,
    End,
}

/// A document that is being read.
#[derive(Debug, Default)]
pub struct MeshLines {
    place: DocumentPart,
    reports: usize,
}

impl MeshLines {
    /// Takes the next line that is not blank. If it holds no valid report, returns the reason. The
    /// rest is still read in that case.
    ///
    /// # Errors
    /// [`MeshError`]: the rest cannot be used.
    pub fn take(
        &mut self,
        document: usize,
        line: &[u8],
        reading: &mut MeshReading,
    ) -> Result<Option<ReportError>, MeshError> {
        let line = line.trim_ascii();
        match self.place {
            DocumentPart::Head | DocumentPart::End if line == HEAD => self.place = DocumentPart::Reports,
            DocumentPart::Reports if line.starts_with(b"],") => {
                self.place = DocumentPart::End;
                reading.fields(document, &[b"{", &line[2..]].concat())?;
            }
            DocumentPart::Reports => {
                self.reports += 1;
                if self.reports > reading.reports_max() {
                    return Err(ReportError::TooMany(reading.reports_max()).into());
                }
                return Ok(reading.report(document, line.strip_prefix(b",").unwrap_or(line)).err());
            }
            DocumentPart::Head | DocumentPart::End => return Err(MeshError::Lines),
        }
        Ok(None)
    }

    /// Checks that the document is complete.
    ///
    /// # Errors
    /// [`MeshError::BrokeOff`].
    pub fn end(&self) -> Result<(), MeshError> {
        if self.place == DocumentPart::End { Ok(()) } else { Err(MeshError::BrokeOff) }
    }
}
