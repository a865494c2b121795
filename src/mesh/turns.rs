//! Turns of readers whose answers cost other agents work: one at a time, with a pause after each.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

/// The pause after a turn is this many times as long as the turn worked. A client that asks without
/// end takes a tenth of a CPU.
const PAUSE_FACTOR: u32 = 9;
/// Upper bound of the pause by [`PAUSE_FACTOR`], so that the next reader gets its turn.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Lets one reader at a time make work.
pub struct ReaderTurns {
    permits: Arc<Semaphore>,
    waiting: Semaphore,
    /// When the next turn may begin. `None` before the first.
    next: Arc<Mutex<Option<Instant>>>,
}

/// The turn of a reader. It ends when it is dropped.
pub struct ReaderTurn {
    begun: Instant,
    least: Duration,
    /// Time that it was running, without the time it waited for agents or for its reader.
    worked: Cell<Duration>,
    next: Arc<Mutex<Option<Instant>>>,
    _permit: OwnedSemaphorePermit,
}

impl ReaderTurns {
    /// Makes turns for which this many readers may wait. More are refused.
    pub fn new(waiters: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(1)), waiting: Semaphore::new(waiters), next: Arc::default() }
    }

    /// Waits until the turn before and its pause have ended. The next turn begins `least` after
    /// this one at the earliest. `None` if the wait is too long, or if too many readers wait.
    pub async fn turn(&self, wait: Duration, least: Duration) -> Option<ReaderTurn> {
        let _waiting = self.waiting.try_acquire().ok()?;
        let end = Instant::now() + wait;
        let permit = timeout(wait, Arc::clone(&self.permits).acquire_owned()).await.ok()?.ok()?;
        let next = *self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(next) = next {
            if next > end {
                return None;
            }
            sleep_until(next).await;
        }
        let next = Arc::clone(&self.next);
        Some(ReaderTurn { begun: Instant::now(), least, worked: Cell::default(), next, _permit: permit })
    }
}

impl ReaderTurn {
    /// Does work, and counts its time.
    pub async fn work<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            let begun = Instant::now();
            let done = work.as_mut().poll(cx);
            self.worked.update(|worked| worked + begun.elapsed());
            done
        })
        .await
    }
}

impl Drop for ReaderTurn {
    fn drop(&mut self) {
        let pause = (self.worked.get() * PAUSE_FACTOR).min(PAUSE_MAX);
        // Also if the reader went away before the end: the others were asked all the same.
        let next = (Instant::now() + pause).max(self.begun + self.least);
        // This is set before the next turn begins, because the permit is dropped later.
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Waker};

    const WAIT: Duration = Duration::from_secs(8);
    const LEAST: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn one_reader_at_a_time_is_answered_and_one_in_the_least_time() {
        let turns = ReaderTurns::new(4);
        let first = turns.turn(WAIT, LEAST).await.expect("nothing runs");
        let begun = Instant::now();
        assert!(turns.turn(WAIT, LEAST).await.is_none() && begun.elapsed() >= WAIT, "the first has not ended");
        drop(first);
        let second = turns.turn(WAIT, LEAST).await.expect("the first has ended");
        let begun = Instant::now();
        drop(second);
        assert!(turns.turn(WAIT, WAIT * 2).await.is_some() && begun.elapsed() >= LEAST);
        let begun = Instant::now();
        assert!(turns.turn(WAIT, LEAST).await.is_none() && begun.elapsed() < LEAST, "refused at once");
    }

    #[tokio::test]
    async fn few_readers_may_wait() {
        let turns = ReaderTurns::new(4);
        let _first = turns.turn(WAIT, LEAST).await;
        let mut waiting: Vec<_> = (0..4).map(|_| Box::pin(turns.turn(WAIT, LEAST))).collect();
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(waiting.iter_mut().all(|turn| turn.as_mut().poll(cx).is_pending()));
        assert!(pin!(turns.turn(WAIT, LEAST)).poll(cx).is_ready(), "refused at once");
    }
}
