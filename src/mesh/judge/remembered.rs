//! Since when the judges remember what happened. No clock.

/// A longer time without a judgement is not remembered. A judge replaces another within less.
const GAP_SECONDS: u64 = 120;

/// The time of which all that happened is known, in Unix seconds.
#[derive(Debug, Default)]
pub struct Remembered {
    /// `None` if nothing is known.
    since: Option<u64>,
    until: u64,
}

impl Remembered {
    /// Takes a judgement. What was before a gap is no longer part of the time.
    pub fn judged(&mut self, now_unix_seconds: u64) {
        if self.until.saturating_add(GAP_SECONDS) < now_unix_seconds {
            self.since = None;
        }
        self.extend(now_unix_seconds, now_unix_seconds);
    }

    /// Adds the time that others remember.
    pub fn extend(&mut self, since: u64, until: u64) {
        self.since = Some(self.since.map_or(since, |own| own.min(since)));
        self.until = self.until.max(until);
    }

    /// Returns the beginning, at most this many seconds ago, and the end.
    pub fn times(&self, now_unix_seconds: u64, at_most_seconds: u64) -> (u64, u64) {
        let since = self.since.unwrap_or(now_unix_seconds);
        (since.max(now_unix_seconds.saturating_sub(at_most_seconds)), self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_time_without_a_judgement_is_remembered_and_a_long_one_is_not() {
        let mut remembered = Remembered::default();
        assert_eq!(remembered.times(5_000, 1_000), (5_000, 0), "nothing is known");
        remembered.judged(1_000);
        remembered.judged(1_120);
        assert_eq!(remembered.times(1_125, 1_000), (1_000, 1_120));
        remembered.extend(500, 1_110);
        assert_eq!(remembered.times(1_125, 1_000), (500, 1_120), "others saw more");
        assert_eq!(remembered.times(1_900, 1_000), (900, 1_120), "no longer than verdicts are kept");
        remembered.judged(1_241);
        assert_eq!(remembered.times(1_241, 1_000), (1_241, 1_241));
    }
}
