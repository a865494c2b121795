//! A finished minute of one peer in 16 bits: the outcomes of its probes, and the round-trip times.
//!
//! - Loss in 7 bits. 0 is "not measured": no probe was answered or lost in that minute. 1 is no
//!   loss, 127 is total loss. Values between encode the square root of the loss in steps of 1/126.
//!   This is fine for small losses: 1 of 60 reads as 1.6 %, 1 of 600 as 0.16 %. A partial loss
//!   never reads as none or as total. See [`Minute::loss`] for the error. Rejected: a linear scale,
//!   which reads 1 of 6,000 (`--interval 10ms`) as none, and a logarithmic scale, which is coarse
//!   where most is lost.
//! - The octaves of the median and the 99th percentile together in 9 bits: 22 times 22 values, and
//!   one for "no answer". An octave ends at a power of two, as native histogram buckets do at any
//!   schema. So the octave is exact at any resolution of the links.

/// One minute of a peer, encoded as the module describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Minute(pub(super) u16);

const TIMES_BITS: u32 = 9;
/// Code of a minute without loss. Higher codes say how much was lost.
const NONE_LOST: u16 = 1;
/// Steps from there to the code of total loss.
const STEPS: u16 = 126;
const _: () = assert!(NONE_LOST + STEPS < 1 << (u16::BITS - TIMES_BITS));
const _: () = assert!(OCTAVES * OCTAVES < 1 << TIMES_BITS);
/// Number of octaves: the first ends at 7.6 µs, the last but one at 8 s.
pub(super) const OCTAVES: usize = 22;
/// The first octave ends at two to this power, in seconds.
const FIRST_POWER: i32 = -17;

/// Returns the octave of a time in seconds.
pub(super) fn octave(seconds: f64) -> usize {
    (0..OCTAVES - 1).find(|at| seconds <= upper(*at)).unwrap_or(OCTAVES - 1)
}

/// Returns the upper bound of an octave in seconds. The last octave has no bound; for it this is
/// twice the bound of the octave before.
pub(super) fn upper(octave: usize) -> f64 {
    (f64::from(FIRST_POWER) + octave as f64).exp2()
}

impl Minute {
    /// A minute in which no probe was answered or lost.
    pub const NOT_MEASURED: Self = Self(0);

    /// Encodes the outcomes of a minute. `times` is the octaves of the median and of the 99th
    /// percentile, if known.
    pub(super) fn new(answered: u32, lost: u32, times: Option<[usize; 2]>) -> Self {
        if answered == 0 && lost == 0 {
            return Self::NOT_MEASURED;
        }
        let code = NONE_LOST + step(answered, lost);
        let times = times.map_or(0, |[p50, p99]| 1 + p50 * OCTAVES + p99);
        Self(code << TIMES_BITS | u16::try_from(times).unwrap_or(0))
    }

    /// Returns the share of the probes that was lost, 0 to 1; `None` if nothing was measured. No
    /// loss and total loss are exact. Between them the error is below `sqrt(loss) / 63`: 0.2
    /// percentage points at 2 %, 1.2 at 50 %, and 1.6 just below 100 %.
    pub fn loss(self) -> Option<f64> {
        let step = (self.0 >> TIMES_BITS).checked_sub(NONE_LOST)?;
        Some((f64::from(step) / f64::from(STEPS)).powi(2))
    }

    /// Whether at least one probe was lost.
    pub const fn is_losing(self) -> bool {
        self.0 >> TIMES_BITS > NONE_LOST
    }

    /// Returns the octaves of the median and of the 99th percentile. `None` if no probe was
    /// answered; at intervals below 167 ms, also if none was answered at the end of the minute.
    pub fn times(self) -> Option<[usize; 2]> {
        let code = usize::from(self.0 & ((1 << TIMES_BITS) - 1)).checked_sub(1)?;
        Some([code / OCTAVES, code % OCTAVES])
    }
}

/// Returns 0 for no loss, [`STEPS`] for total loss, and a step between them for a partial loss.
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
        // All counts of a minute at up to two probes per second, a sample up to the shortest
        // interval's count, and some beyond it.
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
    fn all_pairs_of_octaves_differ_beside_any_loss() {
        for p50 in 0..OCTAVES {
            for p99 in 0..OCTAVES {
                for lost in [0, 1, 59] {
                    let minute = Minute::new(60 - lost, lost, Some([p50, p99]));
                    assert_eq!(minute.times(), Some([p50, p99]));
                    assert_eq!(minute.loss(), Minute::new(60 - lost, lost, None).loss());
                }
            }
        }
        assert_eq!(Minute::new(0, 60, None).times(), None, "no probe was answered");
    }
}
