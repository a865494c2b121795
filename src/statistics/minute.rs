//! A finished minute of one peer in 16 bits: what became of its probes, and how long the answers took.
//!
//! - Loss in 7 bits: 0 not measured (no probe was answered or given up in that minute), 1 none lost, up to 127 all lost. In
//!   between stands the square root of the loss, in steps of 1/126: fine where losses are small (one of 60 reads as
//!   1.6 %, one of 600 as 0.16 %), and any loss is neither none nor all. See [`Minute::loss`] for the error. A scale
//!   in proportion to the loss would take one of 6,000 (`--interval 10ms`) for none; a logarithmic one is coarse just
//!   where most is lost.
//! - The octaves of p50 and p99 together in 9 bits, 22 times 22 and one for "nobody answered". An octave ends at a power of two,
//!   as a native histogram's bucket does at any schema: whatever the links' resolution, the octave is exact.

/// A minute, as it is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Minute(pub(super) u16);

const TIMES_BITS: u32 = 9;
/// The code of a minute in which nothing was lost; what is above says how much was.
const NONE_LOST: u16 = 1;
/// Steps from there to the code of one in which everything was.
const STEPS: u16 = 126;
const _: () = assert!(NONE_LOST + STEPS < 1 << (u16::BITS - TIMES_BITS));
const _: () = assert!(OCTAVES * OCTAVES < 1 << TIMES_BITS);
/// Octaves that are told apart: the first ends at 7.6 µs, the last but one at 8 s.
const OCTAVES: usize = 22;
/// The power of two, in seconds, at which the first octave ends.
const FIRST_POWER: i32 = -17;

/// The octave of a time in seconds.
pub(super) fn octave(seconds: f64) -> usize {
    (0..OCTAVES - 1).find(|at| seconds <= upper(*at)).unwrap_or(OCTAVES - 1)
}

/// The upper bound of an octave in seconds. The last one has none: this is twice the bound of the one before.
pub(super) fn upper(octave: usize) -> f64 {
    (f64::from(FIRST_POWER) + octave as f64).exp2()
}

impl Minute {
    /// Nothing is known of it.
    pub const NOT_MEASURED: Self = Self(0);

    /// Of so many probes answered and lost, and the octaves of the median and of the 99th percentile where they are known.
    pub(super) fn new(answered: u32, lost: u32, times: Option<[usize; 2]>) -> Self {
        if answered == 0 && lost == 0 {
            return Self::NOT_MEASURED;
        }
        let code = NONE_LOST + step(answered, lost);
        let times = times.map_or(0, |[p50, p99]| 1 + p50 * OCTAVES + p99);
        Self(code << TIMES_BITS | u16::try_from(times).unwrap_or(0))
    }

    /// The part of the probes that was lost, 0 to 1; none where nothing was measured. None and all are exact; of what is
    /// between, the error is below `sqrt(loss) / 63`: 0.2 percentage points at 2 %, 1.2 at 50 %, 1.6 just below all.
    pub fn loss(self) -> Option<f64> {
        let step = (self.0 >> TIMES_BITS).checked_sub(NONE_LOST)?;
        Some((f64::from(step) / f64::from(STEPS)).powi(2))
    }

    /// Whether anything was lost.
    pub const fn is_losing(self) -> bool {
        self.0 >> TIMES_BITS > NONE_LOST
    }

    /// The octaves of the median and of the 99th percentile; none where nobody answered, and at intervals below 167 ms also
    /// where nobody did at the end of the minute.
    pub fn times(self) -> Option<[usize; 2]> {
        let code = usize::from(self.0 & ((1 << TIMES_BITS) - 1)).checked_sub(1)?;
        Some([code / OCTAVES, code % OCTAVES])
    }
}

/// 0 none, [`STEPS`] all, and neither in between.
fn step(answered: u32, lost: u32) -> u16 {
    match (answered, lost) {
        (_, 0) => 0,
        (0, _) => STEPS,
        _ => {
            let part = f64::from(lost) / (f64::from(answered) + f64::from(lost));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 126")]
            let step = (part.sqrt() * f64::from(STEPS)).round() as u16;
            step.clamp(1, STEPS - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::INTERVAL_MIN;

    #[test]
    fn every_count_of_losses_reads_within_the_error_and_none_and_all_exactly() {
        let most = u32::try_from(60_000 / INTERVAL_MIN.as_millis()).unwrap();
        // All counts of a minute at up to two probes a second, and some of the shortest interval's and a few more.
        let totals = (1..=130).chain((130..most + 64).step_by(97)).chain([most]);
        let mut checked = 0_u32;
        for total in totals {
            for lost in 0..=total {
                let minute = Minute::new(total - lost, lost, None);
                let (exact, read) = (f64::from(lost) / f64::from(total), minute.loss().expect("measured"));
                let error = (read - exact).abs();
                assert!(error <= exact.sqrt() / 63.0, "{lost} of {total}: {read}");
                assert_eq!(minute.is_losing(), lost > 0, "{lost} of {total}");
                assert_eq!(read > 0.0, lost > 0, "{lost} of {total}");
                assert_eq!(read < 1.0, lost < total, "{lost} of {total}");
                checked += 1;
            }
        }
        assert!(checked > 190_000, "{checked}");
    }

    #[test]
    fn more_loss_never_reads_as_less() {
        let read = |lost| Minute::new(6_000 - lost, lost, None).loss().unwrap();
        let losses: Vec<f64> = (0..=6_000).map(read).collect();
        assert!(losses.is_sorted() && losses[0] < losses[1], "one of 6,000 is not none");
        assert!(losses[5_999] < losses[6_000], "and all but one is not all");
    }

    #[test]
    fn the_figures_of_the_documentation_are_right() {
        let percent = |answered, lost| (Minute::new(answered, lost, None).loss().unwrap() * 1e4).round() / 1e2;
        let close = |read: f64, said: f64| assert!((read - said).abs() < 0.005, "{read} {said}");
        close(percent(59, 1), 1.61);
        close(percent(599, 1), 0.16);
        close(percent(1, 1), 49.89);
    }

    #[test]
    fn a_minute_without_an_outcome_is_not_measured_whatever_else_is_known() {
        for times in [None, Some([3, 4])] {
            assert_eq!(Minute::new(0, 0, times), Minute::NOT_MEASURED);
        }
        let nothing = Minute::NOT_MEASURED;
        assert_eq!((nothing.loss(), nothing.times(), nothing.is_losing()), (None, None, false));
    }

    #[test]
    fn an_octave_ends_at_a_power_of_two() {
        for (seconds, at) in [(0.0, 0), (7.6e-6, 0), (7.7e-6, 1), (0.25, 15), (0.250_001, 16), (8.0, 20), (300.0, 21)] {
            assert_eq!(octave(seconds), at, "{seconds}");
        }
        assert_eq!([0, 15, 20].map(|at| upper(at).to_string()), ["0.00000762939453125", "0.25", "8"]);
    }

    #[test]
    fn all_pairs_of_octaves_are_told_apart_beside_any_loss() {
        for p50 in 0..OCTAVES {
            for p99 in 0..OCTAVES {
                for lost in [0, 1, 59] {
                    let minute = Minute::new(60 - lost, lost, Some([p50, p99]));
                    assert_eq!(minute.times(), Some([p50, p99]));
                    assert_eq!(minute.loss(), Minute::new(60 - lost, lost, None).loss());
                }
            }
        }
        assert_eq!(Minute::new(0, 60, None).times(), None, "nobody answered");
    }
}
