//! A sequence lock without retry, for data that one thread overwrites in turns (a ring, two halves)
//! while other threads read it.
//!
//! The writer stores the number of the turn that begins, overwrites the oldest data, and stores
//! that the turn is done. A reader loads the number of the last turn that is done and reads the
//! data. Then it loads the number of the last turn that has begun, and drops all data that this
//! turn overwrites. Neither waits for the other, even if the writer loses its CPU during a turn.
//!
//! Boehm, "Can seqlocks get along with programming language memory models?" (MSPC 2012), explains
//! why the fences suffice. If a reader has seen any write after the writer's fence, then after the
//! reader's own fence it sees that the turn has begun.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};

use kube_canary_kernel::atomic;
use zerocopy::FromZeros;

/// Numbers of turns, of 16 or 32 bits, from 0 on. They may wrap, if the reader expects it.
#[derive(Debug, Default, FromZeros)]
pub(super) struct Turns<A> {
    begun: A,
    done: A,
}
atomic!(Turns<A> { begun, done });

macro_rules! turns {
    ($atomic:ty, $number:ty) => {
        impl Turns<$atomic> {
            /// Called by the writer: runs `write` as turn `to`.
            pub(super) fn turn(&self, to: $number, write: impl FnOnce()) {
                self.begun.store(to, Ordering::Relaxed);
                fence(Ordering::Release);
                write();
                self.done.store(to, Ordering::Release);
            }

            /// Returns the last turn that is done. A reader calls it before it reads the data.
            pub(super) fn done(&self) -> $number {
                self.done.load(Ordering::Acquire)
            }

            /// Returns the last turn that may have changed the data. A reader calls it after it
            /// has read the data.
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
