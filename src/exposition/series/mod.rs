//! Which series a scrape exports, so that no scrape ever exceeds the budget and none flaps.
//!
//! Decided at the beginning of a scrape and held until its end, whatever joins, leaves or fails meanwhile: a [`Plan`] names
//! the slots and zone pairs, and everybody in it has room for what may yet happen to it. Scrapes at the same time share one.
//! The HTTP workers alone make plans, under the lock of the registry's text; the probe thread knows nothing of them.

mod forms;
mod worst;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use forms::{Costs, Peers, Zones};
use forms::{Demand, Extra, ExtraDemand, Forms, Ladder, PEER_COUNTERS, SEND_ERRORS_RESERVE, SUMS, WORST_COST};
use worst::{Badness, Candidate, Worst};

use crate::limits::{HEAD_SHARED_TIME, WORST_PEERS_MAX, ZONES_MAX};
use crate::peers::{Directory, Peer, Presence, SlotId, Via, ZoneId};
use crate::statistics::{PeerReading, Statistics};
use crate::units::Nanos;

/// Zone pairs that there can be.
pub const ZONE_PAIRS: usize = ZONES_MAX * Via::ALL.len();

/// What one scrape exports, and all that begin within a moment of it.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    forms: Forms,
    /// A bit for each slot: 2 KB at most.
    slots: Set,
    /// Who is in those slots, in their order, where they are not everybody's.
    chosen: Vec<(SlotId, u64)>,
    zones: Set,
    further: usize,
    overflown: Flag,
    suppressed: usize,
    at: Nanos,
}

impl Plan {
    /// How peers are exported.
    pub const fn peers(&self) -> Peers {
        self.forms.peers
    }

    /// How zone pairs are exported.
    pub const fn zones(&self) -> Zones {
        self.forms.zones
    }

    /// Whether the peer in that slot is exported.
    pub fn has_peer(&self, slot: SlotId, peer: Peer<'_>) -> bool {
        self.slots.has(slot.index())
            && (self.forms.peers != Peers::Worst
                || self.chosen.binary_search_by_key(&slot, |(slot, _)| *slot).is_ok_and(|at| {
                    // Else somebody has come into the slot since.
                    self.chosen[at].1 == identity(peer)
                }))
    }

    /// Whether that zone pair is exported, by its place in the order of zone and way.
    pub fn has_zone_pair(&self, pair: usize) -> bool {
        self.zones.has(pair)
    }

    /// Series of send errors that may be exported beyond one of each peer.
    pub const fn further_send_errors(&self) -> usize {
        self.further
    }

    /// There were more of those.
    pub fn overflows(&self) {
        self.overflown.0.store(true, Ordering::Relaxed);
    }

    /// Series that are left out.
    pub const fn suppressed(&self) -> usize {
        self.suppressed
    }
}

/// A plan's own, also where it is made in the likeness of one that is still in use: what becomes of that one's scrapes is nothing
/// to it.
#[derive(Debug, Default)]
struct Flag(AtomicBool);

impl Clone for Flag {
    fn clone(&self) -> Self {
        Self(AtomicBool::new(self.0.load(Ordering::Relaxed)))
    }
}

/// A set of small numbers, as large as the largest asks for.
#[derive(Clone, Debug, Default)]
struct Set(Vec<u64>);

impl Set {
    fn has(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn put(&mut self, number: usize) {
        if let Some(word) = self.0.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
    }

    /// Empty, with room for the numbers below `end`.
    fn reset(&mut self, end: usize) {
        self.0.clear();
        self.0.resize(end.div_ceil(64), 0);
    }

    fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
}

/// Series that appear once something has happened.
#[derive(Clone, Copy, Debug, Default)]
struct Rare {
    peers: usize,
    terminating: usize,
    send_errors: usize,
    /// Of those, what is beyond the reserve of their peers.
    further: usize,
    /// Of who has which for the reserve.
    fingerprint: u64,
}

impl Rare {
    fn count(&mut self, slot: SlotId, reading: &PeerReading) {
        let above_zero = |counts: &[u32]| counts.iter().filter(|count| **count > 0).count();
        let send_errors = above_zero(&reading.send_errors);
        self.peers += 1;
        self.terminating += above_zero(&reading.terminating);
        self.send_errors += send_errors;
        self.further += send_errors.saturating_sub(SEND_ERRORS_RESERVE);
        if let Some(first) = reading.send_errors.iter().position(|count| *count > 0) {
            let mut hasher = DefaultHasher::new();
            (slot, first).hash(&mut hasher);
            self.fingerprint = self.fingerprint.wrapping_add(hasher.finish());
        }
    }

    fn count_all(&mut self, slots: impl Iterator<Item = SlotId>, statistics: &Statistics) {
        for (slot, peer) in slots.filter_map(|slot| Some((slot, statistics.slot(slot)?))) {
            self.count(slot, &peer.read());
        }
    }
}

/// Makes plans, each in the light of those before.
#[derive(Debug, Default)]
pub struct Planner {
    ladder: Ladder,
    further: Extra,
    worst: Worst,
    plan: Option<Arc<Plan>>,
}

impl Planner {
    /// The plan of a scrape that begins `now`: a new one, in the memory of the last, unless scrapes that have begun a moment
    /// ago are still under way by that.
    pub fn plan(&mut self, now: Nanos, costs: &Costs, directory: &Directory, statistics: &Statistics) -> Arc<Plan> {
        let last = self.plan.take();
        let mut plan = match last {
            Some(last) if Arc::strong_count(&last) > 1 && now.since(last.at) < HEAD_SHARED_TIME.into() => {
                return Arc::clone(self.plan.insert(last));
            }
            last => last.unwrap_or_default(),
        };
        self.renew(Arc::make_mut(&mut plan), now, costs, directory, statistics);
        Arc::clone(self.plan.insert(plan))
    }

    fn renew(&mut self, plan: &mut Plan, now: Nanos, costs: &Costs, directory: &Directory, statistics: &Statistics) {
        let mut all = Rare::default();
        all.count_all(directory.peers().map(|(slot, _)| slot), statistics);
        let zones = zone_pairs(statistics).count();
        let showed_all = plan.forms.peers != Peers::Worst && plan.slots.len() > 0;
        plan.forms = self.ladder.decide(now, costs, Demand { peers: all.peers, zones });
        plan.at = now;

        let places = costs.zone_places(plan.forms.zones);
        plan.zones.0.resize(ZONE_PAIRS.div_ceil(64), 0);
        let mut shown_zones = plan.zones.len();
        // Pairs do not go, so that whoever is shown stays so.
        for pair in zone_pairs(statistics) {
            if !plan.zones.has(pair) && shown_zones < places {
                plan.zones.put(pair);
                shown_zones += 1;
            }
        }

        let room = costs.room_for_peers(shown_zones, plan.forms.zones);
        let shown = if plan.forms.peers == Peers::Worst {
            let places = (room / WORST_COST).min(WORST_PEERS_MAX);
            if showed_all {
                self.worst.close_after_next(now);
            }
            self.choose(plan, now, places, all.peers, directory, statistics)
        } else {
            self.worst.clear();
            plan.chosen = Vec::new();
            plan.slots.reset(directory.slot_count());
            directory.peers().for_each(|(slot, _)| plan.slots.put(slot.index()));
            all
        };

        let left = room.saturating_sub(shown.peers * costs.peer(plan.forms.peers));
        let has_overflown = plan.overflown.0.swap(false, Ordering::Relaxed);
        let Rare { further: series, fingerprint, .. } = shown;
        let demand = ExtraDemand { series, room: left, has_overflown, fingerprint };
        let are_shown = self.further.decide(now, demand);
        plan.further = if are_shown { left } else { 0 };

        let rtt = if plan.forms.peers == Peers::Histograms { costs.histogram } else { SUMS };
        let hidden = if are_shown { 0 } else { shown.further };
        let exported = shown.peers * (PEER_COUNTERS + rtt) + shown.terminating + shown.send_errors - hidden
            + shown_zones * costs.zone(plan.forms.zones);
        let whole = all.peers * (PEER_COUNTERS + costs.histogram)
            + all.terminating
            + all.send_errors
            + zones * costs.zone(Zones::Histograms);
        plan.suppressed = whole.saturating_sub(exported);
    }

    /// Who is exported where not all can be.
    fn choose(
        &mut self,
        plan: &mut Plan,
        now: Nanos,
        places: usize,
        peers: usize,
        directory: &Directory,
        statistics: &Statistics,
    ) -> Rare {
        let badness = |slot| badness(statistics, slot, now);
        let all = || directory.peers().map(|(slot, peer)| (identity(peer), slot));
        let is_there = |id, slot| directory.peer(slot).is_some_and(|peer| identity(peer) == id);
        self.worst.follow(is_there, all());
        if self.worst.shrink(now, places, badness) {
            self.ladder.wait_anew(now);
        }
        let mark = |slots: &mut Set, worst: &Worst| {
            slots.reset(directory.slot_count());
            worst.chosen().iter().for_each(|chosen| slots.put(chosen.slot.index()));
        };
        mark(&mut plan.slots, &self.worst);
        if self.worst.is_due(now) {
            // Who has left has nothing new to tell.
            let others = directory.peers().filter(|(_, peer)| peer.presence() != Presence::Left);
            let others = others.map(|(slot, peer)| (identity(peer), slot));
            let others = others.filter(|(_, slot)| !plan.slots.has(slot.index()));
            let others = others.map(|(identity, slot)| Candidate { identity, slot, badness: badness(slot) });
            // Who lost its place now would return too soon. To wait anew for each could be for ever where many lose something.
            let replaces = !self.ladder.awaits_all_peers();
            self.worst.choose(now, places, peers, others, replaces, badness);
            mark(&mut plan.slots, &self.worst);
        }
        plan.chosen.clear();
        plan.chosen.extend(self.worst.chosen().iter().map(|chosen| (chosen.slot, chosen.identity)));
        plan.chosen.sort_unstable();
        let mut shown = Rare::default();
        shown.count_all(self.worst.chosen().iter().map(|chosen| chosen.slot), statistics);
        shown
    }
}

fn zone_pairs(statistics: &Statistics) -> impl Iterator<Item = usize> {
    (0..ZONE_PAIRS).filter(|pair| {
        let (zone, via) = zone_pair(*pair);
        statistics.zone(zone, via).is_some()
    })
}

/// A zone pair by its place in the order of zone and way.
pub const fn zone_pair(pair: usize) -> (ZoneId, Via) {
    #[expect(clippy::cast_possible_truncation, reason = "below ZONES_MAX, which is below 256")]
    let zone = (pair / Via::ALL.len()) as u8;
    (ZoneId(zone), Via::ALL[pair % Via::ALL.len()])
}
const _: () = assert!(ZONES_MAX <= 256);

fn badness(statistics: &Statistics, slot: SlotId, now: Nanos) -> Badness {
    let Some(recent) = statistics.recent(slot, now) else { return Badness::default() };
    let p99 = statistics.bounds().quantile(0.99, &recent.buckets).unwrap_or(0.0);
    Badness { lost: recent.lost, p99: std::time::Duration::try_from_secs_f64(p99).unwrap_or_default().into() }
}

/// What makes a peer one and the same, in whatever slot. Two of 16,384 share one in one of 10^11 meshes; they would then be
/// chosen and dropped together.
fn identity(peer: Peer<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (peer.node(), peer.via()).hash(&mut hasher);
    hasher.finish()
}
