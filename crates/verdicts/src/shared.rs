//! What all links share: the first explanation of losses.
//!
//! Three hypotheses compete ([`Hypothesis`]). They differ in the loss of a link that no cause
//! touches; the search for causes is the same in all.

use std::ops::Index;

use super::pairs::Pair;
use super::score::{gain, likelihood};
use super::tally::Tally;
use crate::matrix::Layer;

/// Lower and upper bound of a shared loss rate that is no cause of its own. The upper bound is
/// three times the rate that must not be named, and a third of the rate that must be. 6,000 probes,
/// as 12 nodes send them, distinguish either from it.
pub const CALM: (f64, f64) = (0.000_5, 0.003);
/// Prior of the calm background, before any measurement: one loss in this many probes.
const PRIOR_PROBES: f64 = 1_000.0;
/// Cost in nats of a separate loss rate for a link.
pub const OWN_RATE: f64 = 2.0;
/// A cell is on a bad path if it loses this share, and this number, of its probes. A path that
/// loses less cannot be distinguished from links that are slightly worse than others.
const PATH_RATE_MIN: f64 = 0.15;
const PATH_LOST_MIN: u32 = 4;
/// The share of cells assumed to be on a bad path: before it is known, and at most.
const PATH_SHARE: (f64, f64) = (0.3, 0.6);

/// Largest cost in nats if a cell's loss rate is not that of the bad path, which may carry one or
/// both of its flows. Flows on one path may lose at different rates, but few do.
const MISFIT_MAX: f64 = 4.0;
const RATE_CLASSES: usize = 16;
/// A layer that loses more than this everywhere tells nothing of a further loss.
const TELLING_MAX: f64 = 0.75;

/// A hypothesis about what all links share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hypothesis {
    /// Next to nothing is lost without a cause.
    Calm,
    /// All links lose at one rate, of any size.
    Alike,
    /// All links lose at one rate, and some cells lose more: those on a bad path.
    Paths,
}

/// The loss of a link that no cause touches.
#[derive(Clone, Copy, Debug)]
pub struct SharedLoss {
    /// The hypothesis about what links share.
    pub of: Hypothesis,
    /// The shared loss rate.
    pub rate: f64,
    /// The share of cells on a bad path.
    pub path_share: f64,
    /// The loss rate of a flow on the bad path, if it is known.
    pub path_rate: Option<f64>,
}

/// What all links share, by layer.
#[derive(Clone, Copy, Debug)]
pub struct SharedLosses(pub [SharedLoss; Layer::ALL.len()]);

impl Index<Layer> for SharedLosses {
    type Output = SharedLoss;

    #[inline]
    fn index(&self, layer: Layer) -> &SharedLoss {
        &self.0[layer as usize]
    }
}

impl SharedLosses {
    /// Returns the first guess of what is shared, from the losses of each layer.
    pub fn new(of: Hypothesis, least: &[Tally; Layer::ALL.len()]) -> Self {
        Self(least.map(|least| SharedLoss::new(of, least)))
    }

    /// Returns the same, with a bad path in these layers.
    pub fn with_paths(mut self, layers: u8, least: &[Tally; Layer::ALL.len()]) -> Self {
        for layer in Layer::in_set(layers).map(|layer| layer as usize) {
            self.0[layer] = SharedLoss::new(Hypothesis::Paths, least[layer]);
        }
        self
    }

    /// Returns the layers with a bad path.
    pub fn paths(&self) -> u8 {
        let has_path = |layer: &Layer| self[*layer].of == Hypothesis::Paths;
        Layer::set(Layer::ALL.into_iter().filter(has_path))
    }

    /// Returns what is shared, estimated from what no cause touches.
    pub fn learnt(&self, rest: &[UntouchedSums; Layer::ALL.len()]) -> Self {
        Self(Layer::ALL.map(|layer| self[layer].learnt(&rest[layer as usize])))
    }

    /// Whether `learnt` is close to this estimate.
    pub fn is_near(&self, learnt: &Self) -> bool {
        Layer::ALL.into_iter().all(|layer| self[layer].is_near(&learnt[layer]))
    }

    /// Returns the layers that tell something of a further loss. Where nearly all is lost
    /// everywhere, other layers tell more.
    pub fn telling(&self) -> u8 {
        let is_telling = |layer: &Layer| self[*layer].rate <= TELLING_MAX;
        Layer::set(Layer::ALL.into_iter().filter(is_telling))
    }

    /// Whether a layer shares more than next to nothing.
    pub fn is_lossy(&self) -> bool {
        self.0.iter().any(|shared| shared.rate > CALM.1)
    }

    /// Returns in nats how much better one loss beyond what each layer shares explains these
    /// losses, and that loss. Over one layer it is [`gain`].
    pub fn gain(&self, layers: u8, tally: impl Fn(Layer) -> Tally) -> (f64, f64) {
        let telling = layers & self.telling();
        let layers = if telling == 0 { layers } else { telling };
        let mut measured = Layer::in_set(layers).map(|layer| (tally(layer), self[layer].rate));
        let mut measured: [_; Layer::ALL.len()] = std::array::from_fn(|_| measured.next().unwrap_or_default());
        measured.sort_unstable_by_key(|(tally, _)| std::cmp::Reverse(tally.probes));
        if measured[1].0.probes == 0 {
            let (tally, shared) = measured[0];
            return (gain(tally.lost, tally.probes, shared), 1.0 - (1.0 - tally.rate()) / (1.0 - shared).max(1e-3));
        }
        let (mut beyond, mut passing) = (0.0, 0.0);
        for (tally, shared) in measured {
            beyond += f64::from(tally.lost) - f64::from(tally.probes) * shared;
            passing += f64::from(tally.probes) * (1.0 - shared);
        }
        if beyond <= 0.0 {
            return (0.0, 0.0);
        }
        let excess = (beyond / passing).min(1.0);
        let nats = measured.into_iter().map(|(Tally { lost, probes }, shared)| {
            likelihood(lost, probes, 1.0 - (1.0 - shared) * (1.0 - excess)) - likelihood(lost, probes, shared)
        });
        (nats.sum::<f64>().max(0.0), excess)
    }

    /// Returns the loss by layer of links that lose this much beyond what each layer shares.
    pub fn rates(&self, excess: f64) -> [f64; Layer::ALL.len()] {
        self.0.map(|shared| 1.0 - (1.0 - shared.rate) * (1.0 - excess))
    }
}

/// Sums of what no cause touches.
#[derive(Clone, Copy, Debug, Default)]
pub struct UntouchedSums {
    /// Probes of cells at the shared rate.
    pub even: Tally,
    /// Probes of cells on a bad path.
    on_path: Rates,
    /// Number of cells, and how many of them are on a bad path.
    pub cells: [u32; 2],
    /// Number of pairs without a bad path, and how many of them lose.
    pub pairs: [u32; 2],
}

/// Probes by the loss rate of their cell or pair, in classes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates([Tally; RATE_CLASSES]);

impl SharedLoss {
    /// Returns the first guess of what is shared, from these losses.
    pub fn new(of: Hypothesis, least: Tally) -> Self {
        let rate = if of == Hypothesis::Alike { plain(least) } else { calm(least).min(CALM.1) };
        Self { of, rate, path_share: PATH_SHARE.0, path_rate: None }
    }

    /// Returns the same, with the largest share of cells on a bad path, at any rate.
    pub fn with_most_paths(self) -> Self {
        Self { of: Hypothesis::Paths, path_share: PATH_SHARE.1, path_rate: None, ..self }
    }

    /// Returns what is shared, estimated from what no cause touches.
    pub fn learnt(self, rest: &UntouchedSums) -> Self {
        let rate = match self.of {
            Hypothesis::Calm => calm(rest.even).min(CALM.1),
            Hypothesis::Alike => plain(rest.even),
            Hypothesis::Paths => calm(rest.even),
        };
        let [cells, on_path] = rest.cells.map(f64::from);
        let path_share = ((on_path + 1.0) / (cells + 2.0)).min(PATH_SHARE.1);
        // The rate of a flow: most of these cells have one flow on the path.
        let path_rate = if self.of == Hypothesis::Paths { rest.on_path.median() } else { None };
        Self { rate, path_share, path_rate, ..self }
    }

    /// Whether `learnt` is close to this estimate.
    pub fn is_near(&self, learnt: &Self) -> bool {
        let is_path_near = match (self.path_rate, learnt.path_rate) {
            (Some(before), Some(after)) => (before / after - 1.0).abs() < 0.1,
            (before, after) => before == after,
        };
        let is_share_near = (learnt.path_share / self.path_share - 1.0).abs() < 0.2;
        (learnt.rate / self.rate - 1.0).abs() < 0.1 && is_share_near && is_path_near
    }

    /// Returns what each pair pays if some cells are on a bad path, whether a cause touches it or
    /// not: the logarithm of the share of those that are not.
    pub fn off_path(&self, pair: &Pair) -> f64 {
        if self.of != Hypothesis::Paths {
            return 0.0;
        }
        let cells = u8::from(pair.there.probes > 0) + u8::from(pair.back.probes > 0);
        f64::from(cells) * (1.0 - self.path_share).ln()
    }

    /// Returns the cost of a cell on a bad path, in nats.
    pub fn path_cost(&self) -> f64 {
        OWN_RATE + ((1.0 - self.path_share) / self.path_share).ln()
    }

    /// Returns the cost in nats if a cell does not lose at the rate of a path that carries one or
    /// both of its flows.
    fn misfit(&self, tally: Tally) -> f64 {
        let Some(rate) = self.path_rate else { return 0.0 };
        let at = |rate: f64| likelihood(tally.lost, tally.probes, rate);
        (at(tally.rate()) - at(rate).max(at(rate * (2.0 - rate)))).clamp(0.0, MISFIT_MAX)
    }

    /// Whether a cell or pair loses so much that a bad path may be the reason.
    pub fn may_be_on_path(&self, tally: Tally) -> bool {
        self.of == Hypothesis::Paths && tally.lost >= PATH_LOST_MIN && tally.rate() >= PATH_RATE_MIN
    }

    /// Returns the nats that a bad path explains of a cell; 0 if the cell is not on one.
    fn by_path(&self, tally: Tally) -> f64 {
        if !self.may_be_on_path(tally) {
            return 0.0;
        }
        (gain(tally.lost, tally.probes, self.rate) - self.path_cost() - self.misfit(tally)).max(0.0)
    }

    /// Returns the nats that bad paths explain of a pair: of both cells together, or of each
    /// separately. If a flow is an ordered pair of addresses, both cells use the same two
    /// flows. One bad path is then one coincidence. If requests and replies are hashed
    /// separately, they use four flows.
    pub fn explains(&self, pair: &Pair) -> f64 {
        if self.of != Hypothesis::Paths {
            return 0.0;
        }
        let together = self.by_path(pair.both());
        if pair.is_measured_twice() {
            together.max(self.by_path(pair.there) + self.by_path(pair.back))
        } else {
            together
        }
    }

    /// Returns the log-likelihood of a pair's losses if no cause touches it.
    pub fn likelihood(&self, pair: &Pair) -> f64 {
        let both = pair.both();
        likelihood(both.lost, both.probes, self.rate) + self.explains(pair) + self.off_path(pair)
    }

    /// Adds a pair that no cause touches. Returns whether it is on a bad path.
    pub fn add(&self, rest: &mut UntouchedSums, pair: &Pair) -> bool {
        let before = rest.cells[1];
        let cells = [pair.there, pair.back].map(|tally| (tally, self.by_path(tally)));
        let are_both = pair.is_measured_twice() && self.by_path(pair.both()) > cells[0].1 + cells[1].1;
        for (tally, nats) in cells.into_iter().filter(|(tally, _)| tally.probes > 0) {
            rest.cells[0] += 1;
            if are_both || nats > 0.0 {
                rest.cells[1] += 1;
                rest.on_path.add(tally);
            } else {
                rest.even = rest.even.plus(tally);
            }
        }
        let is_on_path = rest.cells[1] > before;
        if !is_on_path {
            rest.pairs[0] += 1;
            rest.pairs[1] += u32::from(pair.both().lost > 0);
        }
        is_on_path
    }
}

impl UntouchedSums {
    /// Returns the probes of cells on a bad path.
    pub fn on_path(&self) -> Tally {
        self.on_path.sum()
    }
}

impl Rates {
    /// Adds the probes of a cell or a pair.
    pub fn add(&mut self, tally: Tally) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is 0 to 1")]
        let class = &mut self.0[((tally.rate() * RATE_CLASSES as f64) as usize).min(RATE_CLASSES - 1)];
        *class = class.plus(tally);
    }

    fn sum(&self) -> Tally {
        self.0.iter().copied().sum()
    }

    /// Returns the median loss rate: that of the class in the middle and its two neighbours. One
    /// rate may be at the limit of two classes. `None` without any probe.
    pub fn median(&self) -> Option<f64> {
        let half = self.sum().probes / 2;
        let mut probes = 0;
        let middle = self.0.iter().position(|class| {
            probes = class.probes.saturating_add(probes);
            probes > half
        })?;
        let near = &self.0[middle.saturating_sub(1)..RATE_CLASSES.min(middle + 2)];
        Some(near.iter().copied().sum::<Tally>().rate())
    }
}

/// Returns the measured rate if it is above the calm one, otherwise the rate with the prior.
fn plain(rest: Tally) -> f64 {
    if rest.rate() > CALM.1 { rest.rate() } else { calm(rest) }
}

/// Returns a rate with the prior of a calm mesh.
pub fn calm(rest: Tally) -> f64 {
    ((f64::from(rest.lost) + 1.0) / (f64::from(rest.probes) + PRIOR_PROBES)).max(CALM.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_one_rate_at_the_limit_of_two_classes_is_that_rate() {
        assert_eq!(Rates::default().median(), None);
        let mut rates = Rates::default();
        // 30 of 32 is the limit of the last class.
        (28..=32).for_each(|lost| rates.add(Tally { probes: 32, lost }));
        (0..4).for_each(|_| rates.add(Tally { probes: 32, lost: 8 }));
        assert_eq!(rates.median(), Some(30.0 / 32.0));
    }
}
