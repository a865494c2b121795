//! A sequence lock without its retry, for what one thread overwrites in turns (a ring, two halves)
//! and others read meanwhile.
//!
//! The writer stores which turn begins, overwrites the oldest data, and stores that the turn is
//! done. A reader loads the number of the last turn that is done, reads the data, and loads which
//! turn has begun by then. It drops all that this turn overwrites. Neither waits for the other,
//! even if the writer loses its CPU in the middle of a turn.
//!
//! Boehm, "Can seqlocks get along with programming language memory models?" (MSPC 2012), has why
//! the fences suffice: a reader that has seen anything written after the writer's fence sees after
//! its own that the turn has begun.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};

/// The numbers of the turns, of 16 or 32 bits, from 0 on; they may wrap, if the reader knows.
#[derive(Debug, Default)]
pub(super) struct Turns<A> {
    begun: A,
    done: A,
}

macro_rules! turns {
    ($atomic:ty, $number:ty) => {
        impl Turns<$atomic> {
            /// The writer's: does all of `write` as a part of turn `to`.
            pub(super) fn turn(&self, to: $number, write: impl FnOnce()) {
                self.begun.store(to, Ordering::Relaxed);
                fence(Ordering::Release);
                write();
                self.done.store(to, Ordering::Release);
            }

            /// The last turn that is done. To be asked before reading.
            pub(super) fn done(&self) -> $number {
                self.done.load(Ordering::Acquire)
            }

            /// The last turn of which anything may have been read. To be asked after reading.
            pub(super) fn begun(&self) -> $number {
                fence(Ordering::Acquire);
                self.begun.load(Ordering::Relaxed)
            }
        }
    };
}

turns!(AtomicU16, u16);
turns!(AtomicU32, u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_within_a_turn_learns_that_it_has_begun() {
        let turns = Turns::<AtomicU16>::default();
        turns.turn(7, || assert_eq!((turns.done(), turns.begun()), (0, 7)));
        assert_eq!((turns.done(), turns.begun()), (7, 7));
    }
}
