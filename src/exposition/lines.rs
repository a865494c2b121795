//! Renders the families of links, zone pairs, lags and checks in the text format and OpenMetrics.
//!
//! The labels and numbers of the current subject are kept. So a histogram that is cut by the end of
//! a frame still shows a single moment.

use super::accept::Format;
use super::families::{FAMILIES, FamilyDescription};
use super::subjects::Subjects;
use super::text::{self, Extra, label};
use crate::check::CHECK_NAME_BYTES_MAX;
use crate::limits::{FRAME_BYTES, NAME_BYTES_MAX};
use crate::statistics::{BucketBounds, CHECK_TARGET_BYTES_MAX, ClassicReading};

/// Room for the longest sample: four names, every character escaped, and 512 bytes for the rest.
const SAMPLE_BYTES_MAX: usize = 4 * 2 * NAME_BYTES_MAX + 512;
const _: () = assert!(SAMPLE_BYTES_MAX <= FRAME_BYTES);
const _: () = assert!(CHECK_NAME_BYTES_MAX + CHECK_TARGET_BYTES_MAX <= 4 * NAME_BYTES_MAX, "so have those of checks");

/// The position of a scrape in the families.
#[derive(Debug)]
pub struct SampleLines {
    format: Format,
    family: usize,
    header_written: bool,
    subject: usize,
    current: Option<Current>,
    labels: Vec<u8>,
}

/// The current subject, and the index of its next sample.
#[derive(Clone, Copy, Debug)]
struct Current {
    samples: Samples,
    /// The time from which a counter or histogram counts.
    created: Option<u32>,
    next: usize,
}

#[derive(Clone, Copy, Debug)]
enum Samples {
    Count(u64),
    Classic(ClassicReading),
}

impl Current {
    /// Returns the sample at index `next`. Returns none after the last.
    fn sample(&self, bounds: &BucketBounds) -> Option<(Extra, text::SampleValue)> {
        let bounds = bounds.as_slice();
        match &self.samples {
            Samples::Count(count) => (self.next == 0).then_some((Extra::None, text::SampleValue::Count(*count))),
            Samples::Classic(times) => match self.next.checked_sub(bounds.len()) {
                None => {
                    let (bound, up_to) = (bounds[self.next], times.up_to[self.next]);
                    Some((Extra::Bucket(Some(bound)), text::SampleValue::Count(up_to)))
                }
                Some(0) => Some((Extra::Bucket(None), text::SampleValue::Count(times.count))),
                Some(1) => Some((Extra::Sum, text::SampleValue::Seconds(times.sum))),
                Some(2) => Some((Extra::Count, text::SampleValue::Count(times.count))),
                Some(_) => None,
            },
        }
    }
}

impl SampleLines {
    /// Starts before the first family.
    pub const fn new(format: Format) -> Self {
        Self { format, family: 0, header_written: false, subject: 0, current: None, labels: Vec::new() }
    }

    /// Renders the next piece, as [`crate::http::Render::render`] does.
    pub fn render(&mut self, subjects: &Subjects<'_>, out: &mut Vec<u8>) -> bool {
        while let Some(family) = FAMILIES.get(self.family) {
            if FRAME_BYTES.saturating_sub(out.len()) < SAMPLE_BYTES_MAX {
                return true;
            }
            // Once its header is written, a family goes on to its end.
            if !self.header_written && !subjects.has(family) {
                self.family += 1;
                continue;
            }
            if self.current.is_none() && !self.load(subjects, family) {
                (self.family, self.header_written, self.subject) = (self.family + 1, false, 0);
                continue;
            }
            // A family without a subject has no header either, as in protobuf.
            if !self.header_written {
                text::header(out, self.format, family.name, family.help, family.kind());
                self.header_written = true;
            }
            if !self.write_samples(subjects, family, out) {
                return true;
            }
            self.subject += 1;
        }
        if self.format == Format::OpenMetrics {
            out.extend_from_slice(b"# EOF\n");
        }
        false
    }

    /// Loads the first subject at or after the cursor. Returns whether there is one.
    fn load(&mut self, subjects: &Subjects<'_>, family: &FamilyDescription) -> bool {
        let end = subjects.end(family);
        while self.subject < end {
            let labels = &mut self.labels;
            labels.clear();
            if subjects.is_in(family, self.subject)
                && let Some(subject) = subjects.get(family, self.subject, |name, value| label(labels, name, value))
            {
                let (samples, created) = match subject.count(family) {
                    Some((count, created)) => (Samples::Count(count), created),
                    None => (Samples::Classic(subject.classic()), Some(subject.created())),
                };
                self.current = Some(Current { samples, created, next: 0 });
                return true;
            }
            self.subject += 1;
        }
        false
    }

    /// Writes samples of the current subject while they fit. Returns whether all are written.
    fn write_samples(&mut self, subjects: &Subjects<'_>, family: &FamilyDescription, out: &mut Vec<u8>) -> bool {
        let bounds = subjects.scale(family.scope).bounds();
        let Some(current) = &mut self.current else { return true };
        while let Some((extra, value)) = current.sample(bounds) {
            if FRAME_BYTES - out.len() < SAMPLE_BYTES_MAX {
                return false;
            }
            text::sample(out, family.name, &self.labels, extra, value);
            current.next += 1;
        }
        if self.format == Format::OpenMetrics
            && let Some(created) = current.created
        {
            if FRAME_BYTES - out.len() < SAMPLE_BYTES_MAX {
                return false;
            }
            text::created(out, family.name, &self.labels, created);
        }
        self.current = None;
        true
    }
}
