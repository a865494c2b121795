//! Closes the holes that forgotten peers leave, so that per-slot data fits on few pages again.

use super::SlotId;

/// Number of free slots between used ones from which the table is compacted. With fewer, compaction
/// frees no page of any table.
const HOLES_MIN: usize = 128;

/// Which peer moved from which slot to which, and the number of slots left. All of these are taken.
///
/// A peer moves from a slot at or behind the new end to a hole before it, so
/// no move blocks another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// Source and target slots, ascending in both.
    moves: Vec<(SlotId, SlotId)>,
    slots: usize,
}

impl Compaction {
    /// Returns the moves that close the holes in `taken`, of which `held` slots are true. None if
    /// it is not worth it. Moving is cheap, but it only frees pages, and new peers fill a
    /// rollout's holes again.
    pub(super) fn plan(taken: impl DoubleEndedIterator<Item = bool> + ExactSizeIterator, held: usize) -> Option<Self> {
        if !Self::is_worth_it(taken.len(), held) {
            return None;
        }
        let mut moves = Vec::new();
        let mut behind = Vec::new();
        for (index, taken) in taken.enumerate() {
            match (index < held, taken) {
                (true, false) => behind.push(SlotId::at(index)),
                (false, true) => moves.push(SlotId::at(index)),
                _ => {}
            }
        }
        debug_assert_eq!(moves.len(), behind.len(), "as many before the end are free as behind it are taken");
        Some(Self { moves: moves.into_iter().zip(behind).collect(), slots: held })
    }

    /// Returns whether `slots`, of which `held` are taken, have enough holes.
    pub(super) const fn is_worth_it(slots: usize, held: usize) -> bool {
        slots - held >= HOLES_MIN && slots - held >= held / 4
    }

    /// Returns the moves (from, to), ascending in both.
    pub fn moves(&self) -> impl Iterator<Item = (SlotId, SlotId)> {
        self.moves.iter().copied()
    }

    /// Returns the present slot of the peer that was in `slot` before. None if that slot was empty.
    pub fn now(&self, slot: SlotId) -> Option<SlotId> {
        if slot.index() < self.slots {
            // A slot that is the target of a move was a hole before.
            return self.moves.binary_search_by_key(&slot, |(_, to)| *to).is_err().then_some(slot);
        }
        self.moves.binary_search_by_key(&slot, |(from, _)| *from).ok().map(|at| self.moves[at].1)
    }

    /// Returns the number of slots left.
    pub const fn slots(&self) -> usize {
        self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(taken: &[bool]) -> Option<Compaction> {
        Compaction::plan(taken.iter().copied(), taken.iter().filter(|taken| **taken).count())
    }

    #[test]
    fn the_last_peers_move_to_the_first_holes_and_no_other_peer_moves() {
        let mut taken = vec![false; 200];
        for index in [0, 2, 150, 160, 199] {
            taken[index] = true;
        }
        let compaction = plan(&taken).unwrap();
        let moves: Vec<(u32, u32)> = compaction.moves().map(|(from, to)| (from.0, to.0)).collect();
        assert_eq!((moves, compaction.slots()), (vec![(150, 1), (160, 3), (199, 4)], 5));
        let now = |slot| compaction.now(SlotId(slot)).map(|slot| slot.0);
        assert_eq!([0, 2, 150, 160, 199].map(now), [Some(0), Some(2), Some(1), Some(3), Some(4)]);
        assert_eq!([1, 3, 4, 5, 151, 198, 200].map(now), [None; 7], "those slots were empty");
    }

    #[test]
    fn few_holes_stay() {
        assert_eq!(plan(&[]), None);
        let mut taken = vec![true; 1_000];
        taken[..200].fill(false);
        assert!(plan(&taken).is_some(), "200 of 800");
        taken[..2].fill(true);
        assert_eq!(plan(&taken), None, "198 of 802");
        assert_eq!(plan(&[false; HOLES_MIN - 1]), None);
        assert_eq!(plan(&[false; HOLES_MIN]), Some(Compaction { moves: vec![], slots: 0 }), "no peer is left");
    }
}
