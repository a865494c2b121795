//! Computes how much better a cause explains losses than the background loss does.

use super::tally::Tally;
use crate::matrix::Layer;

/// The share of the expected number of losing pairs that must actually lose.
const SPREAD: f64 = 0.6;

/// Input for weighing candidates: probes, losses, and how they are spread over pairs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Number of probes over all pairs.
    pub probes: u32,
    /// Number of probes that were lost.
    pub lost: u32,
    /// Number of pairs that were measured.
    pub pairs: u32,
    /// Number of pairs with at least one loss.
    pub losing: u32,
    /// Number of pairs whose losses the background alone hardly explains.
    pub hit: u32,
    /// Nats that these pairs gain if each has its own loss rate.
    pub apart: f32,
    /// Nats of the pairs that could each be a bad link.
    pub as_links: f32,
    /// Nats that the shared explanation gives these pairs without any cause.
    pub explained: f32,
}

/// The sums of each layer.
pub type LayerSums = [Sum; Layer::ALL.len()];

/// The sums that a node is weighed by.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeSum {
    /// Measurements by both ends of its pairs.
    pub sum: Sum,
    /// Measurements by the node itself.
    pub own: Tally,
    /// Number of nodes that it measured.
    pub targets: u16,
    /// Number of nodes to which it reports a loss.
    pub losing_targets: u16,
    /// Number of pairs whose loss only the other end reports, while this node's report excludes it.
    pub denied: u16,
    /// Number of pairs whose loss only this node reports, while the other end's report excludes it.
    pub alone: u16,
}

impl Sum {
    /// Returns probes and losses over all pairs.
    pub const fn tally(&self) -> Tally {
        Tally { probes: self.probes, lost: self.lost }
    }

    /// Returns the share of probes that was lost, 0 to 1.
    pub fn rate(&self) -> f64 {
        self.tally().rate()
    }

    /// Whether as many pairs lose as if all lost at one rate. A few bad links are no bad node.
    pub fn is_spread(&self) -> bool {
        is_spread(self.tally(), [self.pairs, self.losing])
    }
}

/// Whether as many pairs lose as if all lost at one rate. The second number is the losing pairs.
pub fn is_spread(both: Tally, [pairs, losing]: [u32; 2]) -> bool {
    let pairs = f64::from(pairs.max(1));
    let lossless = (1.0 - both.rate()).powf(f64::from(both.probes) / pairs);
    f64::from(losing) >= SPREAD * pairs * (1.0 - lossless)
}

/// Returns in nats how much more likely `lost` of `probes` is at its own rate than at the rate
/// `expected`, as a logarithm. 0 if fewer are lost than expected.
///
/// By Chernoff's bound, the probability that background alone causes this is at most e to the power
/// of minus this value.
pub fn gain(lost: u32, probes: u32, expected: f64) -> f64 {
    let rate = f64::from(lost) / f64::from(probes.max(1));
    if lost == 0 || rate <= expected {
        return 0.0;
    }
    let answered = f64::from(probes.saturating_sub(lost));
    let of_answered = if answered > 0.0 { answered * ((1.0 - rate) / (1.0 - expected)).ln() } else { 0.0 };
    f64::from(lost) * (rate / expected).ln() + of_answered
}

/// Returns the log-likelihood of `lost` of `probes` at the rate `expected`, in nats. It leaves out
/// the binomial coefficient, which all explanations share.
pub fn likelihood(lost: u32, probes: u32, expected: f64) -> f64 {
    // Neither loss nor success is certain.
    let expected = expected.clamp(1e-6, 1.0 - 1e-4);
    let of_answered = f64::from(probes.saturating_sub(lost)) * (1.0 - expected).ln();
    // Logarithms take most of the time, and most pairs lose nothing.
    if lost == 0 { of_answered } else { f64::from(lost) * expected.ln() + of_answered }
}

/// Returns in nats how much better two rates explain the losses of both than one rate does.
pub fn apart(one: Tally, other: Tally) -> f64 {
    let own = |tally: Tally| likelihood(tally.lost, tally.probes, tally.rate());
    own(one) + own(other) - own(one.plus(other))
}

/// A loss is far more than another if it is this many times as much, and this much more.
const TIMES: f64 = 1.5;
const EXTRA: f64 = 0.01;

/// Whether a rate is far above another.
pub fn is_far(more: f64, less: f64) -> bool {
    more > less * TIMES + EXTRA
}

/// Whether the first loses far more than the second, and two rates explain both better than one
/// rate, by this many nats.
pub fn is_far_more(more: Tally, less: Tally, nats: f64) -> bool {
    is_far(more.rate(), less.rate()) && apart(more, less) >= nats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_losing_pairs_are_not_spread_and_the_same_losses_over_most_are() {
        let sum = |losing| Sum { probes: 840, lost: 10, pairs: 7, losing, ..Sum::default() };
        assert!(!sum(2).is_spread() && !sum(3).is_spread() && sum(5).is_spread());
    }

    #[test]
    fn no_more_than_expected_gains_nothing() {
        assert_eq!([gain(0, 0, 0.001), gain(0, 120, 0.001), gain(1, 1_000, 0.001)].map(f64::to_bits), [0; 3]);
    }

    #[test]
    fn the_gain_bounds_how_often_chance_does_the_same() {
        // By the tail of the binomial distribution, chance causes 4 of 120 at 0.1 % in
        // 8e-6 of all cases.
        let bound = (-gain(4, 120, 0.001)).exp();
        assert!(bound > 8e-6 && bound < 8e-5, "{bound}");
        assert!((gain(120, 120, 0.001) - 120.0 * 1_000_f64.ln()).abs() < 1e-9);
    }
}
