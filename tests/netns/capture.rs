//! The wire tap: a packet socket on a device. It sees every ICMP echo, or every other packet that
//! it is given a parser for, that leaves or arrives, with the kernel's time.
//!
//! A request is stamped just before the device gets it, and a reply as it arrives from the device.
//! The tap uses `SO_TIMESTAMPING`. Rejected: `SO_TIMESTAMPNS`. Before the kernel begins to stamp,
//! it gives the time of reading as if that were a stamp. Stamps are of the real-time clock. Its
//! distance from `CLOCK_MONOTONIC` is measured once for all taps. So times of two taps can be
//! compared, and a clock step during a test would show.
#![expect(unsafe_code, reason = "packet sockets and ancillary data have no safe wrapper in std")]

use std::ffi::CString;
use std::fmt::Debug;
use std::io;
use std::mem;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use kube_canary::sys::clock::{monotonic, realtime};
use kube_canary::units::Nanos;

use crate::common::until::until_so;
use crate::echo::Echo;
use crate::namespace::Namespace;

/// A packet on the wire, such as an echo.
#[derive(Clone, Copy, Debug)]
pub struct Seen<T = Echo> {
    pub what: T,
    /// The time, by `CLOCK_MONOTONIC`.
    pub at: Nanos,
    pub outgoing: bool,
}

/// Room for packets that arrive between two reads. A packet takes 768 bytes of it. A user with the
/// usual limit gets room for half a second of 600 probes, which is the least.
const QUEUE_BYTES: libc::c_int = 4 << 20;

/// The socket of the tap. Its owner must read it so often that its queue never overflows.
/// [`Capture::drops`] counts overflows.
pub struct Capture {
    fd: OwnedFd,
}

impl Capture {
    /// Opens a tap on `device` of `namespace`. Returns once the kernel stamps packets, which it
    /// begins to do in the background. Datagrams to the port `discard` of `neighbour`
    /// show when it does.
    pub fn new(namespace: &Namespace, device: &str, neighbour: Ipv4Addr) -> Self {
        namespace.within(|| {
            let capture = Self::open(device).unwrap_or_else(|error| panic!("a packet socket on {device}: {error}"));
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket");
            until_so("the kernel stamps", || {
                // A datagram that does not pass yet passes later.
                let _ = socket.send_to(&[0], (neighbour, 9));
                let mut stamped = false;
                capture.packets(|_, stamp, _| stamped |= stamp.is_some());
                stamped
            });
            capture
        })
    }

    fn open(device: &str) -> io::Result<Self> {
        let every = u16::try_from(libc::ETH_P_ALL).expect("16 bits").to_be();
        // SAFETY: numbers only. SOCK_DGRAM: the packet begins with its IP header, whatever the
        // device.
        let fd = unsafe {
            libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, every.into())
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // The second is for root alone; the first gives at most what net.core.rmem_max allows.
        set(&fd, libc::SO_RCVBUF, QUEUE_BYTES)?;
        let _ = set(&fd, libc::SO_RCVBUFFORCE, QUEUE_BYTES);
        let flags = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
        set(&fd, libc::SO_TIMESTAMPING, flags.cast_signed())?;
        let name = CString::new(device)?;
        // SAFETY: all of its fields may be zero, and the name is a terminated string.
        let (mut address, index) = unsafe { (mem::zeroed::<libc::sockaddr_ll>(), libc::if_nametoindex(name.as_ptr())) };
        address.sll_family = u16::try_from(libc::AF_PACKET).expect("16 bits");
        address.sll_protocol = every;
        address.sll_ifindex = i32::try_from(index).ok().filter(|index| *index > 0).ok_or(io::ErrorKind::NotFound)?;
        // SAFETY: the address outlives the call, which reads as many bytes as it has.
        done(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length(&address)) })?;
        Ok(Self { fd })
    }

    /// Passes every echo since the last call to `tell`.
    pub fn read(&self, tell: impl FnMut(Seen)) {
        self.read_as(Echo::read, tell);
    }

    /// Passes every packet that `parse` knows since the last call to `tell`.
    fn read_as<T: Debug>(&self, parse: impl Fn(&[u8]) -> Option<T>, mut tell: impl FnMut(Seen<T>)) {
        self.packets(|packet, stamp, outgoing| {
            if let Some(what) = parse(packet) {
                let stamp = stamp.unwrap_or_else(|| panic!("the kernel did not stamp {what:?}"));
                tell(Seen { what, at: Nanos(stamp.0 - ahead()), outgoing });
            }
        });
    }

    /// Passes every packet to `tell`, with its stamp and whether it leaves.
    fn packets(&self, mut tell: impl FnMut(&[u8], Option<Nanos>, bool)) {
        let mut bytes = [0u8; 2_048];
        let mut control = [0u64; 16];
        loop {
            let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            // SAFETY: all fields of both may be zero.
            let (mut from, mut message) =
                unsafe { (mem::zeroed::<libc::sockaddr_ll>(), mem::zeroed::<libc::msghdr>()) };
            message.msg_name = (&raw mut from).cast();
            message.msg_namelen = length(&from);
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control);
            // SAFETY: every pointer of the message is to a buffer of the length beside it, which
            // outlives the call.
            let got = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, 0) };
            let Ok(got) = usize::try_from(got) else {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::Interrupted => continue,
                    _ => panic!("reading the wire: {error}"),
                }
            };
            tell(&bytes[..got], stamp(&message), from.sll_pkttype == libc::PACKET_OUTGOING);
        }
    }

    /// Packets that did not fit into the queue since the last call.
    pub fn drops(&self) -> u32 {
        let mut counts = [0u32; 2];
        let mut size = length(&counts);
        // SAFETY: the kernel writes at most `size` bytes to `counts` (struct tpacket_stats), and
        // both outlive the call.
        done(unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                counts.as_mut_ptr().cast(),
                &raw mut size,
            )
        })
        .expect("a packet socket counts");
        counts[1]
    }

    /// Reads every few milliseconds. Rejected: reading as soon as there is a packet. A tap that
    /// every packet wakes would take CPU from the processes under test.
    pub fn record(self) -> Recording {
        self.record_as(Echo::read)
    }

    /// The same for packets that `parse` knows.
    pub fn record_as<T: Debug + Send + 'static>(
        self,
        parse: impl Fn(&[u8]) -> Option<T> + Send + 'static,
    ) -> Recording<T> {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut all = Vec::new();
            loop {
                let last = asked.load(Ordering::Acquire);
                self.read_as(&parse, |seen| all.push(seen));
                if last {
                    assert_eq!(self.drops(), 0, "the tap was not read in time");
                    return all;
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        Recording { stop, thread }
    }
}

/// A tap that is being read.
pub struct Recording<T = Echo> {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Seen<T>>>,
}

impl<T> Recording<T> {
    /// Returns all packets until now.
    pub fn stop(self) -> Vec<Seen<T>> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Returns the kernel's stamp in the ancillary data.
fn stamp(message: &libc::msghdr) -> Option<Nanos> {
    // SAFETY: the message is as recvmsg has left it, with its control buffer still there; the
    // macros stay within it.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(message);
        while let Some(header) = next.as_ref() {
            if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_TIMESTAMPING {
                // struct scm_timestamping has three times, of which the first is the software
                // stamp.
                let time: libc::timespec = ptr::read_unaligned(libc::CMSG_DATA(next).cast());
                let nanos = time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs();
                return (nanos > 0).then_some(Nanos(nanos));
            }
            next = libc::CMSG_NXTHDR(message, next);
        }
    }
    None
}

/// Real time less monotonic time: the reading with the least time in between, of many.
fn ahead() -> u64 {
    static AHEAD: OnceLock<u64> = OnceLock::new();
    let reading = |_| {
        let (before, real, after) = (monotonic(), realtime(), monotonic());
        (after.since(before), real.0 - u64::midpoint(before.0, after.0))
    };
    *AHEAD.get_or_init(|| (0..1_000).map(reading).min().expect("many readings").1)
}

/// Sets a socket option to a number.
fn set(fd: &OwnedFd, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: `value` outlives the call, which reads as many bytes as it has.
    done(unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, (&raw const value).cast(), length(&value)) })
}

fn length<T>(value: &T) -> libc::socklen_t {
    libc::socklen_t::try_from(size_of_val(value)).expect("a small structure")
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
