//! Directories of the test's own.

use std::path::PathBuf;

/// A directory that is removed as it is dropped.
pub struct Directory(pub PathBuf);

impl Directory {
    /// Makes a directory for files of this kind.
    pub fn new(kind: &str) -> Self {
        let path = std::env::temp_dir().join(format!("kube-canary-{kind}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Returns the path of a file in it.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
