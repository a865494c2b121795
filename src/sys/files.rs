//! Text files of the operator that are read again when they change.
//!
//! A change is detected by one `stat`, not by inotify. A ConfigMap is replaced by renaming a
//! symlink two levels up, which a watch on the file never sees.

use std::fmt::Display;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The identity of one version of a file: the inode changes with a rename, the change time with a
/// write or a chmod. The default is the version of a file that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version(Option<(u64, u64, i64, i64, u64)>);

impl Version {
    /// Returns the current version of a file.
    pub fn read(path: &Path) -> Self {
        let metadata = fs::metadata(path).ok();
        Self(metadata.map(|file| (file.dev(), file.ino(), file.ctime(), file.ctime_nsec(), file.size())))
    }
}

/// Reads a regular file of at most `bytes_max` bytes.
///
/// # Errors
/// The system's error, or [`io::ErrorKind::Other`] if the file is longer or not a regular file.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    // Opening a FIFO would block forever.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("longer than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// A file that is read again when it changes, and what was last read of it. While its content is
/// bad, the last good value stays.
#[derive(Debug, Default)]
pub struct LastRead<T> {
    /// Version last read. `None` before the first read.
    version: Option<Version>,
    value: T,
    /// Why the present version is not in use.
    error: Option<String>,
}

/// What a look at a file has found.
#[derive(Debug, PartialEq, Eq)]
pub enum Look<'a> {
    /// Nothing new: the same version, or the same error again.
    Same,
    /// A new version was read, and its value is in use.
    New,
    /// An error that the look before did not find. The last good value stays.
    Refused(&'a str),
}

impl<T> LastRead<T> {
    /// Returns the value of the last version that was good.
    pub const fn value(&self) -> &T {
        &self.value
    }

    /// Reads the file if it has changed since the last look, or if that one found an error.
    pub fn look<E: Display>(&mut self, path: &Path, read: impl FnOnce(&Path) -> Result<T, E>) -> Look<'_> {
        // The version is taken before the content is read. An edit between the two is seen as a
        // change by the next look.
        let version = Some(Version::read(path));
        if version == self.version && self.error.is_none() {
            return Look::Same;
        }
        self.version = version;
        match read(path) {
            Ok(value) => {
                (self.value, self.error) = (value, None);
                Look::New
            }
            Err(error) => {
                let error = error.to_string();
                if self.error.as_ref() == Some(&error) { Look::Same } else { Look::Refused(self.error.insert(error)) }
            }
        }
    }
}
