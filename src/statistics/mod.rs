//! Counters and histograms of round-trip times, per peer slot and per pair of zones.
//!
//! One thread writes (the probe loop) and any number of threads read (the HTTP workers). Neither
//! waits for the other. Every number is an atomic, and the order of writes and reads keeps the sums
//! consistent: `sent` is written first and read last, so a reader never sees more answers than
//! probes. All memory is reserved at the start. Pages that were never written are not resident
//! ([`kube_canary_kernel::region`]).

mod bounds;
mod checks;
mod echo;
mod flows;
#[cfg(feature = "fuzzing")]
pub use echo::fuzz_snmp;
mod halves;
mod histogram;
mod hour;
mod lag;
mod minute;
mod own;
mod recent;
mod record;
mod scale;
mod slots;
mod turns;
mod udp;
mod unsent;
mod variation;
mod zones;

pub use bounds::BucketBounds;
pub use checks::{CHECK_FAMILIES, CHECK_SERVERS_MAX, CHECK_TARGET_BYTES_MAX, CheckBoard, CheckRecord};
pub use echo::EchoCounters;
pub use flows::{FlowReading, FlowWay, RecentFlows};
pub use histogram::{ClassicReading, Histogram, HistogramReading};
pub use hour::{HourReading, HourStep, LinksHour, TenMinuteOutcomes};
pub use lag::{LagCounts, SendLag};
pub use own::{OwnCounters, RecentOwn, probe_thread_run_delay};
use recent::Counts;
pub use recent::RecentReading;
pub use scale::{BINS_MAX, Scale};
pub use slots::{PeerReading, PeerStatistics};
pub use udp::{MtuReading, UdpLinks, WaysReading};
pub use unsent::UnsentReading;
use zones::ZonePairs;
pub use zones::{ZoneReading, ZoneStatistics};

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::limits::{HOUR_STEP, PEER_SLOTS_MAX, TCP_INTERVAL};
use crate::peers::{Change, Compaction, Family, Method, Methods, SlotId, Via, ZoneId};
use crate::prober::{SendError, Stamp};
use crate::sys::clock;
use crate::units::Nanos;
use halves::{Halves, HalvesEnd};
use hour::Hours;
use own::Marks;
use scale::SCHEMA_MAX;
use slots::{Counters, Outcomes, Slots};
use udp::UdpSlots;
use unsent::SendErrors;

/// In place of a count: the kernel does not tell it.
const NOT_TOLD: u64 = u64::MAX;
/// Attempts to read the recent window of a peer. An attempt fails if a half ends during it. Halves
/// end at least 1.7 s apart, so the second attempt succeeds, unless the reader has lost its CPU
/// over the next end as well.
const RECENT_READS_MAX: usize = 3;
/// The finest schema of a link's handshakes: two buckets per octave. There are six handshakes a
/// minute, and their times are not exported as a histogram. A link takes 0.3 KB instead of 1 KB.
const TCP_SCHEMA_MAX: u8 = 1;

/// All statistics of an agent. The tables are allocated once, for the largest possible number of
/// slots, and are shared without locks. Only the probe thread writes, through
/// [`Statistics::record`], and through [`Statistics::apply`] when a slot changes hands. The HTTP
/// workers read.
#[derive(Debug)]
pub struct Statistics {
    methods: Methods,
    counters: Arc<Counters>,
    /// In the order of [`Method::ALL`].
    numbers: [Option<MethodNumbers>; 3],
    /// What only UDP probes find out.
    links: Option<UdpSlots>,
    scale: Arc<Scale>,
    /// There are few zone pairs, so they use the finest scale.
    zone_scale: Arc<Scale>,
    send_lag: SendLag,
    read_delay: SendLag,
    marks: Marks,
    unrelated: AtomicU64,
    skipped: AtomicU64,
    /// [`NOT_TOLD`] if the kernel does not tell it.
    receive_queue_drops: AtomicU64,
    /// Number of round-trip times per source of their timestamps, in the order of [`Stamp::ALL`].
    stamps: [AtomicU64; 2],
    send_errors: SendErrors,
    checks: CheckBoard,
    /// Number of probes to terminating peers: answered, not answered.
    terminating: [AtomicU64; 2],
    /// Source ports of the flows: of IPv4, of IPv6.
    flow_ports: OnceLock<[Vec<u16>; 2]>,
    /// Number of requests that our reflector has not answered.
    requests_refused: AtomicU64,
    /// Since when the agent has served the probes of others, on the monotonic clock; 0 if it does
    /// not.
    listening_since: AtomicU64,
    /// When the agent started, in seconds since the epoch.
    created: u32,
    interval: Nanos,
    /// The current half of the recent window; see [`recent`].
    halves: Halves,
}

/// What is counted for one method.
#[derive(Debug)]
struct MethodNumbers {
    slots: Slots,
    zones: ZonePairs,
    hours: Hours,
    /// Time between two probes to the same peer.
    interval: Nanos,
    /// Numbers of probes in [`LOSS_KNOWN_AFTER`] and [`APART`].
    counts: Counts,
}

/// A loss is known within this time, at timeouts of up to 5 s.
const LOSS_KNOWN_AFTER: Nanos = Nanos::from_millis(6_000);
/// A loss after this long without one is another loss, as judges say of verdicts.
const APART: Nanos = Nanos::from_millis(90_000);
/// Answers in a row that it needs at long intervals.
const APART_MIN: u64 = 2;

/// The numbers of one method, to read.
#[derive(Clone, Copy, Debug)]
pub struct MethodStatistics<'a> {
    halves: &'a Halves,
    numbers: Option<&'a MethodNumbers>,
}

/// Adds to a counter, as its only writer. With one writer, a plain load and store is enough,
/// without a locked instruction.
fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Release);
}

fn bump32(counter: &AtomicU32) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
}

impl Statistics {
    /// Makes empty statistics of ICMP probes alone, as [`Statistics::for_methods`] does.
    pub fn new(scale: Scale, interval: Nanos) -> Self {
        Self::for_methods(scale, interval, Methods::ICMP, Methods::ICMP)
    }

    /// Makes empty statistics. `scale` is that of the links; each peer is probed once per
    /// `interval` by each of the methods, but by TCP at most once per [`TCP_INTERVAL`]. Round-trip
    /// times of links since the start are kept for `timed` methods.
    pub fn for_methods(scale: Scale, interval: Nanos, methods: Methods, timed: Methods) -> Self {
        let (scale, send_lag) = (Arc::new(scale), SendLag::default());
        let is_finest = scale.schema() == SCHEMA_MAX;
        let tcp_scale = Arc::new(scale.with_schema(scale.schema().min(TCP_SCHEMA_MAX)));
        let counters = Arc::new(Counters::new(PEER_SLOTS_MAX, methods.iter().count()));
        let numbers = Method::ALL.map(|method| {
            let (scale, interval) = match method {
                Method::Icmp | Method::Udp => (Arc::clone(&scale), interval),
                Method::Tcp => (Arc::clone(&tcp_scale), interval.max(TCP_INTERVAL.into())),
            };
            let nth = methods.iter().position(|of| of == method)?;
            Some(MethodNumbers::new(scale, interval, (Arc::clone(&counters), nth), timed.has(method)))
        });
        Self {
            zone_scale: if is_finest { Arc::clone(&scale) } else { Arc::new(scale.with_schema(SCHEMA_MAX)) },
            links: methods.has(Method::Udp).then(UdpSlots::new),
            methods,
            counters,
            numbers,
            scale,
            read_delay: send_lag.sibling(),
            send_lag,
            marks: Marks::default(),
            unrelated: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            receive_queue_drops: AtomicU64::new(NOT_TOLD),
            stamps: [const { AtomicU64::new(0) }; 2],
            send_errors: SendErrors::new(),
            checks: CheckBoard::default(),
            terminating: [const { AtomicU64::new(0) }; 2],
            flow_ports: OnceLock::new(),
            requests_refused: AtomicU64::new(0),
            listening_since: AtomicU64::new(0),
            created: epoch_seconds(),
            interval,
            halves: Halves::new(interval),
        }
    }

    /// Returns the methods that are counted.
    pub const fn methods(&self) -> Methods {
        self.methods
    }

    /// Returns the numbers of a method. They have no slots and no zones if the method is not used.
    pub const fn method(&self, method: Method) -> MethodStatistics<'_> {
        MethodStatistics { halves: &self.halves, numbers: self.numbers[method as usize].as_ref() }
    }

    /// Returns what only UDP probes find out about a slot. `None` if there are no UDP probes, and
    /// for a slot past the last possible one.
    pub fn udp(&self, slot: SlotId) -> Option<UdpLinks<'_>> {
        self.links.as_ref()?.get(slot, &self.halves)
    }

    /// Returns the scale of the links' round-trip times by ICMP and UDP.
    pub fn scale(&self) -> &Scale {
        &self.scale
    }

    /// Returns the scale of the zone pairs' round-trip times.
    pub fn zone_scale(&self) -> &Scale {
        &self.zone_scale
    }

    /// Returns the bytes that become resident for each peer that is probed.
    pub fn resident_bytes_per_peer(&self) -> usize {
        self.numbers.iter().flatten().map(|numbers| numbers.slots.resident_bytes_per_peer()).sum()
    }

    /// Returns when the agent started, in seconds since the epoch.
    pub const fn created(&self) -> u32 {
        self.created
    }

    /// Returns what checks have found.
    pub const fn checks(&self) -> &CheckBoard {
        &self.checks
    }

    /// Returns the number of probes over all links that were not sent for this reason.
    pub fn send_errors(&self, reason: SendError) -> u64 {
        let of_method = |method| Family::ALL.map(|family| self.send_errors_of(method, family, reason));
        Method::ALL.into_iter().flat_map(of_method).sum()
    }

    /// Returns the number of probes of one method and family that were not sent for this reason.
    pub fn send_errors_of(&self, method: Method, family: Family, reason: SendError) -> u64 {
        self.send_errors.read(method, family, reason)
    }

    /// Returns the number of probes to terminating peers that were answered, or that were not.
    pub fn terminating(&self, answered: bool) -> u64 {
        self.terminating[usize::from(!answered)].load(Ordering::Relaxed)
    }

    /// Returns the histogram of how late probes were sent.
    pub const fn send_lag(&self) -> &SendLag {
        &self.send_lag
    }

    /// Returns the histogram of how long replies waited between the kernel's
    /// timestamp and our read.
    pub const fn read_delay(&self) -> &SendLag {
        &self.read_delay
    }

    /// Returns the number of round-trip times whose timestamps were taken by `stamp`.
    pub fn stamps(&self, stamp: Stamp) -> u64 {
        self.stamps[stamp as usize].load(Ordering::Relaxed)
    }

    /// Sets the source ports of the flows, once: those of IPv4 and those of IPv6.
    pub fn set_flow_ports(&self, ports: [Vec<u16>; 2]) {
        _ = self.flow_ports.set(ports);
    }

    /// Returns the source ports of the flows of a family. Empty if there are none.
    pub fn flow_ports(&self, family: Family) -> &[u16] {
        self.flow_ports.get().map_or(&[], |ports| &ports[family as usize])
    }

    /// Stores how many requests our reflector has not answered.
    pub fn set_requests_refused(&self, refused: u64) {
        self.requests_refused.store(refused, Ordering::Relaxed);
    }

    /// Returns the number last given to [`Statistics::set_requests_refused`].
    pub fn requests_refused(&self) -> u64 {
        self.requests_refused.load(Ordering::Relaxed)
    }

    /// Stores since when the agent has served the probes of others. Without UDP and TCP it serves
    /// none, because the kernel answers echo requests, and nothing is stored.
    pub fn set_listening_since(&self, since: Nanos) {
        if [Method::Udp, Method::Tcp].iter().any(|method| self.methods().has(*method)) {
            self.listening_since.store(since.0.max(1), Ordering::Relaxed);
        }
    }

    /// Returns for how long the agent has served the probes of others without a gap. `None` if it
    /// does not serve any.
    pub fn listening_for(&self, now: Nanos) -> Option<Nanos> {
        let since = self.listening_since.load(Ordering::Relaxed);
        (since > 0).then(|| now.since(Nanos(since)))
    }

    /// Returns the time between two probes to the same peer.
    pub const fn interval(&self) -> Nanos {
        self.interval
    }

    /// Reads the counters that the agent keeps about itself. Reads three files of
    /// /proc and allocates nothing.
    pub fn own(&self) -> OwnCounters {
        OwnCounters {
            echoes: EchoCounters::read(),
            send_lag: self.send_lag.counts(),
            read_delay: self.read_delay.counts(),
            skipped: self.skipped(),
            receive_queue_drops: self.receive_queue_drops(),
            run_delay: probe_thread_run_delay(),
        }
    }

    /// Returns how much of `own`, read at `now`, was counted in the recent window.
    pub fn recent_own(&self, own: &OwnCounters, now: Nanos) -> RecentOwn {
        self.marks.read(now, own)
    }

    /// Stores the number of packets that the kernel dropped because our sockets' queues were full,
    /// if it tells it.
    pub fn set_receive_queue_drops(&self, drops: Option<u64>) {
        self.receive_queue_drops.store(drops.unwrap_or(NOT_TOLD), Ordering::Relaxed);
    }

    /// Returns the number last given to [`Statistics::set_receive_queue_drops`].
    pub fn receive_queue_drops(&self) -> Option<u64> {
        Some(self.receive_queue_drops.load(Ordering::Relaxed)).filter(|drops| *drops != NOT_TOLD)
    }

    /// Returns the number of replies that answered no probe of this agent.
    pub fn unrelated(&self) -> u64 {
        self.unrelated.load(Ordering::Relaxed)
    }

    /// Returns the number of probes left out because the agent was stopped for
    /// longer than an interval.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// Applies a change of the peer list. The caller holds the directory's write lock, so no reader
    /// sees the numbers of a slot's former peer under the name of the new one.
    pub fn apply(&self, change: Change) {
        for method in self.methods.iter() {
            self.apply_to(method, change);
        }
        if let (Change::Join { slot }, Some(links)) = (change, &self.links) {
            links.reset(slot);
        }
    }

    fn apply_to(&self, method: Method, change: Change) {
        let Some(numbers) = &self.numbers[method as usize] else { return };
        match change {
            Change::Join { slot } => {
                if let Some(statistics) = numbers.slots.get(slot.index()) {
                    statistics.reset(epoch_seconds());
                }
                numbers.hours.join(slot);
            }
            Change::Probe { slot, address, zone, network, .. } => {
                let via = Via::to(address, network);
                let in_slot = numbers.slots.get(slot.index()).filter(|_| via.allows(method));
                if let Some(PeerStatistics { hot, .. }) = in_slot {
                    hot.zone.store(zone.0, Ordering::Relaxed);
                    hot.via.store(via.index(), Ordering::Relaxed);
                    let rtt_scale = (method == Method::Icmp).then_some(&*self.zone_scale);
                    if let Some(pair) = numbers.zones.get_or_init(zone, via, || ZoneStatistics::new(rtt_scale)) {
                        pair.begin(epoch_seconds());
                    }
                }
            }
            Change::Zone { zone } => {
                numbers.zones.pairs_with(zone).for_each(ZoneStatistics::end);
            }
            Change::Stop { .. } => {}
        }
    }

    /// Moves the statistics as `compaction` says, and returns the memory of unused slots to the
    /// kernel. Like [`Statistics::apply`], it needs the directory's write lock.
    pub fn compact(&self, compaction: &Compaction) {
        for method in self.methods.iter() {
            let of = self.method(method);
            let Some(numbers) = of.numbers else { continue };
            for (from, to) in compaction.moves() {
                if let (Some(from), Some(to)) = (of.slot(from), of.slot(to)) {
                    to.take_over(from);
                }
            }
            numbers.hours.compact(compaction, |slot| of.outcomes(slot));
            numbers.slots.give_back(compaction.slots());
        }
        self.counters.give_back(compaction.slots());
        if let Some(links) = &self.links {
            links.compact(compaction);
        }
    }

    /// Returns the resident memory of the numbers that every probe touches, in
    /// bytes of whole pages.
    pub fn resident_bytes(&self) -> usize {
        let times = self.numbers.iter().flatten().map(|numbers| numbers.slots.resident_bytes());
        times.sum::<usize>() + self.counters.resident_bytes()
    }

    /// Returns the resident memory of the hours, in bytes of whole pages.
    pub fn hour_resident_bytes(&self) -> usize {
        self.numbers.iter().flatten().map(|numbers| numbers.hours.resident_bytes()).sum()
    }

    /// Advances the recent window to the next half if the current one is over at `now`. Also ends
    /// the minute, if that half was its last. Called at every turn.
    pub fn tick(&self, now: Nanos) {
        let due = self.halves.due(now);
        self.halves.set_second(now);
        let Some(turn) = due else { return };
        // While a reader holds the marks, nothing advances; the next tick tries again.
        if self.marks.turn(now, &self.own()) {
            self.end_minute(turn);
            self.halves.turn(turn);
        }
    }

    /// Returns when the first half of the recent window began, the length of each half, and the
    /// number of the current one. `None` before the first tick.
    pub fn recent_halves(&self) -> Option<(Nanos, Nanos, u32)> {
        self.halves.grid().map(|(begun, half)| (begun, half, self.halves.current()))
    }

    fn end_minute(&self, HalvesEnd { from, to }: HalvesEnd) {
        let [ended, begun] = [from, to].map(|half| self.halves.minute(half));
        if begun == ended {
            return;
        }
        // The times are those of the half that ended, and of the half before it if it is
        // in the same minute.
        let and_before = !self.halves.is_first(from);
        for method in self.methods.iter() {
            let of = self.method(method);
            let Some(numbers) = of.numbers else { continue };
            numbers.hours.turn(ended, begun, |slot| {
                let Some(peer) = of.slot(slot) else { return Default::default() };
                let recent = peer.recent().read(modulo(from), and_before, 0.0);
                let times = recent.and_then(|recent| recent.rtt_p50_seconds.zip(recent.rtt_p99_seconds));
                (peer.outcomes(), times.map(|(p50, p99)| [p50, p99].map(minute::octave)))
            });
        }
    }
}

impl<'a> MethodStatistics<'a> {
    /// Returns the statistics of a slot. `None` for a slot past the last possible one; zeroes for a
    /// slot that was never in use.
    pub fn slot(self, slot: SlotId) -> Option<PeerStatistics<'a>> {
        self.numbers?.slots.get(slot.index())
    }

    /// Returns the statistics from our zone to `zone` by `via`, if such a probe was ever
    /// sent. The caller holds the directory's lock, as for the zone's name: the number may be
    /// given to another zone.
    pub fn zone(self, zone: ZoneId, via: Via) -> Option<&'a ZoneStatistics> {
        self.numbers?.zones.get(zone, via.index()).filter(|pair| pair.is_in_use())
    }

    /// Returns the number of zone pairs for which [`MethodStatistics::zone`] returns statistics.
    pub fn zone_pairs(self) -> usize {
        let pairs = self.numbers.iter().flat_map(|numbers| numbers.zones.iter());
        pairs.filter(|pair| pair.is_in_use()).count()
    }

    /// Reads one to two halves of a slot's last minute, up to `now`. `None` for a slot past the
    /// last possible one, and for a reader that loses its CPU while several halves end.
    pub fn recent(self, slot: SlotId, now: Nanos) -> Option<RecentReading> {
        let peer = self.slot(slot)?;
        let recent = peer.recent();
        // A second read is needed only if a half ended during the first. The next end is more
        // than a second away.
        (0..RECENT_READS_MAX).find_map(|_| {
            let half = self.halves.current();
            let seconds = self.halves.covered(half, now).as_secs_f64();
            recent.read(modulo(half), true, seconds)
        })
    }

    /// Returns the 99th percentile of the round-trip times of these slots in the recent window, in
    /// seconds. `None` if no probe was answered.
    pub fn recent_rtt_p99_seconds(self, slots: impl Iterator<Item = SlotId>) -> Option<f64> {
        let (half, mut sums) = (modulo(self.halves.current()), [0; BINS_MAX]);
        slots.filter_map(|slot| self.slot(slot)).for_each(|peer| peer.recent().add_times(half, &mut sums));
        self.numbers?.slots.scale().quantile_of_bins(0.99, sums)
    }

    /// Reads the probes to the peer of a slot that could not be sent in the recent window.
    pub fn unsent(self, slot: SlotId) -> UnsentReading {
        self.slot(slot).map(|peer| peer.unsent(self.halves.current())).unwrap_or_default()
    }

    /// Whether a lost handshake with the peer of a slot was refused in the recent window: its host
    /// answers, and no agent listens.
    pub fn is_refused(self, slot: SlotId) -> bool {
        self.slot(slot).is_some_and(|peer| peer.is_refused(self.halves.current()))
    }

    /// Returns the seconds since the last loss of the `recent` window was known; at most 255, and
    /// 0 if no probe was answered since.
    pub fn answered_seconds(self, slot: SlotId, recent: &RecentReading) -> u32 {
        let since = |peer: PeerStatistics<'_>| peer.recent().seconds_since_loss(self.halves.moment().second);
        let seconds = self.slot(slot).map_or(0, since);
        if recent.answered_since > 0 { seconds.max(1).into() } else { 0 }
    }

    /// Reads the last hour of a slot, in steps of a minute. `None` if the slot has no hour
    /// ([`crate::limits::HOUR_PEERS_MAX`]).
    pub fn hour(self, slot: SlotId) -> Option<HourReading> {
        let numbers = self.numbers?;
        let minutes = numbers.hours.read(slot)?;
        let (minute, interval) = (Nanos::from(HOUR_STEP).0, numbers.interval.0.max(1));
        let probes = u32::try_from((minute + interval / 2) / interval).unwrap_or(u32::MAX).max(1);
        Some(HourReading { minutes, probes, end: self.halves.minute_begin(minutes.ended) })
    }

    /// Returns when the current run of losing minutes began, on the monotonic clock. `None` if
    /// nothing was lost in the `recent` window, or if the slot has no hour.
    ///
    /// It is the time at which the first loss was known. A loss begins a run if the probes of
    /// [`APART`] before it were answered, and at least two. At intervals so short that these cannot
    /// be counted, and where probes before it were not measured, it is the start of its minute if
    /// other losses were before it.
    ///
    /// A run may have a gap of one minute. At intervals of `i` minutes, only every `i`th
    /// minute can have a loss, so the gap may be `2i - 1` minutes. A run that is as old as
    /// the hour may be older.
    pub fn losing_since(self, slot: SlotId, recent: &RecentReading) -> Option<Nanos> {
        if recent.lost == 0 {
            return None;
        }
        let numbers = self.numbers?;
        let minutes_apart = numbers.interval.0.div_ceil(Nanos::from(HOUR_STEP).0).max(1);
        let gap = u32::try_from(2 * minutes_apart - 1).unwrap_or(u32::MAX);
        let minute = numbers.hours.losing_since(slot, gap, || self.outcomes(slot).lost)?;
        let first_lost = self.slot(slot).map(|peer| peer.recent().first_lost())?;
        let is_counted = numbers.counts.apart < u8::MAX;
        Some(self.halves.at_or_after(minute, first_lost, is_counted))
    }

    fn outcomes(self, slot: SlotId) -> Outcomes {
        self.slot(slot).map(|peer| peer.outcomes()).unwrap_or_default()
    }
}

impl MethodNumbers {
    fn new(scale: Arc<Scale>, interval: Nanos, counters: (Arc<Counters>, usize), timed: bool) -> Self {
        Self {
            slots: Slots::new(scale, PEER_SLOTS_MAX, counters, timed),
            zones: ZonePairs::new(),
            hours: Hours::new(),
            interval,
            counts: Counts {
                late: u8::try_from(LOSS_KNOWN_AFTER.0.div_ceil(interval.0.max(1))).unwrap_or(u8::MAX),
                apart: u8::try_from(APART.0.div_ceil(interval.0.max(1)).max(APART_MIN)).unwrap_or(u8::MAX),
            },
        }
    }
}

/// Returns the wall-clock time in whole seconds since the epoch, rounded down so that it is never
/// later than the first count. Valid until the year 2106.
fn epoch_seconds() -> u32 {
    u32::try_from(clock::realtime().0 / 1_000_000_000).unwrap_or(u32::MAX)
}

/// Reduces the number of a half, or a second, to the 16 bits that a slot stores.
#[expect(clippy::cast_possible_truncation, reason = "that is what is meant")]
const fn modulo(number: u32) -> u16 {
    number as u16
}

#[cfg(test)]
mod tests;
