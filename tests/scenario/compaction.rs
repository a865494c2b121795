//! Most peers leave. The remaining peers move to other slots with all their state.

use std::net::Ipv4Addr;

use kube_canary::discovery::{PeerList, PeerSpec};
use kube_canary::peers::{Directory, Method, OwnNode, SlotId, Via, ZoneId};
use kube_canary::prober::{Event, Observation, SendError, Stamp};
use kube_canary::statistics::{PeerReading, Scale, Statistics};
use kube_canary::units::Nanos;

use super::oracle::{Place, expected};
use super::wire::Fate;
use super::world::{MS, Plan, SECOND, Saying, World, spec};

const STAY: [u32; 5] = [3, 500, 777, 998, 999];

fn peer(number: u32) -> PeerSpec {
    let address = Ipv4Addr::from(0x0a00_0100 + number).into();
    PeerSpec { zone: Some(format!("z{}", number % 3)), ..spec(&format!("n{number}"), address) }
}

#[test]
fn all_numbers_of_a_peer_move_with_it() {
    let statistics = Statistics::new(Scale::default(), SECOND);
    let mut directory = Directory::default();
    let list = |directory: &mut Directory, numbers: &[u32]| {
        let list = PeerList { peers: numbers.iter().copied().map(peer).collect() };
        let applied = directory.apply(list, &OwnNode::default(), Nanos(0));
        applied.changes.into_iter().for_each(|change| statistics.apply(change));
    };
    list(&mut directory, &(0..1_000).collect::<Vec<_>>());
    statistics.tick(Nanos(1));
    let received = |us: u32, reordered| {
        let rtt = Nanos(u64::from(us) * 1_000);
        Event::Received { rtt, reordered, sequence: 0, stamp: Stamp::Kernel }
    };
    for slot in 0..1_000 {
        for event in [Event::Sent, received(slot, slot % 7 == 0), Event::Sent, Event::Lost] {
            statistics.record(Method::Icmp, Observation::probe(SlotId(slot), event));
        }
        if slot % 2 == 0 {
            statistics.record(Method::Icmp, Observation::probe(SlotId(slot), Event::NotSent(SendError::Other)));
        }
    }
    let all = |directory: &Directory| {
        let of = |slot| {
            (
                statistics.method(Method::Icmp).slot(slot).unwrap().read(),
                statistics.method(Method::Icmp).recent(slot, Nanos(2)).unwrap(),
            )
        };
        let mut all: Vec<_> = directory.peers().map(|(slot, peer)| (peer.node().to_owned(), of(slot))).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    };
    list(&mut directory, &STAY);
    assert_eq!(directory.stop(Nanos(u64::MAX), Nanos(0)).count(), 1_000 - STAY.len());
    assert!(directory.forget(Nanos(u64::MAX), Nanos(0)) && directory.is_sparse());
    let before = all(&directory);
    statistics.compact(&directory.compact().expect("holes"));
    assert_eq!(all(&directory), before);
    assert_eq!((directory.slot_count(), directory.compact()), (STAY.len(), None));
    assert_eq!(statistics.method(Method::Icmp).slot(SlotId(999)).unwrap().read(), PeerReading::default(), "given back");
    for (slot, peer) in directory.peers() {
        let losses = |zone: ZoneId| statistics.method(Method::Icmp).zone(zone, Via::ALL[0]).unwrap().read().lost;
        let before = losses(peer.zone());
        statistics.record(Method::Icmp, Observation::probe(slot, Event::Lost));
        assert_eq!(losses(peer.zone()), before + 1, "{} is still in its zone", peer.node());
    }
    assert_eq!(directory.peers().map(|(_, peer)| peer.http_port()).collect::<Vec<_>>(), [None; 5]);
}

#[test]
fn probes_in_flight_are_answered_late_or_lost_for_the_peer_they_were_sent_to() {
    let plan = Plan { timeout: Nanos(900 * MS), forget_after: Nanos(1), ..Plan::default() };
    let mut world = World::new(plan, &[]);
    let all: Vec<PeerSpec> = (0..1_000).map(peer).collect();
    for number in STAY {
        // A reply after a short time, one that is late, and none.
        world.wire().script(peer(number).address, |n| match n % 3 {
            0 => Fate::reply(400_000),
            1 => Fate::reply(1_200_000),
            _ => Fate::lost(),
        });
    }
    world.steady = false;
    let start = world.now();
    world.apply(all.clone());
    world.run(Nanos(5 * SECOND.0));
    let turns_of = |world: &mut World, number: u32| {
        let log = world.wire().log(peer(number).address);
        log.iter().map(|probe| probe.sent_at).collect::<Vec<_>>()
    };
    // All but five leave with probes in flight, and are forgotten. The slots are compacted in the
    // middle of an interval.
    world.apply(STAY.iter().map(|number| peer(*number)).collect());
    world.stand_still(Nanos(2 * MS));
    assert!(world.forget());
    assert!(world.compact() && !world.compact());
    world.run(Nanos(7 * SECOND.0));
    // Peers come back to the free slots, and none of them inherits counters.
    world.apply(all);
    world.run(Nanos(3 * SECOND.0));
    let end = world.now();
    world.apply(Vec::new());
    world.run(Nanos(3 * SECOND.0));
    for number in STAY {
        let turns = turns_of(&mut world, number);
        let apart: Vec<u64> = turns.windows(2).map(|pair| pair[1].since(pair[0]).0 / MS).collect();
        assert!(turns.len() >= 14 && apart.iter().all(|ms| *ms == 1_000), "{number}: its time is the same: {apart:?}");
        let address = Some(peer(number).address);
        let name = format!("n{number}");
        let (stopped, _) = world.stopped.iter().rev().find(|(_, node)| *node == name).cloned().expect("stopped");
        let place = |since, address, terminating| Place { since, address, terminating };
        let log = world.wire().log(peer(number).address).to_vec();
        let probes: Vec<_> = log.iter().map(|probe| (peer(number).address, probe)).collect();
        let expected = expected(
            &[place(start, address, false), place(end, address, true), place(stopped, None, false)],
            &probes,
            plan.timeout,
        );
        let got = world.read(&name);
        assert_eq!(got, PeerReading { created: got.created, ..expected }, "{number}");
        assert!(got.received >= 4 && got.lost >= 7 && got.late >= 3, "{number}: {got:?}");
    }
    let others = world.read("n1");
    assert!(others.sent <= 3 && others.lost == 0, "{others:?}");
}

#[test]
fn a_peer_in_doubt_moves_with_its_withheld_loss_and_a_leaving_peer_has_none() {
    let plan = Plan { forget_after: Nanos(1), doubts: true, ..Plan::default() };
    let mut world = World::new(plan, &[]);
    world.steady = false;
    for dead in [7, 999] {
        world.wire().script(peer(dead).address, |n| if n < 2 { Fate::reply(100) } else { Fate::lost() });
    }
    world.apply((0..1_000).map(peer).collect());
    let in_doubt = |world: &World, number: u32| {
        let read = world.read(&format!("n{number}"));
        read.sent - read.received - read.lost
    };
    // Both have a probe in flight at once, and nothing else is in flight to them.
    while [7, 999].into_iter().any(|number| world.wire().log(peer(number).address).len() < 3) {
        world.run(Nanos(10 * MS));
    }
    world.run(Nanos(500 * MS));
    assert_eq!([7, 999].map(|number| in_doubt(&world, number)), [1, 1]);
    assert!(world.prober.awaits_any());
    world.apply(STAY.iter().map(|number| peer(*number)).collect());
    world.stand_still(Nanos(2 * MS));
    assert!(world.forget() && world.compact());
    world.say(Nanos(0), Saying::Sure(peer(7).address));
    world.turn();
    assert_eq!((world.read("n999").lost, in_doubt(&world, 999)), (0, 1), "not asked about");
    world.say(Nanos(0), Saying::Sure(peer(999).address));
    world.turn();
    assert_eq!((world.read("n999").lost, in_doubt(&world, 999)), (1, 0));
    for number in STAY.into_iter().filter(|number| *number != 999) {
        let read = world.read(&format!("n{number}"));
        assert_eq!((read.lost, read.terminating), (0, [0, 0]), "{number}");
    }
}
