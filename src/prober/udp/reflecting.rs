//! Answers the probes of others, a batch at a time.
//!
//! The time at which an answer leaves is written into it before it leaves: the time of the call and
//! the mean of what is measured to pass until then. So a wait for our next turn is no part of the
//! round-trip time that the other agent computes.

use std::net::{IpAddr, SocketAddr};

use kube_canary_kernel::batch::BATCH;
use kube_canary_kernel::region::Table;

use super::delay::Delays;
use super::wire::{Answer, Reflected, UdpWire};
use crate::limits::STAMP_ANSWER_BYTES_MAX;
use crate::peers::name_in_reports;
use crate::prober::udp::stamp::{ErrorEstimate, NtpTime, Reflection, Reflector, set_reflected_at};
use crate::prober::wire::NOWHERE;
use crate::prober::{Clock, Datagram, Moment};
use crate::units::Nanos;

/// Batches of requests that are answered before the prober sends again. Together they exceed what
/// the members of the largest mesh send in a quarter of a second.
const BATCHES_MAX: usize = 128;
/// One of this many batches of answers is stamped as it leaves. Reading the stamps costs a call.
const STAMPED_PART: u32 = 16;

/// An answer that is written and not sent.
#[derive(Clone, Copy, Debug)]
struct WrittenAnswer {
    to: SocketAddr,
    from: Option<IpAddr>,
    bytes: usize,
}

/// A batch of answers whose departures are awaited.
#[derive(Debug)]
struct Sample {
    /// When it was passed to the kernel.
    called: Nanos,
    /// The time that each says to leave at.
    reflected_at: [[u8; 8]; BATCH],
    count: usize,
    /// The place after the last one whose departure was read. They come in order, and some of them
    /// may say the same time.
    next: usize,
}

/// Owns the reflector and its buffers, which are made once.
#[derive(Debug)]
pub struct Reflecting {
    /// Decides which requests are answered, and counts them.
    pub reflector: Reflector,
    /// How far our clock is to be trusted.
    pub error: ErrorEstimate,
    /// Hash of our node's name.
    node: u64,
    answers: Table<[u8; STAMP_ANSWER_BYTES_MAX]>,
    written: Vec<WrittenAnswer>,
    delays: Delays,
    sample: Sample,
    batches: u32,
    /// Until when everything that had arrived is read.
    read_until: Nanos,
}

impl Reflecting {
    /// Makes a reflector without members.
    pub(super) fn new(node: &str, port: u16, interval: Nanos, now: Nanos) -> Self {
        Self {
            reflector: Reflector::new(port, now).for_interval(interval),
            error: ErrorEstimate::UNKNOWN,
            node: name_in_reports(node),
            answers: Table::new(BATCH),
            written: Vec::with_capacity(BATCH),
            delays: Delays::default(),
            sample: Sample { called: Nanos(0), reflected_at: [[0; 8]; BATCH], count: 0, next: 0 },
            batches: 0,
            read_until: now,
        }
    }

    /// Answers what has arrived. Returns whether nothing is left: then everything that had arrived
    /// at `as_of` is read.
    pub(super) fn turn(&mut self, wire: &mut impl UdpWire, clock: &impl Clock, as_of: Nanos) -> bool {
        for _ in 0..BATCHES_MAX {
            // Both times of an answer are made from the monotonic clock by this one distance, so a
            // step of the real-time clock between them has no effect.
            let ahead = clock.realtime().0.wrapping_sub(clock.now().0).cast_signed();
            let drained = wire.requests(clock, &mut |delivery| match delivery {
                Reflected::Request(datagram) => self.take(&datagram, clock.now(), ahead),
                Reflected::Answered(bytes, moment) => self.left(bytes, moment),
            });
            self.flush(wire, clock, ahead);
            if drained {
                self.read_until = as_of;
                return true;
            }
        }
        false
    }

    /// Writes the answer to a request, if it gets one.
    fn take(&mut self, request: &Datagram<'_>, now: Nanos, ahead: i64) {
        let Some(out) = self.answers.get_mut(self.written.len()) else { return };
        let (arrived, _) = request.moment.arrival(self.read_until, false);
        let received_at = NtpTime::from_unix(Nanos(arrived.0.wrapping_add_signed(ahead)));
        let with = Reflection {
            received_at,
            reflected_at: received_at,
            error: self.error,
            ttl: request.ttl.unwrap_or_default(),
            node: self.node,
        };
        if let Ok(bytes) = self.reflector.answer(request.from, request.bytes, &with, now, out) {
            self.written.push(WrittenAnswer { to: request.from, from: request.to, bytes });
        }
    }

    /// Sends the answers that are written.
    fn flush(&mut self, wire: &mut impl UdpWire, clock: &impl Clock, ahead: i64) {
        let count = self.written.len();
        if count == 0 {
            return;
        }
        let stamped = self.batches.is_multiple_of(STAMPED_PART);
        self.batches = self.batches.wrapping_add(1);
        let called = clock.now();
        for (place, answer) in self.answers.iter_mut().enumerate().take(count) {
            let leaves = called.plus(self.delays.expected(place));
            let reflected_at = NtpTime::from_unix(Nanos(leaves.0.wrapping_add_signed(ahead)));
            set_reflected_at(answer, reflected_at);
            if stamped {
                self.sample.reflected_at[place] = reflected_at.to_bytes();
            }
        }
        if stamped {
            (self.sample.called, self.sample.count, self.sample.next) = (called, count, 0);
        }
        let mut answers = [Answer { to: NOWHERE, from: None, bytes: &[], stamped: false }; BATCH];
        for ((answer, written), bytes) in answers.iter_mut().zip(&self.written).zip(&*self.answers) {
            *answer = Answer { to: written.to, from: written.from, bytes: &bytes[..written.bytes], stamped };
        }
        wire.answer(&answers[..count]);
        self.written.clear();
    }

    /// Learns from the departure of an answer. The time in it says which one it is.
    fn left(&mut self, bytes: &[u8], moment: Moment) {
        let Sample { called, reflected_at, count, next } = &mut self.sample;
        let Some((at, true)) = moment.departure(*called) else { return };
        let is_in = |time: &[u8; 8]| bytes.windows(8).any(|window| window == time);
        if let Some(place) = reflected_at[..*count].iter().skip(*next).position(is_in) {
            let place = *next + place;
            *next = place + 1;
            self.delays.learn(place, at.since(*called));
        }
    }
}
