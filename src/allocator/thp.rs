//! Prevents huge pages in this process: sets `PR_SET_THP_DISABLE` before the first allocation.
//!
//! With `transparent_hugepage=always` one touched byte costs 2 MiB. jemalloc maps and touches its
//! first arena in a constructor, long before `main`. jemalloc's own `thp:never` only omits the
//! advice to the kernel, which has no effect there. So the flag is set by a constructor of our own.
//! An `.init_array` section with a number runs before those without one (jemalloc's), in the order
//! of the numbers. Numbers up to 100 are reserved for the implementation, and 101 is mimalloc's.
//!
//! A constructor of the executable is too late if the malloc is a shared library, because a
//! library's constructors run first. In that case the process executes itself once more, because
//! the flag survives `execve`. It does so only if huge pages already exist: those stay until they
//! are unmapped. glibc's `.preinit_array` was rejected. It runs before a shared malloc's
//! constructor, but other code may have allocated even earlier. One mechanism that checks the
//! outcome is enough.

#[cfg(target_env = "gnu")]
use std::ffi::{c_char, c_int};

#[cfg(target_env = "gnu")]
use rustix::fs::{self, Mode, OFlags};
use rustix::thread;

#[cfg(target_env = "gnu")]
type Constructor = extern "C" fn(c_int, *const *const c_char, *const *const c_char);
#[cfg(not(target_env = "gnu"))]
type Constructor = extern "C" fn();

/// The constructor that the loader calls. It is visible to [`crate::shim`], which names it: a
/// linker extracts a member from an archive only if some code needs one of its symbols.
#[used]
#[expect(unsafe_code, reason = "a constructor is placed by its section")]
// SAFETY: the section holds pointers to functions of just this type: glibc passes argc, argv and
// envp, musl nothing.
#[unsafe(link_section = ".init_array.00099")]
pub(crate) static EARLY: Constructor = early;

#[cfg(target_env = "gnu")]
extern "C" fn early(_argc: c_int, argv: *const *const c_char, envp: *const *const c_char) {
    if disable() && huge_pages_back_us() {
        start_again(argv, envp);
    }
}

/// musl is always linked statically here, and runs no code that allocates before this.
#[cfg(not(target_env = "gnu"))]
extern "C" fn early() {
    disable();
}

/// Sets the flag. Returns whether this call changed it. The program also runs if the
/// kernel refuses (a seccomp filter, a kernel before 3.15). It then uses more memory,
/// which the memory metrics show.
fn disable() -> bool {
    thread::transparent_huge_pages_are_disabled() == Ok(false) && thread::disable_transparent_huge_pages(true).is_ok()
}

/// Reads `AnonHugePages` of `smaps_rollup` without allocating, and without std, which may not be
/// relied on before `main`. If there is no such file (before Linux 4.14, or no /proc), the answer
/// is that there are none.
#[cfg(target_env = "gnu")]
fn huge_pages_back_us() -> bool {
    // The file is about 800 bytes long.
    let mut buffer = [0_u8; 2_048];
    let file = fs::open(c"/proc/self/smaps_rollup", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let read = file.and_then(|file| rustix::io::read(file, &mut buffer));
    read.is_ok_and(|length| anon_huge_kb(&buffer[..length]) > 0)
}

/// Returns the figure of the line `AnonHugePages:      2048 kB`, or 0 if there is no such line.
#[cfg(any(target_env = "gnu", test))]
fn anon_huge_kb(rollup: &[u8]) -> u64 {
    let mut lines = rollup.split(|&byte| byte == b'\n');
    let Some(rest) = lines.find_map(|line| line.strip_prefix(b"AnonHugePages:")) else { return 0 };
    let digits = rest.iter().filter(|byte| byte.is_ascii_digit());
    digits.fold(0, |number: u64, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
}

/// Executes this program again with the same arguments and environment. Returns only if that fails;
/// the program then continues as it is. It cannot loop: the flag is now set, so [`disable`] returns
/// false the next time.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "execve before main")]
fn start_again(argv: *const *const c_char, envp: *const *const c_char) {
    let mut path = [0_u8; libc::PATH_MAX as usize];
    // SAFETY: `readlink` writes at most one byte less than the buffer holds, so it stays
    // NUL-terminated (all zero if it fails); argv and envp are the loader's own, NULL-terminated,
    // and live as long as the process.
    unsafe {
        // The program is executed by its path, not as /proc/self/exe, because the kernel names a
        // process after the executed file.
        libc::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr().cast(), path.len() - 1);
        libc::execve(path.as_ptr().cast(), argv, envp);
        // The file may have been replaced or deleted since.
        libc::execve(c"/proc/self/exe".as_ptr(), argv, envp);
    }
}

#[cfg(test)]
mod tests {
    use super::anon_huge_kb;

    #[test]
    fn the_figure_of_huge_pages_is_read_from_the_rollup() {
        assert_eq!(
            anon_huge_kb(b"5cb0-7ffd ---p 0 00:00 0 [rollup]\nRss: 884 kB\nAnonHugePages:      6144 kB\n"),
            6_144
        );
        assert_eq!(anon_huge_kb(b"Rss: 884 kB\nAnonHugePages:         0 kB\nShmemPmdMapped: 2048 kB\n"), 0);
        assert_eq!(anon_huge_kb(b"Rss: 884 kB\n"), 0);
    }

    #[test]
    fn this_process_may_not_have_huge_pages() {
        let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
        assert!(status.contains("\nTHP_enabled:\t0\n"), "{status}");
    }
}
