//! Weights in the headers that say what a client accepts (RFC 9110, section 12.4.2). Media types
//! and content codings use the same form.

/// Parses a weight `q`, such as `0.5`, into thousandths. Returns none if the form is not that of
/// the standard: 0 or 1, with at most three decimals, and not more than 1.
pub fn thousandths(value: &[u8]) -> Option<u16> {
    let (whole, rest) = value.split_first()?;
    let digits = match rest {
        [] => rest,
        [b'.', digits @ ..] if digits.len() <= 3 && digits.iter().all(u8::is_ascii_digit) => digits,
        _ => return None,
    };
    let digit = |place| digits.get(place).map_or(0, |digit| u16::from(digit - b'0'));
    match (whole, digit(0) * 100 + digit(1) * 10 + digit(2)) {
        (b'0', fraction) => Some(fraction),
        (b'1', 0) => Some(1_000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_what_the_standard_allows() {
        let valid = [("1", 1_000), ("0", 0), ("0.5", 500), ("0.125", 125), ("1.000", 1_000), ("0.", 0)];
        for (text, weight) in valid {
            assert_eq!(thousandths(text.as_bytes()), Some(weight), "{text}");
        }
        for text in ["", "1.001", "2", "0.1234", "-1", "1e0", ".5", "0.5.5", "NaN"] {
            assert_eq!(thousandths(text.as_bytes()), None, "{text}");
        }
    }
}
