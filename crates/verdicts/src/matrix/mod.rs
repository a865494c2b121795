//! What is kept of a mesh for the verdicts: its nodes, and 8 bytes for each link that was probed.
//!
//! A row holds one agent's report. The matrix lives in the agent while reports stream in, so it is
//! sparse: each row has only the columns that were measured. It never moves while it grows. Its
//! bytes are bounded together with those of the verdicts ([`MESH_BYTES_MAX`]). What does not fit is
//! counted, and is then no evidence of anything. A cell that is missing was not measured, which is
//! not the same as no loss. If there is no room, all cells of TCP are dropped, then all of UDP:
//! some rows with a protocol and others without it would be judged unevenly.
//!
//! What only some links have is kept beside the cells ([`links`]).
//!
//! [`MESH_BYTES_MAX`]: kube_canary_model::limits::MESH_BYTES_MAX

mod bounds;
mod cell;
mod checks;
mod domains;
mod facts;
mod lasting;
mod links;
mod names;
mod node;
mod pace;
mod reading;
mod silence;
mod strangers;
mod unsent;

pub use bounds::{MatrixBounds, NotKept};
pub use cell::{Cell, Layer, cells_of_peer, rtt_us, run};
pub use checks::{BadAttempts, TriedAttempts};
pub use facts::{KnownNumber, SourceFacts};
pub use lasting::Lasting;
pub use links::{Hole, LinkWays, LosingFlows};
pub use node::{MatrixNode, RowPresence};
use node::{RowMention, Stay};
pub use pace::{Pace, SLOW_EXTRA_US, SLOW_TIMES, is_slow};
pub use silence::LossRun as LastLosses;
pub use strangers::{SessionOf, StrangerAt, text as stranger_text};
pub use unsent::UnsentLink;

use std::ops::Range;

use cell::Contents;
use checks::AttemptTable;
use links::LinkTables;
use names::NameNumbers;
use silence::SilenceTable;
use strangers::Strangers;
use unsent::UnsentLinks;

use kube_canary_kernel::region::List;
use kube_canary_kernel::text::{Span, Text};
use kube_canary_model::check::Check;
use kube_canary_model::limits::{INTERVAL_MIN, MESH_ZONES_MAX};
use kube_canary_model::report::{Method, Network, Peer, Source};

/// The zone of nodes whose zone is not known or is beyond the limit.
pub const ZONE_UNKNOWN: u8 = 0;
/// Bytes that are kept of the reason for a missing report.
const ERROR_BYTES_MAX: usize = 80;
/// Bytes that judging takes for each node. They count towards [`MESH_BYTES_MAX`].
pub const JUDGED_BYTES_PER_NODE: usize = 40;
/// Bytes that judging takes for each node and each layer that is probed.
pub const JUDGED_BYTES_PER_NODE_AND_LAYER: usize = 48;
const UNKNOWN: &str = "unknown";

/// The place of a row's cells, and what its source reports about itself.
#[derive(Clone, Copy, Debug)]
pub struct MatrixRow {
    begin: u32,
    len: u32,
    /// What the source reports about its last minute.
    pub facts: SourceFacts,
    /// The links that lose too much over ten minutes.
    pub lasting: Lasting,
    /// The layers of which the row has objects. A source that probes by UDP or TCP also answers.
    pub layers: u8,
    /// Whether one of its UDP objects does not say how many requests of the peer were heard.
    is_deaf: bool,
    /// When it was read, in seconds after the epoch of the matrix.
    read: i16,
}

const _: () = assert!(size_of::<MatrixRow>() <= 68);

impl MatrixRow {
    const fn range(&self) -> Range<usize> {
        self.begin as usize..(self.begin + self.len) as usize
    }

    /// Returns when it was read, in seconds after the epoch of the matrix.
    pub const fn read(&self) -> i16 {
        self.read
    }
}

/// What is kept of a mesh for the verdicts.
#[derive(Debug)]
pub struct Matrix {
    text: Text,
    numbers: NameNumbers,
    nodes: List<MatrixNode>,
    zones: Vec<Span>,
    rows: List<MatrixRow>,
    cells: List<Cell>,
    /// Number of cells for which others stand.
    joined: usize,
    /// The node whose row is being read.
    current: Option<u16>,
    /// Reference of all moments, in Unix seconds: when the collection began, by the clock of its
    /// agent. The clock of a report may be wrong.
    epoch: u64,
    /// Whether loopback addresses are probed. All agents then count the echoes of one namespace.
    loopback: bool,
    /// The layers that were probed.
    layers: u8,
    /// The layers that are no longer kept, because there is no room.
    dropped: u8,
    links: LinkTables,
    silence: SilenceTable,
    unsent: UnsentLinks,
    strangers: Strangers,
    checks: AttemptTable,
    /// Number of nodes of the mesh as the first row reports it.
    members: u64,
    not_kept: NotKept,
    domains: domains::OfNodes,
    bounds: MatrixBounds,
}

impl Matrix {
    /// Makes an empty matrix with the limits of an agent. `epoch` is the time, in Unix seconds.
    pub fn new(epoch: u64) -> Self {
        Self::within(MatrixBounds::AGENT, epoch)
    }

    /// Makes an empty matrix with these limits. Address space is reserved at once; memory is
    /// taken as it fills.
    pub fn within(bounds: MatrixBounds, epoch: u64) -> Self {
        let mut text = Text::new(bounds.bytes);
        // There is always room for the first word.
        let unknown = text.add(UNKNOWN).unwrap_or_default();
        Self {
            text,
            numbers: NameNumbers::new(),
            nodes: List::new(bounds.nodes),
            zones: vec![unknown],
            rows: List::new(bounds.rows),
            cells: List::new(bounds.bytes / size_of::<Cell>()),
            joined: 0,
            current: None,
            epoch,
            loopback: false,
            layers: 0,
            dropped: 0,
            links: LinkTables::new(bounds.bytes),
            silence: SilenceTable::new(bounds.bytes),
            unsent: UnsentLinks::new(bounds.bytes),
            strangers: Strangers::new(bounds.bytes),
            checks: AttemptTable::new(bounds.bytes),
            members: 0,
            not_kept: NotKept::default(),
            domains: domains::OfNodes::default(),
            bounds,
        }
    }

    /// Begins a row that is read this many seconds after the epoch. If the row before has not
    /// ended, it has broken off.
    pub fn begin_row(&mut self, source: &Source<'_>, seconds: i64) {
        self.break_off();
        let read = i16::try_from(seconds.clamp(i16::MIN.into(), i16::MAX.into())).unwrap_or_default();
        let place = u16::try_from(self.rows.len()).ok().filter(|place| usize::from(*place) < self.bounds.rows);
        let number = place.and_then(|_| self.node(&source.node, &source.zone, true));
        let (Some(place), Some(number)) = (place, number) else {
            self.not_kept.rows += 1;
            return;
        };
        let begin = u32::try_from(self.cells.len()).unwrap_or(u32::MAX);
        let (facts, lasting) = (SourceFacts::from_source(source), Lasting::default());
        let row = MatrixRow { begin, len: 0, facts, lasting, layers: 0, is_deaf: false, read };
        let room = self.bytes() + size_of::<MatrixRow>() <= self.bounds.bytes;
        if self.get(number).row.is_some() || !room || !self.rows.push(row) {
            self.not_kept.rows += 1;
            return;
        }
        let node = &mut self.nodes[usize::from(number)];
        (node.row, node.presence) = (Some(place), RowPresence::Broken);
        if place == 0 {
            self.members = source.members.unwrap_or_default();
        }
        self.current = Some(number);
        self.checks.begin_row();
        let room = self.bounds.bytes.saturating_sub(self.bytes());
        self.strangers.add(number, source, room);
    }

    /// Sets the names of the judge's own checks, of which the first [`CHECKS_MAX`] count, before
    /// any row arrives. What reports say of other checks is left out.
    ///
    /// [`CHECKS_MAX`]: kube_canary_model::check::CHECKS_MAX
    pub fn set_checks(&mut self, names: &[Box<str>]) {
        self.checks.set_names(names);
    }

    /// Adds a check of the row that is being read.
    ///
    /// Returns false, and adds nothing, if the row already has a check of this name. An agent
    /// writes each once, so such a row is false.
    pub fn check(&mut self, check: &Check<'_>) -> bool {
        let (Some(node), Some(read)) = (self.current, self.rows.last().map(MatrixRow::read)) else { return true };
        let room = self.bounds.bytes.saturating_sub(self.bytes());
        let epoch = self.epoch;
        // What is said to have begun after the report was read began then.
        let seconds = |since: u64| {
            let seconds = since.cast_signed().saturating_sub(epoch.cast_signed()).min(read.into());
            i16::try_from(seconds).ok()
        };
        self.checks.add(node, check, room, seconds)
    }

    /// Adds a peer of the row that is being read.
    ///
    /// Returns false, and adds nothing, if the row has already named this node for the same
    /// network, method and address family. An agent writes each combination once, so such a row is
    /// false.
    pub fn peer(&mut self, peer: &Peer<'_>) -> bool {
        let Some(method) = peer.protocol.method() else { return true };
        let over_ipv6 = peer.protocol.is_over_ipv6();
        let Some(source) = self.current else {
            self.count_dropped(method);
            return true;
        };
        let Some(layer) = Layer::find(peer.network, method).filter(|_| self.name(source) != peer.node) else {
            return true;
        };
        let Some(number) = self.node(&peer.node, &peer.zone, false) else {
            self.count_dropped(method);
            return true;
        };
        let recent = peer.recent;
        if !self.say(number, layer, over_ipv6, Stay::from_state(peer.state, &recent)) {
            return false;
        }
        if let Some(row) = self.rows.last_mut() {
            row.layers |= layer.bit();
            row.is_deaf |= layer == Layer::Udp && peer.heard.is_none();
        }
        self.loopback |= peer.address.is_some_and(|address| address.is_loopback());
        if !peer.state.is_evidence() {
            return true;
        }
        let room = self.bounds.bytes.saturating_sub(self.bytes());
        if !self.unsent.add((source, number), (layer, over_ipv6), &recent, room) {
            self.count_dropped(method);
        }
        let mut cell = Cell::new(&Contents {
            peer: number,
            layer,
            over_ipv6,
            received: recent.received,
            lost: recent.lost,
            refused: recent.refused,
            rtt_p50_seconds: recent.rtt_p50_seconds,
            usual_rtt_p50_seconds: peer.usual_rtt_p50_seconds,
            since: peer.since_unix_seconds.map(|since| since.cast_signed().saturating_sub(self.epoch.cast_signed())),
        });
        if layer == Layer::Udp && cell.probes() > 0 {
            let room = self.bounds.bytes.saturating_sub(self.bytes());
            if self.links.add(source, number, peer, room) {
                // What some flows lose is no loss of the link. The other flows answer.
                cell = cell.without_losses();
            }
        }
        if cell.probes() > 0 && !self.keep(cell) {
            return true;
        }
        if recent.lost_in_row > 0
            && let Some((place, row)) = self.rows.iter().enumerate().next_back()
        {
            let room = self.bounds.bytes.saturating_sub(self.bytes());
            self.silence.add((place, row.read), cell, &recent, room);
        }
        self.layers |= if cell.probes() > 0 { layer.bit() } else { 0 };
        let Some(row) = self.rows.last_mut() else { return true };
        row.len = u32::try_from(self.cells.len()).unwrap_or(u32::MAX) - row.begin;
        row.facts.sent = row.facts.sent.saturating_add(recent.sent);
        if recent.seconds > 0.0 {
            #[expect(clippy::cast_possible_truncation, reason = "a minute")]
            let seconds = recent.seconds as f32;
            row.facts.cells_seconds = row.facts.cells_seconds.max(seconds);
        }
        // The rest is of echo requests alone. An agent that starts loses UDP and TCP for some
        // seconds, which is no loss of the network.
        if method != Method::Icmp {
            return true;
        }
        if let Some(said) = peer.ten_minutes.filter(|_| cell.probes() > 0) {
            row.lasting.add(number, peer.network, said);
        }
        if recent.seconds > 0.0 && peer.network == Network::Pod {
            let node = &mut self.nodes[usize::from(number)];
            node.aimed = node.aimed.saturating_add(1);
            let rate = f64::from(recent.sent) / recent.seconds;
            #[expect(clippy::cast_possible_truncation, reason = "a rate of at most 100")]
            let rate = rate.min(1.0 / INTERVAL_MIN.as_secs_f64()) as f32;
            node.probes_per_second += rate;
        }
        true
    }

    /// Keeps a cell of the row that is being read. Makes room if there is none. Returns whether
    /// there was room.
    fn keep(&mut self, cell: Cell) -> bool {
        let layer = cell.layer();
        for room_of in [Layer::Tcp, Layer::Udp] {
            if self.bytes() + size_of::<Cell>() <= self.bounds.bytes {
                break;
            }
            self.drop_layer(room_of);
        }
        let fits = self.bytes() + size_of::<Cell>() <= self.bounds.bytes;
        let is_kept = fits && self.dropped & layer.bit() == 0 && self.cells.push(cell);
        if !is_kept {
            self.count_dropped(layer.method());
        }
        is_kept
    }

    fn count_dropped(&mut self, method: Method) {
        match method {
            Method::Icmp => self.not_kept.cells += 1,
            Method::Udp | Method::Tcp => self.not_kept.udp_and_tcp_cells += 1,
        }
    }

    /// Drops all cells of a layer, those that have arrived and those to come.
    fn drop_layer(&mut self, layer: Layer) {
        if self.dropped & layer.bit() != 0 {
            return;
        }
        self.dropped |= layer.bit();
        self.layers &= !layer.bit();
        let (mut from, mut to) = (0, 0);
        for row in self.rows.iter_mut() {
            let begin = to;
            from = from.max(row.range().start);
            while from < row.range().end {
                let (cell, had_part) = self.cells[from].without_part(layer);
                self.joined -= usize::from(had_part);
                self.not_kept.udp_and_tcp_cells += usize::from(had_part || cell.layer() == layer);
                if cell.layer() != layer {
                    self.cells[to] = cell;
                    to += 1;
                }
                from += 1;
            }
            // Places have 32 bits, and the cells only move towards the first.
            (row.begin, row.len) =
                (u32::try_from(begin).unwrap_or(u32::MAX), u32::try_from(to - begin).unwrap_or_default());
        }
        self.truncate(to);
    }

    /// Notes what the row that is being read reports of a node. Returns false if it has already
    /// reported that node for this network, method and address family.
    fn say(&mut self, number: u16, layer: Layer, over_ipv6: bool, stay: Stay) -> bool {
        let row = u16::try_from(self.rows.len()).unwrap_or(u16::MAX);
        let node = &mut self.nodes[usize::from(number)];
        let object = 1 << ((layer as u8) << 1 | u8::from(over_ipv6));
        let said = if node.said.row == row { node.said } else { RowMention { row, ..RowMention::default() } };
        if said.objects & object != 0 {
            return false;
        }
        let now = said.stay.map_or(stay, |before| before.min(stay));
        node.listed.count(said.stay, now, row == 1);
        node.said = RowMention { row, objects: said.objects | object, stay: Some(now) };
        true
    }

    /// Ends the current row as complete.
    pub fn end_row(&mut self) {
        let Some(number) = self.current.take() else { return };
        self.nodes[usize::from(number)].presence = RowPresence::Whole;
        self.sort_last_row();
    }

    /// Notes that a node's row did not arrive, or broke off, for this reason.
    pub fn missing(&mut self, node: &str, error: &str) {
        self.break_off();
        let Some(number) = self.node(node, "", false) else {
            self.not_kept.rows += 1;
            return;
        };
        let error = &error[..error.floor_char_boundary(ERROR_BYTES_MAX)];
        let fits = self.bytes() + error.len() <= self.bounds.bytes;
        let error = if fits { self.text.add(error).unwrap_or_default() } else { Span::default() };
        let node = &mut self.nodes[usize::from(number)];
        node.error = error;
        node.presence = if node.row.is_some() { RowPresence::Broken } else { RowPresence::Missing };
    }

    /// Notes that another node answers at the address of this one, so what is measured there says
    /// nothing of it.
    pub fn displaced(&mut self, node: &str) {
        if let Some(number) = self.node(node, "", false) {
            self.nodes[usize::from(number)].is_displaced = true;
        }
    }

    /// Notes that a node's agent is of another version, so that its row cannot be read.
    pub fn add_other_version(&mut self, node: &str) {
        self.break_off();
        if let Some(number) = self.node(node, "", false) {
            self.nodes[usize::from(number)].presence = RowPresence::OtherVersion;
        }
    }

    /// Ends the input. A row that has not ended has broken off. The verdicts need this.
    pub fn finish(&mut self) {
        self.break_off();
        self.checks.settle();
        let Self { rows, cells, silence, nodes, .. } = self;
        let read = |peer: u16| nodes[usize::from(peer)].row.map(|row| rows[usize::from(row)].read);
        silence.settle(cells, nodes.len(), |row| rows[usize::from(row)].range(), read);
    }

    /// Ends a row that has not ended. It has broken off.
    fn break_off(&mut self) {
        if self.current.take().is_some() {
            self.sort_last_row();
        }
    }

    /// Sorts by column, so that one walk finds both cells of a pair. Then joins the cells of each
    /// peer.
    fn sort_last_row(&mut self) {
        let Some(row) = self.rows.last_mut() else { return };
        let range = row.range();
        let len = cell::sort_and_join(&mut self.cells[range.clone()]);
        self.joined += range.len() - len;
        row.len = u32::try_from(len).unwrap_or(u32::MAX);
        self.truncate(range.start + len);
    }

    fn truncate(&mut self, len: usize) {
        if let Some(any) = self.cells.first().copied() {
            self.cells.resize(len, any);
        }
    }

    /// Adds a member of the mesh, with the zone that discovery gives, before any row arrives. No
    /// row can change that zone.
    pub fn member(&mut self, node: &str, zone: &str) {
        if let Some(number) = self.node(node, zone, true) {
            let node = &mut self.nodes[usize::from(number)];
            node.is_zone_certain = node.zone != ZONE_UNKNOWN;
        }
    }

    /// Whether a node of this name is known.
    pub fn knows(&self, name: &str) -> bool {
        self.numbers.find(name, |number| self.name(number)).is_some()
    }

    /// Returns the node of the first row: that of the agent that collects.
    pub fn collector(&self) -> Option<u16> {
        self.numbers().find(|node| self.get(*node).row == Some(0))
    }

    /// Returns the node's number. A new node gets a new number. A source's own statement of its
    /// zone has precedence over that of others. Except in the first row, others can name only zones
    /// that are already known, so a row adds at most one zone.
    fn node(&mut self, name: &str, zone: &str, own: bool) -> Option<u16> {
        let zone = self.zone(zone, own || self.rows.len() <= 1);
        let found = self.numbers.find(name, |number| self.name(number));
        if let Some(number) = found {
            let node = &mut self.nodes[usize::from(number)];
            if zone != ZONE_UNKNOWN && !node.is_zone_certain && (own || node.zone == ZONE_UNKNOWN) {
                node.zone = zone;
            }
            return Some(number);
        }
        let number = u16::try_from(self.nodes.len()).ok().filter(|number| usize::from(*number) < self.bounds.nodes)?;
        let needed = size_of::<MatrixNode>() + self.judged_bytes_per_node() + name.len() + self.numbers.growth();
        if self.bytes() + needed > self.bounds.bytes {
            return None;
        }
        let span = self.text.add(name)?;
        let (text, nodes) = (&self.text, &self.nodes);
        self.numbers.add(name, number, |number| nodes.get(usize::from(number)).map_or("", |node| text.get(node.name)));
        self.nodes.push(MatrixNode { name: span, zone, ..MatrixNode::default() }).then_some(number)
    }

    fn zone(&mut self, name: &str, may_add: bool) -> u8 {
        if name.is_empty() {
            return ZONE_UNKNOWN;
        }
        let held = self.zones.iter().position(|span| self.text.get(*span) == name);
        let place = held.or_else(|| {
            let room = may_add && self.zones.len() < MESH_ZONES_MAX && self.bytes() + name.len() <= self.bounds.bytes;
            let span = room.then(|| self.text.add(name)).flatten()?;
            self.zones.push(span);
            Some(self.zones.len() - 1)
        });
        place.and_then(|place| u8::try_from(place).ok()).unwrap_or(ZONE_UNKNOWN)
    }
}

#[cfg(test)]
mod tests;
