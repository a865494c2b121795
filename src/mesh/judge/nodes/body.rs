//! Writes what a judge keeps of all nodes as JSON, piece by piece: one node per line.

use std::sync::Arc;

use serde::Serialize;

use super::names::NamePosition;
use super::pairs::{KeptZonePair, Total};
use super::{KeptNodes, LossCount, NodeEntry};
use crate::http::Render;
use crate::limits::{FRAME_BYTES, NAME_BYTES_MAX};
use crate::mesh::matrix::{Cell, Layer, RowPresence, rtt_us};
use crate::mesh::verdicts::Standing;
use crate::report::{Network, SendError};

/// Bytes of a piece without its names.
const FIGURES_BYTES: usize = 512;
/// Bytes that a character of a name may take in JSON: `\u001f`.
const ESCAPED_BYTES: usize = 6;
/// Bytes of a piece with two names of the greatest length.
const PIECE_BYTES_MAX: usize = 2 * NAME_BYTES_MAX * ESCAPED_BYTES + FIGURES_BYTES;
const _: () = assert!(PIECE_BYTES_MAX <= FRAME_BYTES);

/// Writes the document: a head, the worst links, the pairs of zones, and the nodes.
pub struct NodesBody {
    nodes: Arc<KeptNodes>,
    judge: Arc<str>,
    age_seconds: f64,
    /// Pieces that are written.
    written: usize,
    /// Whether a pair of zones is written.
    has_pair: bool,
    place: NamePosition,
}

#[derive(Serialize)]
struct BodyHead<'a> {
    judge: &'a str,
    age_seconds: f64,
    nodes: usize,
    not_listed: usize,
}

#[derive(Serialize)]
struct LinkOf<'a> {
    source: &'a str,
    peer: &'a str,
    network: Network,
    protocol: &'static str,
    probes: u32,
    lost: u32,
    rtt_p50_seconds: Option<f64>,
}

/// A pair of zones. The losses are those of the protocol that lost most.
#[derive(Serialize)]
struct PairOf<'a> {
    source_zone: &'a str,
    peer_zone: &'a str,
    #[serde(flatten)]
    losses: ProtocolLosses,
    links: u32,
    losing_links: u32,
    rtt_p50_seconds: Option<f64>,
}

/// The losses of the protocol that lost most.
#[derive(Serialize)]
struct ProtocolLosses {
    network: Network,
    protocol: &'static str,
    probes: u32,
    lost: u32,
}

#[derive(Serialize)]
struct NodeOf<'a> {
    node: &'a str,
    zone: &'a str,
    report: RowPresence,
    standing: Standing,
    out: Option<ProtocolLosses>,
    #[serde(rename = "in")]
    inbound: Option<ProtocolLosses>,
    watchers: u16,
    rtt_p50_seconds: Option<f64>,
    rtt_p99_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    send_error_reason: Option<SendError>,
}

impl NodesBody {
    /// Writes what `judge` keeps, which is `age_seconds` old.
    pub fn new(nodes: Arc<KeptNodes>, judge: Arc<str>, age_seconds: f64) -> Self {
        let age_seconds = (age_seconds * 10.0).round() / 10.0;
        Self { nodes, judge, age_seconds, written: 0, has_pair: false, place: NamePosition::default() }
    }

    /// Appends the piece, if there is room for it. `None` if there is no such piece.
    fn piece(&mut self, out: &mut Vec<u8>) -> Option<bool> {
        let nodes = &self.nodes;
        let (links, all) = (nodes.worst.len(), nodes.entries.len());
        let pairs = links + nodes.pairs.len();
        let zone_name = |zone: usize| nodes.zones.get(zone).map_or("", |zone| zone);
        let has_room =
            |out: &Vec<u8>, names: usize| out.capacity() - out.len() >= names * ESCAPED_BYTES + FIGURES_BYTES;
        match self.written {
            0 => {
                if !has_room(out, self.judge.len()) {
                    return Some(false);
                }
                let (age_seconds, not_listed) = (self.age_seconds, nodes.not_listed);
                write(out, &BodyHead { judge: &self.judge, age_seconds, nodes: all, not_listed });
                // The brace of the head is closed by the last piece.
                out.pop();
                out.extend_from_slice(b",\"worst\":[\n");
            }
            piece if piece <= links => {
                let link = &nodes.worst[piece - 1];
                if !has_room(out, link.source.len() + link.peer.len()) {
                    return Some(false);
                }
                comma(out, piece > 1);
                write(out, &LinkOf::new(&link.source, &link.peer, link.cell));
                out.push(b'\n');
            }
            piece if piece <= pairs => {
                let at = piece - links - 1;
                let ([source, peer], pair) = nodes.pairs.get(at)?;
                let (source, peer) = (zone_name(source), zone_name(peer));
                if !has_room(out, source.len() + peer.len()) {
                    return Some(false);
                }
                if at == 0 {
                    out.extend_from_slice(b"],\"zone_pairs\":[\n");
                }
                if let Some(losses) = ProtocolLosses::from_count(pair.total.count, pair.layer) {
                    comma(out, self.has_pair);
                    write(out, &PairOf::new([source, peer], losses, pair));
                    out.push(b'\n');
                    self.has_pair = true;
                }
            }
            piece if piece <= pairs + all => {
                let at = piece - pairs - 1;
                let entry = nodes.entries[at];
                let zone = zone_name(entry.zone.into());
                if !has_room(out, NAME_BYTES_MAX + zone.len()) {
                    return Some(false);
                }
                if at == 0 {
                    out.extend_from_slice(b"],\"rows\":[\n");
                }
                self.place.next(&nodes.names);
                comma(out, at > 0);
                write(out, &NodeOf::new(self.place.name(), zone, &entry));
                out.push(b'\n');
            }
            piece if piece == pairs + all + 1 => {
                if !has_room(out, 0) {
                    return Some(false);
                }
                out.extend_from_slice(if all == 0 { b"],\"rows\":[]}\n" } else { b"]}\n" });
            }
            _ => return None,
        }
        self.written += 1;
        Some(true)
    }
}

impl Render for NodesBody {
    fn render(&mut self, out: &mut Vec<u8>) -> bool {
        loop {
            match self.piece(out) {
                Some(true) => {}
                Some(false) => return true,
                None => return false,
            }
        }
    }
}

impl<'a> LinkOf<'a> {
    fn new(source: &'a str, peer: &'a str, cell: Cell) -> Self {
        let layer = cell.layer();
        let families = match layer {
            Layer::Icmp | Layer::Nodes => ["icmp", "icmpv6"],
            Layer::Udp => ["udp", "udpv6"],
            Layer::Tcp => ["tcp", "tcpv6"],
        };
        let protocol = families[usize::from(cell.is_over_ipv6())];
        let (probes, lost, rtt_p50_seconds) = (cell.probes(), cell.lost(), seconds(cell.rtt_code()));
        Self { source, peer, network: layer.network(), protocol, probes, lost, rtt_p50_seconds }
    }
}

impl<'a> PairOf<'a> {
    fn new([source_zone, peer_zone]: [&'a str; 2], losses: ProtocolLosses, pair: &KeptZonePair) -> Self {
        let KeptZonePair { total: Total { links, losing: losing_links, .. }, rtt_code, .. } = *pair;
        Self { source_zone, peer_zone, losses, links, losing_links, rtt_p50_seconds: seconds(rtt_code) }
    }
}

impl ProtocolLosses {
    fn from_count(count: LossCount, layer: Layer) -> Option<Self> {
        let LossCount { probes, lost } = count;
        (probes > 0).then(|| Self { network: layer.network(), protocol: layer.method().label(), probes, lost })
    }
}

impl<'a> NodeOf<'a> {
    fn new(node: &'a str, zone: &'a str, entry: &NodeEntry) -> Self {
        let NodeEntry { presence: report, standing, watchers, layers: [out, inbound], .. } = *entry;
        let (out, inbound) =
            (ProtocolLosses::from_count(entry.out, out), ProtocolLosses::from_count(entry.inbound, inbound));
        let [rtt_p50_seconds, rtt_p99_seconds] = [entry.rtt_code, entry.rtt_p99_code].map(seconds);
        let send_error_reason = entry.unsent;
        Self {
            node,
            zone,
            report,
            standing,
            out,
            inbound,
            watchers,
            rtt_p50_seconds,
            rtt_p99_seconds,
            send_error_reason,
        }
    }
}

/// Returns the round-trip time of a cell's code in seconds, in steps of a tenth of a microsecond.
fn seconds(code: u16) -> Option<f64> {
    rtt_us(code).map(|us| (f64::from(us) * 10.0).round() / 1e7)
}

fn comma(out: &mut Vec<u8>, follows: bool) {
    if follows {
        out.push(b',');
    }
}

/// Serializing these types cannot fail.
fn write(out: &mut Vec<u8>, value: &impl Serialize) {
    let _ = serde_json::to_writer(out, value);
}
