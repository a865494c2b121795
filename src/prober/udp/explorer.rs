//! Sends the packets of traces and of the search for the path MTU, and recognizes what comes back.
//!
//! They leave from the source ports of the flows, as probes do, and are requests that the peer's
//! reflector answers. They have a key and a session (SSID) of their own: the reflector's count of
//! the probes must not include them.
//!
//! The 50 bits that number a probe are here: the kind of the packet, its flow, and 32 bits that
//! count. So a packet that is quoted or answered says what it is for, under the keyed check.

use std::net::{IpAddr, SocketAddr};

use kube_canary_kernel::region::List;

use super::mtu::{MtuProbe, MtuSearch, Route, payload_bytes};
use super::trace::{TraceProbe, Tracer};
use crate::limits::{DWELL_MAX, PATH_MTU_MAX, PAYLOAD_BYTES_MIN};
use crate::peers::{Change, Compaction, Network, SlotId};
use crate::prober::udp::stamp::packet::{BASE_BYTES, REQUEST_BYTES, TLV_HEADER_BYTES, write_request};
use crate::prober::udp::stamp::{ErrorEstimate, NtpTime, StampReply};
use crate::prober::{Clock, Datagram, Delivery, Flow, Moment, Outgoing, Refusal, Wire};
use crate::prober::{Label, ProbeKey};
use crate::units::Nanos;

/// Bit of a number that is set in packets of the search for the path MTU, and not in those of
/// traces.
const MTU: u64 = 1 << 36;
/// Place of the flow in a number.
const FLOW_SHIFT: u32 = 32;
/// Bytes of the UDP payload of a small packet. It is longer than a probe, so that the reflector
/// does not count it as one ([`crate::prober::udp::stamp::Reflector::heard`]).
const SMALL_BYTES: usize = REQUEST_BYTES + 8;
#[expect(clippy::cast_possible_truncation, reason = "80 bytes")]
const SMALL_PAYLOAD: u16 = SMALL_BYTES as u16;

/// What a packet of ours is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketKind {
    Trace,
    Mtu,
}

/// A packet of ours that has come back, and its slot, flow and number.
type Known = (PacketKind, (SlotId, Flow, u32));

/// Traces paths and searches their MTU, beside the probes of [`super::Udp`].
#[derive(Debug)]
pub struct Explorer {
    key: ProbeKey,
    /// Session of its packets: that of the probes with the last bit inverted.
    pub(super) ssid: u16,
    /// Port of the reflectors.
    port: u16,
    /// When the last turn began, which is later than all that it has read.
    now: Nanos,
    /// Traces, and what they have found.
    pub tracer: Tracer,
    /// The search for the path MTU, and what it has found.
    pub mtu: MtuSearch,
    /// The packet in preparation. Empty between turns, because a large one takes three pages.
    message: List<u8>,
}

impl Explorer {
    /// Makes an explorer for `flows` source ports and reflectors at `port`. A large packet is lost
    /// after `timeout` and the time that a reflector may take.
    pub fn new(flows: u8, port: u16, timeout: Nanos, now: Nanos) -> Self {
        let key = ProbeKey::random();
        Self {
            ssid: key.session().max(1),
            key,
            port,
            now,
            tracer: Tracer::new(flows),
            mtu: MtuSearch::new(flows, SMALL_PAYLOAD, timeout.plus(DWELL_MAX.into()), now),
            message: List::reserved(PATH_MTU_MAX.into()),
        }
    }

    /// Makes room for `slots` slots.
    pub fn reserve(&mut self, slots: usize) {
        self.mtu.reserve(slots);
    }

    /// Applies a change of the list. `moved` says whether a [`Change::Probe`] has another address
    /// than before. Slots of the node network are left out, as by the prober.
    pub fn apply(&mut self, change: Change, moved: bool) {
        if !matches!(change, Change::Probe { network: Network::Node, .. }) {
            self.tracer.apply(change, moved);
            self.mtu.apply(change, moved);
        }
    }

    /// Moves slots as `compaction` says.
    pub fn compact(&mut self, compaction: &Compaction) {
        self.tracer.compact(compaction);
        self.mtu.compact(compaction);
    }

    /// Decides what was lost, and sends what is due. Call it after each turn of the prober that has
    /// read everything. `as_of` is a time before that turn. `address` returns the address of a
    /// slot; `None` if it is not probed. `mtu` returns the MTU of the route to an address; 0 if it
    /// is not known, and then the path MTU is not searched.
    pub fn turn(
        &mut self,
        wire: &mut impl Wire,
        clock: &impl Clock,
        as_of: Nanos,
        address: impl Fn(SlotId) -> Option<IpAddr>,
        mtu: impl Fn(IpAddr) -> u32,
    ) {
        self.mtu.expire(as_of);
        self.now = clock.now();
        let port = self.port;
        let to = |slot| address(slot).map(|address| SocketAddr::new(address, port));
        let route = |slot| address(slot).map(|address| Route { address, mtu: mtu(address) });
        while let Some(TraceProbe { to, slot, flow, ttl, sequence }) = self.tracer.due(as_of, to) {
            if !self.send(wire, clock, (to, flow, Some(ttl)), (slot, 0, sequence), SMALL_BYTES) {
                self.tracer.not_sent(sequence);
            }
        }
        while let Some(MtuProbe { slot, flow, size, sequence }) = self.mtu.due(as_of, route) {
            let sent = to(slot).is_some_and(|to| {
                let bytes = payload_bytes(size, to.is_ipv6());
                self.send(wire, clock, (to, flow, None), (slot, MTU, sequence), bytes.into())
            });
            if !sent {
                self.mtu.not_sent(sequence);
            }
        }
        self.message.resize(0, 0);
    }

    /// Sends a packet, which has the bit of its kind in its number. Returns whether it was sent.
    fn send(
        &mut self,
        wire: &mut impl Wire,
        clock: &impl Clock,
        (to, flow, ttl): (SocketAddr, Flow, Option<u8>),
        (slot, kind, sequence): (SlotId, u64, u32),
        bytes: usize,
    ) -> bool {
        let bytes = bytes.max(SMALL_BYTES);
        // It stays as large as the largest packet of the turn, so that a small one moves nothing.
        if self.message.len() < bytes {
            self.message.resize(bytes, 0);
        }
        let Some(message) = self.message.get_mut(..bytes) else { return false };
        let number = kind | u64::from(flow.0) << FLOW_SHIFT | u64::from(sequence);
        #[expect(clippy::cast_possible_truncation, reason = "the label has the low bits")]
        let label = Label { number, slot, sequence: sequence as u16 };
        let identity = self.key.identity(label, to.ip());
        let at = NtpTime::from_unix(clock.realtime());
        write_request(message, sequence, self.ssid, at, ErrorEstimate::UNKNOWN, &identity);
        let mut is_sent = false;
        wire.send(&[Outgoing { to, flow, ttl, bytes: message }], &mut |_, sent| is_sent = sent.is_ok());
        is_sent
    }

    /// Returns when the next turn is due at the latest, if nothing arrives before.
    pub fn next_due(&self) -> Option<Nanos> {
        [self.tracer.next_due(), self.mtu.next_due()].into_iter().flatten().min()
    }

    /// Returns the resident memory of the tables, in bytes of whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.tracer.resident_bytes() + self.mtu.resident_bytes()
    }

    /// Recognizes a request of ours to `to` by its first bytes, as an ICMP error quotes them.
    fn identify_request(&self, bytes: &[u8], to: IpAddr) -> Option<Known> {
        let (sequence, _) = bytes.split_first_chunk()?;
        let padding = bytes.get(BASE_BYTES + TLV_HEADER_BYTES..)?.first_chunk()?;
        self.identify(padding, u32::from_be_bytes(*sequence), to)
    }

    fn identify(&self, padding: &[u8; PAYLOAD_BYTES_MIN], sequence: u32, peer: IpAddr) -> Option<Known> {
        #[expect(clippy::cast_possible_truncation, reason = "the label has the low bits")]
        let label = self.key.identify(padding, sequence as u16, peer)?;
        Some(known(label))
    }

    fn arrived(&mut self, flow: Flow, datagram: &Datagram<'_>) -> bool {
        let Some(reply) = StampReply::read(datagram.bytes).filter(|_| datagram.from.port() == self.port) else {
            return false;
        };
        let known = reply.padding.and_then(|padding| self.identify(padding, reply.sender_sequence, datagram.from.ip()));
        match known.filter(|(_, (_, sent_by, _))| *sent_by == flow) {
            Some((PacketKind::Trace, packet)) => self.tracer.answered(packet, datagram.moment),
            Some((PacketKind::Mtu, packet)) => self.mtu.answered(packet, self.now),
            None => false,
        }
    }

    fn refused(&mut self, known: Known, offender: Option<IpAddr>, refusal: Refusal, moment: Moment) -> bool {
        match (known, refusal) {
            ((PacketKind::Trace, packet), _) => self.tracer.refused(packet, offender, refusal, moment),
            ((PacketKind::Mtu, packet), Refusal::TooBig { mtu }) => self.mtu.refused(packet, offender, mtu, self.now),
            // The packet is lost all the same.
            ((PacketKind::Mtu, _), Refusal::TimeExceeded | Refusal::Unreachable(_)) => false,
        }
    }

    /// Takes what the wire delivers and is not about a probe. Returns whether it is about a packet
    /// of ours.
    pub fn deliver(&mut self, delivery: &Delivery<'_>) -> bool {
        match *delivery {
            // The kernel gives a socket only what it has sent, so the number is enough.
            Delivery::Departure(_, bytes, moment) => match self.key.departed(bytes).map(known) {
                Some((PacketKind::Trace, (_, _, sequence))) => {
                    self.tracer.departed(sequence, moment);
                    true
                }
                known => known.is_some(),
            },
            Delivery::Arrival(flow, datagram) => self.arrived(flow, &datagram),
            Delivery::Refused { flow, to, offender, refusal, bytes, moment } => {
                let known = self.identify_request(bytes, to.ip()).filter(|(_, (_, sent_by, _))| *sent_by == flow);
                known.is_some_and(|known| self.refused(known, offender, refusal, moment))
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the parts of a number")]
fn known(label: Label) -> Known {
    let kind = if label.number & MTU == 0 { PacketKind::Trace } else { PacketKind::Mtu };
    let flow = Flow((label.number >> FLOW_SHIFT & 0x0f) as u8);
    (kind, (label.slot, flow, label.number as u32))
}
