//! Entry points to the parsers of the API server's answers, for the targets in `fuzz/`.

use tokio::time::Instant;

use super::api::{ObjectKind, WatchEvent};
use super::config::Timing;
use super::inbox::{ListItems, ListPiece, WatchEvents};
use super::machine::Machine;
use crate::discovery::update::Ourselves;
use crate::limits::API_BODY_BYTES_MAX;

/// A ListMeta of version 1.
const METADATA: &[u8] = &[0x12, 1, b'1'];

fn machine() -> Machine {
    Machine::new(Ourselves { node: "n1".into(), max_peers: 2, ..Ourselves::default() }, Timing::default())
}

/// Reads any bytes as a list. The first byte gives the kind of list and the size of the pieces.
pub fn list(data: &[u8]) {
    let Some((first, body)) = data.split_first() else { return };
    let whole = first & 1 == 0;
    let mut machine = machine();
    let mut items =
        ListItems::new(if whole { ObjectKind::SLICES } else { ObjectKind::METADATA_LIST }, API_BODY_BYTES_MAX);
    machine.list_begins();
    for piece in body.chunks(usize::from(first >> 1) + 1) {
        items.push(piece);
        loop {
            match items.next_piece() {
                Ok(Some(ListPiece::Metadata(metadata))) => _ = machine.list_metadata(metadata),
                Ok(Some(ListPiece::Item(item))) => _ = machine.list_item(item, whole, Instant::now(), 0.5),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    if items.finish().is_ok() {
        let _ = machine.list_ends(Instant::now());
        let _ = machine.changes();
    }
}

/// Reads any bytes as a watch and as a slice that was asked for. The first byte gives the
/// size of the pieces.
pub fn watch(data: &[u8]) {
    let Some((first, body)) = data.split_first() else { return };
    let now = Instant::now();
    let mut machine = machine();
    machine.list_begins();
    let _ = machine.list_metadata(METADATA);
    let _ = machine.list_ends(now);
    let mut events = WatchEvents::new(API_BODY_BYTES_MAX);
    for piece in body.chunks(usize::from(*first) + 1) {
        events.push(piece);
        while let Ok(Some(frame)) = events.next_event() {
            let Ok(event) = WatchEvent::read(frame) else { continue };
            if machine.event(&event, now, 0.5).is_err() {
                return;
            }
            let next = machine.next_reading(Instant::now()).map(|(name, version, _)| (name.to_owned(), version));
            if let Some((name, version)) = next {
                let _ = machine.read(&name, version, Some(body), now);
            }
        }
    }
    let _ = machine.changes();
}
