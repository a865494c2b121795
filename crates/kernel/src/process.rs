//! What a process sets for its children and for itself, besides what rustix has: prctl(2) between
//! fork and exec, and unshare(2).
#![expect(unsafe_code, reason = "a hook between fork and exec, and unshare(2), have no safe form")]

use std::io;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::process::Command;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Makes the kernel end the child when this process ends for any reason.
pub fn end_with_parent(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: prctl and getppid are async-signal-safe and the closure touches no memory of the
    // parent.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            // The parent may have ended before the call.
            if parent_id() == parent { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        });
    }
}

/// Moves the calling thread into a new network namespace.
///
/// # Errors
/// The kernel's error: the process may lack the privilege.
pub fn enter_new_network() -> io::Result<()> {
    unshare(UnshareFlags::NEWNET)
}

/// Moves the process into a new user namespace.
///
/// # Errors
/// The kernel's error: user namespaces may be disabled, or the process may have several threads.
pub fn enter_new_user() -> io::Result<()> {
    unshare(UnshareFlags::NEWUSER)
}

fn unshare(namespace: UnshareFlags) -> io::Result<()> {
    // SAFETY: the flags do not concern descriptors, which is all that this function requires.
    Ok(unsafe { unshare_unsafe(namespace) }?)
}
