//! A new user and network namespace, in which this process may use ICMP.
#![expect(unsafe_code, reason = "unshare(2) has no safe form")]

use std::fs;
use std::io::{self, Read as _};

use rustix::process::{getegid, geteuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};
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
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: the flags do not concern descriptors, which is all that this function requires. The caller promises that there
    // is no other thread, which would stay in the old namespaces.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNET) }?;
    // user_namespaces(7): without privilege, the group map may be written only after setgroups is
    // denied.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
    loopback_up()
}

/// Sends a message of rtnetlink(7), and reads the acknowledgement.
fn loopback_up() -> io::Result<()> {
    const TYPE: u32 = libc::RTM_NEWLINK as u32;
    const FLAGS: u32 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK).cast_unsigned();
    const UP: u32 = libc::IFF_UP.cast_unsigned();
    /// The index of the loopback interface in every network namespace.
    const LOOPBACK: u32 = 1;
    // `struct nlmsghdr`: length, type and flags, sequence, port. `struct ifinfomsg`: family, index,
    // flags, and which flags to change. Two halves of a word are in the order of little endian.
    let message = [32, TYPE | FLAGS << 16, 0, 0, 0, LOOPBACK, UP, UP].map(u32::to_ne_bytes);
    let mut socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, None)?;
    socket.send(message.as_flattened())?;
    // The acknowledgement has the negative error number after its header.
    let mut answer = [[0; 4]; 5];
    socket.read_exact(answer.as_flattened_mut())?;
    match i32::from_ne_bytes(answer[4]) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
