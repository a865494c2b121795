//! `/metrics`, rendered one frame at a time.
//!
//! The agent's own families come first. They are encoded at once ([`super::AgentMetrics`]). The
//! families of links, zone pairs and lags follow: in text sample by sample ([`super::lines`]), in
//! protobuf metric by metric ([`super::messages`]). The cursor of both is a family and a subject in
//! it.

use std::sync::{Arc, PoisonError};

use super::accept::Format;
use super::lines::SampleLines;
use super::messages::Messages;
use super::series::{SeriesSettings, Shown};
use super::subjects::Subjects;
use super::{AgentMetrics, View, ViewWalk, now};
use crate::http::Render;
use crate::limits::FRAME_BYTES;
use crate::units::Nanos;

/// The body of one scrape. It owns its position and the labels of one subject. In protobuf it also
/// owns what decides on lengths. The frame belongs to the worker. The agent's own families are
/// shared by all scrapes that send them.
pub struct MetricsBody {
    agent: Option<(Arc<Vec<u8>>, usize)>,
    series: SeriesSettings,
    shown: Shown,
    /// The list of checks when the scrape began.
    checks: u32,
    families: Families,
    view: ViewWalk,
}

enum Families {
    Lines(SampleLines),
    Messages(Messages),
}

impl MetricsBody {
    /// Creates the body of a scrape that begins now.
    pub fn new(view: Arc<View>, agent: &AgentMetrics, format: Format) -> Self {
        Self::at(now(), view, agent, format)
    }

    /// Creates the body of a scrape that begins at `now`, on the clock of the statistics.
    pub fn at(now: Nanos, view: Arc<View>, agent: &AgentMetrics, format: Format) -> Self {
        // This comes before the decision about which links are shown: a walk keeps peers in their
        // slots.
        let view = ViewWalk::new(view);
        let (head, shown) = agent.encode(now, &view.0, format);
        let families = match format {
            Format::Protobuf => Families::Messages(Messages::default()),
            Format::Text | Format::OpenMetrics => Families::Lines(SampleLines::new(format)),
        };
        let checks = view.0.statistics.checks().list_number();
        Self { agent: Some((head, 0)), series: agent.series(), shown, checks, families, view }
    }

    fn write_agent(&mut self, out: &mut Vec<u8>) -> bool {
        let Some((head, sent)) = &mut self.agent else { return true };
        let room = FRAME_BYTES.saturating_sub(out.len()).min(head.len() - *sent);
        out.extend_from_slice(&head[*sent..*sent + room]);
        *sent += room;
        if *sent < head.len() {
            return false;
        }
        self.agent = None;
        true
    }
}

impl Render for MetricsBody {
    fn render(&mut self, out: &mut Vec<u8>) -> bool {
        if !self.write_agent(out) {
            return true;
        }
        let view = &*self.view.0;
        // The lock is held while one frame is rendered, never while a scraper reads it.
        let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
        let subjects =
            Subjects { view, directory: &directory, series: self.series, shown: self.shown, checks: self.checks };
        match &mut self.families {
            Families::Lines(lines) => lines.render(&subjects, out),
            Families::Messages(messages) => messages.render(&subjects, out),
        }
    }
}
