//! Counts what a thread requests from the allocator while that thread is watched.

use std::cell::Cell;

use kube_canary::allocator::finder::{AllocationRequest, observe};

/// What a thread requested from the allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Allocations. A reallocation that grows or shrinks a block counts as one.
    pub allocations: u64,
    /// Blocks that the thread freed.
    pub frees: u64,
    /// Bytes allocated and not freed. Below zero if older blocks were freed.
    pub bytes: i64,
    /// The highest value of `bytes`.
    pub peak: i64,
}

thread_local! {
    // The cells have no destructor and are initialized in place, so their use allocates nothing.
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    static ASKED: Cell<Asked> = const { Cell::new(Asked { allocations: 0, frees: 0, bytes: 0, peak: 0 }) };
}

/// Runs `what`, and returns its result and what this thread requested while it ran.
pub fn watch<T>(what: impl FnOnce() -> T) -> (T, Asked) {
    observe(observed);
    ASKED.set(Asked::default());
    WATCHED.set(true);
    let done = what();
    WATCHED.set(false);
    (done, ASKED.get())
}

fn note(change: impl FnOnce(&mut Asked)) {
    if WATCHED.get() {
        let mut asked = ASKED.get();
        change(&mut asked);
        asked.peak = asked.peak.max(asked.bytes);
        ASKED.set(asked);
    }
}

fn bytes(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// Receives every allocator request of any thread.
fn observed(request: AllocationRequest) {
    note(|asked| match request {
        AllocationRequest::Allocate(size) => {
            asked.allocations += 1;
            asked.bytes += bytes(size);
        }
        AllocationRequest::Resize { from, to } => {
            asked.allocations += 1;
            asked.bytes += bytes(to) - bytes(from);
        }
        AllocationRequest::Free(size) => {
            asked.frees += 1;
            asked.bytes -= bytes(size);
        }
    });
}

#[test]
fn every_allocation_is_counted() {
    let (mut held, asked) = watch(|| vec![0u8; 100]);
    assert_eq!(asked, Asked { allocations: 1, frees: 0, bytes: 100, peak: 100 });
    let ((), asked) = watch(|| held.reserve_exact(200));
    assert_eq!(asked, Asked { allocations: 1, frees: 0, bytes: 200, peak: 200 });
    let ((), asked) = watch(|| drop(held));
    assert_eq!(asked, Asked { allocations: 0, frees: 1, bytes: -300, peak: 0 });
}
