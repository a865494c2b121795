//! What is kept of single links beside the cells: the directions of UDP losses, flows that lose,
//! and packets that are too large. Most links have none of these.

use kube_canary_kernel::region::List;
use kube_canary_model::limits::{FLOW_NATS_MIN, FLOWS_MAX};
use kube_canary_model::report::{Flows, HoleNotice, Peer, RecentPeer, Way};

/// Largest number of links whose flows are kept: some of each pair of a mesh of 300 that probes 24.
const KEPT_MAX: usize = 4_096;
/// A reflector that counted less than this share of what a peer should have sent has missed some.
const HEARD_SHARE: f64 = 0.9;
/// The count of a reflector that is not known.
const NOT_HEARD: u16 = u16::MAX;

/// Evidence of a flow that loses while the others of its link do not, in tenths of a nat.
pub const SURE: u8 = 10 * FLOW_NATS_MIN;

/// Where a source's UDP probes to a peer were lost, in the recent window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkWays {
    /// Number of the node that measured.
    pub source: u16,
    /// Number of the node that was probed.
    pub peer: u16,
    /// Whether it was probed over IPv6. Each family may lose alone, or in a direction of its own.
    pub over_ipv6: bool,
    /// Number of probes that were lost on the way to the peer.
    pub there: u16,
    /// Number of probes whose answer was lost.
    pub back: u16,
    /// Number of lost probes in all.
    pub lost: u16,
    /// Number of probes that were sent.
    pub sent: u16,
    /// Time covered, in seconds.
    pub seconds: u16,
    heard: u16,
}

impl LinkWays {
    /// Returns the number of requests of the peer that the source's reflector counted.
    pub fn heard(&self) -> Option<u16> {
        (self.heard != NOT_HEARD).then_some(self.heard)
    }
}

/// The flows of a link that lose, or may lose, while the others do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LosingFlows {
    /// Number of the node that measured.
    pub source: u16,
    /// Number of the node that was probed.
    pub peer: u16,
    /// The source port of the flow that is listed with the most losses.
    pub source_port: u16,
    /// Number of flows of the link that are probed.
    pub probed: u8,
    /// Number of flows that lose.
    pub losing: u8,
    /// Number of the flow's last probes, and how many of them were lost.
    pub probes: u8,
    /// Number of them that were lost.
    pub lost: u8,
    /// Where they were lost.
    pub way: Way,
    /// Number of probes of these flows that were answered since the last loss of any of them.
    /// 0 if they lose now, or if it is not known.
    pub answered: u8,
    /// Time since that loss was known, in seconds.
    pub answered_seconds: u8,
    /// The evidence in tenths of a nat, at most [`SURE`]. With less, chance explains it.
    pub decinats: u8,
}

impl LosingFlows {
    /// Whether the evidence is enough without that of other links.
    pub const fn is_sure(&self) -> bool {
        self.decinats >= SURE
    }
}

/// A link that large packets do not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// Number of the node that measured.
    pub source: u16,
    /// Number of the node that was probed.
    pub peer: u16,
    /// Size of the largest packet that passes.
    pub passes_bytes: u16,
    /// Where larger packets are lost.
    pub way: Way,
    /// What the network says of them.
    pub said: HoleNotice,
}

/// The tables of what single links have.
#[derive(Debug)]
pub(super) struct LinkTables {
    /// The directions of the losses.
    pub ways: List<LinkWays>,
    /// The links of which some flows lose, or may lose.
    pub flows: List<LosingFlows>,
    /// The links that large packets do not pass.
    pub holes: List<Hole>,
    /// Whether some ways did not fit.
    pub are_ways_cut: bool,
}

impl LinkTables {
    /// Makes empty tables that take at most this many bytes.
    pub fn new(bytes: usize) -> Self {
        let ways = List::new(bytes / size_of::<LinkWays>());
        let flows = List::new((bytes / size_of::<LosingFlows>()).min(KEPT_MAX));
        // All: those of a part of a mesh would be taken for what its nodes have in common.
        let holes = List::new(bytes / size_of::<Hole>());
        Self { ways, flows, holes, are_ways_cut: false }
    }

    /// Adds what a source says of a UDP peer, as far as there is room. Returns whether some flows
    /// explain the losses of the link: at most half of them lose.
    pub fn add(&mut self, source: u16, number: u16, peer: &Peer<'_>, room: usize) -> bool {
        let is_room = |bytes: usize| room >= bytes;
        if let Some(hole) = peer.mtu_hole.filter(|_| is_room(size_of::<Hole>())) {
            let (passes_bytes, way, said) = (hole.passes_bytes, hole.direction, hole.said);
            let _ = self.holes.push(Hole { source, peer: number, passes_bytes, way, said });
        }
        let room = room.saturating_sub(size_of::<Hole>());
        let losing = peer.flows.as_ref().and_then(|flows| losing(source, number, flows));
        if let Some(losing) = losing.filter(|_| room >= size_of::<LosingFlows>()) {
            let explains = self.flows.push(losing) && losing.is_sure();
            // Its losses have another cause, but it may also have heard too little of the peer.
            let lost = if losing.is_sure() { 0 } else { peer.recent.lost };
            let recent = RecentPeer { lost, ..peer.recent };
            self.add_ways((source, number), peer, &recent, room - size_of::<LosingFlows>());
            return explains;
        }
        self.add_ways((source, number), peer, &peer.recent, room);
        false
    }

    fn add_ways(&mut self, (source, number): (u16, u16), peer: &Peer<'_>, recent: &RecentPeer, room: usize) {
        let (heard, over_ipv6) = (peer.heard, peer.protocol.is_over_ipv6());
        let short = |count: u32| u16::try_from(count).unwrap_or(NOT_HEARD - 1).min(NOT_HEARD - 1);
        let expected = f64::from(recent.sent) * HEARD_SHARE;
        let has_missed = heard.is_some_and(|heard| f64::from(heard) < expected);
        let is_known = recent.lost_there.is_some() || recent.lost_back.is_some() || heard.is_some();
        if !is_known || recent.lost == 0 && !has_missed {
            return;
        }
        let lost = short(recent.lost);
        let there = short(recent.lost_there.unwrap_or_default()).min(lost);
        let back = short(recent.lost_back.unwrap_or_default()).min(lost - there);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded, and the cast saturates")]
        let seconds = recent.seconds.clamp(0.0, 3_600.0).round() as u16;
        let heard = heard.map_or(NOT_HEARD, short);
        let sent = short(recent.sent);
        let ways = LinkWays { source, peer: number, over_ipv6, there, back, lost, sent, seconds, heard };
        self.are_ways_cut |= room < size_of::<LinkWays>() || !self.ways.push(ways);
    }

    /// Returns the bytes in use.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.ways[..]) + size_of_val(&self.flows[..]) + size_of_val(&self.holes[..])
    }
}

/// Returns what a report says of the flows of a link. `None` if they are well, or if it cannot be.
fn losing(source: u16, peer: u16, flows: &Flows) -> Option<LosingFlows> {
    let most = flows.probed / 2;
    if flows.probed > FLOWS_MAX || flows.losing_count > most {
        return None;
    }
    let losing_flows = |source_port, losing, (probes, lost): (u8, u8), way, decinats| {
        let probes = probes.max(lost);
        let Flows { probed, answered, answered_seconds, .. } = *flows;
        LosingFlows {
            source,
            peer,
            source_port,
            probed,
            losing,
            probes,
            lost,
            way,
            answered,
            answered_seconds,
            decinats,
        }
    };
    if flows.losing_count > 0 {
        let worst = flows.losing.iter().max_by_key(|flow| flow.lost)?;
        let counts = (worst.probes, worst.lost);
        return Some(losing_flows(worst.source_port, flows.losing_count, counts, worst.direction, SURE));
    }
    let suspect = flows.suspect.filter(|flow| most > 0 && flow.decinats > 0)?;
    let decinats = suspect.decinats.min(SURE - 1);
    Some(losing_flows(suspect.source_port, 1, (suspect.probes, suspect.lost), suspect.direction, decinats))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_canary_model::report::{LosingFlow, MtuHole, Suspect};

    const ROOM: usize = 1_000;

    fn peer(lost: u32, there: u32, back: u32, heard: Option<u32>) -> Peer<'static> {
        let (lost_there, lost_back) = (Some(there), Some(back));
        let received = 60_u32.saturating_sub(lost);
        let recent =
            RecentPeer { seconds: 60.0, sent: 60, received, lost, lost_there, lost_back, ..RecentPeer::default() };
        Peer { recent, heard, ..Peer::default() }
    }

    #[test]
    fn only_links_that_lose_or_hear_too_little_are_kept_and_more_than_is_lost_is_not_believed() {
        let mut links = LinkTables::new(10_000);
        links.add(1, 2, &peer(0, 0, 0, Some(60)), ROOM);
        links.add(1, 2, &Peer { recent: RecentPeer { lost: 9, ..RecentPeer::default() }, ..Peer::default() }, ROOM);
        assert!(links.ways.is_empty());
        links.add(1, 2, &peer(0, 0, 0, Some(30)), ROOM);
        links.add(1, 3, &peer(5, 70, 9, None), ROOM);
        let kept: Vec<_> =
            links.ways.iter().map(|ways| (ways.peer, ways.lost, ways.there, ways.back, ways.heard())).collect();
        assert_eq!(kept, [(2, 0, 0, 0, Some(30)), (3, 5, 5, 0, None)]);
        links.add(1, 4, &peer(u32::MAX, u32::MAX, u32::MAX, Some(u32::MAX)), ROOM);
        assert_eq!(links.ways[2].heard(), Some(u16::MAX - 1));
        assert!(!links.are_ways_cut);
        links.add(1, 5, &peer(5, 5, 0, None), 0);
        assert!(links.ways.len() == 3 && links.are_ways_cut, "there is no room");
    }

    #[test]
    fn losses_of_at_most_half_of_the_flows_are_theirs() {
        let with = |probed, losing_count, listed: usize| {
            let flow = LosingFlow { source_port: 40_312, lost: 5, probes: 8, direction: Way::Out };
            let flows =
                Some(Flows { probed, losing_count, losing: vec![flow; listed], suspect: None, ..Flows::default() });
            let mut links = LinkTables::new(10_000);
            let explained = links.add(1, 2, &Peer { flows: flows.clone(), ..peer(4, 4, 0, None) }, ROOM);
            assert_eq!((links.flows.len(), links.ways.len()), (usize::from(explained), usize::from(!explained)));
            links.add(2, 1, &Peer { flows, ..peer(4, 4, 0, Some(30)) }, ROOM);
            let of_second = links.ways.last().map(|ways| (ways.source, ways.lost, ways.heard()));
            assert_eq!(of_second, Some((2, if explained { 0 } else { 4 }, Some(30))), "what it has heard is kept");
            explained
        };
        assert_eq!(
            [with(16, 1, 1), with(16, 8, 4), with(16, 9, 4), with(16, 1, 0), with(16, 0, 0)],
            [true, true, false, false, false]
        );
    }

    #[test]
    fn the_flow_that_lost_most_stands_for_its_link_and_more_flows_than_there_are_say_nothing() {
        let flow = |source_port, lost| LosingFlow { source_port, lost, probes: 30, direction: Way::Out };
        let mut links = LinkTables::new(10_000);
        for (number, probed) in [(2, 16), (3, 17), (4, 255)] {
            let losing = vec![flow(1, 4), flow(2, 20), flow(3, 9)];
            let flows = Some(Flows { probed, losing_count: 3, losing, suspect: None, ..Flows::default() });
            links.add(1, number, &Peer { flows, ..peer(4, 4, 0, None) }, ROOM);
        }
        let kept: Vec<_> = links.flows.iter().map(|flow| (flow.peer, flow.source_port, flow.lost)).collect();
        assert_eq!(kept, [(2, 2, 20)]);
    }

    #[test]
    fn a_flow_that_may_lose_is_kept_and_explains_no_loss() {
        let mut links = LinkTables::new(10_000);
        for (number, probed, decinats) in [(2, 16, 7), (3, 16, 255), (4, 16, 0), (5, 1, 7), (6, 255, 7)] {
            let (lost, probes, direction) = (9, 3, Way::Out);
            let suspect = Some(Suspect { source_port: 40_312, lost, probes, direction, decinats });
            let flows = Some(Flows { probed, losing_count: 0, losing: Vec::new(), suspect, ..Flows::default() });
            assert!(!links.add(1, number, &Peer { flows, ..peer(4, 4, 0, None) }, ROOM));
        }
        let kept: Vec<_> =
            links.flows.iter().map(|flow| (flow.peer, flow.losing, flow.lost, flow.probes, flow.decinats)).collect();
        assert_eq!(kept, [(2, 1, 9, 9, 7), (3, 1, 9, 9, SURE - 1)], "one that lost more than it sent is corrected");
        assert!(links.flows.iter().all(|flow| !flow.is_sure()) && links.ways.len() == 5);
    }

    #[test]
    fn tables_do_not_grow_beyond_their_limit() {
        let mut links = LinkTables::new(2 * KEPT_MAX * size_of::<Hole>());
        let mtu_hole = Some(MtuHole { passes_bytes: 1_300, direction: Way::Out, said: HoleNotice::Silent });
        for number in 0..10_000 {
            links.add(1, number, &Peer { mtu_hole, ..peer(0, 0, 0, None) }, ROOM);
        }
        assert_eq!((links.holes.len(), links.bytes()), (2 * KEPT_MAX, 2 * KEPT_MAX * size_of::<Hole>()));
    }
}
