//! The system's allocator, which counts what the calling thread requests between two calls.
#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What the thread requested since [`begin`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Allocations. A reallocation that grows or shrinks a block counts as one.
    pub allocations: u64,
    /// Blocks that the thread freed.
    pub frees: u64,
    /// Bytes of all allocations. A block that grows counts with its whole new size.
    pub bytes: u64,
    /// Bytes allocated and not freed. Below zero if blocks from before [`begin`] were freed.
    pub held: i64,
    /// The highest value of `held`.
    pub peak: i64,
}

thread_local! {
    // The cell has no destructor and is initialized in place, so its use allocates nothing.
    static ASKED: Cell<Asked> = const { Cell::new(Asked { allocations: 0, frees: 0, bytes: 0, held: 0, peak: 0 }) };
}

/// Sets all counts of this thread to zero.
pub fn begin() {
    ASKED.set(Asked::default());
}

/// Returns what this thread requested since [`begin`].
pub fn asked() -> Asked {
    ASKED.get()
}

/// The system's allocator with counters per thread.
pub struct Counting;

fn note(allocated: Option<usize>, freed: Option<usize>) {
    let signed = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
    let mut asked = ASKED.get();
    if let Some(bytes) = allocated {
        asked.allocations += 1;
        asked.bytes += bytes as u64;
        asked.held += signed(bytes);
    } else {
        asked.frees += 1;
    }
    asked.held -= freed.map_or(0, signed);
    asked.peak = asked.peak.max(asked.held);
    ASKED.set(asked);
}

// SAFETY: everything is the system allocator's own; counting touches no memory but a cell of the
// thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(Some(layout.size()), None);
        // SAFETY: the caller's promises are those that it wants.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(Some(layout.size()), None);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(Some(size), Some(layout.size()));
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(None, Some(layout.size()));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}
