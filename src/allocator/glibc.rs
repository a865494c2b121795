//! Keeps glibc's malloc small. By default it has an arena per thread, up to eight per CPU, and
//! keeps freed memory.
//!
//! The other mallocs need none of this: musl's has no such options, and jemalloc's are in
//! [`super::conf`]. If another malloc serves a glibc build, these settings are never read. The
//! environment (`MALLOC_ARENA_MAX` and the like) does not override them, because glibc reads it
//! earlier.

use std::ffi::{c_char, c_int};

/// Allocations of this size or more are separate mappings. Those are returned when they are freed,
/// even if other blocks lie above them. The buffers of a scrape are such allocations. The default
/// is 128 KiB, and it grows with freed blocks. Setting a value ends that growth.
const MMAP_THRESHOLD_BYTES: c_int = 4 * 1_024;
/// The free bytes that are kept at the top of the heap, and also the extra bytes by which the
/// heap grows. The default is 128 KiB each. This is one page: with 16 KiB, 200 KiB more remain
/// after a burst of scrapes.
const TOP_BYTES: c_int = 4 * 1_024;

// SAFETY: the types are those of malloc.h and gnu/libc-version.h. All three functions take plain
// integers or nothing. mallopt changes what others read without a lock, and its only caller is
// `keep_small`, which runs before any other thread.
#[expect(unsafe_code, reason = "glibc's own functions")]
unsafe extern "C" {
    safe fn mallopt(option: c_int, value: c_int) -> c_int;
    safe fn mallinfo() -> libc::mallinfo;
    /// Returns a constant string.
    pub(super) safe fn gnu_get_libc_version() -> *const c_char;
}

/// Sets one arena for all threads, and the two limits above. mallopt(3) accepts
/// all of these values.
pub(super) fn keep_small() {
    mallopt(libc::M_ARENA_MAX, 1);
    mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES);
    mallopt(libc::M_TRIM_THRESHOLD, TOP_BYTES);
    mallopt(libc::M_TOP_PAD, TOP_BYTES);
}

/// Returns the bytes that the program has allocated, and the bytes of glibc's heaps and mappings.
///
/// `mallinfo2` would need glibc 2.33. The figures of the older function wrap at 4 GiB, far more
/// than this program uses.
pub(super) fn allocated_and_mapped() -> (u64, u64) {
    let figures = mallinfo();
    let sum = |heaps: c_int, mappings: c_int| u64::from(heaps.cast_unsigned()) + u64::from(mappings.cast_unsigned());
    (sum(figures.uordblks, figures.hblkhd), sum(figures.arena, figures.hblkhd))
}
