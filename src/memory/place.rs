//! The files of a process, and the sources of a classification.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use super::classify::{ClassifierSources, FileContent};
use super::smaps::Mapping;
use super::{Amounts, Elf, pagemap};

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

    fn pages(&mut self, start: u64, end: u64, page: u64) -> Option<Amounts> {
        let directory = self.directory;
        let map = self.page_map.get_or_insert_with(|| directory.open("pagemap")).as_ref().ok()?;
        pagemap::amounts(map, start..end, page).ok()
    }
}
