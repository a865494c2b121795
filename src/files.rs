//! Text files of the operator, which are read again when they change.
//!
//! A change is seen by one `stat`, not by inotify: a ConfigMap is swapped by renaming a symlink two
//! levels up, which a watch on the file never sees.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// What tells one version of a file from the next: the inode for a rename, the change time for a
/// write or a chmod. By default that of a file
/// that is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version(Option<(u64, u64, i64, i64, u64)>);

impl Version {
    /// Returns the present version.
    pub fn of(path: &Path) -> Self {
        let it = fs::metadata(path).ok();
        Self(it.map(|it| (it.dev(), it.ino(), it.ctime(), it.ctime_nsec(), it.size())))
    }
}

/// Reads a regular file of at most so many bytes.
///
/// # Errors
/// The system's, or [`io::ErrorKind::Other`] if the file is longer or no regular file.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    // A FIFO would block its reader for ever.
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
