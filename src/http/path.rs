//! Names in paths, percent-encoded (RFC 3986, section 2.1).

use std::fmt::Write as _;

/// Decodes a part of a path. Returns none if the encoding
/// is wrong or the result is not UTF-8.
pub fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                digit()? << 4 | digit()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Encodes a name as a part of a path, so that [`decoded`] returns it.
pub fn encoded(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' => text.push(byte.into()),
            // Writing to memory cannot fail.
            _ => _ = write!(text, "%{byte:02X}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded_and_broken_ones_match_no_peer() {
        for name in ["node-7", "é", "a/b", "a,b %"] {
            assert_eq!(decoded(&encoded(name)).as_deref(), Some(name));
        }
        assert_eq!(encoded("a,b.C~_é"), "a%2Cb.C~_%C3%A9");
        assert_eq!(encoded("aB9-+/=&%\u{1}"), "aB9-%2B%2F%3D%26%25%01");
        for (text, name) in [
            ("node-7", Some("node-7")),
            ("n%6fde%2D7", Some("node-7")),
            ("%C3%A9", Some("é")),
            ("a%2Fb", Some("a/b")),
            ("", Some("")),
            ("%", None),
            ("a%4", None),
            ("%g0", None),
            ("%+1", None),
            ("%ff", None),
        ] {
            assert_eq!(decoded(text).as_deref(), name, "{text}");
        }
    }
}
