//! Cuts a row, as it streams in, into its objects: the source, then one peer after another.
//!
//! A row of 5,000 peers has 1.5 MB, and many come at once; nobody who gathers them may hold one whole. So this follows just
//! enough of JSON (nesting, strings, escapes) to find where an object ends, whatever pieces the bytes come in, and leaves
//! what is inside to a parser. What makes a row is known here alone: its source first, then its peers, each field once. Others
//! are passed over.

use crate::limits::ROW_OBJECT_BYTES_MAX;

/// A complete object.
#[derive(Debug, PartialEq, Eq)]
pub enum Object<'a> {
    /// What the row is of.
    Source(&'a [u8]),
    /// One of its peers.
    Peer(&'a [u8]),
}

/// Why it is not a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// An object is longer than two names and all figures can be.
    #[error("an object of more than {ROW_OBJECT_BYTES_MAX} bytes")]
    TooLong,
    /// Not a JSON object, or one without the two fields of a row in their order, or something behind it.
    #[error("not a row")]
    NotARow,
    /// It ends before it is whole.
    #[error("broke off")]
    BrokeOff,
}

/// The longest name of a field that matters: `"source"` with its quotes.
const KEY_BYTES_MAX: usize = 8;

/// Where the reader stands in a row.
#[derive(Debug, Default)]
pub struct Splitter {
    /// Objects and arrays that are open.
    depth: usize,
    is_string: bool,
    is_escaped: bool,
    /// The field of the row that is being read, in quotes: as far as it fits, and one more.
    key: Vec<u8>,
    /// The object that is being read, and the depth at which it began; 0: none is.
    object: Vec<u8>,
    began_at: usize,
    come: Come,
}

/// What of a row has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Come {
    #[default]
    Nothing,
    Source,
    /// The beginning of its peers, at least.
    Peers,
    All,
}

impl Splitter {
    /// Takes bytes from the front of `bytes` until an object is complete; none where they end first.
    ///
    /// # Errors
    /// [`SplitError`]; then the row is of no use any more.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<Object<'_>>, SplitError> {
        if self.began_at == 0 {
            self.object.clear();
        }
        while let Some((&byte, rest)) = bytes.split_first() {
            *bytes = rest;
            if self.take(byte)? {
                let is_source = self.depth == 1;
                if is_source {
                    self.comes(Come::Nothing, Come::Source)?;
                }
                return Ok(Some(if is_source { Object::Source(&self.object) } else { Object::Peer(&self.object) }));
            }
        }
        Ok(None)
    }

    /// Nothing more comes.
    ///
    /// # Errors
    /// [`SplitError::BrokeOff`], where the row has not come to its end.
    pub const fn end(&self) -> Result<(), SplitError> {
        if matches!(self.come, Come::All) { Ok(()) } else { Err(SplitError::BrokeOff) }
    }

    fn comes(&mut self, after: Come, now: Come) -> Result<(), SplitError> {
        if self.come != after {
            return Err(SplitError::NotARow);
        }
        self.come = now;
        Ok(())
    }

    /// One byte more. Returns whether it completes an object.
    fn take(&mut self, byte: u8) -> Result<bool, SplitError> {
        if self.began_at > 0 {
            if self.object.len() == ROW_OBJECT_BYTES_MAX {
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
            _ if self.come == Come::All || (self.depth == 0 && byte != b'{') => return Err(SplitError::NotARow),
            b'"' => {
                self.is_string = true;
                if self.depth == 1 {
                    self.key.clear();
                    self.key.push(byte);
                }
            }
            b'{' | b'[' => {
                if byte == b'[' && self.depth == 1 && self.key == br#""peers""# {
                    self.comes(Come::Source, Come::Peers)?;
                }
                let is_wanted = byte == b'{'
                    && ((self.depth == 1 && self.key == br#""source""#)
                        || (self.depth == 2 && self.key == br#""peers""#));
                if self.began_at == 0 && is_wanted {
                    self.began_at = self.depth;
                    self.object.push(byte);
                }
                self.depth += 1;
            }
            b'}' | b']' => {
                self.depth -= 1;
                if self.depth == 0 {
                    self.comes(Come::Peers, Come::All)?;
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
        r#""peers":[{"node":"b\\"},{"node":"]}","recent":{"sent":3}} ],"later":"peers","list":[{"a":1}]}"#,
        "\n"
    );

    fn objects(row: &str, piece: usize) -> Result<(Vec<String>, bool), SplitError> {
        let (mut splitter, mut found) = (Splitter::default(), Vec::new());
        for mut piece in row.as_bytes().chunks(piece) {
            while let Some(object) = splitter.next(&mut piece)? {
                found.push(match object {
                    Object::Source(bytes) => format!("source {}", String::from_utf8_lossy(bytes)),
                    Object::Peer(bytes) => format!("peer {}", String::from_utf8_lossy(bytes)),
                });
            }
        }
        Ok((found, splitter.end().is_ok()))
    }

    #[test]
    fn a_row_comes_apart_in_the_same_way_in_any_pieces() {
        let expected = [
            r#"source {"node":"a\"}{","recent":{"seconds":1.5,"l":[1,[2]]}}"#,
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
        assert_eq!((found.len(), is_over), (2, false));
        assert_eq!(objects("", 1), Ok((vec![], false)));
    }

    #[test]
    fn what_is_no_row_is_an_error() {
        let peers_first = r#"{"peers":[{}],"source":{}}"#;
        let twice = [r#"{"source":{},"source":{}}"#, r#"{"source":{},"peers":[],"peers":[]}"#];
        let half = [r#"{"source":{}}"#, r#"{"peers":[]}"#, "{}"];
        for text in ["[]", "}", "x", "{}x", "{}{", "\"a\"", peers_first].into_iter().chain(twice).chain(half) {
            assert_eq!(objects(text, 3), Err(SplitError::NotARow), "{text}");
        }
        let long = format!(r#"{{"source":{{"node":"{}"}}"#, "x".repeat(ROW_OBJECT_BYTES_MAX));
        assert_eq!(objects(&long, 100), Err(SplitError::TooLong));
        assert_eq!(objects(&long.replace("source", "another"), 100), Ok((vec![], false)));
    }
}
