//! Replies that wait for the next turn, and when reading them counts as late.

use kube_canary::units::Nanos;

use super::wire::Fate;
use super::world::{AGENT_PLAN, MS, SECOND, World};

/// Round-trip times. The replies of the last two arrive after the next probe to
/// another peer was sent.
const RTTS_US: [u64; 4] = [100, 70_000, 300_000, 600_000];

/// A world of this many peers that have all been probed for three seconds. Replies wake the agent
/// only when the prober requests it.
fn resting(peers: u8) -> World {
    let (mut world, peers) = World::of_many(AGENT_PLAN, peers);
    for ((_, address), rtt) in peers.iter().zip(RTTS_US.into_iter().cycle()) {
        world.wire().script(*address, move |_| Fate::reply(rtt));
    }
    world.rests = true;
    world.run(Nanos(3 * SECOND.0));
    world
}

/// The number of replies that were read, and the sum of their delays.
fn read_late(world: &World) -> (u64, Nanos) {
    let reading = world.statistics.read_delay().read();
    (reading.count(), reading.sum)
}

/// Advances to the moment of a turn for which six replies or more wait, and returns how many.
fn go_to_reading(world: &mut World) -> u64 {
    for _ in 0..4 {
        let due = world.prober.next_turn().expect("a turn");
        world.clock.advance(due.since(world.now()));
        let waiting = world.wire().unread_by(due);
        if waiting >= 6 {
            return waiting;
        }
        world.turn();
    }
    panic!("24 replies a second, and four turns");
}

#[test]
fn twenty_four_peers_take_four_turns_a_second_and_no_reply_is_read_late() {
    let mut world = resting(24);
    let (turns, (read, _)) = (world.turns, read_late(&world));
    world.run(Nanos(10 * SECOND.0));
    assert_eq!(world.turns - turns, 40 + 1, "the last is the end of the run");
    let (count, late) = read_late(&world);
    assert!((230..=250).contains(&(count - read)), "{count}");
    assert_eq!(late, Nanos(0));
    for (peer, rtt) in RTTS_US.into_iter().enumerate() {
        let got = world.read(&format!("n{peer}"));
        assert_eq!(
            (got.lost, world.rtt(&format!("n{peer}")).sum),
            (0, Nanos(got.received * rtt * 1_000)),
            "read late, yet exact"
        );
    }
}

#[test]
fn a_turn_that_comes_late_has_read_late_what_was_there_when_it_was_due() {
    let mut world = resting(24);
    let waiting = go_to_reading(&mut world);
    let (now, before, rest) = (world.now(), read_late(&world), Nanos(40 * MS));
    world.stand_still(rest);
    let since = world.wire().arrivals_since(now);
    let arrived: u64 = since.iter().map(|at| world.now().since(*at).0).sum();
    world.turn();
    let after = read_late(&world);
    assert_eq!(after.0 - before.0, waiting + since.len() as u64);
    assert_eq!(after.1, Nanos(before.1.0 + waiting * rest.0 + arrived));
}

#[test]
fn packets_that_a_turn_leaves_unread_are_read_late() {
    let mut world = resting(24);
    let waiting = go_to_reading(&mut world);
    world.wire().reads_max = 1;
    let mut expected = 0;
    for turn in 0..waiting {
        assert_eq!(read_late(&world).1, Nanos(expected));
        expected += turn * MS;
        // The turn that is due reads one packet after sending, and each further turn reads one.
        world.turn_once();
        world.prober.next_turn();
        world.stand_still(Nanos(MS));
    }
    assert!(expected > 0);
    assert_eq!(read_late(&world).1, Nanos(expected));
}

#[test]
fn with_few_peers_a_reply_is_read_late_from_its_arrival_on() {
    let mut world = resting(3);
    assert!(!world.wire().turns_are_frequent);
    assert_eq!(read_late(&world).1, Nanos(0), "each reply wakes the agent");
    world.rests = false;
    let arrival = world.wire().next_arrival().expect("a reply under way");
    let early = arrival.since(world.now());
    world.stand_still(early.plus(Nanos(30 * MS)));
    let before = read_late(&world).0;
    world.turn();
    let (count, late) = read_late(&world);
    assert_eq!((count - before, late), (1, Nanos(30 * MS)));
}

#[test]
fn an_ending_agent_is_woken_for_replies_in_flight() {
    let mut world = resting(24);
    world.prober.finish();
    world.turn();
    assert!(!world.wire().turns_are_frequent);
    let (_, late) = read_late(&world);
    world.stand_still(Nanos(200 * MS));
    world.turn();
    assert!(read_late(&world).1 > late, "nothing waits by design any more");
}
