//! What the prober saw, per slot and per pair of zones: counters and a histogram of round-trip times.
//!
//! One thread writes (the probe loop), any number read (the HTTP workers), and neither waits for the other: every
//! number is an atomic of its own, and the order of writing and reading keeps the sums sound (`sent` is written first
//! and read last, so that a reader never sees more answers than probes).

mod echo;
mod histogram;
mod lag;
mod recent;
mod slots;
mod zones;

pub use echo::{EchoCounters, RecentEchoes};
pub use histogram::{Bounds, HISTOGRAM_BUCKETS, Histogram, HistogramReading};
pub use lag::SendLag;
pub use recent::{RECENT_HALF, RecentReading};
pub use slots::{PeerReading, PeerStatistics};
pub use zones::{ZoneReading, ZoneStatistics};

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::limits::{PEER_SLOTS_MAX, ZONES_MAX};
use crate::peers::{Change, Protocol, SlotId, ZoneId};
use crate::prober::{Event, Sink};
use crate::units::Nanos;

/// Slots that are allocated together.
const CHUNK: usize = 64;

/// All of an agent's statistics. Chunks are allocated as slots come into use and never move.
#[derive(Debug)]
pub struct Statistics {
    bounds: Bounds,
    chunks: Box<[OnceLock<Box<[PeerStatistics]>>]>,
    zones: Box<[OnceLock<Box<ZoneStatistics>>]>,
    send_lag: SendLag,
    read_delay: SendLag,
    echoes: RecentEchoes,
    unrelated: AtomicU64,
    /// Which half of the last minute is being filled; see [`recent`].
    window: AtomicU32,
    window_started: AtomicU64,
}

/// Adds on the writer's side. A plain load and store, for there is one writer: no locked instruction is needed.
fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Release);
}

fn bump32(counter: &AtomicU32) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
}

impl Statistics {
    /// Empty statistics with these histogram bounds.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            chunks: (0..PEER_SLOTS_MAX.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
            zones: (0..ZONES_MAX * Protocol::ALL.len()).map(|_| OnceLock::new()).collect(),
            send_lag: SendLag::default(),
            read_delay: SendLag::default(),
            echoes: RecentEchoes::default(),
            unrelated: AtomicU64::new(0),
            window: AtomicU32::new(0),
            window_started: AtomicU64::new(0),
        }
    }

    /// The histogram's bounds.
    pub const fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// How late probes went out.
    pub const fn send_lag(&self) -> &SendLag {
        &self.send_lag
    }

    /// What our network namespace counted lately.
    pub const fn recent_echoes(&self) -> &RecentEchoes {
        &self.echoes
    }

    /// Replies that answered no probe of ours.
    pub fn unrelated(&self) -> u64 {
        self.unrelated.load(Ordering::Relaxed)
    }

    /// The statistics of a slot that has ever been in use.
    pub fn slot(&self, slot: SlotId) -> Option<&PeerStatistics> {
        self.chunks.get(slot.index() / CHUNK)?.get()?.get(slot.index() % CHUNK)
    }

    /// The statistics of our zone to `zone` over `protocol`, if anything was ever sent there.
    pub fn zone(&self, zone: ZoneId, protocol: Protocol) -> Option<&ZoneStatistics> {
        self.zones.get(zone_index(zone, protocol))?.get().map(|boxed| &**boxed)
    }

    /// Takes over a change of the peer list. Must be called under the directory's write lock, so that no reader sees
    /// the numbers of a slot's former holder under the new one's name.
    pub fn apply(&self, change: Change) {
        match change {
            Change::Join { slot } => {
                let Some(chunk) = self.chunks.get(slot.index() / CHUNK) else { return };
                let slots = chunk.get_or_init(|| (0..CHUNK).map(|_| PeerStatistics::default()).collect());
                slots[slot.index() % CHUNK].reset();
            }
            Change::Probe { slot, address, zone, .. } => {
                if let Some(statistics) = self.slot(slot) {
                    statistics.zone.store(zone.0, Ordering::Relaxed);
                    statistics.protocol.store(Protocol::of(address) as u8, Ordering::Relaxed);
                    let index = zone_index(zone, Protocol::of(address));
                    self.zones[index].get_or_init(Box::default);
                }
            }
            Change::Stop { .. } => {}
        }
    }

    /// Tells the time: turns to the next half-minute of the recent statistics when it is over. Called at every turn.
    pub fn tick(&self, now: Nanos) {
        if now.since(Nanos(self.window_started.load(Ordering::Relaxed))) >= RECENT_HALF {
            self.window_started.store(now.0, Ordering::Relaxed);
            self.echoes.turn(EchoCounters::read());
            bump32(&self.window);
        }
    }

    /// The last 30 to 60 seconds of a slot. `age` of the reading is filled in from `now`.
    pub fn recent(&self, slot: SlotId, now: Nanos) -> Option<RecentReading> {
        let window = self.window.load(Ordering::Acquire);
        let current = now.since(Nanos(self.window_started.load(Ordering::Relaxed)));
        Some(self.slot(slot)?.recent.read(window, current))
    }
}

const fn zone_index(zone: ZoneId, protocol: Protocol) -> usize {
    zone.0 as usize * Protocol::ALL.len() + protocol as usize
}

/// The writer's handle: the probe loop's end of the statistics.
impl Sink for &Statistics {
    fn event(&mut self, slot: SlotId, event: Event) {
        let Some(peer) = self.slot(slot) else { return };
        peer.record(event, &self.bounds, self.window.load(Ordering::Relaxed));
        if matches!(event, Event::Received { .. } | Event::Lost) {
            let zone = usize::from(peer.zone.load(Ordering::Relaxed)) * Protocol::ALL.len();
            let index = zone + usize::from(peer.protocol.load(Ordering::Relaxed));
            if let Some(zone) = self.zones.get(index).and_then(OnceLock::get) {
                zone.record(event, &self.bounds);
            }
        }
    }

    fn send_lag(&mut self, lag: Nanos) {
        self.send_lag.observe(lag);
    }

    fn read_delay(&mut self, delay: Nanos) {
        self.read_delay.observe(delay);
    }

    fn unrelated(&mut self) {
        bump(&self.unrelated, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prober::Stamp;
    use std::net::IpAddr;

    const SLOT: SlotId = SlotId(70);
    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn received(rtt: u64, reordered: bool) -> Event {
        Event::Received { rtt: Nanos(rtt), reordered, sequence: 0, stamp: Stamp::Kernel }
    }

    fn statistics() -> Statistics {
        let s = Statistics::new(Bounds::default());
        s.apply(Change::Join { slot: SLOT });
        s.apply(Change::Probe { slot: SLOT, address: ADDRESS, zone: ZoneId(2), terminating: false });
        s
    }

    #[test]
    fn events_count_for_the_peer_and_for_its_zone() {
        let s = statistics();
        let mut sink = &s;
        for event in [
            Event::Sent,
            received(30_000, true),
            Event::Sent,
            Event::Lost,
            Event::Late,
            Event::Duplicate,
            Event::Corrupt,
            Event::NotSent(crate::prober::SendError::NoRoute),
            Event::Terminating { answered: false },
        ] {
            sink.event(SLOT, event);
        }
        let peer = s.slot(SLOT).unwrap().read();
        assert_eq!((peer.sent, peer.received, peer.lost, peer.late), (2, 1, 1, 1));
        assert_eq!((peer.duplicate, peer.reordered, peer.corrupt), (1, 1, 1));
        assert_eq!((peer.send_errors[0], peer.terminating), (1, [0, 1]));
        let zone = s.zone(ZoneId(2), Protocol::Icmp).unwrap().read();
        assert_eq!((zone.sent, zone.received, zone.lost, zone.rtt.count()), (2, 1, 1, 1));
        assert!(s.zone(ZoneId(1), Protocol::Icmp).is_none() && s.slot(SlotId(200)).is_none());
    }

    #[test]
    fn a_new_holder_of_a_slot_starts_at_zero_and_its_zone_goes_on() {
        let s = statistics();
        (&s).event(SLOT, Event::Sent);
        (&s).event(SLOT, Event::Lost);
        s.apply(Change::Join { slot: SLOT });
        assert_eq!(s.slot(SLOT).unwrap().read().sent, 0);
        assert_eq!(s.zone(ZoneId(2), Protocol::Icmp).unwrap().read().sent, 1);
    }

    #[test]
    fn recent_statistics_cover_the_last_half_to_whole_minute() {
        let s = statistics();
        let second = |n: u64| Nanos(n * 1_000_000_000);
        for t in 1..=300 {
            s.tick(second(t));
            (&s).event(SLOT, Event::Sent);
            (&s).event(SLOT, if t < 200 { received(1_000, false) } else { Event::Lost });
            let recent = s.recent(SLOT, second(t)).unwrap();
            assert!(recent.sent <= 61 && (t < 60 || recent.sent >= 30), "{t}: {recent:?}");
        }
        let recent = s.recent(SLOT, second(300)).unwrap();
        assert_eq!(recent.received, 0, "nothing older than a minute is left");
        assert_eq!(recent.lost, recent.sent);
        assert!((30.0..=60.0).contains(&recent.seconds));
    }

    #[test]
    fn a_slot_stays_within_its_bytes() {
        println!("statistics per slot: {} bytes", size_of::<PeerStatistics>());
        assert!(size_of::<PeerStatistics>() <= 256);
    }
}
