//! Gives back the pages of our program file, and of its shared libraries, that are not needed now.
//!
//! Text and constants are clean file memory, and the kernel keeps them mapped until it is short of memory; an agent that is
//! judged by its resident set gives them back itself, after its start and once a minute. What runs comes back by a minor
//! fault per 64 KiB, from the page cache, and `layout/functions.ld` keeps it apart from what does not. Only a glibc build has
//! libraries: 1.7 MB of theirs are resident once the loader has read them.
#![expect(unsafe_code, reason = "madvise(2) has no safe wrapper in std")]

use std::fs::File;
use std::io::{BufRead, BufReader};

/// Bytes read of smaps at a time: it is 30 KB, which would stay with the heap.
const READ_BYTES: usize = 1_024;

/// Drops this process's view of every part of a mapped file that it has never changed. Where /proc does not tell, nothing
/// happens.
pub fn give_back_files() {
    let Ok(smaps) = File::open("/proc/self/smaps") else { return };
    // All ranges first: what finds them would be back at once.
    for (start, end) in unchanged(BufReader::with_capacity(READ_BYTES, smaps)) {
        // SAFETY: the range is an unwritable private mapping of a file, without a page of our own in it, in memory or
        // swapped: the next access reads the same bytes from the file again. It is page-aligned, as all mappings are.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DONTNEED) };
    }
}

/// The unwritable mappings of files that hold no anonymous page: text and constants, but not what relocations have changed
/// before it was made read-only.
fn unchanged(smaps: impl BufRead) -> Vec<(usize, usize)> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    // Whether the last range is of the mapping whose fields are being read.
    let mut open = false;
    for line in smaps.lines().map_while(Result::ok) {
        let is_field = line.split(' ').next().is_some_and(|first| first.ends_with(':'));
        if !is_field {
            let range = file_range(&line);
            open = range.is_some();
            ranges.extend(range);
        } else if open && (line.starts_with("Anonymous:") || line.starts_with("Swap:")) && !line.ends_with(" 0 kB") {
            ranges.pop();
            open = false;
        }
    }
    ranges
}

/// The range of a mapping's head if it is an unwritable, private one of a file: `start-end r-xp offset device inode path`.
/// The inode tells: the kernel's own mappings (`[vdso]`) and anonymous ones, which may have a name, have 0.
fn file_range(head: &str) -> Option<(usize, usize)> {
    let mut words = head.split(' ');
    let (start, end) = words.next()?.split_once('-')?;
    let unwritable = matches!(words.next()?, "r-xp" | "r--p");
    let of_a_file = words.nth(2)? != "0";
    let address = |hex| usize::from_str_radix(hex, 16).ok();
    (unwritable && of_a_file).then_some((address(start)?, address(end)?)).filter(|(start, end)| start < end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unchanged_parts_of_files_are_given_back() {
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
        assert_eq!(unchanged(smaps.as_bytes()), [(0x1000, 0x2000), (0x2000, 0x9000), (0xc000, 0xd000)]);
    }

    #[test]
    fn the_program_goes_on_running() {
        let before = unchanged(BufReader::new(File::open("/proc/self/smaps").unwrap()));
        assert!(!before.is_empty());
        give_back_files();
        assert_eq!(format!("{:.3}", std::hint::black_box(1.0_f64).sin()), "0.841");
    }
}
