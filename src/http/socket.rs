//! A client's socket, and the frame of a body that is being written to it.
//!
//! hyper queues up to 16 pieces of a body before it writes them. That would be 96 KiB for each
//! scraper that reads slowly. So a body may have one frame at a time ([`ClientSocket::poll_room`]).
//! It gets the next when hyper has dropped the last, and when the socket has room for it. A scraper
//! that does not read therefore holds no frame at all, and one buffer serves all connections of a
//! worker.

use std::{
    cell::Cell,
    io::{self, Cursor, IoSlice},
    mem::MaybeUninit,
    net::{IpAddr, Shutdown},
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, Waker, ready},
};

use hyper::{body::Buf, rt::ReadBufCursor};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;
use tokio::{io::Interest, net::TcpStream};

use super::ServerStats;
use crate::limits::FRAME_BYTES;

/// Bytes that are read from a client at a time. More than any scraper's request.
const READ_BYTES: usize = 2_048;
/// Bytes of a refused request that are read and discarded, so that the client can read the error.
const DRAIN_BYTES_MAX: usize = 64 * 1_024;

/// The spare frame buffer of a worker. All its connections are on one thread, so there is no
/// lock. A frame is rendered only if its socket has room for it, so more than one is rarely in
/// use, and one is kept.
pub(super) struct FramePool {
    spare: Cell<Option<Vec<u8>>>,
    stats: Arc<ServerStats>,
}

impl FramePool {
    pub(super) fn new(stats: Arc<ServerStats>) -> Self {
        Self { spare: Cell::new(None), stats }
    }

    fn take(&self) -> Vec<u8> {
        self.spare.take().unwrap_or_else(|| {
            self.stats.frames.fetch_add(1, Ordering::Relaxed);
            Vec::with_capacity(FRAME_BYTES)
        })
    }

    fn give(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        // A buffer that a renderer made grow, against its contract, is not kept.
        let kept = Some(buffer).filter(|buffer| buffer.capacity() == FRAME_BYTES);
        if kept.is_none() || self.spare.replace(kept).is_some() {
            self.stats.frames.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for FramePool {
    fn drop(&mut self) {
        self.stats.frames.fetch_sub(usize::from(self.spare.take().is_some()), Ordering::Relaxed);
    }
}

/// A client's socket, shared by its connection, its body and the piece that is being written.
pub(super) struct ClientSocket {
    stream: TcpStream,
    frames: Rc<FramePool>,
    /// Whether the body of an answer exists or is about to be created.
    pub(super) has_body: Cell<bool>,
    frame_in_use: Cell<bool>,
    /// The task of the body that waits for the frame in use.
    wants_frame: Cell<Option<Waker>>,
}

impl ClientSocket {
    pub(super) fn new(stream: TcpStream, frames: Rc<FramePool>) -> Self {
        let (has_body, frame_in_use) = (Cell::new(false), Cell::new(false));
        Self { stream, frames, has_body, frame_in_use, wants_frame: Cell::new(None) }
    }

    /// Returns the address of the client, if the kernel tells it.
    pub(super) fn client(&self) -> Option<IpAddr> {
        self.stream.peer_addr().ok().map(|client| client.ip())
    }

    /// Ready when no frame is in use and the socket can take a whole frame.
    pub(super) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.frame_in_use.get() {
            self.wants_frame.set(Some(cx.waker().clone()));
            return Poll::Pending;
        }
        // Tokio remembers that the socket was writable; only the kernel knows whether it still is.
        // The kernel's answer means that a third of the send buffer is free, which is more than a
        // frame.
        let ask = || if is_writable(&self.stream) { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) };
        let room = retry(|| self.stream.poll_write_ready(cx), || self.stream.try_io(Interest::WRITABLE, ask));
        // An error appears when hyper writes.
        room.map(drop)
    }

    /// Waits until there is something to read: bytes, the end, or an error. Calls `empty` if
    /// there is nothing yet.
    pub(super) async fn readable(&self, empty: impl Fn()) {
        let peek = || SockRef::from(&self.stream).peek(&mut [MaybeUninit::uninit()]);
        // The first look bypasses the event loop, which may not have noticed bytes that came with
        // the connection. Later looks use the event loop, because it regards a new socket as
        // readable until a read has failed.
        let mut arrived = peek();
        while arrived.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            empty();
            if self.stream.readable().await.is_err() {
                return;
            }
            arrived = self.stream.try_io(Interest::READABLE, peek);
        }
    }

    /// Passes the next bytes to hyper. Calls `tried` after each attempt to read some.
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
        tried: impl Fn(),
    ) -> Poll<io::Result<()>> {
        // The bytes go through a buffer on the stack. Reading into hyper's own buffer, which is not
        // initialised, would need unsafe code, and a request is only some hundred bytes.
        let mut bytes = [0; READ_BYTES];
        let room = into.remaining().min(READ_BYTES);
        let read = || {
            let read = self.stream.try_read(&mut bytes[..room]);
            tried();
            read
        };
        let count = ready!(retry(|| self.stream.poll_read_ready(cx), read))?;
        into.put_slice(&bytes[..count]);
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_write(&self, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        retry(|| self.stream.poll_write_ready(cx), || self.stream.try_write_vectored(pieces))
    }

    /// Tells the client that nothing more is sent.
    pub(super) fn end_writing(&self) -> io::Result<()> {
        SockRef::from(&self.stream).shutdown(Shutdown::Write)
    }

    /// Reads and discards what the client still sends, until it stops or has sent
    /// [`DRAIN_BYTES_MAX`]. Closing a socket with unread bytes resets the connection, and the
    /// client may then lose the answer.
    pub(super) async fn drain(&self) {
        let mut bytes_left = DRAIN_BYTES_MAX;
        while bytes_left > 0 && self.stream.readable().await.is_ok() {
            match self.discard() {
                Ok(0) => return,
                Ok(count) => bytes_left = bytes_left.saturating_sub(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    /// This is separate from `drain`, so that its buffer is not part of every connection's task.
    fn discard(&self) -> io::Result<usize> {
        self.stream.try_read(&mut [0; READ_BYTES])
    }
}

/// Repeats an operation, each time that its socket is ready, until the operation does not block.
fn retry<T>(
    mut ready: impl FnMut() -> Poll<io::Result<()>>,
    mut operation: impl FnMut() -> io::Result<T>,
) -> Poll<io::Result<T>> {
    loop {
        ready!(ready())?;
        match operation() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return Poll::Ready(done),
        }
    }
}

/// Asks the kernel whether the socket is writable. This also makes the kernel report the next time
/// that the socket becomes writable.
fn is_writable(stream: &TcpStream) -> bool {
    // A failure counts as writable: the write that follows returns the error.
    poll(&mut [PollFd::new(stream, PollFlags::OUT)], Some(&Timespec::default())) != Ok(0)
}

/// Bytes that wait to be written to a socket: a frame, or a complete body. hyper's queue of the
/// connection owns them. A frame returns to its worker on drop, also if the connection ends before.
pub(super) struct SocketPiece {
    pub(super) bytes: Cursor<Vec<u8>>,
    /// The socket whose frame this is. None for a complete body.
    socket: Option<Rc<ClientSocket>>,
}

impl SocketPiece {
    /// Takes an empty frame. The socket has no room for another until this is dropped.
    pub(super) fn frame(socket: &Rc<ClientSocket>) -> Self {
        socket.frame_in_use.set(true);
        Self { bytes: Cursor::new(socket.frames.take()), socket: Some(Rc::clone(socket)) }
    }

    pub(super) fn complete(bytes: Cursor<Vec<u8>>) -> Self {
        Self { bytes, socket: None }
    }
}

impl Buf for SocketPiece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl Drop for SocketPiece {
    fn drop(&mut self) {
        let Some(socket) = self.socket.take() else { return };
        socket.frames.give(std::mem::take(self.bytes.get_mut()));
        socket.frame_in_use.set(false);
        // hyper polls again by itself only after some of its flushes.
        if let Some(waker) = socket.wants_frame.take() {
            waker.wake();
        }
    }
}
