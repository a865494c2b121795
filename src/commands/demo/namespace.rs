//! Namespaces of the demo's own: a user namespace, in which it has the privileges that it needs,
//! and network namespaces.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;

use kube_canary_kernel::process::{enter_new_network, enter_new_user};
use rustix::net::netdevice::name_to_index;
use rustix::process::{getegid, geteuid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use socket2::{Domain, Protocol, Socket, Type};

/// The index of the loopback interface in every network namespace.
const LOOPBACK: u32 = 1;
/// Bits of an address that all nodes of a demo have in common.
const PREFIX_BITS: u8 = 24;

/// Whether an ICMP socket of either kind can be opened here.
pub fn can_ping() -> bool {
    [Type::DGRAM, Type::RAW].into_iter().any(|kind| Socket::new(Domain::IPV4, kind, Some(Protocol::ICMPV4)).is_ok())
}

/// Gives this process the privilege to create network namespaces: as root of a new user namespace,
/// in which its children start, too. The process must have only one thread. A process that has the
/// privilege enters no user namespace, for root of one may not read the files of other users.
///
/// # Errors
/// The kernel's error: user namespaces may be disabled, or the process may have several threads.
pub fn enter_user() -> io::Result<()> {
    if enter_new_network().is_ok() {
        return Ok(());
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    enter_new_user()?;
    // user_namespaces(7): without privilege, the group map may be written only after setgroups is
    // denied.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

/// A network namespace, which stays open as long as this lives.
#[derive(Debug)]
pub struct NetworkNamespace(File);

impl NetworkNamespace {
    /// Creates a network namespace, and moves the calling thread into it. The loopback interface
    /// there is up.
    ///
    /// # Errors
    /// The kernel's error: the process may lack the privilege.
    pub fn enter_new() -> io::Result<Self> {
        enter_new_network()?;
        link_up(LOOPBACK)?;
        Ok(Self(File::open("/proc/thread-self/ns/net")?))
    }

    /// Moves the calling thread into the namespace. Its children start there.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}

/// Gives an interface of this thread's network namespace its address, and sets it up.
///
/// # Errors
/// The kernel's error: there may be no such interface.
pub fn set_up(interface: &str, address: Ipv4Addr) -> io::Result<()> {
    const ADDRESS_BYTES: u32 = 8;
    let index = name_to_index(Socket::new(Domain::IPV4, Type::DGRAM, None)?, interface)?;
    // `struct ifaddrmsg`: family, length of the prefix, flags and scope in a byte each, and the
    // index. An attribute has its length and its type in half a word each, and its value.
    let family = libc::AF_INET.cast_unsigned() | u32::from(PREFIX_BITS) << 8;
    let attribute = |kind: u16| ADDRESS_BYTES | u32::from(kind) << 16;
    let address = u32::from_ne_bytes(address.octets());
    let (local, peer) = (attribute(libc::IFA_LOCAL), attribute(libc::IFA_ADDRESS));
    request(libc::RTM_NEWADDR, &[family, index, local, address, peer, address])?;
    link_up(index)
}

fn link_up(index: u32) -> io::Result<()> {
    const UP: u32 = libc::IFF_UP.cast_unsigned();
    // `struct ifinfomsg`: family, index, flags, and which flags to change.
    request(libc::RTM_NEWLINK, &[0, index, UP, UP])
}

/// Sends a message of rtnetlink(7), and reads the acknowledgement. Halves of a word and bytes of a
/// word are in the order of little endian.
fn request(kind: u16, body: &[u32]) -> io::Result<()> {
    const FLAGS: u32 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK).cast_unsigned();
    // `struct nlmsghdr`: length in bytes, type and flags, sequence, port.
    let mut message = vec![0, u32::from(kind) | FLAGS << 16, 0, 0];
    message.extend(body);
    message[0] = u32::try_from(size_of_val(&message[..])).unwrap_or(u32::MAX);
    let message: Vec<u8> = message.into_iter().flat_map(u32::to_ne_bytes).collect();
    let mut socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, None)?;
    socket.send(&message)?;
    // The acknowledgement has the negative error number after its header.
    let mut answer = [[0; 4]; 5];
    socket.read_exact(answer.as_flattened_mut())?;
    match i32::from_ne_bytes(answer[4]) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
