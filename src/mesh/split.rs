//! Splits a report, as it streams in, into its objects: the source, then its checks, if it has any,
//! then one peer after another.
//!
//! A report of 5,000 peers has 1.5 MB, and many arrive at once, so a collection must not hold a
//! whole one. This splitter follows only as much of JSON (nesting, strings, escapes) as it needs to
//! find the end of an object. The bytes may arrive in any pieces. A parser reads the objects. Only
//! this module knows the form of a report: first its source, then its checks, which may be missing,
//! then its peers, each field once. Other fields are skipped.

use crate::limits::REPORT_OBJECT_BYTES_MAX;

/// A complete object of a report, as JSON text.
#[derive(Debug, PartialEq, Eq)]
pub enum ReportObject<'a> {
    /// The source of the report.
    Source(&'a [u8]),
    /// One of its checks.
    Check(&'a [u8]),
    /// One of its peers.
    Peer(&'a [u8]),
}

/// Why the data is not a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// An object is longer than two names and all figures can be.
    #[error("an object of more than {REPORT_OBJECT_BYTES_MAX} bytes")]
    TooLong,
    /// The data is not a JSON object, lacks the two fields in their order, or has
    /// data after the object.
    #[error("not a report")]
    NotARow,
    /// The data ends before the report is complete.
    #[error("broke off")]
    BrokeOff,
}

/// The longest name of a field that matters: `"source"` or `"checks"` with its quotes.
const KEY_BYTES_MAX: usize = 8;

/// State of the splitter within a report.
#[derive(Debug, Default)]
pub struct Splitter {
    /// Number of open objects and arrays.
    depth: usize,
    is_string: bool,
    is_escaped: bool,
    /// The name of the current field, in quotes: as much of it as fits, and one byte more.
    key: Vec<u8>,
    /// The object that is being read, and the depth at which it began; 0 if there is none.
    object: Vec<u8>,
    began_at: usize,
    arrived: ReportPart,
}

/// Which part of a report has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReportPart {
    #[default]
    Nothing,
    Source,
    /// At least the beginning of the checks.
    Checks,
    /// At least the beginning of the peers.
    Peers,
    All,
}

impl Splitter {
    /// Consumes `bytes` from the front until an object is complete. `None` if they end before that.
    ///
    /// # Errors
    /// [`SplitError`]. The rest of the report must then be dropped.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<ReportObject<'_>>, SplitError> {
        if self.began_at == 0 {
            self.object.clear();
        }
        while let Some((&byte, rest)) = bytes.split_first() {
            *bytes = rest;
            if self.take(byte)? {
                if self.depth == 1 {
                    self.advance(&[ReportPart::Nothing], ReportPart::Source)?;
                    return Ok(Some(ReportObject::Source(&self.object)));
                }
                return Ok(Some(match self.arrived {
                    ReportPart::Checks => ReportObject::Check(&self.object),
                    _ => ReportObject::Peer(&self.object),
                }));
            }
        }
        Ok(None)
    }

    /// Checks that the report is complete.
    ///
    /// # Errors
    /// [`SplitError::BrokeOff`] if the report is not complete.
    pub const fn end(&self) -> Result<(), SplitError> {
        if matches!(self.arrived, ReportPart::All) { Ok(()) } else { Err(SplitError::BrokeOff) }
    }

    fn advance(&mut self, after: &[ReportPart], now: ReportPart) -> Result<(), SplitError> {
        if !after.contains(&self.arrived) {
            return Err(SplitError::NotARow);
        }
        self.arrived = now;
        Ok(())
    }

    /// Consumes one byte. Returns whether it completes an object.
    fn take(&mut self, byte: u8) -> Result<bool, SplitError> {
        if self.began_at > 0 {
            if self.object.len() == REPORT_OBJECT_BYTES_MAX {
                return Err(SplitError::TooLong);
            }
            self.object.push(byte);
        }
        if self.is_string {
            self.in_string(byte);
            return Ok(false);
        }
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' => {}
            _ if self.arrived == ReportPart::All || (self.depth == 0 && byte != b'{') => {
                return Err(SplitError::NotARow);
            }
            b'"' => {
                self.is_string = true;
                if self.depth == 1 {
                    self.key.clear();
                    self.key.push(byte);
                }
            }
            b'{' | b'[' => {
                if byte == b'[' && self.depth == 1 {
                    self.begin_list()?;
                }
                if byte == b'{' && self.began_at == 0 && self.is_wanted() {
                    self.began_at = self.depth;
                    self.object.push(byte);
                }
                self.depth += 1;
            }
            b'}' | b']' => {
                self.depth -= 1;
                if self.depth == 0 {
                    self.advance(&[ReportPart::Peers], ReportPart::All)?;
                }
                if self.began_at == self.depth && self.began_at > 0 {
                    self.began_at = 0;
                    return Ok(true);
                }
            }
            _ => {}
        }
        Ok(false)
    }

    fn begin_list(&mut self) -> Result<(), SplitError> {
        match self.key.as_slice() {
            br#""checks""# => self.advance(&[ReportPart::Source], ReportPart::Checks),
            br#""peers""# => self.advance(&[ReportPart::Source, ReportPart::Checks], ReportPart::Peers),
            _ => Ok(()),
        }
    }

    /// Whether an object that begins here is one of the report.
    fn is_wanted(&self) -> bool {
        match self.depth {
            1 => self.key == br#""source""#,
            2 => match self.arrived {
                ReportPart::Checks => self.key == br#""checks""#,
                ReportPart::Peers => self.key == br#""peers""#,
                _ => false,
            },
            _ => false,
        }
    }

    fn in_string(&mut self, byte: u8) {
        if self.depth == 1 && self.key.len() <= KEY_BYTES_MAX {
            self.key.push(byte);
        }
        self.is_string = self.is_escaped || byte != b'"';
        self.is_escaped = byte == b'\\' && !self.is_escaped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = concat!(
        r#" {"version":[{"source":{}}],"source":{"node":"a\"}{","recent":{"seconds":1.5,"l":[1,[2]]}},"x":{"peers":[{}]},"#,
        r#""checks":[{"name":"dns"},{"name":"[{","l":[{}]}],"y":["checks",{"peers":[]}],"#,
        r#""peers":[{"node":"b\\"},{"node":"]}","recent":{"sent":3}} ],"later":"peers","list":[{"a":1}]}"#,
        "\n"
    );

    fn objects(row: &str, piece: usize) -> Result<(Vec<String>, bool), SplitError> {
        let (mut splitter, mut found) = (Splitter::default(), Vec::new());
        for mut piece in row.as_bytes().chunks(piece) {
            while let Some(object) = splitter.next(&mut piece)? {
                found.push(match object {
                    ReportObject::Source(bytes) => format!("source {}", String::from_utf8_lossy(bytes)),
                    ReportObject::Check(bytes) => format!("check {}", String::from_utf8_lossy(bytes)),
                    ReportObject::Peer(bytes) => format!("peer {}", String::from_utf8_lossy(bytes)),
                });
            }
        }
        Ok((found, splitter.end().is_ok()))
    }

    #[test]
    fn a_row_comes_apart_in_the_same_way_in_any_pieces() {
        let expected = [
            r#"source {"node":"a\"}{","recent":{"seconds":1.5,"l":[1,[2]]}}"#,
            r#"check {"name":"dns"}"#,
            r#"check {"name":"[{","l":[{}]}"#,
            r#"peer {"node":"b\\"}"#,
            r#"peer {"node":"]}","recent":{"sent":3}}"#,
        ];
        for piece in 1..=ROW.len() {
            let (found, is_over) = objects(ROW, piece).unwrap();
            assert_eq!((found.as_slice(), is_over), (&expected.map(String::from)[..], true), "{piece}");
        }
    }

    #[test]
    fn a_row_that_breaks_off_gives_what_was_complete() {
        let (found, is_over) = objects(&ROW[..ROW.find(r#"{"node":"]"#).unwrap() + 9], 7).unwrap();
        assert_eq!((found.len(), is_over), (4, false));
        assert_eq!(objects("", 1), Ok((vec![], false)));
    }

    #[test]
    fn a_report_without_checks_has_its_peers() {
        let found = |text: &str| objects(text, 3).map(|(found, is_over)| (found.len(), is_over));
        for (text, count) in [
            (r#"{"source":{},"peers":[{}]}"#, 2),
            (r#"{"source":{},"checks":[],"peers":[{}]}"#, 2),
            (r#"{"source":{},"checks":{"a":{}},"peers":[{}]}"#, 2),
            (r#"{"source":{},"checks":[1,[{}]],"peers":[{}]}"#, 2),
            (r#"{"source":{},"checks":null,"peers":[{}]}"#, 2),
        ] {
            assert_eq!(found(text), Ok((count, true)), "{text}");
        }
    }

    #[test]
    fn data_that_is_no_report_is_an_error() {
        let peers_first = r#"{"peers":[{}],"source":{}}"#;
        let twice = [r#"{"source":{},"source":{}}"#, r#"{"source":{},"peers":[],"peers":[]}"#];
        let half = [r#"{"source":{}}"#, r#"{"source":{},"checks":[]}"#, r#"{"peers":[]}"#, "{}"];
        let checks = [
            r#"{"checks":[],"source":{},"peers":[]}"#,
            r#"{"source":{},"peers":[],"checks":[]}"#,
            r#"{"source":{},"checks":[],"checks":[],"peers":[]}"#,
        ];
        let others = ["[]", "}", "x", "{}x", "{}{", "\"a\"", peers_first];
        for text in others.into_iter().chain(twice).chain(half).chain(checks) {
            assert_eq!(objects(text, 3), Err(SplitError::NotARow), "{text}");
        }
        let long = format!(r#"{{"source":{{"node":"{}"}}"#, "x".repeat(REPORT_OBJECT_BYTES_MAX));
        assert_eq!(objects(&long, 100), Err(SplitError::TooLong));
        assert_eq!(objects(&long.replace("source", "another"), 100), Ok((vec![], false)));
    }
}
