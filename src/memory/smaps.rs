//! Reads smaps one mapping at a time, through a buffer that the caller lends, without allocating.
//!
//! The kernel writes most lines as a name in 16 columns, a number in 8 and " kB"
//! (fs/proc/task_mmu.c, `SEQ_PUT_DEC`). So the end of such a line is known without a search. The
//! head of a mapping begins with a hexadecimal digit, which is in lower case there. Every other
//! line begins with a capital. This distinguishes them whatever lines a kernel adds. Larger reads
//! would not help: a read(2) returns at most what the kernel has formatted at a time, which is a
//! page.

use std::io::{self, Read};

use crate::sys::proc::{self, Lines};

/// A mapping, or the sum of all (`smaps_rollup`). Amounts are in KB. Those that this kernel does
/// not report are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// The first address of the mapping.
    pub start: u64,
    /// The address after its last byte.
    pub end: u64,
    /// `rwxp`, with `-` for a missing permission. `s` replaces `p` if writes are shared.
    pub permissions: [u8; 4],
    /// Its start in the file, in bytes.
    pub offset: u64,
    /// The file's device, with the major number above the minor.
    pub device: u64,
    /// The inode of the file. 0 means no file.
    pub inode: u64,
    /// The size of an ordinary page, in KB.
    pub page: u64,
    /// Resident memory, in KB.
    pub rss: u64,
    /// Resident memory, with each page divided by the number of processes that map it.
    pub pss: u64,
    /// Pages that are shared with others and dirty.
    pub shared_dirty: u64,
    /// Pages that are private and clean.
    pub private_clean: u64,
    /// Pages that are private and dirty.
    pub private_dirty: u64,
    /// Resident pages that belong to no file. These include the written pages of
    /// a private file mapping.
    pub anonymous: u64,
    /// Memory in the swap space.
    pub swap: u64,
    /// Memory in the swap space, divided by the number of processes that share it.
    pub swap_pss: u64,
    /// Pages of hugetlbfs that other processes map, too. They are in none of the above.
    pub shared_hugetlb: u64,
    /// Pages of hugetlbfs that only this process maps.
    pub private_hugetlb: u64,
}

impl Mapping {
    /// Whether the mapping has `permission` (`r`, `w`, `x`, `s`).
    pub fn may(&self, permission: u8) -> bool {
        self.permissions.contains(&permission)
    }

    /// Returns resident and dirty memory in KB, never more than the resident memory.
    pub fn dirty(&self) -> u64 {
        self.shared_dirty.saturating_add(self.private_dirty).min(self.rss)
    }

    /// Returns the resident memory that no other process maps, in KB.
    pub const fn private(&self) -> u64 {
        self.private_clean.saturating_add(self.private_dirty)
    }

    /// Adds the amounts of another mapping. A sum that would overflow stays at the largest number.
    pub fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.rss, more.rss),
            (&mut self.pss, more.pss),
            (&mut self.private_clean, more.private_clean),
            (&mut self.private_dirty, more.private_dirty),
            (&mut self.swap, more.swap),
            (&mut self.swap_pss, more.swap_pss),
            (&mut self.shared_hugetlb, more.shared_hugetlb),
            (&mut self.private_hugetlb, more.private_hugetlb),
        ] {
            *sum = sum.saturating_add(more);
        }
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

    /// Parses `start-end rwxp offset major:minor inode   path`, and returns the path, too. Returns
    /// none if the line does not have that form.
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

/// Parses the number at the start of `text`, and returns the rest. A number that is too large
/// becomes the largest possible.
fn number(text: &[u8], base: u32) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    let mut length = 0;
    while let Some(digit) = text.get(length).and_then(|&byte| char::from(byte).to_digit(base)) {
        value = value.saturating_mul(base.into()).saturating_add(digit.into());
        length += 1;
    }
    (length > 0).then_some((value, &text[length..]))
}

/// Calls `visit` with each mapping of `smaps` and its path. `buffer` must have room for a mapping's
/// head up to its path. The path is cut to the rest of the buffer, or to the length of `path`.
///
/// # Errors
/// The error of reading, or invalid data if a line does not belong to a mapping.
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
    // The last mapping ends with the file. The others end with the head of the next one.
    if let Some((mapping, length)) = current {
        visit(&mapping, &path[..length]);
    }
    Ok(())
}

/// Parses any text as smaps, through buffers of the same sizes as the agent's.
#[cfg(feature = "fuzzing")]
pub fn fuzz_smaps(text: &[u8]) {
    use super::process::{OWN_PATH_BYTES, OWN_READ_BYTES};
    let (buffer, path) = (&mut [0; OWN_READ_BYTES], &mut [0; OWN_PATH_BYTES]);
    let _ = each(&mut &*text, buffer, path, &mut |mapping, path| {
        let _ = (mapping.dirty(), mapping.private(), mapping.may(b'w'), path.len());
    });
}

/// [`proc::end_of_line`], optimized for lines that mostly have one length.
fn end_of_line(text: &[u8]) -> Option<usize> {
    const FIELD: usize = 27;
    // No shorter line can match here: the next line would have to consist of these bytes.
    if text.get(FIELD - 3..=FIELD) == Some(b" kB\n") && text[0].is_ascii_uppercase() {
        return Some(FIELD);
    }
    proc::end_of_line(text)
}

#[cfg(test)]
#[path = "smaps_tests.rs"]
mod tests;
