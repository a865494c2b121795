//! glibc's malloc, kept small: its defaults take an arena per thread, up to eight per processor, and keep what is freed.
//!
//! The other mallocs need none of this: musl's has no such options, and jemalloc's are in [`super::conf`]. Where another
//! malloc serves us in a glibc build, what is set here is never read. The environment (`MALLOC_ARENA_MAX` and the like)
//! does not override it, for it is read before.

use std::ffi::c_int;

/// Allocations from here on are mappings of their own, which go back when they are freed, whatever lies above them: the
/// buffers of a scrape. Default: 128 KiB, and growing with what is freed, which setting it ends.
const MMAP_THRESHOLD_BYTES: c_int = 4 * 1_024;
/// Free bytes at the top of the heap that are kept, and by how much more than is needed it grows. Default: 128 KiB each. A
/// page: with 16 KiB, 200 KiB more stay behind after a burst of scrapes.
const TOP_BYTES: c_int = 4 * 1_024;

/// Sets one arena for all threads, and the above. mallopt(3) fails for no value of these.
#[expect(unsafe_code, reason = "mallopt has no safe form")]
pub(super) fn keep_small() {
    let options = [
        (libc::M_ARENA_MAX, 1),
        (libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES),
        (libc::M_TRIM_THRESHOLD, TOP_BYTES),
        (libc::M_TOP_PAD, TOP_BYTES),
    ];
    for (option, value) in options {
        // SAFETY: takes plain integers and locks what it changes.
        unsafe { libc::mallopt(option, value) };
    }
}
