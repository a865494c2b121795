//! The C shim, built with `cc` and the host's libc: the same program as the plain binary.

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The path of the plain binary.
pub const PLAIN: &str = env!("CARGO_BIN_EXE_kube-canary");
const SOURCE: &str = env!("CARGO_MANIFEST_DIR");

/// The shim, linked as `make -C c-shim` does it, from the archive of the same build.
pub fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        let shim = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kube-canary-shim-{}", std::process::id()));
        let mut cc = cc();
        cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&shim);
        // Not CFLAGS, which the build scripts of dependencies read.
        let flags = std::env::var("KUBE_CANARY_TEST_CFLAGS").unwrap_or_default();
        cc.args(flags.split_whitespace());
        cc.arg(format!("{SOURCE}/c-shim/main.c")).arg(archive()).args(["-lm", "-ldl", "-lpthread"]);
        succeed(&mut cc);
        shim
    })
}

/// The command of the C compiler.
pub fn cc() -> Command {
    Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
}

/// The crate as a static library. Its dependencies are already compiled.
fn archive() -> PathBuf {
    // target/PROFILE/kube-canary, or target/TRIPLE/PROFILE/kube-canary.
    let directory = Path::new(PLAIN).parent().expect("a binary lies in a directory");
    let above = directory.parent().expect("a profile's directory lies in another");
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    let triple = Some(name(above)).filter(|name| name.starts_with(ARCH) && name.contains("-linux-"));
    let target_directory = if triple.is_some() { above.parent().expect("a triple is a target's") } else { above };
    // Beside other tests, which measure agents, it only uses a CPU that is free.
    let mut cargo = Command::new("nice");
    cargo.args(["-n", "19", env!("CARGO")]);
    // These are variables that cargo sets for the tests of their package. Build scripts of
    // dependencies read some of them. With other values, cargo would run the scripts and compile
    // all that depends on them again.
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "OUT_DIR"]
            .iter()
            .any(|kind| name.starts_with(kind))
        {
            cargo.env_remove(variable);
        }
    }
    cargo
        .current_dir(SOURCE)
        .args(["rustc", "--lib", "--crate-type", "staticlib", "--offline", "--quiet", "--target-dir"])
        .arg(target_directory);
    let profile = name(directory);
    cargo.args(["--profile", if profile == "debug" { "dev" } else { &profile }]);
    if let Some(triple) = triple {
        cargo.arg("--target").arg(triple);
    }
    let features = [
        ("jemalloc", cfg!(feature = "jemalloc")),
        ("fuzzing", cfg!(feature = "fuzzing")),
        ("leak-finder", cfg!(feature = "leak-finder")),
    ];
    for (feature, _) in features.iter().filter(|(_, on)| *on) {
        cargo.args(["--features", feature]);
    }
    succeed(&mut cargo);
    directory.join("libkube_canary.a")
}

/// Runs a command that must succeed.
pub fn succeed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
