//! Nodes whose source address the network rewrites, as masquerading does.
//!
//! Their UDP probes arrive from an address that is no member's, so that no agent answers them. No
//! packet is lost. A report of it may be false. So the probes count only with the session that the
//! source itself gives, in a number that fits what it misses, and if two nodes have heard them.

use std::net::Ipv6Addr;

use kube_canary_model::limits::INTERVAL_MIN;
use kube_canary_model::method::{Family, Methods};
use kube_canary_model::report::Network;
use kube_canary_model::verdict::{Confidence, Direction, Figure, Kind, Mention, Severity, Verdict};
use serde::{Deserialize, Serialize};

use super::agents::Standing;
use super::subject::{self, is_same_finding};
use crate::matrix::{Cell, Layer, Matrix, SessionOf, StrangerAt, cells_of_peer, stranger_text};

/// At least one of this many lost requests is heard. Both windows have 30 to 60 s.
const LOST_PER_HEARD: u32 = 3;
/// At most this many times the requests are heard that a source sends in the longest window. It
/// does not count the silence of a peer that is new to it as lost.
const TIMES: f32 = 1.5;
const WINDOW_SECONDS: f32 = 60.0;
/// This many nodes must have heard a source that sends to more than one.
const NODES_MIN: usize = 2;
/// Fewer requests of a stranger are not worth a note: an agent may be new in the list.
const NOTED_MIN: u16 = 10;

/// Requests that came from an address that is no member's, and that explain no loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrangersSeen {
    /// The first address, as text.
    pub address: String,
    /// The first node to which it sends.
    pub node: String,
    /// Number of further addresses and nodes.
    pub further: usize,
}

/// A link whose requests arrive from another address: the source, the peer, and whether it is over
/// IPv6.
type RewrittenLink = (u16, u16, bool);

/// A source whose address is rewritten.
#[derive(Debug)]
struct RewrittenSource {
    node: u16,
    seen: Ipv6Addr,
    listed: Option<Ipv6Addr>,
    over_ipv6: bool,
    /// Number of links on which its requests arrive so, and of all that it has by UDP.
    links: [u32; 2],
}

/// What reports tell of rewritten addresses.
#[derive(Debug, Default)]
pub struct Rewritten {
    sources: Vec<RewrittenSource>,
    /// All these links, in order.
    links: Vec<RewrittenLink>,
}

impl Rewritten {
    /// Returns what the reports of a mesh tell.
    pub fn find(matrix: &Matrix, standings: &[Standing]) -> Self {
        let is_evidence = |node: u16| standings[usize::from(node)].is_evidence_of_others();
        let mut found: Vec<(RewrittenLink, Ipv6Addr)> = Vec::new();
        let mut sessions: Vec<&SessionOf> =
            matrix.sessions().iter().filter(|session| is_evidence(session.node)).collect();
        sessions.sort_unstable_by_key(|session| session.ssid);
        for heard in matrix.strangers().iter().filter(|heard| is_evidence(heard.node)) {
            let from = sessions.partition_point(|session| session.ssid < heard.ssid);
            let alike = sessions[from..].iter().take_while(|session| session.ssid == heard.ssid);
            let link = |session: &&SessionOf| (session.node, heard.node, heard.is_over_ipv6());
            // Sessions have 15 bits. Two nodes may have the same one by chance.
            let mut fitting = alike.filter(|session| fits(matrix, session.node, heard)).map(link);
            if let Some(first) = fitting.next()
                && fitting.all(|other| other == first)
            {
                found.push((first, heard.address));
            }
        }
        found.sort_unstable();
        found.dedup_by_key(|(link, _)| *link);
        let mut rewritten = Self::default();
        for of_source in found.chunk_by(|(a, _), (b, _)| a.0 == b.0) {
            for over_ipv6 in [false, true] {
                let links: Vec<_> = of_source.iter().filter(|(link, _)| link.2 == over_ipv6).collect();
                let Some(((node, ..), seen)) = links.first().copied() else { continue };
                let all = udp_links(matrix, *node, over_ipv6);
                if links.len() < NODES_MIN.min(all) {
                    continue;
                }
                rewritten.links.extend(links.iter().map(|(link, _)| *link));
                let of_node = matrix.sessions().iter().filter(|session| session.node == *node);
                let listed = of_node
                    .filter_map(|session| session.address)
                    .find(|address| address.to_ipv4_mapped().is_none() == over_ipv6);
                let links = [links.len(), all].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
                rewritten.sources.push(RewrittenSource { node: *node, seen: *seen, listed, over_ipv6, links });
            }
        }
        rewritten.links.sort_unstable();
        rewritten
    }

    /// Whether the losses of a link by UDP are none.
    #[inline]
    pub fn has(&self, link: RewrittenLink) -> bool {
        !self.links.is_empty() && self.links.binary_search(&link).is_ok()
    }

    /// Adds a verdict for each of these sources.
    pub fn add(&self, matrix: &Matrix, verdicts: &mut Vec<Verdict>) {
        // An agent whose list does not have a new address yet takes its requests for a stranger's.
        for source in self.sources.iter().filter(|source| source.listed != Some(source.seen)) {
            let is_of_family = |over_ipv6: bool| udp_links(matrix, source.node, over_ipv6) > 0;
            let of_family = if source.over_ipv6 { Family::V6 } else { Family::V4 };
            let subject = subject::from_name(matrix.name(source.node));
            let mut verdict = Verdict::new(Kind::Node, subject, Network::Pod);
            verdict.direction = Direction::Out;
            verdict.protocol = Some(Methods::UDP);
            verdict.family = (is_of_family(false) && is_of_family(true)).then_some(of_family);
            (verdict.confidence, verdict.severity) = (Confidence::Certain, Severity::Warning);
            verdict.figures.set(Figure::Rewritten, source.links[0].into());
            verdict.figures.set(Figure::RewrittenOf, source.links[1].into());
            verdict.weight = source.links[0].into();
            verdict = verdict.mentioning(Mention::SeenAs, &stranger_text(source.seen));
            if let Some(listed) = source.listed {
                verdict = verdict.mentioning(Mention::ListedAs, &stranger_text(listed));
            }
            // What it loses beside that is a fault, and the graver verdict stays.
            if !verdicts.iter().any(|other| is_same_finding(other, &verdict)) {
                verdicts.push(verdict);
            }
        }
    }

    /// Returns the strangers that explain no loss. `None` if there are none.
    pub fn others(&self, matrix: &Matrix) -> Option<StrangersSeen> {
        let is_of_source = |heard: &StrangerAt| self.sources.iter().any(|source| source.seen == heard.address);
        let others = matrix.strangers().iter().filter(|heard| heard.requests >= NOTED_MIN && !is_of_source(heard));
        let mut others: Vec<(Ipv6Addr, &str)> = others.map(|heard| (heard.address, matrix.name(heard.node))).collect();
        others.sort_unstable();
        let (address, node) = others.first()?;
        Some(StrangersSeen { address: stranger_text(*address), node: (*node).to_owned(), further: others.len() - 1 })
    }
}

/// Whether the requests that a node has heard are those that a source misses answers to. A node has
/// no cells of itself.
fn fits(matrix: &Matrix, source: u16, heard: &StrangerAt) -> bool {
    let is_it = |cell: &&Cell| (cell.layer(), cell.is_over_ipv6()) == (Layer::Udp, heard.is_over_ipv6());
    let lost = cells_of_peer(matrix.cells(source), heard.node).iter().find(is_it).map_or(0, |cell| cell.lost());
    let interval = matrix.row(source).and_then(|row| row.facts.interval_seconds.get()).unwrap_or(1.0);
    let most = TIMES * WINDOW_SECONDS / interval.max(INTERVAL_MIN.as_secs_f32());
    lost > 0 && u32::from(heard.requests) * LOST_PER_HEARD >= lost && f32::from(heard.requests) <= most
}

fn udp_links(matrix: &Matrix, node: u16, over_ipv6: bool) -> usize {
    let parts = matrix.cells(node).iter().flat_map(|cell| cell.parts());
    parts.filter(|part| (part.layer(), part.is_over_ipv6()) == (Layer::Udp, over_ipv6)).count()
}
