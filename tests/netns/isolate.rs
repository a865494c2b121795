//! Namespaces for the whole test process: its network and its mounts are its own. So no other
//! process sees what it makes below `/run/netns`, and all of it disappears with its last process,
//! even if that is killed. The program under test is mounted there, so that any user can start it,
//! wherever it was built.
//!
//! This runs before `main`, because a process with threads may not enter a user namespace, and the
//! test harness starts threads.
#![expect(unsafe_code, reason = "unshare(2), mount(2) and a constructor have no safe wrapper in std")]

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::ptr;

use crate::namespace::PROGRAM;

// SAFETY: the loader calls what stands in .init_array once, before main, with the arguments of
// main, which a C function may ignore.
#[unsafe(link_section = ".init_array")]
#[used]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    if let Err(error) = isolate() {
        eprintln!(
            "the tests need namespaces of their own, which are refused: {error}; run them as root, or allow user \
             namespaces (sysctl user.max_user_namespaces, and kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu)"
        );
        // SAFETY: ends the process, without the handlers of a program that has not begun.
        unsafe { libc::_exit(1) };
    }
}

fn isolate() -> io::Result<()> {
    // SAFETY: both calls only read the process's identity.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let own_user = if user == 0 { 0 } else { libc::CLONE_NEWUSER };
    // SAFETY: flags only; this process has one thread.
    done(unsafe { libc::unshare(own_user | libc::CLONE_NEWNET | libc::CLONE_NEWNS) })?;
    if user != 0 {
        // user_namespaces(7): without privilege, the group map may only be written once setgroups
        // is given up.
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
    }
    // SAFETY: the strings are terminated and outlive the calls; where null is passed, mount(2)
    // ignores the argument.
    done(unsafe {
        libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), libc::MS_REC | libc::MS_PRIVATE, ptr::null())
    })?;
    // SAFETY: as above.
    done(unsafe { libc::mount(c"tmpfs".as_ptr(), c"/run".as_ptr(), c"tmpfs".as_ptr(), 0, ptr::null()) })?;
    let [built, program] = [env!("CARGO_BIN_EXE_kube-canary"), PROGRAM].map(CString::new);
    let (built, program) = (built?, program?);
    File::create(PROGRAM)?;
    // SAFETY: as above.
    done(unsafe { libc::mount(built.as_ptr(), program.as_ptr(), ptr::null(), libc::MS_BIND, ptr::null()) })
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
