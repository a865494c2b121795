//! jemalloc's heap profile: which call stacks hold how much, in its own format (`heap_v2`, for jeprof and pprof).
//!
//! Only in a build with the feature `jemalloc-profiling`, and only once it is asked for; [`super::conf`] says how jemalloc is
//! set up for it. What was allocated before is not in it.
//!
//! The trap: compiled for musl, jemalloc finds no unwinder at its configuration, and follows frame pointers, which are not
//! there, into the void. So it is given a function that unwinds with what the standard library links anyway.

use std::ffi::{CString, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::ask::FEATURE;
use super::mallctl;
use crate::limits::HEAP_PROFILES_MAX;

/// A profile that is being taken.
#[derive(Debug)]
pub struct HeapProfile {
    file: PathBuf,
    taken: u32,
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The environment has switched it off.
    #[error("jemalloc takes no heap profile (error {0}): leave prof out of _RJEM_MALLOC_CONF")]
    Off(i32),
    /// jemalloc says only that it failed.
    #[error("cannot write the heap profile {}: its directory must be there and writable", .0.display())]
    Write(PathBuf),
    /// As many as there may be.
    #[error("{HEAP_PROFILES_MAX} heap profiles were written: no more")]
    Enough,
}

impl HeapProfile {
    /// Whether this build can.
    pub const AVAILABLE: bool = cfg!(feature = "jemalloc-profiling");

    /// From now on call stacks are noted; `file` is where the last profile will be written.
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

    /// Writes what is live now to the file's name with the next number behind it, `.1` first, and gives that name.
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

    /// Writes what is live now to the file itself, and gives its name.
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

/// Call stacks for jemalloc.
#[cfg(feature = "jemalloc-profiling")]
mod unwind {
    #![expect(unsafe_code, reason = "called by C")]

    use std::ffi::{c_uint, c_void};

    /// jemalloc's `prof_backtrace_hook_t`: room for so many addresses, how many there are, and so many.
    pub(super) const HOOK: unsafe extern "C" fn(*mut *mut c_void, *mut c_uint, c_uint) = call_stack;

    /// Must not allocate: jemalloc calls it from within an allocation.
    unsafe extern "C" fn call_stack(addresses: *mut *mut c_void, count: *mut c_uint, max: c_uint) {
        let mut noted: c_uint = 0;
        let note = |frame: &backtrace::Frame| {
            if noted < max {
                // SAFETY: jemalloc gives room for `max`, and `noted` is below that.
                unsafe { addresses.add(noted as usize).write(frame.ip()) };
                noted += 1;
            }
            noted < max
        };
        // SAFETY: the lock that it goes without is for Windows' debug library.
        unsafe { backtrace::trace_unsynchronized(note) };
        // SAFETY: jemalloc's own variable.
        unsafe { count.write(noted) };
    }
}

#[cfg(all(test, feature = "jemalloc-profiling"))]
mod tests {
    use super::*;

    #[test]
    fn jemalloc_is_ready_to_note_call_stacks_and_notes_none_unasked() {
        let mallctl = FEATURE.expect("the feature's jemalloc");
        let read = |name| mallctl::read::<u8>(mallctl, name).map(|byte| byte != 0);
        assert_eq!((read(c"opt.prof"), read(c"prof.active")), (Some(true), Some(false)));
        assert_eq!(mallctl::read::<usize>(mallctl, c"prof.lg_sample"), Some(0));
    }
}
