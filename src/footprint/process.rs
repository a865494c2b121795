//! Reads the memory of one process.

use std::io;

use super::Footprint;
use super::classify::Classifier;
use super::place::{Place, Whose};
use super::smaps::{self, Mapping};
use super::stacks::{self, Stack};
use crate::limits::{FOOTPRINT_OWN_PATH_BYTES, FOOTPRINT_OWN_READ_BYTES, FOOTPRINT_READ_BYTES, HTTP_WORKERS_MAX};

/// The threads of an agent, and some more for an allocator.
const OWN_THREADS_MAX: usize = HTTP_WORKERS_MAX + 4;
/// PATH_MAX, and the suffix that the kernel adds.
const PATH_BYTES: usize = 4_096 + 16;

/// The memory of a whole process in KB: `smaps_rollup`, the kernel's own sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Resident memory, in KB.
    pub rss: u64,
    /// Resident memory with each page divided by the number of processes that map it.
    pub pss: u64,
    /// Resident pages that no other process maps.
    pub private: u64,
    /// Memory in the swap space.
    pub swap: u64,
    /// Memory in the swap space, divided by the number of processes that share it.
    pub swap_pss: u64,
    /// Huge pages of hugetlbfs that only this process maps.
    pub private_hugetlb: u64,
    /// Huge pages of hugetlbfs that other processes map, too.
    pub shared_hugetlb: u64,
}

impl Sum {
    fn add(&mut self, mapping: &Mapping) {
        for (sum, more) in [
            (&mut self.rss, mapping.rss),
            (&mut self.pss, mapping.pss),
            (&mut self.private, mapping.private()),
            (&mut self.swap, mapping.swap),
            (&mut self.swap_pss, mapping.swap_pss),
            (&mut self.private_hugetlb, mapping.private_hugetlb),
            (&mut self.shared_hugetlb, mapping.shared_hugetlb),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Reads a process's sum. If there is no `smaps_rollup` (before Linux 4.14), it reads smaps itself.
/// The caller lends `buffer`.
///
/// # Errors
/// The kernel's error: not found if the process has no memory, or has ended.
pub fn sum(whose: Whose, buffer: &mut [u8]) -> io::Result<Sum> {
    let mut file = match whose.open("smaps_rollup") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => whose.open("smaps")?,
        other => other?,
    };
    let (mut sum, mut any) = (Sum::default(), false);
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
pub fn read(whose: Whose) -> io::Result<Footprint> {
    let mut stacks = Vec::new();
    stacks::each_pointer(whose, |pointer| stacks.push(Stack::at(pointer)));
    let total = pass(whose, &mut stacks, &mut [0; FOOTPRINT_READ_BYTES], &mut [0; PATH_BYTES])?;
    // A process that ends during the pass looks like one with fewer mappings.
    if total.mappings == 0 || whose.open("smaps").and_then(|mut file| io::Read::read(&mut file, &mut [0]))? == 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(total)
}

/// Reads this process's memory by category. It uses little memory itself: 4 KB of stack, and a few
/// hundred bytes of heap until it returns.
///
/// # Errors
/// The kernel's error.
pub fn read_own() -> io::Result<Footprint> {
    let mut stacks = [Stack::default(); OWN_THREADS_MAX];
    let mut threads = 0;
    stacks::each_pointer(Whose::Own, |pointer| {
        if let Some(place) = stacks.get_mut(threads) {
            *place = Stack::at(pointer);
            threads += 1;
        }
    });
    let (buffer, path) = (&mut [0; FOOTPRINT_OWN_READ_BYTES], &mut [0; FOOTPRINT_OWN_PATH_BYTES]);
    pass(Whose::Own, &mut stacks[..threads], buffer, path)
}

fn pass(whose: Whose, stacks: &mut [Stack], buffer: &mut [u8], path: &mut [u8]) -> io::Result<Footprint> {
    // Only the heads of the mappings, which cost little.
    stacks::find(&mut whose.open("maps")?, buffer, stacks)?;
    let mut smaps = whose.open("smaps")?;
    let mut classifier = Classifier::new(Place::new(whose), stacks);
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
        for footprint in [read_own().unwrap(), read(Whose::Process(std::process::id())).unwrap()] {
            let resident: u64 = footprint.amounts.iter().map(|amounts| amounts.clean + amounts.dirty).sum();
            assert_eq!(resident, footprint.rss);
            assert_eq!(footprint.amounts.iter().map(|amounts| amounts.swap).sum::<u64>(), footprint.swap);
            for category in [Category::Text, Category::Rodata, Category::Relro, Category::Data, Category::Heap] {
                let amounts = footprint.of(category);
                assert!(amounts.clean + amounts.dirty > 0, "{category:?}");
            }
            assert!(footprint.mappings > 10 && footprint.of(Category::Stacks).dirty > 0);
        }
    }

    #[test]
    fn a_process_without_memory_is_not_found() {
        let error = sum(Whose::Process(u32::MAX), &mut [0; 1_024]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(read(Whose::Process(u32::MAX)).unwrap_err().kind(), io::ErrorKind::NotFound);
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
        let whose = Whose::Process(child.id());
        let sum_now = || sum(whose, &mut [0; 1_024]).unwrap();
        // The kernel may take pages from the child between two readings. They are then read again.
        let readings = (0..100).map(|_| (sum_now(), read(whose).unwrap(), sum_now()));
        let (sum, parts, _) = readings.into_iter().find(|(before, _, after)| before == after).expect("it does nothing");
        drop(stdin);
        child.wait().unwrap();
        assert!(sum.pss <= sum.rss && sum.private <= sum.pss + 1 && sum.swap_pss <= sum.swap, "{sum:?}");
        assert!(sum.rss > 0, "{sum:?}");
        assert_eq!((parts.rss, parts.swap), (sum.rss, sum.swap), "{sum:?} {parts:?}");
    }
}
