//! Which peers a compact report has, if there are too many.

/// Nodes of a report that has all peers. An agent that probes more, or whose report is longer than
/// [`super::BYTES_MAX`], leaves most of them out. The reports of 5,000 agents that all probe all
/// others would have a gigabyte.
const WHOLE_NODES_MAX: usize = 512;
/// Peers that are kept then: those for which the hashes of both ends of the link are nearest to
/// each other. So both ends keep most of the same links, and no chance of a loss decides.
pub(super) const SAMPLE: usize = 24;
/// Peers that are kept beside them, because they lose more than chance would: of a mesh that loses
/// 2 % everywhere, one link of 10^8.
pub(super) const LOSERS_MAX: usize = 4;
const LOSER_LOST_MIN: u32 = 10;
const LOSER_ONE_OF: u32 = 5;

/// Chooses the peers of a report before their objects are made: of thousands, few are kept.
#[derive(Debug)]
pub struct Choice {
    own: u64,
    /// The hashes of all names.
    nodes: Vec<u64>,
    /// Those that lose most, each once, the worst first.
    pub(super) losers: Vec<(u32, u64)>,
}

/// The peers of a report.
#[derive(Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The hashes of their names.
    pub nodes: Vec<u64>,
    /// Number of the others.
    pub left_out: u64,
}

impl Choice {
    /// Begins the choice of an agent. `own` is the hash of its name.
    pub const fn new(own: u64) -> Self {
        Self { own, nodes: Vec::new(), losers: Vec::new() }
    }

    /// Adds what a link has lost, as [`losses_beyond_chance`] returns it. `node` is the hash of its
    /// peer.
    pub fn add(&mut self, node: u64, lost: u32) {
        if self.nodes.last() != Some(&node) {
            self.nodes.push(node);
        }
        let is_full = self.losers.len() == SAMPLE + LOSERS_MAX;
        if lost == 0 || is_full && self.losers.last().is_some_and(|least| *least >= (lost, node)) {
            return;
        }
        match self.losers.iter_mut().find(|(_, other)| *other == node) {
            Some(known) => known.0 = known.0.max(lost),
            None => self.losers.push((lost, node)),
        }
        self.losers.sort_unstable_by(|a, b| b.cmp(a));
        self.losers.truncate(SAMPLE + LOSERS_MAX);
    }

    /// Returns all peers, or a sample if they are more than a report has.
    pub fn end(mut self) -> Chosen {
        self.sort();
        if self.nodes.len() > WHOLE_NODES_MAX { self.sample() } else { Chosen { nodes: self.nodes, left_out: 0 } }
    }

    fn sort(&mut self) {
        self.nodes.sort_unstable();
        self.nodes.dedup();
    }

    /// Returns a sample of the peers.
    pub(super) fn sample(mut self) -> Chosen {
        self.sort();
        let all = self.nodes.len();
        let mut kept = self.nodes;
        kept.sort_unstable_by_key(|node| node ^ self.own);
        kept.truncate(SAMPLE);
        let nearest = kept.len();
        for (_, node) in self.losers {
            if kept.len() < nearest + LOSERS_MAX && !kept.contains(&node) {
                kept.push(node);
            }
        }
        Chosen { left_out: (all - kept.len()) as u64, nodes: kept }
    }
}

/// Returns the number of lost probes of a link, or 0 if they may be lost by chance.
pub const fn losses_beyond_chance(sent: u32, lost: u32) -> u32 {
    if lost >= LOSER_LOST_MIN && lost.saturating_mul(LOSER_ONE_OF) >= sent { lost } else { 0 }
}
