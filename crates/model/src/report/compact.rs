//! The compact form of a report, for judges: what the verdicts need, in some 20 bytes for a link.
//!
//! A judge of 5,000 nodes reads 330 reports a second, and each agent writes three in 15 s. As JSON,
//! a report of 24 peers by three methods has 43 KB, and in this form some 1 KB.
//!
//! It is a [`ReportHead`], which has the checks, and for each node a [`NodeHead`] with its
//! [`CompactPeer`]s, one after another as postcard writes them: a count has as many bytes as it
//! needs, and what is not there has one. Nodes are in ascending order of their hashes, and the
//! objects of a node in ascending order of their kinds, so none can be there twice. Moments are
//! ages, so a wrong clock shifts nothing.
//!
//! It comes from another pod and is not trusted. A report that has a byte too many or too few, an
//! order, a name or a value that cannot be, is refused as a whole. No list in it is longer than its
//! limit, so reading one takes no more memory than one of ours.

mod checks;
mod choice;
mod time_code;

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use super::{
    Flows, LosingFlow, MtuHole, Network, Peer, PeerState, Protocol, RecentPeer, RecentSource, SendError, Session,
    Source, Stranger, Suspect, TenMinutes, at_most,
};
use crate::check::{CHECKS_MAX, Check};
use crate::limits::STRANGERS_MAX;

use checks::{CHECK_BYTES_MAX, CompactCheck};
pub use choice::{Choice, Chosen, losses_beyond_chance};
use choice::{LOSERS_MAX, SAMPLE};
use time_code::{time_code, time_seconds};

/// The media type of this form. An agent that does not know it is of another version.
pub const MEDIA_TYPE: &str = "application/vnd.kube-canary.report;version=6";
/// Bytes of the longest compact report: of 512 peers by three methods, some of which lose, or of
/// 300 that all lose; and of all checks.
pub const BYTES_MAX: usize = 31 * 1_024;
const VERSION: u8 = 6;
/// Bytes of a name. A longer one is cut as it is written.
const NAME_MAX: usize = u8::MAX as usize;
/// Objects of one node: three methods at its pod and one at the node itself, each of two families.
const OBJECTS_MAX: usize = 8;
const PROTOCOLS: [Protocol; 6] =
    [Protocol::Icmp, Protocol::Icmpv6, Protocol::Udp, Protocol::Udpv6, Protocol::Tcp, Protocol::Tcpv6];
const STATES: [PeerState; 4] = [PeerState::Ready, PeerState::Unready, PeerState::Terminating, PeerState::Left];
/// Codes of protocol and network.
const PLACES: usize = Network::ALL.len() * PROTOCOLS.len();
/// Bytes of the longest object, and of the head of a node.
const OBJECT_BYTES_MAX: usize = 101;
const NODE_BYTES: usize = 9;
const _: () = assert!(
    1_024 + CHECKS_MAX * CHECK_BYTES_MAX + (SAMPLE + LOSERS_MAX) * (NODE_BYTES + OBJECTS_MAX * OBJECT_BYTES_MAX)
        <= BYTES_MAX
);

/// Why the bytes are not a compact report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a compact report")]
pub struct NotCompact;

/// Whether a client that sends this `Accept` header reads this form.
pub fn is_accepted(accept: &str) -> bool {
    accept.split(',').any(|range| range.trim() == MEDIA_TYPE)
}

/// The agent that measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ReportHead<'a> {
    version: u8,
    #[serde(borrow)]
    node: Cow<'a, str>,
    #[serde(borrow)]
    zone: Cow<'a, str>,
    interval_seconds: Option<f64>,
    listening_seconds: Option<f64>,
    members: Option<u64>,
    session: Option<Session>,
    #[serde(deserialize_with = "at_most::<_, STRANGERS_MAX, _>")]
    strangers: Vec<Stranger>,
    recent: RecentSource,
    /// In ascending order of their names.
    #[serde(borrow, deserialize_with = "at_most::<_, CHECKS_MAX, _>")]
    checks: Vec<CompactCheck<'a>>,
    /// Whether a peer has an address of loopback.
    is_on_loopback: bool,
    /// The time that most objects cover, in tenths of a second.
    deciseconds: u32,
    /// Number of peers that were left out, because there are too many.
    left_out: u64,
    /// Number of nodes that follow.
    nodes: u16,
}

/// A node of which something is reported.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct NodeHead {
    /// Hash of its name.
    #[serde(with = "postcard::fixint::be")]
    hash: u64,
    /// Number of objects that follow.
    objects: u8,
}

/// What is reported of a peer by one protocol.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct CompactPeer {
    kind: u8,
    sent: u32,
    received: u32,
    #[serde(with = "postcard::fixint::le")]
    rtt: u16,
    #[serde(with = "postcard::fixint::le")]
    usual_rtt: u16,
    heard: Option<u32>,
    rest: Option<Box<LossyPart>>,
}

/// What an object of a link without losses does not have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct LossyPart {
    losses: Option<LinkLosses>,
    /// Seconds since the loss began.
    age: Option<u64>,
    /// The last ten minutes, if something was lost: measured minutes, probes, and losses.
    ten_minutes: Option<(u8, u32, u32)>,
    /// Losses on the way to the peer, and on the way back, if there are any.
    lost_ways: Option<(u32, u32)>,
    rare: Option<RarePart>,
}

/// What few objects have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct RarePart {
    /// The time that the object covers, in tenths of a second, if it is not that of most.
    deciseconds: Option<u32>,
    refused: bool,
    flows: Option<WorstFlow>,
    hole: Option<MtuHole>,
    /// Why probes could not be sent, and how many.
    unsent: Option<(SendError, u32)>,
}

/// Losses, with counts of at most 255 as in [`RecentPeer`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct LinkLosses {
    lost: u32,
    in_row: u8,
    answered_since: u8,
    answered_before: u8,
    answered_seconds: u8,
}

/// The flows of a link. The verdicts know one of them: the one that has lost most, or else the one
/// that may be losing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct WorstFlow {
    probed: u8,
    losing_count: u8,
    losing: Option<LosingFlow>,
    suspect: Option<Suspect>,
    answered: u8,
    answered_seconds: u8,
}

/// Writes a compact report.
#[derive(Debug)]
pub struct CompactWriter {
    head: ReportHead<'static>,
    now_unix_seconds: u64,
    own: u64,
    objects: Vec<WrittenPeer>,
}

#[derive(Debug)]
struct WrittenPeer {
    /// Hash of the node's name.
    node: u64,
    /// Number of probes that were lost or could not be sent, if they are too many to be lost by
    /// chance.
    lost: u32,
    object: CompactPeer,
}

impl CompactWriter {
    /// Begins the report of a source, at this time of its clock. `own` is the hash of its name.
    pub fn new(source: &Source<'_>, own: u64, now_unix_seconds: u64) -> Self {
        let text = |text: &str| Cow::Owned(text[..text.floor_char_boundary(NAME_MAX)].to_owned());
        let head = ReportHead {
            version: VERSION,
            node: text(&source.node),
            zone: text(&source.zone),
            interval_seconds: source.interval_seconds,
            listening_seconds: source.listening_seconds,
            members: source.members,
            session: source.session.clone(),
            strangers: source.strangers.iter().take(STRANGERS_MAX).copied().collect(),
            recent: RecentSource { echo_replies_sent: None, ..source.recent.clone() },
            checks: Vec::new(),
            is_on_loopback: false,
            deciseconds: 0,
            left_out: 0,
            nodes: 0,
        };
        Self { head, now_unix_seconds, own, objects: Vec::new() }
    }

    /// Adds a check. What no reader of this version knows is left out.
    pub fn check(&mut self, check: &Check<'_>) {
        let checks = &mut self.head.checks;
        let Some(check) = CompactCheck::from_check(check, self.now_unix_seconds) else { return };
        if let Err(place) = checks.binary_search_by(|other| other.name.cmp(&check.name))
            && checks.len() < CHECKS_MAX
        {
            checks.insert(place, check);
        }
    }

    /// Adds an object. `node` is the hash of the name of its node. What no reader of this version
    /// knows is left out.
    pub fn peer(&mut self, node: u64, peer: &Peer<'_>) {
        let Some(kind) = kind(peer) else { return };
        self.head.is_on_loopback |= peer.address.is_some_and(|address| address.is_loopback());
        if self.objects.is_empty() {
            // All objects of an agent that has run for a minute cover the same time.
            self.head.deciseconds = whole(peer.recent.seconds * 10.0);
        }
        let object = CompactPeer::from_peer(kind, peer, self.head.deciseconds, self.now_unix_seconds);
        let RecentPeer { sent, lost, send_errors, .. } = peer.recent;
        // What could not be sent is as rare and as grave as a loss.
        let (lost, tried) = (lost.saturating_add(send_errors), sent.saturating_add(send_errors));
        let lost = if peer.state.is_evidence() { losses_beyond_chance(tried, lost) } else { 0 };
        self.objects.push(WrittenPeer { node, lost, object });
    }

    /// Ends the report, from which `left_out` peers have been left out. If it is too long, most
    /// others are left out too.
    pub fn end(mut self, left_out: u64) -> Vec<u8> {
        // Of an address that has left and its successor, the one that is listed counts.
        self.objects.sort_by_key(|peer| (peer.node, split(peer.object.kind)));
        self.objects.dedup_by_key(|peer| (peer.node, split(peer.object.kind).0));
        let whole = self.with_peers(left_out);
        if whole.len() <= BYTES_MAX {
            return whole;
        }
        let mut choice = Choice::new(self.own);
        self.objects.iter().for_each(|peer| choice.add(peer.node, peer.lost));
        let Chosen { nodes, left_out: more } = choice.sample();
        self.objects.retain(|peer| nodes.contains(&peer.node));
        self.with_peers(left_out + more)
    }

    fn with_peers(&mut self, left_out: u64) -> Vec<u8> {
        let nodes = || self.objects.chunk_by(|a, b| a.node == b.node);
        self.head.left_out = left_out;
        self.head.nodes = u16::try_from(nodes().count()).unwrap_or(u16::MAX);
        let mut out = add(Vec::new(), &self.head);
        for of_node in nodes() {
            let (hash, objects) = (of_node[0].node, u8::try_from(of_node.len()).unwrap_or(u8::MAX));
            out = add(out, &NodeHead { hash, objects });
            out = of_node.iter().fold(out, |out, peer| add(out, &peer.object));
        }
        out
    }
}

/// Adds a part of a report. An error of the encoder, which a part of ours does not cause, would
/// leave an empty report, and every reader refuses it.
fn add(out: Vec<u8>, part: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(part, out).unwrap_or_default()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn whole(value: f64) -> u32 {
    value.round() as u32
}

/// Returns the code of a peer's protocol, network and state.
fn kind(peer: &Peer<'_>) -> Option<u8> {
    let protocol = PROTOCOLS.iter().position(|protocol| *protocol == peer.protocol)?;
    let network = peer.network as usize;
    let state = STATES.iter().position(|state| *state == peer.state)?;
    u8::try_from((state * Network::ALL.len() + network) * PROTOCOLS.len() + protocol).ok()
}

/// Returns the code of the protocol and the network of a kind, and that of its state.
fn split(kind: u8) -> (usize, usize) {
    (usize::from(kind) % PLACES, usize::from(kind) / PLACES)
}

impl CompactPeer {
    fn from_peer(kind: u8, peer: &Peer<'_>, deciseconds: u32, now_unix_seconds: u64) -> Self {
        let recent = &peer.recent;
        let narrow = |count: u32| u8::try_from(count).unwrap_or(u8::MAX);
        let losses = LinkLosses {
            lost: recent.lost,
            in_row: narrow(recent.lost_in_row),
            answered_since: narrow(recent.answered_since),
            answered_before: narrow(recent.answered_before),
            answered_seconds: narrow(recent.answered_seconds),
        };
        // A link that has lost nothing in ten minutes has nothing to say about them.
        let ten_minutes = peer.ten_minutes.filter(|said| said.lost > 0);
        let rare = RarePart {
            deciseconds: Some(whole(recent.seconds * 10.0)).filter(|own| *own != deciseconds),
            refused: recent.refused,
            flows: peer.flows.as_ref().and_then(WorstFlow::from_flows),
            hole: peer.mtu_hole,
            unsent: (recent.send_errors > 0)
                .then_some((recent.send_error_reason.unwrap_or(SendError::Other), recent.send_errors)),
        };
        let rest = LossyPart {
            losses: (losses != LinkLosses::default()).then_some(losses),
            age: peer.since_unix_seconds.map(|since| now_unix_seconds.saturating_sub(since)),
            ten_minutes: ten_minutes.map(|said| (narrow(whole(said.seconds / 60.0)), said.sent, said.lost)),
            lost_ways: recent.lost_there.zip(recent.lost_back).filter(|ways| *ways != (0, 0)),
            rare: (rare != RarePart::default()).then_some(rare),
        };
        Self {
            kind,
            sent: recent.sent,
            received: recent.received,
            rtt: time_code(recent.rtt_p50_seconds),
            usual_rtt: time_code(peer.usual_rtt_p50_seconds),
            heard: peer.heard,
            rest: (rest != LossyPart::default()).then(|| Box::new(rest)),
        }
    }

    /// Returns the peer, without its name. `None` if there is no such kind, or if a part says that
    /// there is nothing.
    fn peer(self, deciseconds: u32, now_unix_seconds: u64) -> Option<Peer<'static>> {
        let rest = self.rest.map(|rest| *rest).unwrap_or_default();
        let (losses, rare) = (rest.losses.unwrap_or_default(), rest.rare.unwrap_or_default());
        let (of, state) = split(self.kind);
        let (protocol, state) = (PROTOCOLS[of % PROTOCOLS.len()], *STATES.get(state)?);
        // A source of UDP that says no ways has lost nothing of which it knows the way.
        let is_udp = matches!(protocol, Protocol::Udp | Protocol::Udpv6);
        let ways = rest.lost_ways.or(is_udp.then_some((0, 0)));
        let (send_error_reason, send_errors) = rare.unsent.unzip();
        if send_errors == Some(0) {
            return None;
        }
        let recent = RecentPeer {
            seconds: f64::from(rare.deciseconds.unwrap_or(deciseconds)) / 10.0,
            sent: self.sent,
            received: self.received,
            lost: losses.lost,
            refused: rare.refused,
            lost_in_row: losses.in_row.into(),
            answered_since: losses.answered_since.into(),
            answered_before: losses.answered_before.into(),
            answered_seconds: losses.answered_seconds.into(),
            lost_there: ways.map(|(there, _)| there),
            lost_back: ways.map(|(_, back)| back),
            send_errors: send_errors.unwrap_or_default(),
            send_error_reason,
            rtt_p50_seconds: time_seconds(self.rtt),
            rtt_p99_seconds: None,
        };
        let ten_minutes = |(minutes, sent, lost)| TenMinutes { seconds: f64::from(minutes) * 60.0, sent, lost };
        Some(Peer {
            network: Network::ALL[of / PROTOCOLS.len()],
            protocol,
            state,
            usual_rtt_p50_seconds: time_seconds(self.usual_rtt),
            since_unix_seconds: rest.age.map(|age| now_unix_seconds.saturating_sub(age)),
            ten_minutes: rest.ten_minutes.map(ten_minutes),
            heard: self.heard,
            flows: rare.flows.map(WorstFlow::flows),
            mtu_hole: rare.hole,
            recent,
            ..Peer::default()
        })
    }
}

impl WorstFlow {
    /// Returns the flow of a link that is written. `None` if no flow loses.
    fn from_flows(flows: &Flows) -> Option<Self> {
        let losing = flows.losing.iter().max_by_key(|flow| flow.lost).copied();
        let suspect = flows.suspect.filter(|_| losing.is_none());
        let Flows { probed, losing_count, answered, answered_seconds, .. } = *flows;
        let worst = Self { probed, losing_count, losing, suspect, answered, answered_seconds };
        (losing_count > 0 || suspect.is_some()).then_some(worst)
    }

    fn flows(self) -> Flows {
        let Self { probed, losing_count, losing, suspect, answered, answered_seconds } = self;
        Flows { probed, losing_count, losing: losing.into_iter().collect(), suspect, answered, answered_seconds }
    }
}

/// Reads a compact report, object by object. It is checked as a whole before the first is returned.
#[derive(Debug)]
pub struct CompactReader<'a> {
    /// The source. What this form does not have is as of an agent that does not report it.
    pub source: Source<'a>,
    /// Its checks, each name once.
    pub checks: Vec<Check<'a>>,
    /// Number of peers that were left out, because there are too many.
    pub left_out: u64,
    deciseconds: u32,
    address: Option<IpAddr>,
    now_unix_seconds: u64,
    left: &'a [u8],
    nodes: u16,
    node: NodeHead,
}

impl<'a> CompactReader<'a> {
    /// Reads a report and its source. `now_unix_seconds` is the reader's clock.
    ///
    /// # Errors
    /// [`NotCompact`], also if a later part of the report cannot be read.
    pub fn new(bytes: &'a [u8], now_unix_seconds: u64) -> Result<Self, NotCompact> {
        let mut left = bytes;
        let mut head: ReportHead<'_> = take(&mut left).filter(ReportHead::may_be).ok_or(NotCompact)?;
        check(left, head.nodes).ok_or(NotCompact)?;
        let checks = checks::read(std::mem::take(&mut head.checks), now_unix_seconds).ok_or(NotCompact)?;
        let (deciseconds, left_out, nodes) = (head.deciseconds, head.left_out, head.nodes);
        let address = head.is_on_loopback.then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let (source, node) = (head.source(), NodeHead::default());
        Ok(Self { source, checks, left_out, deciseconds, address, now_unix_seconds, left, nodes, node })
    }

    /// Returns the next object, and the hash of the name of its node. The object has no name.
    /// `None` at the end.
    pub fn next_peer(&mut self) -> Option<(u64, Peer<'static>)> {
        while self.node.objects == 0 {
            self.nodes = self.nodes.checked_sub(1)?;
            self.node = take(&mut self.left)?;
        }
        self.node.objects -= 1;
        let peer = take::<CompactPeer>(&mut self.left)?.peer(self.deciseconds, self.now_unix_seconds)?;
        Some((self.node.hash, Peer { address: self.address, ..peer }))
    }
}

/// Reads a part of a report, and leaves what follows it.
fn take<'a, T: Deserialize<'a>>(left: &mut &'a [u8]) -> Option<T> {
    let (part, rest) = postcard::take_from_bytes(left).ok()?;
    *left = rest;
    Some(part)
}

/// Walks over all nodes. `None` if anything cannot be read, is not in order, or follows the report.
fn check(mut left: &[u8], nodes: u16) -> Option<()> {
    let mut node_before = None;
    for _ in 0..nodes {
        let NodeHead { hash, objects } = take(&mut left)?;
        if node_before.replace(hash).is_some_and(|before| before >= hash) || usize::from(objects) > OBJECTS_MAX {
            return None;
        }
        let mut before = None;
        for _ in 0..objects {
            let object: CompactPeer = take(&mut left)?;
            let (of, _) = split(object.kind);
            if before.replace(of).is_some_and(|before| before >= of) {
                return None;
            }
            object.peer(0, 0)?;
        }
    }
    left.is_empty().then_some(())
}

impl<'a> ReportHead<'a> {
    fn may_be(&self) -> bool {
        self.version == VERSION && self.node.len() <= NAME_MAX && self.zone.len() <= NAME_MAX
    }

    fn source(self) -> Source<'a> {
        let Self { node, zone, mut interval_seconds, mut listening_seconds, members, session, strangers, .. } = self;
        let mut recent = self.recent;
        for seconds in [
            &mut interval_seconds,
            &mut listening_seconds,
            &mut recent.seconds,
            &mut recent.send_lag_p99_seconds,
            &mut recent.read_delay_p99_seconds,
            &mut recent.run_delay_seconds,
            &mut recent.rtt_p99_seconds,
        ] {
            *seconds = seconds.filter(|seconds| seconds.is_finite());
        }
        if self.left_out > 0 {
            // These are counts over all peers, and would be compared with the probes of those that
            // are there.
            (recent.echo_requests_received, recent.probes_skipped, recent.receive_queue_drops) = (None, None, None);
        }
        Source {
            node,
            zone,
            interval_seconds,
            members,
            listening_seconds,
            session,
            strangers,
            recent,
            ..Source::default()
        }
    }
}

#[cfg(test)]
mod tests;
