//! The numbers of one peer, in two tables: what every probe touches, and what hardly any does.
//!
//! Both tables hold every slot that there can ever be, and cost what of them is written ([`super::zeroed`]): a healthy
//! peer 128 bytes, for its rare numbers stay a page of zeroes that is nobody's. A peer's counters have 32 bits
//! ([`crate::limits::INTERVAL_MIN`] says how long they last), and what was received is the sum of the buckets: a counter
//! of its own would say the same.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::histogram::{Bounds, HISTOGRAM_BUCKETS, HistogramReading};
use super::recent::Recent;
use super::{bump, bump32};
use crate::prober::{Event, SendError};
use crate::units::Nanos;

const REASONS: usize = SendError::ALL.len();

/// What every probe touches: 128 bytes (a test prints it).
#[derive(Debug)]
pub(super) struct Hot {
    rtt_sum: AtomicU64,
    sent: AtomicU32,
    lost: AtomicU32,
    buckets: [AtomicU32; HISTOGRAM_BUCKETS],
    pub(super) recent: Recent,
    pub(super) zone: AtomicU8,
    pub(super) protocol: AtomicU8,
}

/// What hardly any probe touches: 56 bytes, of which none is resident before the first such event on its page.
#[derive(Debug)]
pub(super) struct Rare {
    late: AtomicU32,
    duplicate: AtomicU32,
    reordered: AtomicU32,
    corrupt: AtomicU32,
    terminating: [AtomicU32; 2],
    send_errors: [AtomicU32; REASONS],
}

/// One slot's counters.
#[derive(Clone, Copy, Debug)]
pub struct PeerStatistics<'a> {
    pub(super) hot: &'a Hot,
    pub(super) rare: &'a Rare,
}

/// A slot's counters as read at one moment: `received + lost ≤ sent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerReading {
    /// Probes that went out.
    pub sent: u64,
    /// Answered in time.
    pub received: u64,
    /// Not answered in time.
    pub lost: u64,
    /// Answered after being counted lost.
    pub late: u32,
    /// Further answers to an answered probe.
    pub duplicate: u32,
    /// Answered in time, after a later probe was.
    pub reordered: u32,
    /// Damaged replies.
    pub corrupt: u32,
    /// While the peer was on its way out: answered, not answered.
    pub terminating: [u32; 2],
    /// By [`SendError`], in its order.
    pub send_errors: [u32; REASONS],
    /// Round-trip times.
    pub rtt: HistogramReading,
}

impl PeerStatistics<'_> {
    pub(super) fn record(self, event: Event, bounds: &Bounds, window: u16) {
        let Self { hot, rare } = self;
        match event {
            Event::Sent => bump32(&hot.sent),
            Event::Received { rtt, reordered, .. } => {
                bump32(&hot.buckets[bounds.bucket(rtt)]);
                bump(&hot.rtt_sum, rtt.0);
                if reordered {
                    bump32(&rare.reordered);
                }
            }
            Event::Lost => bump32(&hot.lost),
            Event::Late => bump32(&rare.late),
            Event::Duplicate => bump32(&rare.duplicate),
            Event::Corrupt => bump32(&rare.corrupt),
            Event::NotSent(reason) => bump32(&rare.send_errors[reason as usize]),
            Event::Terminating { answered } => bump32(&rare.terminating[usize::from(!answered)]),
        }
        hot.recent.record(event, bounds, window);
    }

    /// Reads everything, `sent` last.
    pub fn read(self) -> PeerReading {
        let Self { hot, rare } = self;
        let small = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        let rtt = HistogramReading {
            sum: Nanos(hot.rtt_sum.load(Ordering::Acquire)),
            buckets: hot.buckets.each_ref().map(|bucket| bucket.load(Ordering::Acquire).into()),
        };
        PeerReading {
            lost: hot.lost.load(Ordering::Acquire).into(),
            received: rtt.count(),
            rtt,
            late: small(&rare.late),
            duplicate: small(&rare.duplicate),
            reordered: small(&rare.reordered),
            corrupt: small(&rare.corrupt),
            terminating: rare.terminating.each_ref().map(small),
            send_errors: rare.send_errors.each_ref().map(small),
            sent: hot.sent.load(Ordering::Acquire).into(),
        }
    }

    pub(super) fn reset(self) {
        let Self { hot, rare } = self;
        hot.rtt_sum.store(0, Ordering::Relaxed);
        for counter in [&hot.sent, &hot.lost].into_iter().chain(&hot.buckets) {
            counter.store(0, Ordering::Relaxed);
        }
        hot.recent.reset();
        let small = [&rare.late, &rare.duplicate, &rare.reordered, &rare.corrupt];
        for counter in small.into_iter().chain(&rare.terminating).chain(&rare.send_errors) {
            // To write a zero over a zero would make its page resident.
            if counter.load(Ordering::Relaxed) != 0 {
                counter.store(0, Ordering::Relaxed);
            }
        }
    }
}
