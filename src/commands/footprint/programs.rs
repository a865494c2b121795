//! The memory that programs use: the sum over the processes of each, as in `ps_mem`.
//!
//! A process costs seven system calls and the kernel's walk of its page tables. With many mappings
//! the walk is nearly all of the time, so several threads work in parallel. They take processes in
//! blocks from one counter, because a JVM takes as long as a hundred shells.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::is_gone;
use crate::memory::name;
use crate::memory::place::ProcDir;
use crate::memory::process::{self, READ_BYTES};
use crate::memory::smaps::Mapping;
use crate::sys::console;

/// Threads that share the work when thousands of processes are read. Most of the time is the
/// kernel's walk of their page tables, which runs in parallel.
const THREADS_MAX: usize = 8;
/// Processes that justify one more thread.
const PROCESSES_PER_THREAD: usize = 64;
/// Unreadable processes that are listed by name. The rest is counted.
const UNREADABLE_NAMED_MAX: usize = 8;
/// Processes that a thread takes at a time.
const BLOCK: usize = 8;
/// The stack size of a thread: its buffer, and room for the few functions that it calls.
const STACK_BYTES: usize = READ_BYTES + 128 * 1_024;
/// Bytes of a process's own name, which the kernel cuts.
const COMM_BYTES_MAX: usize = 15;

/// One program. Amounts are in KB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramRow {
    /// The name of the program.
    pub name: String,
    /// The number of its processes.
    pub count: u64,
    /// Memory that no other process maps.
    pub private: u64,
    /// Its share of memory that several processes map. The shares of all processes add
    /// up to the total.
    pub shared: u64,
    /// Memory in the swap space. It is the share if the kernel reports one.
    pub swap: u64,
}

impl ProgramRow {
    /// Returns the memory that would be free without this program.
    pub const fn ram(&self) -> u64 {
        self.private.saturating_add(self.shared)
    }

    /// Adds amounts. A sum that would overflow stays at the largest number.
    fn add(&mut self, count: u64, private: u64, shared: u64, swap: u64) {
        self.count += count;
        self.private = self.private.saturating_add(private);
        self.shared = self.shared.saturating_add(shared);
        self.swap = self.swap.saturating_add(swap);
    }
}

/// What a search for programs has found.
#[derive(Debug, Default)]
pub struct Programs {
    /// Rows in ascending order of memory.
    pub rows: Vec<ProgramRow>,
    /// The ids of the processes in these rows, in ascending order.
    pub ids: Vec<u32>,
    /// Processes that match but may not be read: some of their names, and their number.
    pub unreadable: (Vec<String>, usize),
}

#[derive(Default)]
struct FoundProcesses {
    read: Vec<(u32, String, Mapping)>,
    unreadable: Vec<String>,
}

impl Programs {
    /// Reads the processes `ids` whose program's name contains `filter`. An empty
    /// filter matches every name.
    pub fn read(ids: &[u32], filter: &str) -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let threads = threads.min(ids.len() / PROCESSES_PER_THREAD);
        let next = AtomicUsize::new(0);
        let work = || {
            let (mut found, mut buffer) = (FoundProcesses::default(), [0; READ_BYTES]);
            while let Some(block) = ids.chunks(BLOCK).nth(next.fetch_add(1, Ordering::Relaxed)) {
                for id in block {
                    found.take(*id, filter, &mut buffer);
                }
            }
            found
        };
        let found = thread::scope(|scope| {
            // If a thread cannot be started, the others do its part.
            let start = |_| thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work).ok();
            let others: Vec<_> = (1..threads).filter_map(start).collect();
            let mut found = vec![work()];
            found.extend(others.into_iter().filter_map(|thread| thread.join().ok()));
            found
        });
        Self::group(found)
    }

    fn group(found: Vec<FoundProcesses>) -> Self {
        let mut rows: BTreeMap<String, (ProgramRow, u64)> = BTreeMap::new();
        let mut this = Self::default();
        for FoundProcesses { read, unreadable } in found {
            this.unreadable.1 += unreadable.len();
            this.unreadable.0.extend(unreadable);
            for (id, name, sum) in read {
                this.ids.push(id);
                let (row, huge) = rows.entry(name).or_default();
                let private = sum.private().saturating_add(sum.private_hugetlb);
                // The share is rounded down, so it can be less than the private part if all memory
                // is private.
                let shared = sum.pss.saturating_sub(sum.private());
                row.add(1, private, shared, if sum.swap_pss > 0 { sum.swap_pss } else { sum.swap });
                // The share of these pages is unknown. The processes of a program are assumed to
                // share the same pages.
                *huge = sum.shared_hugetlb.max(*huge);
            }
        }
        let row = |(name, (row, huge)): (String, (ProgramRow, u64))| ProgramRow {
            name,
            shared: row.shared.saturating_add(huge),
            ..row
        };
        this.rows = rows.into_iter().map(row).collect();
        this.rows.sort_by_key(ProgramRow::ram);
        this.ids.sort_unstable();
        this.unreadable.0.sort_unstable();
        this.unreadable.0.dedup();
        this.unreadable.0.truncate(UNREADABLE_NAMED_MAX);
        this
    }

    /// Returns the sum of all rows.
    pub fn total(&self) -> ProgramRow {
        self.rows.iter().fold(ProgramRow::default(), |mut total, row| {
            total.add(row.count, row.private, row.shared, row.swap);
            total
        })
    }

    /// Reports on standard error what could not be read.
    pub fn warn(&self) {
        let (names, count) = &self.unreadable;
        if *count > 0 {
            let more = if *count > names.len() { ", …" } else { "" };
            console::print_error(format_args!(
                "processes that may not be read are left out, {count}: {}{more}",
                names.join(", ")
            ));
        }
    }
}

impl FoundProcesses {
    fn take(&mut self, id: u32, filter: &str, buffer: &mut [u8]) {
        let name = match name::program_name(id) {
            Ok(name) if name.contains(filter) => name,
            Ok(_) => return,
            Err((name, error)) => return self.refuse(id, name, filter, &error),
        };
        match process::sum(ProcDir::Process(id), buffer) {
            Ok(sum) => self.read.push((id, name, sum)),
            Err(error) => self.refuse(id, name, filter, &error),
        }
    }

    /// Records a process that cannot be read, unless it has ended, never had memory,
    /// or has another name.
    fn refuse(&mut self, id: u32, name: String, filter: &str, error: &io::Error) {
        let cut = name.len() == COMM_BYTES_MAX && filter.contains(&name);
        if !is_gone(error) && (name.contains(filter) || cut) && has_memory(id) {
            self.unreadable.push(name);
        }
    }
}

/// Whether a process has memory. Any user may read that: a kernel thread and a zombie have size 0.
fn has_memory(id: u32) -> bool {
    crate::sys::proc::find(ProcDir::Process(id).path("statm"), |line| Some(!line.starts_with("0 "))) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(private: u64, pss: u64, swap: u64) -> Mapping {
        Mapping { rss: pss, pss, private_dirty: private, swap, swap_pss: swap / 2, ..Mapping::default() }
    }

    #[test]
    fn the_processes_of_a_program_are_one_row_and_the_largest_comes_last() {
        let found = vec![
            FoundProcesses {
                read: vec![(7, "b".into(), sum(100, 120, 0)), (3, "a".into(), sum(500, 500, 8))],
                ..FoundProcesses::default()
            },
            FoundProcesses {
                read: vec![(5, "b".into(), sum(40, 39, 4))],
                unreadable: vec!["z".into(), "y".into(), "z".into()],
            },
        ];
        let programs = Programs::group(found);
        let row =
            |name: &str, count, private, shared, swap| ProgramRow { name: name.into(), count, private, shared, swap };
        assert_eq!(programs.rows, [row("b", 2, 140, 20, 2), row("a", 1, 500, 0, 4)]);
        assert_eq!((programs.total(), programs.total().ram()), (row("", 3, 640, 20, 6), 660));
        assert_eq!((programs.ids, programs.unreadable), (vec![3, 5, 7], (vec!["y".into(), "z".into()], 3)));
    }

    #[test]
    fn huge_pages_are_counted_and_shared_ones_once_per_program() {
        let huge = Mapping { private_hugetlb: 2_048, shared_hugetlb: 4_096, ..sum(8, 10, 0) };
        let found =
            FoundProcesses { read: vec![(1, "a".into(), huge), (2, "a".into(), huge)], ..FoundProcesses::default() };
        let rows = Programs::group(vec![found]).rows;
        assert_eq!((rows[0].private, rows[0].shared), (2 * (8 + 2_048), 2 * 2 + 4_096));
    }

    #[test]
    fn names_are_matched_by_any_part_of_them() {
        let own = vec![std::process::id(), u32::MAX];
        let name = name::program_name(own[0]).map_err(|(name, _)| name).unwrap();
        for (filter, count) in [(name.as_str(), 1), (&name[3..12], 1), ("", 1), ("no such program", 0)] {
            let programs = Programs::read(&own, filter);
            assert_eq!((programs.rows.len(), programs.ids.len(), programs.unreadable.1), (count, count, 0), "{filter}");
        }
    }
}
