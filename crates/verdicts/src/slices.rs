//! Walks over the cells of a large mesh take longer than other requests of the same HTTP worker
//! should wait. So they pause after each slice, and the others have their turn.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Cells that a walk visits between two pauses: 0.2 to 1 ms.
const CELLS: usize = 4_096;

/// The cells that a walk has visited since its last pause.
#[derive(Default)]
pub struct Slice(usize);

impl Slice {
    /// Adds cells. Pauses if the slice is complete.
    pub async fn add(&mut self, cells: usize) {
        self.0 += cells;
        if self.0 >= CELLS {
            self.0 = 0;
            yield_now().await;
        }
    }
}

/// Pauses once, so that other tasks run.
pub async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Runs walks without a pause. They wait for nothing else.
pub fn at_once<T>(walks: impl Future<Output = T>) -> T {
    let (mut walks, mut context) = (pin!(walks), Context::from_waker(Waker::noop()));
    loop {
        if let Poll::Ready(done) = walks.as_mut().poll(&mut context) {
            return done;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_pauses_after_each_slice_and_nowhere_else() {
        let walk = async {
            let mut slice = Slice::default();
            for _ in 0..100 {
                slice.add(CELLS / 10).await;
            }
        };
        let (mut walk, mut context) = (pin!(walk), Context::from_waker(Waker::noop()));
        // A tenth is rounded down, so a slice takes eleven.
        let pauses = (0..100).take_while(|_| walk.as_mut().poll(&mut context).is_pending()).count();
        assert_eq!(pauses, 100 / 11);
    }
}
