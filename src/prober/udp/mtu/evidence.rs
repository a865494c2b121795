//! Decides whether packets of a size are blocked, or lost at random.
//!
//! One answer proves that its size passes. Loss proves nothing by itself, so large packets are
//! interleaved with small ones on the same path. If both are lost with the same probability `q`,
//! the chance that all of `n` large packets are lost while `n` small ones pass is `(q (1 - q))^n`.
//! For `n` = 13 it is at most 1.5e-8, whatever `q` is. Each small packet that is lost asks for
//! two more large ones.
//!
//! With a random loss of 20 % in each direction, `q` is 36 %. A check then ends in a false hole
//! with a probability of about 1e-8, so a pair that is checked each minute with less than 1e-6
//! per hour. A test computes it exactly.
//!
//! If more than a quarter of the small packets is lost, a real hole may not be found: the loss
//! itself is the fault to repair.
//!
//! Rejected: the ordinary probes as small packets. They are a second apart or more, and take other
//! flows.

/// Large packets of which all must be lost, and small ones that must pass.
const CONFIRM: u8 = 13;
/// Further large packets for each small one that is lost.
const PER_SMALL_LOST: u8 = 2;
/// Small packets that may be lost. With more, the path is too bad to tell.
const SMALL_LOST_MAX: u8 = 8;
/// Small packets that are lost before one passes, after which the path counts as dead.
const DEAD: u8 = 3;
/// Errors of the network about packets of this size that need no further loss.
const CONFIRM_SAID: u8 = 3;
/// The same during bisection, when a hole is already certain: a size takes 8 lost packets while 4
/// small ones pass. At 36 % of random loss, a size is taken for blocked in 3 of 10,000 cases. The
/// next check corrects it.
const BISECT: u8 = 8;
const BISECT_SMALL: u8 = 4;
const BISECT_SAID: u8 = 2;

/// What is to be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether there is a hole at all.
    IsThereAHole,
    /// Whether the hole blocks this size too.
    IsItBlocked,
}

/// The answer so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// More packets are needed.
    Open,
    /// The size is blocked.
    Blocked,
    /// The path is too bad to tell.
    Unclear,
}

/// What happened to the packets of one size, and to the small ones among them. A large packet that
/// is answered ends the count: the size passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MtuEvidence {
    /// Number of large packets sent.
    pub sent: u8,
    /// Number of large packets that were not answered in time, or to which an error came.
    pub lost: u8,
    /// Number of large packets of which the network said that they are too big.
    pub said: u8,
    /// Number of small packets that were answered.
    pub small_passed: u8,
    /// Number of small packets that were not.
    pub small_lost: u8,
}

impl MtuEvidence {
    /// Returns the number of large packets that must be lost.
    pub const fn needed(&self, question: Question) -> u8 {
        match question {
            Question::IsThereAHole => CONFIRM + PER_SMALL_LOST * self.small_lost,
            Question::IsItBlocked => BISECT + self.small_lost,
        }
    }

    /// Returns what the packets say.
    pub const fn outcome(&self, question: Question) -> Outcome {
        let (small, said) = match question {
            Question::IsThereAHole => (CONFIRM, CONFIRM_SAID),
            Question::IsItBlocked => (BISECT_SMALL, BISECT_SAID),
        };
        let is_dead = self.small_passed == 0 && self.small_lost >= DEAD;
        if self.small_lost > SMALL_LOST_MAX || is_dead {
            Outcome::Unclear
        } else {
            let is_said = self.said >= said && self.small_passed > 0;
            let is_silent = self.lost >= self.needed(question) && self.small_passed >= small;
            if is_said || is_silent { Outcome::Blocked } else { Outcome::Open }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the exact probability that a check ends as blocked, if each packet is lost with
    /// probability `large` or `small`.
    fn blocked(large: f64, small: f64, question: Question) -> f64 {
        let mut states = vec![(MtuEvidence::default(), 1.0)];
        let mut total = 0.0;
        while let Some((at, chance)) = states.pop() {
            for (small_lost, of_small) in [(true, small), (false, 1.0 - small)] {
                let mut next = MtuEvidence { sent: at.sent + 1, lost: at.lost + 1, ..at };
                *(if small_lost { &mut next.small_lost } else { &mut next.small_passed }) += 1;
                let chance = chance * large * of_small;
                match next.outcome(question) {
                    Outcome::Open => match states.iter_mut().find(|(state, _)| *state == next) {
                        Some((_, sum)) => *sum += chance,
                        None => states.insert(0, (next, chance)),
                    },
                    Outcome::Blocked => total += chance,
                    Outcome::Unclear => {}
                }
            }
        }
        total
    }

    #[test]
    fn random_loss_of_a_fifth_makes_no_hole_in_a_million_hours() {
        let per_check = blocked(0.36, 0.36, Question::IsThereAHole);
        assert!(per_check > 0.0 && per_check * 60.0 < 1e-6, "{per_check:e} per check");
        // The worst loss is about a half. It still takes years.
        let worst = (1..100).map(|percent| f64::from(percent) / 100.0).map(|q| blocked(q, q, Question::IsThereAHole));
        let worst = worst.fold(0.0, f64::max);
        assert!(worst * 60.0 < 1e-5, "{worst:e} per check");
    }

    #[test]
    fn a_hole_is_found_at_once_on_a_good_path_and_mostly_on_a_bad_one() {
        assert!((blocked(1.0, 0.0, Question::IsThereAHole) - 1.0).abs() < 1e-12);
        assert!(blocked(1.0, 0.1, Question::IsThereAHole) > 0.99);
        assert!(blocked(1.0, 0.19, Question::IsThereAHole) > 0.8, "a tenth is lost in each direction");
        assert!(blocked(1.0, 1.0, Question::IsThereAHole) == 0.0, "a dead path has no hole");
    }

    #[test]
    fn a_size_is_rarely_taken_for_blocked_at_random() {
        let wrong = blocked(0.36, 0.36, Question::IsItBlocked);
        assert!(wrong < 3e-4, "{wrong:e}");
        assert!(blocked(1.0, 0.36, Question::IsItBlocked) > 0.8);
    }
}
