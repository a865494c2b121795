//! The C shim is the same program as the plain binary.

#[path = "common/shim.rs"]
mod shim;

mod blocked;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use blocked::Blocked;
use shim::{PLAIN, shim};

const SOURCE: &str = env!("CARGO_MANIFEST_DIR");

fn run(program: impl AsRef<Path>, args: &[&str]) -> Output {
    let program = program.as_ref();
    Command::new(program)
        .arg0("kube-canary")
        .args(args)
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}

#[test]
fn the_header_is_the_one_of_the_exports() {
    let header = "c-shim/kube_canary.h";
    let config = cbindgen::Config { usize_is_size_t: true, ..Default::default() };
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(format!("{SOURCE}/src/shim.rs"))
        .with_language(cbindgen::Language::C)
        .with_style(cbindgen::Style::Tag)
        .rename_item("KubeCanaryLink", "kube_canary_link")
        .with_include_guard("KUBE_CANARY_H")
        .with_autogen_warning("/* Generated from src/shim.rs: KUBE_CANARY_BLESS=1 cargo test --test c_shim */")
        .with_no_includes()
        .with_sys_include("stdbool.h")
        .with_sys_include("stddef.h")
        .with_line_length(120)
        .generate()
        .expect("src/shim.rs is readable");
    let mut generated = Vec::new();
    bindings.write(&mut generated);
    let generated = String::from_utf8(generated).expect("C is text");
    let path = Path::new(SOURCE).join(header);
    if std::env::var_os("KUBE_CANARY_BLESS").is_some() {
        fs::write(&path, &generated).expect("the header is writable");
    }
    let committed = fs::read_to_string(&path).expect("the header is there");
    assert!(committed == generated, "{header} is not that of src/shim.rs, which is:\n{generated}");
}

#[test]
fn the_shim_says_that_the_final_link_decided() {
    let output = run(shim(), &["version", "--json"]);
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(version["linkage"], "c-shim", "{version}");
    let libc = if cfg!(target_env = "musl") { "musl" } else { "glibc" };
    assert_eq!(version["libc"], libc, "{version}");
    let allocator = if cfg!(feature = "jemalloc") { "jemalloc" } else { libc };
    assert_eq!(version["allocator"], allocator, "{version}");
}

#[test]
fn huge_pages_are_off_behind_the_shim() {
    Blocked::start(&mut Command::new(shim())).has_no_huge_pages();
}

#[test]
fn the_shim_answers_and_exits_like_the_plain_binary() {
    for (args, code) in [(&["--help"][..], 0), (&["--no-such-flag"], 2), (&["no-such-command"], 2)] {
        let (plain, shim) = (run(PLAIN, args), run(shim(), args));
        assert_eq!(plain.status.code(), Some(code), "{args:?}: {plain:?}");
        assert_eq!(shim, plain, "{args:?}");
    }
}

#[test]
fn arguments_that_are_not_utf8_and_none_at_all_reach_rust() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let exit = |program: &Path| {
        let mut command = Command::new(program);
        command.arg0("kube-canary").arg(OsStr::from_bytes(b"--\xff")).output().expect("it starts")
    };
    assert_eq!(exit(shim()), exit(Path::new(PLAIN)));
}

#[test]
fn a_reader_that_went_away_does_not_kill_the_shim() {
    for program in [Path::new(PLAIN), shim()] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(program);
        let output = command.arg("version").stdout(writer).stderr(Stdio::piped()).output().expect("it starts");
        assert!(output.status.code().is_some(), "{program:?}: ended by a signal: {output:?}");
    }
}

#[test]
fn closed_standard_descriptors_are_opened_again() {
    let script = "exec \"$0\" version --json <&- 2>&- | cat";
    for program in [Path::new(PLAIN), shim()] {
        let output = Command::new("sh").args(["-c", script]).arg(program).output().expect("a shell");
        assert!(output.stdout.starts_with(b"{"), "{program:?}: {output:?}");
    }
}
