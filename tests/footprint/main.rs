//! `kube-canary footprint` on real processes with known memory: some stand still, some have ended,
//! some may not be read.

#[path = "../common/mod.rs"]
mod common;
mod failures;
#[path = "../http_support/mod.rs"]
mod http_support;
mod programs;
mod taken;

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use common::process::{Process, unique};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_kube-canary");
/// The pages of one step of the program.
const PAGES: u64 = 64;

fn directory() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// `tests/footprint/program.c`, at fixed addresses or at any address. Each form is compiled once.
fn program(fixed: bool) -> &'static Path {
    static PROGRAMS: [OnceLock<PathBuf>; 2] = [OnceLock::new(), OnceLock::new()];
    PROGRAMS[usize::from(fixed)].get_or_init(|| {
        let out = unique(directory(), if fixed { "taker-fixed" } else { "taker" });
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/footprint/program.c");
        let kind: &[&str] = if fixed { &["-fno-pie", "-no-pie"] } else { &["-fPIE", "-pie"] };
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let mut command = Command::new(compiler);
        // Not every linker separates constants from code by default: for arm64, GNU ld does not.
        command.args(["-O1", "-Wall", "-Werror", "-pthread", "-Wl,-z,separate-code"]).args(kind);
        let made = command.arg("-o").arg(&out).arg(&source).status().expect("a C compiler");
        assert!(made.success(), "{made}");
        out
    })
}

/// A copy of the program, made by a process of its own. If this process wrote it, another test's
/// child might hold it open for a moment, and a file that is open for writing cannot be executed.
fn copy(name: &str) -> PathBuf {
    let copy = unique(directory(), name);
    let made = Command::new("cp").arg(program(false)).arg(&copy).status().expect("cp");
    assert!(made.success(), "{made}");
    copy
}

fn footprint(arguments: &[&str]) -> Output {
    Command::new(BINARY).arg("footprint").args(arguments).output().expect("the binary runs")
}

fn json(arguments: &[&str]) -> Value {
    let output = footprint(&[arguments, &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The process `id` in the answer. Its categories must add up to its resident memory.
fn one(answer: &Value, id: u32) -> Value {
    let processes = answer["processes"].as_array().expect("a list");
    let found = processes.iter().find(|process| process["pid"] == id).unwrap_or_else(|| panic!("no {id} in {answer}"));
    let sum = |field: &str| -> u64 {
        let categories = found["categories"].as_array().expect("a list");
        categories.iter().map(|category| category[field].as_u64().expect("a number")).sum()
    };
    assert_eq!(sum("clean_bytes") + sum("dirty_bytes"), number(found, "rss_bytes"), "{found}");
    assert_eq!(sum("swap_bytes"), number(found, "swap_bytes"), "{found}");
    found.clone()
}

fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("no {field} in {value}"))
}

/// Resident and swapped kilobytes of a category. A page that was swapped out is still there.
fn kilobytes(process: &Value, category: &str) -> u64 {
    let categories = process["categories"].as_array().expect("a list");
    let found = categories.iter().find(|found| found["category"] == category).expect("every category");
    ["clean_bytes", "dirty_bytes", "swap_bytes"].map(|field| number(found, field)).iter().sum::<u64>() / 1_024
}

/// Waits until every thread of the program sleeps, so that its memory does not change.
fn wait_until_asleep(process: &Process) {
    common::until::until_so("every thread sleeps", || {
        let threads = fs::read_dir(format!("/proc/{}/task", process.id())).expect("it runs");
        threads
            .map_while(Result::ok)
            .all(|thread| fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| stat.contains(") S ")))
    });
}

/// The program while it runs.
struct Taker {
    process: Process,
    input: std::process::ChildStdin,
    output: std::process::ChildStdout,
    file: PathBuf,
}

impl Taker {
    fn start(fixed: bool) -> Self {
        let file = unique(directory(), "mapped");
        fs::write(&file, vec![7; usize::try_from(PAGES * 65_536).unwrap()]).expect("our directory is writable");
        let mut command = Command::new(program(fixed));
        command.arg(&file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(&mut command, directory());
        let (input, output) = process.pipes();
        let mut this = Self { process, input, output, file };
        this.answers(b'r');
        wait_until_asleep(&this.process);
        this
    }

    fn answers(&mut self, expected: u8) {
        let mut byte = [0];
        self.output.read_exact(&mut byte).expect("the program answers");
        assert_eq!(byte[0], expected);
    }

    /// Takes a step, and waits until it is done and every thread sleeps. The stack of a
    /// running thread is unknown.
    fn step(&mut self, step: u8) {
        self.input.write_all(&[step]).expect("the program reads");
        self.answers(step);
        wait_until_asleep(&self.process);
    }

    fn look(&self) -> Value {
        let id = self.process.id();
        one(&json(&["--pid", &id.to_string()]), id)
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}
