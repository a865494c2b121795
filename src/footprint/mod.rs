//! `kube-canary footprint`: what a process's memory is for, and what programs take.
//!
//! One pass over smaps gives both the categories and the resident memory they add up to, so that the sum is right to the
//! kilobyte while the process goes on. Files are told apart by their program headers ([`Elf`]), anonymous memory by
//! the kernel's names for it and by where threads have their stacks ([`classify`] has the table). For many processes
//! `smaps_rollup` serves: the kernel's walk of page tables is most of the time, its text of thousands of mappings would
//! be the rest. The agent's own `memory_bytes` come from the same pass ([`read_own`]).
//!
//! What cannot be told from outside: an allocator's arenas beyond the heap (glibc's of other threads, jemalloc's, the
//! large blocks of any) are anonymous memory like any other, and so is a stack of a thread that is just running.

mod category;
mod classify;
mod elf;
mod name;
mod output;
mod place;
mod process;
mod programs;
pub(crate) mod smaps;
#[cfg(feature = "fuzzing")]
pub use smaps::fuzz_smaps;
mod stacks;

pub use category::{Amounts, Category, Footprint};
pub use elf::Elf;
pub use process::read_own;

use std::fs;
use std::io;

use crate::config::{FootprintSettings, FootprintSubject};
use crate::console;
use crate::limits::FOOTPRINT_READ_BYTES;
use crate::proc;
use name::Program;
use output::Process;
use place::Whose;
use programs::Programs;

/// The name of what is shown where nothing is asked for.
const CANARY: &str = "kube-canary";

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum FootprintError {
    /// It does not exist, or has ended meanwhile.
    #[error("process {0} is not there, or has ended")]
    Gone(u32),
    /// A kernel thread, or a zombie.
    #[error("process {0} has no memory: it is a kernel thread, or has ended and not been waited for")]
    NoMemory(u32),
    /// Another user's.
    #[error("cannot read the memory of process {0}: permission denied; run as its user, or as root (CAP_SYS_PTRACE)")]
    NoPermission(u32),
    /// Anything else.
    #[error("cannot {operation}: {error}")]
    System {
        /// What was tried.
        operation: String,
        /// What the system said.
        error: io::Error,
    },
    /// No canary.
    #[error("no other kube-canary is running here: name a process with --pid, or a program with --filter")]
    NoCanary,
    /// Nothing fits.
    #[error("--filter {0:?}: no program that can be read has that in its name")]
    NoMatch(String),
}

/// Shows what is asked for on standard output, and on standard error what could not be read.
///
/// # Errors
/// [`FootprintError`], where there is nothing to show.
// Apart from the agent's own code, which stays resident: inlined, it would stay with it.
#[inline(never)]
pub fn run(settings: &FootprintSettings) -> Result<(), FootprintError> {
    let mut text = Vec::new();
    match &settings.subject {
        FootprintSubject::Process(id) => output::processes(&mut text, &[process(*id)?], settings.json),
        FootprintSubject::Canaries => output::processes(&mut text, &canaries()?, settings.json),
        FootprintSubject::Programs(filter) => {
            let programs = Programs::read(&ids()?, filter);
            programs.warn();
            if programs.rows.is_empty() {
                return Err(FootprintError::NoMatch(filter.clone()));
            }
            if settings.json {
                let found: Vec<Process> = programs.ids.iter().filter_map(|id| process(*id).ok()).collect();
                output::programs_json(&mut text, &programs, &found);
            } else {
                output::programs(&mut text, &programs);
            }
        }
    }
    console::print(&text).map(drop).map_err(system("write to standard output"))
}

fn system(operation: impl Into<String>) -> impl FnOnce(io::Error) -> FootprintError {
    move |error| FootprintError::System { operation: operation.into(), error }
}

/// The ids of all processes, without our own.
fn ids() -> Result<Vec<u32>, FootprintError> {
    let entries = fs::read_dir("/proc").map_err(system("read /proc"))?;
    let own = std::process::id();
    let id = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    Ok(entries.map_while(Result::ok).filter_map(id).filter(|id| *id != own).collect())
}

/// Every canary but this process.
fn canaries() -> Result<Vec<Process>, FootprintError> {
    let mut found = Vec::new();
    let mut failed = None;
    for id in ids()? {
        let (Ok(program) | Err((program, _))) = Program::of(id);
        if !program.starts_with(CANARY) {
            continue;
        }
        match process(id) {
            Ok(process) => found.push(process),
            // It has ended meanwhile, or ended and was not waited for.
            Err(FootprintError::Gone(_) | FootprintError::NoMemory(_)) => {}
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if found.is_empty() => Err(error),
        Some(error) => {
            eprintln!("kube-canary: {error}");
            Ok(found)
        }
        None if found.is_empty() => Err(FootprintError::NoCanary),
        None => Ok(found),
    }
}

/// One process by category.
fn process(id: u32) -> Result<Process, FootprintError> {
    let whose = Whose::Process(id);
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => FootprintError::NoPermission(id),
        io::ErrorKind::NotFound if whose.open("stat").is_ok() => FootprintError::NoMemory(id),
        _ if is_gone(&error) => FootprintError::Gone(id),
        _ => system(format!("read the memory of process {id}"))(error),
    };
    let footprint = process::read(whose).map_err(refused)?;
    let (Ok(name) | Err((name, _))) = Program::of(id);
    // Exact, where the sum of the parts is rounded down for each.
    let pss = process::sum(whose, &mut [0; FOOTPRINT_READ_BYTES]).map_or(footprint.pss, |sum| sum.pss);
    let page_tables = proc::find(whose.path(format_args!("status")), |line| proc::number(line, "VmPTE:"));
    Ok(Process { id, name, footprint, pss, like_us: whose.is_like_us(), page_tables })
}

/// Whether an error says that the process has ended.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::{Duration, Instant};

    /// The kernel's own sums of a process, in KB.
    fn rollup(id: u32) -> [u64; 4] {
        let text = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).unwrap();
        let of = |name| text.lines().find_map(|line| proc::number::<u64>(line, name)).unwrap();
        [of("Rss:"), of("Pss:"), of("Private_Clean:") + of("Private_Dirty:"), of("Swap:")]
    }

    #[test]
    fn a_process_that_stands_still_is_what_the_kernel_s_own_sums_say() {
        let mut child = Command::new("sh").args(["-c", "kill -STOP $$"]).spawn().unwrap();
        let end = Instant::now() + Duration::from_mins(1);
        let stopped = |id| fs::read_to_string(format!("/proc/{id}/stat")).unwrap().contains(") T ");
        while !stopped(child.id()) {
            assert!(Instant::now() < end, "it never stops");
            std::thread::yield_now();
        }
        // Others come and go who share its libraries, and its part of these with them: looked at while nobody does.
        let (sums, shown) = loop {
            let (before, shown, after) = (rollup(child.id()), process(child.id()).unwrap(), rollup(child.id()));
            if before == after {
                break (before, shown);
            }
            assert!(Instant::now() < end, "it never stands still");
        };
        child.kill().unwrap();
        child.wait().unwrap();
        let footprint = shown.footprint;
        assert_eq!([footprint.rss, shown.pss, footprint.private, footprint.swap], sums);
        assert!(shown.page_tables.unwrap() > 0 && !shown.name.is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_said_in_one_line() {
        let zombie = Command::new("true").spawn().unwrap();
        let id = zombie.id();
        let end = Instant::now() + Duration::from_mins(1);
        while !fs::read_to_string(format!("/proc/{id}/stat")).unwrap().contains(") Z ") {
            assert!(Instant::now() < end, "it never ends");
            std::thread::yield_now();
        }
        assert!(matches!(process(id), Err(FootprintError::NoMemory(found)) if found == id));
        { zombie }.wait().unwrap();
        assert!(matches!(process(u32::MAX), Err(FootprintError::Gone(u32::MAX))));
    }
}
