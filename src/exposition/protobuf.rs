//! Writes messages of the Prometheus protobuf exposition format (`io.prometheus.client`), field by
//! field.
//!
//! The length of a message precedes it. It must be known before the counters in the message are
//! read, so numbers that change have a fixed width. A protobuf varint may be padded to that width
//! with bytes that add nothing to the value.

/// Numbers and wire types of the fields in use. All field numbers are below 16, so a
/// tag is one byte.
mod field {
    pub const VARINT: u8 = 0;
    pub const FIXED64: u8 = 1;
    pub const LENGTH_DELIMITED: u8 = 2;

    pub const FAMILY_NAME: u8 = 1;
    pub const FAMILY_HELP: u8 = 2;
    pub const FAMILY_TYPE: u8 = 3;
    pub const FAMILY_METRIC: u8 = 4;
    /// A field number that the message type does not have, so a decoder skips the field.
    pub const FAMILY_PADDING: u8 = 15;
    pub const METRIC_LABEL: u8 = 1;
    pub const METRIC_GAUGE: u8 = 2;
    pub const METRIC_COUNTER: u8 = 3;
    pub const METRIC_HISTOGRAM: u8 = 7;
    pub const LABEL_NAME: u8 = 1;
    pub const LABEL_VALUE: u8 = 2;
    pub const VALUE: u8 = 1;
    pub const COUNTER_CREATED: u8 = 3;
    pub const TIMESTAMP_SECONDS: u8 = 1;
    pub const SAMPLE_COUNT: u8 = 1;
    pub const SAMPLE_SUM: u8 = 2;
    pub const BUCKET: u8 = 3;
    pub const SCHEMA: u8 = 5;
    pub const ZERO_THRESHOLD: u8 = 6;
    pub const ZERO_COUNT: u8 = 7;
    pub const POSITIVE_SPAN: u8 = 12;
    pub const POSITIVE_DELTA: u8 = 13;
    pub const HISTOGRAM_CREATED: u8 = 15;
    pub const CUMULATIVE_COUNT: u8 = 1;
    pub const UPPER_BOUND: u8 = 2;
    pub const SPAN_OFFSET: u8 = 1;
    pub const SPAN_LENGTH: u8 = 2;
}

/// The type that a metric family has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyKind {
    /// A counter, `COUNTER` in the schema.
    Counter = 0,
    /// A gauge, `GAUGE` in the schema.
    Gauge = 1,
    /// A histogram, `HISTOGRAM` in the schema.
    Histogram = 4,
}

/// Bytes of a length that precedes its content. The content may have up to 16,383 bytes.
const LENGTH_BYTES: usize = 2;
/// Bytes of a timestamp, with its tag.
const CREATED_BYTES: usize = 2 + 1 + SECONDS_BYTES;
/// Bytes of the seconds since the epoch as a varint. They suffice until 2106.
const SECONDS_BYTES: usize = 5;
/// Bytes of a number of 64 bits, with its tag.
const DOUBLE_BYTES: usize = 1 + 8;
/// Bytes of the offset and the length of a span, with their tags.
const SPAN_BYTES: usize = 2 + 2 * (1 + LENGTH_BYTES);
/// Bytes of a tag and a length.
const HEAD_BYTES: usize = 1 + LENGTH_BYTES;

fn tag(out: &mut Vec<u8>, field: u8, wire_type: u8) {
    out.push(field << 3 | wire_type);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_bits(value) | 0x80);
        value >>= 7;
    }
    out.push(low_bits(value));
}

/// Writes a varint of exactly `bytes` bytes. Higher bits of the value are lost.
fn fixed_varint(out: &mut Vec<u8>, value: u64, bytes: usize) {
    for index in 0..bytes {
        let more = if index + 1 < bytes { 0x80 } else { 0 };
        out.push(low_bits(value >> (7 * index)) | more);
    }
}

const fn low_bits(value: u64) -> u8 {
    (value & 0x7f) as u8
}

/// Encodes a signed number so that small absolute values stay small: 0, -1, 1, -2, …
const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

fn double(out: &mut Vec<u8>, field: u8, value: f64) {
    tag(out, field, field::FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

fn text(out: &mut Vec<u8>, field: u8, value: &str) {
    tag(out, field, field::LENGTH_DELIMITED);
    varint(out, value.len() as u64);
    out.extend_from_slice(value.as_bytes());
}

/// Bytes of a text field, with its tag.
const fn text_bytes(value: &str) -> usize {
    let length_bits = usize::BITS - (value.len() | 1).leading_zeros();
    1 + length_bits.div_ceil(7) as usize + value.len()
}

fn head(out: &mut Vec<u8>, field: u8, bytes: usize) {
    tag(out, field, field::LENGTH_DELIMITED);
    fixed_varint(out, bytes as u64, LENGTH_BYTES);
}

fn created(out: &mut Vec<u8>, field: u8, seconds: u32) {
    tag(out, field, field::LENGTH_DELIMITED);
    varint(out, 1 + SECONDS_BYTES as u64);
    tag(out, field::TIMESTAMP_SECONDS, field::VARINT);
    fixed_varint(out, seconds.into(), SECONDS_BYTES);
}

/// Appends a family's length and the fields before its metrics. The metrics take
/// `metric_bytes` bytes.
pub fn family(out: &mut Vec<u8>, name: &str, help: &str, kind: FamilyKind, metric_bytes: usize) {
    varint(out, (text_bytes(name) + text_bytes(help) + 2 + metric_bytes) as u64);
    text(out, field::FAMILY_NAME, name);
    text(out, field::FAMILY_HELP, help);
    tag(out, field::FAMILY_TYPE, field::VARINT);
    out.push(kind as u8);
}

/// Appends one label to the labels of a metric.
pub fn label(out: &mut Vec<u8>, name: &str, value: &str) {
    tag(out, field::METRIC_LABEL, field::LENGTH_DELIMITED);
    varint(out, (text_bytes(name) + text_bytes(value)) as u64);
    text(out, field::LABEL_NAME, name);
    text(out, field::LABEL_VALUE, value);
}

/// Returns the bytes of a counter or a gauge whose labels take `labels` bytes.
pub const fn number_bytes(labels: usize, has_created: bool) -> usize {
    HEAD_BYTES + labels + HEAD_BYTES + DOUBLE_BYTES + if has_created { CREATED_BYTES } else { 0 }
}

/// Appends a counter or a gauge as a metric of a family. `since` is the time from which a counter
/// counts, if that is known.
pub fn number(out: &mut Vec<u8>, kind: FamilyKind, labels: &[u8], value: f64, since: Option<u32>) {
    head(out, field::FAMILY_METRIC, number_bytes(labels.len(), since.is_some()) - HEAD_BYTES);
    out.extend_from_slice(labels);
    let field = if kind == FamilyKind::Counter { field::METRIC_COUNTER } else { field::METRIC_GAUGE };
    head(out, field, number_bytes(0, since.is_some()) - 2 * HEAD_BYTES);
    double(out, field::VALUE, value);
    if let Some(since) = since {
        created(out, field::COUNTER_CREATED, since);
    }
}

/// Appends `bytes` bytes that a decoder of a family skips. The minimum is [`HEAD_BYTES`],
/// which every metric exceeds.
pub fn padding(out: &mut Vec<u8>, bytes: usize) {
    let content = bytes.saturating_sub(HEAD_BYTES);
    head(out, field::FAMILY_PADDING, content);
    out.resize(out.len() + content, 0);
}

/// The properties of a histogram that decide on the length of its metric.
#[derive(Clone, Copy, Debug)]
pub struct HistogramShape {
    /// Bytes of the histogram's labels.
    pub labels: usize,
    /// Number of classic buckets below +Inf.
    pub bounds: usize,
    /// Number of native buckets that are written.
    pub bins: usize,
    /// Number of runs of adjacent native buckets.
    pub spans: usize,
    /// Bytes of each count. Six hold the sum of 256 numbers of 32 bits; nine hold 63 bits.
    pub count_bytes: usize,
}

impl HistogramShape {
    const fn bucket_bytes(&self) -> usize {
        1 + self.count_bytes + DOUBLE_BYTES
    }

    const fn content_bytes(&self) -> usize {
        let count = 1 + self.count_bytes;
        let classic = self.bounds * (2 + self.bucket_bytes());
        let native = 2 + DOUBLE_BYTES + count + self.spans * SPAN_BYTES + HEAD_BYTES + self.bins * self.count_bytes;
        count + DOUBLE_BYTES + classic + CREATED_BYTES + native
    }

    /// Returns the bytes of the whole metric.
    pub const fn bytes(&self) -> usize {
        2 * HEAD_BYTES + self.labels + self.content_bytes()
    }
}

/// The numbers of a histogram.
#[derive(Clone, Debug)]
pub struct HistogramValues<B, N> {
    /// The sum of all values, in seconds.
    pub sum: f64,
    /// The time from which the histogram counts, in seconds since the epoch.
    pub created: u32,
    /// Upper bounds in seconds and cumulative counts of the classic buckets.
    pub buckets: B,
    /// The schema (resolution) of the native buckets.
    pub schema: u8,
    /// Values up to this one count as zero, in seconds.
    pub zero_threshold: f64,
    /// Number of values that count as zero.
    pub zero_count: u64,
    /// Indexes and counts of the native buckets, in ascending order.
    pub bins: N,
}

/// Appends a histogram as a metric of a family. It takes exactly the bytes of its shape, if `shape`
/// has the right numbers of buckets and spans.
pub fn histogram<B, N>(out: &mut Vec<u8>, labels: &[u8], shape: &HistogramShape, values: &HistogramValues<B, N>)
where
    B: Iterator<Item = (f64, u64)> + Clone,
    N: Iterator<Item = (i32, u64)> + Clone,
{
    let begin = out.len();
    head(out, field::FAMILY_METRIC, shape.bytes() - HEAD_BYTES);
    out.extend_from_slice(labels);
    head(out, field::METRIC_HISTOGRAM, shape.content_bytes());
    let count = |out: &mut Vec<u8>, field, value| {
        tag(out, field, field::VARINT);
        fixed_varint(out, value, shape.count_bytes);
    };
    let total = values.zero_count + values.bins.clone().map(|(_, count)| count).sum::<u64>();
    count(out, field::SAMPLE_COUNT, total);
    double(out, field::SAMPLE_SUM, values.sum);
    for (bound, up_to) in values.buckets.clone() {
        tag(out, field::BUCKET, field::LENGTH_DELIMITED);
        varint(out, shape.bucket_bytes() as u64);
        count(out, field::CUMULATIVE_COUNT, up_to);
        double(out, field::UPPER_BOUND, bound);
    }
    created(out, field::HISTOGRAM_CREATED, values.created);
    tag(out, field::SCHEMA, field::VARINT);
    varint(out, zigzag(values.schema.into()));
    double(out, field::ZERO_THRESHOLD, values.zero_threshold);
    count(out, field::ZERO_COUNT, values.zero_count);
    // The index after the last span. The offset of the first span is counted from bucket 0.
    let mut behind = 0;
    let mut bins = values.bins.clone().map(|(index, _)| index).peekable();
    while let Some(first) = bins.next() {
        let mut end = first + 1;
        while bins.next_if_eq(&end).is_some() {
            end += 1;
        }
        tag(out, field::POSITIVE_SPAN, field::LENGTH_DELIMITED);
        varint(out, (SPAN_BYTES - 2) as u64);
        tag(out, field::SPAN_OFFSET, field::VARINT);
        fixed_varint(out, zigzag((first - behind).into()), LENGTH_BYTES);
        tag(out, field::SPAN_LENGTH, field::VARINT);
        fixed_varint(out, u64::from((end - first).unsigned_abs()), LENGTH_BYTES);
        behind = end;
    }
    head(out, field::POSITIVE_DELTA, shape.bins * shape.count_bytes);
    let mut before = 0_u64;
    for (_, value) in values.bins.clone() {
        fixed_varint(out, zigzag(value.wrapping_sub(before).cast_signed()), shape.count_bytes);
        before = value;
    }
    debug_assert_eq!(out.len() - begin, shape.bytes(), "the length was written before");
}
