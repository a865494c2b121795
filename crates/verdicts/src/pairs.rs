//! Combines the cells of both directions of a pair, for every measured pair of a network, in one
//! walk over the cells.

use std::ops::RangeFrom;

use super::agents::Standing;
use super::answering::Answering;
use super::tally::Tally;
use crate::matrix::{Cell, Layer, Matrix, Pace, cells_of_peer, rtt_us, run};
use crate::slices::Slice;
use kube_canary_model::report::Network;

const SLOW: u8 = Pace::Slow as u8;
const USUAL: u8 = Pace::Usual as u8;

/// Two nodes, `a` with the lower number, and what they measured of each other by some layers.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The layers whose sum it is.
    pub layers: u8,
    /// Number of the first node.
    pub a: u16,
    /// Number of the second node.
    pub b: u16,
    /// What `a` measured of `b`: its requests go from `a` to `b`, the replies from `b` to `a`.
    pub there: Tally,
    /// What `b` measured of `a`.
    pub back: Tally,
    /// Code of the median round-trip time: the lower of both directions, the higher of both
    /// protocols. 0 if no probe was answered. It is kept as a code because most walks do not
    /// need the time itself.
    rtt_code: u16,
    /// The bits of all paces in its cells.
    paces: u8,
    /// The part of both directions that was measured over IPv6.
    over_ipv6: Tally,
}

impl Pair {
    /// Returns the sum of both directions. Each measurement includes the losses of both directions.
    #[inline]
    pub const fn both(&self) -> Tally {
        self.there.plus(self.back)
    }

    /// Returns the sums of both directions over IPv4 and over IPv6.
    pub const fn by_family(&self) -> [Tally; 2] {
        [self.both().without(self.over_ipv6), self.over_ipv6]
    }

    /// Whether both nodes measured each other.
    pub const fn is_measured_twice(&self) -> bool {
        self.there.probes > 0 && self.back.probes > 0
    }

    /// Returns the median round-trip time in microseconds; `None` if no probe was answered.
    pub fn rtt_us(&self) -> Option<f32> {
        rtt_us(self.rtt_code)
    }

    /// Whether round trips are slow compared with the usual time of this pair. `None` if no cell
    /// knows, or if the cells disagree.
    pub const fn is_slow(&self) -> Option<bool> {
        match self.paces {
            SLOW => Some(true),
            USUAL => Some(false),
            _ => None,
        }
    }

    /// Returns the layer of a pair of one layer.
    #[inline]
    pub const fn layer(&self) -> Layer {
        Layer::ALL[self.layers.trailing_zeros() as usize % Layer::ALL.len()]
    }

    /// Returns what `node` measured of the other node.
    pub const fn measured_by(&self, node: u16) -> Tally {
        if node == self.a { self.there } else { self.back }
    }

    /// Returns the other node of the pair.
    pub const fn other(&self, node: u16) -> u16 {
        if node == self.a { self.b } else { self.a }
    }
}

/// What two nodes measured of each other, apart by layer: one pair for each that was measured.
#[derive(Clone, Copy, Debug)]
pub struct LayerPairs {
    pairs: [Pair; Layer::ALL.len()],
    count: usize,
}

impl std::ops::Deref for LayerPairs {
    type Target = [Pair];

    fn deref(&self) -> &[Pair] {
        &self.pairs[..self.count]
    }
}

/// Returns the sum of those pairs that are of these layers. `None` if none of them was measured.
pub fn sum_of_layers(pairs: &[Pair], layers: u8) -> Option<Pair> {
    pairs.iter().filter(|pair| layers & pair.layers != 0).copied().reduce(|sum, pair| Pair {
        layers: sum.layers | pair.layers,
        there: sum.there.plus(pair.there),
        back: sum.back.plus(pair.back),
        over_ipv6: sum.over_ipv6.plus(pair.over_ipv6),
        ..sum
    })
}

/// What all scopes of a mesh have in common.
#[derive(Clone, Copy)]
pub struct MeshContext<'a> {
    /// The mesh as collected.
    pub matrix: &'a Matrix,
    /// Which nodes' figures are evidence.
    pub standings: &'a [Standing],
    /// Data that every walk looks up.
    pub index: &'a Index,
    /// Which cells of UDP and TCP count.
    pub answering: &'a Answering,
}

impl<'a> MeshContext<'a> {
    /// Returns the scope of these layers, as far as they are measured.
    pub const fn scope(&self, layers: u8) -> NetworkScope<'a> {
        let Self { matrix, standings, index, answering } = *self;
        let layers = layers & answering.layers();
        let network = if layers == Layer::Nodes.bit() { Network::Node } else { Network::Pod };
        NetworkScope { matrix, network, layers, answering, standings, index }
    }
}

/// What counts as evidence in some layers of a mesh.
pub struct NetworkScope<'a> {
    /// The mesh as collected.
    pub matrix: &'a Matrix,
    /// The network that verdicts over these layers name.
    pub network: Network,
    /// The layers whose cells count, as a set of their bits.
    pub layers: u8,
    /// Which cells of UDP and TCP count.
    pub answering: &'a Answering,
    /// Which nodes' figures are evidence.
    pub standings: &'a [Standing],
    /// Data that every walk looks up.
    pub index: &'a Index,
}

/// Data about nodes and pairs that every walk looks up. The matrix has it too, but spread over more
/// memory than a CPU's caches hold. The look-ups would then miss the caches.
#[derive(Debug, Default)]
pub struct Index {
    /// Zone of each node.
    zones: Vec<u8>,
    /// One bit per peer of each node, in the order of a walk: whether that peer probes
    /// the node, too. Empty if there are more than 32 peers per node: such a mesh is
    /// small, and most peers do.
    met: Vec<u32>,
}

impl Index {
    /// Returns the index of a mesh. Takes 5 bytes per node.
    pub async fn new(matrix: &Matrix, standings: &[Standing]) -> Self {
        let (mut met, mut peers) = (vec![0; matrix.node_count()], 0);
        // Cells of all networks count, so the choice of the network does not matter.
        let (index, answering) = (&Self::default(), &Answering::default());
        let network = Network::Pod;
        let scope = NetworkScope { matrix, network, layers: 0, answering, standings, index };
        scope
            .each_peer(|_, _, _, back| {
                if let Some(word) = met.get_mut(peers / 32) {
                    *word |= u32::from(!back.is_empty()) << (peers % 32);
                }
                peers += 1;
            })
            .await;
        if peers > met.len() * 32 {
            met = Vec::new();
        }
        Self { zones: matrix.numbers().map(|node| matrix.get(node).zone).collect(), met }
    }

    /// Whether the peer at this place of a walk may probe the node, too.
    fn may_be_met(&self, place: usize) -> bool {
        self.met.get(place / 32).is_none_or(|word| word >> (place % 32) & 1 == 1)
    }
}

impl<'a> NetworkScope<'a> {
    /// Whether anything that counts was measured.
    pub const fn is_measured(&self) -> bool {
        self.layers & self.answering.layers() != 0
    }

    /// Whether a cell of this source counts.
    #[inline]
    pub fn counts(&self, source: u16, cell: Cell) -> bool {
        self.layers & cell.layer().bit() != 0 && self.answering.counts(source, cell)
    }

    /// Returns a node's cells if they count as evidence, otherwise an empty slice. One may stand
    /// for several ([`Cell::parts`]).
    #[inline]
    pub fn cells(&self, node: u16) -> &'a [Cell] {
        let sound = self.standings[usize::from(node)] == Standing::Sound;
        if sound { self.matrix.cells(node) } else { &[] }
    }

    /// Calls `visit` with each pair, in slices. Takes 16 bytes per node.
    pub async fn each_pair(&self, mut visit: impl FnMut(&Pair)) {
        self.each_peer(|node, peer, there, back| {
            // The pair is visited from its lower node, or from the only node that measured.
            if (peer > node || back.is_empty())
                && let Some(pair) = self.pair(node, peer, there, back)
            {
                visit(&pair);
            }
        })
        .await;
    }

    /// Calls `visit` with each pair, apart by layer, in slices. Takes 16 bytes per node.
    pub async fn each_pair_by_layer(&self, mut visit: impl FnMut(&[Pair])) {
        self.each_peer(|node, peer, there, back| {
            if peer > node || back.is_empty() {
                let pairs = self.layer_pairs(node, peer, there, back);
                if !pairs.is_empty() {
                    visit(&pairs);
                }
            }
        })
        .await;
    }

    /// Calls `visit` with each node and each of its peers, the node's cells of the peer, and the
    /// peer's cells of the node. Pauses after each slice.
    async fn each_peer(&self, mut visit: impl FnMut(u16, u16, &[Cell], &[Cell])) {
        let (mut places, mut slice) = (0.., Slice::default());
        // Rows are sorted by peer, and `node` increases. So what remains of each row starts at
        // `node`.
        let mut left: Vec<&[Cell]> = self.matrix.numbers().map(|node| self.cells(node)).collect();
        for node in self.matrix.numbers() {
            self.each_peer_of(node, &mut left, &mut places, &mut visit);
            slice.add(self.cells(node).len()).await;
        }
    }

    /// Does the part of [`NetworkScope::each_peer`] that is of one node.
    fn each_peer_of<'c>(
        &'c self,
        node: u16,
        left: &mut [&'c [Cell]],
        places: &mut RangeFrom<usize>,
        visit: &mut impl FnMut(u16, u16, &[Cell], &[Cell]),
    ) {
        let mut rest = self.cells(node);
        while let Some(first) = rest.first() {
            let peer = first.peer();
            let (there, further) = rest.split_at(run(rest, peer));
            rest = further;
            if !self.standings[usize::from(peer)].is_evidence_of_others() {
                continue;
            }
            let mut back: &[Cell] = &[];
            if places.next().is_some_and(|place| self.index.may_be_met(place)) {
                let theirs = &mut left[usize::from(peer)];
                while let [first, behind @ ..] = theirs
                    && first.peer() < node
                {
                    *theirs = behind;
                }
                back = &theirs[..run(theirs, node)];
            }
            visit(node, peer, there, back);
        }
    }

    /// Calls `visit` with each pair of a node, apart by layer.
    pub fn each_pair_of_by_layer(&self, node: u16, mut visit: impl FnMut(&[Pair])) {
        for other in self.matrix.numbers().filter(|other| *other != node) {
            visit(&self.layer_pairs_of(node, other));
        }
    }

    /// Calls `visit` with each pair of a node. It searches each node's row and does not
    /// walk over all cells.
    pub fn each_pair_of(&self, node: u16, mut visit: impl FnMut(&Pair)) {
        for other in self.matrix.numbers().filter(|other| *other != node) {
            if let Some(pair) = self.pair_of(node, other) {
                visit(&pair);
            }
        }
    }

    /// Returns the pair of two nodes, if it was measured.
    pub fn pair_of(&self, node: u16, other: u16) -> Option<Pair> {
        let [there, back] = self.cells_between(node, other);
        self.pair(node, other, there, back)
    }

    /// Returns the pair of two nodes, apart by layer.
    pub fn layer_pairs_of(&self, node: u16, other: u16) -> LayerPairs {
        let [there, back] = self.cells_between(node, other);
        self.layer_pairs(node, other, there, back)
    }

    /// Returns what two nodes measured of each other, as far as it is evidence.
    fn cells_between(&self, node: u16, other: u16) -> [&'a [Cell]; 2] {
        let is_evidence = |node: u16| self.standings[usize::from(node)].is_evidence_of_others();
        let of = |source: u16, peer: u16| cells_of_peer(self.cells(source), peer);
        if is_evidence(node) && is_evidence(other) { [of(node, other), of(other, node)] } else { [&[], &[]] }
    }

    fn layer_pairs(&self, node: u16, peer: u16, there: &[Cell], back: &[Cell]) -> LayerPairs {
        let (a, b, there, back) = if node < peer { (node, peer, there, back) } else { (peer, node, back, there) };
        let empty = Tally::default();
        let pair = Pair { layers: 0, a, b, there: empty, back: empty, rtt_code: 0, paces: 0, over_ipv6: empty };
        let mut found = LayerPairs { pairs: [pair; Layer::ALL.len()], count: 0 };
        for (source, cells) in [(a, there), (b, back)] {
            for cell in cells.iter().flat_map(|cell| cell.parts()).filter(|cell| self.counts(source, *cell)) {
                let tally = Tally { probes: cell.probes(), lost: cell.lost() };
                let pair = &mut found.pairs[cell.layer() as usize];
                pair.layers = cell.layer().bit();
                let side = if source == a { &mut pair.there } else { &mut pair.back };
                *side = side.plus(tally);
                if cell.is_over_ipv6() {
                    pair.over_ipv6 = pair.over_ipv6.plus(tally);
                }
            }
        }
        for place in 0..found.pairs.len() {
            if found.pairs[place].both().probes > 0 {
                found.pairs[found.count] = found.pairs[place];
                found.count += 1;
            }
        }
        found
    }

    #[inline]
    fn pair(&self, node: u16, peer: u16, there: &[Cell], back: &[Cell]) -> Option<Pair> {
        // Codes of IPv4 and of IPv6.
        let (mut codes, mut paces, mut over_ipv6) = ((0_u16, 0_u16), 0, Tally::default());
        // Code 0 means no answer, so it counts as the largest.
        let lower = |one: u16, other: u16| one.wrapping_sub(1).min(other.wrapping_sub(1)).wrapping_add(1);
        let mut tally = |source: u16, cells: &[Cell]| {
            let mut sum = Tally::default();
            for cell in cells.iter().flat_map(|cell| cell.parts()).filter(|cell| self.counts(source, *cell)) {
                let tally = Tally { probes: cell.probes(), lost: cell.lost() };
                sum = sum.plus(tally);
                paces |= cell.pace() as u8;
                if cell.is_over_ipv6() {
                    over_ipv6 = over_ipv6.plus(tally);
                    codes.1 = lower(codes.1, cell.rtt_code());
                } else {
                    codes.0 = lower(codes.0, cell.rtt_code());
                }
            }
            sum
        };
        let (a, b, there, back) = if node < peer { (node, peer, there, back) } else { (peer, node, back, there) };
        let (there, back) = (tally(a, there), tally(b, back));
        let pair = Pair { layers: self.layers, a, b, there, back, rtt_code: codes.0.max(codes.1), paces, over_ipv6 };
        (pair.both().probes > 0).then_some(pair)
    }

    /// Returns the index of the pair's zone pair, in either order.
    #[inline]
    pub fn zone_place(&self, pair: &Pair) -> usize {
        zone_place(self.zone(pair.a), self.zone(pair.b))
    }

    /// Returns the zone of a node.
    #[inline]
    pub fn zone(&self, node: u16) -> u8 {
        self.index.zones[usize::from(node)]
    }

    /// Returns the number of zone pairs.
    pub const fn zone_places(&self) -> usize {
        let zones = self.matrix.zone_count();
        zones * (zones + 1) / 2
    }
}

/// Returns the index of a zone pair in a triangular table.
#[inline]
pub fn zone_place(a: u8, b: u8) -> usize {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    usize::from(high) * (usize::from(high) + 1) / 2 + usize::from(low)
}
