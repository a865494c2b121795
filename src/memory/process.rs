//! Reads the memory of one process.

use std::io;

use super::Footprint;
use super::classify::Classifier;
use super::place::{ProcDir, ProcessFiles};
use super::smaps::{self, Mapping};
use super::stacks::{self, ThreadStack};
use crate::limits::HTTP_WORKERS_MAX;

/// Bytes that the command reads at a time, with room for the longest path (PATH_MAX) in a
/// mapping's head.
pub const READ_BYTES: usize = 16 * 1_024;
/// Bytes that the agent reads at a time. The buffer is on a worker's stack, and the agent's
/// own paths are short.
pub const OWN_READ_BYTES: usize = 3 * 1_024;
/// Bytes of a path that are kept in the agent.
pub const OWN_PATH_BYTES: usize = 512;
/// The threads of an agent, and some more for an allocator.
const OWN_THREADS_MAX: usize = HTTP_WORKERS_MAX + 4;
/// PATH_MAX, and the suffix that the kernel adds.
const PATH_BYTES: usize = 4_096 + 16;

/// Reads a process's sum from `smaps_rollup`. If there is none (before Linux 4.14), it reads smaps
/// itself. The caller lends `buffer`.
///
/// # Errors
/// The kernel's error: not found if the process has no memory, or has ended.
pub fn sum(directory: ProcDir, buffer: &mut [u8]) -> io::Result<Mapping> {
    let mut file = match directory.open("smaps_rollup") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => directory.open("smaps")?,
        other => other?,
    };
    let (mut sum, mut any) = (Mapping::default(), false);
    smaps::each(&mut file, buffer, &mut [], &mut |mapping, _| {
        sum.add(mapping);
        any = true;
    })?;
    if any { Ok(sum) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// Reads another process's memory by category.
///
/// # Errors
/// The kernel's error: not found if the process has no memory, or has ended.
pub fn read(directory: ProcDir) -> io::Result<Footprint> {
    let mut stacks = Vec::new();
    stacks::each_pointer(directory, |pointer| stacks.push(ThreadStack::at(pointer)));
    let total = pass(directory, &mut stacks, &mut [0; READ_BYTES], &mut [0; PATH_BYTES])?;
    // A process that ends during the pass looks like one with fewer mappings.
    if total.mappings == 0 || directory.open("smaps").and_then(|mut file| io::Read::read(&mut file, &mut [0]))? == 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(total)
}

/// Reads this process's memory by category. It uses little memory itself: 4 KB of stack, and a few
/// hundred bytes of heap until it returns.
///
/// # Errors
/// The kernel's error: not found if its files are empty.
pub fn read_own() -> io::Result<Footprint> {
    let mut stacks = [ThreadStack::default(); OWN_THREADS_MAX];
    let mut threads = 0;
    stacks::each_pointer(ProcDir::Own, |pointer| {
        if let Some(place) = stacks.get_mut(threads) {
            *place = ThreadStack::at(pointer);
            threads += 1;
        }
    });
    let (buffer, path) = (&mut [0; OWN_READ_BYTES], &mut [0; OWN_PATH_BYTES]);
    let footprint = pass(ProcDir::Own, &mut stacks[..threads], buffer, path)?;
    if is_known(&footprint) { Ok(footprint) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// Whether the kernel has told the memory of a process that reads its own, which has some. Some
/// sandboxes have an empty file.
const fn is_known(footprint: &Footprint) -> bool {
    footprint.rss > 0
}

fn pass(directory: ProcDir, stacks: &mut [ThreadStack], buffer: &mut [u8], path: &mut [u8]) -> io::Result<Footprint> {
    // Only the heads of the mappings, which cost little.
    stacks::find(&mut directory.open("maps")?, buffer, stacks)?;
    let mut smaps = directory.open("smaps")?;
    let mut classifier = Classifier::new(ProcessFiles::new(directory), stacks);
    smaps::each(&mut smaps, buffer, path, &mut |mapping, path| classifier.add(mapping, path))?;
    Ok(classifier.total())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::super::Category;
    use super::*;

    #[test]
    fn categories_add_up_to_what_is_resident_to_the_kilobyte() {
        for footprint in [read_own().unwrap(), read(ProcDir::Process(std::process::id())).unwrap()] {
            let resident: u64 = footprint.amounts.iter().map(|amounts| amounts.clean + amounts.dirty).sum();
            assert_eq!(resident, footprint.rss);
            assert_eq!(footprint.amounts.iter().map(|amounts| amounts.swap).sum::<u64>(), footprint.swap);
            for category in [Category::Text, Category::Rodata, Category::Relro, Category::Data, Category::Heap] {
                let amounts = footprint.amounts_in(category);
                assert!(amounts.clean + amounts.dirty > 0, "{category:?}");
            }
            assert!(footprint.mappings > 10 && footprint.amounts_in(Category::Stacks).dirty > 0);
        }
    }

    #[test]
    fn no_resident_memory_of_our_own_is_unknown_and_not_0() {
        assert!(!is_known(&Footprint::default()) && is_known(&read_own().unwrap()));
    }

    #[test]
    fn a_process_without_memory_is_not_found() {
        let error = sum(ProcDir::Process(u32::MAX), &mut [0; 1_024]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(read(ProcDir::Process(u32::MAX)).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_sum_of_a_process_is_that_of_its_parts() {
        // The child only waits for input, unlike the process that runs the tests.
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        for _ in 0..2 {
            stdin.write_all(b"x").unwrap();
            stdout.read_exact(&mut [0]).unwrap();
        }
        let directory = ProcDir::Process(child.id());
        let sum_now = || sum(directory, &mut [0; 1_024]).unwrap();
        // The kernel may take pages from the child between two readings. They are then read again.
        let readings = (0..100).map(|_| (sum_now(), read(directory).unwrap(), sum_now()));
        let (sum, parts, _) = readings.into_iter().find(|(before, _, after)| before == after).expect("it does nothing");
        drop(stdin);
        child.wait().unwrap();
        assert!(sum.pss <= sum.rss && sum.private() <= sum.pss + 1 && sum.swap_pss <= sum.swap, "{sum:?}");
        assert!(sum.rss > 0, "{sum:?}");
        assert_eq!((parts.rss, parts.swap), (sum.rss, sum.swap), "{sum:?} {parts:?}");
    }
}
