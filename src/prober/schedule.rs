//! Decides which peer is due when: a wheel of cells with one revolution per interval.
//!
//! A peer is in one cell and is probed once per revolution. Most of a probe's cost is the wake-up.
//! So cells are at least 20 ms apart, and only as many are in use as keep a burst small: 4 cells,
//! then 8 when each holds 16 peers, then more when each holds 128. A joining peer gets the emptiest
//! cell in use, in an order that spreads the cells evenly. Peers are never moved, so a rollout
//! never makes a peer skip or double a probe. A hash of the node's name shifts the start of the
//! wheel, so that the nodes of a mesh do not send together.

use std::hash::{DefaultHasher, Hash, Hasher};

use kube_canary_kernel::region::List;

use crate::limits::PEER_SLOTS_MAX;
use crate::peers::{Compaction, SlotId};
use crate::units::Nanos;

/// The shortest time between two cells.
pub const CELL_MIN: Nanos = Nanos::from_millis(20);
/// The largest number of cells. The search for the next non-empty cell looks at each once.
const CELLS_MAX: u64 = 100;

/// Number of cells in use from the first peers on.
const CELLS_USED_MIN: usize = 4;
/// Peers per cell before eight cells are in use.
const PEERS_PER_CELL_OF_FEW: usize = 16;
/// Number of cells in use until each holds [`PEERS_PER_CELL`] peers.
const CELLS_USED_BY_MANY: usize = 8;
/// Peers per cell before further cells are used: a burst of 128 small packets is 13 KB on the wire.
const PEERS_PER_CELL: usize = 128;

/// Marks the absence of a peer or of a cell.
const NONE: u16 = u16::MAX;
const _: () = assert!(PEER_SLOTS_MAX < NONE as usize && CELLS_MAX < NONE as u64);

/// The peers of one cell, in reverse order of joining: a list linked by [`WheelPlace::next`].
#[derive(Clone, Copy, Debug)]
struct WheelCell {
    first: u16,
    peers: u16,
}

/// The place of a slot: 4 bytes.
#[derive(Clone, Copy, Debug)]
struct WheelPlace {
    cell: u16,
    next: u16,
}

const NOWHERE: WheelPlace = WheelPlace { cell: NONE, next: NONE };

/// The wheel of cells, and the place of every slot.
#[derive(Debug)]
pub struct Schedule {
    interval: Nanos,
    cells: Box<[WheelCell]>,
    /// The order in which empty cells are filled.
    fill_order: Box<[u16]>,
    places: List<WheelPlace>,
    start: Nanos,
    /// Number of cells passed since `start`.
    passed: u64,
    /// Number of probes left out since [`Schedule::take_skipped`].
    skipped: u64,
    /// Number of peers in the wheel at the last advance.
    known: usize,
}

impl Schedule {
    /// Makes an empty wheel that starts about now. The times of its cells follow from `node` alone,
    /// so the wheels of one agent turn together. If `node` is empty, it starts at once.
    pub fn new(interval: Nanos, node: &str, now: Nanos) -> Self {
        let cells = (interval.0 / CELL_MIN.0).clamp(1, CELLS_MAX);
        let mut hasher = DefaultHasher::new();
        node.hash(&mut hasher);
        let interval_begin = Nanos(now.0 - now.0 % interval.0.max(1));
        let start = if node.is_empty() { now } else { interval_begin.plus(Nanos(hasher.finish() % interval.0.max(1))) };
        Self {
            interval,
            cells: (0..cells).map(|_| WheelCell { first: NONE, peers: 0 }).collect(),
            fill_order: fill_order(cells),
            places: List::new(PEER_SLOTS_MAX),
            start,
            passed: 0,
            skipped: 0,
            known: 0,
        }
    }

    /// Makes room for `slots` peers.
    pub fn reserve(&mut self, slots: usize) {
        if slots > self.places.len() {
            self.places.resize(slots, NOWHERE);
        }
    }

    /// Moves peers as `compaction` says, with room for `slots` peers. The times of the
    /// peers do not change.
    pub fn compact(&mut self, compaction: &Compaction, slots: usize) {
        let now =
            |slot: u16| compaction.now(SlotId(slot.into())).and_then(|slot| u16::try_from(slot.0).ok()).unwrap_or(NONE);
        let links = self.places.iter_mut().map(|place| &mut place.next);
        let links = links.chain(self.cells.iter_mut().map(|cell| &mut cell.first));
        links.filter(|link| **link != NONE).for_each(|link| *link = now(*link));
        for (from, to) in compaction.moves() {
            self.places.swap(from.index(), to.index());
        }
        self.places.resize(slots, NOWHERE);
    }

    /// Adds a peer to the emptiest cell, unless it is in a cell already. Its slot must have room.
    pub fn add(&mut self, slot: SlotId) {
        let wanted = cells_wanted(self.len() + 1);
        let Some(place) = self.places.get_mut(slot.index()).filter(|place| place.cell == NONE) else { return };
        let used = &self.fill_order[..wanted.min(self.fill_order.len())];
        let emptiest = used.iter().copied().min_by_key(|&cell| self.cells[usize::from(cell)].peers);
        let (Some(number), Ok(slot)) = (emptiest, u16::try_from(slot.0)) else { return };
        let cell = &mut self.cells[usize::from(number)];
        *place = WheelPlace { cell: number, next: cell.first };
        (cell.first, cell.peers) = (slot, cell.peers + 1);
    }

    /// Removes a peer from its cell.
    pub fn remove(&mut self, slot: SlotId) {
        let Some(place) = self.places.get(slot.index()).copied().filter(|place| place.cell != NONE) else { return };
        let cell = &mut self.cells[usize::from(place.cell)];
        cell.peers -= 1;
        if SlotId(cell.first.into()) == slot {
            cell.first = place.next;
        } else {
            let mut before = usize::from(cell.first);
            while SlotId(self.places[before].next.into()) != slot {
                before = usize::from(self.places[before].next);
            }
            self.places[before].next = place.next;
        }
        self.places[slot.index()] = NOWHERE;
    }

    /// Returns the resident memory of the places, in bytes of whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.places.resident_bytes()
    }

    /// Returns the number of peers in the wheel.
    pub fn len(&self) -> usize {
        self.cells.iter().map(|cell| usize::from(cell.peers)).sum()
    }

    /// Whether the wheel has no peers.
    pub fn is_empty(&self) -> bool {
        self.cells.iter().all(|cell| cell.peers == 0)
    }

    /// Returns the mean time between two non-empty cells; `None` for an empty wheel.
    pub fn mean_gap(&self) -> Option<Nanos> {
        let taken = self.cells.iter().filter(|cell| cell.peers > 0).count() as u64;
        self.interval.0.checked_div(taken).map(Nanos)
    }

    /// Returns when the next non-empty cell is due; `None` for an empty wheel.
    pub fn next_due(&self) -> Option<Nanos> {
        let count = self.cells.len() as u64;
        let ahead = (0..count).find(|i| self.cells[self.index(self.passed + i)].peers > 0)?;
        Some(self.time_of(self.passed + ahead))
    }

    /// Advances to the next cell that is due at `now`. Returns its time and its first peer, for
    /// [`Schedule::after`].
    ///
    /// After a standstill of more than an interval (a suspended machine), whole revolutions are
    /// left out. Probes that could not be sent in time are not sent in a burst. Peers that joined
    /// after the last advance do not count as left out: an empty wheel advances only now and then.
    pub fn advance(&mut self, now: Nanos) -> Option<(Nanos, SlotId)> {
        let count = self.cells.len() as u64;
        let late = now.since(self.time_of(self.passed));
        let turns = late.0 / self.interval.0.max(1);
        let len = self.len();
        let known = std::mem::replace(&mut self.known, len);
        if turns > 0 {
            self.passed += turns * count;
            self.skipped += turns * known.min(len) as u64;
        }
        for _ in 0..count {
            let due = self.time_of(self.passed);
            if due > now {
                return None;
            }
            let index = self.index(self.passed);
            self.passed += 1;
            if self.cells[index].peers > 0 {
                return Some((due, SlotId(self.cells[index].first.into())));
            }
        }
        None
    }

    /// Returns the number of the revolution to which the cell of the last [`Schedule::advance`]
    /// belongs.
    pub fn revolution(&self) -> u64 {
        self.passed.saturating_sub(1) / self.cells.len() as u64
    }

    /// Returns the number of probes that were left out since the last call.
    pub const fn take_skipped(&mut self) -> u64 {
        std::mem::replace(&mut self.skipped, 0)
    }

    /// Returns the next peer in the cell of `slot`.
    pub fn after(&self, slot: SlotId) -> Option<SlotId> {
        let next = self.places.get(slot.index())?.next;
        (next != NONE).then(|| SlotId(next.into()))
    }

    fn index(&self, passed: u64) -> usize {
        usize::try_from(passed % self.cells.len() as u64).unwrap_or_default()
    }

    fn time_of(&self, passed: u64) -> Nanos {
        let count = self.cells.len() as u64;
        let within = self.interval.0 * (passed % count) / count;
        Nanos(self.start.0 + passed / count * self.interval.0 + within)
    }
}

/// Returns the number of cells that this many peers use, if the wheel has that many.
fn cells_wanted(peers: usize) -> usize {
    let few = peers.div_ceil(PEERS_PER_CELL_OF_FEW).next_power_of_two().clamp(CELLS_USED_MIN, CELLS_USED_BY_MANY);
    few.max(peers.div_ceil(PEERS_PER_CELL).next_power_of_two())
}

/// Returns every cell once, spread evenly over the wheel from the first few on. This is van der
/// Corput's sequence, the mirrored bits of the index: 0, 1/2, 1/4, 3/4, … It has at least as many
/// members as there are cells, so none is left out.
fn fill_order(cells: u64) -> Box<[u16]> {
    let bits = 64 - (cells.max(2) - 1).leading_zeros();
    let mut order = Vec::new();
    for index in 0..1_u64 << bits {
        let mirrored = index.reverse_bits() >> (64 - bits);
        if let Ok(cell) = u16::try_from((mirrored * cells) >> bits)
            && !order.contains(&cell)
        {
            order.push(cell);
        }
    }
    order.into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos::from_millis(1_000);

    fn wheel(peers: u32) -> Schedule {
        let mut schedule = Schedule::new(SECOND, "node", Nanos(0));
        schedule.reserve(400);
        schedule.reserve(5_000);
        (0..peers).for_each(|i| schedule.add(SlotId(i)));
        schedule
    }

    fn cell(schedule: &Schedule, first: SlotId) -> impl Iterator<Item = SlotId> {
        std::iter::successors(Some(first), |slot| schedule.after(*slot))
    }

    fn sends(schedule: &mut Schedule, until: Nanos, step: u64) -> Vec<(Nanos, SlotId)> {
        let mut out = Vec::new();
        let mut now = Nanos(0);
        while now <= until {
            while let Some((due, first)) = schedule.advance(now) {
                out.extend(cell(schedule, first).map(|s| (due, s)));
            }
            now = now.plus(Nanos(step));
        }
        out
    }

    #[test]
    fn every_peer_is_due_once_per_interval_evenly_spread() {
        let mut s = wheel(1000);
        let phase = s.start;
        let sent = sends(&mut s, phase.plus(Nanos(10 * SECOND.0 - 1)), 1_000_000);
        assert_eq!(sent.len(), 10_000);
        let used: Vec<u16> = s.cells.iter().map(|c| c.peers).filter(|peers| *peers > 0).collect();
        assert_eq!(used, [125; 8]);
        assert!(wheel(5_000).cells.iter().all(|c| (50..=128).contains(&c.peers)), "{:?}", wheel(5_000).cells);
        let mut of_one: Vec<u64> = sent.iter().filter(|(_, s)| s.0 == 77).map(|(t, _)| t.0).collect();
        of_one.dedup();
        assert!(of_one.len() == 10 && of_one.windows(2).all(|w| w[1] - w[0] == SECOND.0));
    }

    #[test]
    fn as_many_cells_are_in_use_as_keep_bursts_small() {
        let bursts = |peers: u32| {
            let used = wheel(peers).cells.iter().filter(|cell| cell.peers > 0).count();
            (used, wheel(peers).cells.iter().map(|cell| cell.peers).max().unwrap())
        };
        assert_eq!([3, 4, 24, 64].map(bursts), [(3, 1), (4, 1), (4, 6), (4, 16)]);
        assert_eq!([65, 80, 1_000, 1_024, 1_025].map(bursts), [(5, 16), (8, 16), (8, 125), (8, 128), (9, 128)]);
    }

    #[test]
    fn every_cell_is_taken_in_its_turn_and_the_first_ones_lie_far_apart() {
        for cells in 1..=CELLS_MAX {
            let mut order = fill_order(cells).into_vec();
            order.sort_unstable();
            assert!(order.into_iter().eq(0..u16::try_from(cells).unwrap()), "{cells}");
        }
        assert_eq!(fill_order(8)[..], [0, 4, 2, 6, 1, 5, 3, 7]);
        assert_eq!(fill_order(50)[..8], [0, 25, 12, 37, 6, 31, 18, 43]);
    }

    #[test]
    fn few_peers_are_far_apart() {
        let mut s = wheel(4);
        let phase = s.start;
        let mut times: Vec<u64> =
            sends(&mut s, phase.plus(Nanos(SECOND.0 - 1)), 1_000_000).iter().map(|(t, _)| t.0).collect();
        times.sort_unstable();
        assert_eq!(times.len(), 4);
        assert!(times.windows(2).all(|w| (200_000_000..=300_000_000).contains(&(w[1] - w[0]))), "{times:?}");
    }

    #[test]
    fn a_standstill_leaves_turns_out_instead_of_bursting() {
        let mut s = wheel(10);
        assert_eq!(s.advance(Nanos(0)), None);
        let late = s.start.plus(Nanos(60 * SECOND.0));
        let mut sent = 0;
        while let Some((due, first)) = s.advance(late) {
            assert!(late.since(due) <= SECOND);
            sent += cell(&s, first).count();
        }
        assert!(sent <= 10, "{sent}");
        assert_eq!((s.take_skipped(), s.take_skipped()), (600, 0), "and says how many probes that were");
    }

    #[test]
    fn a_peer_that_joins_after_a_standstill_does_not_count_as_skipped() {
        let mut s = wheel(0);
        let mut now = s.start;
        for (joins, expected) in [(24, 0), (0, 9 * 24), (6, 9 * 24)] {
            assert_eq!(s.advance(now), None, "all is sent");
            let len = u32::try_from(s.len()).unwrap();
            (len..len + joins).for_each(|slot| s.add(SlotId(slot)));
            now = now.plus(Nanos(9 * SECOND.0 + SECOND.0 / 2));
            while s.advance(now).is_some() {}
            assert_eq!(s.take_skipped(), expected, "{joins} of {}", s.len());
        }
    }

    #[test]
    fn churn_neither_skips_nor_doubles_the_others() {
        let mut s = wheel(50);
        let mut of_seven = Vec::new();
        let (start, mut now) = (s.start, s.start);
        for round in 0..200u32 {
            s.add(SlotId(100 + round));
            s.remove(SlotId(if round > 20 { 80 + round } else { round + 10 }));
            now = now.plus(Nanos(50_000_000));
            while let Some((due, first)) = s.advance(now) {
                of_seven.extend(cell(&s, first).filter(|s| s.0 == 7).map(|_| due.since(start).0));
            }
        }
        assert!((9..=11).contains(&of_seven.len()) && of_seven.windows(2).all(|w| w[1] - w[0] == SECOND.0));
    }

    #[test]
    fn nodes_have_different_phases_and_a_node_always_the_same() {
        let phase = |node: &str| Schedule::new(SECOND, node, Nanos(0)).start;
        assert_eq!(phase("a"), phase("a"));
        assert_eq!(phase(""), Nanos(0), "no node, no phase");
        let mut phases: Vec<u64> = (0..20).map(|i| phase(&format!("node{i}")).0).collect();
        phases.sort_unstable();
        phases.dedup();
        assert_eq!(phases.len(), 20);
        assert!(Schedule::new(Nanos::from_millis(10), "a", Nanos(0)).cells.len() == 1);
    }

    #[test]
    fn removing_a_peer_keeps_the_others_of_its_cell() {
        for gone in [3, 15, 23] {
            let mut s = wheel(24);
            let sent = sends(&mut s, SECOND.plus(SECOND), 1_000_000);
            let (_, first) = sent.into_iter().find(|(_, slot)| slot.0 == 23).unwrap();
            assert_eq!(cell(&s, first).map(|s| s.0).collect::<Vec<_>>(), [23, 19, 15, 11, 7, 3]);
            s.remove(SlotId(gone));
            let left: Vec<u32> = cell(&s, SlotId(if gone == 23 { 19 } else { 23 })).map(|s| s.0).collect();
            assert_eq!(left, [23, 19, 15, 11, 7, 3].into_iter().filter(|n| *n != gone).collect::<Vec<_>>());
            assert_eq!((s.len(), s.mean_gap()), (23, Some(Nanos(SECOND.0 / 4))));
        }
    }

    #[test]
    fn a_peer_added_twice_is_due_once() {
        let mut s = wheel(0);
        s.add(SlotId(1));
        s.add(SlotId(1));
        assert_eq!(s.len(), 1);
        s.remove(SlotId(1));
        assert!(s.is_empty() && s.next_due().is_none() && s.mean_gap().is_none());
    }
}
