//! A wall around work on what other pods have sent. A panic in that work ends it, and the agent
//! probes on.
//!
//! Any other panic ends the program: nothing is known of the state that it leaves behind. Neither
//! does the wall hold what is no panic: memory or a stack that is used up ends the program too.

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

thread_local! {
    /// Whether this thread works within the wall.
    static WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// Number of works that have ended in a panic.
static ENDED: AtomicU64 = AtomicU64::new(0);

/// Makes a panic outside of the wall call `end`, which ends the program. One within it is logged,
/// the first time.
pub fn build(end: fn()) {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !WITHIN.get() {
            report(info);
            return end();
        }
        if ENDED.load(Ordering::Relaxed) == 0 {
            log::error!("what other agents sent could not be judged, and is dropped; probing goes on: {info}");
        }
    }));
}

/// Does work within the wall. `None` if it has ended in a panic. What it has changed must then be
/// dropped, or be sound in any state.
pub fn around<T>(work: impl FnOnce() -> T) -> Option<T> {
    let before = WITHIN.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work)).ok();
    WITHIN.set(before);
    if done.is_none() {
        ENDED.fetch_add(1, Ordering::Relaxed);
    }
    done
}

/// Does the same with work that waits.
pub fn within<T>(work: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
    let mut work = Box::pin(work);
    poll_fn(move |cx| match around(|| work.as_mut().poll(cx)) {
        Some(polled) => polled.map(Some),
        None => Poll::Ready(None),
    })
}

/// Returns the number of works that have ended in a panic.
pub fn ended() -> u64 {
    ENDED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panics() {
        panic!("by a report that was not thought of");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_panic_ends_the_work_that_it_is_in_and_no_other() {
        let before = ended();
        assert_eq!(within(async { 7 }).await, Some(7));
        let work = async {
            tokio::task::yield_now().await;
            panics();
            7
        };
        assert_eq!(within(work).await, None);
        assert!(!WITHIN.get());
        let nested = within(async { (around(panics), WITHIN.get()) });
        assert_eq!(nested.await, Some((None, true)), "the work around it goes on, within the wall");
        assert!(ended() >= before + 2);
    }
}
