//! A reader for the Prometheus protobuf format, written from the description of the wire format and
//! `io/prometheus/client/metrics.proto`, not from our encoder. It is as strict as decoders in use:
//! a message ends where its length says.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeMap;

/// A family of metrics, as decoded.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Family {
    pub name: String,
    pub help: String,
    /// The type as a number: 0 counter, 1 gauge, 4 histogram.
    pub kind: u64,
    pub metrics: Vec<Metric>,
    /// Bytes of fields that the message type does not have.
    pub unknown_bytes: usize,
}

/// A metric with its labels.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Metric {
    pub labels: BTreeMap<String, String>,
    /// The value of a counter or gauge.
    pub value: Option<f64>,
    pub histogram: Option<Histogram>,
    /// The creation time, in seconds since the epoch.
    pub created: Option<u64>,
}

/// A histogram in either form or both.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Histogram {
    pub count: u64,
    pub sum: f64,
    /// Upper bounds and cumulative counts of the classic buckets.
    pub buckets: Vec<(f64, u64)>,
    pub schema: Option<i64>,
    pub zero_threshold: f64,
    pub zero_count: u64,
    /// Offset and length of each span.
    pub spans: Vec<(i64, u64)>,
    pub deltas: Vec<i64>,
}

impl Histogram {
    /// Indexes and counts of the native buckets.
    pub fn native(&self) -> Vec<(i64, i64)> {
        let (mut index, mut count) = (0, 0);
        let mut deltas = self.deltas.iter();
        let mut native = Vec::new();
        for (number, (offset, length)) in self.spans.iter().enumerate() {
            assert!(number == 0 || *offset > 0, "spans that touch or overlap: {:?}", self.spans);
            index += offset;
            for _ in 0..*length {
                count += deltas.next().expect("a delta for each bucket");
                native.push((index, count));
                index += 1;
            }
        }
        assert_eq!(deltas.next(), None, "a bucket for each delta");
        native
    }
}

/// A field's value, by wire type.
enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0_u64;
    for shift in (0..70).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a varint that ends");
        *bytes = rest;
        let bits = u64::from(first & 0x7f);
        assert!(shift < 63 || bits <= 1, "a varint of more than 64 bits");
        value |= bits << shift;
        if first & 0x80 == 0 {
            return value;
        }
    }
    panic!("a varint of more than ten bytes");
}

fn delimited<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let length = usize::try_from(varint(bytes)).expect("a length");
    let (message, rest) = bytes.split_at_checked(length).expect("as many bytes as the length says");
    *bytes = rest;
    message
}

fn fields(mut bytes: &[u8]) -> impl Iterator<Item = (u64, Value<'_>, usize)> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let before = bytes.len();
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => Value::Varint(varint(&mut bytes)),
            1 => {
                let (number, rest) = bytes.split_first_chunk().expect("eight bytes");
                bytes = rest;
                Value::Fixed64(u64::from_le_bytes(*number))
            }
            2 => Value::Bytes(delimited(&mut bytes)),
            other => panic!("wire type {other}"),
        };
        Some((tag >> 3, value, before - bytes.len()))
    })
}

fn text(value: &[u8]) -> String {
    String::from_utf8(value.to_vec()).expect("UTF-8")
}

fn signed(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

fn seconds(message: &[u8]) -> u64 {
    let mut seconds = 0;
    for (number, value, _) in fields(message) {
        if let (1, Value::Varint(value)) = (number, value) {
            seconds = value;
        }
    }
    seconds
}

/// Reads a whole exposition.
pub fn parse(mut bytes: &[u8]) -> Vec<Family> {
    let mut families = Vec::new();
    while !bytes.is_empty() {
        families.push(family(delimited(&mut bytes)));
    }
    families
}

fn family(message: &[u8]) -> Family {
    let mut family = Family::default();
    for (number, value, bytes) in fields(message) {
        match (number, value) {
            (1, Value::Bytes(name)) => family.name = text(name),
            (2, Value::Bytes(help)) => family.help = text(help),
            (3, Value::Varint(kind)) => family.kind = kind,
            (4, Value::Bytes(message)) => family.metrics.push(metric(message)),
            (1..=5, _) => panic!("field {number} of a family has another wire type"),
            _ => family.unknown_bytes += bytes,
        }
    }
    family
}

fn metric(message: &[u8]) -> Metric {
    let mut metric = Metric::default();
    for (number, value, _) in fields(message) {
        let Value::Bytes(message) = value else { panic!("field {number} of a metric") };
        match number {
            1 => {
                let mut pair = [String::new(), String::new()];
                for (number, value, _) in fields(message) {
                    let (1 | 2, Value::Bytes(value)) = (number, value) else { panic!("field {number} of a label") };
                    pair[usize::from(number == 2)] = text(value);
                }
                let [name, value] = pair;
                assert_eq!(metric.labels.insert(name, value), None, "a label twice");
            }
            2 | 3 => {
                for (field, value, _) in fields(message) {
                    match (field, value) {
                        (1, Value::Fixed64(value)) => metric.value = Some(f64::from_bits(value)),
                        (3, Value::Bytes(moment)) if number == 3 => metric.created = Some(seconds(moment)),
                        _ => panic!("field {field} of a counter or gauge"),
                    }
                }
            }
            7 => metric.histogram = Some(histogram(message, &mut metric.created)),
            _ => panic!("field {number} of a metric"),
        }
    }
    metric
}

fn histogram(message: &[u8], created: &mut Option<u64>) -> Histogram {
    let mut histogram = Histogram::default();
    for (number, value, _) in fields(message) {
        match (number, value) {
            (1, Value::Varint(count)) => histogram.count = count,
            (2, Value::Fixed64(sum)) => histogram.sum = f64::from_bits(sum),
            (3, Value::Bytes(message)) => {
                let mut bucket = (0.0, 0);
                for (number, value, _) in fields(message) {
                    match (number, value) {
                        (1, Value::Varint(count)) => bucket.1 = count,
                        (2, Value::Fixed64(bound)) => bucket.0 = f64::from_bits(bound),
                        _ => panic!("field {number} of a bucket"),
                    }
                }
                histogram.buckets.push(bucket);
            }
            (5, Value::Varint(schema)) => histogram.schema = Some(signed(schema)),
            (6, Value::Fixed64(threshold)) => histogram.zero_threshold = f64::from_bits(threshold),
            (7, Value::Varint(count)) => histogram.zero_count = count,
            (12, Value::Bytes(message)) => {
                let mut span = (0, 0);
                for (number, value, _) in fields(message) {
                    match (number, value) {
                        (1, Value::Varint(offset)) => span.0 = signed(offset),
                        (2, Value::Varint(length)) => span.1 = length,
                        _ => panic!("field {number} of a span"),
                    }
                }
                histogram.spans.push(span);
            }
            (13, Value::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    histogram.deltas.push(signed(varint(&mut packed)));
                }
            }
            (15, Value::Bytes(moment)) => *created = Some(seconds(moment)),
            _ => panic!("field {number} of a histogram"),
        }
    }
    histogram
}
