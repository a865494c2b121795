//! What all links share: the first explanation of what they lose.
//!
//! Three hypotheses compete ([`Hypothesis`]). Each has its own idea of what a link loses that no
//! cause touches; the search for causes is the same in all of them.

use super::pairs::{Pair, Tally};
use super::score::{gain, likelihood};

/// Up to this rate, and never below, the loss that links share is no cause of its own. The upper
/// bound is three times what must not be named, and a third of what must be: 6,000 probes, as 12
/// nodes have them, tell either from it.
pub const CALM: (f64, f64) = (0.000_5, 0.003);
/// What is thought of the calm background before anything is measured: one loss in this many
/// probes.
const PRIOR_PROBES: f64 = 1_000.0;
/// What it costs, in nats, to give links a loss rate of their own.
pub const OWN_RATE: f64 = 2.0;
/// A cell is on a bad path if it loses this share, and this number, of its probes. A path that
/// loses less is not told from links that are a little worse than others.
const PATH_RATE_MIN: f64 = 0.15;
const PATH_LOST_MIN: u32 = 4;
/// The share of cells that is thought to be on a bad path, before it is known and at most.
const PATH_SHARE: (f64, f64) = (0.3, 0.6);

/// What all links share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hypothesis {
    /// Next to nothing is lost but for causes.
    Calm,
    /// All links lose at one rate, whatever that is.
    Alike,
    /// All links lose at one rate, and some of the cells besides: those on a bad path.
    Paths,
}

/// What a link loses that no cause touches.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// The hypothesis.
    pub of: Hypothesis,
    /// The loss rate.
    pub rate: f64,
    /// The share of cells on a bad path.
    pub path_share: f64,
}

/// What no cause touches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rest {
    /// Probes of cells at the shared rate.
    pub even: Tally,
    /// Probes of cells on a bad path.
    pub on_path: Tally,
    /// Cells, and how many of them are on a bad path.
    pub cells: [u32; 2],
    /// Pairs without a bad path, and how many of them lose.
    pub pairs: [u32; 2],
}

impl Shared {
    /// Returns what is shared to begin with, if links lose this.
    pub fn new(of: Hypothesis, least: Tally) -> Self {
        let rate = if of == Hypothesis::Alike { plain(least) } else { calm(least).min(CALM.1) };
        Self { of, rate, path_share: PATH_SHARE.0 }
    }

    /// Returns what is shared, as far as the rest that no cause touches says.
    pub fn learnt(self, rest: &Rest) -> Self {
        let rate = match self.of {
            Hypothesis::Calm => calm(rest.even).min(CALM.1),
            Hypothesis::Alike => plain(rest.even),
            Hypothesis::Paths => calm(rest.even),
        };
        let [cells, on_path] = rest.cells.map(f64::from);
        let path_share = ((on_path + 1.0) / (cells + 2.0)).min(PATH_SHARE.1);
        Self { rate, path_share, ..self }
    }

    /// Returns what a cell on a bad path costs.
    fn path_cost(&self) -> f64 {
        OWN_RATE + ((1.0 - self.path_share) / self.path_share).ln()
    }

    /// Returns the nats that a bad path explains of a cell; 0 if the cell is not on one.
    fn by_path(&self, tally: Tally) -> f64 {
        let is_lossy = tally.lost >= PATH_LOST_MIN && tally.rate() >= PATH_RATE_MIN;
        if self.of != Hypothesis::Paths || !is_lossy {
            return 0.0;
        }
        (gain(tally.lost, tally.probes, self.rate) - self.path_cost()).max(0.0)
    }

    /// Returns the nats that bad paths explain of a pair.
    pub fn explains(&self, pair: &Pair) -> f64 {
        if self.of == Hypothesis::Paths { self.by_path(pair.there) + self.by_path(pair.back) } else { 0.0 }
    }

    /// Returns the logarithm of how likely a pair's losses are if no cause touches it.
    pub fn likelihood(&self, pair: &Pair) -> f64 {
        let both = pair.both();
        let even = likelihood(both.lost, both.probes, self.rate) + self.explains(pair);
        if self.of == Hypothesis::Paths {
            let cells = u8::from(pair.there.probes > 0) + u8::from(pair.back.probes > 0);
            even + f64::from(cells) * (1.0 - self.path_share).ln()
        } else {
            even
        }
    }

    /// Adds a pair that no cause touches. Returns whether it is on a bad path.
    pub fn add(&self, rest: &mut Rest, pair: &Pair) -> bool {
        let before = rest.cells[1];
        for tally in [pair.there, pair.back].into_iter().filter(|tally| tally.probes > 0) {
            rest.cells[0] += 1;
            if self.by_path(tally) > 0.0 {
                rest.cells[1] += 1;
                rest.on_path = rest.on_path.plus(tally);
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

/// Returns a rate as it was measured, if that is above the calm one.
fn plain(rest: Tally) -> f64 {
    if rest.rate() > CALM.1 { rest.rate() } else { calm(rest) }
}

/// Returns a rate with the prior of a calm mesh.
pub fn calm(rest: Tally) -> f64 {
    ((f64::from(rest.lost) + 1.0) / (f64::from(rest.probes) + PRIOR_PROBES)).max(CALM.0)
}
