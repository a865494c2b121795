//! Releases the part of a thread's stack that is not in use.
//!
//! What a thread's deepest call has written stays in memory for as long as the thread lives, and a
//! thread that waits needs a page or two of it.
#![expect(unsafe_code, reason = "pthread_getattr_np(3) and madvise(2) have no safe form")]

use std::ffi::c_void;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ptr;

use crate::region::page_bytes;

/// Pages below this frame that are kept: the frames of the calls that it makes are in them.
const PAGES_KEPT: usize = 1;

/// Releases the calling thread's stack below the caller's frame. Without an answer of the C library
/// it does nothing.
#[inline(never)]
pub fn give_back() {
    let local = 0_u8;
    let (here, page) = (black_box(&raw const local).addr(), page_bytes());
    let end = (here & !(page - 1)).saturating_sub(PAGES_KEPT * page);
    if let Some(lowest) = lowest().map(|address| address.next_multiple_of(page))
        && lowest < end
    {
        // SAFETY: the range is page-aligned and part of this thread's stack. It lies below the
        // frames of all calls in progress, so no value is in it, and a later call writes its frame
        // before it reads it. Signal handlers run below these frames as well, and have ended.
        unsafe { libc::madvise(ptr::without_provenance_mut(lowest), end - lowest, libc::MADV_DONTNEED) };
    }
}

/// Returns the lowest address of the calling thread's stack.
fn lowest() -> Option<usize> {
    let mut attributes = MaybeUninit::uninit();
    let (mut stack, mut bytes) = (ptr::null_mut::<c_void>(), 0);
    // SAFETY: the calls get valid pointers. The attributes are read only once the first call has
    // written them, and destroyed once.
    let is_known = unsafe {
        libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) == 0 && {
            let is_known = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut stack, &raw mut bytes) == 0;
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            is_known
        }
    };
    is_known.then(|| stack.addr())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Writes this many pages of stack, and returns the lowest address that it has written.
    #[inline(never)]
    fn descend(pages: usize) -> usize {
        let page = black_box([1_u8; 4_096]);
        if pages == 0 { page.as_ptr().addr() } else { descend(pages - 1).min(page.as_ptr().addr()) }
    }

    /// Whether the page at an address is in memory. `None` if it is not mapped.
    fn is_resident(address: usize) -> Option<bool> {
        let page = page_bytes();
        let mut found = [0_u8];
        // SAFETY: one page is asked about, and one byte is written for it.
        let result =
            unsafe { libc::mincore(ptr::without_provenance_mut(address & !(page - 1)), page, found.as_mut_ptr()) };
        (result == 0).then_some(found[0] & 1 == 1)
    }

    #[test]
    fn what_a_deep_call_has_written_is_released_and_what_is_in_use_stays() {
        let look = || {
            let values: Vec<u32> = (0..100).collect();
            let kept = black_box([7_u8; 3 * 4_096]);
            let deep = descend(32);
            let before = is_resident(deep);
            give_back();
            (
                before,
                is_resident(deep),
                kept.iter().all(|byte| *byte == 7),
                values.iter().sum::<u32>(),
                descend(32) == deep,
            )
        };
        let thread = thread::Builder::new().stack_size(512 * 1_024).spawn(look).unwrap();
        assert_eq!(thread.join().unwrap(), (Some(true), Some(false), true, 4_950, true));
    }
}
