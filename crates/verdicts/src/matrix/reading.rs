//! What a finished matrix says: its nodes, rows, cells and what is kept beside them.

use super::{
    BadAttempts, Cell, Hole, LastLosses, Layer, LinkWays, LosingFlows, Matrix, MatrixNode, MatrixRow, Network, NotKept,
    SessionOf, StrangerAt, TriedAttempts, UNKNOWN, UnsentLink,
};

impl Matrix {
    /// Returns the number of known nodes, from their own rows or as peers.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the numbers of all nodes.
    pub fn numbers(&self) -> impl Iterator<Item = u16> + use<> {
        0..u16::try_from(self.nodes.len()).unwrap_or(u16::MAX)
    }

    /// Returns the node with this number.
    pub fn get(&self, number: u16) -> &MatrixNode {
        &self.nodes[usize::from(number)]
    }

    /// Returns the name of a node.
    pub fn name(&self, number: u16) -> &str {
        self.nodes.get(usize::from(number)).map_or("", |node| self.text.get(node.name))
    }

    /// Returns why a node's row is missing or incomplete.
    pub fn error(&self, number: u16) -> &str {
        self.text.get(self.get(number).error)
    }

    /// Returns the row of a node, complete or broken off.
    pub fn row(&self, number: u16) -> Option<&MatrixRow> {
        self.get(number).row.and_then(|place| self.rows.get(usize::from(place)))
    }

    /// Returns the cells of a node's row, sorted by peer. One may stand for several
    /// ([`Cell::parts`]). Empty if there is no row or if it is still being read.
    pub fn cells(&self, number: u16) -> &[Cell] {
        if self.current == Some(number) {
            return &[];
        }
        self.row(number).map_or(&[], |row| &self.cells[row.range()])
    }

    /// Returns the number of zones, including the unknown zone.
    pub const fn zone_count(&self) -> usize {
        self.zones.len()
    }

    /// Returns the name of a zone.
    pub fn zone_name(&self, zone: u8) -> &str {
        self.zones.get(usize::from(zone)).map_or(UNKNOWN, |span| self.text.get(*span))
    }

    /// Returns the moment of a cell, in Unix seconds.
    pub fn moment(&self, since: i16) -> u64 {
        self.epoch.saturating_add_signed(since.into())
    }

    /// Whether loopback addresses are probed. All agents then count the echoes of one namespace.
    pub const fn is_on_loopback(&self) -> bool {
        self.loopback
    }

    /// Whether anything was measured in this network.
    pub fn is_measured(&self, network: Network) -> bool {
        self.layers & Layer::all_of(network) != 0
    }

    /// Returns the layers that were measured, as a set of [`Layer::bit`].
    pub const fn layers(&self) -> u8 {
        self.layers
    }

    /// Returns the directions of the losses by UDP of the links from a node.
    pub fn ways_from(&self, source: u16) -> &[LinkWays] {
        // They are in the order of the rows.
        let row = |node: u16| self.get(node).row;
        let begin = self.links.ways.partition_point(|ways| row(ways.source) < row(source));
        let ways = &self.links.ways[begin..];
        &ways[..ways.partition_point(|ways| ways.source == source)]
    }

    /// Whether a node would be in [`Matrix::ways_from`] with a peer of which it has heard too
    /// little by UDP, if it has a UDP cell of that peer.
    pub fn says_what_it_hears(&self, node: u16) -> bool {
        !self.links.are_ways_cut && self.row(node).is_some_and(|row| !row.is_deaf)
    }

    /// Returns the links of which some flows lose.
    pub fn losing_flows(&self) -> &[LosingFlows] {
        &self.links.flows
    }

    /// Returns the links whose probes could not be sent, those of one source beside each other.
    pub fn unsent(&self) -> &[UnsentLink] {
        &self.unsent.0
    }

    /// Returns the UDP sessions of the nodes that have no answers by UDP.
    pub fn sessions(&self) -> &[SessionOf] {
        &self.strangers.sessions
    }

    /// Returns what nodes have heard from addresses that are no member's.
    pub fn strangers(&self) -> &[StrangerAt] {
        &self.strangers.heard
    }

    /// Returns the names of the checks that are judged.
    pub fn check_names(&self) -> &[Box<str>] {
        self.checks.names()
    }

    /// Returns what the nodes report of the check at this place, in the order of their numbers. The
    /// second part is there if some attempts failed or were slow. Only of a finished matrix.
    pub fn attempts(&self, check: u8) -> impl Iterator<Item = (TriedAttempts, Option<BadAttempts>)> {
        self.checks.attempts(check)
    }

    /// Returns the share of the nodes that reach themselves by the check at this place.
    pub fn reaching_themselves(&self, check: u8) -> f64 {
        self.checks.reaching_themselves(check)
    }

    /// Returns the links that large packets do not pass.
    pub fn holes(&self) -> &[Hole] {
        &self.links.holes
    }

    /// Returns the number of cells.
    pub fn cell_count(&self) -> usize {
        self.cells.len() + self.joined
    }

    /// Returns the number of nodes of the mesh as the first row reports it, but at least the number
    /// of nodes known here.
    pub fn members(&self) -> usize {
        usize::try_from(self.members).unwrap_or(usize::MAX).max(self.node_count())
    }

    /// Returns the nodes that one row may have invented. Only that row names them, and most rows
    /// report fewer nodes than are named.
    pub fn invented(&self) -> impl Iterator<Item = u16> {
        let mut said: Vec<u16> = self.rows.iter().map(|row| row.facts.members).filter(|members| *members > 0).collect();
        said.sort_unstable();
        let median = said.get(said.len().saturating_sub(1) / 2).map_or(usize::MAX, |members| usize::from(*members));
        let are_too_many = self.node_count() > median;
        self.numbers().filter(move |node| are_too_many && self.get(*node).is_named_once())
    }

    /// Returns how much did not fit.
    pub const fn not_kept(&self) -> NotKept {
        self.not_kept
    }

    /// Returns the last losses of a cell of a node's row. `None` if it has none, or if there was no
    /// room for them.
    pub fn last_losses(&self, node: u16, cell: Cell) -> Option<LastLosses> {
        self.silence.last_losses(self.get(node).row?, cell)
    }

    /// Whether links of several sources lost all, and answer again. Then their losses do not count.
    pub const fn are_links_back(&self) -> bool {
        self.silence.are_links_back()
    }

    /// Returns when the first and the last row were read, in seconds after the epoch.
    pub fn reads(&self) -> (i16, i16) {
        let reads = || self.rows.iter().map(MatrixRow::read);
        (reads().min().unwrap_or_default(), reads().max().unwrap_or_default())
    }

    /// Returns the number of sources whose losses to a node, and to others, do not count yet.
    pub fn fresh_sources(&self, node: u16) -> u16 {
        self.silence.fresh_sources(node)
    }
}
