//! The numbers of one peer.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::histogram::{Bounds, Histogram, HistogramReading};
use super::recent::Recent;
use super::{bump, bump32};
use crate::prober::{Event, SendError};

const REASONS: usize = SendError::ALL.len();

/// One slot's counters. A test prints its size.
#[derive(Debug, Default)]
pub struct PeerStatistics {
    sent: AtomicU64,
    received: AtomicU64,
    lost: AtomicU64,
    pub(super) rtt: Histogram,
    late: AtomicU32,
    duplicate: AtomicU32,
    reordered: AtomicU32,
    corrupt: AtomicU32,
    terminating: [AtomicU32; 2],
    send_errors: [AtomicU32; REASONS],
    pub(super) recent: Recent,
    pub(super) zone: AtomicU8,
    pub(super) protocol: AtomicU8,
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

impl PeerStatistics {
    pub(super) fn record(&self, event: Event, bounds: &Bounds, window: u32) {
        match event {
            Event::Sent => bump(&self.sent, 1),
            Event::Received { rtt, reordered, .. } => {
                self.rtt.observe(rtt, bounds);
                bump(&self.received, 1);
                if reordered {
                    bump32(&self.reordered);
                }
            }
            Event::Lost => bump(&self.lost, 1),
            Event::Late => bump32(&self.late),
            Event::Duplicate => bump32(&self.duplicate),
            Event::Corrupt => bump32(&self.corrupt),
            Event::NotSent(reason) => bump32(&self.send_errors[reason as usize]),
            Event::Terminating { answered } => bump32(&self.terminating[usize::from(!answered)]),
        }
        self.recent.record(event, bounds, window);
    }

    /// Reads everything, `sent` last.
    pub fn read(&self) -> PeerReading {
        let small = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        PeerReading {
            lost: self.lost.load(Ordering::Acquire),
            received: self.received.load(Ordering::Acquire),
            rtt: self.rtt.read(),
            late: small(&self.late),
            duplicate: small(&self.duplicate),
            reordered: small(&self.reordered),
            corrupt: small(&self.corrupt),
            terminating: self.terminating.each_ref().map(small),
            send_errors: self.send_errors.each_ref().map(small),
            sent: self.sent.load(Ordering::Acquire),
        }
    }

    pub(super) fn reset(&self) {
        for counter in [&self.sent, &self.received, &self.lost] {
            counter.store(0, Ordering::Relaxed);
        }
        let small = [&self.late, &self.duplicate, &self.reordered, &self.corrupt];
        for counter in small.into_iter().chain(&self.terminating).chain(&self.send_errors) {
            counter.store(0, Ordering::Relaxed);
        }
        self.rtt.reset();
        self.recent.reset();
    }
}
