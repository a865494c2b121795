//! Which UDP and TCP probes are evidence of the network.
//!
//! The kernel answers echo requests, but the agent of the peer answers UDP probes, and accepts TCP
//! connections. An agent that is stopped, starved, restarted or too old loses the probes of all
//! others, while the network is well. So a cell counts only if the peer says that it has answered
//! for as long as the source's window is. No agent can hide a fault of another in this way: it says
//! it of itself alone.
//!
//! A report travels by TCP, so the fault may be the reason that it is missing. Then the kernel of
//! the peer tells the two apart ([`SilentAgent`]). It completes or refuses each handshake, whether
//! the agent runs or not. If its node answers echo requests, but handshakes get no answer of any
//! kind, the network drops them.

use super::agents::Standing;
use super::rewritten::Rewritten;
use super::tally::Tally;
use crate::matrix::{Cell, Layer, Matrix, RowPresence};
use kube_canary_model::report::Method;

/// Reports of a collection are up to 20 s apart. Within this time an agent may have started between
/// its own report and that of the source.
pub const REPORTS_APART_SECONDS: f32 = 20.0;
/// A source hears nothing of a peer if it has lost this many handshakes. A lost handshake is
/// repeated after some two seconds, so that takes at most 15 s.
const HANDSHAKES_LOST: u32 = 2;
/// What drops both protocols drops a similar share of both. A frozen agent loses all of UDP, and of
/// the handshakes what all links lose.
const TIMES_LESS: f64 = 2.0;
/// If echo requests lose more than one of this many, the loss is none of UDP and TCP alone. At 3 %,
/// handshakes are not lost twice in a minute by chance.
const ECHOES_PER_LOSS: u32 = 30;
/// Single links that are kept of nodes whose report is missing, 4 bytes each.
const LINKS_MAX: usize = 4_096;
/// This many sources must hear nothing of a node before it is named, or all of them. One false
/// report names no other node.
const SOURCES_MIN: u16 = 3;

/// What the sources tell of a node whose report is missing: those that probe it by TCP, and have
/// answers by ICMP.
#[derive(Clone, Copy, Debug, Default)]
struct SilentAgent {
    /// Number of sources that measured it.
    sources: u16,
    /// Number of them whose handshakes are neither completed nor refused.
    silent: u16,
    /// Number of them that have lost nothing by UDP.
    answered: u16,
    /// Number of sources whose echo requests are lost.
    cut: u16,
}

/// What a node says about its answering.
#[derive(Clone, Copy, Debug, Default)]
struct AgentAnswers {
    /// Time since which it has answered without a gap. `None` if its report is missing, or was not
    /// asked for.
    listening_seconds: Option<f32>,
    /// The window of its own cells.
    window_seconds: f32,
    /// The layers that it probes, and therefore answers. Of a node whose report is missing: those
    /// of which a loss is one of the network, if the source hears nothing of it.
    layers: u8,
    /// What hears nothing of it, if its report is missing.
    unheard: Option<Unheard>,
}

/// The sources that hear nothing of a node whose report is missing, though its kernel would answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unheard {
    /// None, or less than half of them: the node may be named with a link, and not alone.
    Few,
    /// Most of them, but too few to name the node.
    Most,
    /// Enough of them to name the node.
    Enough,
}

/// Which agents have answered for how long. Empty if only ICMP was measured.
#[derive(Debug, Default)]
pub struct Answering {
    agents: Vec<AgentAnswers>,
    /// Sources that hear nothing of a node whose report is missing, with that node, in order. Most
    /// others hear it.
    links: Vec<(u16, u16)>,
    /// The layers with evidence.
    layers: u8,
    /// Nodes that cannot be answered, because the network rewrites their address.
    pub rewritten: Rewritten,
}

impl Answering {
    /// Returns what the rows of a mesh say. Takes 16 bytes per node if UDP or TCP was measured, 8
    /// for each node whose report is missing, and up to 16 KB for their links.
    pub fn new(matrix: &Matrix, standings: &[Standing]) -> Self {
        const { assert!(size_of::<AgentAnswers>() == 16) };
        let by_agents = Layer::Udp.bit() | Layer::Tcp.bit();
        if matrix.layers() & by_agents == 0 {
            return Self { layers: matrix.layers(), ..Self::default() };
        }
        let agent = |node: u16| match (matrix.row(node), matrix.get(node).presence) {
            _ if standings[usize::from(node)] == Standing::Starved => {
                AgentAnswers { listening_seconds: Some(0.0), ..window(matrix, node) }
            }
            (Some(row), _) => AgentAnswers {
                listening_seconds: Some(row.facts.listening_seconds.get().unwrap_or(0.0)),
                layers: row.layers,
                ..window(matrix, node)
            },
            (None, RowPresence::Listed | RowPresence::OtherVersion) => {
                AgentAnswers { layers: by_agents, ..AgentAnswers::default() }
            }
            (None, _) => AgentAnswers { unheard: Some(Unheard::Few), ..AgentAnswers::default() },
        };
        let agents = matrix.numbers().map(agent).collect();
        let rewritten = Rewritten::find(matrix, standings);
        let mut answering = Self { agents, links: Vec::new(), layers: 0, rewritten };
        answering.hear(matrix, standings);
        for node in matrix.numbers().filter(|node| standings[usize::from(*node)] == Standing::Sound) {
            for cell in matrix.cells(node).iter().flat_map(|cell| cell.parts()) {
                let layer = cell.layer().bit();
                if answering.layers & layer == 0 && answering.counts(node, cell) {
                    answering.layers |= layer;
                }
            }
        }
        answering
    }

    /// Learns from the sources of each node whose report is missing whether the network is the
    /// reason.
    fn hear(&mut self, matrix: &Matrix, standings: &[Standing]) {
        let is_missing = |node: &u16| self.agents[usize::from(*node)].unheard.is_some();
        let missing: Vec<u16> = matrix.numbers().filter(is_missing).collect();
        if missing.is_empty() {
            return;
        }
        let mut known = vec![SilentAgent::default(); missing.len()];
        for source in matrix.numbers().filter(|node| standings[usize::from(*node)] == Standing::Sound) {
            for cells in matrix.cells(source).chunk_by(|a, b| a.peer() == b.peer()) {
                if let Ok(place) = missing.binary_search(&cells[0].peer()) {
                    let is_silent = known[place].add(cells);
                    if is_silent && self.links.len() < LINKS_MAX {
                        self.links.push((source, missing[place]));
                    }
                }
            }
        }
        for (node, silence) in missing.iter().zip(known) {
            let agent = &mut self.agents[usize::from(*node)];
            (agent.layers, agent.unheard) = (silence.layers(), Some(silence.unheard()));
        }
    }

    /// Whether a cell of this source is evidence.
    #[inline]
    pub fn counts(&self, source: u16, cell: Cell) -> bool {
        let layer = cell.layer();
        layer.method() == Method::Icmp
            || self.has_answered(source, cell.peer(), layer, cell.probes() > cell.lost())
                && !self.is_refused(cell)
                && !(layer == Layer::Udp && self.rewritten.has((source, cell.peer(), cell.is_over_ipv6())))
    }

    /// Whether an agent that does not listen has refused the handshakes of a cell. A rule of the
    /// network may refuse them as well, but then the report of the agent says that it listens.
    fn is_refused(&self, cell: Cell) -> bool {
        cell.is_refused() && self.unheard(cell.peer()).is_some()
    }

    /// Whether what a source says of a peer's UDP, beside the cells, is evidence.
    pub fn counts_udp(&self, source: u16, peer: u16) -> bool {
        let is_rewritten = [false, true].into_iter().any(|over_ipv6| self.rewritten.has((source, peer, over_ipv6)));
        self.unheard(peer).is_none() && self.has_answered(source, peer, Layer::Udp, true) && !is_rewritten
    }

    fn has_answered(&self, source: u16, peer: u16, layer: Layer, has_answers: bool) -> bool {
        let of = |node: u16| self.agents.get(usize::from(node)).copied().unwrap_or_default();
        let (link, source, peer) = ((source, peer), of(source), of(peer));
        let is_unheard = || match peer.unheard {
            Some(Unheard::Few) => self.links.binary_search(&link).is_ok(),
            unheard => unheard.is_some(),
        };
        let is_listening = match peer.listening_seconds {
            Some(seconds) => seconds >= source.window_seconds + REPORTS_APART_SECONDS,
            None if peer.unheard.is_some() => is_unheard(),
            // Nothing is known of it. An agent that answers some probes is there.
            None => has_answers,
        };
        is_listening && peer.layers & layer.bit() != 0
    }

    /// Returns which sources hear nothing of a node whose report is missing. `None` if it is not
    /// missing.
    pub fn unheard(&self, node: u16) -> Option<Unheard> {
        self.agents.get(usize::from(node)).and_then(|agent| agent.unheard)
    }

    /// Returns the layers with evidence, as a set of [`Layer::bit`].
    pub const fn layers(&self) -> u8 {
        self.layers
    }
}

impl SilentAgent {
    /// Adds what one source has measured of the node. Returns whether it hears nothing of it.
    fn add(&mut self, cells: &[Cell]) -> bool {
        let [icmp, udp, tcp] = [Layer::Icmp, Layer::Udp, Layer::Tcp].map(|layer| layer_tally(cells, layer));
        if icmp.probes == 0 || tcp.probes == 0 {
            return false;
        }
        if is_cut(icmp) {
            self.cut += 1;
            return false;
        }
        let is_silent = hears_nothing(cells);
        self.sources += 1;
        self.silent += u16::from(is_silent);
        self.answered += u16::from(udp.probes > 0 && udp.lost == 0);
        is_silent
    }

    /// Returns the layers of which a loss is one of the network.
    ///
    /// A frozen agent answers no UDP, while the kernel completes the handshakes until the backlog
    /// is full. So UDP counts only if handshakes get no answer either, or if most sources lose no
    /// UDP, so that the agent runs.
    fn layers(self) -> u8 {
        let has_udp = self.is_unheard_by_most() || self.answered > self.sources / 2;
        Layer::Tcp.bit() | if has_udp { Layer::Udp.bit() } else { 0 }
    }

    /// Halves the total, since twice the count of a large mesh exceeds 16 bits.
    const fn is_unheard_by_most(self) -> bool {
        self.silent > u16::midpoint(self.sources, self.cut)
    }

    const fn unheard(self) -> Unheard {
        match self.silent {
            _ if !self.is_unheard_by_most() => Unheard::Few,
            silent if silent >= SOURCES_MIN || silent == self.sources => Unheard::Enough,
            _ => Unheard::Most,
        }
    }
}

/// Whether a source's handshakes with a peer get no answer, not even a refusal, though its echo
/// requests do. `cells` are those of the peer.
pub fn hears_nothing(cells: &[Cell]) -> bool {
    let is_silent = |cell: &Cell| cell.lost() >= HANDSHAKES_LOST && !cell.is_refused();
    let is_alike = layer_tally(cells, Layer::Tcp).rate() * TIMES_LESS >= layer_tally(cells, Layer::Udp).rate();
    is_alike
        && !is_cut(layer_tally(cells, Layer::Icmp))
        && cells.iter().any(|cell| cell.layer() == Layer::Tcp && is_silent(cell))
}

/// Whether echo requests are lost as well.
const fn is_cut(icmp: Tally) -> bool {
    icmp.lost * ECHOES_PER_LOSS > icmp.probes
}

fn layer_tally(cells: &[Cell], layer: Layer) -> Tally {
    let cells = cells.iter().flat_map(|cell| cell.parts()).filter(|cell| cell.layer() == layer);
    cells.map(|cell| Tally { probes: cell.probes(), lost: cell.lost() }).sum()
}

fn window(matrix: &Matrix, node: u16) -> AgentAnswers {
    let window_seconds = matrix.row(node).map_or(0.0, |row| row.facts.cells_seconds);
    AgentAnswers { window_seconds, ..AgentAnswers::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_sources_of_a_mesh_of_any_size_are_more_than_half() {
        let layers = |answered, sources| SilentAgent { sources, answered, ..SilentAgent::default() }.layers();
        let by_both = Layer::Udp.bit() | Layer::Tcp.bit();
        for (sources, cut, half) in [(40_000, 9_999, 24_999), (50_000, 0, 25_000), (3, 1, 2), (5, 0, 2)] {
            let of = |silent| SilentAgent { sources, silent, answered: 0, cut }.unheard();
            assert_eq!(of(half), Unheard::Few, "{half} of {sources} and {cut}");
            assert_ne!(of(half + 1), Unheard::Few, "{half} of {sources} and {cut}");
            assert_eq!(layers(sources / 2, sources), Layer::Tcp.bit());
            assert_eq!(layers(sources / 2 + 1, sources), by_both);
        }
    }
}
