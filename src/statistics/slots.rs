//! The numbers of one peer, in four tables: counters that every probe touches, round-trip times
//! since the start, round-trip times of the last minute, and counters that few probes touch.
//!
//! The tables have room for the largest possible number of slots. Only pages that were written take
//! memory ([`kube_canary_kernel::region`]), so the rare counters of healthy peers take none. A link
//! that has a histogram in the metrics has one round-trip counter per cell of the agent's scale,
//! which the agent's flags decide; any other link has one for all times since the start. A peer's
//! counters have 32 bits; [`crate::limits::INTERVAL_MIN`] says how long they last. There is no
//! counter of received probes: it would equal the sum of the cells.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use kube_canary_kernel::atomic;
use kube_canary_kernel::region::{Atomic as _, Table};
use zerocopy::FromZeros;

use super::histogram::{ClassicReading, HistogramReading};
use super::recent::{Counts, Recent, RecentLosses, WindowMoment, Windows};
use super::scale::Scale;
use super::unsent::{UnsentNumbers, UnsentReading};
use super::{bump, bump32};
use crate::prober::{Event, SendError};
use crate::units::Nanos;

const REASONS: usize = SendError::ALL.len();

/// Counters that every probe touches. A test prints their size in bytes.
#[derive(Debug, Default, FromZeros)]
pub(super) struct Hot {
    rtt_sum: AtomicU64,
    sent: AtomicU32,
    lost: AtomicU32,
    /// When the slot began to count for its peer, in seconds since the epoch.
    created: AtomicU32,
    windows: Windows,
    pub(super) zone: AtomicU8,
    /// Value of [`crate::peers::Via::index`].
    pub(super) via: AtomicU8,
}
atomic!(Hot { rtt_sum, sent, lost, created, windows, zone, via });

/// Counters that few probes touch. A page of them becomes resident with the first such event.
#[derive(Debug, Default, FromZeros)]
pub(super) struct RareCounters {
    late: AtomicU32,
    duplicate: AtomicU32,
    reordered: AtomicU32,
    corrupt: AtomicU32,
    syn_retransmissions: AtomicU32,
    /// Number of the half of a recent window in which a handshake was last refused, plus 1; 0 is
    /// never.
    refused: AtomicU32,
    terminating: [AtomicU32; 2],
    send_errors: [AtomicU32; REASONS],
    unsent: UnsentNumbers,
    losses: RecentLosses,
}
atomic!(RareCounters {
    late,
    duplicate,
    reordered,
    corrupt,
    syn_retransmissions,
    refused,
    terminating,
    send_errors,
    unsent,
    losses,
});

/// The counters of all slots. Those of all methods of a slot lie beside each other. They are a few
/// bytes, so in a small mesh they share a page.
#[derive(Debug)]
pub(super) struct Counters {
    methods: usize,
    hot: Table<Hot>,
    rare: Table<RareCounters>,
}

impl Counters {
    /// Makes the counters of this many slots and methods.
    pub(super) fn new(slots: usize, methods: usize) -> Self {
        Self { methods, hot: Table::new(slots * methods), rare: Table::new(slots * methods) }
    }

    /// Returns the memory behind the first `slots` slots to the kernel.
    pub(super) fn give_back(&self, slots: usize) {
        self.hot.give_back(slots * self.methods);
        self.rare.give_back(slots * self.methods);
    }

    /// Returns the resident memory of what every probe touches, in bytes of whole pages.
    pub(super) fn resident_bytes(&self) -> usize {
        self.hot.resident_bytes()
    }
}

/// The numbers of all slots, of one method.
#[derive(Debug)]
pub(super) struct Slots {
    scale: Arc<Scale>,
    counters: Arc<Counters>,
    /// Which of the methods of `counters` it is.
    nth: usize,
    /// Cells of a slot: as many as the scale has, or one that counts all answers.
    slot_cells: usize,
    cells: Table<CellCount>,
    /// Two per slot and native bucket of the scale.
    recent_bins: Table<SmallCount>,
}

/// Number of probes in one cell.
type CellCount = AtomicU32;
/// Number of probes in one native bucket, in half a recent window.
type SmallCount = AtomicU8;

impl Slots {
    /// Makes the numbers of this many slots. Round-trip times since the start are kept if they are
    /// `timed`.
    pub(super) fn new(scale: Arc<Scale>, slots: usize, (counters, nth): (Arc<Counters>, usize), timed: bool) -> Self {
        let slot_cells = if timed { scale.cells() } else { 1 };
        Self {
            counters,
            nth,
            slot_cells,
            cells: Table::new(slots * slot_cells),
            recent_bins: Table::new(slots * 2 * scale.bin_count()),
            scale,
        }
    }

    pub(super) fn scale(&self) -> &Scale {
        &self.scale
    }

    pub(super) fn get(&self, slot: usize) -> Option<PeerStatistics<'_>> {
        let (cells, bins) = (self.slot_cells, 2 * self.scale.bin_count());
        let of_method = slot * self.counters.methods + self.nth;
        Some(PeerStatistics {
            hot: self.counters.hot.get(of_method)?,
            rare: self.counters.rare.get(of_method)?,
            cells: self.cells.get(slot * cells..(slot + 1) * cells)?,
            recent_bins: self.recent_bins.get(slot * bins..(slot + 1) * bins)?,
            scale: &self.scale,
        })
    }

    /// Returns the memory behind the first `slots` slots to the kernel.
    pub(super) fn give_back(&self, slots: usize) {
        self.cells.give_back(slots * self.slot_cells);
        self.recent_bins.give_back(slots * 2 * self.scale.bin_count());
    }

    /// Returns the resident memory of the round-trip times, in bytes of whole pages.
    pub(super) fn resident_bytes(&self) -> usize {
        self.cells.resident_bytes() + self.recent_bins.resident_bytes()
    }

    /// Returns the bytes that become resident for each peer that is probed.
    pub(super) fn resident_bytes_per_peer(&self) -> usize {
        let bins = 2 * self.scale.bin_count() * size_of::<SmallCount>();
        size_of::<Hot>() + self.slot_cells * size_of::<CellCount>() + bins
    }
}

/// References to the numbers of one slot.
#[derive(Clone, Copy, Debug)]
pub struct PeerStatistics<'a> {
    pub(super) hot: &'a Hot,
    rare: &'a RareCounters,
    cells: &'a [CellCount],
    recent_bins: &'a [SmallCount],
    scale: &'a Scale,
}

/// A slot's counters as read at one moment: `received + lost ≤ sent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerReading {
    /// Number of probes sent.
    pub sent: u64,
    /// Number of probes answered within the timeout.
    pub received: u64,
    /// Number of probes not answered within the timeout.
    pub lost: u64,
    /// Number of probes answered after they were counted as lost.
    pub late: u32,
    /// Number of further answers to a probe that was already answered.
    pub duplicate: u32,
    /// Number of probes answered in time, but after a later probe was answered.
    pub reordered: u32,
    /// Number of damaged replies.
    pub corrupt: u32,
    /// Number of SYN segments of handshakes that were sent again.
    pub syn_retransmissions: u32,
    /// Number of probes to the peer while it was terminating: answered, not answered.
    pub terminating: [u32; 2],
    /// Number of probes that were not sent, in the order of [`SendError`].
    pub send_errors: [u32; REASONS],
    /// When the slot began to count, in seconds since the epoch; 0 for a slot that
    /// was never in use.
    pub created: u32,
}

/// Outcomes of a peer's probes since it joined, modulo 2^32: only differences are meaningful.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcomes {
    pub(super) answered: u32,
    pub(super) lost: u32,
}

impl PeerStatistics<'_> {
    pub(super) fn record(self, event: Event, moment: WindowMoment, counts: Counts) {
        let Self { hot, rare, cells, scale, .. } = self;
        let mut cell = 0;
        match event {
            Event::Sent => bump32(&hot.sent),
            Event::Received { rtt, reordered, .. } => {
                cell = scale.cell(rtt);
                bump32(&cells[cell.min(cells.len() - 1)]);
                bump(&hot.rtt_sum, rtt.0);
                if reordered {
                    bump32(&rare.reordered);
                }
            }
            Event::Lost => bump32(&hot.lost),
            Event::Late => bump32(&rare.late),
            Event::Duplicate => bump32(&rare.duplicate),
            Event::Corrupt => bump32(&rare.corrupt),
            Event::NotSent(reason) => {
                bump32(&rare.send_errors[reason as usize]);
                rare.unsent.record(reason, moment.half);
            }
            Event::Terminating { answered } => bump32(&rare.terminating[usize::from(!answered)]),
            Event::Extra { .. } => {}
        }
        self.recent().record(event, cell, moment, counts);
    }

    /// Counts SYN segments that were sent again.
    pub(super) fn add_syn_retransmissions(self, count: u32) {
        let counter = &self.rare.syn_retransmissions;
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Notes that a lost handshake was refused in this half of a recent window.
    pub(super) fn set_refused(self, half: u32) {
        self.rare.refused.copy_from(&half.wrapping_add(1).into());
    }

    /// Reads the probes that were not sent in this half of a recent window, or in the one before.
    pub(super) fn unsent(self, half: u32) -> UnsentReading {
        self.rare.unsent.read(half)
    }

    /// Whether a lost handshake was refused in this half of a recent window, or in the one before.
    pub(super) fn is_refused(self, half: u32) -> bool {
        let at = self.rare.refused.load(Ordering::Relaxed);
        at != 0 && half.wrapping_add(1).wrapping_sub(at) <= 1
    }

    /// Returns the recent window of the slot.
    pub(super) const fn recent(&self) -> Recent<'_> {
        Recent { windows: &self.hot.windows, losses: &self.rare.losses, bins: self.recent_bins, scale: self.scale }
    }

    /// Returns when the slot began to count, in seconds since the epoch.
    pub fn created(&self) -> u32 {
        self.hot.created.load(Ordering::Relaxed)
    }

    pub(super) fn outcomes(&self) -> Outcomes {
        let answered = self.cells.iter().map(|count| count.load(Ordering::Relaxed)).fold(0, u32::wrapping_add);
        Outcomes { answered, lost: self.hot.lost.load(Ordering::Acquire) }
    }

    /// Reads the round-trip times since the start as a classic histogram.
    pub fn classic(&self) -> ClassicReading {
        ClassicReading::new(Nanos(self.hot.rtt_sum.load(Ordering::Acquire)), self.counts(), self.scale)
    }

    /// Reads the round-trip times since the start into `reading`.
    pub fn read_rtt(&self, reading: &mut HistogramReading) {
        reading.set(Nanos(self.hot.rtt_sum.load(Ordering::Acquire)), self.counts());
    }

    /// Does the same into new memory, for tests.
    pub fn rtt(&self) -> HistogramReading {
        let mut reading = HistogramReading::default();
        self.read_rtt(&mut reading);
        reading
    }

    /// Returns the `q`-quantile of the round-trip times since the start, in seconds; `None` without
    /// an answer, and if these times are not kept.
    pub fn rtt_quantile(&self, q: f64) -> Option<f64> {
        (self.cells.len() > 1).then(|| self.scale.quantile(q, self.counts())).flatten()
    }

    fn counts(&self) -> impl Iterator<Item = u64> + Clone {
        self.cells.iter().map(|count| count.load(Ordering::Acquire).into())
    }

    /// Reads all numbers but the round-trip times. `sent` is read last.
    pub fn read(&self) -> PeerReading {
        let Self { hot, rare, .. } = self;
        let small = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        PeerReading {
            lost: hot.lost.load(Ordering::Acquire).into(),
            received: self.counts().sum(),
            created: self.created(),
            late: small(&rare.late),
            duplicate: small(&rare.duplicate),
            reordered: small(&rare.reordered),
            corrupt: small(&rare.corrupt),
            syn_retransmissions: small(&rare.syn_retransmissions),
            terminating: rare.terminating.each_ref().map(small),
            send_errors: rare.send_errors.each_ref().map(small),
            sent: hot.sent.load(Ordering::Acquire).into(),
        }
    }

    /// Starts from zero for another peer, which joined at `created`.
    pub(super) fn reset(self, created: u32) {
        let Self { hot, rare, cells, recent_bins, .. } = self;
        hot.copy_from(&Hot::default());
        hot.created.store(created, Ordering::Relaxed);
        rare.copy_from(&RareCounters::default());
        for count in cells {
            count.store(0, Ordering::Relaxed);
        }
        for count in recent_bins {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// Copies the numbers of `other` into this slot.
    pub(super) fn take_over(self, other: PeerStatistics<'_>) {
        self.hot.copy_from(other.hot);
        self.rare.copy_from(other.rare);
        self.cells.iter().zip(other.cells).for_each(|(to, from)| to.copy_from(from));
        self.recent_bins.iter().zip(other.recent_bins).for_each(|(to, from)| to.copy_from(from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::limits::PEER_SLOTS_MAX;
    use crate::statistics::BucketBounds;
    use crate::sys::proc;

    fn resident_kb() -> i64 {
        proc::find("/proc/self/smaps_rollup", |line| proc::number(line, "Rss:")).expect("smaps_rollup")
    }

    /// Set in the child process in which the test of this name runs alone.
    const ALONE: &str = "KUBE_CANARY_TEST_ALONE";

    /// Resident memory is that of the whole process, and other tests allocate and free memory at
    /// any time. So the test runs in a process of its own.
    #[test]
    fn rare_numbers_are_not_resident_before_they_are_written_not_even_if_they_are_read() {
        if std::env::var_os(ALONE).is_none() {
            let name = "rare_numbers_are_not_resident_before_they_are_written_not_even_if_they_are_read";
            let name = format!("{}::{name}", module_path!().split_once("::").unwrap().1);
            let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
            let output = alone.args(["--exact", &name, "--nocapture"]).env(ALONE, "1").output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}{output:?}");
        } else {
            rare_numbers();
        }
    }

    /// Reads and resets tables of the real sizes. There are this many of them that the memory of
    /// the test harness is small in comparison.
    fn rare_numbers() {
        const TABLES: usize = 16;
        let kb = |bytes: usize| i64::try_from(TABLES * PEER_SLOTS_MAX * bytes / 1_024).unwrap();
        let scale = || Scale::new(BucketBounds::default(), 0, Duration::from_secs(1));
        let before = resident_kb();
        let counters = || Arc::new(Counters::new(PEER_SLOTS_MAX, 1));
        let new = || Slots::new(Arc::new(scale()), PEER_SLOTS_MAX, (counters(), 0), true);
        let tables: Vec<Slots> = (0..TABLES).map(|_| new()).collect();
        let often_bytes = tables[0].resident_bytes_per_peer();
        let (hot_kb, all_kb) = (kb(often_bytes), kb(often_bytes + size_of::<RareCounters>()));
        let slots = || tables.iter().flat_map(|table| (0..PEER_SLOTS_MAX).filter_map(|slot| table.get(slot)));
        let sent: u64 = slots().map(|slot| slot.read().sent).sum();
        let read = resident_kb() - before;
        // Resetting a slot for a new peer writes no zero over a rare counter that is zero.
        slots().for_each(|slot| slot.reset(1));
        let reset = resident_kb() - before;
        println!("{all_kb} KB of tables: {read} KB resident once read, {reset} KB once their slots are taken");
        assert_eq!(sent, 0);
        assert!(read < all_kb / 4, "{read} of {all_kb} KB");
        assert!(
            (hot_kb - all_kb / 8..hot_kb + all_kb / 8).contains(&reset),
            "{reset} of {all_kb} KB, {hot_kb} of them hot"
        );
    }
}
