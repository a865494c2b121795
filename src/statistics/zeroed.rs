//! Tables that cost only what of them is written.
//!
//! A large zeroed allocation is a fresh mapping in musl (from 128 KiB), glibc and jemalloc, and none of them touches it:
//! its pages become resident as they are written, and a page that was only read is the kernel's one page of zeroes. So a
//! table can be as large as its limit from the start, never grows and never moves, and slots that nobody is in cost
//! nothing. `vec![0; n]` would do the same for plain numbers, but these are atomics, for which std has no safe way.
#![expect(unsafe_code, reason = "std has no safe zeroed allocation for atomics")]

use super::slots::{Hot, Rare};

/// Types of which zero bytes are a value.
///
/// # Safety
/// All bytes zero must be a valid value, and the alignment at most 16: beyond that the allocator clears by writing.
pub(super) unsafe trait Zero {}

// SAFETY: atomic integers, and arrays and structs of nothing else, at most 8 bytes aligned.
unsafe impl Zero for Hot {}
// SAFETY: as above.
unsafe impl Zero for Rare {}

/// `len` zeroes.
pub(super) fn table<T: Zero>(len: usize) -> Box<[T]> {
    const { assert!(align_of::<T>() <= 16) };
    // SAFETY: `T: Zero`.
    unsafe { Box::<[T]>::new_zeroed_slice(len).assume_init() }
}
