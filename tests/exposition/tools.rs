//! The programs that `tests/exposition/tools/build` compiles.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The path of one of them.
///
/// # Panics
/// If they are not built: there is no network in here to build them.
pub fn path(name: &str) -> &'static Path {
    static PATHS: OnceLock<HashMap<String, PathBuf>> = OnceLock::new();
    let paths = PATHS.get_or_init(|| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/exposition/tools/build");
        let output = Command::new(script).arg("paths").output().unwrap_or_else(|error| panic!("{script}: {error}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("paths are text");
        let pair = |line: &str| line.split_once('=').map(|(name, path)| (name.to_owned(), PathBuf::from(path)));
        text.lines().filter_map(pair).collect()
    });
    &paths[name]
}
