//! Counts of probes and of losses.

/// Number of probes and of losses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Number of probes that were answered or lost.
    pub probes: u32,
    /// Number of probes that were lost.
    pub lost: u32,
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), Self::plus)
    }
}

impl Tally {
    /// Returns the sum of both. A sum of more than 4 billion probes stays there: `doctor --rows`
    /// may read as many.
    #[inline]
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { probes: self.probes.saturating_add(other.probes), lost: self.lost.saturating_add(other.lost) }
    }

    /// Returns the share of the probes that was lost, 0 to 1.
    pub fn rate(self) -> f64 {
        if self.probes == 0 { 0.0 } else { f64::from(self.lost) / f64::from(self.probes) }
    }

    /// Returns what is left without `part`.
    #[must_use]
    pub const fn without(self, part: Self) -> Self {
        Self { probes: self.probes.saturating_sub(part.probes), lost: self.lost.saturating_sub(part.lost) }
    }

    /// Returns as many probes with what they would lose if they also lost at this rate.
    #[must_use]
    pub fn lifted(self, rate: f64) -> Self {
        if rate <= 0.0 {
            return self;
        }
        let lost = f64::from(self.probes) * (1.0 - (1.0 - self.rate()) * (1.0 - rate.min(1.0)));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the probes")]
        let lost = (lost.round() as u32).min(self.probes);
        Self { lost, ..self }
    }
}
