//! `kube-canary footprint`: the purpose of a process's memory, and the memory that programs use.
//!
//! One process is read by category ([`crate::memory`]). For many processes `smaps_rollup` is used:
//! most of the time is the kernel's walk of page tables, and the text of thousands of mappings
//! would be the rest. The agent's own `memory_bytes` come from the same pass
//! ([`crate::memory::read_own`]).

mod output;
mod programs;

use std::fs;
use std::io;

use crate::config::{FootprintSettings, FootprintSubject};
use crate::memory::place::ProcDir;
use crate::memory::{name, process};
use crate::sys::console;
use crate::sys::error::{SystemError, system};
use crate::sys::proc;
use output::Process;
use programs::Programs;

/// The program that is shown by default.
const CANARY: &str = "kube-canary";

/// The reason why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum FootprintError {
    /// The process does not exist, or has ended.
    #[error("process {0} is not there, or has ended")]
    Gone(u32),
    /// The process is a kernel thread or a zombie.
    #[error("process {0} has no memory: it is a kernel thread, or has ended and not been waited for")]
    NoMemory(u32),
    /// The process belongs to another user.
    #[error("cannot read the memory of process {0}: permission denied; run as its user, or as root (CAP_SYS_PTRACE)")]
    NoPermission(u32),
    /// Any other error of the system.
    #[error(transparent)]
    System(#[from] SystemError),
    /// No other kube-canary is running.
    #[error("no other kube-canary is running here: name a process with --pid, or a program with --filter")]
    NoAgent,
    /// No program matches the filter.
    #[error("--filter {0:?}: no program that can be read has that in its name")]
    NoMatch(String),
}

/// Prints the requested figures on standard output, and on standard error what could not be read.
///
/// # Errors
/// [`FootprintError`], if there is nothing to show.
// This is separate from the agent's own code, which stays resident. If it were inlined, it would
// stay resident, too.
#[inline(never)]
pub fn run(settings: &FootprintSettings) -> Result<(), FootprintError> {
    let mut text = Vec::new();
    match &settings.subject {
        FootprintSubject::Process(id) => output::processes(&mut text, &[process(*id)?], settings.json),
        FootprintSubject::Agents => output::processes(&mut text, &agents()?, settings.json),
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
    console::print(&text).map_err(system("write to standard output"))?;
    Ok(())
}

/// Returns the ids of all processes except our own.
fn ids() -> Result<Vec<u32>, FootprintError> {
    let entries = fs::read_dir("/proc").map_err(system("read /proc"))?;
    let own = std::process::id();
    let id = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    Ok(entries.map_while(Result::ok).filter_map(id).filter(|id| *id != own).collect())
}

/// Returns every kube-canary process except this one.
fn agents() -> Result<Vec<Process>, FootprintError> {
    let mut found = Vec::new();
    let mut failed = None;
    for id in ids()? {
        let (Ok(program) | Err((program, _))) = name::program_name(id);
        if !program.starts_with(CANARY) {
            continue;
        }
        match process(id) {
            Ok(process) => found.push(process),
            // The process has ended since, or is a zombie.
            Err(FootprintError::Gone(_) | FootprintError::NoMemory(_)) => {}
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if found.is_empty() => Err(error),
        Some(error) => {
            console::print_error(&error);
            Ok(found)
        }
        None if found.is_empty() => Err(FootprintError::NoAgent),
        None => Ok(found),
    }
}

/// Reads one process by category.
fn process(id: u32) -> Result<Process, FootprintError> {
    let directory = ProcDir::Process(id);
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => FootprintError::NoPermission(id),
        io::ErrorKind::NotFound if directory.open("stat").is_ok() => FootprintError::NoMemory(id),
        _ if is_gone(&error) => FootprintError::Gone(id),
        _ => system(format!("read the memory of process {id}"))(error).into(),
    };
    let footprint = process::read(directory).map_err(refused)?;
    let (Ok(name) | Err((name, _))) = name::program_name(id);
    // This figure is exact. The sum of the parts is rounded down for each.
    let pss = process::sum(directory, &mut [0; process::READ_BYTES]).map_or(footprint.pss, |sum| sum.pss);
    let page_tables = proc::find(directory.path("status"), |line| proc::number(line, "VmPTE:"));
    Ok(Process { id, name, footprint, pss, like_us: directory.is_like_us(), page_tables })
}

/// Whether an error means that the process has ended.
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
    fn a_stopped_process_has_the_sums_that_the_kernel_reports() {
        let mut child = Command::new("sh").args(["-c", "kill -STOP $$"]).spawn().unwrap();
        let end = Instant::now() + Duration::from_mins(1);
        let stopped = |id| fs::read_to_string(format!("/proc/{id}/stat")).unwrap().contains(") T ");
        while !stopped(child.id()) {
            assert!(Instant::now() < end, "it never stops");
            std::thread::yield_now();
        }
        // Processes that share its libraries start and end, which changes its share of them. So it
        // is read until the sums before and after are the same.
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
    fn a_process_without_memory_and_one_that_does_not_exist_have_errors_of_their_own() {
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
