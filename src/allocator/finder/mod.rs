//! Who allocated what was never given back? Follows every live allocation with its call stack, on top of whichever malloc
//! the build has (feature `leak-finder`; [docs/adr/0009] has the reasons).
//!
//! Nothing is followed until somebody asks: [`mark`] for the whole process, whose [`report`] comes at its end, or a
//! [`Scope`] for one thread, as the tests use it. What was there before is the baseline and is never named: tables that are
//! planned and statics of the process belong before the mark. A block that grows has been allocated anew, by whoever grew it.
//!
//! Traps: what is done here must not be followed itself, or it would never end (`BUSY`); an address must be forgotten before
//! it is given back, or another thread that gets it loses its entry; and the blocks are the malloc's own, without a word of
//! ours before them, for [`super::info`] asks the malloc about them.
//!
//! [docs/adr/0009]: https://github.com/kube-canary/kube-canary/blob/main/docs/adr/0009-leak-finder.md
#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]

mod book;
mod site;

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use book::{Live, book};
pub use site::Leak;
use site::Stack;

#[cfg(not(feature = "jemalloc"))]
const MALLOC: std::alloc::System = std::alloc::System;
#[cfg(feature = "jemalloc")]
const MALLOC: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The global allocator of a build with the finder.
#[derive(Debug)]
pub struct Finder;

/// What a program asks of its allocator; sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A block of so many.
    Allocate(usize),
    /// A block of `from` shall have `to`.
    Resize {
        /// Before.
        from: usize,
        /// After.
        to: usize,
    },
    /// A block of so many is given back.
    Free(usize),
}

/// How many are following: only then is there anything to forget.
static FOLLOWING: AtomicUsize = AtomicUsize::new(0);
/// The scope of all threads that are in none of their own; 0: there is none.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static OBSERVER: OnceLock<fn(Request)> = OnceLock::new();

thread_local! {
    // Without a destructor and initialized in place: to use them allocates nothing, at any moment of a thread's life.
    static SCOPE: Cell<u32> = const { Cell::new(0) };
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// From now on everything that the process allocates is followed. The first call counts.
pub fn mark() {
    if PROCESS.load(Ordering::Relaxed) == 0 {
        // std's buffer for standard output is the process's, from its first use on.
        let _ = std::io::stdout();
        PROCESS.store(next(), Ordering::Relaxed);
        FOLLOWING.fetch_add(1, Ordering::SeqCst);
    }
}

/// What was allocated since [`mark`] and is live; a line of standard error each, the largest first. To be called when all
/// that was started is over. Without a mark it says nothing.
pub fn report() {
    let scope = PROCESS.load(Ordering::Relaxed);
    if scope != 0 {
        for leak in leaks(scope) {
            eprintln!("{leak}");
        }
    }
}

/// Follows what this thread allocates, whoever gives it back, until it is dropped.
#[derive(Debug)]
pub struct Scope {
    number: u32,
    outer: u32,
}

impl Scope {
    /// From now on; at most one at a time follows a thread, the innermost.
    #[must_use]
    pub fn begin() -> Self {
        Self::numbered(next())
    }

    /// The same, but only what is live is known then and not from where: a call stack takes microseconds.
    #[must_use]
    pub fn without_stacks() -> Self {
        Self::numbered(next() | WITHOUT_STACKS)
    }

    fn numbered(number: u32) -> Self {
        FOLLOWING.fetch_add(1, Ordering::SeqCst);
        Self { number, outer: SCOPE.replace(number) }
    }

    /// Has this further thread followed as well, until it ends or a scope of its own begins.
    pub fn adopt(number: ScopeNumber) {
        SCOPE.set(number.0);
    }

    /// What [`Scope::adopt`] wants.
    pub fn number(&self) -> ScopeNumber {
        ScopeNumber(self.number)
    }

    /// What was allocated in it and is still live, by call site, the largest first.
    pub fn leaks(&self) -> Vec<Leak> {
        leaks(self.number)
    }
}

/// Which scope.
#[derive(Clone, Copy, Debug)]
pub struct ScopeNumber(u32);

impl Drop for Scope {
    fn drop(&mut self) {
        SCOPE.set(self.outer);
        unfollowed(|| book().forget_scope(self.number));
        FOLLOWING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Has every request of every thread passed on to `observer`, which must not allocate. Once in a process; later calls change
/// nothing.
pub fn observe(observer: fn(Request)) {
    OBSERVER.get_or_init(|| observer);
}

/// A bit of a scope's number.
const WITHOUT_STACKS: u32 = 1 << 31;

fn next() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn leaks(scope: u32) -> Vec<Leak> {
    unfollowed(|| {
        let (live, missed) = book().of_scope(scope);
        site::by_call_site(&live, missed)
    })
}

/// Does what must not be followed: the finder's own, and what is meant to outlive a scope.
pub fn unfollowed<T>(what: impl FnOnce() -> T) -> T {
    let was = BUSY.replace(true);
    let done = what();
    BUSY.set(was);
    done
}

/// The scope that follows this thread now; none also within the finder.
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
            let stack = (scope & WITHOUT_STACKS == 0).then(|| Box::new(Stack::here()));
            book().note(block.addr(), Live { bytes, scope, stack });
        });
    }
}

fn forget(block: *mut u8) -> Option<Live> {
    if FOLLOWING.load(Ordering::Relaxed) == 0 || BUSY.get() {
        return None;
    }
    unfollowed(|| book().forget(block.addr()))
}

fn observed(request: Request) {
    if let Some(observer) = OBSERVER.get()
        && !BUSY.get()
    {
        observer(request);
    }
}

// SAFETY: every block is the malloc's own, asked for and given back with the caller's own layout; the notes are kept beside.
unsafe impl GlobalAlloc for Finder {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        observed(Request::Allocate(layout.size()));
        // SAFETY: the caller's promises are those that the malloc wants.
        let block = unsafe { MALLOC.alloc(layout) };
        if let Some(scope) = scope() {
            follow(block, layout.size(), scope);
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        observed(Request::Allocate(layout.size()));
        // SAFETY: as above.
        let block = unsafe { MALLOC.alloc_zeroed(layout) };
        if let Some(scope) = scope() {
            follow(block, layout.size(), scope);
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        observed(Request::Resize { from: layout.size(), to: size });
        let before = forget(block);
        // SAFETY: as above.
        let moved = unsafe { MALLOC.realloc(block, layout, size) };
        match (moved.is_null(), before) {
            (true, Some(before)) => unfollowed(|| book().note(block.addr(), before)),
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
        observed(Request::Free(layout.size()));
        forget(block);
        // SAFETY: as above.
        unsafe { MALLOC.dealloc(block, layout) }
    }
}
