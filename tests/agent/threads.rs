//! The number of threads follows `--http-workers` and nothing else.
#![expect(unsafe_code, reason = "sched_setaffinity(2) has no safe wrapper in std")]

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::{fs, io, thread};

use kube_canary::limits::CONNECTIONS_PER_WORKER;

use crate::agent::{Agent, PEERS, command, directory};
use crate::common::scrape::fetch;
use crate::common::until::until;
use crate::shim::{PLAIN, cc, succeed};

/// Asserts that the agent has `count` threads: after its start, during as many scrapes as it has
/// places, and after them.
fn has_threads(agent: &Agent, count: u64) {
    let workers = usize::try_from(count - 1).expect("a few");
    let threads = || agent.process.status("Threads");
    until("all threads have started", || if threads() == count { Ok(()) } else { Err(threads().to_string()) });
    thread::scope(|scope| {
        let scrapes: Vec<_> =
            (0..workers * CONNECTIONS_PER_WORKER).map(|_| scope.spawn(|| fetch(agent.http, "/metrics", ""))).collect();
        for scrape in scrapes {
            assert_eq!(threads(), count);
            // An earlier connection may still have its place. Then the server refuses one, which is
            // an answer too.
            let response = scrape.join().expect("no panic").expect("an answer");
            assert!([200, 503].contains(&response.status), "{response:?}");
        }
    });
    assert_eq!(threads(), count);
}

#[test]
fn there_are_five_threads_with_the_defaults() {
    has_threads(&Agent::start(&PEERS), 5);
}

#[test]
fn there_is_one_thread_more_than_workers() {
    has_threads(&Agent::start(&[&PEERS[..], &["--http-workers", "2"]].concat()), 3);
}

#[test]
fn one_cpu_changes_nothing() {
    let mut command = command(PLAIN, &PEERS);
    // SAFETY: the calls are async-signal-safe, and the closure touches no memory of the parent.
    unsafe { command.pre_exec(use_one_cpu) };
    let agent = Agent::of(&mut command);
    let status = fs::read_to_string(format!("/proc/{}/status", agent.process.id())).expect("procfs");
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list").trim();
    assert!(allowed.parse::<u32>().is_ok(), "more than one CPU is allowed: {allowed}");
    has_threads(&agent, 5);
}

/// The default of glibc, which is at most eight arenas per CPU. glibc reserves the heap of an arena
/// at a multiple of its size, with the part in use first.
#[cfg(all(target_env = "gnu", not(feature = "jemalloc")))]
#[test]
fn no_thread_has_an_arena_of_its_own() {
    const HEAP_BYTES: u64 = 64 << 20;
    let agent = Agent::start(&PEERS);
    has_threads(&agent, 5);
    let maps = fs::read_to_string(format!("/proc/{}/maps", agent.process.id())).expect("procfs");
    let mapping = |line: &str| {
        let mut words = line.split(' ');
        let (start, end) = words.next()?.split_once('-')?;
        let address = |hex| u64::from_str_radix(hex, 16).ok();
        Some((address(start)?, address(end)?, words.next()?.to_owned()))
    };
    let mappings: Vec<_> = maps.lines().map(|line| mapping(line).expect("a mapping")).collect();
    let arenas = mappings.windows(2).filter(|pair| {
        let [(start, end, used), (next, last, rest)] = pair else { return false };
        (used.as_str(), rest.as_str(), end) == ("rw-p", "---p", next)
            && start % HEAP_BYTES == 0
            && last - start == HEAP_BYTES
    });
    assert_eq!(arenas.count(), 0, "{maps}");
}

/// Binds this process to the first of its CPUs.
fn use_one_cpu() -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let (mut set, mut one): (libc::cpu_set_t, libc::cpu_set_t) = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: `set` has `size` bytes and outlives the call.
    if unsafe { libc::sched_getaffinity(0, size, &raw mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the index is below the set's size.
    let first = (0..size * 8).find(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).ok_or(io::ErrorKind::NotFound)?;
    // SAFETY: as above.
    unsafe { libc::CPU_SET(first, &mut one) };
    // SAFETY: `one` has `size` bytes and outlives the call.
    if unsafe { libc::sched_setaffinity(0, size, &raw const one) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A library that replaces all functions that return the number of CPUs. They return `CPUS`.
const FAKE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

int get_nprocs(void) { return CPUS; }
int get_nprocs_conf(void) { return CPUS; }

long sysconf(int name) {
    if (name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF) {
        return CPUS;
    }
    long (*real)(int) = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    return real(name);
}

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set) {
    (void)pid;
    memset(set, 0, size);
    for (size_t cpu = 0; cpu < CPUS; cpu++) {
        CPU_SET_S(cpu, size, set);
    }
    return 0;
}
"#;

/// A program that prints what those functions return.
const ASK: &str = r#"
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <sys/sysinfo.h>
#include <unistd.h>

int main(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return 1;
    }
    printf("%d %d %ld %ld", CPU_COUNT(&set), get_nprocs(), sysconf(_SC_NPROCESSORS_ONLN), sysconf(_SC_NPROCESSORS_CONF));
    return 0;
}
"#;

fn compile(name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let out = directory().join(format!("{name}-{}", std::process::id()));
    let file = out.with_extension("c");
    fs::write(&file, source).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    succeed(cc().args(flags).arg("-o").arg(&out).arg(&file).arg("-ldl"));
    out
}

/// A statically linked program has no loader, so nothing can be preloaded. `cargo test` for musl
/// builds such a program.
#[cfg(not(target_feature = "crt-static"))]
#[test]
fn the_number_of_cpus_that_the_system_reports_changes_nothing() {
    let ask = compile("ask-cpus", ASK, &[]);
    for cpus in ["1", "64"] {
        let define = format!("-DCPUS={cpus}");
        let fake = compile(&format!("fake-cpus-{cpus}"), FAKE, &["-shared", "-fPIC", &define]);
        let said = Command::new(&ask).env("LD_PRELOAD", &fake).output().expect("it starts");
        assert_eq!(String::from_utf8_lossy(&said.stdout), [cpus; 4].join(" "), "the fake works");
        let agent = Agent::of(command(PLAIN, &PEERS).env("LD_PRELOAD", &fake));
        let maps = fs::read_to_string(format!("/proc/{}/maps", agent.process.id())).expect("procfs");
        assert!(maps.contains(fake.to_str().expect("a path in UTF-8")), "the agent runs with the fake");
        has_threads(&agent, 5);
    }
}
