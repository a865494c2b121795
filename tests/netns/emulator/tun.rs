//! A TUN device, and waiting for its packets to the microsecond.
#![expect(unsafe_code, reason = "TUNSETIFF, ppoll(2) and prctl(2) have no safe wrapper in std")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::ptr;

use kube_canary::units::Nanos;

use crate::namespace::Namespace;

const PATH: &str = "/dev/net/tun";

/// The user-space end of a device. The device is removed when it is dropped.
pub struct Tun(File);

impl Tun {
    /// Makes a device `name`, which is down and has no address.
    pub fn new(namespace: &Namespace, name: &str) -> Self {
        let made = namespace.within(|| Self::open(name));
        made.unwrap_or_else(|error| {
            panic!(
                "the link emulator needs a TUN device, and {PATH} cannot be used: {error}; load the module (modprobe tun), \
                 give a container the device (--device {PATH}), and let this user read and write it"
            )
        })
    }

    fn open(name: &str) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(PATH)?;
        // SAFETY: all of its fields may be zero.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        assert!(name.len() < request.ifr_name.len(), "{name} is too long");
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed() as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_TUN | libc::IFF_NO_PI).expect("16 bits");
        // SAFETY: the kernel reads and writes one struct ifreq, which outlives the call.
        match unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } {
            0.. => Ok(Self(file)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the next packet that the host has sent, or `None` if there is none.
    pub fn read<'a>(&mut self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        loop {
            match self.0.read(buffer) {
                Ok(length) => return Some(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => panic!("reading from the TUN device: {error}"),
            }
        }
    }

    /// Sends a packet to the host. It has gone through the host's stack when this returns.
    pub fn write(&mut self, packet: &[u8]) {
        let written = self.0.write(packet).unwrap_or_else(|error| panic!("writing to the TUN device: {error}"));
        assert_eq!(written, packet.len());
    }

    /// Waits until there is a packet or `stop` is readable, at most for `time`. Returns whether
    /// `stop` is readable.
    pub fn wait(&self, stop: BorrowedFd<'_>, time: Option<Nanos>) -> bool {
        let one = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [one(self.0.as_raw_fd()), one(stop.as_raw_fd())];
        let number = |value: u64| i64::try_from(value).expect("a short time");
        let time =
            time.map(|t| libc::timespec { tv_sec: number(t.0 / 1_000_000_000), tv_nsec: number(t.0 % 1_000_000_000) });
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: both structures outlive the call, and a null time or mask is allowed. An
        // interruption is a wake-up.
        let ready = unsafe { libc::ppoll(fds.as_mut_ptr(), 2, time, ptr::null()) };
        ready > 0 && fds[1].revents != 0
    }
}

/// Makes the kernel wake the calling thread at the requested time, and not up to 50 µs later.
pub fn punctual() {
    // SAFETY: numbers only; it concerns the calling thread alone, and cannot fail for a value that
    // is not zero.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}
