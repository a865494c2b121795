//! The search over generated paths: holes, loss, and errors of the network, on a scripted clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::IpAddr;

use super::*;
use crate::limits::MTU_PROBES_PER_SECOND;
use crate::peers::{Change, Network, SlotId, ZoneId};
use crate::prober::Flow;
use crate::splitmix::Random;
use crate::units::Nanos;

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const FLOWS: u8 = 16;
const SMALL: u16 = 100;
const ROUTER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 3, 1));

/// What a path does with large packets.
#[derive(Clone, Copy)]
struct Hole {
    passes: u16,
    said: bool,
}

/// The hole on the path of a slot and flow at a time, if there is one.
type Holes = Box<dyn Fn(u32, u8, u64) -> Option<Hole>>;

/// When a packet arrives, and what it is.
type Arrival = (u64, u32, u8, u32, Option<u32>);

struct World {
    search: MtuSearch,
    random: Random,
    now: u64,
    full: u32,
    slots: u32,
    /// Loss in each direction, per thousand.
    loss: u64,
    holes: Holes,
    /// Answers and errors: time, probe by slot, flow and number, and the MTU of an error.
    arrivals: BinaryHeap<Reverse<Arrival>>,
    /// Number of large packets, by second.
    large: BTreeMap<u64, u64>,
    small: u64,
    /// When the first hole of a slot was reported, and its size then.
    reported: BTreeMap<u32, (u64, PathMtu)>,
}

fn probe(slot: u32) -> Change {
    let address = IpAddr::from([10, 0, 0, u8::try_from(slot + 1).unwrap()]);
    let (slot, zone, network) = (SlotId(slot), ZoneId::UNKNOWN, Network::Pod);
    Change::Probe { slot, address, zone, network, terminating: false }
}

impl World {
    fn new(seed: u64, slots: u32, full: u32, holes: Holes) -> Self {
        let mut search = MtuSearch::new(FLOWS, SMALL - 28, Nanos::from_millis(2_000), Nanos(0));
        search.reserve(slots as usize);
        for slot in 0..slots {
            search.apply(Change::Join { slot: SlotId(slot) }, false);
            search.apply(probe(slot), true);
        }
        Self {
            search,
            random: Random(seed),
            now: 0,
            full,
            slots,
            loss: 0,
            holes,
            arrivals: BinaryHeap::new(),
            large: BTreeMap::new(),
            small: 0,
            reported: BTreeMap::new(),
        }
    }

    fn is_lost(&mut self) -> bool {
        self.random.next() % 1_000 < self.loss
    }

    fn run(&mut self, until: u64) {
        while self.now < until {
            self.now += 1 + self.random.next() % (250 * MS);
            let now = Nanos(self.now);
            while let Some(Reverse((at, slot, flow, sequence, mtu))) = self.arrivals.peek().copied()
                && at <= self.now
            {
                self.arrivals.pop();
                let probe = (SlotId(slot), Flow(flow), sequence);
                match mtu {
                    Some(mtu) => _ = self.search.refused(probe, Some(ROUTER), mtu, now),
                    None => _ = self.search.answered(probe, now),
                }
            }
            self.search.expire(now);
            let route = Route { address: [10, 0, 0, 1].into(), mtu: self.full };
            while let Some(sent) = self.search.due(now, |_| Some(route)) {
                self.send(sent);
            }
            for slot in 0..self.slots {
                let path = self.search.path(SlotId(slot));
                if path.has_hole() {
                    self.reported.entry(slot).or_insert((self.now, path));
                }
            }
        }
    }

    fn send(&mut self, sent: MtuProbe) {
        let MtuProbe { slot, flow, size, sequence } = sent;
        assert!(size <= u16::try_from(self.full).unwrap() && flow.0 < FLOWS);
        if size > SMALL {
            *self.large.entry(self.now / SECOND).or_default() += 1;
        } else {
            self.small += 1;
        }
        let rtt = MS + self.random.next() % (250 * MS);
        let (out, back) = (self.is_lost(), self.is_lost());
        let hole = (self.holes)(slot.0, flow.0, self.now).filter(|hole| size > hole.passes);
        match hole {
            // The error may be lost on the return path.
            Some(hole) if hole.said && !out && !back => {
                self.arrivals.push(Reverse((self.now + rtt, slot.0, flow.0, sequence, Some(hole.passes.into()))));
            }
            Some(_) => {}
            None if out || back => {}
            None => self.arrivals.push(Reverse((self.now + rtt, slot.0, flow.0, sequence, None))),
        }
    }

    fn path(&self, slot: u32) -> PathMtu {
        self.search.path(SlotId(slot))
    }
}

/// A hole in all flows of all slots, from a time on.
fn hole(from: u64, passes: u16, said: bool) -> Holes {
    Box::new(move |_, _, at| (at >= from).then_some(Hole { passes, said }))
}

fn none() -> Holes {
    Box::new(|_, _, _| None)
}

#[test]
fn random_loss_makes_no_hole() {
    let mut large = 0;
    for (seed, loss) in (0..150).flat_map(|seed| [(seed, 200), (seed + 1_000, 300)]) {
        let mut world = World::new(seed, 24, 1_500, none());
        world.loss = loss;
        world.run(600 * SECOND);
        assert_eq!(world.reported.len(), 0, "seed {seed}: {:?}", world.reported);
        large += world.large.values().sum::<u64>();
    }
    // 72,000 checks. More than one in three began a search.
    assert!(large > 72_000 * 3 / 2, "{large} large packets");
}

#[test]
fn a_healthy_path_costs_one_packet_a_minute() {
    let mut world = World::new(1, 24, 9_000, none());
    world.run(600 * SECOND);
    let large = world.large.values().sum::<u64>();
    assert!((230..=241).contains(&large) && world.small == 0, "{large} large, {} small packets", world.small);
    for slot in 0..24 {
        let path = world.path(slot);
        assert_eq!((path.state, path.path_mtu_bytes), (PathState::Full, 9_000));
    }
}

#[test]
fn any_hole_is_reported_in_two_minutes_with_its_size() {
    for seed in 0..600 {
        let mut random = Random(seed);
        let full = [1_450, 1_500, 9_000][usize::try_from(seed % 3).unwrap()];
        let passes = 110 + u16::try_from(random.next() % (u64::from(full) - 120)).unwrap();
        let begin = 61 * SECOND + random.next() % (60 * SECOND);
        let mut world = World::new(seed, 1, full, hole(begin, passes, false));
        world.run(begin);
        assert_eq!(world.path(0).state, PathState::Full);
        world.run(begin + 180 * SECOND);
        let (at, first) = world.reported.get(&0).copied().unwrap_or_else(|| panic!("seed {seed}: {passes} of {full}"));
        assert!(at <= begin + 120 * SECOND, "seed {seed}: after {} s", (at - begin) / SECOND);
        assert!(first.path_mtu_bytes <= passes && passes - first.path_mtu_bytes < 8, "{first:?}, not {passes}");
        let path = world.path(0);
        assert_eq!((path.path_mtu_bytes, path.state), (passes, PathState::HoleSilent), "seed {seed}");
        assert_eq!((path.said_bytes, u32::from(path.full_bytes)), (0, full));
    }
}

#[test]
fn a_hole_with_errors_is_distinguished_and_found_sooner() {
    for seed in 0..300 {
        let mut world = World::new(seed, 1, 1_500, hole(70 * SECOND, 1_300, true));
        world.run(250 * SECOND);
        let (at, first) = world.reported[&0];
        assert!(at <= 145 * SECOND, "seed {seed}: after {} s", at / SECOND - 70);
        assert_eq!((first.state, first.said_bytes), (PathState::HoleSaid, 1_300));
        assert_eq!(world.path(0).path_mtu_bytes, 1_300);
    }
}

#[test]
fn what_the_network_says_is_never_believed_against_an_answer() {
    // A router on the path says 600, while packets of 1,400 pass.
    for seed in 0..100 {
        let mut world = World::new(seed, 1, 1_500, hole(0, 1_400, false));
        while world.now < 200 * SECOND {
            let until = world.now + 10 * MS;
            world.run(until);
            let lies: Vec<_> =
                world.arrivals.iter().map(|Reverse((_, slot, flow, sequence, _))| (*slot, *flow, *sequence)).collect();
            for (slot, flow, sequence) in lies {
                world.search.refused((SlotId(slot), Flow(flow), sequence), Some(ROUTER), 600, Nanos(world.now));
            }
        }
        assert!(world.path(0).path_mtu_bytes >= 1_393, "seed {seed}: {:?}", world.path(0));
    }
}

#[test]
fn a_hole_that_goes_is_full_after_the_next_check_and_one_that_changes_is_followed() {
    for seed in 0..200 {
        let ranges = [(0, 1_300), (400, 1_200), (800, 1_450), (1_200, 1_500)];
        let holes: Holes = Box::new(move |_, _, at| {
            let passes = ranges.iter().rev().find(|(from, _)| at >= from * SECOND).unwrap().1;
            Some(Hole { passes, said: seed % 2 == 0 })
        });
        let mut world = World::new(seed, 1, 1_500, holes);
        for (until, expected) in [(400, 1_300), (800, 1_200), (1_200, 1_450), (1_263, 1_500)] {
            world.run(until * SECOND);
            assert_eq!(world.path(0).path_mtu_bytes, expected, "seed {seed} at {until} s: {:?}", world.path(0));
        }
        assert_eq!((world.path(0).state, world.path(0).said_bytes), (PathState::Full, 0));
    }
}

#[test]
fn a_hole_on_one_of_sixteen_flows_is_found_and_keeps_its_flow() {
    for seed in 0..40 {
        let bad = u8::try_from(seed % 16).unwrap();
        let holes: Holes = Box::new(move |_, flow, _| (flow == bad).then_some(Hole { passes: 1_400, said: false }));
        let mut world = World::new(seed, 2, 1_500, holes);
        world.run(1_100 * SECOND);
        let path = world.path(1);
        assert_eq!((path.path_mtu_bytes, path.flow(), path.state), (1_400, Flow(bad), PathState::HoleSilent));
        world.run(2_400 * SECOND);
        assert_eq!(world.path(1), path, "other flows do not fill it");
    }
}

#[test]
fn a_hole_of_all_pairs_is_reported_within_the_budget() {
    for seed in 0..20 {
        let mut world = World::new(seed, 24, 1_500, hole(70 * SECOND, 1_300, false));
        world.run(330 * SECOND);
        assert_eq!(world.reported.len(), 24);
        let times = world.reported.values().map(|(at, _)| at / SECOND - 70);
        assert!(times.clone().all(|seconds| seconds <= 120), "seed {seed}: {:?}", times.collect::<Vec<_>>());
        assert!((0..24).all(|slot| world.path(slot).path_mtu_bytes == 1_300));
        let seconds: Vec<u64> = world.large.values().copied().collect();
        let most = seconds.windows(10).map(|window| window.iter().sum::<u64>()).max().unwrap();
        assert!(most <= 11 * MTU_PROBES_PER_SECOND, "{most} packets in ten seconds");
    }
}

#[test]
fn a_hole_under_random_loss_is_found_with_its_size() {
    let (mut found, mut right) = (0, 0);
    for seed in 0..300 {
        let mut world = World::new(seed, 1, 1_500, hole(0, 1_300, false));
        world.loss = 100;
        world.run(600 * SECOND);
        found += u32::from(world.path(0).has_hole());
        right += u32::from(world.path(0).path_mtu_bytes == 1_300);
    }
    assert!(found >= 297 && right >= 294, "of 300 holes, {found} are found, {right} with their size");
}

#[test]
fn a_dead_peer_has_no_hole_and_costs_little() {
    let mut world = World::new(3, 4, 1_500, hole(0, 0, false));
    world.loss = 1_000;
    world.run(600 * SECOND);
    let large = world.large.values().sum::<u64>();
    assert!(world.reported.is_empty() && large <= 4 * 10 * 8, "{large} packets for 40 checks");
    assert_eq!(world.path(0).state, PathState::Unknown);
}

#[test]
fn only_errors_about_packets_in_flight_with_a_possible_size_count() {
    let route = Route { address: [10, 0, 0, 1].into(), mtu: 1_500 };
    let mut world = World::new(1, 2, 1_500, none());
    let sent = world.search.due(Nanos(0), |_| Some(route)).unwrap();
    let (slot, flow, sequence, now) = (sent.slot, sent.flow, sent.sequence, Nanos(MS));
    let search = &mut world.search;
    let other = SlotId(1 - slot.0);
    for (probe, mtu) in [
        ((other, flow, sequence), 1_300),
        ((slot, Flow(flow.0 ^ 1), sequence), 1_300),
        ((slot, flow, sequence.wrapping_add(1)), 1_300),
        ((slot, flow, sequence.wrapping_sub(1)), 1_300),
        ((slot, flow, sequence), 0),
        ((slot, flow, sequence), 575),
        ((slot, flow, sequence), 1_500),
        ((slot, flow, sequence), u32::MAX),
    ] {
        assert!(!search.refused(probe, Some(ROUTER), mtu, now), "{probe:?} {mtu}");
    }
    assert!(search.refused((slot, flow, sequence), Some(ROUTER), 1_300, now));
    assert!(!search.refused((slot, flow, sequence), Some(ROUTER), 1_300, now), "once for each packet");
    assert!(search.answered((slot, flow, sequence), now), "it was duplicated, and a copy has passed");
    assert!(!search.answered((slot, flow, sequence), now));
    assert_eq!(search.path(slot).state, PathState::Full);
}

#[test]
fn an_error_of_our_own_kernel_is_no_hole() {
    let route = Route { address: [10, 0, 0, 1].into(), mtu: 1_500 };
    let mut search = World::new(1, 1, 1_500, none()).search;
    for second in 0..600 {
        let now = Nanos(second * SECOND);
        while let Some(sent) = search.due(now, |_| Some(route)) {
            assert!(!search.refused((sent.slot, sent.flow, sent.sequence), None, 1_400, now));
        }
        search.expire(now);
    }
    assert_eq!(search.path(SlotId(0)).state, PathState::Unknown);
}

#[test]
fn ipv6_packets_have_their_own_sizes() {
    let route = Route { address: IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]), mtu: 1_500 };
    let mut search = World::new(1, 1, 1_500, none()).search;
    let sent = search.due(Nanos(0), |_| Some(route)).unwrap();
    let probe = (sent.slot, sent.flow, sent.sequence);
    assert!(
        !search.refused(probe, Some(ROUTER), 1_279, Nanos(1)) && search.refused(probe, Some(ROUTER), 1_280, Nanos(1))
    );
    assert_eq!((payload_bytes(sent.size, true), payload_bytes(sent.size, false)), (1_452, 1_472));
    let small = search.due(Nanos(SECOND), |_| Some(route)).unwrap();
    assert_eq!(small.size, 120);
}

#[test]
fn whatever_the_calls_are_nothing_panics_and_the_packets_are_bounded() {
    for seed in 0..2_000 {
        let mut random = Random(seed);
        let mut search = World::new(seed, 6, 1_500, none()).search;
        let (mut now, mut sent) = (0, 0_u64);
        for _ in 0..400 {
            now += random.next() % (3 * SECOND);
            let slot = SlotId(u32::try_from(random.next() % 8).unwrap());
            let any =
                (slot, Flow(u8::try_from(random.next() % 17).unwrap()), u32::try_from(random.next() % 40).unwrap());
            match random.next() % 8 {
                0 => search.apply(Change::Join { slot }, false),
                1 => search.apply(Change::Stop { slot }, false),
                2 => search.apply(probe(slot.0), random.next().is_multiple_of(2)),
                3 => _ = search.answered(any, Nanos(now)),
                4 => _ = search.refused(any, Some(ROUTER), u32::try_from(random.next() % 2_000).unwrap(), Nanos(now)),
                5 => search.not_sent(any.2),
                _ => search.expire(Nanos(now)),
            }
            let mtu = 60 + u32::try_from(random.next() % 70_000).unwrap();
            while search.due(Nanos(now), |_| Some(Route { address: ROUTER, mtu })).is_some() {
                sent += 1;
            }
            search.next_due();
        }
        assert!(sent <= 2 * (now / SECOND + 2) * MTU_PROBES_PER_SECOND, "{sent} packets in {} s", now / SECOND);
    }
}

/// While a hole is known, all pairs are checked more often, within the same budget.
#[test]
fn a_hole_that_goes_is_full_within_eleven_seconds() {
    for (slots, bad) in [(1, 1), (24, 1), (24, 24)] {
        for seed in 0..20 {
            let end = 400 + seed * 7;
            let is_bad = move |slot, at| slot < bad && at < end * SECOND;
            let holes = move |slot, _, at| is_bad(slot, at).then_some(Hole { passes: 1_300, said: false });
            let mut world = World::new(seed, slots, 1_500, Box::new(holes));
            world.run(end * SECOND);
            assert!((0..slots).all(|slot| world.path(slot).has_hole() == (slot < bad)));
            let large: u64 = world.large.range(end - 60..end).map(|(_, count)| count).sum();
            assert!(large <= u64::from(6 * (slots + 2 * bad) + 3), "{large} packets in a minute");
            world.run((end + 11) * SECOND);
            assert!((0..slots).all(|slot| !world.path(slot).has_hole()), "{slots} pairs, {bad} holes, seed {seed}");
        }
    }
}
