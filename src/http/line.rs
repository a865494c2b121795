//! One client connection: its socket and the state of its request.
//!
//! hyper implements the protocol, but does not say when an answer is completely written. It also
//! allocates 16 KiB for a client that has not sent a byte. Both are visible at the socket: hyper
//! flushes it once everything is written, and it becomes readable before hyper is needed.

use std::{
    cell::{Cell, RefCell},
    io::{self, IoSlice},
    mem::MaybeUninit,
    net::Shutdown,
    os::fd::AsRawFd,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use socket2::SockRef;
use tokio::{io::Interest, net::TcpStream, time::Instant};

use super::worker::Worker;
use crate::limits::READ_BYTES;

/// What a connection may request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Any path may be requested.
    Ordinary,
    /// Only the health checks may be requested.
    Health,
}

/// A client's connection, shared by its task, its body and its worker.
pub(super) struct Line {
    stream: TcpStream,
    worker: Rc<Worker>,
    class: Cell<Class>,
    /// When the client must have sent a request, or read its answer.
    deadline: Cell<Instant>,
    /// Whether a request was read and its answer is not written yet.
    answering: Cell<bool>,
    body_lives: Cell<bool>,
    frame_is_out: Cell<bool>,
    wants_frame: RefCell<Option<Waker>>,
    /// Whether the server has not yet checked for bytes that arrived with the connection. It must
    /// not be evicted as idle before.
    fresh: Cell<bool>,
    /// Whether the client may continue to send bytes that the server will not read.
    unread: Cell<bool>,
}

impl Line {
    pub(super) fn new(stream: TcpStream, worker: Rc<Worker>, class: Class) -> Self {
        let deadline = Instant::now() + worker.limits().request_head_time;
        Self {
            stream,
            worker,
            class: Cell::new(class),
            deadline: Cell::new(deadline),
            answering: Cell::new(false),
            body_lives: Cell::new(false),
            frame_is_out: Cell::new(false),
            wants_frame: RefCell::new(None),
            fresh: Cell::new(true),
            unread: Cell::new(false),
        }
    }

    pub(super) fn worker(&self) -> &Rc<Worker> {
        &self.worker
    }

    pub(super) fn class(&self) -> Class {
        self.class.get()
    }

    pub(super) fn set_class(&self, class: Class) {
        self.class.set(class);
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline.get()
    }

    pub(super) fn is_answering(&self) -> bool {
        self.answering.get()
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.fresh.get()
    }

    pub(super) fn has_unread(&self) -> bool {
        self.unread.get()
    }

    pub(super) fn expect_unread(&self) {
        self.unread.set(true);
    }

    /// Records that the head of a request is complete.
    pub(super) fn answer_begins(&self) {
        self.answering.set(true);
        self.deadline.set(Instant::now() + self.worker.limits().response_time);
    }

    /// Ends the connection when its deadline is next checked, which happens after every
    /// poll of its task.
    pub(super) fn close_now(&self) {
        self.deadline.set(Instant::now());
    }

    pub(super) fn body_begins(&self) {
        self.body_lives.set(true);
    }

    pub(super) fn body_ends(&self) {
        self.body_lives.set(false);
    }

    pub(super) fn frame_handed_out(&self) {
        self.frame_is_out.set(true);
    }

    pub(super) fn frame_written(&self) {
        self.frame_is_out.set(false);
        // hyper polls again by itself only after some of its flushes.
        if let Some(waker) = self.wants_frame.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Ready when no frame is in use and the socket can take a whole frame.
    pub(super) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.frame_is_out.get() {
            self.wants_frame.replace(Some(cx.waker().clone()));
            return Poll::Pending;
        }
        loop {
            // An error appears when hyper writes.
            if ready!(self.stream.poll_write_ready(cx)).is_err() {
                return Poll::Ready(());
            }
            // Tokio remembers that the socket was writable; only the kernel knows whether it still
            // is. The kernel's answer means that a third of the send buffer is free, which is more
            // than a frame.
            let room = self.stream.try_io(Interest::WRITABLE, || {
                if is_writable(&self.stream) { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
            });
            if room.is_ok() {
                return Poll::Ready(());
            }
        }
    }

    /// Waits until there is something to read: bytes, the end, or an error.
    pub(super) async fn readable(&self) {
        let peek = || SockRef::from(&self.stream).peek(&mut [MaybeUninit::uninit()]);
        // The first look bypasses the event loop, which may not have noticed bytes that came with
        // the connection. Later looks use the event loop, because it regards a new socket as
        // readable until a read has failed.
        let mut arrived = peek();
        while arrived.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.looked_at();
            if self.stream.readable().await.is_err() {
                return;
            }
            arrived = self.stream.try_io(Interest::READABLE, peek);
        }
    }

    /// Reads and discards what the client still sends, until it stops. Closing a socket with unread
    /// bytes resets the connection, and the client may then lose the answer.
    pub(super) async fn drain(&self, mut bytes_left: usize) {
        while bytes_left > 0 && self.stream.readable().await.is_ok() {
            match self.read_and_forget() {
                Ok(0) => return,
                Ok(count) => bytes_left = bytes_left.saturating_sub(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    /// This is separate from `drain`, so that its buffer is not part of every connection's task.
    fn read_and_forget(&self) -> io::Result<usize> {
        self.stream.try_read(&mut [0; READ_BYTES])
    }

    fn looked_at(&self) {
        if self.fresh.replace(false) && self.class.get() == Class::Health {
            self.worker.bell().notify_one();
        }
    }

    fn flushed(&self) {
        if self.answering.get() && !self.body_lives.get() {
            self.answering.set(false);
            self.deadline.set(Instant::now() + self.worker.patience());
        }
    }
}

/// Asks the kernel whether the socket is writable. This also makes the kernel report the next time
/// that the socket becomes writable.
#[expect(unsafe_code, reason = "poll(2) has no safe wrapper among the dependencies")]
fn is_writable(stream: &TcpStream) -> bool {
    let mut asked = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: `asked` is one valid pollfd, and outlives the call, which does not wait.
    let answered = unsafe { libc::poll(&raw mut asked, 1, 0) };
    // A failure counts as writable: the write that follows returns the error.
    answered != 0
}

/// The socket as hyper sees it.
pub(super) struct LineIo(pub(super) Rc<Line>);

impl Read for LineIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        // The bytes go through a buffer on the stack. Reading into hyper's own buffer, which is not
        // initialised, would need unsafe code, and a request is only some hundred bytes.
        let mut bytes = [0; READ_BYTES];
        let room = into.remaining().min(READ_BYTES);
        loop {
            ready!(self.0.stream.poll_read_ready(cx))?;
            match self.0.stream.try_read(&mut bytes[..room]) {
                Ok(count) => {
                    self.0.looked_at();
                    into.put_slice(&bytes[..count]);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.0.looked_at(),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Write for LineIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.stream.poll_write_ready(cx))?;
            match self.0.stream.try_write_vectored(pieces) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&self.0.stream).shutdown(Shutdown::Write))
    }
}
