//! The wire: it takes encoded requests, and returns the replies that the script of their address
//! says.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use kube_canary::peers::Family;
use kube_canary::prober::{Clock, Datagram, Delivery, EchoWire, Flow, Outgoing, RealTime, SendError, SocketKind, Wire};
use kube_canary::units::Nanos;

use super::clock::ScriptedClock;

/// The damage to a reply. Positions count from the start of the ICMP message, modulo its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// This bit of the payload is flipped.
    PayloadBit(usize),
    /// The sequence number in the header is another.
    Sequence,
    /// This many bytes are missing at the end.
    Truncated(usize),
    /// The payload has another process's random number.
    ForeignCookie,
    /// The header has another process's identifier. Only a raw socket sees such a packet.
    ForeignIdentifier,
}

/// A reply that will arrive.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// When it arrives. In a script: the time after the request was sent.
    pub at: Nanos,
    /// The damage with which it arrives.
    pub damage: Option<Damage>,
}

/// The fate of a probe in a script.
#[derive(Clone, Debug)]
pub enum Fate {
    /// The kernel does not accept it.
    Refused(SendError),
    /// It is sent, and these replies arrive. Without any, it is lost.
    Out(Vec<Reply>),
}

impl Fate {
    /// A probe without any reply.
    pub const fn lost() -> Self {
        Self::Out(Vec::new())
    }

    /// An intact reply after `us` microseconds.
    pub fn reply(us: u64) -> Self {
        Self::lost().and(us)
    }

    /// One more intact reply, after `us` microseconds.
    pub fn and(self, us: u64) -> Self {
        self.push(us, None)
    }

    /// One more reply, damaged, after `us` microseconds.
    pub fn damaged(self, us: u64, damage: Damage) -> Self {
        self.push(us, Some(damage))
    }

    fn push(mut self, us: u64, damage: Option<Damage>) -> Self {
        if let Self::Out(replies) = &mut self {
            replies.push(Reply { at: Nanos(us * 1_000), damage });
        }
        self
    }
}

/// A request as the wire saw it.
#[derive(Clone, Debug)]
pub struct Probe {
    /// When the request was sent.
    pub sent_at: Nanos,
    /// The error, if the kernel refused it.
    pub refused: Option<SendError>,
    /// All replies, in no order. Arrival times are on the monotonic clock.
    pub replies: Vec<Reply>,
}

type Script = Box<dyn FnMut(u64) -> Fate>;

/// The reaction of a hostile host to a request: packets, and the source addresses
/// that it gives them.
pub type Forger = Box<dyn FnMut(&[u8]) -> Vec<(IpAddr, Vec<u8>)>>;

#[derive(Default)]
struct Link {
    script: Option<Script>,
    log: Vec<Probe>,
    /// Indices into the log of probes without an intact reply that was read.
    open: VecDeque<usize>,
}

struct Packet {
    from: IpAddr,
    bytes: Vec<u8>,
    /// The probe of which it is an intact answer.
    answers: Option<usize>,
}

/// Everything between the agent and its peers.
pub struct LossyWire {
    clock: ScriptedClock,
    kinds: [SocketKind; 2],
    links: HashMap<IpAddr, Link>,
    air: BTreeMap<(Nanos, u64), Packet>,
    /// Packets that have arrived, each with the kernel's real-time stamp.
    queue: VecDeque<(Packet, Nanos)>,
    packets: u64,
    real_time: RealTime,
    /// Packets that have left, each with the kernel's real-time stamp.
    departures: VecDeque<(Vec<u8>, Nanos)>,
    /// Whether the kernel reports departures, and how long after the call to send they are.
    pub leaves_after: Option<Nanos>,
    /// The host that returns a copy of every request, whatever its destination.
    mimic: Option<IpAddr>,
    /// The host that forges packets, and its reaction to each request.
    forger: Option<(IpAddr, Forger)>,
    /// The most packets that one call reads.
    pub reads_max: usize,
    /// The delay right after a read that finds the queue empty, once.
    pub pause_when_empty: Nanos,
    /// How long a call to send takes.
    pub send_takes: Nanos,
    /// The last request of the prober: replies need not wake the agent.
    pub turns_are_frequent: bool,
}

impl LossyWire {
    /// A wire on which every host answers after 100 µs. `kinds`: of the IPv4 and
    /// of the IPv6 socket.
    pub fn new(clock: ScriptedClock, kinds: [SocketKind; 2]) -> Self {
        Self {
            real_time: RealTime::new(&clock),
            clock,
            kinds,
            links: HashMap::new(),
            air: BTreeMap::new(),
            queue: VecDeque::new(),
            packets: 0,
            departures: VecDeque::new(),
            leaves_after: None,
            mimic: None,
            forger: None,
            reads_max: 4_096,
            pause_when_empty: Nanos(0),
            send_takes: Nanos(0),
            turns_are_frequent: false,
        }
    }

    /// Sets the script of the probes to `address`. Its argument is the number of earlier probes.
    pub fn script(&mut self, address: IpAddr, script: impl FnMut(u64) -> Fate + 'static) {
        self.links.entry(address).or_default().script = Some(Box::new(script));
    }

    /// Every request to `address` so far.
    pub fn log(&self, address: IpAddr) -> &[Probe] {
        self.links.get(&address).map_or(&[], |link| &link.log)
    }

    /// Requests to `address` that went out.
    pub fn sent(&self, address: IpAddr) -> u64 {
        self.log(address).iter().filter(|probe| probe.refused.is_none()).count() as u64
    }

    /// Requests to `address` that were sent no longer than `timeout` ago and of which no
    /// intact reply was read.
    pub fn in_flight(&self, address: IpAddr, timeout: Nanos) -> u64 {
        let now = self.clock.now();
        let Some(link) = self.links.get(&address) else { return 0 };
        link.open.iter().rev().take_while(|i| now.since(link.log[**i].sent_at) <= timeout).count() as u64
    }

    /// Requests to all addresses that are in flight.
    pub fn all_in_flight(&self, timeout: Nanos) -> u64 {
        self.links.keys().map(|address| self.in_flight(*address, timeout)).sum()
    }

    /// Packets that have not been read, in flight or waiting.
    pub fn unread(&self) -> usize {
        self.air.len() + self.queue.len()
    }

    /// Packets that have arrived by then and have not been read.
    pub fn unread_by(&self, then: Nanos) -> u64 {
        (self.queue.len() + self.air.range(..=(then, u64::MAX)).count()) as u64
    }

    /// Arrival times of packets that have not been read, between `then` and now.
    pub fn arrivals_since(&self, then: Nanos) -> Vec<Nanos> {
        let range = (then, u64::MAX)..=(self.clock.now(), u64::MAX);
        self.air.range(range).map(|((at, _), _)| *at).collect()
    }

    /// Returns when the next packet can be read.
    pub fn next_arrival(&self) -> Option<Nanos> {
        if self.queue.is_empty() { self.air.keys().next().map(|(at, _)| *at) } else { Some(self.clock.now()) }
    }

    /// A packet without a request arrives after `us` microseconds.
    pub fn inject(&mut self, from: IpAddr, bytes: Vec<u8>, us: u64) {
        let at = self.clock.now().plus(Nanos(us * 1_000));
        self.fly(at, Packet { from, bytes, answers: None });
    }

    /// The host at `address` dies: what it has not sent yet never arrives.
    pub fn silence(&mut self, address: IpAddr) {
        let now = self.clock.now();
        self.air.retain(|(at, _), packet| packet.from != address || *at <= now);
        let recent = self.links.entry(address).or_default().log.iter_mut().rev().take(3);
        recent.for_each(|probe| probe.replies.retain(|reply| reply.at <= now));
    }

    /// From now on, this host answers all requests to other hosts of its family.
    pub fn echo_from(&mut self, host: IpAddr) {
        self.mimic = Some(host);
    }

    /// From now on, the host at `address` sends the packets that `forger` makes of each request,
    /// a millisecond after it.
    pub fn forge_at(&mut self, address: IpAddr, forger: Forger) {
        self.forger = Some((address, forger));
    }

    /// Sets the real-time clock. Packets that have arrived by now keep the old time.
    pub fn step_clock(&mut self, by: i64) {
        self.land();
        self.clock.step(by);
    }

    fn fly(&mut self, at: Nanos, packet: Packet) {
        self.packets += 1;
        self.air.insert((at, self.packets), packet);
    }

    /// Moves the packets that have arrived by now into the socket's queue.
    fn land(&mut self) {
        let (now, real) = (self.clock.now(), self.clock.realtime());
        while let Some(entry) = self.air.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((at, _), packet) = entry.remove_entry();
            self.queue.push_back((packet, Nanos(real.0 - now.since(at).0)));
        }
    }

    fn take(&mut self, request: Outgoing<'_>) -> Result<(), SendError> {
        let held_up = self.leaves_after.unwrap_or_default();
        let to = request.to.ip();
        let (now, kind) = (self.clock.now().plus(held_up), self.kind(Family::from_address(to)));
        let link = self.links.entry(to).or_default();
        let index = link.log.len();
        let fate = link.script.as_mut().map_or_else(|| Fate::reply(100), |script| script(index as u64));
        let mut replies = match fate {
            Fate::Refused(reason) => {
                link.log.push(Probe { sent_at: now, refused: Some(reason), replies: Vec::new() });
                return Err(reason);
            }
            Fate::Out(replies) => replies,
        };
        for reply in &mut replies {
            reply.at = now.plus(reply.at);
        }
        link.open.push_back(index);
        // The bound is above what can be in flight with the longest timeout of any scenario.
        if link.open.len() > 1_000 {
            link.open.pop_front();
        }
        link.log.push(Probe { sent_at: now, refused: None, replies: replies.clone() });
        if self.leaves_after.is_some() {
            // As a device returns it: behind an Ethernet and an IP header.
            let bytes = [&[0; 34], request.bytes].concat();
            self.departures.push_back((bytes, self.clock.realtime().plus(held_up)));
        }
        if let Some(from) = self.mimic {
            self.fly(now.plus(Nanos(1_000)), Packet { from, bytes: answer(request, kind, None), answers: None });
        }
        let forged = match &mut self.forger {
            Some((host, forge)) if *host == to => forge(request.bytes),
            _ => Vec::new(),
        };
        for (from, bytes) in forged {
            self.fly(now.plus(Nanos(1_000_000)), Packet { from, bytes, answers: None });
        }
        for reply in replies {
            let bytes = answer(request, kind, reply.damage);
            let answers = reply.damage.is_none().then_some(index);
            self.fly(reply.at, Packet { from: to, bytes, answers });
        }
        Ok(())
    }
}

impl EchoWire for LossyWire {
    fn identify(&mut self, _: u16) {}

    fn kind(&self, family: Family) -> SocketKind {
        self.kinds[family as usize]
    }
}

impl Wire for LossyWire {
    fn attend(&mut self, turns_are_frequent: bool) {
        self.turns_are_frequent = turns_are_frequent;
    }

    fn send(&mut self, packets: &[Outgoing<'_>], sent: &mut dyn FnMut(usize, Result<(), SendError>)) {
        for (index, packet) in packets.iter().enumerate() {
            sent(index, self.take(*packet));
        }
        self.clock.advance(self.send_takes);
    }

    fn receive(&mut self, clock: &dyn Clock, deliver: &mut dyn FnMut(Delivery<'_>)) -> bool {
        self.land();
        let now = self.real_time.check(clock);
        for (bytes, stamp) in std::mem::take(&mut self.departures) {
            deliver(Delivery::Departure(Flow(0), &bytes, self.real_time.moment(Some(stamp), now)));
        }
        for _ in 0..self.reads_max {
            let Some((packet, stamp)) = self.queue.pop_front() else {
                self.real_time.emptied();
                self.clock.advance(std::mem::take(&mut self.pause_when_empty));
                return true;
            };
            if let (Some(answered), Some(link)) = (packet.answers, self.links.get_mut(&packet.from)) {
                link.open.retain(|index| *index != answered);
            }
            let moment = self.real_time.moment(Some(stamp), now);
            let (from, bytes) = (SocketAddr::new(packet.from, 0), &*packet.bytes);
            let datagram = Datagram { from, to: None, ttl: None, bytes, length: bytes.len(), moment };
            deliver(Delivery::Arrival(Flow(0), datagram));
        }
        false
    }
}

/// The reply of a host to `request`, as a socket of `kind` receives it.
fn answer(request: Outgoing<'_>, kind: SocketKind, damage: Option<Damage>) -> Vec<u8> {
    let mut icmp = request.bytes.to_vec();
    assert_eq!(icmp[..2], [if request.to.is_ipv4() { 8 } else { 128 }, 0], "an echo request of the right family");
    if request.to.is_ipv4() && kind == SocketKind::Raw {
        assert_eq!(checksum(&icmp), 0, "the kernel does not fill in this one, and hosts drop what is wrong");
    }
    icmp[0] = if request.to.is_ipv4() { 0 } else { 129 };
    if kind == SocketKind::Datagram {
        // The kernel replaces the identifier by the ping socket's own.
        icmp[4..6].copy_from_slice(&[0x12, 0x34]);
    }
    match damage {
        None => {}
        Some(Damage::PayloadBit(bit)) => {
            let bit = 64 + bit % ((icmp.len() - 8) * 8);
            icmp[bit / 8] ^= 1 << (bit % 8);
        }
        Some(Damage::Sequence) => icmp[7] ^= 1,
        Some(Damage::Truncated(bytes)) => icmp.truncate((icmp.len() - bytes).max(8)),
        Some(Damage::ForeignCookie) => icmp[8..16].iter_mut().for_each(|byte| *byte = !*byte),
        Some(Damage::ForeignIdentifier) => icmp[4..6].iter_mut().for_each(|byte| *byte = !*byte),
    }
    match request.to.ip() {
        IpAddr::V4(from) if kind == SocketKind::Raw => ip_header(from, &icmp),
        _ => icmp,
    }
}

/// Returns `icmp` behind an IPv4 header.
pub fn ip_header(from: std::net::Ipv4Addr, icmp: &[u8]) -> Vec<u8> {
    let length = u16::try_from(20 + icmp.len()).expect("fits a packet").to_be_bytes();
    let mut packet = vec![0x45, 0, length[0], length[1], 0, 0, 0, 0, 64, 1, 0, 0];
    packet.extend(from.octets());
    packet.extend([10, 0, 0, 1]);
    packet.extend(icmp);
    packet
}

/// The checksum of RFC 1071: 0 over a message that contains its own.
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from);
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("folded")
}
