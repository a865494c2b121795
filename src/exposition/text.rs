//! Writes samples of the text exposition format into a frame.

use std::io::Write;

use super::accept::Format;
use super::protobuf::FamilyKind;
use crate::units::Nanos;

/// Appends the HELP and TYPE lines of a family. In OpenMetrics the name of a counter family has no
/// `_total`; only its samples do.
pub fn header(out: &mut Vec<u8>, format: Format, name: &str, help: &str, kind: FamilyKind) {
    let name = match (format, kind) {
        (Format::OpenMetrics, FamilyKind::Counter) => without_total(name),
        _ => name,
    };
    let type_name = match kind {
        FamilyKind::Counter => "counter",
        FamilyKind::Gauge => "gauge",
        FamilyKind::Histogram => "histogram",
    };
    for part in ["# HELP ", name, " ", help, "\n# TYPE ", name, " ", type_name, "\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

fn without_total(name: &str) -> &str {
    name.strip_suffix("_total").unwrap_or(name)
}

/// Appends a sample with any number. Without labels there are no braces.
pub fn number(out: &mut Vec<u8>, name: &str, labels: &[u8], value: f64) {
    out.extend_from_slice(name.as_bytes());
    braces(out, labels);
    // Writing to a Vec cannot fail.
    let _ = if value == f64::INFINITY { writeln!(out, " +Inf") } else { writeln!(out, " {value}") };
}

/// Appends the OpenMetrics sample with the time from which a counter or histogram counts, in
/// seconds since the epoch.
pub fn created(out: &mut Vec<u8>, name: &str, labels: &[u8], since: u32) {
    out.extend_from_slice(without_total(name).as_bytes());
    out.extend_from_slice(b"_created");
    braces(out, labels);
    let _ = writeln!(out, " {since}");
}

fn braces(out: &mut Vec<u8>, labels: &[u8]) {
    if !labels.is_empty() {
        out.push(b'{');
        out.extend_from_slice(labels);
        out.push(b'}');
    }
}

/// Appends `name{labels,extra} value\n`. `labels` and `extra` are already escaped.
/// Either may be empty.
pub fn sample(out: &mut Vec<u8>, name: &str, labels: &[u8], extra: Extra, value: SampleValue) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(extra.suffix().as_bytes());
    out.push(b'{');
    out.extend_from_slice(labels);
    // Writing to a Vec cannot fail.
    let comma = if labels.is_empty() { "" } else { "," };
    let _ = match extra {
        Extra::None | Extra::Sum | Extra::Count => Ok(()),
        Extra::Bucket(Some(bound)) => {
            write!(out, "{comma}le=\"").and_then(|()| seconds(out, bound)).map(|()| out.push(b'"'))
        }
        Extra::Bucket(None) => write!(out, "{comma}le=\"+Inf\""),
    };
    out.extend_from_slice(b"} ");
    let _ = match value {
        SampleValue::Count(n) => writeln!(out, "{n}"),
        SampleValue::Seconds(n) => seconds(out, n).map(|()| out.push(b'\n')),
    };
}

/// Writes a time in seconds with all digits. A float would round it.
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

/// What a sample adds to its family's name and labels.
#[derive(Clone, Copy, Debug)]
pub enum Extra {
    /// The sample has no addition.
    None,
    /// A bucket of a histogram with its upper bound. None means +Inf.
    Bucket(Option<Nanos>),
    /// The sum of a histogram.
    Sum,
    /// The count of a histogram.
    Count,
}

impl Extra {
    const fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Bucket(_) => "_bucket",
            Self::Sum => "_sum",
            Self::Count => "_count",
        }
    }
}

/// The value that a sample has.
#[derive(Clone, Copy, Debug)]
pub enum SampleValue {
    /// A count without a unit.
    Count(u64),
    /// A time, written in seconds.
    Seconds(Nanos),
}

/// Appends `name="value"`, escaped. A comma precedes it unless it is the first label.
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
        sample(&mut out, "n", &labels, Extra::Bucket(Some(Nanos(10_000))), SampleValue::Count(3));
        sample(&mut out, "n", &labels, Extra::Bucket(None), SampleValue::Count(4));
        sample(&mut out, "n", &labels, Extra::Sum, SampleValue::Seconds(Nanos(1_500_000)));
        sample(&mut out, "l", b"", Extra::Bucket(None), SampleValue::Count(4));
        number(&mut out, "e", &labels, 0.5);
        number(&mut out, "inf", b"", f64::INFINITY);
        created(&mut out, "e_total", &labels, 7);
        let expected = "n_bucket{a=\"x\",b=\"q\\\"\\\\\\n\",le=\"0.00001\"} 3\n\
                        n_bucket{a=\"x\",b=\"q\\\"\\\\\\n\",le=\"+Inf\"} 4\n\
                        n_sum{a=\"x\",b=\"q\\\"\\\\\\n\"} 0.0015\n\
                        l_bucket{le=\"+Inf\"} 4\n\
                        e{a=\"x\",b=\"q\\\"\\\\\\n\"} 0.5\n\
                        inf +Inf\n\
                        e_created{a=\"x\",b=\"q\\\"\\\\\\n\"} 7\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
