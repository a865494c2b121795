//! A body that a future writes. The future continues whenever an empty frame is available.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::http::LiveBody;

/// The writing end. It holds a frame only while the body is polled. A write waits until it fits.
#[derive(Clone, Debug, Default)]
pub struct FrameWriter(Rc<RefCell<Vec<u8>>>);

impl FrameWriter {
    /// Writes all `parts` into the same frame. Together they must fit a frame.
    pub async fn write(&self, parts: &[&[u8]]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        // No wake-up is needed: after a frame is taken away, the body is polled again with another.
        poll_fn(|_| {
            let mut frame = self.0.borrow_mut();
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

/// The reading end: a body whose frames the writer fills.
pub struct WrittenBody {
    frame: Rc<RefCell<Vec<u8>>>,
    writer: Pin<Box<dyn Future<Output = ()>>>,
    /// Remaining time for which the reader may delay the writer.
    reader_time: Duration,
    /// Whether the writer waits for the reader. It waits until `end` at most.
    is_waiting: bool,
    end: Pin<Box<Sleep>>,
}

impl WrittenBody {
    /// Makes a body that ends when `writer` ends, which writes into `frames`. The body is dropped
    /// if the reader delays the writer for longer than `reader_time` in total.
    pub fn new(frames: FrameWriter, writer: impl Future<Output = ()> + 'static, reader_time: Duration) -> Self {
        Self {
            frame: frames.0,
            writer: Box::pin(writer),
            reader_time,
            is_waiting: false,
            end: Box::pin(sleep(reader_time)),
        }
    }
}

impl LiveBody for WrittenBody {
    fn poll_given_up(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_waiting { self.end.as_mut().poll(cx) } else { Poll::Pending }
    }

    fn poll_render(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<bool> {
        if std::mem::take(&mut self.is_waiting) {
            self.reader_time = self.end.deadline().saturating_duration_since(Instant::now());
        }
        let mut exchange = || std::mem::swap(out, &mut self.frame.borrow_mut());
        exchange();
        let is_over = self.writer.as_mut().poll(cx).is_ready();
        exchange();
        match (is_over, out.is_empty()) {
            (true, _) => Poll::Ready(false),
            (false, true) => Poll::Pending,
            (false, false) => {
                self.is_waiting = true;
                self.end.as_mut().reset(Instant::now() + self.reader_time);
                Poll::Ready(true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[tokio::test]
    async fn a_writer_goes_on_frame_by_frame_and_its_parts_stay_together() {
        let frames = FrameWriter::default();
        let writer = {
            let frames = frames.clone();
            async move {
                for _ in 0..5 {
                    frames.write(&[b"ab", b"c"]).await;
                }
            }
        };
        let mut body = WrittenBody::new(frames, writer, Duration::from_secs(5));
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

    #[tokio::test]
    async fn a_body_whose_writer_waits_is_pending_and_what_it_has_written_goes_out() {
        let frames = FrameWriter::default();
        let writer = {
            let frames = frames.clone();
            async move {
                frames.write(&[b"begun"]).await;
                std::future::pending::<()>().await;
            }
        };
        let mut body = WrittenBody::new(frames, writer, Duration::from_secs(5));
        let mut cx = Context::from_waker(Waker::noop());
        let mut frame = Vec::with_capacity(8);
        assert_eq!(body.poll_render(&mut cx, &mut frame), Poll::Ready(true));
        assert_eq!(frame, b"begun");
        frame.clear();
        assert_eq!(body.poll_render(&mut cx, &mut frame), Poll::Pending);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_given_up_when_its_reader_has_waited_for_too_long_in_all() {
        let frames = FrameWriter::default();
        let writer = {
            let frames = frames.clone();
            async move {
                loop {
                    frames.write(&[b"more"]).await;
                    // This is as long as an agent may take. It does not count as the reader's time.
                    sleep(Duration::from_mins(1)).await;
                }
            }
        };
        let mut body = WrittenBody::new(frames, writer, Duration::from_secs(5));
        for waits in [2_000, 2_999] {
            let frame = poll_fn(|cx| {
                let mut frame = Vec::with_capacity(8);
                assert!(body.poll_given_up(cx).is_pending());
                body.poll_render(cx, &mut frame).map(|more| more.then_some(frame))
            });
            assert_eq!(frame.await.as_deref(), Some(&b"more"[..]));
            sleep(Duration::from_millis(waits)).await;
        }
        let begun = Instant::now();
        poll_fn(|cx| body.poll_given_up(cx)).await;
        assert!(begun.elapsed() <= Duration::from_millis(2), "5 s in all: {:?}", begun.elapsed());
    }
}
