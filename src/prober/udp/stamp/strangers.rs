//! What has come of late from addresses that are no member's: from which, in which session, and how
//! often.
//!
//! If the network rewrites the source address of an agent, its requests arrive in this way and get
//! no answer. It takes them for lost. Its SSID tells whose they are.

use std::net::IpAddr;

use crate::limits::STRANGERS_MAX;
use crate::report::Stranger;

/// Requests that were counted in two halves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeardInHalves {
    /// Number of the half to which the first count belongs. The second belongs to the one before.
    /// Halves of a second wrap around after 136 years.
    half: u32,
    heard: [u16; 2],
}

impl HeardInHalves {
    fn at(self, half: u32) -> [u16; 2] {
        match half.checked_sub(self.half) {
            Some(0) => self.heard,
            Some(1) => [0, self.heard[0]],
            _ => [0; 2],
        }
    }

    /// Counts a request of this half.
    pub(super) fn note(&mut self, half: u32) {
        let [newer, older] = self.at(half);
        (self.half, self.heard) = (half, [newer.saturating_add(1), older]);
    }

    /// Returns the requests of this half and of the one before.
    pub(super) fn sum(self, half: u32) -> u32 {
        self.at(half).into_iter().map(u32::from).sum()
    }
}

/// Requests of one session of one address.
#[derive(Clone, Copy, Debug)]
struct StrangerSession {
    address: IpAddr,
    ssid: u16,
    heard: HeardInHalves,
}

/// The sessions of strangers that were heard most of late.
#[derive(Debug, Default)]
pub(super) struct StrangerTable([Option<StrangerSession>; STRANGERS_MAX]);

impl StrangerTable {
    /// Counts a request. A session that is new takes the place of one that was heard less than
    /// twice, so that a flood of forged ones removes none that returns.
    pub(super) fn note(&mut self, address: IpAddr, ssid: u16, half: u32) {
        let address = address.to_canonical();
        let is_it = |place: &&mut Option<StrangerSession>| {
            place.is_some_and(|session| (session.address, session.ssid) == (address, ssid))
        };
        if let Some(Some(known)) = self.0.iter_mut().find(is_it) {
            known.heard.note(half);
            return;
        }
        let requests = |place: &Option<StrangerSession>| place.map_or(0, |session| session.heard.sum(half));
        let least = self.0.iter_mut().min_by_key(|place| requests(place)).filter(|place| requests(place) < 2);
        if let Some(place) = least {
            *place = Some(StrangerSession { address, ssid, heard: HeardInHalves { half, heard: [1, 0] } });
        }
    }

    /// Returns what was heard in this half and the one before.
    pub(super) fn list(&self, half: u32) -> impl Iterator<Item = Stranger> {
        let of =
            move |it: &StrangerSession| Stranger { address: it.address, ssid: it.ssid, requests: it.heard.sum(half) };
        self.0.iter().flatten().map(of).filter(|stranger| stranger.requests > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn requests_of_a_session_are_counted_in_two_halves() {
        let mut strangers = StrangerTable::default();
        for half in [0, 0, 1, 1] {
            strangers.note(host(1), 6, half);
        }
        let requests =
            |half| strangers.list(half).map(|stranger| (stranger.ssid, stranger.requests)).collect::<Vec<_>>();
        assert_eq!([1, 2, 3].map(requests), [vec![(6, 4)], vec![(6, 2)], vec![]]);
    }

    #[test]
    fn a_flood_of_forged_sessions_removes_none_that_returns() {
        let mut strangers = StrangerTable::default();
        strangers.note(host(1), 2, 0);
        strangers.note(host(1), 2, 0);
        for forged in 0..10_000 {
            strangers.note(host(2), 4 + 2 * forged, 0);
        }
        let listed: Vec<Stranger> = strangers.list(0).collect();
        assert_eq!(listed.len(), STRANGERS_MAX);
        assert!(listed.contains(&Stranger { address: host(1), ssid: 2, requests: 2 }));
        // All places are taken by sessions that return, until these are silent.
        for ssid in 0..8 {
            for _ in 0..3 {
                strangers.note(host(3), 100 + 2 * ssid, 0);
            }
        }
        strangers.note(host(4), 200, 0);
        assert!(strangers.list(0).all(|stranger| stranger.address != host(4)));
        strangers.note(host(4), 200, 2);
        assert_eq!(strangers.list(2).collect::<Vec<_>>(), [Stranger { address: host(4), ssid: 200, requests: 1 }]);
    }
}
