//! Identity requests: when each peer is asked, and how many requests are in progress. DNS discovery
//! asks for names, and `underlay` for the addresses of nodes.
//!
//! [`AskSchedule`] decides and has no clock. [`IdentityRequests`] does the I/O.

use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{IdentityAnswer, ask};
use crate::discovery::random::spread;
use crate::limits::IDENTITY_REQUESTS_MAX;

/// Time until a peer that has answered is asked again, ± 50 %. An address may move to another node.
pub const REFRESH: Duration = Duration::from_mins(10);
/// Time from a failed request to the next, ± 50 %.
pub const RETRY: Duration = Duration::from_secs(20);

/// When a peer is asked.
#[derive(Clone, Copy, Debug)]
pub struct AskSchedule {
    at: Instant,
    in_progress: bool,
    tried: bool,
}

impl AskSchedule {
    /// Makes the schedule of a peer that was never asked.
    pub const fn new(now: Instant) -> Self {
        Self { at: now, in_progress: false, tried: false }
    }

    /// Returns when to ask next. None while a question is in progress.
    pub fn due(&self) -> Option<Instant> {
        (!self.in_progress).then_some(self.at)
    }

    /// Returns whether a question was answered or has failed, at the peer's present address.
    pub const fn is_tried(&self) -> bool {
        self.tried
    }

    /// Marks a question as in progress.
    pub const fn begin(&mut self) {
        self.in_progress = true;
    }

    /// Notes that the peer is at another address. It is asked there at once, or after
    /// the question in progress.
    pub const fn restart(&mut self, now: Instant) {
        (self.at, self.tried) = (now, false);
    }

    /// Ends the question in progress, which was sent to an earlier address of the peer.
    pub const fn outdated(&mut self) {
        self.in_progress = false;
    }

    /// Notes that the question in progress has ended, with an answer or without.
    pub fn ended(&mut self, answered: bool, now: Instant, random: f64) {
        let at = now + spread(if answered { REFRESH } else { RETRY }, 0.5, random);
        *self = Self { at, in_progress: false, tried: true };
    }
}

/// Returns the key of the peer to ask now. Peers that were never asked come first, then the one
/// that is due for longest.
pub fn next_due<'a, K>(peers: impl Iterator<Item = (K, &'a AskSchedule)>, now: Instant) -> Option<K> {
    let due = peers.filter(|(_, schedule)| schedule.due().is_some_and(|at| at <= now));
    due.min_by_key(|(_, schedule)| (schedule.tried, schedule.at)).map(|(key, _)| key)
}

/// A question that is sent to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityQuestion {
    /// The node name that is listed there. Empty if it is not known.
    pub node: Box<str>,
    /// The address of its HTTP server.
    pub server: SocketAddr,
}

/// Sends requests, at most [`IDENTITY_REQUESTS_MAX`] at a time.
pub struct IdentityRequests {
    /// What asks, for the log.
    asks: &'static str,
    timeout: Duration,
    /// Tasks on the same current-thread runtime. They end with this set.
    tasks: JoinSet<(IdentityQuestion, Option<IdentityAnswer>)>,
}

impl IdentityRequests {
    /// Makes an empty set.
    pub fn new(asks: &'static str, timeout: Duration) -> Self {
        Self { asks, timeout, tasks: JoinSet::new() }
    }

    /// Returns whether another request may start.
    pub fn has_room(&self) -> bool {
        self.tasks.len() < IDENTITY_REQUESTS_MAX
    }

    /// Sends the questions that `next` returns, as long as there is room.
    pub fn start(&mut self, mut next: impl FnMut() -> Option<IdentityQuestion>) {
        while self.has_room()
            && let Some(question) = next()
        {
            let (asks, timeout) = (self.asks, self.timeout);
            self.tasks.spawn(async move {
                let IdentityQuestion { node, server } = &question;
                // Not a warning: a peer that starts later than we do is normal, and is asked again.
                let failed = |error: &_| log::debug!("{asks}: asking {node:?} at {server}: {error}");
                let answer = ask(*server, timeout).await.inspect_err(failed).ok();
                (question, answer)
            });
        }
    }

    /// Waits for the end of a request. Without any in progress, it waits for ever.
    pub async fn ended(&mut self) -> (IdentityQuestion, Option<IdentityAnswer>) {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(ended)) => return ended,
                // Only a panic ends a task without a result, and the release build aborts on a
                // panic.
                Some(Err(error)) => log::error!("{}: {error}", self.asks),
                None => pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(peers: &[(char, AskSchedule)], now: Instant) -> Option<char> {
        next_due(peers.iter().map(|(key, schedule)| (*key, schedule)), now)
    }

    #[test]
    fn peers_that_were_never_asked_come_first_and_each_has_one_question_in_progress() {
        let start = Instant::now();
        let (mut tried, later) = (AskSchedule::new(start), start + REFRESH);
        tried.ended(false, start, 0.0);
        let mut peers = [('a', tried), ('b', AskSchedule::new(later))];
        assert_eq!(next(&peers, start), None, "neither is due");
        assert_eq!(next(&peers, later), Some('b'));
        peers[1].1.begin();
        assert_eq!((next(&peers, later), peers[1].1.due()), (Some('a'), None));
        peers[0].1.begin();
        assert_eq!(next(&peers, later), None);
    }

    #[test]
    fn answers_and_failures_are_repeated_after_half_to_one_and_a_half_of_their_time() {
        let now = Instant::now();
        for (answered, middle) in [(true, REFRESH), (false, RETRY)] {
            for (random, part) in [(0.0, 0.5), (0.5, 1.0)] {
                let mut schedule = AskSchedule::new(now);
                schedule.ended(answered, now, random);
                assert_eq!((schedule.due(), schedule.is_tried()), (Some(now + middle.mul_f64(part)), true));
            }
        }
    }

    #[test]
    fn a_peer_at_another_address_is_asked_there_after_the_question_in_progress() {
        let now = Instant::now();
        let mut schedule = AskSchedule::new(now);
        schedule.begin();
        schedule.restart(now + RETRY);
        assert_eq!(schedule.due(), None);
        schedule.outdated();
        assert_eq!((schedule.due(), schedule.is_tried()), (Some(now + RETRY), false));
    }
}
