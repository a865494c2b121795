//! The compact form of a report, for judges: what the verdicts need, in some 20 bytes for a link.
//!
//! A judge of 5,000 nodes reads 330 reports a second, and each agent writes three in 15 s. As JSON,
//! a report of 24 peers by three methods has 43 KB, and in this form less than 1 KB.
//!
//! ```text
//! report  = version, flags, name, zone, facts, [session], [number of strangers, {stranger}],
//!           peers left out, number of nodes, {node}
//! name    = length (1 byte), bytes            zone likewise
//! session = SSID (2 bytes), number of addresses (1 byte), {address}
//! stranger = SSID (2 bytes), address, number of requests
//! address = length (1 byte), bytes
//! node    = hash of its name (8 bytes), number of objects (1 byte), {object}
//! object  = kind (1 byte), parts (1 byte), sent, received, round-trip times (2 * 2 bytes), {part},
//!           [unsent]
//! unsent  = reason (1 byte), number of probes; if the kind says so
//! ```
//! Counts are varints: 7 bits a byte, the lowest first. Real numbers of the facts have 4 bytes,
//! and a NaN is none. Both are little-endian. Nodes are in ascending order of their hashes, and the
//! objects of a node in ascending order of their kinds, so none can be there twice. Moments are
//! ages, so a wrong clock shifts nothing.
//!
//! It comes from another pod and is not trusted. A report that has a byte too many or too few, an
//! order, a bit or a count that cannot be, is refused as a whole.

mod choice;
mod sessions;

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use super::{
    Flows, LosingFlow, Method, MtuHole, Network, Peer, Protocol, RecentPeer, RecentSource, Said, SendError, Source,
    State, Suspect, TenMinutes, Way,
};

pub use choice::{Choice, Chosen, losses_beyond_chance};
use choice::{LOSERS_MAX, SAMPLE};

/// The media type of this form. A judge accepts it, and takes JSON from agents that do not know it.
pub const MEDIA_TYPE: &str = "application/vnd.kube-canary.report;version=3";
/// Bytes of the longest compact report: of 512 peers by three methods, some of which lose.
pub const BYTES_MAX: usize = 24 * 1_024;
const VERSION: u8 = 3;
/// Objects of one node: three methods at its pod and one at the node itself, each of two families.
const OBJECTS_MAX: usize = 8;
const ON_LOOPBACK: u8 = 1;
const MEMBERS: u8 = 2;
const SESSION: u8 = 4;
const STRANGERS: u8 = 8;
const FLAGS: u8 = ON_LOOPBACK | MEMBERS | SESSION | STRANGERS;
/// Bits of an object's kind: the protocol, and then the network. The two bits above are the state,
/// and the next one says that probes could not be sent.
const NETWORK_SHIFT: u32 = 3;
const STATE_SHIFT: u32 = 4;
const KIND_MASK: u8 = 0xf;
const UNSENT: u8 = 1 << 6;
const PROTOCOLS: [Protocol; 6] =
    [Protocol::Icmp, Protocol::Icmpv6, Protocol::Udp, Protocol::Udpv6, Protocol::Tcp, Protocol::Tcpv6];
const NETWORKS: [Network; 2] = [Network::Pod, Network::Node];
const STATES: [State; 4] = [State::Ready, State::Unready, State::Terminating, State::Left];
const WAYS: [Way; 3] = [Way::Unknown, Way::Out, Way::In];
const SAID: [Said; 2] = [Said::Silent, Said::TooBig];
/// Bytes of the longest object.
const OBJECT_BYTES_MAX: usize = 102;
const _: () = assert!(1_024 + (SAMPLE + LOSERS_MAX) * (9 + OBJECTS_MAX * OBJECT_BYTES_MAX) <= BYTES_MAX);
/// Parts of an object. The time that an object covers is left out if it is that of the source.
const SECONDS: u8 = 1;
const LOSSES: u8 = 1 << 1;
const SINCE: u8 = 1 << 2;
const TEN_MINUTES: u8 = 1 << 3;
const HEARD: u8 = 1 << 4;
const LOST_WAYS: u8 = 1 << 5;
const FLOWS: u8 = 1 << 6;
const HOLE: u8 = 1 << 7;
/// Codes of a round-trip time: 1 µs to 100 s in steps of 0.03 %. Code 0 is none.
const RTT_LEAST: f64 = 1e-6;
const RTT_CODES: f64 = 65_534.0;
/// ln(100 s / 1 µs).
const RTT_SPAN: f64 = 18.420_680_743_952_367;

/// Why the bytes are not a compact report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a compact report")]
pub struct NotCompact;

/// Whether a client that sends this `Accept` header reads this form.
pub fn is_accepted(accept: &str) -> bool {
    accept.split(',').any(|range| range.trim() == MEDIA_TYPE)
}

/// Writes a compact report.
#[derive(Debug)]
pub struct Writer {
    seconds: f64,
    now_unix_seconds: u64,
    own: u64,
    head: Vec<u8>,
    objects: Vec<Object>,
    is_on_loopback: bool,
}

#[derive(Debug)]
struct Object {
    node: u64,
    kind: u8,
    /// Number of probes that were lost or could not be sent, if they are too many to be lost by
    /// chance.
    lost: u32,
    bytes: Vec<u8>,
}

impl Writer {
    /// Begins the report of a source, at this time of its clock. `own` is the hash of its name.
    pub fn new(source: &Source<'_>, own: u64, now_unix_seconds: u64) -> Self {
        let recent = &source.recent;
        let has = |flag: u8, is_so: bool| if is_so { flag } else { 0 };
        let flags = has(MEMBERS, source.members.is_some())
            | has(SESSION, source.session.is_some())
            | has(STRANGERS, !source.strangers.is_empty());
        let mut head = vec![VERSION, flags];
        text(&mut head, &source.node);
        text(&mut head, &source.zone);
        for value in [
            source.interval_seconds,
            recent.seconds,
            recent.send_lag_p99_seconds,
            recent.read_delay_p99_seconds,
            recent.run_delay_seconds,
            source.listening_seconds,
        ] {
            real(&mut head, value);
        }
        for value in [recent.echo_requests_received, recent.probes_skipped, recent.receive_queue_drops] {
            varint(&mut head, value.map_or(0, |value| value.saturating_add(1)));
        }
        head.extend(rtt_code(recent.rtt_p99_seconds).to_le_bytes());
        if let Some(members) = source.members {
            varint(&mut head, members);
        }
        sessions::write(&mut head, source);
        let seconds = recent.seconds.unwrap_or_default();
        Self { seconds, now_unix_seconds, own, head, objects: Vec::new(), is_on_loopback: false }
    }

    /// Adds an object. `node` is the hash of the name of its node. What no reader of this version
    /// knows is left out.
    pub fn peer(&mut self, node: u64, peer: &Peer<'_>) {
        let place = |found: Option<usize>| found.and_then(|place| u8::try_from(place).ok());
        let protocol = place(PROTOCOLS.iter().position(|it| *it == peer.protocol));
        let network = place(NETWORKS.iter().position(|it| *it == peer.network));
        let state = place(STATES.iter().position(|it| *it == peer.state));
        let (Some(protocol), Some(network), Some(state)) = (protocol, network, state) else { return };
        self.is_on_loopback |= peer.address.is_some_and(|address| address.is_loopback());
        let kind = protocol | network << NETWORK_SHIFT;
        let bytes = object(kind | state << STATE_SHIFT, peer, self.seconds, self.now_unix_seconds);
        let RecentPeer { sent, lost, send_errors, .. } = peer.recent;
        // What could not be sent is as rare and as grave as a loss.
        let (lost, tried) = (lost.saturating_add(send_errors), sent.saturating_add(send_errors));
        let lost = if peer.state.is_evidence() { losses_beyond_chance(tried, lost) } else { 0 };
        self.objects.push(Object { node, kind, lost, bytes });
    }

    /// Ends the report, from which `left_out` peers have been left out. If it is too long, most
    /// others are left out too.
    pub fn end(mut self, left_out: u64) -> Vec<u8> {
        // Of an address that has left and its successor, the one that is listed counts.
        self.objects.sort_by_key(|it| (it.node, it.kind, it.bytes.first().map(|kind| (kind & !UNSENT) >> STATE_SHIFT)));
        self.objects.dedup_by_key(|it| (it.node, it.kind));
        let whole = self.with_peers(left_out);
        if whole.len() <= BYTES_MAX {
            return whole;
        }
        let mut choice = Choice::new(self.own);
        self.objects.iter().for_each(|object| choice.add(object.node, object.lost));
        let Chosen { nodes, left_out: more } = choice.sample();
        self.objects.retain(|it| nodes.contains(&it.node));
        self.with_peers(left_out + more)
    }

    fn nodes(&self) -> impl Iterator<Item = &[Object]> {
        self.objects.chunk_by(|a, b| a.node == b.node)
    }

    fn with_peers(&self, left_out: u64) -> Vec<u8> {
        let mut out = self.head.clone();
        out[1] |= if self.is_on_loopback { ON_LOOPBACK } else { 0 };
        varint(&mut out, left_out);
        varint(&mut out, self.nodes().count() as u64);
        for node in self.nodes() {
            let hash = node.first().map_or(0, |object| object.node);
            out.extend_from_slice(&hash.to_be_bytes());
            out.push(u8::try_from(node.len()).unwrap_or_default());
            for object in node {
                out.extend_from_slice(&object.bytes);
            }
        }
        out
    }
}

fn object(kind: u8, peer: &Peer<'_>, seconds: f64, now_unix_seconds: u64) -> Vec<u8> {
    let (recent, mut parts) = (&peer.recent, 0);
    let mut rest = Vec::with_capacity(32);
    #[expect(clippy::float_cmp, reason = "both are of one clock, and one difference costs a byte or two")]
    if recent.seconds != seconds {
        parts |= SECONDS;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
        varint(&mut rest, (recent.seconds * 10.0).round() as u64);
    }
    if recent.lost > 0 || recent.lost_in_row > 0 || recent.refused {
        parts |= LOSSES;
        varint(&mut rest, u64::from(recent.lost) << 1 | u64::from(recent.refused));
        rest.extend([recent.lost_in_row, recent.answered_since, recent.answered_before].map(narrow));
        if peer.protocol.method() == Some(Method::Tcp) {
            rest.push(narrow(recent.answered_seconds));
        }
    }
    if let Some(since) = peer.since_unix_seconds {
        parts |= SINCE;
        varint(&mut rest, now_unix_seconds.saturating_sub(since));
    }
    // A link that has lost nothing in ten minutes has nothing to say about them.
    if let Some(TenMinutes { seconds, sent, lost }) = peer.ten_minutes.filter(|said| said.lost > 0) {
        parts |= TEN_MINUTES;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
        rest.push((seconds / 60.0).round() as u8);
        varint(&mut rest, sent.into());
        varint(&mut rest, lost.into());
    }
    if let Some(heard) = peer.heard {
        parts |= HEARD;
        varint(&mut rest, heard.into());
    }
    if let (Some(there), Some(back)) = (recent.lost_there, recent.lost_back)
        && there.max(back) > 0
    {
        parts |= LOST_WAYS;
        varint(&mut rest, there.into());
        varint(&mut rest, back.into());
    }
    if let Some(flows) = &peer.flows
        && (flows.losing_count > 0 || flows.suspect.is_some())
    {
        parts |= FLOWS;
        rest.extend([flows.probed, flows.losing_count]);
        // The verdicts know one flow of each link: the one that has lost most.
        if let Some(worst) = flows.losing.iter().max_by_key(|flow| flow.lost) {
            flow(&mut rest, worst.source_port, [worst.lost, worst.probes], worst.direction, 0);
        } else if let Some(it) = flows.suspect {
            flow(&mut rest, it.source_port, [it.lost, it.probes], it.direction, it.decinats);
        } else {
            flow(&mut rest, 0, [0; 2], Way::Unknown, 0);
        }
        rest.extend([flows.answered, flows.answered_seconds]);
    }
    if let Some(hole) = peer.mtu_hole {
        parts |= HOLE;
        rest.extend(hole.passes_bytes.to_le_bytes());
        rest.extend([place_of(&WAYS, &hole.direction), place_of(&SAID, &hole.said)]);
    }
    let mut kind = kind;
    if recent.send_errors > 0 {
        kind |= UNSENT;
        rest.push(recent.send_error_reason.unwrap_or(SendError::Other) as u8);
        varint(&mut rest, recent.send_errors.into());
    }
    let mut out = vec![kind, parts];
    varint(&mut out, recent.sent.into());
    varint(&mut out, recent.received.into());
    for rtt in [recent.rtt_p50_seconds, peer.usual_rtt_p50_seconds] {
        out.extend(rtt_code(rtt).to_le_bytes());
    }
    out.extend(rest);
    out
}

fn flow(out: &mut Vec<u8>, source_port: u16, counts: [u8; 2], way: Way, decinats: u8) {
    out.extend(source_port.to_le_bytes());
    out.extend(counts);
    out.extend([place_of(&WAYS, &way), decinats]);
}

/// Returns the place of a value, or 0 if it has none.
fn place_of<T: PartialEq>(values: &[T], value: &T) -> u8 {
    values.iter().position(|it| it == value).and_then(|place| u8::try_from(place).ok()).unwrap_or_default()
}

fn narrow(count: u32) -> u8 {
    u8::try_from(count).unwrap_or(u8::MAX)
}

fn text(out: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(u8::MAX.into())];
    out.push(u8::try_from(text.len()).unwrap_or_default());
    out.extend_from_slice(text.as_bytes());
}

fn real(out: &mut Vec<u8>, value: Option<f64>) {
    #[expect(clippy::cast_possible_truncation, reason = "the verdicts keep as much")]
    let value = value.map_or(f32::NAN, |value| value as f32);
    out.extend(value.to_le_bytes());
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = value.to_le_bytes()[0];
        value >>= 7;
        if value == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

fn rtt_code(seconds: Option<f64>) -> u16 {
    let Some(seconds) = seconds.filter(|seconds| *seconds > 0.0) else { return 0 };
    let part = (seconds / RTT_LEAST).ln() / RTT_SPAN;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is 1 to 65,535")]
    let code = (1.0 + (part * RTT_CODES).round()).clamp(1.0, 1.0 + RTT_CODES) as u16;
    code
}

fn rtt_seconds(code: u16) -> Option<f64> {
    (code > 0).then(|| RTT_LEAST * (f64::from(code - 1) / RTT_CODES * RTT_SPAN).exp())
}

/// Reads a compact report, object by object. It is checked as a whole before the first is returned.
#[derive(Debug)]
pub struct Reader<'a> {
    /// The source. What this form does not have is as of an agent that does not report it.
    pub source: Source<'a>,
    /// Number of peers that were left out, because there are too many.
    pub left_out: u64,
    seconds: f64,
    address: Option<IpAddr>,
    now_unix_seconds: u64,
    left: Bytes<'a>,
    nodes: u64,
    node: u64,
    objects: u8,
}

impl<'a> Reader<'a> {
    /// Reads a report and its source. `now_unix_seconds` is the reader's clock.
    ///
    /// # Errors
    /// [`NotCompact`], also if a later part of the report cannot be read.
    pub fn new(bytes: &'a [u8], now_unix_seconds: u64) -> Result<Self, NotCompact> {
        let reader = Self::begun(bytes, now_unix_seconds).ok_or(NotCompact)?;
        reader.check().ok_or(NotCompact)?;
        Ok(reader)
    }

    fn begun(bytes: &'a [u8], now_unix_seconds: u64) -> Option<Self> {
        let mut left = Bytes(bytes);
        let flags = match left.array()? {
            [VERSION, flags] if flags & !FLAGS == 0 => flags,
            _ => return None,
        };
        let (node, zone) = (left.text()?, left.text()?);
        let mut real = || left.array().map(f32::from_le_bytes);
        let [interval, seconds, send_lag, read_delay, run_delay, listening] =
            [real()?, real()?, real()?, real()?, real()?, real()?]
                .map(|value| (!value.is_nan()).then_some(f64::from(value)));
        let mut count = || left.varint().map(|value| value.checked_sub(1));
        let (echo_requests_received, probes_skipped, receive_queue_drops) = (count()?, count()?, count()?);
        let rtt_p99_seconds = rtt_seconds(u16::from_le_bytes(left.array()?));
        let members = if flags & MEMBERS > 0 { Some(left.varint()?) } else { None };
        let session = if flags & SESSION > 0 { Some(left.session()?) } else { None };
        let strangers = if flags & STRANGERS > 0 { left.strangers()? } else { Vec::new() };
        let (left_out, nodes) = (left.varint()?, left.varint()?);
        // These are counts over all peers, and would be compared with the probes of those that are
        // there.
        let [echo_requests_received, probes_skipped, receive_queue_drops] =
            [echo_requests_received, probes_skipped, receive_queue_drops].map(|count| count.filter(|_| left_out == 0));
        let source = Source {
            node: Cow::Borrowed(node),
            zone: Cow::Borrowed(zone),
            interval_seconds: interval,
            listening_seconds: listening,
            members,
            session,
            strangers,
            recent: RecentSource {
                seconds,
                echo_requests_received,
                send_lag_p99_seconds: send_lag,
                read_delay_p99_seconds: read_delay,
                probes_skipped,
                receive_queue_drops,
                run_delay_seconds: run_delay,
                rtt_p99_seconds,
                ..RecentSource::default()
            },
            ..Source::default()
        };
        let address = (flags & ON_LOOPBACK > 0).then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let seconds = seconds.unwrap_or_default();
        Some(Self { source, left_out, seconds, address, now_unix_seconds, left, nodes, node: 0, objects: 0 })
    }

    /// Walks over a copy of the whole report. `None` if anything cannot be read, is not in order,
    /// or follows the report.
    fn check(&self) -> Option<()> {
        let (mut left, mut before) = (self.left, None);
        for _ in 0..self.nodes {
            let (node, objects) = left.node()?;
            if before.replace(node).is_some_and(|before| before >= node) || usize::from(objects) > OBJECTS_MAX {
                return None;
            }
            let mut kind_before = None;
            for _ in 0..objects {
                let kind = left.0.first()? & KIND_MASK;
                left.object(self.seconds, 0)?;
                if kind_before.replace(kind).is_some_and(|before| before >= kind) {
                    return None;
                }
            }
        }
        left.0.is_empty().then_some(())
    }

    /// Returns the next object, and the hash of the name of its node. The object has no name.
    /// `None` at the end.
    pub fn next_peer(&mut self) -> Option<(u64, Peer<'static>)> {
        while self.objects == 0 {
            self.nodes = self.nodes.checked_sub(1)?;
            (self.node, self.objects) = self.left.node()?;
        }
        self.objects -= 1;
        let peer = self.left.object(self.seconds, self.now_unix_seconds)?;
        Some((self.node, Peer { address: self.address, ..peer }))
    }
}

/// The rest of a report.
#[derive(Clone, Copy, Debug)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(count)?;
        self.0 = left;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.byte()?;
        std::str::from_utf8(self.take(length.into())?).ok()
    }

    /// Reads a count of at most nine bytes, which is written with no more bytes than it needs.
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for place in 0..9 {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return (byte > 0 || place == 0).then_some(value);
            }
        }
        None
    }

    fn count(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok()
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> Option<T> {
        values.get(usize::from(self.byte()?)).copied()
    }

    /// Reads the head of a node: the hash of its name, and the number of its objects.
    fn node(&mut self) -> Option<(u64, u8)> {
        Some((u64::from_be_bytes(self.array()?), self.byte()?))
    }

    fn object(&mut self, seconds: f64, now_unix_seconds: u64) -> Option<Peer<'static>> {
        let [kind, parts] = self.array()?;
        let protocol = *PROTOCOLS.get(usize::from(kind & 7))?;
        let network = NETWORKS[usize::from(kind >> NETWORK_SHIFT & 1)];
        let state = *STATES.get(usize::from((kind & !UNSENT) >> STATE_SHIFT))?;
        let (sent, received) = (self.count()?, self.count()?);
        let [rtt, usual] = [self.array()?, self.array()?].map(|code| rtt_seconds(u16::from_le_bytes(code)));
        let mut recent = RecentPeer { seconds, sent, received, rtt_p50_seconds: rtt, ..RecentPeer::default() };
        let mut peer = Peer { network, protocol, state, usual_rtt_p50_seconds: usual, ..Peer::default() };
        let has = |part: u8| parts & part > 0;
        if has(SECONDS) {
            recent.seconds = f64::from(self.count()?) / 10.0;
        }
        if has(LOSSES) {
            let lost = self.varint()?;
            (recent.lost, recent.refused) = (u32::try_from(lost >> 1).ok()?, lost & 1 > 0);
            [recent.lost_in_row, recent.answered_since, recent.answered_before] = self.array()?.map(|it: u8| it.into());
            if protocol.method() == Some(Method::Tcp) {
                recent.answered_seconds = self.byte()?.into();
            }
        }
        if has(SINCE) {
            peer.since_unix_seconds = Some(now_unix_seconds.saturating_sub(self.varint()?));
        }
        if has(TEN_MINUTES) {
            let seconds = f64::from(self.byte()?) * 60.0;
            peer.ten_minutes = Some(TenMinutes { seconds, sent: self.count()?, lost: self.count()? });
        }
        if has(HEARD) {
            peer.heard = Some(self.count()?);
        }
        // A source of UDP that says no ways has lost nothing of which it knows the way.
        (recent.lost_there, recent.lost_back) = match protocol {
            _ if has(LOST_WAYS) => (Some(self.count()?), Some(self.count()?)),
            Protocol::Udp | Protocol::Udpv6 => (Some(0), Some(0)),
            _ => (None, None),
        };
        if has(FLOWS) {
            peer.flows = Some(self.flows()?);
        }
        if has(HOLE) {
            let passes_bytes = u16::from_le_bytes(self.array()?);
            peer.mtu_hole = Some(MtuHole { passes_bytes, direction: self.one_of(&WAYS)?, said: self.one_of(&SAID)? });
        }
        if kind & UNSENT > 0 {
            recent.send_error_reason = Some(self.one_of(&SendError::ALL)?);
            // None that could not be sent is not said.
            recent.send_errors = self.count().filter(|count| *count > 0)?;
        }
        Some(Peer { recent, ..peer })
    }

    fn flows(&mut self) -> Option<Flows> {
        let [of_link, losing_count] = self.array()?;
        let source_port = u16::from_le_bytes(self.array()?);
        let (counts, direction, decinats) = (self.array()?, self.one_of(&WAYS)?, self.byte()?);
        let [lost, probes] = counts;
        let (losing, suspect) = if losing_count > 0 {
            (vec![LosingFlow { source_port, lost, probes, direction }], None)
        } else {
            (Vec::new(), Some(Suspect { source_port, lost, probes, direction, decinats }))
        };
        let [answered, answered_seconds] = self.array()?;
        Some(Flows { probed: of_link, losing_count, losing, suspect, answered, answered_seconds })
    }
}

#[cfg(test)]
mod tests;
