//! Compares the round-trip times of a link with those of its own last hour.

/// A slow round trip takes at least this many times the usual one. Percentiles are interpolated in
/// the agents' buckets, which hardly separate 1.1 ms from 2.4 ms.
pub const SLOW_TIMES: f32 = 4.0;
/// It also takes at least this much longer than the usual one: racks, bridges and
/// hypervisors differ by less.
pub const SLOW_EXTRA_US: f32 = 1_000.0;

/// Whether a round trip is far longer than the usual one.
pub fn is_slow(rtt_us: f32, usual_us: f32) -> bool {
    rtt_us >= usual_us * SLOW_TIMES && rtt_us >= usual_us + SLOW_EXTRA_US
}

/// How the round-trip times of a link compare with those of its quickest minute of the last hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// No probe was answered, or the usual time is not known.
    Unknown = 0,
    /// The round-trip times are far longer than usual.
    Slow = 1,
    /// The round-trip times are not far longer than usual.
    Usual = 2,
}

impl Pace {
    /// Returns the pace of a median round-trip time. Both times are in seconds, as in reports.
    pub fn from_times(rtt_seconds: Option<f64>, usual_seconds: Option<f64>) -> Self {
        let known = |seconds: Option<f64>| seconds.filter(|seconds| seconds.is_finite() && *seconds > 0.0);
        let (Some(rtt), Some(usual)) = (known(rtt_seconds), known(usual_seconds)) else { return Self::Unknown };
        #[expect(clippy::cast_possible_truncation, reason = "bounded by the minimum")]
        let us = |seconds: f64| (seconds * 1e6).min(f64::from(f32::MAX)) as f32;
        if is_slow(us(rtt), us(usual)) { Self::Slow } else { Self::Usual }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_slow_from_four_times_and_a_millisecond_more_than_its_quickest_minute() {
        let pace = |rtt_ms: f64, usual_ms: f64| Pace::from_times(Some(rtt_ms / 1e3), Some(usual_ms / 1e3));
        assert_eq!([pace(1.09, 0.1), pace(1.11, 0.1)], [Pace::Usual, Pace::Slow]);
        assert_eq!([pace(3.9, 1.0), pace(4.1, 1.0), pace(0.1, 1.0)], [Pace::Usual, Pace::Slow, Pace::Usual]);
    }

    #[test]
    fn values_that_are_no_time_give_no_pace() {
        for no_time in [None, Some(0.0), Some(-1.0), Some(f64::NAN), Some(f64::INFINITY)] {
            assert_eq!(
                [Pace::from_times(no_time, Some(1.0)), Pace::from_times(Some(1.0), no_time)],
                [Pace::Unknown; 2],
                "{no_time:?}"
            );
        }
        assert_eq!(Pace::from_times(Some(1e300), Some(1e300)), Pace::Usual);
    }
}
