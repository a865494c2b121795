//! A check that asks other members whether they judge. It may take seconds, so it goes on beside
//! the judgements of this agent.

use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use tokio::time::sleep;

use super::role::Seen;
use crate::sys::clock;
use crate::units::Nanos;

/// The check of an agent. There is one at a time.
#[derive(Default)]
pub enum RankCheck<'a> {
    /// No check has begun.
    #[default]
    Idle,
    /// It waits for answers.
    Asks(Pin<Box<dyn Future<Output = Seen> + 'a>>),
    /// It has found this.
    Done(Seen),
}

impl RankCheck<'_> {
    /// Whether the next check may begin.
    pub const fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }

    /// Takes what the check has found, once it is done.
    pub fn take(&mut self) -> Option<Seen> {
        let Self::Done(seen) = *self else { return None };
        *self = Self::Idle;
        Some(seen)
    }

    /// Waits until the check is done, or until this moment, if there is one.
    pub async fn wait(&mut self, until: Option<Nanos>) {
        let timer = async {
            match until {
                Some(until) => sleep(until.since(clock::monotonic()).into()).await,
                None => pending().await,
            }
        };
        let mut timer = pin!(timer);
        poll_fn(|cx| if self.is_done(cx) { Poll::Ready(()) } else { timer.as_mut().poll(cx) }).await;
    }

    /// Waits for `work`. The check goes on meanwhile.
    pub async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            self.is_done(cx);
            work.as_mut().poll(cx)
        })
        .await
    }

    /// Lets the check go on. Returns whether it is done.
    fn is_done(&mut self, cx: &mut Context<'_>) -> bool {
        if let Self::Asks(asking) = self
            && let Poll::Ready(seen) = asking.as_mut().poll(cx)
        {
            *self = Self::Done(seen);
        }
        matches!(self, Self::Done(_))
    }
}
