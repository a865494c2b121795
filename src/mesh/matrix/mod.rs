//! What is kept of a mesh for the verdicts: its nodes, and 8 bytes for each pair that was probed.
//!
//! It lives in the agent while rows stream in, so it is sparse (row by row, the columns that were measured), it never
//! moves while it grows, and its bytes are bounded together with those that the verdicts take ([`MESH_BYTES_MAX`]): what
//! does not fit is counted, and is then no evidence of anything. A cell that is not there was not measured, which is not
//! the same as well.
//!
//! [`MESH_BYTES_MAX`]: crate::limits::MESH_BYTES_MAX

mod bounds;
mod cell;
mod domains;
mod facts;
mod lasting;
mod names;
mod pace;

pub use bounds::{Bounds, NotKept};
pub use cell::{Cell, rtt_us};
pub use facts::Facts;
pub use lasting::Lasting;
pub use pace::{Pace, SLOW_EXTRA_US, SLOW_TIMES, is_slow};

use std::ops::Range;

use cell::Contents;
use names::{Numbers, Span, Text};

use super::row::{Network, PeerRow, Protocol, RecentPeer, Source, State};
use crate::clock;
use crate::limits::{INTERVAL_MIN, MESH_ERROR_BYTES_MAX, MESH_JUDGED_BYTES_PER_NODE, MESH_ZONES_MAX};
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
    /// Discovery gave its zone.
    is_zone_certain: bool,
    listed: Listed,
    /// What the row under way, or the last that named this node, has said of it.
    said: Said,
    /// Cells that say how many probes its pod was sent.
    pub aimed: u16,
    /// Probes to its pod, of all sources, per second.
    pub probes_per_second: f32,
}

/// In how many rows a node is a peer. Each row counts once, however many of its objects name the node.
#[derive(Clone, Copy, Debug, Default)]
struct Listed {
    /// Rows per [`Stay`].
    rows: [u16; 4],
    /// What the first row of the matrix says.
    first: Option<Stay>,
}

/// What a row says of a node's stay in the mesh, the most present first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stay {
    /// It stays.
    Present,
    /// It is being removed.
    Leaving,
    /// It has left within the recent window.
    Left,
    /// It left before the recent window.
    LongLeft,
}

impl Stay {
    const fn of(state: State, recent: &RecentPeer) -> Self {
        match state {
            State::Ready | State::Unready => Self::Present,
            State::Left if recent.sent == 0 => Self::LongLeft,
            State::Left => Self::Left,
            State::Terminating | State::Other => Self::Leaving,
        }
    }
}

/// What one row has said of a node so far.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    /// The row's place plus 1; 0 is none.
    row: u16,
    /// Bit n is set if an object with n as the code of its network and address family has come.
    objects: u8,
    stay: Option<Stay>,
}

impl Listed {
    /// Takes what a row says, instead of what the same row said before.
    fn count(&mut self, before: Option<Stay>, now: Stay, is_first: bool) {
        if let Some(before) = before {
            self.rows[before as usize] -= 1;
        }
        self.rows[now as usize] += 1;
        if is_first {
            self.first = Some(now);
        }
    }

    const fn of(&self, stay: Stay) -> u32 {
        self.rows[stay as usize] as u32
    }

    /// As being removed, or gone within the recent window.
    const fn leaving(&self) -> u32 {
        self.of(Stay::Leaving) + self.of(Stay::Left)
    }
}

impl Node {
    /// Returns whether the node is being removed. What is measured of it is then no evidence: not
    /// all sources learn of the removal in the same second, and the others have lost probes to it
    /// for a reason that they do not know yet.
    ///
    /// More than half of the rows that list the node decide. If they are divided evenly, the first
    /// row of the matrix decides, which is that of the collecting agent: else one false row would
    /// hide a node of a mesh of three. Rows that saw it leave before the recent window do not
    /// count, because in a partial mesh a node can leave a source's peers and stay in the mesh.
    pub fn is_leaving(&self) -> bool {
        let (leaving, present) = (self.listed.leaving(), self.listed.of(Stay::Present));
        let first = self.listed.first.is_some_and(|first| matches!(first, Stay::Leaving | Stay::Left));
        self.is_gone() || leaving > present || leaving > 0 && leaving == present && first
    }

    /// Returns whether one row alone lists the node, and its own row neither came nor was asked for.
    const fn is_named_once(&self) -> bool {
        let [present, leaving, left, long_left] = self.listed.rows;
        matches!(self.presence, Presence::Listed) && present + leaving + left + long_left == 1
    }

    /// Returns whether any row saw the node leave within the recent window.
    pub const fn is_leaving_for_some(&self) -> bool {
        self.listed.leaving() > 0
    }

    /// Returns whether all rows that list the node say that it has left.
    pub const fn is_gone(&self) -> bool {
        let left = self.listed.of(Stay::Left) + self.listed.of(Stay::LongLeft);
        left > 0 && self.listed.of(Stay::Present) + self.listed.of(Stay::Leaving) == 0
    }
}

/// A row's place among the cells, and what its source says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    begin: u32,
    len: u32,
    /// What the source says of its last minute.
    pub facts: Facts,
    /// What its links lose over ten minutes.
    pub lasting: Lasting,
}

const _: () = assert!(size_of::<Row>() <= 92);

impl Row {
    const fn range(&self) -> Range<usize> {
        self.begin as usize..(self.begin + self.len) as usize
    }
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
    /// Nodes of the mesh, as the first row says.
    members: u64,
    not_kept: NotKept,
    domains: domains::OfNodes,
    bounds: Bounds,
}

impl Default for Matrix {
    fn default() -> Self {
        Self::new()
    }
}

impl Matrix {
    /// An empty one, as large as an agent's may be.
    pub fn new() -> Self {
        Self::within(Bounds::AGENT)
    }

    /// An empty one within these bounds. Address space is taken at once, memory as it fills.
    pub fn within(bounds: Bounds) -> Self {
        let mut text = Text::new(bounds.bytes);
        // There is room for a first word.
        let unknown = text.add(UNKNOWN).unwrap_or_default();
        Self {
            text,
            numbers: Numbers::new(),
            nodes: List::new(bounds.nodes),
            zones: vec![unknown],
            rows: List::new(bounds.rows),
            cells: List::new(bounds.bytes / size_of::<Cell>()),
            current: None,
            epoch: clock::realtime().as_secs(),
            loopback: false,
            networks: [false; 2],
            members: 0,
            not_kept: NotKept::default(),
            domains: domains::OfNodes::default(),
            bounds,
        }
    }

    /// A row comes. One that was under way and has not ended has broken off.
    pub fn begin_row(&mut self, source: &Source<'_>) {
        self.finish();
        let place = u16::try_from(self.rows.len()).ok().filter(|place| usize::from(*place) < self.bounds.rows);
        let number = place.and_then(|_| self.node(&source.node, &source.zone, true));
        let (Some(place), Some(number)) = (place, number) else {
            self.not_kept.rows += 1;
            return;
        };
        let begin = u32::try_from(self.cells.len()).unwrap_or(u32::MAX);
        let row = Row { begin, len: 0, facts: Facts::of(source), lasting: Lasting::default() };
        let room = self.bytes() + size_of::<Row>() <= self.bounds.bytes;
        if self.get(number).row.is_some() || !room || !self.rows.push(row) {
            self.not_kept.rows += 1;
            return;
        }
        let node = &mut self.nodes[usize::from(number)];
        (node.row, node.presence, node.is_sought) = (Some(place), Presence::Broken, true);
        if place == 0 {
            self.members = source.members.unwrap_or_default();
        }
        self.current = Some(number);
    }

    /// Takes a peer of the row that is being read.
    ///
    /// Returns false, and takes nothing, if the row has already named this node at the same network
    /// and address family: an agent writes each once, so the row is false.
    pub fn peer(&mut self, peer: &PeerRow<'_>) -> bool {
        let over_ipv6 = match peer.protocol {
            Protocol::Icmp => false,
            Protocol::Icmpv6 => true,
            Protocol::Other => return true,
        };
        let Some(source) = self.current else {
            self.not_kept.cells += 1;
            return true;
        };
        if peer.network == Network::Other || self.name(source) == peer.node {
            return true;
        }
        let Some(number) = self.node(&peer.node, &peer.zone, false) else {
            self.not_kept.cells += 1;
            return true;
        };
        let recent = peer.recent;
        if !self.say(number, peer.network, over_ipv6, Stay::of(peer.state, &recent)) {
            return false;
        }
        self.loopback |= peer.address.starts_with("127.") || peer.address == "::1";
        if !peer.state.is_evidence() {
            return true;
        }
        let cell = Cell::new(&Contents {
            peer: number,
            network: peer.network,
            over_ipv6,
            received: recent.received,
            lost: recent.lost,
            rtt_p50_seconds: recent.rtt_p50_seconds,
            usual_rtt_p50_seconds: peer.usual_rtt_p50_seconds,
            since: peer.since_unix_seconds.map(|since| since.cast_signed().saturating_sub(self.epoch.cast_signed())),
        });
        if cell.probes() > 0 && (self.bytes() + size_of::<Cell>() > self.bounds.bytes || !self.cells.push(cell)) {
            self.not_kept.cells += 1;
            return true;
        }
        self.networks[usize::from(peer.network == Network::Node)] |= cell.probes() > 0;
        let Some(row) = self.rows.last_mut() else { return true };
        row.len = u32::try_from(self.cells.len()).unwrap_or(u32::MAX) - row.begin;
        row.facts.sent = row.facts.sent.saturating_add(recent.sent);
        if let Some(said) = peer.ten_minutes.filter(|_| cell.probes() > 0) {
            row.lasting.add(number, peer.network, said);
        }
        if recent.seconds > 0.0 {
            #[expect(clippy::cast_possible_truncation, reason = "a minute")]
            let seconds = recent.seconds as f32;
            row.facts.cells_seconds = row.facts.cells_seconds.max(seconds);
            if peer.network == Network::Pod {
                let node = &mut self.nodes[usize::from(number)];
                node.aimed = node.aimed.saturating_add(1);
                let rate = f64::from(recent.sent) / recent.seconds;
                #[expect(clippy::cast_possible_truncation, reason = "a rate of at most 100")]
                let rate = rate.min(1.0 / INTERVAL_MIN.as_secs_f64()) as f32;
                node.probes_per_second += rate;
            }
        }
        true
    }

    /// Notes what the row that is being read says of a node. Returns false if it has said so much
    /// of that network and address family before.
    fn say(&mut self, number: u16, network: Network, over_ipv6: bool, stay: Stay) -> bool {
        let row = u16::try_from(self.rows.len()).unwrap_or(u16::MAX);
        let node = &mut self.nodes[usize::from(number)];
        let object = 1 << (u8::from(network == Network::Node) << 1 | u8::from(over_ipv6));
        let said = if node.said.row == row { node.said } else { Said { row, ..Said::default() } };
        if said.objects & object != 0 {
            return false;
        }
        let now = said.stay.map_or(stay, |before| before.min(stay));
        node.listed.count(said.stay, now, row == 1);
        node.said = Said { row, objects: said.objects | object, stay: Some(now) };
        true
    }

    /// The row under way is whole.
    pub fn end_row(&mut self) {
        let Some(number) = self.current.take() else { return };
        self.nodes[usize::from(number)].presence = Presence::Whole;
        self.sort_last_row();
    }

    /// A node's row did not come, or broke off, for this reason.
    pub fn missing(&mut self, node: &str, error: &str) {
        self.finish();
        let Some(number) = self.node(node, "", false) else {
            self.not_kept.rows += 1;
            return;
        };
        let error = &error[..error.floor_char_boundary(MESH_ERROR_BYTES_MAX)];
        let fits = self.bytes() + error.len() <= self.bounds.bytes;
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

    /// Sorts by column, so that both cells of a pair are found in one walk.
    fn sort_last_row(&mut self) {
        if let Some(row) = self.rows.last() {
            self.cells[row.range()].sort_unstable_by_key(|cell| cell.key());
        }
    }

    /// Adds a member of the mesh, with the zone that discovery gives, before any row comes. No row
    /// can change that zone.
    pub fn member(&mut self, node: &str, zone: &str) {
        if let Some(number) = self.node(node, zone, true) {
            let node = &mut self.nodes[usize::from(number)];
            node.is_zone_certain = node.zone != ZONE_UNKNOWN;
        }
    }

    /// Returns whether a node of this name is known.
    pub fn knows(&self, name: &str) -> bool {
        self.numbers.find(name, |number| self.name(number)).is_some()
    }

    /// Returns the node's number, which is a new one if it is not known yet. A source's own word on
    /// its zone goes before that of others. Except in the first row, others can name only zones
    /// that are already known: so a row adds one zone at most.
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
        let needed = size_of::<Node>() + MESH_JUDGED_BYTES_PER_NODE + name.len() + self.numbers.growth();
        if self.bytes() + needed > self.bounds.bytes {
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
            is_zone_certain: false,
            is_sought: false,
            listed: Listed::default(),
            said: Said::default(),
            aimed: 0,
            probes_per_second: 0.0,
        };
        self.nodes.push(node).then_some(number)
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

    /// Returns how many nodes the mesh has, as the first row says, but at least as many as are
    /// known here.
    pub fn members(&self) -> usize {
        usize::try_from(self.members).unwrap_or(usize::MAX).max(self.node_count())
    }

    /// Returns the nodes that one row may have invented: it alone names them, and most rows say
    /// that the mesh has fewer nodes than are named.
    pub fn invented(&self) -> impl Iterator<Item = u16> {
        let mut said: Vec<u32> = self.rows.iter().map(|row| row.facts.members).filter(|members| *members > 0).collect();
        said.sort_unstable();
        let median = said.get(said.len().saturating_sub(1) / 2).map_or(usize::MAX, |members| *members as usize);
        let are_too_many = self.node_count() > median;
        self.numbers().filter(move |node| are_too_many && self.get(*node).is_named_once())
    }

    /// What did not fit.
    pub const fn not_kept(&self) -> NotKept {
        self.not_kept
    }
}

#[cfg(test)]
mod tests;
