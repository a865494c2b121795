//! Files that hold the output of a real agent.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Fails if the file at `path`, in the repository, is not `real`, and shows the lines that differ.
/// With `KUBE_CANARY_BLESS=1` it writes the file, and `git diff` shows what changed.
pub fn hold(path: &str, real: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("KUBE_CANARY_BLESS").is_some() {
        fs::write(&file, real).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    let golden = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"));
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (is, was) = (lines(real), lines(&golden));
    let difference: String = (was.difference(&is).map(|line| format!("- {line}\n")))
        .chain(is.difference(&was).map(|line| format!("+ {line}\n")))
        .collect();
    assert!(real == golden, "{path} differs (KUBE_CANARY_BLESS=1 writes it again), or its order does:\n{difference}");
}
