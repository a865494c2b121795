//! Determines the purpose of the pages of a program file from its program headers (elf(5), gABI
//! chapter 5).
//!
//! It uses segments rather than sections, because segments are what is mapped and stripping cannot
//! remove them. If a linker puts constants into the executable segment (GNU ld without `-z
//! separate-code`), they count as text. Bounds are rounded to pages as loaders do. A segment begins
//! with the page that holds its first byte. `PT_GNU_RELRO` ends with the last page that it covers
//! entirely, because what follows must stay writable. A page that holds the end of a file's data
//! and the first zeros of bss is data in both cases.

use super::Category;

/// Program headers of a file that are read. Linkers write 8 to 14.
const HEADERS_MAX: usize = 64;
/// Loaded segments of a file that are distinguished. A linker writes 4 or 5 by itself, and 10 with
/// our own script. If a file has more, its mappings are classified by permissions.
const SEGMENTS_MAX: usize = 16;

const PT_LOAD: u64 = 1;
const PT_GNU_RELRO: u64 = 0x6474_e552;
const PF_X: u64 = 1;
const PF_W: u64 = 2;
const HEADERS_AT_A_TIME: usize = 8;
/// The size of a program header in a 64-bit file.
const HEADER_BYTES_MAX: usize = 56;

/// A segment that is loaded. Addresses are those in the file.
#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    start: u64,
    /// The address at which the bytes of the file end and the zeros begin.
    file_end: u64,
    end: u64,
    offset: u64,
    flags: u64,
}

impl Segment {
    const fn category(&self) -> Category {
        if self.flags & PF_X != 0 {
            Category::Text
        } else if self.flags & PF_W != 0 {
            Category::Data
        } else {
            Category::Rodata
        }
    }
}

/// The segments that a program or a library has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Elf {
    segments: [Segment; SEGMENTS_MAX],
    count: usize,
    relro: (u64, u64),
}

const fn floor(address: u64, page: u64) -> u64 {
    address - address % page
}

const fn ceil(address: u64, page: u64) -> u64 {
    floor(address.saturating_add(page - 1), page)
}

impl Elf {
    /// Reads the headers with `read_at`, which fills a buffer from an offset. Returns none if the
    /// file is no program or library in little endian, or if its headers are invalid.
    pub fn read(read_at: impl Fn(&mut [u8], u64) -> std::io::Result<()>) -> Option<Self> {
        // The first 52 bytes are the header of a 32-bit file. A 64-bit file has 64.
        let mut head = [0; 64];
        read_at(&mut head[..52], 0).ok()?;
        let (wide, little_endian) = (head[4] == 2, head[5] == 1);
        // ET_EXEC or ET_DYN: files that are mapped to be executed.
        let mapped = matches!(number(&head, 16, 2), 2 | 3);
        if !head.starts_with(b"\x7fELF") || !matches!(head[4], 1 | 2) || !little_endian || !mapped {
            return None;
        }
        let (at, size, count) = if wide {
            read_at(&mut head[52..], 52).ok()?;
            (number(&head, 32, 8), number(&head, 54, 2), number(&head, 56, 2))
        } else {
            (number(&head, 28, 4), number(&head, 42, 2), number(&head, 44, 2))
        };
        let (size, count) = (usize::try_from(size).ok()?, usize::try_from(count).ok()?);
        if size != if wide { HEADER_BYTES_MAX } else { 32 } || count > HEADERS_MAX {
            return None;
        }
        let mut this = Self::default();
        let mut headers = [0; HEADERS_AT_A_TIME * HEADER_BYTES_MAX];
        for first in (0..count).step_by(HEADERS_AT_A_TIME) {
            let these = &mut headers[..(count - first).min(HEADERS_AT_A_TIME) * size];
            read_at(these, at.checked_add((first * size) as u64)?).ok()?;
            these.chunks_exact(size).try_for_each(|header| this.take(header, wide))?;
        }
        // The standard requires ascending order, and the lookup relies on it.
        let ascending = this.segments().windows(2).all(|pair| pair[0].start <= pair[1].start);
        (this.count > 0 && ascending).then_some(this)
    }

    fn take(&mut self, header: &[u8], wide: bool) -> Option<()> {
        let kind = number(header, 0, 4);
        if kind != PT_LOAD && kind != PT_GNU_RELRO {
            return Some(());
        }
        // The fields begin after the type, or after the flags if these come second.
        let width = if wide { 8 } else { 4 };
        let field = |index: usize| number(header, width + index * width, width);
        let (offset, start, file_bytes, bytes) = (field(0), field(1), field(3), field(4));
        let flags = number(header, if wide { 4 } else { 24 }, 4);
        let end = start.checked_add(bytes)?;
        if kind == PT_GNU_RELRO {
            self.relro = (start, end);
        } else if bytes > 0 {
            let file_end = start.checked_add(file_bytes.min(bytes))?;
            *self.segments.get_mut(self.count)? = Segment { start, file_end, end, offset, flags };
            self.count += 1;
        }
        Some(())
    }

    fn segments(&self) -> &[Segment] {
        &self.segments[..self.count]
    }

    /// Returns the number to subtract from an address in memory to get the address in the file. The
    /// mapping has `length` bytes of the file from `offset` on, and begins at `start`. Returns none
    /// if no segment is mapped like that: the file is then only read, not executed. `permits` says
    /// whether the mapping is writable and executable.
    pub fn bias(&self, start: u64, length: u64, offset: u64, page: u64, permits: (bool, bool)) -> Option<u64> {
        let (writable, executable) = permits;
        let fits = |segment: &&Segment| {
            let first = floor(segment.start, page);
            floor(segment.offset, page) == offset
                && length <= ceil(segment.file_end, page).saturating_sub(first).max(page)
                && executable == (segment.flags & PF_X != 0)
                && (!writable || segment.flags & PF_W != 0)
        };
        self.segments().iter().find(fits).map(|segment| start.wrapping_sub(floor(segment.start, page)))
    }

    /// Whether byte `offset` of the file belongs at `address`.
    pub fn holds(&self, address: u64, offset: u64, page: u64) -> bool {
        self.segments().iter().any(|segment| {
            let first = floor(segment.start, page);
            (first..segment.file_end).contains(&address)
                && floor(segment.offset, page).checked_add(address - first) == Some(offset)
        })
    }

    /// Returns the category of the page at `address`, and the address up to which it is the same.
    /// `zeros` means that the memory is not mapped from the file. The category is none if the file
    /// does not cover the page.
    pub fn category(&self, address: u64, page: u64, zeros: bool) -> (Option<Category>, u64) {
        let mut until = u64::MAX;
        let mut is_in = |start: u64, end: u64| {
            for bound in [start, end] {
                if bound > address {
                    until = until.min(bound);
                }
            }
            (start..end).contains(&address)
        };
        let mut found = None;
        for segment in self.segments() {
            let start = if zeros { ceil(segment.file_end, page) } else { floor(segment.start, page) };
            if is_in(start, ceil(segment.end, page)) {
                // The last segment counts: if two share a page, the last was mapped over the first.
                found = Some(segment.category());
            }
        }
        if is_in(floor(self.relro.0, page), floor(self.relro.1, page)) && found.is_some() {
            found = Some(Category::Relro);
        }
        (found, until)
    }
}

/// Returns the number of `length` bytes at `at`, in little endian. Returns 0 if they are not there.
fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let bytes = bytes.get(at..at + length).unwrap_or_default();
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
#[path = "elf_tests.rs"]
pub(super) mod tests;
