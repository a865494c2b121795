//! The malloc: the one place that decides which, and the one place that reports which.
//!
//! | build | what decides |
//! |---|---|
//! | `system` (default) | the libc: musl in the image ([`large`] blocks apart), glibc on a developer's machine |
//! | feature `jemalloc` | `#[global_allocator]` here, configured in [`conf`] |
//! | `c-shim` | the final link by `cc`; see [`crate::shim`] |
//! | feature `leak-finder` | on top of any of these: follows what is live, for tests |
//!
//! The report does not repeat what the build was told: with `LD_PRELOAD`, or behind the shim, that is not what runs. It
//! asks the allocator that serves this very process ([`ask`]). In all builds huge pages are off before the first
//! allocation ([`thp`]).

mod ask;
mod conf;
#[cfg(feature = "leak-finder")]
pub mod finder;
#[cfg(target_env = "gnu")]
mod glibc;
pub mod large;
mod mallctl;
mod profile;
mod stats;
mod thp;

use std::sync::OnceLock;

use serde::Serialize;

pub(crate) use ask::Malloc;
pub(crate) use conf::MALLOC_CONF;
pub use profile::{HeapProfile, ProfileError};
pub use stats::{Stat, Stats};
pub(crate) use thp::EARLY;

#[cfg(all(feature = "jemalloc", not(feature = "leak-finder")))]
#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
/// On top of jemalloc where that is there too.
#[cfg(feature = "leak-finder")]
#[global_allocator]
static GLOBAL: finder::Finder = finder::Finder;

/// Set when C called us, to what its link found.
static LINKED_BY_C: OnceLock<Malloc> = OnceLock::new();

/// What serves this process's allocations, as the allocator itself answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AllocatorInfo {
    /// `musl`, `glibc`, `jemalloc` or `mimalloc`; `unknown` where none of them owns our allocations.
    pub allocator: &'static str,
    /// Its version, which for a libc's own malloc is the libc's; `unknown` if it does not say.
    #[serde(rename = "allocator_version")]
    pub version: String,
    /// jemalloc's automatic arenas in force; none for the others, which have no such number.
    pub narenas: Option<u32>,
    /// `musl` or `glibc`: the libc that this was linked with, whoever's malloc runs.
    pub libc: &'static str,
    /// `rust`, or `c-shim` where a C `main` made the final link.
    pub linkage: &'static str,
}

/// Asks the running allocator. Costs a few allocations of 64 KiB that are freed at once: ask at the start, keep the
/// answer.
pub fn info() -> AllocatorInfo {
    info_and_stats().0
}

/// The same, and who reads its figures: by one asking.
pub fn info_and_stats() -> (AllocatorInfo, Stats) {
    let ask::Answer { allocator, version, narenas, books } = ask::ask(linked());
    let linkage = if LINKED_BY_C.get().is_some() { "c-shim" } else { "rust" };
    (AllocatorInfo { allocator, version, narenas, libc: ask::LIBC, linkage }, Stats(books))
}

/// Asks the libc's malloc to be small before fast, where it can be asked: only glibc's, whose defaults follow the machine.
/// Call it before any thread is started.
pub(crate) fn keep_small() {
    #[cfg(target_env = "gnu")]
    glibc::keep_small();
}

/// The start is over: what is allocated from now on has to be given back by [`report_leaks`]. For the feature `leak-finder`;
/// without it, this does nothing.
pub fn mark_baseline() {
    #[cfg(feature = "leak-finder")]
    finder::mark();
}

/// Everything is torn down: what was allocated since [`mark_baseline`] and is live is a leak, and a line on standard error.
pub fn report_leaks() {
    #[cfg(feature = "leak-finder")]
    finder::report();
}

fn linked() -> Malloc {
    LINKED_BY_C.get().copied().unwrap_or_default()
}

/// Notes that a C `main` called, and the functions of a malloc that its link found.
pub(crate) fn linked_by_c(found: Malloc) {
    LINKED_BY_C.get_or_init(|| found);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocator_that_runs_is_named() {
        let info = info();
        let expected = if cfg!(feature = "jemalloc") { "jemalloc" } else { ask::LIBC };
        assert_eq!(info.allocator, expected, "{info:?}");
        assert_eq!(info.narenas.is_some(), cfg!(feature = "jemalloc"), "{info:?}");
        assert_eq!(info.linkage, "rust");
        assert!(info.version.starts_with(|first: char| first.is_ascii_digit()), "{info:?}");
    }

    #[test]
    fn the_answer_does_not_depend_on_what_other_threads_allocate() {
        let expected = info();
        std::thread::scope(|scope| {
            let mut churn = Vec::new();
            for _ in 0..3 {
                churn.push(scope.spawn(|| (0..2_000).map(|_| std::hint::black_box(vec![1_u8; 80_000]).len()).max()));
            }
            for _ in 0..50 {
                assert_eq!(info(), expected);
            }
        });
    }
}
