//! The system's allocator, which counts what a thread asks of it while that thread is watched.
#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What a thread asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Allocations, those that grow or shrink one among them.
    pub allocations: u64,
    /// Given back.
    pub frees: u64,
    /// Allocated and not given back; below zero where older ones were.
    pub bytes: i64,
    /// The most of those at once.
    pub peak: i64,
}

thread_local! {
    // Without a destructor and initialized in place: to use them allocates nothing.
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    static ASKED: Cell<Asked> = const { Cell::new(Asked { allocations: 0, frees: 0, bytes: 0, peak: 0 }) };
}

/// The allocator of this test binary.
pub struct Counting;

/// What this thread asks for while it does `what`.
pub fn watch<T>(what: impl FnOnce() -> T) -> (T, Asked) {
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

// SAFETY: everything is the system allocator's own; counting touches no memory but two cells of the thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(|asked| {
            asked.allocations += 1;
            asked.bytes += bytes(layout.size());
        });
        // SAFETY: the caller's promises are those that it wants.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(|asked| {
            asked.allocations += 1;
            asked.bytes += bytes(layout.size());
        });
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(|asked| {
            asked.allocations += 1;
            asked.bytes += bytes(size) - bytes(layout.size());
        });
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(|asked| {
            asked.frees += 1;
            asked.bytes -= bytes(layout.size());
        });
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[test]
fn what_is_asked_for_is_counted() {
    let (mut held, asked) = watch(|| vec![0u8; 100]);
    assert_eq!(asked, Asked { allocations: 1, frees: 0, bytes: 100, peak: 100 });
    let ((), asked) = watch(|| held.reserve_exact(200));
    assert_eq!(asked, Asked { allocations: 1, frees: 0, bytes: 200, peak: 200 });
    let ((), asked) = watch(|| drop(held));
    assert_eq!(asked, Asked { allocations: 0, frees: 1, bytes: -300, peak: 0 });
}
