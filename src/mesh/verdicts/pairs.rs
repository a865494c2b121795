//! Both cells of a pair together, for every pair of a network that was measured, in one walk over the cells.

use super::agents::Standing;
use crate::mesh::matrix::{Cell, Matrix, Pace, rtt_us};
use crate::mesh::row::Network;

/// Probes and losses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Probes of which the fate is known.
    pub probes: u32,
    /// Those that were lost.
    pub lost: u32,
}

impl Tally {
    /// Both together.
    #[inline]
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { probes: self.probes + other.probes, lost: self.lost + other.lost }
    }

    /// The share that was lost.
    pub fn rate(self) -> f64 {
        if self.probes == 0 { 0.0 } else { f64::from(self.lost) / f64::from(self.probes) }
    }

    /// What is left of it without a part.
    #[must_use]
    pub const fn without(self, part: Self) -> Self {
        Self { probes: self.probes - part.probes, lost: self.lost - part.lost }
    }
}

const SLOW: u8 = Pace::Slow as u8;
const USUAL: u8 = Pace::Usual as u8;

/// Two nodes, `a` with the lower number, and what they measured of each other.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The one.
    pub a: u16,
    /// The other.
    pub b: u16,
    /// What `a` measured of `b`: its requests go one way, the answers the other.
    pub there: Tally,
    /// What `b` measured of `a`.
    pub back: Tally,
    /// The code of the median round trip: the lower of both directions, the higher of both protocols; 0 where nothing was
    /// answered. Most walks have no use for the time itself.
    rtt_code: u16,
    /// The bits of all paces that its cells say.
    paces: u8,
}

impl Pair {
    /// Both directions together: either loses what is lost on either way.
    #[inline]
    pub const fn both(&self) -> Tally {
        self.there.plus(self.back)
    }

    /// Whether both nodes measured the other.
    pub const fn is_measured_twice(&self) -> bool {
        self.there.probes > 0 && self.back.probes > 0
    }

    /// Median round trip in microseconds; `None` where nothing was answered.
    pub fn rtt_us(&self) -> Option<f32> {
        rtt_us(self.rtt_code)
    }

    /// Whether round trips are slow by what is usual for this pair; `None` where no cell knows, or
    /// one contradicts another.
    pub const fn is_slow(&self) -> Option<bool> {
        match self.paces {
            SLOW => Some(true),
            USUAL => Some(false),
            _ => None,
        }
    }

    /// What `node` measured of the other.
    pub const fn of(&self, node: u16) -> Tally {
        if node == self.a { self.there } else { self.back }
    }

    /// The other node.
    pub const fn other(&self, node: u16) -> u16 {
        if node == self.a { self.b } else { self.a }
    }
}

/// What of a mesh counts as evidence in one network.
pub struct Scope<'a> {
    /// The mesh.
    pub matrix: &'a Matrix,
    /// The network.
    pub network: Network,
    /// Which of its nodes' figures are evidence.
    pub standings: &'a [Standing],
    /// What every walk looks up.
    pub index: &'a Index,
}

/// What every walk looks up of nodes and pairs. The matrix has it as well, but strewn over more memory than a
/// processor's caches hold, and then it is looked up in no order.
#[derive(Debug, Default)]
pub struct Index {
    /// The zone of each node.
    zones: Vec<u8>,
    /// A bit for each peer of each node, in the order of a walk: whether that peer probes the node, too. Nothing if
    /// there are more than 32 per node: such a mesh is small, and most peers do.
    met: Vec<u32>,
}

impl Index {
    /// Returns that of a mesh. Takes 5 bytes per node.
    pub fn of(matrix: &Matrix, standings: &[Standing]) -> Self {
        let (mut met, mut peers) = (vec![0; matrix.node_count()], 0);
        // Cells of all networks count, so any network will do.
        let scope = Scope { matrix, network: Network::Pod, standings, index: &Self::default() };
        scope.each_peer(|_, _, _, back| {
            if let Some(word) = met.get_mut(peers / 32) {
                *word |= u32::from(!back.is_empty()) << (peers % 32);
            }
            peers += 1;
        });
        if peers > met.len() * 32 {
            met = Vec::new();
        }
        Self { zones: matrix.numbers().map(|node| matrix.get(node).zone).collect(), met }
    }

    /// Returns whether the peer at this place of a walk may probe the node, too.
    fn may_be_met(&self, place: usize) -> bool {
        self.met.get(place / 32).is_none_or(|word| word >> (place % 32) & 1 == 1)
    }
}

impl<'a> Scope<'a> {
    /// A node's cells that count.
    #[inline]
    pub fn cells(&self, node: u16) -> &'a [Cell] {
        let sound = self.standings[usize::from(node)] == Standing::Sound;
        if sound { self.matrix.cells(node) } else { &[] }
    }

    /// Calls `visit` with each pair. Takes 16 bytes per node.
    pub fn each_pair(&self, mut visit: impl FnMut(&Pair)) {
        self.each_peer(|node, peer, there, back| {
            // Whoever comes first visits the pair.
            if (peer > node || back.is_empty())
                && let Some(pair) = self.pair(node, peer, there, back)
            {
                visit(&pair);
            }
        });
    }

    /// Calls `visit` with each node and each peer of it, its cells of the peer, and the peer's of it.
    fn each_peer(&self, mut visit: impl FnMut(u16, u16, &[Cell], &[Cell])) {
        let mut places = 0..;
        // Rows are in the order of their peers, and `node` rises: of each row what is behind `node` is left.
        let mut left: Vec<&[Cell]> = self.matrix.numbers().map(|node| self.cells(node)).collect();
        for node in self.matrix.numbers() {
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
    }

    /// Calls `visit` with each pair of a node: a search in each node's row, not a walk over all cells.
    pub fn each_pair_of(&self, node: u16, mut visit: impl FnMut(&Pair)) {
        for other in self.matrix.numbers().filter(|other| *other != node) {
            if let Some(pair) = self.pair_of(node, other) {
                visit(&pair);
            }
        }
    }

    /// Returns the pair of two nodes, if it was measured.
    pub fn pair_of(&self, node: u16, other: u16) -> Option<Pair> {
        let is_evidence = |node: u16| self.standings[usize::from(node)].is_evidence_of_others();
        let of = |source: u16, peer: u16| {
            let cells = self.cells(source);
            let behind = &cells[cells.partition_point(|cell| cell.peer() < peer)..];
            &behind[..run(behind, peer)]
        };
        if is_evidence(node) && is_evidence(other) {
            self.pair(node, other, of(node, other), of(other, node))
        } else {
            None
        }
    }

    #[inline]
    fn pair(&self, node: u16, peer: u16, there: &[Cell], back: &[Cell]) -> Option<Pair> {
        // Of IPv4 and of IPv6.
        let (mut codes, mut paces) = ((0_u16, 0_u16), 0);
        // 0 is none, and so the largest.
        let lower = |one: u16, other: u16| one.wrapping_sub(1).min(other.wrapping_sub(1)).wrapping_add(1);
        let mut tally = |cells: &[Cell]| {
            let mut sum = Tally::default();
            for cell in cells.iter().filter(|cell| cell.network() == self.network) {
                sum = sum.plus(Tally { probes: cell.probes(), lost: cell.lost() });
                paces |= cell.pace() as u8;
                if cell.is_over_ipv6() {
                    codes.1 = lower(codes.1, cell.rtt_code());
                } else {
                    codes.0 = lower(codes.0, cell.rtt_code());
                }
            }
            sum
        };
        let (a, b, there, back) = if node < peer { (node, peer, there, back) } else { (peer, node, back, there) };
        let (there, back) = (tally(there), tally(back));
        let pair = Pair { a, b, there, back, rtt_code: codes.0.max(codes.1), paces };
        (pair.both().probes > 0).then_some(pair)
    }

    /// The place of a zone pair among all, whichever comes first.
    #[inline]
    pub fn zone_place(&self, pair: &Pair) -> usize {
        zone_place(self.zone(pair.a), self.zone(pair.b))
    }

    /// A node's zone.
    #[inline]
    pub fn zone(&self, node: u16) -> u8 {
        self.index.zones[usize::from(node)]
    }

    /// How many zone pairs there are.
    pub const fn zone_places(&self) -> usize {
        let zones = self.matrix.zone_count();
        zones * (zones + 1) / 2
    }
}

/// The place of a zone pair in a triangle.
#[inline]
pub fn zone_place(a: u8, b: u8) -> usize {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    usize::from(high) * (usize::from(high) + 1) / 2 + usize::from(low)
}

/// How many cells at the front are of this peer: its protocols and networks.
#[inline]
fn run(cells: &[Cell], peer: u16) -> usize {
    cells.iter().take_while(|cell| cell.peer() == peer).count()
}
