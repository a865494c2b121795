//! Finds out which malloc serves our allocations. It uses each malloc's own functions, and each
//! malloc has to prove that our allocations belong to it. Its presence alone proves nothing,
//! because a process may hold two mallocs.
//!
//! - jemalloc: its count of the bytes that this thread has allocated (`thread.allocated`) changes
//!   with an allocation.
//! - mimalloc: the allocation lies in its heap (`mi_is_in_heap_region`).
//! - glibc: its `mallinfo` changes with an allocation.
//! - musl, which keeps no statistics: `malloc_usable_size` returns the odd size that was requested.
//!   Only musl's malloc (since 1.2.1) stores it to the byte; all others round up.
//!
//! jemalloc and mimalloc may come from this crate's feature, from the shim's link, or at run time
//! from `LD_PRELOAD`.

use std::ffi::{CStr, c_int, c_void};
use std::hint::black_box;

#[cfg(target_env = "gnu")]
use super::glibc::{allocated_and_mapped, gnu_get_libc_version};
use super::mallctl::{Mallctl, read, read_text};

/// How often glibc's counts are compared before the allocator is taken not to be ours. The counts
/// cover the whole process, and other threads free memory at the same time.
#[cfg(target_env = "gnu")]
const MALLOC_TRIALS_MAX: u32 = 64;
/// The libc of this build.
pub(super) const LIBC: &str = if cfg!(target_env = "musl") { "musl" } else { "glibc" };

/// Too large to be served from a thread cache, which no counter would show. Small enough to
/// come from any heap.
const TRIAL_BYTES: usize = 64 * 1_024;

/// mimalloc's `mi_version`.
pub(crate) type MiVersion = extern "C" fn() -> c_int;
/// mimalloc's `mi_is_in_heap_region`. It looks the address up and does not read through it.
pub(crate) type MiIsInHeapRegion = extern "C" fn(*const c_void) -> bool;

/// The function of the feature's jemalloc. Its names have a prefix, so no linker resolves
/// other references to them.
#[cfg(feature = "jemalloc")]
pub(super) const FEATURE: Option<Mallctl> = Some(tikv_jemalloc_sys::mallctl);
#[cfg(not(feature = "jemalloc"))]
pub(super) const FEATURE: Option<Mallctl> = None;

/// The functions by which a malloc that was linked in can be identified. They are none for a malloc
/// that was not linked in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Malloc {
    pub(crate) mallctl: Option<Mallctl>,
    pub(crate) mi_version: Option<MiVersion>,
    pub(crate) mi_is_in_heap_region: Option<MiIsInHeapRegion>,
}

pub(super) struct RunningMalloc {
    pub(super) allocator: &'static str,
    pub(super) version: String,
    pub(super) narenas: Option<u32>,
    pub(super) figures: FigureSource,
}

/// The source of the running malloc's memory statistics.
#[derive(Clone, Copy, Debug)]
pub(super) enum FigureSource {
    Jemalloc(Mallctl),
    #[cfg(target_env = "gnu")]
    Glibc,
    None,
}

/// Tries the mallocs one after the other. The libc is the last, because any
/// other malloc replaces it.
pub(super) fn ask(linked: Malloc) -> RunningMalloc {
    let loaded = loaded();
    let jemallocs = [FEATURE, loaded.mallctl, linked.mallctl];
    jemallocs
        .into_iter()
        .flatten()
        .find_map(jemalloc)
        .or_else(|| mimalloc(loaded))
        .or_else(|| mimalloc(linked))
        .or_else(system)
        .unwrap_or(RunningMalloc {
            allocator: "unknown",
            version: "unknown".to_owned(),
            narenas: None,
            figures: FigureSource::None,
        })
}

/// Makes an allocation by the global allocator, as all of ours are.
fn trial() -> Vec<u8> {
    black_box(Vec::with_capacity(TRIAL_BYTES))
}

fn jemalloc(mallctl: Mallctl) -> Option<RunningMalloc> {
    let before: u64 = read(mallctl, c"thread.allocated")?;
    let allocation = trial();
    let after: u64 = read(mallctl, c"thread.allocated")?;
    drop(allocation);
    if after.wrapping_sub(before) < TRIAL_BYTES as u64 {
        return None;
    }
    let version = read_text(mallctl, c"version");
    // "5.3.0-1-ge13ca99…": the part after the first hyphen comes from the repository.
    let version = version.as_deref().and_then(|text| text.split('-').next()).unwrap_or("unknown").to_owned();
    // "arenas.narenas" is unsuitable: it also counts the arena for huge allocations. "opt.narenas"
    // is fixed at the start.
    let narenas = read(mallctl, c"opt.narenas");
    Some(RunningMalloc { allocator: "jemalloc", version, narenas, figures: FigureSource::Jemalloc(mallctl) })
}

fn mimalloc(functions: Malloc) -> Option<RunningMalloc> {
    let (mi_version, is_ours) = (functions.mi_version?, functions.mi_is_in_heap_region?);
    let allocation = trial();
    let version = is_ours(allocation.as_ptr().cast()).then(|| mi_version())?;
    // mimalloc counts committed memory and the resident memory of the process. Neither is what
    // jemalloc's names mean.
    Some(RunningMalloc {
        allocator: "mimalloc",
        version: mimalloc_version(version),
        narenas: None,
        figures: FigureSource::None,
    })
}

/// Formats mimalloc's version number: `209` is 2.0.9. Later releases have five digits: one for the
/// major number and two for each of the others.
fn mimalloc_version(number: c_int) -> String {
    if number >= 10_000 {
        format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
    } else {
        format!("{}.{}.{}", number / 100, number / 10 % 10, number % 10)
    }
}

/// Looks the functions up in the libraries that were loaded with the program.
#[cfg(not(target_feature = "crt-static"))]
#[expect(unsafe_code, reason = "dlsym gives untyped addresses")]
fn loaded() -> Malloc {
    fn find<F: Copy>(name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: `name` is a C string, and any program may search the global scope. The names
        // below are those of functions that jemalloc and mimalloc document, whose types have been
        // the same in all their releases.
        unsafe {
            let address = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
            (!address.is_null()).then(|| std::mem::transmute_copy(&address))
        }
    }
    Malloc {
        mallctl: find(c"mallctl"),
        mi_version: find(c"mi_version"),
        mi_is_in_heap_region: find(c"mi_is_in_heap_region"),
    }
}

/// Returns no functions, because a static program loads no library.
#[cfg(target_feature = "crt-static")]
fn loaded() -> Malloc {
    Malloc::default()
}

#[cfg(target_env = "gnu")]
fn system() -> Option<RunningMalloc> {
    let is_counted = |_| {
        let (before, _) = allocated_and_mapped();
        let allocation = trial();
        let grown = allocated_and_mapped().0.checked_sub(before);
        drop(allocation);
        grown.is_some_and(|bytes| bytes >= TRIAL_BYTES as u64)
    };
    (0..MALLOC_TRIALS_MAX).any(is_counted).then(|| RunningMalloc {
        allocator: "glibc",
        version: libc_version(),
        narenas: None,
        figures: FigureSource::Glibc,
    })
}

#[cfg(target_env = "musl")]
#[expect(unsafe_code, reason = "musl answers by a C function")]
fn system() -> Option<RunningMalloc> {
    const ODD_BYTES: usize = 1_001;
    let allocation = black_box(Vec::<u8>::with_capacity(ODD_BYTES));
    // SAFETY: the allocation is live and, with alignment 1, as malloc returned it. Every
    // replacement of malloc that is in use replaces this function along with it.
    let usable = unsafe { libc::malloc_usable_size(allocation.as_ptr().cast_mut().cast()) };
    let (allocator, figures) = ("musl", FigureSource::None);
    (usable == ODD_BYTES).then(|| RunningMalloc { allocator, version: libc_version(), narenas: None, figures })
}

#[expect(unsafe_code, reason = "a string of the libc")]
fn libc_version() -> String {
    #[cfg(target_env = "gnu")]
    let version = gnu_get_libc_version();
    // musl has no function for its version, but its static library contains the string.
    #[cfg(all(target_env = "musl", target_feature = "crt-static"))]
    let version = {
        unsafe extern "C" {
            static __libc_version: std::ffi::c_char;
        }
        &raw const __libc_version
    };
    #[cfg(all(target_env = "musl", not(target_feature = "crt-static")))]
    let version = c"unknown".as_ptr();
    // SAFETY: all of these are constant and NUL-terminated.
    unsafe { CStr::from_ptr(version) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::ffi::c_char;

    use super::*;

    #[test]
    fn mimalloc_versions_are_written_with_dots() {
        for (number, text) in [(209, "2.0.9"), (223, "2.2.3"), (30_208, "3.2.8")] {
            assert_eq!(mimalloc_version(number), text);
        }
    }

    #[test]
    fn a_malloc_that_does_not_own_our_allocations_is_not_named() {
        extern "C" fn idle_jemalloc(
            _name: *const c_char,
            _to: *mut c_void,
            _bytes: *mut usize,
            _from: *mut c_void,
            _length: usize,
        ) -> c_int {
            0
        }
        extern "C" fn version() -> c_int {
            209
        }
        extern "C" fn not_mine(_address: *const c_void) -> bool {
            false
        }
        let idle =
            Malloc { mallctl: Some(idle_jemalloc), mi_version: Some(version), mi_is_in_heap_region: Some(not_mine) };
        assert_eq!(ask(idle).allocator, ask(Malloc::default()).allocator);
        assert!(jemalloc(idle_jemalloc).is_none());
        assert!(mimalloc(idle).is_none());
    }
}
