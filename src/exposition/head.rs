//! Writes the families that precede those of links in a scrape: the agent's own.
//!
//! One writer serves all formats. The families of the prometheus crate's registry, and the few
//! families that would cost too much there, are written by the same code.

use prometheus::proto::{MetricFamily, MetricType};

use super::accept::Format;
use super::protobuf::{self, FamilyKind};
use super::text;

/// Appends metric families to a buffer.
#[derive(Debug)]
pub struct FamilyWriter<'a> {
    format: Format,
    /// The agent's start, in seconds since the epoch: its counters count from that time.
    created: u32,
    out: &'a mut Vec<u8>,
    samples: usize,
}

/// What is written before a family's samples.
#[derive(Clone, Copy, Debug)]
struct FamilyHeader<'a> {
    name: &'a str,
    /// The help text. No character in it needs to be escaped.
    help: &'a str,
    kind: FamilyKind,
    /// Whether a counter was at zero when the agent started.
    from_zero: bool,
}

impl<'a> FamilyWriter<'a> {
    /// Creates a writer that appends to `out`.
    pub const fn new(format: Format, created: u32, out: &'a mut Vec<u8>) -> Self {
        Self { format, created, out, samples: 0 }
    }

    /// Returns the number of samples written so far, counted as in the text format.
    pub const fn samples(&self) -> usize {
        self.samples
    }

    /// Appends a gauge that is not in the registry, if it has any samples.
    pub fn gauges<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = ([(&'l str, &'l str); N], u64), IntoIter: Clone>,
    ) {
        self.family(&FamilyHeader { name, help, kind: FamilyKind::Gauge, from_zero: false }, whole(samples));
    }

    /// Appends a gauge of ratios that is not in the registry, if it has any samples.
    pub fn ratios<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = ([(&'l str, &'l str); N], f64), IntoIter: Clone>,
    ) {
        let samples = samples.into_iter().map(|(labels, value)| (labels.into_iter(), value));
        self.family(&FamilyHeader { name, help, kind: FamilyKind::Gauge, from_zero: false }, samples);
    }

    /// Appends a counter that is not in the registry and was zero when the agent started.
    pub fn counters<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = ([(&'l str, &'l str); N], u64), IntoIter: Clone>,
    ) {
        self.family(&FamilyHeader { name, help, kind: FamilyKind::Counter, from_zero: true }, whole(samples));
    }

    /// Appends a family of the registry. `is_older` returns whether a counter of this name may have
    /// counted before the agent started.
    pub fn collected(&mut self, family: &MetricFamily, is_older: impl Fn(&str) -> bool) {
        let is_counter = family.get_field_type() == MetricType::COUNTER;
        let kind = if is_counter { FamilyKind::Counter } else { FamilyKind::Gauge };
        let name = family.name();
        let header = FamilyHeader { name, help: family.help(), kind, from_zero: is_counter && !is_older(name) };
        let samples = family.get_metric().iter().map(|metric| {
            let labels = metric.get_label().iter().map(|label| (label.name(), label.value()));
            let value = if is_counter { metric.get_counter().get_value() } else { metric.get_gauge().get_value() };
            (labels, value)
        });
        self.family(&header, samples);
    }

    fn family<'l, L: Iterator<Item = (&'l str, &'l str)> + Clone>(
        &mut self,
        family: &FamilyHeader<'_>,
        samples: impl Iterator<Item = (L, f64)> + Clone,
    ) {
        if samples.clone().next().is_none() {
            return;
        }
        let since = family.from_zero.then_some(self.created);
        let mut labels = Vec::new();
        if self.format == Format::Protobuf {
            let mut metric_bytes = 0;
            for (given, _) in samples.clone() {
                labels.clear();
                given.for_each(|(name, value)| protobuf::label(&mut labels, name, value));
                metric_bytes += protobuf::number_bytes(labels.len(), since.is_some());
            }
            protobuf::family(self.out, family.name, family.help, family.kind, metric_bytes);
        } else {
            text::header(self.out, self.format, family.name, family.help, family.kind);
        }
        for (given, value) in samples {
            self.samples += 1;
            labels.clear();
            if self.format == Format::Protobuf {
                given.for_each(|(name, value)| protobuf::label(&mut labels, name, value));
                protobuf::number(self.out, family.kind, &labels, value, since);
                continue;
            }
            given.for_each(|(name, value)| text::label(&mut labels, name, value));
            text::number(self.out, family.name, &labels, value);
            if let (Format::OpenMetrics, Some(since)) = (self.format, since) {
                text::created(self.out, family.name, &labels, since);
            }
        }
    }
}

/// Returns samples of whole numbers in the form that all families have.
fn whole<'l, const N: usize>(
    samples: impl IntoIterator<Item = ([(&'l str, &'l str); N], u64), IntoIter: Clone>,
) -> impl Iterator<Item = (impl Iterator<Item = (&'l str, &'l str)> + Clone, f64)> + Clone {
    samples.into_iter().map(|(labels, value)| (labels.into_iter(), value as f64))
}
