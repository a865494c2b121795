//! The numbers of one peer, in two tables: what every probe touches, and what hardly any does.
//!
//! Both tables hold every slot that there can ever be, and cost what of them is written ([`crate::region`]): a healthy
//! peer 128 bytes, for its rare numbers stay a page of zeroes that is nobody's. A peer's counters have 32 bits
//! ([`crate::limits::INTERVAL_MIN`] says how long they last), and what was received is the sum of the buckets: a counter
//! of its own would say the same.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::histogram::{Bounds, HISTOGRAM_BUCKETS, HistogramReading};
use super::recent::Recent;
use super::{bump, bump32};
use crate::prober::{Event, SendError};
use crate::region::{Atomic, Zero};
use crate::units::Nanos;

const REASONS: usize = SendError::ALL.len();

/// What every probe touches: 128 bytes (a test prints it).
#[derive(Debug, Default)]
pub(super) struct Hot {
    rtt_sum: AtomicU64,
    sent: AtomicU32,
    lost: AtomicU32,
    buckets: [AtomicU32; HISTOGRAM_BUCKETS],
    pub(super) recent: Recent,
    pub(super) zone: AtomicU8,
    /// [`crate::peers::Via::index`].
    pub(super) via: AtomicU8,
}

/// What hardly any probe touches: 56 bytes, of which none is resident before the first such event on its page.
#[derive(Debug, Default)]
pub(super) struct Rare {
    late: AtomicU32,
    duplicate: AtomicU32,
    reordered: AtomicU32,
    corrupt: AtomicU32,
    terminating: [AtomicU32; 2],
    send_errors: [AtomicU32; REASONS],
}

/// Atomic integers and nothing else.
#[expect(unsafe_code, reason = "the compiler cannot see of what a type is made")]
mod atomics {
    use super::{Atomic, Hot, Rare, Zero};
    // SAFETY: arrays and structs of atomic integers.
    unsafe impl Zero for Hot {}
    // SAFETY: as above.
    unsafe impl Zero for Rare {}
    // SAFETY: as above.
    unsafe impl Atomic for Hot {}
    // SAFETY: as above.
    unsafe impl Atomic for Rare {}
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

/// How a peer's probes ended, since it joined: modulo 2^32, to subtract from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcomes {
    pub(super) answered: u32,
    pub(super) lost: u32,
}

impl Hot {
    pub(super) fn outcomes(&self) -> Outcomes {
        let answered = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).fold(0, u32::wrapping_add);
        Outcomes { answered, lost: self.lost() }
    }

    pub(super) fn lost(&self) -> u32 {
        self.lost.load(Ordering::Acquire)
    }

    fn counters(&self) -> impl Iterator<Item = &AtomicU32> {
        [&self.sent, &self.lost].into_iter().chain(&self.buckets)
    }
}

impl Rare {
    fn counters(&self) -> impl Iterator<Item = &AtomicU32> {
        let single = [&self.late, &self.duplicate, &self.reordered, &self.corrupt];
        single.into_iter().chain(&self.terminating).chain(&self.send_errors)
    }
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
        self.take_over(PeerStatistics { hot: &Hot::default(), rare: &Rare::default() });
    }

    /// Becomes a copy of `other`.
    pub(super) fn take_over(self, other: PeerStatistics<'_>) {
        let (Self { hot, rare }, PeerStatistics { hot: from, rare: rare_from }) = (self, other);
        hot.rtt_sum.store(from.rtt_sum.load(Ordering::Relaxed), Ordering::Relaxed);
        hot.zone.store(from.zone.load(Ordering::Relaxed), Ordering::Relaxed);
        hot.via.store(from.via.load(Ordering::Relaxed), Ordering::Relaxed);
        for (to, from) in hot.counters().zip(from.counters()) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        hot.recent.take_over(&from.recent);
        for (to, from) in rare.counters().zip(rare_from.counters()) {
            // To write a zero over a zero would make its page resident.
            let value = from.load(Ordering::Relaxed);
            if to.load(Ordering::Relaxed) != value {
                to.store(value, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PEER_SLOTS_MAX;
    use crate::proc;
    use crate::region::Table;

    fn resident_kb() -> i64 {
        proc::find("/proc/self/smaps_rollup", |line| proc::number(line, "Rss:")).expect("smaps_rollup")
    }

    /// Set in the process in which the test of this name runs alone.
    const ALONE: &str = "KUBE_CANARY_TEST_ALONE";

    /// Resident memory is that of the whole process, and other tests take and give back memory at any
    /// time. So the test runs in a process of its own.
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

    /// Reads and resets tables of the real sizes, so many that the test harness's memory is little
    /// beside them.
    fn rare_numbers() {
        const TABLES: usize = 16;
        let kb = |bytes: usize| i64::try_from(TABLES * PEER_SLOTS_MAX * bytes / 1_024).unwrap();
        let (hot_kb, all_kb) = (kb(size_of::<Hot>()), kb(size_of::<Hot>() + size_of::<Rare>()));
        let before = resident_kb();
        let tables: Vec<_> =
            (0..TABLES).map(|_| (Table::<Hot>::new(PEER_SLOTS_MAX), Table::<Rare>::new(PEER_SLOTS_MAX))).collect();
        let slots = || tables.iter().flat_map(|(hot, rare)| hot.iter().zip(&**rare));
        let sent: u64 = slots().map(|(hot, rare)| PeerStatistics { hot, rare }.read().sent).sum();
        let read = resident_kb() - before;
        // One in each page, and in some of the rare table's: a new holder's start writes no zero over a rare zero.
        for (hot, rare) in slots().step_by(32) {
            PeerStatistics { hot, rare }.reset();
        }
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
