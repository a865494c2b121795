//! `/metrics`, rendered a frame at a time.
//!
//! The cursor is a family, a subject (a peer's slot, a zone pair) and a sample. Labels and numbers of the subject
//! under way are kept in the cursor, so that a histogram cut by the end of a frame is still of one moment. What is exported
//! at all says the scrape's plan ([`super::series`]).

use std::sync::{Arc, PoisonError};

use super::families::{FAMILIES, Family, Kind, Reading, Scope, Shape};
use super::series::{Peers, Plan, ZONE_PAIRS, Zones, zone_pair};
use super::text::{self, label};
use super::{AgentMetrics, View, Walk, now};
use crate::http::Render;
use crate::limits::{FRAME_BYTES, NAME_BYTES_MAX};
use crate::peers::{Directory, SlotId};
use crate::statistics::Bounds;
use crate::units::Nanos;

/// Which exposition format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// What an Accept header asks for. Prometheus names OpenMetrics first when it wants it.
    pub fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Text }
    }

    /// The Content-Type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// How a counter family is called in its HELP and TYPE lines.
    pub fn family_name<'a>(self, name: &'a str, type_name: &str) -> &'a str {
        match self {
            Self::OpenMetrics if type_name == "counter" => name.strip_suffix("_total").unwrap_or(name),
            _ => name,
        }
    }
}

/// Room for the longest sample: four names, each character escaped, and 512 bytes for all the rest.
const SAMPLE_BYTES_MAX: usize = 4 * 2 * NAME_BYTES_MAX + 512;
const _: () = assert!(SAMPLE_BYTES_MAX <= FRAME_BYTES);

/// The body of one scrape. Its own are the place where it stands and the labels of one subject; the frame is its worker's, the
/// registry's text is shared with other scrapes, and all else is read from the view as it is rendered.
pub struct MetricsBody {
    format: Format,
    /// The registry's metrics, which other scrapes share, and how much of them is sent.
    agent: Option<(Arc<Vec<u8>>, usize)>,
    /// What is exported, which other scrapes share as well.
    plan: Arc<Plan>,
    /// Of [`Plan::further_send_errors`], what is left.
    further: usize,
    family: usize,
    header_written: bool,
    subject: usize,
    current: Option<(Reading, usize)>,
    labels: Vec<u8>,
    /// Last, for it is dropped last: peers may move to other slots once it is, and nobody may share the plan then.
    view: Walk,
}

impl MetricsBody {
    /// A scrape that begins now.
    pub fn new(view: Arc<View>, agent: &AgentMetrics, format: Format) -> Self {
        Self::at(now(), view, agent, format)
    }

    /// A scrape that begins at that time, on the clock of the statistics.
    pub fn at(now: Nanos, view: Arc<View>, agent: &AgentMetrics, format: Format) -> Self {
        // Before the plan is made: from now on nobody moves to another slot.
        let view = Walk::new(view);
        let (head, plan) = agent.encode(now, &view.0, format);
        Self {
            format,
            agent: Some((head, 0)),
            further: plan.further_send_errors(),
            plan,
            family: 0,
            header_written: false,
            subject: 0,
            current: None,
            labels: Vec::new(),
            view,
        }
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

    /// How a family is exported; none where it is not.
    fn shape(&self, family: &Family) -> Option<Shape> {
        match (family.scope, family.kind) {
            (Scope::Peer, Kind::Rtt) if self.plan.peers() != Peers::Histograms => Some(Shape::Sums),
            (Scope::Zone, Kind::Rtt) => match self.plan.zones() {
                Zones::Histograms => Some(Shape::Histogram),
                Zones::Sums => Some(Shape::Sums),
                Zones::Counters => None,
            },
            _ => Some(Shape::Histogram),
        }
    }

    fn write_header(&self, family: &Family, shape: Shape, out: &mut Vec<u8>) {
        let type_name = family.type_name(shape);
        let name = self.format.family_name(family.name, type_name);
        for part in ["# HELP ", name, " ", family.help, "\n# TYPE ", name, " ", type_name, "\n"] {
            out.extend_from_slice(part.as_bytes());
        }
    }

    /// Loads the next subject at or behind the cursor. Returns whether there is one.
    fn load(&mut self, family: &Family, directory: &Directory) -> bool {
        let statistics = &self.view.0.statistics;
        loop {
            let subject = self.subject;
            let (found, end) = match family.scope {
                Scope::Agent => {
                    let lag = match family.kind {
                        Kind::ReadDelay => statistics.read_delay(),
                        _ => statistics.send_lag(),
                    };
                    ((subject == 0).then(|| Reading::Lag(lag.read())), 1)
                }
                Scope::Zone => {
                    let (zone, via) = zone_pair(subject);
                    let pair = statistics.zone(zone, via).filter(|_| self.plan.has_zone_pair(subject));
                    (pair.map(|z| Reading::Zone(z.read())), ZONE_PAIRS)
                }
                Scope::Peer => {
                    let slot = SlotId::at(subject);
                    let peer = directory.peer(slot).filter(|peer| self.plan.has_peer(slot, *peer));
                    let present = peer.and_then(|_| statistics.slot(slot));
                    (present.map(|s| Reading::Peer(s.read())), directory.slot_count())
                }
            };
            if subject >= end {
                return false;
            }
            if let Some(reading) = found {
                self.write_labels(family.scope, subject, directory);
                self.current = Some((reading, 0));
                return true;
            }
            self.subject += 1;
        }
    }

    fn write_labels(&mut self, scope: Scope, subject: usize, directory: &Directory) {
        let labels = &mut self.labels;
        labels.clear();
        match scope {
            Scope::Agent => {}
            Scope::Zone => {
                let (zone, via) = zone_pair(subject);
                label(labels, "source_zone", directory.own_zone());
                label(labels, "peer_zone", directory.zone_name(zone));
                label(labels, "protocol", via.protocol.label());
                label(labels, "network", via.network.label());
            }
            Scope::Peer => {
                let slot = SlotId::at(subject);
                let Some(peer) = directory.peer(slot) else { return };
                label(labels, "source_node", &self.view.0.node);
                label(labels, "source_zone", directory.own_zone());
                label(labels, "peer_node", peer.node());
                label(labels, "peer_zone", directory.zone_name(peer.zone()));
                label(labels, "protocol", peer.protocol().label());
                label(labels, "network", peer.network().label());
            }
        }
    }

    /// Writes samples of the current subject while they fit. Returns whether all are written.
    fn write_samples(&mut self, family: &Family, bounds: &Bounds, shape: Shape, out: &mut Vec<u8>) -> bool {
        let Some((reading, next)) = &mut self.current else { return true };
        while let Some((index, extra, value)) = family.sample(reading, bounds, shape, *next) {
            if FRAME_BYTES - out.len() < SAMPLE_BYTES_MAX {
                return false;
            }
            if family.kind == Kind::SendErrors && *next > 0 {
                // The first reason of a peer has its room in any case.
                let Some(left) = self.further.checked_sub(1) else {
                    self.plan.overflows();
                    break;
                };
                self.further = left;
            }
            text::sample(out, family.name, &self.labels, extra, value);
            *next = index + 1;
        }
        self.current = None;
        true
    }
}

impl Render for MetricsBody {
    fn render(&mut self, out: &mut Vec<u8>) -> bool {
        if !self.write_agent(out) {
            return true;
        }
        let view = Arc::clone(&self.view.0);
        // The lock is held for the rendering of one frame, never while a scraper reads it.
        let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
        while let Some(family) = FAMILIES.get(self.family) {
            let bounds = match family.scope {
                Scope::Agent => view.statistics.send_lag().bounds(),
                Scope::Peer | Scope::Zone => view.statistics.bounds(),
            };
            if FRAME_BYTES - out.len().min(FRAME_BYTES) < SAMPLE_BYTES_MAX {
                return true;
            }
            let Some(shape) = self.shape(family) else {
                self.family += 1;
                continue;
            };
            if !self.header_written {
                self.write_header(family, shape, out);
                self.header_written = true;
            }
            if self.current.is_none() && !self.load(family, &directory) {
                (self.family, self.header_written, self.subject) = (self.family + 1, false, 0);
                continue;
            }
            if !self.write_samples(family, bounds, shape, out) {
                return true;
            }
            self.subject += 1;
        }
        if self.format == Format::OpenMetrics {
            out.extend_from_slice(b"# EOF\n");
        }
        false
    }
}
