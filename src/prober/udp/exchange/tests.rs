use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use super::*;
use crate::peers::{Network, ZoneId};
use crate::prober::udp::stamp::NtpTime;
use crate::prober::udp::stamp::packet::{EXTRA_REQUEST_BYTES, REQUEST_BYTES};
use crate::prober::udp::{Answer, Reflected};
use crate::prober::{Delivery, Moment, Outgoing, RealTime, Stamp, Wire};

mod links;
mod loopback;
mod other_node;
mod reflector;

const MS: u64 = 1_000_000;
const SECOND: Nanos = Nanos::from_millis(1_000);
const PORT: u16 = 9_877;
/// One way through the network.
const WAY: Nanos = Nanos(200_000);
/// How far the clocks of all other nodes are ahead of ours.
const AHEAD: u64 = 77 * MS;

/// A clock that moves only when the test advances it. Clones share it.
#[derive(Clone, Debug)]
struct Scripted {
    now: Rc<Cell<u64>>,
    /// How far the real-time clock is ahead, from which time on.
    ahead: Rc<RefCell<Vec<(u64, u64)>>>,
}

impl Scripted {
    fn new() -> Self {
        let ahead = RefCell::new(vec![(0, 1_600_000_000_000 * MS)]);
        Self { now: Rc::new(Cell::new(10_800 * 1_000 * MS)), ahead: Rc::new(ahead) }
    }

    fn advance(&self, span: Nanos) {
        self.now.set(self.now.get() + span.0);
    }

    fn step(&self, by: i64) {
        let (_, ahead) = *self.ahead.borrow().last().unwrap();
        self.ahead.borrow_mut().push((self.now.get(), ahead.checked_add_signed(by).unwrap()));
    }

    /// Returns what the real-time clock showed at a time.
    fn real_at(&self, at: Nanos) -> Nanos {
        let ahead = self.ahead.borrow();
        let (_, ahead) = ahead.iter().rev().find(|(since, _)| *since <= at.0).unwrap();
        Nanos(at.0 + ahead)
    }
}

impl Clock for Scripted {
    fn now(&self) -> Nanos {
        Nanos(self.now.get())
    }

    fn realtime(&self) -> Nanos {
        self.real_at(self.now())
    }
}

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    NotSent,
    LostThere,
    LostBack,
    /// It is answered after the peer has kept it for this long.
    Answered(Nanos),
}

/// What the kernel has for the prober.
#[derive(Clone, Debug)]
enum Packet {
    Arrival { flow: Flow, from: SocketAddr, bytes: Vec<u8> },
    Request { from: SocketAddr, bytes: Vec<u8> },
}

/// A request as the wire saw it.
#[derive(Clone, Debug)]
struct Seen {
    to: SocketAddr,
    flow: Flow,
    at: Nanos,
    bytes: Vec<u8>,
    fate: Fate,
}

type Script = Box<dyn FnMut(&Outgoing<'_>, usize) -> Fate>;

/// Everything between the agent and its peers, which all have a reflector.
struct Net {
    clock: Scripted,
    real_time: RealTime,
    script: Script,
    counts: BTreeMap<IpAddr, u32>,
    log: Vec<Seen>,
    calls: usize,
    /// With the time of arrival and a number that makes it unique.
    air: BTreeMap<(Nanos, usize), Packet>,
    /// Departures that were not read, with the kernel's stamp.
    departures: Vec<(Flow, Vec<u8>, Nanos)>,
    answers: Vec<(SocketAddr, Vec<u8>, Nanos)>,
    answered: Vec<(Vec<u8>, Nanos)>,
    packets: usize,
    /// How long after the call an answer leaves.
    answer_takes: Nanos,
    /// Hashes of the names with which reflectors answer.
    names: BTreeMap<IpAddr, u64>,
}

impl Net {
    fn new(clock: &Scripted, script: impl FnMut(&Outgoing<'_>, usize) -> Fate + 'static) -> Self {
        Self {
            clock: clock.clone(),
            real_time: RealTime::new(clock),
            script: Box::new(script),
            counts: BTreeMap::new(),
            log: Vec::new(),
            calls: 0,
            air: BTreeMap::new(),
            departures: Vec::new(),
            answers: Vec::new(),
            answered: Vec::new(),
            packets: 0,
            answer_takes: Nanos(30_000),
            names: BTreeMap::new(),
        }
    }

    fn fly(&mut self, at: Nanos, packet: Packet) {
        self.packets += 1;
        self.air.insert((at, self.packets), packet);
    }

    /// Returns what has arrived by now, with the time of arrival.
    fn landed(&mut self, wanted: impl Fn(&Packet) -> bool) -> Vec<(Nanos, Packet)> {
        let now = self.clock.now();
        let keys: Vec<_> =
            self.air.iter().filter(|((at, _), packet)| *at <= now && wanted(packet)).map(|(key, _)| *key).collect();
        keys.into_iter().map(|key| (key.0, self.air.remove(&key).unwrap())).collect()
    }

    /// Returns the moment of a packet that was stamped at this time.
    fn moment(&mut self, at: Nanos) -> Moment {
        let now = self.real_time.check(&self.clock);
        self.real_time.moment(Some(self.clock.real_at(at)), now)
    }
}

/// The answer of RFC 8762, written from the RFC and not by the code under test.
fn stamp_answer(request: &[u8], count: u32, [t2, t3]: [Nanos; 2]) -> Vec<u8> {
    let mut answer = request.to_vec();
    answer[..4].copy_from_slice(&count.to_be_bytes());
    answer[4..12].copy_from_slice(&NtpTime::from_unix(t3).to_bytes());
    answer[12..14].copy_from_slice(&[0x3f, 0xff]);
    answer[16..24].copy_from_slice(&NtpTime::from_unix(t2).to_bytes());
    answer[24..38].copy_from_slice(&request[..14]);
    answer[38..44].copy_from_slice(&[0, 0, 61, 0, 0, 0]);
    answer[44] = 0;
    answer
}

impl Wire for Net {
    fn send(&mut self, packets: &[Outgoing<'_>], sent: &mut dyn FnMut(usize, Result<(), SendError>)) {
        self.calls += 1;
        let now = self.clock.now();
        let there = self.clock.realtime().0 + AHEAD;
        for (index, packet) in packets.iter().enumerate() {
            let number = self.log.iter().filter(|seen| seen.to == packet.to).count();
            let fate = (self.script)(packet, number);
            let bytes = packet.bytes.to_vec();
            self.log.push(Seen { to: packet.to, flow: packet.flow, at: now, bytes: bytes.clone(), fate });
            if fate == Fate::NotSent {
                sent(index, Err(SendError::NoBuffer));
                continue;
            }
            sent(index, Ok(()));
            // As a device returns it: behind its headers.
            self.departures.push((packet.flow, [&[0; 42], &bytes[..]].concat(), now));
            if fate == Fate::LostThere {
                continue;
            }
            let counted = self.counts.entry(packet.to.ip()).or_default();
            let count = *counted;
            *counted += 1;
            if let Fate::Answered(dwell) = fate {
                let t2 = Nanos(there + WAY.0);
                let mut bytes = stamp_answer(&bytes, count, [t2, t2.plus(dwell)]);
                if let (Some(name), [0x80, 252, 0, 8, ..]) = (self.names.get(&packet.to.ip()), &bytes[REQUEST_BYTES..])
                {
                    bytes[REQUEST_BYTES] = 0;
                    bytes[REQUEST_BYTES + 4..].copy_from_slice(&name.to_be_bytes());
                }
                let at = now.plus(WAY).plus(dwell).plus(WAY);
                self.fly(at, Packet::Arrival { flow: packet.flow, from: packet.to, bytes });
            }
        }
    }

    fn receive(&mut self, _: &dyn Clock, deliver: &mut dyn FnMut(Delivery<'_>)) -> bool {
        for (flow, bytes, at) in std::mem::take(&mut self.departures) {
            let moment = self.moment(at);
            deliver(Delivery::Departure(flow, &bytes, moment));
        }
        for (at, packet) in self.landed(|packet| matches!(packet, Packet::Arrival { .. })) {
            let Packet::Arrival { flow, from, bytes } = packet else { continue };
            let moment = self.moment(at);
            let datagram = Datagram { from, to: None, ttl: Some(61), bytes: &bytes, length: bytes.len(), moment };
            deliver(Delivery::Arrival(flow, datagram));
        }
        self.real_time.emptied();
        true
    }
}

impl UdpWire for Net {
    fn source_port(&self, flow: Flow, _: bool) -> Option<u16> {
        Some(40_000 + u16::from(flow.0))
    }

    fn answer(&mut self, answers: &[Answer<'_>]) {
        let now = self.clock.now();
        for (place, answer) in (0..).zip(answers) {
            self.answers.push((answer.to, answer.bytes.to_vec(), now));
            if answer.stamped {
                let at = now.plus(self.answer_takes).plus(Nanos(place * 1_000));
                self.answered.push(([&[0; 42], answer.bytes].concat(), at));
            }
        }
    }

    fn requests(&mut self, _: &dyn Clock, deliver: &mut dyn FnMut(Reflected<'_>)) -> bool {
        for (bytes, at) in std::mem::take(&mut self.answered) {
            let moment = self.moment(at);
            deliver(Reflected::Answered(&bytes, moment));
        }
        for (at, packet) in self.landed(|packet| matches!(packet, Packet::Request { .. })) {
            let Packet::Request { from, bytes } = packet else { continue };
            let (moment, to) = (self.moment(at), Some(peer(200)));
            deliver(Reflected::Request(Datagram {
                from,
                to,
                ttl: Some(60),
                bytes: &bytes,
                length: bytes.len(),
                moment,
            }));
        }
        self.real_time.emptied();
        true
    }
}

/// What the prober has reported.
#[derive(Debug, Default)]
struct Log {
    events: Vec<(SlotId, Event)>,
    flows: Vec<(SlotId, u8, bool)>,
    extra_flows: Vec<(SlotId, u8, bool)>,
    flow_ways: Vec<(SlotId, u8, bool)>,
    /// By slot: losses there and back.
    ways: BTreeMap<u32, [u32; 2]>,
    hops: Vec<u8>,
    one_way: Vec<(i64, i64)>,
    unrelated: u32,
}

impl Log {
    fn observe(&mut self, observation: Observation) {
        match observation {
            Observation::Probe { slot, event, .. } => self.events.push((slot, event)),
            Observation::Flow { slot, flow, answered, extra } => {
                let flows = if extra { &mut self.extra_flows } else { &mut self.flows };
                flows.push((slot, flow, answered));
            }
            Observation::Directions { slot, there, back } => {
                let ways = self.ways.entry(slot.0).or_default();
                *ways = [ways[0] + there, ways[1] + back];
                let lost = self.count(slot, |event| *event == Event::Lost);
                assert!(self.ways[&slot.0].iter().sum::<u32>() as usize <= lost, "only of losses that were counted");
            }
            Observation::FlowDirection { slot, flow, there } => self.flow_ways.push((slot, flow, there)),
            Observation::Hops { hops, .. } => self.hops.push(hops),
            Observation::OneWay { delays: [there, back], .. } => self.one_way.push((there, back)),
            Observation::Unrelated => self.unrelated += 1,
            Observation::SendLag(_) | Observation::ReadDelay(_) | Observation::Skipped(_) => {}
            other => panic!("{other:?} is not of UDP"),
        }
    }

    fn count(&self, slot: SlotId, wanted: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|(of, event)| *of == slot && wanted(event)).count()
    }

    fn received(&self) -> Vec<(Nanos, Stamp)> {
        let received = |(_, event): &(SlotId, Event)| match event {
            Event::Received { rtt, stamp, .. } => Some((*rtt, *stamp)),
            _ => None,
        };
        self.events.iter().filter_map(received).collect()
    }
}

fn peer(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number).into()
}

const fn slot(number: u32) -> SlotId {
    SlotId(number)
}

struct World {
    prober: Prober<Udp<Net>, Scripted>,
    clock: Scripted,
    log: Log,
}

impl World {
    fn new(peers: u8, script: impl FnMut(&Outgoing<'_>, usize) -> Fate + 'static) -> Self {
        Self::with(peers, SECOND, SECOND, script)
    }

    fn with(
        peers: u8,
        interval: Nanos,
        timeout: Nanos,
        script: impl FnMut(&Outgoing<'_>, usize) -> Fate + 'static,
    ) -> Self {
        let clock = Scripted::new();
        let settings = Settings {
            interval,
            timeout,
            node: "self".into(),
            doubts: false,
            new_peer_silence: Nanos(0),
            replies_wait: Nanos(250 * MS),
        };
        let prober = Udp::prober(Net::new(&clock, script), clock.clone(), &settings, (PORT, 16));
        let mut world = Self { prober, clock, log: Log::default() };
        for number in 0..peers {
            world.prober.apply(Change::Join { slot: slot(number.into()) });
            world.aim(number.into(), peer(number), false);
        }
        world
    }

    fn aim(&mut self, number: u32, address: IpAddr, terminating: bool) {
        let (zone, network) = (ZoneId::UNKNOWN, Network::Pod);
        self.prober.apply(Change::Probe { slot: slot(number), address, zone, network, terminating });
    }

    fn turn(&mut self) {
        assert!(self.prober.turn(&mut |observation| self.log.observe(observation)));
    }

    /// Runs for a span: turns when something is due. Packets between turns wait.
    fn run(&mut self, span: Nanos) {
        let end = self.clock.now().plus(span);
        loop {
            let next = self.prober.next_turn().map_or(end, |next| next.min(end));
            self.clock.advance(next.since(self.clock.now()));
            self.turn();
            if next == end {
                return;
            }
        }
    }

    fn wire(&mut self) -> &mut Net {
        self.prober.wire()
    }
}

const AT_ONCE: Fate = Fate::Answered(Nanos(40_000));

#[test]
fn two_clocks_are_comparable_if_both_are_synchronized_in_one_format() {
    let good = ErrorEstimate::new(Nanos::from_millis(1), true);
    let apart = clocks_apart(good, good).unwrap().0;
    assert!((2_000_000..2_050_000).contains(&apart), "{apart}");
    for bad in [
        ErrorEstimate::UNKNOWN,
        ErrorEstimate { synchronized: false, ..good },
        ErrorEstimate { ptp: true, ..good },
        // RFC 4656: the multiplier must not be zero.
        ErrorEstimate { multiplier: 0, ..good },
    ] {
        assert_eq!(clocks_apart(good, bad), None, "{bad:?}");
    }
    assert_eq!(clocks_apart(ErrorEstimate::UNKNOWN, good), None);
}

#[test]
fn hops_are_counted_from_the_usual_starts() {
    assert_eq!([64, 63, 128, 125, 255, 250, 1, 0].map(hops), [1, 2, 1, 4, 1, 6, 64, 65]);
}
