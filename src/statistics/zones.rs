//! The numbers of one pair of zones, ours and a peer's. They continue while peers join and leave.
//! They end when no peer of the zone is left and the place is needed for another zone.
//!
//! A probe counts as sent here when it is answered or lost, not when it is sent. A peer may change
//! its zone while a probe is in flight, and the sums of both zones must stay right.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::bump;
use super::histogram::{ClassicReading, Histogram, HistogramReading};
use super::scale::Scale;
use crate::limits::ZONES_MAX;
use crate::peers::{Via, ZoneId};
use crate::prober::Event;

/// The pairs of our zone and another, by zone and way. A zone takes memory with its first probe.
#[derive(Debug)]
pub(super) struct ZonePairs(Box<[OnceLock<Box<ZoneWays>>]>);

/// The pairs with one zone, in the order of [`Via::index`].
type ZoneWays = [OnceLock<ZoneStatistics>; Via::ALL.len()];

impl ZonePairs {
    pub(super) fn new() -> Self {
        Self((0..ZONES_MAX).map(|_| OnceLock::new()).collect())
    }

    /// Returns the pair that has been probed in this way. `via` is a [`Via::index`].
    pub(super) fn get(&self, zone: ZoneId, via: u8) -> Option<&ZoneStatistics> {
        self.0.get(usize::from(zone.0))?.get()?.get(usize::from(via))?.get()
    }

    /// Returns the same pair, which is made if it is not there. `None` for a zone past the last
    /// possible one.
    pub(super) fn get_or_init(
        &self,
        zone: ZoneId,
        via: Via,
        make: impl FnOnce() -> ZoneStatistics,
    ) -> Option<&ZoneStatistics> {
        let ways = self.0.get(usize::from(zone.0))?.get_or_init(Box::default);
        Some(ways.get(usize::from(via.index()))?.get_or_init(make))
    }

    /// Returns all pairs with a zone.
    pub(super) fn pairs_with(&self, zone: ZoneId) -> impl Iterator<Item = &ZoneStatistics> {
        self.0.get(usize::from(zone.0)).into_iter().flat_map(Self::made)
    }

    /// Returns all pairs.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ZoneStatistics> {
        self.0.iter().flat_map(Self::made)
    }

    fn made(ways: &OnceLock<Box<ZoneWays>>) -> impl Iterator<Item = &ZoneStatistics> {
        ways.get().into_iter().flat_map(|ways| ways.iter().filter_map(OnceLock::get))
    }
}

/// What was counted and measured from our zone to another.
#[derive(Debug, Default)]
pub struct ZoneStatistics {
    /// Whether a peer of the zone has been probed by this network.
    in_use: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
    lost: AtomicU64,
    late: AtomicU64,
    duplicate: AtomicU64,
    reordered: AtomicU64,
    corrupt: AtomicU64,
    send_errors: AtomicU64,
    terminating: AtomicU64,
    /// When the pair began to count, in seconds since the epoch.
    created: AtomicU32,
    rtt: Histogram,
}

/// A zone pair's counters as read at one moment: `received + lost ≤ sent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneReading {
    /// Number of probes that were answered or lost.
    pub sent: u64,
    /// Number of probes answered within the timeout.
    pub received: u64,
    /// Number of probes not answered within the timeout.
    pub lost: u64,
    /// Number of probes answered after they were counted as lost.
    pub late: u64,
    /// Number of further replies to a probe already answered.
    pub duplicate: u64,
    /// Number of probes answered in time, but after a later probe.
    pub reordered: u64,
    /// Number of replies whose bytes differ from those sent.
    pub corrupt: u64,
    /// Number of probes that the kernel refused to send.
    pub send_errors: u64,
    /// Number of probes to peers that were terminating or had just left.
    pub terminating: u64,
    /// When the pair began to count, in seconds since the epoch.
    pub created: u32,
}

impl ZoneStatistics {
    /// Makes the numbers of a pair. Without `rtt_scale`, round-trip times are not counted.
    pub(super) fn new(rtt_scale: Option<&Scale>) -> Self {
        Self { rtt: rtt_scale.map_or_else(Histogram::default, Histogram::new), ..Self::default() }
    }

    /// Starts to count at `created`, if the pair is not in use yet.
    pub(super) fn begin(&self, created: u32) {
        if !self.is_in_use() {
            self.created.store(created, Ordering::Relaxed);
        }
        self.in_use.store(true, Ordering::Relaxed);
    }

    /// Resets all numbers for another zone. The pair is unused until [`ZoneStatistics::begin`].
    /// Needs the directory's write lock, which keeps readers out.
    pub(super) fn end(&self) {
        self.in_use.store(false, Ordering::Relaxed);
        for counter in self.counters() {
            counter.store(0, Ordering::Relaxed);
        }
        self.rtt.reset();
    }

    const fn counters(&self) -> [&AtomicU64; 9] {
        let Self { sent, received, lost, late, duplicate, reordered, corrupt, send_errors, terminating, .. } = self;
        [sent, received, lost, late, duplicate, reordered, corrupt, send_errors, terminating]
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Counts an event. `cell` is that of its round-trip time.
    pub(super) fn record(&self, event: Event, cell: usize) {
        match event {
            Event::Received { rtt, reordered, .. } => {
                bump(&self.sent, 1);
                self.rtt.observe(rtt, cell);
                bump(&self.received, 1);
                if reordered {
                    bump(&self.reordered, 1);
                }
            }
            Event::Lost => {
                bump(&self.sent, 1);
                bump(&self.lost, 1);
            }
            Event::Late => bump(&self.late, 1),
            Event::Duplicate => bump(&self.duplicate, 1),
            Event::Corrupt => bump(&self.corrupt, 1),
            Event::NotSent(_) => bump(&self.send_errors, 1),
            Event::Terminating { .. } => bump(&self.terminating, 1),
            Event::Sent | Event::Extra { .. } => {}
        }
    }

    /// Returns when the pair began to count, in seconds since the epoch.
    pub fn created(&self) -> u32 {
        self.created.load(Ordering::Relaxed)
    }

    /// Reads the round-trip times as a classic histogram.
    pub fn classic(&self, scale: &Scale) -> ClassicReading {
        self.rtt.classic(scale)
    }

    /// Reads the round-trip times into `reading`.
    pub fn read_rtt(&self, reading: &mut HistogramReading) {
        self.rtt.read_into(reading);
    }

    /// Reads all numbers but the round-trip times. `sent` is read last.
    pub fn read(&self) -> ZoneReading {
        let read = |counter: &AtomicU64| counter.load(Ordering::Acquire);
        ZoneReading {
            lost: read(&self.lost),
            received: read(&self.received),
            late: read(&self.late),
            duplicate: read(&self.duplicate),
            reordered: read(&self.reordered),
            corrupt: read(&self.corrupt),
            send_errors: read(&self.send_errors),
            terminating: read(&self.terminating),
            created: self.created(),
            sent: read(&self.sent),
        }
    }
}
