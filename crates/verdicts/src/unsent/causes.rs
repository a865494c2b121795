//! What cannot be sent, as causes: the smallest parts of the mesh that explain the links.
//!
//! A refusal is certain, so no likelihood is needed. The part that explains most links comes first,
//! if nearly all of its links cannot be sent over, and then the part that explains most of the
//! rest. A part of one network and one address family is compared with the links of these alone.

use std::cmp::Reverse;

use crate::causes::CAUSES_MAX;
use crate::matrix::{Layer, Matrix, UnsentLink, ZONE_UNKNOWN};
use crate::pairs::NetworkScope;
use crate::slices::{Slice, yield_now};
use crate::subject;
use kube_canary_model::method::Family;
use kube_canary_model::report::{Methods, Network, SendError};
use kube_canary_model::verdict::{Confidence, Direction, Figure, Kind, Severity, Verdict};

/// A part of the mesh is a cause if probes cannot be sent over this share of its links.
const SHARE: [u32; 2] = [4, 5];
/// This many of its links cannot be sent over if it is a node, and if it is a zone.
const OF_NODE_MIN: u32 = 2;
const OF_ZONE_MIN: u32 = 3;
/// All links of the mesh are a cause from this many nodes that cannot send on.
const SOURCES_MIN: usize = 3;

/// A part of the mesh, and the way of the probes. Of parts that explain the same, the first is the
/// simplest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MeshPart {
    /// What a node sends.
    From(u16),
    /// What is sent to a node.
    To(u16),
    /// What is sent from one zone to another.
    Zones(u8, u8),
    /// What is sent between two zones, the lower number first.
    Between(u8, u8),
    /// What a zone sends to all others.
    FromZone(u8),
    /// What is sent to a zone from all others.
    ToZone(u8),
    /// What a zone sends to all others, and is sent by them.
    Zone(u8),
    /// All links of the mesh.
    Mesh,
    /// What a node sends to another.
    Link(u16, u16),
}

/// Links by the parts that they are of.
#[derive(Clone, Debug)]
struct PartCounts {
    from: Vec<u32>,
    to: Vec<u32>,
    /// By the zone of the source, and then of the peer.
    zones: Vec<u32>,
    zone_count: usize,
}

impl PartCounts {
    fn new(matrix: &Matrix) -> Self {
        let (nodes, zone_count) = (matrix.node_count(), matrix.zone_count());
        Self { from: vec![0; nodes], to: vec![0; nodes], zones: vec![0; zone_count * zone_count], zone_count }
    }

    fn add(&mut self, matrix: &Matrix, source: u16, peer: u16) {
        self.from[usize::from(source)] += 1;
        self.to[usize::from(peer)] += 1;
        let zone = |node: u16| usize::from(matrix.get(node).zone);
        self.zones[zone(source) * self.zone_count + zone(peer)] += 1;
    }

    fn count(&self, part: MeshPart) -> u32 {
        let between = |a: u8, b: u8| self.zones[usize::from(a) * self.zone_count + usize::from(b)];
        let others =
            |zone: u8| (0..u8::try_from(self.zone_count).unwrap_or(u8::MAX)).filter(move |other| *other != zone);
        match part {
            MeshPart::From(node) => self.from[usize::from(node)],
            MeshPart::To(node) => self.to[usize::from(node)],
            MeshPart::Zones(a, b) => between(a, b),
            MeshPart::Between(a, b) => between(a, b) + between(b, a),
            MeshPart::FromZone(zone) => others(zone).map(|other| between(zone, other)).sum(),
            MeshPart::ToZone(zone) => others(zone).map(|other| between(other, zone)).sum(),
            MeshPart::Zone(zone) => self.count(MeshPart::FromZone(zone)) + self.count(MeshPart::ToZone(zone)),
            MeshPart::Mesh => self.from.iter().sum(),
            MeshPart::Link(..) => 1,
        }
    }
}

/// A link of one network and family.
#[derive(Clone, Copy, Debug)]
struct FamilyLink {
    source: u16,
    peer: u16,
    reason: SendError,
    layers: u8,
    /// The share of its probes that cannot be sent, in percent.
    percent: u8,
}

/// A part over whose links probes cannot be sent.
#[derive(Debug)]
struct UnsentCause {
    part: MeshPart,
    /// The address family, if the other one is probed as well.
    family: Option<Family>,
    reason: SendError,
    layers: u8,
    /// Number of links over which probes cannot be sent, and of all links.
    links: [u32; 2],
    /// The share of the probes that cannot be sent over the median of these links, in percent.
    percent: u8,
}

/// The links of one network and one family.
struct FamilyLinks<'m> {
    matrix: &'m Matrix,
    all: PartCounts,
    refused: PartCounts,
    /// Those that no cause explains yet.
    unsent: Vec<FamilyLink>,
    /// The layers that are probed.
    layers: u8,
}

/// Adds what cannot be sent to the verdicts: to the one that is over the same part of the mesh, or
/// as a verdict of its own.
pub async fn add(scope: &NetworkScope<'_>, verdicts: &mut Vec<Verdict>) {
    let matrix = scope.matrix;
    if matrix.unsent().is_empty() {
        return;
    }
    for network in [Network::Pod, Network::Node] {
        let [mut v4, mut v6] =
            [FamilyLinks::collect(scope, network, false).await, FamilyLinks::collect(scope, network, true).await];
        let layers = v4.layers | v6.layers;
        let are_both = v4.all.count(MeshPart::Mesh) > 0 && v6.all.count(MeshPart::Mesh) > 0;
        let mut causes = v4.causes(are_both.then_some(Family::V4)).await;
        for cause in v6.causes(are_both.then_some(Family::V6)).await {
            match causes.iter_mut().find(|other| (other.part, other.reason) == (cause.part, cause.reason)) {
                Some(same) => {
                    (same.family, same.layers) = (None, same.layers | cause.layers);
                    same.links = [0, 1].map(|place| same.links[place].max(cause.links[place]));
                    same.percent = same.percent.max(cause.percent);
                }
                None => causes.push(cause),
            }
        }
        // What one cannot send to the other, and the other to the one.
        for at in (0..causes.len()).rev() {
            let MeshPart::Link(a, b) = causes[at].part else { continue };
            let UnsentCause { family, layers, reason, percent, .. } = causes[at];
            let back = |cause: &UnsentCause| {
                (cause.part, cause.family, cause.layers, cause.reason) == (MeshPart::Link(b, a), family, layers, reason)
            };
            if let Some(place) = causes[..at].iter().position(back) {
                let links = causes[at].links;
                causes[place].links = [0, 1].map(|of| causes[place].links[of] + links[of]);
                causes[place].percent = causes[place].percent.max(percent);
                causes.remove(at);
            }
        }
        for cause in &causes {
            add_one(cause.verdict(matrix, network, layers), verdicts);
        }
    }
}

/// Whether the agent that collected the reports cannot send to a node, and so cannot ask for its
/// report.
pub fn hides_report(matrix: &Matrix, node: u16) -> bool {
    let collector = matrix.collector();
    let is_of_pods = |link: &UnsentLink| link.layers & Layer::all_of(Network::Pod) != 0;
    matrix.unsent().iter().any(|link| Some(link.source) == collector && link.peer == node && is_of_pods(link))
}

/// Adds the reason to the verdict over what the same part loses. Where a kernel refuses what its
/// agent sends, it refuses its own answers as well, so that others lose what they send there.
fn add_one(verdict: Verdict, verdicts: &mut Vec<Verdict>) {
    let is_same = |other: &&mut Verdict| {
        let of = |verdict: &Verdict| (verdict.kind, verdict.network, verdict.clone().in_order().subject);
        other.is_loss()
            && other.reason.is_none()
            && of(other) == of(&verdict)
            && are_compatible(other.protocol, verdict.protocol)
            && are_compatible(other.family, verdict.family)
    };
    match verdicts.iter_mut().find(is_same) {
        Some(same) => {
            same.reason = verdict.reason;
            same.figures.complete(&verdict.figures);
            same.severity = same.severity.max(verdict.severity);
        }
        None => verdicts.push(verdict),
    }
}

/// Whether both may be about the same: at least one is about all, or they are equal.
fn are_compatible<T: PartialEq + Copy>(one: Option<T>, other: Option<T>) -> bool {
    one.is_none() || other.is_none() || one == other
}

impl<'m> FamilyLinks<'m> {
    async fn collect(scope: &NetworkScope<'m>, network: Network, over_ipv6: bool) -> Self {
        let matrix = scope.matrix;
        let of_network = Layer::all_of(network);
        let is_evidence = |node: u16| scope.standings[usize::from(node)].is_evidence_of_others();
        let mut links = Self {
            matrix,
            all: PartCounts::new(matrix),
            refused: PartCounts::new(matrix),
            unsent: Vec::new(),
            layers: 0,
        };
        let mut slice = Slice::default();
        // They are in the order of the rows, and not of the numbers.
        let mut by_source: Vec<&[UnsentLink]> = vec![&[]; matrix.node_count()];
        for of_source in matrix.unsent().chunk_by(|a, b| a.source == b.source) {
            by_source[usize::from(of_source[0].source)] = of_source;
        }
        for source in matrix.numbers().filter(|node| is_evidence(*node)) {
            let (cells, own) = (matrix.cells(source), by_source[usize::from(source)]);
            slice.add(cells.len() + own.len()).await;
            let of_these = own.iter().filter(|link| link.over_ipv6 == over_ipv6 && link.layers & of_network != 0);
            let of_these = of_these.filter(|link| is_evidence(link.peer)).map(|link| {
                let UnsentLink { peer, reason, layers, percent, .. } = *link;
                FamilyLink { source, peer, reason, layers: layers & of_network, percent }
            });
            let mut unsent: Vec<FamilyLink> = of_these.collect();
            unsent.sort_by_key(|link| link.peer);
            unsent.dedup_by(|later, first| {
                let is_same = later.peer == first.peer;
                if is_same {
                    (first.layers, first.percent) = (first.layers | later.layers, first.percent.max(later.percent));
                }
                is_same
            });
            for of_peer in cells.chunk_by(|a, b| a.peer() == b.peer()) {
                let parts = of_peer.iter().flat_map(|cell| cell.parts());
                let sent = parts
                    .filter(|part| part.is_over_ipv6() == over_ipv6)
                    .fold(0, |set, part| set | part.layer().bit() & of_network);
                let peer = of_peer[0].peer();
                links.layers |= sent;
                let is_refused = unsent.binary_search_by_key(&peer, |link| link.peer).is_ok();
                if !is_refused && sent != 0 && is_evidence(peer) {
                    links.all.add(matrix, source, peer);
                }
            }
            for link in unsent {
                links.layers |= link.layers;
                links.all.add(matrix, source, link.peer);
                links.refused.add(matrix, source, link.peer);
                links.unsent.push(link);
            }
        }
        links
    }

    /// Takes out the causes one by one, each of which explains most of what is left.
    async fn causes(&mut self, family: Option<Family>) -> Vec<UnsentCause> {
        let mut causes = Vec::new();
        while !self.unsent.is_empty() && causes.len() < CAUSES_MAX {
            yield_now().await;
            let part = self.widest();
            let (of_part, rest): (Vec<FamilyLink>, Vec<FamilyLink>) =
                self.unsent.iter().partition(|link| part.has(self.matrix, link.source, link.peer));
            let count = |reason: SendError| of_part.iter().filter(|link| link.reason == reason).count();
            let reason = SendError::ALL.into_iter().max_by_key(|reason| (count(*reason), Reverse(*reason)));
            let mut percents: Vec<u8> = of_part.iter().map(|link| link.percent).collect();
            percents.sort_unstable();
            causes.push(UnsentCause {
                part,
                family,
                reason: reason.unwrap_or(SendError::Other),
                layers: of_part.iter().fold(0, |set, link| set | link.layers),
                links: [u32::try_from(of_part.len()).unwrap_or(u32::MAX), self.all.count(part)],
                percent: percents.get(percents.len() / 2).copied().unwrap_or(100),
            });
            self.unsent = rest;
        }
        causes
    }

    /// Returns the part that explains most links, and of several the simplest.
    fn widest(&self) -> MeshPart {
        let mut left = PartCounts::new(self.matrix);
        self.unsent.iter().for_each(|link| left.add(self.matrix, link.source, link.peer));
        // Nodes without a zone have nothing in common.
        let zones = ZONE_UNKNOWN + 1..u8::try_from(self.all.zone_count).unwrap_or(u8::MAX);
        let of_nodes = self.matrix.numbers().flat_map(|node| [MeshPart::From(node), MeshPart::To(node)]);
        let of_zones =
            zones.clone().flat_map(|zone| [MeshPart::FromZone(zone), MeshPart::ToZone(zone), MeshPart::Zone(zone)]);
        let two = zones.clone().flat_map(|a| zones.clone().filter(move |b| *b != a).map(move |b| (a, b)));
        let of_two = two.flat_map(|(a, b)| [MeshPart::Zones(a, b), MeshPart::Between(a.min(b), a.max(b))]);
        let sources = left.from.iter().filter(|links| **links > 0).count();
        let of_all = (sources >= SOURCES_MIN).then_some(MeshPart::Mesh);
        let is_cause = |part: &MeshPart| {
            // A link that another cause explains is no evidence against this one.
            let (refused, all) = (self.refused.count(*part), self.all.count(*part));
            let least = if matches!(part, MeshPart::From(_) | MeshPart::To(_)) { OF_NODE_MIN } else { OF_ZONE_MIN };
            left.count(*part) >= least
                && u64::from(refused) * u64::from(SHARE[1]) >= u64::from(all) * u64::from(SHARE[0])
        };
        let wide = of_nodes.chain(of_zones).chain(of_two).chain(of_all).filter(is_cause);
        // Judges number nodes and zones each in its own order, and must name the same first.
        let link = self.unsent.iter().min_by_key(|link| [link.source, link.peer].map(|node| self.matrix.name(node)));
        let link = link.map(|link| MeshPart::Link(link.source, link.peer));
        let simpler = |a: &MeshPart, b: &MeshPart| {
            a.rank().cmp(&b.rank()).then_with(|| a.subject(self.matrix).1.cmp(&b.subject(self.matrix).1))
        };
        let widest = wide.max_by(|a, b| left.count(*a).cmp(&left.count(*b)).then_with(|| simpler(b, a)));
        widest.or(link).unwrap_or(MeshPart::Mesh)
    }
}

impl MeshPart {
    /// Returns its place among parts that explain as many links, the simplest first.
    const fn rank(self) -> u8 {
        match self {
            Self::From(_) => 0,
            Self::To(_) => 1,
            Self::Zones(..) => 2,
            Self::Between(..) => 3,
            Self::FromZone(_) => 4,
            Self::ToZone(_) => 5,
            Self::Zone(_) => 6,
            Self::Mesh => 7,
            Self::Link(..) => 8,
        }
    }

    fn has(self, matrix: &Matrix, source: u16, peer: u16) -> bool {
        let (from, to) = (matrix.get(source).zone, matrix.get(peer).zone);
        match self {
            Self::From(node) => node == source,
            Self::To(node) => node == peer,
            Self::Zones(a, b) => (a, b) == (from, to),
            Self::Between(a, b) => (a, b) == (from.min(to), from.max(to)),
            Self::FromZone(zone) => zone == from && zone != to,
            Self::ToZone(zone) => zone == to && zone != from,
            Self::Zone(zone) => (zone == from) != (zone == to),
            Self::Mesh => true,
            Self::Link(a, b) => (a, b) == (source, peer),
        }
    }

    fn subject(self, matrix: &Matrix) -> (Kind, String, Direction) {
        let zone = |zone: u8| matrix.zone_name(zone);
        let one = |zone: u8| subject::from_name(matrix.zone_name(zone));
        match self {
            Self::From(node) => (Kind::Node, subject::from_name(matrix.name(node)), Direction::Out),
            Self::To(node) => (Kind::Node, subject::from_name(matrix.name(node)), Direction::In),
            Self::Zones(a, b) => (Kind::ZonePair, subject::from_ends(zone(a), zone(b)), Direction::Out),
            Self::Between(a, b) => {
                let (a, b) = (zone(a).min(zone(b)), zone(a).max(zone(b)));
                (Kind::ZonePair, subject::from_ends(a, b), Direction::Both)
            }
            Self::FromZone(zone) => (Kind::Zone, one(zone), Direction::Out),
            Self::ToZone(zone) => (Kind::Zone, one(zone), Direction::In),
            Self::Zone(zone) => (Kind::Zone, one(zone), Direction::Both),
            Self::Mesh => (Kind::Mesh, "*".to_owned(), Direction::Both),
            Self::Link(a, b) => (Kind::Link, subject::from_ends(matrix.name(a), matrix.name(b)), Direction::Out),
        }
    }
}

impl UnsentCause {
    /// Returns the verdict. `probed` has the layers that are probed in the network.
    fn verdict(&self, matrix: &Matrix, network: Network, probed: u8) -> Verdict {
        let (kind, subject, direction) = self.part.subject(matrix);
        // Of a link that was joined with the one back.
        let direction = if kind == Kind::Link && self.links[1] > 1 { Direction::Both } else { direction };
        let layers = [(Layer::Icmp, Methods::ICMP), (Layer::Udp, Methods::UDP), (Layer::Tcp, Methods::TCP)];
        let of = |(layer, method): (Layer, Methods)| (self.layers == layer.bit()).then_some(method);
        let protocol = if self.layers == probed { None } else { layers.into_iter().find_map(of) };
        let mut verdict = Verdict { direction, protocol, family: self.family, ..Verdict::new(kind, subject, network) };
        (verdict.reason, verdict.confidence) = (Some(self.reason), Confidence::Certain);
        // As of a loss: echo requests are for probing alone.
        let is_grave = kind != Kind::Link && protocol != Some(Methods::ICMP);
        verdict.severity = if is_grave { Severity::Critical } else { Severity::Warning };
        verdict.weight = self.links[0].into();
        verdict.figures.set(Figure::Unsent, self.links[0].into());
        verdict.figures.set(Figure::UnsentOf, self.links[1].into());
        if self.percent < 100 {
            verdict.figures.set(Figure::UnsentRatio, f64::from(self.percent) / 100.0);
        }
        verdict
    }
}
