//! Releases the pages of the program file, and of its shared libraries, that are not needed now.
//!
//! Text and constants are clean file memory, and the kernel keeps them mapped until it is short of
//! memory. An agent is judged by its resident set, so it releases them itself: every second, and
//! after each check. Code that runs returns from the page cache, with one minor fault per 64 KiB.
//! `layout/functions.ld` keeps it apart from unused code. Only a glibc build has libraries: 1.7 MB
//! of them are resident once the loader has read them.
#![expect(unsafe_code, reason = "madvise(2) has no safe wrapper in std")]

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use kube_canary_kernel::region::page_bytes;

use crate::memory::pagemap;
use crate::memory::smaps::{self, Mapping};
use crate::sys::proc::LINE_BYTES_MAX;

/// Whether pages are to be released at the next turn of the probe thread.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Makes the probe thread release pages at its next turn. What runs seldom, and has much code,
/// calls this at its end.
pub fn ask() {
    ASKED.store(true, Ordering::Relaxed);
}

/// Returns whether anybody has asked since the last call.
pub fn was_asked() -> bool {
    ASKED.swap(false, Ordering::Relaxed)
}

/// The mapped files of this process: the program, and its shared libraries. They stay where they
/// are, so they are found once: it takes 0.3 ms to read smaps.
pub struct MappedFiles {
    /// Parts of files that were unchanged when they were found.
    unchanged: Vec<Range<usize>>,
    pagemap: Option<File>,
}

impl MappedFiles {
    /// Finds them in /proc. If it is not available, nothing is ever released.
    pub fn find() -> Self {
        let unchanged = File::open("/proc/self/smaps").map(|mut smaps| unchanged(&mut smaps));
        Self { unchanged: unchanged.unwrap_or_default(), pagemap: File::open("/proc/self/pagemap").ok() }
    }

    /// Unmaps the pages of every part that this process has never changed.
    pub fn give_back(&self) {
        for range in self.unchanged.iter().filter(|range| self.is_releasable(range)) {
            // SAFETY: the range is an unwritable private mapping of a file, without a page of our
            // own in it, in memory or swapped: the next access reads the same bytes from the file
            // again. It is page-aligned, as all mappings are.
            unsafe { libc::madvise(range.start as *mut libc::c_void, range.len(), libc::MADV_DONTNEED) };
        }
    }

    /// Whether pages of the range are resident, and all of them are the file's. A debugger's
    /// breakpoint, or the kernel's for a uprobe, is in a page of its own, and would be lost.
    fn is_releasable(&self, range: &Range<usize>) -> bool {
        let Some(map) = &self.pagemap else { return false };
        let addresses = range.start as u64..range.end as u64;
        let amounts = pagemap::amounts(map, addresses, page_bytes() as u64);
        amounts.is_ok_and(|amounts| amounts.clean > 0 && amounts.dirty == 0 && amounts.swap == 0)
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
    use std::os::fd::AsRawFd;

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
    fn a_part_with_a_page_of_our_own_is_kept() {
        let (page, program) = (page_bytes(), File::open("/proc/self/exe").unwrap());
        let files = MappedFiles::find();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the place of a new mapping, which is longer than one read of
        // entries, and stays. It is private, so a write to it does not reach the file.
        let bytes = unsafe {
            let start = libc::mmap(
                std::ptr::null_mut(),
                (pagemap::ENTRIES + 2) * page,
                access,
                libc::MAP_PRIVATE,
                program.as_raw_fd(),
                0,
            );
            assert_ne!(start, libc::MAP_FAILED);
            std::slice::from_raw_parts_mut(start.cast::<u8>(), (pagemap::ENTRIES + 2) * page)
        };
        let range = bytes.as_ptr_range();
        let range = range.start as usize..range.end as usize;
        let last = range.end - page..range.end;
        assert!(!files.is_releasable(&range), "nothing is resident");
        assert_eq!((bytes[0], files.is_releasable(&range)), (0x7f, true));
        bytes[(pagemap::ENTRIES + 1) * page] = 1;
        assert_eq!([range.clone(), last].map(|range| files.is_releasable(&range)), [false; 2]);
        assert!(files.is_releasable(&(range.start..range.end - page)));
        MappedFiles { unchanged: vec![range], ..files }.give_back();
        assert_eq!(bytes[(pagemap::ENTRIES + 1) * page], 1);
    }

    #[test]
    fn the_program_runs_after_its_pages_are_released() {
        let before = unchanged(&mut File::open("/proc/self/smaps").unwrap());
        assert!(!before.is_empty());
        MappedFiles::find().give_back();
        assert_eq!(format!("{:.3}", std::hint::black_box(1.0_f64).sin()), "0.841");
    }
}
