//! Reads smaps: a mapping at a time, through a buffer that the caller lends, without allocating.
//!
//! The kernel writes most lines as a name in 16 columns, a number in 8 and " kB" (fs/proc/task_mmu.c, `SEQ_PUT_DEC`), so
//! that the end of such a line is known without looking for it. A mapping's head begins with a hexadecimal digit, which
//! is lower-case there, every other line with a capital: that tells them apart whatever lines a kernel adds. Larger reads
//! would not help: a read(2) gives at most what the kernel has formatted at a time, a page.

use std::io::{self, Read};

use crate::proc::{self, Lines};

/// A mapping, or the sum of all (`smaps_rollup`). Amounts are in KB; what this kernel does not tell is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// The address behind its last.
    pub end: u64,
    /// `rwxp`, `-` for what is missing; `s` in place of `p` where writes are shared.
    pub permissions: [u8; 4],
    /// Where it begins in its file, in bytes.
    pub offset: u64,
    /// The file's device, major number above minor.
    pub device: u64,
    /// The file; 0: none.
    pub inode: u64,
    /// Size of an ordinary page.
    pub page: u64,
    /// Resident.
    pub rss: u64,
    /// The same, divided by the number of processes that map each page.
    pub pss: u64,
    /// Shared with others and dirty.
    pub shared_dirty: u64,
    /// Only here, and clean.
    pub private_clean: u64,
    /// Only here, and dirty.
    pub private_dirty: u64,
    /// Resident, of no file: those pages of a private mapping of one too that were written.
    pub anonymous: u64,
    /// Swapped.
    pub swap: u64,
    /// The same, divided by the number of processes.
    pub swap_pss: u64,
    /// Pages of hugetlbfs, in none of the above, that others map too.
    pub shared_hugetlb: u64,
    /// Those that only this process maps.
    pub private_hugetlb: u64,
}

impl Mapping {
    /// Whether `permission` (`r`, `w`, `x`, `s`) is among those of the mapping.
    pub fn may(&self, permission: u8) -> bool {
        self.permissions.contains(&permission)
    }

    /// Resident and dirty, never more than what is resident.
    pub fn dirty(&self) -> u64 {
        self.shared_dirty.saturating_add(self.private_dirty).min(self.rss)
    }

    /// Resident, only here.
    pub const fn private(&self) -> u64 {
        self.private_clean.saturating_add(self.private_dirty)
    }

    fn set(&mut self, field: &[u8]) {
        let Some(colon) = field.iter().position(|&byte| byte == b':') else { return };
        let place = match &field[..colon] {
            b"KernelPageSize" => &mut self.page,
            b"Rss" => &mut self.rss,
            b"Pss" => &mut self.pss,
            b"Shared_Dirty" => &mut self.shared_dirty,
            b"Private_Clean" => &mut self.private_clean,
            b"Private_Dirty" => &mut self.private_dirty,
            b"Anonymous" => &mut self.anonymous,
            b"Swap" => &mut self.swap,
            b"SwapPss" => &mut self.swap_pss,
            b"Shared_Hugetlb" => &mut self.shared_hugetlb,
            b"Private_Hugetlb" => &mut self.private_hugetlb,
            _ => return,
        };
        let digits = field[colon + 1..].trim_ascii_start();
        *place = number(digits, 10).map_or(0, |(value, _)| value);
    }

    /// `start-end rwxp offset major:minor inode   path`, and the path. None where it is not of that form.
    fn head(line: &[u8]) -> Option<(Self, &[u8])> {
        let (start, rest) = number(line, 16)?;
        let (end, rest) = number(rest.strip_prefix(b"-")?, 16)?;
        let (permissions, rest) = rest.strip_prefix(b" ")?.split_first_chunk::<4>()?;
        let (offset, rest) = number(rest.strip_prefix(b" ")?, 16)?;
        let (major, rest) = number(rest.strip_prefix(b" ")?, 16)?;
        let (minor, rest) = number(rest.strip_prefix(b":")?, 16)?;
        let (inode, rest) = number(rest.strip_prefix(b" ")?, 10)?;
        let device = major << 32 | minor;
        let this = Self { start, end, permissions: *permissions, offset, device, inode, ..Self::default() };
        (start < end).then_some((this, rest.trim_ascii_start()))
    }
}

/// The number at the front of `text`, at most the largest there is, and what is behind it.
fn number(text: &[u8], base: u32) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    let mut length = 0;
    while let Some(digit) = text.get(length).and_then(|&byte| char::from(byte).to_digit(base)) {
        value = value.saturating_mul(base.into()).saturating_add(digit.into());
        length += 1;
    }
    (length > 0).then_some((value, &text[length..]))
}

/// Calls `visit` with each mapping of `smaps` and its path. `buffer` must hold a mapping's head up to its path; a path is
/// cut to what is left of it, or to the length of `path`.
///
/// # Errors
/// What reading says; invalid data where a line is no mapping's.
pub fn each(
    smaps: &mut dyn Read,
    buffer: &mut [u8],
    path: &mut [u8],
    visit: &mut dyn FnMut(&Mapping, &[u8]),
) -> io::Result<()> {
    let mut lines = Lines::new(smaps, buffer, end_of_line);
    // The mapping whose fields are being read, and the length of its path.
    let mut current: Option<(Mapping, usize)> = None;
    while let Some(line) = lines.next_line()? {
        if line.first().is_some_and(u8::is_ascii_uppercase) {
            if let Some((mapping, _)) = &mut current {
                mapping.set(line);
            }
            continue;
        }
        if let Some((mapping, length)) = current.take() {
            visit(&mapping, &path[..length]);
        }
        let Some((mapping, name)) = Mapping::head(line) else {
            let message = format!("{:?} is no line of smaps", String::from_utf8_lossy(line));
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        };
        let length = name.len().min(path.len());
        path[..length].copy_from_slice(&name[..length]);
        current = Some((mapping, length));
    }
    // The last mapping ends with the file, as the others do with the next one's head.
    if let Some((mapping, length)) = current {
        visit(&mapping, &path[..length]);
    }
    Ok(())
}

/// Reads any text as smaps, through buffers of the sizes that the agent has.
#[cfg(feature = "fuzzing")]
pub fn fuzz_smaps(text: &[u8]) {
    use crate::limits::{FOOTPRINT_OWN_PATH_BYTES, FOOTPRINT_OWN_READ_BYTES};
    let (buffer, path) = (&mut [0; FOOTPRINT_OWN_READ_BYTES], &mut [0; FOOTPRINT_OWN_PATH_BYTES]);
    let _ = each(&mut &*text, buffer, path, &mut |mapping, path| {
        let _ = (mapping.dirty(), mapping.private(), mapping.may(b'w'), path.len());
    });
}

/// [`proc::end_of_line`], for lines that mostly have one length.
fn end_of_line(text: &[u8]) -> Option<usize> {
    const FIELD: usize = 27;
    // Nothing shorter can end in this: the line behind it would have to consist of it.
    if text.get(FIELD - 3..=FIELD) == Some(b" kB\n") && text[0].is_ascii_uppercase() {
        return Some(FIELD);
    }
    proc::end_of_line(text)
}

#[cfg(test)]
#[path = "smaps_tests.rs"]
mod tests;
