//! The files of a process: paths of /proc without an allocation, and the sources of a
//! classification.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::classify::{Content, Sources};
use super::smaps::Mapping;
use super::{Amounts, Elf};

/// Room for `/proc/4194304/task/4194304/syscall`, and for a file in map_files.
const PROC_PATH_BYTES: usize = 80;
/// Entries of a page map that are read at a time.
const ENTRIES: usize = 128;

/// The process whose memory is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The process that reads.
    Own,
    /// The process with this id.
    Process(u32),
}

/// A path below a process's directory, stored on the stack.
#[derive(Clone, Copy)]
pub struct ProcPath {
    bytes: [u8; PROC_PATH_BYTES],
    length: usize,
}

impl fmt::Write for ProcPath {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let place = self.bytes.get_mut(self.length..self.length + text.len()).ok_or(fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

impl AsRef<Path> for ProcPath {
    fn as_ref(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.bytes[..self.length]))
    }
}

impl Whose {
    /// Returns `/proc/PID/` followed by `name`. Names are short; a longer path is cut.
    pub fn path(self, name: fmt::Arguments<'_>) -> ProcPath {
        let mut path = ProcPath { bytes: [0; PROC_PATH_BYTES], length: 0 };
        let _ = match self {
            Self::Own => write!(path, "/proc/self/{name}"),
            Self::Process(id) => write!(path, "/proc/{id}/{name}"),
        };
        path
    }

    /// Opens one of the process's files.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open(self, name: &str) -> io::Result<File> {
        File::open(self.path(format_args!("{name}")))
    }

    /// Whether it runs the same file as this process.
    pub fn is_like_us(self) -> bool {
        let file = |whose: Self| fs::metadata(whose.path(format_args!("exe"))).map(|file| (file.dev(), file.ino()));
        matches!((file(self), file(Self::Own)), (Ok(theirs), Ok(ours)) if theirs == ours)
    }

    /// Returns the path of the file that it runs, with the kernel's suffix (` (deleted)`).
    ///
    /// # Errors
    /// The kernel's error: not found for a kernel thread or a zombie.
    pub fn program(self) -> io::Result<Vec<u8>> {
        fs::read_link(self.path(format_args!("exe"))).map(|path| path.into_os_string().into_vec())
    }
}

/// The files of one process.
pub struct Place {
    whose: Whose,
    program: Option<Vec<u8>>,
    /// Opened when it is first needed. Keeps the result of that.
    page_map: Option<io::Result<File>>,
    /// A path below the process's root.
    scratch: Vec<u8>,
}

impl Place {
    /// Creates the sources of a process. No file is opened yet.
    pub fn new(whose: Whose) -> Self {
        Self { whose, program: whose.program().ok(), page_map: None, scratch: Vec::new() }
    }

    /// Opens the file of a mapping. For the program itself, this also works if it was deleted.
    /// Otherwise the file is found by its name as seen by the process, or, with
    /// CAP_CHECKPOINT_RESTORE, through map_files.
    fn file(&mut self, mapping: &Mapping, path: &[u8]) -> Option<File> {
        if self.program.as_deref() == Some(path)
            && let Ok(file) = self.whose.open("exe")
        {
            return Some(file);
        }
        if !path.ends_with(b" (deleted)") {
            self.scratch.clear();
            if self.whose != Whose::Own {
                self.scratch.extend_from_slice(self.whose.path(format_args!("root")).as_ref().as_os_str().as_bytes());
            }
            self.scratch.extend_from_slice(path);
            // FIFOs and devices are never opened: opening one may block or have effects.
            let path = Path::new(OsStr::from_bytes(&self.scratch));
            if fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
                && let Ok(file) = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
            {
                return Some(file);
            }
        }
        File::open(self.whose.path(format_args!("map_files/{:x}-{:x}", mapping.start, mapping.end))).ok()
    }
}

impl Sources for Place {
    fn content(&mut self, mapping: &Mapping, path: &[u8]) -> Content {
        let Some(file) = self.file(mapping, path) else { return Content::Unknown };
        match Elf::read(|buffer, offset| file.read_exact_at(buffer, offset)) {
            Some(elf) => Content::Program(elf),
            None => Content::Other,
        }
    }

    /// Reads 8 bytes for each page: bit 63 is present, 62 swapped, 61 of a file or shared
    /// (Documentation/admin-guide/mm/pagemap.rst).
    fn pages(&mut self, start: u64, end: u64, page: u64) -> Option<Amounts> {
        const PRESENT: u64 = 1 << 63;
        const SWAPPED: u64 = 1 << 62;
        const OF_A_FILE: u64 = 1 << 61;
        let whose = self.whose;
        let map = self.page_map.get_or_insert_with(|| whose.open("pagemap")).as_ref().ok()?;
        let mut amounts = Amounts::default();
        let mut entries = [0; ENTRIES * 8];
        let mut at = start / page;
        let last = end / page;
        while at < last {
            let count = usize::try_from(last - at).unwrap_or(ENTRIES).min(ENTRIES);
            map.read_exact_at(&mut entries[..count * 8], at * 8).ok()?;
            for entry in entries[..count * 8].chunks_exact(8) {
                let entry = u64::from_ne_bytes(entry.try_into().ok()?);
                if entry & PRESENT != 0 {
                    let kind = if entry & OF_A_FILE == 0 { &mut amounts.dirty } else { &mut amounts.clean };
                    *kind += page / 1_024;
                } else if entry & SWAPPED != 0 {
                    amounts.swap += page / 1_024;
                }
            }
            at += count as u64;
        }
        Some(amounts)
    }
}
