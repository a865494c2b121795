//! Time: sequence numbers that wrap, clocks that are set, and CPUs that are taken away.

use kube_canary::prober::SendError;
use kube_canary::statistics::PeerReading;
use kube_canary::units::Nanos;

use super::clock::HOUR;
use super::wire::Fate;
use super::world::{MS, Plan, SECOND, World, ip};

const A: &str = "10.0.0.2";
const B: &str = "10.0.0.3";

#[test]
fn losses_are_counted_right_across_the_wrap_of_the_sequence_number() {
    let plan = Plan { interval: Nanos(10 * MS), timeout: Nanos(45 * MS), payload_bytes: 24, ..Plan::default() };
    let mut world = World::new(plan, &[("a", A)]);
    world.wire().script(ip(A), |n| match n {
        // The last sequence numbers before the wrap and the first after it: lost, answered four
        // probes later, twice, damaged.
        65_530..65_533 | 65_536..65_538 => Fate::lost(),
        65_533..65_535 => Fate::reply(40_000),
        65_535 => Fate::reply(100).and(30_000),
        65_538 => Fate::reply(60_000),
        _ => Fate::reply(100),
    });
    world.run_until_tried(ip(A), 66_000);
    world.settle();
    world.expect(
        "a",
        PeerReading {
            sent: 66_000,
            received: 66_000 - 6,
            lost: 6,
            late: 1,
            duplicate: 1,
            reordered: 2,
            ..PeerReading::default()
        },
    );
    assert_eq!(world.buckets("a"), [(Some(100), 66_000 - 8), (Some(50_000), 2)]);
}

/// Steps the real-time clock with each of twenty probes in flight: 5 ms after the probe left, 15 ms
/// before its reply arrives.
fn step_in_flight(world: &mut World, step: i64) {
    world.wire().script(ip(A), |_| Fate::reply(20_000));
    for n in 1..=20 {
        world.run_until_tried(ip(A), n);
        world.run(Nanos(5 * MS));
        world.wire().step_clock(step);
        // The kernel wakes the agent for the clock step.
        world.turn();
    }
    world.settle();
}

#[test]
fn a_step_of_the_real_time_clock_with_a_probe_in_flight_changes_no_round_trip_time() {
    for step in [HOUR, -HOUR, 400_000, -400_000, 100, -100] {
        let mut world = World::new(Plan::default(), &[("a", A)]);
        step_in_flight(&mut world, step);
        world.expect("a", PeerReading { sent: 20, received: 20, ..PeerReading::default() });
        // Below 10 µs, a step cannot be distinguished from the time that reading two clocks takes.
        // So steps add up until the sum is larger.
        let off = world.rtt("a").sum.0.abs_diff(20 * 20 * MS);
        assert!(off <= if step.abs() < 10_000 { 20 * 10_000 } else { 0 }, "step {step}: {off}");
    }
}

#[test]
fn a_step_while_a_reply_waits_to_be_read_changes_no_round_trip_time() {
    for step in [HOUR, -HOUR, 5_000_000, 500_000] {
        let mut world = World::new(Plan::default(), &[("a", A)]);
        for n in 1..=10 {
            world.run_until_tried(ip(A), n);
            // The reply arrives after 100 µs and is read after 2 ms. If a step is longer than the
            // reply is old, its stamp has only one possible meaning.
            world.stand_still(Nanos(2 * MS));
            world.wire().step_clock(step);
            world.turn();
        }
        world.expect("a", PeerReading { sent: 10, received: 10, ..PeerReading::default() });
        assert_eq!(world.rtt("a").sum, Nanos(10 * 100_000), "step {step}");
    }
}

#[test]
fn a_small_step_back_while_a_reply_waits_never_makes_its_time_longer() {
    let mut world = World::new(Plan::default(), &[("a", A), ("b", B)]);
    for n in 1..=10 {
        world.run_until_tried(ip(A), n);
        world.stand_still(Nanos(2 * MS));
        world.wire().step_clock(-1_000_000);
        world.turn();
    }
    let read = world.read("a");
    assert_eq!((read.sent, read.received, read.lost), (10, 10, 0));
    assert_eq!(world.rtt("a").sum, Nanos(10 * 100_000));
}

#[test]
fn an_agent_delayed_between_recording_and_sending_reports_neither_loss_nor_a_long_time() {
    let mut world = World::new(Plan::default(), &[("a", A)]);
    world.wire().script(ip(A), |_| Fate::reply(500));
    world.steady = false;
    for held_up in [0, 100_000, 3_000_000, 150 * MS, 900 * MS] {
        let tried = world.wire().log(ip(A)).len();
        world.wire().leaves_after = Some(Nanos(held_up));
        // The call to send takes as long as the packet is delayed: the packet has left when the
        // call returns.
        world.wire().send_takes = Nanos(held_up);
        world.run_until_tried(ip(A), tried + 4);
    }
    world.settle();
    world.expect("a", PeerReading { sent: 20, received: 20, ..PeerReading::default() });
    assert_eq!(world.rtt("a").sum, Nanos(20 * 500_000));
}

#[test]
fn a_step_between_departure_and_reply_changes_no_round_trip_time() {
    for step in [HOUR, -HOUR, 7_000_000, -7_000_000] {
        let mut world = World::new(Plan::default(), &[("a", A)]);
        (world.wire().leaves_after, world.wire().send_takes) = (Some(Nanos(30_000)), Nanos(30_000));
        step_in_flight(&mut world, step);
        assert_eq!(world.rtt("a").sum, Nanos(20 * 20 * MS), "step {step}");
    }
}

#[test]
fn an_agent_without_cpu_for_five_seconds_reports_lag_and_no_loss() {
    for timeout in [Nanos(200 * MS), SECOND, Nanos(3 * SECOND.0)] {
        let mut world = World::new(Plan { timeout, ..Plan::default() }, &[("a", A), ("b", B)]);
        world.wire().script(ip(A), |_| Fate::reply(150_000));
        world.run_until_tried(ip(A), 10);
        let (sent_before, lag_before) = (world.wire().sent(ip(A)), world.statistics.send_lag().read());
        assert_eq!((sent_before, lag_before.sum), (10, Nanos(0)));
        // The reply to the tenth arrives 150 ms later and waits.
        world.stand_still(Nanos(5 * SECOND.0));
        world.turn();
        let lag = world.statistics.send_lag();
        let classic = lag.classic();
        let late = classic.count - classic.up_to[8];
        assert!(late >= 1, "what was due meanwhile went out late, and says so");
        world.run_until_tried(ip(A), 20);
        world.settle();
        for node in ["a", "b"] {
            let read = world.read(node);
            let expected = PeerReading { sent: read.sent, received: read.sent, ..PeerReading::default() };
            world.expect(node, expected);
        }
        assert_eq!(world.buckets("a"), [(Some(250_000), 20)], "the kernel's stamps know better");
    }
}

#[test]
fn a_real_loss_is_still_a_loss_after_a_standstill() {
    let mut world = World::new(Plan::default(), &[("a", A)]);
    world.wire().script(ip(A), |n| match n {
        9 => Fate::lost(),
        10 => Fate::reply(300_000),
        _ => Fate::reply(100),
    });
    world.run_until_tried(ip(A), 10);
    world.stand_still(Nanos(5 * SECOND.0));
    world.turn();
    world.expect("a", PeerReading { sent: 11, received: 9, lost: 1, ..PeerReading::default() });
    // The eleventh was sent in that turn. Its reply arrives after the timeout and is read at once
    // with the other.
    world.stand_still(Nanos(900 * MS));
    world.turn();
    world.settle();
    let read = world.read("a");
    assert_eq!((read.sent - read.received, read.lost, read.late), (2, 2, 1));
}

#[test]
fn probes_from_before_a_standstill_of_minutes_are_judged_by_when_they_left() {
    // The times around which the time of sending wraps, in 39 bits of nanoseconds.
    for seconds in [60, 405, 415, 450, 500, 545, 555, 700, 1_100] {
        for timeout in [SECOND, Nanos(3 * SECOND.0)] {
            let mut world = World::new(Plan { timeout, ..Plan::default() }, &[("a", A), ("b", B)]);
            world.wire().script(ip(A), |_| Fate::reply(150_000));
            world.wire().script(ip(B), |n| if n == 9 { Fate::lost() } else { Fate::reply(150_000) });
            for address in [ip(A), ip(B)] {
                world.run_until_tried(address, 10);
            }
            world.stand_still(Nanos(seconds * SECOND.0));
            world.turn();
            let (a, b) = (world.read("a"), world.read("b"));
            assert_eq!((a.lost, b.lost), (0, 1), "{seconds} s: {a:?}, {b:?}");
            world.run(Nanos(5 * SECOND.0));
            world.settle();
            let (a, b) = (world.read("a"), world.read("b"));
            assert_eq!((a.received, a.lost), (a.sent, 0), "{seconds} s: {a:?}");
            assert_eq!((b.received + 1, b.lost), (b.sent, 1), "{seconds} s: {b:?}");
            for (node, read) in [("a", a), ("b", b)] {
                assert_eq!(world.buckets(node), [(Some(250_000), read.received)], "{seconds} s: {node}");
            }
        }
    }
}

#[test]
fn an_agent_delayed_between_reading_and_deciding_reports_no_loss() {
    let mut world = World::new(Plan::default(), &[("a", A)]);
    world.wire().script(ip(A), |_| Fate::reply(50_000));
    world.steady = false;
    for n in 1..=10 {
        world.run_until_tried(ip(A), n);
        // The agent turns with nothing to read, and loses the CPU right after. The reply arrives
        // during that time, before the timeout.
        world.wire().pause_when_empty = Nanos(400 * MS);
        world.turn();
    }
    world.settle();
    world.expect("a", PeerReading { sent: 10, received: 10, ..PeerReading::default() });
    assert_eq!(world.buckets("a"), [(Some(50_000), 10)]);
}

#[test]
fn a_machine_that_was_suspended_sends_each_peer_one_probe_and_no_burst() {
    let (mut world, peers) = World::of_many(Plan { timeout: SECOND, ..Plan::default() }, 200);
    world.run(Nanos(10 * SECOND.0));
    let before: Vec<u64> = peers.iter().map(|(_, address)| world.wire().sent(*address)).collect();
    // The machine is suspended for an hour, in which real time goes on. In a paused virtual
    // machine, both clocks go on.
    for both in [false, true] {
        world.wire().step_clock(HOUR);
        if both {
            world.stand_still(Nanos(HOUR.unsigned_abs()));
        }
        world.turn();
        world.run(Nanos(10 * SECOND.0));
    }
    assert_eq!(world.statistics.skipped(), 200 * 3_599, "an hour of turns but the last, reported");
    for ((name, address), before) in peers.iter().zip(before) {
        let sent = world.wire().sent(*address);
        assert!((20..=22).contains(&(sent - before)), "{name}: {}", sent - before);
        let read = world.read(name);
        assert_eq!(
            (read.lost, read.late, read.duplicate, read.send_errors),
            (0, 0, 0, [0; SendError::ALL.len()]),
            "{name}"
        );
    }
}

#[test]
fn a_host_too_slow_for_its_interval_still_ends_each_turn() {
    // There are 50 cells of four peers, 20 ms apart, and sending to each takes 25 ms. So the agent
    // can never keep up.
    let (mut world, peers) = World::of_many(Plan::default(), 200);
    world.wire().send_takes = Nanos(25 * MS);
    world.steady = false;
    let start = world.now();
    world.stand_still(SECOND);
    for _ in 0..10 {
        world.turn();
    }
    assert!(world.now().since(start) < Nanos(20 * SECOND.0));
    let lost: u64 = peers.iter().map(|(name, _)| world.read(name).lost).sum();
    assert_eq!(lost, 0);
}
