//! A wire that allocates nothing either: every packet in flight has its place from the start.

use std::net::{IpAddr, SocketAddr};

use kube_canary::peers::Family;
use kube_canary::prober::{Clock, Datagram, Delivery, EchoWire, Flow, Outgoing, RealTime, SendError, SocketKind, Wire};
use kube_canary::units::Nanos;

use super::clock::ScriptedClock;

/// The most replies in flight at once: those of all peers for as long as the slowest
/// takes, and more.
const IN_THE_AIR_MAX: usize = 16_384;
/// The bytes before the ICMP request in a packet that the kernel returns after sending.
const ETHERNET_BYTES: usize = 14;
/// An IPv4 header, the ICMP header and 56 bytes of payload.
const PACKET_BYTES_MAX: usize = 20 + 8 + 56;

/// The fate of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The reply arrives after this many milliseconds.
    Reply(u64),
    /// The reply arrives twice.
    Twice,
    /// No reply comes back.
    Lost,
    /// The reply has one flipped bit.
    Damaged,
    /// The reply is truncated.
    Truncated,
    /// The reply has another process's random number.
    Foreign,
    /// The reply comes from another address.
    Elsewhere,
    /// The kernel does not accept the request.
    Refused(SendError),
}

impl Fate {
    /// Returns every fate in turn, including the reasons of a refusal. Half of all are plain
    /// replies. The sequence is fixed.
    fn draw(probe: u64) -> Self {
        // SplitMix64's mixing: the results of neighbouring numbers have nothing in common.
        let mut z = probe.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let drawn = (z ^ (z >> 27)) % 36;
        match drawn {
            0 => Self::Lost,
            1 => Self::Twice,
            2 => Self::Damaged,
            3 => Self::Truncated,
            4 => Self::Foreign,
            5 => Self::Elsewhere,
            // It arrives after the reply to the next probe: reordered.
            6 => Self::Reply(1_700),
            // It arrives after the timeout: late.
            7 => Self::Reply(2_500),
            8..18 => usize::try_from(drawn - 8).map_or(Self::Lost, |reason| Self::Refused(SendError::ALL[reason])),
            _ => Self::Reply(drawn - 17),
        }
    }
}

#[derive(Clone, Copy)]
struct Packet {
    at: Nanos,
    from: IpAddr,
    length: usize,
    bytes: [u8; PACKET_BYTES_MAX],
}

/// A wire on which probes have mixed fates.
pub struct MixedWire {
    clock: ScriptedClock,
    kind: SocketKind,
    air: Vec<Packet>,
    /// Requests that have left, which the kernel will return.
    left: Vec<Packet>,
    real_time: RealTime,
    probes: u64,
}

impl MixedWire {
    /// An empty wire with sockets of one kind.
    pub fn new(clock: ScriptedClock, kind: SocketKind) -> Self {
        Self {
            real_time: RealTime::new(&clock),
            clock,
            kind,
            air: Vec::with_capacity(IN_THE_AIR_MAX),
            left: Vec::with_capacity(IN_THE_AIR_MAX),
            probes: 0,
        }
    }

    /// Returns the number of probes so far.
    pub const fn probes(&self) -> u64 {
        self.probes
    }

    /// Returns when the next packet arrives.
    pub fn next_arrival(&self) -> Option<Nanos> {
        self.air.iter().map(|packet| packet.at).min()
    }

    fn fly(&mut self, request: &Outgoing<'_>, from: IpAddr, after_ms: u64, damage: impl FnOnce(&mut [u8]) -> usize) {
        let mut bytes = [0; PACKET_BYTES_MAX];
        let header = if from.is_ipv4() && self.kind == SocketKind::Raw { 20 } else { 0 };
        if header > 0 {
            // Version, header length in words, and protocol.
            (bytes[0], bytes[9]) = (0x45, 1);
        }
        let icmp = &mut bytes[header..header + request.bytes.len()];
        icmp.copy_from_slice(request.bytes);
        icmp[0] = if from.is_ipv4() { 0 } else { 129 };
        let length = header + damage(icmp);
        // The length of the whole packet, in the header.
        if header > 0 {
            bytes[3] = u8::try_from(length).expect("a small packet");
        }
        assert!(self.air.len() < IN_THE_AIR_MAX, "the test's own table must not grow");
        self.air.push(Packet { at: self.clock.now().plus(Nanos::from_millis(after_ms)), from, length, bytes });
    }
}

impl EchoWire for MixedWire {
    fn identify(&mut self, _: u16) {}

    fn kind(&self, _: Family) -> SocketKind {
        self.kind
    }
}

impl Wire for MixedWire {
    fn send(&mut self, packets: &[Outgoing<'_>], sent: &mut dyn FnMut(usize, Result<(), SendError>)) {
        for (index, packet) in packets.iter().enumerate() {
            self.probes += 1;
            let (to, fate) = (packet.to.ip(), Fate::draw(self.probes));
            let whole = |icmp: &mut [u8]| icmp.len();
            match fate {
                Fate::Refused(reason) => {
                    sent(index, Err(reason));
                    continue;
                }
                Fate::Lost => {}
                Fate::Reply(ms) => self.fly(packet, to, ms, whole),
                Fate::Twice => [3, 5].into_iter().for_each(|ms| self.fly(packet, to, ms, whole)),
                Fate::Damaged => self.fly(packet, to, 2, |icmp| {
                    icmp[40] ^= 4;
                    icmp.len()
                }),
                Fate::Truncated => self.fly(packet, to, 2, |icmp| icmp.len() - 9),
                Fate::Foreign => self.fly(packet, to, 2, |icmp| {
                    icmp[8..16].iter_mut().for_each(|byte| *byte = !*byte);
                    icmp.len()
                }),
                Fate::Elsewhere => {
                    let stranger = match to {
                        IpAddr::V4(_) => IpAddr::from([192, 0, 2, 1]),
                        IpAddr::V6(_) => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
                    };
                    self.fly(packet, stranger, 2, whole);
                }
            }
            // Every third request leaves without a report of the kernel.
            if !self.probes.is_multiple_of(3) {
                let mut bytes = [0; PACKET_BYTES_MAX];
                let length = ETHERNET_BYTES + packet.bytes.len();
                bytes[ETHERNET_BYTES..length].copy_from_slice(packet.bytes);
                assert!(self.left.len() < IN_THE_AIR_MAX, "the test's own table must not grow");
                self.left.push(Packet { at: self.clock.now(), from: to, length, bytes });
            }
            sent(index, Ok(()));
        }
    }

    fn receive(&mut self, clock: &dyn Clock, deliver: &mut dyn FnMut(Delivery<'_>)) -> bool {
        let now = self.real_time.check(clock);
        let stamp = |at| Nanos(clock.realtime().0 - now.since(at).0);
        while let Some(Packet { at, length, bytes, .. }) = self.left.pop() {
            deliver(Delivery::Departure(Flow(0), &bytes[..length], self.real_time.moment(Some(stamp(at)), now)));
        }
        let mut index = 0;
        while index < self.air.len() {
            if self.air[index].at > now {
                index += 1;
                continue;
            }
            let Packet { at, from, length, bytes } = self.air.swap_remove(index);
            // Every fourth packet has no kernel stamp.
            let moment = self.real_time.moment((bytes[7] % 4 > 0).then(|| stamp(at)), now);
            let (from, bytes) = (SocketAddr::new(from, 0), &bytes[..length]);
            deliver(Delivery::Arrival(Flow(0), Datagram { from, to: None, ttl: None, bytes, length, moment }));
        }
        true
    }
}

impl std::fmt::Debug for MixedWire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in the air of {:?}", self.air.len(), Family::ALL)
    }
}
