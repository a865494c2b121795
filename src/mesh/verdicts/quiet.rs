//! Whether the losses of a cause are over.
//!
//! The recent windows of the agents show a loss for up to a minute after its end. But a report also
//! says how many probes of a link were answered since its last loss. If the links of a cause have
//! answered far more than they would by chance, at the rates at which they lost before, it is over.
//!
//! The rate of a link is not known well: one loss and then many answers is no high rate that has
//! ended. So the weight of its answers is the likelihood of a beta distribution: with `s` of `m`
//! probes lost before, `a` answers in a row weigh about `(s + 1/2) ln(1 + a / (m + 1))` nats.
//!
//! Few links may have lost again since then, because a large mesh always loses a probe somewhere.
//! Which ones is not known before, so each choice of them costs its number of choices.
//!
//! Handshakes are too rare to tell. What TCP alone loses ends with the recent window.

use crate::mesh::matrix::{Cell, LastLosses, Layer};

/// Losses are not over before all links but a few have answered for so many seconds. A link that
/// fails for a second and works for some is not well in between.
const SECONDS_MIN: i16 = 5;
/// The largest age of a loss in the recent windows, in seconds. Older ones count as this old.
const SECONDS_MAX: i16 = 63;
/// Nats beyond those of chance. Each judgement asks this of each cause.
const NATS: f64 = 14.0;
/// One of so many links may have lost again.
const STRAY_ONE_OF: u32 = 8;

/// The cells of a cause that lose, by the age of their last loss.
#[derive(Debug, Default)]
pub struct Quiet {
    /// When the last report was read, in seconds after the epoch of the matrix.
    last_read: i16,
    cells: u32,
    /// By age in seconds. It is as long as the largest age.
    ages: Vec<Age>,
}

/// The cells whose last loss has the same age.
#[derive(Clone, Copy, Debug, Default)]
struct Age {
    cells: u32,
    /// Sum of their nats for each second of answers, and of those for the seconds between their
    /// reports and the last one.
    nats_per_second: f64,
    nats_not_seen: f64,
}

impl Quiet {
    /// Makes an empty one of a mesh whose last report was read at this moment.
    pub fn at(last_read: i16) -> Self {
        Self { last_read, ..Self::default() }
    }

    /// Adds a cell that has losses. Its report was read at this moment. Losses of unknown age
    /// count as those of now.
    pub fn add(&mut self, cell: Cell, last_losses: Option<LastLosses>, read: i16) {
        if cell.layer() == Layer::Tcp {
            return;
        }
        self.cells += 1;
        let Some(LastLosses { answered, moment, .. }) = last_losses.filter(|it| it.answered > 0) else { return };
        let seconds = f64::from(read.saturating_sub(moment).max(1));
        let (lost, answered) = (f64::from(cell.lost()), f64::from(answered));
        let before = (f64::from(cell.probes()) - answered).max(lost);
        let nats_per_second = (lost + 0.5) * (answered / (before + 1.0)).ln_1p() / seconds;
        let age = self.last_read.saturating_sub(moment).clamp(0, SECONDS_MAX);
        let place = usize::try_from(age).unwrap_or_default();
        if self.ages.len() <= place {
            self.ages.resize(place + 1, Age::default());
        }
        let ages = &mut self.ages[place];
        ages.cells += 1;
        ages.nats_per_second += nats_per_second;
        ages.nats_not_seen += nats_per_second * f64::from(self.last_read.saturating_sub(read));
    }

    /// Returns when the answers began, in seconds after the epoch of the matrix. `None` if the
    /// losses may go on.
    pub fn begin(&self) -> Option<i16> {
        let mut best: Option<(f64, i16)> = None;
        let (mut quiet, mut nats_per_second, mut nats_not_seen) = (0, 0.0, 0.0);
        for (age, cells) in self.ages.iter().enumerate().rev() {
            let age = i16::try_from(age).unwrap_or_default();
            quiet += cells.cells;
            nats_per_second += cells.nats_per_second;
            nats_not_seen += cells.nats_not_seen;
            let strays = self.cells - quiet;
            if age < SECONDS_MIN || strays * STRAY_ONE_OF > self.cells {
                continue;
            }
            let choices = match f64::from(strays) {
                0.0 => 0.0,
                strays => strays * (1.0 + (f64::from(self.cells) / strays).ln()),
            };
            let nats = nats_per_second * f64::from(age) - nats_not_seen - choices;
            if nats >= NATS && best.is_none_or(|(most, _)| nats > most) {
                best = Some((nats, age));
            }
        }
        best.map(|(_, age)| self.last_read.saturating_sub(age))
    }
}
