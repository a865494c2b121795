//! A body that a future writes: it goes on whenever a frame is there to be filled.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::http::Live;

/// The writing end. Holds a frame only while its body is being polled; a write waits until it fits.
#[derive(Clone, Debug)]
pub struct Pipe(Option<Rc<RefCell<Vec<u8>>>>);

impl Default for Pipe {
    fn default() -> Self {
        Self(Some(Rc::default()))
    }
}

impl Pipe {
    /// A pipe that takes everything at once and forgets it.
    pub const fn nowhere() -> Self {
        Self(None)
    }

    /// Writes all `parts`, which together fit a frame, into the same one.
    pub async fn write(&self, parts: &[&[u8]]) {
        let Some(frame) = &self.0 else { return };
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        // Nobody need be woken: whoever takes a frame away comes back with another.
        poll_fn(|_| {
            let mut frame = frame.borrow_mut();
            if frame.capacity() - frame.len() < bytes {
                return Poll::Pending;
            }
            for part in parts {
                frame.extend_from_slice(part);
            }
            Poll::Ready(())
        })
        .await;
    }
}

/// The body.
pub struct Piped {
    frame: Option<Rc<RefCell<Vec<u8>>>>,
    writer: Pin<Box<dyn Future<Output = ()>>>,
}

impl Piped {
    /// A body that ends when `writer`, which writes into `pipe`, has ended.
    pub fn new(pipe: Pipe, writer: impl Future<Output = ()> + 'static) -> Self {
        Self { frame: pipe.0, writer: Box::pin(writer) }
    }
}

impl Live for Piped {
    fn poll_render(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<bool> {
        let mut exchange = || self.frame.iter().for_each(|frame| std::mem::swap(out, &mut frame.borrow_mut()));
        exchange();
        let is_over = self.writer.as_mut().poll(cx).is_ready();
        exchange();
        match (is_over, out.is_empty()) {
            (true, _) => Poll::Ready(false),
            (false, true) => Poll::Pending,
            (false, false) => Poll::Ready(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn a_writer_goes_on_frame_by_frame_and_its_parts_stay_together() {
        let pipe = Pipe::default();
        let writer = {
            let pipe = pipe.clone();
            async move {
                for _ in 0..5 {
                    pipe.write(&[b"ab", b"c"]).await;
                }
            }
        };
        let mut body = Piped::new(pipe, writer);
        let mut cx = Context::from_waker(Waker::noop());
        let mut frames = Vec::new();
        loop {
            let mut frame = Vec::with_capacity(8);
            let Poll::Ready(more) = body.poll_render(&mut cx, &mut frame) else { panic!("nothing is awaited") };
            assert_eq!(frame.capacity(), 8);
            frames.push(String::from_utf8(frame).unwrap());
            if !more {
                break;
            }
        }
        assert_eq!(frames, ["abcabc", "abcabc", "abc"]);
    }

    #[test]
    fn a_body_whose_writer_waits_is_pending_and_what_it_has_written_goes_out() {
        let pipe = Pipe::default();
        let writer = {
            let pipe = pipe.clone();
            async move {
                pipe.write(&[b"begun"]).await;
                std::future::pending::<()>().await;
            }
        };
        let mut body = Piped::new(pipe, writer);
        let mut cx = Context::from_waker(Waker::noop());
        let mut frame = Vec::with_capacity(8);
        assert_eq!(body.poll_render(&mut cx, &mut frame), Poll::Ready(true));
        assert_eq!(frame, b"begun");
        frame.clear();
        assert_eq!(body.poll_render(&mut cx, &mut frame), Poll::Pending);
    }
}
