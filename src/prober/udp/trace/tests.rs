//! Traces over generated networks of parallel paths, with loss, silent hops and routers that limit
//! their errors, on a scripted clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, SocketAddr};

use super::*;
use crate::limits::{TRACE_PACKETS_MAX, TRACES_KEPT};
use crate::peers::{Change, Network, SlotId, ZoneId};
use crate::prober::{Flow, Moment, Refusal, Unreachable};
use crate::splitmix::Random;
use crate::units::Nanos;

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const FLOWS: u8 = 16;

/// A router, or the destination as the last of a path.
#[derive(Clone)]
struct Router {
    address: IpAddr,
    silent: bool,
    /// It answers one packet in two seconds.
    limited: bool,
    /// It refuses all packets, also those whose TTL has not run out.
    refuses: bool,
    /// Loss of packets that arrive here, per thousand.
    loss: u64,
    /// Errors that it may still send, as Linux limits them.
    tokens: f64,
    refilled: u64,
}

fn router(address: [u8; 4]) -> Router {
    Router { address: address.into(), silent: false, limited: false, refuses: false, loss: 0, tokens: 6.0, refilled: 0 }
}

/// When a packet arrives, and what it is.
type Arrival = (u64, u32, u8, u32, Option<(IpAddr, bool)>);

/// The path of each flow of each slot, by indices of routers.
struct Net {
    tracer: Tracer,
    random: Random,
    now: u64,
    routers: Vec<Router>,
    paths: BTreeMap<(u32, u8), Vec<usize>>,
    /// Loss in each direction, per thousand.
    loss: u64,
    /// Loss of the answers of destinations, per thousand.
    loss_of_answers: u64,
    /// The flow that is wanted each second until it is traced.
    wanted: Option<(u32, u8)>,
    /// Whether its losses are known to be on the way there.
    outbound: bool,
    /// Number of hops that answers have come.
    hops: u8,
    /// Time, slot, flow, number, and the router that sends an error, and whether it refuses.
    arrivals: BinaryHeap<Reverse<Arrival>>,
    /// Times of all packets, with their slots.
    sent: Vec<(u64, u32)>,
    finished: Vec<TracedFlow>,
}

fn peer(slot: u32) -> IpAddr {
    [10, 9, 0, u8::try_from(slot + 1).unwrap()].into()
}

fn probe(slot: u32) -> Change {
    let (slot, address, zone, network) = (SlotId(slot), peer(slot), ZoneId::UNKNOWN, Network::Pod);
    Change::Probe { slot, address, zone, network, terminating: false }
}

impl Net {
    /// A fabric: the node, a leaf switch, one of `spines`, the far leaf switch, the peer.
    fn fabric(seed: u64, slots: u32, spines: u8) -> Self {
        let mut random = Random(seed);
        let mut tracer = Tracer::new(FLOWS);
        let mut routers = vec![router([10, 0, 0, 1]), router([10, 0, 1, 1])];
        routers.extend((0..spines).map(|spine| router([10, 0, 2, spine + 1])));
        let mut paths = BTreeMap::new();
        for slot in 0..slots {
            tracer.apply(Change::Join { slot: SlotId(slot) }, false);
            tracer.apply(probe(slot), true);
            routers.push(router([10, 0, 3, u8::try_from(slot + 1).unwrap()]));
            routers.push(Router { address: peer(slot), ..router([0; 4]) });
            let last = routers.len() - 1;
            for flow in 0..FLOWS {
                let spine = 2 + usize::try_from(random.next() % u64::from(spines)).unwrap();
                paths.insert((slot, flow), vec![0, 1, spine, last - 1, last]);
            }
        }
        let (arrivals, sent, finished) = (BinaryHeap::new(), Vec::new(), Vec::new());
        Self {
            tracer,
            random,
            now: SECOND,
            routers,
            paths,
            loss: 0,
            loss_of_answers: 0,
            wanted: None,
            outbound: true,
            hops: 0,
            arrivals,
            sent,
            finished,
        }
    }

    fn chance(&mut self, per_thousand: u64) -> bool {
        self.random.next() % 1_000 < per_thousand
    }

    fn run(&mut self, seconds: u64) {
        let until = self.now + seconds * SECOND;
        while self.now < until {
            self.now += 1 + self.random.next() % (250 * MS);
            let now = Nanos(self.now);
            if let Some((slot, flow)) = self.wanted
                && self.tracer.may_trace(SlotId(slot), now)
            {
                self.tracer.want(
                    SlotId(slot),
                    Flow(flow),
                    Reason::Losing { is_outbound: self.outbound, hops: self.hops },
                    now,
                );
            }
            while let Some(Reverse((at, slot, flow, sequence, router))) = self.arrivals.peek().copied()
                && at <= self.now
            {
                self.arrivals.pop();
                let (probe, moment) = ((SlotId(slot), Flow(flow), sequence), Moment::read(Nanos(at)));
                match router {
                    Some((router, refuses)) => {
                        let refusal =
                            if refuses { Refusal::Unreachable(Unreachable::Prohibited) } else { Refusal::TimeExceeded };
                        self.tracer.refused(probe, Some(router), refusal, moment);
                    }
                    None => _ = self.tracer.answered(probe, moment),
                }
            }
            while let Some(packet) = self.tracer.due(now, |slot| Some(SocketAddr::new(peer(slot.0), 9_877))) {
                self.send(packet);
            }
            self.finished.extend(self.tracer.take_finished().copied());
        }
    }

    fn send(&mut self, packet: TraceProbe) {
        let TraceProbe { to, slot, flow, ttl, sequence } = packet;
        assert!(to.ip() == peer(slot.0) && (1..=30).contains(&ttl));
        self.sent.push((self.now, slot.0));
        let path = self.paths[&(slot.0, flow.0)].clone();
        if self.chance(self.loss) {
            return;
        }
        for (index, at) in path.iter().enumerate() {
            if self.chance(self.routers[*at].loss) {
                return;
            }
            let is_last = index + 1 == path.len();
            if !is_last && usize::from(ttl) != index + 1 && !self.routers[*at].refuses {
                continue;
            }
            let back = self.chance(self.loss) || is_last && self.chance(self.loss_of_answers);
            let router = &mut self.routers[*at];
            let rate = if router.limited { 0.5 } else { 1.0 };
            router.tokens = (router.tokens + (self.now - router.refilled) as f64 / 1e9 * rate).min(6.0);
            router.refilled = self.now;
            let answers = is_last || !router.silent && router.tokens >= 1.0;
            if !is_last && answers {
                router.tokens -= 1.0;
            }
            let error = (!is_last || router.refuses).then_some((router.address, router.refuses));
            if answers && !back {
                let at = self.now + (1 + index as u64) * MS;
                self.arrivals.push(Reverse((at, slot.0, flow.0, sequence, error)));
            }
            return;
        }
    }

    fn want(&mut self, slot: u32, flow: u8) {
        self.wanted = Some((slot, flow));
    }

    fn path(&self, slot: u32, flow: u8) -> impl Iterator<Item = IpAddr> {
        self.paths[&(slot, flow)].iter().map(|at| self.routers[*at].address)
    }
}

fn addresses(trace: &TracedFlow) -> Vec<Option<IpAddr>> {
    trace.hops().iter().map(|hop| hop.address).collect()
}

#[test]
fn a_path_is_traced_hop_by_hop_with_its_times() {
    let mut net = Net::fabric(1, 1, 4);
    net.want(0, 5);
    net.run(30);
    let trace = *net.tracer.last(SlotId(0)).unwrap();
    let path = &net.paths[&(0, 5)];
    assert_eq!(addresses(&trace), path.iter().map(|at| Some(net.routers[*at].address)).collect::<Vec<_>>());
    assert!(trace.reached() && trace.flow == Flow(5) && net.finished == [trace]);
    for (index, hop) in trace.hops().iter().enumerate() {
        assert_eq!((hop.sent, hop.answered), (30, 30));
        let least = (1 + index as u64) * MS;
        assert_eq!(hop.best_rtt(), Some(Nanos(least)), "hop {index}");
    }
}

#[test]
fn a_dead_next_hop_of_an_ecmp_group_is_named_by_the_flow_that_takes_it() {
    for seed in 0..300 {
        let mut net = Net::fabric(seed, 4, 4);
        let flow = u8::try_from(seed % 16).unwrap();
        let dead = net.paths[&(2, flow)][2];
        net.routers[dead].loss = 1_000;
        net.want(2, flow);
        net.run(30);
        let trace = *net.tracer.last(SlotId(2)).unwrap();
        let last = Some(IpAddr::from([10, 0, 1, 1]));
        assert_eq!(trace.finding, TraceFinding::DiesAfter { last }, "seed {seed}");
        assert!(!trace.reached() && trace.hops().len() == 2);
    }
}

#[test]
fn the_hop_behind_which_a_flow_loses_a_fifth_is_named_from_its_own_counts() {
    let (mut named, mut with_next, mut wrong) = (0, 0, 0);
    for seed in 0..1_000 {
        let mut net = Net::fabric(seed, 1, 4);
        let flow = u8::try_from(seed % 16).unwrap();
        let bad = net.paths[&(0, flow)][1 + usize::try_from(seed % 4).unwrap()];
        net.routers[bad].loss = 200;
        // A router that answers rarely is before or behind the loss, or is that hop.
        let limited = net.paths[&(0, flow)][usize::try_from(seed / 4 % 4).unwrap()];
        net.routers[limited].limited = seed % 3 == 0;
        net.want(0, flow);
        net.run(30);
        let trace = *net.tracer.last(SlotId(0)).unwrap();
        let before = net.path(0, flow).take_while(|address| *address != net.routers[bad].address);
        match trace.finding {
            TraceFinding::LosesBehind { hop, next } if before.last() == Some(hop) => {
                assert!(next.is_none_or(|next| next == net.routers[bad].address), "seed {seed}: {trace:?}");
                (named, with_next) = (named + 1, with_next + u32::from(next.is_some()));
            }
            // The one before, if the last answers rarely: that is true as well.
            TraceFinding::LosesBehind { hop, .. }
                if net.path(0, flow).position(|passed| passed == hop) < Some(bad_at(seed)) =>
            {
                assert!(net.routers[limited].limited, "seed {seed}: {trace:?}");
            }
            TraceFinding::LosesBehind { .. } => wrong += 1,
            TraceFinding::Complete => {}
            other => panic!("seed {seed}: {other}"),
        }
    }
    // Chance alone makes a hop behind the loss answer all in one of 800 cases.
    println!("{named} named, {with_next} with the next hop, {wrong} wrong");
    assert!(named > 700 && with_next > 500 && wrong <= 5, "{named}, {with_next}, {wrong}");
}

/// The place of the router that loses, in the test above.
fn bad_at(seed: u64) -> usize {
    1 + usize::try_from(seed % 4).unwrap()
}

#[test]
fn losses_on_the_way_back_name_no_hop() {
    for seed in 0..500 {
        let mut net = Net::fabric(seed, 1, 4);
        let flow = u8::try_from(seed % 16).unwrap();
        (net.outbound, net.loss_of_answers) = (false, if seed % 2 == 0 { 200 } else { 1_000 });
        net.want(0, flow);
        net.run(90);
        let trace = *net.tracer.last(SlotId(0)).unwrap();
        let leaf = net.path(0, flow).nth(3);
        let expected = if seed % 2 == 0 { TraceFinding::Complete } else { TraceFinding::SilentBehind { last: leaf } };
        assert_eq!(trace.finding, expected, "seed {seed}");
        assert_eq!(
            TraceFinding::SilentBehind { last: leaf }.to_string(),
            format!("no answer from behind {}", leaf.unwrap())
        );
    }
}

#[test]
fn a_path_is_said_to_be_dead_if_its_direction_is_known_soon() {
    let last = Some(IpAddr::from([10, 0, 1, 1]));
    for (known_after, expected) in [
        (0, TraceFinding::DiesAfter { last }),
        (50, TraceFinding::DiesAfter { last }),
        (80, TraceFinding::SilentBehind { last }),
    ] {
        let mut net = Net::fabric(1, 1, 4);
        let dead = net.paths[&(0, 0)][2];
        net.routers[dead].loss = 1_000;
        net.outbound = false;
        net.want(0, 0);
        net.run(known_after);
        net.outbound = true;
        net.run(40);
        let traces: Vec<TraceFinding> = net.finished.iter().map(|trace| trace.finding).collect();
        assert_eq!(traces, [expected], "known after {known_after} s");
    }
}

#[test]
fn silent_hops_and_limited_errors_are_no_faults() {
    for seed in 0..500 {
        let mut net = Net::fabric(seed, 1, 4);
        let mut random = Random(seed);
        let silent = 1 + usize::try_from(random.next() % 3).unwrap();
        let index = net.paths[&(0, 0)][silent];
        net.routers[index].silent = true;
        for router in &mut net.routers {
            router.tokens = 0.0;
        }
        net.run(60);
        net.want(0, 0);
        net.run(30);
        let trace = *net.tracer.last(SlotId(0)).unwrap();
        assert_eq!(
            (trace.hops().len(), trace.reached(), trace.finding),
            (5, true, TraceFinding::Complete),
            "seed {seed}"
        );
        assert_eq!(trace.hops()[silent].address, None);
    }
}

#[test]
fn random_loss_of_a_fifth_makes_no_dead_hop() {
    for seed in 0..1_000 {
        let mut net = Net::fabric(seed, 1, 4);
        net.loss = 200;
        net.want(0, 0);
        net.run(60);
        let trace = *net.tracer.last(SlotId(0)).unwrap();
        assert_eq!(trace.finding, TraceFinding::Complete, "seed {seed}: {:?}", addresses(&trace));
        assert!(trace.reached() && trace.hops().len() == 5);
    }
}

#[test]
fn a_refusal_is_no_silence_and_has_its_reason() {
    for hop in [2, 4] {
        let mut net = Net::fabric(1, 1, 4);
        let index = net.paths[&(0, 0)][hop];
        net.routers[index].refuses = true;
        net.want(0, 0);
        net.run(30);
        let trace = net.tracer.last(SlotId(0)).unwrap();
        assert_eq!(trace.hops().len(), hop + 1);
        let (hop, reason) = (net.routers[index].address, Unreachable::Prohibited);
        assert_eq!(trace.finding, TraceFinding::RefusedBy { hop, reason });
        assert_eq!(trace.finding.to_string(), format!("refused by {hop} (prohibited)"));
    }
}

#[test]
fn a_nearer_refusal_replaces_the_hop_that_answered_before_it() {
    let [far, near, router] = [[10, 0, 0, 5], [10, 0, 0, 4], [10, 0, 0, 3]].map(IpAddr::from);
    let mut trace = TracedFlow::new(SlotId(0), Flow(0), Reason::Requested, Nanos(0));
    let refused = End::Refused(Unreachable::Prohibited);
    trace.record(4, router, Nanos(1), End::Silent);
    trace.record(5, far, Nanos(1), refused);
    trace.record(4, near, Nanos(1), refused);
    let hops: Vec<_> = trace.hops().iter().map(|hop| hop.address).collect();
    assert_eq!(hops, [None, None, None, Some(near)]);
    let reason = Unreachable::Prohibited;
    assert_eq!(TraceFinding::from_trace(&trace), TraceFinding::RefusedBy { hop: near, reason });
    trace.record(4, router, Nanos(1), refused);
    assert_eq!(trace.hop(4).address, Some(near), "the first that refuses there");
}

#[test]
fn a_refusal_at_the_destination_takes_no_answer_of_it() {
    let [hop, destination] = [[10, 0, 0, 3], [10, 0, 0, 4]].map(IpAddr::from);
    let mut trace = TracedFlow::new(SlotId(0), Flow(0), Reason::Requested, Nanos(0));
    for _ in 0..20 {
        trace.sent(1);
        trace.sent(2);
        trace.record(1, hop, Nanos(1), End::Silent);
        trace.record(2, destination, Nanos(1), End::Reached);
    }
    trace.sent(2);
    trace.record(2, destination, Nanos(1), End::Refused(Unreachable::Port));
    assert_eq!((trace.end, trace.hop(2).answered, trace.hop(2).sent), (End::Reached, 20, 21));
    assert_eq!(TraceFinding::from_trace(&trace), TraceFinding::Complete);
}

#[test]
fn a_refusal_that_begins_or_ends_during_a_trace_names_no_other_hop() {
    for seed in 0..200 {
        let mut net = Net::fabric(seed, 1, 4);
        let index = net.paths[&(0, 0)][2];
        net.want(0, 0);
        // Not before the first pass is over.
        net.run(2);
        net.routers[index].refuses = true;
        net.run(2);
        let ends = seed % 2 == 0;
        net.routers[index].refuses = !ends;
        net.run(50);
        let trace = net.tracer.last(SlotId(0)).unwrap();
        if ends {
            // Packets were lost meanwhile.
            assert!(trace.reached() && trace.hops().len() == 5, "seed {seed}: {trace:?}");
        } else {
            let before = net.path(0, 0).nth(1).unwrap();
            match trace.finding {
                TraceFinding::RefusedBy { hop, .. } => {
                    assert_eq!(hop, net.routers[index].address, "seed {seed}: {trace:?}");
                }
                // The destination has answered before.
                TraceFinding::LosesBehind { hop, .. } => assert_eq!(hop, before, "seed {seed}: {trace:?}"),
                other => panic!("seed {seed}: {other}"),
            }
        }
    }
}

#[test]
fn a_path_with_many_silent_hops_is_not_dead_if_its_length_is_known() {
    for (hops, is_complete) in [(11, true), (0, false)] {
        let mut net = Net::fabric(1, 1, 4);
        let path = net.paths[&(0, 0)].clone();
        net.routers[path[2]].silent = true;
        net.paths.insert((0, 0), [&path[..2], &[path[2]; 7], &path[3..]].concat());
        (net.loss, net.hops) = (100, hops);
        net.want(0, 0);
        net.run(60);
        let trace = net.finished.last().unwrap();
        assert_eq!(trace.reached(), is_complete, "{trace:?}");
    }
}

#[test]
fn a_link_is_traced_once_in_ten_minutes_and_few_in_a_minute() {
    const LINKS: u32 = 30;
    for (members, pause) in [(40, 30), (600, 30), (1_000, 50), (5_000, 250)] {
        let mut net = Net::fabric(3, LINKS, 4);
        net.tracer.set_members(members);
        for _ in 0..2_400 {
            let now = Nanos(net.now);
            // The last is the worst of those that were traced longest ago.
            let age = |slot: u32| net.tracer.last(SlotId(slot)).map_or(u64::MAX, |trace| now.since(trace.at).0);
            let may = (0..LINKS).filter(|slot| net.tracer.may_trace(SlotId(*slot), now));
            net.wanted = may.max_by_key(|slot| (age(*slot), *slot)).map(|slot| (slot, 3));
            net.run(1);
        }
        let traces = &net.finished;
        assert_eq!(traces[..3].iter().map(|trace| trace.slot.0).collect::<Vec<_>>(), [29, 28, 27], "the worst first");
        let apart = |a: &TracedFlow, b: &TracedFlow| (b.at.0 - a.at.0) / SECOND;
        let gaps: Vec<u64> = traces.windows(2).map(|two| apart(&two[0], &two[1])).collect();
        assert!(gaps.iter().all(|gap| (pause..pause + 4).contains(gap)), "{members}: {gaps:?}");
        for (place, trace) in traces.iter().enumerate() {
            let again = traces[place + 1..].iter().find(|other| other.slot == trace.slot);
            assert!(again.is_none_or(|again| apart(trace, again) >= 600), "{members}: {}", trace.slot.0);
        }
        let mut packets = BTreeMap::new();
        net.sent.iter().for_each(|(at, _)| *packets.entry(at / (60 * SECOND)).or_insert(0_usize) += 1);
        assert!(packets.values().all(|packets| *packets <= 3 * TRACE_PACKETS_MAX), "{packets:?}");
        assert!(net.tracer.kept().len() <= TRACES_KEPT);
        let slots: std::collections::BTreeSet<u32> = traces.iter().map(|trace| trace.slot.0).collect();
        assert!(slots.len() == traces.len().min(LINKS as usize), "{members}: {slots:?}");
    }
}

#[test]
fn a_trace_ends_by_itself_whatever_the_network_does() {
    for seed in 0..300 {
        let mut net = Net::fabric(seed, 1, 4);
        // A loop: no packet ever arrives, and every hop answers.
        let path: Vec<usize> = (0..40).map(|index| index % 2).chain([0]).collect();
        net.paths.insert((0, 9), path);
        net.paths.insert((0, 8), vec![0; 40]);
        net.loss = seed % 1_000;
        net.want(0, 9 - u8::try_from(seed % 2).unwrap());
        net.run(13);
        let trace = net.tracer.last(SlotId(0)).unwrap();
        assert!(!trace.reached() && trace.hops().len() <= 30);
        assert!(trace.hops().iter().map(|hop| usize::from(hop.sent)).sum::<usize>() <= TRACE_PACKETS_MAX);
    }
}

#[test]
fn only_errors_about_packets_in_flight_count() {
    let to = SocketAddr::new(peer(0), 9_877);
    let mut tracer = Net::fabric(1, 2, 1).tracer;
    tracer.want(SlotId(0), Flow(3), Reason::Losing { is_outbound: true, hops: 0 }, Nanos(1));
    let packet = tracer.due(Nanos(1), |_| Some(to)).unwrap();
    let (router, moment) = (Some(IpAddr::from([10, 0, 0, 1])), Moment::read(Nanos(5)));
    let good = (packet.slot, packet.flow, packet.sequence);
    for (probe, offender, refusal) in [
        ((SlotId(1), good.1, good.2), router, Refusal::TimeExceeded),
        ((good.0, Flow(4), good.2), router, Refusal::TimeExceeded),
        ((good.0, good.1, good.2 + 1), router, Refusal::TimeExceeded),
        ((good.0, good.1, good.2.wrapping_sub(256)), router, Refusal::TimeExceeded),
        ((good.0, good.1, good.2 + 256), router, Refusal::TimeExceeded),
        (good, None, Refusal::TimeExceeded),
        (good, Some([224, 0, 0, 1].into()), Refusal::TimeExceeded),
        (good, Some([0, 0, 0, 0].into()), Refusal::TimeExceeded),
        (good, Some([0_u16; 8].into()), Refusal::TimeExceeded),
        (good, router, Refusal::TooBig { mtu: 576 }),
    ] {
        assert!(!tracer.refused(probe, offender, refusal, moment), "{probe:?} {offender:?} {refusal:?}");
    }
    assert!(tracer.refused(good, router, Refusal::TimeExceeded, moment));
    assert!(!tracer.refused(good, router, Refusal::TimeExceeded, moment), "once for each packet");
    assert!(!tracer.answered(good, moment));
}

#[test]
fn whatever_the_calls_are_nothing_panics() {
    for seed in 0..2_000 {
        let mut random = Random(seed);
        let mut tracer = Net::fabric(seed, 6, 2).tracer;
        let mut now = 0;
        for _ in 0..400 {
            now += random.next() % (2 * SECOND);
            let slot = SlotId(u32::try_from(random.next() % 8).unwrap());
            let flow = Flow(u8::try_from(random.next() % 18).unwrap());
            let any = (slot, flow, u32::try_from(random.next() % 200).unwrap());
            let moment = Moment::read(Nanos(random.next() % (now + SECOND)));
            let refusal = [Refusal::TimeExceeded, Refusal::Unreachable(Unreachable::Host), Refusal::TooBig { mtu: 9 }];
            match random.next() % 10 {
                0 => tracer.apply(Change::Join { slot }, false),
                1 => tracer.apply(Change::Stop { slot }, false),
                2 => tracer.apply(probe(slot.0), random.next().is_multiple_of(2)),
                3 => _ = tracer.answered(any, moment),
                4 | 5 => {
                    let from = IpAddr::from([10, 0, 0, u8::try_from(random.next() % 256).unwrap()]);
                    tracer.refused(any, Some(from), refusal[usize::try_from(random.next() % 3).unwrap()], moment);
                }
                6 => tracer.not_sent(any.2),
                7 => tracer.set_members(u32::try_from(random.next() % 6_000).unwrap()),
                8 => tracer.departed(any.2, moment),
                _ => tracer.want(slot, flow, Reason::Losing { is_outbound: true, hops: 0 }, Nanos(now)),
            }
            let to = |slot: SlotId| (slot.0 != 3).then(|| SocketAddr::new(peer(slot.0), 9));
            let ends = (0..TRACE_PACKETS_MAX).any(|_| tracer.due(Nanos(now), to).is_none());
            assert!(ends, "a turn sends a few packets");
            tracer.next_due();
            assert!(tracer.take_finished().is_none_or(|trace| trace.hops().len() <= HOPS_MAX));
        }
    }
}

#[test]
fn stopped_tracer_sends_nothing() {
    let mut net = Net::fabric(1, 4, 2);
    net.tracer.stop();
    net.tracer.want(SlotId(0), Flow(0), Reason::Requested, Nanos(net.now));
    net.run(7_200);
    assert!(net.sent.is_empty() && net.tracer.is_idle() && net.tracer.next_due().is_none());
}
