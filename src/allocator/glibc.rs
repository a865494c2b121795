//! Keeps glibc's malloc small. By default it has an arena per thread, up to eight per CPU, and
//! keeps freed memory.
//!
//! The other mallocs need none of this: musl's has no such options, and jemalloc's are in
//! [`super::conf`]. If another malloc serves a glibc build, these settings are never read. The
//! environment (`MALLOC_ARENA_MAX` and the like) does not override them, because glibc reads it
//! earlier.

use std::ffi::c_int;

/// Allocations of this size or more are separate mappings. Those are returned when they are freed,
/// even if other blocks lie above them. The buffers of a scrape are such allocations. The default
/// is 128 KiB, and it grows with freed blocks. Setting a value ends that growth.
const MMAP_THRESHOLD_BYTES: c_int = 4 * 1_024;
/// The free bytes that are kept at the top of the heap, and also the extra bytes by which the
/// heap grows. The default is 128 KiB each. This is one page: with 16 KiB, 200 KiB more remain
/// after a burst of scrapes.
const TOP_BYTES: c_int = 4 * 1_024;

/// Sets one arena for all threads, and the two limits above. mallopt(3) accepts
/// all of these values.
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
