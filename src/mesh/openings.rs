//! Requests to agents for their reports, a few at a time.
//!
//! An agent may answer as slowly as it likes, and many may do so at once. So no agent has more than
//! its share of the time: what is left of it, divided among the agents that are still to be asked
//! ([`share`]). However many use up their share, there is time for all others. An agent that was
//! given up at its share is asked again after all others, as those are that did not answer in
//! the round before.
//!
//! A judge holds the reports of its requests as a whole: compact ones. So no agent can delay it
//! while a report is being read. For a reader, JSON of any length is read piece by piece, one
//! report after the other.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use super::queue::{AgentQueue, Target};
use super::row_error::RowError;
use super::times::Times;
use crate::http::client::{self, GetError, HttpConnection};
use crate::limits::{JUDGE_REQUESTS_MAX, REPORT_REQUESTS_MAX};
use crate::report;
use crate::report::compact::{self, NotCompact};

const JSON: &str = "application/json";
/// Least share of a request. An agent on another continent answers within it. If more than 500 of
/// 5,000 agents use it up in one round, some others are not asked before the next.
const SHARE_MIN: Duration = Duration::from_millis(250);
/// The part of a judge's time in which the agents are asked that answered in the round before. The
/// rest belongs to those that did not, and to those that were given up.
const FIRST_PART: f64 = 0.75;

/// An answer to a request for a report.
pub enum Opened {
    /// A report in JSON, of which the head has arrived.
    Json(HttpConnection, Incoming),
    /// A whole compact report.
    Compact(Vec<u8>),
}

/// Returns the share of one of `waiting` agents of the time that is `left`, if this many are asked
/// at once. A share is at least `least`, and then they may have less time in all than they need.
pub fn share(left: Duration, waiting: usize, at_once: usize, least: Duration) -> Duration {
    let left = left.saturating_mul(u32::try_from(at_once).unwrap_or(u32::MAX));
    let share = left / u32::try_from(waiting.max(1)).unwrap_or(u32::MAX);
    // People read it.
    Duration::from_millis(u64::try_from(share.as_millis()).unwrap_or(u64::MAX)).max(least)
}

struct Request {
    target: Target,
    /// Whether it is given up at its share, before the time that an agent may take.
    is_short: bool,
    opening: Pin<Box<dyn Future<Output = Result<Opened, RowError>>>>,
}

/// Requests to agents that are in flight or answered.
pub struct Openings<'a> {
    queue: &'a RefCell<AgentQueue>,
    in_flight: Vec<Request>,
    answered: VecDeque<(Target, Result<Opened, RowError>)>,
    until: Instant,
    times: Times,
    at_once: usize,
    /// The pause between two requests of a judge. None if the collection is for a reader.
    pause: Option<Duration>,
    /// When a judge's next request may begin, and what wakes it then.
    next: Instant,
    wake: Pin<Box<Sleep>>,
}

impl<'a> Openings<'a> {
    /// Makes the requests to the agents of a queue, which end at `until`. `pause` is that of a
    /// judge between two of them.
    pub fn new(queue: &'a RefCell<AgentQueue>, until: Instant, times: Times, pause: Option<Duration>) -> Self {
        let at_once = if pause.is_some() { JUDGE_REQUESTS_MAX } else { REPORT_REQUESTS_MAX };
        let (in_flight, answered) = (Vec::with_capacity(at_once), VecDeque::new());
        let next = Instant::now();
        Self { queue, in_flight, answered, until, times, at_once, pause, next, wake: Box::pin(sleep_until(next)) }
    }

    /// Advances all requests that are in flight, and starts further ones if there is room.
    pub fn drive(&mut self, cx: &mut Context<'_>) {
        self.start(cx);
        while self.advance(cx) {
            self.start(cx);
        }
    }

    fn start(&mut self, cx: &mut Context<'_>) {
        while self.count() < self.at_once && self.is_time(cx) {
            // The agent that is asked now is one of these.
            let waiting = self.queue.borrow().waiting_count();
            let Some(target) = self.queue.borrow_mut().next() else { break };
            let share = share(self.left(target.is_late), waiting, self.at_once, SHARE_MIN);
            let (limit, is_short) = (share.min(self.times.row), share < self.times.row);
            let opening = Box::pin(open(target.address, self.pause.is_some(), limit, self.until, self.times));
            self.in_flight.push(Request { target, is_short, opening });
        }
    }

    /// Advances all requests. Returns whether an agent was put off, so that there is room for
    /// another.
    fn advance(&mut self, cx: &mut Context<'_>) -> bool {
        let (mut at, mut has_put_off) = (0, false);
        while let Some(Request { opening, .. }) = self.in_flight.get_mut(at) {
            if let Poll::Ready(opened) = opening.as_mut().poll(cx) {
                let Request { target, is_short, .. } = self.in_flight.remove(at);
                let is_late = matches!(opened, Err(RowError::Get(GetError::Time(_))));
                if is_late && is_short && self.queue.borrow_mut().put_off(&target) {
                    has_put_off = true;
                } else {
                    self.answered.push_back((target, opened));
                }
            } else {
                at += 1;
            }
        }
        has_put_off
    }

    /// Returns the time that is left for the agents that are asked now. A judge keeps a part for
    /// those that come last.
    fn left(&self, is_late: bool) -> Duration {
        let left = self.until.saturating_duration_since(Instant::now());
        if self.pause.is_none() || is_late {
            return left;
        }
        left.saturating_sub(self.times.collection.mul_f64(1.0 - FIRST_PART))
    }

    /// Returns the number of agents that are being asked or have answered.
    pub fn count(&self) -> usize {
        self.in_flight.len() + self.answered.len()
    }

    /// Whether a request may begin now. If so, the next may begin after a judge's pause.
    fn is_time(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(pause) = self.pause else { return true };
        let now = Instant::now();
        if now >= self.until {
            return false;
        }
        if now < self.next {
            self.wake.as_mut().reset(self.next);
            // It is not ready: it was set to a later time.
            let _ = self.wake.as_mut().poll(cx);
            return false;
        }
        // Timers have a resolution of a millisecond, so what was missed is made up for. It is not
        // if there was no room: then the agents are slow.
        let most = pause.saturating_mul(u32::try_from(self.at_once).unwrap_or(u32::MAX));
        self.next = (self.next + pause).max(now.checked_sub(most).unwrap_or(now));
        true
    }

    /// Returns the next agent that has answered or failed; `None` if there are no more agents, or
    /// if a judge has no time for them.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Target, Result<Opened, RowError>)>> {
        self.drive(cx);
        let is_over = self.queue.borrow().is_empty() || Instant::now() >= self.until;
        match self.answered.pop_front() {
            None if !self.in_flight.is_empty() || self.pause.is_some() && !is_over => Poll::Pending,
            next => Poll::Ready(next),
        }
    }
}

async fn open(
    address: SocketAddr,
    is_for_judge: bool,
    limit: Duration,
    until: Instant,
    times: Times,
) -> Result<Opened, RowError> {
    let opening = async {
        let (mut link, response) =
            client::open(address, report::PATH, is_for_judge.then_some(compact::MEDIA_TYPE)).await?;
        let (head, body) = response.into_parts();
        if !is_for_judge {
            return Ok(Opened::Json(link, body));
        }
        let is_of_type = |media_type: &str| head.headers.get(CONTENT_TYPE).is_some_and(|value| value == media_type);
        if is_of_type(compact::MEDIA_TYPE) {
            return Ok(Opened::Compact(link.collect(body, compact::BYTES_MAX).await?));
        }
        // An agent that does not know our form answers with the other one.
        Err(if is_of_type(JSON) { RowError::OtherVersion } else { NotCompact.into() })
    };
    let answer = GetError::Time(limit).into();
    in_time(opening, [(Instant::now() + limit, answer), (until, RowError::NoTime(times.collection))]).await
}

/// Waits for `waiting`, at most until the first of `limits`. Returns the error of that moment
/// if it passes first.
pub async fn in_time<T, const N: usize>(
    waiting: impl Future<Output = Result<T, RowError>>,
    limits: [(Instant, RowError); N],
) -> Result<T, RowError> {
    let Some((due, late)) = limits.into_iter().min_by_key(|(due, _)| *due) else { return waiting.await };
    if Instant::now() >= due {
        return Err(late);
    }
    match timeout_at(due, waiting).await {
        Ok(done) => done,
        Err(_) => Err(late),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use super::*;
    use crate::limits::JUDGE_REQUEST_PAUSE;

    #[tokio::test(start_paused = true)]
    async fn a_judge_asks_at_an_even_pace_and_makes_up_for_short_delays_alone() {
        let queue = RefCell::new(AgentQueue::new(VecDeque::new(), 9, Arc::default()));
        let (until, pause) = (Instant::now() + Duration::from_mins(1), Duration::from_micros(2_500));
        let mut openings = Openings::new(&queue, until, Times::default(), Some(pause));
        let mut cx = Context::from_waker(Waker::noop());
        let mut begun = |openings: &mut Openings<'_>| (0..1_000).take_while(|_| openings.is_time(&mut cx)).count();
        assert_eq!(begun(&mut openings), 1);
        let mut count = 0;
        for _ in 0..100 {
            // A timer of 2.5 ms comes after 3.
            tokio::time::advance(Duration::from_millis(3)).await;
            count += begun(&mut openings);
        }
        assert_eq!(count, 120);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(begun(&mut openings), JUDGE_REQUESTS_MAX + 2);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(begun(&mut openings), 0, "the collection is over");
    }

    /// Asks `nodes` agents as a judge does, of which the first `slow` use up their share. Returns
    /// how many are asked in the time of a collection, and when the last of them is.
    fn asked(nodes: usize, slow: usize) -> (usize, Duration) {
        let Times { collection, row, .. } = Times::default();
        let first = collection.mul_f64(FIRST_PART);
        let (mut free_at, mut next) = (vec![Duration::ZERO; JUDGE_REQUESTS_MAX], Duration::ZERO);
        for asked in 0..nodes {
            let free = free_at.iter_mut().min().expect("a slot");
            let now = next.max(*free);
            if now >= collection {
                return (asked, now);
            }
            let share = share(first.saturating_sub(now), nodes - asked, JUDGE_REQUESTS_MAX, SHARE_MIN).min(row);
            *free = now + if asked < slow { share } else { Duration::from_millis(5) };
            next = now + JUDGE_REQUEST_PAUSE;
        }
        (nodes, next)
    }

    #[test]
    fn however_many_agents_use_up_their_share_all_others_are_asked_in_the_round() {
        for (nodes, slow) in [(24, 4), (24, 23), (300, 150), (300, 299), (900, 899), (5_000, 500)] {
            let (asked, last) = asked(nodes, slow);
            assert_eq!(asked, nodes, "{slow} of {nodes} are slow: the last at {last:?}");
        }
    }
}
