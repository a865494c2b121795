//! The files of a process, and the sources of a classification.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use super::classify::{ClassifierSources, FileContent};
use super::smaps::Mapping;
use super::{Amounts, Elf};

/// Entries of a page map that are read at a time.
const ENTRIES: usize = 128;

/// Reads the directory of a process in /proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcDir {
    /// The process that reads.
    Own,
    /// The process with this id.
    Process(u32),
}

impl ProcDir {
    /// Returns `/proc/PID/` followed by `name`.
    pub fn path(self, name: &str) -> String {
        match self {
            Self::Own => format!("/proc/self/{name}"),
            Self::Process(id) => format!("/proc/{id}/{name}"),
        }
    }

    /// Opens one of the process's files.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open(self, name: &str) -> io::Result<File> {
        File::open(self.path(name))
    }

    /// Returns the path by which this process reaches a file that the process knows as `path`.
    pub fn as_seen(self, path: &[u8]) -> PathBuf {
        let mut root = if self == Self::Own { String::new() } else { self.path("root") }.into_bytes();
        root.extend_from_slice(path);
        OsString::from_vec(root).into()
    }

    /// Whether it runs the same file as this process.
    pub fn is_like_us(self) -> bool {
        let file = |directory: Self| fs::metadata(directory.path("exe")).map(|file| (file.dev(), file.ino()));
        matches!((file(self), file(Self::Own)), (Ok(theirs), Ok(ours)) if theirs == ours)
    }

    /// Returns the path of the file that it runs, with the kernel's suffix (` (deleted)`).
    ///
    /// # Errors
    /// The kernel's error: not found for a kernel thread or a zombie.
    pub fn program(self) -> io::Result<Vec<u8>> {
        fs::read_link(self.path("exe")).map(|path| path.into_os_string().into_vec())
    }
}

/// The files of one process.
pub struct ProcessFiles {
    directory: ProcDir,
    program: Option<Vec<u8>>,
    /// Opened when it is first needed. Keeps the result of that.
    page_map: Option<io::Result<File>>,
}

impl ProcessFiles {
    /// Creates the sources of a process. No file is opened yet.
    pub fn new(directory: ProcDir) -> Self {
        Self { directory, program: directory.program().ok(), page_map: None }
    }

    /// Opens the file of a mapping. For the program itself, this also works if it was deleted.
    /// Otherwise the file is found by its name as seen by the process, or, with
    /// CAP_CHECKPOINT_RESTORE, through map_files.
    fn file(&self, mapping: &Mapping, path: &[u8]) -> Option<File> {
        if self.program.as_deref() == Some(path)
            && let Ok(file) = self.directory.open("exe")
        {
            return Some(file);
        }
        if !path.ends_with(b" (deleted)") {
            // FIFOs and devices are never opened: opening one may block or have effects.
            let path = self.directory.as_seen(path);
            if fs::symlink_metadata(&path).is_ok_and(|found| found.is_file())
                && let Ok(file) = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
            {
                return Some(file);
            }
        }
        self.directory.open(&format!("map_files/{:x}-{:x}", mapping.start, mapping.end)).ok()
    }
}

impl ClassifierSources for ProcessFiles {
    fn content(&mut self, mapping: &Mapping, path: &[u8]) -> FileContent {
        let Some(file) = self.file(mapping, path) else { return FileContent::Unknown };
        match Elf::read(|buffer, offset| file.read_exact_at(buffer, offset)) {
            Some(elf) => FileContent::Program(elf),
            None => FileContent::Other,
        }
    }

    /// Reads 8 bytes for each page: bit 63 is present, 62 swapped, 61 of a file or shared
    /// (Documentation/admin-guide/mm/pagemap.rst).
    fn pages(&mut self, start: u64, end: u64, page: u64) -> Option<Amounts> {
        const PRESENT: u64 = 1 << 63;
        const SWAPPED: u64 = 1 << 62;
        const OF_A_FILE: u64 = 1 << 61;
        let directory = self.directory;
        let map = self.page_map.get_or_insert_with(|| directory.open("pagemap")).as_ref().ok()?;
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
