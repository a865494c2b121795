//! `sendmmsg(2)` and `recvmmsg(2)` over buffers that are allocated once.
//!
//! This module and [`super::options`] are the only parts of the probe path that call the kernel
//! without a library. Neither std nor socket2 has the batched calls or the kernel's timestamps.
#![expect(unsafe_code, reason = "system calls without a safe wrapper; each block says why it is sound")]

use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::Outgoing;
use crate::units::Nanos;

/// Largest number of packets sent or read by one call.
pub const BATCH: usize = 32;
/// Bytes for one control message with three timespecs (`SCM_TIMESTAMPING`) on a 64-bit kernel. What
/// follows it on the error queue is cut off: the queue has departures and no errors.
const CONTROL_BYTES: usize = 64;

/// A socket address of either family.
#[derive(Clone, Copy)]
#[repr(C)]
union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Name {
    const fn zeroed() -> Self {
        // SAFETY: all-zero is a valid address of family 0.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }

    fn of(address: IpAddr) -> (Self, libc::socklen_t) {
        let mut name = Self::zeroed();
        let length = match address {
            IpAddr::V4(v4) => {
                #[expect(clippy::cast_possible_truncation, reason = "2")]
                let family = libc::AF_INET as libc::sa_family_t;
                let sin_addr = libc::in_addr { s_addr: u32::from(v4).to_be() };
                name.v4 = libc::sockaddr_in { sin_family: family, sin_port: 0, sin_addr, sin_zero: [0; 8] };
                size_of::<libc::sockaddr_in>()
            }
            IpAddr::V6(v6) => {
                #[expect(clippy::cast_possible_truncation, reason = "10")]
                let family = libc::AF_INET6 as libc::sa_family_t;
                let sin6_addr = libc::in6_addr { s6_addr: v6.octets() };
                name.v6 = libc::sockaddr_in6 {
                    sin6_family: family,
                    sin6_port: 0,
                    sin6_flowinfo: 0,
                    sin6_addr,
                    sin6_scope_id: 0,
                };
                size_of::<libc::sockaddr_in6>()
            }
        };
        #[expect(clippy::cast_possible_truncation, reason = "28 at most")]
        let length = length as libc::socklen_t;
        (name, length)
    }

    fn read(&self, length: libc::socklen_t) -> Option<SocketAddr> {
        let length = usize::try_from(length).ok()?;
        // SAFETY: both members begin with the family, and every bit pattern is a valid address of
        // either.
        let family = i32::from(unsafe { self.v4.sin_family });
        match family {
            libc::AF_INET if length >= size_of::<libc::sockaddr_in>() => {
                // SAFETY: as above.
                let v4 = unsafe { self.v4 };
                Some(SocketAddrV4::new(u32::from_be(v4.sin_addr.s_addr).into(), 0).into())
            }
            libc::AF_INET6 if length >= size_of::<libc::sockaddr_in6>() => {
                // SAFETY: as above.
                let v6 = unsafe { self.v6 };
                Some(SocketAddrV6::new(v6.sin6_addr.s6_addr.into(), 0, 0, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// Sends every packet in order, and reports the result of each by its index. If the kernel refuses
/// one, the others are still sent.
pub fn send_all(fd: BorrowedFd<'_>, packets: &[Outgoing<'_>], sent: &mut dyn FnMut(usize, io::Result<()>)) {
    for (chunk_index, chunk) in packets.chunks(BATCH).enumerate() {
        let mut at = 0;
        while at < chunk.len() {
            let result = send_batch(fd, &chunk[at..]);
            // An error is about the first packet of the call: report it and continue after it. No
            // progress counts as an error too.
            let (ok, error) = match result {
                Ok(0) => (0, Some(io::ErrorKind::WouldBlock.into())),
                Ok(count) => (count, None),
                Err(error) => (0, Some(error)),
            };
            let base = chunk_index * BATCH + at;
            (0..ok).for_each(|i| sent(base + i, Ok(())));
            at += ok;
            if let Some(error) = error {
                sent(base + ok, Err(error));
                at += 1;
            }
        }
    }
}

fn send_batch(fd: BorrowedFd<'_>, packets: &[Outgoing<'_>]) -> io::Result<usize> {
    let mut names = [Name::zeroed(); BATCH];
    // SAFETY: all-zero is valid for both: null pointers with zero lengths.
    let (mut parts, mut headers): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) = unsafe { mem::zeroed() };
    for (((packet, header), name), part) in packets.iter().zip(&mut headers).zip(&mut names).zip(&mut parts) {
        *part = libc::iovec { iov_base: packet.bytes.as_ptr().cast_mut().cast(), iov_len: packet.bytes.len() };
        let length;
        (*name, length) = Name::of(packet.to);
        header.msg_hdr.msg_name = (&raw mut *name).cast();
        header.msg_hdr.msg_namelen = length;
        header.msg_hdr.msg_iov = part;
        header.msg_hdr.msg_iovlen = 1;
    }
    let count = libc::c_uint::try_from(packets.len().min(BATCH)).unwrap_or(0);
    // This is the system call itself. musl's sendmmsg is a loop of sendmsg: its lengths are
    // narrower than the kernel's, and it does not rely on the padding. Our padding is zero.
    // SAFETY: the first `count` headers point to names, parts and packet bytes that outlive the
    // call, and the kernel only reads them (it writes msg_len inside `headers`).
    let sent =
        unsafe { libc::syscall(libc::SYS_sendmmsg, fd.as_raw_fd(), headers.as_mut_ptr(), count, libc::MSG_DONTWAIT) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// The kernel's lengths are as wide as a pointer. If those of the libc are narrower, the zeroed
/// padding after them fills the rest.
const _: () = assert!(cfg!(target_endian = "little") || size_of::<libc::c_int>() == size_of::<usize>());

/// The queue of a socket to read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Packets that have arrived.
    Arrivals,
    /// Packets that were sent, with the kernel's timestamp (`MSG_ERRQUEUE`).
    Departures,
}

/// A packet in a [`Batch`].
#[derive(Debug)]
pub struct Received<'a> {
    /// Source of the packet, if the kernel gives one.
    pub from: Option<SocketAddr>,
    /// Bytes of the packet, cut at the buffer size of the batch.
    pub bytes: &'a [u8],
    /// The kernel's real-time timestamp, if it has one.
    pub stamp: Option<Nanos>,
}

/// Data of one packet in a batch, besides its bytes.
#[derive(Clone, Copy)]
struct Slot {
    control: [u64; CONTROL_BYTES / 8],
    name: Name,
    bytes: usize,
    name_bytes: libc::socklen_t,
    control_bytes: usize,
}

/// Buffers for one `recvmmsg` call, allocated once. [`super::socket::Sockets`] owns one for
/// arrivals and one for departures, each for both families. Packets are lent out as [`Received`]
/// and overwritten by the next call.
pub struct Batch {
    buffers: Box<[u8]>,
    buffer_bytes: usize,
    slots: Box<[Slot; BATCH]>,
    count: usize,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("buffer_bytes", &self.buffer_bytes).finish_non_exhaustive()
    }
}

impl Batch {
    /// Makes a batch with buffers of `buffer_bytes` each.
    pub fn new(buffer_bytes: usize) -> Self {
        let slot =
            Slot { control: [0; CONTROL_BYTES / 8], name: Name::zeroed(), bytes: 0, name_bytes: 0, control_bytes: 0 };
        Self {
            buffers: vec![0; buffer_bytes * BATCH].into_boxed_slice(),
            buffer_bytes,
            slots: Box::new([slot; BATCH]),
            count: 0,
        }
    }

    /// Reads up to [`BATCH`] packets without waiting, and returns their number. They replace the
    /// packets of the last read; [`Batch::packets`] returns them. If there are fewer than
    /// [`BATCH`], the queue is empty.
    ///
    /// # Errors
    /// The error of `recvmmsg`. An empty queue is no error and returns 0.
    pub fn receive(&mut self, fd: BorrowedFd<'_>, queue: Queue) -> io::Result<usize> {
        self.count = 0;
        // SAFETY: all-zero is valid for both: null pointers with zero lengths.
        let (mut parts, mut headers): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) = unsafe { mem::zeroed() };
        let buffers = self.buffers.chunks_exact_mut(self.buffer_bytes);
        for (((header, part), slot), buffer) in
            headers.iter_mut().zip(&mut parts).zip(self.slots.iter_mut()).zip(buffers)
        {
            *part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = slot.control.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
            if queue == Queue::Arrivals {
                header.msg_hdr.msg_name = (&raw mut slot.name).cast();
                #[expect(clippy::cast_possible_truncation, reason = "28")]
                let length = size_of::<Name>() as libc::socklen_t;
                header.msg_hdr.msg_namelen = length;
            }
        }
        let flags = libc::MSG_DONTWAIT | if queue == Queue::Departures { libc::MSG_ERRQUEUE } else { 0 };
        #[expect(clippy::cast_possible_truncation, reason = "32")]
        let most = BATCH as libc::c_uint;
        // SAFETY: every header points to its own part, buffer, name and control block of the stated
        // sizes, all of which outlive the call; no timeout is given.
        let read =
            unsafe { libc::recvmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), most, flags as _, std::ptr::null_mut()) };
        let Ok(read) = usize::try_from(read) else {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(error) };
        };
        for (slot, header) in self.slots.iter_mut().zip(&headers).take(read) {
            #[expect(clippy::unnecessary_cast, reason = "msg_controllen is 32 bits wide on musl")]
            let control = header.msg_hdr.msg_controllen as usize;
            (slot.bytes, slot.name_bytes, slot.control_bytes) =
                (header.msg_len as usize, header.msg_hdr.msg_namelen, control);
        }
        self.count = read.min(BATCH);
        Ok(self.count)
    }

    /// Returns the packets of the last read.
    pub fn packets(&self) -> impl Iterator<Item = Received<'_>> {
        let buffers = self.buffers.chunks_exact(self.buffer_bytes);
        self.slots[..self.count].iter().zip(buffers).map(|(slot, buffer)| Received {
            from: slot.name.read(slot.name_bytes),
            bytes: &buffer[..slot.bytes.min(buffer.len())],
            stamp: timestamp(&slot.control, slot.control_bytes),
        })
    }
}

/// Returns the software timestamp in a control block of which the kernel filled `length` bytes. No
/// other option is enabled, so it is at the front, also on the error queue. In any other layout
/// there is no timestamp, and the agent's own time is used.
fn timestamp(control: &[u64; CONTROL_BYTES / 8], length: usize) -> Option<Nanos> {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    if length < HEADER + size_of::<libc::timespec>() || length > CONTROL_BYTES {
        return None;
    }
    // SAFETY: the block is larger than, and as aligned as, a cmsghdr; any bit pattern is a valid
    // one.
    let header = unsafe { &*control.as_ptr().cast::<libc::cmsghdr>() };
    if header.cmsg_level != libc::SOL_SOCKET || header.cmsg_type != libc::SCM_TIMESTAMPING {
        return None;
    }
    // SAFETY: the length was checked to hold a timespec behind the header, whose size keeps it
    // aligned. The software stamp is the first of three.
    let time = unsafe { control.as_ptr().byte_add(HEADER).cast::<libc::timespec>().read_unaligned() };
    let (seconds, nanos) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    // All zero: the kernel has no timestamp.
    Some(Nanos(seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?)).filter(|stamp| *stamp > Nanos(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prober::options::{duplicate, enable_timestamps};
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
        let (mut batch, mut received) = (Batch::new(128), Vec::new());
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
    fn a_batch_carries_bytes_sender_and_the_kernels_stamp_at_both_ends() {
        let (a, b) = pair();
        let [here, there] = [&a, &b].map(|socket| duplicate(socket.as_raw_fd()).unwrap());
        for socket in [&here, &there] {
            enable_timestamps(socket).unwrap();
        }
        for i in 0..PACKETS {
            a.send(&[i; 5]).unwrap();
        }
        let (arrivals, departures) = (receive_all(&there, Queue::Arrivals), receive_all(&here, Queue::Departures));
        for (i, ((from, came, arrived), (_, left, departed))) in (0u8..).zip(arrivals.iter().zip(&departures)) {
            assert_eq!((from.unwrap().ip(), &arrived[..]), (a.local_addr().unwrap().ip(), &[i; 5][..]));
            // The kernel starts to stamp a moment after it is asked to, so the first packets
            // may have no timestamp.
            if let (Some(left), Some(came)) = (left, came) {
                assert!(left.0 > 1_600_000_000_000_000_000 && left <= came);
            }
            assert!(departed.ends_with(arrived), "behind its headers");
        }
    }

    #[test]
    fn each_of_many_refused_packets_is_told_of_by_its_index() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        // No port is given, and UDP refuses port 0 with EINVAL: every send of
        // this test fails separately.
        let bytes = [0u8; 4];
        let packets: Vec<Outgoing<'_>> =
            (0..11).map(|i| Outgoing { to: [127, 0, 0, i].into(), bytes: &bytes }).collect();
        let mut told = Vec::new();
        send_all(socket.as_fd(), &packets, &mut |i, result| told.push((i, result.is_err())));
        assert_eq!(told, (0..11).map(|i| (i, true)).collect::<Vec<_>>());
    }
}
