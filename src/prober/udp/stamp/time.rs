//! The timestamps of STAMP packets and the Error Estimate, which says how far they are to be
//! trusted.
//!
//! We write timestamps in NTP format. Other implementations may write the format of PTP, which the
//! Z bit of their Error Estimate announces (RFC 8186, section 2.3). Both have 32 bits of seconds.
//! NTP counts since 1900, and its second era begins on 7 February 2036. PTP counts since 1970.

use crate::units::Nanos;

/// Seconds from 1900, where NTP begins, to 1970.
const SECONDS_1900_TO_1970: u64 = 2_208_988_800;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A timestamp in NTP format: 32 bits of seconds since 1900, and 32 bits of a fraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NtpTime(u64);

impl NtpTime {
    /// Converts a time of `CLOCK_REALTIME`. Each nanosecond has its own timestamp.
    pub const fn from_unix(at: Nanos) -> Self {
        let (seconds, nanos) = (at.0 / NANOS_PER_SECOND, at.0 % NANOS_PER_SECOND);
        let fraction = ((nanos << 32) + NANOS_PER_SECOND / 2) / NANOS_PER_SECOND;
        // The shift drops the era. It is the rule of the format.
        Self(((seconds + SECONDS_1900_TO_1970) << 32) | fraction)
    }

    /// Returns the time since the Unix epoch, rounded to nanoseconds. Seconds before 1970 belong to
    /// the second era, so the result is between 1970 and 2106.
    pub const fn to_unix(self) -> Nanos {
        let (seconds, fraction) = (self.0 >> 32, self.0 & 0xffff_ffff);
        let era = if seconds < SECONDS_1900_TO_1970 { 1 << 32 } else { 0 };
        let nanos = (fraction * NANOS_PER_SECOND + (1 << 31)) >> 32;
        Nanos((seconds + era - SECONDS_1900_TO_1970) * NANOS_PER_SECOND + nanos)
    }

    /// Reads a timestamp. `format` is the Error Estimate of the node that wrote it.
    ///
    /// PTP counts TAI, which is ahead of UTC by 37 s. The distance is kept, because each span of
    /// ours is between two timestamps of one node.
    pub const fn read(bytes: [u8; 8], format: ErrorEstimate) -> Self {
        let bits = u64::from_be_bytes(bytes);
        if format.ptp {
            let (seconds, nanos) = (bits >> 32, bits & 0xffff_ffff);
            Self::from_unix(Nanos(seconds * NANOS_PER_SECOND + nanos))
        } else {
            Self(bits)
        }
    }

    /// Returns the timestamp as it is sent.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// Returns the span since `earlier`, rounded down to nanoseconds. `None` if `earlier` is later.
    /// An end of an era between the two has no effect.
    pub fn since(self, earlier: Self) -> Option<Nanos> {
        let span = u64::try_from(self.0.wrapping_sub(earlier.0).cast_signed()).ok()?;
        let (seconds, fraction) = (span >> 32, span & 0xffff_ffff);
        Some(Nanos(seconds * NANOS_PER_SECOND + ((fraction * NANOS_PER_SECOND) >> 32)))
    }
}

/// How far the timestamps of a node are to be trusted (RFC 4656, section 4.1.2): its clock differs
/// from UTC by at most multiplier × 2^(scale - 32) seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEstimate {
    /// The S bit: whether the clock is synchronized to UTC.
    pub synchronized: bool,
    /// The Z bit: whether the timestamps have the format of PTP.
    pub ptp: bool,
    /// Power of two, 0 to 63.
    pub scale: u8,
    /// Factor. In valid packets it is not zero.
    pub multiplier: u8,
}

impl ErrorEstimate {
    /// A clock of which nothing is known. This is the largest error that the format has.
    pub const UNKNOWN: Self = Self { synchronized: false, ptp: false, scale: 63, multiplier: 255 };

    /// Returns the estimate of a clock whose error is at most `error`, rounded up to what the
    /// format has.
    pub const fn new(error: Nanos, synchronized: bool) -> Self {
        let (seconds, nanos) = (error.0 / NANOS_PER_SECOND, error.0 % NANOS_PER_SECOND);
        // Seconds of 64-bit nanoseconds have 35 bits, of which 32 are kept: 136 years are enough.
        let seconds = if seconds > 0x7fff_ffff { 0x7fff_ffff } else { seconds };
        let mut multiplier = (seconds << 32) + (nanos << 32).div_ceil(NANOS_PER_SECOND);
        let mut scale = 0;
        while multiplier > 255 {
            multiplier = multiplier.div_ceil(2);
            scale += 1;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most 255 after the loop")]
        let multiplier = if multiplier == 0 { 1 } else { multiplier as u8 };
        Self { synchronized, ptp: false, scale, multiplier }
    }

    /// Returns the estimate of a clock with this largest error, as `kube_canary_kernel::ntp`
    /// returns it: `None` if the clock is not synchronized.
    pub fn from_clock_error(error: Option<Nanos>) -> Self {
        error.map_or(Self::UNKNOWN, |error| Self::new(error, true))
    }

    /// Reads an estimate. No value is refused, because none of ours depends on it except the format
    /// of timestamps.
    pub const fn from_bytes([first, multiplier]: [u8; 2]) -> Self {
        Self { synchronized: first & 0x80 != 0, ptp: first & 0x40 != 0, scale: first & 0x3f, multiplier }
    }

    /// Returns the estimate as it is sent.
    pub const fn to_bytes(self) -> [u8; 2] {
        let synchronized = if self.synchronized { 0x80 } else { 0 };
        let ptp = if self.ptp { 0x40 } else { 0 };
        [synchronized | ptp | (self.scale & 0x3f), self.multiplier]
    }

    /// Returns the largest error, rounded up to nanoseconds.
    pub fn error(self) -> Nanos {
        let product = (u128::from(self.multiplier) << (self.scale & 0x3f)) * u128::from(NANOS_PER_SECOND);
        Nanos(u64::try_from(product.div_ceil(1 << 32)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = NANOS_PER_SECOND;

    #[test]
    fn every_nanosecond_survives_the_conversion_in_both_eras() {
        let second_era = (1 << 32) - SECONDS_1900_TO_1970;
        for seconds in [0, 1, 1_795_000_000, second_era - 1, second_era, second_era + 1, (1 << 32) - 1] {
            for nanos in [0, 1, 2, 3, 4, 5, 499_999_999, 500_000_000, 999_999_998, 999_999_999] {
                let at = Nanos(seconds * S + nanos);
                assert_eq!(NtpTime::from_unix(at).to_unix(), at, "{seconds} {nanos}");
            }
        }
    }

    #[test]
    fn the_format_is_that_of_rfc_5905() {
        // 1 January 1970, and the first second of the second era: 7 February 2036, 06:28:16 UTC.
        assert_eq!(NtpTime::from_unix(Nanos(0)).to_bytes(), [0x83, 0xaa, 0x7e, 0x80, 0, 0, 0, 0]);
        assert_eq!(NtpTime::from_unix(Nanos(2_085_978_496 * S)).to_bytes(), [0; 8]);
        assert_eq!(NtpTime::from_unix(Nanos(S / 4)).to_bytes(), [0x83, 0xaa, 0x7e, 0x80, 0x40, 0, 0, 0]);
        // A fraction that rounds up to a whole second.
        assert_eq!(NtpTime(0x83aa_7e80_ffff_ffff).to_unix(), Nanos(S));
    }

    #[test]
    fn a_span_is_right_across_the_end_of_an_era_and_never_negative() {
        let last = NtpTime::from_unix(Nanos(2_085_978_495 * S + 999_999_999));
        let first = NtpTime::from_unix(Nanos(2_085_978_496 * S + 1));
        let span = first.since(last).unwrap();
        assert!(span.0.abs_diff(2) <= 1, "{span:?}");
        assert_eq!(last.since(first), None);
        assert_eq!(first.since(first), Some(Nanos(0)));
        assert!(NtpTime(u64::MAX / 2).since(NtpTime(0)).is_some() && NtpTime(1 << 63).since(NtpTime(0)).is_none());
    }

    #[test]
    fn timestamps_of_ptp_are_read() {
        let format = ErrorEstimate { ptp: true, ..ErrorEstimate::UNKNOWN };
        let bytes = [0x6a, 0xfd, 0x2b, 0x80, 0x1d, 0xcd, 0x65, 0x00];
        assert_eq!(NtpTime::read(bytes, format).to_unix(), Nanos(0x6afd_2b80 * S + 500_000_000));
        // No nanoseconds of a second are too many to be read.
        assert_eq!(NtpTime::read([0xff; 8], format).since(NtpTime::read([0xff; 8], format)), Some(Nanos(0)));
        assert_eq!(NtpTime::read(bytes, ErrorEstimate::UNKNOWN).to_bytes(), bytes);
    }

    #[test]
    fn an_estimate_is_never_below_the_error_and_close_above_it() {
        for bits in 0..64 {
            for error in [1_u64 << bits, (1 << bits) - 1, (1 << bits) + (1 << bits >> 1)].map(Nanos) {
                let estimate = ErrorEstimate::new(error, true);
                assert!(estimate.multiplier > 0 && estimate.scale < 64 && estimate.synchronized && !estimate.ptp);
                let kept = error.min(Nanos(0x8000_0000 * S));
                assert!(estimate.error() >= kept, "{error:?} {estimate:?}");
                assert!(estimate.error().0 <= error.0 + error.0 / 64 + 1, "{error:?} {estimate:?}");
                assert_eq!(ErrorEstimate::from_bytes(estimate.to_bytes()), estimate);
            }
        }
        // RFC 4656: the error is multiplier × 2^-32 × 2^scale seconds. 2 ms are 8,589,935 × 2^-32.
        assert_eq!(ErrorEstimate::new(Nanos(2_000_000), true).to_bytes(), [0x80 | 16, 132]);
        assert_eq!(ErrorEstimate::UNKNOWN.to_bytes(), [63, 255]);
        assert!(ErrorEstimate::UNKNOWN.error().0 > 17_000 * 365 * 86_400);
    }

    #[test]
    fn all_bits_of_an_estimate_are_read_and_written() {
        for bits in 0..=u16::MAX {
            assert_eq!(ErrorEstimate::from_bytes(bits.to_be_bytes()).to_bytes(), bits.to_be_bytes());
        }
    }
}
