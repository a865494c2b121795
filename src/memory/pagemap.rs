//! Reads which pages of a process are in memory, from its page map.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::Amounts;

/// Entries that are read at a time, into the stack.
pub const ENTRIES: usize = 256;
const ENTRY_BYTES: usize = 8;
/// Bits of an entry (Documentation/admin-guide/mm/pagemap.rst).
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_A_FILE: u64 = 1 << 61;

/// Returns what these addresses have in memory, and in the swap space. `map` is `/proc/PID/pagemap`,
/// and a page has this many bytes.
///
/// # Errors
/// The kernel's error.
pub fn amounts(map: &File, addresses: Range<u64>, page: u64) -> io::Result<Amounts> {
    let (mut amounts, mut entries) = (Amounts::default(), [0; ENTRIES * ENTRY_BYTES]);
    let (mut at, last) = (addresses.start / page, addresses.end / page);
    while at < last {
        let count = usize::try_from(last - at).unwrap_or(ENTRIES).min(ENTRIES);
        let entries = &mut entries[..count * ENTRY_BYTES];
        map.read_exact_at(entries, at * ENTRY_BYTES as u64)?;
        for entry in entries.as_chunks().0.iter().map(|entry| u64::from_ne_bytes(*entry)) {
            if entry & PRESENT != 0 {
                let kind = if entry & OF_A_FILE == 0 { &mut amounts.dirty } else { &mut amounts.clean };
                *kind += page / 1_024;
            } else if entry & SWAPPED != 0 {
                amounts.swap += page / 1_024;
            }
        }
        at += count as u64;
    }
    Ok(amounts)
}
