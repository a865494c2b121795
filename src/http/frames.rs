//! Bodies, and the buffers that streamed bodies are rendered into.
//!
//! hyper queues up to 16 pieces of a body before it writes them. That would be 96 KiB for each
//! scraper that reads slowly. So a streamed body hands out one frame, and renders the next only
//! when hyper has dropped the last: a dropped frame notifies its connection. It also renders only
//! when the socket has room for a frame. A scraper that does not read therefore holds no frame at
//! all, and one buffer serves all connections of a worker.
//!
//! A compressed body uses the same frame twice. The body is rendered into the frame, and its bytes
//! are copied to the compressor's memory. The compressed bytes then replace them in the frame.

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

/// The spare frame buffers of one worker, which owns them. A frame that is handed out belongs to
/// its [`Piece`] until hyper drops that. The drop returns the frame to the worker of its
/// connection, on the same thread, so there is no lock. At most [`SPARE_FRAMES_PER_WORKER`] are
/// kept. A connection that ends with a frame in use drops its piece, and so returns the frame too.
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
        // A buffer that a renderer made grow, against its contract, is not kept.
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

/// Bytes that wait to be written to the socket. hyper's queue of the connection owns them. On
/// drop, a frame returns to its worker's [`FramePool`]. A whole body (`line` is none) came from
/// the route and is freed.
pub(super) struct Piece {
    bytes: Vec<u8>,
    written: usize,
    /// The connection that the frame returns to. None for a whole body.
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
    /// None if the body is sent uncompressed.
    gzip: Option<Gzip>,
    line: Rc<Line>,
}

/// The permit to compress, and the compressor. The order of the fields matters: the memory is freed
/// before the permit is returned.
pub(super) struct Gzip {
    compressor: Compressor,
    _permit: CompressorPermit,
}

impl Gzip {
    /// Starts a compressor. Returns none if too many responses are being compressed, or if
    /// there is no memory.
    pub(super) fn begin(stats: &ServerStats) -> Option<Self> {
        let permit = stats.compressor()?;
        Some(Self { compressor: Compressor::new()?, _permit: permit })
    }

    /// Renders the next piece of a compressed body into an empty frame.
    fn poll_render(&mut self, content: &mut Content, cx: &mut Context<'_>, frame: &mut Vec<u8>) -> Poll<bool> {
        if !self.compressor.is_busy() {
            match content.poll_render(cx, frame) {
                Poll::Ready(more) => {
                    self.compressor.take(frame);
                    if !more {
                        self.compressor.finish();
                    }
                }
                // The client gets all available bytes while it waits for the rest.
                Poll::Pending if self.compressor.flush() => {}
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(self.compressor.compress(frame))
    }
}

/// The content of an answer.
pub(super) enum Content {
    /// The body is empty, or completely rendered.
    Done,
    /// A complete body, which is not empty.
    Whole(Vec<u8>),
    /// A body that is rendered in pieces.
    Stream(Box<dyn Render>),
    /// A body that is rendered in pieces and may have to wait for its data.
    Live(Box<dyn Live>),
    /// The body was given up. The connection is about to be closed, so the client does not mistake
    /// the body for a complete one.
    GivenUp,
}

impl Content {
    /// Creates the content from a complete body.
    pub(super) fn whole(body: Vec<u8>) -> Self {
        if body.is_empty() { Self::Done } else { Self::Whole(body) }
    }

    /// The length in bytes, if the body is complete.
    pub(super) fn length(&self) -> Option<usize> {
        match self {
            Self::Done => Some(0),
            Self::Whole(body) => Some(body.len()),
            Self::Stream(_) | Self::Live(_) | Self::GivenUp => None,
        }
    }

    /// Whether compressing the body saves anything.
    pub(super) fn is_long(&self) -> bool {
        self.length().is_none_or(|length| length >= COMPRESSED_BODY_BYTES_MIN)
    }

    /// Renders the next piece into an empty frame.
    fn poll_render(&mut self, cx: &mut Context<'_>, frame: &mut Vec<u8>) -> Poll<bool> {
        match self {
            Self::Stream(render) => Poll::Ready(render.render(frame)),
            Self::Live(live) => live.poll_render(cx, frame),
            Self::Done | Self::Whole(_) | Self::GivenUp => Poll::Ready(false),
        }
    }
}

impl Answer {
    /// Creates a body. If it is compressed, `content` is sent in pieces, even if it is complete.
    pub(super) fn new(content: Content, gzip: Option<Gzip>, line: Rc<Line>) -> Self {
        line.body_begins();
        let content = match content {
            Content::Whole(bytes) if gzip.is_some() => Content::Stream(Box::new(Cut { bytes, sent: 0 })),
            other => other,
        };
        Self { content, gzip, line }
    }

    /// Ends the body, or gives it up. Its memory is freed at once, even while its last piece
    /// is still being sent.
    fn end(&mut self, content: Content) {
        self.content = content;
        self.gzip = None;
    }
}

/// A complete body that is sent in pieces.
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
                        // There is no loop here: a renderer without output must not delay the other
                        // connections.
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
