//! The malloc. This module alone decides which one is used, and reports which one is used.
//!
//! | build | what decides |
//! |---|---|
//! | `system` (default) | the libc: musl in the image ([`large`] blocks apart), glibc on a developer's machine |
//! | feature `jemalloc` | `#[global_allocator]` here, configured in [`conf`] |
//! | feature `c-shim` | the linker, which also takes `main` from C; see [`crate::shim`] |
//! | `c-shim/Makefile` | the same with another malloc: mimalloc, or a library of yours |
//! | feature `leak-finder` | an addition to any of these: follows live allocations, for tests |
//!
//! The report does not repeat the options of the build: with `LD_PRELOAD`, or behind the shim,
//! another malloc may run. It queries the allocator that serves this process ([`ask`]). In all
//! builds huge pages are off before the first allocation ([`thp`]).

mod ask;
mod conf;
#[cfg(feature = "leak-finder")]
pub mod finder;
#[cfg(target_env = "gnu")]
mod glibc;
pub mod large;
mod mallctl;
mod profile;
#[cfg(any(feature = "jemalloc-profiling", feature = "leak-finder"))]
mod stack;
mod stats;
mod thp;

use std::sync::OnceLock;

use serde::Serialize;

pub(crate) use ask::Malloc;
pub(crate) use conf::MALLOC_CONF;
pub use profile::{HeapProfile, ProfileError};
pub use stats::{Stat, Stats};
pub(crate) use thp::EARLY;

#[cfg(all(feature = "jemalloc", feature = "c-shim"))]
compile_error!(
    "the features `jemalloc` and `c-shim` exclude each other: the first one names the malloc, the second one leaves it \
     to the linker (docs/reference/builds.md)"
);

#[cfg(all(feature = "jemalloc", not(feature = "leak-finder")))]
#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
/// Calls jemalloc if that feature is on, too.
#[cfg(feature = "leak-finder")]
#[global_allocator]
static GLOBAL: finder::Finder = finder::Finder;

/// Set if C called us: the malloc functions that its link found.
static LINKED_BY_C: OnceLock<Malloc> = OnceLock::new();

/// The allocator that serves this process, as reported by the allocator itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AllocatorInfo {
    /// `musl`, `glibc`, `jemalloc` or `mimalloc`. It is `unknown` if none of
    /// them owns our allocations.
    pub allocator: &'static str,
    /// The allocator's version. For a libc's own malloc it is the libc's version. It is `unknown`
    /// if the allocator does not report one.
    #[serde(rename = "allocator_version")]
    pub version: String,
    /// The number of jemalloc's automatic arenas. None for the other mallocs, which
    /// have no such number.
    pub narenas: Option<u32>,
    /// The libc that this program was linked with, `musl` or `glibc`, even if another malloc runs.
    pub libc: &'static str,
    /// `rust`, or `c-shim` if a C `main` made the final link.
    pub linkage: &'static str,
}

/// Identifies the running allocator. This costs a few allocations of 64 KiB, which are freed at
/// once. Call it at the start and keep the result.
pub fn info() -> AllocatorInfo {
    info_and_stats().0
}

/// Returns the same as [`info`], and the reader of the allocator's figures. Both come
/// from a single query.
pub fn info_and_stats() -> (AllocatorInfo, Stats) {
    let ask::RunningMalloc { allocator, version, narenas, figures } = ask::ask(linked());
    let linkage = if LINKED_BY_C.get().is_some() { "c-shim" } else { "rust" };
    (AllocatorInfo { allocator, version, narenas, libc: ask::LIBC, linkage }, Stats(figures))
}

/// Configures glibc's malloc for small size rather than speed. Its defaults grow with the machine.
/// The other libc mallocs have no such options. Call it before any thread is started.
pub(crate) fn keep_small() {
    #[cfg(target_env = "gnu")]
    glibc::keep_small();
}

/// Marks the end of the start: later allocations that are never freed are reported by
/// [`report_leaks`]. Without the feature `leak-finder`, this does nothing.
pub fn mark_baseline() {
    #[cfg(feature = "leak-finder")]
    finder::mark();
}

/// Reports each leak on one line of standard error: an allocation made since [`mark_baseline`] that
/// is still live. Call it when everything has been dropped.
pub fn report_leaks() {
    #[cfg(feature = "leak-finder")]
    finder::report();
}

fn linked() -> Malloc {
    LINKED_BY_C.get().copied().unwrap_or_default()
}

/// Records that a C `main` called, and which malloc functions its link found.
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
    fn the_answer_does_not_depend_on_other_threads() {
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
