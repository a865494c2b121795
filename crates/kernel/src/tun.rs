//! A TUN device: the kernel has a network interface, and the process reads and writes the IP
//! packets at its other end.
#![expect(unsafe_code, reason = "TUNSETIFF has no safe form")]

use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// The file that creates devices.
pub const PATH: &str = "/dev/net/tun";
/// The interface's name. There is one device per network namespace.
pub const NAME: &str = "tun0";
/// Bytes of a packet: the interface's MTU.
pub const PACKET_BYTES_MAX: usize = 1_500;

/// `TUNSETIFF` of linux/if_tun.h. It is declared with an int, and takes an [`InterfaceRequest`].
const CREATE: Opcode = opcode::write::<c_int>(b'T', 202);

/// `struct ifreq` of linux/if.h, with the flags of its union.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    flags: u16,
    rest: [u8; size_of::<libc::ifreq>() - libc::IFNAMSIZ - 2],
}

const _: () = assert!(size_of::<InterfaceRequest>() == size_of::<libc::ifreq>());

/// The process's end of a device. The device ends when this is dropped.
#[derive(Debug)]
pub struct Tun(File);

impl Tun {
    /// Creates the device [`NAME`] in the network namespace of the calling thread. It is down and
    /// has no address.
    ///
    /// # Errors
    /// The kernel's error: [`PATH`] may be missing, or the privilege for this namespace.
    pub fn create() -> io::Result<Self> {
        #[expect(clippy::cast_possible_truncation, reason = "0x1001")]
        const FLAGS: u16 = (libc::IFF_TUN | libc::IFF_NO_PI) as u16;
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(PATH)?;
        let mut request = InterfaceRequest { name: [0; _], flags: FLAGS, rest: [0; _] };
        request.name[..NAME.len()].copy_from_slice(NAME.as_bytes());
        // SAFETY: the kernel reads and writes one `struct ifreq` for this code. `request` has its
        // layout and outlives the call, and is valid with any bytes.
        unsafe { ioctl(&file, Updater::<CREATE, InterfaceRequest>::new(&mut request)) }?;
        Ok(Self(file))
    }

    /// Returns the next packet that the kernel sends through the interface, or `None` if there is
    /// none now. `buffer` needs [`PACKET_BYTES_MAX`] bytes, else the packet is cut.
    pub fn read<'a>(&self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        // An interrupted call is repeated by the next wait for packets.
        (&self.0).read(buffer).ok().map(|length| &buffer[..length])
    }

    /// Gives the kernel a packet, as if it had arrived at the interface.
    ///
    /// # Errors
    /// The kernel's error: the interface may be down, or the bytes no packet.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&self.0).write(packet).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
