//! Numbers written with only as many digits as their accuracy justifies.
//!
//! A percentile is only as exact as its bucket, and the loss of an hour only as exact as its code.
//! A number of seventeen digits would add bytes to every cell of a mesh, and 300 nodes have 90,000
//! cells.

use serde::{Serialize, Serializer};

/// A number that is written with four significant digits: the error is below 0.05 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounded(pub f64);

/// A smaller number is written as zero. No measured value is that small.
const LEAST: f64 = 1e-12;

impl Rounded {
    fn rounded(self) -> f64 {
        let magnitude = self.0.abs();
        if !(LEAST..f64::INFINITY).contains(&magnitude) {
            return 0.0;
        }
        // A power of ten up to 10^22 is exact as a float. So the quotient is the float nearest to
        // the rounded decimal, and is written as that decimal.
        let mut scale = 1.0;
        while magnitude * scale < 1_000.0 {
            scale *= 10.0;
        }
        (self.0 * scale).round() / scale
    }
}

impl Serialize for Rounded {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.rounded())
    }
}

/// Serializes a number as [`Rounded`].
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(super) fn number<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    Rounded(*number).serialize(serializer)
}

/// Serializes a number as [`Rounded`], if there is one.
#[expect(clippy::ref_option, reason = "serde calls it so")]
pub(crate) fn option<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    number.map(Rounded).serialize(serializer)
}

/// Serializes a number that has no fraction and is not negative without a decimal point.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(super) fn whole<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    let whole = *number as u64;
    serializer.serialize_u64(whole)
}

/// Whether a count is left out of a report.
pub(crate) fn is_zero<T: Default + PartialEq>(count: &T) -> bool {
    *count == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_digits_are_written_and_they_are_right() {
        for (number, text) in [
            (0.0, "0.0"),
            (1.0, "1.0"),
            (0.000_037_512_345, "0.00003751"),
            (0.000_000_1, "1e-7"),
            (45.123_456, "45.12"),
            (0.1 + 0.2, "0.3"),
            (0.999_96, "1.0"),
            (123_456.7, "123457.0"),
            (1e-13, "0.0"),
            (f64::NAN, "0.0"),
        ] {
            assert_eq!(serde_json::to_string(&Rounded(number)).unwrap(), text, "{number}");
        }
    }

    #[test]
    fn numbers_are_short_and_within_the_error() {
        let mut number = 1e-9;
        while number < 1e5 {
            let text = serde_json::to_string(&Rounded(number)).unwrap();
            let read: f64 = text.parse().unwrap();
            assert!((read - number).abs() <= number * 0.000_501, "{number} {text}");
            assert!(text.bytes().filter(u8::is_ascii_digit).count() <= 9, "{number} {text}");
            number *= 1.003_7;
        }
    }
}
