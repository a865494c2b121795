//! Renders the families of links, zone pairs and lags in protobuf: one message for each family. The
//! length of a message is written before its metrics.
//!
//! Counters change and peers join and leave while a scrape is sent. So everything that decides on
//! lengths is noted before the first metric of a scope is written. For each subject this is the
//! bytes of its labels, and which native buckets are not empty. Numbers have a fixed width. A
//! metric cannot be written as noted if its peer has left or has changed its zone since. Padding of
//! the same length replaces it. Values that fall into other buckets appear in the next scrape.

use super::families::{FAMILIES, Family, Scope};
use super::protobuf::{self, HistogramShape, HistogramValues, Kind};
use super::subjects::Subjects;
use crate::limits::{FRAME_BYTES, NAME_BYTES_MAX, RTT_BUCKETS_MAX};
use crate::statistics::{BINS_MAX, HistogramReading, Scale};

/// One bit for each native bucket.
type Bins = [u64; BINS_MAX.div_ceil(64)];

/// Bytes of a count of a link, whose numbers have 32 bits, and of a count over all links.
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
    noted: Option<Noted>,
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
struct Noted {
    scope: Scope,
    /// The family before whose first metric this was noted. The agent's lags differ by family.
    family: usize,
    /// For each subject, one more than the bytes of its labels. It is 0 if the
    /// subject did not exist.
    labels: Vec<u16>,
    /// The native buckets of each subject that are written: as many words as the scale needs.
    bins: Vec<u64>,
    words: usize,
}

impl Noted {
    fn new(subjects: &Subjects<'_>, number: usize, family: &Family, scratch: &mut Scratch) -> Self {
        let scope = family.scope;
        let (end, scale) = (subjects.end(scope), subjects.scale(scope));
        let words = scale.bin_count().div_ceil(64);
        let times = FAMILIES[number..].iter().find(|it| it.scope == scope && it.kind() == Kind::Histogram);
        let times = times.filter(|family| subjects.has(family));
        let mut noted = Self { scope, family: number, labels: vec![0; end], bins: Vec::new(), words };
        if times.is_some() {
            noted.bins.resize(end * words, 0);
        }
        for subject in 0..end {
            let Scratch { labels, times: reading } = scratch;
            labels.clear();
            if !subjects.labels(scope, subject, |name, value| protobuf::label(labels, name, value)) {
                continue;
            }
            noted.labels[subject] = u16::try_from(labels.len() + 1).unwrap_or(0);
            if let Some(read) = times.and_then(|family| subjects.get(family, subject)) {
                read.read_times(reading);
                noted.note_bins(subject, reading, scale);
            }
        }
        noted
    }

    /// Whether these notes are valid for a family, too.
    fn is_of(&self, number: usize, family: &Family) -> bool {
        self.scope == family.scope && (self.scope != Scope::Agent || self.family == number)
    }

    fn note_bins(&mut self, subject: usize, reading: &HistogramReading, scale: &Scale) {
        for (bin, _) in reading.bins(scale).filter(|(bin, count)| *bin > 0 && *count > 0) {
            self.bins[subject * self.words + bin / 64] |= 1 << (bin % 64);
        }
    }

    /// Returns the bytes of a subject's labels. Returns none if the subject did not exist.
    fn label_bytes(&self, subject: usize) -> Option<usize> {
        usize::from(*self.labels.get(subject)?).checked_sub(1)
    }

    fn bins(&self, subject: usize) -> Bins {
        let mut bins = Bins::default();
        if let Some(noted) = self.bins.get(subject * self.words..(subject + 1) * self.words) {
            bins[..self.words].copy_from_slice(noted);
        }
        bins
    }

    /// Returns the bytes of a subject's metric. Returns none if the subject did not exist.
    fn metric_bytes(&self, subjects: &Subjects<'_>, family: &Family, subject: usize) -> Option<usize> {
        let labels = self.label_bytes(subject)?;
        Some(match family.kind() {
            Kind::Histogram => self.shape(subjects, labels, self.bins(subject)).bytes(),
            Kind::Counter | Kind::Gauge => protobuf::number_bytes(labels, true),
        })
    }

    fn shape(&self, subjects: &Subjects<'_>, labels: usize, bins: Bins) -> HistogramShape {
        let mut before = 0;
        let (mut count, mut spans) = (0, 0);
        for word in bins {
            // A run begins at a bit that is set while the bit below it is not.
            spans += (word & !(word << 1 | before)).count_ones() as usize;
            count += word.count_ones() as usize;
            before = word >> 63;
        }
        let count_bytes = if self.scope == Scope::Link { LINK_COUNT_BYTES } else { COUNT_BYTES };
        let bounds = subjects.scale(self.scope).bounds().as_slice().len();
        HistogramShape { labels, bounds, bins: count, spans, count_bytes }
    }
}

impl Messages {
    /// Renders the next piece, as [`crate::http::Render::render`] does.
    pub fn render(&mut self, subjects: &Subjects<'_>, out: &mut Vec<u8>) -> bool {
        while let Some(family) = FAMILIES.get(self.family) {
            if !subjects.has(family) {
                self.family += 1;
                continue;
            }
            let noted = match &mut self.noted {
                Some(noted) if noted.is_of(self.family, family) => noted,
                other => other.insert(Noted::new(subjects, self.family, family, &mut self.scratch)),
            };
            if !self.header_written {
                if FRAME_BYTES.saturating_sub(out.len()) < HEADER_BYTES_MAX {
                    return true;
                }
                let bytes = (0..noted.labels.len()).filter_map(|subject| noted.metric_bytes(subjects, family, subject));
                protobuf::family(out, family.name, family.help, family.kind(), bytes.sum());
                self.header_written = true;
            }
            let Some(bytes) = noted.metric_bytes(subjects, family, self.subject) else {
                if self.subject >= noted.labels.len() {
                    (self.family, self.header_written, self.subject) = (self.family + 1, false, 0);
                } else {
                    self.subject += 1;
                }
                continue;
            };
            if FRAME_BYTES.saturating_sub(out.len()) < bytes {
                return true;
            }
            if !write_metric(subjects, noted, family, self.subject, &mut self.scratch, out) {
                protobuf::padding(out, bytes);
            }
            self.subject += 1;
        }
        false
    }
}

/// Appends the metric of a subject. Returns whether the subject exists and its metric has the noted
/// number of bytes. If not, it appends nothing.
fn write_metric(
    subjects: &Subjects<'_>,
    noted: &Noted,
    family: &Family,
    subject: usize,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> bool {
    let Scratch { labels, times } = scratch;
    labels.clear();
    let is_there = subjects.labels(family.scope, subject, |name, value| protobuf::label(labels, name, value));
    let Some(label_bytes) = noted.label_bytes(subject).filter(|bytes| is_there && *bytes == labels.len()) else {
        return false;
    };
    let Some(found) = subjects.get(family, subject) else { return false };
    if let Some((count, created)) = found.count(family) {
        protobuf::number(out, Kind::Counter, labels, count as f64, Some(created));
        return true;
    }
    found.read_times(times);
    let (scale, written) = (subjects.scale(family.scope), noted.bins(subject));
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
    protobuf::histogram(out, labels, &noted.shape(subjects, label_bytes, written), &values);
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
