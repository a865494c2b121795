//! Which UDP and TCP probes are evidence of the network.
//!
//! The kernel answers echo requests, but the agent of the peer answers UDP probes, and accepts TCP
//! connections. An agent that is stopped, starved, restarted or too old loses the probes of all
//! others, while the network is well. So a cell counts only if the peer says that it has answered
//! for as long as the source's window is. No agent can hide a fault of another in this way: it says
//! it of itself alone.

use super::agents::Standing;
use crate::mesh::matrix::{Cell, Layer, Matrix, Presence};
use crate::report::Method;

/// Reports of a collection are up to 20 s apart. Within this time an agent may have started between
/// its own report and that of the source.
pub const REPORTS_APART_SECONDS: f32 = 20.0;

/// What a node says about its answering.
#[derive(Clone, Copy, Debug, Default)]
struct Agent {
    /// Time since which it has answered without a gap. `None` if its report was not asked for.
    listening_seconds: Option<f32>,
    /// The window of its own cells.
    window_seconds: f32,
    /// The layers that it probes, and therefore answers.
    layers: u8,
}

/// Which agents have answered for how long. Empty if only ICMP was measured.
#[derive(Debug, Default)]
pub struct Answering {
    agents: Vec<Agent>,
    /// The layers with evidence.
    layers: u8,
}

impl Answering {
    /// Returns what the rows of a mesh say. Takes 16 bytes per node if UDP or TCP was measured.
    pub fn of(matrix: &Matrix, standings: &[Standing]) -> Self {
        const { assert!(size_of::<Agent>() == 16) };
        let by_agents = Layer::Udp.bit() | Layer::Tcp.bit();
        if matrix.layers() & by_agents == 0 {
            return Self { agents: Vec::new(), layers: matrix.layers() };
        }
        let agent = |node: u16| match (matrix.row(node), matrix.get(node).presence) {
            _ if standings[usize::from(node)] == Standing::Starved => {
                Agent { listening_seconds: Some(0.0), ..window(matrix, node) }
            }
            (Some(row), _) => Agent {
                listening_seconds: Some(row.facts.listening_seconds.unwrap_or(0.0)),
                layers: row.layers,
                ..window(matrix, node)
            },
            (None, Presence::Listed) => Agent { layers: by_agents, ..Agent::default() },
            (None, _) => Agent { listening_seconds: Some(0.0), ..Agent::default() },
        };
        let agents = matrix.numbers().map(agent).collect();
        let mut answering = Self { agents, layers: 0 };
        for node in matrix.numbers().filter(|node| standings[usize::from(*node)] == Standing::Sound) {
            for cell in matrix.cells(node).iter().copied() {
                let layer = cell.layer().bit();
                if answering.layers & layer == 0 && answering.counts(node, cell) {
                    answering.layers |= layer;
                }
            }
        }
        answering
    }

    /// Whether a cell of this source is evidence.
    #[inline]
    pub fn counts(&self, source: u16, cell: Cell) -> bool {
        let layer = cell.layer();
        layer.method() == Method::Icmp || self.has_answered(source, cell.peer(), layer, cell.probes() > cell.lost())
    }

    /// Whether what a source says of a peer's UDP, beside the cells, is evidence.
    pub fn counts_udp(&self, source: u16, peer: u16) -> bool {
        self.has_answered(source, peer, Layer::Udp, true)
    }

    fn has_answered(&self, source: u16, peer: u16, layer: Layer, has_answers: bool) -> bool {
        let of = |node: u16| self.agents.get(usize::from(node)).copied().unwrap_or_default();
        let (source, peer) = (of(source), of(peer));
        let is_listening = match peer.listening_seconds {
            Some(seconds) => seconds >= source.window_seconds + REPORTS_APART_SECONDS,
            // Nothing is known of it. An agent that answers some probes is there.
            None => has_answers,
        };
        is_listening && peer.layers & layer.bit() != 0
    }

    /// Returns the layers with evidence, as a set of [`Layer::bit`].
    pub const fn layers(&self) -> u8 {
        self.layers
    }
}

fn window(matrix: &Matrix, node: u16) -> Agent {
    let window_seconds = matrix.row(node).map_or(0.0, |row| row.facts.cells_seconds);
    Agent { window_seconds, ..Agent::default() }
}
