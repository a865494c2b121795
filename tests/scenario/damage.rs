//! Replies that arrive damaged, and packets without a request.

use kube_canary::prober::SocketKind::{Datagram, Raw};
use kube_canary::statistics::PeerReading;
use kube_canary::units::Nanos;

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
                        // Each bit of the 56-byte payload, once.
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
    // The reply is copied from the wire of `b` and sent by `a`'s neighbour: only the probed address
    // may answer.
    let mut world = World::new(Plan::default(), &[("a", A)]);
    world.wire().script(ip(A), |_| Fate::lost());
    world.wire().echo_from(ip(B));
    world.run_until_tried(ip(A), 10);
    world.settle();
    world.expect("a", PeerReading { sent: 10, lost: 10, ..PeerReading::default() });
    assert_eq!(world.statistics.unrelated(), 10);
}

/// A number of eight bytes of an ICMP message.
fn number(message: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(message[at..at + 8].try_into().unwrap())
}

/// The attack of a peer that knows everything but the key. It sends replies in the name of the peer
/// in slot 1, for the probes around the one that it received. Each has the check of that one, or a
/// check made of the unencrypted fields.
fn forge(request: &[u8]) -> Vec<Vec<u8>> {
    let (cookie, packed, check) = (number(request, 8), number(request, 16), number(request, 24));
    let sequence = u16::from_be_bytes([request[6], request[7]]);
    let mut forged = Vec::new();
    for probe in (0..7).map(|ahead| (packed >> 14).wrapping_add(ahead).wrapping_sub(3)) {
        for sequence in [sequence.wrapping_sub(1), sequence, sequence.wrapping_add(1)] {
            let mut mixed = cookie ^ probe ^ 1 << 32 ^ u64::from(sequence) << 16;
            mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            for check in [check, mixed ^ mixed >> 31] {
                let mut reply = request.to_vec();
                reply[0] = 0;
                reply[6..8].copy_from_slice(&sequence.to_be_bytes());
                reply[16..24].copy_from_slice(&(probe << 14 | 1).to_be_bytes());
                reply[24..32].copy_from_slice(&check.to_be_bytes());
                forged.push(reply);
            }
        }
    }
    forged
}

#[test]
fn a_peer_cannot_answer_for_a_dead_one_from_what_it_is_sent_itself() {
    // The two are probed half a second apart, so the probe to c is still in flight when b is
    // probed.
    let plan = Plan { timeout: Nanos::from_millis(700), ..Plan::default() };
    let mut world = World::new(plan, &[("b", A), ("c", B)]);
    world.wire().script(ip(B), |_| Fate::lost());
    let in_the_name_of_c = |request: &[u8]| forge(request).into_iter().map(|reply| (ip(B), reply)).collect();
    world.wire().forge_at(ip(A), Box::new(in_the_name_of_c));
    world.run_until_tried(ip(A), 11);
    world.settle();
    let (b, c) = (world.read("b"), world.read("c"));
    assert_eq!((b.sent, b.received, b.corrupt), (11, 11, 0));
    assert_eq!((c.received, c.lost, c.late, c.duplicate), (0, c.sent, 0, 0));
    assert!(c.sent >= 10 && c.corrupt == 11 * 42, "{c:?}");
}

#[test]
fn a_flood_of_other_packets_is_counted_and_delays_and_loses_no_probe() {
    let mut world = World::new(Plan { kinds: [Raw, Raw], ..Plan::default() }, &[("a", A), ("six", SIX)]);
    // Each read gets few packets, so that one turn is not enough.
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
    assert_eq!((world.buckets("a").len(), world.buckets("six").len()), (1, 1), "no peer was delayed");
}
