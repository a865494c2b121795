//! Releases the pages of the program file, and of its shared libraries, that are not needed now.
//!
//! Text and constants are clean file memory, and the kernel keeps them mapped until it is short of
//! memory. An agent is judged by its resident set, so it releases them itself: after its start,
//! every 10 s, and within a second whenever code has run that probing does not need. Code that
//! runs returns from the page cache, with one minor fault per 64 KiB. `layout/functions.ld` keeps
//! it apart from unused code. Only a glibc build has libraries: 1.7 MB of them are resident once
//! the loader has read them.
#![expect(unsafe_code, reason = "madvise(2) has no safe wrapper in std")]

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::memory::smaps::{self, Mapping};
use crate::sys::proc::LINE_BYTES_MAX;

/// Whether pages are to be released at the next turn of the probe thread.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Makes the probe thread release pages within a second. Code that probing does not need calls this
/// at its end: an answer, a judgement, a handshake. One release serves all of a second.
pub fn ask() {
    ASKED.store(true, Ordering::Relaxed);
}

/// Returns whether anybody has asked since the last call.
pub fn was_asked() -> bool {
    ASKED.swap(false, Ordering::Relaxed)
}

/// Unmaps the pages of every part of a mapped file that this process has never changed. If /proc is
/// not available, it does nothing.
pub fn give_back_files() {
    let Ok(mut smaps) = File::open("/proc/self/smaps") else { return };
    // All ranges are collected first. Otherwise the code that finds them would be resident again at
    // once.
    for Range { start, end } in unchanged(&mut smaps) {
        // SAFETY: the range is an unwritable private mapping of a file, without a page of our own
        // in it, in memory or swapped: the next access reads the same bytes from the file again. It
        // is page-aligned, as all mappings are.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DONTNEED) };
    }
}

/// Returns the unwritable private mappings of files that hold no anonymous page. These are text and
/// constants. Constants that relocation changed before they became read-only are excluded.
fn unchanged(smaps: &mut dyn Read) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut look = |mapping: &Mapping, _: &[u8]| {
        let unwritable = matches!(&mapping.permissions, b"r-xp" | b"r--p");
        // A file has an inode. The kernel's own mappings (`[vdso]`) and anonymous ones, which may
        // have a name, have inode 0.
        if unwritable
            && mapping.inode != 0
            && (mapping.anonymous, mapping.swap) == (0, 0)
            && let (Ok(start), Ok(end)) = (usize::try_from(mapping.start), usize::try_from(mapping.end))
        {
            ranges.push(start..end);
        }
    };
    // The mappings that were read before a failure are still valid, because each was complete.
    let _ = smaps::each(smaps, &mut [0; LINE_BYTES_MAX], &mut [], &mut look);
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unchanged_parts_of_files_are_released() {
        let smaps = "\
            1000-2000 r--p 00000000 fe:00 9 /kube-canary\nRss: 4 kB\nAnonymous:             0 kB\nSwap:   0 kB\n\
            2000-9000 r-xp 00001000 fe:00 9 /kube-canary\nRss: 4 kB\nAnonymous:             0 kB\nSwap:   0 kB\n\
            9000-a000 r--p 00001000 fe:00 9 /kube-canary\nRss: 4 kB\nAnonymous:             4 kB\nSwap:   0 kB\n\
            a000-b000 r--p 00001000 fe:00 9 /kube-canary\nRss: 4 kB\nAnonymous:             0 kB\nSwap:   8 kB\n\
            b000-c000 rw-p 00001000 fe:00 9 /kube-canary\nRss: 4 kB\nAnonymous:             0 kB\nSwap:   0 kB\n\
            c000-d000 r-xp 00001000 fe:00 8     /lib/a libc.so\nRss: 4 kB\nAnonymous:             0 kB\nSwap:   0 kB\n\
            d000-e000 r--s 00000000 fe:00 7 /shared\nRss: 4 kB\nAnonymous:             0 kB\nSwap:   0 kB\n\
            d000-e000 r--p 00000000 00:00 0 [vvar]\nRss: 4 kB\nAnonymous:             0 kB\nSwap:   0 kB\n\
            e000-f000 rw-p 00000000 00:00 0\nRss: 4 kB\nAnonymous:             4 kB\nSwap:   0 kB\n";
        assert_eq!(unchanged(&mut smaps.as_bytes()), [0x1000..0x2000, 0x2000..0x9000, 0xc000..0xd000]);
    }

    #[test]
    fn the_program_runs_after_its_pages_are_released() {
        let before = unchanged(&mut File::open("/proc/self/smaps").unwrap());
        assert!(!before.is_empty());
        give_back_files();
        assert_eq!(format!("{:.3}", std::hint::black_box(1.0_f64).sin()), "0.841");
    }
}
