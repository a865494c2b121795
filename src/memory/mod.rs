//! The purpose of a process's memory, as the kernel accounts it.
//!
//! One pass over smaps gives both the categories and the resident memory that they add up to. So
//! the sum is right to the kilobyte even though the process keeps running. Files are classified by
//! their program headers ([`Elf`]). Anonymous memory is classified by the kernel's names for it and
//! by the positions of thread stacks ([`classify`] has the table).
//!
//! Two things cannot be distinguished from other anonymous memory. One is an allocator's arenas
//! beyond the heap: glibc's of other threads, jemalloc's, and the large blocks of any. The other is
//! the stack of a thread that is running at that moment.

mod category;
mod classify;
mod elf;
pub mod name;
pub mod pagemap;
pub mod place;
pub mod process;
pub mod smaps;
#[cfg(feature = "fuzzing")]
pub use smaps::fuzz_smaps;
mod stacks;

pub use category::{Amounts, Category, Footprint};
pub use elf::Elf;
pub use process::read_own;
