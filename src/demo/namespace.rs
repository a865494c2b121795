//! A new user and network namespace, in which this process may use ICMP.
#![expect(unsafe_code, reason = "unshare(2) and the interface ioctl have no safe wrapper in std or socket2")]

use std::fs;
use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Protocol, Socket, Type};

/// Whether an ICMP socket of either kind can be opened here.
pub fn can_ping() -> bool {
    [Type::DGRAM, Type::RAW].into_iter().any(|kind| Socket::new(Domain::IPV4, kind, Some(Protocol::ICMPV4)).is_ok())
}

/// Moves this process into a new user namespace, as its root, and into a new network namespace. The
/// loopback interface there is up. The process must have only one thread. Its children start in the
/// namespaces, too.
///
/// # Errors
/// The kernel's error: user namespaces may be disabled, or the process may have several threads.
pub fn enter() -> io::Result<()> {
    // SAFETY: no pointer is passed; both calls only read the process's identity.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    // SAFETY: flags only. It affects this process alone, which the caller promises to be
    // single-threaded.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // user_namespaces(7): without privilege, the group map may be written only after setgroups is
    // denied.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
    loopback_up()
}

fn loopback_up() -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo\0") {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    #[expect(clippy::cast_possible_truncation, reason = "IFF_UP is 1")]
    {
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    }
    // SAFETY: `request` is a valid ifreq with a terminated name, and outlives the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw mut request) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
