//! Finds the stacks of a process's threads.
//!
//! The kernel names only the main thread's stack. The others are anonymous memory. But the kernel
//! reports the stack pointer of each waiting thread, and an inaccessible guard lies below a
//! thread's stack. The guard distinguishes it from a heap in which a language keeps the stacks of
//! its own threads. The end of a stack is not reported, and the stack may be one mapping with
//! whatever follows it. If the mapping continues beyond the stack, the stack pointer is near its
//! lower end. Each such stack is taken to be as large as the smallest, because most programs give
//! all threads the same size.

use std::fs;
use std::io::{self, Read};

use super::place::ProcDir;
use super::smaps;

/// Where the stack of a thread is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadStack {
    /// The thread's stack pointer.
    pub pointer: u64,
    /// The lower end of the stack. `start` and `end` are 0 if it is unknown.
    pub start: u64,
    /// The upper end of the stack.
    pub end: u64,
}

impl ThreadStack {
    /// Makes a stack of which only the pointer is known.
    pub const fn at(pointer: u64) -> Self {
        Self { pointer, start: 0, end: 0 }
    }
}

/// Calls `take` with the stack pointer of each thread that may be read and is not running.
pub fn each_pointer(directory: ProcDir, mut take: impl FnMut(u64)) {
    let Ok(threads) = fs::read_dir(directory.path("task")) else { return };
    for thread in threads.map_while(Result::ok) {
        let path = format!("task/{}/syscall", thread.file_name().to_string_lossy());
        let mut text = [0; 256];
        let Ok(length) = directory.open(&path).and_then(|mut file| file.read(&mut text)) else { continue };
        // The line has the number, the arguments, the stack pointer and the program counter. It is
        // only `running` while the thread runs.
        let mut fields = std::str::from_utf8(&text[..length]).unwrap_or_default().split_ascii_whitespace().rev();
        let pointer = fields.nth(1).and_then(|field| u64::from_str_radix(field.strip_prefix("0x")?, 16).ok());
        pointer.into_iter().for_each(&mut take);
    }
}

/// Finds the positions of the stacks in `maps`, or smaps. The caller lends `buffer`.
///
/// # Errors
/// The error of reading.
pub fn find(maps: &mut dyn Read, buffer: &mut [u8], stacks: &mut [ThreadStack]) -> io::Result<()> {
    // The end of the last mapping, if that was inaccessible.
    let mut guard_end = 0;
    smaps::each(maps, buffer, &mut [0; 1], &mut |mapping, path| {
        let (start, end) = (mapping.start, mapping.end);
        if guard_end == start && mapping.inode == 0 && path.is_empty() && mapping.may(b'w') && mapping.may(b'p') {
            for stack in stacks.iter_mut().filter(|stack| (start..end).contains(&stack.pointer)) {
                (stack.start, stack.end) = (start, end);
            }
        }
        guard_end = if mapping.permissions.starts_with(b"---") { end } else { 0 };
    })?;
    let found = stacks.iter().filter(|stack| stack.start < stack.end);
    let smallest = found.map(|stack| stack.end - stack.start).min().unwrap_or(0);
    for stack in stacks.iter_mut().filter(|stack| stack.pointer < stack.start + smallest) {
        stack.end = stack.start + smallest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
        1000-3000 ---p 00000000 00:00 0\n3000-33000 rw-p 00000000 00:00 0\n\
        33000-35000 ---p 00000000 00:00 0\n35000-200000 rw-p 00000000 00:00 0\n\
        200000-201000 ---p 00000000 00:00 0\n201000-301000 rw-p 00000000 00:00 0\n\
        400000-500000 rw-p 00000000 00:00 0\n\
        600000-601000 ---p 00000000 00:00 0\n601000-602000 rw-p 00000000 00:00 0 [heap]\n\
        602000-603000 ---p 00000000 00:00 0\n603000-604000 rw-p 00000000 fe:00 7 /file\n";

    fn found(pointers: &[u64]) -> Vec<(u64, u64)> {
        let mut stacks: Vec<ThreadStack> = pointers.iter().map(|pointer| ThreadStack::at(*pointer)).collect();
        find(&mut MAPS.as_bytes(), &mut [0; 256], &mut stacks).unwrap();
        stacks.iter().map(|stack| (stack.start, stack.end)).collect()
    }

    #[test]
    fn a_stack_that_joins_its_mapping_is_as_large_as_the_smallest() {
        let stacks = found(&[0x3_2000, 0x6_4000, 0x30_0000]);
        assert_eq!(stacks, [(0x3000, 0x3_3000), (0x3_5000, 0x6_5000), (0x20_1000, 0x30_1000)]);
        assert_eq!(found(&[0x6_4000]), [(0x3_5000, 0x20_0000)], "there is no other stack");
    }

    #[test]
    fn a_mapping_with_a_name_or_without_a_guard_is_no_stack() {
        assert_eq!(found(&[0x40_f000, 0x60_1800, 0x60_3800, 0x1800, 0x99_9000]), [(0, 0); 5]);
    }

    #[test]
    fn each_of_our_own_threads_has_a_stack_pointer() {
        let (ready, wait) = (std::sync::Barrier::new(4), std::sync::Barrier::new(4));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    ready.wait();
                    wait.wait();
                });
            }
            ready.wait();
            let mut pointers = Vec::new();
            each_pointer(ProcDir::Own, |pointer| pointers.push(pointer));
            wait.wait();
            pointers.sort_unstable();
            pointers.dedup();
            // There is at least this thread, and also those three unless they are not asleep yet.
            assert!(!pointers.is_empty() && pointers.iter().all(|pointer| *pointer > 0));
        });
    }
}
