//! Which peers are the worst, where there is no room for all.
//!
//! Pure: the time, the places and the peers' figures come as arguments. The trap is churn: each change of mind costs the
//! database new series, and a query a gap. So a choice is made twice a minute at most, whoever is chosen stays for
//! [`WORST_STAY_TIME`], only who is clearly worse takes a place, and who had to leave does not return for
//! [`SERIES_RETURN_TIME`]. So that who begins to lose something need not wait for a place, healthy peers never take them all.
//!
//! A peer is told apart by a hash of its name and not by its slot, which others may take.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::limits::{SERIES_RETURN_TIME, WORST_CHOICE_TIME, WORST_KEPT_FREE, WORST_PEERS_MAX, WORST_STAY_TIME};
use crate::peers::SlotId;
use crate::units::Nanos;

/// How bad a peer is: by what it lost lately, then by its 99th percentile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Badness {
    /// Probes lost in the recent window.
    pub lost: u32,
    /// Of the round-trip times in it.
    pub p99: Nanos,
}

impl Badness {
    /// Whether it is worth new series to show this one in the other's place: percentiles of healthy peers jump from bucket
    /// to bucket, which are a factor of 2 to 2.5 apart.
    fn is_clearly_worse_than(self, other: Self) -> bool {
        self.lost > other.lost || (self.lost == other.lost && self.p99.0 / 2 > other.p99.0)
    }
}

/// Who can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Of its name, protocol and network.
    pub identity: u64,
    /// Where it is now.
    pub slot: SlotId,
    /// As of now.
    pub badness: Badness,
}

/// Who is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// As of the candidate.
    pub identity: u64,
    /// Where it was last.
    pub slot: SlotId,
    since: Nanos,
}

/// Who is chosen, and who was until lately.
#[derive(Clone, Debug, Default)]
pub struct Worst {
    chosen: Vec<Chosen>,
    /// Whose place another has taken, and when.
    dropped: Vec<(u64, Nanos)>,
    chosen_at: Option<Nanos>,
    closed_until: Nanos,
}

impl Worst {
    /// In no particular order.
    pub fn chosen(&self) -> &[Chosen] {
        &self.chosen
    }

    /// Forgets everything: all peers are exported. Gives back the memory.
    pub fn clear(&mut self) {
        if self.chosen_at.is_some() {
            *self = Self::default();
        }
    }

    /// For so long nobody is chosen but by the next choice: all others were exported until now, and are not any more.
    pub fn close_after_next(&mut self, now: Nanos) {
        self.closed_until = now.plus(SERIES_RETURN_TIME.into());
        self.chosen_at = None;
    }

    /// Goes after those who are elsewhere now, and lets go of those who are no more: whom `is_there` does not find in its slot
    /// is looked for among `all`.
    pub fn follow(&mut self, is_there: impl Fn(u64, SlotId) -> bool, all: impl IntoIterator<Item = (u64, SlotId)>) {
        const NOWHERE: SlotId = SlotId(u32::MAX);
        let mut missing = 0;
        for chosen in self.chosen.iter_mut().filter(|chosen| !is_there(chosen.identity, chosen.slot)) {
            chosen.slot = NOWHERE;
            missing += 1;
        }
        if missing == 0 {
            return;
        }
        for (identity, slot) in all {
            let is_he = |chosen: &&mut Chosen| chosen.slot == NOWHERE && chosen.identity == identity;
            if let Some(chosen) = self.chosen.iter_mut().find(is_he) {
                chosen.slot = slot;
            }
        }
        self.chosen.retain(|chosen| chosen.slot != NOWHERE);
    }

    /// Lets go of the least bad where there are no more so many places. Returns whether anybody had to go.
    pub fn shrink(&mut self, now: Nanos, places: usize, badness: impl Fn(SlotId) -> Badness) -> bool {
        let shrinks = self.chosen.len() > places;
        if shrinks {
            self.chosen.sort_by_cached_key(|chosen| Reverse(badness(chosen.slot)));
            self.chosen.truncate(places);
            self.closed_until = now.plus(SERIES_RETURN_TIME.into());
        }
        shrinks
    }

    /// Whether it is time for a choice.
    pub fn is_due(&self, now: Nanos) -> bool {
        self.chosen_at.is_none_or(|at| now >= self.closed_until && now.since(at) >= WORST_CHOICE_TIME.into())
    }

    /// Fills the places, of all peers or of `others` that are not chosen yet, and, if it `replaces` at all, replaces whom it
    /// may. `badness` is of those who are chosen, `peers` how many there are in all.
    pub fn choose(
        &mut self,
        now: Nanos,
        places: usize,
        peers: usize,
        others: impl Iterator<Item = Candidate>,
        replaces: bool,
        badness: impl Fn(SlotId) -> Badness,
    ) {
        self.chosen_at = Some(now);
        self.dropped.retain(|(_, at)| now.since(*at) < SERIES_RETURN_TIME.into());
        let places = places.min(WORST_PEERS_MAX);
        let worst = worst(others.filter(|other| self.dropped.iter().all(|(gone, _)| *gone != other.identity)), places);
        let healthy_places = if peers <= places { places } else { places - places / WORST_KEPT_FREE };
        let mut waiting = Vec::new();
        self.chosen.reserve_exact(places.saturating_sub(self.chosen.len()));
        for candidate in worst {
            let limit = if candidate.badness.lost > 0 { places } else { healthy_places };
            if self.chosen.len() < limit {
                self.chosen.push(candidate.chosen(now));
            } else {
                waiting.push(candidate);
            }
        }
        if waiting.is_empty() || !replaces {
            return;
        }
        let mut over: Vec<(Badness, usize)> = (self.chosen.iter().enumerate())
            .filter(|(_, chosen)| now.since(chosen.since) >= WORST_STAY_TIME.into())
            .map(|(index, chosen)| (badness(chosen.slot), index))
            .collect();
        over.sort_unstable();
        for ((least_bad, index), challenger) in over.into_iter().zip(waiting) {
            if !challenger.badness.is_clearly_worse_than(least_bad) {
                break;
            }
            let gone = std::mem::replace(&mut self.chosen[index], challenger.chosen(now));
            self.dropped.push((gone.identity, now));
        }
    }
}

impl Candidate {
    const fn chosen(self, since: Nanos) -> Chosen {
        Chosen { identity: self.identity, slot: self.slot, since }
    }
}

/// The worst so many, the worst first; of equals those in the lower slots.
fn worst(candidates: impl Iterator<Item = Candidate>, count: usize) -> impl Iterator<Item = Candidate> {
    // A heap of as many as are looked for, the best of them on top: candidates are far more.
    let mut heap = BinaryHeap::new();
    for Candidate { identity, slot, badness } in candidates {
        let key = Reverse((badness, Reverse(slot), identity));
        if heap.len() < count {
            heap.push(key);
        } else if let Some(mut best) = heap.peek_mut()
            && key < *best
        {
            *best = key;
        }
    }
    let sorted = heap.into_sorted_vec().into_iter();
    sorted.map(|Reverse((badness, Reverse(slot), identity))| Candidate { identity, slot, badness })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: u64) -> Nanos {
        Nanos::from_millis(n * 1_000)
    }

    /// Peers by what they lost; an identity is a hundred more than its slot.
    struct Mesh(Worst, Vec<u32>);

    impl Mesh {
        fn badness(lost: &[u32]) -> impl Fn(SlotId) -> Badness {
            |slot| Badness { lost: lost[slot.index()], p99: Nanos(1_000) }
        }

        fn choose(&mut self, now: Nanos, places: usize) -> Vec<u32> {
            let Self(worst, lost) = self;
            if worst.is_due(now) {
                let held: Vec<u64> = worst.chosen().iter().map(|chosen| chosen.identity).collect();
                let others = (0..u32::try_from(lost.len()).unwrap()).map(|n| Candidate {
                    identity: 100 + u64::from(n),
                    slot: SlotId(n),
                    badness: Self::badness(lost)(SlotId(n)),
                });
                let others = others.filter(|other| !held.contains(&other.identity));
                worst.choose(now, places, lost.len(), others, true, Self::badness(lost));
            }
            self.slots()
        }

        fn slots(&self) -> Vec<u32> {
            let mut slots: Vec<u32> = self.0.chosen().iter().map(|chosen| chosen.slot.0).collect();
            slots.sort_unstable();
            slots
        }
    }

    fn mesh(peers: usize) -> Mesh {
        Mesh(Worst::default(), vec![0; peers])
    }

    #[test]
    fn who_loses_comes_first_and_the_healthy_leave_places_free() {
        let mut mesh = mesh(100);
        mesh.1[70] = 3;
        assert_eq!(mesh.choose(second(0), 8), [0, 1, 2, 3, 4, 70]);
        mesh.1[50] = 1;
        assert_eq!(mesh.choose(second(29), 8), [0, 1, 2, 3, 4, 70], "not before half a minute");
        mesh.1[51] = 1;
        assert_eq!(mesh.choose(second(30), 8), [0, 1, 2, 3, 4, 50, 51, 70]);
        mesh.1[52] = 60;
        assert_eq!(mesh.choose(second(60), 8), [0, 1, 2, 3, 4, 50, 51, 70], "whoever is there stays");
        assert_eq!(mesh.choose(second(600), 8), [1, 2, 3, 4, 50, 51, 52, 70], "one whose time is over has gone");
        mesh.1[0] = 60;
        assert_eq!(mesh.choose(second(630), 8), [1, 2, 3, 4, 50, 51, 52, 70], "and does not come back so soon");
        assert_eq!(mesh.choose(second(900), 8), [0, 2, 3, 4, 50, 51, 52, 70]);
    }

    #[test]
    fn all_are_chosen_where_all_have_a_place() {
        let mut mesh = mesh(8);
        assert_eq!(mesh.choose(second(0), 8), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn healthy_peers_do_not_take_turns() {
        let mut worst = Worst::default();
        let p99 = |slot: SlotId, ns| Badness { lost: 0, p99: Nanos(ns + u64::from(slot.0)) };
        let candidates = |range: std::ops::Range<u32>, ns| {
            range.map(SlotId).map(move |slot| Candidate { identity: slot.0.into(), slot, badness: p99(slot, ns) })
        };
        worst.choose(second(0), 4, 20, candidates(0..20, 50_000), true, |_| Badness::default());
        let chosen = worst.chosen().to_vec();
        assert_eq!(chosen.len(), 3);
        worst.choose(second(700), 4, 20, candidates(0..10, 90_000), true, |slot| p99(slot, 50_000));
        assert_eq!(worst.chosen(), chosen);
        worst.choose(second(800), 4, 20, candidates(9..10, 110_000), true, |slot| p99(slot, 50_000));
        assert_eq!(worst.chosen().iter().filter(|now| !chosen.contains(now)).count(), 1);
    }

    #[test]
    fn after_places_are_gone_nobody_is_chosen_for_five_minutes() {
        let mut mesh = mesh(100);
        mesh.1[..20].fill(9);
        assert_eq!(mesh.choose(second(0), 8).len(), 8);
        mesh.1[3] = 10;
        let lost = mesh.1.clone();
        mesh.0.shrink(second(10), 1, Mesh::badness(&lost));
        assert_eq!(mesh.slots(), [3]);
        assert_eq!(mesh.choose(second(309), 8), [3]);
        assert_eq!(mesh.choose(second(310), 8).len(), 8);
        mesh.0.close_after_next(second(400));
        mesh.0.follow(|identity, _| identity != 103, []);
        assert_eq!(mesh.choose(second(400), 8).len(), 8, "the next");
        mesh.0.follow(|_, _| false, []);
        assert!(mesh.choose(second(699), 8).is_empty(), "and no other");
        assert_eq!(mesh.choose(second(700), 8).len(), 8);
    }

    #[test]
    fn who_moved_is_followed() {
        let mut mesh = mesh(3);
        mesh.choose(second(0), 3);
        let moved = [(100, SlotId(7)), (102, SlotId(0)), (900, SlotId(1))];
        mesh.0.follow(|identity, slot| (identity, slot) == (102, SlotId(2)), moved);
        assert_eq!(mesh.slots(), [2, 7], "one has moved, one is no more, another is in a slot that was left");
    }
}
