//! Passes on what a judge keeps of all nodes, to readers of an agent that is none.
//!
//! An agent asks for one document at a time, and at most once in a second, however many readers it
//! has. It holds a frame of the document, not the whole. The bytes come from another pod: they are
//! bounded in number and time, and can make only this answer wrong.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

use super::super::lock;
use super::PATH;
use crate::http::Reply;
use crate::http::client::{self, Link};
use crate::limits::NODES_DOCUMENT_BYTES_MAX;
use crate::mesh::Times;
use crate::mesh::frame_writer::{FrameWriter, WrittenBody};
use crate::peers::Ranked;

/// Time from one document to the next.
const PAUSE: Duration = Duration::from_secs(1);
/// Readers that wait for the document before theirs.
const WAITERS_MAX: usize = 4;
/// Bytes that are written at a time.
const PART_BYTES: usize = 1_024;

/// Lets one reader at a time ask a judge.
pub struct Relay {
    turn: Arc<Semaphore>,
    waiting: Semaphore,
    next: Mutex<Option<Instant>>,
}

impl Relay {
    /// Makes the relay of an agent.
    pub fn new() -> Self {
        let (turn, waiting) = (Arc::new(Semaphore::new(1)), Semaphore::new(WAITERS_MAX));
        Self { turn, waiting, next: Mutex::new(None) }
    }

    /// Answers with the document of the first of these judges that gives one. `port` is that of
    /// members whose port discovery does not give.
    pub async fn reply(&self, judges: &[&Ranked], port: u16, times: Times) -> Reply {
        let Some(permit) = self.turn(times.wait).await else {
            return Reply::text(503, "another reader is being answered; try again\n");
        };
        for judge in judges {
            match timeout(times.row, client::open(judge.server(port), PATH, None)).await {
                Ok(Ok((link, response))) => return passed_on((link, response.into_body()), permit, times),
                Ok(Err(error)) => log::debug!("{} gives no nodes: {error}", judge.node),
                Err(_) => log::debug!("{} gives no nodes within {:?}", judge.node, times.row),
            }
        }
        Reply::text(503, "no judge answers, and only judges keep figures of all nodes\n")
    }

    /// Waits until the document before has ended, and for the pause. `None` if that takes too long,
    /// or if too many wait.
    async fn turn(&self, wait: Duration) -> Option<OwnedSemaphorePermit> {
        let _waiting = self.waiting.try_acquire().ok()?;
        let permit = timeout(wait, Arc::clone(&self.turn).acquire_owned()).await.ok()?.ok()?;
        let next = *lock(&self.next);
        if let Some(next) = next {
            sleep_until(next).await;
        }
        *lock(&self.next) = Some(Instant::now() + PAUSE);
        Some(permit)
    }
}

fn passed_on((mut link, mut body): (Link, Incoming), permit: OwnedSemaphorePermit, times: Times) -> Reply {
    let out = FrameWriter::default();
    let frames = out.clone();
    let writer = async move {
        let copied = async {
            let mut left = NODES_DOCUMENT_BYTES_MAX;
            while let Some(Ok(frame)) = link.frame(&mut body).await {
                let Ok(data) = frame.into_data() else { continue };
                let Some(rest) = left.checked_sub(data.len()) else { break };
                left = rest;
                for part in data.chunks(PART_BYTES) {
                    out.write(&[part]).await;
                }
            }
        };
        // A document that breaks off is no JSON, so its reader sees it.
        let _ = timeout(times.whole_row + times.reader, copied).await;
        drop(permit);
    };
    Reply::Live { content_type: "application/json", body: Box::new(WrittenBody::new(frames, writer, times.reader)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    const WAIT: Duration = Duration::from_secs(8);

    #[tokio::test(start_paused = true)]
    async fn one_reader_at_a_time_is_answered_and_one_in_a_second() {
        let relay = Relay::new();
        let first = relay.turn(WAIT).await.expect("nothing runs");
        let begun = Instant::now();
        assert!(relay.turn(WAIT).await.is_none() && begun.elapsed() >= WAIT, "the first has not ended");
        drop(first);
        let second = relay.turn(WAIT).await.expect("the first has ended");
        let begun = Instant::now();
        drop(second);
        assert!(relay.turn(WAIT).await.is_some() && begun.elapsed() >= PAUSE);
    }

    #[tokio::test]
    async fn few_readers_may_wait() {
        let relay = Relay::new();
        let _first = relay.turn(WAIT).await;
        let mut waiting: Vec<_> = (0..WAITERS_MAX).map(|_| Box::pin(relay.turn(WAIT))).collect();
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(waiting.iter_mut().all(|turn| turn.as_mut().poll(cx).is_pending()));
        assert!(pin!(relay.turn(WAIT)).poll(cx).is_ready(), "refused at once");
    }
}
