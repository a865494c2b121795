//! `sendmmsg(2)` and `recvmmsg(2)` over buffers that are made once. Neither std, socket2 nor rustix
//! has both with the kernel's timestamps.
//!
//! The structures are the kernel's own of a 64-bit system, because the libcs disagree on them.
//! musl's `sendmmsg` is a loop of `sendmsg`, so the system calls are made directly. A sandbox may
//! lack both batched calls. Then each packet costs a call of `sendmsg(2)` or `recvmsg(2)`.
#![expect(unsafe_code, reason = "system calls without a safe wrapper")]

use std::array::from_fn;
use std::ffi::{c_int, c_long};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::OnceLock;

use kube_canary_model::units::Nanos;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::control::{STAMP_BYTES, words};
use crate::name::Name;
use crate::region::Table;

/// Largest number of packets sent or read by one call.
pub const BATCH: usize = 32;

/// Words for one control message with three timespecs (`SCM_TIMESTAMPING`). With no more, what
/// follows it on the error queue is cut off.
pub const STAMP_WORDS: usize = words([STAMP_BYTES]);

/// `struct mmsghdr`, which begins with a `struct msghdr`. It borrows all memory that the kernel
/// reads or writes.
#[repr(C)]
struct Header<'a, P, C> {
    name: Option<&'a mut Name>,
    name_bytes: u32,
    part: Option<&'a mut P>,
    parts: usize,
    control: Option<&'a mut C>,
    control_bytes: usize,
    flags: u64,
    /// The length of the packet, which the kernel returns.
    bytes: u32,
}

const _: () = assert!(size_of::<Header<'_, IoSlice<'_>, ()>>() == 64);

impl<P, C> Header<'_, P, C> {
    const fn empty() -> Self {
        Self { name: None, name_bytes: 0, part: None, parts: 0, control: None, control_bytes: 0, flags: 0, bytes: 0 }
    }
}

/// `struct iovec`. Its type decides the call, so that only writable memory is written.
trait Part {
    /// The call for many packets.
    const BATCHED: c_long;
    /// The call for one packet.
    const SINGLE: c_long;
    /// The error by which the kernel has refused the call for many packets, once it was tried.
    fn refusal() -> &'static OnceLock<Option<c_int>>;
}

impl Part for IoSlice<'_> {
    const BATCHED: c_long = libc::SYS_sendmmsg;
    const SINGLE: c_long = libc::SYS_sendmsg;

    fn refusal() -> &'static OnceLock<Option<c_int>> {
        static REFUSAL: OnceLock<Option<c_int>> = OnceLock::new();
        &REFUSAL
    }
}

impl Part for IoSliceMut<'_> {
    const BATCHED: c_long = libc::SYS_recvmmsg;
    const SINGLE: c_long = libc::SYS_recvmsg;

    fn refusal() -> &'static OnceLock<Option<c_int>> {
        static REFUSAL: OnceLock<Option<c_int>> = OnceLock::new();
        &REFUSAL
    }
}

/// Checks that the kernel sends and reads many packets by one call. If not, each packet costs a
/// call of its own. The kernel is asked once, for all sockets.
///
/// # Errors
/// The error by which the kernel refuses one of the calls.
pub fn check(fd: BorrowedFd<'_>) -> io::Result<()> {
    let refusal = refusal::<IoSlice<'_>>(fd).or_else(|| refusal::<IoSliceMut<'_>>(fd));
    refusal.map_or(Ok(()), |error| Err(io::Error::from_raw_os_error(error)))
}

/// An empty call transfers nothing. Only a kernel without the call refuses it for these reasons:
/// for a packet, a firewall returns EPERM too.
fn refusal<P: Part>(fd: BorrowedFd<'_>) -> Option<c_int> {
    *P::refusal().get_or_init(|| {
        let error = batched::<P, ()>(fd, &mut [], 0).err()?.raw_os_error()?;
        matches!(error, libc::ENOSYS | libc::EPERM | libc::EINVAL).then_some(error)
    })
}

/// Passes on as many packets as is possible without waiting. Returns their number.
fn transfer<P: Part, C: FromBytes>(
    fd: BorrowedFd<'_>,
    headers: &mut [Header<'_, P, C>],
    flags: c_int,
) -> io::Result<usize> {
    if refusal::<P>(fd).is_none() { batched(fd, headers, flags) } else { one_by_one(fd, headers, flags) }
}

fn batched<P: Part, C: FromBytes>(
    fd: BorrowedFd<'_>,
    headers: &mut [Header<'_, P, C>],
    flags: c_int,
) -> io::Result<usize> {
    let flags = flags | libc::MSG_DONTWAIT;
    let no_timeout = ptr::null::<libc::timespec>();
    // SAFETY: the headers borrow for the call whatever they point to, and say its size. The kernel
    // writes to the headers, and to names, control blocks and parts that it received into. These
    // are borrowed mutably, and any bytes are a value of each, because names and control blocks are
    // `FromBytes`.
    let done =
        unsafe { libc::syscall(P::BATCHED, fd.as_raw_fd(), headers.as_mut_ptr(), headers.len(), flags, no_timeout) };
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

/// Does the same with a call for each packet. An error is that of the first packet; after that, it
/// only ends the batch, as it does in the kernel.
fn one_by_one<P: Part, C: FromBytes>(
    fd: BorrowedFd<'_>,
    headers: &mut [Header<'_, P, C>],
    flags: c_int,
) -> io::Result<usize> {
    let flags = flags | libc::MSG_DONTWAIT;
    for (done, header) in headers.iter_mut().enumerate() {
        // SAFETY: as above. The header begins with the `struct msghdr` that the call uses.
        let bytes = unsafe { libc::syscall(P::SINGLE, fd.as_raw_fd(), &raw mut *header, flags) };
        match u32::try_from(bytes) {
            Ok(bytes) => header.bytes = bytes,
            Err(_) if done > 0 => return Ok(done),
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
    Ok(headers.len())
}

/// A packet to send, by any kind of socket.
pub trait Packet {
    /// Room for the control messages of one packet: words, or nothing.
    type Control: Copy + FromBytes + IntoBytes;

    /// Returns the destination, with port 0 if the protocol has no ports.
    fn to(&self) -> SocketAddr;
    /// Returns the bytes behind the headers that the kernel writes.
    fn bytes(&self) -> &[u8];
    /// Writes the control messages, and returns their length in bytes: at most those of the room.
    fn control(&self, room: &mut Self::Control) -> usize;
}

/// Sends every packet in order, and reports the result of each by its index. If the kernel refuses
/// one, the others are still sent.
///
/// A socket that reports the errors of earlier packets (`IP_RECVERR`) fails once for such an error,
/// which is not about the packet that it was given. So each packet that fails is tried again.
pub fn send_all<P: Packet>(fd: BorrowedFd<'_>, packets: &[P], sent: &mut dyn FnMut(usize, io::Result<()>)) {
    let (mut at, mut retried) = (0, false);
    while at < packets.len() {
        // An error is about the first packet of the call: report it and continue after it. No
        // progress counts as an error too.
        match send_batch(fd, &packets[at..]) {
            Ok(count @ 1..) => {
                (at..at + count).for_each(|index| sent(index, Ok(())));
                at += count;
            }
            Err(_) if !retried => {
                retried = true;
                continue;
            }
            other => {
                sent(at, Err(other.err().unwrap_or_else(|| io::ErrorKind::WouldBlock.into())));
                at += 1;
            }
        }
        retried = false;
    }
}

fn send_batch<P: Packet>(fd: BorrowedFd<'_>, packets: &[P]) -> io::Result<usize> {
    let (mut names, mut parts) = ([Name::default(); BATCH], [IoSlice::new(&[]); BATCH]);
    let mut controls = [P::Control::new_zeroed(); BATCH];
    let mut headers = [const { Header::empty() }; BATCH];
    let rooms = names.iter_mut().zip(&mut parts).zip(&mut controls);
    for ((packet, header), ((name, part), control)) in packets.iter().zip(&mut headers).zip(rooms) {
        *part = IoSlice::new(packet.bytes());
        (*name, header.name_bytes) = Name::from_address(packet.to());
        (header.name, header.part, header.parts) = (Some(name), Some(part), 1);
        header.control_bytes = packet.control(control).min(size_of::<P::Control>());
        header.control = (header.control_bytes > 0).then_some(control);
    }
    transfer(fd, &mut headers[..packets.len().min(BATCH)], 0)
}

/// The queue of a socket to read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Packets that have arrived.
    Arrivals,
    /// Packets that were sent, with the kernel's timestamp (`MSG_ERRQUEUE`).
    Departures,
    /// The same queue, with the destination of each packet. Errors are there, too.
    Errors,
}

/// A packet that is stored in a [`Batch`].
#[derive(Debug)]
pub struct Received<'a> {
    /// Source of the packet, if the kernel gives one.
    pub from: Option<SocketAddr>,
    /// Bytes of the packet, cut at the buffer size of the batch.
    pub bytes: &'a [u8],
    /// Length of the whole packet. On the error queue: of `bytes`.
    pub length: usize,
    /// The kernel's real-time timestamp, if it has one.
    pub stamp: Option<Nanos>,
    /// The control messages, as far as the batch has room for them.
    pub control: &'a [u8],
}

/// Room for what the kernel says of one packet, besides its bytes.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
struct Slot<const WORDS: usize> {
    control: [u64; WORDS],
    name: Name,
}

/// How much the kernel has written for one packet, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    packet: u32,
    name: u32,
    control: usize,
}

/// Buffers for one `recvmmsg` call, made once. A mesh whose packets come few at a time writes only
/// the first pages of them. Packets are lent out as [`Received`] and overwritten by the next call.
/// Control messages have room for `WORDS` words.
#[derive(Debug)]
pub struct Batch<const WORDS: usize = STAMP_WORDS> {
    buffers: Table<u8>,
    buffer_bytes: usize,
    slots: Table<Slot<WORDS>>,
    written: [Written; BATCH],
    count: usize,
}

impl<const WORDS: usize> Batch<WORDS> {
    /// Makes a batch with buffers of `buffer_bytes` each.
    pub fn new(buffer_bytes: usize) -> Self {
        let (buffers, slots) = (Table::new(buffer_bytes * BATCH), Table::new(BATCH));
        Self { buffers, buffer_bytes, slots, written: [Written::default(); BATCH], count: 0 }
    }

    /// Reads up to [`BATCH`] packets without waiting, and returns their number. They replace the
    /// packets of the last read; [`Batch::packets`] returns them. If there are fewer than
    /// [`BATCH`], the queue is empty.
    ///
    /// # Errors
    /// The error of `recvmmsg`. An empty queue is no error and returns 0.
    pub fn receive(&mut self, fd: BorrowedFd<'_>, queue: Queue) -> io::Result<usize> {
        self.count = 0;
        let mut buffers = self.buffers.chunks_exact_mut(self.buffer_bytes);
        let mut parts: [_; BATCH] = from_fn(|_| IoSliceMut::new(buffers.next().unwrap_or_default()));
        let mut headers = [const { Header::empty() }; BATCH];
        for ((header, part), slot) in headers.iter_mut().zip(&mut parts).zip(self.slots.iter_mut()) {
            (header.part, header.parts) = (Some(part), 1);
            (header.control, header.control_bytes) = (Some(&mut slot.control), size_of::<[u64; WORDS]>());
            if queue != Queue::Departures {
                (header.name, header.name_bytes) = (Some(&mut slot.name), Name::V6_BYTES);
            }
        }
        // With MSG_TRUNC, the length of a packet is returned even if the buffer is shorter.
        let flags = if queue == Queue::Arrivals { libc::MSG_TRUNC } else { libc::MSG_ERRQUEUE };
        self.count = match transfer(fd, &mut headers, flags) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            result => result?.min(BATCH),
        };
        for (written, header) in self.written.iter_mut().zip(&headers) {
            *written = Written { packet: header.bytes, name: header.name_bytes, control: header.control_bytes };
        }
        Ok(self.count)
    }

    /// Returns the packets of the last read.
    pub fn packets(&self) -> impl Iterator<Item = Received<'_>> {
        let buffers = self.buffers.chunks_exact(self.buffer_bytes);
        self.slots[..self.count].iter().zip(&self.written).zip(buffers).map(|((slot, written), buffer)| {
            let control = slot.control.as_bytes();
            let length = written.packet as usize;
            Received {
                from: slot.name.read(written.name),
                bytes: &buffer[..buffer.len().min(length)],
                length,
                stamp: timestamp(&slot.control, written.control),
                control: &control[..control.len().min(written.control)],
            }
        })
    }
}

/// Returns the software timestamp in a control block of which the kernel filled `length` bytes. It
/// is at the front, also on the error queue, whatever other options are enabled. In any other
/// layout there is no timestamp, and the agent's own time is used.
fn timestamp(control: &[u64], length: usize) -> Option<Nanos> {
    // `struct cmsghdr` is a length, and these two. The software timestamp is the first of three.
    const LEVEL_AND_TYPE: [c_int; 2] = [libc::SOL_SOCKET, libc::SCM_TIMESTAMPING];
    let [_, kind, seconds, nanos, ..] = *control else { return None };
    let is_stamp = kind.to_ne_bytes() == *LEVEL_AND_TYPE.map(c_int::to_ne_bytes).as_flattened();
    if !is_stamp || !(size_of_val(&[kind; 4])..=size_of_val(control)).contains(&length) {
        return None;
    }
    // All zero: the kernel has no timestamp.
    Some(Nanos(seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?)).filter(|stamp| *stamp > Nanos(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket;
    use std::net::UdpSocket;
    use std::os::fd::{AsFd, OwnedFd};

    /// More packets than a batch holds.
    const PACKETS: u8 = 40;

    fn pair() -> (UdpSocket, UdpSocket) {
        let (a, b) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        (a, b)
    }

    /// Source, timestamp and bytes of a packet.
    type Owned = (Option<SocketAddr>, Option<Nanos>, Vec<u8>);

    /// Receives the [`PACKETS`] packets of a queue. On a busy machine, a separate kernel thread
    /// delivers packets later than they are sent. So the queues are read one after the other.
    fn receive_all(socket: &OwnedFd, queue: Queue) -> Vec<Owned> {
        let (mut batch, mut received) = (Batch::<STAMP_WORDS>::new(128), Vec::new());
        let end = std::time::Instant::now() + std::time::Duration::from_mins(1);
        while received.len() < usize::from(PACKETS) {
            assert!(std::time::Instant::now() < end, "{} packets have come", received.len());
            if batch.receive(socket.as_fd(), queue).unwrap() == 0 {
                std::thread::yield_now();
            }
            received.extend(batch.packets().map(|packet| (packet.from, packet.stamp, packet.bytes.to_vec())));
        }
        assert_eq!(batch.receive(socket.as_fd(), queue).unwrap(), 0);
        received
    }

    #[test]
    fn a_batch_carries_bytes_source_and_the_kernels_timestamp_at_both_ends() {
        let (a, b) = pair();
        let [here, there] = [&a, &b].map(|socket| socket.as_fd().try_clone_to_owned().unwrap());
        for socket in [&here, &there] {
            socket::stamp_all(socket).unwrap();
        }
        for i in 0..PACKETS {
            a.send(&[i; 5]).unwrap();
        }
        let (arrivals, departures) = (receive_all(&there, Queue::Arrivals), receive_all(&here, Queue::Departures));
        for (i, ((from, came, arrived), (_, left, departed))) in (0u8..).zip(arrivals.iter().zip(&departures)) {
            assert_eq!((from.unwrap(), &arrived[..]), (a.local_addr().unwrap(), &[i; 5][..]));
            // The kernel starts to stamp a moment after it is asked to, so the first packets
            // may have no timestamp.
            if let (Some(left), Some(came)) = (left, came) {
                assert!(left.0 > 1_600_000_000_000_000_000 && left <= came);
            }
            assert!(departed.ends_with(arrived), "behind its headers");
        }
    }

    #[test]
    fn packets_sent_and_read_one_by_one_are_those_of_a_batch() {
        let (a, b) = pair();
        let bytes = [[1; 3], [2; 3], [3; 3]];
        let mut parts = bytes.each_ref().map(|bytes| IoSlice::new(bytes));
        let mut headers = parts.each_mut().map(|part| {
            let mut header = Header::<_, ()>::empty();
            (header.part, header.parts) = (Some(part), 1);
            header
        });
        assert_eq!(one_by_one(a.as_fd(), &mut headers, 0).unwrap(), 3);
        let mut buffers = [[0; 8]; 4];
        let mut names = [Name::default(); 4];
        let mut parts = buffers.each_mut().map(|buffer| IoSliceMut::new(buffer));
        let mut headers: Vec<Header<'_, _, ()>> = (parts.iter_mut().zip(&mut names))
            .map(|(part, name)| Header {
                part: Some(part),
                parts: 1,
                name: Some(name),
                name_bytes: 28,
                ..Header::empty()
            })
            .collect();
        assert_eq!(one_by_one(b.as_fd(), &mut headers, 0).unwrap(), 3, "the fourth would wait");
        let lengths: Vec<(u32, u32)> = headers.iter().map(|header| (header.bytes, header.name_bytes)).collect();
        assert_eq!(lengths, [(3, 16), (3, 16), (3, 16), (0, 28)]);
        assert_eq!(names[0].read(16), Some(a.local_addr().unwrap()));
        assert_eq!(buffers.map(|buffer| buffer[0]), [1, 2, 3, 0]);
        let error = one_by_one(b.as_fd(), &mut [Header::<IoSliceMut<'_>, ()>::empty()], 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "an error of the first packet is returned");
    }

    /// A packet for which no port is given.
    struct Portless([u8; 4]);

    impl Packet for Portless {
        type Control = ();

        fn to(&self) -> SocketAddr {
            (self.0, 0).into()
        }

        fn bytes(&self) -> &[u8] {
            &self.0
        }

        fn control(&self, (): &mut ()) -> usize {
            0
        }
    }

    #[test]
    fn each_refused_packet_is_reported_by_its_index() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        // UDP refuses port 0 with EINVAL: every send of this test fails separately.
        let packets: Vec<Portless> = (0..11).map(|i| Portless([127, 0, 0, i])).collect();
        let mut reported = Vec::new();
        send_all(socket.as_fd(), &packets, &mut |i, result| reported.push((i, result.is_err())));
        assert_eq!(reported, (0..11).map(|i| (i, true)).collect::<Vec<_>>());
    }
}
