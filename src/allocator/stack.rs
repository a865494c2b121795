//! Walks the call stack.

use std::ffi::c_void;

/// Calls `take` with the return addresses of this thread's call stack, the innermost first, until
/// it returns false. Allocates nothing.
#[expect(unsafe_code, reason = "without the lock of the library, which not every platform needs")]
pub(super) fn walk(mut take: impl FnMut(*mut c_void) -> bool) {
    // SAFETY: the lock is there for Windows' debug library; the unwinder of ELF platforms takes what
    // it needs itself.
    unsafe { backtrace::trace_unsynchronized(|frame| take(frame.ip())) };
}
