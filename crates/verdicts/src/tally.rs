//! Counts of probes and of losses.

/// Number of probes and of losses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Number of probes that were answered or lost.
    pub probes: u32,
    /// Number of probes that were lost.
    pub lost: u32,
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
}
