//! The body of an answer, which is rendered piece by piece as its socket takes the pieces.
//!
//! A compressed body uses a frame twice. The body is rendered into the frame, and its bytes are
//! copied to the compressor's memory. The compressed bytes then replace them in the frame.

use std::{
    io::Cursor,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};

use hyper::body::{Body, Buf, Frame, SizeHint};

use super::{
    LiveBody, Render, ServerStats,
    gzip::Compressor,
    socket::{ClientSocket, SocketPiece},
    stats::CompressorPermit,
};
use crate::limits::FRAME_BYTES;

/// A body was given up. hyper then closes the connection without an end of the body, so the client
/// does not mistake the body for a complete one.
#[derive(Debug, thiserror::Error)]
#[error("the body was given up")]
pub(super) struct GivenUp;

/// The body of an answer.
pub(super) struct AnswerBody {
    content: BodyContent,
    /// None if the body is sent uncompressed.
    gzip: Option<Gzip>,
    socket: Rc<ClientSocket>,
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
    pub(super) fn begin(stats: &Arc<ServerStats>) -> Option<Self> {
        let permit = stats.compressor_permit()?;
        Some(Self { compressor: Compressor::new()?, _permit: permit })
    }

    /// Renders the next piece of a compressed body into an empty frame.
    fn poll_render(&mut self, content: &mut BodyContent, cx: &mut Context<'_>, frame: &mut Vec<u8>) -> Poll<bool> {
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

/// The content of an answer that is still to be rendered.
pub(super) enum BodyContent {
    /// The rest of a complete body. It is sent as one piece, or in frames if it is compressed.
    Complete(Cursor<Vec<u8>>),
    /// The rest of a complete body, and of the shared part that follows. It is sent in frames.
    Shared(Cursor<Vec<u8>>, Cursor<Arc<[u8]>>),
    /// A body that is rendered in pieces.
    Stream(Box<dyn Render>),
    /// A body that is rendered in pieces and may have to wait for its data.
    Live(Box<dyn LiveBody>),
}

impl BodyContent {
    pub(super) const EMPTY: Self = Self::Complete(Cursor::new(Vec::new()));

    /// The length in bytes, if the body is complete.
    pub(super) fn length(&self) -> Option<usize> {
        match self {
            Self::Complete(rest) => Some(rest.remaining()),
            Self::Shared(head, rest) => Some(head.remaining() + rest.remaining()),
            Self::Stream(_) | Self::Live(_) => None,
        }
    }

    /// Renders the next piece into an empty frame.
    fn poll_render(&mut self, cx: &mut Context<'_>, frame: &mut Vec<u8>) -> Poll<bool> {
        match self {
            Self::Complete(rest) => {
                fill(frame, rest);
                Poll::Ready(rest.has_remaining())
            }
            Self::Shared(head, rest) => {
                fill(frame, head);
                fill(frame, rest);
                Poll::Ready(rest.has_remaining())
            }
            Self::Stream(render) => Poll::Ready(render.render(frame)),
            Self::Live(live) => live.poll_render(cx, frame),
        }
    }
}

/// Moves as many bytes into a frame as there is room for.
fn fill(frame: &mut Vec<u8>, from: &mut impl Buf) {
    let bytes = from.remaining().min(FRAME_BYTES - frame.len());
    frame.extend_from_slice(&from.chunk()[..bytes]);
    from.advance(bytes);
}

impl AnswerBody {
    pub(super) fn new(content: BodyContent, gzip: Option<Gzip>, socket: Rc<ClientSocket>) -> Self {
        Self { content, gzip, socket }
    }

    /// The length in bytes that is left to send, if it is known.
    fn length(&self) -> Option<usize> {
        self.content.length().filter(|_| self.gzip.is_none())
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.socket.has_body.set(false);
    }
}

impl Body for AnswerBody {
    type Data = SocketPiece;
    type Error = GivenUp;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<SocketPiece>, GivenUp>>> {
        let this = &mut *self;
        if let BodyContent::Live(live) = &mut this.content
            && live.poll_given_up(cx).is_ready()
        {
            return Poll::Ready(Some(Err(GivenUp)));
        }
        if let BodyContent::Complete(rest) = &mut this.content
            && this.gzip.is_none()
        {
            let piece = rest.has_remaining().then(|| SocketPiece::complete(std::mem::take(rest)));
            return Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))));
        }
        ready!(this.socket.poll_room(cx));
        let mut piece = SocketPiece::frame(&this.socket);
        let frame = piece.bytes.get_mut();
        let more = ready!(match &mut this.gzip {
            Some(gzip) => gzip.poll_render(&mut this.content, cx, frame),
            None => this.content.poll_render(cx, frame),
        });
        debug_assert!(frame.capacity() == FRAME_BYTES, "a renderer made the frame grow");
        if !more {
            // The memory is freed at once, even while the last piece is still being sent.
            (this.content, this.gzip) = (BodyContent::EMPTY, None);
        }
        if piece.has_remaining() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if more {
            // There is no loop here: a renderer without output must not delay the other
            // connections.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.length() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.length().map_or_else(SizeHint::default, |length| SizeHint::with_exact(length as u64))
    }
}
