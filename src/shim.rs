//! The C boundary: the program starts with the `main` of C, so that the final link decides the
//! malloc. The feature `c-shim` links it into the plain binary; c-shim/Makefile links this crate as
//! a static library.
//!
//! Rust's runtime does not start, which has three consequences:
//!
//! - SIGPIPE would kill the process, and closed standard descriptors would be reused.
//!   `c-shim/main.c` handles both.
//! - On musl `std::env::args` is empty, so the arguments are passed on.
//! - Buffered output is not flushed at the exit, so this module flushes it.
//!
//! `c-shim/kube_canary.h` is generated from this file. A test compares them.

use std::ffi::{CStr, OsString, c_char, c_int, c_void};
use std::io::Write;
use std::os::unix::ffi::OsStringExt;

use crate::allocator;

/// The symbol that jemalloc looks for: `const char *malloc_conf`. A reference to an array has the
/// same representation. A jemalloc that is linked behind the shim gets the configuration of the
/// `jemalloc` build.
#[expect(unsafe_code, reason = "jemalloc finds its configuration by the symbol's name")]
// SAFETY: the name and the type are the ones that jemalloc declares, as a weak symbol; nobody else
// reads it.
#[unsafe(export_name = "malloc_conf")]
static MALLOC_CONF: &[u8; allocator::MALLOC_CONF.len()] = &allocator::MALLOC_CONF;

/// The malloc functions that the final link found. Each function may be null, if that malloc was
/// not linked. These are functions, so there is no ownership.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KubeCanaryLink {
    /// jemalloc's `mallctl`.
    pub mallctl: Option<
        unsafe extern "C" fn(
            name: *const c_char,
            oldp: *mut c_void,
            oldlenp: *mut usize,
            newp: *mut c_void,
            newlen: usize,
        ) -> c_int,
    >,
    /// mimalloc's `mi_version`.
    pub mi_version: Option<extern "C" fn() -> c_int>,
    /// mimalloc's `mi_is_in_heap_region`.
    pub mi_is_in_heap_region: Option<extern "C" fn(p: *const c_void) -> bool>,
}

/// Runs kube-canary's command line. Returns its exit code, which `main` should return. Call it
/// once, from `main`, before any thread is started.
///
/// `argv` is `main`'s: `argc` C strings, which are copied and stay the caller's. Null is allowed if
/// `argc` is 0, and a null among the strings ends the list. `link` is copied and stays the
/// caller's. It must not be null.
///
/// A panic never reaches C: the function returns 101, as a Rust `main` does. In a release build the
/// panic aborts the process.
///
/// # Safety
/// `argv` and `link` must be as described.
#[expect(unsafe_code, reason = "the C boundary")]
// SAFETY: the name is ours: no other library's symbols start like this.
#[unsafe(no_mangle)]
#[expect(clippy::similar_names, reason = "argc and argv are what C calls them")]
pub unsafe extern "C" fn kube_canary_main(argc: c_int, argv: *const *mut c_char, link: *const KubeCanaryLink) -> c_int {
    // The linker extracts only those members of the archive that are referenced.
    std::hint::black_box((&raw const allocator::EARLY, &raw const MALLOC_CONF));
    // SAFETY: the caller promises a valid `link`.
    let KubeCanaryLink { mallctl, mi_version, mi_is_in_heap_region } = unsafe { *link };
    allocator::linked_by_c(allocator::Malloc { mallctl, mi_version, mi_is_in_heap_region });
    // SAFETY: the caller promises `argc` C strings.
    let words = unsafe { arguments(argc, argv) };
    let code = std::panic::catch_unwind(|| crate::main_from(words)).unwrap_or(101);
    // An error here is ignored: code that writes checks its errors, and this flushes only what
    // `print!` left without a newline.
    let _ = std::io::stdout().flush();
    code
}

/// # Safety
/// `first` points to `count` pointers, each null or to a C string; it may be null if `count` is 0.
#[expect(unsafe_code, reason = "reads the caller's C strings")]
unsafe fn arguments(count: c_int, first: *const *mut c_char) -> Vec<OsString> {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: promised by the caller.
    let pointers = (0..count).map(|index| unsafe { *first.add(index) });
    let present = pointers.take_while(|pointer| !pointer.is_null());
    // SAFETY: promised by the caller.
    present.map(|pointer| OsString::from_vec(unsafe { CStr::from_ptr(pointer) }.to_bytes().to_vec())).collect()
}
