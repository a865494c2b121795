//! Writing samples of the text exposition format into a frame.

use std::io::Write;

use crate::units::Nanos;

/// Appends `name{labels,extra} value\n`. `labels` and `extra` are already escaped; either may be empty.
pub fn sample(out: &mut Vec<u8>, name: &str, labels: &[u8], extra: Extra<'_>, value: Value) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(extra.suffix().as_bytes());
    out.push(b'{');
    out.extend_from_slice(labels);
    // Writing to a Vec cannot fail.
    let comma = if labels.is_empty() { "" } else { "," };
    let _ = match extra {
        Extra::None | Extra::Sum | Extra::Count => Ok(()),
        Extra::Label(name, value) => write!(out, "{comma}{name}=\"{value}\""),
        Extra::Bucket(Some(bound)) => {
            write!(out, "{comma}le=\"").and_then(|()| seconds(out, bound)).map(|()| out.push(b'"'))
        }
        Extra::Bucket(None) => write!(out, "{comma}le=\"+Inf\""),
    };
    out.extend_from_slice(b"} ");
    let _ = match value {
        Value::Count(n) => writeln!(out, "{n}"),
        Value::Seconds(n) => seconds(out, n).map(|()| out.push(b'\n')),
    };
}

/// Writes a time in seconds, exactly: no float comes near it.
fn seconds(out: &mut Vec<u8>, time: Nanos) -> std::io::Result<()> {
    let (whole, fraction) = (time.0 / 1_000_000_000, time.0 % 1_000_000_000);
    if fraction == 0 {
        return write!(out, "{whole}");
    }
    write!(out, "{whole}.{fraction:09}")?;
    while out.last() == Some(&b'0') {
        out.pop();
    }
    Ok(())
}

/// What a sample has beyond its family's name and labels.
#[derive(Clone, Copy, Debug)]
pub enum Extra<'a> {
    /// Nothing.
    None,
    /// One more label.
    Label(&'static str, &'a str),
    /// A histogram's bucket with its upper bound; none is +Inf.
    Bucket(Option<Nanos>),
    /// A histogram's sum.
    Sum,
    /// A histogram's count.
    Count,
}

impl Extra<'_> {
    const fn suffix(self) -> &'static str {
        match self {
            Self::None | Self::Label(..) => "",
            Self::Bucket(_) => "_bucket",
            Self::Sum => "_sum",
            Self::Count => "_count",
        }
    }
}

/// A sample's value.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// A count.
    Count(u64),
    /// A time, written in seconds.
    Seconds(Nanos),
}

/// Appends `name="value"`, escaped, with a comma before it if it is not the first.
pub fn label(out: &mut Vec<u8>, name: &str, value: &str) {
    if !out.is_empty() {
        out.push(b',');
    }
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"=\"");
    for &byte in value.as_bytes() {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'"' => out.extend_from_slice(b"\\\""),
            b'\n' => out.extend_from_slice(b"\\n"),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        for (nanos, text) in [
            (0, "0"),
            (1, "0.000000001"),
            (10_000, "0.00001"),
            (2_500_000, "0.0025"),
            (1_000_000_000, "1"),
            (u64::MAX, "18446744073.709551615"),
        ] {
            let mut out = Vec::new();
            seconds(&mut out, Nanos(nanos)).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn samples_read_as_the_format_wants_them() {
        let mut labels = Vec::new();
        label(&mut labels, "a", "x");
        label(&mut labels, "b", "q\"\\\n");
        let mut out = Vec::new();
        sample(&mut out, "n", &labels, Extra::Bucket(Some(Nanos(10_000))), Value::Count(3));
        sample(&mut out, "n", &labels, Extra::Bucket(None), Value::Count(4));
        sample(&mut out, "n", &labels, Extra::Sum, Value::Seconds(Nanos(1_500_000)));
        sample(&mut out, "l", b"", Extra::Bucket(None), Value::Count(4));
        sample(&mut out, "e", &labels, Extra::Label("reason", "other"), Value::Count(1));
        let expected = "n_bucket{a=\"x\",b=\"q\\\"\\\\\\n\",le=\"0.00001\"} 3\n\
                        n_bucket{a=\"x\",b=\"q\\\"\\\\\\n\",le=\"+Inf\"} 4\n\
                        n_sum{a=\"x\",b=\"q\\\"\\\\\\n\"} 0.0015\n\
                        l_bucket{le=\"+Inf\"} 4\n\
                        e{a=\"x\",b=\"q\\\"\\\\\\n\",reason=\"other\"} 1\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
