//! Finds allocations that are never freed. Follows every live allocation with its call stack, on
//! top of any malloc that the build has (feature `leak-finder`; docs/adr/0009-leak-finder.md has
//! the reasons).
//!
//! Nothing is followed by default. [`mark`] starts for the whole process, and [`report`] is called
//! at its end. A [`LeakScope`] follows one thread, which is how the tests use it. Earlier
//! allocations are the baseline and are never reported: planned tables and statics of the process
//! belong before the mark. A block that grows counts as a new allocation by the code that grew it.
//!
//! Traps:
//!
//! - The finder's own allocations must not be followed, or it would never end (`BUSY`).
//! - An address must be removed before it is freed. Otherwise another thread that gets the same
//!   address loses its entry.
//! - The blocks are the malloc's own, without a header of ours, because [`super::info`] asks the
//!   malloc about them.
#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]

mod live;
mod site;

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use live::{LiveAllocation, live_allocations};
use site::CallStack;
pub use site::Leak;

#[cfg(not(feature = "jemalloc"))]
const MALLOC: std::alloc::System = std::alloc::System;
#[cfg(feature = "jemalloc")]
const MALLOC: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The global allocator that a build with the leak finder uses.
#[derive(Debug)]
pub struct Finder;

/// A request of the program to its allocator. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationRequest {
    /// Allocates a block of this size.
    Allocate(usize),
    /// Changes the size of a block.
    Resize {
        /// The size of the block before the call.
        from: usize,
        /// The requested new size of the block.
        to: usize,
    },
    /// Frees a block of this size.
    Free(usize),
}

/// Number of scopes that follow now. If it is 0, there is no entry to remove.
static FOLLOWING: AtomicUsize = AtomicUsize::new(0);
/// The scope of all threads that have no scope of their own. 0 means that there is none.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static OBSERVER: OnceLock<fn(AllocationRequest)> = OnceLock::new();

thread_local! {
    // These have no destructor and are initialized in place. So using them allocates nothing at any
    // moment of a thread's life.
    static SCOPE: Cell<u32> = const { Cell::new(0) };
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Starts to follow all allocations of the process. Only the first call has an effect.
pub fn mark() {
    if PROCESS.load(Ordering::Relaxed) == 0 {
        // std's buffer for standard output belongs to the process from its first use on.
        let _ = std::io::stdout();
        PROCESS.store(next(), Ordering::Relaxed);
        FOLLOWING.fetch_add(1, Ordering::SeqCst);
    }
}

/// Reports the allocations made since [`mark`] that are still live: one line of standard error for
/// each call site, the largest first. Call it when everything that was started has ended. Without a
/// mark it reports nothing.
pub fn report() {
    let scope = PROCESS.load(Ordering::Relaxed);
    if scope != 0 {
        for leak in leaks(scope) {
            // A reader that is gone ends no test.
            let _ = writeln!(std::io::stderr(), "{leak}");
        }
    }
}

/// Follows the allocations of this thread until it is dropped, even if another thread frees them.
#[derive(Debug)]
pub struct LeakScope {
    number: u32,
    outer: u32,
}

impl LeakScope {
    /// Starts a scope on this thread. Of nested scopes, only the innermost follows the thread.
    #[must_use]
    pub fn begin() -> Self {
        Self::numbered(next())
    }

    /// Starts a scope that records live allocations without call stacks: a
    /// call stack takes microseconds.
    #[must_use]
    pub fn without_stacks() -> Self {
        Self::numbered(next() | WITHOUT_STACKS)
    }

    fn numbered(number: u32) -> Self {
        FOLLOWING.fetch_add(1, Ordering::SeqCst);
        Self { number, outer: SCOPE.replace(number) }
    }

    /// Adds the current thread to a scope, until the thread ends or starts a scope of its own.
    pub fn adopt(number: ScopeNumber) {
        SCOPE.set(number.0);
    }

    /// Returns the number to pass to [`LeakScope::adopt`].
    pub fn number(&self) -> ScopeNumber {
        ScopeNumber(self.number)
    }

    /// Returns the allocations of this scope that are still live, by call site, the largest first.
    pub fn leaks(&self) -> Vec<Leak> {
        leaks(self.number)
    }
}

/// The number that identifies a scope.
#[derive(Clone, Copy, Debug)]
pub struct ScopeNumber(u32);

impl Drop for LeakScope {
    fn drop(&mut self) {
        SCOPE.set(self.outer);
        unfollowed(|| live_allocations().remove_scope(self.number));
        FOLLOWING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Passes every request of every thread to `observer`, which must not allocate. It can be set once
/// in a process; later calls change nothing.
pub fn observe(observer: fn(AllocationRequest)) {
    OBSERVER.get_or_init(|| observer);
}

/// A bit in the number of a scope that records no call stacks.
const WITHOUT_STACKS: u32 = 1 << 31;

fn next() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn leaks(scope: u32) -> Vec<Leak> {
    unfollowed(|| {
        let (live, missed) = live_allocations().live_in_scope(scope);
        site::by_call_site(&live, missed)
    })
}

/// Runs `what` without following its allocations: the finder's own work, and allocations that are
/// meant to outlive a scope.
pub fn unfollowed<T>(what: impl FnOnce() -> T) -> T {
    let was = BUSY.replace(true);
    let done = what();
    BUSY.set(was);
    done
}

/// Returns the scope that follows this thread now. Returns none inside the finder, too.
fn scope() -> Option<u32> {
    if FOLLOWING.load(Ordering::Relaxed) == 0 || BUSY.get() {
        return None;
    }
    let own = SCOPE.get();
    let scope = if own == 0 { PROCESS.load(Ordering::Relaxed) } else { own };
    (scope != 0).then_some(scope)
}

fn follow(block: *mut u8, bytes: usize, scope: u32) {
    if !block.is_null() {
        unfollowed(|| {
            let stack = (scope & WITHOUT_STACKS == 0).then(|| Box::new(CallStack::here()));
            live_allocations().insert(block.addr(), LiveAllocation { bytes, scope, stack });
        });
    }
}

fn followed(block: *mut u8, layout: Layout) -> *mut u8 {
    if let Some(scope) = scope() {
        follow(block, layout.size(), scope);
    }
    block
}

fn unfollow(block: *mut u8) -> Option<LiveAllocation> {
    if FOLLOWING.load(Ordering::Relaxed) == 0 || BUSY.get() {
        return None;
    }
    unfollowed(|| live_allocations().remove(block.addr()))
}

fn observed(request: AllocationRequest) {
    if let Some(observer) = OBSERVER.get()
        && !BUSY.get()
    {
        observer(request);
    }
}

// SAFETY: every block is the malloc's own, asked for and given back with the caller's own layout;
// what is known of them is kept in a table.
unsafe impl GlobalAlloc for Finder {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        observed(AllocationRequest::Allocate(layout.size()));
        // SAFETY: the caller's promises are those that the malloc wants.
        followed(unsafe { MALLOC.alloc(layout) }, layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        observed(AllocationRequest::Allocate(layout.size()));
        // SAFETY: as above.
        followed(unsafe { MALLOC.alloc_zeroed(layout) }, layout)
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        observed(AllocationRequest::Resize { from: layout.size(), to: size });
        let before = unfollow(block);
        // SAFETY: as above.
        let moved = unsafe { MALLOC.realloc(block, layout, size) };
        match (moved.is_null(), before) {
            (true, Some(before)) => unfollowed(|| live_allocations().insert(block.addr(), before)),
            (true, None) => {}
            (false, before) => {
                if let Some(scope) = scope().or(before.map(|before| before.scope)) {
                    follow(moved, size, scope);
                }
            }
        }
        moved
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        observed(AllocationRequest::Free(layout.size()));
        unfollow(block);
        // SAFETY: as above.
        unsafe { MALLOC.dealloc(block, layout) }
    }
}
