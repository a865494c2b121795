//! Loss, delay, duplicates and reordering.

use kube_canary::prober::SocketKind::{Datagram, Raw};
use kube_canary::statistics::PeerReading;
use kube_canary::units::Nanos;

use super::wire::Fate;
use super::world::{MS, Plan, SECOND, World, ip, spec};

const A: &str = "10.0.0.2";
const B: &str = "10.0.0.3";

#[test]
fn three_of_ten_lost_on_one_link_are_three_tenths_lost_on_that_link_alone() {
    let mut world = World::new(Plan::default(), &[("a", A), ("b", B)]);
    world.wire().script(ip(A), |n| if n % 10 < 3 { Fate::lost() } else { Fate::reply(40) });
    world.run_until_tried(ip(A), 100);
    world.run_until_tried(ip(B), 100);
    world.settle();
    world.expect("a", PeerReading { sent: 100, received: 70, lost: 30, ..PeerReading::default() });
    assert_eq!(world.buckets("a"), [(Some(50), 70)]);
    assert_eq!(world.buckets("b").len(), 1);
    let b = world.wire().sent(ip(B));
    world.expect("b", PeerReading { sent: b, received: b, ..PeerReading::default() });
    assert_eq!(world.statistics.unrelated(), 0);
}

#[test]
fn a_dead_peer_loses_everything_and_nothing_else() {
    let mut world = World::new(Plan { timeout: SECOND, ..Plan::default() }, &[("a", A)]);
    world.wire().script(ip(A), |_| Fate::lost());
    world.run_until_tried(ip(A), 50);
    world.expect("a", PeerReading { sent: 50, lost: 48, ..PeerReading::default() });
    // A probe is lost when more than the timeout has passed, which is when the next is sent.
    world.run(Nanos(1));
    world.expect("a", PeerReading { sent: 50, lost: 49, ..PeerReading::default() });
}

#[test]
fn a_reply_at_the_timeout_is_received_and_one_just_beyond_is_lost_then_late_and_never_a_round_trip_time() {
    let mut world = World::new(Plan::default(), &[("a", A)]);
    world.wire().script(ip(A), |n| match n % 3 {
        0 => Fate::reply(199_999),
        1 => Fate::reply(200_000),
        _ => Fate::reply(200_001),
    });
    world.run_until_tried(ip(A), 30);
    world.settle();
    world.expect("a", PeerReading { sent: 30, received: 20, lost: 10, late: 10, ..PeerReading::default() });
    assert_eq!(world.buckets("a"), [(Some(250_000), 20)]);
    assert_eq!(world.rtt("a").sum, Nanos(10 * 199_999_000 + 10 * 200_000_000));
}

#[test]
fn a_path_that_becomes_slower_than_the_timeout_shows_loss_and_as_many_late_replies() {
    let mut world = World::new(Plan { timeout: SECOND, ..Plan::default() }, &[("a", A)]);
    world.wire().script(ip(A), |n| if (10..30).contains(&n) { Fate::reply(2_500_000) } else { Fate::reply(300) });
    world.run_until_tried(ip(A), 40);
    world.settle();
    world.expect("a", PeerReading { sent: 40, received: 20, lost: 20, late: 20, ..PeerReading::default() });
    assert_eq!(world.buckets("a"), [(Some(500), 20)]);
}

#[test]
fn duplicates_are_counted_each_and_change_nothing_else() {
    let mut world = World::new(Plan::default(), &[("a", A)]);
    world.wire().script(ip(A), |n| match n {
        0..10 => Fate::reply(100).and(100).and(150_000),
        // The reply is after the timeout, but the probe was answered before.
        10..20 => Fate::reply(100).and(700_000),
        // Both replies are late: the first is late, the second its duplicate.
        20..30 => Fate::reply(300_000).and(400_000),
        _ => Fate::reply(100),
    });
    world.run_until_tried(ip(A), 40);
    world.settle();
    let expected =
        PeerReading { sent: 40, received: 30, lost: 10, late: 10, duplicate: 20 + 10 + 10, ..PeerReading::default() };
    world.expect("a", expected);
    assert_eq!(world.buckets("a"), [(Some(100), 30)]);
}

#[test]
fn replies_that_a_later_one_overtook_are_reordered_and_received() {
    let plan = Plan { timeout: Nanos::from_millis(3_500), ..Plan::default() };
    let mut world = World::new(plan, &[("a", A)]);
    // Of every five, the first takes 2.5 s, so the second and third arrive before it. The late ones
    // do not count.
    world.wire().script(ip(A), |n| match n % 5 {
        0 => Fate::reply(2_500_000),
        3 => Fate::reply(3_600_000),
        _ => Fate::reply(100),
    });
    world.run_until_tried(ip(A), 50);
    world.wire().script(ip(A), |_| Fate::reply(100));
    world.settle();
    let extra = world.wire().sent(ip(A)) - 50;
    let expected = PeerReading {
        sent: 50 + extra,
        received: 40 + extra,
        lost: 10,
        late: 10,
        reordered: 10,
        ..PeerReading::default()
    };
    world.expect("a", expected);
}

#[test]
fn every_payload_size_comes_back_on_every_kind_of_socket_of_either_family() {
    for payload_bytes in [24, 56, 1_400] {
        for kinds in [[Datagram, Datagram], [Datagram, Raw], [Raw, Datagram], [Raw, Raw]] {
            let plan = Plan { payload_bytes, kinds, ..Plan::default() };
            let mut world = World::new(plan, &[("a", A), ("six", "fd00::2")]);
            world.wire().script(ip("fd00::2"), |n| if n % 2 == 0 { Fate::lost() } else { Fate::reply(100) });
            world.run(Nanos(10 * SECOND.0 + 999 * MS));
            world.settle();
            let (a, six) = (world.wire().sent(ip(A)), world.wire().sent(ip("fd00::2")));
            assert!(a >= 10 && six >= 10);
            world.expect("a", PeerReading { sent: a, received: a, ..PeerReading::default() });
            let received = six / 2;
            world.expect("six", PeerReading { sent: six, received, lost: six - received, ..PeerReading::default() });
            assert_eq!(world.statistics.unrelated(), 0);
        }
    }
}

#[test]
fn the_families_of_one_node_are_counted_apart() {
    let mut world = World::new(Plan { kinds: [Raw, Datagram], ..Plan::default() }, &[("a", A), ("a", "fd00::2")]);
    world.wire().script(ip("fd00::2"), |_| Fate::lost());
    world.run_until_tried(ip(A), 10);
    world.run_until_tried(ip("fd00::2"), 10);
    world.settle();
    let mut sums: Vec<_> = world
        .directory
        .peers()
        .map(|(slot, _)| world.statistics.method(kube_canary::peers::Method::Icmp).slot(slot).unwrap().read())
        .collect();
    let six = sums.pop().unwrap();
    let four = sums.pop().unwrap();
    assert_eq!((four.lost, four.received), (0, four.sent));
    assert_eq!((six.lost, six.received), (six.sent, 0));
    assert!(four.sent >= 10 && six.sent >= 10 && sums.is_empty());
}

#[test]
fn a_paused_peer_gets_no_further_probes_and_those_in_flight_are_answered_or_lost() {
    let mut world = World::new(Plan { timeout: SECOND, ..Plan::default() }, &[("a", A)]);
    world.wire().script(ip(A), |n| if n == 4 { Fate::lost() } else { Fate::reply(700_000) });
    world.run_until_tried(ip(A), 5);
    world.pause("a");
    world.settle();
    world.run(Nanos(10 * SECOND.0));
    assert_eq!(world.wire().log(ip(A)).len(), 5);
    world.expect("a", PeerReading { sent: 5, received: 4, lost: 1, ..PeerReading::default() });
}

#[test]
fn a_stop_is_woken_for_replies_in_flight_even_if_a_list_arrives_in_between() {
    let (mut world, peers) = World::of_many(Plan::default(), 8);
    world.run(SECOND);
    assert!(world.wire().turns_are_frequent, "the next turn reads them");
    world.prober.finish();
    assert!(!world.wire().turns_are_frequent, "there is no next turn");
    world.apply(peers.iter().map(|(node, address)| spec(node, *address)).chain([spec("more", ip(B))]).collect());
    assert!(!world.wire().turns_are_frequent);
}
