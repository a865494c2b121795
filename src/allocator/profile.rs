//! jemalloc's heap profile: how much memory each call stack holds, in jemalloc's own format
//! (`heap_v2`, for jeprof and pprof).
//!
//! It exists only in a build with the feature `jemalloc-profiling`, and starts only on request.
//! [`super::conf`] describes how jemalloc is configured for it. Earlier allocations are not in the
//! profile.
//!
//! The trap: when jemalloc is compiled for musl, its configure step finds no unwinder. It then
//! follows frame pointers, which do not exist there, and reads invalid addresses. So jemalloc is
//! given a function that unwinds with the code that the standard library links anyway.

use std::ffi::{CString, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::ask::FEATURE;
use super::mallctl;

/// Heap profiles that one run writes besides its last. Each is a file.
const HEAP_PROFILES_MAX: u32 = 1_000;

/// A heap profile that is being recorded.
#[derive(Debug)]
pub struct HeapProfile {
    file: PathBuf,
    taken: u32,
}

/// The reason why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The environment has switched profiling off.
    #[error("jemalloc takes no heap profile (error {0}): leave prof out of _RJEM_MALLOC_CONF")]
    Off(i32),
    /// jemalloc could not write the file. It gives no reason.
    #[error("cannot write the heap profile {}: its directory must be there and writable", .0.display())]
    Write(PathBuf),
    /// The largest number of profiles was written.
    #[error("{HEAP_PROFILES_MAX} heap profiles were written: no more")]
    Enough,
}

impl HeapProfile {
    /// Whether this build has heap profiles.
    pub const AVAILABLE: bool = cfg!(feature = "jemalloc-profiling");

    /// Starts to record call stacks. `file` is the path of the last profile.
    ///
    /// # Errors
    /// [`ProfileError::Off`].
    pub fn start(file: PathBuf) -> Result<Self, ProfileError> {
        let mallctl = FEATURE.ok_or(ProfileError::Off(libc::ENOENT))?;
        #[cfg(feature = "jemalloc-profiling")]
        mallctl::write(mallctl, c"experimental.hooks.prof_backtrace", unwind::HOOK).map_err(ProfileError::Off)?;
        mallctl::write(mallctl, c"prof.active", true).map_err(ProfileError::Off)?;
        Ok(Self { file, taken: 0 })
    }

    /// Writes the live allocations to a numbered file and returns its path. The number is appended
    /// to the file name, beginning with `.1`.
    ///
    /// # Errors
    /// [`ProfileError::Write`], [`ProfileError::Enough`].
    pub fn write_numbered(&mut self) -> Result<PathBuf, ProfileError> {
        if self.taken == HEAP_PROFILES_MAX {
            return Err(ProfileError::Enough);
        }
        self.taken += 1;
        let mut name = OsString::from(&self.file);
        name.push(format!(".{}", self.taken));
        let path = PathBuf::from(name);
        write(&path)?;
        Ok(path)
    }

    /// Writes the live allocations to the file itself and returns its path.
    ///
    /// # Errors
    /// [`ProfileError::Write`].
    pub fn write_last(&self) -> Result<&Path, ProfileError> {
        write(&self.file)?;
        Ok(&self.file)
    }
}

fn write(path: &Path) -> Result<(), ProfileError> {
    let failed = || ProfileError::Write(path.to_owned());
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| failed())?;
    let pointer: *const c_char = name.as_ptr();
    let mallctl = FEATURE.ok_or(ProfileError::Off(libc::ENOENT))?;
    mallctl::write(mallctl, c"prof.dump", pointer).map_err(|_| failed())
}

/// Captures call stacks for jemalloc.
#[cfg(feature = "jemalloc-profiling")]
mod unwind {
    #![expect(unsafe_code, reason = "called by C")]

    use std::ffi::{c_uint, c_void};
    use std::mem::MaybeUninit;
    use std::slice;

    use crate::allocator::stack::walk;

    /// jemalloc's `prof_backtrace_hook_t`: the array of addresses, their number as output, and the
    /// size of the array.
    pub(super) const HOOK: unsafe extern "C" fn(*mut *mut c_void, *mut c_uint, c_uint) = call_stack;

    /// This must not allocate: jemalloc calls it during an allocation.
    unsafe extern "C" fn call_stack(addresses: *mut *mut c_void, count: *mut c_uint, max: c_uint) {
        let addresses = addresses.cast::<MaybeUninit<*mut c_void>>();
        // SAFETY: jemalloc lends an array of `max` pointers, which need not be initialized, and a
        // number.
        let (addresses, count) = unsafe { (slice::from_raw_parts_mut(addresses, max as usize), &mut *count) };
        *count = 0;
        let mut places = addresses.iter_mut();
        walk(|address| {
            let Some(place) = places.next() else { return false };
            place.write(address);
            *count += 1;
            true
        });
    }
}

#[cfg(all(test, feature = "jemalloc-profiling"))]
mod tests {
    use super::*;

    #[test]
    fn jemalloc_is_ready_to_record_call_stacks_and_records_none_unasked() {
        let mallctl = FEATURE.expect("the feature's jemalloc");
        let read = |name| mallctl::read::<u8>(mallctl, name).map(|byte| byte != 0);
        assert_eq!((read(c"opt.prof"), read(c"prof.active")), (Some(true), Some(false)));
        assert_eq!(mallctl::read::<usize>(mallctl, c"prof.lg_sample"), Some(0));
    }
}
