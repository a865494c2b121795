//! Whether the losses of a cause are over.
//!
//! The recent windows of the agents show a loss for up to a minute after its end. But a report also
//! says how many probes of a link were answered since its last loss. If the links of a cause have
//! answered far more than they would by chance, at the rate at which they lost before, it is over.
//!
//! The rate is not known well: one loss and then many answers is no high rate that has ended. So
//! the weight of the answers is the likelihood of a beta distribution: with `s` of `m` probes lost
//! before, `a` answers in a row weigh about `(s + 1/2) ln(1 + a / (m + 1))` nats.
//!
//! A link may have lost a single probe since then, and a few links more than that: a large mesh
//! always loses a probe somewhere. Which one is not known before, so each choice costs its number
//! of choices.
//!
//! Handshakes are rare, and a lost one is soon followed by another. So they count only if TCP alone
//! loses, and only with the time since the last loss, which the report has. What a single link
//! loses by TCP ends at the earliest some 20 s after it.
//!
//! Of flows that lose while the others of their link do not, the report counts the answers.

use crate::matrix::{Cell, LastLosses, Layer, LosingFlows};

/// Losses are not over before all links but a few have answered for this many seconds. A link that
/// fails for a second and works for some is not well in between.
const SECONDS_MIN: i16 = 5;
/// The longest recent window, in seconds. Older losses count as this old.
const SECONDS_MAX: i16 = 60;
/// Nats beyond those of chance. Each judgement asks this of each cause.
const NATS: f64 = 10.0;
/// The same after this many seconds. What the recent windows then still show of a fault that has
/// ended is little, and so is the weight of the answers since.
const NATS_IF_CALM: f64 = 5.0;
const CALM_SECONDS: i16 = 20;
/// One of this many links may have lost again.
const STRAY_ONE_OF: u32 = 8;

/// The cells of a cause, by the age of their last loss.
#[derive(Debug, Default)]
pub struct Quiet {
    /// When the last report was read, in seconds after the epoch of the matrix, and how much
    /// earlier the first one was.
    last_read: i16,
    collection: f64,
    /// Number of cells that lose.
    cells: u32,
    /// Number of probes of cells that have lost nothing.
    probes_of_others: u32,
    /// By age in seconds. It is as long as the largest age.
    ages: Vec<CellSums>,
}

/// Sums over cells.
#[derive(Clone, Copy, Debug, Default)]
struct CellSums {
    cells: u32,
    /// Losses, and the probes from the first to the last of them.
    lost: f64,
    before: f64,
    /// Answers since the last loss, for each second, and those of the time between the cell's
    /// report and the last one.
    per_second: f64,
    not_seen: f64,
}

impl CellSums {
    fn add(&mut self, other: &Self) {
        self.cells += other.cells;
        self.lost += other.lost;
        self.before += other.before;
        self.per_second += other.per_second;
        self.not_seen += other.not_seen;
    }
}

/// The answers of a cell since it ceased to lose.
#[derive(Clone, Copy)]
struct CellAnswers {
    count: f64,
    /// Time from the first one until its report was read.
    seconds: f64,
    lost: f64,
    before: f64,
    cost: f64,
}

impl CellAnswers {
    fn since_last_loss(cell: Cell, run: LastLosses, seconds: f64) -> Self {
        let (count, lost) = (f64::from(run.answered), f64::from(cell.lost()));
        Self { count, seconds, lost, before: (f64::from(cell.probes()) - count).max(lost), cost: 0.0 }
    }

    /// Returns the answers before and after the last loss, if that was a single one. It may have
    /// been at any place between them.
    /// `None` for handshakes, because they are not evenly spaced.
    fn with_stray(cell: Cell, run: LastLosses, seconds: f64) -> Option<Self> {
        let [after, between] = [run.answered, run.answered_before].map(f64::from);
        let lost = f64::from(cell.lost()) - 1.0;
        let per_probe = seconds / after.max(1.0);
        let count = between + after;
        (run.lost == 1 && lost > 0.0 && cell.layer() != Layer::Tcp).then(|| Self {
            count,
            seconds: seconds + per_probe * (between + after.min(1.0)),
            lost,
            before: (f64::from(cell.probes()) - count - 1.0).max(lost),
            cost: count.ln_1p(),
        })
    }

    fn nats(self) -> f64 {
        weight(self.lost, self.before, self.count) - self.cost
    }
}

/// Returns the nats of this many answers in a row after `lost` of `before` probes.
fn weight(lost: f64, before: f64, answers: f64) -> f64 {
    (lost + 0.5) * (answers.max(0.0) / (before + 1.0)).ln_1p()
}

impl Quiet {
    /// Makes an empty one of a mesh whose first and last report were read at these moments.
    pub fn new(first_read: i16, last_read: i16) -> Self {
        Self { last_read, collection: last_read.saturating_sub(first_read).into(), ..Self::default() }
    }

    /// Adds a cell that has losses. Its report was read at this moment. Losses of unknown age
    /// count as those of now.
    pub fn add(&mut self, cell: Cell, last_losses: Option<LastLosses>, read: i16) {
        self.cells += 1;
        let Some(run) = last_losses else { return };
        let seconds = f64::from(read.saturating_sub(run.moment).max(1));
        let since = CellAnswers::since_last_loss(cell, run, seconds);
        let best = CellAnswers::with_stray(cell, run, seconds)
            .filter(|answers| answers.nats() > since.nats())
            .unwrap_or(since);
        self.add_answers(best, read);
    }

    /// Does the same for flows of a link.
    pub fn add_flows(&mut self, flows: &LosingFlows, read: i16) {
        self.cells += 1;
        let [count, seconds, lost, probes] =
            [flows.answered, flows.answered_seconds.max(1), flows.lost, flows.probes].map(f64::from);
        // The counts are those of one of them.
        let before = (probes - count / f64::from(flows.losing.max(1))).max(lost);
        self.add_answers(CellAnswers { count, seconds, lost, before, cost: 0.0 }, read);
    }

    fn add_answers(&mut self, best: CellAnswers, read: i16) {
        if best.nats() <= 0.0 {
            return;
        }
        let not_seen = f64::from(self.last_read.saturating_sub(read));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a minute")]
        let age = (best.seconds + not_seen).clamp(0.0, SECONDS_MAX.into()) as usize;
        if self.ages.len() <= age {
            self.ages.resize(age + 1, CellSums::default());
        }
        let CellAnswers { count, seconds, lost, before, .. } = best;
        let per_second = count / seconds;
        self.ages[age].add(&CellSums { cells: 1, lost, before, per_second, not_seen: per_second * not_seen });
    }

    /// Adds probes of cells that have lost nothing.
    pub fn add_others(&mut self, probes: u32) {
        self.probes_of_others = self.probes_of_others.saturating_add(probes);
    }

    /// Returns since when all cells but a few have lost nothing, in seconds after the epoch of the
    /// matrix. `None` if more of them have just lost, or may have.
    pub fn calm_since(&self) -> Option<i16> {
        let mut quiet = 0;
        let (age, _) = self.ages.iter().enumerate().rev().find(|(_, cells)| {
            quiet += cells.cells;
            (self.cells - quiet) * STRAY_ONE_OF <= self.cells
        })?;
        Some(self.last_read.saturating_sub(i16::try_from(age).unwrap_or(SECONDS_MAX)))
    }

    /// Returns when the answers began, in seconds after the epoch of the matrix. `None` if the
    /// losses may go on.
    pub fn begin(&self) -> Option<i16> {
        let mut best: Option<(f64, i16)> = None;
        let mut quiet = CellSums::default();
        for (age, cells) in self.ages.iter().enumerate().rev() {
            let age = i16::try_from(age).unwrap_or(SECONDS_MAX);
            quiet.add(cells);
            let strays = self.cells - quiet.cells;
            if age < SECONDS_MIN || strays * STRAY_ONE_OF > self.cells {
                continue;
            }
            let choices = match f64::from(strays) {
                0.0 => 0.0,
                strays => strays * (1.0 + (f64::from(self.cells) / strays).ln()),
            };
            let (seconds, others) = (f64::from(age), f64::from(self.probes_of_others));
            // Cells that have lost nothing lose at the same rate, and show the same answers.
            let others_since = others * (seconds - self.collection).max(0.0) / f64::from(SECONDS_MAX);
            let answers = quiet.per_second * seconds - quiet.not_seen + others_since;
            let nats = weight(quiet.lost, quiet.before + others - others_since, answers) - choices;
            if nats >= if age < CALM_SECONDS { NATS } else { NATS_IF_CALM } && best.is_none_or(|(most, _)| nats > most)
            {
                best = Some((nats, age));
            }
        }
        best.map(|(_, age)| self.last_read.saturating_sub(age))
    }
}
