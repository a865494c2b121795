//! Bodies, and the buffers that streamed ones are rendered into.
//!
//! hyper queues up to 16 pieces of a body before it writes them, which would be 96 KiB for each
//! scraper that reads slowly. So a streamed body hands out one frame, and renders the next only
//! when hyper has let go of the last: the frame tells its connection when it is dropped. And it
//! renders only when the socket has room for a frame, so that a scraper that does not read holds no
//! frame at all: one buffer serves all connections of a worker.
//!
//! A compressed body uses the same frame twice: it is rendered into, its bytes move into the
//! compressor's memory, and what these compress to takes their place.

use std::{
    cell::RefCell,
    convert::Infallible,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};

use hyper::body::{Body, Buf, Frame, SizeHint};

use super::{Live, Render, ServerStats, gate::CompressorPermit, gzip::Compressor, line::Line};
use crate::limits::{COMPRESSED_BODY_BYTES_MIN, FRAME_BYTES, SPARE_FRAMES_PER_WORKER};

/// The spare frame buffers of one worker, which owns them. A frame that is handed out belongs to its [`Piece`] until hyper drops
/// that, which gives it back to the worker of its connection: on the same thread, hence no lock. Not more than
/// [`SPARE_FRAMES_PER_WORKER`] are kept; a connection that ends with a frame outstanding drops its piece, and so gives it back too.
pub(super) struct FramePool {
    spare: RefCell<Vec<Vec<u8>>>,
    stats: Arc<ServerStats>,
}

impl FramePool {
    pub(super) fn new(stats: Arc<ServerStats>) -> Self {
        Self { spare: RefCell::new(Vec::with_capacity(SPARE_FRAMES_PER_WORKER)), stats }
    }

    fn take(&self) -> Vec<u8> {
        if let Some(buffer) = self.spare.borrow_mut().pop() {
            return buffer;
        }
        self.stats.frame_allocated();
        Vec::with_capacity(FRAME_BYTES)
    }

    fn give(&self, mut buffer: Vec<u8>) {
        let mut spare = self.spare.borrow_mut();
        // A buffer that a renderer made grow against its contract is not kept.
        if spare.len() < SPARE_FRAMES_PER_WORKER && buffer.capacity() == FRAME_BYTES {
            buffer.clear();
            spare.push(buffer);
        } else {
            self.stats.frame_freed();
        }
    }
}

impl Drop for FramePool {
    fn drop(&mut self) {
        self.spare.borrow().iter().for_each(|_| self.stats.frame_freed());
    }
}

/// Bytes on their way into the socket. Owned by hyper's queue of its connection; a frame returns to its worker's [`FramePool`]
/// on drop, a whole body (`line` is none) was the route's and is freed.
pub(super) struct Piece {
    bytes: Vec<u8>,
    written: usize,
    /// For a frame, the connection that it goes back to.
    line: Option<Rc<Line>>,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len() - self.written
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    fn advance(&mut self, count: usize) {
        assert!(count <= self.remaining(), "advanced past the end of a piece");
        self.written += count;
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            line.worker().frames().give(std::mem::take(&mut self.bytes));
            line.frame_written();
        }
    }
}

/// The body of an answer. While it lives, its connection counts as answering.
pub(super) struct Answer {
    content: Content,
    /// None if the body is sent as it is.
    gzip: Option<Gzip>,
    line: Rc<Line>,
}

/// The right to compress, and what compresses. In this order: the permit is given back when the
/// memory is free.
pub(super) struct Gzip {
    compressor: Compressor,
    _permit: CompressorPermit,
}

impl Gzip {
    /// None if too many responses are being compressed, or if there is no memory.
    pub(super) fn begin(stats: &ServerStats) -> Option<Self> {
        let permit = stats.compressor()?;
        Some(Self { compressor: Compressor::new()?, _permit: permit })
    }

    /// The next piece of a compressed body, into an empty frame.
    fn poll_render(&mut self, content: &mut Content, cx: &mut Context<'_>, frame: &mut Vec<u8>) -> Poll<bool> {
        if !self.compressor.is_busy() {
            match content.poll_render(cx, frame) {
                Poll::Ready(more) => {
                    self.compressor.take(frame);
                    if !more {
                        self.compressor.finish();
                    }
                }
                // The reader gets all that there is while it waits for the rest.
                Poll::Pending if self.compressor.flush() => {}
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(self.compressor.compress(frame))
    }
}

/// What an answer is made of.
pub(super) enum Content {
    /// Nothing, or nothing more.
    Done,
    /// A complete body, which is not empty.
    Whole(Vec<u8>),
    /// A body in pieces.
    Stream(Box<dyn Render>),
    /// A body in pieces, for which it waits.
    Live(Box<dyn Live>),
    /// The connection is about to be closed, so that the client does not take the body for whole.
    GivenUp,
}

impl Content {
    /// A complete body.
    pub(super) fn whole(body: Vec<u8>) -> Self {
        if body.is_empty() { Self::Done } else { Self::Whole(body) }
    }

    /// Its bytes, if it is complete.
    pub(super) fn length(&self) -> Option<usize> {
        match self {
            Self::Done => Some(0),
            Self::Whole(body) => Some(body.len()),
            Self::Stream(_) | Self::Live(_) | Self::GivenUp => None,
        }
    }

    /// Whether compressing it saves anything.
    pub(super) fn is_long(&self) -> bool {
        self.length().is_none_or(|length| length >= COMPRESSED_BODY_BYTES_MIN)
    }

    /// The next piece of a body in pieces, into an empty frame.
    fn poll_render(&mut self, cx: &mut Context<'_>, frame: &mut Vec<u8>) -> Poll<bool> {
        match self {
            Self::Stream(render) => Poll::Ready(render.render(frame)),
            Self::Live(live) => live.poll_render(cx, frame),
            Self::Done | Self::Whole(_) | Self::GivenUp => Poll::Ready(false),
        }
    }
}

impl Answer {
    /// `content` is sent in pieces if it is compressed, however it is made.
    pub(super) fn new(content: Content, gzip: Option<Gzip>, line: Rc<Line>) -> Self {
        line.body_begins();
        let content = match content {
            Content::Whole(bytes) if gzip.is_some() => Content::Stream(Box::new(Cut { bytes, sent: 0 })),
            other => other,
        };
        Self { content, gzip, line }
    }

    /// The body has ended, or is given up: nothing of it is kept while its last piece is on its
    /// way.
    fn end(&mut self, content: Content) {
        self.content = content;
        self.gzip = None;
    }
}

/// A complete body, in pieces.
struct Cut {
    bytes: Vec<u8>,
    sent: usize,
}

impl Render for Cut {
    fn render(&mut self, out: &mut Vec<u8>) -> bool {
        let rest = &self.bytes[self.sent..];
        let piece = &rest[..rest.len().min(FRAME_BYTES)];
        out.extend_from_slice(piece);
        self.sent += piece.len();
        self.sent < self.bytes.len()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.line.body_ends();
    }
}

impl Body for Answer {
    type Data = Piece;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, Infallible>>> {
        let this = &mut *self;
        if let Content::Live(live) = &mut this.content
            && live.poll_given_up(cx).is_ready()
        {
            this.end(Content::GivenUp);
            this.line.close_now();
        }
        let piece = match &mut this.content {
            Content::Done => return Poll::Ready(None),
            Content::GivenUp => return Poll::Pending,
            Content::Whole(body) => {
                let bytes = std::mem::take(body);
                this.content = Content::Done;
                Piece { bytes, written: 0, line: None }
            }
            content @ (Content::Stream(_) | Content::Live(_)) => {
                ready!(this.line.poll_room(cx));
                let mut bytes = this.line.worker().frames().take();
                let rendered = match &mut this.gzip {
                    Some(gzip) => gzip.poll_render(content, cx, &mut bytes),
                    None => content.poll_render(cx, &mut bytes),
                };
                let Poll::Ready(more) = rendered else {
                    this.line.worker().frames().give(bytes);
                    return Poll::Pending;
                };
                debug_assert!(bytes.capacity() == FRAME_BYTES, "a renderer made the frame grow");
                if bytes.is_empty() {
                    this.line.worker().frames().give(bytes);
                    if more {
                        // Not a loop here: a renderer that has nothing to say must not hold up the other connections.
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    this.end(Content::Done);
                    return Poll::Ready(None);
                }
                if !more {
                    this.end(Content::Done);
                }
                this.line.frame_handed_out();
                Piece { bytes, written: 0, line: Some(Rc::clone(&this.line)) }
            }
        };
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Done)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Done => SizeHint::with_exact(0),
            Content::Whole(body) => SizeHint::with_exact(body.len() as u64),
            Content::Stream(_) | Content::Live(_) | Content::GivenUp => SizeHint::default(),
        }
    }
}
