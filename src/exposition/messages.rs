//! Renders the families of links, zone pairs, lags and checks in protobuf: one message for each
//! family. The length of a message is written before its metrics.
//!
//! Counters change and peers join and leave while a scrape is sent. So everything that decides on
//! lengths is noted before the first metric of a scope is written. For each subject this is the
//! bytes of its labels, and which native buckets are not empty. Numbers have a fixed width. A
//! metric cannot be written as noted if its peer has left or has changed its zone since. Padding of
//! the same length replaces it. Values that fall into other buckets appear in the next scrape.

use super::families::{FAMILIES, FamilyDescription, FamilyScope};
use super::protobuf::{self, FamilyKind, HistogramShape, HistogramValues};
use super::subjects::Subjects;
use crate::limits::{FRAME_BYTES, NAME_BYTES_MAX, RTT_BUCKETS_MAX};
use crate::statistics::{BINS_MAX, HistogramReading, Scale};

/// One bit for each native bucket.
type Bins = [u64; BINS_MAX.div_ceil(64)];

/// Bytes of a count of a link, whose numbers have 32 bits, or of a check, which has an attempt
/// every few seconds; and of a count over all links.
const LINK_COUNT_BYTES: usize = 6;
const COUNT_BYTES: usize = 9;

/// The longest metric has four names, the most bounds, and every second native bucket of all.
const METRIC_BYTES_MAX: usize = HistogramShape {
    labels: 4 * NAME_BYTES_MAX + 256,
    bounds: RTT_BUCKETS_MAX,
    bins: BINS_MAX,
    spans: 0,
    count_bytes: COUNT_BYTES,
}
.bytes();
// A span has fewer bytes than the nine-byte bucket that is left out between two spans.
const _: () = assert!(METRIC_BYTES_MAX <= FRAME_BYTES, "every metric fits a frame");

/// Room for the longest name and help text, and for the bytes around them.
const HEADER_BYTES_MAX: usize = 512;

/// The position of a scrape in the families.
#[derive(Debug, Default)]
pub struct Messages {
    family: usize,
    header_written: bool,
    subject: usize,
    layout: Option<Layout>,
    scratch: Scratch,
}

/// Memory for one subject, reused for the next.
#[derive(Debug, Default)]
struct Scratch {
    labels: Vec<u8>,
    times: HistogramReading,
}

/// What decides on the lengths of a scope's metrics.
#[derive(Debug)]
struct Layout {
    scope: FamilyScope,
    /// The family before whose first metric this was noted. The agent's lags differ by family, and
    /// so do the subjects of checks. Some families have a label of their own.
    family: usize,
    /// For each subject, one more than the bytes of its labels. It is 0 if the
    /// subject did not exist.
    labels: Vec<u16>,
    /// The native buckets of each subject that are written: as many words as the scale needs.
    bins: Vec<u64>,
    words: usize,
}

/// What decides on the length of a metric.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// A counter or a gauge whose labels take this many bytes.
    Number(usize, FamilyKind),
    /// A histogram, and the native buckets that are written.
    Histogram(HistogramShape, Bins),
}

impl Shape {
    const fn bytes(&self) -> usize {
        match self {
            Self::Number(labels, kind) => protobuf::number_bytes(*labels, matches!(kind, FamilyKind::Counter)),
            Self::Histogram(shape, _) => shape.bytes(),
        }
    }

    const fn labels(&self) -> usize {
        match self {
            Self::Number(labels, _) | Self::Histogram(HistogramShape { labels, .. }, _) => *labels,
        }
    }
}

impl Layout {
    fn new(subjects: &Subjects<'_>, number: usize, family: &FamilyDescription, scratch: &mut Scratch) -> Self {
        let scope = family.scope;
        let (end, scale) = (subjects.end(family), subjects.scale(scope));
        let words = scale.bin_count().div_ceil(64);
        let times =
            FAMILIES[number..].iter().find(|family| family.scope == scope && family.kind() == FamilyKind::Histogram);
        let times = times.filter(|family| subjects.has(family));
        let bins = if times.is_some() { vec![0; end * words] } else { Vec::new() };
        let mut layout = Self { scope, family: number, labels: vec![0; end], bins, words };
        let Scratch { labels, times: reading } = scratch;
        for subject in 0..end {
            labels.clear();
            let label = |name: &str, value: &str| protobuf::label(labels, name, value);
            let Some(found) = subjects.get(times.unwrap_or(family), subject, label) else { continue };
            layout.labels[subject] = u16::try_from(labels.len() + 1).unwrap_or(0);
            if times.is_some_and(|family| subjects.is_in(family, subject)) {
                found.read_times(reading);
                for (bin, _) in reading.bins(scale).filter(|(bin, count)| *bin > 0 && *count > 0) {
                    layout.bins[subject * words + bin / 64] |= 1 << (bin % 64);
                }
            }
        }
        layout
    }

    /// Whether this layout is valid for another family, too.
    fn is_valid_for(&self, number: usize, family: &FamilyDescription) -> bool {
        self.scope == family.scope
            && FAMILIES[self.family].label == family.label
            && (!matches!(self.scope, FamilyScope::Agent | FamilyScope::Check) || self.family == number)
    }

    /// Returns the shape of a subject's metric. Returns none if the subject did not exist.
    fn shape(&self, subjects: &Subjects<'_>, family: &FamilyDescription, subject: usize) -> Option<Shape> {
        let labels = usize::from(*self.labels.get(subject)?).checked_sub(1)?;
        if !subjects.is_in(family, subject) {
            return None;
        }
        if family.kind() != FamilyKind::Histogram {
            return Some(Shape::Number(labels, family.kind()));
        }
        let mut written = [0; BINS_MAX.div_ceil(64)];
        written[..self.words].copy_from_slice(&self.bins[subject * self.words..][..self.words]);
        let (mut before, mut bins, mut spans) = (0, 0, 0);
        for word in written {
            // A run begins at a bit that is set while the bit below it is not.
            spans += (word & !(word << 1 | before)).count_ones() as usize;
            bins += word.count_ones() as usize;
            before = word >> 63;
        }
        let is_small = matches!(self.scope, FamilyScope::Link | FamilyScope::Check);
        let count_bytes = if is_small { LINK_COUNT_BYTES } else { COUNT_BYTES };
        let bounds = subjects.scale(self.scope).bounds().as_slice().len();
        Some(Shape::Histogram(HistogramShape { labels, bounds, bins, spans, count_bytes }, written))
    }
}

impl Messages {
    /// Renders the next piece, as [`crate::http::Render::render`] does.
    pub fn render(&mut self, subjects: &Subjects<'_>, out: &mut Vec<u8>) -> bool {
        while let Some(family) = FAMILIES.get(self.family) {
            // Once its length is written, a family goes on to its end.
            if !self.header_written && !subjects.has(family) {
                self.family += 1;
                continue;
            }
            let layout = match &mut self.layout {
                Some(layout) if layout.is_valid_for(self.family, family) => layout,
                other => other.insert(Layout::new(subjects, self.family, family, &mut self.scratch)),
            };
            if !self.header_written {
                if FRAME_BYTES.saturating_sub(out.len()) < HEADER_BYTES_MAX {
                    return true;
                }
                let shapes = (0..layout.labels.len()).filter_map(|subject| layout.shape(subjects, family, subject));
                let bytes = shapes.map(|shape| shape.bytes()).sum();
                // Some parsers leave out a family without a metric, and others do not.
                if bytes == 0 {
                    self.family += 1;
                    continue;
                }
                protobuf::family(out, family.name, family.help, family.kind(), bytes);
                self.header_written = true;
            }
            if self.subject >= layout.labels.len() {
                (self.family, self.header_written, self.subject) = (self.family + 1, false, 0);
                continue;
            }
            if let Some(shape) = layout.shape(subjects, family, self.subject) {
                if FRAME_BYTES.saturating_sub(out.len()) < shape.bytes() {
                    return true;
                }
                if !write_metric(subjects, &shape, family, self.subject, &mut self.scratch, out) {
                    protobuf::padding(out, shape.bytes());
                }
            }
            self.subject += 1;
        }
        false
    }
}

/// Appends the metric of a subject. Returns whether the subject exists and its metric has the
/// shape. If not, it appends nothing.
fn write_metric(
    subjects: &Subjects<'_>,
    shape: &Shape,
    family: &FamilyDescription,
    subject: usize,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> bool {
    let Scratch { labels, times } = scratch;
    labels.clear();
    let found = subjects.get(family, subject, |name, value| protobuf::label(labels, name, value));
    let Some(found) = found.filter(|_| labels.len() == shape.labels()) else { return false };
    let (shape, written) = match shape {
        Shape::Histogram(shape, written) => (shape, written),
        Shape::Number(_, kind) => {
            let Some((count, created)) = found.count(family) else { return false };
            protobuf::number(out, *kind, labels, count as f64, created);
            return true;
        }
    };
    found.read_times(times);
    let scale = subjects.scale(family.scope);
    let is_written = |bin: usize| bin == 0 || written[bin / 64] & 1 << (bin % 64) != 0;
    let sum = leave_out(times, scale, |cell| !is_written(scale.bin(cell)));
    let classic = times.classic(scale);
    let bins = times.bins(scale).filter(|(bin, _)| is_written(*bin));
    let values = HistogramValues {
        sum,
        created: found.created(),
        buckets: scale.bounds().as_slice().iter().map(|bound| bound.as_secs_f64()).zip(classic.up_to),
        schema: scale.schema(),
        zero_threshold: scale.zero_threshold(),
        zero_count: bins.clone().next().map_or(0, |(_, count)| count),
        bins: bins.skip(1).map(|(bin, count)| (scale.native_index(bin), count)),
    };
    protobuf::histogram(out, labels, shape, &values);
    true
}

/// Removes the counts of the `hidden` cells. Returns the sum of the other values, in seconds. The
/// sum is exact if there is nothing to remove. Otherwise each hidden value counts as the lower
/// bound of its cell. The result then never exceeds the largest sum that the other values can have.
fn leave_out(times: &mut HistogramReading, scale: &Scale, hidden: impl Fn(usize) -> bool) -> f64 {
    let (mut sum, mut most, mut is_whole) = (times.sum.as_secs_f64(), 0.0, true);
    for (cell, count) in times.cells.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
        let [lower, upper] = scale.cell_bounds(cell);
        if hidden(cell) {
            sum -= lower * std::mem::take(count) as f64;
            is_whole = false;
        } else {
            most += upper * *count as f64;
        }
    }
    if is_whole { sum } else { sum.min(most) }
}
