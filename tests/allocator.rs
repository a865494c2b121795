//! Which malloc runs, whether the program shows it, and that no huge page backs its memory. These
//! tests use the plain binary.

mod blocked;

use std::process::{Command, Output};

use blocked::Blocked;

const PLAIN: &str = env!("CARGO_BIN_EXE_kube-canary");
const LIBC: &str = if cfg!(target_env = "musl") { "musl" } else { "glibc" };

fn version(command: &mut Command) -> serde_json::Value {
    let output: Output = command.args(["version", "--json"]).output().expect("it starts");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn version_names_the_malloc_that_runs() {
    let version = version(&mut Command::new(PLAIN));
    let jemalloc = cfg!(feature = "jemalloc");
    assert_eq!(version["allocator"], if jemalloc { "jemalloc" } else { LIBC }, "{version}");
    assert_eq!(version["libc"], LIBC, "{version}");
    let linkage = if cfg!(feature = "c-shim") { "c-shim" } else { "rust" };
    assert_eq!(version["linkage"], linkage, "{version}");
    assert_eq!(version["revision"], env!("KUBE_CANARY_REVISION"), "{version}");
    let number = version["allocator_version"].as_str().expect("a string");
    assert!(number.starts_with(|first: char| first.is_ascii_digit()), "{version}");
    let baked_in = option_env!("KUBE_CANARY_NARENAS").unwrap_or("1");
    let narenas = version["narenas"].as_u64();
    if jemalloc && baked_in == "default" {
        // jemalloc's own choice, which depends on the CPUs that it may use.
        assert!(narenas > Some(0), "{version}");
    } else {
        let baked_in = baked_in.parse::<u64>().expect("checked by the build");
        assert_eq!(narenas, jemalloc.then_some(baked_in), "{version}");
    }
}

#[test]
fn huge_pages_are_off_in_the_plain_binary() {
    Blocked::start(&mut Command::new(PLAIN)).has_no_huge_pages();
}

#[cfg(feature = "jemalloc")]
#[test]
fn the_environment_overrides_the_arenas_that_were_baked_in() {
    let version = version(Command::new(PLAIN).env("_RJEM_MALLOC_CONF", "narenas:3"));
    assert_eq!(version["narenas"], 3, "{version}");
}

#[cfg(feature = "jemalloc")]
#[test]
fn a_misspelt_jemalloc_option_ends_the_start_and_is_named() {
    let output = Command::new(PLAIN).arg("version").env("_RJEM_MALLOC_CONF", "narena:3").output().expect("it starts");
    assert!(!output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("narena:3"), "{output:?}");
}

/// A library with a constructor that runs before all constructors of the program. It asks the
/// kernel for huge pages. Then it writes a line: whether huge pages are disabled for this process,
/// and how many kilobytes of them it got.
///
/// Two properties of the machine must not decide the test. The first start enables huge pages,
/// because a process inherits the flag from its parent. If the kernel has no huge page to give, the
/// first start answers the program's question itself: the library replaces `open`, and its
/// `smaps_rollup` lists huge pages.
#[cfg(all(target_env = "gnu", not(target_feature = "crt-static")))]
const HUGE_PAGES_BEFORE_US: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
static const size_t HUGE = 2u << 20;
static int scripted;
__attribute__((constructor)) static void first(void) {
    char line[256];
    FILE *rollup = fopen("/proc/self/smaps_rollup", "r"), *log = fopen(getenv("KUBE_CANARY_TEST_LOG"), "a");
    if (!rollup || !log || fseek(log, 0, SEEK_END)) abort();
    int is_first_start = ftell(log) == 0;
    if (is_first_start && prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0)) abort();
    char *region = mmap(0, 17 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED) abort();
    char *aligned = (char *)(((uintptr_t)region + HUGE - 1) / HUGE * HUGE);
    madvise(aligned, 16 * HUGE, MADV_HUGEPAGE);
    for (int page = 0; page < 16; page++) aligned[page * HUGE] = 1;
    long huge = 0;
    while (fgets(line, sizeof line, rollup)) sscanf(line, "AnonHugePages: %ld", &huge);
    fprintf(log, "disabled=%d huge=%ld\n", prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), huge);
    fclose(log);
    fclose(rollup);
    scripted = is_first_start && !huge;
}
int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, int) : 0;
    va_end(rest);
    if (!scripted || strcmp(path, "/proc/self/smaps_rollup")) return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    static const char answer[] = "Rss:  33000 kB\nAnonHugePages:  32768 kB\n";
    int file = memfd_create("smaps_rollup", MFD_CLOEXEC);
    if (file < 0 || write(file, answer, sizeof answer - 1) < 0 || lseek(file, 0, SEEK_SET) < 0) abort();
    return file;
}
"#;

#[cfg(all(target_env = "gnu", not(target_feature = "crt-static")))]
#[test]
fn a_process_that_already_has_huge_pages_is_started_again_without_them() {
    use std::fs;
    let path = |suffix: &str| format!("{}/huge-{}{suffix}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let (source, library, log) = (path(".c"), path(".so"), path(".log"));
    fs::write(&source, HUGE_PAGES_BEFORE_US).expect("the directory is writable");
    let cc = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let compiled = Command::new(cc).args(["-shared", "-fPIC", "-o", &library, &source]).output().expect("a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));

    let mut command = Command::new(PLAIN);
    let blocked = Blocked::start(command.env("LD_PRELOAD", &library).env("KUBE_CANARY_TEST_LOG", &log));
    let starts = fs::read_to_string(&log).expect("the library was loaded");
    let starts: Vec<&str> = starts.lines().collect();
    assert_eq!(starts.len(), 2, "started twice, not more: {starts:?}");
    assert!(starts[0].starts_with("disabled=0 "), "{starts:?}");
    assert_eq!(starts[1], "disabled=1 huge=0", "the second time without huge pages: {starts:?}");
    blocked.has_no_huge_pages();
    assert_eq!(blocked.proc("comm"), "kube-canary\n");
    assert_eq!(blocked.proc("cmdline"), format!("{PLAIN}\0version\0"));
    for file in [source, library, log] {
        fs::remove_file(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}
