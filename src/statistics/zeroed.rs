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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PEER_SLOTS_MAX;
    use crate::proc;
    use crate::statistics::PeerStatistics;

    fn resident_kb() -> i64 {
        proc::find("/proc/self/smaps_rollup", |line| proc::number(line, "Rss:")).expect("smaps_rollup")
    }

    /// Tables of the real sizes, so many that the other tests' memory is little beside them.
    #[test]
    fn a_table_is_not_resident_before_it_is_written_not_even_if_it_is_read() {
        const TABLES: usize = 16;
        let kb = |bytes: usize| i64::try_from(TABLES * PEER_SLOTS_MAX * bytes / 1_024).unwrap();
        let (hot_kb, all_kb) = (kb(size_of::<Hot>()), kb(size_of::<Hot>() + size_of::<Rare>()));
        let before = resident_kb();
        let tables: Vec<_> =
            (0..TABLES).map(|_| (table::<Hot>(PEER_SLOTS_MAX), table::<Rare>(PEER_SLOTS_MAX))).collect();
        let slots = || tables.iter().flat_map(|(hot, rare)| hot.iter().zip(rare));
        let sent: u64 = slots().map(|(hot, rare)| PeerStatistics { hot, rare }.read().sent).sum();
        let read = resident_kb() - before;
        // One in each page, and in some of the rare table's: a new holder's start writes no zero over a rare zero.
        for (hot, rare) in slots().step_by(32) {
            PeerStatistics { hot, rare }.reset();
        }
        let reset = resident_kb() - before;
        println!("{all_kb} KB of tables: {read} KB resident once read, {reset} KB once their slots are taken");
        assert_eq!(sent, 0);
        assert!(read < all_kb / 4, "{read} of {all_kb} KB");
        assert!(
            (hot_kb - all_kb / 8..hot_kb + all_kb / 8).contains(&reset),
            "{reset} of {all_kb} KB, {hot_kb} of them hot"
        );
    }
}
