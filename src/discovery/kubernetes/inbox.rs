//! Splits a body's byte stream into its parts, however the network cut it: the items of a list
//! ([`ListItems`]) or the events of a watch ([`WatchEvents`]). It holds at most one unfinished
//! piece and one network read, whatever the body's length.
//!
//! The trap is a list that breaks off, because it looks like a shorter list. It counts only once
//! [`ListItems::finish`] has found its end.

use super::api::{MAGIC, ObjectKind};
use super::protobuf::{Broken, varint};
use crate::limits;

/// Why a body cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A piece is longer than the limit.
    #[error("more than {0} bytes")]
    TooLarge(usize),
    /// The bytes do not have the expected form.
    #[error("{0}")]
    Malformed(String),
}

impl From<Broken> for Unreadable {
    fn from(broken: Broken) -> Self {
        Self::Malformed(broken.to_string())
    }
}

/// The bytes that have arrived and are not yet taken.
///
/// The reader of the body owns it, and it is dropped with the body. A piece is borrowed until the
/// next one is asked for. The memory is kept from piece to piece up to
/// [`limits::EVENT_BUFFER_KEPT_BYTES`]. A larger buffer is kept only until its piece is read.
#[derive(Default)]
struct Inbox {
    buffer: Vec<u8>,
    taken: usize,
}

impl Inbox {
    fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        // A large piece must not occupy memory until the end of the body.
        if self.buffer.is_empty() && self.buffer.capacity() > limits::EVENT_BUFFER_KEPT_BYTES {
            self.buffer = Vec::new();
        }
        self.buffer.extend_from_slice(bytes);
    }

    fn rest(&self) -> &[u8] {
        &self.buffer[self.taken..]
    }

    fn take(&mut self, length: usize) -> &[u8] {
        let start = self.taken;
        self.taken += length;
        &self.buffer[start..self.taken]
    }
}

/// The events of a watch: four bytes of length (big-endian), then a `WatchEvent`.
pub struct WatchEvents {
    inbox: Inbox,
    limit: usize,
}

impl WatchEvents {
    /// Makes a reader for events of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { inbox: Inbox::default(), limit }
    }

    /// Takes arrived bytes. All events should have been read by [`WatchEvents::next_event`] before.
    pub fn push(&mut self, bytes: &[u8]) {
        self.inbox.push(bytes);
    }

    /// Returns the next whole event, or None if more bytes are needed.
    ///
    /// # Errors
    /// The event is longer than the limit.
    pub fn next_event(&mut self) -> Result<Option<&[u8]>, Unreadable> {
        let Some((length, rest)) = self.inbox.rest().split_first_chunk() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > self.limit {
            return Err(Unreadable::TooLarge(self.limit));
        }
        if rest.len() < length {
            return Ok(None);
        }
        self.inbox.take(4);
        Ok(Some(self.inbox.take(length)))
    }
}

/// A piece of a list.
#[derive(Debug, PartialEq, Eq)]
pub enum ListPiece<'a> {
    /// The ListMeta of the list. The API server sends it before the items.
    Metadata(&'a [u8]),
    /// One item of the list.
    Item(&'a [u8]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListPlace {
    /// Before the start of the envelope.
    Start,
    /// Between two fields of the envelope.
    Envelope,
    /// In the list itself, with the number of bytes that are left.
    List(u64),
}

/// The pieces of a list in its envelope.
pub struct ListItems {
    inbox: Inbox,
    place: ListPlace,
    kind: ObjectKind,
    limit: usize,
    kind_seen: bool,
    list_seen: bool,
}

impl ListItems {
    /// Makes a reader for a list of that kind with items of at most `limit` bytes.
    pub fn new(kind: ObjectKind, limit: usize) -> Self {
        Self { inbox: Inbox::default(), place: ListPlace::Start, kind, limit, kind_seen: false, list_seen: false }
    }

    /// Takes arrived bytes. All pieces should have been read by [`ListItems::next_piece`] before.
    pub fn push(&mut self, bytes: &[u8]) {
        self.inbox.push(bytes);
    }

    /// Returns the next whole piece, or None if more bytes are needed.
    ///
    /// # Errors
    /// The piece is too long, or the bytes are not such a list.
    pub fn next_piece(&mut self) -> Result<Option<ListPiece<'_>>, Unreadable> {
        loop {
            match self.place {
                ListPlace::Start => {
                    let rest = self.inbox.rest();
                    let length = rest.len().min(MAGIC.len());
                    if rest[..length] != MAGIC[..length] {
                        return Err(Unreadable::Malformed("not an object in protobuf".into()));
                    }
                    if length < MAGIC.len() {
                        return Ok(None);
                    }
                    self.inbox.take(length);
                    self.place = ListPlace::Envelope;
                }
                ListPlace::Envelope => {
                    let Some(field) = head(self.inbox.rest())? else { return Ok(None) };
                    if field.number == 2 && field.has_length && !self.list_seen {
                        if !self.kind_seen {
                            return Err(Unreadable::Malformed("a list that does not say what it is of".into()));
                        }
                        self.list_seen = true;
                        self.place = ListPlace::List(field.length);
                        self.inbox.take(field.before);
                        continue;
                    }
                    let Some(whole) = self.whole(&field)? else { return Ok(None) };
                    let content = &self.inbox.take(whole)[field.before..];
                    if field.number == 1 {
                        self.kind.check(content).map_err(Unreadable::Malformed)?;
                        self.kind_seen = true;
                    }
                }
                ListPlace::List(0) => self.place = ListPlace::Envelope,
                ListPlace::List(left) => {
                    let Some(field) = head(self.inbox.rest())? else { return Ok(None) };
                    let Some(rest) = left.checked_sub(field.before as u64).and_then(|l| l.checked_sub(field.length))
                    else {
                        return Err(Broken.into());
                    };
                    let Some(whole) = self.whole(&field)? else { return Ok(None) };
                    self.place = ListPlace::List(rest);
                    match (field.number, field.has_length) {
                        (1, true) => return Ok(Some(ListPiece::Metadata(&self.inbox.take(whole)[field.before..]))),
                        (2, true) => return Ok(Some(ListPiece::Item(&self.inbox.take(whole)[field.before..]))),
                        _ => _ = self.inbox.take(whole),
                    }
                }
            }
        }
    }

    /// Checks at the end of the body that the list is complete.
    ///
    /// # Errors
    /// The list breaks off.
    pub fn finish(&mut self) -> Result<(), Unreadable> {
        let left = self.next_piece()?.is_some();
        if !left && self.place == ListPlace::Envelope && self.list_seen && self.inbox.rest().is_empty() {
            Ok(())
        } else {
            Err(Unreadable::Malformed("a list that breaks off".into()))
        }
    }

    /// Returns the length of the field, if all of it has arrived.
    fn whole(&self, field: &FieldHead) -> Result<Option<usize>, Unreadable> {
        let length = usize::try_from(field.length).ok().filter(|length| *length <= self.limit);
        let whole = field.before + length.ok_or(Unreadable::TooLarge(self.limit))?;
        Ok((self.inbox.rest().len() >= whole).then_some(whole))
    }
}

/// The tag and length of a field.
struct FieldHead {
    number: u64,
    /// Bytes before the field's content.
    before: usize,
    /// Bytes of the field's content.
    length: u64,
    /// Whether the content is bytes, and not a number.
    has_length: bool,
}

/// Reads a field's head. None if more bytes are needed.
fn head(bytes: &[u8]) -> Result<Option<FieldHead>, Broken> {
    // The longest varint has ten bytes.
    let read = |from: usize| match varint(&bytes[from..]) {
        None if bytes.len() - from >= 10 => Err(Broken),
        read => Ok(read),
    };
    let Some((tag, at)) = read(0)? else { return Ok(None) };
    let field = |before, length, has_length| Ok(Some(FieldHead { number: tag >> 3, before, length, has_length }));
    match tag & 7 {
        0 => match read(at)? {
            Some((_, length)) => field(at, length as u64, false),
            None => Ok(None),
        },
        1 => field(at, 8, false),
        2 => match read(at)? {
            Some((length, more)) => field(at + more, length, true),
            None => Ok(None),
        },
        5 => field(at, 4, false),
        _ => Err(Broken),
    }
}

#[cfg(test)]
mod tests;
