//! What a judge keeps of each node, of each pair of zones and of the worst links of its last round,
//! for readers that need no matrix: `/api/v1/judge/nodes`.
//!
//! What is no evidence for the verdicts does not count here either ([`Evidence`]). Losses are those
//! of the protocol that lost most, because a sum would hide 6 lost handshakes among 120 answered
//! echo requests. A cell has no 99th percentile, so round-trip times are medians of the links'
//! medians. The 99th percentile of a node is over the probes of its own agent, which reports it.

mod body;
mod names;
mod pairs;
pub mod relay;

use self::names::NodeNames;
use self::pairs::Pairs;
use crate::limits::{JUDGE_NODES_BYTES_MAX, NAME_BYTES_MAX};
use crate::mesh::matrix::{Cell, Layer, Matrix, RowPresence};
use crate::mesh::verdicts::slices::{Slice, yield_now};
use crate::mesh::verdicts::{Evidence, Standing};
use crate::report::{SendError, weighed_loss};

pub use body::NodesBody;

/// The path at which a judge serves what it keeps of all nodes.
pub const PATH: &str = "/api/v1/judge/nodes";
/// Worst links that are kept.
const WORST_MAX: usize = 10;
/// Of two layers that lose alike, the first counts.
const LAYERS: [Layer; 4] = [Layer::Icmp, Layer::Udp, Layer::Tcp, Layer::Nodes];
/// Bits of a cell's code of the round-trip time.
const CODE_BITS: u32 = 10;

/// Number of probes and of losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LossCount {
    probes: u32,
    lost: u32,
}

/// What is kept of a node.
#[derive(Clone, Copy, Debug)]
struct NodeEntry {
    /// What its agent measured.
    out: LossCount,
    /// What the others measured of it.
    inbound: LossCount,
    /// Code of its median round-trip time; 0 if no probe was answered.
    rtt_code: u16,
    /// Code of the 99th percentile that its agent reports; 0 if it reports none.
    rtt_p99_code: u16,
    /// Number of rows with a cell about it.
    watchers: u16,
    zone: u8,
    presence: RowPresence,
    standing: Standing,
    /// Why probes of its agent could not be sent, if too many could not.
    unsent: Option<SendError>,
    /// The layers of `out` and `inbound`.
    layers: [Layer; 2],
}

const _: () = assert!(size_of::<NodeEntry>() == 28);

/// One of the links that lose most.
#[derive(Debug)]
struct LossyLink {
    source: Box<str>,
    peer: Box<str>,
    cell: Cell,
}

/// What a judge keeps of all nodes.
#[derive(Debug)]
pub struct KeptNodes {
    /// In their order, as `entries` are.
    names: NodeNames,
    entries: Box<[NodeEntry]>,
    zones: Box<[Box<str>]>,
    pairs: Pairs,
    /// The links that lose most, the worst first.
    worst: Vec<LossyLink>,
    /// Number of nodes without room.
    not_listed: usize,
}

/// A search for the median of the codes of a node or of a pair of zones, bit by bit.
#[derive(Clone, Copy, Default)]
struct Median {
    /// The bits that are known.
    code: u16,
    /// How many codes that begin with these bits are below the median.
    below: u32,
    count: u32,
    has_any: bool,
}

impl LossCount {
    fn add(&mut self, cell: Cell) {
        (self.probes, self.lost) = (self.probes + cell.probes(), self.lost + cell.lost());
    }

    fn badness(self) -> f32 {
        weighed_loss(self.lost, self.probes)
    }

    fn is_worse_than(self, other: Self) -> bool {
        self.probes > 0 && (other.probes == 0 || self.badness() > other.badness())
    }
}

impl KeptNodes {
    /// Returns what is kept of a mesh. Takes 28 bytes per node and their names, 20 per pair of
    /// zones, and 50 per node for the time of the call. It walks over the cells in slices.
    pub async fn collect(matrix: &Matrix) -> Self {
        let evidence = Evidence::new(matrix);
        yield_now().await;
        let cut = |name: &str| name[..name.floor_char_boundary(NAME_BYTES_MAX)].into();
        let zones = (0..matrix.zone_count()).filter_map(|zone| u8::try_from(zone).ok());
        let zones: Box<[Box<str>]> = zones.map(|zone| cut(matrix.zone_name(zone))).collect();
        let mut order: Vec<u16> =
            matrix.numbers().filter(|node| evidence.standing(*node) != Standing::Invented).collect();
        order.sort_unstable_by(|a, b| matrix.name(*a).cmp(matrix.name(*b)));
        let all = order.len();
        let mut pairs = Pairs::new(zones.len());
        let taken = zones.iter().map(|zone| size_of::<Box<str>>() + zone.len()).sum::<usize>() + pairs.bytes();
        let mut room = JUDGE_NODES_BYTES_MAX - taken;
        let mut names = NodeNames::default();
        order.retain(|node| {
            let left = room.checked_sub(size_of::<NodeEntry>());
            let fits = left.is_some_and(|left| names.push(matrix.name(*node), left));
            room -= if fits { size_of::<NodeEntry>() } else { 0 };
            fits
        });
        names.end();
        yield_now().await;
        let mut walk = Walk { matrix, evidence, places: vec![None; matrix.node_count()] };
        for (place, node) in (0..).zip(&order) {
            walk.places[usize::from(*node)] = Some(place);
        }
        let mut nodes: Box<[NodeEntry]> = order.iter().map(|node| walk.entry(*node)).collect();
        for layer in LAYERS.into_iter().filter(|layer| matrix.layers() & layer.bit() != 0) {
            walk.add_losses(layer, &mut nodes, &mut pairs).await;
        }
        walk.add_watchers(&mut nodes).await;
        walk.add_unsent(&mut nodes);
        let mut medians = walk.medians(nodes.len(), &pairs).await;
        for bit in (0..CODE_BITS).rev() {
            walk.next_bit(bit, &mut medians, nodes.len(), &pairs).await;
        }
        let codes = nodes.iter_mut().map(|entry| &mut entry.rtt_code).chain(pairs.rtt_codes());
        for (code, median) in codes.zip(&medians) {
            *code = if median.has_any { median.code } else { 0 };
        }
        Self { names, not_listed: all - nodes.len(), entries: nodes, zones, pairs, worst: walk.worst().await }
    }

    /// Returns the bytes that are kept, without those of the worst links.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        let zones = self.zones.iter().map(|zone| size_of::<Box<str>>() + zone.len()).sum::<usize>();
        self.names.bytes() + size_of_val(&*self.entries) + zones + self.pairs.bytes()
    }
}

/// Walks over the cells of a mesh.
struct Walk<'a> {
    matrix: &'a Matrix,
    evidence: Evidence<'a>,
    /// The place of each node in the order of the names. `None` if it has none.
    places: Vec<Option<u16>>,
}

impl Walk<'_> {
    fn entry(&self, node: u16) -> NodeEntry {
        let member = self.matrix.get(node);
        NodeEntry {
            out: LossCount::default(),
            inbound: LossCount::default(),
            rtt_code: 0,
            rtt_p99_code: self.matrix.row(node).map_or(0, |row| row.facts.rtt_p99_code),
            watchers: 0,
            zone: member.zone,
            presence: member.presence,
            standing: self.evidence.standing(node),
            unsent: None,
            layers: [LAYERS[0]; 2],
        }
    }

    fn place(&self, node: u16) -> Option<usize> {
        self.places[usize::from(node)].map(usize::from)
    }

    fn is_sound(&self, node: u16) -> bool {
        self.evidence.standing(node) == Standing::Sound
    }

    fn pair(&self, pairs: &Pairs, source: u16, peer: u16) -> usize {
        pairs.place(self.matrix.get(source).zone, self.matrix.get(peer).zone)
    }

    /// Adds the losses of a layer to nodes and pairs of zones that lose more by it than by those
    /// before.
    async fn add_losses(&self, layer: Layer, nodes: &mut [NodeEntry], pairs: &mut Pairs) {
        let mut counts = vec![[LossCount::default(); 2]; nodes.len()];
        let mut totals = pairs.totals();
        let mut slice = Slice::default();
        for source in self.matrix.numbers() {
            slice.add(self.matrix.cells(source).len()).await;
            let (place, is_sound) = (self.place(source), self.is_sound(source));
            for cell in self.evidence.cells(source).filter(|cell| cell.layer() == layer) {
                if let Some(place) = place {
                    counts[place][0].add(cell);
                }
                if !is_sound {
                    continue;
                }
                if let Some(place) = self.place(cell.peer()) {
                    counts[place][1].add(cell);
                }
                totals[self.pair(pairs, source, cell.peer())].add(cell);
            }
        }
        pairs.keep_worse(layer, &totals);
        for (entry, counts) in nodes.iter_mut().zip(counts) {
            let kept = [&mut entry.out, &mut entry.inbound].into_iter().zip(&mut entry.layers);
            for ((kept, of), count) in kept.zip(counts) {
                if count.is_worse_than(*kept) {
                    (*kept, *of) = (count, layer);
                }
            }
        }
    }

    async fn add_watchers(&self, nodes: &mut [NodeEntry]) {
        let mut slice = Slice::default();
        for source in self.matrix.numbers() {
            slice.add(self.matrix.cells(source).len()).await;
            let mut last = None;
            for cell in self.matrix.cells(source) {
                if last.replace(cell.peer()) != Some(cell.peer())
                    && let Some(place) = self.place(cell.peer())
                {
                    nodes[place].watchers += 1;
                }
            }
        }
    }

    /// Adds why probes could not be sent. Of several reasons of a node, the first counts.
    fn add_unsent(&self, nodes: &mut [NodeEntry]) {
        let is_evidence = |node: u16| self.evidence.standing(node).is_evidence_of_others();
        for link in self.matrix.unsent().iter().filter(|link| is_evidence(link.source) && is_evidence(link.peer)) {
            if let Some(place) = self.place(link.source) {
                nodes[place].unsent.get_or_insert(link.reason);
            }
        }
    }

    /// Calls `visit` with the code of each link, for both of its nodes at their places and for its
    /// pair of zones at the place behind all nodes. The codes are those of the first layer that
    /// was measured, because no other is comparable.
    async fn each_code(&self, nodes: usize, pairs: &Pairs, mut visit: impl FnMut(usize, u16)) {
        let Some(layer) = LAYERS.into_iter().find(|layer| self.matrix.layers() & layer.bit() != 0) else { return };
        let mut slice = Slice::default();
        for source in self.matrix.numbers().filter(|node| self.is_sound(*node)) {
            slice.add(self.matrix.cells(source).len()).await;
            let place = self.place(source);
            for cell in self.evidence.cells(source).filter(|cell| cell.layer() == layer && cell.rtt_code() > 0) {
                let pair = nodes + self.pair(pairs, source, cell.peer());
                for place in [place, self.place(cell.peer()), Some(pair)].into_iter().flatten() {
                    visit(place, cell.rtt_code());
                }
            }
        }
    }

    async fn medians(&self, nodes: usize, pairs: &Pairs) -> Vec<Median> {
        let mut medians = vec![Median::default(); nodes + pairs.len()];
        self.each_code(nodes, pairs, |place, _| medians[place].count += 1).await;
        for median in &mut medians {
            median.has_any = median.count > 0;
            (median.below, median.count) = (median.count.saturating_sub(1) / 2, 0);
        }
        medians
    }

    /// Finds a bit of all medians. A code's bits above it must be those that are known.
    async fn next_bit(&self, bit: u32, medians: &mut [Median], nodes: usize, pairs: &Pairs) {
        self.each_code(nodes, pairs, |place, code| {
            let median = &mut medians[place];
            median.count += u32::from(code >> bit == median.code >> bit);
        })
        .await;
        for median in medians {
            if median.below >= median.count {
                (median.below, median.code) = (median.below - median.count, median.code | 1 << bit);
            }
            median.count = 0;
        }
    }

    async fn worst(&self) -> Vec<LossyLink> {
        let mut worst: Vec<(f32, u16, Cell)> = Vec::with_capacity(WORST_MAX + 1);
        let mut slice = Slice::default();
        for source in self.matrix.numbers().filter(|node| self.is_sound(*node)) {
            slice.add(self.matrix.cells(source).len()).await;
            for cell in self.evidence.cells(source).filter(|cell| cell.lost() > 0) {
                let badness = LossCount { probes: cell.probes(), lost: cell.lost() }.badness();
                let at = worst.partition_point(|(other, ..)| *other >= badness);
                if at < WORST_MAX {
                    worst.insert(at, (badness, source, cell));
                    worst.truncate(WORST_MAX);
                }
            }
        }
        let name = |node: u16| self.matrix.name(node);
        let fits = |node: u16| name(node).len() <= NAME_BYTES_MAX;
        let worst = worst.into_iter().filter(|(_, source, cell)| fits(*source) && fits(cell.peer()));
        worst
            .map(|(_, source, cell)| LossyLink { source: name(source).into(), peer: name(cell.peer()).into(), cell })
            .collect()
    }
}

#[cfg(test)]
mod tests;
