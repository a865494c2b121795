//! How much better a culprit explains losses than background loss does.

use super::pairs::Tally;

/// The share of the losing pairs that are to be expected which must be there.
const SPREAD: f64 = 0.6;

/// What candidates are weighed by: probes, losses, and how they are spread over pairs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Probes over all pairs.
    pub probes: u32,
    /// Those that were lost.
    pub lost: u32,
    /// Pairs that were measured.
    pub pairs: u32,
    /// Pairs that lose anything.
    pub losing: u32,
    /// Pairs whose losses background alone hardly explains.
    pub hit: u32,
    /// What these gain with a rate of each one's own.
    pub apart: f32,
    /// What the pairs gain that could each stand as a bad link.
    pub as_links: f32,
    /// What the shared explanation gives these pairs without any cause beside it.
    pub explained: f32,
}

/// What a node is weighed by.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeSum {
    /// What both ends of its pairs measured.
    pub sum: Sum,
    /// What the node itself measured.
    pub own: Tally,
    /// Nodes that it measured.
    pub targets: u16,
    /// Those to which it reports a loss.
    pub losing_targets: u16,
    /// Pairs whose loss only the other end reports, and this node's own report excludes.
    pub denied: u16,
    /// Pairs whose loss only this node reports, and the other end's report excludes.
    pub alone: u16,
}

impl Sum {
    /// Probes and losses over all pairs.
    pub const fn tally(&self) -> Tally {
        Tally { probes: self.probes, lost: self.lost }
    }

    /// The share of probes that was lost.
    pub fn rate(&self) -> f64 {
        self.tally().rate()
    }

    /// Whether as many pairs lose as do where all lose alike: a few bad links are no bad node.
    pub fn is_spread(&self) -> bool {
        is_spread(self.tally(), [self.pairs, self.losing])
    }
}

/// Returns whether as many of these pairs, of which the second number loses, lose as do if all lose
/// alike.
pub fn is_spread(both: Tally, [pairs, losing]: [u32; 2]) -> bool {
    let pairs = f64::from(pairs.max(1));
    let lossless = (1.0 - both.rate()).powf(f64::from(both.probes) / pairs);
    f64::from(losing) >= SPREAD * pairs * (1.0 - lossless)
}

/// The logarithm of how much likelier it is that `lost` of `probes` are lost at their own rate than at the rate
/// `expected`, in nats; 0 where fewer are lost than expected.
///
/// By Chernoff's bound, the probability that background alone does this is at most e to the minus this.
pub fn gain(lost: u32, probes: u32, expected: f64) -> f64 {
    let rate = f64::from(lost) / f64::from(probes.max(1));
    if lost == 0 || rate <= expected {
        return 0.0;
    }
    let answered = f64::from(probes.saturating_sub(lost));
    let of_answered = if answered > 0.0 { answered * ((1.0 - rate) / (1.0 - expected)).ln() } else { 0.0 };
    f64::from(lost) * (rate / expected).ln() + of_answered
}

/// The logarithm of how likely it is that `lost` of `probes` are lost at the rate `expected`, in nats, without the
/// binomial coefficient, which all explanations share.
pub fn likelihood(lost: u32, probes: u32, expected: f64) -> f64 {
    // Neither is certain.
    let expected = expected.clamp(1e-6, 1.0 - 1e-4);
    let of_answered = f64::from(probes.saturating_sub(lost)) * (1.0 - expected).ln();
    // Most pairs lose nothing, and logarithms are what takes the time.
    if lost == 0 { of_answered } else { f64::from(lost) * expected.ln() + of_answered }
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
        // 4 of 120 at 0.1 %: chance does it in 8e-6 of all cases, by the binomial distribution's tail.
        let bound = (-gain(4, 120, 0.001)).exp();
        assert!(bound > 8e-6 && bound < 8e-5, "{bound}");
        assert!((gain(120, 120, 0.001) - 120.0 * 1_000_f64.ln()).abs() < 1e-9);
    }
}
