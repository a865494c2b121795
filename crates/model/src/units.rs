//! The units that every stage shares: one clock, and one notation for durations.

use std::time::Duration;

/// A point on `CLOCK_MONOTONIC`, or a span of it, in nanoseconds.
///
/// One type for both keeps the prober's arithmetic free of conversions. 64 bits last 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Returns a span of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }

    /// Returns the span from `earlier` to `self`, or zero if `earlier` is later.
    /// It is never negative.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// Returns `self + span`, or the largest value if that overflows.
    #[must_use]
    pub const fn plus(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Returns the value in seconds, the unit of every metric.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns the value in whole seconds, rounded. For times of day.
    pub const fn as_secs(self) -> u64 {
        self.0.saturating_add(500_000_000) / 1_000_000_000
    }
}

impl From<Duration> for Nanos {
    fn from(d: Duration) -> Self {
        Self(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(n: Nanos) -> Self {
        Self::from_nanos(n.0)
    }
}

/// Parses `10us`, `2.5ms`, `1s`, `5m`, `1h`: a number and one unit. `ns` and `µs` are
/// accepted, too.
///
/// # Errors
/// A sentence that says what is accepted.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const ACCEPTED: &str = "a number and a unit (ns, us, ms, s, m, h), such as 500ms or 1s";
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale: f64 = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3_600e9,
        _ => return Err(ACCEPTED.into()),
    };
    let value: f64 = number.parse().map_err(|_| ACCEPTED.to_owned())?;
    let nanos = (value * scale).round();
    // 2^53 ns is 104 days. Above that a float cannot represent every nanosecond, and none of our
    // settings needs such a duration.
    if !(0.0..9.007e15).contains(&nanos) {
        return Err("a duration between 0ns and 2500h".into());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "range-checked above")]
    Ok(Duration::from_nanos(nanos as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_with_their_unit() {
        assert_eq!(parse_duration("10us"), Ok(Duration::from_micros(10)));
        assert_eq!(parse_duration("2.5ms"), Ok(Duration::from_micros(2_500)));
        assert_eq!(parse_duration("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(parse_duration("5m"), Ok(Duration::from_mins(5)));
    }

    #[test]
    fn durations_without_unit_or_out_of_range_are_refused() {
        for bad in ["", "1", "s", "-1s", "1.2.3s", "1d", "9999999h"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_span_is_never_negative() {
        assert_eq!(Nanos(5).since(Nanos(9)), Nanos(0));
    }

    #[test]
    fn whole_seconds_are_the_nearest() {
        let seconds = [499_999_999, 500_000_000, 1_499_999_999].map(|n| Nanos(n).as_secs());
        assert_eq!(seconds, [0, 1, 1]);
    }
}
