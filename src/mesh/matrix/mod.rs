//! What is kept of a mesh for the verdicts: its nodes, and 8 bytes for each pair that was probed.
//!
//! It lives in the agent while rows stream in, so it is sparse (row by row, the columns that were measured), it never
//! moves while it grows, and its bytes are bounded together with those that the verdicts take ([`MESH_BYTES_MAX`]): what
//! does not fit is counted, and is then no evidence of anything. A cell that is not there was not measured, which is not
//! the same as well.
//!
//! [`MESH_BYTES_MAX`]: crate::limits::MESH_BYTES_MAX

mod cell;
mod names;

pub use cell::{Cell, rtt_us};

use std::ops::Range;

use cell::Contents;
use names::{Numbers, Span, Text};

use super::row::{Network, PeerRow, Protocol, RecentPeer, Source, State};
use crate::clock;
use crate::limits::{
    MESH_BYTES_MAX, MESH_ERROR_BYTES_MAX, MESH_JUDGED_BYTES_PER_NODE, MESH_NODES_MAX, MESH_ROWS_MAX, MESH_ZONES_MAX,
};
use crate::region::List;

/// The zone of nodes of which none is known, and of those in more zones than are told apart.
pub const ZONE_UNKNOWN: u8 = 0;
const UNKNOWN: &str = "unknown";

/// What became of a node's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Only others speak of it.
    Listed,
    /// Its row came, and whole.
    Whole,
    /// Its row broke off: its cells count, what depends on completeness does not.
    Broken,
    /// Its row did not come.
    Missing,
}

/// A node.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    name: Span,
    error: Span,
    /// Place of its row, where there is one.
    row: Option<u16>,
    /// Its zone's number.
    pub zone: u8,
    /// What became of its row.
    pub presence: Presence,
    /// Its row came, or was asked for.
    is_sought: bool,
    listed: Listed,
    /// Cells that say how many probes its pod was sent.
    pub aimed: u16,
    /// Probes to its pod, of all sources, per second.
    pub probes_per_second: f32,
}

/// In how many rows a node is a peer.
#[derive(Clone, Copy, Debug, Default)]
struct Listed {
    all: u16,
    /// As going away, or gone within the recent window.
    leaving: u16,
    /// As gone.
    left: u16,
    /// As gone before the recent window.
    long_left: u16,
}

impl Listed {
    fn count(&mut self, state: State, recent: &RecentPeer) {
        let one = |count: &mut u16, holds: bool| *count = count.saturating_add(u16::from(holds));
        let left = state == State::Left;
        let long = left && recent.sent == 0;
        one(&mut self.all, true);
        one(&mut self.leaving, !state.is_evidence() && !long);
        one(&mut self.left, left);
        one(&mut self.long_left, long);
    }
}

impl Node {
    /// Whether it is being removed, as at least half of those say who list it, or did within the recent window. What is
    /// measured of it is no evidence: not all learn of it in the same second, so the others have lost probes to it for a
    /// reason that they do not know yet.
    ///
    /// Who saw it leave before that says nothing of it: in a mesh of which each probes a part, a node that goes on leaves
    /// the lists of those who probe others from now on.
    pub const fn is_leaving(&self) -> bool {
        let Listed { all, leaving, long_left, .. } = self.listed;
        self.is_gone() || leaving > 0 && leaving * 2 >= all - long_left
    }

    /// Whether someone saw it leave within the recent window.
    pub const fn is_leaving_for_some(&self) -> bool {
        self.listed.leaving > 0
    }

    /// Whether all who list it say that it has left.
    pub const fn is_gone(&self) -> bool {
        self.listed.left > 0 && self.listed.left == self.listed.all
    }
}

/// A row's place among the cells, and what its source says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    begin: u32,
    len: u32,
    /// What the source says of its last minute.
    pub facts: Facts,
}

/// What a source says of its last minute; `None` where an older canary does not. In 32 bits, which count exactly up to
/// 16 million.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Between two probes of one peer.
    pub interval_seconds: Option<f32>,
    /// How much time its counters cover.
    pub seconds: Option<f32>,
    /// Echo requests that its network namespace counted.
    pub echo_requests_received: Option<f32>,
    /// How late probes were sent.
    pub send_lag_p99_seconds: Option<f32>,
    /// How late replies were read.
    pub read_delay_p99_seconds: Option<f32>,
    /// Probes that were not sent, for want of time.
    pub probes_skipped: Option<f32>,
    /// Packets that its socket had no room for.
    pub receive_queue_drops: Option<f32>,
    /// How long its probe thread waited for a processor.
    pub run_delay_seconds: Option<f32>,
    /// The time that its cells cover.
    pub cells_seconds: f32,
    /// Probes that it sent in that time.
    pub sent: u32,
}

const _: () = assert!(size_of::<Row>() <= 80);

impl Row {
    const fn range(&self) -> Range<usize> {
        self.begin as usize..(self.begin + self.len) as usize
    }
}

impl Facts {
    fn of(source: &Source<'_>) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "what is out of range is infinite")]
        let real = |value: Option<f64>| value.map(|value| value as f32);
        let count = |value: Option<u64>| value.map(|value| value as f32);
        let recent = &source.recent;
        Self {
            interval_seconds: real(source.interval_seconds),
            seconds: real(recent.seconds),
            echo_requests_received: count(recent.echo_requests_received),
            send_lag_p99_seconds: real(recent.send_lag_p99_seconds),
            read_delay_p99_seconds: real(recent.read_delay_p99_seconds),
            probes_skipped: count(recent.probes_skipped),
            receive_queue_drops: count(recent.receive_queue_drops),
            run_delay_seconds: real(recent.run_delay_seconds),
            cells_seconds: 0.0,
            sent: 0,
        }
    }

    /// The time that its counters cover; that of its cells, where it does not say.
    pub fn covered_seconds(&self) -> f32 {
        self.seconds.filter(|seconds| *seconds > 0.0).unwrap_or(self.cells_seconds)
    }
}

/// What did not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotKept {
    /// Rows beyond [`MESH_ROWS_MAX`], or a node's second.
    pub rows: usize,
    /// Cells, for want of room or of a node's place.
    pub cells: usize,
}

/// What is kept of a mesh.
#[derive(Debug)]
pub struct Matrix {
    text: Text,
    numbers: Numbers,
    nodes: List<Node>,
    zones: Vec<Span>,
    rows: List<Row>,
    cells: List<Cell>,
    /// The node whose row streams in.
    current: Option<u16>,
    /// What moments are told from, in Unix seconds: when it was made, by our own clock. Any row's clock may be wrong.
    epoch: u64,
    /// Loopback addresses are probed: all canaries count the echoes of one namespace.
    loopback: bool,
    /// Whether the pods' network was probed, and the nodes'.
    networks: [bool; 2],
    /// Nodes of the mesh, as the source says who knows of the most.
    members: u64,
    not_kept: NotKept,
}

impl Default for Matrix {
    fn default() -> Self {
        Self::new()
    }
}

impl Matrix {
    /// An empty one. Address space is taken at once, memory as it fills.
    pub fn new() -> Self {
        let mut text = Text::new(MESH_BYTES_MAX);
        // There is room for a first word.
        let unknown = text.add(UNKNOWN).unwrap_or_default();
        Self {
            text,
            numbers: Numbers::new(),
            nodes: List::new(MESH_NODES_MAX),
            zones: vec![unknown],
            rows: List::new(MESH_ROWS_MAX),
            cells: List::new(MESH_BYTES_MAX / size_of::<Cell>()),
            current: None,
            epoch: clock::realtime().as_secs(),
            loopback: false,
            networks: [false; 2],
            members: 0,
            not_kept: NotKept::default(),
        }
    }

    /// A row comes. One that was under way and has not ended has broken off.
    pub fn begin_row(&mut self, source: &Source<'_>) {
        self.current = None;
        let place = u16::try_from(self.rows.len()).ok().filter(|place| usize::from(*place) < MESH_ROWS_MAX);
        let number = place.and_then(|_| self.node(&source.node, &source.zone, true));
        let (Some(place), Some(number)) = (place, number) else {
            self.not_kept.rows += 1;
            return;
        };
        let begin = u32::try_from(self.cells.len()).unwrap_or(u32::MAX);
        let row = Row { begin, len: 0, facts: Facts::of(source) };
        let room = self.bytes() + size_of::<Row>() <= MESH_BYTES_MAX;
        if self.get(number).row.is_some() || !room || !self.rows.push(row) {
            self.not_kept.rows += 1;
            return;
        }
        let node = &mut self.nodes[usize::from(number)];
        (node.row, node.presence, node.is_sought) = (Some(place), Presence::Broken, true);
        self.members = self.members.max(source.members.unwrap_or_default());
        self.current = Some(number);
    }

    /// A peer of the row under way.
    pub fn peer(&mut self, peer: &PeerRow<'_>) {
        let over_ipv6 = match peer.protocol {
            Protocol::Icmp => false,
            Protocol::Icmpv6 => true,
            Protocol::Other => return,
        };
        let Some(source) = self.current else {
            self.not_kept.cells += 1;
            return;
        };
        if peer.network == Network::Other || self.name(source) == peer.node {
            return;
        }
        let Some(number) = self.node(&peer.node, &peer.zone, false) else {
            self.not_kept.cells += 1;
            return;
        };
        self.loopback |= peer.address.starts_with("127.") || peer.address == "::1";
        let evident = peer.state.is_evidence();
        let recent = peer.recent;
        self.nodes[usize::from(number)].listed.count(peer.state, &recent);
        if !evident {
            return;
        }
        let cell = Cell::new(&Contents {
            peer: number,
            network: peer.network,
            over_ipv6,
            received: recent.received,
            lost: recent.lost,
            rtt_p50_seconds: recent.rtt_p50_seconds,
            since: peer.since_unix_seconds.map(|since| since.cast_signed().saturating_sub(self.epoch.cast_signed())),
        });
        if cell.probes() > 0 && (self.bytes() + size_of::<Cell>() > MESH_BYTES_MAX || !self.cells.push(cell)) {
            self.not_kept.cells += 1;
            return;
        }
        self.networks[usize::from(peer.network == Network::Node)] |= cell.probes() > 0;
        let Some(row) = self.rows.last_mut() else { return };
        row.len = u32::try_from(self.cells.len()).unwrap_or(u32::MAX) - row.begin;
        row.facts.sent = row.facts.sent.saturating_add(recent.sent);
        if recent.seconds > 0.0 {
            #[expect(clippy::cast_possible_truncation, reason = "a minute")]
            let seconds = recent.seconds as f32;
            row.facts.cells_seconds = row.facts.cells_seconds.max(seconds);
            if peer.network == Network::Pod {
                let node = &mut self.nodes[usize::from(number)];
                node.aimed = node.aimed.saturating_add(1);
                #[expect(clippy::cast_possible_truncation, reason = "a rate of some thousands")]
                let rate = (f64::from(recent.sent) / recent.seconds) as f32;
                node.probes_per_second += rate;
            }
        }
    }

    /// The row under way is whole.
    pub fn end_row(&mut self) {
        let Some(number) = self.current.take() else { return };
        self.nodes[usize::from(number)].presence = Presence::Whole;
        self.sort_last_row();
    }

    /// A node's row did not come, or broke off, for this reason.
    pub fn missing(&mut self, node: &str, error: &str) {
        if self.current.take().is_some() {
            self.sort_last_row();
        }
        let Some(number) = self.node(node, "", false) else {
            self.not_kept.rows += 1;
            return;
        };
        let error = &error[..error.floor_char_boundary(MESH_ERROR_BYTES_MAX)];
        let fits = self.bytes() + error.len() <= MESH_BYTES_MAX;
        let error = if fits { self.text.add(error).unwrap_or_default() } else { Span::default() };
        let node = &mut self.nodes[usize::from(number)];
        (node.error, node.is_sought) = (error, true);
        node.presence = if node.row.is_some() { Presence::Broken } else { Presence::Missing };
    }

    /// Whether this node is known, and its row was not asked for yet; it is from now on.
    pub fn seek(&mut self, name: &str) -> bool {
        let Some(number) = self.numbers.find(name, |number| self.name(number)) else { return false };
        !std::mem::replace(&mut self.nodes[usize::from(number)].is_sought, true)
    }

    /// How many nodes are known, are not going away, and were not asked for their row.
    pub fn unsought(&self) -> usize {
        self.nodes.iter().filter(|node| !node.is_sought && !node.is_leaving()).count()
    }

    /// Nothing more comes: a row that is still under way has broken off. Verdicts need this.
    pub fn finish(&mut self) {
        if self.current.take().is_some() {
            self.sort_last_row();
        }
    }

    /// Sorts by column, so that both cells of a pair are found in one walk. Of two cells for one peer the first stays.
    fn sort_last_row(&mut self) {
        let Some(row) = self.rows.last_mut() else { return };
        let cells = &mut self.cells[row.range()];
        if !cells.is_sorted_by(|a, b| a.key() < b.key()) {
            // Stable, which needs memory of its own: half a row.
            cells.sort_by_key(|cell| cell.key());
            let mut kept = 0;
            for place in 0..cells.len() {
                if kept == 0 || cells[kept - 1].key() != cells[place].key() {
                    cells[kept] = cells[place];
                    kept += 1;
                }
            }
            row.len = u32::try_from(kept).unwrap_or(row.len);
        }
    }

    /// The node's number, a new one where it is not known yet. Its own word on its zone counts before that of others.
    fn node(&mut self, name: &str, zone: &str, own: bool) -> Option<u16> {
        let zone = self.zone(zone);
        let found = self.numbers.find(name, |number| self.name(number));
        if let Some(number) = found {
            let node = &mut self.nodes[usize::from(number)];
            if zone != ZONE_UNKNOWN && (own || node.zone == ZONE_UNKNOWN) {
                node.zone = zone;
            }
            return Some(number);
        }
        let number = u16::try_from(self.nodes.len()).ok().filter(|number| usize::from(*number) < MESH_NODES_MAX)?;
        let needed = size_of::<Node>() + MESH_JUDGED_BYTES_PER_NODE + name.len() + self.numbers.growth();
        if self.bytes() + needed > MESH_BYTES_MAX {
            return None;
        }
        let span = self.text.add(name)?;
        let (text, nodes) = (&self.text, &self.nodes);
        self.numbers.add(name, number, |number| nodes.get(usize::from(number)).map_or("", |node| text.get(node.name)));
        let node = Node {
            name: span,
            error: Span::default(),
            row: None,
            zone,
            presence: Presence::Listed,
            is_sought: false,
            listed: Listed::default(),
            aimed: 0,
            probes_per_second: 0.0,
        };
        self.nodes.push(node).then_some(number)
    }

    fn zone(&mut self, name: &str) -> u8 {
        if name.is_empty() {
            return ZONE_UNKNOWN;
        }
        let held = self.zones.iter().position(|span| self.text.get(*span) == name);
        let place = held.or_else(|| {
            let room = self.zones.len() < MESH_ZONES_MAX && self.bytes() + name.len() <= MESH_BYTES_MAX;
            let span = room.then(|| self.text.add(name)).flatten()?;
            self.zones.push(span);
            Some(self.zones.len() - 1)
        });
        place.and_then(|place| u8::try_from(place).ok()).unwrap_or(ZONE_UNKNOWN)
    }

    /// Bytes that are taken, with those that the verdicts will take per node.
    pub fn bytes(&self) -> usize {
        let nodes = self.nodes.len() * (size_of::<Node>() + MESH_JUDGED_BYTES_PER_NODE);
        let rows = self.rows.len() * size_of::<Row>();
        self.cells.len() * size_of::<Cell>() + nodes + rows + self.numbers.bytes() + self.text.len()
    }

    /// Bytes that are in memory, in whole pages where they are mapped.
    pub fn resident_bytes(&self) -> usize {
        let lists = self.cells.resident_bytes() + self.nodes.resident_bytes() + self.rows.resident_bytes();
        lists + self.text.resident_bytes() + self.numbers.bytes()
    }

    /// How many nodes are known, by their own rows or as peers.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// All nodes' numbers.
    pub fn numbers(&self) -> impl Iterator<Item = u16> + use<> {
        0..u16::try_from(self.nodes.len()).unwrap_or(u16::MAX)
    }

    /// A node, by its number.
    pub fn get(&self, number: u16) -> &Node {
        &self.nodes[usize::from(number)]
    }

    /// A node's name.
    pub fn name(&self, number: u16) -> &str {
        self.nodes.get(usize::from(number)).map_or("", |node| self.text.get(node.name))
    }

    /// Why a node's row is missing, or broke off.
    pub fn error(&self, number: u16) -> &str {
        self.text.get(self.get(number).error)
    }

    /// A node's row, whole or broken off.
    pub fn row(&self, number: u16) -> Option<&Row> {
        self.get(number).row.and_then(|place| self.rows.get(usize::from(place)))
    }

    /// The cells of a node's row, in the order of their peers; none where there is no row, or where it is under way.
    pub fn cells(&self, number: u16) -> &[Cell] {
        if self.current == Some(number) {
            return &[];
        }
        self.row(number).map_or(&[], |row| &self.cells[row.range()])
    }

    /// How many zones there are, that of nodes without one included.
    pub const fn zone_count(&self) -> usize {
        self.zones.len()
    }

    /// A zone's name.
    pub fn zone_name(&self, zone: u8) -> &str {
        self.zones.get(usize::from(zone)).map_or(UNKNOWN, |span| self.text.get(*span))
    }

    /// A moment of a cell, in Unix seconds.
    pub fn moment(&self, since: i16) -> u64 {
        self.epoch.saturating_add_signed(since.into())
    }

    /// Whether loopback addresses are probed: all canaries count the echoes of one namespace.
    pub const fn is_on_loopback(&self) -> bool {
        self.loopback
    }

    /// Whether anything was measured in a network.
    pub fn is_measured(&self, network: Network) -> bool {
        self.networks[usize::from(network == Network::Node)]
    }

    /// How many cells are kept.
    pub fn cell_count(&self) -> usize {
        self.cells.len()
    }

    /// How many nodes there are, as far as the sources know: at least as many as are known here.
    pub fn members(&self) -> usize {
        usize::try_from(self.members).unwrap_or(usize::MAX).max(self.node_count())
    }

    /// What did not fit.
    pub const fn not_kept(&self) -> NotKept {
        self.not_kept
    }
}

#[cfg(test)]
mod tests;
