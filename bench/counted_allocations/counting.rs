//! The system's allocator, which counts what this thread asks of it between two calls.
#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What was asked for since [`begin`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Allocations, those that grow or shrink one among them.
    pub allocations: u64,
    /// Given back.
    pub frees: u64,
    /// Bytes of all allocations; of one that grows, all of its new size.
    pub bytes: u64,
    /// Bytes allocated and not given back; below zero where older ones were.
    pub held: i64,
    /// The most of those at once.
    pub peak: i64,
}

thread_local! {
    // Without a destructor and initialized in place: to use it allocates nothing.
    static ASKED: Cell<Asked> = const { Cell::new(Asked { allocations: 0, frees: 0, bytes: 0, held: 0, peak: 0 }) };
}

/// Counts from zero.
pub fn begin() {
    ASKED.set(Asked::default());
}

/// What was asked for since.
pub fn asked() -> Asked {
    ASKED.get()
}

/// The allocator.
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

// SAFETY: everything is the system allocator's own; counting touches no memory but a cell of the thread.
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
