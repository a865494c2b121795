//! Randomness for jitter. It is not for secrets.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Returns the id of a DNS question.
pub fn id() -> u16 {
    // The hash is keyed (SipHash), so one id does not reveal the next.
    u16::try_from(RandomState::new().hash_one(0_u8) >> 48).unwrap_or(0)
}

/// Returns a number in [0, 1). The standard library seeds each `RandomState` from the kernel and
/// then counts up under a keyed hash. That is good enough to spread agents over time, and needs no
/// further crate or state.
pub fn unit() -> f64 {
    // 53 bits, the precision of an f64.
    (RandomState::new().hash_one(0_u8) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Returns `middle` ± `part` of it, for `random` in [0, 1).
pub fn spread(middle: Duration, part: f64, random: f64) -> Duration {
    middle.mul_f64(1.0 - part + 2.0 * part * random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lie_in_the_unit_interval_and_on_both_of_its_sides() {
        let drawn: Vec<f64> = (0..1_000).map(|_| unit()).collect();
        assert!(drawn.iter().all(|u| (0.0..1.0).contains(u)));
        // Each of these fails by chance once in 2^1000.
        assert!(drawn.iter().any(|u| *u < 0.5) && drawn.iter().any(|u| *u >= 0.5));
    }

    #[test]
    fn a_spread_reaches_from_below_to_above() {
        let s = Duration::from_secs;
        assert_eq!((spread(s(10), 0.5, 0.0), spread(s(10), 0.5, 0.5), spread(s(10), 0.5, 1.0)), (s(5), s(10), s(15)));
    }
}
