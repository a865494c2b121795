//! Passes the revision to the program, and the order of functions to the linker of release builds
//! (layout/README.md). Compiles the `main` of the feature `c-shim`.

use std::env;
use std::path::Path;
use std::process::Command;

/// Overrides the revision if there is no repository: in an image's build, or in an
/// archive of the sources.
const VARIABLE: &str = "KUBE_CANARY_REVISION";
/// The most characters of a revision: a full hash, and a word after it.
const LENGTH_MAX: usize = 64;
/// Names a file into which the linker of a release build writes its map, for layout/check.py.
const LINK_MAP: &str = "KUBE_CANARY_LINK_MAP";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for script in ["functions", "aarch64"] {
        println!("cargo::rerun-if-changed=layout/{script}.ld");
    }
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    println!("cargo::rerun-if-env-changed={LINK_MAP}");
    let variable = |name| env::var(name).unwrap_or_default();
    let is_release = variable("PROFILE") == "release";
    let is_aarch64 = variable("CARGO_CFG_TARGET_ARCH") == "aarch64";
    if is_aarch64 && variable("CARGO_CFG_TARGET_OS") == "linux" {
        // As the linker does by itself for x86_64: constants have pages of their own, which are not
        // executable. Those of .rodata.rare stay behind the code.
        println!("cargo::rustc-link-arg=-Wl,-z,separate-code");
    }
    let given = Some(variable(VARIABLE)).filter(|revision| !revision.is_empty());
    if let Some(revision) = &given {
        let is_plain = revision.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        assert!(
            is_plain && revision.len() <= LENGTH_MAX,
            "{VARIABLE}={revision}: up to {LENGTH_MAX} letters, digits, dots, underscores and hyphens are accepted"
        );
    }
    // Debug builds do not run git: each commit would compile the crate and its tests again.
    let revision = given.or_else(|| if is_release { committed() } else { None });
    println!("cargo::rustc-env={VARIABLE}={}", revision.as_deref().unwrap_or("unknown"));
    if is_release && variable("CARGO_CFG_TARGET_OS") == "linux" {
        let layout = format!("{}/layout", variable("CARGO_MANIFEST_DIR"));
        if is_aarch64 {
            // The linker takes a function for the first list that has it.
            println!("cargo::rustc-link-arg-bins=-Wl,-T,{layout}/aarch64.ld");
        }
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{layout}/functions.ld");
        if let Ok(map) = env::var(LINK_MAP) {
            println!("cargo::rustc-link-arg-bins=-Wl,-Map={map}");
        }
    }
    #[cfg(feature = "c-shim")]
    compile_main();
}

/// Compiles c-shim/main.c for the target, and passes it to the linker of the binary. The `cc` crate
/// chooses the compiler as it does for the C code of the dependencies: `CC_TARGET`, `CC`, or the
/// target's usual one.
#[cfg(feature = "c-shim")]
fn compile_main() {
    for file in ["c-shim/main.c", "c-shim/kube_canary.h"] {
        println!("cargo::rerun-if-changed={file}");
    }
    let mut build = cc::Build::new();
    build.file("c-shim/main.c").std("c11").extra_warnings(true);
    // An object rather than an archive: the linker extracts no member of an archive that nothing
    // has referenced when its turn comes, and it always takes an object.
    for object in build.compile_intermediates() {
        println!("cargo::rustc-link-arg-bin=kube-canary={}", object.display());
    }
}

/// Returns the commit that is checked out, shortened. Returns none without our own
/// repository or without git.
fn committed() -> Option<String> {
    // Without this check, git would use an enclosing repository that merely contains these sources.
    if !Path::new(".git").exists() {
        return None;
    }
    // Each commit and each checkout adds a line to this file, and nothing else does.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// Returns the first line of git's output, if git succeeds.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?.lines().next()?.to_owned();
    output.status.success().then_some(line)
}
