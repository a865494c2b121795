//! Writing messages of the Prometheus protobuf exposition format (`io.prometheus.client`), field by field.
//!
//! A message is preceded by its length, which is known before the counters in it are read: numbers that change have a fixed
//! width. A varint of protobuf may be padded for that with bytes that add nothing.

/// Number and wire type of the fields that are used. All field numbers are below 16, so that a tag is one byte.
mod field {
    pub const VARINT: u8 = 0;
    pub const FIXED64: u8 = 1;
    pub const LENGTH_DELIMITED: u8 = 2;

    pub const FAMILY_NAME: u8 = 1;
    pub const FAMILY_HELP: u8 = 2;
    pub const FAMILY_TYPE: u8 = 3;
    pub const FAMILY_METRIC: u8 = 4;
    /// None of the message type: a decoder skips it.
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

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A counter.
    Counter = 0,
    /// A gauge.
    Gauge = 1,
    /// A histogram.
    Histogram = 4,
}

/// Bytes of a length that is written before what it measures: up to 16,383.
const LENGTH_BYTES: usize = 2;
/// Bytes of a moment, from its tag on.
const CREATED_BYTES: usize = 2 + 1 + SECONDS_BYTES;
/// Seconds since the epoch as a varint, until 2106.
const SECONDS_BYTES: usize = 5;
/// A number of 64 bits behind its tag.
const DOUBLE_BYTES: usize = 1 + 8;
/// Offset and length of a span behind their tags.
const SPAN_BYTES: usize = 2 + 2 * (1 + LENGTH_BYTES);
/// A tag and a length.
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

/// A varint of exactly `bytes` bytes; higher bits of the value are lost.
fn fixed_varint(out: &mut Vec<u8>, value: u64, bytes: usize) {
    for index in 0..bytes {
        let more = if index + 1 < bytes { 0x80 } else { 0 };
        out.push(low_bits(value >> (7 * index)) | more);
    }
}

const fn low_bits(value: u64) -> u8 {
    (value & 0x7f) as u8
}

/// A signed number so that small ones are small: 0, -1, 1, -2, …
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

/// Bytes of a text, from its tag on.
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

/// Appends a family's length and all that precedes its metrics, which have `metric_bytes`.
pub fn family(out: &mut Vec<u8>, name: &str, help: &str, kind: Kind, metric_bytes: usize) {
    varint(out, (text_bytes(name) + text_bytes(help) + 2 + metric_bytes) as u64);
    text(out, field::FAMILY_NAME, name);
    text(out, field::FAMILY_HELP, help);
    tag(out, field::FAMILY_TYPE, field::VARINT);
    out.push(kind as u8);
}

/// Appends a label to a metric's labels.
pub fn label(out: &mut Vec<u8>, name: &str, value: &str) {
    tag(out, field::METRIC_LABEL, field::LENGTH_DELIMITED);
    varint(out, (text_bytes(name) + text_bytes(value)) as u64);
    text(out, field::LABEL_NAME, name);
    text(out, field::LABEL_VALUE, value);
}

/// Bytes of a counter or a gauge with labels of so many bytes.
pub const fn number_bytes(labels: usize, has_created: bool) -> usize {
    HEAD_BYTES + labels + HEAD_BYTES + DOUBLE_BYTES + if has_created { CREATED_BYTES } else { 0 }
}

/// Appends a counter, with the time since when it counts where that is known, or a gauge, as a metric of a family.
pub fn number(out: &mut Vec<u8>, kind: Kind, labels: &[u8], value: f64, since: Option<u32>) {
    head(out, field::FAMILY_METRIC, number_bytes(labels.len(), since.is_some()) - HEAD_BYTES);
    out.extend_from_slice(labels);
    let field = if kind == Kind::Counter { field::METRIC_COUNTER } else { field::METRIC_GAUGE };
    head(out, field, number_bytes(0, since.is_some()) - 2 * HEAD_BYTES);
    double(out, field::VALUE, value);
    if let Some(since) = since {
        created(out, field::COUNTER_CREATED, since);
    }
}

/// Appends so many bytes that a decoder of a family skips; at least [`HEAD_BYTES`], as every metric has.
pub fn padding(out: &mut Vec<u8>, bytes: usize) {
    let content = bytes.saturating_sub(HEAD_BYTES);
    head(out, field::FAMILY_PADDING, content);
    out.resize(out.len() + content, 0);
}

/// What of a histogram decides how long its metric is.
#[derive(Clone, Copy, Debug)]
pub struct HistogramShape {
    /// Bytes of its labels.
    pub labels: usize,
    /// Classic buckets below +Inf.
    pub bounds: usize,
    /// Native buckets that are written.
    pub bins: usize,
    /// Runs of those that are next to each other.
    pub spans: usize,
    /// Bytes of each count. Six have room for the sum of 256 numbers of 32 bits, nine for 63 bits.
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

    /// Bytes of the metric.
    pub const fn bytes(&self) -> usize {
        2 * HEAD_BYTES + self.labels + self.content_bytes()
    }
}

/// A histogram's numbers.
#[derive(Clone, Debug)]
pub struct HistogramValues<B, N> {
    /// Of all values, in seconds.
    pub sum: f64,
    /// Since when it counts, in seconds since the epoch.
    pub created: u32,
    /// Upper bounds in seconds and cumulative counts of the classic buckets.
    pub buckets: B,
    /// The resolution of the native buckets.
    pub schema: u8,
    /// What counts as zero, in seconds.
    pub zero_threshold: f64,
    /// Values that do.
    pub zero_count: u64,
    /// Indexes and counts of the native buckets, ascending.
    pub bins: N,
}

/// Appends a histogram as a metric of a family: exactly the bytes of its shape, if that counts its buckets and spans.
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
    // The index behind the last span: the first one's offset is counted from bucket 0.
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
