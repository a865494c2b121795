//! The handshakes in flight: a table with a place for each.

use std::net::IpAddr;

use crate::limits::TCP_HANDSHAKES_MAX;
use crate::peers::SlotId;
use crate::prober::Label;
use crate::units::Nanos;

/// Index of a handshake in flight, below [`TCP_HANDSHAKES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub u8);

const _: () = assert!(TCP_HANDSHAKES_MAX <= 1 << u8::BITS);

impl Place {
    /// Returns it as an index into a table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    fn at(index: usize) -> Option<Self> {
        u8::try_from(index).ok().map(Self)
    }
}

/// A handshake in flight: 48 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// Number and present slot of the probe.
    pub label: Label,
    /// When the handshake began.
    pub at: Nanos,
    /// Address of the peer.
    pub to: IpAddr,
    /// Whether its time is over. It stays open to see whether it is late.
    pub overdue: bool,
    /// Whether its loss is decided, unless a doubt holds it back.
    pub decided: bool,
}

const _: () = assert!(size_of::<Option<Connection>>() <= 48);

/// All handshakes in flight.
#[derive(Debug)]
pub struct Connections {
    places: Box<[Option<Connection>; TCP_HANDSHAKES_MAX]>,
    len: usize,
}

impl Connections {
    /// Makes an empty table. Nothing else allocates.
    pub fn new() -> Self {
        Self { places: Box::new([None; TCP_HANDSHAKES_MAX]), len: 0 }
    }

    /// Whether no handshake is in flight.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a free place; `None` if all are taken.
    pub fn free(&self) -> Option<Place> {
        if self.len == self.places.len() {
            return None;
        }
        self.places.iter().position(Option::is_none).and_then(Place::at)
    }

    /// Stores a handshake in its place, which must be free.
    pub fn put(&mut self, place: Place, connection: Connection) {
        if let Some(free) = self.places.get_mut(place.index()) {
            self.len += usize::from(free.replace(connection).is_none());
        }
    }

    /// Removes the handshake in this place.
    pub fn take(&mut self, place: Place) -> Option<Connection> {
        let taken = self.places.get_mut(place.index())?.take();
        self.len -= usize::from(taken.is_some());
        taken
    }

    /// Returns the oldest handshake whose time is over; `None` if there is none.
    pub fn oldest_overdue(&self) -> Option<Place> {
        let held = self.places.iter().enumerate().filter_map(|(index, held)| Some((Place::at(index)?, held.as_ref()?)));
        let overdue = held.filter(|(_, connection)| connection.overdue);
        overdue.min_by_key(|(_, connection)| connection.at).map(|(place, _)| place)
    }

    /// Removes the handshakes that `ended` selects. It may change the ones that stay.
    pub fn remove_if(&mut self, mut ended: impl FnMut(Place, &mut Connection) -> bool) {
        let Self { places, len } = self;
        // Between turns there is usually none.
        let most = if *len == 0 { 0 } else { places.len() };
        for (index, held) in places.iter_mut().take(most).enumerate() {
            if let (Some(place), Some(connection)) = (Place::at(index), held.as_mut())
                && ended(place, connection)
            {
                *held = None;
                *len -= 1;
            }
        }
    }

    /// Gives every handshake the new slot of its peer. Passes the places of those without a new
    /// slot to `close`.
    pub fn relabel(&mut self, now: impl Fn(SlotId) -> Option<SlotId>, mut close: impl FnMut(Place)) {
        self.remove_if(|place, connection| {
            let Some(slot) = now(connection.label.slot) else {
                close(place);
                return true;
            };
            connection.label.slot = slot;
            false
        });
    }
}
