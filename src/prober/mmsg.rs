//! `sendmmsg(2)` and `recvmmsg(2)` over buffers that are allocated once, and the socket options around them.
//!
//! The only place of the probe path that talks to the kernel without a library: neither std nor socket2 has the
//! batched calls or the kernel's receive timestamps.
#![expect(unsafe_code, reason = "system calls without a safe wrapper; each block says why it is sound")]

use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use socket2::SockAddr;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::Outgoing;
use crate::units::Nanos;

/// Packets read by one call.
const READ_BATCH: usize = 16;
/// Packets sent by one call.
const SEND_BATCH: usize = 8;
/// Bytes for one control message with a timespec, which needs 32 on a 64-bit kernel, and room for another.
const CONTROL_BYTES: usize = 64;

/// A duplicate of `fd`, closed on exec.
///
/// # Errors
/// What `fcntl` says; no descriptor left, for one.
pub fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the caller's socket is open for the whole call, and the borrow ends with it.
    unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()
}

/// Has tokio watch `fd` for reading, and for nothing else: every sent packet would wake us for writing.
///
/// # Errors
/// What `epoll_ctl` says.
pub fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd always gives the same descriptor and keeps it open until it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// Has the kernel stamp every packet as it arrives (`SO_TIMESTAMPNS`, real time).
///
/// # Errors
/// What `setsockopt` says.
pub fn enable_receive_timestamps(fd: &OwnedFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    #[expect(clippy::cast_possible_truncation, reason = "4")]
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `on` outlives the call, and `length` is its size.
    let done = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, (&raw const on).cast(), length)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Packets that the kernel dropped because the socket's queue was full (`SO_MEMINFO`: ping sockets never deliver
/// `SO_RXQ_OVFL`). Zero where the kernel does not say.
pub fn drops(fd: &OwnedFd) -> u32 {
    const SK_MEMINFO_DROPS: usize = 8;
    // asm-generic/socket.h, the same on x86-64 and arm64; the libc crate lacks it.
    const SO_MEMINFO: libc::c_int = 55;
    let mut info = [0u32; SK_MEMINFO_DROPS + 1];
    #[expect(clippy::cast_possible_truncation, reason = "36")]
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: `info` has the `length` bytes that the kernel may write, and both outlive the call.
    unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, SO_MEMINFO, info.as_mut_ptr().cast(), &raw mut length)
    };
    info[SK_MEMINFO_DROPS]
}

/// Sends every packet, in order, and tells of each by its index. Where the kernel refuses one, the rest still goes.
pub fn send_all(fd: BorrowedFd<'_>, packets: &[Outgoing<'_>], sent: &mut dyn FnMut(usize, io::Result<()>)) {
    for (chunk_index, chunk) in packets.chunks(SEND_BATCH).enumerate() {
        let mut at = 0;
        while at < chunk.len() {
            let result = send_batch(fd, &chunk[at..]);
            // An error is about the first packet of the call: tell it, go on behind it. No progress counts as one too.
            let (ok, error) = match result {
                Ok(0) => (0, Some(io::ErrorKind::WouldBlock.into())),
                Ok(count) => (count, None),
                Err(error) => (0, Some(error)),
            };
            let base = chunk_index * SEND_BATCH + at;
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
    let mut addresses: [SockAddr; SEND_BATCH] =
        std::array::from_fn(|i| SocketAddr::new(packets[i.min(packets.len() - 1)].to, 0).into());
    let mut parts: [libc::iovec; SEND_BATCH] = std::array::from_fn(|i| {
        let bytes = packets[i.min(packets.len() - 1)].bytes;
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
    });
    // SAFETY: an all-zero mmsghdr is valid: null pointers with zero lengths.
    let mut headers: [libc::mmsghdr; SEND_BATCH] = unsafe { mem::zeroed() };
    for ((header, address), part) in headers.iter_mut().zip(&mut addresses).zip(&mut parts) {
        header.msg_hdr.msg_name = address.as_ptr().cast_mut().cast();
        header.msg_hdr.msg_namelen = address.len();
        header.msg_hdr.msg_iov = part;
        header.msg_hdr.msg_iovlen = 1;
    }
    let count = libc::c_uint::try_from(packets.len().min(SEND_BATCH)).unwrap_or(0);
    // SAFETY: the first `count` headers point to addresses, parts and packet bytes that outlive the call, and the
    // kernel only reads them (it writes msg_len inside `headers`).
    let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, libc::MSG_DONTWAIT as _) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// A packet in a [`Batch`].
#[derive(Debug)]
pub struct Received<'a> {
    /// The sender, where the kernel named one.
    pub from: Option<SocketAddr>,
    /// What came; cut at the batch's buffer size.
    pub bytes: &'a [u8],
    /// The kernel's real-time stamp, where it gave one.
    pub stamp: Option<Nanos>,
}

/// Buffers for one `recvmmsg` call, allocated once.
pub struct Batch {
    buffers: Box<[u8]>,
    buffer_bytes: usize,
    control: Box<[[u64; CONTROL_BYTES / 8]; READ_BATCH]>,
    names: Box<[MaybeUninit<libc::sockaddr_storage>; READ_BATCH]>,
    lengths: [(usize, libc::socklen_t, usize); READ_BATCH],
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("buffer_bytes", &self.buffer_bytes).finish_non_exhaustive()
    }
}

impl Batch {
    /// Buffers of `buffer_bytes` each.
    pub fn new(buffer_bytes: usize) -> Self {
        Self {
            buffers: vec![0; buffer_bytes * READ_BATCH].into_boxed_slice(),
            buffer_bytes,
            control: Box::new([[0; CONTROL_BYTES / 8]; READ_BATCH]),
            names: Box::new([MaybeUninit::zeroed(); READ_BATCH]),
            lengths: [(0, 0, 0); READ_BATCH],
        }
    }

    /// Reads up to [`READ_BATCH`] packets without waiting; look at them with [`Batch::packets`].
    ///
    /// # Errors
    /// `WouldBlock` when there is none; else what the kernel reports on the socket.
    pub fn receive(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        // SAFETY: all-zero iovecs and mmsghdrs are valid: null pointers with zero lengths.
        let (mut parts, mut headers): ([libc::iovec; READ_BATCH], [libc::mmsghdr; READ_BATCH]) =
            unsafe { (mem::zeroed(), mem::zeroed()) };
        let slots = parts.iter_mut().zip(&mut headers).zip(self.buffers.chunks_mut(self.buffer_bytes));
        for (((part, header), buffer), (control, name)) in slots.zip(self.control.iter_mut().zip(&mut *self.names)) {
            *part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = name.as_mut_ptr().cast();
            #[expect(clippy::cast_possible_truncation, reason = "128")]
            {
                header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            }
            header.msg_hdr.msg_control = control.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
        }
        #[expect(clippy::cast_possible_truncation, reason = "16")]
        let count = READ_BATCH as libc::c_uint;
        // SAFETY: every header points to its own part, buffer, name and control block of the stated sizes, all of
        // which outlive the call; no timeout is given.
        let read = unsafe {
            libc::recvmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, libc::MSG_DONTWAIT as _, std::ptr::null_mut())
        };
        let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
        for (length, header) in self.lengths.iter_mut().zip(&headers).take(read) {
            #[expect(clippy::unnecessary_cast, reason = "msg_controllen is 32 bits wide on musl")]
            let control = header.msg_hdr.msg_controllen as usize;
            *length = (header.msg_len as usize, header.msg_hdr.msg_namelen, control);
        }
        Ok(read)
    }

    /// The packets of the last read that gave `count`.
    pub fn packets(&self, count: usize) -> impl Iterator<Item = Received<'_>> {
        (0..count.min(READ_BATCH)).map(|i| {
            let (bytes, name, control) = self.lengths[i];
            let buffer = &self.buffers[i * self.buffer_bytes..][..self.buffer_bytes];
            Received {
                from: address(&self.names[i], name),
                bytes: &buffer[..bytes.min(buffer.len())],
                stamp: timestamp(&self.control[i], control),
            }
        })
    }
}

fn address(name: &MaybeUninit<libc::sockaddr_storage>, length: libc::socklen_t) -> Option<SocketAddr> {
    // SAFETY: the storage was zeroed when it was made and the kernel has only written addresses into it; every bit
    // pattern is a valid sockaddr_storage.
    let name = unsafe { name.assume_init_ref() };
    let length = usize::try_from(length).ok()?;
    match i32::from(name.ss_family) {
        libc::AF_INET if length >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: the family says that it is a sockaddr_in, which is smaller and less aligned than the storage.
            let v4 = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            Some(SocketAddrV4::new(u32::from_be(v4.sin_addr.s_addr).into(), 0).into())
        }
        libc::AF_INET6 if length >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: likewise for sockaddr_in6.
            let v6 = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in6>() };
            Some(SocketAddrV6::new(v6.sin6_addr.s6_addr.into(), 0, 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// The `SCM_TIMESTAMPNS` of a control block of which the kernel filled `length` bytes. It is the only option that is
/// switched on, so it is looked for at the front; with another layout there is no stamp, and user time stands in.
fn timestamp(control: &[u64; CONTROL_BYTES / 8], length: usize) -> Option<Nanos> {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    if length < HEADER + size_of::<libc::timespec>() || length > CONTROL_BYTES {
        return None;
    }
    // SAFETY: the block is larger than, and as aligned as, a cmsghdr; any bit pattern is a valid one.
    let header = unsafe { &*control.as_ptr().cast::<libc::cmsghdr>() };
    if header.cmsg_level != libc::SOL_SOCKET || header.cmsg_type != libc::SCM_TIMESTAMPNS {
        return None;
    }
    // SAFETY: the length was checked to hold a timespec behind the header, whose size keeps it aligned.
    let time = unsafe { control.as_ptr().byte_add(HEADER).cast::<libc::timespec>().read_unaligned() };
    let (seconds, nanos) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    Some(Nanos(seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    fn pair() -> (UdpSocket, UdpSocket) {
        let (a, b) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        (a, b)
    }

    #[test]
    fn a_batch_carries_bytes_sender_and_the_kernels_stamp() {
        let (a, b) = pair();
        let owned = duplicate(b.as_raw_fd()).unwrap();
        enable_receive_timestamps(&owned).unwrap();
        for i in 0..20u8 {
            a.send(&[i; 5]).unwrap();
        }
        let mut batch = Batch::new(32);
        let mut seen = Vec::new();
        loop {
            match batch.receive(owned.as_fd()) {
                Ok(count) => {
                    assert!(count <= READ_BATCH);
                    for packet in batch.packets(count) {
                        assert_eq!(packet.from.unwrap().ip(), a.local_addr().unwrap().ip());
                        assert!(packet.stamp.is_some_and(|s| s.0 > 1_600_000_000_000_000_000));
                        seen.extend_from_slice(packet.bytes);
                    }
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    break;
                }
            }
        }
        assert_eq!(seen, (0..20u8).flat_map(|i| [i; 5]).collect::<Vec<_>>());
    }

    #[test]
    fn a_refused_packet_does_not_hold_up_the_others() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        // Port 0 is refused for UDP with EINVAL; the unspecified family mismatch with EAFNOSUPPORT: every send of
        // this test fails, each on its own.
        let bytes = [0u8; 4];
        let packets: Vec<Outgoing<'_>> =
            (0..11).map(|i| Outgoing { to: [127, 0, 0, i].into(), bytes: &bytes }).collect();
        let mut told = Vec::new();
        send_all(socket.as_fd(), &packets, &mut |i, result| told.push((i, result.is_err())));
        assert_eq!(told, (0..11).map(|i| (i, true)).collect::<Vec<_>>());
    }
}
