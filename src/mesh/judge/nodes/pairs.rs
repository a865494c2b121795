//! What a judge keeps of each pair of zones, from the zone of the source to that of the peer: 20
//! bytes. A mesh has at most 17 zones, so all pairs take at most 6 KB.

use super::LossCount;
use crate::mesh::matrix::{Cell, Layer};

/// What the links of a pair of zones lost in one layer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Total {
    pub count: LossCount,
    pub links: u32,
    /// Number of these that lost a probe.
    pub losing: u32,
}

/// What is kept of a pair of zones: the layer that lost most.
#[derive(Clone, Copy, Debug)]
pub struct KeptZonePair {
    pub total: Total,
    pub layer: Layer,
    /// Code of the median of the links' round-trip times; 0 if no probe was answered.
    pub rtt_code: u16,
}

const _: () = assert!(size_of::<KeptZonePair>() == 20);

/// All pairs of the zones of a mesh, measured or not.
#[derive(Debug)]
pub struct Pairs {
    zones: usize,
    all: Box<[KeptZonePair]>,
}

impl Total {
    /// Adds the counts of a link.
    pub fn add(&mut self, cell: Cell) {
        self.count.add(cell);
        self.links += 1;
        self.losing += u32::from(cell.lost() > 0);
    }
}

impl Pairs {
    /// Returns the pairs of this many zones, of which nothing is known.
    pub fn new(zones: usize) -> Self {
        let pair = KeptZonePair { total: Total::default(), layer: Layer::Icmp, rtt_code: 0 };
        Self { zones, all: vec![pair; zones * zones].into() }
    }

    /// Returns the number of pairs.
    pub const fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the bytes of all pairs.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.all)
    }

    /// Returns the place of a pair among all. Both must be numbers of zones of the mesh.
    pub fn place(&self, source: u8, peer: u8) -> usize {
        usize::from(source) * self.zones + usize::from(peer)
    }

    /// Returns the numbers of both zones of the pair at a place, and what is kept of it. `None`
    /// if there is no such place.
    pub fn get(&self, place: usize) -> Option<([usize; 2], &KeptZonePair)> {
        Some(([place / self.zones, place % self.zones], self.all.get(place)?))
    }

    /// Returns a total of nothing for each pair.
    pub fn totals(&self) -> Vec<Total> {
        vec![Total::default(); self.all.len()]
    }

    /// Keeps the totals of a layer for those pairs that lost more by it than by those before.
    pub fn keep_worse(&mut self, layer: Layer, totals: &[Total]) {
        for (pair, total) in self.all.iter_mut().zip(totals) {
            if total.count.is_worse_than(pair.total.count) {
                (pair.total, pair.layer) = (*total, layer);
            }
        }
    }

    /// Returns the codes of all pairs, to be set.
    pub fn rtt_codes(&mut self) -> impl Iterator<Item = &mut u16> {
        self.all.iter_mut().map(|pair| &mut pair.rtt_code)
    }
}
