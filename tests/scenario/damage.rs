//! Replies that come back damaged, and packets that nobody asked for.

use kube_canary::prober::SocketKind::{Datagram, Raw};
use kube_canary::statistics::PeerReading;

use super::wire::{Damage, Fate, ip_header};
use super::world::{Plan, World, ip};

const A: &str = "10.0.0.2";
const B: &str = "10.0.0.3";
const SIX: &str = "fd00::2";

#[test]
fn every_kind_of_damage_is_corrupt_and_then_lost_and_never_a_round_trip_time() {
    for kinds in [[Datagram; 2], [Raw; 2]] {
        for (node, address) in [("a", A), ("six", SIX)] {
            let mut world = World::new(Plan { kinds, ..Plan::default() }, &[("a", A), ("six", SIX)]);
            world.wire().script(ip(address), |n| {
                Fate::lost().damaged(
                    100,
                    match n {
                        // 56 bytes: each bit of the payload once.
                        0..448 => Damage::PayloadBit(usize::try_from(n).unwrap()),
                        448..460 => Damage::Sequence,
                        460..516 => Damage::Truncated(usize::try_from(n - 459).unwrap()),
                        _ => Damage::ForeignCookie,
                    },
                )
            });
            world.run_until_tried(ip(address), 520);
            world.settle();
            world.expect(node, PeerReading { sent: 520, lost: 520, corrupt: 520, ..PeerReading::default() });
            assert_eq!(world.statistics.unrelated(), 0);
        }
    }
}

#[test]
fn an_intact_reply_behind_a_damaged_one_is_received_and_damage_behind_it_is_no_duplicate() {
    let mut world = World::new(Plan::default(), &[("a", A)]);
    world.wire().script(ip(A), |n| match n % 2 {
        0 => Fate::lost().damaged(100, Damage::PayloadBit(80)).and(30_000),
        _ => Fate::reply(100).damaged(200, Damage::Truncated(1)).damaged(250_000, Damage::Sequence),
    });
    world.run_until_tried(ip(A), 20);
    world.settle();
    world.expect("a", PeerReading { sent: 20, received: 20, corrupt: 30, ..PeerReading::default() });
    assert_eq!(world.buckets("a"), [(Some(100), 10), (Some(50_000), 10)]);
}

#[test]
fn on_a_raw_socket_a_foreign_identifier_is_unrelated_and_on_a_ping_socket_there_is_none() {
    for (address, kinds) in [(A, [Raw, Datagram]), (SIX, [Datagram, Raw])] {
        let mut world = World::new(Plan { kinds, ..Plan::default() }, &[("a", address)]);
        world.wire().script(ip(address), |_| Fate::reply(100).damaged(50, Damage::ForeignIdentifier));
        world.run_until_tried(ip(address), 10);
        world.settle();
        world.expect("a", PeerReading { sent: 10, received: 10, ..PeerReading::default() });
        assert_eq!(world.statistics.unrelated(), 10);
    }
}

#[test]
fn a_damaged_reply_from_a_stranger_is_unrelated() {
    let mut world = World::new(Plan::default(), &[("a", A)]);
    let mut echo = vec![0; 64];
    echo[7] = 1;
    world.wire().inject(ip(B), echo, 10);
    world.settle();
    world.expect("a", PeerReading::default());
    assert_eq!(world.statistics.unrelated(), 1);
}

#[test]
fn an_intact_reply_that_another_host_sends_back_is_unrelated_and_answers_nothing() {
    // A reply copied from the wire of `b` and sent by `a`'s neighbour: only the asked may answer.
    let mut world = World::new(Plan::default(), &[("a", A)]);
    world.wire().script(ip(A), |_| Fate::lost());
    world.wire().echo_from(ip(B));
    world.run_until_tried(ip(A), 10);
    world.settle();
    world.expect("a", PeerReading { sent: 10, lost: 10, ..PeerReading::default() });
    assert_eq!(world.statistics.unrelated(), 10);
}

#[test]
fn a_flood_of_other_packets_is_counted_holds_nobody_up_and_loses_nothing() {
    let mut world = World::new(Plan { kinds: [Raw, Raw], ..Plan::default() }, &[("a", A), ("six", SIX)]);
    // Little is read at a time, so that one turn is not enough.
    world.wire().reads_max = 64;
    let echo = |kind: u8| {
        let mut icmp = vec![kind, 0, 0, 0, 0xab, 0xcd, 0, 1];
        icmp.extend([7; 56]);
        icmp
    };
    let (replies, requests) = (ip_header([10, 0, 0, 9].into(), &echo(0)), ip_header([10, 0, 0, 9].into(), &echo(8)));
    let unreachable = ip_header([10, 0, 0, 9].into(), &[3, 1, 0, 0, 0, 0, 0, 0]);
    for i in 0..2_000u64 {
        let us = i * 5_000;
        for _ in 0..5 {
            world.wire().inject(ip("10.0.0.9"), replies.clone(), us);
        }
        world.wire().inject(ip("10.0.0.9"), requests.clone(), us);
        world.wire().inject(ip("10.0.0.9"), unreachable.clone(), us);
        world.wire().inject(ip("10.0.0.9"), vec![0x45], us);
        world.wire().inject(ip("fd00::9"), echo(129), us);
        world.wire().inject(ip("fd00::9"), echo(136), us);
        world.wire().inject(ip("fd00::9"), Vec::new(), us);
    }
    for _ in 0..600 {
        world.wire().inject(ip("10.0.0.9"), replies.clone(), 4_000_000);
    }
    world.run_until_tried(ip(A), 10);
    world.run_until_tried(ip(SIX), 10);
    world.settle();
    let (a, six) = (world.wire().sent(ip(A)), world.wire().sent(ip(SIX)));
    world.expect("a", PeerReading { sent: a, received: a, ..PeerReading::default() });
    world.expect("six", PeerReading { sent: six, received: six, ..PeerReading::default() });
    assert_eq!(world.statistics.unrelated(), 2_000 * 6 + 600, "echo replies only");
    assert_eq!((world.buckets("a").len(), world.buckets("six").len()), (1, 1), "nobody was held up");
}
